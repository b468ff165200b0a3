"""What a job may fetch: domains, patterns and depth, and the messages about them."""

from __future__ import annotations

import re
import subprocess
import sys
from fnmatch import fnmatchcase
from time import process_time
from urllib.parse import quote

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from scrapy_focus.decisions.hosts import InvalidHost, canonical_host, is_within
from scrapy_focus.decisions.scope import InvalidScope, Scope


def host_of(url: str) -> str | None:
    try:
        return canonical_host(url)
    except InvalidHost:
        return None


def refuse(scope: Scope, url: str, depth: int = 0, *, allow_offsite: bool = False) -> str | None:
    host = host_of(url)
    reason = scope.refuse(url, host, depth, allow_offsite=allow_offsite)
    sentence = scope.explain(url, host, depth, allow_offsite=allow_offsite)
    assert sentence.endswith(".")
    assert ("out of scope" in sentence) is (reason is not None)
    return reason


def excludes(pattern: str, url: str) -> bool:
    return refuse(Scope(excluded=[pattern]), url) == "excluded"


def includes(pattern: str, url: str) -> bool:
    return refuse(Scope(included=[pattern]), url) is None


# --- domains


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://example.com/", None),
        ("https://www.example.com:8080/", None),
        ("http://a.b.example.com/", None),
        ("http://EXAMPLE.com./", None),
        ("http://user@example.com/", None),
        ("ftp://example.com/", None),
        ("http://com/", "offsite"),
        ("http://other.example/", "offsite"),
        pytest.param(
            "http://other.example/?u=http://example.com/", "offsite", id="scrapy-184-query"
        ),
        pytest.param("http://other.example/example.com/", "offsite", id="scrapy-184-path"),
        pytest.param("http://example.com@other.example/", "offsite", id="scrapy-184-user"),
        pytest.param("http://other.example/#@example.com/", "offsite", id="scrapy-184-fragment"),
        pytest.param("http://badexample.com/", "offsite", id="scrapy-477-suffix"),
        pytest.param("http://example.com.other.example/", "offsite", id="scrapy-477-prefix"),
        pytest.param("http://example.com:8000/", None, id="scrapy-50-port-in-the-url"),
        ("http://evil.example\\@example.com/", "invalid"),
        ("http://[::1/", "invalid"),
        ("data:,example.com", "offsite"),
        ("file:///example.com", "offsite"),
        ("about:blank", "offsite"),
    ],
)
def test_domains(url: str, reason: str | None) -> None:
    assert refuse(Scope(["example.com"]), url) == reason


@pytest.mark.parametrize(
    ("domain", "url"),
    [
        pytest.param("bücher.example", "http://www.xn--bcher-kva.example/", id="punycode"),
        pytest.param("xn--bcher-kva.example", "http://bücher.example/", id="unicode"),
        pytest.param("example.com", "http://example.com./", id="root-dot-in-the-url"),
        pytest.param("example.com.", "http://example.com/", id="root-dot-in-the-domain"),
        pytest.param("[::1]", "http://[::1]:8000/", id="ipv6-in-brackets"),
        pytest.param("::1", "http://[0::1]/", id="ipv6-without-brackets"),
        pytest.param("127.0.0.1", "http://127.1/", id="ipv4"),
    ],
)
def test_one_name_on_both_sides_crawlee_python_2144(domain: str, url: str) -> None:
    assert refuse(Scope([domain]), url) is None
    assert refuse(Scope([domain, "other.example"]), "http://not.example/") == "offsite"


#: A host that is in scope, and one that is not, in the words of whoever tries to tell a filter
#: from the machine that it connects to. What is refused as invalid cannot be read alike by all.
TRICKS: list[tuple[str, str | None]] = [
    ("http://example.com:80/docs/", None),
    ("https://example.com:8443/docs/", None),
    ("http://EXAMPLE.com:00080/docs/", None),
    ("http://user@example.com/docs/", None),
    ("http://user:pass@example.com:8080/docs/", None),
    ("http://evil.example@example.com/docs/", None),
    ("http://evil.example:80@example.com/docs/", None),
    ("http://evil.example@user@example.com/docs/", None),
    ("http://user@example.com@evil.example/docs/", "offsite"),
    ("http://evil.example\\@example.com/docs/", "invalid"),
    ("http://example.com\\@evil.example/docs/", "invalid"),
    ("http://e%78ample.com/docs/", None),
    ("http://ｅxample.com/docs/", None),
    ("http://example。com/docs/", None),
    ("http://exam\tple.com/docs/", None),
    ("http://example.com:99999/docs/", "invalid"),
    ("http://example.com:80:80/docs/", "invalid"),
    ("http://example.com@evil.example/docs/", "offsite"),
    ("http://example.com:80@evil.example/docs/", "offsite"),
    ("http://example.com:pass@evil.example:80/docs/", "offsite"),
    ("http://example.com%40evil.example/docs/", "invalid"),
    ("http://evil.example%2F.example.com/docs/", "invalid"),
    ("http://evil.example%00.example.com/docs/", "invalid"),
    ("http://evil.example%23.example.com/docs/", "invalid"),
    ("http://evil.example\\.example.com/docs/", "invalid"),
    ("http://evil.example?.example.com/docs/", "offsite"),
    ("http://evil.example#.example.com/docs/", "offsite"),
    ("http://evil.example;.example.com/docs/", "invalid"),
    ("http://evil.example/?host=example.com/docs/", "offsite"),
    ("http://evil.example/docs/?@example.com/docs/", "offsite"),
    ("http://evil.example/docs/#@example.com/docs/", "offsite"),
    ("http://evil.example//example.com/docs/", "offsite"),
    ("http://evilexample.com/docs/", "offsite"),
    ("http://evil-example.com/docs/", "offsite"),
    ("http://example.com.evil.example/docs/", "offsite"),
    ("http://example.com-evil.example/docs/", "offsite"),
    ("http://example.comevil/docs/", "offsite"),
    ("http://example/docs/", "offsite"),
    ("http://.example.com/docs/", "invalid"),
    ("http://example..com/docs/", "invalid"),
    ("http://example.com../docs/", "invalid"),
    ("http:///example.com/docs/", "invalid"),
    ("http:example.com/docs/", "invalid"),
    ("//example.com/docs/", "invalid"),
    ("example.com/docs/", "invalid"),
    # Letters that look alike.
    ("http://ехample.com/docs/", "offsite"),
    ("http://xn--example-.com/docs/", "offsite"),
]


@pytest.mark.parametrize(("url", "reason"), TRICKS)
def test_tricks(url: str, reason: str | None) -> None:
    assert refuse(Scope(["example.com"]), url) == reason
    by_pattern = refuse(Scope(included=["example.com/docs/*"]), url)
    assert by_pattern == ("not_included" if reason == "offsite" else reason)
    assert (refuse(Scope(excluded=["example.com"]), url) == "excluded") is (reason is None)


@pytest.mark.parametrize(
    ("url", "within"),
    [
        ("http://[::1]/", True),
        ("http://[::1]:8080/", True),
        ("http://user@[::1]/", True),
        ("http://[0:0:0:0:0:0:0:1]/", True),
        ("http://[::0001]/", True),
        ("http://[::ffff:127.0.0.1]/", True),
        ("http://[::ffff:7f00:1]/", True),
        ("http://127.1/", True),
        ("http://0x7f.1/", True),
        ("http://2130706433/", True),
        ("http://0177.0.0.1/", True),
        ("http://[::2]/", False),
        ("http://[::1].example.com/", False),
        ("http://[::1]@evil.example/", False),
        ("http://[::1%25eth0]/", False),
        ("http://::1/", False),
        ("http://127.0.0.1.evil.example/", False),
        ("http://evil.example/[::1]", False),
        ("http://127.0.0.2/", False),
        ("http://x.127.0.0.1/", False),
    ],
)
def test_addresses(url: str, within: bool) -> None:
    for scope in (Scope(["::1", "127.0.0.1"]), Scope(included=["[::1]", "127.0.0.1/*"])):
        assert (refuse(scope, url) is None) is within


def test_no_domains_allow_every_host() -> None:
    for url in ("http://example.com/", "http://[::1]/", "data:,x", "file:///x", "about:blank"):
        assert refuse(Scope(), url) is None
    assert refuse(Scope(), "http://[::1/") == "invalid"


def test_a_leading_dot_means_nothing() -> None:
    scope = Scope([".example.com"])
    assert scope.domains == {"example.com"}
    assert refuse(scope, "http://example.com/") is None
    assert refuse(scope, "http://www.example.com/") is None


def test_addresses_have_no_subdomains() -> None:
    scope = Scope(["0.0.1", "10.0.0.1"])
    assert scope.domains == {"0.0.0.1", "10.0.0.1"}
    assert refuse(scope, "http://10.0.0.1/") is None
    assert refuse(scope, "http://7.0.0.1/") == "offsite"


NAMES = st.from_regex(r"([ab]\.){0,3}[ab]", fullmatch=True)


@given(NAMES, st.lists(NAMES, min_size=1, max_size=4))
def test_domains_and_is_within_are_one_rule(host: str, domains: list[str]) -> None:
    within = any(is_within(host, domain) for domain in domains)
    assert (Scope(domains).refuse(f"http://{host}/", host) is None) is within


def test_many_domains_cost_what_one_does() -> None:
    """A list is a set: a scan of 20,000 domains would take minutes for these URLs."""
    scope = Scope([f"d{number}.example" for number in range(20_000)])
    begin = process_time()
    for number in range(20_000):
        assert scope.refuse("", f"www.d{number}.example") is None
        assert scope.refuse("", f"www.e{number}.example") == "offsite"
    assert process_time() - begin < 5


# --- patterns


@pytest.mark.parametrize(
    ("pattern", "url", "matches"),
    [
        # Hosts.
        ("example.com", "http://example.com", True),
        ("example.com", "http://example.com/any/path?query", True),
        ("example.com", "https://example.com:8443/", True),
        ("example.com", "http://www.example.com/", False),
        ("EXAMPLE.com", "http://example.COM/", True),
        ("example.com.", "http://example.com/", True),
        ("bücher.example", "http://xn--bcher-kva.example/", True),
        ("*.bücher.example", "http://www.xn--bcher-kva.example/", True),
        ("127.1", "http://127.0.0.1/", True),
        ("10.0.*", "http://10.0.0.1/", True),
        ("10.0.*", "http://10.1.0.1/", False),
        ("[::1]/x", "http://[0::1]:8000/x", True),
        ("[::1]/x", "http://[::2]/x", False),
        ("*.example.com", "http://www.example.com/", True),
        ("*.example.com", "http://a.b.example.com/", True),
        ("*.example.com", "http://example.com/", False),
        ("*.EXAMPLE.com", "http://www.example.com/", True),
        ("*", "http://example.com/x", True),
        ("*", "data:,x", True),
        ("www.*", "http://www.example.com/x", True),
        ("www.*.com", "http://www.example.com/", True),
        ("w*w.*ample*", "http://www.example.com/", True),
        ("w*w.*ample", "http://www.example.com/", False),
        # The host glob ends at the path.
        ("*.example.com", "http://other.example/www.example.com", False),
        ("*example.com", "http://other.example/example.com", False),
        ("*.com/x", "http://other.example/a.com/x", False),
        ("*e*e*", "http://ab.c/e/e/e", False),
        # Paths.
        ("example.com/", "http://example.com", True),
        ("example.com/", "http://example.com?query", True),
        ("example.com/", "http://example.com/x", False),
        ("example.com/docs/*", "http://example.com/docs/", True),
        ("example.com/docs/*", "http://example.com/docs/a/b?c#d", True),
        ("example.com/docs/*", "http://example.com/docs", False),
        ("example.com/docs/*", "http://example.com/x?/docs/x", False),
        ("example.com/docs/*", "http://example.com/x#/docs/x", False),
        ("example.com/docs/*", "http://other.example/docs/x", False),
        ("example.com/docs/*", "http://example.com/Docs/x", False),
        ("example.com/Docs/*", "http://example.com/Docs/x", True),
        ("example.com/docs", "http://example.com/docs/x", False),
        ("/docs/*", "http://any.example/docs/x", True),
        ("/docs/*", "http://any.example/x/docs/x", False),
        ("/*.pdf", "http://any.example/a/b.pdf", True),
        ("/*.pdf", "http://any.example/a/b.pdf?download", True),
        ("/*.pdf", "http://any.example/a/b.pdf.html", False),
        ("/*.pdf", "http://any.example/a/bpdf", False),
        ("*/*.pdf", "http://any.example/a/b.pdf", True),
        ("*/private/*", "http://any.example/private/x", True),
        ("*/private/*", "http://any.example/a/private/x", False),
        ("/*/private/*", "http://any.example/a/private/x", True),
        ("/a**b", "http://any.example/a/x/b", True),
        ("/a*b*c", "http://any.example/abbc", True),
        ("/a*b*c", "http://any.example/acb", False),
        ("/*aa*aa", "http://any.example/aaa", False),
        ("/*aa*aa", "http://any.example/aaaa", True),
        ("/page-[0-9]", "http://any.example/page-7", True),
        ("/page-[0-9]", "http://any.example/page-77", False),
        ("/page-[!0-9]*", "http://any.example/page-x7", True),
        ("/page-[!0-9]*", "http://any.example/page-7", False),
        ("/[]x]", "http://any.example/%5D", True),
        ("/[[]x", "http://any.example/%5Bx", True),
        ("/[a-]", "http://any.example/-", True),
        ("/[^a]", "http://any.example/a", True),
        ("/[a--]", "http://any.example/a", None),
        ("/a+b(c)|.$", "http://any.example/a+b(c)|.$", True),
        ("/a+b(c)|.$", "http://any.example/aab", False),
        ("/x]", "http://any.example/x%5D", True),
        ("/{a,b}", "http://any.example/a", False),
        # Other spellings, on either side.
        ("/café/*", "http://any.example/caf%C3%A9/x", True),
        ("/caf%c3%a9/*", "http://any.example/caf%C3%A9/x", True),
        ("/caf%C3%A9/*", "http://any.example/café/x", True),
        ("/caf%E9/*", "http://any.example/caf%E9/x", True),
        ("/caf%E9/*", "http://any.example/caf%E8/x", False),
        ("/a%2Ab", "http://any.example/a*b", True),
        ("/a%2Ab", "http://any.example/axb", False),
        ("/wiki/AC%2FDC", "http://any.example/wiki/AC%2FDC", True),
        ("/wiki/AC/DC", "http://any.example/wiki/AC%2fDC", True),
        ("/a b", "http://any.example/a%20b", True),
        ("/a*b", "http://any.example/a%0Ab", True),
        ("/docs/*", "http://any.example/%64ocs/x", True),
        ("/docs/*", "http://any.example//docs//x", True),
        ("/docs/*", "http://any.example/./docs/x", True),
        ("/docs/*", "http://any.example/x/../docs/x", True),
        ("/docs/*", "http://any.example/x/%2e%2E/docs/x", True),
        ("/docs/*", "http://any.example/../../docs/x", True),
        ("/docs/*", "http://any.example/x/..%2fdocs%2Fx", True),
        ("/docs/*", "http://any.example/%5Cdocs%5cx", True),
        ("/docs/*", "http://any.example/\tdo\ncs/x", True),
        ("/docs/", "http://any.example/docs/x/..", True),
        ("/docs/", "http://any.example/docs/.", True),
        ("/docs/", "  http://any.example/docs/  ", True),
        # Decoded once, as servers do.
        ("/docs/*", "http://any.example/%2564ocs/x", False),
        # No host.
        ("/etc/*", "file:///etc/passwd", True),
        ("/text/plain*", "data:text/plain,x", True),
        ("/blank", "about:blank", True),
        ("example.com", "data:,example.com", False),
    ],
)
def test_pattern(pattern: str, url: str, matches: bool | None) -> None:
    if matches is None:
        with pytest.raises(InvalidScope, match="backward"):
            Scope(included=[pattern])
    else:
        assert includes(pattern, url) is matches
        assert excludes(pattern, url) is matches


@pytest.mark.parametrize(
    ("pattern", "url"),
    [
        ("/docs/*", "http://any.example/docs/../x"),
        ("/docs/*", "http://any.example/docs/..%2Fx"),
        ("/docs/*", "http://any.example/docs/%2e%2e/x"),
        # "/x" for a server that merges slashes before it resolves dots, "/docs/x" for others.
        ("/docs/*", "http://any.example/docs//../x"),
        ("/x", "http://any.example/docs//../x"),
        # Two slashes, which a normal path never has.
        ("/*//*", "http://any.example/a//b"),
        ("/*//*", "http://any.example/a/%2Fb"),
        ("/web/*/http://*", "http://any.example/web/2020/http://other.example/"),
        ("/*/../*", "http://any.example/a/../b"),
        ("/*%2F*", "http://any.example/a%2Fb"),
    ],
)
def test_any_reading_excludes(pattern: str, url: str) -> None:
    assert excludes(pattern, url)


@pytest.mark.parametrize(
    ("pattern", "url", "included"),
    [
        ("/docs/*", "http://any.example/docs/../x", False),
        ("/docs/*", "http://any.example/docs/..%2Fx", False),
        ("/docs/*", "http://any.example/docs/..%5Cx", False),
        ("/docs/*", "http://any.example/docs//../x", False),
        ("/x", "http://any.example/docs//../x", False),
        ("/docs/*", "http://any.example/docs/a//../x", True),
        ("/web/*/http://*", "http://any.example/web/2020/http://other.example/", True),
    ],
)
def test_all_normal_readings_must_be_included(pattern: str, url: str, included: bool) -> None:
    assert includes(pattern, url) is included


def test_two_slashes_exclude_nothing_else() -> None:
    assert not excludes("/*//*", "http://any.example/a/b")


def test_excluded_wins_over_included() -> None:
    scope = Scope(["example.com"], ["example.com/docs/*"], ["/docs/private/*"])
    assert refuse(scope, "http://example.com/docs/x") is None
    assert refuse(scope, "http://example.com/docs/private/x") == "excluded"
    assert refuse(scope, "http://example.com/x") == "not_included"
    assert refuse(scope, "http://www.example.com/docs/x") == "not_included"
    assert refuse(scope, "http://other.example/docs/private/x") == "offsite"


def test_many_patterns() -> None:
    scope = Scope(excluded=[f"h{number}.example/*/x{number}/*" for number in range(2_000)])
    assert refuse(scope, "http://h1999.example/a/x1999/") == "excluded"
    assert refuse(scope, "http://h1999.example/a/x1998/") is None


def test_many_wildcards_do_not_explode() -> None:
    scope = Scope(excluded=["/" + "*a" * 30 + "b", "*a" * 30 + "b.example"])
    begin = process_time()
    assert refuse(scope, "http://any.example/" + "a" * 20_000) is None
    assert refuse(scope, "http://" + "a" * 60 + ".example/") is None
    assert process_time() - begin < 5


GLOBS = st.text("ab/*", max_size=8)
PATHS = st.lists(st.sampled_from(["a", "b", "ab"]), max_size=4).map("/".join)


@given(GLOBS, PATHS)
def test_paths_match_as_globs_do(glob: str, path: str) -> None:
    pattern = "/" + glob
    assume("//" not in pattern)
    assert includes(pattern, f"http://any.example/{path}") is fnmatchcase("/" + path, pattern)


@given(st.from_regex(r"[ab*]{1,4}(\.[ab*]{1,3}){0,2}", fullmatch=True), NAMES)
def test_hosts_match_as_globs_do(glob: str, host: str) -> None:
    assert includes(f"{glob}/x", f"http://{host}/x") is fnmatchcase(host, glob)


SEGMENTS = st.lists(st.sampled_from(["a", "b", "..", ".", "", "é", "%", " "]), max_size=6)


@given(SEGMENTS, st.data())
def test_a_spelling_never_dodges_an_exclusion(segments: list[str], data: st.DataObject) -> None:
    """However the path is encoded, it is excluded, and included, as its plain form is."""
    plain = "/" + "/".join(quote(segment) for segment in segments)
    spelled = "/" + "".join(
        f"%{byte:02x}"
        if data.draw(st.booleans())
        else quote(chr(byte), safe="/.")
        if byte < 128
        else f"%{byte:02X}"
        for byte in "/".join(segments).encode()
    )
    for pattern in ("/a/*", "/b", "*/b/*", "/", "/é*"):
        assert includes(pattern, f"http://x.y{spelled}") == includes(pattern, f"http://x.y{plain}")
        if excludes(pattern, f"http://x.y{plain}"):
            assert excludes(pattern, f"http://x.y{spelled}")


@given(SEGMENTS)
def test_dots_resolve_as_the_url_standard_says(segments: list[str]) -> None:
    """Against another implementation: a stack, walked from the end."""
    path = "/".join(segments)
    assume("//" not in f"/{path}/")
    kept: list[str] = []
    skip = 0
    for segment in reversed(segments):
        if segment == "..":
            skip += 1
        elif segment != "." and skip:
            skip -= 1
        elif segment != ".":
            kept.append(segment)
    end = "" if segments[-1] not in {".", ".."} or not kept else "/"
    normal = "/" + "/".join(reversed(kept)) + end
    assert includes(quote(normal), f"http://x.y/{quote(path)}")


@given(st.text(), st.one_of(st.none(), st.text()), st.integers(), st.booleans())
def test_any_url_is_judged(url: str, host: str | None, depth: int, allow_offsite: bool) -> None:
    scope = Scope(["example.com"], ["/a*"], ["*/b*"], 3)
    reason = scope.refuse(url, host, depth, allow_offsite=allow_offsite)
    assert reason in {None, "invalid", "offsite", "excluded", "not_included", "depth"}
    assert scope.explain(url, host, depth, allow_offsite=allow_offsite)


# --- depth, seeds, allow_offsite


def test_depth() -> None:
    scope = Scope(max_depth=2)
    assert [refuse(scope, "http://x.example/", depth) for depth in (0, 2, 3)] == [
        None,
        None,
        "depth",
    ]
    assert refuse(Scope(max_depth=0), "http://x.example/", 10**9) is None


def test_allow_offsite_admits_the_host_and_nothing_else() -> None:
    scope = Scope(["example.com"], ["*/docs/*"], ["/docs/private/*"], 2)
    admitted: dict[str, str | None] = {"http://other.example/docs/x": None}
    admitted["http://other.example/docs/private/x"] = "excluded"
    admitted["http://other.example/x"] = "not_included"
    admitted["http://[::1/docs/x"] = "invalid"
    for url, reason in admitted.items():
        assert refuse(scope, url) == ("invalid" if reason == "invalid" else "offsite")
        assert refuse(scope, url, allow_offsite=True) == reason
    assert refuse(scope, "http://other.example/docs/x", 3, allow_offsite=True) == "depth"


# --- hosts that were brought in


def brought_in(scope: Scope, *hosts: str) -> Scope:
    scope.bring_in(hosts)
    return scope


def test_a_host_that_is_brought_in_counts_as_its_twin() -> None:
    scope = brought_in(Scope(["www.example.com"], max_depth=2), "example.com")
    assert refuse(scope, "http://example.com/x", 2) is None
    assert refuse(scope, "http://example.com/x", 3) == "depth"
    assert refuse(scope, "http://blog.example.com/") == "offsite"
    assert "'www.example.com' is" in scope.explain("http://example.com/x", "example.com")
    scope.bring_in(["www.other.example"])
    assert refuse(scope, "http://www.other.example/") == "offsite", "its twin is not, either"
    assert refuse(scope, "http://example.com/x") is None


def test_the_patterns_of_both_names_hold_there() -> None:
    rules = ["example.com/docs/*"], ["www.example.com/docs/a", "example.com/docs/b"]
    scope = brought_in(Scope([], *rules), "www.example.com")
    assert refuse(scope, "http://www.example.com/docs/c") is None
    assert refuse(scope, "http://www.example.com/x") == "not_included"
    for page, pattern in zip("ab", rules[1], strict=True):
        url = f"http://www.example.com/docs/{page}"
        assert refuse(scope, url) == "excluded"
        assert f"excluded pattern {pattern!r}" in scope.explain(url, "www.example.com")


def test_an_exclusion_under_its_own_name_holds_where_only_its_twin_is_in_the_domains() -> None:
    scope = brought_in(Scope(["www.example.com"], [], ["example.com/private/*"]), "example.com")
    assert refuse(scope, "http://example.com/private/x") == "excluded"
    assert refuse(scope, "http://example.com/x") is None


def test_what_no_rule_admits_is_out_however_much_is_brought_in() -> None:
    """Both names, by an earlier run with another scope: neither leads to the other for ever."""
    scope = brought_in(Scope(["other.example"]), "example.com", "www.example.com")
    assert refuse(scope, "http://example.com/") == "offsite"
    assert refuse(scope, "http://www.example.com/") == "offsite"


# --- messages


@pytest.mark.parametrize(
    ("url", "depth", "parts"),
    [
        ("http://other.example/", 0, ["'other.example'", "'example.com'", "within"]),
        ("http://example.com/b/private/x", 0, ["excluded pattern '/*/private/*'"]),
        ("http://example.com/a", 0, ["none of the included '/b/*', '/c/*'"]),
        ("http://example.com/b/x", 9, ["9 links", "greatest depth is 3"]),
        ("http://example..com/", 0, ["'example..com'", "a label is empty"]),
        ("http://example.com/b/x", 3, ["is in scope"]),
    ],
)
def test_explain_names_the_rule(url: str, depth: int, parts: list[str]) -> None:
    scope = Scope(["example.com"], ["/b/*", "/c/*"], ["/*/secret/*", "/*/private/*"], 3)
    sentence = scope.explain(url, host_of(url), depth)
    for part in [repr(url), *parts]:
        assert part in sentence


def test_explain_stays_short() -> None:
    scope = Scope([f"d{number}.example" for number in range(1_000)])
    url = "http://x.example/" + "y" * 10_000
    sentence = scope.explain(url, "x.example")
    assert "and 995 more" in sentence
    assert len(sentence) < 400


@pytest.mark.parametrize(
    ("domain", "parts"),
    [
        pytest.param("example.com:8000", ["write 'example.com'"], id="scrapy-50-port"),
        pytest.param("localhost:8000", ["write 'localhost'"], id="scrapy-50-localhost"),
        pytest.param("[::1]:80", ["write '[::1]'"], id="scrapy-50-ipv6"),
        ("http://example.com", ["write 'example.com'"]),
        ("https://www.example.com:443/path?x", ["write 'www.example.com'"]),
        ("//example.com/", ["write 'example.com'"]),
        ("example.com/path", ["write 'example.com'"]),
        ("user@example.com", ["write 'example.com'"]),
        ("*.example.com", ["write 'example.com'", "subdomains"]),
        ("*", ["leave the list empty"]),
        (".", ["leave the list empty"]),
        ("www.*.com", ["wildcard"]),
        ("", ["empty"]),
        (" ", ["empty"]),
        (" example.com", ["blanks", "write 'example.com'"]),
        ("a..b", ["a label is empty"]),
        ("exam ple.com", ["' '"]),
        ("300.1.1.1", ["IPv4"]),
        (None, ["not a string"]),
        (b"example.com", ["not a string"]),
        (7, ["not a string"]),
    ],
)
def test_bad_domain(domain: object, parts: list[str]) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(domain))) as raised:
        Scope(["good.example", domain])  # type: ignore[list-item]
    assert isinstance(raised.value, InvalidScope)
    [(argument, sentence)] = raised.value.problems
    assert argument == "domains"
    assert sentence.endswith(".")
    for part in parts:
        assert part in sentence


@pytest.mark.parametrize(
    ("pattern", "parts"),
    [
        ("http://example.com/x", ["scheme", "write 'example.com/x'"]),
        ("*://example.com/x", ["scheme", "write 'example.com/x'"]),
        ("//example.com/x", ["scheme", "write 'example.com/x'"]),
        pytest.param("example.com:8000/x", ["port", "write 'example.com/x'"], id="port"),
        pytest.param("example.com:8000", ["port", "write 'example.com'"], id="port-alone"),
        ("*.example.com:8000/x", ["port", "write '*.example.com/x'"]),
        ("*:8000/x:8000", ["port", "write '*/x:8000'"]),
        ("example.com:*/x", ["port", "write 'example.com/x'"]),
        ("[::1]:80/x", ["port", "write '[::1]/x'"]),
        ("user@example.com/x", ["write 'example.com/x'"]),
        ("example.com/x?id=*", ["query", "write 'example.com/x'"]),
        ("example.com/x#top", ["fragment", "write 'example.com/x'"]),
        ("exam ple.com/x", ["' '"]),
        (".example.com/x", ["a label is empty"]),
        ("*..example.com/x", ["''"]),
        ("*.bü*.example/x", ["'bü*'"]),
        ("[ab]*.example.com/x", ["'[ab]*'"]),
        (f"*.{'a' * 64}", ["host"]),
        ("", ["empty"]),
        ("/x ", ["blanks", "write '/x'"]),
        ("*.pdf", ["hosts", "write '/*.pdf'"]),
        ("*.JPG", ["hosts", "write '/*.JPG'"]),
        ("/[", ["[[]"]),
        ("/[]", ["[[]"]),
        ("/[!]", ["[[]"]),
        ("/x[abc", ["[[]"]),
        ("/[z-a]", ["write 'a-z'"]),
        (None, ["not a string"]),
    ],
)
@pytest.mark.parametrize("argument", ["included", "excluded"])
def test_bad_pattern(argument: str, pattern: object, parts: list[str]) -> None:
    with pytest.raises(InvalidScope) as raised:
        Scope(**{argument: ["good.example/*", pattern]})  # type: ignore[arg-type]
    [(named, sentence)] = raised.value.problems
    assert named == argument
    assert repr(pattern) in sentence
    assert sentence.endswith(".")
    for part in parts:
        assert part in sentence


@pytest.mark.parametrize("pattern", ["/a/../b", "/a/./b", "/a/..", "/%2e%2E/b", "/a/..\\b"])
def test_dot_segments_in_included_patterns(pattern: str) -> None:
    with pytest.raises(InvalidScope, match="segment"):
        Scope(included=[pattern])
    Scope(excluded=[pattern])


@pytest.mark.parametrize("depth", [-1, 1.5, "3", None, True])
def test_bad_depth(depth: object) -> None:
    with pytest.raises(InvalidScope, match=re.escape(f"max_depth: {depth!r}")):
        Scope(max_depth=depth)  # type: ignore[arg-type]


@pytest.mark.parametrize("argument", ["domains", "included", "excluded"])
@pytest.mark.parametrize("entries", ["example.com", b"example.com", None, 7])
def test_not_a_list(argument: str, entries: object) -> None:
    with pytest.raises(InvalidScope, match=f"{argument}: .* is not a list"):
        Scope(**{argument: entries})  # type: ignore[arg-type]


def test_all_bad_entries_are_named_at_once() -> None:
    with pytest.raises(InvalidScope) as raised:
        Scope(["a.example:1", "b.example:2"], ["http://c.example"], ["/d?e"], -1)
    named = [argument for argument, _ in raised.value.problems]
    assert named == ["domains", "domains", "included", "excluded", "max_depth"]
    for argument, sentence in raised.value.problems:
        assert f"{argument}: {sentence}" in str(raised.value)


# --- signature


def test_signature_tells_rules_apart() -> None:
    scopes = [
        Scope(),
        Scope(["a.example"]),
        Scope(["b.example"]),
        Scope(["a.example", "b.example"]),
        Scope(included=["a.example"]),
        Scope(excluded=["a.example"]),
        Scope(included=["/a"]),
        Scope(included=["/A"]),
        Scope(max_depth=1),
    ]
    signatures = [scope.signature() for scope in scopes]
    assert len(set(signatures)) == len(scopes)
    assert all(re.fullmatch("[0-9a-f]{16}", signature) for signature in signatures)


def test_signature_of_equal_rules_is_equal() -> None:
    one = Scope(["B.example.", "bücher.example"], ["X.example/*", "/b"], ["y.example"])
    other = Scope(
        ["xn--bcher-kva.example", ".b.example", "b.example"], ["/b", "x.example"], ["y.example/*"]
    )
    assert one.signature() == other.signature()


def test_signature_is_the_same_in_every_process() -> None:
    code = (
        "from scrapy_focus.decisions.scope import Scope;"
        "scope = Scope(['b.example', 'a.example', 'c.example'], ['/\\udc80é'], ['/y'], 2);"
        "print(scope.signature())"
    )
    here = Scope(["a.example", "b.example", "c.example"], ["/\udc80é"], ["/y"], 2).signature()
    for seed in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        )
        assert done.stdout.strip() == here

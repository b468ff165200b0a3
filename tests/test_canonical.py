"""The canonical forms of URLs, rule by rule, and that the default rules merge nothing that a
server may tell apart."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy import Request

from scrapy_focus.decisions.canonical import DEFAULT, RULES, Forms, InvalidRule
from scrapy_focus.decisions.hosts import InvalidHost, canonical_host
from scrapy_focus.exceptions import SettingError
from scrapy_focus.settings import read_forms


def form(url: str, *changes: Any) -> str:
    return Forms({"*": changes}).of(url)(url)


# Each line is one URL, in several spellings; the first is the canonical one.
SAME = [
    ["http://example.com/", "HTTP://EXAMPLE.com", "http://example.com:80/", "http://example.com:#x"],
    ["https://example.com/", "https://example.com:443/", "https://example.com/#", "https://e%78ample.com"],
    ["http://example.com/~a/", "http://example.com/%7Ea/", "http://example.com/%7ea/./"],
    ["http://example.com/b", "http://example.com/a/../b", "http://example.com/%2E%2e/b"],
    ["http://example.com/%C3%A9%2F", "http://example.com/%c3%a9%2f"],
    ["http://example.com/?a=1&b=2", "http://example.com?b=2&a=1"],
    ["http://example.com/?a=2&a=1&b=0", "http://example.com/?b=0&a=2&a=1", "http://example.com/?a=2&b=0&a=1"],
    ["http://xn--bcher-kva.example/", "http://bücher.example/", "http://B%C3%BCcher.example"],
    ["http://127.0.0.1/", "http://127.1/", "http://0x7f.0.0.1/", "http://2130706433"],
    ["http://[::1]:8080/", "http://[0:0::0:1]:8080"],
    ["http://user:Pass@example.com/", "http://user:Pass@EXAMPLE.com:80"],
    ["data:,A", "DATA:,A", "data:,%41#x"],
]  # fmt: skip

# Each line has URLs that a server may answer with different pages.
DIFFERENT = [
    ["http://example.com/", "https://example.com/", "http://example.com:8080/", "http://example.com:443/",
     "https://example.com:80/", "http://www.example.com/", "http://example.com./", "http://u@example.com/",
     "http://U@example.com/", "http://example.com/?", "http://example.com//", "http://example.com/index.html"],
    ["http://example.com/a", "http://example.com/A", "http://example.com/a/", "http://example.com/a;b",
     "http://example.com/a?", "http://example.com/%61%2F", "http://example.com/a%3F", "http://example.com//a"],
    ["http://example.com/a/b", "http://example.com/a%2Fb", "http://example.com/a%252Fb", "http://example.com/a//b"],
    ["http://example.com/%", "http://example.com/%25", "http://example.com/%2525", "http://example.com/%zz"],
    ["http://example.com/a+b", "http://example.com/a%20b", "http://example.com/a%2Bb"],
    ["http://example.com/?a=1&a=2", "http://example.com/?a=2&a=1", "http://example.com/?a=2", "http://example.com/?a=1&a=1&a=2"],
    ["http://example.com/?a", "http://example.com/?a=", "http://example.com/?A", "http://example.com/?a=&a"],
    ["http://example.com/?a=b+c", "http://example.com/?a=b%20c", "http://example.com/?a=b%2Bc"],
    ["http://example.com/?a=1&b=2", "http://example.com/?a=1%26b=2", "http://example.com/?a=1;b=2"],
    ["http://example.com/%E9", "http://example.com/%C3%A9"],
    ["http://example.com/?q=%E9", "http://example.com/?q=%C3%A9"],
]  # fmt: skip


@pytest.mark.parametrize("urls", SAME, ids=lambda urls: urls[0])
def test_one_form(urls: list[str]) -> None:
    assert {DEFAULT(url) for url in urls} == {urls[0]}


@pytest.mark.parametrize("urls", DIFFERENT, ids=lambda urls: urls[0])
def test_each_a_form_of_its_own(urls: list[str]) -> None:
    assert len({DEFAULT(url) for url in urls}) == len(urls)
    assert len({DEFAULT(Request(url).url) for url in urls if "%zz" not in url}) >= len(urls) - 1


BY_CHOICE = [
    ("https", "http://a.example/", "https://a.example/"),
    ("https", "ftp://a.example/", "ftp://a.example/"),
    ("www", "http://www.a.example/www.", "http://a.example/www."),
    ("www", "http://u@www.a.example:81/", "http://u@a.example:81/"),
    ("www", "http://www.example/", "http://www.example/"),
    ("www", "http://www2.a.example/", "http://www2.a.example/"),
    ("index", "http://a.example/b/index.html?c", "http://a.example/b/?c"),
    ("index", "http://a.example/Default.aspx", "http://a.example/"),
    ("index", "http://a.example/myindex.html", "http://a.example/myindex.html"),
    ("slash", "http://a.example/b/", "http://a.example/b"),
    ("slash", "http://a.example/b//?c", "http://a.example/b?c"),
    ("slash", "http://a.example/", "http://a.example/"),
    ("session", "http://a.example/b;jsessionid=1F.x/c?PHPSESSID=2", "http://a.example/b/c"),
    ("session", "http://a.example/?ASPSESSIONIDQQ=1&b=2", "http://a.example/?b=2"),
    ("session", "http://a.example/;v=1?session=2", "http://a.example/;v=1?session=2"),
    ("tracking", "http://a.example/?utm_source=x&a=1&gclid=2&UTM_x=3", "http://a.example/?a=1"),
    ("tracking", "http://a.example/?utm=1&fbclid_=2&keyword=3", None),
    ("form", "http://a.example/?b=c+d%2f%E9&a", "http://a.example/?a=&b=c+d%2F%E9"),
    ("form", "http://a.example/?b=c%20d/%e9&a=", "http://a.example/?a=&b=c+d%2F%E9"),
    ("form", "http://a.example/a+b?", "http://a.example/a+b?"),
    ("blank", "http://a.example/?a=&b&c=1", "http://a.example/?c=1"),
    ("blank", "http://a.example/?a=", "http://a.example/"),
    ("repeated", "http://a.example/?b=1&a=1&b=1&b=2", "http://a.example/?a=1&b=1&b=2"),
    ("hashbang", "http://a.example/#!/b?c", "http://a.example/#!/b?c"),
    ("hashbang", "http://a.example/#b", "http://a.example/"),
    ("-fragment", "http://a.example/#b", "http://a.example/#b"),
    ("-order", "http://a.example/?b&a", "http://a.example/?b&a"),
    ("-port", "http://a.example:80/", "http://a.example:80/"),
    ({"drop": ["ref", "sort*"]}, "http://a.example/?sort=1&a&sort_by=2&Ref=3", "http://a.example/?Ref=3&a"),
    ({"replace": [r"/(\d+)-[^/]*$", r"/\1"]}, "http://a.example/b/17-title", "http://a.example/b/17"),
    ({"replace": ["^.*$", "nothing"]}, "http://a.example/", "http://a.example/"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "url", "canonical"), BY_CHOICE, ids=str)
def test_by_choice(change: Any, url: str, canonical: str | None) -> None:
    assert form(url, change) == (canonical or DEFAULT(url))


def test_rules_are_applied_in_their_order() -> None:
    url = "http://WWW.a.example:80/b/%69ndex.html?utm_source=1&PHPSESSID=2#c"
    changes = ["slash", "tracking", "session", "index", "www", "https"]
    assert form(url, *changes) == "https://a.example/b"
    steps = [rule.name for rule, _ in Forms({"*": changes}).of(url).steps(url)]
    assert steps == [name for name in RULES if name in steps]
    assert steps[-4:] == ["index", "slash", "session", "tracking"]


def test_by_host() -> None:
    forms = Forms(
        {"a.example": ["https"], "Bücher.example": ["www"], "*.a.example": [], "*": ["slash"]}
    )
    assert forms.of("http://A.example/b/")("http://A.example/b/") == "https://a.example/b/"
    assert forms.of("http://c.a.example/b/") == forms.of("http://d.a.example/")
    assert [rule.name for rule in forms.of("http://c.a.example/").rules] == [
        rule.name for rule in DEFAULT.rules
    ]
    names = [rule.name for rule in forms.of("http://xn--bcher-kva.example/").rules]
    assert "www" in names
    assert forms.of("http://x.example/")("http://x.example/b/") == "http://x.example/b"
    assert forms.of("http://not a host/") is DEFAULT


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["slashes"], "'slashes' is no rule"),
        ([7], "'7' is no rule"),
        ([{"drop": []}], "'drop' with 0 entries"),
        ([{"drop": [1]}], "needs a list of strings"),
        ([{"replace": ["a"]}], "'replace' with 1 entries"),
        ([{"replace": ["(", ""]}], "cannot be used: missing )"),
        ([{"replace": ["a", r"\1"]}], "cannot be used: invalid group"),
        ([{"keep": ["a"]}], "'keep' with 1 entries"),
    ],
    ids=str,
)
def test_bad_rules(changes: list[Any], words: str) -> None:
    with pytest.raises(InvalidRule, match=re.escape(words)):
        Forms({"*": changes})


@pytest.mark.parametrize(
    ("value", "canonical"),
    [
        ([], "http://a.example/b/?c&d"),
        (None, "http://a.example/b/?c&d"),
        ("slash", "http://a.example/b?c&d"),
        ("slash, -order", "http://a.example/b?d&c"),
        ('["slash"]', "http://a.example/b?c&d"),
        ('{"*.example": ["slash"]}', "http://a.example/b?c&d"),
        ({"b.example": ["slash"]}, "http://a.example/b/?c&d"),
        ({"a.example": "slash"}, "http://a.example/b?c&d"),
        (("slash", {"drop": "d"}), "http://a.example/b?c"),
    ],
    ids=str,
)
def test_the_setting(value: Any, canonical: str) -> None:
    url = "http://a.example/b/?d&c"
    assert read_forms("FOCUS_CANONICAL", value).of(url)(url) == canonical


@pytest.mark.parametrize(
    "value", [7, {"a b": []}, "no", "[", {"*": 1}, '{"*": 1}', {"*[": []}], ids=str
)
def test_bad_settings(value: Any) -> None:
    with pytest.raises(SettingError, match="FOCUS_CANONICAL is"):
        read_forms("FOCUS_CANONICAL", value)


# -- any URL ----------------------------------------------------------------------------

pieces = st.sampled_from(
    [*"aB1", "/", ".", "..", "/./", "%2e", "%2F", "%2f", "%41", "%25", "+", "%20", ";", ":"]
)
texts = st.lists(pieces, max_size=5).map("".join)
queries = st.lists(
    st.sampled_from(["a", "a=", "a=1", "a=2", "b=1", "%61=1", "b=%2f", "b=%2F", ""]), max_size=3
)
urls = st.builds(
    lambda scheme, host, port, path, query, fragment: (
        f"{scheme}://{host}{port}{path and '/' + path}{query}{fragment}"
    ),
    st.sampled_from(["http", "HTTP", "https"]),
    st.sampled_from(["a.example", "A.example", "a.example.", "127.1", "127.0.0.1", "u@a.example"]),
    st.sampled_from(["", ":", ":80", ":443", ":8080"]),
    texts,
    st.one_of(st.just(""), queries.map(lambda parameters: "?" + "&".join(parameters))),
    st.sampled_from(["", "#", "#a"]),
)  # fmt: skip


def decoded(text: str) -> list[str]:
    """Character by character, with each encoded one that may mean something else kept apart."""
    found = []
    for token in re.findall("%[0-9A-Fa-f]{2}|.", text, re.DOTALL):
        character = chr(int(token[1:], 16)) if len(token) == 3 else token
        plain = len(token) == 1 or character.isalnum() or character in "-._~"
        found.append(character if plain else token.upper())
    return found


def meaning(url: str) -> Any:
    """What a server is told by a URL, after the standards, in another way than the rules."""
    parts = urlsplit(url)
    scheme = parts.scheme.lower()
    user = parts.netloc.rpartition("@")[0]
    root = (parts.hostname or "").endswith(".")
    port = parts.port or {"http": 80, "https": 443}[scheme]
    segments: list[list[str]] = []
    given = [decoded(segment) for segment in parts.path.split("/")[1:]]
    for number, segment in enumerate(given):
        last = number == len(given) - 1
        if segment in (["."], [".", "."]):
            if len(segment) == 2:
                del segments[-1:]
            if last:
                segments.append([])
        else:
            segments.append(segment)
    values: dict[Any, list[Any]] = {}
    has_query = "?" in url.partition("#")[0]
    for parameter in parts.query.split("&") if has_query else []:
        name, equals, value = parameter.partition("=")
        values.setdefault("".join(decoded(name)), []).append((equals, decoded(value)))
    path = segments or [[]]
    return scheme, user, canonical_host(url), root, port, path, has_query and values


@given(urls, urls)
def test_the_same_form_is_the_same_meaning(one: str, other: str) -> None:
    assert (DEFAULT(one) == DEFAULT(other)) == (meaning(one) == meaning(other))


@given(urls)
def test_a_canonical_url_is_its_own_form(url: str) -> None:
    """And means what the URL means."""
    canonical = DEFAULT(url)
    assert DEFAULT(canonical) == canonical
    assert meaning(canonical) == meaning(url)


@given(st.text(), st.sets(st.sampled_from(sorted(RULES))))
def test_any_text(text: str, rules: set[str]) -> None:
    """Nothing raises, and the form is a URL of the same host."""
    every = Forms({"*": rules})
    for url in (text, "http:" + text, "http://a.example/" + text):
        canonical = every.of(url)(url)
        try:
            host = canonical_host(url)
        except InvalidHost:
            continue
        assert canonical_host(canonical).removeprefix("www.") == host.removeprefix("www.")


def test_every_rule_is_documented() -> None:
    text = (Path(__file__).parent.parent / "docs" / "identity.rst").read_text(encoding="utf-8")
    found = re.findall(r"^   \* - ``([a-z]+)``\n     -( on)?$", text, re.MULTILINE)
    assert [(name, bool(on)) for name, on in found] == [
        (rule.name, rule.default) for rule in RULES.values()
    ]

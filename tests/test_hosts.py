"""The identity of hosts: examples, and properties against the parsers that Scrapy uses."""

from __future__ import annotations

import re
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address
from urllib.parse import urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scrapy import Request
from twisted.web.client import URI

from scrapy_focus.decisions.hosts import (
    InvalidHost,
    are_twins,
    canonical_host,
    canonical_name,
    is_within,
    twin_of,
)

LABEL_63 = "a" * 63


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://example.com", "example.com"),
        ("https://www.example.com/a/b?c=d#e", "www.example.com"),
        ("http://example.com?q=http://other.example/", "example.com"),
        ("http://example.com#@other.example/", "example.com"),
        ("http://example.com?@other.example/", "example.com"),
        ("http://example.com/@other.example/", "example.com"),
        ("HTTP://EXAMPLE.com/", "example.com"),
        ("ftp://Example.COM:21/file", "example.com"),
        ("s3://my_bucket/key", "my_bucket"),
        ("http://localhost:8000/", "localhost"),
        ("http://example.com:/", "example.com"),
        ("http://example.com:00080/", "example.com"),
        ("http://example.com:65535/", "example.com"),
        ("http://user:pass@example.com:80/", "example.com"),
        ("http://good.example@evil.example/", "evil.example"),
        ("http://a@b@evil.example/", "evil.example"),
        ("http://good.example:80@evil.example/", "evil.example"),
        ("http://under_score.-hyphen-.example.com/", "under_score.-hyphen-.example.com"),
        (f"http://{LABEL_63}.example/", f"{LABEL_63}.example"),
        ("http://ex%61mple.c%6Fm/", "example.com"),
        ("http://b%C3%BCcher.example/", "xn--bcher-kva.example"),
        ("http://xn--BCHER-KVA.example/", "xn--bcher-kva.example"),
        ("http://straße.example/", "strasse.example"),
        ("http://example\u3002com/", "example.com"),
        ("http://example\uff0ecom\uff61/", "example.com"),
        ("http://ｅｘａｍｐｌｅ.com/", "example.com"),
        ("  http://example.com/", "example.com"),
        ("\x00\x1f http://example.com/", "example.com"),
        ("ht\ntp://exa\tmple.\r\ncom/", "example.com"),
        ("http://127.0.0.1:8000/", "127.0.0.1"),
        ("http://127.0.0.1./", "127.0.0.1"),
        ("http://127.1/", "127.0.0.1"),
        ("http://0x7f.1/", "127.0.0.1"),
        ("http://0177.0.0.01/", "127.0.0.1"),
        ("http://2130706433/", "127.0.0.1"),
        ("http://0X7F000001/", "127.0.0.1"),
        ("http://１２７.0.0.1/", "127.0.0.1"),
        ("http://10.0x10000/", "10.1.0.0"),
        ("http://0/", "0.0.0.0"),
        ("http://1.2.3.0x/", "1.2.3.0"),
        ("http://[::1]:8000/", "::1"),
        ("http://[2001:DB8:0:0::0:1]/", "2001:db8::1"),
        ("http://user@[::1]/", "::1"),
        ("http://[::ffff:127.0.0.1]/", "127.0.0.1"),
        ("http://[::FFFF:7f00:1]/", "127.0.0.1"),
        # A last label that only looks like a number.
        ("http://example.0x7g/", "example.0x7g"),
        ("http://1.2.3.4a/", "1.2.3.4a"),
        ("http://1.2.3.1_0/", "1.2.3.1_0"),
        ("http://1.example/", "1.example"),
    ],
)
def test_host_of_url(url: str, host: str) -> None:
    assert canonical_host(url) == host


@pytest.mark.parametrize(
    "url",
    [
        "data:text/html,<p>http://example.com/",
        "data://example.com/",
        "file:///etc/hosts",
        "file://server/share",
        "about:blank",
        "javascript:alert('//example.com/')",
        "mailto:someone@example.com",
        "blob:https://example.com/1",
        "unknown:path",
        "unknown:///path",
        "example.com:80/path",  # The scheme "example.com", to any parser.
    ],
)
def test_url_without_host(url: str) -> None:
    assert canonical_host(url) == ""


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com",
        "//example.com/",
        "/path",
        "1http://example.com/",
        "http:",
        "http:example.com",
        "http:/example.com/",
        "http:///example.com/",
        "http:////example.com/",
        "http://?example.com",
        "http://@/",
        "http://:80/",
        "http://./",
        "http://../",
        "http://.example.com/",
        "http://example..com/",
        "http://example.com../",
        "http://exam ple.com/",
        "http://example.com%2F@evil.example%2F/",
        "http://a%2fb/",
        "http://a%40b/",
        "http://a%00b/",
        "http://a%3A80/",
        "http://%ff/",
        "http://%2561.example/",
        "http://a*b.example/",
        "http://a,b.example/",
        "http://evil.example;good.example/",
        # NFKC makes these "a/c" and "a@b".
        "http://good.exampl\u2100.evil.example/",
        "http://good.example\uff20evil.example/",
        # For browsers a backslash ends the host, for urlsplit it does not.
        "http://evil.example\\@good.example/",
        "http://evil.example\\.good.example/",
        "http:\\\\evil.example\\",
        "http://user\\:x@good.example/",
        "http://[@good.example/",
        "http://[::1]@good.example/",
        "http://\u2100@good.example/",
        "http://%62ücher.example/",
        # "1." in one character, next to one that must be encoded.
        "http://»\u2488/",
        "http://example.com:80:90/",
        "http://example.com:80x/",
        "http://example.com:-80/",
        "http://example.com:+80/",
        "http://example.com: 80/",
        "http://example.com:8_0/",
        "http://example.com:٣/",
        "http://example.com:65536/",
        "http://example.com:99999/",
        pytest.param(f"http://example.com:{'9' * 5000}/", id="long-port"),
        "http://::1/",
        "http://2001:db8::80/",
        "http://[::1/",
        "http://::1]/",
        "http://[]/",
        "http://[::1]x/",
        "http://x[::1]/",
        "http://[::1]:x/",
        "http://[127.0.0.1]/",
        "http://[example.com]/",
        "http://[::1][::2]/",
        "http://[v1.fe80::a]/",
        "http://[fe80::1%25eth0]/",
        "http://[fe80::1%eth0]/",
        "http://1.2.3.4.5/",
        "http://256.1.1.1/",
        "http://1.1.1.256/",
        "http://4294967296/",
        "http://1.2.3.08/",
        "http://example.42/",
        "http://example.0x/",
        "http://1..4/",
        pytest.param(f"http://{'a' * 64}.example/", id="long-label"),
        pytest.param(f"http://{'ü' * 64}.example/", id="long-unicode-label"),
        pytest.param(f"http://{'.'.join([LABEL_63] * 4)}/", id="long-name"),
        pytest.param(f"http://{'a' * 100_000}/", id="very-long-name"),
        pytest.param(f"http://{'ü' * 100_000}/", id="very-long-unicode-name"),
        "http://\ud800.example/",
        "http://xn--ü.example/",
    ],
)
def test_unreadable_url(url: str) -> None:
    with pytest.raises(InvalidHost) as raised:
        canonical_host(url)
    assert str(raised.value).endswith(".")
    assert len(str(raised.value)) < 400


def test_longest_name() -> None:
    longest = ".".join([LABEL_63, LABEL_63, LABEL_63, "a" * 61])
    assert len(longest) == 253
    assert canonical_host(f"http://{longest}/") == longest
    assert canonical_host(f"http://{longest}./") == longest
    with pytest.raises(InvalidHost):
        canonical_host(f"http://{longest}a/")


@pytest.mark.parametrize(
    ("name", "canonical"),
    [
        ("Example.COM", "example.com"),
        ("example.com.", "example.com"),
        ("localhost", "localhost"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("BÜCHER.example", "xn--bcher-kva.example"),
        ("b%C3%BCcher.example", "xn--bcher-kva.example"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("::1", "::1"),
        ("[::1]", "::1"),
        ("0:0::1", "::1"),
        ("127.1", "127.0.0.1"),
    ],
)
def test_canonical_name(name: str, canonical: str) -> None:
    assert canonical_name(name) == canonical


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "empty"),
        (".", "empty"),
        (".example.com", "a label is empty"),
        ("a..b", "a label is empty"),
        ("a" * 64, "longer than 63"),
        (" example.com", "contains ' '"),
        ("http://example.com", "IPv6"),
        ("example.com:80", "IPv6"),
        ("[::1]:80", "IPv6"),
        ("example.com/path", "contains '/'"),
        ("*.example.com", "contains '*'"),
        ("user@example.com", "contains '@'"),
        ("::1%eth0", "zone"),
        ("300.1", "IPv4"),
    ],
)
def test_unreadable_name(name: str, reason: str) -> None:
    with pytest.raises(InvalidHost, match=re.escape(reason)):
        canonical_name(name)


@pytest.mark.parametrize(
    ("setting", "url"),
    [
        pytest.param("bücher.example", "http://xn--bcher-kva.example/", id="punycode"),
        pytest.param("xn--bcher-kva.example", "http://bücher.example/", id="unicode"),
        pytest.param("example.com", "http://example.com./", id="root-dot-in-the-url"),
        pytest.param("example.com.", "http://example.com/", id="root-dot-in-the-setting"),
        pytest.param("[::1]", "http://[::1]:8000/", id="ipv6-in-brackets"),
        pytest.param("::1", "http://[0:0:0::1]/", id="ipv6-without-brackets"),
    ],
)
def test_one_name_on_both_sides_crawlee_python_2144(setting: str, url: str) -> None:
    assert canonical_name(setting) == canonical_host(url)
    request = Request(url)
    if "[" in url and "[" not in request.url:
        pytest.skip("old versions of w3lib drop the brackets, and with them the host")
    assert canonical_name(setting) == canonical_host(request.url)


@pytest.mark.parametrize(
    ("host", "domain", "within"),
    [
        ("example.com", "example.com", True),
        ("www.example.com", "example.com", True),
        ("a.b.example.com", "example.com", True),
        ("example.com", "www.example.com", False),
        pytest.param("badexample.com", "example.com", False, id="suffix-scrapy-477"),
        pytest.param("example.com.evil.example", "example.com", False, id="prefix-scrapy-184"),
        ("example.com", "com", True),
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "0.0.1", False),
        ("10.0.0.1", "1", False),
        ("x.10.0.0.1", "10.0.0.1", False),
        ("::1", "::1", True),
        ("", "", True),
        ("", "example.com", False),
        ("example.com", "", False),
    ],
)
def test_is_within(host: str, domain: str, within: bool) -> None:
    assert is_within(host, domain) is within


# --- properties

# Short texts of what parsers stumble over are worth more than random Unicode.
AWKWARD_ASCII = "aZ0179xX-_.:/\\@?#[]%2fF&;*,+ \t\n\r\x00"
AWKWARD_OTHERS = "\u3002\uff0e\uff0f\uff20\uff21\u2100\u2488\xad\u0130ßü²½"
AWKWARD = st.text(st.sampled_from(AWKWARD_ASCII + AWKWARD_OTHERS), max_size=30)
HOSTS = ["a", "good.example", "EVIL.example", "127", "0x7f", "1", "::1", "ü", "xn--", "_"]
DELIMITERS = [
    ".",
    ":",
    "80",
    "@",
    "\\",
    "[",
    "]",
    "%2e",
    "%40",
    "%5C",
    "\u3002",
    "/",
    "?",
    "#",
    "\t",
]
HOST_PIECES = st.lists(st.sampled_from(HOSTS + DELIMITERS), max_size=8).map("".join)
SCHEMES = st.sampled_from(["http://", "https://", "HTTP://", "ftp://", "http:/", "x://", "//", ""])
URLS = st.one_of(
    st.text(max_size=40),
    st.builds(str.__add__, SCHEMES, AWKWARD),
    st.builds(str.__add__, SCHEMES, HOST_PIECES),
    st.builds("{}{}/{}".format, SCHEMES, HOST_PIECES, AWKWARD),
)


#: w3lib removes these from the ends of every request's URL.
C0_AND_SPACE = "".join(map(chr, range(33)))


def host_or_none(url: str) -> str | None:
    try:
        return canonical_host(url)
    except InvalidHost:
        return None


@given(st.one_of(URLS, st.text(st.characters(), max_size=40)))
@example("http://\udc80")
def test_nothing_but_invalid_host_is_raised(text: str) -> None:
    for function in (canonical_host, canonical_name):
        with suppress(InvalidHost):
            assert isinstance(function(text), str)


@given(URLS)
def test_the_host_is_the_one_that_urlsplit_reads(url: str) -> None:
    """Offsite middleware, FTP, S3, h2 and httpx handlers use urlsplit's."""
    host = host_or_none(url)
    if host:
        assert canonical_name(urlsplit(url.strip(C0_AND_SPACE)).hostname or "") == host


@given(URLS)
def test_the_host_is_the_one_that_twisted_connects_to(url: str) -> None:
    """HTTP/1.1 and h2 handlers connect to the host of Twisted's URI."""
    host = host_or_none(url)
    if not host or not url.isascii():
        return
    target = URI.fromBytes(url.strip().encode()).host.decode()  # type: ignore[no-untyped-call]
    # Where Twisted leaves a user or half a port in the name, it connects to nothing.
    with suppress(InvalidHost):
        assert canonical_name(target) == host


@given(URLS)
def test_a_request_has_the_host_of_the_link(url: str) -> None:
    """Scrapy rewrites a URL when it makes a request of it; the host stays the same."""
    host = host_or_none(url)
    if host is None:
        return
    try:
        request = Request(url)
    except ValueError:
        return
    assert host_or_none(request.url) in {host, None}


@given(URLS)
def test_a_canonical_name_is_its_own_canonical_name(url: str) -> None:
    host = host_or_none(url)
    if host:
        assert canonical_name(host) == host
        netloc = f"[{host}]" if ":" in host else host
        assert canonical_host(f"https://{netloc}:81/path") == host
        assert canonical_host(f"https://{netloc}") == host


@given(st.integers(0, 2**32 - 1))
def test_ipv4_in_any_spelling(number: int) -> None:
    address = str(IPv4Address(number))
    a, b, c, d = address.split(".")
    low = int(c) * 256 + int(d)
    spellings = [address, str(number), hex(number), oct(number).replace("o", ""), f"{a}.{b}.{low}"]
    spellings += [f"[::ffff:{address}]", f"0x{int(a):X}.{b}.{c}.0{int(d):o}"]
    assert {canonical_host(f"http://{spelling}:80/") for spelling in spellings} == {address}


@given(st.integers(0, 2**128 - 1).map(IPv6Address))
def test_ipv6_in_any_spelling(address: IPv6Address) -> None:
    if address.ipv4_mapped is None:
        for spelling in (address.compressed, address.exploded, address.exploded.upper()):
            assert canonical_host(f"http://[{spelling}]/") == address.compressed


NAMES = st.from_regex(r"([a-z0-9_-]{1,9}\.){0,3}[a-z][a-z0-9_-]{0,8}", fullmatch=True)


@given(NAMES, NAMES)
def test_is_within_compares_whole_labels(host: str, domain: str) -> None:
    labels, suffix = host.split("."), domain.split(".")
    assert is_within(host, domain) is (labels[-len(suffix) :] == suffix)
    assert is_within(f"{host}.{domain}", domain)


@given(NAMES)
def test_fast_and_slow_path_agree(name: str) -> None:
    assert canonical_host(f"http://{name}/") == canonical_name(name) == name
    assert canonical_host(f"http://{name.upper()}./") == name


@pytest.mark.parametrize(
    ("host", "twin"),
    [
        ("example.com", "www.example.com"),
        ("www.example.com", "example.com"),
        ("a.b.example", "www.a.b.example"),
        ("xn--bcher-kva.example", "www.xn--bcher-kva.example"),
        ("www.www.example.com", "www.example.com"),
        ("wwwexample.com", "www.wwwexample.com"),
        ("www.com", ""),
        ("localhost", ""),
        ("www.localhost", ""),
        ("127.0.0.1", ""),
        ("::1", ""),
        ("www.1.2.3.4", ""),
        (".".join(["a" * 62] * 4), ""),
        ("", ""),
    ],
)
def test_twins(host: str, twin: str) -> None:
    assert twin_of(host) == twin
    assert are_twins(host, twin) is are_twins(twin, host) is bool(twin)
    assert not are_twins(host, host)
    assert not are_twins(host, "other.example")

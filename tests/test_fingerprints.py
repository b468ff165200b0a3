"""The fingerprint of an ordinary request takes a short way: it must be Scrapy's own."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy import Request
from scrapy.utils.request import RequestFingerprinter, fingerprint

from scrapy_focus import DupeFilter, dupefilter

#: Pieces that are, or look like, what makes a URL need more than a look.
pieces = st.sampled_from(
    [*"/?#&=.:;%@[]|~+", "//", "/.", "/..", "/../", "%41", "%2f", "%zz", "é", " ", "www.", "xn--"]
)
letters = st.text(string.ascii_letters + string.digits + "-_", max_size=4)
urls = st.builds(
    lambda scheme, host, rest: f"{scheme}://{host}.example{rest}",
    st.sampled_from(["http", "https", "HTTP", "ftp"]),
    letters.map(str.lower),
    st.lists(pieces | letters, max_size=12).map("".join),
)


class OwnFingerprinter(RequestFingerprinter):
    def fingerprint(self, request: Request) -> bytes:
        return request.url[-1:].encode()


def short_way(request: Request) -> bool:
    return dupefilter._plain_fingerprint(request) is not None


@given(urls | st.from_regex(dupefilter._CANONICAL, fullmatch=True))
def test_any_url(url: str) -> None:
    try:
        request = Request(url)
    except ValueError:
        return
    assert DupeFilter().fingerprint(request) == fingerprint(Request(url))


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/",
        "https://www.example.com:8443/a//b.c/~d/Foo_(bar),1:2@3",
        "http://127.0.0.1:54321/page?number=7",
        "http://xn--bcher-kva.example/?q=",
    ],
)
def test_canonical_as_it_is(url: str) -> None:
    assert short_way(Request(url))


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com",
        "http://user@example.com/",
        "http://example.com/a/../b",
        "http://example.com/.well-known/x",
        "http://example.com/a;b=1",
        "http://example.com/%7Euser",
        "http://example.com/#part",
        "http://example.com/?b=1&a=2",
        "http://example.com/?key",
        "http://example.com/ü",
        f"http://{'a' * 64}.example/",
        "data:,x",
    ],
)
def test_not_canonical_as_it_is(url: str) -> None:
    assert not short_way(Request(url))


@pytest.mark.parametrize(
    "fields",
    [{"method": "POST"}, {"body": b"x"}, {"method": "HEAD"}, {"meta": {"verbatim_url": True}}],
    ids=str,
)
def test_what_else_it_is_made_of(fields: dict[str, object]) -> None:
    request = Request("http://example.com/", **fields)  # type: ignore[arg-type]
    again = Request("http://example.com/", **fields)  # type: ignore[arg-type]
    assert DupeFilter().fingerprint(request) == fingerprint(again)


def test_another_fingerprinter_is_asked() -> None:
    request = Request("http://example.com/x")
    assert DupeFilter(OwnFingerprinter()).fingerprint(request) == b"x"


def test_another_version_of_scrapy_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RequestFingerprinter, "fingerprint", lambda self, request: b"changed")
    assert DupeFilter().fingerprint(Request("http://example.com/x")) == b"changed"

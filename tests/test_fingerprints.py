"""What makes two requests the same: the canonical form of the URL, the method and the body, in
Scrapy's own manner, and by a short way for ordinary requests."""

from __future__ import annotations

import re
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy import Request
from scrapy.utils.request import RequestFingerprinter, fingerprint

from scrapy_focus import DupeFilter, dupefilter
from scrapy_focus.decisions.canonical import DEFAULT, Forms

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


def short_way(url: str) -> bool:
    return dupefilter._CANONICAL.fullmatch(url) is not None


def with_forms(*changes: Any, fingerprinter: Any = None) -> DupeFilter:
    made = DupeFilter(fingerprinter)
    made.forms = Forms({"*": changes} if changes else {})
    return made


@given(urls | st.from_regex(dupefilter._CANONICAL, fullmatch=True))
def test_the_short_way_leads_to_the_same(url: str) -> None:
    try:
        request = Request(url)
    except ValueError:
        return
    canonical = DEFAULT(request.url)
    assert DupeFilter().fingerprint(request) == dupefilter._identity(request, canonical)
    if short_way(request.url):
        assert canonical == request.url
        if not re.search(r";(\?|$)", request.url):  # which Scrapy leaves out, and a server may not
            assert DupeFilter().fingerprint(request) == fingerprint(Request(url)), "Scrapy's own"


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/",
        "https://www.example.com:8443/a//b.c/~d/Foo_(bar),1:2@3",
        "http://127.0.0.1:54321/page?number=7",
        "http://xn--bcher-kva.example/?q=",
        "http://example.com/a;b=1",
    ],
)
def test_canonical_as_it_is(url: str) -> None:
    assert short_way(url)


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com",
        "http://user@example.com/",
        "http://example.com/a/../b",
        "http://example.com/.well-known/x",
        "http://example.com/%7Euser",
        "http://example.com/#part",
        "http://example.com/?b=1&a=2",
        "http://example.com/?key",
        "http://example.com:80/",
        "https://example.com:443/",
        "http://127.1/",
        "http://example.com/ü",
        f"http://{'a' * 64}.example/",
        "data:,x",
    ],
)
def test_not_canonical_as_it_is(url: str) -> None:
    assert not short_way(url)


@pytest.mark.parametrize(
    "fields",
    [{"method": "POST"}, {"body": b"x"}, {"method": "HEAD"}, {"meta": {"verbatim_url": True}}],
    ids=str,
)
def test_what_else_it_is_made_of(fields: dict[str, object]) -> None:
    request = Request("http://example.com/", **fields)  # type: ignore[arg-type]
    again = Request("http://example.com/", **fields)  # type: ignore[arg-type]
    assert DupeFilter().fingerprint(request) == fingerprint(again)


def test_a_job_has_rules() -> None:
    one, other = Request("http://example.com/x/"), Request("https://example.com/x?utm_source=y")
    assert DupeFilter().fingerprint(one) != DupeFilter().fingerprint(other)
    ours = with_forms("https", "slash", "tracking")
    assert ours.fingerprint(one) == ours.fingerprint(other)
    assert one.url == "http://example.com/x/", "a key only"


def test_a_verbatim_url_is_taken_at_its_word() -> None:
    one, other = (
        Request(f"http://example.com/{query}", meta={"verbatim_url": True})
        for query in ("?a&b", "?b&a")
    )
    ours = with_forms("https", "slash")
    assert ours.fingerprint(one) != ours.fingerprint(other)


def test_another_fingerprinter_is_asked() -> None:
    request = Request("http://example.com/x/")
    assert DupeFilter(OwnFingerprinter()).fingerprint(request) == b"/"
    assert with_forms("slash", fingerprinter=OwnFingerprinter()).fingerprint(request) == b"x"
    verbatim = request.replace(meta={"verbatim_url": True})
    assert with_forms("slash", fingerprinter=OwnFingerprinter()).fingerprint(verbatim) == b"/"


def test_another_version_of_scrapy_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RequestFingerprinter, "fingerprint", lambda self, request: b"changed")
    assert DupeFilter().fingerprint(Request("http://example.com/x")) == b"changed"

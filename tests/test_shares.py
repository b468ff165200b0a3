"""Which share of a host's budget a URL uses."""

from __future__ import annotations

import pytest

from scrapy_focus.decisions.hosts import canonical_host
from scrapy_focus.decisions.shares import Shares

SHARES = Shares(
    {
        "example.com/": 9,
        "example.com/calendar/": 5,
        "example.com/calendar/2026/": 2,
        "*.example.com/tag/": 3,
        "Bücher.example/straße/": 1,
        "*/~me/": 4,
    }
)


@pytest.mark.parametrize(
    ("url", "share"),
    [
        ("http://example.com/", "example.com/"),
        ("http://example.com/calendar", "example.com/"),
        ("http://EXAMPLE.com:8080/calendar/?day=1", "example.com/calendar/"),
        ("http://example.com/calendar/2026/1", "example.com/calendar/2026/"),
        ("http://example.com/x/../calendar/%32026/1", "example.com/calendar/2026/"),
        ("http://example.com//calendar/2026/1", "example.com/calendar/2026/"),
        ("http://example.com/?/calendar/", "example.com/"),
        ("http://www.example.com/calendar/", ""),
        ("http://www.example.com/tag/a", "*.example.com/tag/"),
        ("http://user@www.example.com/tag/a", "*.example.com/tag/"),
        ("http://xn--bcher-kva.example/stra%C3%9Fe/1", "Bücher.example/straße/"),
        ("http://a.test/%7Eme/x", "*/~me/"),
        ("http://a.test/me/x", ""),
    ],
)
def test_the_share_of_a_url(url: str, share: str) -> None:
    assert SHARES.of(url, canonical_host(url)) == share


def test_none() -> None:
    assert not Shares({})
    assert Shares({}).of("http://example.com/", "example.com") == ""

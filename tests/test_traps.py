"""Caps on URLs that a site makes without end."""

from __future__ import annotations

from datetime import datetime, timezone
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_focus.decisions.traps import CAPS, InvalidCap, Traps

NOW = datetime(2026, 12, 1, tzinfo=timezone.utc).timestamp()
START = "http://a.example"


@pytest.mark.parametrize(
    ("rest", "reason"),
    [
        ("/a/a/a", None),
        ("/a/a/a/a", "repeats"),
        ("/x/a/b/a/b/a/b/a/b/c?d", "repeats"),
        ("/a/b/a/b/a/b/a/bc", None),
        ("/a/b/a/c/a/d/a/e/a", None),
        ("/2011/11/11/11", None),
        ("/ab/b/b/b/b", "repeats"),
        ("//////", None),
        ("/1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17/18/19/20", None),
        ("/1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17/18/19/20/21", "segments"),
        ("/?" + "&".join(f"p{n}=1" for n in range(30)), None),
        ("/?" + "&".join(f"p{n}=1" for n in range(31)), "parameters"),
        ("/calendar/2027/12", None),
        ("/calendar/2028/02", "ahead"),
        ("/calendar/2028-02-01/day", "ahead"),
        ("/calendar/2026/12/31", None),
        ("/?date=2030-02-31", None),
        ("/?date=2030.2.1", "ahead"),
        ("/?month=3&year=2031", "ahead"),
        ("/?y=2027", None),
        ("/calendar/1826/05", None),
        ("/part/2901/05", None),
        ("/part/12031/05", None),
        ("/part/2031/0512", None),
        ("/2048-3x3", None),
        ("/1471-2105-8", None),
        ("", None),
        ("#/a/a/a/a/a/a", None),
    ],
)
def test_shapes(rest: str, reason: str | None) -> None:
    url = START + rest
    assert Traps({}).refuse(url, NOW) == reason
    assert (Traps({}).explain(url, NOW) is not None) == (reason is not None)
    if reason:
        assert Traps({reason: 0}).refuse(url, NOW) is None, "each can be switched off"
        assert Traps({reason: 2000}).refuse(url, NOW) is None
        assert f"more than {CAPS[reason][0]} {CAPS[reason][1]}" in str(Traps({}).explain(url, NOW))


def test_facets_are_counted_by_path() -> None:
    traps = Traps({"facets": 3})

    def offer(path: str, number: int, parameters: int = 4) -> str | None:
        query = "&".join(f"{name}={number}" for name in "abcde"[:parameters])
        return traps.refuse(f"{START}{path}?{query}", NOW)

    assert [offer("/list", n) for n in range(5)] == [None, None, None, "facets", "facets"]
    assert [offer("/other", n) for n in range(4)] == [None, None, None, "facets"]
    assert [offer("/list", n, parameters=3) for n in range(9)] == [None] * 9
    assert offer("/list", 9, parameters=5) == "facets"


def test_what_is_counted_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scrapy_focus.decisions.facets.PARTS", 1)
    monkeypatch.setattr("scrapy_focus.decisions.facets._PATHS", 2)
    traps = Traps({"facets": 1})
    query = "?a&b&c&d"
    assert [traps.refuse(f"{START}/{path}{query}", NOW) for path in "1123"] == [
        *(None, "facets", None, None)
    ]
    assert traps.refuse(f"{START}/3{query}", NOW) == "facets"
    assert traps.refuse(f"{START}/1{query}", NOW) is None, "forgotten, being the oldest"


@pytest.mark.parametrize(
    "caps", [{"loops": 1}, {"segments": -1}, {"segments": True}, {"ahead": "9"}]
)
def test_bad_caps(caps: dict[str, object]) -> None:
    with pytest.raises(InvalidCap, match=next(iter(caps))):
        Traps(caps)


@given(st.text(), st.floats(0, 1e10))
def test_any_text(text: str, now: float) -> None:
    for url in (text, START + "/" + text):
        try:
            urlsplit(url)
        except ValueError:  # no request has such a URL
            continue
        Traps({}).refuse(url, now)


def test_long_urls_cost_little() -> None:
    numbered = "".join(f"/{n}" for n in range(20_000))
    texts = [
        numbered,
        "/a" * 50_000,
        "/" * 100_000,
        "/ab/c" * 20_000,
        "/2031" * 20_000,
        "&a" * 50_000,
    ]
    for repeats in (3, 10_000):
        traps = Traps({"segments": 0, "repeats": repeats, "parameters": 0})
        for text in texts:
            traps.refuse(f"{START}/x{text}?{text}", NOW)

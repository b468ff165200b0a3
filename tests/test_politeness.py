"""How long a host is left alone: what a site asks for, and what a job grants."""

from __future__ import annotations

import random
from calendar import timegm
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from email.utils import format_datetime, formatdate
from math import inf, isfinite, nan
from time import gmtime, strftime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy.core.downloader import Slot
from scrapy.robotstxt import ProtegoRobotParser

from scrapy_focus.decisions.politeness import Rate, Rates, clamp_delay, parse_retry_after, pause

#: The moment of the examples in RFC 9110, section 5.6.7: Sun, 06 Nov 1994 08:49:37 GMT.
THEN = 784111777.0
DELAYS = st.floats(0, 1e6)


# --- Retry-After


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("", None),
        (b"", None),
        ("0", 0),
        ("120", 120),
        (b"120", 120),
        (" 120\t", 120),
        ("00120", 120),
        ("1.5", 1.5),
        ("120.", 120),
        ("9" * 30, float("9" * 30)),
        ("9" * 10_000, inf),
        ("-1", None),
        ("+1", None),
        ("1e3", None),
        ("nan", None),
        ("inf", None),
        ("-inf", None),
        (".5", None),
        ("0x10", None),
        ("1_0", None),
        ("١٢", None),
        ("120, 120", None),
        ("120 seconds", None),
        ("soon", None),
        (b"\xff\xfe", None),
        ("\ud800", None),
        # The three forms of a date.
        ("Sun, 06 Nov 1994 08:49:37 GMT", 60),
        (b"Sun, 06 Nov 1994 08:49:37 GMT", 60),
        ("Sunday, 06-Nov-94 08:49:37 GMT", 60),
        ("Sun Nov  6 08:49:37 1994", 60),
        # Zones are not HTTP, but clear.
        ("Sun, 06 Nov 1994 09:49:37 +0100", 60),
        ("Sun, 06 Nov 1994 08:49:37 -0000", 60),
        ("Sun, 06 Nov 1994 08:49:37", 60),
        # The past.
        ("Sun, 06 Nov 1994 08:48:37 GMT", 0),
        ("Sun, 06 Nov 1994 07:00:00 GMT", 0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
        # A leap second.
        ("Sat, 31 Dec 1994 23:59:60 GMT", timegm((1994, 12, 31, 23, 59, 59)) - THEN + 60),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 253402300799 - THEN + 60),
        # No dates.
        ("Sun, 31 Nov 1994 08:49:37 GMT", None),
        ("Sun, 06 Nov 1994 25:49:37 GMT", None),
        ("Sun, 06 Nov 1994 08:99:37 GMT", None),
        ("Sun, 06 Nov 1994", None),
        ("08:49:37", None),
        ("Fri, 31 Dec 9999 23:59:59 -9999", None),
        ("Sun, 06 Nov 1994 08:49:37 GMT" + " " * 200 + "x", None),
    ],
)
def test_retry_after(value: bytes | str | None, seconds: float | None) -> None:
    assert parse_retry_after(value, THEN - 60) == seconds


@given(st.one_of(st.text(), st.binary(), st.text("0123456789:-+., GMTSunNov", max_size=40)))
def test_retry_after_of_garbage(value: str | bytes) -> None:
    seconds = parse_retry_after(value, THEN)
    assert seconds is None or seconds >= 0


@given(st.integers(0, 4_000_000_000), st.integers(-100_000, 100_000))
def test_retry_after_in_all_forms(now: int, ahead: int) -> None:
    when = max(0, now + ahead)
    wait = max(0, when - now)
    imf = formatdate(when, usegmt=True)
    asctime = strftime("%a %b %e %H:%M:%S %Y", gmtime(when))
    zone = timezone(timedelta(hours=5, minutes=30))
    zoned = format_datetime(datetime.fromtimestamp(when, zone))
    for value in (imf, imf.encode(), asctime, zoned):
        assert parse_retry_after(value, float(now)) == wait
    assert parse_retry_after(str(wait), float(now)) == wait


# --- Crawl-delay


@pytest.mark.parametrize(
    ("value", "seconds", "changed"),
    [
        pytest.param(None, 0, False, id="unset"),
        pytest.param(0, 0, False, id="zero"),
        pytest.param(1, 1, False, id="int"),
        pytest.param(2.5, 2.5, False, id="float"),
        pytest.param("2.5", 2.5, False, id="string"),
        pytest.param(600, 600, False, id="ten-minutes"),
        pytest.param(3600, 3600, False, id="longest"),
        pytest.param(3600.1, 3600, True, id="too-long"),
        pytest.param(1e308, 3600, True, id="huge"),
        pytest.param(10**400, 3600, True, id="huge-int"),
        pytest.param("9" * 5_000, 3600, True, id="huge-string"),
        pytest.param(inf, 3600, True, id="inf"),
        pytest.param(-1, 0, True, id="negative"),
        pytest.param(-inf, 0, True, id="minus-inf"),
        pytest.param(-(10**400), 0, True, id="huge-negative-int"),
        pytest.param(nan, 0, True, id="nan"),
        pytest.param("nan", 0, True, id="nan-string"),
        pytest.param("soon", 0, True, id="word"),
        pytest.param("", 0, True, id="empty"),
        pytest.param(True, 0, True, id="bool"),
        pytest.param(Decimal(1), 0, True, id="other-type"),
        pytest.param([1], 0, True, id="list"),
    ],
)
def test_clamp_delay_crawler_commons_139(value: object, seconds: float, changed: bool) -> None:
    assert clamp_delay(value, 3600.0) == (seconds, changed)


@given(st.one_of(st.none(), st.integers(), st.floats(), st.text(), st.booleans()), DELAYS)
def test_a_clamped_delay_is_within_bounds(value: object, longest: float) -> None:
    seconds, changed = clamp_delay(value, longest)
    assert 0 <= seconds <= longest
    if not changed:
        assert value is None or seconds == float(value)  # type: ignore[arg-type]


def test_retry_after_is_clamped_alike() -> None:
    asked = parse_retry_after("9" * 10_000, THEN)
    assert clamp_delay(asked, 3600.0) == (3600.0, True)


@given(st.one_of(st.text(), st.binary(), st.from_regex(r"-?[0-9]{1,400}(\.[0-9]*)?")), DELAYS)
def test_no_header_asks_for_more_than_is_granted(value: str | bytes, longest: float) -> None:
    asked = parse_retry_after(value, THEN)
    assert 0 <= clamp_delay(asked, longest)[0] <= longest


#: robots.txt files, and what is granted of them.
GROUP = "User-agent: {}\nDisallow: /no\nCrawl-delay: {}\n"
ROBOTS = {
    GROUP.format("*", "10"): (10, False),
    GROUP.format("*", " 2.5 # seconds"): (2.5, False),
    GROUP.format("*", ".5"): (0.5, False),
    GROUP.format("*", "0.001"): (0.001, False),
    GROUP.format("*", "1e3"): (1000, False),
    GROUP.format("*", "1e308"): (3600, True),
    GROUP.format("*", "9" * 300): (3600, True),
    GROUP.format("*", "-0.0"): (0, False),
    GROUP.format("*", "10").replace("Crawl-delay", "CRAWL-DELAY"): (10, False),
    GROUP.format("*", "10").replace("\n", "\r"): (10, False),
    # None of these is a delay.
    **{
        GROUP.format("*", value): (0, False)
        for value in (
            "",
            "-1",
            "nan",
            "inf",
            "-inf",
            "1e400",
            "9" * 400,
            "5s",
            "5, 6",
            "1;2",
            "0x5",
        )
    },
    "Crawl-delay: 10\n": (0, False),
    GROUP.format("otherbot", "10"): (0, False),
    # The group that names us counts, wherever it stands, and the last word in it.
    GROUP.format("*", "10") + GROUP.format("examplebot", "20"): (20, False),
    GROUP.format("ExampleBot", "20") + GROUP.format("*", "10"): (20, False),
    GROUP.format("otherbot\nUser-agent: examplebot", "20"): (20, False),
    GROUP.format("*", "10") + "User-agent: examplebot\nDisallow: /\n": (0, False),
    GROUP.format("*", "10") + GROUP.format("*", "20"): (20, False),
    GROUP.format("*", "10") + GROUP.format("*", "soon"): (10, False),
}


@pytest.mark.parametrize("robots", ROBOTS)
def test_crawl_delay_of_a_robots_txt(robots: str) -> None:
    parser = ProtegoRobotParser(robots.encode(), None)
    asked = parser.crawl_delay("ExampleBot/1.0 (+https://bot.example)")
    assert clamp_delay(asked, 3600.0) == ROBOTS[robots]


@given(st.binary(), st.binary(max_size=20))
def test_crawl_delay_of_garbage(garbage: bytes, value: bytes) -> None:
    parser = ProtegoRobotParser(garbage + b"\nUser-agent: *\nCrawl-delay: " + value, None)
    seconds, _ = clamp_delay(parser.crawl_delay("ExampleBot/1.0"), 3600.0)
    assert 0 <= seconds <= 3600


# --- failures


def test_pause_doubles() -> None:
    assert [pause(streak) for streak in range(6)] == [0, 1, 2, 4, 8, 16]
    assert [pause(streak, first=0.5, longest=3) for streak in (1, 2, 3, 4, 5)] == [0.5, 1, 2, 3, 3]
    assert pause(12) == 2048
    assert pause(13) == 3600


@pytest.mark.parametrize("first", [1e-300, 0.001, 1.0, 1e300])
def test_pause_after_very_many_failures(first: float) -> None:
    assert pause(10**9, first) == 3600
    assert pause(10**400, first) == 3600


@given(st.integers(-5, 5_000), DELAYS, DELAYS)
def test_pause_grows_within_bounds(streak: int, first: float, longest: float) -> None:
    assert 0 <= pause(streak, first, longest) <= pause(streak + 1, first, longest) <= longest


# --- the job's own rate


def test_defaults() -> None:
    rates = Rates()
    assert rates["any"] == Rate(0.0, 0.5, 8)
    assert rates.gap("any", random.Random(1)) == 0
    assert rates.least_gap("any") == 0


def test_slots_override_the_rest() -> None:
    slots: dict[str, dict[str, object]] = {
        "a": {"concurrency": 1, "delay": 2, "jitter": 0.25},
        "b": {"delay": 3, "randomize_delay": False},
        "c": {"randomize_delay": True},
        "d": {},
        "e": {"jitter": 1, "randomize_delay": False, "throttle": None},
    }
    rates = Rates(1.0, 0.1, 4, slots)
    assert rates["a"] == Rate(2, 0.25, 1)
    assert rates["b"] == Rate(3, 0, 4)
    assert rates["c"] == Rate(1, 0.5, 4)
    assert rates["d"] == rates["any"] == rates.default == Rate(1, 0.1, 4)
    assert rates["e"] == Rate(1, 1, 4)
    assert rates.delay("a") == 2
    assert rates.concurrency("a") == 1
    assert rates.least_gap("a") == 1.5


def test_slots_of_hosts_in_another_spelling() -> None:
    slots = {"Example.COM.": {"delay": 1}, "[::1]": {"delay": 2}, "my slot!": {"delay": 3}}
    slots |= {"B.example": {"delay": 4}, "b.example": {"delay": 5}}
    rates = Rates(slots=slots)
    groups = ("example.com", "Example.COM.", "::1", "[::1]", "my slot!", "b.example", "B.example")
    assert [rates.delay(group) for group in groups] == [1, 1, 2, 2, 3, 5, 4]
    assert rates.delay("other.example") == 0


def test_a_delay_in_place_of_the_rates_own() -> None:
    rates = Rates(1.0, 0.5, slots={"a": {"jitter": 0}})
    rng = random.Random(1)
    assert all(5 <= rates.gap("any", rng, 10.0) <= 15 for _ in range(100))
    assert rates.gap("a", rng, 10.0) == 10
    assert rates.least_gap("any", 10.0) == 5
    assert rates.gap("any", rng, 0.0) == 0


def test_gaps_are_spread_evenly() -> None:
    """Their mean is the delay, and each tenth of the range has about a tenth of them."""
    rates, rng = Rates(2.0, 0.5), random.Random(7)
    gaps = [rates.gap("any", rng) for _ in range(20_000)]
    assert sum(gaps) / len(gaps) == pytest.approx(2.0, rel=0.01)
    for tenth in range(10):
        low = 1.0 + tenth * 0.2
        assert sum(low <= gap < low + 0.2 for gap in gaps) == pytest.approx(2_000, rel=0.1)


@given(DELAYS, st.floats(0, 5), st.integers())
def test_gaps_are_within_bounds(delay: float, jitter: float, seed: int) -> None:
    rates, rng = Rates(delay, jitter), random.Random(seed)
    least = rates.least_gap("any")
    for _ in range(10):
        assert 0 <= least <= rates.gap("any", rng) * (1 + 1e-12) + 1e-12
        assert rates.gap("any", rng) <= delay * (1 + jitter) * (1 + 1e-12)


@given(st.floats(0.001, 1e6), st.integers())
def test_gaps_are_those_of_the_downloader(delay: float, seed: int) -> None:
    """The same draw as Scrapy's, from a slot with the same settings."""
    # Before Scrapy 2.19 a slot had randomize_delay, true or false.
    jitter = 0.5 if "jitter" in Slot.__dataclass_fields__ else True
    state = random.getstate()
    random.seed(seed)
    drawn = Slot(1, delay, jitter).download_delay()
    random.setstate(state)
    assert Rates(delay, 0.5).gap("any", random.Random(seed)) == pytest.approx(drawn)


@pytest.mark.parametrize("value", [-1, nan, inf, "1", None, True, [1]])
def test_bad_numbers(value: object) -> None:
    with pytest.raises(ValueError, match=r"^DOWNLOAD_DELAY is "):
        Rates(delay=value)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^DOWNLOAD_DELAY_JITTER is "):
        Rates(jitter=value)  # type: ignore[arg-type]
    for key in ("delay", "jitter"):
        with pytest.raises(ValueError, match=rf"^DOWNLOAD_SLOTS\['a'\]\['{key}'\] is "):
            Rates(slots={"a": {key: value}})


@pytest.mark.parametrize("value", [0, -1, 1.5, "1", None, True, nan])
def test_bad_concurrency(value: object) -> None:
    """0 is no limit elsewhere in Scrapy; its downloader sends nothing then, for ever."""
    assert Slot(0, 0.0, 0).free_transfer_slots() == 0
    with pytest.raises(ValueError, match=r"^CONCURRENT_REQUESTS_PER_DOMAIN is .* 1 or more"):
        Rates(concurrency=value)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^DOWNLOAD_SLOTS\['a'\]\['concurrency'\] is "):
        Rates(slots={"a": {"concurrency": value}})


@pytest.mark.parametrize(
    ("slots", "message"),
    [
        ([], None),
        ({}, None),
        (None, None),
        (["a"], "DOWNLOAD_SLOTS is "),
        ("a", "DOWNLOAD_SLOTS is "),
        ({"a": 1}, r"DOWNLOAD_SLOTS\['a'\] is 1"),
        ({"a": None}, r"DOWNLOAD_SLOTS\['a'\] is None"),
        ({1: {}}, "DOWNLOAD_SLOTS has the key 1"),
    ],
)
def test_bad_slots(slots: object, message: str | None) -> None:
    if message is None:
        assert Rates(slots=slots)["a"] == Rate()  # type: ignore[arg-type]
    else:
        with pytest.raises(ValueError, match=message):
            Rates(slots=slots)  # type: ignore[arg-type]


def test_every_rate_is_usable() -> None:
    rates = Rates(1e300, 5.0)
    assert isfinite(rates.gap("any", random.Random(1)))

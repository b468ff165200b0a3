"""How long a host is to be left alone.

Two things are kept apart. What a *site* asks for is read by :func:`parse_retry_after` and
:func:`clamp_delay`, or deduced from its failures by :func:`pause`. What the *job* grants of
its own accord, DOWNLOAD_DELAY and the like, is a :class:`Rate`, one for each pace group,
found by :class:`Rates`. All times are in seconds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_tz
from math import isfinite, isnan
from random import Random

from .hosts import InvalidHost, canonical_name

__all__ = ["Rate", "Rates", "clamp_delay", "parse_retry_after", "pause"]

_SECONDS = re.compile(r"[0-9]+(?:\.[0-9]*)?")
#: What the three forms of an HTTP date have in common, and "120, 120" has not.
_TIME_OF_DAY = re.compile(r"[0-9]{1,2}:[0-9]{2}:[0-9]{2}")


def parse_retry_after(value: bytes | str | None, now: float) -> float | None:
    """Return how many seconds from *now* a Retry-After header asks to wait.

    Both forms of :rfc:`9110#section-10.2.3` are read: seconds (a fraction is accepted), and
    a date in any of the three forms of :rfc:`9110#section-5.6.7`.

    :param value: the header's value, ``None`` where there is none.
    :param now: Unix time.
    :return: seconds, 0 or more; 0 for a date that has passed. It may be very large, even
        infinite: the caller clamps it with :func:`clamp_delay`. ``None`` if there is nothing
        that can be read, a negative number among it.
    """
    text = value.decode("latin-1") if isinstance(value, bytes) else value or ""
    text = text.strip()
    if _SECONDS.fullmatch(text):
        return float(text)
    when = _http_date(text)
    return None if when is None else max(0.0, when - now)


def _http_date(text: str) -> float | None:
    # More than a date can hold is not looked at: a header may be any length.
    if len(text) > 100 or _TIME_OF_DAY.search(text) is None:
        return None
    try:
        parsed = parsedate_tz(text)
        if parsed is None:
            return None
        year, month, day, hour, minute, second = parsed[:6]
        # A leap second is allowed by the RFC and unknown to datetime. asctime's form has no
        # zone: it means UTC.
        when = datetime(year, month, day, hour, minute, min(second, 59), tzinfo=timezone.utc)
        return (when - timedelta(seconds=parsed[9] or 0)).timestamp()
    except (ValueError, OverflowError, IndexError, TypeError):
        # email.utils has raised each of these for one malformed date or another.
        return None


def clamp_delay(value: object, longest: float) -> tuple[float, bool]:
    """Bring a delay that a site asks for within bounds.

    :param value: as it was parsed, of any type; ``None`` where the site asks for nothing.
    :param longest: the longest delay that is granted, FOCUS_MAX_CRAWL_DELAY.
    :return: seconds, between 0 and *longest*, and whether *value* had to be changed: then
        the caller counts it. What is negative or no number becomes 0, what is too long or
        infinite becomes *longest*.
    """
    if value is None:
        return 0.0, False
    number = _number(value)
    if number is None or number < 0:
        return 0.0, True
    return (longest, True) if number > longest else (number, False)


def _number(value: object) -> float | None:
    """Return *value* as a float, which may be infinite but not NaN; else ``None``."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    except OverflowError:  # An integer beyond the range of floats.
        return float("inf") if isinstance(value, int) and value > 0 else float("-inf")
    return None if isnan(number) else number


def pause(streak: int, first: float = 1.0, longest: float = 3600.0) -> float:
    """Return how long to leave a host alone that has failed *streak* times in a row.

    For hosts that cannot be resolved or connected to, and for answers 429 and 503 without
    Retry-After: ``first * 2 ** (streak - 1)`` seconds, at most *longest*.

    :param streak: failures since the last success; 0 or less means no pause.
    """
    if streak <= 0:
        return 0.0
    # A greater power raises; the product may be infinite.
    return min(longest, first * 2.0 ** min(streak - 1, 1023))


@dataclass(frozen=True, slots=True)
class Rate:
    """What one pace group is granted.

    :param delay: seconds between two requests, on average.
    :param jitter: how far a single gap may differ from *delay*, as a part of it: 0.5 means
        between half of it and one and a half times it. Above 1 the gap may be 0.
    :param concurrency: most requests in flight at a time, 1 or more.
    """

    delay: float = 0.0
    jitter: float = 0.5
    concurrency: int = 8

    def gap(self, rng: Random, delay: float | None = None) -> float:
        """Draw the seconds to wait before the next request.

        The draw is uniform, as in Scrapy's downloader, and never below 0.

        :param delay: in place of the rate's own, where AutoThrottle has set another one.
        """
        mean = self.delay if delay is None else delay
        if not mean or not self.jitter:
            return mean
        return max(0.0, mean * (1.0 + rng.uniform(-self.jitter, self.jitter)))

    def least_gap(self, delay: float | None = None) -> float:
        """Return the least that :meth:`gap` can draw."""
        mean = self.delay if delay is None else delay
        return max(0.0, mean * (1.0 - self.jitter))


class Rates:
    """The rates of a job: one for all pace groups, and those that differ from it.

    :param delay: DOWNLOAD_DELAY, seconds.
    :param jitter: DOWNLOAD_DELAY_JITTER; where Scrapy (before 2.19) only has
        RANDOMIZE_DOWNLOAD_DELAY, 0.5 for true and 0 for false.
    :param concurrency: CONCURRENT_REQUESTS_PER_DOMAIN. 0 does not mean "no limit" in
        Scrapy: its downloader never sends a request then, and the crawl hangs. So it is an
        error here.
    :param slots: DOWNLOAD_SLOTS: from the name of a slot, which is the name of a pace
        group, to a dict with any of ``delay``, ``jitter``, ``randomize_delay`` (true: 0.5;
        ``jitter`` wins) and ``concurrency``. Other keys are ignored, as Scrapy does. A name
        that is a host name in another spelling than the canonical one counts for that too.
    :raises ValueError: if a value cannot be used; the message names the setting and, in
        DOWNLOAD_SLOTS, the key.
    """

    def __init__(
        self,
        delay: float = 0.0,
        jitter: float = 0.5,
        concurrency: int = 8,
        slots: Mapping[str, Mapping[str, object]] | None = None,
    ) -> None:
        self.default = Rate(
            _seconds("DOWNLOAD_DELAY", delay),
            _part("DOWNLOAD_DELAY_JITTER", jitter),
            _in_flight("CONCURRENT_REQUESTS_PER_DOMAIN", concurrency),
        )
        self._rates: dict[str, Rate] = {}
        if not isinstance(slots or {}, Mapping):
            raise ValueError(f"DOWNLOAD_SLOTS is {slots!r}, which is not a dict of dicts.")
        for name, slot in (slots or {}).items():
            self._rates[name] = self._slot(name, slot)
        for name in list(self._rates):
            self._rates.setdefault(_canonical(name), self._rates[name])

    def __getitem__(self, group: str) -> Rate:
        """Return the rate of a pace group."""
        return self._rates.get(group, self.default)

    def delay(self, group: str) -> float:
        """Return the mean delay of *group* in seconds."""
        return self[group].delay

    def gap(self, group: str, rng: Random, delay: float | None = None) -> float:
        """Draw the next gap of *group*; see :meth:`Rate.gap`."""
        return self[group].gap(rng, delay)

    def least_gap(self, group: str, delay: float | None = None) -> float:
        """Return the least gap of *group*; see :meth:`Rate.least_gap`."""
        return self[group].least_gap(delay)

    def concurrency(self, group: str) -> int:
        """Return how many requests of *group* may be in flight, 1 or more."""
        return self[group].concurrency

    def _slot(self, name: object, slot: object) -> Rate:
        if not isinstance(name, str):
            raise ValueError(f"DOWNLOAD_SLOTS has the key {name!r}, which is not a string.")
        where = f"DOWNLOAD_SLOTS[{name!r}]"
        if not isinstance(slot, Mapping):
            raise ValueError(f"{where} is {slot!r}, which is not a dict.")
        jitter = self.default.jitter
        if "jitter" in slot:
            jitter = _part(f"{where}['jitter']", slot["jitter"])
        elif "randomize_delay" in slot:
            jitter = 0.5 if slot["randomize_delay"] else 0.0
        return Rate(
            _seconds(f"{where}['delay']", slot.get("delay", self.default.delay)),
            jitter,
            _in_flight(
                f"{where}['concurrency']", slot.get("concurrency", self.default.concurrency)
            ),
        )


def _canonical(name: str) -> str:
    try:
        return canonical_name(name)
    except InvalidHost:  # A slot may have any name.
        return name


def _seconds(setting: str, value: object) -> float:
    return _not_negative(setting, value, "a number of seconds, 0 or more")


def _part(setting: str, value: object) -> float:
    return _not_negative(setting, value, "a number, 0 or more, such as 0.5 for ±50%")


def _not_negative(setting: str, value: object, wanted: str) -> float:
    # Not a string: the downloader, which reads the same setting, could not count with it.
    number = None if isinstance(value, str) else _number(value)
    if number is None or number < 0 or not isfinite(number):
        raise ValueError(f"{setting} is {value!r}; it must be {wanted}.")
    return number


def _in_flight(setting: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(
            f"{setting} is {value!r}; it must be a whole number, 1 or more "
            "(with 0 Scrapy's downloader would never send a request)."
        )
    return value

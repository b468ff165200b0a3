"""Traps: URLs that a site makes without end. Caps on their shape, each under its own name.

A cap says how much is still taken; 0 switches it off. The defaults let through what ordinary
sites have. Sources: Heritrix 3, which refuses more than 20 path segments, and a sequence of
them that comes three times in a row (``TooManyPathSegmentsDecideRule``,
``PathologicalPathDecideRule``); here one may come three times, since dates do (2011/11/11/11).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timezone
from typing import Any

from .facets import Facets

__all__ = ["CAPS", "InvalidCap", "Traps"]

#: The caps with their defaults, and what each limits.
CAPS: dict[str, tuple[int, str]] = {
    "repeats": (3, "times in a row that a sequence of path segments stands"),
    "segments": (20, "path segments"),
    "parameters": (30, "parameters in the query"),
    "ahead": (400, "days that a date in the URL lies ahead"),
    "facets": (1000, "URLs of one path that have four parameters or more"),
}

#: So many parameters are a choice of facets, and no identity of a page.
_FACETS = 4

# Of this century and the next: calendars are followed step by step.
_SEPARATOR = "[-/_.]"
_DATE = re.compile(
    rf"(?<![0-9a-z-])(2[01][0-9]{{2}}){_SEPARATOR}(0?[1-9]|1[0-2])"
    rf"(?:{_SEPARATOR}(0?[1-9]|[12][0-9]|3[01]))?(?![0-9a-z])"
    r"|[?&](?:year|yr|y)=(2[01][0-9]{2})(?![0-9a-z])",
    re.IGNORECASE,
)


class InvalidCap(ValueError):
    """A cap that cannot be used; the message is a sentence that says why."""


class Traps:
    """The caps of a job.

    :param caps: those that differ from the defaults, by name
    :raises InvalidCap: on an unknown name, or what is no whole number
    """

    def __init__(self, caps: Mapping[str, Any]) -> None:
        for name, cap in caps.items():
            if name not in CAPS:
                raise InvalidCap(f"{name!r} is no trap; the traps are {', '.join(CAPS)}.")
            if isinstance(cap, bool) or not isinstance(cap, int) or cap < 0:
                raise InvalidCap(f"{name!r} is {cap!r}; it must be a whole number, 0 for no cap.")
        self._caps = {name: caps.get(name, default) for name, (default, _) in CAPS.items()}
        # A sequence of up to eight segments, which comes again at once.
        again = self._caps["repeats"]
        self._repeated = re.compile(rf"((?:/[^/]+){{1,8}}?)\1{{{again}}}(?=/|\Z)")
        #: ``None`` if they are not counted.
        self.facets = Facets(self._caps["facets"]) if self._caps["facets"] else None

    def refuse(self, url: str, now: float) -> str | None:
        """The name of the cap that a link is over, if it is. What is let through counts.

        :param now: Unix time, in seconds
        """
        before, _, query = url.partition("#")[0].partition("?")
        found = self._by_shape(before, query, now)
        if found or not self.facets or query.count("&") < _FACETS - 1:
            return found
        return "facets" if self.facets.refuse(before) else None

    def explain(self, url: str, now: float) -> str | None:
        """A sentence that names the cap that a URL is over, if it is by its shape."""
        before, _, query = url.partition("#")[0].partition("?")
        name = self._by_shape(before, query, now)
        if name is None:
            return None
        return f"It looks like a trap: it has more than {self._caps[name]} {CAPS[name][1]}."

    def faceted(self, url: str) -> str | None:
        """The path by which a URL counts as one of many with facets, if it does."""
        before, _, query = url.partition("#")[0].partition("?")
        return before if self.facets and query.count("&") >= _FACETS - 1 else None

    def explain_facets(self, number: int) -> str | None:
        """A sentence, if so many URLs with facets are no less than the cap."""
        cap = self._caps["facets"]
        if number < cap:
            return None
        return f"It looks like a trap: the job has {number} {CAPS['facets'][1]}, and takes {cap}."

    def _by_shape(self, before: str, query: str, now: float) -> str | None:
        caps = self._caps
        path = before[before.find("/", before.find("//") + 2) :]
        segments = path.count("/")
        if 0 < caps["segments"] < segments:
            return "segments"
        if 0 < caps["repeats"] < segments and self._repeated.search(path):
            return "repeats"
        if query and 0 < caps["parameters"] <= query.count("&"):
            return "parameters"
        if caps["ahead"] and _days_ahead(path, query, now) > caps["ahead"]:
            return "ahead"
        return None


def _days_ahead(path: str, query: str, now: float) -> float:
    """How far ahead the latest date in a URL lies, in days; negative if there is none."""
    text = f"{path}?{query}"
    latest = -1.0
    if "20" in text or "21" in text:
        for year, month, day, only_year in _DATE.findall(text):
            numbers = int(year or only_year), int(month or 1), int(day or 1)
            with suppress(ValueError):  # the 31st of a shorter month
                date = datetime(*numbers, tzinfo=timezone.utc)
                latest = max(latest, (date.timestamp() - now) / 86_400)
    return latest

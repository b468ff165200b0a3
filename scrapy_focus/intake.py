"""From a request to a candidate: is it a seed, a link, another attempt or a redirect hop?"""

from __future__ import annotations

import secrets
from collections import Counter
from dataclasses import replace
from math import isnan
from typing import TYPE_CHECKING

from scrapy_focus.candidate import Candidate
from scrapy_focus.decisions.hosts import InvalidHost, canonical_host
from scrapy_focus.exceptions import Drop

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.settings import BaseSettings

    from scrapy_focus.decisions.groups import Groups
    from scrapy_focus.decisions.shares import Shares
    from scrapy_focus.dupefilter import DupeFilter
    from scrapy_focus.engine import Seeds
    from scrapy_focus.flights import Flight, Flights


#: Numbers beyond it mean nothing here, and would not fit into every store.
_MOST = 1e15

#: Beyond so many characters a URL takes long to be made canonical. (By default Scrapy follows no
#: link that is longer.)
_LONG = 2083


class Intake:
    """Makes candidates of requests.

    :param groups: names the pace group of a host
    :param shares: names the share of the budget that a URL uses
    :param own_filter: whether duplicates are ours to find; another filter's verdict makes
        every request that it lets pass a copy of its own
    """

    def __init__(
        self,
        settings: BaseSettings,
        identity: DupeFilter,
        groups: Groups,
        shares: Shares,
        flights: Flights,
        seeds: Seeds,
        own_filter: bool,
    ) -> None:
        self._identity = identity
        self._groups = groups
        self._shares = shares
        self._flights = flights
        self._seeds = seeds
        self._own_filter = own_filter
        self._copies: Counter[int] = Counter()
        # Scrapy's defaults would push retries back and hops forward in the user's order.
        self._retry_adjusts = bool(settings.getpriority("RETRY_PRIORITY_ADJUST"))
        self._redirect_adjusts = bool(settings.getpriority("REDIRECT_PRIORITY_ADJUST"))

    def link(self, request: Request, fingerprint: bytes, now: float) -> Candidate:
        """A seed, or a link that a page or a component has found.

        :raises scrapy_focus.Drop: if its URL or its meta cannot be used
        """
        meta = request.meta
        host = _host(request)
        depth = meta.get("depth", 0)
        candidate = Candidate(
            url=request.url,
            host=host,
            group=("download_slot" in meta and self.own_slot(request)) or self._groups.of(host),
            key=self._identity.key(request, fingerprint) if "focus_key" in meta else fingerprint,
            depth=depth if type(depth) is int else int(_number(depth)),
            seed=request in self._seeds,
            priority=request.priority,
            score=_score(meta["focus_score"]) if "focus_score" in meta else 0.5,
            ready_at=_number(meta["focus_not_before"]) if "focus_not_before" in meta else 0.0,
            discovered=now,
        )
        if self._shares:
            candidate.share = self._shares.of(request.url, host)
        if request.dont_filter or not self._own_filter:
            candidate.copy = self._copy(request, candidate)
        return candidate

    def retry(self, request: Request, flight: Flight) -> Candidate:
        """The next attempt of a row that is leased here."""
        before = flight.lease.candidate
        adjusts = self._retry_adjusts or "priority_adjust" in request.meta
        return replace(
            before, priority=request.priority if adjusts else before.priority, ready_at=0.0
        )

    def hop(self, request: Request, flight: Flight, fingerprint: bytes) -> Candidate:
        """Where a page in flight redirected to: part of the same page, so it keeps its depth,
        discovery time, score and priority, is a seed if that was one, and the budget has paid.

        :raises scrapy_focus.Drop: if its URL cannot be used
        """
        before = flight.lease.candidate
        host = _host(request)
        return replace(
            before,
            url=request.url,
            host=host,
            group=flight.own_slot or self._groups.of(host),
            # Not the focus_key that meta has copied: that is the source's.
            key=fingerprint,
            copy=self._hop_copy(request, fingerprint, before.copy),
            priority=request.priority if self._redirect_adjusts else before.priority,
            ready_at=0.0,
            attempts=0,
            charged=True,
            request=None,
            volatile=False,
            share=self._shares.of(request.url, host),
        )

    def own_slot(self, request: Request) -> str | None:
        """The ``download_slot`` that the user chose, not one copied from a page in flight."""
        slot = request.meta.get("download_slot")
        if not isinstance(slot, str) or slot in self._flights.slots:
            return None
        return slot

    def _copy(self, request: Request, candidate: Candidate) -> int:
        if request.dont_filter and candidate.seed:
            # Counted by a part of the key: a collision makes a resumed seed a new one.
            short = hash(candidate.key)
            self._copies[short] += 1
            return self._copies[short]
        return _unique()

    def _hop_copy(self, request: Request, fingerprint: bytes, source: int) -> int:
        """A hop is deduplicated, also where it inherits ``dont_filter`` from a seed. Not so
        against its own chain: a page that sets a cookie and sends the visitor back must reach
        its callback. And what was asked for once more on purpose stays a copy of its own."""
        for url in request.meta.get("redirect_urls", ()):
            if url == request.url:
                return _unique()
            # Very long ones are compared as they are: a chain of them would take a second.
            short = len(url) <= _LONG and len(request.url) <= _LONG
            if short and self._identity.fingerprint(request.replace(url=url)) == fingerprint:
                return _unique()
        if source not in (0, 1):
            return source
        return 0 if self._own_filter else _unique()


def _unique() -> int:
    return -1 - secrets.randbits(62)


def _host(request: Request) -> str:
    try:
        return canonical_host(request.url)
    except InvalidHost:
        raise Drop("invalid") from None


def check_values(candidate: Candidate) -> None:
    """Refuse what no store can keep, such as the NaN that a plugin has divided its way to, or
    half of a character in a ``download_slot``.

    :raises scrapy_focus.Drop: then
    """
    url, group, host, parent = candidate.url, candidate.group, candidate.host, candidate.parent
    if not (url.isascii() and group.isascii() and host.isascii() and (parent or "").isascii()):
        _check_text(f"{url}{group}{host}{parent}")
    for value in (candidate.priority, candidate.depth, candidate.score, candidate.ready_at):
        if type(value) not in (int, float) or not -_MOST < value < _MOST:
            _number(value)
    # It may be infinite, and is most often a float.
    if type(candidate.rank) is not float or isnan(candidate.rank):
        _check_rank(candidate.rank)


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Drop("invalid") from None


def _check_rank(rank: object) -> None:
    if isinstance(rank, int):
        _number(rank)
    elif not isinstance(rank, float) or isnan(rank):
        raise Drop("invalid")


def _number(value: object) -> int | float:
    # NaN is not between anything.
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -_MOST < value < _MOST:
        raise Drop("invalid")
    return value


def _score(value: object) -> float:
    score = _number(value)
    if not 0 <= score < 1:
        raise Drop("invalid")
    return score

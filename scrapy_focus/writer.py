"""Collects what the frontier must know and stores it, one transaction at a time."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scrapy_focus.candidate import Candidate
    from scrapy_focus.frontier import Frontier, Lease, Outcome

#: How many candidates one transaction takes at most.
BATCH = 50
#: Seconds for which a transaction may hold the reactor, as far as that is known before: in a
#: large frontier, most of which is not in memory, a URL takes ten times as long.
_TURN = 0.0008


class Writer:
    """A buffer in front of the frontier.

    Outcomes go together with all that was offered before them: a page's links are stored
    no later than its settlement. When the store is busy everything stays here.
    """

    def __init__(
        self,
        frontier: Frontier,
        added: Callable[[list[Candidate], list[bool]], None],
        settled: Callable[[Outcome, bool], None],
        refused: Callable[[str, int], None],
    ) -> None:
        self._frontier = frontier
        self._added = added
        self._settled = settled
        self._tell_refused = refused
        self._candidates: list[Candidate] = []
        self._keys: set[bytes] = set()
        self._events: list[Callable[[], object]] = []
        self._left: dict[int, tuple[Lease, float, bool, int]] = {}
        self._outcomes: list[Outcome] = []
        self._refused: Counter[str] = Counter()
        # Seconds that storing a candidate, and leasing one, has taken lately.
        self._each_added = self._each_leased = 0.0

    def attach(self, frontier: Frontier) -> None:
        """Write to another frontier from now on."""
        self._frontier = frontier

    def __bool__(self) -> bool:
        return bool(self.news or self._refused)

    @property
    def news(self) -> bool:
        """Whether something here may change what is leased next."""
        return bool(self._candidates or self._outcomes or self._events or self._left)

    @property
    def full(self) -> bool:
        """Whether it is time to store what has gathered."""
        number = len(self._candidates)
        return number >= BATCH or number * self._each_added > _TURN

    @property
    def behind(self) -> bool:
        """Whether so much has gathered, since the store was busy, that it must be stored in
        parts."""
        number = len(self._candidates)
        return number > BATCH and number * self._each_added > 2 * _TURN

    @property
    def promising(self) -> bool:
        """Whether something here may become a URL to fetch."""
        return bool(self._candidates or self._outcomes)

    def holds(self, key: bytes) -> bool:
        """Whether a candidate of that key is about to be stored."""
        return key in self._keys

    def add(self, candidate: Candidate) -> None:
        self._candidates.append(candidate)
        self._keys.add(candidate.key)

    def refuse(self, reason: str) -> None:
        self._refused[reason] += 1

    def settle(self, outcome: Outcome) -> None:
        # Settling frees the host's place as well: one write instead of two.
        if self._left.pop(outcome.lease.id, None) is None:
            outcome = replace(outcome, size=0)
        self._outcomes.append(outcome)

    def left(self, lease: Lease, now: float, *, fetched: bool, size: int = 0) -> None:
        """A request has left the downloader with *size* bytes, which the budget counts from
        now on: its callback may take long."""
        self._left[lease.id] = (lease, now, fetched, size)

    def event(self, action: Callable[[], object]) -> None:
        """Something else that must be stored before the next lease."""
        self._events.append(action)

    def catch_up(self, now: float) -> None:
        """Store as many of the candidates as a turn allows, the oldest first.

        :raises scrapy_focus.exceptions.FrontierError: nothing is stored, and nothing lost
        """
        number = max(1, int(_TURN / self._each_added))
        candidates = self._candidates[:number]
        with self._frontier.transaction(soon=True):
            new = self._add(candidates, now)
        del self._candidates[:number]
        self._keys = {candidate.key for candidate in self._candidates}
        self._added(candidates, new)

    def flush(
        self, now: float, until: float | None = None, *, limit: int = 1, soon: bool = False
    ) -> list[Lease]:
        """Store everything, and with *until* lease the next URLs in the same transaction.
        The counts of what was refused then wait for a call without.

        :param limit: how many URLs to lease; it may be fewer, so that it does not take too long
        :param soon: it need not be safe from a kill yet
        :raises scrapy_focus.exceptions.FrontierError: nothing is stored, and nothing lost
        """
        candidates, outcomes = self._candidates, self._outcomes
        leases: list[Lease] = []
        with self._frontier.transaction(soon=soon):
            for action in self._events:
                action()
            for left, at, fetched, size in self._left.values():
                self._frontier.left(left, at, fetched=fetched, size=size)
            accepted = self._frontier.settle(outcomes, [], now)[0] if outcomes else []
            new = self._add(candidates, now) if candidates else []
            if until is not None:
                leases = self._lease(limit, now, until)
            elif self._refused:
                self._frontier.count("refused", self._refused)
        self._candidates, self._outcomes, self._events = [], [], []
        self._keys.clear()
        self._left.clear()
        if until is None:
            for reason, number in self._refused.items():
                self._tell_refused(reason, number)
            self._refused.clear()
        if candidates:
            self._added(candidates, new)
        for outcome, is_valid in zip(outcomes, accepted, strict=True):
            self._settled(outcome, is_valid)
        return leases

    def _add(self, candidates: list[Candidate], now: float) -> list[bool]:
        began = time.perf_counter()
        new = self._frontier.add(candidates, now)
        self._each_added = _smooth(self._each_added, began, len(candidates))
        return new

    def _lease(self, limit: int, now: float, until: float) -> list[Lease]:
        began = time.perf_counter()
        if limit * self._each_leased > _TURN:
            limit = max(1, int(_TURN / self._each_leased))
        leases = self._frontier.lease(limit, now, until)
        if leases:
            self._each_leased = _smooth(self._each_leased, began, len(leases))
        return leases


def _smooth(before: float, began: float, number: int) -> float:
    """A mean, in which the last few count most, of what each of so many has taken."""
    return 0.8 * before + 0.2 * (time.perf_counter() - began) / number

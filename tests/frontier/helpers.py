"""What the frontier's tests share: candidates, a pace that can be changed, statistics."""

from __future__ import annotations

import math
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from scrapy_focus.candidate import Candidate
from scrapy_focus.frontier import Ending, Frontier, Lease, Outcome, choosing, rows, sqlite
from scrapy_focus.frontier.memory import MemoryFrontier
from scrapy_focus.frontier.sqlite import SQLiteFrontier

#: Now, when a test begins.
T0 = 1_000_000.0
#: Long enough for every test.
LONG = 3600.0


#: What a run keeps at hand of a large frontier, so little of it that a small one is large.
LITTLE: list[tuple[Any, str, int]] = [
    *((choosing, "_FEW", 1), (choosing, "_MANY", 2), (choosing, "_KEPT", 3)),
    *((rows, "_KEPT", 2), (rows, "_AHEAD", 2), (sqlite, "_CACHE", 1), (sqlite, "_COPIED", 1)),
]


@dataclass
class Paces:
    """A job's gaps and caps: one for all groups, or one for each."""

    gap: float = 0.0
    cap: int = 0
    groups: dict[str, tuple[float, int]] = field(default_factory=dict)

    def __call__(self, group: str) -> tuple[float, int]:
        return self.groups.get(group, (self.gap, self.cap))


def candidate(url: str, **fields: Any) -> Candidate:
    """A candidate for ``host/path``, its key being the URL."""
    host = fields.pop("host", url.partition("/")[0])
    fields.setdefault("group", host)
    fields.setdefault("key", url.encode())
    fields.setdefault("discovered", T0)
    return Candidate(url=url, host=host, **fields)


def offer(frontier: Frontier, *urls: str, now: float = T0, **fields: Any) -> list[bool]:
    """Add URLs that have these fields in common."""
    return frontier.add([candidate(url, **fields) for url in urls], now)


def take(frontier: Frontier, limit: int = 1, now: float = T0) -> list[Lease]:
    """Lease with an end that is far away."""
    return frontier.lease(limit, now, now + LONG)


def take_urls(frontier: Frontier, limit: int = 100, now: float = T0) -> list[str]:
    return urls(take(frontier, limit, now))


def urls(leases: Iterable[Lease]) -> list[str]:
    return [lease.candidate.url for lease in leases]


def end(
    frontier: Frontier,
    leases: Lease | Sequence[Lease],
    ending: Ending = Ending.DONE,
    now: float = T0,
    **fields: Any,
) -> list[bool]:
    """Settle leases, all with one ending."""
    leases = [leases] if isinstance(leases, Lease) else leases
    return frontier.settle([Outcome(lease, ending, **fields) for lease in leases], [], now)[0]


def drain(frontier: Frontier, now: float = T0) -> list[str]:
    """Lease and finish one URL after the other until there is none."""
    found = []
    while leases := take(frontier, now=now):
        found += urls(leases)
        end(frontier, leases, now=now)
    return found


class Store:
    """What a contract suite opens its frontiers from."""

    paces: Paces

    @pytest.fixture(autouse=True)
    def prepare(self, tmp_path: Path) -> Iterator[None]:
        self.paces = Paces()
        self.path = tmp_path / "frontier.db"
        self.opened: list[SQLiteFrontier] = []
        yield
        for frontier in self.opened:
            abandon(frontier)

    def open(self, **options: Any) -> Frontier:
        """A frontier of a new job, or of the same one where the store keeps it."""
        raise NotImplementedError

    def fresh(self, **options: Any) -> Frontier:
        """A frontier that knows nothing, whatever others of the test know."""
        self.path = self.path.with_name(f"{len(self.opened)}.db")
        return self.open(**options)


class MemoryStore(Store):
    def open(self, **options: Any) -> MemoryFrontier:
        return MemoryFrontier(pace=self.paces, **options)


class SQLiteStore(Store):
    def open(
        self, job: str = "job", *, now: float = T0, paces: Paces | None = None, **options: Any
    ) -> SQLiteFrontier:
        frontier = SQLiteFrontier(self.path, job, pace=paces or self.paces, now=now, **options)
        self.opened.append(frontier)
        return frontier

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Look into the file, as another program would."""
        connection = sqlite3.connect(self.path)
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()


def sooner(frontier: SQLiteFrontier) -> SQLiteFrontier:
    """The frontier, each of whose calls may be stored a moment later."""
    write = frontier.transaction
    frontier.transaction = lambda soon=True: write(soon=soon)  # type: ignore[method-assign]
    return frontier


def abandon(frontier: SQLiteFrontier) -> None:
    """Let go of a frontier as a killed process does: without a word to the store."""
    if frontier._pruner:  # its thread ends with the process
        frontier._pruner.set.stop()
        if frontier._pruner._thread:
            frontier._pruner._thread.join()
        frontier._pruner.set.close()
    with frontier._db._lock, suppress(sqlite3.ProgrammingError):  # it may be closed
        frontier._db._lingering = False
        frontier._db._connection.rollback()
    frontier._db.close()
    lock = frontier._jobs._lock
    if lock and lock._file is not None:
        os.close(lock._file)
        lock._file = None


def chi_squared_limit(freedom: int, z: float = 3.719) -> float:
    """The value that chi-squared with *freedom* degrees exceeds with a probability of
    1e-4 (*z* is the normal quantile), after Wilson and Hilferty (1931)."""
    part = 2 / (9 * freedom)
    return freedom * (1 - part + z * math.sqrt(part)) ** 3


def chi_squared(observed: Iterable[int], expected: float) -> float:
    return sum((number - expected) ** 2 / expected for number in observed)

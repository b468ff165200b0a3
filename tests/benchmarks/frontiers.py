"""Frontiers without Scrapy. Filling them, and timing their calls."""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from scrapy_focus.candidate import Candidate
from scrapy_focus.decisions.policies import PriorityPolicy
from scrapy_focus.frontier import Ending, Frontier, Lease, Outcome
from scrapy_focus.frontier.database import migrations
from scrapy_focus.frontier.memory import MemoryFrontier
from scrapy_focus.frontier.sqlite import SQLiteFrontier
from tests.benchmarks.machine import read_calls, resident
from tests.benchmarks.server import host_name

#: Candidates that one transaction takes, as from the Scheduler.
BATCH = 100
#: Length of every URL, in characters.
LENGTH = 80
_LEASE_TIME = 600.0
_POLICY = f"{PriorityPolicy.__module__}.{PriorityPolicy.__qualname__}"

T = TypeVar("T")


def schema_name() -> str:
    """Changes with the tables, so that no fill of older ones is used."""
    text = "".join(script for _, script in migrations())
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def candidates(hosts: int, ranks: str = "random", start: int = 0) -> Iterator[Candidate]:
    """Endless new URLs of :data:`LENGTH` characters on so many hosts: ordinary GETs.

    Hosts come in random order and ranks are random, unless they follow the host's number:
    what is best then lies anywhere in the store.
    """
    rng = random.Random(start)
    now = time.time()
    number = start
    while True:
        # The first ones see to it that every host has something.
        which = number if number < hosts else rng.randrange(hosts)
        host = host_name(which)
        url = f"http://{host}/{number:x}-".ljust(LENGTH, "x")
        key = hashlib.sha1(url.encode()).digest()
        rank = which / hosts if ranks == "host" else rng.random()
        yield Candidate(url, host, host, key, depth=3, rank=-rank, discovered=now)
        number += 1


def open_frontier(
    path: str | None, now: float, delay: float = 0.0, limit: int = 0
) -> SQLiteFrontier | MemoryFrontier:
    """The job ``bench`` of a file, or a frontier in memory.

    :param delay: seconds between two requests to a host
    :param limit: requests in flight there
    """
    if path is None:
        return MemoryFrontier(pace=lambda group: (delay, limit))
    return SQLiteFrontier(
        Path(path), "bench", pace=lambda group: (delay, limit), now=now, policy=_POLICY
    )


def stop(frontier: Frontier, now: float) -> None:
    """End the run; the job goes on at the next one."""
    frontier.close("shutdown", finished=False, now=now)


class Watch:
    """Times single calls: nanoseconds of this thread's CPU, and of the clock on the wall."""

    def __init__(self) -> None:
        self.cpu: list[int] = []
        self.wall: list[int] = []

    def time(self, call: Callable[[], T]) -> T:
        wall, cpu = time.perf_counter_ns(), time.thread_time_ns()
        result = call()
        self.cpu.append(time.thread_time_ns() - cpu)
        self.wall.append(time.perf_counter_ns() - wall)
        return result

    def figures(self) -> dict[str, float]:
        """In microseconds."""
        if not self.cpu:
            return {}
        found = {"mean": sum(self.cpu) / len(self.cpu) / 1000}
        for name, times in (("cpu", self.cpu), ("wall", self.wall)):
            for share in (0.5, 0.99):
                found[f"{name}{share * 100:g}"] = quantile(times, share) / 1000
        return found


def quantile(values: list[int], share: float) -> float:
    """The value below which that share of *values* lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def add_many(frontier: Frontier, source: Iterator[Candidate], number: int, now: float) -> Watch:
    """Add candidates in batches; the figures are for a batch."""
    watch = Watch()
    while number > 0:
        batch = list(islice(source, min(BATCH, number)))
        watch.time(partial(frontier.add, batch, now))
        number -= len(batch)
    return watch


def added(watch: Watch, number: int) -> dict[str, float]:
    """What adding so many has cost, in microseconds each."""
    last = watch.cpu[-max(1, len(watch.cpu) // 10) :]
    return {
        "add": sum(watch.cpu) / number / 1000,
        "add_last_tenth": sum(last) / min(number, len(last) * BATCH) / 1000,
    }


def fill(path: str, urls: int, hosts: int, seen: int, cooling: float, ranks: str) -> dict[str, Any]:
    """Make a frontier that holds so much; see :class:`tests.benchmarks.bench.Fill`."""
    now = time.time()
    frontier = open_frontier(path, now, cooling)
    source = candidates(hosts, ranks)
    for _ in range(0, seen, BATCH):
        frontier.add(list(islice(source, BATCH)), now)
        _finish(frontier, frontier.lease(BATCH, now, now + _LEASE_TIME), now)
    used = time.process_time()
    watch = add_many(frontier, source, urls, now)
    used = time.process_time() - used
    if cooling:
        while leases := frontier.lease(BATCH, now, now + _LEASE_TIME):
            _finish(frontier, leases, now)
    memory = resident()
    stop(frontier, now)
    size = Path(path).stat().st_size
    return {
        **added(watch, urls),
        # With the checkpoints, which have a thread of their own.
        "add_all_threads": used / urls * 1e6,
        "resident": memory,
        "bytes": size / (urls + seen),
        "size": size,
    }


def _finish(frontier: Frontier, leases: list[Lease], now: float) -> None:
    frontier.settle([Outcome(lease, Ending.DONE) for lease in leases], [], now)


class Crawl:
    """A run that leases and settles by a clock of its own, one URL at a time.

    :param step: seconds between two leases
    """

    def __init__(self, frontier: Frontier, now: float, step: float) -> None:
        self.frontier = frontier
        self.now = now
        self._step = step
        self.lease, self.settle, self.page = Watch(), Watch(), Watch()

    def advance(self, number: int) -> None:
        """So many leases, each settled before the next."""
        for _ in in_time(number):
            self.now += self._step
            leases = self.lease.time(self._lease)
            if not leases:
                raise RuntimeError("nothing to lease: the hosts do not suffice for the delay")
            self.settle.time(partial(_finish, self.frontier, leases, self.now))

    def work(self, number: int, source: Iterator[Candidate], links: int) -> None:
        """So many pages as the Scheduler does them: the settlement of one, its links and the
        next lease in one transaction."""
        leases = self._lease()
        for _ in in_time(number):
            self.now += self._step
            found = list(islice(source, links))
            leases = self.page.time(partial(self._turn, leases, found))

    def _lease(self) -> list[Lease]:
        return self.frontier.lease(1, self.now, self.now + _LEASE_TIME)

    def _turn(self, leases: list[Lease], found: list[Candidate]) -> list[Lease]:
        with self.frontier.transaction():
            outcomes = [Outcome(lease, Ending.DONE) for lease in leases]
            self.frontier.settle(outcomes, found, self.now)
            return self._lease()


def in_time(number: int) -> Iterator[int]:
    """Counts so far, or for ten seconds: some calls of some stores take very long."""
    end = time.monotonic() + 10.0
    for done in range(number):
        if done and time.monotonic() > end:
            return
        yield done


def reads_of(action: Callable[[], object]) -> int:
    """How many reads from files an action needs."""
    before = read_calls()
    action()
    return read_calls() - before

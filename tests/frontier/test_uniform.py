"""The uniform order: each waiting URL of a ready host is equally likely at each draw."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from scrapy_focus.frontier import Ending, Frontier, Order

from .helpers import (
    T0,
    MemoryStore,
    SQLiteStore,
    Store,
    chi_squared,
    chi_squared_limit,
    end,
    offer,
    take,
    urls,
)

DRAWS = 1_500


def test_the_limit_is_that_of_the_tables() -> None:
    """Critical values of chi-squared as printed: 95 % (z = 1.645) and 99.9 % (z = 3.090)."""
    for freedom, z, printed in ((10, 1.645, 18.307), (30, 1.645, 43.773), (20, 3.090, 45.315)):
        assert chi_squared_limit(freedom, z) == pytest.approx(printed, rel=0.01)


class Uniform(Store):
    """Draw, give back, draw again: the frontier is the same at each draw."""

    def draw_one(self, frontier: Frontier, now: float = T0) -> str:
        lease = take(frontier, 1, now)[0]
        end(frontier, lease, Ending.RELEASED, now=now, fetched=False)
        return lease.candidate.url

    def check(self, drawn: Counter[str], wanted: list[str]) -> None:
        assert set(drawn) == set(wanted)
        expected = sum(drawn.values()) / len(wanted)
        assert chi_squared(drawn.values(), expected) < chi_squared_limit(len(wanted) - 1)

    def frontier(self, seed: int) -> Frontier:
        return self.open(order=Order(uniform=True), rng=random.Random(seed))

    def test_whatever_the_rank_the_host_and_the_age(self) -> None:
        frontier = self.frontier(1)
        sizes = {"a": 1, "b": 4, "c": 20}
        wanted = [f"{host}/{n}" for host, size in sizes.items() for n in range(size)]
        for number, url in enumerate(wanted):
            offer(frontier, url, rank=float(number % 5))
        self.check(Counter(self.draw_one(frontier) for _ in range(DRAWS)), wanted)

    def ages(self, frontier: Frontier, rng: random.Random) -> list[int]:
        """Ten wait; one is drawn and another one arrives, again and again. How often the
        oldest of them was drawn, the second, …"""
        waiting: list[str] = []
        drawn = [0] * 10
        for number in range(DRAWS + 10):
            if number >= 10:
                leases = take(frontier)
                end(frontier, leases)
                place = waiting.index(leases[0].candidate.url)
                drawn[place] += 1
                del waiting[place]
            waiting.append(f"{number % 3}/{number}")
            offer(frontier, waiting[-1], rank=rng.random())
        return drawn

    def test_what_arrives_late(self) -> None:
        """It is as likely as what has long been there."""
        drawn = self.ages(self.frontier(2), random.Random(2))
        assert chi_squared(drawn, DRAWS / 10) < chi_squared_limit(9)

    def test_hosts_that_cool(self) -> None:
        """Only what may be fetched now is drawn from, and all of it."""
        frontier = self.frontier(3)
        self.paces.groups = {"slow": (10.0, 0)}
        fast = [f"{host}/{n}" for host in ("x", "y") for n in range(5)]
        slow = [f"slow/{n}" for n in range(10)]
        offer(frontier, *slow, *fast)
        cooling, ready = Counter[str](), Counter[str]()
        now = T0
        while sum(ready.values()) < DRAWS:
            now += 20
            lease = take(frontier, 1, now)[0]
            ready[lease.candidate.url] += 1
            if lease.candidate.host == "slow":
                cooling[self.draw_one(frontier, now + 5)] += 1
            end(frontier, lease, Ending.RELEASED, now=now)
        self.check(ready, slow + fast)
        self.check(cooling, fast)

    def test_several_at_once(self) -> None:
        frontier = self.frontier(4)
        wanted = [f"{'abc'[n % 3]}/{n}" for n in range(12)]
        offer(frontier, *wanted)
        drawn = Counter[str]()
        pairs = Counter[tuple[str, ...]]()
        for _ in range(DRAWS):
            leases = take(frontier, 2)
            drawn.update(urls(leases))
            pairs[tuple(urls(leases))] += 1
            end(frontier, leases, Ending.RELEASED, fetched=False)
        self.check(drawn, wanted)
        assert chi_squared(pairs.values(), DRAWS / 132) < chi_squared_limit(131)

    def test_deferred_and_volatile_rows(self) -> None:
        frontier = self.frontier(5)
        offer(frontier, "a/1", "b/1", ready_at=T0 + 5)
        offer(frontier, "a/2", "a/3", volatile=True)
        offer(frontier, "a/4", "c/1")
        drawn = Counter(self.draw_one(frontier, T0 + 6) for _ in range(DRAWS))
        self.check(drawn, ["a/1", "b/1", "a/2", "a/3", "a/4", "c/1"])

    def test_a_rank_at_entry_would_not_do(self) -> None:
        """It favours newcomers, as DESIGN.md says, and this test would notice."""
        drawn = self.ages(self.open(), random.Random(6))
        assert chi_squared(drawn, DRAWS / 10) > 2 * chi_squared_limit(9)


class TestMemory(Uniform, MemoryStore):
    """The reference."""


class TestSQLite(Uniform, SQLiteStore):
    """A file."""

"""The memory store and the SQLite store, driven side by side: they must agree."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from scrapy_focus.candidate import Candidate
from scrapy_focus.frontier import (
    ASIDE,
    Counts,
    Ending,
    Frontier,
    Lease,
    Limits,
    Order,
    Outcome,
    pruning,
)
from scrapy_focus.frontier.memory import MemoryFrontier
from scrapy_focus.frontier.seen import EXACT
from scrapy_focus.frontier.sqlite import SQLiteFrontier

from .helpers import LITTLE, T0, Paces, abandon, sooner
from .seen_sets import choice, prune

GROUPS = ["a", "b", "c", "slot"]
PLACES = [("a", "a"), ("b", "b"), ("c", "c"), ("a", "slot"), ("b", "slot"), ("", "")]
UNTIL = 1e12

steps = st.sampled_from([0.0, 0.5, 1.0, 2.5, 10.0])
ranks = st.sampled_from([-1.0, -0.75, 0.0, 0.0, 2.0])


@st.composite
def candidates(draw: st.DrawFn) -> Candidate:
    host, group = draw(st.sampled_from(PLACES))
    number = draw(st.integers(0, 40))
    return Candidate(
        url=f"http://{host}/{number}",
        host=host,
        group=group,
        key=b"%d" % number,
        copy=draw(st.sampled_from([0, 0, 0, 0, 1, 2, -7])),
        rank=draw(ranks),
        ready_at=draw(st.sampled_from([0.0, 0.0, 0.0, T0 + 3, T0 + 20, T0 + 60])),
        charged=draw(st.sampled_from([False, False, False, True])),
        priority=draw(st.integers(-2, 2)),
        seed=draw(st.sampled_from([False, False, True])),
        share=draw(st.sampled_from(["", "", "x", "y"])),
        request=draw(st.sampled_from([None, b"{}"])),
        discovered=T0,
    )


class Frontiers(RuleBasedStateMachine):
    """One job, as both stores see it."""

    seen = EXACT

    @initialize(
        limits=st.builds(
            Limits,
            pages=st.sampled_from([0, 0, 3, 12]),
            pages_per_host=st.sampled_from([0, 0, 1, 4]),
            pages_per_share=st.sampled_from([{}, {"x": 2}, {"x": 1, "y": 3}]),
            bytes=st.sampled_from([0, 0, 0, 500]),
            seconds=st.sampled_from([0, 0, 0, 30]),
            waiting=st.sampled_from([0, 0, 1, 6]),
            waiting_per_host=st.sampled_from([0, 0, 1, 3]),
        ),
        ties=st.sampled_from(["host", "age"]),
        gap=st.sampled_from([0.0, 1.0]),
        cap=st.sampled_from([0, 1, 2]),
        slow=st.sampled_from([0.0, 5.0]),
        soon=st.booleans(),
        little=st.booleans(),
    )
    def start(
        self, limits: Limits, ties: Any, gap: float, cap: int, slow: float, soon: bool, little: bool
    ) -> None:
        self.patches = pytest.MonkeyPatch()
        for module, name, value in LITTLE if little else []:
            self.patches.setattr(module, name, value)
        self.folder = Path(tempfile.mkdtemp())
        self.now = T0
        self.paces = Paces(gap, cap, {"b": (slow, cap), "": (0.0, 0)})
        if self.seen is not EXACT:  # clear() would reach the bounds in other steps
            limits = replace(limits, waiting=0, waiting_per_host=0)
        self.limits, self.order, self.soon = limits, Order(ties=ties), soon
        self.memory = MemoryFrontier(pace=self.paces, limits=self.limits, order=self.order)
        self.sqlite = self.open_sqlite()
        #: What is leased, and what is settled: as each store handed it out.
        self.leases: list[tuple[Lease, Lease]] = []
        self.over: list[tuple[Lease, Lease]] = []

    def open_sqlite(self) -> SQLiteFrontier:
        frontier = SQLiteFrontier(
            self.folder / "frontier.db",
            "job",
            pace=self.paces,
            now=self.now,
            resume=True,
            limits=self.limits,
            order=self.order,
            seen=self.seen,
        )
        return sooner(frontier) if self.soon else frontier

    @rule(found=st.lists(candidates(), min_size=1, max_size=6))
    def add(self, found: list[Candidate]) -> None:
        expected = self.memory.add([replace(c) for c in found], self.now)
        assert self.sqlite.add(found, self.now) == expected

    @rule(limit=st.integers(1, 5))
    def lease(self, limit: int) -> None:
        expected = self.memory.lease(limit, self.now, UNTIL)
        actual = self.sqlite.lease(limit, self.now, UNTIL)
        assert [view(lease) for lease in actual] == [view(lease) for lease in expected]
        self.leases += zip(expected, actual, strict=True)

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def reached(self, data: st.DataObject) -> None:
        for frontier, lease in self.pick(data):
            frontier.reached(lease, self.now)

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), fetched=st.booleans(), size=st.sampled_from([0, 40]))
    def left(self, data: st.DataObject, fetched: bool, size: int) -> None:
        for frontier, lease in self.pick(data):
            frontier.left(lease, self.now, fetched=fetched, size=size)

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        for frontier, lease in self.pick(data):
            frontier.renew([lease], UNTIL + 1)

    @precondition(lambda self: self.leases)
    @rule(
        data=st.data(),
        ending=st.sampled_from(Ending),
        fetched=st.booleans(),
        size=st.sampled_from([0, 0, 100]),
        reason=st.sampled_from(["", "robots"]),
        rank=ranks,
        wait=st.sampled_from([0.0, 0.0, 5.0]),
        found=st.lists(candidates(), max_size=2),
    )
    def settle(
        self,
        data: st.DataObject,
        ending: Ending,
        fetched: bool,
        size: int,
        reason: str,
        rank: float,
        wait: float,
        found: list[Candidate],
    ) -> None:
        answers = []
        pair = data.draw(st.sampled_from(self.leases))
        for frontier, lease in zip((self.memory, self.sqlite), pair, strict=True):
            retry = None
            if ending is Ending.RETRY:
                ready_at = self.now + wait if wait else 0.0
                retry = replace(lease.candidate, rank=rank, ready_at=ready_at, priority=5)
            outcome = Outcome(lease, ending, reason, fetched=fetched, size=size, retry=retry)
            answers.append(frontier.settle([outcome], [replace(c) for c in found], self.now))
        assert answers[0] == answers[1]
        assert answers[0][0] == [True]
        self.leases.remove(pair)
        self.over.append(pair)

    @precondition(lambda self: self.over)
    @rule(data=st.data())
    def settle_again(self, data: st.DataObject) -> None:
        before = self.sqlite.counts(self.now)
        for frontier, lease in zip(
            (self.memory, self.sqlite), data.draw(st.sampled_from(self.over)), strict=True
        ):
            frontier.left(lease, self.now, size=9)
            assert frontier.settle([Outcome(lease, Ending.DONE)], [], self.now) == ([False], [])
        assert self.sqlite.counts(self.now) == before

    @rule(group=st.sampled_from(GROUPS), delay=st.sampled_from([0.0, 2.0, 7.0]))
    def pace(self, group: str, delay: float) -> None:
        self.memory.pace(group, delay, self.now)
        self.sqlite.pace(group, delay, self.now)

    @rule(group=st.sampled_from(GROUPS), wait=st.sampled_from([1.0, 15.0]))
    def hold(self, group: str, wait: float) -> None:
        self.memory.hold(group, self.now + wait, self.now)
        self.sqlite.hold(group, self.now + wait, self.now)

    @rule(group=st.sampled_from(GROUPS), cap=st.integers(0, 3))
    def narrow(self, group: str, cap: int) -> None:
        self.paces.groups[group] = (self.paces(group)[0], cap)
        self.memory.touch(group, self.now)
        self.sqlite.touch(group, self.now)

    @rule(step=steps)
    def wait(self, step: float) -> None:
        self.now += step

    @rule(seconds=st.sampled_from([1.0, 10.0]))
    def beat(self, seconds: float) -> None:
        self.memory.beat(seconds, self.now)
        self.sqlite.beat(seconds, self.now)

    @rule()
    def count(self) -> None:
        self.memory.count("refused", {"offsite": 2, "depth": 1})
        self.sqlite.count("refused", {"offsite": 2, "depth": 1})

    @rule(name=st.sampled_from("ab"), value=st.binary(max_size=3))
    def note(self, name: str, value: bytes) -> None:
        for frontier in (self.memory, self.sqlite):
            frontier.note(name, value)

    @rule(sign=st.sampled_from([1, -1]))
    def rerank(self, sign: int) -> None:
        def rank(c: Candidate) -> float:
            return sign * float(c.key[-1] % 3) + c.attempts

        assert self.memory.rerank(rank) == self.sqlite.rerank(rank)

    @rule()
    def reopen(self) -> None:
        """A run ends and the next one goes on: every lease is as if it had been released,
        and what could not be read gets another chance."""
        self.sqlite.close("shutdown", finished=False, now=self.now)
        released = [Outcome(lease, Ending.RELEASED) for lease, _ in self.leases]
        self.memory.settle(released, [], self.now)
        waiting = self.memory._deferred
        waiting[:] = sorted((1.0 if at == ASIDE else at, number) for at, number in waiting)
        self.over += self.leases
        self.leases = []
        self.sqlite = self.open_sqlite()
        assert self.sqlite.start == "resumed"
        self.memory.clear(1, self.now)
        while self.sqlite.clear(2, self.now):
            pass

    @invariant()
    def agree(self) -> None:
        if not hasattr(self, "sqlite"):
            return
        assert self.sqlite.spent() == self.memory.spent()
        # By host, and those in no particular order.
        assert sorted(self.sqlite.shed) == sorted(self.memory.shed)
        self.sqlite.shed.clear()
        self.memory.shed.clear()
        assert due(self.sqlite, self.now) == due(self.memory, self.now)
        for name in "ab":
            assert self.sqlite.noted(name) == self.memory.noted(name)
        expected, actual = self.memory.counts(self.now), self.sqlite.counts(self.now)
        assert comparable(actual) == comparable(expected)
        assert actual.added == sum(
            (actual.waiting, actual.leased, actual.done, actual.failed, actual.dropped)
        )

    def pick(self, data: st.DataObject) -> Any:
        pair = data.draw(st.sampled_from(self.leases))
        return zip((self.memory, self.sqlite), pair, strict=True)

    def teardown(self) -> None:
        if hasattr(self, "sqlite"):
            self.patches.undo()
            abandon(self.sqlite)
            shutil.rmtree(self.folder)


class Pruned(Frontiers):
    """The SQLite store removes what is over, at any moment, or is killed."""

    @initialize()
    def small_rounds(self) -> None:
        pruning._ROUND = 2

    @rule()
    def prune(self) -> None:
        prune(self.sqlite, 2)

    @rule(times=st.integers(1, 4))
    def prune_a_little(self, times: int) -> None:
        for _ in range(times):
            self.sqlite.clear(2, self.now)

    def teardown(self) -> None:
        pruning._ROUND = 10_000
        super().teardown()


class PrunedCuckoo(Pruned):
    seen = choice("cuckoo", error=1e-9)


class PrunedRocks(Pruned):
    seen = choice("rocksdb")


def view(lease: Lease) -> tuple[Any, ...]:
    """What the two stores must agree on."""
    c = lease.candidate
    return (
        *(c.key, c.copy, c.attempts, c.charged, c.rank, c.priority, c.request, c.host, c.group),
        *(lease.fence, lease.gap, lease.turn, lease.prior, lease.until),
    )


def due(frontier: Frontier, now: float) -> float | None:
    at = frontier.next_due(now)
    return at if at is None or at > now else now


def comparable(counts: Counts) -> Counts:
    return replace(counts, reasons={k: v for k, v in counts.reasons.items() if v})


TestFrontiers = Frontiers.TestCase
TestFrontiers.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)

TestPrunedCuckoo = PrunedCuckoo.TestCase
TestPrunedRocks = PrunedRocks.TestCase
TestPrunedCuckoo.settings = TestPrunedRocks.settings = settings(
    TestFrontiers.settings, max_examples=20
)

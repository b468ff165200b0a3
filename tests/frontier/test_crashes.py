"""Several runs of several jobs in one file, some of which die: nothing is lost, nothing is
handed out twice at a time, and the file never contradicts itself."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from scrapy_focus.frontier import Ending, Lease, Limits, Order, Outcome
from scrapy_focus.frontier.sqlite import SQLiteFrontier

from .audit import contradictions
from .helpers import T0, Paces, abandon, candidate

HOSTS = ["a", "b", "c"]
OVER = [Ending.DONE, Ending.FAILED, Ending.DROPPED]
#: Seconds that a lease is held: short, so that some end before their run reports.
HELD = 30.0


class Runs(RuleBasedStateMachine):
    """What the runs know is kept apart from what the test knows of them."""

    @initialize(
        limits=st.sampled_from([Limits(), Limits(pages=5), Limits(pages_per_host=2)]),
        order=st.sampled_from([Order(), Order(ties="age"), Order(uniform=True)]),
    )
    def start(self, limits: Limits, order: Order) -> None:
        self.path = Path(tempfile.mkdtemp(), "frontier.db")
        self.now, self.limits, self.order = T0, limits, order
        self.runs: dict[SQLiteFrontier, list[Lease]] = {}
        self.jobs: dict[SQLiteFrontier, tuple[str, int]] = {}
        #: By job and generation: the keys stored for good, and those that are over.
        self.stored: dict[tuple[str, int], set[bytes]] = {}
        self.over: dict[tuple[str, int], set[bytes]] = {}

    @precondition(lambda self: len(self.runs) < 4)
    @rule(
        job=st.sampled_from(["one", "one", "two"]),
        resume=st.sampled_from([None, None, True, False]),
        gap=st.sampled_from([0.0, 2.0]),
        cap=st.sampled_from([0, 1, 2]),
    )
    def open(self, job: str, resume: bool | None, gap: float, cap: int) -> None:
        frontier = SQLiteFrontier(
            self.path,
            job,
            pace=Paces(gap, cap),
            now=self.now,
            resume=resume,
            limits=self.limits,
            order=self.order,
        )
        self.runs[frontier] = []
        self.jobs[frontier] = (job, frontier.generation)
        self.stored.setdefault(self.jobs[frontier], set())
        self.over.setdefault(self.jobs[frontier], set())

    def run(self, data: st.DataObject) -> SQLiteFrontier:
        return data.draw(st.sampled_from(list(self.runs)))

    @precondition(lambda self: self.runs)
    @rule(
        data=st.data(),
        host=st.sampled_from(HOSTS),
        numbers=st.lists(st.integers(0, 9), min_size=1, max_size=4),
        rank=st.sampled_from([0.0, -1.0]),
        volatile=st.sampled_from([False, False, True]),
        wait=st.sampled_from([0.0, 0.0, 3.0]),
    )
    def add(
        self,
        data: st.DataObject,
        host: str,
        numbers: list[int],
        rank: float,
        volatile: bool,
        wait: float,
    ) -> None:
        frontier = self.run(data)
        ready_at = self.now + wait if wait else 0.0
        found = [
            candidate(f"{host}/{n}", rank=rank, volatile=volatile, ready_at=ready_at)
            for n in numbers
        ]
        for c, new in zip(found, frontier.add(found, self.now), strict=True):
            if new:
                assert c.key not in self.stored[self.jobs[frontier]]
                if not volatile:
                    self.stored[self.jobs[frontier]].add(c.key)

    @precondition(lambda self: self.runs)
    @rule(data=st.data(), limit=st.integers(1, 4))
    def lease(self, data: st.DataObject, limit: int) -> None:
        frontier = self.run(data)
        mine = frontier.lease(limit, self.now, self.now + HELD)
        for lease in mine:
            assert lease.candidate.key not in self.over[self.jobs[frontier]]
            for other, theirs in self.runs.items():
                if self.jobs[other] == self.jobs[frontier]:
                    same = [held for held in theirs if held.id == lease.id]
                    assert all(held.until <= self.now for held in same)
        self.runs[frontier] += mine

    @precondition(lambda self: any(self.runs.values()))
    @rule(
        data=st.data(),
        ending=st.sampled_from([*Ending, Ending.DONE, Ending.DONE]),
        fetched=st.booleans(),
        first=st.sampled_from(["left", "reached", "renew", ""]),
    )
    def settle(self, data: st.DataObject, ending: Ending, fetched: bool, first: str) -> None:
        frontier, lease = data.draw(
            st.sampled_from([(run, held) for run, leases in self.runs.items() for held in leases])
        )
        if first == "left":
            frontier.left(lease, self.now, fetched=fetched)
        elif first == "reached":
            frontier.reached(lease, self.now)
        elif first == "renew":
            frontier.renew([lease], self.now + HELD)
            return
        retry = lease.candidate if ending is Ending.RETRY else None
        outcome = Outcome(lease, ending, "x", fetched=fetched, retry=retry)
        accepted = frontier.settle([outcome], [], self.now)[0][0]
        self.runs[frontier].remove(lease)
        if accepted and ending in OVER and not lease.candidate.volatile:
            self.over[self.jobs[frontier]].add(lease.candidate.key)

    @precondition(lambda self: self.runs)
    @rule(data=st.data(), host=st.sampled_from(HOSTS), wait=st.sampled_from([0.0, 5.0]))
    def slow_down(self, data: st.DataObject, host: str, wait: float) -> None:
        self.run(data).pace(host, wait, self.now)
        self.run(data).hold(host, self.now + wait, self.now)

    @rule(step=st.sampled_from([0.5, 3.0, 20.0, 8000.0]))
    def wait(self, step: float) -> None:
        self.now += step

    @precondition(lambda self: self.runs)
    @rule(data=st.data())
    def kill(self, data: st.DataObject) -> None:
        frontier = self.run(data)
        abandon(frontier)
        del self.runs[frontier]

    @precondition(lambda self: self.runs)
    @rule(data=st.data(), finished=st.booleans())
    def close(self, data: st.DataObject, finished: bool) -> None:
        frontier = self.run(data)
        frontier.close("x", finished=finished, now=self.now)
        del self.runs[frontier]

    @precondition(lambda self: self.runs)
    @rule(data=st.data())
    def keep_up(self, data: st.DataObject) -> None:
        self.run(data).others(self.now)
        self.run(data).clear(3, self.now)
        self.run(data).next_due(self.now)
        self.run(data).counts(self.now)

    @precondition(lambda self: self.runs)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        """A transaction that is undone."""
        frontier = self.run(data)
        try:
            with frontier.transaction():
                frontier.add([candidate("d/1"), candidate("a/0")], self.now)
                for lease in frontier.lease(2, self.now, self.now + HELD):
                    frontier.settle([Outcome(lease, Ending.FAILED)], [], self.now)
                raise ZeroDivisionError
        except ZeroDivisionError:
            pass

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "path") and self.path.exists():
            found = contradictions(self.path)
            assert not found, found

    def teardown(self) -> None:
        if not hasattr(self, "path"):
            return
        try:
            for frontier in self.runs:
                abandon(frontier)
            for job in ("one", "two"):
                self.finish(job)
        finally:
            shutil.rmtree(self.path.parent)

    def finish(self, job: str) -> None:
        """A run with no limit finds everything that was stored and is not over."""
        frontier = SQLiteFrontier(
            self.path, job, pace=Paces(), now=self.now, resume=True, limits=Limits()
        )
        place = (job, frontier.generation)
        found: set[Any] = set()
        while (due := frontier.next_due(self.now)) is not None:
            self.now = max(self.now, due)
            leases = frontier.lease(10, self.now, self.now + HELD)
            found |= {lease.candidate.key for lease in leases}
            frontier.settle([Outcome(lease, Ending.DONE) for lease in leases], [], self.now)
        assert found == self.stored.get(place, set()) - self.over.get(place, set())
        frontier.close("finished", finished=True, now=self.now)
        wrong = contradictions(self.path)
        assert not wrong, wrong


TestRuns = Runs.TestCase
TestRuns.settings = settings(
    max_examples=30,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)

"""How much may wait in a file that outlives its runs and has several at once."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from scrapy_focus.frontier import Ending, Limits

from .audit import contradictions
from .helpers import T0, SQLiteStore, candidate, drain, end, offer, take
from .suite_bounds import taken_out

INDEXES = "SELECT name FROM sqlite_master WHERE name GLOB 'urls_worst*' ORDER BY name"


class TestBounds(SQLiteStore):
    def test_who_has_none_does_not_pay(self) -> None:
        offer(self.open(), "a/1")
        assert self.rows(INDEXES) == []
        self.open(limits=Limits(waiting=5))
        assert self.rows(INDEXES) == [("urls_worst",)]
        self.open(limits=Limits(waiting_per_host=5))
        assert self.rows(INDEXES) == [("urls_worst",), ("urls_worst_of_queue",)]

    @pytest.mark.parametrize("limits", [Limits(waiting=20), Limits(waiting_per_host=10)])
    def test_a_bound_that_was_lowered(self, limits: Limits) -> None:
        """It is reached in steps, the worst first, whether or not anything is added."""
        frontier = self.open()
        for host in "ab":
            offer(frontier, *(f"{host}/{n}" for n in range(100)), rank=0.0)
            offer(frontier, *(f"{host}/best{n}" for n in range(10)), rank=-1.0)
        offer(frontier, "s/1", seed=True, rank=99.0)
        frontier.close("shutdown", finished=False, now=T0)
        again = self.open(limits=limits)
        steps, more = [], True
        while more:
            more = again.clear(30, T0)
            steps.append(len(taken_out(again)))
        assert sum(steps) == 200 + bool(limits.waiting)
        assert max(steps) == 30
        kept = {f"{host}/best{n}" for n in range(10) for host in "ab"}
        if limits.waiting:
            kept.remove("b/best9")
        assert set(drain(again)) == {*kept, "s/1"}
        again.close("finished", finished=True, now=T0)
        assert contradictions(self.path) == {}

    def test_while_much_is_too_much(self) -> None:
        """One call removes few more rows than it adds."""
        frontier = self.open()
        offer(frontier, *(f"a/{n}" for n in range(500)))
        frontier.close("shutdown", finished=False, now=T0)
        again = self.open(limits=Limits(waiting=10))
        offer(again, "b/1", "b/2")
        assert 3 <= len(taken_out(again)) < 50

    def test_two_runs(self) -> None:
        """What one adds counts for the other, which finds the worst of both."""
        one = self.open(limits=Limits(waiting=4))
        two = self.open(limits=Limits(waiting=4))
        assert two.start == "joined"
        for number in range(4):
            offer(one, f"a/{number}", rank=float(number))
            offer(two, f"a/{number}", f"b/{number}", rank=float(number))
        assert one.counts(T0).waiting == 4
        assert drain(one) == ["a/0", "b/0", "a/1", "b/1"]
        assert one.counts(T0).dropped == 6  # two of them twice: the other run found them again

    def test_two_jobs(self) -> None:
        """Each has its own bound."""
        other = self.open("other")
        offer(other, *(f"a/{n}" for n in range(9)), rank=9.0)
        frontier = self.open(limits=Limits(waiting=2, waiting_per_host=2))
        offer(frontier, *(f"a/{n}" for n in range(9)))
        assert other.counts(T0).waiting == 9
        assert frontier.counts(T0).waiting == 2

    def test_what_could_not_be_stored(self) -> None:
        """A transaction that fails has shed nothing."""
        frontier = self.open(limits=Limits(waiting=1))
        offer(frontier, "a/1")

        def fail() -> None:
            with frontier.transaction():
                offer(frontier, "a/2", rank=-1.0)
                assert frontier.shed == [b"a/1"]
                raise RuntimeError

        with pytest.raises(RuntimeError):
            fail()
        assert frontier.shed == []
        assert drain(frontier) == ["a/1"]

    def test_ranked_anew(self) -> None:
        frontier = self.open(limits=Limits(waiting=3))
        offer(frontier, *(f"a/{number}" for number in range(3)))
        frontier.rerank(lambda c: -float(c.url[-1]))
        offer(frontier, "a/9", rank=-9.0)
        assert taken_out(frontier) == [b"a/0"]

    def test_after_damage(self) -> None:
        """What is counted anew agrees with what was shed."""
        frontier = self.open(limits=Limits(waiting=2))
        offer(frontier, *(f"a/{number}" for number in range(6)))
        end(frontier, take(frontier), Ending.FAILED, reason="x")
        frontier.close("shutdown", finished=False, now=T0)
        before = self.rows("SELECT added, failed, dropped FROM jobs")
        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.execute("UPDATE queues SET waiting = 'many'")
        again = self.open(limits=Limits(waiting=2))
        assert again.mended
        assert self.rows("SELECT added, failed, dropped FROM jobs") == before == [(6, 1, 4)]

    def test_many_candidates(self) -> None:
        """Of many that come in no order the best stay, and the file stays as it is."""
        frontier = self.open(limits=Limits(waiting=50))
        size = 0
        for turn in range(100):
            found = [
                candidate(f"{n % 7}/{n}", rank=float(n * 7919 % 10_007))
                for n in range(turn * 50, turn * 50 + 50)
            ]
            frontier.add(found, T0)
            if turn == 10:
                size = self.rows("PRAGMA page_count")[0][0]
        assert self.rows("PRAGMA page_count")[0][0] <= size + 4
        best = sorted(range(5000), key=lambda n: n * 7919 % 10_007)[:50]
        assert sorted(drain(frontier)) == sorted(f"{n % 7}/{n}" for n in best)
        frontier.close("finished", finished=True, now=T0)
        assert contradictions(self.path) == {}

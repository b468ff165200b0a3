"""A SQLite frontier over the years: other settings, old generations, forgotten hosts."""

from __future__ import annotations

from itertools import pairwise

import pytest

from scrapy_focus.frontier import ASIDE, Counts, Ending, Limits, Order
from scrapy_focus.frontier.runs import clock_of
from scrapy_focus.frontier.sqlite import SQLiteFrontier

from .helpers import (
    LONG,
    T0,
    Paces,
    SQLiteStore,
    abandon,
    drain,
    end,
    offer,
    take,
    take_urls,
)


class TestChanges(SQLiteStore):
    """A run whose settings are not those of the run before."""

    def test_a_raised_budget_goes_on(self) -> None:
        frontier = self.open(limits=Limits(pages=2))
        offer(frontier, *(f"a/{number}" for number in range(5)))
        drain(frontier)
        assert frontier.spent() == "max_pages"
        frontier.close("focus_max_pages", finished=False, now=T0)
        same = self.open(limits=Limits(pages=2))
        assert same.start == "resumed"
        assert same.spent() == "max_pages"
        assert take(same) == []
        same.close("focus_max_pages", finished=False, now=T0)
        more = self.open(limits=Limits(pages=4))
        assert drain(more) == ["a/2", "a/3"]
        more.close("focus_max_pages", finished=False, now=T0)
        assert drain(self.open()) == ["a/4"]

    @pytest.mark.parametrize("after", [4, 0])
    def test_a_raised_share_revives_hosts(self, after: int) -> None:
        frontier = self.open(limits=Limits(pages_per_host=2))
        for host in "ab":
            offer(frontier, *(f"{host}/{number}" for number in range(6)))
        offer(frontier, "a/slot", group="slot")
        assert len(drain(frontier)) == 4
        frontier.close("focus_max_pages_per_host", finished=False, now=T0)
        more = self.open(limits=Limits(pages_per_host=after))
        assert more.counts(T0).hosts == {"ready": 2}
        assert len(drain(more)) == (4 if after else 9)

    def test_a_lowered_share_retires_hosts(self) -> None:
        frontier = self.open()
        offer(frontier, *(f"a/{number}" for number in range(6)), "b/1", "b/2")
        end(frontier, take(frontier, 3))
        frontier.close("shutdown", finished=False, now=T0)
        again = self.open(limits=Limits(pages_per_host=2))
        assert again.counts(T0).hosts == {"retired": 1, "ready": 1}
        assert drain(again) == ["b/2"]

    def test_the_policy_before(self) -> None:
        first = self.open(policy="priority")
        assert first.policy_before == "priority"
        offer(first, "a/1", "a/2", rank=0.0)
        first.close("shutdown", finished=False, now=T0)
        second = self.open(policy="depth")
        assert second.policy_before == "priority"
        assert second.rerank(lambda c: -float(c.url[-1])) == 2
        second.close("shutdown", finished=False, now=T0)
        third = self.open(policy="depth")
        assert third.policy_before == "depth"
        assert take_urls(third) == ["a/2", "a/1"]

    def test_starting_over_knows_no_policy_before(self) -> None:
        first = self.open(policy="priority")
        first.close("finished", finished=True, now=T0)
        assert self.open(policy="depth").policy_before == "depth"

    def test_ties_that_change(self) -> None:
        first = self.open(order=Order(ties="host"))
        offer(first, "a/1", "a/2", "b/1", "a/3", "b/2")
        first.close("shutdown", finished=False, now=T0)
        aged = self.open(order=Order(ties="age"))
        assert take_urls(aged, 2) == ["a/1", "a/2"]
        offer(aged, "c/1")
        aged.close("shutdown", finished=False, now=T0)
        hosts = self.open(order=Order(ties="host"))
        # What was leased went back; b and c have never been touched.
        assert [take_urls(hosts, 1, T0 + n)[0] for n in range(1, 5)] == ["b/1", "c/1", "a/1", "b/2"]

    def test_what_could_not_be_read_gets_another_chance(self) -> None:
        first = self.open()
        offer(first, "a/1", "a/2")
        end(first, take(first), Ending.ASIDE, fetched=False)
        first.close("shutdown", finished=True, now=T0)
        second = self.open()
        assert second.start == "resumed"
        assert second.next_due(T0) is not None
        assert take_urls(second) == ["a/1", "a/2"]
        assert self.rows(f"SELECT count(*) FROM urls WHERE ready_at = {ASIDE}") == [(0,)]


class TestClock(SQLiteStore):
    """A clock that was wrong and has been put right: nobody waits for its future."""

    def test_that_went_ahead(self) -> None:
        day = 86_400.0
        first = self.open(now=T0 + day, paces=Paces(10.0))
        offer(first, "a/1", "b/1", "b/2", now=T0 + day)
        assert take_urls(first, 2, T0 + day) == ["a/1", "b/1"]
        first.hold("b", T0 + day + 70, T0 + day + 1)
        first.close("shutdown", finished=False, now=T0 + day)
        again = self.open(now=T0)
        assert again.next_due(T0) == T0 + 10
        assert take_urls(again, now=T0 + 10) == ["a/1"]
        assert again.next_due(T0 + 10) == T0 + 70

    def test_of_a_host_whose_robots_txt_alone_was_fetched(self) -> None:
        """Nothing was handed out of it, so nothing says when it was touched."""
        first = self.open(now=T0 + 86_400)
        offer(first, "a/1", now=T0 + 86_400)
        first.pace("a", 20.0, T0 + 86_400)
        first.close("shutdown", finished=False, now=T0 + 86_400)
        again = self.open(now=T0)
        assert again.next_due(T0) == T0 + 20
        assert take(again, now=T0 + 19) == []
        assert take_urls(again, now=T0 + 20) == ["a/1"]

    def test_that_runs_share(self) -> None:
        """Who comes takes over the clock of who is there, and of nobody who has died."""
        assert clock_of(self.path) is None
        first, second = self.open(ahead=5.5), self.open("other")
        assert clock_of(self.path) == 5.5
        abandon(first)
        assert clock_of(self.path) is None
        second.close("shutdown", finished=False, now=T0)

    @pytest.mark.parametrize("killed", [True, False], ids=["killed", "closed"])
    @pytest.mark.parametrize("step", [3600.0, -3600.0, 86_400.0, -86_400.0])
    def test_that_was_set_between_two_runs(self, step: float, killed: bool) -> None:
        """What is left of a host's pace and of a hold is the same."""
        first = self.open(paces=Paces(20.0), ahead=100.0)
        offer(first, "a/1", "a/2", "b/1", "b/2", "c/1")
        end(first, take(first, 2))
        first.hold("b", T0 + 70, T0)
        if killed:
            abandon(first)
        else:
            first.close("shutdown", finished=False, now=T0 + 4)
        now = T0 + 5 + step
        again = self.open(now=now, paces=Paces(20.0), ahead=100.0 + step)
        assert take_urls(again, now=now) == ["c/1"]
        assert again.next_due(now) == now + 15
        assert take_urls(again, now=now + 15) == ["a/2"]
        assert again.next_due(now + 15) == now + 65
        assert take_urls(again, now=now + 65) == ["b/2"]
        again.close("shutdown", finished=False, now=now + 65)
        third = self.open(now=now + 66, ahead=100.0 + step)
        assert sorted(take_urls(third, now=now + 66)) == ["a/2", "c/1"]
        assert third.next_due(now + 66) == now + 85

    def test_that_ran_on_while_nobody_was_there(self) -> None:
        first = self.open(paces=Paces(20.0), ahead=100.0)
        offer(first, "a/1", "a/2")
        end(first, take(first))
        first.close("shutdown", finished=False, now=T0)
        # To two readings of two clocks a moment has passed between them.
        assert self.open(now=T0 + 15, ahead=100.001).next_due(T0 + 15) == T0 + 20

    def test_of_another_start_of_the_machine(self) -> None:
        """How far it was ahead says nothing then."""
        first = self.open(paces=Paces(20.0), ahead=100.0)
        offer(first, "a/1", "a/2")
        end(first, take(first))
        first.close("shutdown", finished=False, now=T0)
        first = self.open(now=T0 + 10, ahead=100.0)
        first._db.execute("UPDATE runs SET boot = 'another'")
        first.close("shutdown", finished=False, now=T0 + 10)
        assert self.open(now=T0 + 15, ahead=5000.0).next_due(T0 + 15) == T0 + 20

    def test_that_somebody_still_goes_by(self) -> None:
        """Two that begin as the clock is set do not see each other yet."""
        first = self.open(paces=Paces(20.0), ahead=100.0)
        offer(first, "a/1", "a/2")
        end(first, take(first))
        self.open("other", now=T0 + 30, ahead=130.0)
        assert first.next_due(T0) == T0 + 20
        assert self.rows("SELECT next_at FROM hosts") == [(T0 + 20,)]

    def test_that_held_a_host_and_touched_it_afterwards(self) -> None:
        """A hold that was over is over."""
        then = T0 + 86_400
        first = self.open(now=then)
        offer(first, "a/1", "a/2", now=then)
        first.hold("a", then + 60, then)
        end(first, take(first, now=then + 61), now=then + 61)
        first.close("shutdown", finished=False, now=then + 61)
        assert take_urls(self.open(now=T0)) == ["a/2"]

    def test_of_two_processes_that_differ_a_little(self) -> None:
        first = self.open(now=T0 + 2, paces=Paces(10.0))
        offer(first, "a/1", "a/2", now=T0 + 2)
        take(first, now=T0 + 2)
        assert self.open(now=T0).next_due(T0) == T0 + 12


class TestClearing(SQLiteStore):
    """Old generations go in steps."""

    def old(self, number: int) -> SQLiteFrontier:
        first = self.open()
        offer(first, *(f"{n % 7}/{n}" for n in range(number)))
        first.count("refused", {"depth": 1})
        first.note("a", b"old")
        first.close("shutdown", finished=False, now=T0)
        return self.open(resume=False, now=T0 + 1)

    def count(self) -> int:
        number = self.rows("SELECT count(*) FROM urls")[0][0]
        assert isinstance(number, int)
        return number

    def test_in_bounded_steps(self) -> None:
        frontier = self.old(100)
        assert frontier.noted("a") is None, "it is the other generation's"
        frontier.note("a", b"new")
        offer(frontier, "x/1")
        left = [101]
        while frontier.clear(30, T0 + 1):
            left.append(self.count())
        steps = [before - after for before, after in pairwise(left)]
        assert max(steps) == 30
        assert left[-1] == 1
        assert take_urls(frontier) == ["x/1"]
        assert self.rows("SELECT DISTINCT job FROM queues") == [(2,)]
        assert self.rows("SELECT count(*) FROM reasons") == [(0,)]
        assert self.rows("SELECT job, name, value FROM notes") == [(2, "a", b"new")]
        assert self.rows("SELECT id, cleared FROM jobs ORDER BY id") == [(1, 1), (2, 0)]

    def test_again_after_a_stop(self) -> None:
        frontier = self.old(100)
        assert frontier.clear(30, T0)
        frontier.close("shutdown", finished=False, now=T0)
        again = self.open()
        while again.clear(30, T0):
            pass
        assert self.count() == 0

    def test_what_another_run_is_at_stays(self) -> None:
        """A generation is over only when its last run has ended."""
        first = self.open("a")
        offer(first, "a/1")
        other = self.open("b")
        while other.clear(10, T0):
            pass
        assert take_urls(first) == ["a/1"]

    def test_hosts_are_forgotten_an_hour_after_they_may_be_touched(self) -> None:
        first = self.open(paces=Paces(groups={"late": (7200.0, 0)}))
        offer(first, "soon/1", "late/1", "kept/1")
        drain(first)
        first.hold("held", T0 + 7200, T0)
        first.close("finished", finished=True, now=T0)
        second = self.open(now=T0 + 3601)
        offer(second, "kept/1")
        while second.clear(2, T0 + 3601):
            pass
        names = [name for (name,) in self.rows("SELECT name FROM hosts ORDER BY name")]
        assert names == ["held", "kept", "late"]
        second.close("shutdown", finished=False, now=T0)
        third = self.open(now=T0 + 20000)
        while third.clear(2, T0 + 20000):
            pass
        assert self.rows("SELECT name FROM hosts") == [("kept",)]

    def test_a_host_that_another_run_has_forgotten(self) -> None:
        first, second = self.open("one"), self.open("two")
        first.pace("a", 1.0, T0)
        second.pace("b", 1.0, T0)
        while second.clear(10, T0 + LONG * 2):
            pass
        assert self.rows("SELECT count(*) FROM hosts") == [(0,)]
        first.pace("a", 5.0, T0 + LONG * 2)
        offer(first, "a/1", now=T0 + LONG * 2)
        assert first.next_due(T0 + LONG * 2) == T0 + LONG * 2 + 5

    def test_counts_of_an_empty_job(self) -> None:
        frontier = self.old(5)
        assert frontier.counts(T0) == Counts()

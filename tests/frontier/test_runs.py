"""Jobs and runs in a SQLite frontier: resuming, joining, starting over, dying."""

from __future__ import annotations

import pytest

from scrapy_focus.exceptions import FrontierError
from scrapy_focus.frontier import Limits, Order
from scrapy_focus.frontier.sqlite import SQLiteFrontier

from .children import held, kill
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
    urls,
)

LEASE_THREE = """
f = open_(gap=50.0, cap=1)
f.add([candidate(f"{host}/{n}") for host in "abc" for n in range(2)], T0)
assert len(f.lease(3, T0, T0 + 3600)) == 3
"""


class TestStarts(SQLiteStore):
    """How a run finds its job."""

    def finish(self) -> None:
        first = self.open()
        offer(first, "a/1")
        drain(first)
        first.close("finished", finished=True, now=T0)

    def interrupt(self) -> None:
        first = self.open()
        offer(first, "a/1", "a/2")
        end(first, take(first))
        first.close("shutdown", finished=False, now=T0)

    def test_new(self) -> None:
        for resume in (None, True, False):
            frontier = self.open(f"job-{resume}", resume=resume)
            assert (frontier.start, frontier.generation) == ("new", 1)

    @pytest.mark.parametrize(
        ("resume", "start"), [(None, "resumed"), (True, "resumed"), (False, "restarted")]
    )
    def test_an_unfinished_job(self, resume: bool | None, start: str) -> None:
        self.interrupt()
        frontier = self.open(resume=resume)
        assert frontier.start == start
        assert frontier.generation == (2 if start == "restarted" else 1)
        assert frontier.seen(b"a/1") == (start == "resumed")
        assert take_urls(frontier) == (["a/2"] if start == "resumed" else [])

    @pytest.mark.parametrize(
        ("resume", "start"), [(None, "restarted"), (True, "resumed"), (False, "restarted")]
    )
    def test_a_finished_job(self, resume: bool | None, start: str) -> None:
        self.finish()
        frontier = self.open(resume=resume)
        assert frontier.start == start
        assert frontier.seen(b"a/1") == (start == "resumed")
        assert frontier.counts(T0).added == (1 if start == "resumed" else 0)

    @pytest.mark.parametrize("resume", [None, True, False])
    def test_a_job_that_a_run_is_at(self, resume: bool | None) -> None:
        first = self.open()
        offer(first, "a/1", "a/2")
        second = self.open(resume=resume)
        assert (second.start, second.generation) == ("joined", 1)
        assert second.seen(b"a/1")
        assert take_urls(second, 1) == ["a/1"]
        assert take_urls(first) == ["a/2"]

    def test_a_job_that_went_on_after_it_had_finished_is_unfinished(self) -> None:
        self.finish()
        again = self.open(resume=True)
        offer(again, "a/2")
        again.close("shutdown", finished=False, now=T0)
        assert self.open().start == "resumed"

    def test_generations(self) -> None:
        for generation in range(1, 5):
            frontier = self.open(resume=False)
            assert frontier.generation == generation
            assert offer(frontier, "a/1") == [True]
            assert drain(frontier) == ["a/1"]
            frontier.close("finished", finished=True, now=T0)

    def test_starting_over_forgets_no_politeness(self) -> None:
        first = self.open(paces=Paces(30.0))
        offer(first, "a/1")
        drain(first)
        first.pace("b", 60.0, T0)
        first.hold("c", T0 + 90, T0)
        first.close("finished", finished=True, now=T0)
        second = self.open()
        offer(second, "a/1", "b/1", "c/1")
        assert take(second) == []
        assert second.next_due(T0) == T0 + 30
        leases = take(second, 9, T0 + 90)
        assert {lease.candidate.host: lease.gap for lease in leases} == {"a": 0, "b": 60, "c": 0}

    def test_jobs_do_not_mix(self) -> None:
        one, two = self.open("one"), self.open("two")
        assert offer(one, "a/1", "a/2") == [True, True]
        assert not two.seen(b"a/1")
        assert offer(two, "a/1") == [True]
        assert take_urls(two) == ["a/1"]
        assert two.counts(T0).added == 1
        assert drain(one) == ["a/1", "a/2"]
        assert (one.counts(T0).done, two.counts(T0).done) == (2, 0)

    def test_jobs_share_their_hosts(self) -> None:
        one, two = self.open("one", paces=Paces(20.0)), self.open("two", paces=Paces(5.0))
        offer(one, "a/1")
        offer(two, "a/2", "a/3")
        take(one)
        assert take(two) == []
        assert two.next_due(T0) == T0 + 20
        take(two, now=T0 + 20)
        assert two.next_due(T0 + 20) == T0 + 25

    def test_jobs_share_the_places_at_a_host(self) -> None:
        one, two = self.open("one", paces=Paces(cap=2)), self.open("two", paces=Paces(cap=2))
        offer(one, "a/1", "a/2", "a/3")
        offer(two, "a/4", "a/5")
        first = take(one)[0]
        assert len(take(two, 9)) == 1
        assert take(one) == []
        assert two.next_due(T0) is None
        one.left(first, T0)
        assert two.next_due(T0) is not None
        assert len(take(two, 9)) == 1

    def test_a_job_with_a_narrow_limit_does_not_stop_one_with_a_wide_one(self) -> None:
        wide = self.open("wide", paces=Paces(cap=4))
        narrow = self.open("narrow", paces=Paces(cap=1))
        offer(wide, *(f"a/{number}" for number in range(9)))
        offer(narrow, "a/1")
        leases = take(wide, 2)
        assert take(narrow) == []
        assert narrow.next_due(T0) is None
        assert len(take(wide, 9)) == 2
        for lease in leases:
            wide.left(lease, T0)
        assert take(narrow) == []
        assert len(take(wide, 9)) == 2

    def test_a_job_that_waits_for_another_one_s_request_is_not_over(self) -> None:
        """Its host is busy, with nothing of its own in flight: somebody else has it."""
        one, two = self.open("one", paces=Paces(cap=1)), self.open("two", paces=Paces(cap=1))
        offer(one, "a/1")
        offer(two, "a/2")
        lease = take(one)[0]
        assert two.next_due(T0) is None
        assert two.others(T0)
        assert not one.others(T0)
        one.left(lease, T0)
        assert not two.others(T0)
        assert take_urls(two) == ["a/2"]

    def test_a_job_opens_with_what_happened_to_its_hosts_meanwhile(self) -> None:
        one = self.open("one")
        offer(one, "a/1", "b/1", "c/1")
        one.close("shutdown", finished=False, now=T0)
        two = self.open("two", paces=Paces(30.0, 1))
        offer(two, "a/9")
        assert take_urls(two) == ["a/9"]
        two.hold("b", T0 + 60, T0)
        one = self.open("one", paces=Paces(0.0, 1))
        assert take_urls(one) == ["c/1"]
        two.close("shutdown", finished=False, now=T0)
        assert one.next_due(T0) == T0 + 30
        assert take_urls(one, now=T0 + 60) == ["b/1", "a/1"]


class TestEnds(SQLiteStore):
    """How a run ends its job."""

    def test_not_finished_while_something_waits(self) -> None:
        frontier = self.open()
        offer(frontier, "a/1", ready_at=T0 + LONG)
        frontier.close("finished", finished=True, now=T0)
        assert self.open().start == "resumed"

    def test_not_finished_while_something_is_leased(self) -> None:
        frontier = self.open()
        offer(frontier, "a/1")
        take(frontier)
        frontier.close("finished", finished=True, now=T0)
        again = self.open()
        assert again.start == "resumed"
        assert again.counts(T0).waiting == 1

    def test_not_finished_while_another_run_is_at_it(self) -> None:
        first, second = self.open(), self.open()
        first.close("finished", finished=True, now=T0)
        third = self.open()
        assert third.start == "joined"
        for frontier in (second, third):
            frontier.close("finished", finished=True, now=T0)
        assert self.open().start == "restarted"

    def test_finished_though_another_run_was_killed(self) -> None:
        first, second = self.open(), self.open()
        offer(first, "a/1")
        drain(second)
        abandon(first)
        second.close("finished", finished=True, now=T0)
        assert self.open().start == "restarted"

    def test_not_finished_if_the_killed_run_had_leases(self) -> None:
        first, second = self.open(), self.open()
        offer(first, "a/1")
        take(first)
        abandon(first)
        second.close("finished", finished=True, now=T0)
        again = self.open()
        assert again.start == "resumed"
        assert take_urls(again) == ["a/1"]

    def test_leases_go_back(self) -> None:
        frontier = self.open(paces=Paces(50.0, 1))
        offer(frontier, "a/1", "b/1", "c/1")
        take(frontier, 2)
        frontier.close("shutdown", finished=False, now=T0)
        again = self.open(paces=Paces(50.0, 1))
        counts = again.counts(T0)
        assert (counts.waiting, counts.leased, counts.pages) == (3, 0, 2)
        assert take_urls(again) == ["c/1"]
        assert take_urls(again, now=T0 + 50) == ["a/1", "b/1"]

    def test_what_went_back_is_paid(self) -> None:
        """A budget is exact over a stop: what was charged is handed out again, no more."""
        frontier = self.open(limits=Limits(pages=3))
        offer(frontier, *(f"a/{number}" for number in range(9)))
        take(frontier, 3)
        frontier.close("shutdown", finished=False, now=T0)
        again = self.open(limits=Limits(pages=3))
        assert drain(again) == ["a/0", "a/1", "a/2"]

    def test_nothing_is_left_behind(self) -> None:
        frontier = self.open()
        offer(frontier, "a/1")
        frontier.close("shutdown", finished=False, now=T0)
        assert [path.name for path in self.path.parent.iterdir()] == [self.path.name]
        assert self.rows("SELECT ended, reason FROM runs") == [(T0, "shutdown")]

    def test_a_report_after_the_end(self) -> None:
        first, second = self.open(), self.open()
        offer(first, "a/1")
        take(first)
        first.close("shutdown", finished=False, now=T0)
        with pytest.raises(Exception, match=self.path.name):
            offer(first, "a/2")
        assert second.counts(T0).added == 1


class TestKilled(SQLiteStore):
    """What a process had leased when it was killed comes back at once."""

    def test_when_the_next_run_opens(self) -> None:
        with held(LEASE_THREE, self.path, T0) as child:
            assert self.rows("SELECT sum(in_flight) FROM hosts") == [(3,)]
            kill(child)
        frontier = self.open(paces=Paces(50.0, 1))
        assert frontier.start == "resumed"
        counts = frontier.counts(T0)
        assert (counts.waiting, counts.leased, counts.added, counts.pages) == (6, 0, 6, 3)
        assert counts.hosts == {"cooling": 3}
        assert self.rows("SELECT DISTINCT in_flight, next_at FROM hosts") == [(0, T0 + 50)]
        assert self.rows("SELECT reason FROM runs WHERE ended IS NOT NULL") == [("killed",)]
        assert take(frontier, now=T0 + 49) == []
        leases = take(frontier, 9, T0 + 50)
        assert urls(leases) == ["a/0", "b/0", "c/0"]
        assert [lease.fence for lease in leases] == [2, 2, 2]

    def test_while_another_run_is_at_the_job(self) -> None:
        with held(LEASE_THREE, self.path, T0) as child:
            frontier = self.open(paces=Paces(50.0, 1))
            assert frontier.start == "joined"
            assert take(frontier, 9) == []
            assert frontier.next_due(T0) is not None
            assert frontier.others(T0)
            assert frontier.counts(T0).leased == 3
            kill(child)
            assert not frontier.others(T0 + 1)
        assert frontier.counts(T0).leased == 0
        assert frontier.next_due(T0 + 1) == T0 + 50
        assert len(take(frontier, 9, T0 + 50)) == 3

    def test_while_another_job_waits_for_its_hosts(self) -> None:
        with held(LEASE_THREE, self.path, T0) as child:
            frontier = self.open("other", paces=Paces(0.0, 1))
            offer(frontier, "a/7")
            assert frontier.next_due(T0 + 99) is None
            assert frontier.others(T0)
            kill(child)
            assert not frontier.others(T0)
        assert take_urls(frontier, now=T0 + 50) == ["a/7"]

    def test_its_lock_file_goes(self) -> None:
        with held(LEASE_THREE, self.path, T0) as child:
            kill(child)
        assert len(list(self.path.parent.glob("*.run-*"))) == 1
        self.open().close("shutdown", finished=False, now=T0)
        assert list(self.path.parent.glob("*.run-*")) == []

    def test_a_live_run_whose_lock_file_was_removed_stops(self) -> None:
        """By a cleaner of old files, say. It counts as dead, and must not go on writing what
        nobody would recover."""
        first = self.open()
        offer(first, "a/1", "a/2", "a/3")
        lease = take(first)[0]
        for path in self.path.parent.glob("*.run-*"):
            path.unlink()
        second = self.open()
        assert (second.start, second.counts(T0).leased) == ("resumed", 0)
        with pytest.raises(FrontierError, match="taken this run's URLs"):
            take(first)
        with pytest.raises(FrontierError, match="taken this run's URLs"):
            end(first, lease)
        with pytest.raises(FrontierError, match="taken this run's URLs"):
            first.close("shutdown", finished=False, now=T0)
        assert take_urls(second) == ["a/1", "a/2", "a/3"]

    def test_a_live_run_keeps_what_it_has(self) -> None:
        with held(LEASE_THREE, self.path, T0):
            for _ in range(2):
                frontier = self.open("other")
                assert not frontier.others(T0)
                frontier.close("shutdown", finished=False, now=T0)
            assert self.open().counts(T0).leased == 3

    def test_in_the_middle_of_a_transaction(self) -> None:
        code = """
f = open_()
f.add([candidate("a/1"), candidate("a/2")], T0)
lease = f.lease(1, T0, T0 + 3600)[0]
t = f.transaction()
t.__enter__()
f.settle([Outcome(lease, Ending.DONE)], [candidate(f"b/{n}") for n in range(5000)], T0)
"""
        with held(code, self.path, T0) as child:
            kill(child)
        frontier = self.open()
        counts = frontier.counts(T0)
        assert (counts.added, counts.waiting, counts.done) == (2, 2, 0)
        assert not frontier.seen(b"b/0")
        assert self.rows("PRAGMA integrity_check") == [("ok",)]

    def test_volatile_rows_are_gone(self) -> None:
        code = """
f = open_(limits=Limits(pages_per_host=9))
f.add([candidate("a/1"), candidate("b/9")], T0)
f.add([candidate(url, volatile=True) for url in ("a/2", "a/3", "a/4", "b/2")], T0)
leases = f.lease(9, T0, T0 + 3600)
done = [l for l in leases if l.candidate.url in ("a/2", "b/9")]
f.settle([Outcome(l, Ending.DONE) for l in done], [], T0)
"""
        with held(code, self.path, T0) as child:
            kill(child)
        frontier = self.open()
        assert not any(map(frontier.seen, (b"a/2", b"a/3", b"a/4", b"b/2")))
        counts = frontier.counts(T0)
        assert (counts.waiting, counts.leased, counts.done, counts.added) == (1, 0, 2, 3)
        assert counts.hosts == {"ready": 1}
        assert counts.pages == 6
        assert self.rows("SELECT sum(in_flight) FROM hosts") == [(0,)]
        assert offer(frontier, "a/2") == [True]
        assert take_urls(frontier) == ["a/1", "a/2"]

    def test_what_drifted_is_put_right(self) -> None:
        """A host must not stay busy for ever, whatever has happened to its count."""
        frontier = self.open()
        offer(frontier, "a/1", "b/1")
        take(frontier)
        frontier._db.execute("UPDATE hosts SET in_flight = in_flight + 5")
        abandon(frontier)
        again = self.open(paces=Paces(cap=1))
        assert self.rows("SELECT DISTINCT in_flight FROM hosts") == [(0,)]
        assert len(take(again, 9)) == 2


class TestLateRequests(SQLiteStore):
    """A process is held up between its lease and its request: another one may touch the host
    meanwhile."""

    def test_the_next_turn_is_taken(self) -> None:
        first, second = (self.open(name, paces=Paces(2.0)) for name in ("one", "two"))
        offer(first, "a/1")
        offer(second, "a/1", "a/2")
        late = take(first)[0]
        assert second.reached(take(second, now=T0 + 2)[0], T0 + 2) == T0 + 2
        assert first.reached(late, T0 + 3) == T0 + 4
        assert second.next_due(T0 + 3) == T0 + 6
        second.touch("b", T0 + 3)
        assert first.reached(late, T0 + 3) == T0 + 3, "it has its turn"
        assert second.next_due(T0 + 3) == T0 + 6

    def test_nobody_was_there(self) -> None:
        first = self.open("one", paces=Paces(2.0))
        self.open("two")
        offer(first, "a/1")
        assert first.reached(take(first)[0], T0 + 3) == T0 + 3
        assert self.rows("SELECT next_at FROM hosts") == [(T0 + 5,)]

    def test_it_is_in_time(self) -> None:
        first, second = (self.open(name, paces=Paces(2.0)) for name in ("one", "two"))
        offer(first, "a/1")
        lease = take(first)[0]
        offer(second, "a/1")
        assert first.reached(lease, T0 + 1) == T0 + 1
        assert second.next_due(T0 + 1) == T0 + 3

    def test_one_process_keeps_its_own_requests_apart(self) -> None:
        """It takes no second turn for one that its own middlewares have held up."""
        only = self.open(paces=Paces(2.0))
        offer(only, "a/1", "a/2")
        late = take(only)[0]
        take(only, now=T0 + 2)
        assert only.reached(late, T0 + 3) == T0 + 3
        assert self.rows("SELECT next_at FROM hosts") == [(T0 + 5,)]


class TestEndedLeases(SQLiteStore):
    """A lease of a run that lives, but has not reported in time."""

    def both(self, paces: Paces | None = None) -> tuple[SQLiteFrontier, SQLiteFrontier]:
        return self.open(paces=paces), self.open(paces=paces)

    def test_it_comes_back_and_the_late_report_is_refused(self) -> None:
        first, second = self.both(Paces(cap=1))
        offer(first, "a/1", "a/2")
        late = first.lease(1, T0, T0 + 10)[0]
        assert second.next_due(T0) == T0 + 10
        assert take(second, now=T0 + 9) == []
        lease = take(second, now=T0 + 10)[0]
        assert (lease.id, lease.fence) == (late.id, 2)
        before = second.counts(T0)
        first.left(late, T0 + 11)
        assert end(first, late, size=9) == [False]
        assert second.counts(T0) == before
        assert take(second, now=T0 + 12) == []
        assert end(second, lease) == [True]
        assert second.counts(T0).done == 1

    def test_a_late_report_before_anyone_took_it(self) -> None:
        """The lease was taken back, though nobody has the row yet."""
        first, second = self.both(Paces(cap=1))
        offer(first, "a/1", "b/1", rank=0.0)
        late = first.lease(1, T0, T0 + 10)[0]
        second.hold("a", T0 + 99, T0)
        assert take_urls(second, now=T0 + 20) == ["b/1"]
        assert end(first, late) == [False]
        assert second.counts(T0).waiting == 1

    def test_a_report_in_time_or_not_needed(self) -> None:
        first, second = self.both()
        offer(first, "a/1")
        late = first.lease(1, T0, T0 + 10)[0]
        assert end(first, late, now=T0 + 50) == [True]
        assert take(second, now=T0 + 50) == []

    def test_renewed(self) -> None:
        first, second = self.both()
        offer(first, "a/1")
        lease = first.lease(1, T0, T0 + 10)[0]
        first.renew([lease], T0 + 30)
        assert second.next_due(T0) == T0 + 30
        assert take(second, now=T0 + 29) == []
        assert take_urls(second, now=T0 + 30) == ["a/1"]
        first.renew([lease], T0 + 900)
        assert second.counts(T0).leased == 1
        assert lease.until == T0 + 30, "it is lost, and must not look as if it were not"

    def test_others(self) -> None:
        first, second = self.both()
        offer(first, "a/1", "a/2")
        lease = take(first)[0]
        assert not first.others(T0)
        assert second.others(T0)
        take(second)
        assert first.others(T0)
        end(first, lease)
        assert not second.others(T0)

    def test_others_knows_its_own_job(self) -> None:
        one, two = self.open("one"), self.open("two")
        offer(one, "a/1", "a/2")
        take(one)
        offer(two, "b/1")
        assert not two.others(T0)


class TestVolatile(SQLiteStore):
    """Rows whose request lives in memory."""

    def test_gone_when_the_run_ends(self) -> None:
        frontier = self.open()
        offer(frontier, "a/1")
        offer(frontier, "a/2", "a/3", volatile=True)
        end(frontier, take(frontier, 2))
        frontier.close("shutdown", finished=False, now=T0)
        assert self.rows("SELECT url, state FROM urls") == [("a/1", 1)]
        again = self.open()
        assert again.start == "resumed"
        assert again.counts(T0).waiting == 0
        assert offer(again, "a/2", "a/3") == [True, True]

    def test_the_job_may_finish(self) -> None:
        """What cannot be stored does not keep the job open."""
        frontier = self.open()
        offer(frontier, "a/1", volatile=True, ready_at=T0 + LONG)
        frontier.close("finished", finished=True, now=T0)
        assert self.open().start == "restarted"

    def test_only_their_own_run_gets_them(self) -> None:
        first, second = self.open(), self.open()
        offer(first, "a/1", volatile=True)
        offer(first, "a/2", volatile=True, ready_at=T0 + 5)
        assert second.seen(b"a/1")
        assert offer(second, "a/1") == [False]
        assert second.next_due(T0) is None
        assert take(second, now=T0 + 9) == []
        assert take_urls(first, now=T0 + 9) == ["a/1", "a/2"]

    def test_uniform_gets_them_too(self) -> None:
        frontier = self.open(order=Order(uniform=True))
        offer(frontier, "a/1", "a/2", volatile=True)
        offer(frontier, "a/3")
        assert sorted(take_urls(frontier)) == ["a/1", "a/2", "a/3"]

    def test_their_pages_stay_charged(self) -> None:
        limits = Limits(pages_per_host=2)
        frontier = self.open(limits=limits)
        offer(frontier, "a/1", "a/2", volatile=True)
        drain(frontier)
        frontier.close("shutdown", finished=False, now=T0)
        again = self.open(limits=limits)
        offer(again, "a/3")
        assert take(again) == []
        assert again.counts(T0).pages == 2

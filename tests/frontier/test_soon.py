"""What may be stored a moment later, with more of it: the SQLite store's ``soon``."""

from __future__ import annotations

import sqlite3
import time

import pytest

from scrapy_focus.exceptions import FrontierError
from scrapy_focus.frontier import Ending, Frontier, Limits, Outcome
from scrapy_focus.frontier.sqlite import SQLiteFrontier

from .helpers import LONG, T0, SQLiteStore, abandon, candidate, end, offer, sooner, take
from .suite_budget import Spending
from .suite_ends import Counting, Settling
from .suite_hosts import Caps, Pacing, Turns
from .suite_urls import Adding, Ordering, Waiting


class TestSooner(
    Adding, Ordering, Waiting, Pacing, Turns, Caps, Settling, Spending, Counting, SQLiteStore
):
    """The contract, with every call stored a moment later."""

    def open(self, *args: object, **options: object) -> SQLiteFrontier:
        return sooner(super().open(*args, **options))  # type: ignore[arg-type]


class Soon(SQLiteStore):
    def stored(self, sql: str = "SELECT count(*) FROM urls") -> int:
        """What another program sees."""
        return int(self.rows(sql)[0][0])

    def eventually(self, expected: int, sql: str = "SELECT count(*) FROM urls") -> None:
        end = time.monotonic() + 5
        while self.stored(sql) != expected:
            assert time.monotonic() < end
            time.sleep(0.005)

    def offer_soon(self, frontier: Frontier, *urls: str) -> None:
        with frontier.transaction(soon=True):
            assert all(offer(frontier, *urls))


class TestSoon(Soon):
    def test_it_is_stored_though_nobody_calls_again(self) -> None:
        frontier = self.open()
        self.offer_soon(frontier, "a/1", "a/2")
        self.eventually(2)
        with frontier.transaction(soon=True):
            assert len(take(frontier)) == 1
        assert frontier.counts(T0).leased == 1
        self.eventually(1, "SELECT leased FROM jobs")

    def test_with_the_next_that_must_be(self) -> None:
        frontier = self.open()
        for url in ("a/1", "a/2", "a/3"):
            self.offer_soon(frontier, url)
        offer(frontier, "a/4")
        assert self.stored() == 4

    def test_with_the_end(self) -> None:
        frontier = self.open()
        self.offer_soon(frontier, "a/1")
        frontier._db.close()
        assert self.stored() == 1

    def test_a_read_sees_it(self) -> None:
        frontier = self.open()
        self.offer_soon(frontier, "a/1")
        assert frontier.seen(b"a/1")
        assert frontier.next_due(T0) == T0
        assert frontier.counts(T0).waiting == 1

    def test_very_much_is_stored_in_parts(self) -> None:
        frontier = self.open()
        for number in range(200):
            self.offer_soon(frontier, *(f"a/{number}/{part}" for part in range(5)))
        assert self.stored() > 0
        self.eventually(1000)

    def test_a_kill_loses_it_and_nothing_else(self) -> None:
        frontier = self.open()
        offer(frontier, "a/1", "a/2")
        with frontier.transaction(soon=True):
            offer(frontier, "a/3")
            assert len(take(frontier)) == 1
        abandon(frontier)
        frontier = self.open()
        counts = frontier.counts(T0)
        assert counts.leased == 0
        assert counts.waiting == counts.added == self.stored()
        assert counts.added in (2, 3)  # the thread may have been faster
        assert sorted(lease.candidate.url for lease in take(frontier, 9))[:2] == ["a/1", "a/2"]

    @pytest.mark.parametrize("what", ["gap", "pages", "pages_per_host", "pace", "hold"])
    def test_what_may_not_be_lost_is_stored_at_once(self, what: str) -> None:
        limits = {"pages": Limits(pages=5), "pages_per_host": Limits(pages_per_host=5)}
        frontier = self.open(limits=limits.get(what, Limits()))
        offer(frontier, "a/1", "a/2")
        self.paces.gap = 5.0 if what == "gap" else 0.0
        with frontier.transaction(soon=True):
            if what == "pace":
                frontier.pace("a", 5.0, T0)
            elif what == "hold":
                frontier.hold("a", T0 + 5, T0)
            else:
                take(frontier)
        if what in ("pace", "hold", "gap"):
            assert self.stored("SELECT max(next_at, held) FROM hosts") == T0 + 5
        else:
            assert self.stored("SELECT pages FROM jobs") == 1

    def test_a_settlement_waits_for_the_end_of_the_turn(self) -> None:
        frontier = self.open()
        offer(frontier, "a/1", "a/2")
        lease = take(frontier)[0]
        with frontier.transaction(soon=True):
            frontier.settle([Outcome(lease, Ending.DONE)], [candidate("a/3")], T0)
        with frontier.transaction():
            pass
        assert self.stored("SELECT done FROM jobs") == 1
        assert self.stored() == 3


class TestTrouble(Soon):
    def fail_soon(self, frontier: Frontier) -> None:
        with frontier.transaction(soon=True):
            offer(frontier, "a/2")
            take(frontier)
            raise ZeroDivisionError

    def test_a_call_that_fails_undoes_what_was_not_stored_yet(self) -> None:
        frontier = self.open()
        offer(frontier, "a/1")
        self.offer_soon(frontier, "b/1")
        with pytest.raises(ZeroDivisionError):
            self.fail_soon(frontier)
        self.offer_soon(frontier, "a/3")
        assert frontier.counts(T0).added == 2
        assert frontier.counts(T0).leased == 0
        assert not frontier.seen(b"a/2")
        assert not frontier.seen(b"b/1")
        self.eventually(2)
        assert sorted(lease.candidate.url for lease in take(frontier, 9)) == ["a/1", "a/3"]

    def test_what_cannot_be_stored_later_is_told_by_the_next_call(self) -> None:
        frontier = self.open()
        offer(frontier, "a/1")
        self.offer_soon(frontier, "a/2")
        frontier._db._connection.set_authorizer(
            lambda action, *_: (
                sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_TRANSACTION else sqlite3.SQLITE_OK
            )
        )
        end_at = time.monotonic() + 5
        while frontier._db._failure is None and time.monotonic() < end_at:
            time.sleep(0.005)
        frontier._db._connection.set_authorizer(lambda *_: sqlite3.SQLITE_OK)
        with pytest.raises(FrontierError):
            offer(frontier, "a/3")
        offer(frontier, "a/3")
        assert take(frontier)[0].candidate.url == "a/1"
        assert frontier.counts(T0).added == self.stored()


class TestCompany(Soon):
    """Nobody has to wait for what is stored later."""

    def test_another_run_comes_in_at_once(self) -> None:
        first = self.open()
        offer(first, *(f"a/{number}" for number in range(9)))
        with first.transaction(soon=True):
            mine = take(first)
        began = time.monotonic()
        second = self.open()
        assert time.monotonic() - began < 2
        assert second.start == "joined"
        for frontier, other in ((first, second), (second, first)):
            with frontier.transaction(soon=True):
                mine += take(frontier)
            mine += take(other)  # it would be busy otherwise
        assert len({lease.id for lease in mine}) == 5

    def test_a_folder_full_of_files(self) -> None:
        """It is not looked through for each transaction."""
        frontier = self.open()
        for number in range(1100):
            (self.path.parent / str(number)).touch()
        with frontier.transaction(soon=True):
            offer(frontier, "a/1")
        assert self.stored() == 1

    def test_when_the_others_are_gone_it_may_wait_again(self) -> None:
        first, second = self.open(), self.open()
        offer(first, "a/1")
        second.close("shutdown", finished=False, now=T0)
        end_at = time.monotonic() + 5
        while not first._db._lingering:
            assert time.monotonic() < end_at
            with first.transaction(soon=True):
                first.beat(1.0, T0)

    def test_a_dead_run_keeps_nobody_from_storing(self) -> None:
        first, second = self.open(), self.open()
        offer(second, "a/1", "a/2")
        lease = second.lease(1, T0, T0 + LONG)[0]
        abandon(second)
        assert not first.others(T0)
        assert end(first, take(first, 2)) == [True, True]
        assert lease.candidate.url == "a/1"


class TestCheckpoints(SQLiteStore):
    """The write-ahead log is copied back meanwhile, and begins anew."""

    def test_while_nobody_stops_writing(self) -> None:
        frontier = self.open()
        wal = self.path.with_name(f"{self.path.name}-wal")
        end_at = time.monotonic() + 60
        number = largest = 0
        while (size := wal.stat().st_size) >= largest:
            assert time.monotonic() < end_at
            largest = size
            # Each on a host of its own: so much is changed by a few URLs.
            offer(frontier, *(f"{n}.example/" for n in range(number, number + 50)))
            number += 50
        assert frontier.counts(T0).added == number

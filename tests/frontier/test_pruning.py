"""A frontier whose rows are removed when they are over, since a seen set knows them."""

from __future__ import annotations

import logging
import os
import shutil
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from scrapy_focus.exceptions import FrontierError
from scrapy_focus.frontier import Ending
from scrapy_focus.frontier.mending import mend
from scrapy_focus.frontier.seen import path_of
from scrapy_focus.frontier.sqlite import SQLiteFrontier

from .audit import contradictions
from .helpers import T0, SQLiteStore, abandon, drain, end, offer, take, take_urls
from .seen_sets import SETS, choice, prune, rounds_of


def names(first: int, last: int) -> list[str]:
    return [f"a/{number}" for number in range(first, last)]


@pytest.fixture(autouse=True)
def _small_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds_of(10, monkeypatch)


class Pruned(SQLiteStore):
    name = "bloom"

    def with_set(self, name: str = "", **options: Any) -> SQLiteFrontier:
        return self.open(seen=choice(name or self.name), **options)

    @property
    def number(self) -> int:
        """How many rows there are."""
        return int(self.rows("SELECT count(*) FROM urls")[0][0])

    @property
    def file(self) -> Path:
        return path_of(self.path, self.rows("SELECT max(id) FROM jobs")[0][0])


@pytest.mark.parametrize("name", SETS)
class TestEverySet(Pruned):
    @pytest.fixture(autouse=True)
    def choose(self, name: str, prepare: None) -> None:
        self.name = name

    def test_rows_go_and_stay_known(self) -> None:
        frontier = self.with_set()
        offer(frontier, *names(0, 50))
        leases = take(frontier, 40)
        end(frontier, leases[:20])
        end(frontier, leases[20:25], Ending.FAILED, reason="timeout")
        end(frontier, leases[25:30], Ending.DROPPED, reason="robots", fetched=False)
        before = frontier.counts(T0)
        prune(frontier)
        assert self.number == 20
        assert frontier.counts(T0) == before
        assert (before.done, before.failed, before.dropped, before.pages) == (20, 5, 5, 35)
        for _ in range(2):
            assert all(frontier.seen(key.encode()) for key in names(0, 50))
            assert not any(offer(frontier, *names(0, 50)))
            assert offer(frontier, "a/99", "a/99") == [True, False]
            frontier.close("shutdown", finished=False, now=T0)
            frontier = self.with_set()
            with frontier.transaction():
                frontier._db.execute("DELETE FROM urls WHERE url = 'a/99'")
                frontier._db.execute("UPDATE jobs SET added = added - 1")
                frontier._mend()
        assert sorted(drain(frontier)) == sorted(names(30, 50))
        assert_balanced_with_gone(self)

    def test_after_a_kill_all_that_is_over_goes(self) -> None:
        frontier = self.with_set()
        offer(frontier, *names(0, 50))
        end(frontier, take(frontier, 40))
        abandon(frontier)
        frontier = self.with_set()
        prune(frontier)
        assert self.number == 10
        assert not any(offer(frontier, *names(0, 50)))

    def test_copies(self) -> None:
        """As with the rows: a filtered request matches any copy, a copy only itself."""
        frontier = self.with_set()
        for number in range(12):
            offer(frontier, f"a/{number}", copy=number)
        offer(frontier, "a/last")
        end(frontier, take(frontier, 12))
        prune(frontier)
        assert self.number == 1
        assert not any(offer(frontier, *names(0, 12)))
        assert offer(frontier, "a/3", copy=3) == [False]
        assert offer(frontier, "a/3", copy=4) == [True]

    def test_started_over(self) -> None:
        """A generation has a set of its own; the one before goes."""
        frontier = self.with_set()
        offer(frontier, *names(0, 20))
        end(frontier, take(frontier, 20))
        prune(frontier)
        old = self.file
        assert old.exists()
        frontier.close("finished", finished=True, now=T0)
        frontier = self.with_set()
        assert frontier.start == "restarted"
        assert not old.exists()
        assert all(offer(frontier, *names(0, 20)))

    def test_another_set_is_refused(self) -> None:
        frontier = self.with_set()
        offer(frontier, *names(0, 21))
        end(frontier, take(frontier, 20))
        prune(frontier)
        frontier.close("shutdown", finished=False, now=T0)
        for other in ("exact", *SETS):
            if other != self.name:
                with pytest.raises(FrontierError, match=f'FOCUS_SEEN = "{self.name}", and the row'):
                    self.with_set(other)
        frontier = self.with_set()
        assert take_urls(frontier) == ["a/20"]
        frontier.close("shutdown", finished=False, now=T0)
        assert all(offer(self.with_set("exact", resume=False), *names(0, 20)))

    def test_another_set_while_all_rows_are_there(self) -> None:
        frontier = self.with_set()
        offer(frontier, *names(0, 9))
        end(frontier, take(frontier, 9))
        prune(frontier)
        frontier.close("shutdown", finished=False, now=T0)
        for other in ("exact", *SETS):
            frontier = self.with_set(other)
            assert not any(offer(frontier, *names(0, 9)))
            frontier.close("shutdown", finished=False, now=T0)

    def test_a_lost_set_is_told(self) -> None:
        frontier = self.with_set()
        offer(frontier, *names(0, 21))
        end(frontier, take(frontier, 20))
        prune(frontier)
        frontier.close("shutdown", finished=False, now=T0)
        kept = self.file.with_name("kept")
        self.file.rename(kept)
        lost = (
            r"seen-1 of the job 'job' is missing: without it 20 finished URLs, whose rows are gone"
        )
        for _ in range(2):
            with pytest.raises(FrontierError, match=lost):
                self.with_set()
        kept.rename(self.file)
        assert take_urls(self.with_set()) == ["a/20"]

    def test_an_older_set_is_told(self) -> None:
        """As from a copy that was made before."""
        frontier = self.with_set()
        old = self.path.with_name("old")
        for number in range(2):
            offer(frontier, *names(20 * number, 20 * number + 21))
            end(frontier, take(frontier, 20))
            prune(frontier)
            frontier.close("shutdown", finished=False, now=T0)
            if number == 0:
                (shutil.copytree if self.file.is_dir() else shutil.copy)(self.file, old)
                frontier = self.with_set()
        (shutil.rmtree if self.file.is_dir() else os.unlink)(self.file)
        old.rename(self.file)
        with pytest.raises(FrontierError, match="is older than the frontier: without it 40"):
            self.with_set()

    def test_what_is_found_again_while_it_goes(self) -> None:
        """At every step each URL is known."""
        frontier = self.with_set()
        offer(frontier, *names(0, 31))
        end(frontier, take(frontier, 30))
        assert frontier._pruner
        while frontier.clear(7, T0) or frontier._pruner._thread:
            assert not any(offer(frontier, *names(0, 31)))
        assert self.number < 11

    def test_one_process_at_a_time(self) -> None:
        """Two would not know of each other what they remove; other jobs are none of theirs."""
        first = self.with_set()
        told = f'by another process with FOCUS_SEEN = "{self.name}"'
        for other in (self.name, "exact"):
            with pytest.raises(FrontierError, match=told):
                self.with_set(other)
        offer(self.with_set(job="other"), "a/1")
        first.close("shutdown", finished=False, now=T0)
        self.with_set("exact")
        with pytest.raises(FrontierError, match='by another process with FOCUS_SEEN = "exact"'):
            self.with_set()

    def test_ids_are_not_used_again(self) -> None:
        """A report that comes late meets no other row."""
        frontier = self.with_set()
        offer(frontier, *names(0, 30))
        leases = take(frontier, 30)
        end(frontier, leases)
        prune(frontier)
        offer(frontier, *names(30, 60))
        again = take(frontier, 30)
        assert not {lease.id for lease in again} & {lease.id for lease in leases}
        assert end(frontier, leases) == [False] * 30

    def test_forgotten(self) -> None:
        frontier = self.with_set()
        offer(frontier, *names(0, 35))
        end(frontier, take(frontier, 20))
        prune(frontier)
        end(frontier, take(frontier, 5))
        if self.name == "bloom":
            with pytest.raises(NotImplementedError, match="bloom set cannot forget"):
                frontier.forget([b"a/1"])
            return
        keys = [f"a/{number}".encode() for number in (1, 2, 21, 22, 33, 99)]
        before = frontier.counts(T0)
        assert frontier.forget(keys) == 2
        assert frontier.counts(T0) == before
        for _ in range(2):
            assert [frontier.seen(key) for key in keys] == [False] * 4 + [True, False]
            frontier.close("shutdown", finished=False, now=T0)
            frontier = self.with_set()
        assert offer(frontier, "a/1", "a/21", "a/33", "a/3") == [True, True, False, False]

    def test_killed_processes_leave_no_file(self) -> None:
        """Sets of generations that are gone, and what was left of a store."""
        for name in (".seen-5", ".seen-1-new", ".seen-9-new", ".seen-x", ".seen-"):
            self.path.with_name(f"frontier.db{name}").touch()
        self.with_set()
        found = sorted(path.name for path in self.path.parent.glob("*.seen*"))
        assert found == ["frontier.db.seen-", "frontier.db.seen-x"]


def assert_balanced_with_gone(store: Pruned) -> None:
    """Each counter says what the rows say, and those that are gone."""
    counters = store.rows(
        "SELECT added - gone_done - gone_failed - gone_dropped, done - gone_done,"
        " failed - gone_failed, dropped - gone_dropped, pages - gone_pages FROM jobs"
    )
    counted = store.rows(
        "SELECT count(*), sum(state = 1), sum(state = 2), sum(state = 3), sum(charged) FROM urls"
    )
    assert counters == counted


class TestPruning(Pruned):
    def test_damaged_counts_are_mended(self) -> None:
        frontier = self.with_set()
        offer(frontier, *names(0, 30))
        end(frontier, take(frontier, 20))
        end(frontier, take(frontier, 3), Ending.FAILED)
        prune(frontier)
        before = frontier.counts(T0)
        with frontier.transaction():
            frontier._db.execute("UPDATE jobs SET added = 'x', done = -1, pages = 'x'")
            mend(frontier._db, T0)
        frontier.close("shutdown", finished=False, now=T0)
        after = self.with_set().counts(T0)
        assert (after.added, after.done, after.failed) == (before.added, before.done, before.failed)
        assert after.pages == before.pages
        assert not contradictions(self.path)

    def test_no_round_no_removal(self) -> None:
        """A set that cannot be written removes nothing, and the crawl goes on."""
        frontier = self.with_set()
        offer(frontier, *names(0, 30))
        end(frontier, take(frontier, 20))
        new = self.path.with_name("frontier.db.seen-1-new")
        new.mkdir()
        assert frontier._pruner
        while frontier.clear(50, T0) or frontier._pruner._thread:
            if frontier._pruner._thread:
                frontier._pruner._thread.join()
        assert self.number == 30
        assert len(take(frontier, 30)) == 10

    @pytest.mark.parametrize("kind", [OSError, BaseException])
    def test_told_when_it_cannot_be_written(
        self,
        kind: type[BaseException],
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """Whatever it is that a library raises."""
        frontier = self.with_set()
        offer(frontier, *names(0, 30))
        end(frontier, take(frontier, 20))
        assert frontier._pruner

        def fail(number: int) -> None:
            raise kind("no room")

        monkeypatch.setattr(frontier._pruner.set, "store", fail)
        while frontier.clear(50, T0) or frontier._pruner._thread:
            if frontier._pruner._thread:
                frontier._pruner._thread.join()
        assert self.number == 30
        (record,) = caplog.records
        assert record.levelno == logging.ERROR
        assert "cannot be written: no room. The crawl goes on" in record.message

    def test_what_is_undone_is_not_known(self) -> None:
        """A key enters the set only after its row is stored."""
        frontier = self.with_set()
        offer(frontier, *names(0, 5))
        end(frontier, take(frontier, 5))
        with suppress(RuntimeError), frontier.transaction():
            offer(frontier, *names(5, 30))
            end(frontier, take(frontier, 25))
            while not (frontier._pruner and frontier._pruner._read):
                frontier.clear(50, T0)
            raise RuntimeError
        prune(frontier)
        assert all(offer(frontier, *names(5, 30)))
        assert not any(offer(frontier, *names(0, 5)))

    def test_rows_of_a_run_go_with_it(self) -> None:
        """What lives no longer than its run is not known to the set."""
        frontier = self.with_set()
        offer(frontier, *names(0, 20), volatile=True)
        offer(frontier, *names(20, 41))
        end(frontier, take(frontier, 40))
        prune(frontier)
        assert self.number == 21
        frontier.close("shutdown", finished=False, now=T0)
        frontier = self.with_set()
        assert all(offer(frontier, *names(0, 20)))

    def test_other_jobs_rows_stay(self) -> None:
        other = self.open("other")
        offer(other, *names(0, 30))
        end(other, take(other, 30))
        frontier = self.with_set()
        offer(frontier, *names(0, 30))
        end(frontier, take(frontier, 30))
        prune(frontier)
        found = self.rows("SELECT job, count(*) FROM urls GROUP BY job")
        assert found == [(1, 30), (2, 1)]

    def test_the_store_is_another_thread(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """While it stores, everything goes on, and nothing is removed."""
        frontier = self.with_set()
        offer(frontier, *names(0, 31))
        end(frontier, take(frontier, 30))
        assert frontier._pruner
        going, begun = threading.Event(), threading.Event()
        store = frontier._pruner.set.store

        def slow(number: int) -> None:
            begun.set()
            assert going.wait(60)
            store(number)

        monkeypatch.setattr(frontier._pruner.set, "store", slow)
        while not begun.is_set():
            frontier.clear(50, T0)
        assert not frontier.clear(50, T0)
        assert self.number == 31
        assert not any(offer(frontier, *names(0, 31)))
        going.set()
        prune(frontier)
        assert self.number == 1

    def test_domain_is_forgotten(self) -> None:
        frontier = self.with_set("rocksdb")
        urls = [f"{host}/{number}" for host in ("a", "x.a", "b") for number in range(10)]
        offer(frontier, *urls)
        offer(frontier, "z/1", rank=1.0)
        end(frontier, take(frontier, 30))
        prune(frontier)
        assert self.number == 1
        calls = 1
        while frontier.forget_domain("a", 6):
            calls += 1
        assert calls == 4
        assert offer(frontier, *urls) == [True] * 20 + [False] * 10

    def test_the_file_stays_small(self) -> None:
        """Rows come and go, and take the room of those before them."""
        sizes = {}
        for name in ("exact", "bloom"):
            self.path = self.path.with_name(f"{name}.db")
            frontier = self.with_set(name)
            for number in range(60):
                offer(frontier, *names(100 * number, 100 * number + 100))
                end(frontier, take(frontier, 100))
                if name != "exact":
                    prune(frontier)
            frontier.close("shutdown", finished=False, now=T0)
            sizes[name] = self.path.stat().st_size
        assert sizes["bloom"] < sizes["exact"] / 5

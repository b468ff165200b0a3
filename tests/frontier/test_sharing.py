"""Several connections to one SQLite frontier, and transactions that fail."""

from __future__ import annotations

import random
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from scrapy_focus.exceptions import FrontierBusy, FrontierError
from scrapy_focus.frontier import Ending, Frontier, Lease, Limits, Order, Outcome

from .children import run, start
from .helpers import (
    T0,
    Paces,
    SQLiteStore,
    abandon,
    candidate,
    drain,
    end,
    offer,
    take,
    take_urls,
    urls,
)

Call = Callable[[Frontier, Lease], object]

WRITES: dict[str, Call] = {
    "add": lambda f, _: offer(f, "x/1"),
    "lease": lambda f, _: take(f),
    "settle": end,
    "reached": lambda f, lease: f.reached(replace(lease, gap=99.0), T0),
    "left": lambda f, lease: f.left(lease, T0),
    "renew": lambda f, lease: f.renew([lease], T0 + 99),
    "pace": lambda f, _: f.pace("a", 9.0, T0),
    "hold": lambda f, _: f.hold("a", T0 + 9, T0),
    "touch": lambda f, _: f.touch("a", T0),
    "others": lambda f, _: f.others(T0),
    "count": lambda f, _: f.count("refused", {"depth": 1}),
    "note": lambda f, _: f.note("a", b"x"),
    "beat": lambda f, _: f.beat(1.0, T0),
    "clear": lambda f, _: f.clear(10, T0),
    "rerank": lambda f, _: f.rerank(lambda c: 1.0),
    "close": lambda f, _: f.close("shutdown", finished=False, now=T0),
}


class TestBusy(SQLiteStore):
    """While another connection writes."""

    @pytest.mark.parametrize("name", WRITES)
    def test_a_write_is_refused_and_changes_nothing(self, name: str) -> None:
        one, two = self.open(), self.open()
        offer(two, "a/1", "a/2", "b/1")
        lease = take(two)[0]
        before, due = two.counts(T0), two.next_due(T0)
        with one.transaction():
            offer(one, "a/9")
            with pytest.raises(FrontierBusy, match=self.path.name):
                WRITES[name](two, lease)
            assert two.counts(T0) == before
            assert two.next_due(T0) == due
            assert lease.until != T0 + 99
        assert two.counts(T0) == replace(before, added=4, waiting=3)
        WRITES[name](two, lease)

    def test_reading_waits_for_nobody(self) -> None:
        one, two = self.open(), self.open()
        offer(one, "a/1")
        with one.transaction():
            offer(one, "a/2")
            assert two.seen(b"a/1")
            assert not two.seen(b"a/2")
            assert two.counts(T0).added == 1
            assert two.next_due(T0) is not None
            assert two.spent() is None
            one.note("a", b"new")
            assert two.noted("a") is None
        assert two.noted("a") == b"new"
        assert two.seen(b"a/2")

    def test_the_same_host_is_new_to_both(self) -> None:
        one, two = self.open(), self.open()
        with one.transaction():
            offer(one, "a/1")
            with pytest.raises(FrontierBusy):
                offer(two, "a/1", "a/2")
        assert offer(two, "a/1", "a/2") == [False, True]
        assert take_urls(two) == ["a/1", "a/2"]


class TestTogether(SQLiteStore):
    """Two connections take turns."""

    @pytest.mark.parametrize("limit", [1, 3])
    def test_a_budget_is_exact(self, limit: int) -> None:
        limits = Limits(pages=10, pages_per_host=4)
        one, two = self.open(limits=limits), self.open(limits=limits)
        for host in "abcd":
            offer(one, *(f"{host}/{number}" for number in range(10)))
        found: list[str] = []
        for _ in range(10):
            for frontier in (one, two):
                leases = take(frontier, limit)
                found += urls(leases)
                end(frontier, leases)
        assert len(found) == len(set(found)) == 10
        assert max(sum(url[0] == host for url in found) for host in "abcd") <= 4
        assert one.counts(T0) == two.counts(T0)

    def test_a_refund_is_seen_by_the_other(self) -> None:
        one, two = self.open(limits=Limits(pages=1)), self.open(limits=Limits(pages=1))
        offer(one, "a/1", "a/2")
        lease = take(one)[0]
        assert take(two) == []
        assert two.spent() == "max_pages"
        end(one, lease, Ending.DROPPED, fetched=False)
        assert take_urls(two, 9) == ["a/2"]

    def test_one_order_over_both(self) -> None:
        one, two = self.open(), self.open()
        rng = random.Random(2)
        numbers = list(range(40))
        rng.shuffle(numbers)
        for number in numbers:
            frontier = one if number % 2 else two
            offer(frontier, f"{'abc'[number % 3]}/{number}", rank=float(number))
        found = [url for _ in range(20) for f in (one, two) for url in take_urls(f, 1)]
        assert found == [f"{'abc'[number % 3]}/{number}" for number in range(40)]

    def test_a_host_takes_one_turn(self) -> None:
        one, two = self.open(paces=Paces(5.0)), self.open(paces=Paces(5.0))
        offer(one, "a/1", "a/2")
        assert take_urls(one) == ["a/1"]
        assert take(two) == []
        assert two.next_due(T0) == T0 + 5
        assert take_urls(two, now=T0 + 5) == ["a/2"]

    def test_a_give_back_is_seen_by_the_other(self) -> None:
        paces = Paces(5.0, 1)
        one, two = self.open(paces=paces), self.open(paces=paces)
        offer(one, "a/1", "a/2")
        lease = take(one)[0]
        assert two.next_due(T0) == lease.until
        one.left(lease, T0, fetched=False)
        assert take_urls(two) == ["a/2"]

    def test_a_raised_host_is_ready_for_the_other(self) -> None:
        """A head that one connection has moved is not remembered by the other."""
        one, two = self.open(), self.open()
        offer(one, "a/1", rank=1.0)
        offer(two, "a/2", rank=0.0)
        offer(one, "a/3", rank=0.5)
        assert take_urls(two) == ["a/2", "a/3", "a/1"]

    def test_processes_fetch_everything_once(self) -> None:
        code = """
f = open_(limits=Limits(pages=150))
sys.stdin.readline()
patient(f.add, [candidate(f"{n % 7}/{n}") for n in range(200)], T0)
while leases := patient(f.lease, 2, T0, T0 + 3600):
    for lease in leases:
        say(lease.candidate.url)
    patient(f.settle, [Outcome(l, Ending.DONE) for l in leases], [], T0)
"""
        children = [start(code, self.path, T0) for _ in range(3)]
        lines: list[str] = []
        for child in children:
            assert child.stdin
            child.stdin.write("go\n")
            child.stdin.flush()
        for child in children:
            out, err = child.communicate(timeout=120)
            assert child.returncode == 0, err
            lines += out.split()
        assert len(lines) == len(set(lines)) == 150
        counts = self.open().counts(T0)
        assert (counts.added, counts.done, counts.waiting, counts.leased) == (200, 150, 50, 0)


class TestUndone(SQLiteStore):
    """A transaction that fails leaves nothing behind, in the file and in memory."""

    def change_everything(self, frontier: Frontier, lease: Lease) -> None:
        offer(frontier, "new/1", "a/7", rank=-9.0)
        frontier.pace("a", 50.0, T0)
        frontier.hold("b", T0 + 50, T0)
        frontier.pace("nowhere", 5.0, T0)
        take(frontier, 9)
        end(frontier, lease, Ending.FAILED, reason="x", size=100)
        frontier.count("refused", {"depth": 1})
        frontier.beat(5.0, T0)
        frontier.rerank(lambda c: -1.0)
        assert frontier.spent() == "max_bytes"

    def fail_after_changes(self, frontier: Frontier, lease: Lease) -> None:
        with frontier.transaction():
            self.change_everything(frontier, lease)
            raise ZeroDivisionError

    def catch_an_error(self, frontier: Frontier) -> None:
        with frontier.transaction():
            offer(frontier, "a/1")
            with suppress(FrontierError):
                frontier.add([candidate("a/2"), candidate("a/3", rank=float("nan"))], T0)

    def test_by_an_error_of_the_caller(self) -> None:
        limits = Limits(pages_per_host=4, bytes=50)
        frontier = self.open(limits=limits, paces=Paces(cap=3))
        offer(frontier, "a/1", "a/2", "b/1", rank=0.0)
        lease = take(frontier)[0]
        before = frontier.counts(T0)
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                self.fail_after_changes(frontier, lease)
            assert frontier.counts(T0) == before
            assert frontier.spent() is None
            assert not frontier.seen(b"new/1")
        assert offer(frontier, "new/1") == [True]
        assert take_urls(frontier) == ["b/1", "new/1", "a/2"]
        assert end(frontier, lease) == [True]

    def test_no_half_of_a_settlement(self) -> None:
        frontier = self.open()
        offer(frontier, "a/1")
        lease = take(frontier)[0]
        before = frontier.counts(T0)
        bad = candidate("a/3", rank=float("nan"))
        with pytest.raises(FrontierError, match=self.path.name):
            frontier.settle([Outcome(lease, Ending.DONE)], [candidate("a/2"), bad], T0)
        assert frontier.counts(T0) == before
        assert not frontier.seen(b"a/2")
        assert end(frontier, lease) == [True]

    def test_whoever_catches_a_part_s_error_stores_no_half(self) -> None:
        frontier = self.open()
        with pytest.raises(FrontierError, match="part of it failed"):
            self.catch_an_error(frontier)
        assert frontier.counts(T0).added == 0
        assert offer(frontier, "a/1", "a/2") == [True, True]

    def test_an_order_that_fails(self) -> None:
        frontier = self.open()
        offer(frontier, "a/1", "a/2")

        def rank(c: object) -> float:
            raise ValueError("no rank")

        with pytest.raises(ValueError, match="no rank"):
            frontier.rerank(rank)
        assert take_urls(frontier) == ["a/1", "a/2"]

    def test_all_inside_is_one(self) -> None:
        one, two = self.open(), self.open()
        with one.transaction():
            offer(one, "a/1")
            end(one, take(one))
            offer(one, "a/2")
            assert two.counts(T0).added == 0
        assert two.counts(T0).added == 2
        assert take_urls(two) == ["a/2"]


class TestFull(SQLiteStore):
    """A disk without room."""

    def fill(self, frontier: Frontier) -> tuple[int, FrontierError]:
        """Add pages of links until an error ends it: how many were stored, and the error."""
        for number in range(1000):
            links = [candidate(f"b/{number}/{n}", request=b"x" * 500) for n in range(50)]
            try:
                frontier.add(links, T0)
            except FrontierError as error:
                return number * 50, error
        raise AssertionError("there was room for all of it")

    def test_a_small_disk(self) -> None:
        disk = self.path.parent / "disk"
        disk.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=800k", "tmpfs", str(disk)]
        if subprocess.run(mount, check=False, capture_output=True).returncode:
            pytest.skip("only root may mount a disk")
        try:
            self.path = disk / "frontier.db"
            frontier = self.open()
            offer(frontier, "a/1", "a/2")
            lease = take(frontier)[0]
            added, error = self.fill(frontier)
            assert "no room left" in str(error)
            assert str(self.path) in str(error)
            links = [candidate(f"c/{n}", request=b"x" * 500) for n in range(200)]
            with pytest.raises(FrontierError, match="no room left"):
                frontier.settle([Outcome(lease, Ending.DONE)], links, T0)
            counts = frontier.counts(T0)
            assert (counts.added, counts.leased, counts.done) == (added + 2, 1, 0)
            subprocess.run(["mount", "-o", "remount,size=20m", disk], check=True)
            assert frontier.settle([Outcome(lease, Ending.DONE)], links, T0)[0] == [True]
            frontier.close("shutdown", finished=False, now=T0)
            again = self.open()
            assert again.start == "resumed"
            assert again.counts(T0).waiting == added + 201
            again.close("shutdown", finished=False, now=T0)
        finally:
            for frontier in self.opened:
                abandon(frontier)
            subprocess.run(["umount", disk], check=True)

    def test_no_room_for_a_new_one(self) -> None:
        code = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
try:
    open_()
except FocusError as error:
    say(type(error).__name__, error)
"""
        lines = run(code, self.path, T0)
        assert len(lines) == 1
        assert lines[0].startswith("FrontierError ")
        assert str(self.path) in lines[0]
        frontier = self.open()
        assert frontier.start == "new"
        assert offer(frontier, "a/1") == [True]

    # A file may grow no further: another error of the system, at another place.
    CODE = """
import resource
def limit(size):
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
f = open_()
f.add([candidate(f"a/{n}") for n in range(10)], T0)
lease = f.lease(1, T0, T0 + 3600)[0]
limit(600_000)
added = 10
try:
    while True:
        links = [candidate(f"b/{n}", request=b"x" * 500) for n in range(added, added + 50)]
        f.add(links, T0)
        added += 50
except FocusError as error:
    say(type(error).__name__, error)
try:
    f.settle([Outcome(lease, Ending.DONE)], links, T0)
except FocusError as error:
    say(type(error).__name__, error)
counts = f.counts(T0)
say(counts.added == added, counts.leased, counts.done)
limit(resource.getrlimit(resource.RLIMIT_FSIZE)[1])
say(*f.settle([Outcome(lease, Ending.DONE)], links, T0)[0])
say(f.counts(T0).added == added + 50)
f.close("shutdown", finished=False, now=T0)
"""

    def test_a_limit_on_the_size_of_files(self) -> None:
        lines = run(self.CODE, self.path, T0)
        assert len(lines) == 5
        for line in lines[:2]:
            assert line.startswith("FrontierError ")
            assert str(self.path) in line
        assert lines[2:] == ["True 1 0", "True", "True"]
        connection = sqlite3.connect(self.path)
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        connection.close()
        frontier = self.open(order=Order(ties="age"))
        assert frontier.start == "resumed"
        assert drain(frontier)[:2] == ["a/1", "a/2"]

"""Files of a frontier with bytes cut off, flipped, zeroed and overwritten.

It opens, or says why not, in one sentence; and what it could not read it does not pass over.
"""

from __future__ import annotations

import logging
import random
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from scrapy_focus.exceptions import FrontierBusy, FrontierError
from scrapy_focus.frontier import Ending, Outcome
from scrapy_focus.frontier.sqlite import SQLiteFrontier

from .helpers import T0, Paces, abandon, candidate

#: URLs that wait in the frontier that is damaged.
WAITING = 270
#: How many ways to damage it are tried.
CASES, AT_ONCE = 400, 25


def open_(path: Path) -> SQLiteFrontier:
    return SQLiteFrontier(path, "job", pace=Paces(), now=T0)


@pytest.fixture(name="whole", scope="module")
def _whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A frontier as a run leaves it that ends, and as one does that is killed."""
    folder = tmp_path_factory.mktemp("whole")
    path = folder / "frontier.db"
    frontier = open_(path)
    frontier.add(
        [
            candidate(f"h{n % 7}/{n}", request=b'{"m":"POST"}' if n % 5 == 0 else None)
            for n in range(300)
        ],
        T0,
    )
    outcomes = [Outcome(lease, Ending.DONE) for lease in frontier.lease(30, T0, T0 + 9)]
    frontier.settle(outcomes, [], T0)
    found = {name: folder / name for name in ("killed", "ended")}
    for name, copy in found.items():
        copy.mkdir()
        if name == "ended":
            frontier.close("shutdown", finished=False, now=T0)
        for file in folder.glob("frontier.db*"):
            if ".run-" not in file.name:
                shutil.copy(file, copy)
    assert {file.name for file in found["killed"].iterdir()} == {
        *("frontier.db", "frontier.db-wal", "frontier.db-shm")
    }
    return found


def damage(data: bytes, rng: random.Random) -> tuple[str, bytes]:
    kind = rng.choice(["cut", "flip", "flips", "zeros", "junk"])
    if kind == "cut":
        return kind, data[: rng.randrange(len(data))]
    changed = bytearray(data)
    if kind in ("flip", "flips"):
        for _ in range(1 if kind == "flip" else rng.choice([5, 50])):
            changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        return kind, bytes(changed)
    start = rng.randrange(len(data))
    length = min(len(data) - start, rng.choice([16, 512, 2048, 4096]))
    changed[start : start + length] = bytes(length) if kind == "zeros" else rng.randbytes(length)
    return kind, bytes(changed)


def drain(frontier: SQLiteFrontier) -> int:
    """Use the frontier as a crawl does; how many URLs were handed out."""
    found = 0
    new = [candidate(f"h{n % 9}/new-{n}") for n in range(20)]
    for _ in range(2000):
        try:
            if new and frontier.add(new, T0):
                new = []
            leases = frontier.lease(10, T0, T0 + 9)
            frontier.settle([Outcome(lease, Ending.DONE) for lease in leases], [], T0)
            found += len(leases)
            if not leases:
                counts = frontier.counts(T0)
                frontier.next_due(T0)
                frontier.others(T0)
                frontier.close("finished", finished=True, now=T0)
                return found + counts.unreadable
        except FrontierBusy:
            continue  # something was set aside
    raise AssertionError("it does not end")


@pytest.mark.parametrize("first", range(0, CASES, AT_ONCE))
def test_damaged_files(
    first: int, whole: dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for seed in range(first, first + AT_ONCE):
        rng = random.Random(seed)
        folder = tmp_path / str(seed)
        shutil.copytree(whole[rng.choice(sorted(whole))], folder)
        file = rng.choice(sorted(folder.iterdir()))
        kind, data = damage(file.read_bytes(), rng)
        file.write_bytes(data)
        told = (seed, kind, file.name)
        caplog.clear()
        began = time.monotonic()
        frontier: SQLiteFrontier | None = None
        try:
            frontier = open_(folder / "frontier.db")
            found = drain(frontier)
        except FrontierError as error:
            text = str(error)
            assert text.count(str(folder / "frontier.db")) == 1, told
            assert text.endswith("."), told
            assert text.isprintable(), told
        else:
            said = [r for r in caplog.records if r.levelno >= logging.ERROR]
            # A log that ends early looks as if it had always ended there.
            unseen = kind == "cut" and file.name.endswith("-wal")
            assert found == WAITING + 20 or said or unseen, (*told, found)
        finally:
            if frontier:
                abandon(frontier)
        assert time.monotonic() - began < 30, told


class TestLog:
    """The write-ahead log that a killed process has left."""

    @pytest.fixture(autouse=True)
    def copy(self, whole: dict[str, Path], tmp_path: Path) -> Iterator[None]:
        shutil.copytree(whole["killed"], tmp_path / "f")
        self.path = tmp_path / "f" / "frontier.db"
        self.wal = self.path.with_name("frontier.db-wal")
        yield
        if self.frontier:
            abandon(self.frontier)

    def open(self) -> SQLiteFrontier:
        self.frontier = open_(self.path)
        return self.frontier

    @pytest.mark.parametrize("at", [8, 17, 24, 32 + 8, 0.5, 0.9])
    def test_a_damaged_one(self, at: float, caplog: pytest.LogCaptureFixture) -> None:
        data = bytearray(self.wal.read_bytes())
        # After the first commits, which make the tables: else it is an empty frontier.
        at = int(at * len(data)) if isinstance(at, float) else at
        data[at] ^= 1
        self.wal.write_bytes(data)
        try:
            self.open()
        except FrontierError:
            self.frontier = None  # type: ignore[assignment]
        messages = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
        assert any(
            f"write-ahead log of the frontier {self.path} was damaged" in m for m in messages
        )

    def test_a_sound_one(self, caplog: pytest.LogCaptureFixture) -> None:
        assert self.open().counts(T0).waiting == WAITING
        assert caplog.records == []

    def test_one_with_a_transaction_that_was_cut_off(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        """As a process leaves it that is killed while it writes: nothing is lost by that."""
        data = self.wal.read_bytes()
        page = 24 + 2048
        unfinished = bytearray(data[-page:])
        unfinished[4:8] = bytes(4)
        self.wal.write_bytes(data + unfinished + unfinished[:100])
        assert self.open().counts(T0).waiting == WAITING
        assert caplog.records == []

    def test_one_that_was_begun_anew(self, caplog: pytest.LogCaptureFixture) -> None:
        """What is left of it from before is no damage."""
        with closing(sqlite3.connect(self.path, isolation_level=None)) as reader:
            reader.execute("PRAGMA wal_checkpoint(RESTART)")
            reader.execute("UPDATE hosts SET delay = 0")
            copy = self.path.parent / "copy"
            copy.mkdir()
            for file in self.path.parent.glob("frontier.db*"):
                shutil.copy(file, copy)
        self.path = copy / "frontier.db"
        assert self.open().counts(T0).waiting == WAITING
        assert caplog.records == []

    def test_one_that_another_process_uses(self, caplog: pytest.LogCaptureFixture) -> None:
        first = self.open()
        second = open_(self.path)
        assert second.start == "joined"
        assert caplog.records == []
        second.close("shutdown", finished=False, now=T0)
        assert first.counts(T0).waiting == WAITING

"""A frontier after a power cut: the disk has what was synced, and any part of the rest.

``POWER_CUTS`` sets how many cuts there are in each life.
"""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from scrapy_focus.frontier import database

from . import lives
from .books import Calls, check, states
from .disk import Disk, Record, build, read_journal

CUTS = int(os.environ.get("POWER_CUTS", "30"))

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not shutil.which("cc"), reason="needs Linux and a C compiler"
)


class Recorder:
    """Runs lives and keeps what they write."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "frontiers"
        self.folder.mkdir()
        self._journal = folder / "journal"
        self._read = 0
        self._server = lives.Server(
            {
                "LD_PRELOAD": str(build(folder)),
                "POWERCUT_PREFIX": str(self.folder),
                "POWERCUT_JOURNAL": str(self._journal),
            }
        )

    def run(self, life: lives.Script, folder: Path, words: str) -> list[list[Record]]:
        """Run a life after all that come before it; what each of them has written."""
        earlier = lives.LIVES[life]
        records = self.run(earlier, folder, words) if earlier else []
        assert self._server.run(life, folder, words=words) == 0
        with self._journal.open("rb") as file:
            file.seek(self._read)
            content = file.read()
        self._read += len(content)
        return [*records, list(read_journal(content))]

    def close(self) -> None:
        self._server.close()


@pytest.fixture(name="recorder", scope="module")
def _recorder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorder]:
    with closing(Recorder(tmp_path_factory.mktemp("power").resolve())) as recorder:
        yield recorder


def choose_cuts(records: list[Record], rng: random.Random) -> set[int]:
    """After which records the power is cut: half of the times before or after one that is no
    mere write."""
    writes = {number for number, record in enumerate(records) if record.kind == "w"}
    others = set(range(len(records))) - writes
    chosen = rng.sample(sorted(others), min(len(others), CUTS // 2))
    chosen += rng.sample(sorted(writes), min(len(writes), CUTS - len(chosen)))
    return {number - rng.randrange(2) for number in chosen}


@pytest.mark.parametrize("words", ["", "full", "network", "full network"])
@pytest.mark.parametrize("life", lives.LIVES, ids=lambda life: life.__name__)
def test_any_moment(
    recorder: Recorder,
    life: lives.Script,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The file is whole and lacks at most the last calls; with FOCUS_DURABILITY = "full",
    none that has returned."""
    home = recorder.folder / f"{life.__name__} {words}"
    home.mkdir()
    *before, last = recorder.run(life, home, words)
    calls = Calls.read((home / "calls").read_text())
    rng = random.Random(f"{life.__name__} {words}")
    first = sum(map(len, before))
    cuts = {first + number for number in choose_cuts(last, rng)}
    if life is lives.migrated:
        monkeypatch.setattr(database, "migrations", lives.later_migrations())
    disk, noted, safe, lacking = Disk(home), "", 0, 0
    for number, record in enumerate(record for part in (*before, last) for record in part):
        if record.path.endswith("/calls"):
            noted += record.data.decode()
        else:
            disk.do(record)
        if record.kind == "s" and record.path.endswith("-wal"):
            safe = Calls.read(noted).lasting
        if number not in cuts:
            continue
        made = Calls.read(noted)
        if "full" in words:
            safe = made.lasting
        folder = tmp_path / str(number)
        folder.mkdir()
        disk.rebuild(folder, rng, rng.choice([0.0, 0.5, 0.9, 1.0]))
        lacking += disk.lacks
        possible = states(calls.returned[: made.made], safe, made.now)
        try:
            with closing(sqlite3.connect(folder / "frontier.db")) as connection:
                assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            check(folder / "frontier.db", possible, made.now)
        except BaseException as error:
            error.args = (f"cut after record {number} of {life.__name__}, {error}",)
            raise
    assert lacking > len(cuts) / 4

    # Nothing was written past the journal.
    whole = tmp_path / "whole"
    whole.mkdir()
    disk.rebuild(whole, rng, 1.0)
    beside = {"calls", "frontier.db-shm"}
    written = {file.name: file.read_bytes() for file in home.iterdir() if file.name not in beside}
    assert {file.name: file.read_bytes() for file in whole.iterdir()} == written

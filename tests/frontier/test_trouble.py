"""Files that are no frontier, or none that can be used: one clear error each."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from scrapy_focus.exceptions import FrontierBusy, FrontierError, FrontierTooNew
from scrapy_focus.frontier import database
from scrapy_focus.frontier.database import APPLICATION_ID, Database

from .children import run
from .helpers import T0, SQLiteStore, candidate, offer, take, take_urls


class Trouble(SQLiteStore):
    def refuse(self, match: str, kind: type[FrontierError] = FrontierError) -> FrontierError:
        """Opening raises this one error, which names the file, and leaves nothing behind."""
        before = contents(self.path.parent)
        with pytest.raises(kind, match=match) as found:
            self.open()
        assert str(self.path) in str(found.value)
        assert str(found.value).endswith(".")
        assert contents(self.path.parent) == before
        return found.value


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


class TestFiles(Trouble):
    """What may be found where a frontier is wanted."""

    def test_another_program_s_database(self) -> None:
        connection = sqlite3.connect(self.path)
        connection.executescript("CREATE TABLE mine (x); INSERT INTO mine VALUES (1);")
        connection.close()
        self.refuse("a database of another program")

    def test_another_program_s_database_with_a_name_of_ours(self) -> None:
        connection = sqlite3.connect(self.path)
        connection.executescript("CREATE TABLE jobs (x); PRAGMA user_version = 1;")
        connection.close()
        self.refuse("a database of another program")

    def test_another_program_s_empty_database(self) -> None:
        connection = sqlite3.connect(self.path)
        connection.execute("PRAGMA application_id = 1234")
        connection.close()
        self.refuse("a database of another program")

    def test_another_program_s_database_in_wal_mode(self) -> None:
        connection = sqlite3.connect(self.path)
        connection.executescript("PRAGMA journal_mode = WAL; CREATE TABLE mine (x);")
        connection.close()
        self.refuse("a database of another program")

    @pytest.mark.parametrize(
        "content", [b"not a database at all, but long enough" * 200, b"{}", b"\x00" * 5000]
    )
    def test_no_database(self, content: bytes) -> None:
        self.path.write_bytes(content)
        self.refuse("damaged, or not a SQLite database")

    @pytest.mark.parametrize("part", [0.1, 0.5, 0.95])
    def test_a_file_that_was_cut_off(self, part: float) -> None:
        frontier = self.open()
        offer(frontier, *(f"a/{number}" for number in range(2000)))
        frontier.close("shutdown", finished=False, now=T0)
        os.truncate(self.path, int(self.path.stat().st_size * part))
        with pytest.raises(FrontierError, match="damaged") as found:
            self.open()
        assert str(self.path) in str(found.value)

    def test_a_page_that_was_overwritten(self) -> None:
        """Damage that shows later is an error then, and nothing is written over it."""
        frontier = self.open()
        offer(frontier, *(f"a/{number}" for number in range(3000)))
        frontier.close("shutdown", finished=False, now=T0)
        size = self.path.stat().st_size
        with self.path.open("r+b") as file:
            file.seek(4096 * 20)
            file.write(b"\xff" * (size - 4096 * 21))
        with pytest.raises(FrontierError, match=self.path.name):
            self.open().rerank(lambda c: 0.0)

    def test_an_empty_file_becomes_one(self) -> None:
        self.path.touch()
        frontier = self.open()
        assert frontier.start == "new"
        assert offer(frontier, "a/1") == [True]

    def test_a_newer_version(self) -> None:
        self.open().close("shutdown", finished=False, now=T0)
        connection = sqlite3.connect(self.path)
        connection.execute("PRAGMA user_version = 99")
        connection.close()
        error = self.refuse("version 99", FrontierTooNew)
        assert "Upgrade scrapy_focus" in str(error)

    def test_a_folder(self) -> None:
        self.path.mkdir()
        self.refuse("is a folder")

    def test_below_a_file(self) -> None:
        file = self.path.parent / "file"
        file.touch()
        self.path = file / "frontier.db"
        with pytest.raises(FrontierError, match="cannot be written") as found:
            self.open()
        assert str(self.path) in str(found.value)
        self.path = file / "folder" / "frontier.db"
        with pytest.raises(FrontierError, match="cannot be written"):
            self.open()

    def test_a_folder_that_is_not_there_yet(self) -> None:
        self.path = self.path.parent / "new" / "folder" / "frontier.db"
        offer(self.open(), "a/1")
        assert self.path.is_file()

    @pytest.mark.parametrize("name", ["a b.db", "a?b#c%20.db", "ünï.db", "a'b\"c.db", "-x.db"])
    def test_names(self, name: str) -> None:
        self.path = self.path.with_name(name)
        frontier = self.open()
        offer(frontier, "a/1")
        frontier.close("shutdown", finished=False, now=T0)
        assert [path.name for path in self.path.parent.iterdir()] == [name]
        assert take_urls(self.open()) == ["a/1"]

    def test_an_error_at_the_start_leaves_no_run(self) -> None:
        frontier = self.open()
        connection = sqlite3.connect(self.path)
        connection.executescript("ALTER TABLE jobs RENAME TO jobs2;")
        with pytest.raises(FrontierError, match="cannot be used"):
            self.open()
        assert len(list(self.path.parent.glob("*.run-*"))) == 1
        connection.executescript("ALTER TABLE jobs2 RENAME TO jobs;")
        connection.close()
        assert frontier.counts(T0).added == 0

    def test_an_error_at_the_end_lets_go(self) -> None:
        """The run then counts as dead, and what it had leased comes back."""
        frontier = self.open()
        offer(frontier, "a/1")
        take(frontier)
        connection = sqlite3.connect(self.path)
        connection.execute("ALTER TABLE runs RENAME TO runs2")
        with pytest.raises(FrontierError, match="cannot be used"):
            frontier.close("shutdown", finished=False, now=T0)
        connection.execute("ALTER TABLE runs2 RENAME TO runs")
        connection.close()
        assert list(self.path.parent.glob("*.run-*")) == []
        again = self.open()
        assert (again.start, again.counts(T0).leased) == ("resumed", 0)


class TestLocked(Trouble):
    """Another program holds the file when a run opens it."""

    @pytest.mark.parametrize("kind", ["IMMEDIATE", "EXCLUSIVE"])
    def test_for_longer_than_it_waits(self, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open().close("shutdown", finished=False, now=T0)
        monkeypatch.setattr(database, "_PATIENCE", 0.05)
        other = sqlite3.connect(self.path, isolation_level=None)
        other.execute(f"BEGIN {kind}")
        with pytest.raises(FrontierBusy, match="locked by another program") as found:
            self.open()
        assert str(self.path) in str(found.value)
        other.execute("ROLLBACK")
        other.close()
        assert list(self.path.parent.glob("*.run-*")) == []
        assert self.open().start == "resumed"

    def test_by_a_program_that_lets_nobody_in(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open().close("shutdown", finished=False, now=T0)
        monkeypatch.setattr(database, "_PATIENCE", 0.05)
        other = sqlite3.connect(self.path, isolation_level=None)
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(FrontierBusy, match="locked by another program"):
            self.open()
        other.close()

    def test_before_it_is_a_frontier(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(database, "_PATIENCE", 0.05)
        other = sqlite3.connect(self.path, isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(FrontierBusy, match="locked by another program"):
            self.open()
        other.close()

    def test_for_a_moment(self) -> None:
        """Opening is patient: another run's transaction does not stop it."""
        frontier = self.open()
        code = "f = open_(); say(f.start, f.counts(T0).added)"
        with frontier.transaction():
            offer(frontier, "a/1")
            found: list[list[str]] = []
            thread = threading.Thread(target=lambda: found.append(run(code, self.path, T0)))
            thread.start()
            thread.join(1.5)
        thread.join(60)
        assert found == [["joined 1"]]


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions")
class TestPermissions(SQLiteStore):
    """Who may read and write."""

    NOBODY = """
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
try:
    f = open_()
    say(f.start)
except FocusError as error:
    say(type(error).__name__, error)
"""

    @pytest.fixture
    def folder(self) -> Iterator[Path]:
        """A folder that everybody can reach; pytest's own are private."""
        folder = Path(tempfile.mkdtemp())
        folder.chmod(0o755)
        yield folder
        folder.chmod(0o755)
        shutil.rmtree(folder)

    def test_the_file_is_private(self) -> None:
        frontier = self.open()
        offer(frontier, "a/1")
        files = list(self.path.parent.iterdir())
        assert len(files) == 4
        assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}

    def test_whatever_the_umask(self) -> None:
        before = os.umask(0)
        try:
            self.test_the_file_is_private()
        finally:
            os.umask(before)

    def test_a_mode_that_somebody_has_chosen_stays(self) -> None:
        self.open().close("shutdown", finished=False, now=T0)
        self.path.chmod(0o660)
        offer(self.open(), "a/1")
        assert stat.S_IMODE(self.path.stat().st_mode) == 0o660

    def test_a_read_only_folder(self, folder: Path) -> None:
        folder.chmod(0o555)
        lines = run(self.NOBODY, folder / "frontier.db", T0)
        assert len(lines) == 1
        assert lines[0].startswith(f"FrontierError The frontier {folder}/frontier.db cannot be ")
        assert list(folder.iterdir()) == []

    def test_a_read_only_folder_on_the_way(self, folder: Path) -> None:
        folder.chmod(0o555)
        lines = run(self.NOBODY, folder / "a" / "frontier.db", T0)
        assert lines[0].startswith(f"FrontierError The frontier {folder}/a/frontier.db cannot be ")

    @pytest.mark.parametrize("mode", [0o600, 0o444, 0o000])
    def test_a_read_only_file(self, folder: Path, mode: int) -> None:
        self.path = folder / "frontier.db"
        self.open().close("shutdown", finished=False, now=T0)
        folder.chmod(0o777)
        self.path.chmod(mode)
        before = contents(folder)
        lines = run(self.NOBODY, self.path, T0)
        assert len(lines) == 1
        assert lines[0].startswith(f"FrontierError The frontier {self.path} cannot be written")
        assert contents(folder) == before

    def test_a_file_that_may_be_written_in_a_folder_that_may_not(self, folder: Path) -> None:
        self.path = folder / "frontier.db"
        self.open().close("shutdown", finished=False, now=T0)
        self.path.chmod(0o666)
        folder.chmod(0o555)
        before = contents(folder)
        lines = run(self.NOBODY, self.path, T0)
        assert len(lines) == 1
        assert lines[0].startswith("FrontierError ")
        assert str(self.path) in lines[0]
        assert contents(folder) == before


class TestReadOnly(SQLiteStore):
    """Looking at a frontier that a crawl is using."""

    def test_while_it_is_used(self) -> None:
        frontier = self.open()
        offer(frontier, "a/1")
        take(frontier)
        before = contents(self.path.parent)
        look = Database(self.path, read_only=True)
        assert look.one("SELECT count(*) FROM urls") == (1,)
        with pytest.raises(FrontierError), look.transaction():
            look.execute("DELETE FROM urls")
        with frontier.transaction():
            offer(frontier, "a/2")
            assert look.one("SELECT count(*) FROM urls") == (1,)
        assert look.one("SELECT count(*) FROM urls") == (2,)
        look.close()
        assert contents(self.path.parent).keys() == before.keys()

    def test_nothing_there(self) -> None:
        with pytest.raises(FrontierError, match="There is no frontier at"):
            Database(self.path, read_only=True)
        assert not self.path.exists()

    def test_another_program_s(self) -> None:
        connection = sqlite3.connect(self.path)
        connection.execute("CREATE TABLE mine (x)")
        connection.close()
        with pytest.raises(FrontierError, match="another program"):
            Database(self.path, read_only=True)


class TestDurability(SQLiteStore):
    def test_the_default(self) -> None:
        frontier = self.open()
        assert frontier._db.one("PRAGMA journal_mode") == ("wal",)
        assert frontier._db.one("PRAGMA synchronous") == (1,)
        assert frontier._db.one("PRAGMA busy_timeout") == (0,)
        assert frontier._db.one("PRAGMA application_id") == (APPLICATION_ID,)

    def test_the_log_is_copied_back_in_the_background(self) -> None:
        """And emptied there: of a large one that takes long. Nothing at hand is forgotten."""
        frontier = self.open()
        offer(frontier, "a/1")
        for number in range(20):
            found = [candidate(f"a/{number}/{n}", request=b"x" * 2000) for n in range(500)]
            frontier.add(found, T0)
        wal = self.path.with_name(f"{self.path.name}-wal")
        patience = 100
        while wal.stat().st_size and (patience := patience - 1):
            time.sleep(0.1)
        assert patience
        assert self.path.stat().st_size > 16_000_000
        changes: list[bool] = []
        begun = frontier._db.begun
        frontier._db.begun = lambda changed: (changes.append(changed), begun(changed))[1]
        assert take_urls(frontier, 1) == ["a/1"]
        assert changes == [False]
        assert frontier.counts(T0).added == 10_001

    def test_who_cannot_wait_for_the_background(self) -> None:
        frontier = self.open()
        frontier.hurry(0.002)
        with frontier._db._lock:
            with pytest.raises(FrontierBusy, match="tidied"):
                offer(frontier, "a/1")
            with pytest.raises(FrontierBusy, match="tidied"):
                frontier.next_due(T0)
            with pytest.raises(FrontierBusy, match="tidied"):
                frontier.seen(b"a/1")
        assert offer(frontier, "a/1") == [True]

    def test_full(self) -> None:
        assert self.open(full=True)._db.one("PRAGMA synchronous") == (3,)

    def test_a_network_drive(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(database, "_on_network", lambda path: True)
        frontier = self.open()
        assert "cannot share a write-ahead log" in caplog.text
        assert frontier._db.one("PRAGMA journal_mode") == ("delete",)
        offer(frontier, "a/1")
        assert take_urls(frontier) == ["a/1"]

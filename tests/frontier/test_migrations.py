"""The schema: made by numbered steps, recorded, the same whoever makes it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from scrapy_focus.frontier import database
from scrapy_focus.frontier.database import APPLICATION_ID, Database, migrations

from .children import start
from .helpers import T0, SQLiteStore, offer, take_urls


def schema(path: Path) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(
            "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name"
        ).fetchall()
    finally:
        connection.close()


def pragma(path: Path, name: str) -> int:
    connection = sqlite3.connect(path)
    try:
        return int(connection.execute(f"PRAGMA {name}").fetchone()[0])
    finally:
        connection.close()


def test_the_steps_are_numbered_from_one() -> None:
    assert [number for number, _ in migrations()] == list(range(1, len(migrations()) + 1))


class TestMigrations(SQLiteStore):
    def test_a_new_file_has_the_last_version(self) -> None:
        self.open()
        assert pragma(self.path, "user_version") == migrations()[-1][0]
        assert pragma(self.path, "application_id") == APPLICATION_ID

    def test_opening_again_changes_no_schema(self) -> None:
        self.open().close("shutdown", finished=False, now=T0)
        before = schema(self.path), pragma(self.path, "schema_version")
        self.open().close("shutdown", finished=False, now=T0)
        assert (schema(self.path), pragma(self.path, "schema_version")) == before

    def test_the_tables_and_indexes_are_those_of_the_design(self) -> None:
        self.open()
        rows = schema(self.path)
        names = {(kind, name) for kind, name, *_ in rows if "autoindex" not in str(name)}
        assert names == {
            *(("table", name) for name in ("jobs", "runs", "reasons", "notes")),
            *(("table", name) for name in ("hosts", "queues", "urls")),
            *(
                ("index", name)
                for name in (
                    *("runs_open", "queues_open", "queues_cooling", "queues_pace"),
                    *("urls_key", "urls_ready", "urls_charged", "urls_deferred"),
                    *("urls_leased", "urls_owned"),
                )
            ),
        }

    def test_a_step_that_fails_leaves_the_file_as_it_was(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        frontier = self.open()
        offer(frontier, "a/1")
        frontier.close("shutdown", finished=False, now=T0)
        before, steps = schema(self.path), migrations()
        broken = "CREATE TABLE more (x); CREATE TABLE urls (y);"
        monkeypatch.setattr(database, "migrations", lambda: [*steps, (len(steps) + 1, broken)])
        for _ in range(2):
            with pytest.raises(database.FrontierError, match=self.path.name):
                self.open()
            assert schema(self.path) == before
            assert pragma(self.path, "user_version") == len(steps)
        fine = "CREATE TABLE more (x);\n-- a comment; with one\nINSERT INTO more VALUES (';');"
        monkeypatch.setattr(database, "migrations", lambda: [*steps, (len(steps) + 1, fine)])
        for _ in range(2):
            frontier = self.open()
            assert pragma(self.path, "user_version") == len(steps) + 1
            assert frontier._db.execute("SELECT x FROM more").fetchall() == [(";",)]
            frontier.close("shutdown", finished=False, now=T0)
        assert take_urls(self.open()) == ["a/1"]

    def test_a_step_that_was_cut_off_is_done_again(self) -> None:
        """Killed between making the file and recording the version: all or nothing."""
        self.path.touch()
        connection = sqlite3.connect(self.path, isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("CREATE TABLE jobs (x)")
        connection.close()
        self.open()
        assert pragma(self.path, "user_version") == migrations()[-1][0]

    def test_many_processes_make_it_at_once(self) -> None:
        code = """
say("ready")
sys.stdin.readline()
f = open_()
found = [candidate("a/1"), candidate(f"a/{os.getpid()}")]
say(f.start, f.generation, *patient(f.add, found, T0))
say("open")
sys.stdin.readline()
patient(lambda: f.close("shutdown", finished=False, now=T0))
"""
        children = [start(code, self.path, T0) for _ in range(8)]
        try:
            lines = []
            for child in children:
                assert child.stdout
                assert child.stdout.readline() == "ready\n"
            for child in children:
                assert child.stdin
                child.stdin.write("go\n")
                child.stdin.flush()
            for child in children:
                assert child.stdout
                assert child.stderr
                lines.append(child.stdout.readline())
                assert child.stdout.readline() == "open\n", child.stderr.read()
        finally:
            for child in children:
                _, err = child.communicate("end\n", timeout=60)
                assert child.returncode == 0, err
        assert sorted(line.split()[0] for line in lines) == ["joined"] * 7 + ["new"]
        assert {line.split()[1] for line in lines} == {"1"}
        assert sum(line.split()[2] == "True" for line in lines) == 1
        counts = self.open().counts(T0)
        assert counts.added == 9
        fresh = Database(self.path.with_name("fresh.db"))
        fresh.close()
        assert schema(self.path) == schema(self.path.with_name("fresh.db"))

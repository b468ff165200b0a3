"""Rows that no run has written like that: any value in any column of any table.

SQLite keeps what it is given, and damage of a file may look like data. A row that makes no sense
is set aside, counted and reported; it stops no crawl, and all others come out.
"""

from __future__ import annotations

import logging
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scrapy_focus.exceptions import FrontierBusy, FrontierError
from scrapy_focus.frontier import Counts
from scrapy_focus.frontier.contract import ASIDE
from scrapy_focus.frontier.sqlite import SQLiteFrontier

from .audit import contradictions
from .helpers import T0, Paces, SQLiteStore, abandon, candidate, end, offer, take

#: When what :meth:`Malformed.write` has written is resumed.
NOW = T0 + 100

#: Every column but the number of the row.
COLUMNS = {
    "urls": "job queue key copy url state ready_at run in_flight charged attempts rank depth"
    " priority score seed discovered parent request reason owner",
    "queues": "job host pace owner waiting ready pages retired head head_id tie aged at",
    "hosts": "name next_at delay held touched in_flight",
    "jobs": "name generation policy created finished reason cleared added leased done failed"
    " dropped pages bytes seconds",
    "runs": "job token pid started ended reason",
}
EACH = [(table, column) for table, columns in COLUMNS.items() for column in columns.split()]
#: No text, though SQLite takes it for one: a lone surrogate.
NO_TEXT = object()
VALUES = ["abc", NO_TEXT, b"\x00\xff", -1, 1.5, float("inf"), 2**63 - 1, None]


@contextmanager
def unchecked(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that no constraint holds back, as damage is held back by none."""
    schema = "UPDATE sqlite_master SET sql = ? WHERE name = ?"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        tables = connection.execute(
            "SELECT sql, name FROM sqlite_master WHERE type = 'table'"
        ).fetchall()
        connection.execute("PRAGMA writable_schema = ON")
        connection.executemany(schema, [(sql.replace("NOT NULL", ""), n) for sql, n in tables])
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        yield connection
        connection.execute("PRAGMA writable_schema = ON")
        connection.executemany(schema, tables)


def put(connection: sqlite3.Connection, table: str, column: str, row: int, value: Any) -> bool:
    """Whether a value could be put there: what an index keeps unique, it does."""
    new = "CAST(x'eda080' AS TEXT)" if value is NO_TEXT else "?"
    values = () if value is NO_TEXT else (value,)
    try:
        connection.execute(f"UPDATE {table} SET {column} = {new} WHERE id = ?", (*values, row))
    except sqlite3.IntegrityError:
        return False
    return True


def crawl(frontier: SQLiteFrontier, found: Counter[str]) -> Counts:
    """A whole run."""
    offer(frontier, "a/new", "b/new", "new/1", now=NOW)
    while leases := take(frontier, 3, now=NOW):
        found.update(lease.candidate.url for lease in leases)
        assert all(end(frontier, leases, now=NOW))
        assert found.total() < 200
    frontier.others(NOW)
    frontier.next_due(NOW)
    frontier.beat(1.0, NOW)
    while frontier.clear(100, NOW):
        pass
    counts = frontier.counts(NOW)
    frontier.close("finished", finished=True, now=NOW)
    return counts


class Malformed(SQLiteStore):
    def write(self) -> None:
        """A frontier with waiting and deferred rows, and a run that died with two leases."""
        frontier = self.open(paces=Paces())
        for host in "abc":
            offer(frontier, *(f"{host}/{n}" for n in range(4)))
        end(frontier, take(frontier, 2))
        take(frontier, 2)
        frontier.add([candidate("a/later", ready_at=T0 - 50, request=b"g", parent="a/1")], T0 - 100)
        frontier.count("refused", {"duplicate": 1})
        frontier.note("a", b"note")
        abandon(frontier)
        self.urls = Counter(
            url for (url,) in self.rows("SELECT url FROM urls WHERE state = 0 ORDER BY id")
        )

    def resume(self) -> SQLiteFrontier:
        return self.open(now=NOW)

    def crawl(self, found: Counter[str]) -> tuple[SQLiteFrontier, Counts]:
        """A run; and another one if it stumbles over a row, but not for ever."""
        for _ in range(3):
            frontier = self.resume()
            try:
                return frontier, crawl(frontier, found)
            except FrontierError:
                assert frontier.mended
                frontier.close("focus_frontier_error", finished=False, now=NOW)
        raise AssertionError("it stumbles for ever")


class TestEachColumn(Malformed):
    @pytest.mark.parametrize(("table", "column"), EACH)
    def test_any_value(self, table: str, column: str, caplog: pytest.LogCaptureFixture) -> None:
        self.write()
        before = self.path.read_bytes()
        for number, value in enumerate(VALUES):
            # One that waits in the middle, or one that is deferred.
            row = 1 if table != "urls" else 13 if number % 3 else 7
            self.path.write_bytes(before)
            with unchecked(self.path) as connection:
                if not put(connection, table, column, row, value):
                    continue
            caplog.clear()
            self.check(table, column, (table, column, row, value))
            messages = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
            assert all(str(self.path) in m and m.isprintable() for m in messages), messages
            frontier = self.resume()
            if frontier.start == "resumed" and table != "hosts" and not messages:
                assert frontier.counts(NOW).deferred, "something waits, and nobody says why"
            abandon(frontier)

    def check(self, table: str, column: str, told: tuple[Any, ...]) -> None:
        """Two runs hand out all that can be read; what is left is counted as unreadable."""
        found: Counter[str] = Counter()
        frontier, _ = self.crawl(found)
        if frontier.start in ("new", "restarted"):
            assert (table, column) in [("jobs", "name"), ("jobs", "finished")], told
            assert contradictions(self.path) == {}, told
            return
        frontier, counts = self.crawl(found)
        left = contradictions(self.path)
        if (table, column) == ("urls", "job"):
            # Of no job, it is not cleared away with its generation.
            left.pop("a row without a queue", None)
        assert left == {}, told
        lost = self.urls + Counter(["a/new", "b/new", "new/1"]) - found
        if table == "urls":
            # None but the row itself; and then it is said.
            assert lost.total() <= 1, told
            if lost and column not in ("state", "url", "ready_at", "owner"):
                assert (counts.waiting, counts.unreadable) == (1, 1), told
        elif lost:
            # A time that is absurd is a time.
            assert (table, type(told[3])) in [("hosts", int), ("hosts", float)], told
            assert all(url.startswith("a/") for url in lost), told
            assert lost.total() == counts.waiting, told


class TestSetAside(Malformed):
    """What becomes of a URL that cannot be read."""

    def spoil(self, sql: str) -> None:
        with unchecked(self.path) as connection:
            connection.execute(sql)

    def test_it_is_counted_reported_and_kept(self, caplog: pytest.LogCaptureFixture) -> None:
        self.write()
        self.spoil("UPDATE urls SET attempts = 'many' WHERE url IN ('b/1', 'c/2')")
        frontier = self.resume()
        found: Counter[str] = Counter()
        counts = crawl(frontier, found)
        assert (counts.waiting, counts.unreadable, frontier.aside) == (2, 2, 2)
        assert sorted(self.urls - found) == ["b/1", "c/2"]
        records = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
        assert len(records) == 2
        assert all("cannot be read and is set aside: row" in record for record in records)
        assert self.rows("SELECT url, attempts, ready_at FROM urls WHERE state = 0") == [
            ("b/1", "many", ASIDE),
            ("c/2", "many", ASIDE),
        ]
        assert contradictions(self.path) == {}
        # Put right by someone, they are handed out.
        self.spoil("UPDATE urls SET attempts = 0 WHERE attempts = 'many'")
        counts = crawl(self.resume(), found)
        assert (counts.unreadable, counts.waiting) == (0, 0)
        assert not self.urls - found

    @pytest.mark.parametrize("used", [False, True])
    def test_text_that_is_none_costs_no_other_row(self, *, used: bool) -> None:
        """Several rows are read at once, and SQLite reads none of them then."""
        self.write()
        self.spoil("UPDATE urls SET url = CAST(x'eda080' AS TEXT) WHERE url = 'b/2'")
        self.spoil("UPDATE urls SET parent = CAST(x'eda080' AS TEXT) WHERE url = 'c/1'")
        frontier = self.resume()
        found = Counter(lease.candidate.url for lease in take(frontier, 4 if used else 1, NOW))
        with frontier.transaction():
            offer(frontier, "new/2", now=NOW)
            found.update(lease.candidate.url for lease in take(frontier, 50, NOW))
        assert self.urls + Counter(["new/2"]) - found == Counter(["b/2", "c/1"])
        assert (frontier.aside, frontier.mended) == (2, False)
        frontier.close("shutdown", finished=False, now=NOW)
        assert contradictions(self.path) == {}

    def test_nothing_that_is_about_to_be_stored_is_lost(self) -> None:
        """Setting a row aside undoes nothing."""
        self.write()
        self.spoil("UPDATE urls SET url = x'00' WHERE url = 'b/2'")
        frontier = self.resume()
        with frontier.transaction(soon=True):
            offer(frontier, "new/2", now=NOW)
        with frontier.transaction(soon=True):
            assert len(take(frontier, 50, NOW)) == self.urls.total()
        assert frontier.aside == 1
        assert frontier.counts(NOW).added == 14

    def test_other_tables_in_the_middle_of_a_run(self) -> None:
        """Another program writes nonsense: the run stops, and the next one goes on."""
        frontier = self.open()
        offer(frontier, *(f"{host}/{n}" for host in "abc" for n in range(5)))
        leases = take(frontier, 2)
        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.execute("UPDATE urls SET score = x'00', rank = 'best' WHERE url = 'b/1'")
            connection.execute("UPDATE queues SET head = 'x', waiting = 'y' WHERE host = 'c'")
            connection.execute("UPDATE hosts SET touched = 'never', delay = 'long'")
            connection.execute("UPDATE jobs SET pages = 'few', leased = 'some'")
        assert all(end(frontier, leases))
        with pytest.raises(FrontierError, match=r"put right or set aside. Run again"):
            take(frontier, 20)
        assert (frontier.mended, frontier.aside) == (True, 1)
        frontier.close("focus_frontier_error", finished=False, now=T0)
        assert contradictions(self.path) == {}
        found: Counter[str] = Counter()
        frontier, counts = self.crawl(found)
        assert counts.done == found.total() + 2
        assert (counts.waiting, counts.unreadable) == (1, 1)

    @pytest.mark.parametrize("value", ["-5", "NULL"])
    def test_what_nothing_leads_to_is_found_in_the_end(self, value: str) -> None:
        """A row without a time is in no index that anybody asks."""
        self.write()
        self.spoil(f"UPDATE urls SET ready_at = {value} WHERE url = 'a/later'")
        found: Counter[str] = Counter()
        frontier = self.resume()
        assert crawl(frontier, found).waiting == 1
        assert (frontier.mended, frontier.aside) == (True, 1)
        # That was all that was wrong with it.
        assert crawl(self.resume(), found).waiting == 0
        assert not self.urls - found

    @pytest.mark.parametrize("value", ["'best'", "NULL", "x'00'"])
    def test_a_rank_that_is_none_stops_no_run(self, value: str) -> None:
        self.write()
        self.spoil(f"UPDATE urls SET rank = {value} WHERE url = 'b/2'")
        found: Counter[str] = Counter()
        assert crawl(self.resume(), found).waiting == 1
        assert crawl(self.resume(), found).unreadable == 1
        assert self.urls - found == Counter(["b/2"])

    @pytest.mark.parametrize("value", ["'text'", "7", "CAST(x'eda080' AS TEXT)"])
    def test_a_note_that_is_none_is_left_out(self, value: str) -> None:
        self.write()
        frontier = self.open("other")
        frontier.note("good", b"1")
        frontier.note("bad", b"2")
        self.spoil(f"UPDATE notes SET value = {value} WHERE name = 'bad'")
        if "CAST" not in value:
            assert frontier.noted("bad") is None
        frontier.close("shutdown", finished=False, now=T0)
        again = self.open("other")
        assert (again.noted("good"), again.noted("bad"), again.mended) == (b"1", None, True)
        assert self.rows("SELECT name FROM notes") == [("a",), ("good",)]

    @pytest.mark.parametrize(
        "change",
        [
            "jobs SET added = added + 3",
            "queues SET waiting = waiting + 1 WHERE id = 2",
            "queues SET head = NULL, head_id = NULL WHERE id = 2",
            "reasons SET reason = CAST(x'eda080' AS TEXT)",
            "notes SET name = x'00'",
            "urls SET run = 4711, ready_at = 1e9 WHERE url = 'b/3'",
        ],
    )
    def test_what_does_not_add_up_is_seen_at_once(self, change: str) -> None:
        self.write()
        self.spoil(f"UPDATE {change}")
        frontier = self.resume()
        assert (frontier.mended, frontier.aside) == (True, 0)
        found: Counter[str] = Counter()
        assert crawl(frontier, found).waiting == 0
        assert not self.urls - found

    def test_an_error_that_is_not_a_row_s(self) -> None:
        """It is one error, and nothing is set aside for it."""
        frontier = self.open()
        offer(frontier, "a/1")
        with pytest.raises(FrontierError, match="cannot be used: UnicodeEncodeError"):
            offer(frontier, "a/2", parent="\ud800")
        with pytest.raises(FrontierError, match="cannot be used: OverflowError"):
            offer(frontier, "a/3", rank=1 << 70)
        assert (frontier.aside, frontier.mended) == (0, False)
        assert offer(frontier, "a/4") == [True]

    def test_what_an_error_quotes_does_not_choose_its_meaning(self) -> None:
        """Whoever writes "locked" into a row would be waited for."""
        error = sqlite3.OperationalError("Could not decode to UTF-8 column 'x' with text 'locked'")
        with pytest.raises(FrontierError, match="cannot be used") as found:
            self.open()._db.fail(error)
        assert not isinstance(found.value, FrontierBusy)


SCALARS = st.one_of(
    st.none(),
    st.just(NO_TEXT),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=True),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.binary(max_size=20),
)
CHANGES = st.lists(st.tuples(st.sampled_from(EACH), st.integers(1, 14), SCALARS), max_size=12)


class TestManyAtOnce(Malformed):
    @settings(
        max_examples=40,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    @given(CHANGES)
    def test_any_values(self, changes: list[tuple[tuple[str, str], int, Any]]) -> None:
        """Two runs go through, whatever the rows say, and what they leave agrees with itself."""
        self.path = self.path.with_name(f"{len(self.opened)}.db")
        self.write()
        with unchecked(self.path) as connection:
            for (table, column), row, value in changes:
                put(connection, table, column, row, value)
        for _ in range(2):
            self.crawl(Counter())
        left = contradictions(self.path)
        if any(where == ("urls", "job") for where, _, _ in changes):
            # Of no job, it is not cleared away with its generation.
            left.pop("a row without a queue", None)
        assert left == {}

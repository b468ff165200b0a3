"""Rows that no run has written like that: any value in any column of any table.

SQLite keeps what it is given, and damage of a file may look like data. A row that makes no sense
is set aside, counted and reported; it stops no crawl, and all others come out.
"""

from __future__ import annotations

import logging
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scrapy_focus.exceptions import FrontierBusy, FrontierError
from scrapy_focus.frontier import Counts, Lease
from scrapy_focus.frontier.contract import ASIDE
from scrapy_focus.frontier.sqlite import SQLiteFrontier

from .audit import contradictions
from .helpers import T0, Paces, SQLiteStore, abandon, candidate, end, offer, take

_T = TypeVar("_T")

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
VALUES = ["abc", "", NO_TEXT, b"\x00\xff", -1, 1.5, float("inf"), -1e308, 2**63 - 1, None]

#: Columns of a host in which a number, however absurd, is a time: it waits until then.
TIMES = {"next_at", "delay", "held"}


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


def patient(call: Callable[..., _T], *args: Any, **kwargs: Any) -> _T:
    """Try again, as a crawl does, but not for ever."""
    for _ in range(20):
        try:
            return call(*args, **kwargs)
        except FrontierBusy:
            continue
    raise AssertionError("busy for ever")


def crawl(frontier: SQLiteFrontier, found: Counter[str]) -> Counts:
    """A whole run."""
    patient(offer, frontier, "a/new", "b/new", "new/1", now=NOW)
    while True:
        while leases := patient(take, frontier, 3, now=NOW):
            found.update(str(lease.candidate.url) for lease in leases)
            assert all(patient(end, frontier, leases, now=NOW))
            assert found.total() < 200
        patient(frontier.others, NOW)
        # As the scheduler asks before it ends.
        try:
            frontier.counts(NOW)
            break
        except FrontierBusy:
            continue
    patient(frontier.next_due, NOW)
    patient(frontier.beat, 1.0, NOW)
    while patient(frontier.clear, 100, NOW):
        pass
    counts = patient(frontier.counts, NOW)
    patient(frontier.close, "finished", finished=True, now=NOW)
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
        abandon(frontier)
        self.urls = Counter(
            url for (url,) in self.rows("SELECT url FROM urls WHERE state = 0 ORDER BY id")
        )

    def resume(self) -> SQLiteFrontier:
        return self.open(now=NOW)


class TestEachColumn(Malformed):
    @pytest.mark.parametrize(("table", "column"), EACH)
    def test_any_value(self, table: str, column: str, caplog: pytest.LogCaptureFixture) -> None:
        self.write()
        before = self.path.read_bytes()
        # One that waits in the middle, and one that is deferred.
        rows = (7, 13) if table == "urls" else (1,)
        for row in rows:
            for value in VALUES:
                self.path.write_bytes(before)
                with unchecked(self.path) as connection:
                    if not put(connection, table, column, row, value):
                        continue
                caplog.clear()
                self.check(table, column, row, value, caplog)

    def check(
        self,
        table: str,
        column: str,
        row: int,
        value: Any,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        told = (table, column, row, value)
        found: Counter[str] = Counter()
        frontier = self.resume()
        counts = crawl(frontier, found)
        new = Counter(["a/new", "b/new", "new/1"])
        assert contradictions(self.path) == {}, told
        if frontier.start in ("new", "restarted"):
            assert (table, column) in [("jobs", "name"), ("jobs", "finished")], told
            assert found == new, told
            return
        expected = self.urls + new
        lost = expected - found
        assert counts.waiting == counts.added - counts.done - counts.failed - counts.dropped, told
        if table == "urls":
            # None but the row itself; and then it is said.
            assert lost.total() <= 1, told
            assert counts.unreadable >= frontier.aside, told
            if lost and column not in ("state", "url", "ready_at", "owner"):
                assert (lost.total(), counts.unreadable) == (counts.waiting, 1), told
        elif table == "hosts" and column in TIMES and isinstance(value, (int, float)):
            assert all(url.startswith("a/") for url in lost), told
            assert lost.total() == counts.waiting, told
        else:
            assert not lost, told
            assert counts.waiting == 0, told
        if frontier.repaired:
            (message,) = {r.getMessage() for r in caplog.records if r.levelno == logging.ERROR}
            assert str(self.path) in message
            assert message.isprintable()
        # It cannot be read by the next run either, which says so again and loses nothing.
        again: Counter[str] = Counter()
        if counts.unreadable:
            crawl(self.resume(), again)
            assert contradictions(self.path) == {}, told


class TestSetAside(Malformed):
    """What becomes of a URL that cannot be read."""

    def spoil(self, sql: str) -> None:
        with unchecked(self.path) as connection:
            connection.execute(sql)

    def test_it_is_counted_reported_and_kept(self, caplog: pytest.LogCaptureFixture) -> None:
        self.write()
        self.spoil("UPDATE urls SET attempts = 'many' WHERE url IN ('b/1', 'c/2')")
        frontier = self.resume()
        counts = crawl(frontier, Counter())
        assert (counts.waiting, counts.unreadable, frontier.aside) == (2, 2, 2)
        (record,) = [r for r in caplog.records if r.levelno == logging.ERROR]
        assert "2 URLs cannot be read and are set aside" in record.getMessage()
        assert self.rows("SELECT url, attempts, ready_at FROM urls WHERE state = 0") == [
            ("b/1", "many", ASIDE),
            ("c/2", "many", ASIDE),
        ]
        # Put right by someone, they are handed out.
        self.spoil("UPDATE urls SET attempts = 0 WHERE attempts = 'many'")
        found: Counter[str] = Counter()
        counts = crawl(self.resume(), found)
        assert (counts.unreadable, counts.waiting) == (0, 0)
        assert found.keys() >= {"b/1", "c/2"}

    def test_in_the_middle_of_a_run(self) -> None:
        """Another program writes nonsense; whoever stumbles over it goes on."""
        frontier = self.open()
        offer(frontier, *(f"{host}/{n}" for host in "abc" for n in range(5)))
        leases = take(frontier, 2)
        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.execute("UPDATE urls SET score = x'00', rank = 'best' WHERE url = 'b/1'")
            connection.execute("UPDATE queues SET head = 'x', waiting = 'y' WHERE host = 'c'")
            connection.execute("UPDATE hosts SET touched = 'never', delay = 'long'")
            connection.execute("UPDATE jobs SET pages = 'few', leased = 'some'")
        assert all(patient(end, frontier, leases))
        found: Counter[str] = Counter()
        counts = crawl(frontier, found)
        assert counts.done == found.total() + 2
        assert (counts.waiting, counts.unreadable) == (1, 1)
        assert contradictions(self.path) == {}

    def test_in_a_transaction_of_several_calls(self) -> None:
        """As a crawl's are: all of it is undone, and can be done again."""
        self.write()
        self.spoil("UPDATE urls SET url = CAST(x'eda080' AS TEXT) WHERE url = 'a/2'")
        frontier = self.resume()

        def write() -> list[Lease]:
            with frontier.transaction():
                offer(frontier, "new/2")
                return take(frontier, 20, now=NOW)

        with pytest.raises(FrontierBusy, match="set aside"):
            write()
        leases = write()
        assert {lease.candidate.url for lease in leases} == {*self.urls, "new/2"} - {"a/2"}
        assert frontier.counts(NOW).unreadable == 1

    def test_what_nothing_leads_to_is_found_at_the_start(self) -> None:
        """A row with no time and one of no run are in no index that anybody asks."""
        self.write()
        self.spoil("UPDATE urls SET ready_at = -5 WHERE url = 'b/1'")
        self.spoil("UPDATE urls SET ready_at = NULL WHERE url = 'b/2'")
        self.spoil("UPDATE urls SET run = 4711, ready_at = 1e9 WHERE url = 'b/3'")
        frontier = self.resume()
        assert frontier.aside == 2
        found: Counter[str] = Counter()
        counts = crawl(frontier, found)
        assert counts.unreadable == counts.waiting == 2
        assert "b/3" in found

    def test_an_error_that_is_not_a_row_s(self) -> None:
        """It is one error, and nothing is set aside for it."""
        frontier = self.open()
        offer(frontier, "a/1")
        with pytest.raises(FrontierError, match="cannot be used: UnicodeEncodeError"):
            offer(frontier, "a/2", parent="\ud800")
        with pytest.raises(FrontierError, match="cannot be used: OverflowError"):
            offer(frontier, "a/3", rank=1 << 70)
        assert (frontier.aside, frontier.repaired) == (0, 0)
        assert offer(frontier, "a/4") == [True]

    def test_what_an_error_quotes_does_not_choose_its_meaning(self) -> None:
        """SQLite quotes the text that it cannot read: "locked" would have been waited for."""
        self.write()
        for text in ("locked", "busy", "full", "malformed"):
            self.spoil(f"UPDATE urls SET url = CAST(x'eda080' || '{text}' AS TEXT) WHERE id = 7")
            found: Counter[str] = Counter()
            assert crawl(self.resume(), found).unreadable == 1


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
        max_examples=80,
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
            crawl(self.resume(), Counter())
        left = contradictions(self.path)
        if any(where == ("urls", "job") for where, _, _ in changes):
            # Of no job, it is not cleared away with its generation.
            left.pop("a row without a queue", None)
        assert left == {}

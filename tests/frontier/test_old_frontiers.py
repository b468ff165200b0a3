"""A frontier that any released version has written opens with today's code, and goes on."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest
from scrapy import Request, Spider

from scrapy_focus.frontier import Counts
from scrapy_focus.frontier.database import Database, migrations
from scrapy_focus.frontier.report import find_jobs, look_at, read_jobs
from scrapy_focus.frontier.sqlite import SQLiteFrontier
from scrapy_focus.requests import RequestStorage

from .audit import contradictions
from .fixtures.make import THEN
from .helpers import SQLiteStore, drain
from .test_migrations import pragma, schema

FIXTURES = sorted((Path(__file__).parent / "fixtures").glob("frontier-*.db"))
LATER = THEN + 3600.0


def test_there_is_one_of_each_schema() -> None:
    """A step that is released takes a frontier with it that was written before the next one."""
    numbers = [int(path.stem.removeprefix("frontier-")) for path in FIXTURES]
    assert numbers == [number for number, _ in migrations()]
    assert [pragma(path, "user_version") for path in FIXTURES] == numbers
    assert all(path.stat().st_size < 100_000 for path in FIXTURES)


@pytest.mark.parametrize("old", FIXTURES, ids=lambda path: path.stem)
class TestOldFrontiers(SQLiteStore):
    @pytest.fixture(autouse=True)
    def copy(self, old: Path, prepare: None) -> None:
        shutil.copy(old, self.path)

    def reopened(self, job: str = "news") -> SQLiteFrontier:
        return self.open(job, now=LATER, policy="of.another.Policy")

    def test_its_schema_becomes_that_of_a_new_one(self) -> None:
        self.reopened()
        new = self.path.with_name("new.db")
        Database(new).close()
        assert schema(self.path) == schema(new)
        assert pragma(self.path, "user_version") == pragma(new, "user_version")
        assert contradictions(self.path) == {}

    def test_a_killed_run_is_resumed(self) -> None:
        frontier = self.reopened()
        assert (frontier.start, frontier.generation) == ("resumed", 2)
        assert frontier.policy_before == "of.an.OldPolicy"
        counts = frontier.counts(LATER)
        # A row that lived no longer than its run is gone; three leases have come back.
        assert counts == Counts(
            waiting=15,
            done=1,
            failed=1,
            dropped=1,
            deferred=3,
            added=18,
            pages=8,
            bytes=13000,
            seconds=12.5,
            reasons={
                "failed": {"robots": 1},
                "dropped": {"robots": 1},
                "refused": {"duplicate": 7, "offsite": 2},
            },
            hosts={"ready": 2, "held": 1},
        )
        assert frontier._db.one("SELECT delay FROM hosts WHERE name = 'a.test'") == (2.5,)

    def test_all_that_waits_is_handed_out(self) -> None:
        self.paces.groups["held.test"] = (0.0, 1)
        frontier = self.reopened()
        found: Counter[str] = Counter()
        now = LATER
        while (due := frontier.next_due(now)) is not None and due < now + 60:
            found += Counter(drain(frontier, now := max(now, due)))
        names = ["waiting-0", "waiting-1", "waiting-2", "due-since", "post", "no-depth", "retried"]
        names += ["leased-1", "leased-2", "unreadable", "copied", "copied"]
        assert found == Counter(
            [f"http://a.test/{name}" for name in names] + ["http://slot.test/1"]
        )
        # What waits for a time that has not come, and whose host is held.
        assert frontier.next_due(now) == THEN + 1e9
        left = Counter(drain(frontier, THEN + 2e9))
        assert left.keys() == {"http://a.test/deferred", "http://held.test/1"}
        frontier.close("finished", finished=True, now=now)
        assert contradictions(self.path) == {}
        assert self.reopened().start == "restarted"

    def test_its_requests_are_read(self) -> None:
        """By what is stored of them: a blob, a letter, or nothing."""
        frontier = self.reopened()
        storage = RequestStorage(Parsing(name="news"))
        requests: dict[str, Request] = {}
        now = LATER
        while leases := frontier.lease(1, now, now + 600):
            candidate = leases[0].candidate
            requests[candidate.url.rpartition("/")[2]] = storage.unpack(
                candidate.request,
                url=candidate.url,
                depth=candidate.depth,
                priority=candidate.priority,
            )
            now += 10
        for name, priority in (("post", 3), ("retried", -1)):
            request = requests[name]
            assert (request.method, request.body, request.priority) == ("POST", b"a=1", priority)
            assert request.headers.getlist("X-Test") == [b"1", b"2"]
            assert request.callback == storage._methods.method("parse_item")
            assert request.cb_kwargs["when"].isoformat() == "2023-11-14T22:13:20"
            assert request.meta == {"depth": 0, "kind": ("a", 1)}
        assert requests["copied"].dont_filter
        assert requests["copied"].meta == {"is_start_request": True}
        assert requests["no-depth"].meta == {}
        assert requests["waiting-2"].meta == {"depth": 2}

    def test_what_it_knows_is_known(self) -> None:
        frontier = self.reopened()
        for name in ("done", "failed", "dropped", "copied", "waiting-1"):
            assert frontier.seen(f"http://a.test/{name}".encode())
        assert not frontier.seen(b"http://a.test/volatile")
        assert not frontier.seen(b"http://old.test/1")  # of an old generation

    def test_its_other_job(self) -> None:
        frontier = self.reopened("other url=http://b.test/")
        assert frontier.start == "resumed"
        assert drain(frontier, LATER) == [f"http://b.test/{n}" for n in (2, 1, 0)]

    def test_its_old_generation_is_cleared_away(self) -> None:
        frontier = self.reopened()
        while frontier.clear(1, LATER):
            pass
        assert self.rows("SELECT generation, cleared FROM jobs WHERE name = 'news'") == [
            (1, 1),
            (2, 0),
        ]
        assert self.rows("SELECT count(*) FROM urls WHERE job = 1") == [(0,)]
        assert contradictions(self.path) == {}

    def test_the_command_reads_it(self) -> None:
        """As it is, if the schema has stayed; else once a run has opened it."""
        if pragma(self.path, "user_version") != migrations()[-1][0]:
            self.reopened().close("shutdown", finished=False, now=LATER)
        with look_at(self.path) as db:
            reports = read_jobs(db, find_jobs(db), LATER)
        assert {report.job.name: report.state for report in reports} == {
            "news": "interrupted",
            "other url=http://b.test/": "interrupted",
        }


class Parsing(Spider):
    """Has the callback that the stored requests name."""

    def parse_item(self, response: object) -> None:
        raise AssertionError("never called")

"""What a frontier must be, told by the calls that were made (see :mod:`.lives`) and by nothing
else; and what its file says that it is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from scrapy_focus.frontier import Ending, Frontier, Outcome
from scrapy_focus.frontier.sqlite import SQLiteFrontier

from .audit import contradictions, look_into

#: Later than every time in a frontier of these tests.
_LATER = 1e9


@dataclass
class Calls:
    """What a life has noted of its calls."""

    #: Those that have returned, in their order.
    returned: list[dict[str, Any]] = field(default_factory=list)
    #: How many were made; one more if it was killed in the last.
    made: int = 0
    #: The time of the last.
    now: float = 0.0

    @classmethod
    def read(cls, text: str) -> Calls:
        self = cls()
        for line in text.splitlines():
            noted = json.loads(line)
            if isinstance(noted, float):
                self.made, self.now = self.made + 1, noted
            else:
                self.returned.append(noted)
        return self

    @property
    def lasting(self) -> int:
        """How many calls, the last of them being one whose effect must last, have returned."""
        numbers = (n for n, call in enumerate(self.returned, 1) if call["lasting"])
        return max(numbers, default=0)


@dataclass
class Job:
    """The latest generation of a job."""

    generation: int = 0
    finished: bool = False
    #: How each URL has ended, how often it was leased, whether it was charged.
    urls: dict[str, list[Any]] = field(default_factory=dict)
    #: By kind and reason.
    reasons: dict[str, int] = field(default_factory=dict)
    bytes: int = 0
    seconds: float = 0.0

    def count(self, kind: str, reason: str, number: int) -> None:
        name = f"{kind} {reason}"
        self.reasons[name] = self.reasons.get(name, 0) + number


class Books:
    """Follows the calls, each of which is a few events."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        #: ``next_at``, end of the hold, and delay.
        self.hosts: dict[str, list[float]] = {}

    def follow(self, call: dict[str, Any]) -> None:
        for name, *values in call["events"]:
            if name == "opened" and values != [self._job(call).generation]:
                self.jobs[call["job"]] = Job(*values)
            getattr(self, f"_{name}")(self._job(call), *values)

    def _job(self, call: dict[str, Any]) -> Job:
        return self.jobs.get(call["job"]) or Job()

    def _host(self, group: str) -> list[float]:
        return self.hosts.setdefault(group, [0.0, 0.0, 0.0])

    def _opened(self, job: Job, generation: int) -> None:
        job.finished = False

    def _closed(self, job: Job, finished: bool) -> None:
        job.finished = finished

    def _added(self, job: Job, url: str) -> None:
        assert url not in job.urls
        job.urls[url] = ["waiting", 0, False]

    def _leased(self, job: Job, url: str, group: str, turn: float, prior: float) -> None:
        row = job.urls[url]
        assert row[0] == "waiting", "what is over is not handed out"
        row[1:] = [row[1] + 1, True]
        host = self._host(group)
        assert turn >= prior == host[0], "a turn moves forward"
        host[0] = turn

    def _unused(self, job: Job, url: str, group: str, turn: float, prior: float) -> None:
        job.urls[url][2] = False
        host = self._host(group)
        host[0] = prior if host[0] == turn else host[0]

    def _over(self, job: Job, url: str, ending: str, reason: str) -> None:
        job.urls[url][0] = ending
        if ending != "done":
            job.count(ending, reason, 1)

    def _shed(self, job: Job, url: str) -> None:
        assert job.urls.pop(url)[0] == "waiting"
        job.count("dropped", "shed", 1)

    def _used(self, job: Job, size: int, seconds: float) -> None:
        job.bytes += size
        job.seconds += seconds

    def _paced(self, job: Job, group: str, at: float) -> None:
        host = self._host(group)
        host[0] = max(host[0], at)

    def _delay(self, job: Job, group: str, delay: float) -> None:
        self._host(group)[2] = delay

    def _held(self, job: Job, group: str, until: float) -> None:
        host = self._host(group)
        host[1] = max(host[1], until)

    def _refused(self, job: Job, reason: str, number: int) -> None:
        job.count("refused", reason, number)

    def state(self, now: float) -> dict[str, Any]:
        """All of it, to be compared. Hosts may be forgotten an hour after their time."""
        recent = {name: host for name, host in self.hosts.items() if max(host[:2]) > now - 3600}
        hosts = {name: list(host) for name, host in recent.items()}
        return {"jobs": {name: asdict(job) for name, job in self.jobs.items()}, "hosts": hosts}


def states(calls: Sequence[dict[str, Any]], first: int, now: float) -> list[dict[str, Any]]:
    """What the frontier may be after *first* calls, after one more, and so on to the last."""
    books, found = Books(), []
    for number, call in enumerate([None, *calls]):
        if call:
            books.follow(call)
        if number >= first:
            found.append(books.state(now))
    return found


_JOBS = "SELECT name, max(generation), id, finished, pages, bytes, seconds FROM jobs GROUP BY name"
# Without those that go with their run.
_URLS = "SELECT url, state, attempts, charged FROM urls WHERE job = ? AND owner IS NULL"
_STATES = ("waiting", "done", "failed", "dropped")


def read(path: Path, now: float) -> dict[str, Any]:
    """What the file of a frontier says that it is."""
    books = Books()
    if not path.exists():
        return books.state(now)
    with look_into(path) as connection:
        if not connection.execute("PRAGMA user_version").fetchone()[0]:
            return books.state(now)  # nobody has begun
        for name, generation, number, finished, pages, size, seconds in connection.execute(_JOBS):
            books.jobs[name] = job = Job(generation, finished is not None)
            job.bytes, job.seconds = size, seconds
            for url, state, attempts, charged in connection.execute(_URLS, (number,)):
                job.urls[url] = [_STATES[state], attempts, bool(charged)]
            assert pages == sum(charged for _, _, charged in job.urls.values())
            for kind, reason, count in connection.execute(
                "SELECT kind, reason, count FROM reasons WHERE job = ?", (number,)
            ):
                job.count(kind, reason, count)
        for group, *host in connection.execute("SELECT name, next_at, held, delay FROM hosts"):
            books.hosts[group] = host
    return books.state(now)


def read_all(path: Path) -> dict[str, list[Any]]:
    """Every row of every table."""
    if not path.exists():
        return {}
    with look_into(path) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        names = ["sqlite_master", "pragma_user_version", *(name for (name,) in tables)]
        return {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in names}


_COUNTERS = """
    SELECT name, added, leased, done, failed, dropped FROM jobs AS j
    WHERE generation = (SELECT max(generation) FROM jobs WHERE name = j.name)"""
# What was shed has left no row.
_ROWS = """
    SELECT name, count(url) + shed, ifnull(sum(run IS NOT NULL), 0), ifnull(sum(state = 1), 0),
    ifnull(sum(state = 2), 0), ifnull(sum(state = 3), 0) + shed
    FROM (SELECT *, ifnull((SELECT count FROM reasons WHERE job = id AND kind = 'dropped'
    AND reason = 'shed'), 0) AS shed FROM jobs) AS j LEFT JOIN urls AS u ON u.job = j.id
    WHERE generation = (SELECT max(generation) FROM jobs WHERE name = j.name)
    GROUP BY j.id ORDER BY j.id"""


def assert_balanced(path: Path) -> None:
    """Rows added = waiting + leased + done + failed + dropped: each counter says what the
    rows say."""
    with look_into(path) as connection:
        counters = connection.execute(f"{_COUNTERS} ORDER BY id").fetchall()
        assert counters == connection.execute(_ROWS).fetchall()


def drain(frontier: Frontier) -> list[str]:
    """Finish a job; what was handed out."""
    found, now = [], _LATER
    while True:
        leases = frontier.lease(1000, now, now + 3600)
        if not leases:
            due = frontier.next_due(now)
            if due is None:
                break
            now = max(now, due)
        found += [lease.candidate.url for lease in leases]
        frontier.settle([Outcome(lease, Ending.DONE) for lease in leases], [], now)
    frontier.close("finished", finished=True, now=now)
    return found


def waiting(state: dict[str, Any], job: str) -> list[str]:
    """The URLs that a run of a job must be given, in one of the states."""
    urls = state["jobs"].get(job, {"urls": {}})["urls"]
    return sorted(url for url, (ending, *_) in urls.items() if ending == "waiting")


def check(path: Path, possible: list[dict[str, Any]], now: float) -> dict[str, Any]:
    """The file is in one of these states, its books add up, and runs that resume its jobs are
    given what waits and nothing else.

    :return: the state
    """
    found = read(path, now)
    assert found in possible
    if found["jobs"]:
        assert not contradictions(path)
        assert_balanced(path)
    for job in found["jobs"] or ["job"]:
        frontier = SQLiteFrontier(path, job, pace=lambda _: (0.0, 0), now=_LATER, resume=True)
        assert sorted(drain(frontier)) == waiting(found, job)
    assert not contradictions(path)
    assert_balanced(path)
    assert not list(path.parent.glob("*.run-*")), "nobody lives"
    return found

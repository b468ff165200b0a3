"""What a frontier looks like from outside: its jobs and their counts, while crawls use it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from scrapy_focus.exceptions import FrontierError
from scrapy_focus.frontier.contract import ASIDE, Counts
from scrapy_focus.frontier.database import Database, migrations
from scrapy_focus.frontier.runs import is_alive
from scrapy_focus.frontier.shaping import as_number, as_text, as_whole, or_none

# One row a generation, its reason that of its latest run.
_JOBS = (
    "SELECT j.id, j.name, j.generation, j.policy, j.created, j.finished, j.cleared, r.reason,"
    " j.seen, j.gone_done + j.gone_failed + j.gone_dropped"
    " FROM jobs AS j LEFT JOIN (SELECT job, max(id) AS id, reason FROM runs GROUP BY job) AS r"
    " ON r.job = j.id ORDER BY r.id DESC, j.id DESC"
)
# Served by runs_open.
_OPEN_RUNS = "SELECT id, token FROM runs WHERE ended IS NULL"
_RUNS = "SELECT id, pid, started FROM runs WHERE job = ? AND ended IS NULL ORDER BY id"
# Served by urls_leased.
_LEASED = "SELECT count(*) FROM urls WHERE run = ?"
# One row a queue, however many URLs it has. ``at`` of a job that nobody is at is old, so
# that only a host with requests in flight is busy, and only while a run is at the job. The
# last column is of the row with the least ``opens``: the host that opens first.
_HOSTS = (
    "SELECT state, count(DISTINCT host), sum(deferred), min(opens), host FROM (SELECT q.host,"
    " q.waiting - q.ready AS deferred,"
    " CASE WHEN q.head IS NOT NULL THEN max(h.next_at, h.held) END AS opens,"
    " CASE WHEN q.retired AND q.head IS NULL THEN CASE q.share"
    " WHEN '' THEN 'retired' ELSE 'capped' END"
    " WHEN :live AND q.at = 1e18 AND h.in_flight > 0 THEN 'busy' WHEN h.held > :now THEN 'held'"
    " WHEN h.next_at > :now THEN 'cooling' ELSE 'ready' END AS state"
    " FROM queues AS q CROSS JOIN hosts AS h ON h.id = q.pace"
    " WHERE q.job = :job AND q.waiting > 0) GROUP BY state"
)
# Served by urls_deferred.
_UNREADABLE = (
    "SELECT count(*) FROM urls WHERE job = ? AND charged IN (0, 1) AND state = 0"
    " AND ready_at > 0 AND ready_at >= 1e17 AND run IS NULL"
)
# Served by urls_deferred, in its order. What a host defers that has spent its share is due
# only if the budget has paid for it; so many are passed over, and no more.
_FIRST_DEFERRED = (
    "SELECT max(ready_at, opens), host FROM (SELECT u.ready_at, max(h.next_at, h.held) AS opens,"
    " q.host, q.retired FROM urls AS u CROSS JOIN queues AS q ON q.id = u.queue"
    " CROSS JOIN hosts AS h ON h.id = q.pace WHERE u.job = ?1 AND u.charged = ?2 AND u.state = 0"
    " AND u.ready_at > 0 AND u.ready_at < 1e17 AND u.run IS NULL ORDER BY u.ready_at LIMIT 1000)"
    " WHERE ?2 OR NOT retired LIMIT 1"
)

#: What the next URL of a job waits for.
WaitsFor = Literal[
    "ready",  # nothing: its host may be touched now
    "cooling",  # the host's turn
    "held",  # the end of the host's hold
    "deferred",  # a time of its own
    "lost",  # a start: a run that died had leased it
    "busy",  # the end of a request to its host
    "leased",  # nothing waits, but what is leased may bring more
    "retired",  # a larger share of the pages for its host
    "capped",  # the same for its path
    "unreadable",  # a run that can read it
]

_OPENING: dict[str, WaitsFor] = {"ready": "ready", "cooling": "cooling", "held": "held"}


class Job(NamedTuple):
    """One generation of a job. Times in seconds, Unix time."""

    id: int
    name: str
    generation: int
    policy: str
    created: float
    finished: float | None
    #: 1: its rows are gone, a later generation having replaced it.
    cleared: int
    #: How its last run ended.
    last_reason: str | None
    #: The seen set that it is run with; ``None``: its rows.
    seen: str | None = None
    #: How many rows are gone of those that are counted, being over.
    gone: int = 0
    #: No later generation has replaced it.
    latest: bool = True


class Run(NamedTuple):
    """A run that has not ended, or whose process has died."""

    pid: int
    started: float
    alive: bool
    #: How many URLs it holds.
    leased: int


class Due(NamedTuple):
    """When the next URL of a job can be handed out, and what it waits for."""

    #: Unix time in seconds, *now* for at once; ``None`` if no time is known.
    at: float | None = None
    #: ``None`` if nothing is left.
    waits_for: WaitsFor | None = None
    host: str | None = None


class _Hosts(NamedTuple):
    """The hosts of a job that are in one state."""

    state: str
    number: int
    deferred: int
    #: When the first of them that has something ready opens.
    opens: float | None
    first: str


@dataclass(frozen=True, slots=True)
class JobReport:
    """How a job stands."""

    job: Job
    runs: list[Run]
    counts: Counts
    due: Due

    @property
    def running(self) -> bool:
        """Whether a live process is at it."""
        return any(run.alive for run in self.runs)

    @property
    def state(self) -> Literal["running", "finished", "interrupted", "ended"]:
        """``interrupted`` by a signal or a crash; ``ended`` for another reason."""
        if self.running:
            return "running"
        if self.job.finished is not None:
            return "finished"
        return "interrupted" if self.reason in (None, "killed", "shutdown") else "ended"

    @property
    def reason(self) -> str | None:
        """How its last run ended; ``None`` for a job that is running."""
        if self.running:
            return None
        return "killed" if self.runs else self.job.last_reason

    @property
    def lost(self) -> int:
        """How many URLs dead runs hold. The next start takes them back."""
        return sum(run.leased for run in self.runs if not run.alive)


@contextmanager
def look_at(path: Path) -> Iterator[Database]:
    """Open a frontier for reading. It makes nothing, and no crawl waits for it.

    :raises scrapy_focus.exceptions.FrontierError: if there is none that can be read
    """
    log = Path(f"{path}-wal")
    tidy = not log.exists()
    try:
        with closing(_open(path)) as db:
            _check(db)
            yield db
            # A crawl that ended meanwhile has left its log to the last one out.
            tidy = tidy or not db.execute(_OPEN_RUNS).fetchall()
    finally:
        if tidy and log.exists():
            _tidy(path)


def _open(path: Path) -> Database:
    try:
        return Database(path, read_only=True)
    except OSError as error:
        raise FrontierError(f"The frontier {path} cannot be read: {error.strerror}.") from error
    except FrontierError as error:
        cause = str(error.__cause__)
        if "readonly" in cause and Path(f"{path}-journal").exists():
            raise FrontierError(
                f"The frontier {path} was left in the middle of a write; the next crawl puts it "
                "right."
            ) from error.__cause__
        if "readonly" in cause and not Path(f"{path}-wal").exists():
            # In a folder that takes no -shm file; without a -wal file nobody is at it.
            return Database(path, read_only=True, immutable=True)
        if "readonly" in cause or "unable to open" in cause:
            raise FrontierError(
                f"The frontier {path} cannot be read: that takes read access to the file and to "
                "those beside it (-wal, -shm), or a copy of all of them in a folder that can be "
                "written."
            ) from error.__cause__
        raise


def _check(db: Database) -> None:
    with db.reading():
        version, newest = db.one("PRAGMA user_version")[0], migrations()[-1][0]
    if not version:
        raise FrontierError(f"There is no frontier in {db.path} yet: the file is empty.")
    if version < newest:
        raise FrontierError(
            f"The frontier {db.path} has schema version {version}, and {newest} is needed to look "
            "into it: the next crawl brings it there."
        )


def _tidy(path: Path) -> None:
    """Even a reader makes a -wal and a -shm file where there are none, and leaves them. The
    last connection that may write removes them, and no other one does."""
    with suppress(sqlite3.Error):
        address = f"{path.absolute().as_uri()}?mode=rw"
        with closing(sqlite3.connect(address, uri=True, timeout=0)) as connection:
            connection.execute("SELECT count(*) FROM sqlite_master")


def find_jobs(db: Database, *, old: bool = False) -> list[Job]:
    """The jobs of a frontier, what was run last first.

    :param old: also generations that a later one has replaced
    """
    with db.reading():
        jobs = [_shape(Job(*row)) for row in db.execute(_JOBS).fetchall()]
    newest: dict[str, int] = {}
    for job in jobs:
        newest[job.name] = max(job.generation, newest.get(job.name, 0))
    jobs = [job._replace(latest=job.generation == newest[job.name]) for job in jobs]
    return [job for job in jobs if old or job.latest]


def _shape(job: Job) -> Job:
    """A job, whatever its columns hold."""
    return job._replace(
        name=as_text(job.name),
        generation=as_whole(job.generation),
        policy=as_text(job.policy),
        created=as_number(job.created, 0.0),
        finished=or_none(job.finished, as_number),
        last_reason=or_none(job.last_reason, as_text),
        seen=or_none(job.seen, as_text),
        gone=as_whole(job.gone),
    )


def read_jobs(db: Database, jobs: Iterable[Job], now: float) -> list[JobReport]:
    """How these jobs stand, all at one moment."""
    with db.reading():
        # Before the snapshot: a run stores that it has ended, then lets go of its lock.
        runs = db.execute(_OPEN_RUNS).fetchall()
        dead = {number for number, token in runs if not _is_alive(db.path, token)}
    with db.snapshot():
        known = {job.id: job for job in find_jobs(db, old=True)}
        return [_read_job(db, known[job.id], dead, now) for job in jobs]


def _is_alive(path: Path, token: object) -> bool:
    try:
        return is_alive(path, as_text(token))
    except ValueError:  # it cannot be part of a file's name
        return False


def _read_job(db: Database, job: Job, dead: set[int], now: float) -> JobReport:
    runs = [
        Run(as_whole(pid), as_number(started, 0.0), number not in dead, db.one(_LEASED, number)[0])
        for number, pid, started in db.execute(_RUNS, (job.id,)).fetchall()
    ]
    live = any(run.alive for run in runs)
    hosts = _read_hosts(db, job.id, now, live=live)
    counts = _count(db, job.id, hosts)
    due = _find_due(db, job.id, hosts, now) if job.latest else []
    if job.latest and runs and not live:
        due.append(Due(now, "lost"))
    first = min(due, key=_time, default=Due(None, _no_time(counts)))
    if _time(first) >= ASIDE:
        first = first._replace(at=None)
    return JobReport(job, runs, counts, first)


def _find_due(db: Database, job: int, hosts: list[_Hosts], now: float) -> list[Due]:
    """The hosts of each state that open first, and the rows that wait for their own time."""
    found = [
        Due(max(row.opens, now), _OPENING[row.state], row.first)
        for row in hosts
        if row.state in _OPENING and row.opens is not None
    ]
    for charged in (0, 1):
        for at, host in db.execute(_FIRST_DEFERRED, (job, charged)):
            found.append(Due(max(as_number(at, ASIDE), now), "deferred", as_text(host)))
    return found


def _time(due: Due) -> float:
    return due.at or 0.0


def _no_time(counts: Counts) -> WaitsFor | None:
    """Why nothing of a job is due at any known time."""
    if counts.hosts.get("busy"):
        return "busy"
    if counts.leased:
        return "leased"
    if counts.hosts.get("retired"):
        return "retired"
    if counts.hosts.get("capped"):
        return "capped"
    return "unreadable" if counts.unreadable else None


def read_counts(db: Database, job: int, now: float) -> Counts:
    """The counts of one generation of a job, for a run that is at it."""
    return _count(db, job, _read_hosts(db, job, now, live=True))


def _read_hosts(db: Database, job: int, now: float, *, live: bool) -> list[_Hosts]:
    rows = db.execute(_HOSTS, {"job": job, "now": now, "live": live}).fetchall()
    return [
        _Hosts(state, number, as_whole(deferred), or_none(opens, as_number), as_text(first))
        for state, number, deferred, opens, first in rows
    ]


def _count(db: Database, job: int, hosts: list[_Hosts]) -> Counts:
    added, leased, done, failed, dropped, pages, size, seconds = db.one(
        "SELECT added, leased, done, failed, dropped, pages, bytes, seconds FROM jobs WHERE id = ?",
        job,
    )
    added, leased, done, failed, dropped, pages, size = map(
        as_whole, (added, leased, done, failed, dropped, pages, size)
    )
    seconds = as_number(seconds, 0.0)
    reasons: dict[str, dict[str, int]] = {}
    for kind, reason, number in db.execute(
        "SELECT kind, reason, count FROM reasons WHERE job = ? ORDER BY kind, reason", (job,)
    ):
        reasons.setdefault(as_text(kind), {})[as_text(reason)] = as_whole(number)
    return Counts(
        waiting=added - leased - done - failed - dropped,
        leased=leased,
        done=done,
        failed=failed,
        dropped=dropped,
        deferred=sum(row.deferred for row in hosts),
        unreadable=db.one(_UNREADABLE, job)[0],
        added=added,
        pages=pages,
        bytes=size,
        seconds=seconds,
        reasons=reasons,
        hosts={row.state: row.number for row in hosts},
    )

"""Jobs, their generations and their runs in a SQLite frontier."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from scrapy_focus.exceptions import FrontierError
from scrapy_focus.frontier.contract import ASIDE
from scrapy_focus.frontier.database import Database
from scrapy_focus.frontier.ledger import Ledger
from scrapy_focus.frontier.rows import Host, Rows
from scrapy_focus.frontier.runs import RunLock, find_boot, forget, forget_dead, is_alive

_LEASED_ROW = "u.id, u.queue, u.in_flight, u.rank, u.charged"
# Served by urls_leased.
_LEASED_BY = f"SELECT {_LEASED_ROW} FROM urls AS u WHERE u.run = ?"
# Served by runs_open and urls_leased. A run's own leases do not end while it lives.
_ENDED = (
    f"SELECT {_LEASED_ROW} FROM runs AS r CROSS JOIN urls AS u ON u.run = r.id"
    " WHERE r.job = ? AND r.ended IS NULL AND r.id <> ? AND u.ready_at <= ?"
)
# A run that opens looks at all its hosts: nobody has told its queues while nobody was at it.
# (UPDATE … FROM would do as well, but not in the SQLite 3.26 of RHEL 8.)
_LOOK = (
    "UPDATE queues SET aged = ?2, at = (SELECT CASE WHEN max(next_at, held) > ?3"
    " THEN max(next_at, held) ELSE 0.0 END FROM hosts WHERE id = pace),"
    " tie = CASE WHEN ?2 THEN ifnull(head_id, 0)"
    " ELSE (SELECT touched FROM hosts WHERE id = pace) END WHERE job = ?1"
)
# Served by urls_deferred. Where the rank is no number there is no use in it.
_READ_AGAIN = (
    "UPDATE urls SET ready_at = 1 WHERE job = ? AND charged IN (0, 1) AND state = 0"
    " AND ready_at > 0 AND ready_at = ? AND run IS NULL AND rank BETWEEN -9e999 AND 9e999"
)
# How far the last run's clock was ahead of the steady one, if nobody is at the frontier. Served
# by runs_open.
_LAST_CLOCK = (
    "SELECT ahead FROM runs WHERE id = (SELECT max(id) FROM runs) AND boot = ?"
    " AND ahead IS NOT NULL AND NOT EXISTS (SELECT 1 FROM runs WHERE ended IS NULL)"
)
# The clock was set since then: what was left of a host's pace, or has passed, is as it was.
_FOLLOW = (
    "UPDATE hosts SET next_at = next_at + ?1, held = held + ?1,"
    " touched = CASE WHEN touched > 0 THEN touched + ?1 ELSE 0 END"
)
# Where it cannot be told how far: what was touched in the future was touched by a clock that has
# been put right since.
_REPAIR = (
    "UPDATE hosts SET next_at = ?1 + max(0, next_at - touched),"
    " held = ?1 + max(0, held - touched), touched = ?1 WHERE touched > ?1 + 60"
)
# Of a host that nothing was leased of, only robots.txt was fetched: it waits for its own delay.
_REPAIR_PACED = (
    "UPDATE hosts SET next_at = ?1 + delay WHERE touched = 0 AND next_at > ?1 + delay + 60"
)
_FREE = "UPDATE urls SET ready_at = 0, run = NULL, in_flight = 0 WHERE id = ?"
# Served by runs_open and urls_leased.
_OTHERS = (
    "SELECT 1 FROM runs AS r CROSS JOIN urls AS u ON u.run = r.id"
    " WHERE r.job = ? AND r.ended IS NULL AND r.id <> ? LIMIT 1"
)
# Served by urls_leased and queues_pace.
_KEPT_BUSY = (
    "SELECT 1 FROM runs AS r CROSS JOIN urls AS u ON u.run = r.id"
    " CROSS JOIN queues AS theirs ON theirs.id = u.queue"
    " CROSS JOIN queues AS ours ON ours.pace = theirs.pace AND ours.job = ?1"
    " WHERE r.ended IS NULL AND r.id <> ?2 AND u.in_flight = 1"
    " AND ours.at = 1e18 AND ours.head IS NOT NULL AND ours.owner IN (0, ?2) LIMIT 1"
)
_FLIGHTS = (
    "SELECT q.pace, count(*) FROM urls AS u CROSS JOIN queues AS q ON q.id = u.queue"
    " WHERE u.run IS NOT NULL AND u.in_flight = 1 GROUP BY q.pace"
)
_OLD = (
    "SELECT id FROM jobs AS j WHERE cleared = 0 AND EXISTS (SELECT 1 FROM jobs AS n"
    " WHERE n.name = j.name AND n.generation > j.generation) LIMIT 1"
)
# Served by urls_key and by the unique index of queues.
_CLEAR_URLS = "DELETE FROM urls WHERE id IN (SELECT id FROM urls WHERE job = ? LIMIT ?)"
_CLEAR_QUEUES = "DELETE FROM queues WHERE id IN (SELECT id FROM queues WHERE job = ? LIMIT ?)"
# Served by queues_pace.
_CLEAR_HOSTS = (
    "DELETE FROM hosts WHERE id > ? AND id <= ? AND max(next_at, held) < ? AND in_flight = 0"
    " AND NOT EXISTS (SELECT 1 FROM queues WHERE pace = hosts.id)"
)

#: Seconds that two clocks must differ by for one to have been set.
_SET = 0.01
#: Seconds that an empty host is remembered after it may be touched again.
_REMEMBERED = 3600.0


@dataclass(frozen=True, slots=True)
class Joined:
    """How a run found its job."""

    job: int
    run: int
    start: str
    generation: int
    #: The policy of the run before.
    policy: str


class Jobs:
    """Starts and ends this run of a job, and cleans up after runs that died.

    :param reopen: what to call when a host has fewer requests in flight than before
    :param ahead: how far the run's clock is ahead of the steady one
    """

    def __init__(
        self,
        db: Database,
        rows: Rows,
        ledger: Ledger,
        reopen: Callable[[Host, float], None],
        ahead: float | None,
    ) -> None:
        self._db = db
        self._rows = rows
        self._ledger = ledger
        self._reopen = reopen
        self._ahead = ahead
        self._boot = None if ahead is None else find_boot()
        self._lock: RunLock | None = None
        self._job = self._run = 0
        self._swept = 0

    @property
    def token(self) -> str:
        """What this run's lock file is named by."""
        return self._lock.token if self._lock else ""

    def join(self, name: str, resume: bool | None, policy: str, now: float) -> Joined:
        """Go on with a job, join the runs that are at it, or start it (over).

        Starting over is one act: a new generation, not a delete.
        """
        forget_dead(self._db.path)
        # The lock comes before the row: a run without a lock counts as dead.
        try:
            self._lock = self._lock or RunLock(self._db.path, self._ahead)
        except OSError as error:
            raise FrontierError(
                f"The folder of the frontier {self._db.path} takes no lock file: {error.strerror}."
            ) from error
        self.recover(now)
        self._follow_clock(now)
        self._recount(now)
        last = self._db.one(
            "SELECT id, generation, finished, policy FROM jobs WHERE name = ?"
            " ORDER BY generation DESC LIMIT 1",
            name,
        )
        start = self._start(last, resume)
        job, generation = (last[0], last[1]) if last else (0, 0)
        if start in ("new", "restarted"):
            generation += 1
            job = self._db.insert(
                "INSERT INTO jobs (name, generation, policy, created) VALUES (?, ?, ?, ?)",
                *(name, generation, policy, now),
            )
        else:
            self._db.execute(
                "UPDATE jobs SET finished = NULL, policy = ? WHERE id = ?", (policy, job)
            )
        run = self._db.insert(
            "INSERT INTO runs (job, token, pid, started, ahead, boot) VALUES (?, ?, ?, ?, ?, ?)",
            *(job, self._lock.token, os.getpid(), now, self._ahead, self._boot),
        )
        self._job, self._run = job, run
        kept = last[3] if last and start in ("resumed", "joined") else policy
        return Joined(job, run, start, generation, kept)

    def _follow_clock(self, now: float) -> None:
        """Let the hosts' times be those of this run's clock, whatever wrote them."""
        last = self._db.one(_LAST_CLOCK, self._boot)
        if last and self._ahead is not None and abs(self._ahead - last[0]) > _SET:
            self._db.execute(_FOLLOW, (self._ahead - last[0],))
        self._db.execute(_REPAIR, (now,))
        self._db.execute(_REPAIR_PACED, (now,))
        self._rows.forget()

    def _start(self, last: Any, resume: bool | None) -> str:
        if last is None:
            return "new"
        if self._db.one("SELECT 1 FROM runs WHERE job = ? AND ended IS NULL", last[0]):
            return "joined"
        finished = last[2] is not None
        return "restarted" if resume is False or (resume is None and finished) else "resumed"

    def look_around(self, aged: int, now: float) -> None:
        """Fit the job's queues to its hosts and to this run's order, and let what no run
        before could read be tried again."""
        self._db.execute(_LOOK, (self._job, aged, now))
        self._db.execute(_READ_AGAIN, (self._job, ASIDE))
        self._rows.forget()

    def recover(self, now: float) -> None:
        """Take back what runs had leased whose process is dead."""
        for run, job, token in self._db.execute(
            "SELECT id, job, token FROM runs WHERE ended IS NULL"
        ).fetchall():
            if run == self._run or is_alive(self._db.path, token):
                continue
            self._take_back(run, job, now)
            self._db.execute(
                "UPDATE runs SET ended = ?, reason = 'killed' WHERE id = ?", (now, run)
            )
            forget(self._db.path, token)

    def _recount(self, now: float) -> None:
        """Make the requests in flight at each host the live leases again, whatever a
        crash or an error has left there."""
        flights = dict(self._db.execute(_FLIGHTS).fetchall())
        for number, in_flight in self._db.execute(
            "SELECT id, in_flight FROM hosts WHERE in_flight <> 0"
        ).fetchall():
            if in_flight != flights.get(number, 0):
                host = self._rows.host(number)
                host.in_flight = flights.get(number, 0)
                self._reopen(host, now)
        self._rows.save()

    def _take_back(self, run: int, job: int, now: float) -> None:
        """Return a run's leases to their queues and remove the rows that were its own."""
        self._free(self._db.execute(_LEASED_BY, (run,)).fetchall(), job, now)
        waiting = self._db.one("SELECT count(*) FROM urls WHERE owner = ? AND state = 0", run)[0]
        self._ledger.add("added", -waiting, job)
        self._db.execute("DELETE FROM urls WHERE owner = ?", (run,))
        # A queue stays, empty, for the pages that it has charged to its host.
        self._db.execute("DELETE FROM queues WHERE job = ? AND owner = ? AND pages = 0", (job, run))
        self._db.execute(
            "UPDATE queues SET waiting = 0, ready = 0, head = NULL, head_id = NULL"
            " WHERE job = ? AND owner = ?",
            (job, run),
        )
        self._rows.forget()

    def take_back_ended(self, now: float) -> None:
        """Return leases of the job's other runs whose time is over."""
        ended = self._db.execute(_ENDED, (self._job, self._run, now)).fetchall()
        if ended:
            self._free(ended, self._job, now)

    def _free(self, leased: Iterable[Any], job: int, now: float) -> None:
        for row, number, in_flight, rank, charged in leased:
            self._db.execute(_FREE, (row,))
            queue = self._rows.queue(number)
            self._rows.wait(queue, row, rank, 0.0, bool(charged))
            self._ledger.add("leased", -1, job)
            if in_flight:
                host = self._rows.host(queue.pace)
                host.in_flight = max(0, host.in_flight - 1)
                self._reopen(host, now)
        self._rows.save()

    def others(self, now: float) -> bool:
        """Whether other live runs hold leases of the job, or keep its hosts busy."""
        self.recover(now)
        held = self._db.one(_OTHERS, self._job, self._run)
        return bool(held or self._db.one(_KEPT_BUSY, self._job, self._run))

    def end(self, reason: str, finished: bool, now: float) -> None:
        """End this run. The job is finished only if nothing waits and nobody is at it."""
        # A spider may say anything.
        reason = str(reason).encode(errors="backslashreplace").decode()
        self.recover(now)
        self._take_back(self._run, self._job, now)
        self._db.execute(
            "UPDATE runs SET ended = ?, reason = ? WHERE id = ?", (now, reason, self._run)
        )
        live = self._db.one("SELECT 1 FROM runs WHERE job = ? AND ended IS NULL", self._job)
        waits = self._db.one(
            "SELECT 1 FROM queues WHERE job = ? AND waiting > 0 LIMIT 1", self._job
        )
        over = now if finished and not live and not waits else None
        self._db.execute(
            "UPDATE jobs SET finished = ?, reason = ? WHERE id = ?", (over, reason, self._job)
        )

    def clear(self, limit: int, now: float) -> bool:
        """Remove rows of generations that a later one has replaced; then hosts that no
        queue needs and whose pace has run out an hour ago, looking at each once a run."""
        old = self._db.one(_OLD)
        if old is None:
            return self._sweep(limit, now)
        removed = self._db.execute(_CLEAR_URLS, (old[0], limit)).rowcount
        if removed < limit:
            removed += self._db.execute(_CLEAR_QUEUES, (old[0], limit - removed)).rowcount
        if removed < limit:
            self._db.execute("DELETE FROM reasons WHERE job = ?", old)
            self._db.execute("DELETE FROM notes WHERE job = ?", old)
            self._db.execute("UPDATE jobs SET cleared = 1 WHERE id = ?", old)
        return True

    def _sweep(self, limit: int, now: float) -> bool:
        last = self._db.one(
            "SELECT max(id) FROM (SELECT id FROM hosts WHERE id > ? ORDER BY id LIMIT ?)",
            *(self._swept, limit),
        )[0]
        if last is None:
            return False
        if self._db.execute(_CLEAR_HOSTS, (self._swept, last, now - _REMEMBERED)).rowcount:
            self._rows.save()
            self._rows.forget()
        self._swept = last
        return True

    def release(self) -> None:
        """Let go of the lock that says that this run lives."""
        if self._lock:
            self._lock.release()

"""A job's counters in a SQLite frontier, and what they say about its budget."""

from __future__ import annotations

from collections.abc import Mapping

from scrapy_focus.exceptions import FrontierError
from scrapy_focus.frontier.contract import Limits
from scrapy_focus.frontier.database import Database
from scrapy_focus.frontier.rows import Queue, Rows

_COUNTERS = ("added", "leased", "done", "failed", "dropped", "pages", "bytes", "seconds")
_ADD = f"UPDATE jobs SET {', '.join(f'{name} = {name} + ?' for name in _COUNTERS)} WHERE id = ?"
_TOTALS = (
    "SELECT j.pages, j.bytes, j.seconds, r.ended, EXISTS (SELECT 1 FROM runs AS o"
    " WHERE o.job = r.job AND o.ended IS NULL AND o.id <> r.id) FROM runs AS r"
    " CROSS JOIN jobs AS j ON j.id = r.job WHERE r.id = ?"
)
# What waits, leased rows aside, as it was stored last.
_WAITING = "SELECT added - leased - done - failed - dropped FROM jobs WHERE id = ?"
_ADD_REASON = (
    "INSERT INTO reasons (job, kind, reason, count) VALUES (?1, ?2, ?3, ?4)"
    " ON CONFLICT (job, kind, reason) DO UPDATE SET count = count + ?4"
)
# Served by the unique index of queues: all queues of one host of a job.
_HOST_PAGES = "SELECT ifnull(sum(pages), 0) FROM queues WHERE job = ? AND host = ?"
_SHARE_PAGES = f"{_HOST_PAGES} AND share = ?"
_SHARED_QUEUES = "SELECT id, host, share FROM queues WHERE job = ? AND share <> ''"
_HOST_QUEUES = "SELECT id FROM queues WHERE job = ? AND host = ?"
_REVISE = (
    "SELECT id FROM queues WHERE job = ? AND retired <> (? > 0 AND (SELECT sum(s.pages)"
    " FROM queues AS s WHERE s.job = queues.job AND s.host = queues.host) >= ?)"
)


class Ledger:
    """What a transaction adds to the counters, and the totals that the budget looks at."""

    def __init__(self, db: Database, rows: Rows, limits: Limits) -> None:
        self._db = db
        self._rows = rows
        self._limits = limits
        self._job = 0
        self._changes: dict[int, dict[str, float]] = {}
        self._reasons: dict[tuple[str, str], int] = {}
        #: Pages, bytes and seconds that the job has used.
        self.totals: tuple[int, int, float] = (0, 0, 0.0)
        #: Whether other runs are at the job.
        self.shared = 0

    def load(self, job: int, run: int) -> None:
        """Read how much of its budget the job has used: other runs use it as well.

        :raises scrapy_focus.exceptions.FrontierError: if this run counts as dead. What it
            wrote then, nobody would look after.
        """
        self._job = job
        found = self._db.one(_TOTALS, run) or (0, 0, 0.0, None, 0)
        pages, size, seconds, ended, self.shared = found
        if ended is not None:
            raise FrontierError(
                f"Another process has taken this run's URLs in the frontier {self._db.path} "
                "back, having found no lock file of it. Run again: the crawl goes on."
            )
        self.totals = (pages, size, seconds)

    def add(self, name: str, by: float, job: int | None = None) -> None:
        """Add to a counter of this job, or of another one."""
        changes = self._changes.get(job or self._job)
        if changes is None:
            changes = self._changes[job or self._job] = dict.fromkeys(_COUNTERS, 0)
        changes[name] += by

    def waiting(self) -> int:
        """How many of the job's rows wait."""
        changes = self._changes.get(self._job, dict.fromkeys(_COUNTERS, 0))
        gone = sum(changes[name] for name in ("leased", "done", "failed", "dropped"))
        return int(self._db.one(_WAITING, self._job)[0] + changes["added"] - gone)

    def add_reasons(self, kind: str, reasons: Mapping[str, int]) -> None:
        for reason, number in reasons.items():
            self._reasons[kind, reason] = self._reasons.get((kind, reason), 0) + number

    def use(self, pages: int = 0, size: int = 0, seconds: float = 0.0) -> None:
        """Use some of the job's budget, or (negative) give it back."""
        if not (pages or size or seconds):
            return
        for name, by in (("pages", pages), ("bytes", size), ("seconds", seconds)):
            if by:
                self.add(name, by)
        used = self.totals
        self.totals = (used[0] + pages, used[1] + size, used[2] + seconds)

    def charge(self, queue: Queue, pages: int) -> None:
        """Charge pages to the job and to the shares of the host and the prefix, which may retire
        queues, or (negative) give them back, which may revive them."""
        self.use(pages=pages)
        queue.pages += pages
        if not (self._limits.pages_per_host or queue.share in self._limits.pages_per_share):
            return
        self._rows.save()
        for (number,) in self._db.execute(_HOST_QUEUES, (queue.job, queue.host)).fetchall():
            other = self._rows.queue(number)
            self._retire(other, int(self.is_retired(other.host, other.share)))

    def _retire(self, queue: Queue, retired: int) -> None:
        if queue.retired != retired:
            queue.retired = retired
            self._rows.find_head(queue)

    def revise(self) -> None:
        """Retire or revive the job's queues: an earlier run may have had another budget."""
        share = self._limits.pages_per_host
        for (number,) in self._db.execute(_REVISE, (self._job, share, share)).fetchall():
            queue = self._rows.queue(number)
            self._retire(queue, 1 - queue.retired)
        for number, host, name in self._db.execute(_SHARED_QUEUES, (self._job,)).fetchall():
            self._retire(self._rows.queue(number), int(self.is_retired(host, name)))
        self._rows.save()

    def is_retired(self, host: str, share: str) -> bool:
        """Whether a host, or this part of it, has used up its share of the pages."""
        most, part = self._limits.pages_per_host, self._limits.pages_per_share.get(share)
        if most and self._db.one(_HOST_PAGES, self._job, host)[0] >= most:
            return True
        return part is not None and self._db.one(_SHARE_PAGES, self._job, host, share)[0] >= part

    def spent(self) -> str | None:
        """Which part of the job's budget is used up."""
        (pages, size, seconds), limits = self.totals, self._limits
        if limits.bytes and size >= limits.bytes:
            return "max_bytes"
        if limits.seconds and seconds >= limits.seconds:
            return "max_seconds"
        if limits.pages and pages >= limits.pages:
            return "max_pages"
        return None

    def save(self) -> None:
        """Write the counters; by reason for this job only."""
        for job, changes in self._changes.items():
            self._db.execute(_ADD, (*changes.values(), job))
        for (kind, reason), number in self._reasons.items():
            self._db.execute(_ADD_REASON, (self._job, kind, reason, number))
        self.forget()

    def forget(self) -> None:
        self._changes.clear()
        self._reasons.clear()

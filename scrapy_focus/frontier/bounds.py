"""Keeps how much waits within bounds: of what is too much, the worst is shed."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from scrapy_focus.frontier.contract import ASIDE, Limits
from scrapy_focus.frontier.database import Database
from scrapy_focus.frontier.ledger import Ledger
from scrapy_focus.frontier.rows import Rows

logger = logging.getLogger(__name__)

#: Whoever adds so many rows sheds at most so many more than that: a bound that was lowered is
#: reached in steps.
_MORE = 32

# What may be shed: it waits, it is no start request, nothing was paid for it, and it can be read.
# What is kept for one run only is in memory anyway. What was handed out once stays: a late report
# on it must not meet another row, and SQLite may give the id of a removed one to the next.
_SHEDDABLE = (
    "state = 0 AND run IS NULL AND seed = 0 AND charged = 0 AND attempts = 0 AND owner IS NULL"
    f" AND ready_at < {ASIDE!r}"
)
# Only a job with bounds pays for them. By queue for the hosts, by job for all of it.
_INDEXES = {
    "urls_worst": f"ON urls (job, rank, id) WHERE {_SHEDDABLE}",
    "urls_worst_of_queue": f"ON urls (queue, rank, id) WHERE {_SHEDDABLE}",
}
_IS_MADE = "SELECT 1 FROM sqlite_master WHERE type = 'index' AND name = ?"
_ROWS = "SELECT id, queue, key, ready_at, rank FROM urls INDEXED BY"
_RANKED = f"{_SHEDDABLE} AND rank BETWEEN -9e999 AND 9e999 ORDER BY rank DESC, id DESC LIMIT ?"
_WORST = f"{_ROWS} urls_worst WHERE job = ? AND {_RANKED}"
_WORST_OF_QUEUE = f"{_ROWS} urls_worst_of_queue WHERE queue = ? AND {_RANKED}"
_REMOVE = "DELETE FROM urls WHERE id = ?"
# Served by the unique index of queues.
_QUEUES_OF = "SELECT id FROM queues WHERE job = ? AND host = ? AND waiting > 0"
_FULL_HOSTS = "SELECT host FROM queues WHERE job = ? GROUP BY host HAVING sum(waiting) > ?"


class Bounds:
    """The bounds of one job, as its :class:`~scrapy_focus.frontier.Limits` say."""

    def __init__(self, db: Database, rows: Rows, ledger: Ledger, limits: Limits) -> None:
        self._db = db
        self._rows = rows
        self._ledger = ledger
        self._most, self._most_of_host = limits.waiting, limits.waiting_per_host
        self._job = 0
        #: Hosts of which too much waited when the run opened.
        self._full: set[str] = set()
        #: Keys of what was shed, until somebody takes them.
        self.shed: list[bytes] = []

    def __bool__(self) -> bool:
        return bool(self._most or self._most_of_host)

    def open(self, job: int) -> None:
        """Prepare to find the worst of a job; in a large frontier the first time takes long."""
        self._job = job
        wanted = {"urls_worst": self._most, "urls_worst_of_queue": self._most_of_host}
        for name, index in _INDEXES.items():
            if wanted[name] and not self._db.one(_IS_MADE, name):
                logger.debug("Making the index %s of the frontier %s", name, self._db.path)
                self._db.execute(f"CREATE INDEX {name} {index}")
        if self._most_of_host:
            found = self._db.execute(_FULL_HOSTS, (job, self._most_of_host)).fetchall()
            self._full = {host for (host,) in found}

    def keep(self, hosts: Iterable[str]) -> None:
        """Shed what is too much, after a row was added to each of these hosts (one may come
        more than once)."""
        hosts = list(hosts)
        if self._most_of_host:
            self._rows.save()
            for host in set(hosts):
                self._shed_of_host(host, len(hosts) + _MORE)
        self._shed_of_job(len(hosts) + _MORE)

    def lower(self, limit: int) -> bool:
        """Shed up to *limit* rows of those that are too many since a bound was lowered. Says
        whether there may be more."""
        if self._full:
            self._rows.save()
            host = next(iter(self._full))
            if self._shed_of_host(host, limit) < limit:
                self._full.remove(host)
            return True
        return self._shed_of_job(limit) == limit

    def _shed_of_job(self, limit: int) -> int:
        over = self._ledger.waiting() - self._most if self._most else 0
        if over <= 0:
            return 0
        return self._shed(self._db.execute(_WORST, (self._job, min(over, limit))).fetchall())

    def _shed_of_host(self, host: str, limit: int) -> int:
        numbers = [n for (n,) in self._db.execute(_QUEUES_OF, (self._job, host)).fetchall()]
        waiting = sum(self._rows.queue(number).waiting for number in numbers)
        over = min(waiting - self._most_of_host, limit)
        if over <= 0:
            return 0
        found = []
        for number in numbers:
            found += self._db.execute(_WORST_OF_QUEUE, (number, over)).fetchall()
        if len(numbers) > 1:  # a host may be in several pace groups
            found.sort(key=lambda row: (row[4], row[0]), reverse=True)
        return self._shed(found[:over])

    def _shed(self, found: list[tuple[int, int, bytes, float, float]]) -> int:
        for row, number, key, ready_at, _ in found:
            self._db.execute(_REMOVE, (row,))
            self._rows.remove(self._rows.queue(number), row, ready=not ready_at)
            self.shed.append(key)
        if found:
            self._ledger.add("dropped", len(found))
            self._ledger.add_reasons("dropped", {"shed": len(found)})
        return len(found)

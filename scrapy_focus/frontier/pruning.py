"""Removes rows of URLs that are over, once a seen set knows them.

In rounds: rows that are over are gathered; a thread stores them in the set; then they are removed,
a little at a time. Whenever the process is killed, each URL is in the frontier or in the set.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterable
from itertools import islice

from scrapy_focus.exceptions import FrontierError
from scrapy_focus.frontier.database import Database
from scrapy_focus.frontier.seen import (
    Choice,
    Lost,
    Over,
    SeenSet,
    build_set,
    find_sets,
    path_of,
    remove,
    remove_old,
)

logger = logging.getLogger(__name__)

#: How many rows are removed in a round, and of a large set which part of its keys: a filter is
#: written whole each time.
_ROUND, _MOST, _PART = 10_000, 100_000, 50
#: How many rows are looked at for each that may be removed, which takes so much longer.
_READ = 5

_JOB = (
    "SELECT name, seen, seen_round, gone_done + gone_failed + gone_dropped FROM jobs WHERE id = ?"
)
_LATEST = "SELECT max(id) FROM jobs GROUP BY name"
# Served by the primary key. Rows that go with their run are not looked for.
_OVER = (
    "SELECT u.id, u.key, u.copy, u.state, u.charged, q.host FROM urls AS u CROSS JOIN queues AS q"
    " ON q.id = u.queue WHERE u.id = ? AND u.job = ? AND u.state IN (1, 2, 3) AND u.owner IS NULL"
)
# Served by the primary key: rows in their order, whatever their job.
_WALK = "SELECT id, job, state FROM urls WHERE id > ? AND id <= ? ORDER BY id LIMIT ?"
_LAST = "SELECT ifnull(max(id), 0) FROM urls"
_REMOVE = "DELETE FROM urls WHERE id = ? AND job = ? AND key = ? AND state = ?"
_GONE = (
    "UPDATE jobs SET gone_done = gone_done + ?, gone_failed = gone_failed + ?,"
    " gone_dropped = gone_dropped + ?, gone_pages = gone_pages + ?,"
    " seen_round = max(seen_round, ?) WHERE id = ?"
)
# Served by urls_key.
_OF_KEY = "SELECT id, state, charged FROM urls WHERE job = ? AND key = ? AND state IN (1, 2, 3)"
# What nobody looks for. An id that is used again would let a late report meet another row.
_RENAME = "UPDATE urls SET key = randomblob(32) WHERE id = ?"


class Pruner:
    """The seen set of one job, and the rows that it makes room for.

    :param choice: not exact
    """

    def __init__(self, db: Database, choice: Choice) -> None:
        self._db = db
        self._choice = choice
        self._job = 0
        self.set: SeenSet
        #: Rows that this run has seen end, and when; of the runs before, those that the walk finds.
        self._over: deque[tuple[int, float]] = deque(maxlen=10 * _MOST)
        self._walked, self._end = 0, 0
        #: Rows that were read in a transaction that may not be stored yet, those that the set knows
        #: since then, and those that it has stored.
        self._read: list[Over] = []
        self._gathered: list[Over] = []
        self._stored: deque[Over] = deque()
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        #: Nothing more is removed: the set cannot be written.
        self._stopped = False

    def open(self, job: int, number: int, *, new: bool) -> None:
        """Read the job's set.

        :param number: of its last round
        :param new: whether the job has no rows yet
        :raises Lost: if it is not what it must be
        """
        self._job = job
        self.set = build_set(self._choice, path_of(self._db.path, job))
        if number:
            self.set.load()
            if self.set.round < number:
                raise Lost("is older than the frontier")
        else:
            # All rows are there; whatever it knows, it was not asked yet.
            remove(self.set.path)
        self._end = 0 if new else self._db.one(_LAST)[0]

    def ended(self, row: int, now: float) -> None:
        """A row is over, or about to be."""
        self._over.append((row, now))

    def step(self, limit: int) -> bool:
        """Do a little, inside a transaction that is stored when it ends. Says whether there is more
        to do at once."""
        if self._stopped or (self._thread and self._thread.is_alive()):
            return False
        if self._read:
            self.set.add(self._read)
            self._gathered += self._read
            self._read = []
        if self._thread:
            self._finish()
        elif self._stored:
            self._remove(limit)
        elif self._walked < self._end:
            self._walk(_READ * limit)
        elif len(self._gathered) >= self._enough:
            if not self.set.prepare():
                self._thread = threading.Thread(target=self._store, name="focus-seen", daemon=True)
                self._thread.start()
        elif len(self._over) + len(self._gathered) >= self._enough:
            self._gather(limit)
        else:
            return False
        return True

    @property
    def _enough(self) -> int:
        return max(_ROUND, min(_MOST, self.set.count // _PART))

    def _walk(self, limit: int) -> None:
        rows = self._db.execute(_WALK, (self._walked, self._end, limit)).fetchall()
        self._over.extend((row, 0.0) for row, job, state in rows if job == self._job and state)
        self._walked = rows[-1][0] if len(rows) == limit else self._end

    def _gather(self, limit: int) -> None:
        for _ in range(min(limit, len(self._over))):
            number, at = self._over.popleft()
            row = self._db.one(_OVER, number, self._job)
            # What is malformed stays where it can be looked at.
            if row and isinstance(row[1], bytes) and isinstance(row[5], str):
                self._read.append(Over._make((*row, at)))

    def undone(self) -> None:
        """A transaction has failed: what was read inside may not be stored."""
        self._read = []

    def _store(self) -> None:
        try:
            self.set.store(self.set.round + 1)
        except BaseException as error:  # noqa: BLE001 - looked at by the crawl's thread
            self._failure = error

    def _finish(self) -> None:
        """The set has stored what was gathered, or failed to."""
        self._thread = None
        if self._failure:
            self._stopped = True
            logger.error(
                "The seen set %s cannot be written: %s. The crawl goes on; the rows of finished "
                "URLs stay in the frontier.",
                self.set.path,
                self._failure,
            )
            return
        self._stored.extend(self._gathered)
        self._gathered = []

    def _remove(self, limit: int) -> None:
        last = self._db.one(_LAST)[0]
        gone = [0, 0, 0, 0]
        left = []
        for row in list(islice(self._stored, limit)):
            self._stored.popleft()
            if row.id == last:  # else its id would be used again
                left.append((row.id, row.at))
            elif self._db.execute(_REMOVE, (row.id, self._job, row.key, row.state)).rowcount:
                _count(gone, row.state, row.charged)
        self._over.extend(left)
        # From now on nobody may open the job without what was stored.
        self._db.execute(_GONE, (*gone, self.set.round, self._job))

    def forget(self, keys: Iterable[bytes]) -> None:
        """Take keys out of the set, whose rows are gone."""
        self.set.remove(keys)

    def stop(self) -> None:
        """Remove nothing more. What was just being stored is stored in another run."""
        self._stopped = True
        self.set.stop()
        if self._thread:
            self._thread.join()
            self._thread = None
        self.set.flush()

    def close(self) -> None:
        """Let go of the set."""
        self.stop()
        self.set.close()


def _count(gone: list[int], state: int, charged: int) -> None:
    gone[state - 1] += 1
    gone[3] += charged == 1


def open_set(db: Database, job: int, choice: Choice, start: str) -> Pruner | None:
    """The set that a run of a job asks, and what removes its rows; ``None`` if they stay.

    :param start: how the run found its job
    :raises scrapy_focus.exceptions.FrontierError: if the job was run with another set and rows are
        gone, if the set is lost, or if the other run and this one would not know of each other
    """
    name, seen, number, gone = db.one(_JOB, job)
    exact = choice.name == "exact"
    joined = start == "joined"
    if joined and not (exact and seen is None):
        raise FrontierError(
            f"The job {name!r} of the frontier {db.path} is being run by another process with "
            f'FOCUS_SEEN = "{seen or "exact"}". A job with another seen set than "exact" is run by '
            "one process at a time: wait for its end, or give this crawl a FOCUS_JOB of its own."
        )
    # One that is not known any more, after damage, is the chosen one if that can be loaded.
    if number and (exact or seen not in (None, choice.name)):
        raise FrontierError(
            f'The job {name!r} of the frontier {db.path} was run with FOCUS_SEEN = "{seen}", and '
            f"the rows of {gone} finished URLs are gone, which that set alone knows. Set it again, "
            "or start the job over: FOCUS_RESUME = False."
        )
    if not joined:
        db.execute("UPDATE jobs SET seen = ? WHERE id = ?", (None if exact else choice.name, job))
    if exact:
        return None
    pruner = Pruner(db, choice)
    try:
        pruner.open(job, number, new=start in ("new", "restarted"))
    except Lost as lost:
        pruner.set.close()
        raise FrontierError(
            f"The seen set {pruner.set.path} of the job {name!r} {lost}: without it {gone} "
            "finished URLs, whose rows are gone, would be fetched again. Restore it, or start the "
            "job over: FOCUS_RESUME = False."
        ) from None
    return pruner


def forget_old(db: Database) -> None:
    """Remove sets of generations that a later one has replaced, and of jobs that are not there."""
    if found := find_sets(db.path):  # in this order: another run may be making a set
        remove_old(found, {job for (job,) in db.execute(_LATEST).fetchall()})


def forget_rows(db: Database, job: int, keys: Iterable[bytes]) -> int:
    """Remove the rows of keys that are over; says how many there were."""
    last = db.one(_LAST)[0]
    gone, number = [0, 0, 0, 0], 0
    for key in keys:
        for row, state, charged in db.execute(_OF_KEY, (job, key)).fetchall():
            number += 1
            if row == last:
                db.execute(_RENAME, (row,))
                continue
            db.execute("DELETE FROM urls WHERE id = ?", (row,))
            _count(gone, state, charged)
    db.execute(_GONE, (*gone, 0, job))
    return number

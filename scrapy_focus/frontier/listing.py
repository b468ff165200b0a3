"""The URLs of a frontier, read page by page while crawls go on."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any, Literal, NamedTuple, get_args

from scrapy_focus.frontier.contract import ASIDE
from scrapy_focus.frontier.database import Database
from scrapy_focus.frontier.shaping import as_number, as_text, as_whole, or_none

#: The states that rows can be asked for; ``deferred`` ones are waiting, too.
State = Literal["waiting", "leased", "deferred", "done", "failed", "dropped"]
STATES: tuple[State, ...] = get_args(State)

_ROW = (
    "SELECT u.id, u.url, q.host, CASE WHEN u.state = 1 THEN 'done' WHEN u.state = 2 THEN 'failed'"
    " WHEN u.state = 3 THEN 'dropped' WHEN u.run IS NOT NULL THEN 'leased'"
    " WHEN u.ready_at > 0 THEN 'deferred' ELSE 'waiting' END, u.rank, u.ready_at, u.attempts,"
    " u.depth, u.priority, ifnull(u.score, 0.5), u.seed, u.discovered, u.parent, u.reason"
    " FROM urls AS u CROSS JOIN queues AS q ON q.id = u.queue"
)
# Served by the unique index of queues.
_ON_HOST = " AND u.queue IN (SELECT id FROM queues WHERE job = :job AND host = :host)"
# Served by the same: one row for each host of the job, of which the best are kept.
_HEADS = (
    "SELECT head, tie, head_id, id, aged, retired FROM queues WHERE job = :job"
    " AND head IS NOT NULL{host} ORDER BY head, tie, head_id LIMIT :limit"
)
_RETIRED = "SELECT id FROM queues WHERE job = :job AND retired = 1 AND ready > 0{host} LIMIT :limit"
# Served by urls_ready, in its order, or by urls_charged.
_READY = (
    f"{_ROW} WHERE u.job = :job AND u.queue = :queue AND u.state = 0 AND u.ready_at = 0{{charged}}"
    " AND (u.rank, u.id) > (:at, :id) ORDER BY u.rank, u.id LIMIT :page"
)
# Served by urls_deferred, in its order.
_DEFERRED = (
    f"{_ROW} WHERE u.job = :job AND u.charged = :charged AND u.state = 0 AND u.ready_at > 0"
    " AND u.run IS NULL{host} AND (u.ready_at, u.id) > (:at, :id)"
    " ORDER BY u.ready_at, u.id LIMIT :page"
)
# Served by runs_open and urls_leased: all that is in flight, and what dead runs had taken.
_LEASED = (
    f"{_ROW} WHERE u.run IN (SELECT id FROM runs WHERE job = :job AND ended IS NULL){{host}}"
    " ORDER BY u.id DESC LIMIT :limit"
)
# Served by the primary key, from its end. The + keeps SQLite from sorting a whole job.
_NEWEST = (
    f"{_ROW} WHERE u.id <= :last AND u.id > :last - :step AND +u.job = :job{{state}}{{host}}"
    " ORDER BY u.id DESC LIMIT :limit"
)
_LAST = "SELECT max(id) FROM urls WHERE id <= ?"
_COUNTED = (
    "SELECT cleared, added - gone_done - gone_failed - gone_dropped, done - gone_done,"
    " failed - gone_failed, dropped - gone_dropped FROM jobs WHERE id = ?"
)

# Served by urls_key.
_BY_KEY = f"{_ROW} WHERE u.job = ? AND u.key = ? ORDER BY u.copy"
# Served by urls_ready.
_PLACE = (
    "SELECT max(h.next_at, h.held), h.held >= h.next_at AND h.held > 0, q.retired, q.share,"
    " (SELECT count(*) FROM (SELECT 1 FROM urls WHERE queue = q.id AND state = 0 AND ready_at = 0"
    " AND (rank, id) < (:rank, :id) LIMIT :most)) FROM queues AS q JOIN hosts AS h ON h.id = q.pace"
    " WHERE q.id = (SELECT queue FROM urls WHERE id = :id)"
)

# Served by the primary key of notes.
_NOTED = "SELECT value FROM notes WHERE job = ? AND name = ?"

#: How many URLs that come before one are counted.
_MOST = 10_000
#: How many rows one statement walks past.
_STEP = 20_000
#: The greatest id in SQLite.
_END = 2**63 - 1


class UrlRow(NamedTuple):
    """A URL as it is stored. Times in seconds, Unix time."""

    id: int
    url: str
    host: str
    state: State
    rank: float
    #: Deferred rows: not before, :data:`~scrapy_focus.frontier.ASIDE` for a row that waits
    #: for another run; leased rows: the end of the lease; else 0.
    ready_at: float
    attempts: int
    depth: int
    priority: float
    score: float
    seed: int
    discovered: float
    parent: str | None
    reason: str | None


def _shape(found: Sequence[Any]) -> UrlRow:
    """A row, whatever its columns hold."""
    row = UrlRow._make(found)
    return row._replace(
        url=as_text(row.url),
        host=as_text(row.host),
        rank=as_number(row.rank),
        # What has no time that can be read waits for someone to look at it.
        ready_at=as_number(row.ready_at, ASIDE),
        attempts=as_whole(row.attempts, -1),
        depth=as_whole(row.depth, -1),
        priority=as_number(row.priority),
        score=as_number(row.score),
        discovered=as_number(row.discovered),
        parent=or_none(row.parent, as_text),
        reason=or_none(row.reason, as_text),
    )


class Place(NamedTuple):
    """Where a waiting URL stands."""

    #: When its host may be touched (Unix time, seconds), and whether a hold is the reason.
    opens: float
    held: bool
    #: Whether its host has spent its share of the pages, or the prefix that it belongs to, if any.
    retired: bool
    share: str
    #: How many URLs of its host come first, counted up to ``most``.
    ahead: int
    most: int = _MOST


def find_urls(db: Database, job: int, key: bytes) -> list[UrlRow]:
    """The URLs of one generation of a job that have a key: several if ``dont_filter`` was set."""
    with db.reading():
        return [_shape(row) for row in db.execute(_BY_KEY, (job, key)).fetchall()]


def read_note(db: Database, job: int, name: str) -> bytes | None:
    """What one generation of a job keeps under a name."""
    with db.reading():
        found = db.one(_NOTED, job, name)
    return found[0] if found and type(found[0]) is bytes else None


def find_place(db: Database, row: UrlRow) -> Place:
    """Where a waiting URL stands."""
    with db.reading():
        values = {"id": row.id, "rank": row.rank, "most": _MOST}
        return Place(*db.execute(_PLACE, values).fetchone())


def read_urls(
    db: Database, job: int, now: float, *, state: State | None, host: str | None, limit: int | None
) -> Iterator[UrlRow]:
    """The URLs of one generation of a job. No moment's picture: a crawl goes on meanwhile.

    Waiting ones come in the order in which they would be handed out if every host could be
    touched at once; then those of hosts that have spent their share of the pages; then
    deferred ones, the first due first. Others come newest first, by the time of discovery.

    Waiting, deferred and leased rows are found through indexes. For ``done``, ``failed`` and
    ``dropped``, or without a state, the rows of the frontier are walked, newest first, until
    *limit* are found or all that the job has; on a host, to the end.
    """
    lister = _Lister(db, job, host, limit)
    rows: Iterator[UrlRow]
    if state == "waiting":
        rows = chain(lister.ready(now), lister.retired(), lister.deferred())
    elif state == "deferred":
        rows = lister.deferred()
    elif state == "leased":
        rows = lister.leased()
    else:
        rows = lister.newest(state)
    return islice(rows, limit)


class _Lister:
    """Reads the rows of one job, and there of one host where one is given."""

    def __init__(self, db: Database, job: int, host: str | None, limit: int | None) -> None:
        self._db = db
        self._job = job
        self._values = {"job": job, "host": host, "limit": -1 if limit is None else limit}
        self._on_host = "" if host is None else _ON_HOST
        self._of_host = "" if host is None else " AND host = :host"

    def _all(self, sql: str, **values: float) -> list[Any]:
        # To the last row: a cursor that stays open keeps the WAL from being emptied.
        with self._db.reading():
            return self._db.execute(sql, {**self._values, **values}).fetchall()

    def _paged(self, sql: str, key: int, **values: float) -> Iterator[UrlRow]:
        """The rows of a statement that is in the order of its column *key* and the id."""
        at, number, page = float("-inf"), 0, 2
        while True:
            rows = self._all(sql, at=at, id=number, page=page, **values)
            yield from map(_shape, rows)
            if len(rows) < page:
                return
            at, number, page = rows[-1][key], rows[-1][0], min(2 * page, 512)

    def ready(self, now: float) -> Iterator[UrlRow]:
        """What can be handed out, best first: the best of all queues, again and again."""
        heap: list[Any] = []
        for rank, tie, row, queue, aged, retired in self._all(_HEADS.format(host=self._of_host)):
            sql = _READY.format(charged=" AND u.charged = 1" if retired else "")
            rows = self._paged(sql, UrlRow._fields.index("rank"), queue=queue)
            # A queue is read only when its turn comes.
            heap.append((as_number(rank), as_number(tie), as_whole(row), queue, aged, rows, None))
        heapq.heapify(heap)
        while heap:
            _, tie, _, queue, aged, rows, found = heapq.heappop(heap)
            if found:
                yield found
                # Its host is now the one that was touched last.
                tie = now = now + 1.0
            new = next(rows, None)
            if new:
                tie = new.id if aged else tie
                heapq.heappush(heap, (new.rank, tie, new.id, queue, aged, rows, new))

    def retired(self) -> Iterator[UrlRow]:
        """What waits on hosts that have spent their share of the pages."""
        sql = _READY.format(charged=" AND u.charged = 0")
        for (queue,) in self._all(_RETIRED.format(host=self._of_host)):
            yield from self._paged(sql, UrlRow._fields.index("rank"), queue=queue)

    def deferred(self) -> Iterator[UrlRow]:
        """What waits for a time of its own, the first due first."""
        sql, key = _DEFERRED.format(host=self._on_host), UrlRow._fields.index("ready_at")
        each = [self._paged(sql, key, charged=charged) for charged in (0, 1)]
        return heapq.merge(*each, key=lambda row: (row.ready_at, row.id))

    def leased(self) -> Iterator[UrlRow]:
        """What is handed out, newest first."""
        return map(_shape, self._all(_LEASED.format(host=self._on_host)))

    def newest(self, state: State | None) -> Iterator[UrlRow]:
        """The rows in one state, or in any, newest first."""
        number = {None: -1, "done": 1, "failed": 2, "dropped": 3}[state]
        where = "" if state is None else " AND u.state = :state"
        sql = _NEWEST.format(state=where, host=self._on_host)
        left = self._counted(state)
        last = self._last(_END)
        while last is not None and left > 0:
            rows = self._all(sql, last=last, step=_STEP, state=number)
            yield from map(_shape, rows)
            left -= len(rows)
            last = self._last(last - _STEP)

    def _last(self, number: int) -> int | None:
        """The newest row up to this one: ids have gaps."""
        with self._db.reading():
            found: int | None = self._db.one(_LAST, number)[0]
            return found

    def _counted(self, state: State | None) -> int:
        """How many rows there can be, so that the walk ends with the last of them."""
        with self._db.reading():
            cleared, *counts = self._db.one(_COUNTED, self._job)
        return 0 if cleared else as_whole(counts[[None, "done", "failed", "dropped"].index(state)])

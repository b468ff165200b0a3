"""What a SQLite frontier may hand out next, and when."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from heapq import heappop, heappush

from scrapy_focus.frontier.contract import Order
from scrapy_focus.frontier.database import Database
from scrapy_focus.frontier.ledger import Ledger
from scrapy_focus.frontier.rows import AT_ONCE, BUSY, Queue, Rows

# Served by queues_open: its first entries.
_BEST = (
    "SELECT head, tie, head_id, id FROM queues WHERE job = ? AND owner = ? AND at = 0"
    " AND head IS NOT NULL ORDER BY head, tie, head_id LIMIT ?"
)
# Served by queues_open; every open queue is read, as a uniform draw must.
_OPEN = (
    "SELECT id, ready, retired FROM queues WHERE job = ? AND owner IN (0, ?) AND at = 0"
    " AND head IS NOT NULL ORDER BY id"
)
# Served by urls_ready (the counts) or urls_charged.
_NTH = (
    "SELECT id FROM urls WHERE queue = ? AND state = 0 AND ready_at = 0"
    " ORDER BY rank, id LIMIT 1 OFFSET ?"
)
_COUNT_CHARGED = (
    "SELECT count(*) FROM urls WHERE job = ? AND queue = ? AND state = 0 AND ready_at = 0"
    " AND charged = 1"
)
_NTH_CHARGED = (
    "SELECT id FROM urls WHERE job = ? AND queue = ? AND state = 0 AND ready_at = 0"
    " AND charged = 1 ORDER BY rank, id LIMIT 1 OFFSET ?"
)
# What a spent budget has paid for: served by urls_charged, which holds few rows.
_PAID = (
    "SELECT q.id, u.id, q.at FROM urls AS u CROSS JOIN queues AS q ON q.id = u.queue"
    " WHERE u.job = ?1 AND u.state = 0 AND u.ready_at = 0 AND u.charged = 1 AND q.job = ?1"
    " AND q.owner IN (0, ?2)"
    " ORDER BY u.rank, CASE q.aged WHEN 1 THEN 0 ELSE q.tie END, u.id"
)
# Served by urls_deferred. Bounded, since what is due after a long pause may be very much.
_DUE = (
    "SELECT id, queue, rank, charged FROM urls WHERE job = ? AND charged IN (0, 1) AND state = 0"
    " AND ready_at > 0 AND ready_at <= ? AND run IS NULL LIMIT 500"
)
_MAKE_READY = "UPDATE urls SET ready_at = 0 WHERE id = ?"
# Served by queues_cooling, in their order. Bounded likewise. What the index is limited to is
# said to be likely, for the search to begin at the parameter; said after it, SQLite would look
# at its value for whether the index will do, and prepare the statement anew each time.
_OPENED = 200
_COOLED = (
    "SELECT id FROM queues WHERE job = ? AND likely(at > 0) AND at > ? AND at <= ?"
    " AND head IS NOT NULL"
    f" ORDER BY at LIMIT {_OPENED}"
)
_FIRST_OPENING = (
    "SELECT at FROM queues WHERE job = ? AND likely(at > 0) AND at > ? AND head IS NOT NULL"
    " ORDER BY at LIMIT 1"
)
# Served by urls_deferred, in its order.
_FIRST_DUE = (
    "SELECT ready_at FROM urls WHERE job = ? AND charged = ? AND state = 0 AND ready_at > 0"
    " AND ready_at < 1e17 AND run IS NULL ORDER BY ready_at LIMIT 1"
)
_NEXT_OPENING = (
    "SELECT at FROM queues WHERE job = ? AND at > 0 AND at < 1e18 AND head IS NOT NULL"
    " AND owner IN (0, ?) ORDER BY at LIMIT 1"
)
# Served by urls_deferred, in its order.
_NEXT_READY = (
    "SELECT u.ready_at, q.retired FROM urls AS u CROSS JOIN queues AS q ON q.id = u.queue"
    " WHERE u.job = ? AND u.charged = ? AND u.state = 0 AND u.ready_at > 0 AND u.ready_at < 1e17"
    " AND u.run IS NULL AND q.owner IN (0, ?) ORDER BY u.ready_at LIMIT 1000"
)
# Served by runs_open and urls_leased.
_NEXT_END = (
    "SELECT min(u.ready_at) FROM runs AS r CROSS JOIN urls AS u ON u.run = r.id"
    " WHERE r.job = ? AND r.ended IS NULL AND r.id <> ?"
)


#: What an open queue is ordered by: the rank of its head, its tie, the row, its own number.
_Head = tuple[float, float, int, int]

#: How many heads are read at first, and at most; and how many are kept.
_FEW, _MANY, _KEPT = 8, 1024, 4096
#: Comes before every head.
_NOWHERE: _Head = (-math.inf, 0.0, 0, 0)


def _head_of(queue: Queue) -> _Head | None:
    """``None`` where nothing can be handed out."""
    if queue.at or queue.head is None or queue.head_id is None:
        return None
    return queue.head, queue.tie, queue.head_id, queue.id


class _Heads:
    """The best heads of open queues: all of them up to a bound, in their order."""

    def __init__(self) -> None:
        self.start((), _NOWHERE)

    def start(self, heads: Iterable[_Head], bound: _Head | None) -> None:
        """Take these for all heads up to the bound, or, without one, for all there are."""
        self.bound = bound
        self._read = [head for head in heads if bound is None or head <= bound]
        self._read.sort(reverse=True)
        self._current = {head[3]: head for head in self._read}
        self._changed: list[_Head] = []

    def put(self, number: int, head: _Head | None) -> None:
        """A queue has this head now."""
        if self._current.get(number) == head:
            return
        if head is None or (self.bound is not None and head > self.bound):
            self._current.pop(number, None)
            return
        self._current[number] = head
        heappush(self._changed, head)
        if len(self._changed) > _KEPT:
            self.start((), _NOWHERE)

    def first(self) -> _Head | None:
        read, changed, current = self._read, self._changed, self._current
        # What a queue had before its head changed stays until it comes to its turn.
        while read and current.get(read[-1][3]) != read[-1]:
            read.pop()
        while changed and current.get(changed[0][3]) != changed[0]:
            heappop(changed)
        if read and changed:
            return min(read[-1], changed[0])
        return read[-1] if read else changed[0] if changed else None

    def next(self, number: int) -> list[int]:
        """The queues whose turn comes soon, unless something changes."""
        return [head[3] for head in self._read[-number:]]


class Chooser:
    """Looks for the next URL of a run. It claims nothing."""

    def __init__(
        self, db: Database, rows: Rows, ledger: Ledger, order: Order, rng: random.Random
    ) -> None:
        self._db = db
        self._rows = rows
        self._ledger = ledger
        self._uniform = order.uniform
        self._rng = rng
        self.job = self.run = 0
        #: Whether the run has rows of its own, so that its queues must be asked, too.
        self.volatile = False
        self._heads = _Heads()
        #: How many heads are read next time, and of how many queues.
        self._number, self._ahead = _FEW, 1

    def promote(self, now: float) -> None:
        """Deferred rows become ready and cooled hosts open, if it is time for the first."""
        rows = self._rows
        if rows.due <= now:
            due = self._db.execute(_DUE, (self.job, now)).fetchall()
            for row, number, rank, charged in due:
                self._db.execute(_MAKE_READY, (row,))
                rows.ready(rows.queue(number), row, rank, bool(charged))
            first = [self._db.one(_FIRST_DUE, self.job, charged) for charged in (0, 1)]
            rows.due = min((at for (at,) in filter(None, first)), default=math.inf)
        if rows.opening <= now:
            rows.save()
            values = (self.job, rows.opened_until, now)
            cooled = [number for (number,) in self._db.execute(_COOLED, values)]
            whole = len(cooled) < _OPENED
            rows.open(cooled, now if whole else None)
            if whole:
                first_opening = self._db.one(_FIRST_OPENING, self.job, now)
                rows.opening = first_opening[0] if first_opening else math.inf

    def choose(self) -> tuple[int, int] | None:
        """The queue and the row to hand out next, of those that are open."""
        spent = self._ledger.spent()
        if spent and spent != "max_pages":
            return None
        if spent or self._uniform:
            self._rows.write_opened()
            self._rows.save()
            return self._paid() if spent else self._draw()
        self._catch_up()
        heads = self._heads
        head = heads.first()
        if head is None and heads.bound is not None:
            self._rows.save()
            heads.start(*self._best(self._number))
            self._number = min(_MANY, 4 * self._number)
            head = heads.first()
        if head is None:
            return None
        if not self._rows.at_hand(head[3]):
            self._rows.read_ahead(heads.next(self._ahead))
            self._ahead = min(AT_ONCE, 2 * self._ahead)
        return head[3], head[2]

    def _catch_up(self) -> None:
        """Learn which heads have changed."""
        moved = self._rows.moved()
        if moved is None:
            self._heads.start((), _NOWHERE)
            self._number, self._ahead = _FEW, 1
            return
        for queue in moved:
            if self._is_ours(queue):
                self._heads.put(queue.id, _head_of(queue))

    @property
    def _owners(self) -> tuple[int, ...]:
        return (0, self.run) if self.volatile else (0,)

    def _is_ours(self, queue: Queue) -> bool:
        return queue.job == self.job and queue.owner in (0, self.run)

    def _best(self, number: int) -> tuple[list[_Head], _Head | None]:
        """The best heads of the job's queues and of the run's own; and, if there are more,
        the one up to which they are complete."""
        heads: list[_Head] = []
        bound: _Head | None = None
        for owner in self._owners:
            found = self._db.execute(_BEST, (self.job, owner, number)).fetchall()
            if len(found) == number and (bound is None or found[-1] < bound):
                bound = found[-1]
            heads += found
        opened = filter(self._is_ours, self._rows.opened.values())
        heads += filter(None, map(_head_of, opened))
        return heads, bound

    def _paid(self) -> tuple[int, int] | None:
        open_: list[tuple[int, int]] = []
        for queue, row, at in self._db.execute(_PAID, (self.job, self.run)):
            if at == 0:
                open_.append((queue, row))
                if not self._uniform:
                    break
        return self._rng.choice(open_) if open_ else None

    def _draw(self) -> tuple[int, int] | None:
        """Each ready row of an open queue is equally likely."""
        queues: list[tuple[int, int, bool]] = []
        total = 0
        for number, ready, retired in self._db.execute(_OPEN, (self.job, self.run)).fetchall():
            rows = self._db.one(_COUNT_CHARGED, self.job, number)[0] if retired else ready
            queues.append((number, rows, retired))
            total += rows
        place = self._rng.randrange(total) if total else 0
        for number, rows, retired in queues:
            if place < rows:
                sql, where = (_NTH_CHARGED, (self.job, number)) if retired else (_NTH, (number,))
                return number, self._db.one(sql, *where, place)[0]
            place -= rows
        return None

    def next_due(self, now: float) -> float | None:
        """When :meth:`choose` can next find something."""
        spent = self._ledger.spent()
        if spent and spent != "max_pages":
            return None
        if spent:
            paid = self._db.execute(_PAID, (self.job, self.run))
            times = [at or now for _, _, at in paid if at < BUSY]
        elif self._is_any_open():
            return now
        else:
            opening = self._db.one(_NEXT_OPENING, self.job, self.run)
            times = list(opening or ())
            times += self._next_ready(0)
        times += self._next_ready(1)
        times += (at for at in self._db.one(_NEXT_END, self.job, self.run) if at)
        return min(times, default=None)

    def _is_any_open(self) -> bool:
        opened = self._rows.opened.values()
        if any(_head_of(queue) for queue in opened if self._is_ours(queue)):
            return True
        return any(self._db.one(_BEST, self.job, owner, 1) for owner in self._owners)

    def _next_ready(self, charged: int) -> list[float]:
        """When the first deferred row that the budget allows is due, if there is one."""
        at, number = 0.0, 0
        rows = self._db.execute(_NEXT_READY, (self.job, charged, self.run))
        for at, retired in rows:
            if charged or not retired:
                return [at]
            number += 1
        # So many of hosts that have spent their share: rather early than a long walk.
        return [at] if number == 1000 else []

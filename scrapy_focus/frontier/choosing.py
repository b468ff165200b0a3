"""What a SQLite frontier may hand out next, and when."""

from __future__ import annotations

import math
import random
from heapq import heappop, heappush

from scrapy_focus.frontier.contract import Order
from scrapy_focus.frontier.database import Database
from scrapy_focus.frontier.ledger import Ledger
from scrapy_focus.frontier.rows import BUSY, Host, Queue, Rows

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
# Served by queues_cooling. Bounded likewise.
_COOLED = (
    "SELECT id FROM queues WHERE job = ? AND at > 0 AND at <= ? AND head IS NOT NULL"
    " ORDER BY at LIMIT 200"
)
_OPEN_UP = f"UPDATE queues SET at = 0 WHERE id IN ({_COOLED})"
# Served by queues_cooling and by urls_deferred, in their order.
_FIRST_OPENING = (
    "SELECT at FROM queues WHERE job = ? AND at > 0 AND head IS NOT NULL ORDER BY at LIMIT 1"
)
_FIRST_DUE = (
    "SELECT ready_at FROM urls WHERE job = ? AND charged = ? AND state = 0 AND ready_at > 0"
    " AND run IS NULL ORDER BY ready_at LIMIT 1"
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


def _head_of(queue: Queue) -> _Head | None:
    """``None`` where nothing can be handed out."""
    if queue.at or queue.head is None or queue.head_id is None:
        return None
    return queue.head, queue.tie, queue.head_id, queue.id


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
        # Open queues, a heap by what their heads are ordered by. No queue that is not here has
        # a better head than the bound.
        self._heads: list[_Head] = []
        self._bound: _Head | None = None

    def promote(self, now: float) -> None:
        """Deferred rows become ready and cooled hosts open, if it is time for the first."""
        rows = self._rows
        self._heads = []
        if rows.due <= now:
            due = self._db.execute(_DUE, (self.job, now)).fetchall()
            for row, number, rank, charged in due:
                self._db.execute(_MAKE_READY, (row,))
                rows.ready(rows.queue(number), row, rank, bool(charged))
            first = [self._db.one(_FIRST_DUE, self.job, charged) for charged in (0, 1)]
            rows.due = min((at for (at,) in filter(None, first)), default=math.inf)
        if rows.opening <= now:
            rows.save()
            cooled = self._db.execute(_COOLED, (self.job, now)).fetchall()
            if cooled:
                self._db.execute(_OPEN_UP, (self.job, now))
                rows.open_up(number for (number,) in cooled)
            first_opening = self._db.one(_FIRST_OPENING, self.job)
            rows.opening = first_opening[0] if first_opening else math.inf

    def choose(self, limit: int) -> tuple[int, int] | None:
        """The queue and the row to hand out next, of those that are open.

        :param limit: how many will be asked for until :meth:`promote` is called again
        """
        spent = self._ledger.spent()
        if spent and spent != "max_pages":
            return None
        if spent or self._uniform:
            self._rows.save()
            return self._paid() if spent else self._draw()
        while True:
            while self._heads and (self._bound is None or self._heads[0] <= self._bound):
                head = heappop(self._heads)
                queue = self._rows.queue(head[3])
                if head == _head_of(queue):
                    return queue.id, head[2]
            self._rows.save()
            self._heads = self._best(limit)
            if not self._heads:
                return None

    def chosen(self, host: Host) -> None:
        """Something was handed out: the queues of its host have other heads now."""
        for queue in self._rows.queues_of(host.id):
            mine = queue.job == self.job and queue.owner in (0, self.run)
            if mine and (head := _head_of(queue)):
                heappush(self._heads, head)

    def _best(self, limit: int) -> list[_Head]:
        """The best heads: of the job's queues, and of the run's own."""
        heads: list[_Head] = []
        self._bound = None
        for owner in (0, self.run) if self.volatile else (0,):
            found = self._db.execute(_BEST, (self.job, owner, limit)).fetchall()
            if len(found) == limit and (self._bound is None or found[-1] < self._bound):
                self._bound = found[-1]
            heads += found
        return sorted(heads)

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
        elif self._best(1):
            return now
        else:
            opening = self._db.one(_NEXT_OPENING, self.job, self.run)
            times = list(opening or ())
            times += self._next_ready(0)
        times += self._next_ready(1)
        times += (at for at in self._db.one(_NEXT_END, self.job, self.run) if at)
        return min(times, default=None)

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

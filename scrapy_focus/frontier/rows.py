"""The rows of a frontier that a transaction works on: loaded once, saved when they changed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from scrapy_focus.candidate import Candidate
from scrapy_focus.frontier.database import Database

#: ``queues.at`` of a queue whose host has as many requests in flight as it may have.
BUSY = 1e18

_LOAD_QUEUE = (
    "SELECT id, job, host, pace, owner, waiting, ready, pages, retired, head, head_id, tie,"
    " aged, at FROM queues WHERE id = ?"
)
_SAVE_QUEUE = (
    "UPDATE queues SET waiting = ?, ready = ?, pages = ?, retired = ?, head = ?, head_id = ?,"
    " tie = ?, at = ? WHERE id = ?"
)
# Served by queues_pace. Jobs that nobody is at look at their hosts when a run opens.
_QUEUES_OF = (
    "SELECT id FROM queues WHERE pace = ? AND job IN (SELECT job FROM runs WHERE ended IS NULL)"
)
# Served by urls_ready: the first entry of the queue's part.
_HEAD = (
    "SELECT rank, id FROM urls WHERE queue = ? AND state = 0 AND ready_at = 0"
    " ORDER BY rank, id LIMIT 1"
)
# Served by urls_charged.
_CHARGED_HEAD = (
    "SELECT rank, id FROM urls WHERE job = ? AND queue = ? AND state = 0 AND ready_at = 0"
    " AND charged = 1 ORDER BY rank, id LIMIT 1"
)
_LOAD_HOST = "SELECT id, name, next_at, delay, held, touched, in_flight FROM hosts WHERE id = ?"
_FIND_HOST = "SELECT id, name, next_at, delay, held, touched, in_flight FROM hosts WHERE name = ?"
_SAVE_HOST = (
    "UPDATE hosts SET next_at = ?, delay = ?, held = ?, touched = ?, in_flight = ? WHERE id = ?"
)
_LOAD_URL = (
    "SELECT url, key, copy, depth, parent, seed, priority, score, rank, discovered, attempts,"
    " charged, request FROM urls WHERE id = ?"
)


@dataclass(slots=True)
class Queue:
    """A row of ``queues``; the columns are described in the schema."""

    id: int
    job: int
    host: str
    pace: int
    owner: int
    waiting: int
    ready: int
    pages: int
    retired: int
    head: float | None
    head_id: int | None
    tie: float
    aged: int
    at: float

    def offer(self, rank: float, row: int, charged: bool) -> None:
        """A row became ready: it is the head if nothing better is."""
        self.ready += 1
        if self.retired and not charged:
            return
        if self.head is None or (rank, row) < (self.head, self.head_id):
            self.put_head(rank, row)

    def wait(self, row: int, rank: float, ready_at: float, charged: bool) -> None:
        """A row starts to wait, at once or for its time."""
        self.waiting += 1
        if not ready_at:
            self.offer(rank, row, charged)

    def put_head(self, rank: float | None, row: int | None) -> None:
        self.head, self.head_id = rank, row
        if self.aged and row is not None:
            self.tie = row

    def values(self) -> tuple[Any, ...]:
        """What can change, in the order of the statement that saves it."""
        return (
            *(self.waiting, self.ready, self.pages, self.retired),
            *(self.head, self.head_id, self.tie, self.at),
        )


@dataclass(slots=True)
class Host:
    """A row of ``hosts``: a pace group."""

    id: int
    name: str
    next_at: float
    delay: float
    held: float
    touched: float
    in_flight: int

    def opens(self, cap: int, now: float) -> float:
        """0 if it may be touched now; else when, or :data:`BUSY`."""
        if cap and self.in_flight >= cap:
            return BUSY
        at = max(self.next_at, self.held)
        return at if at > now else 0.0

    def values(self) -> tuple[Any, ...]:
        """What can change, in the order of the statement that saves it."""
        return self.next_at, self.delay, self.held, self.touched, self.in_flight


class Rows:
    """The queues and hosts of one transaction."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._queues: dict[int, Queue] = {}
        self._hosts: dict[int, Host] = {}
        # As the database has them.
        self._queue_values: dict[int, tuple[Any, ...]] = {}
        self._host_values: dict[int, tuple[Any, ...]] = {}

    def queue(self, number: int) -> Queue:
        queue = self._queues.get(number)
        if queue is None:
            queue = self._queues[number] = Queue(*self._db.one(_LOAD_QUEUE, number))
            self._queue_values[number] = queue.values()
        return queue

    def host(self, number: int) -> Host:
        host = self._hosts.get(number)
        return host or self._keep(Host(*self._db.one(_LOAD_HOST, number)))

    def _keep(self, host: Host) -> Host:
        self._hosts[host.id] = host
        self._host_values[host.id] = host.values()
        return host

    def host_named(self, group: str) -> Host:
        """The pace group of this name, made where it is new (served by its own index).

        Looked up each time: another process may have forgotten it, being empty.
        """
        found = self._db.one(_FIND_HOST, group)
        if found is None:
            self._db.execute("INSERT INTO hosts (name) VALUES (?)", (group,))
            found = self._db.one(_FIND_HOST, group)
        return self._hosts.get(found[0]) or self._keep(Host(*found))

    def queues_of(self, pace: int) -> Iterable[Queue]:
        """The queues of a pace group, of every job that a run is at."""
        rows = self._db.execute(_QUEUES_OF, (pace,)).fetchall()
        return [self.queue(number) for (number,) in rows]

    def find_head(self, queue: Queue) -> None:
        """Read the best ready row of a queue; of a retired one the best that is paid for."""
        if queue.retired:
            head = self._db.one(_CHARGED_HEAD, queue.job, queue.id)
        else:
            head = self._db.one(_HEAD, queue.id)
        queue.put_head(*(head or (None, None)))

    def reopen(self, host: Host, cap: int, now: float) -> None:
        """Tell a host's queues when it opens and when it was last touched."""
        at = host.opens(cap, now)
        for queue in self.queues_of(host.id):
            queue.at = at
            if not queue.aged:
                queue.tie = host.touched

    def candidate(self, queue: Queue, row: int) -> Candidate:
        """A stored URL as it waits."""
        (url, key, copy, depth, parent, seed, priority, score, rank, discovered, attempts, charged,
         request) = self._db.one(_LOAD_URL, row)  # fmt: skip
        return Candidate(
            url=url,
            host=queue.host,
            group=self.host(queue.pace).name,
            key=key,
            copy=copy,
            depth=depth,
            parent=parent,
            seed=bool(seed),
            priority=priority,
            score=0.5 if score is None else score,
            rank=rank,
            discovered=discovered,
            attempts=attempts,
            charged=bool(charged),
            request=request,
            volatile=bool(queue.owner),
        )

    def save(self) -> None:
        """Write back what has changed, so that the indexes tell the truth."""
        for number, queue in self._queues.items():
            values = queue.values()
            if values != self._queue_values[number]:
                self._db.execute(_SAVE_QUEUE, (*values, number))
                self._queue_values[number] = values
        for number, host in self._hosts.items():
            values = host.values()
            if values != self._host_values[number]:
                self._db.execute(_SAVE_HOST, (*values, number))
                self._host_values[number] = values

    def forget(self) -> None:
        """What is stored may change, or has been changed by a statement of its own."""
        self._queues.clear()
        self._hosts.clear()
        self._queue_values.clear()
        self._host_values.clear()

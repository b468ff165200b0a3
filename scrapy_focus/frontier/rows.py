"""The rows of a frontier that this run works on: read once, saved when they changed, and
kept at hand until another connection writes to the file."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice, product, repeat
from sqlite3 import OperationalError
from types import NoneType
from typing import Any

from scrapy_focus.candidate import Candidate
from scrapy_focus.frontier.database import Database, is_no_text

#: How many queues are kept at hand, with their hosts and the first of their URLs: some 4 MB.
#: How many leave together, since something may have to be written of each.
_KEPT, _LET_GO = 4096, 256
#: How many URLs of one queue are read ahead at most, and of all queues together.
_AHEAD, _AHEAD_OF_ALL = 16, 8192

#: Larger than every count and far from where whole numbers end.
MOST = 1 << 53
#: ``queues.at`` of a queue whose host has as many requests in flight as it may have.
BUSY = 1e18

# A queue, its pace group, and how many queues that has.
_COLUMNS = (
    "q.id, q.job, q.host, q.pace, q.owner, q.share, q.waiting, q.ready, q.pages, q.retired, q.head,"
    " q.head_id, q.tie, q.aged, q.at, h.id, h.name, h.next_at, h.delay, h.held, h.touched,"
    " h.in_flight, (SELECT count(*) FROM queues AS o WHERE o.pace = q.pace)"
)
_FROM = "FROM queues AS q CROSS JOIN hosts AS h ON h.id = q.pace"
_QUEUE = f"SELECT {_COLUMNS} {_FROM}"
_LOAD_QUEUE = f"{_QUEUE} WHERE q.id = ?"
# Served by the unique index of queues.
_FIND_QUEUE = (
    f"{_QUEUE} WHERE q.job = ? AND q.host = ? AND q.pace = ? AND q.owner = ? AND q.share = ?"
)
_SAVE_QUEUE = (
    "UPDATE queues SET waiting = ?, ready = ?, pages = ?, retired = ?, head = ?, head_id = ?,"
    " tie = ?, at = ? WHERE id = ?"
)
# Served by queues_pace. Jobs that nobody is at look at their hosts when a run opens.
_QUEUES_OF = (
    "SELECT id FROM queues WHERE pace = ? AND job IN (SELECT job FROM runs WHERE ended IS NULL)"
)
_URL = (
    "u.rank, u.id, u.url, u.key, u.copy, u.depth, u.parent, u.seed, u.priority, u.score,"
    " u.discovered, u.attempts, u.charged, u.request"
)
# Served by urls_ready: the first entries of the queue's part. Of the head alone the index
# knows enough. A rank that is no number is passed over.
_RANKED = "state = 0 AND ready_at = 0 AND rank BETWEEN -9e999 AND 9e999"
_HEAD = f"SELECT rank, id FROM urls WHERE queue = ? AND {_RANKED} ORDER BY rank, id LIMIT 1"
_FIRST = f"SELECT {_URL} FROM urls AS u WHERE queue = ? AND {_RANKED} ORDER BY rank, id LIMIT ?"
# Served by urls_charged.
_CHARGED_HEAD = (
    f"SELECT rank, id FROM urls WHERE job = ? AND queue = ? AND {_RANKED} AND charged = 1"
    " ORDER BY rank, id LIMIT 1"
)
#: How many queues are read at once, with their heads.
AT_ONCE = 8
_LOAD_QUEUES = (
    f"SELECT {_COLUMNS}, {_URL} {_FROM} CROSS JOIN urls AS u ON u.id = q.head_id"
    f" WHERE q.id IN ({', '.join('?' * AT_ONCE)})"
)
_LOAD_HOST = "SELECT id, name, next_at, delay, held, touched, in_flight FROM hosts WHERE id = ?"
_FIND_HOST = "SELECT id, name, next_at, delay, held, touched, in_flight FROM hosts WHERE name = ?"
_SAVE_HOST = (
    "UPDATE hosts SET next_at = ?, delay = ?, held = ?, touched = ?, in_flight = ? WHERE id = ?"
)
_LOAD_URL = f"SELECT {_URL} FROM urls AS u WHERE id = ?"

#: The types of the columns of a URL that makes sense, stored or new.
_REAL = (float, int)
_TYPES = frozenset(
    product(
        *(_REAL, (int,), (str,), (bytes,), (int,), (int,), (str, NoneType), (int, bool), _REAL),
        *((*_REAL, NoneType), _REAL, (int,), (int, bool), (bytes, NoneType)),
    )
)


@dataclass(slots=True)
class Queue:
    """A row of ``queues``; the columns are described in the schema."""

    id: int
    job: int
    host: str
    pace: int
    owner: int
    share: str
    waiting: int
    ready: int
    pages: int
    retired: int
    head: float | None
    head_id: int | None
    tie: float
    aged: int
    at: float
    #: What the database has in place of an :attr:`at` of 0: it has passed, so that it says the
    #: same.
    passed: float = 0.0
    #: The first ready rows, in their order: each its rank, its id, and the rest of its columns
    #: where they are known. Empty where they are not, and for a retired queue.
    ahead: list[tuple[Any, ...]] = field(default_factory=list)
    #: Whether rows were handed out while it was at hand: then more will be.
    used: bool = False
    #: What the database has, once it was looked at.
    stored: tuple[Any, ...] | None = None

    def offer(self, rank: float, row: int, charged: bool, new: Candidate | None = None) -> bool:
        """A row became ready: it is the head if nothing better is. Says whether it is kept ahead.

        :param new: what the row was made of, where it is new
        """
        whole = len(self.ahead) == self.ready
        self.ready += 1
        if self.retired and not charged:
            return False
        if self.head is None or (rank, row) < (self.head, self.head_id):
            self.put_head(rank, row)
        ahead = self.ahead
        if self.retired or not (whole or (ahead and (rank, row) < ahead[-1][:2])):
            return False
        insort(ahead, (rank, row, *(_columns(new) if new else ())))
        return True

    def taken(self, row: int) -> bool:
        """A ready row was handed out. Says whether the head is known all the same."""
        self.waiting -= 1
        self.ready -= 1
        ahead = self.ahead
        if ahead and ahead[0][1] == row:
            del ahead[0]
        else:
            ahead[:] = [other for other in ahead if other[1] != row]
        if ahead:
            self.put_head(ahead[0][0], ahead[0][1])
        elif self.ready == 0:
            self.put_head(None, None)
        return not self.retired and bool(ahead or self.ready == 0)

    def put_head(self, rank: float | None, row: int | None) -> None:
        self.head, self.head_id = rank, row
        if self.aged and row is not None:
            self.tie = row

    def values(self) -> tuple[Any, ...]:
        """What can change, in the order of the statement that saves it."""
        return (
            *(self.waiting, self.ready, self.pages, self.retired),
            *(self.head, self.head_id, self.tie, self.at or self.passed),
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
    #: :attr:`next_at` as a request of this run has left it, where that is known.
    ours: float = 0.0
    #: What the database has, once it was looked at.
    stored: tuple[Any, ...] | None = None

    def opens(self, cap: int, now: float) -> float:
        """0 if it may be touched now; else when, or :data:`BUSY`."""
        if cap and self.in_flight >= cap:
            return BUSY
        at = max(self.next_at, self.held)
        return at if at > now else 0.0

    def values(self) -> tuple[Any, ...]:
        """What can change, in the order of the statement that saves it."""
        return self.next_at, self.delay, self.held, self.touched, self.in_flight


def _columns(c: Candidate) -> tuple[Any, ...]:
    """What is read of the row of a new candidate, after rank and id."""
    return (
        *(c.url, c.key, c.copy, c.depth, c.parent, c.seed, c.priority, c.score, c.discovered),
        *(0, c.charged, c.request),
    )


class Rows:
    """The queues and hosts at hand.

    What has changed of them is written by :meth:`save`: before a query that needs it, and
    before the transaction is stored, which may be several calls later.
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self._queues: dict[int, Queue] = {}
        self._hosts: dict[int, Host] = {}
        self._names: dict[str, Host] = {}
        #: The queues of each pace group, of every job that a run is at.
        self._queues_of: dict[int, list[int]] = {}
        # What was looked at, and may not be as it is stored.
        self._seen_queues: list[Queue] = []
        self._seen_hosts: list[Host] = []
        self._moved: dict[int, Queue] | None = None
        #: No queue opens before it, and no row becomes ready (Unix time, seconds).
        self.opening = self.due = 0.0
        #: Queues that have opened without that being written, and the time until which all
        #: are open that opened.
        self.opened: dict[int, Queue] = {}
        self.opened_until = 0.0
        #: Whether what is at hand has outlived a transaction.
        self._lasting = False

    def queue(self, number: int) -> Queue:
        queue = self._queues.get(number)
        if queue is None:
            queue = self._take_in(self._db.one(_LOAD_QUEUE, number))
        return self._work_on(queue)

    def at_hand(self, number: int) -> bool:
        """Whether a queue need not be read."""
        return number in self._queues

    def read_ahead(self, numbers: Iterable[int]) -> None:
        """Take in queues that will be needed, with their heads: at most :data:`AT_ONCE`."""
        wanted = [number for number in numbers if number not in self._queues]
        if not wanted:
            return
        values = (*wanted, *(wanted[0] for _ in range(AT_ONCE - len(wanted))))
        for found in self._read(_LOAD_QUEUES, values):
            queue = self._take_in(found)
            if not queue.retired:
                queue.ahead = [found[23:]]

    def _read(self, sql: str, values: tuple[Any, ...]) -> list[Any]:
        """Read ahead; nothing where bytes of a row are no text, which it will show by itself."""
        try:
            return self._db.execute(sql, values).fetchall()
        except OperationalError as error:
            if not is_no_text(error):
                raise
            return []

    def _take_in(self, found: Sequence[Any]) -> Queue:
        """A queue that was read, with its pace group, unless they are at hand."""
        queue = self._queues.get(found[0])
        if queue is None:
            queue = self._queues[found[0]] = Queue(*found[:15])
        if queue.pace not in self._hosts:
            self._keep(Host(*found[15:22]))
        if found[22] == 1:
            self._queues_of.setdefault(queue.pace, [queue.id])
        return queue

    def _work_on(self, queue: Queue) -> Queue:
        if queue.stored is None:
            queue.stored = queue.values()
            self._seen_queues.append(queue)
        if self._moved is not None:
            self._moved[queue.id] = queue
        return queue

    def moved(self) -> Iterable[Queue] | None:
        """The queues that may have changed since the last call; ``None`` if any may have."""
        moved, self._moved = self._moved, {}
        return None if moved is None else moved.values()

    def find_queue(self, job: int, host: str, pace: int, owner: int, share: str) -> Queue | None:
        """The queue of a host of a job, or of a part of it, in one pace group, if there is one."""
        found = self._db.one(_FIND_QUEUE, job, host, pace, owner, share)
        return self._work_on(self._take_in(found)) if found else None

    def host(self, number: int) -> Host:
        host = self._hosts.get(number)
        if host is None:
            host = self._keep(Host(*self._db.one(_LOAD_HOST, number)))
        return self._look_at(host)

    def _keep(self, host: Host) -> Host:
        self._hosts[host.id] = self._names[host.name] = host
        return host

    def _look_at(self, host: Host) -> Host:
        if host.stored is None:
            host.stored = host.values()
            self._seen_hosts.append(host)
        return host

    def host_named(self, group: str) -> Host:
        """The pace group of this name, made where it is new (served by its own index)."""
        host = self._names.get(group)
        if host is None:
            found = self._db.one(_FIND_HOST, group)
            if found is None:
                number = self._db.insert("INSERT INTO hosts (name) VALUES (?)", group)
                found = (number, group, 0.0, 0.0, 0.0, 0.0, 0)
                self._queues_of[number] = []
            host = self._keep(Host(*found))
        return self._look_at(host)

    def queues_of(self, pace: int) -> Iterable[Queue]:
        """The queues of a pace group, of every job that a run is at."""
        numbers = self._queues_of.get(pace)
        if numbers is None:
            rows = self._db.execute(_QUEUES_OF, (pace,)).fetchall()
            numbers = self._queues_of[pace] = [number for (number,) in rows]
        return [self.queue(number) for number in numbers]

    def is_alone(self, host: Host) -> bool:
        """Whether a pace group is known to have no queue."""
        return self._queues_of.get(host.id) == []

    def add_queue(self, queue: Queue) -> None:
        """A queue is new."""
        self._queues[queue.id] = queue
        if queue.pace in self._queues_of:
            self._queues_of[queue.pace].append(queue.id)

    @property
    def _most(self) -> int:
        """How many rows of a queue are kept ahead."""
        return max(1, min(_AHEAD, _AHEAD_OF_ALL // max(1, len(self._queues))))

    def take(self, queue: Queue, row: int) -> None:
        """A ready row of a queue was handed out."""
        if not queue.taken(row):
            self.find_head(queue)
        queue.used = True

    def remove(self, queue: Queue, row: int, *, ready: bool) -> None:
        """A row of a queue is gone, though nobody has asked for it."""
        if not ready:
            queue.waiting -= 1
        elif row != queue.head_id:
            queue.waiting -= 1
            queue.ready -= 1
            queue.ahead[:] = [other for other in queue.ahead if other[1] != row]
        elif not queue.taken(row):
            self.find_head(queue)

    def wait(
        self,
        queue: Queue,
        row: int,
        rank: float,
        ready_at: float,
        charged: bool,
        new: Candidate | None = None,
    ) -> None:
        """A row of a queue starts to wait, at once or for its time."""
        queue.waiting += 1
        if not ready_at:
            self._offer(queue, row, rank, charged, new)
        elif ready_at < self.due:
            self.due = ready_at

    def ready(self, queue: Queue, row: int, rank: float, charged: bool) -> None:
        """The time has come that a row has waited for."""
        self._offer(queue, row, rank, charged)

    def _offer(
        self, queue: Queue, row: int, rank: float, charged: bool, new: Candidate | None = None
    ) -> None:
        if queue.offer(rank, row, charged, new):
            del queue.ahead[self._most :]
        self._opens(queue)

    def _opens(self, queue: Queue) -> None:
        if 0 < queue.at <= self.opened_until:
            self._open(queue)
        elif 0 < queue.at < self.opening:
            self.opening = queue.at

    def find_head(self, queue: Queue) -> None:
        """Read the best ready row of a queue; of a retired one the best that is paid for."""
        queue.ahead = []
        if queue.used and not queue.retired:
            queue.ahead = self._read(_FIRST, (queue.id, self._most))
        if queue.ahead:
            head = queue.ahead[0]
        elif queue.retired:
            head = self._db.one(_CHARGED_HEAD, queue.job, queue.id)
        else:
            head = self._db.one(_HEAD, queue.id)
        queue.put_head(*(head[:2] if head else (None, None)))
        self._opens(queue)

    def reopen(self, host: Host, cap: int, now: float) -> None:
        """Tell a host's queues when it opens and when it was last touched."""
        at = host.opens(cap, now)
        for queue in self.queues_of(host.id):
            self.shut(queue, at)
            if not queue.aged:
                queue.tie = host.touched

    def shut(self, queue: Queue, at: float) -> None:
        """A queue's host opens at that time, or (0) is open."""
        if at:
            if at <= self.opened_until:
                self.write_opened()  # the clock was set back
            queue.passed = 0.0
            self.opened.pop(queue.id, None)
        queue.at = at
        self._opens(queue)

    def open(self, numbers: Iterable[int], until: float | None) -> None:
        """The time of these queues has come; with what is open already, they are all whose time
        came *until* then, unless that is ``None``.

        Most often a queue is shut again before anyone asks the database whether it is open. So
        that is not written, unless other connections write, too.
        """
        if until is None or not self._lasting:
            for number in numbers:
                self.queue(number).at = 0.0
            return
        for number in numbers:
            self._open(self.queue(number))
        self.opened_until = until

    def _open(self, queue: Queue) -> None:
        queue.passed, queue.at = queue.at, 0.0
        self.opened[queue.id] = queue

    def write_opened(self) -> None:
        """Let the database say which queues are open."""
        for queue in self.opened.values():
            self._work_on(queue)
            queue.passed = 0.0
        self.opened.clear()
        self.opened_until = 0.0

    def candidate(self, queue: Queue, row: int) -> Candidate | None:
        """A stored URL as it waits; ``None`` if it is malformed."""
        ahead = queue.ahead
        found = ahead[0] if ahead and ahead[0][1] == row else ()
        # Only the head may be known, or the row be made of a subclass of these types.
        if tuple(map(type, found)) not in _TYPES:
            found = next(iter(self._read(_LOAD_URL, (row,))), ())
            if tuple(map(type, found)) not in _TYPES:
                return None
        (rank, _, url, key, copy, depth, parent, seed, priority, score, discovered, attempts,
         charged, request) = found  # fmt: skip
        if attempts >= MOST:
            return None
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
            share=queue.share,
        )

    def save(self) -> None:
        """Write back what has changed, so that the indexes tell the truth."""
        for queue in self._seen_queues:
            values = queue.values()
            if values != queue.stored:
                self._db.execute(_SAVE_QUEUE, (*values, queue.id))
                queue.stored = values
        for host in self._seen_hosts:
            values = host.values()
            if values != host.stored:
                self._db.execute(_SAVE_HOST, (*values, host.id))
                host.stored = values

    def store(self) -> None:
        """Write all before it is stored. If there is too much at hand, let go of what has been
        here longest."""
        many = max(len(self._queues), len(self._hosts)) > _KEPT
        leaving = list(islice(self._queues, _LET_GO)) if many else ()
        for queue in filter(None, map(self.opened.pop, leaving, repeat(None))):
            self._work_on(queue)
            queue.passed = 0.0
        self.save()
        for queue in self._seen_queues:
            queue.stored = None
        for host in self._seen_hosts:
            host.stored = None
        self._seen_queues.clear()
        self._seen_hosts.clear()
        for number in leaving:
            del self._queues[number]
        for number in list(islice(self._hosts, _LET_GO)) if many else ():
            del self._names[self._hosts.pop(number).name]
            self._queues_of.pop(number, None)
        self._lasting = True

    def forget(self) -> None:
        """What is stored has been changed by another connection, or by a statement of its own."""
        for at_hand in (self._queues, self._hosts, self._names, self._queues_of):
            at_hand.clear()
        self._seen_queues.clear()
        self._seen_hosts.clear()
        self.opened.clear()
        self._moved = None
        self.opening = self.due = self.opened_until = 0.0
        self._lasting = False

"""The frontier in memory: the reference that says what the contract means.

It keeps nothing, has one job and one run, and is written to be read: a lease looks at
every queue.
"""

from __future__ import annotations

import random
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from scrapy_focus.candidate import Candidate
from scrapy_focus.frontier.contract import (
    ASIDE,
    Counts,
    Ending,
    Frontier,
    Lease,
    Limits,
    Order,
    Outcome,
    Pace,
)

_NEVER = float("inf")


@dataclass(slots=True)
class _Host:
    next_at: float = 0.0
    delay: float = 0.0
    held: float = 0.0
    touched: float = 0.0
    in_flight: int = 0

    def opens(self, cap: int, now: float) -> float:
        """0 if it may be touched now; else when, or never while it is busy."""
        if cap and self.in_flight >= cap:
            return _NEVER
        at = max(self.next_at, self.held)
        return at if at > now else 0.0


@dataclass(slots=True)
class _Row:
    id: int
    candidate: Candidate
    queue: _Queue
    state: Ending | None = None  # None: waiting or leased
    leased: bool = False
    in_flight: bool = False


@dataclass(slots=True)
class _Queue:
    host: str
    group: str
    share: str
    waiting: int = 0
    #: (rank, id) of the rows that are ready, in order.
    ready: list[tuple[float, int]] = field(default_factory=list)


class MemoryFrontier(Frontier):
    """A job in memory. See :class:`~scrapy_focus.frontier.Frontier`."""

    name = "memory"

    def __init__(
        self,
        *,
        pace: Pace,
        limits: Limits = Limits(),
        order: Order = Order(),
        rng: random.Random | None = None,
    ) -> None:
        super().__init__()
        self._pace = pace
        self._limits = limits
        self._order = order
        self._rng = rng or random.Random()
        self._rows: dict[int, _Row] = {}
        self._keys: dict[bytes, set[int]] = {}
        self._queues: dict[tuple[str, str, str], _Queue] = {}
        self._hosts: dict[str, _Host] = {}
        #: (ready_at, id) of the rows that wait for their time, in order.
        self._deferred: list[tuple[float, int]] = []
        self._host_pages: Counter[str] = Counter()
        self._share_pages: Counter[tuple[str, str]] = Counter()
        self._counts = Counts()
        self._notes: dict[str, bytes] = {}
        self._last = 0

    @contextmanager
    def transaction(self, *, soon: bool = False) -> Iterator[None]:
        yield

    def seen(self, key: bytes) -> bool:
        return key in self._keys

    def add(self, candidates: Sequence[Candidate], now: float) -> list[bool]:
        new = [self._add(candidate, now) for candidate in candidates]
        self._keep({candidate.host for candidate in candidates})
        return new

    def _keep(self, hosts: Iterable[str]) -> None:
        """Shed what is too much, of these hosts and then of all."""
        for host in hosts:
            queues = [queue for queue in self._queues.values() if queue.host == host]
            self._shed(queues, self._limits.waiting_per_host)
        self._shed(list(self._queues.values()), self._limits.waiting)

    def _shed(self, queues: list[_Queue], most: int) -> None:
        """Remove the worst of what waits in these queues, if it is more than *most* (0: any)."""
        over = sum(queue.waiting for queue in queues) - most
        if over <= 0 or not most:
            return
        numbers = [number for queue in queues for _, number in queue.ready]
        numbers += [number for _, number in self._deferred if self._rows[number].queue in queues]
        rows = [self._rows[number] for number in numbers if self._is_sheddable(number)]
        rows.sort(key=lambda row: (row.candidate.rank, row.id), reverse=True)
        for row in rows[:over]:
            self._remove(row)

    def _is_sheddable(self, number: int) -> bool:
        c = self._rows[number].candidate
        return not (c.seed or c.charged or c.attempts or c.volatile or c.ready_at >= ASIDE)

    def _remove(self, row: _Row) -> None:
        c, ready = row.candidate, (row.candidate.rank, row.id)
        row.queue.waiting -= 1
        if c.ready_at:
            self._deferred.remove((c.ready_at, row.id))
        else:
            row.queue.ready.remove(ready)
        del self._rows[row.id]
        self._keys[c.key].discard(c.copy)
        if not self._keys[c.key]:
            del self._keys[c.key]
        self.shed.append(c.key)
        self._counts.dropped += 1
        self.count("dropped", {"shed": 1})

    def _add(self, candidate: Candidate, now: float) -> bool:
        copies = self._keys.get(candidate.key)
        if copies is not None and (candidate.copy == 0 or candidate.copy in copies):
            return False
        self._keys.setdefault(candidate.key, set()).add(candidate.copy)
        spot = (candidate.host, candidate.group, candidate.share)
        queue = self._queues.setdefault(spot, _Queue(*spot))
        self._hosts.setdefault(candidate.group, _Host())
        self._last += 1
        row = self._rows[self._last] = _Row(self._last, replace(candidate), queue)
        self._counts.added += 1
        self._wait(row, now)
        return True

    def _wait(self, row: _Row, now: float) -> None:
        """A row starts to wait, in its queue or for its time."""
        row.queue.waiting += 1
        if row.candidate.ready_at > now:
            insort(self._deferred, (row.candidate.ready_at, row.id))
        else:
            self._make_ready(row)

    def _make_ready(self, row: _Row) -> None:
        row.candidate.ready_at = 0.0
        insort(row.queue.ready, (row.candidate.rank, row.id))

    def _promote(self, now: float) -> None:
        while self._deferred and self._deferred[0][0] <= now:
            self._make_ready(self._rows[self._deferred.pop(0)[1]])

    def _retired(self, queue: _Queue) -> bool:
        most = self._limits.pages_per_host
        if most and self._host_pages[queue.host] >= most:
            return True
        part = self._limits.pages_per_share.get(queue.share)
        return part is not None and self._share_pages[queue.host, queue.share] >= part

    def _charge(self, queue: _Queue, pages: int) -> None:
        self._host_pages[queue.host] += pages
        self._share_pages[queue.host, queue.share] += pages
        self._counts.pages += pages

    def _pays(self, row: _Row) -> bool:
        """Whether the budget allows to hand a row out."""
        if row.candidate.charged:
            return True
        return self.spent() != "max_pages" and not self._retired(row.queue)

    def _allowed(self, queue: _Queue) -> Iterator[int]:
        """The ready rows of a queue that the budget allows, best first."""
        return (number for _, number in queue.ready if self._pays(self._rows[number]))

    def _head(self, queue: _Queue) -> int | None:
        return next(self._allowed(queue), None)

    def _opens(self, queue: _Queue, now: float) -> float:
        return self._hosts[queue.group].opens(self._pace(queue.group)[1], now)

    def lease(self, limit: int, now: float, until: float) -> list[Lease]:
        leases: list[Lease] = []
        self._promote(now)
        while len(leases) < limit:
            if self.spent() in ("max_bytes", "max_seconds"):
                break
            number = self._draw(now) if self._order.uniform else self._best(now)
            if number is None:
                break
            leases.append(self._claim(self._rows[number], now, until))
        return leases

    def _best(self, now: float) -> int | None:
        best: tuple[float, float, int] | None = None
        for queue in self._queues.values():
            number = self._head(queue)
            if number is None or self._opens(queue, now):
                continue
            aged = self._order.ties == "age"
            tie = number if aged else self._hosts[queue.group].touched
            key = (self._rows[number].candidate.rank, tie, number)
            if best is None or key < best:
                best = key
        return best[2] if best else None

    def _draw(self, now: float) -> int | None:
        rows = [
            number
            for queue in self._queues.values()
            if not self._opens(queue, now)
            for number in self._allowed(queue)
        ]
        return self._rng.choice(rows) if rows else None

    def _claim(self, row: _Row, now: float, until: float) -> Lease:
        queue, host = row.queue, self._hosts[row.queue.group]
        del queue.ready[bisect_left(queue.ready, (row.candidate.rank, row.id))]
        before = replace(row.candidate, attempts=row.candidate.attempts + 1)
        row.leased = row.in_flight = True
        row.candidate.attempts += 1
        queue.waiting -= 1
        self._counts.leased += 1
        if not row.candidate.charged:
            row.candidate.charged = True
            self._charge(queue, 1)
        gap = max(self._pace(queue.group)[0], host.delay)
        prior = host.next_at
        if gap > 0:
            host.next_at = max(prior, now + gap)
        host.touched = now
        host.in_flight += 1
        return Lease(row.id, row.candidate.attempts, before, until, gap, host.next_at, prior)

    def spent(self) -> str | None:
        limits, counts = self._limits, self._counts
        if limits.bytes and counts.bytes >= limits.bytes:
            return "max_bytes"
        if limits.seconds and counts.seconds >= limits.seconds:
            return "max_seconds"
        if limits.pages and counts.pages >= limits.pages:
            return "max_pages"
        return None

    def settle(
        self, outcomes: Sequence[Outcome], candidates: Sequence[Candidate], now: float
    ) -> tuple[list[bool], list[bool]]:
        accepted = [self._settle(outcome, now) for outcome in outcomes]
        return accepted, self.add(candidates, now) if candidates else []

    def _leased(self, lease: Lease) -> _Row | None:
        row = self._rows.get(lease.id)
        if row is None or not row.leased or row.candidate.attempts != lease.fence:
            return None
        return row

    def _settle(self, outcome: Outcome, now: float) -> bool:
        row = self._leased(outcome.lease)
        if row is None:
            return False
        self.left(outcome.lease, now, fetched=outcome.fetched)
        row.leased = False
        self._counts.leased -= 1
        self._counts.bytes += outcome.size
        unfetched = not outcome.fetched and outcome.ending is not Ending.DONE
        if unfetched and not outcome.lease.candidate.charged:
            row.candidate.charged = False
            self._charge(row.queue, -1)
        if outcome.ending in (Ending.DONE, Ending.FAILED, Ending.DROPPED):
            row.state = outcome.ending
            name = outcome.ending.value
            setattr(self._counts, name, getattr(self._counts, name) + 1)
            if outcome.ending is not Ending.DONE:
                self.count(name, {outcome.reason or "unknown": 1})
            return True
        if outcome.retry:
            self._change(row.candidate, outcome.retry)
        if outcome.ending is Ending.ASIDE:
            row.candidate.ready_at = ASIDE
        self._wait(row, now)
        return True

    def _change(self, candidate: Candidate, retry: Candidate) -> None:
        """What another attempt may change of a row."""
        candidate.ready_at = retry.ready_at
        candidate.rank = retry.rank
        candidate.priority = retry.priority
        if not retry.volatile:
            candidate.request = retry.request

    def reached(self, lease: Lease, now: float) -> float:
        host = self._hosts[lease.candidate.group]
        if lease.gap > 0:
            host.next_at = max(host.next_at, now + lease.gap)
        return now

    def left(self, lease: Lease, now: float, *, fetched: bool = True, size: int = 0) -> None:
        row = self._leased(lease)
        if row is None or not row.in_flight:
            return
        row.in_flight = False
        self._counts.bytes += size
        host = self._hosts[row.queue.group]
        host.in_flight -= 1
        if not fetched and lease.turn != lease.prior and host.next_at == lease.turn:
            host.next_at = lease.prior

    def renew(self, leases: Iterable[Lease], until: float) -> None:
        for lease in leases:
            if self._leased(lease):
                lease.until = until

    def pace(self, group: str, delay: float, now: float) -> None:
        host = self._hosts.setdefault(group, _Host())
        host.delay = delay
        host.next_at = max(host.next_at, now + delay)

    def hold(self, group: str, until: float, now: float) -> None:
        host = self._hosts.setdefault(group, _Host())
        host.held = max(host.held, until)

    def touch(self, group: str, now: float) -> None:
        """Nothing to do: every lease looks at the limit anew."""

    def next_due(self, now: float) -> float | None:
        if self.spent() in ("max_bytes", "max_seconds"):
            return None
        times = [
            self._opens(queue, now) or now
            for queue in self._queues.values()
            if self._head(queue) is not None
        ]
        rows = ((at, self._rows[number]) for at, number in self._deferred)
        times += [next((at for at, row in rows if self._pays(row)), _NEVER)]
        return min((at for at in times if at < ASIDE), default=None)

    def others(self, now: float) -> bool:
        return False

    def count(self, kind: str, reasons: Mapping[str, int]) -> None:
        counts = self._counts.reasons.setdefault(kind, {})
        for reason, number in reasons.items():
            counts[reason] = counts.get(reason, 0) + number

    def note(self, name: str, value: bytes) -> None:
        self._notes[name] = value

    def noted(self, name: str) -> bytes | None:
        return self._notes.get(name)

    def beat(self, seconds: float, now: float) -> None:
        self._counts.seconds += seconds

    def clear(self, limit: int, now: float) -> bool:
        self._keep({queue.host for queue in self._queues.values()})
        return False

    def counts(self, now: float) -> Counts:
        counts = replace(self._counts)
        counts.waiting = counts.added - counts.leased - counts.done - counts.failed - counts.dropped
        counts.deferred = len(self._deferred)
        counts.unreadable = sum(ready_at >= ASIDE for ready_at, _ in self._deferred)
        counts.reasons = {kind: dict(found) for kind, found in counts.reasons.items()}
        states = {(q.host, self._state(q, now)) for q in self._queues.values() if q.waiting}
        counts.hosts = dict(Counter(state for _, state in states))
        return counts

    def _state(self, queue: _Queue, now: float) -> str:
        host, opens = self._hosts[queue.group], self._opens(queue, now)
        if self._retired(queue) and self._head(queue) is None:
            return "capped" if queue.share else "retired"
        if opens == _NEVER and host.in_flight:
            return "busy"
        if host.held > now:
            return "held"
        return "cooling" if opens else "ready"

    def rerank(self, rank: Callable[[Candidate], float]) -> int:
        waiting = [row for row in self._rows.values() if row.state is None]
        for row in waiting:
            row.candidate.rank = rank(row.candidate)
        for queue in self._queues.values():
            numbers = [number for _, number in queue.ready]
            queue.ready = sorted((self._rows[n].candidate.rank, n) for n in numbers)
        return len(waiting)

    def close(self, reason: str, *, finished: bool, now: float) -> None:
        """Nothing is kept."""

"""The frontier in a SQLite file: the default store."""

from __future__ import annotations

import logging
import random
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeVar

from scrapy_focus.candidate import Candidate
from scrapy_focus.exceptions import FrontierBusy, FrontierError
from scrapy_focus.frontier.bounds import Bounds
from scrapy_focus.frontier.choosing import Chooser
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
from scrapy_focus.frontier.database import Database
from scrapy_focus.frontier.jobs import Jobs
from scrapy_focus.frontier.ledger import Ledger
from scrapy_focus.frontier.mending import adds_up, is_sound, mend
from scrapy_focus.frontier.pruning import Pruner, forget_old, forget_rows, open_set
from scrapy_focus.frontier.report import read_counts
from scrapy_focus.frontier.rows import Host, Queue, Rows
from scrapy_focus.frontier.runs import Company
from scrapy_focus.frontier.seen import EXACT, Choice

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

# Of VALUES, not of a SELECT with the condition: that could write several rows, and SQLite
# would keep a copy of every page that it touches.
_ADD = (
    "INSERT INTO urls (job, queue, key, copy, url, ready_at, charged, rank, depth, priority,"
    " score, seed, discovered, parent, request, owner)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (job, key, copy) DO NOTHING"
)
# Served by urls_key.
_SEEN = "SELECT 1 FROM urls WHERE job = ? AND key = ? LIMIT 1"
_ADD_QUEUE = (
    "INSERT INTO queues (job, host, pace, owner, share, at, tie, aged, retired)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_CLAIM = (
    "UPDATE urls SET ready_at = ?, run = ?, in_flight = 1, charged = 1, attempts = attempts + 1"
    " WHERE id = ?"
)
_LEASED = "SELECT queue, in_flight, rank FROM urls WHERE id = ? AND attempts = ? AND run = ?"
_SETTLE = (
    "UPDATE urls SET state = ?, ready_at = 0, run = NULL, in_flight = 0, reason = ?, charged = ?"
    " WHERE id = ?"
)
_GIVE_BACK = (
    "UPDATE urls SET ready_at = ?, run = NULL, in_flight = 0, charged = ?, rank = ? WHERE id = ?"
)
# A retry whose request cannot be stored leaves the one that is.
_CHANGE = (
    "UPDATE urls SET priority = ?1, request = CASE ?2 WHEN 1 THEN request ELSE ?3 END WHERE id = ?4"
)
_LEAVE = "UPDATE urls SET in_flight = 0 WHERE id = ? AND attempts = ? AND run = ? AND in_flight = 1"
_RENEW = "UPDATE urls SET ready_at = ? WHERE id = ? AND attempts = ? AND run = ?"
# Served by the primary key (the + keeps the planner from sorting the whole job each time):
# in steps, so that no row is changed under the cursor.
_SOME = "SELECT id, queue FROM urls WHERE +job = ? AND state = 0 AND id > ? ORDER BY id LIMIT 1000"
# The same of all states.
_SOME_OF_ALL = (
    "SELECT id, queue, url, state = 0 AND run IS NULL, state = 0 AND ready_at = 0, charged"
    " FROM urls WHERE +job = ? AND id > ? ORDER BY id LIMIT 1000"
)
_SET_ASIDE = "UPDATE urls SET ready_at = ?, charged = (charged IS 1) WHERE id = ?"
_NOTE = (
    "INSERT INTO notes (job, name, value) VALUES (?1, ?2, ?3)"
    " ON CONFLICT (job, name) DO UPDATE SET value = ?3"
)
# Served by the primary key of notes.
_NOTED = "SELECT value FROM notes WHERE job = ? AND name = ?"
_STATES = {Ending.DONE: 1, Ending.FAILED: 2, Ending.DROPPED: 3}

#: How many queues' ids are kept in memory; past it they are looked up again. How many keys are.
_CACHE, _COPIED = 50_000, 10_000


class SQLiteFrontier(Frontier):
    """A job in a SQLite file, shared with other jobs, runs and processes.

    :param path: the file
    :param job: the job's name
    :param resume: ``None``: go on with an unfinished job, start a finished one over;
        ``True``: go on; ``False``: start over, unless another run is at it
    :param policy: name of the policy, kept with the job to see that it changed
    :param full: a power cut loses nothing settled
    :param seen: what knows the URLs that are over; with another one than the exact one, which is
        the rows themselves, these are removed, and the job is run by one process at a time
    :param ahead: how far the caller's clock is ahead of one that nobody sets, which runs that join
        and the next one must know
    """

    def __init__(  # noqa: PLR0913
        self,
        path: Path,
        job: str,
        *,
        pace: Pace,
        now: float,
        resume: bool | None = None,
        limits: Limits = Limits(),
        order: Order = Order(),
        policy: str = "",
        full: bool = False,
        seen: Choice = EXACT,
        ahead: float | None = None,
        rng: random.Random | None = None,
    ) -> None:
        super().__init__()
        self.name = str(path)
        self._pace = pace
        self._aged = int(order.ties == "age")
        self._ids: dict[tuple[str, str, bool, str], int] = {}
        #: Keys of which the job has copies, if all of them are known.
        self._copied: set[bytes] | None = None
        #: This run's leases: what their rows say (queue, in flight, rank) and the fence.
        self._leased: dict[int, tuple[int, int, float, int]] = {}
        #: Whether what is at hand is as it was stored last.
        self._fresh = False
        self._totals = (0, 0, 0.0)
        self._counted = bool(limits.pages or limits.pages_per_host or limits.pages_per_share)
        company = Company(path)
        self._db = db = Database(path, full=full, alone=lambda: company.alone(self._jobs.token))
        db.begun, db.storing, db.undone = self._begun, self._storing, self._undone
        db.mended = self._mended
        self._rows = Rows(db)
        self._ledger = Ledger(db, self._rows, limits)
        self._chooser = Chooser(db, self._rows, self._ledger, order, rng or random.Random())
        self._bounds = Bounds(db, self._rows, self._ledger, limits)
        self.shed = self._bounds.shed
        self._jobs = Jobs(db, self._rows, self._ledger, self._reopen, ahead)
        self._job = self._run = 0
        self._pruner: Pruner | None = None
        self._mending = False
        #: Whether something was put right.
        self.mended = False
        #: When something was leased last, or the run opened (Unix time, seconds).
        self._now = now
        try:
            self._twice(lambda: self._join(job, resume, policy, seen, now))
            forget_old(db)
            db.stop_waiting()
        except BaseException:
            self._let_go()
            raise

    def _twice(self, write: Callable[[], _T]) -> _T:
        """Write when the run opens: what it stumbles over is put right, and it is done again."""
        try:
            with self.transaction():
                return write()
        except FrontierError:
            if not self.mended:
                raise
        with self.transaction():
            return write()

    def _join(self, name: str, resume: bool | None, policy: str, seen: Choice, now: float) -> None:
        if not is_sound(self._db):
            self._mend()
        joined = self._jobs.join(name, resume, policy, now)
        self._job = self._chooser.job = joined.job
        self._run = self._chooser.run = joined.run
        self.start, self.generation = joined.start, joined.generation
        #: The policy that the job was last run with.
        self.policy_before = joined.policy
        self._ledger.save()
        self._ledger.load(self._job, self._run)
        self._ledger.revise()
        self._jobs.look_around(self._aged, now)
        self._bounds.open(joined.job)
        self._copied = set() if joined.start in ("new", "restarted") else None
        if self._pruner:
            self._pruner.close()
        self._pruner = open_set(self._db, self._job, seen, joined.start)

    # -- malformed rows -------------------------------------------------------------

    def _mended(self) -> bool:
        """Look at all rows, after an error that may come from one; says whether some were put
        right."""
        if self._mending:
            return False
        self._mending = True
        try:
            with self.transaction():
                return self._mend()
        finally:
            self._mending = False

    def _mend(self) -> bool:
        changed, aside = mend(self._db, self._now)
        self._rows.forget()
        # What is at hand is not what is stored any more.
        self._fresh = False
        self.aside += aside
        self.mended |= changed
        if changed:
            logger.error(
                "The frontier %s has rows that no crawl has written like that, as after damage to "
                "the disk. URLs that cannot be read and are set aside: %d. What else makes no "
                "sense was put right, or left out.",
                self.name,
                aside,
            )
        return changed

    def _set_aside(self, queue: Queue, row: int) -> None:
        """A URL that cannot be read waits for someone to look at it."""
        if not self._db.execute(_SET_ASIDE, (ASIDE, row)).rowcount:
            raise LookupError("there is no such row")
        queue.waiting += 1
        self._rows.take(queue, row)
        self.aside += 1
        logger.error(
            "A URL of the frontier %s cannot be read and is set aside: row %d of urls.",
            *(self.name, row),
        )

    # -- transactions ---------------------------------------------------------------

    def hurry(self, patience: float) -> None:
        """From now on a call waits for at most so many seconds for what the frontier does on
        threads of its own, and raises :exc:`.FrontierBusy` then."""
        self._db.patience = patience

    def transaction(self, *, soon: bool = False) -> AbstractContextManager[None]:
        return self._db.transaction(soon=soon)

    def _begun(self, changed: bool) -> None:
        """A transaction has begun: see that what is at hand is what is stored."""
        if changed:
            self._copied = None
        if changed or not self._fresh:
            self._rows.forget()
            self._ids.clear()
            self._leased.clear()
            self._ledger.load(self._job, self._run)
            self._fresh = True
            self._totals = self._ledger.totals
        elif self._db.urgent:
            self._save()  # who does not write often may look at anything

    def _storing(self) -> None:
        self._rows.store()
        self._ledger.save()
        self._totals = self._ledger.totals

    def _undone(self) -> None:
        """A transaction has failed: nothing that was read or made inside is to be trusted."""
        self._fresh = False
        self._rows.forget()
        self._ledger.forget()
        self._ledger.totals = self._totals
        self.shed.clear()
        if self._pruner:
            self._pruner.undone()

    def _save(self) -> None:
        self._rows.save()
        self._ledger.save()

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        """Read one state, with what the open transaction, if there is one, has changed."""
        with self._db.snapshot():
            self._save()
            yield

    # -- adding ---------------------------------------------------------------------

    def seen(self, key: bytes) -> bool:
        if self._pruner and self._pruner.set.has(key):
            return True
        return self._db.ask(_SEEN, self._job, key) is not None

    def add(self, candidates: Sequence[Candidate], now: float) -> list[bool]:
        with self.transaction():
            new = [self._add(candidate, now) for candidate in candidates]
            self._ledger.add("added", sum(new))
            if self._bounds:
                pairs = zip(candidates, new, strict=True)
                self._bounds.keep(candidate.host for candidate, is_new in pairs if is_new)
            return new

    def _add(self, c: Candidate, now: float) -> bool:
        job, key, copy = self._job, c.key, c.copy
        if self._pruner and self._pruner.set.has(key, copy):
            return False
        # A filtered request matches any copy; a copy only itself.
        if copy:
            self._remember_copy(key)
        elif (self._copied is None or key in self._copied) and self._db.one(_SEEN, job, key):
            return False
        queue = self._rows.queue(self._queue_id(c, now))
        ready_at = c.ready_at if c.ready_at > now else 0.0
        score = None if c.score == 0.5 else c.score
        values = (
            job, queue.id, key, copy, c.url, ready_at, c.charged, c.rank, c.depth, c.priority,
            score, c.seed, c.discovered, c.parent, c.request, queue.owner or None,
        )  # fmt: skip
        cursor = self._db.execute(_ADD, values)
        if cursor.rowcount != 1:
            return False
        assert cursor.lastrowid is not None
        self._rows.wait(queue, cursor.lastrowid, c.rank, ready_at, c.charged, c)
        return True

    def _remember_copy(self, key: bytes) -> None:
        if self._copied is not None:
            self._copied.add(key)
            if len(self._copied) > _COPIED:
                self._copied = None

    def _queue_id(self, c: Candidate, now: float) -> int:
        spot = (c.host, c.group, c.volatile, c.share)
        number = self._ids.get(spot)
        if number is None:
            number = self._find_queue(c, now)
            if len(self._ids) >= _CACHE:
                self._ids.clear()
            self._ids[spot] = number
        return number

    def _find_queue(self, c: Candidate, now: float) -> int:
        self._chooser.volatile |= c.volatile
        host = self._rows.host_named(c.group)
        place = (self._job, c.host, host.id, self._run if c.volatile else 0, c.share)
        # A pace group that is new has no queue.
        found = None if self._rows.is_alone(host) else self._rows.find_queue(*place)
        return found.id if found else self._add_queue(place, host, now).id

    def _add_queue(self, place: tuple[int, str, int, int, str], host: Host, now: float) -> Queue:
        at, tie = host.opens(self._pace(host.name)[1], now), host.touched
        retired = int(self._ledger.is_retired(place[1], place[4]))
        number = self._db.insert(_ADD_QUEUE, *place, at, tie, self._aged, retired)
        new = Queue(number, *place, 0, 0, 0, retired, None, None, tie, self._aged, at)
        self._rows.add_queue(new)
        return new

    # -- leasing --------------------------------------------------------------------

    def lease(self, limit: int, now: float, until: float) -> list[Lease]:
        leases: list[Lease] = []
        self._now = now
        with self.transaction():
            if self._ledger.shared:
                self._jobs.take_back_ended(now)
            self._chooser.promote(now)
            while len(leases) < limit and (choice := self._chooser.choose()):
                queue, row = self._rows.queue(choice[0]), choice[1]
                host = self._rows.host(queue.pace)
                gap, cap = self._pace(host.name)
                if at := host.opens(cap, now):
                    # A job with a wider limit left it open, or ours has become narrower.
                    self._rows.shut(queue, at)
                    continue
                candidate = self._rows.candidate(queue, row)
                if candidate is None:
                    self._set_aside(queue, row)
                    continue
                leases.append(self._claim(queue, host, row, candidate, gap, now, until))
                self._rows.reopen(host, cap, now)
                # The host's turn, or the page, must be taken before anything is fetched.
                self._db.urgent |= self._counted or leases[-1].gap > 0
        return leases

    def _claim(
        self, queue: Queue, host: Host, row: int, candidate: Candidate, gap: float, now: float,
        until: float,
    ) -> Lease:  # fmt: skip
        candidate.attempts += 1
        self._db.execute(_CLAIM, (until, self._run, row))
        self._leased[row] = (queue.id, 1, candidate.rank, candidate.attempts)
        self._ledger.add("leased", 1)
        if not candidate.charged:
            self._ledger.charge(queue, 1)
        self._rows.take(queue, row)
        gap = max(gap, host.delay)
        prior = host.next_at
        if gap > 0:
            host.next_at = host.ours = max(prior, now + gap)
        host.touched = now
        host.in_flight += 1
        return Lease(row, candidate.attempts, candidate, until, gap, host.next_at, prior)

    def spent(self) -> str | None:
        return self._ledger.spent()

    # -- settling -------------------------------------------------------------------

    def settle(
        self, outcomes: Sequence[Outcome], candidates: Sequence[Candidate], now: float
    ) -> tuple[list[bool], list[bool]]:
        with self.transaction():
            accepted = [self._settle(outcome, now) for outcome in outcomes]
            return accepted, self.add(candidates, now) if candidates else []

    def _settle(self, o: Outcome, now: float) -> bool:
        lease = o.lease
        found = self._leased.pop(lease.id, None)
        if found is None or found[3] != lease.fence:
            found = self._db.one(_LEASED, lease.id, lease.fence, self._run)
        if found is None:
            return False
        queue, in_flight, rank = self._rows.queue(found[0]), found[1], found[2]
        charged = o.fetched or o.ending is Ending.DONE or lease.candidate.charged
        if not charged:
            self._ledger.charge(queue, -1)
        if o.ending in _STATES:
            values = (_STATES[o.ending], o.reason or None, int(charged), lease.id)
            self._db.execute(_SETTLE, values)
            self._ledger.add(o.ending.value, 1)
            if self._pruner:
                self._pruner.ended(lease.id, now)
            if o.ending is not Ending.DONE:
                self._ledger.add_reasons(o.ending.value, {o.reason or "unknown": 1})
        else:
            self._return(queue, rank, o, charged, now)
        self._ledger.add("leased", -1)
        self._ledger.use(size=o.size)
        if in_flight:
            self._leave(self._rows.host(queue.pace), now, None if o.fetched else lease)
        return True

    def _return(self, queue: Queue, rank: float, o: Outcome, charged: bool, now: float) -> None:
        """A row goes back to waiting, as it was or as its next attempt."""
        ready_at = ASIDE if o.ending is Ending.ASIDE else 0.0
        if o.retry:
            rank = o.retry.rank
            ready_at = max(ready_at, o.retry.ready_at if o.retry.ready_at > now else 0.0)
            kept = int(o.retry.volatile)
            self._db.execute(_CHANGE, (o.retry.priority, kept, o.retry.request, o.lease.id))
        self._db.execute(_GIVE_BACK, (ready_at, int(charged), rank, o.lease.id))
        self._rows.wait(queue, o.lease.id, rank, ready_at, charged)

    def _leave(self, host: Host, now: float, unused: Lease | None) -> None:
        """A request takes no place at its host any more; an unused lease gives its turn back."""
        host.in_flight = max(0, host.in_flight - 1)
        if unused and unused.turn != unused.prior and host.next_at == unused.turn:
            host.next_at = unused.prior
        if any(queue.at for queue in self._rows.queues_of(host.id)):
            self._reopen(host, now)

    def _reopen(self, host: Host, now: float) -> None:
        self._rows.reopen(host, self._pace(host.name)[1], now)

    def reached(self, lease: Lease, now: float) -> float:
        if lease.gap <= 0:
            return now
        with self.transaction():
            host = self._rows.host_named(lease.candidate.group)
            at = now
            if now >= lease.turn and host.next_at != host.ours:
                at = max(now, host.next_at)
                lease.turn = at + lease.gap
            if at + lease.gap > host.next_at:
                self._db.urgent = True
                host.next_at = host.ours = at + lease.gap
                self._reopen(host, now)
            return at

    def left(self, lease: Lease, now: float, *, fetched: bool = True, size: int = 0) -> None:
        with self.transaction():
            cursor = self._db.execute(_LEAVE, (lease.id, lease.fence, self._run))
            if cursor.rowcount == 1:
                self._leased.pop(lease.id, None)
                self._ledger.use(size=size)
                host = self._rows.host_named(lease.candidate.group)
                self._leave(host, now, None if fetched else lease)

    def renew(self, leases: Iterable[Lease], until: float) -> None:
        with self.transaction():
            for lease in leases:
                values = (until, lease.id, lease.fence, self._run)
                # One that is lost stays as it was, so that it is known to have ended.
                if self._db.execute(_RENEW, values).rowcount == 1:
                    lease.until = until

    # -- hosts ----------------------------------------------------------------------

    def pace(self, group: str, delay: float, now: float) -> None:
        with self.transaction():
            self._db.urgent = True
            host = self._rows.host_named(group)
            host.delay = delay
            host.next_at = max(host.next_at, now + delay)
            self._reopen(host, now)

    def hold(self, group: str, until: float, now: float) -> None:
        with self.transaction():
            self._db.urgent = True
            host = self._rows.host_named(group)
            host.held = max(host.held, until)
            self._reopen(host, now)

    def touch(self, group: str, now: float) -> None:
        with self.transaction():
            self._reopen(self._rows.host_named(group), now)

    def next_due(self, now: float) -> float | None:
        with self._snapshot():
            return self._chooser.next_due(now)

    # -- the job --------------------------------------------------------------------

    def others(self, now: float) -> bool:
        with self.transaction():
            return self._jobs.others(now)

    def count(self, kind: str, reasons: Mapping[str, int]) -> None:
        with self.transaction():
            self._ledger.add_reasons(kind, reasons)

    def note(self, name: str, value: bytes) -> None:
        with self.transaction():
            self._db.execute(_NOTE, (self._job, name, value))

    def noted(self, name: str) -> bytes | None:
        found = self._db.ask(_NOTED, self._job, name)
        # What no run has written like that is none.
        return found[0] if found and type(found[0]) is bytes else None

    def beat(self, seconds: float, now: float) -> None:
        with self.transaction():
            self._ledger.use(seconds=seconds)

    def clear(self, limit: int, now: float) -> bool:
        with self.transaction():
            if self._jobs.clear(limit, now) or self._bounds.lower(limit):
                return True
            if self._pruner is None:
                return False
            self._db.urgent = True
            return self._pruner.step(limit)

    @property
    def prunes(self) -> bool:
        return self._pruner is not None

    def forget(self, keys: Sequence[bytes]) -> int:
        """Let what is over be fetched again, if it is found again: done, failed and dropped URLs
        of these keys. What is still to be fetched stays as it is.

        :return: how many rows are gone because of it; there may be more that were gone before
        :raises NotImplementedError: if the job's seen set cannot forget
        """
        if self._pruner and not self._pruner.set.choice.can_forget:
            raise NotImplementedError(f"A {self._pruner.set.name} set cannot forget.")
        with self.transaction():
            self._db.urgent = True
            number = forget_rows(self._db, self._job, keys)
        if self._pruner:
            self._pruner.forget(keys)
        return number

    def forget_domain(self, domain: str, limit: int) -> bool:
        """:meth:`forget` up to *limit* URLs of a domain and its subdomains, with a set that knows
        their hosts (rocksdb). Says whether there may be more."""
        if not self._pruner:
            raise NotImplementedError("Only a rocksdb set knows the hosts of its keys.")
        keys = self._pruner.set.of_domain(domain, limit)
        self.forget(keys)
        return len(keys) >= limit

    def counts(self, now: float) -> Counts:
        with self._snapshot():
            return read_counts(self._db, self._job, now)

    def rerank(self, rank: Callable[[Candidate], float]) -> int:
        try:
            return self._twice(lambda: self._rerank(rank))
        except FrontierError as error:
            cause = error.__cause__
            if cause is None or isinstance(cause, sqlite3.Error):
                raise
            raise cause from None  # what a policy raises is its own

    def _rerank(self, rank: Callable[[Candidate], float]) -> int:
        number, last = 0, 0
        queues: set[int] = set()
        while rows := self._db.execute(_SOME, (self._job, last)).fetchall():
            for row, queue in rows:
                candidate = self._rows.candidate(self._rows.queue(queue), row)
                if candidate:  # else it is malformed
                    value = rank(candidate)
                    self._db.execute("UPDATE urls SET rank = ? WHERE id = ?", (value, row))
                    queues.add(queue)
            number, last = number + len(rows), rows[-1][0]
        self._leased.clear()
        for queue in queues:
            self._rows.find_head(self._rows.queue(queue))
        return number

    def divide(self, share: Callable[[str, str], str]) -> int:
        """Let every URL of the job, whatever its state, use the share that is named for it and its
        host, and with it the page that it has charged. Says of how many that is another one."""
        return self._twice(lambda: self._divide(share))

    def _divide(self, share: Callable[[str, str], str]) -> int:
        number, last = 0, 0
        changed: set[int] = set()
        while rows := self._db.execute(_SOME_OF_ALL, (self._job, last)).fetchall():
            for row, at, url, *standing in rows:
                before = self._rows.queue(at)
                name = share(url, before.host) if isinstance(url, str) else before.share
                if name != before.share:
                    changed |= {at, self._move(row, before, name, *standing)}
                    number += 1
            last = rows[-1][0]
        self._leased.clear()
        for at in changed:
            self._rows.find_head(self._rows.queue(at))
        self._rows.save()
        self._ledger.revise()
        return number

    def _move(
        self, row: int, before: Queue, share: str, waits: int, ready: int, charged: int
    ) -> int:
        """A row belongs to another share of its host. Says in which queue it is then."""
        place = (self._job, before.host, before.pace, before.owner, share)
        host = self._rows.host(before.pace)
        queue = self._rows.find_queue(*place) or self._add_queue(place, host, self._now)
        self._db.execute("UPDATE urls SET queue = ? WHERE id = ?", (queue.id, row))
        # A redirect hop is charged as well, but its page was counted once.
        pages = min(charged, before.pages)
        for one, sign in ((before, -1), (queue, 1)):
            one.waiting += sign * waits
            one.ready += sign * ready
            one.pages += sign * pages
        return queue.id

    def close(self, reason: str, *, finished: bool, now: float) -> None:
        if self._pruner:
            self._pruner.stop()  # before another run may open the job
        try:
            with self.transaction(soon=False):
                if not adds_up(self._db, self._job):
                    self._mend()  # something waits that nobody would ever find
                self._jobs.end(reason, finished, now)
        except FrontierBusy:
            raise  # it can be closed in a moment
        except FrontierError:
            # Without its lock the run counts as dead: whoever comes next takes its leases back.
            self._let_go()
            raise
        self._let_go()

    def _let_go(self) -> None:
        if self._pruner:
            self._pruner.close()
        self._jobs.release()
        self._db.close()

"""The scheduler: Scrapy's engine on one side, the frontier on the other."""

from __future__ import annotations

import logging
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from scrapy import signals
from scrapy.core.scheduler import BaseScheduler
from scrapy.exceptions import CloseSpider, DontCloseSpider
from scrapy.spidermiddlewares.depth import DepthMiddleware
from scrapy.utils.asyncio import sleep
from scrapy.utils.defer import deferred_from_coro

from scrapy_focus.decisions.hosts import InvalidHost, canonical_host
from scrapy_focus.door import Door
from scrapy_focus.ends import end_reason, last_line
from scrapy_focus.engine import Timer
from scrapy_focus.exceptions import FocusError, FrontierBusy, FrontierError
from scrapy_focus.frontier import Ending, Outcome
from scrapy_focus.names import in_log
from scrapy_focus.notes import keep_facets, load_facets
from scrapy_focus.opening import Crawl, open_crawl, reopen_frontier
from scrapy_focus.watcher import Watcher
from scrapy_focus.writer import Writer

if TYPE_CHECKING:
    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from twisted.internet.defer import Deferred
    from typing_extensions import Self

    from scrapy_focus.candidate import Candidate
    from scrapy_focus.flights import Flight
    from scrapy_focus.frontier import Lease

logger = logging.getLogger(__name__)

#: Seconds after which what belongs to no page is stored at the latest.
_SOON = 0.05
#: Seconds after which finished pages and what was handed out are stored: just long enough for
#: the engine to have asked for all that it can take, so that one write does.
_TICK = 0.0001
#: Seconds until a busy frontier is tried again, and for how long closing tries.
_BUSY, _PATIENCE = 0.005, 5.0
#: Seconds between two looks at leases, clock and other runs.
_UPKEEP = 1.0
#: How many hosts that this run has touched are kept before those that have opened are forgotten.
_MANY = 1000
#: How many keys are remembered, of some 90 bytes each.
_RECENT = 75_000
#: How many of these are forgotten for each that is new, when there are too many.
_FADING = 4
#: How many rows that cannot be handed out one call passes over.
_SKIPS = 20
#: How many URLs are given back because nobody asked for them before one is leased at a time.
_DOUBTS = 50
#: How many rows of old generations are cleared away at once, and seconds between two times.
_CLEARED, _SWEEP = 100, 0.025


class Scheduler(BaseScheduler):
    """Scheduler (:setting:`SCHEDULER`) on a frontier that is kept in a database.

    It knows a URL that it has seen, hands out the best one whose host may be touched now,
    keeps to the job's scope and budget, and holds each request until its outcome is
    known, so that a crawl that was killed goes on where it was.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._crawl: Crawl | None = None
        self._open = False
        #: The frontier has failed: nothing more is handed out.
        self._failed = False
        #: Whether the next lease may succeed, although none could at the last try.
        self._dirty = True
        #: When the next lease can succeed, as of the last try.
        self._due: float | None = None
        #: When hosts that this run has touched open again, for a comparison in memory.
        self._opens: dict[str, float] = {}
        #: How many of these are looked through for those that have opened.
        self._many = _MANY
        #: What is leased and is handed out next, if nothing happens before.
        self._ahead: deque[Lease] = deque()
        #: How many of these were given back.
        self._given_back = 0
        #: Whether something that was written may not be stored yet.
        self._lingers = False
        #: Keys that the frontier is known to hold.
        self._recent: set[bytes] = set()
        #: Those before, which are being forgotten.
        self._fading: set[bytes] = set()
        #: Whether these are all keys of the job.
        self._knows_all = False
        self._others = False
        #: The frontier is busy: it is left alone until then (monotonic, seconds).
        self._busy_until = 0.0
        self._new = self._handed_out = 0
        #: How many of those that were handed out the stats do not know of yet.
        self._untold = 0
        self._reason = ""
        self._beaten = time.monotonic()
        self._wake = Timer(self._on_wake)
        self._soon = Timer(self._on_soon)
        self._tick = Timer(self._on_tick)
        self._retry = Timer(self._on_retry)
        self._upkeep = Timer(self._on_upkeep)
        self._sweep = Timer(self._on_sweep)
        settings = crawler.settings
        # Then the order is exact: what is next may be on the page that is worked on.
        self._one_by_one = settings.getint("CONCURRENT_REQUESTS") == 1
        # As long as a download and its callback can take; renewed while it lasts.
        self._lease_time = 600.0 + 2 * settings.getfloat("DOWNLOAD_TIMEOUT")

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def open(self, spider: Spider) -> None:
        """Open the frontier and join the spider's job.

        :raises scrapy_focus.exceptions.FocusError: on settings that cannot be used, or a
            frontier that cannot be opened
        """
        try:
            self._crawl = crawl = open_crawl(self._crawler, spider)
        except FocusError as error:
            logger.error("%s", error, extra={"spider": spider})
            raise
        self._engine = crawl.engine
        self._clock = crawl.clock
        self._frontier = crawl.frontier
        self._stats = crawl.stats
        self._count = crawl.stats.inc_value  # looking it up takes as long as what it does
        self._writer = Writer(crawl.frontier, self._on_added, self._on_settled, self._on_refused)
        self._door = Door(crawl, self._writer, self._recent, self._on_entered)
        self._facets = crawl.settings.traps.facets
        if self._facets:
            load_facets(self._facets, crawl.frontier)
        crawl.twins.attach(crawl.frontier, self._writer)
        crawl.engine.seeds.offered = self._door.offered
        crawl.engine.quiet = lambda: not crawl.gate and self._is_quiet(self._clock())
        self._others = crawl.frontier.start == "joined"
        self._knows_all = crawl.frontier.start in ("new", "restarted")
        self._sheds = bool(crawl.settings.max_waiting or crawl.settings.max_waiting_per_host)
        crawl.pacer.attach(crawl.frontier, self._writer, crawl.clock)
        crawl.identity.attach(self._seen)
        if crawl.dupefilter is not crawl.identity:
            crawl.dupefilter.open()
        self._open = True
        if self._engine:
            watcher = Watcher(crawl, self._writer, self._on_changed, self._on_finished)
            self._engine.watch(watcher.leaving)
            self._crawler.signals.connect(self._on_idle, signals.spider_idle)
            self._crawler.signals.connect(self._on_opened, signals.spider_opened)
            self._crawler.signals.connect(self._on_stopped, signals.engine_stopped)
            self._upkeep.set(_UPKEEP)
            self._sweep.set(_UPKEEP)

    def _on_opened(self) -> None:
        assert self._crawl
        if self._crawl.needs_depth and not self._crawler.get_spider_middleware(DepthMiddleware):
            logger.error(
                "FOCUS_MAX_DEPTH and the policies breadth and depth need Scrapy's DepthMiddleware, "
                "which SPIDER_MIDDLEWARES switches off: nothing else says how deep a page lies. "
                "Switch it on, or do without them.",
                extra={"spider": self._crawl.spider},
            )
            raise CloseSpider("focus_unknown_depth")

    # -- the engine's questions -------------------------------------------------------

    def enqueue_request(self, request: Request) -> bool:
        """Take a request in, unless it is known, out of scope, or refused by a plugin."""
        if self._crawl is None:
            return False
        if not self._open:
            return self._enter_late(request)
        return self._door.enter(request)

    def next_request(self) -> Request | None:
        """The best request whose host may be touched now, or ``None``."""
        if not self._open or self._failed or self._is_busy or self._waits_for_links:
            return None
        assert self._crawl
        gate = self._crawl.gate
        if gate and (flight := gate.next()):
            return self._fly(flight)
        now = self._clock()
        if self._is_quiet(now):
            return None
        try:
            for _ in range(_SKIPS):
                lease = self._take(now)
                if lease is None:
                    return None
                flight = self._door.leave(lease, now)
                if flight is not None and gate.admit(flight):
                    return self._fly(flight)
            self._engine.wake()
        except FrontierBusy:
            self._back_off()
        except FrontierError as error:
            self._give_up(error)
        return None

    def has_pending_requests(self) -> bool:
        """Whether something can be fetched within ``FOCUS_HORIZON``, or another run is at
        it. Changes nothing."""
        if self._crawl is None or not self._open or self._failed:
            return False
        if self._ahead or self._writer.promising or self._others or self._crawl.gate:
            return True
        now = self._clock()
        try:
            due = self._frontier.next_due(now)
        except FrontierError:
            return True
        return due is not None and due <= now + self._crawl.settings.horizon

    def close(self, reason: str) -> Deferred[None] | None:
        """Store what is left, give the leases back and end the run."""
        timers = (self._wake, self._soon, self._tick, self._retry, self._upkeep, self._sweep)
        for timer in timers:
            timer.cancel()
        if self._crawl is None or not self._open:
            return None
        try:
            self._close(reason)
        except FrontierBusy:
            return deferred_from_coro(self._close_later(reason))
        return None

    @property
    def _is_busy(self) -> bool:
        return time.monotonic() < self._busy_until

    def _is_quiet(self, now: float) -> bool:
        """Whether no lease can succeed."""
        return not self._dirty and (self._due is None or now < self._due)

    # -- handing out ------------------------------------------------------------------

    @property
    def _waits_for_links(self) -> bool:
        return self._one_by_one and self._crawl is not None and bool(self._crawl.flights)

    def _take(self, now: float) -> Lease | None:
        """Store what has gathered, and lease the next URL in the same transaction: and those
        after it that the engine is about to ask for, in this turn of the reactor."""
        if self._writer.news:
            self._give_back()
            if self._engine and self._writer.behind:
                self._catch_up(now)
                return None
        if not self._ahead:
            # Whoever asks for one at a time may ask very often: one is stored with the others.
            single = not self._engine or self._given_back >= _DOUBTS
            limit = 1 if single else self._engine.room
            self._ahead.extend(self._write(now, now + self._lease_time, limit=limit, soon=single))
        if self._ahead:
            lease = self._ahead.popleft()
            self._dirty = True
            if lease.gap > 0:
                self._opens[lease.candidate.group] = now + lease.gap
            if self._ahead or self._lingers:
                self._store_turn()
            return lease
        self._dirty = self._writer.promising
        if len(self._opens) > self._many:
            self._opens = {group: at for group, at in self._opens.items() if at > now}
            self._many = max(_MANY, 2 * len(self._opens))
        before, self._due = self._due, self._frontier.next_due(now)
        if self._due is None or not self._engine:
            self._wake.cancel()
        elif self._due != before or not self._wake.pending:
            # The engine asks by itself only on activity and every five seconds.
            self._wake.set(self._due - now)
        return None

    def _write(
        self, now: float, until: float | None = None, *, limit: int = 1, soon: bool = False
    ) -> list[Lease]:
        if self._untold:
            self._handed_out += self._untold
            self._count("focus/leased", self._untold)
            self._untold = 0
        leases = self._writer.flush(now, until, limit=limit, soon=soon)
        self._lingers = soon
        self._forget_shed()
        return leases

    def _forget_shed(self) -> None:
        """What the frontier has shed may come back, if it is found again."""
        if shed := self._frontier.shed:
            self._count("focus/dropped/shed", len(shed))
            self._recent.difference_update(shed)
            shed.clear()

    def _give_back(self) -> None:
        """Something has happened since these were chosen, or nobody asked for them."""
        while self._ahead:
            self._given_back += 1
            lease = self._ahead.pop()
            self._writer.settle(Outcome(lease, Ending.RELEASED, fetched=False))

    def _fly(self, flight: Flight) -> Request:
        assert self._crawl
        if self._engine:
            self._crawl.flights.add(flight)
        self._untold += 1
        self._count("scheduler/dequeued")
        return flight.request

    def _seen(self, key: bytes) -> bool:
        if key in self._recent or self._writer.holds(key):
            return True
        if self._knows_all or self._is_busy:
            return False
        try:
            seen = self._frontier.seen(key)
        except FrontierBusy:
            return False  # adding it will find out
        if seen:
            self._remember(key)
        return seen

    def _remember(self, key: bytes) -> None:
        """Most links of a page are links of the page before: spare the store the question."""
        if len(self._recent) >= _RECENT:
            self._let_fade()
            self._knows_all = False
        if self._fading:
            # At once it would take some milliseconds.
            for _ in range(min(_FADING, len(self._fading))):
                self._fading.pop()
        if not (self._others and self._sheds):  # what another run sheds is not told here
            self._recent.add(key)

    def _let_fade(self) -> None:
        """Know no key any more."""
        self._fading, self._recent = self._recent, set()
        self._door.recent = self._recent

    # -- what happens meanwhile -------------------------------------------------------

    def _on_entered(self, candidate: Candidate) -> None:
        if not self._dirty and not self._is_shut(candidate.group):
            self._dirty = True
        self._write_soon()

    def _is_shut(self, group: str) -> bool:
        """Whether this run alone keeps a host cooling or busy: a URL more changes nothing."""
        assert self._crawl
        if self._opens.get(group, 0.0) > self._clock():
            return True
        cap = self._crawl.pacer.cap(group)
        return 0 < cap <= self._crawl.flights.places(group)

    def _on_changed(self) -> None:
        self._dirty = True
        self._write_soon()

    def _on_finished(self) -> None:
        self._dirty = True
        self._store_turn()

    def _store_turn(self) -> None:
        """Store what this turn of the reactor has finished and handed out, all of it at once."""
        if self._engine and self._open and not self._failed and not self._tick.pending:
            self._tick.set(_TICK)

    def _on_added(self, candidates: list[Candidate], new: list[bool]) -> None:
        """The frontier has stored candidates, or knew them already."""
        for candidate, is_new in zip(candidates, new, strict=True):
            self._remember(candidate.key)
            if not is_new:
                self._door.known(candidate)
        if number := sum(new):
            self._new += number
            self._stats.inc_value("focus/added", number)

    def _on_settled(self, outcome: Outcome, accepted: bool) -> None:
        if not accepted:
            self._stats.inc_value("focus/stale")

    def _on_refused(self, reason: str, number: int) -> None:
        self._stats.inc_value(f"focus/refused/{reason}", number)

    def _write_soon(self) -> None:
        if not self._open or self._failed:
            return
        if self._writer.full:
            self._flush(soon=True)
        elif self._engine and not self._soon.pending:
            self._soon.set(_SOON)

    def _on_tick(self) -> None:
        self._give_back()
        if self._writer.news or self._lingers:
            self._flush()

    def _flush(self, *, soon: bool = False) -> None:
        if self._is_busy:
            return
        now = self._clock()
        try:
            if self._engine and self._writer.behind:
                self._catch_up(now)
            else:
                self._write(now, soon=soon)
        except FrontierBusy:
            self._back_off()
        except FrontierError as error:
            self._give_up(error)

    def _catch_up(self, now: float) -> None:
        """Store a part of what has gathered; the next turn of the reactor goes on."""
        self._writer.catch_up(now)
        self._forget_shed()
        self._lingers = True
        self._soon.set(0)

    def _back_off(self) -> None:
        self._busy_until = time.monotonic() + _BUSY
        if self._engine:
            self._retry.set(_BUSY)

    def _on_retry(self) -> None:
        self._busy_until = 0.0
        self._on_soon()
        self._on_wake()

    def _on_soon(self) -> None:
        if self._writer:
            self._flush()
            self._engine.wake()

    def _on_wake(self) -> None:
        self._dirty = True
        self._engine.wake()

    def _on_upkeep(self) -> None:
        """Renew leases, count the seconds, look for other runs."""
        self._upkeep.set(_UPKEEP)
        try:
            self._keep_up(self._clock())
        except FrontierBusy:
            pass  # the next look does it
        except FrontierError as error:
            self._give_up(error)

    def _keep_up(self, now: float) -> None:
        assert self._crawl
        elapsed = time.monotonic() - self._beaten
        flights = list(self._crawl.flights)
        ending = [f.lease for f in flights if f.lease.until - now < self._lease_time / 2]
        before = self._frontier.spent()
        with self._frontier.transaction():
            self._frontier.beat(elapsed, now)
            if ending:
                self._frontier.renew(ending, now + self._lease_time)
        self._beaten += elapsed
        # This process was stopped for longer than its leases: others have been there since.
        lost = [f.request for f in flights if f.lease.until <= now]
        if lost:
            self._engine.drop_queued(lost)
        others = self._frontier.others(now)
        if self._others or others or self._frontier.spent() != before:
            self._on_wake()
        self._others = others
        self._knows_all &= not others
        if others and self._sheds and self._recent:
            self._let_fade()
        if self._engine.closing:
            waiting = [f.request for f in flights if f.reached and not f.left]
            self._engine.drop_queued(waiting)
        if self._facets:
            keep_facets(self._facets, self._frontier)

    def _on_sweep(self) -> None:
        """Clear old generations away, and rows that nobody needs, a little at a time."""
        try:
            more = self._frontier.clear(_CLEARED, self._clock())
            self._forget_shed()
        except FrontierBusy:
            more = True
        except FrontierError as error:
            self._give_up(error)
            return
        if more or self._frontier.prunes:
            self._sweep.set(_SWEEP if more else _UPKEEP)

    def _give_up(self, error: FrontierError) -> None:
        """The frontier has failed: stop cleanly. What is not stored comes back with the
        leases, at the next start."""
        assert self._crawl
        if self._failed:
            return
        self._failed = True
        logger.error("%s", error, extra={"spider": self._crawl.spider})
        if self._engine and not self._engine.closing:
            engine = self._crawler.engine
            assert engine
            deferred_from_coro(engine.close_spider_async(reason="focus_frontier_error"))

    # -- ends -------------------------------------------------------------------------

    def _on_idle(self) -> None:
        """Nothing is pending: see why, and whether other runs are still at it."""
        assert self._crawl
        if not self._open or self._failed:
            return
        now = self._clock()
        try:
            self._write(now)
            self._others = self._frontier.others(now)
            if self._others or self.has_pending_requests():
                self._on_wake()
                raise DontCloseSpider
            counts, spent = self._frontier.counts(now), self._frontier.spent()
            reason = end_reason(counts, spent, self._door.fate_of_seeds)
        except FrontierBusy:
            self._back_off()
            raise DontCloseSpider from None
        except FrontierError as error:
            self._give_up(error)
            return
        if reason != "finished":
            raise CloseSpider(reason)

    def _close(self, reason: str) -> None:
        assert self._crawl
        now = self._clock()
        frontier = self._frontier
        self._give_back()
        for flight in self._crawl.gate.drain():
            self._writer.settle(Outcome(flight.lease, Ending.RELEASED, fetched=False))
        try:
            # After a failure what was to be stored is unknown: links may be lost, and their page
            # must not be done. All that was taken comes back.
            if not self._failed:
                self._write(now)
                frontier.beat(time.monotonic() - self._beaten, now)
                self._beaten = time.monotonic()
                if self._facets:
                    keep_facets(self._facets, frontier)
            self._say_goodbye(reason)
            frontier.close(reason, finished=reason == "finished", now=now)
            self._reason = reason
        except FrontierBusy:
            raise
        except FrontierError as error:
            self._give_up(error)
        self._open = False
        if self._crawl.dupefilter is not self._crawl.identity:
            self._crawl.dupefilter.close(reason)
        self._crawl.location.remove()

    async def _close_later(self, reason: str) -> None:
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until:
            await sleep(_BUSY)
            try:
                self._close(reason)
                return
            except FrontierBusy:
                continue
        logger.error(
            "The frontier %s was locked for too long; what this run had taken comes back at the "
            "next start.",
            self._frontier.name,
        )
        self._open = False

    def _enter_late(self, request: Request) -> bool:
        """Seeds and links may arrive after :meth:`close`: they wait for the next run."""
        assert self._crawl
        if self._crawl.location.path is None or self._crawl.location.private:
            return False
        try:
            self._frontier = reopen_frontier(self._crawl)
            self._writer.attach(self._frontier)
            self._crawl.twins.attach(self._frontier, self._writer)
            taken = self._door.enter(request)
            self._writer.flush(self._clock())
            self._frontier.close(
                self._reason, finished=self._reason == "finished", now=self._clock()
            )
        except FrontierError as error:
            logger.error("Cannot store %s: %s", in_log(request), error)
            return False
        return taken

    def refuses(self, request: Request) -> str | None:
        """Why the job's scope refuses a request that did not come through here, or ``None``."""
        crawl = self._crawl
        if crawl is None or crawl.flights.get(request):
            return None
        hops = request.meta.get("redirect_urls") or [request.url]
        if urlsplit(hops[0]).path == "/robots.txt" and request.meta.get("dont_obey_robotstxt"):
            return None
        try:
            host, before = canonical_host(request.url), canonical_host(hops[-1])
        except InvalidHost:
            return "invalid"
        if crawl.twins.forbids(before, host):
            return "www"
        admitted = len(hops) == 1 and bool(request.meta.get("allow_offsite"))
        reason = crawl.scope.refuse(request.url, host, allow_offsite=admitted)
        with suppress(FrontierBusy):
            return crawl.twins.reconsider(reason, request.url, host)
        return reason

    def _on_stopped(self) -> None:
        """Warn of a run without seeds, after the stats have counted the run's own warnings."""
        assert self._crawl
        if not self._engine.seeds.count and self._crawl.location.path is not None:
            logger.warning(
                "The spider has yielded no start request.", extra={"spider": self._crawl.spider}
            )

    def _say_goodbye(self, reason: str) -> None:
        assert self._crawl
        counts = self._frontier.counts(self._clock())
        for name in ("waiting", "pages", "bytes"):
            self._stats.set_value(f"focus/{name}", getattr(counts, name))
        if self._frontier.aside:
            self._stats.inc_value("focus/unreadable", self._frontier.aside)
        if self._crawl.location.path is None:
            return
        extra = {"spider": self._crawl.spider}
        refused, fate = " ".join(self._door.seeds_refused.values()), self._door.fate_of_seeds
        if fate == "failed":
            logger.error("Error while processing requests from start(): %s", refused, extra=extra)
        elif fate:
            logger.error("All start requests were refused: %s", refused, extra=extra)
        elif refused:
            logger.warning("Some start requests were refused: %s", refused, extra=extra)
        logger.info("%s", last_line(counts, self._new, self._handed_out), extra=extra)

"""How long each host is left alone, as Scrapy's side sees it: settings, robots.txt, answers."""

from __future__ import annotations

import logging
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from scrapy.utils.asyncio import sleep

from scrapy_focus.decisions.hosts import InvalidHost, canonical_host
from scrapy_focus.decisions.politeness import Rates, clamp_delay, parse_retry_after, pause
from scrapy_focus.exceptions import FrontierError
from scrapy_focus.names import in_log

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from scrapy.robotstxt import RobotParser

    from scrapy_focus.clock import Clock
    from scrapy_focus.decisions.groups import Groups
    from scrapy_focus.engine import Engine
    from scrapy_focus.flights import Flight
    from scrapy_focus.frontier import Frontier, Lease
    from scrapy_focus.writer import Writer

logger = logging.getLogger(__name__)

#: Seconds that a host's first page waits for its Crawl-delay where it is. A longer wait would
#: keep a place in the downloader from other hosts: the page goes back to the frontier.
_SHORT = 1.0

#: A request that reaches the downloader after this part of its gap is late, if not sooner than
#: after so many seconds.
_LATE, _LATE_FROM = 0.25, 0.02

#: Rounds of failed connections after which a host is held.
_PATIENCE = 3

#: After so many pauses, of 255 seconds in all, a host that refuses connections is not waited for.
_PAUSES = 8

#: How many refusals by robots.txt are remembered. A refused request is finished at once.
_LATELY = 1000


@dataclass(slots=True)
class _Trouble:
    """Consecutive rounds in which a host failed, or asked to be left alone."""

    streak: int = 0
    #: When the last round was counted: what had been handed out before belongs to it.
    since: float = 0.0

    def count(self, flight: Flight, now: float) -> int:
        """The length of the streak if this begins a new round, else 0."""
        if flight.since < self.since:
            return 0
        self.streak += 1
        self.since = now
        return self.streak


class Pacer:
    """Decides gaps and caps for the frontier, and tells it what the hosts ask for.

    :param groups: names the pace group of a host
    :param longest: the longest delay in seconds that a site may ask for
    :param horizon: for how many seconds a URL that waits keeps the crawl open
    """

    def __init__(
        self,
        crawler: Crawler,
        engine: Engine,
        rates: Rates,
        groups: Groups,
        longest: float,
        horizon: float,
        rng: random.Random,
    ) -> None:
        settings = crawler.settings
        self._groups = groups
        self._engine = engine
        self._stats = crawler.stats
        self._rates = rates
        self._longest = longest
        # Beyond the horizon: a host that never answers must not keep a crawl open for ever.
        self._patience = max(longest, 2 * horizon)
        self._rng = rng
        self._robots = settings.getbool("ROBOTSTXT_OBEY") and bool(engine)
        self._agents = (settings["ROBOTSTXT_USER_AGENT"], settings["USER_AGENT"])
        self._throttled = settings.getbool("AUTOTHROTTLE_ENABLED")
        self._start_delay = settings.getfloat("AUTOTHROTTLE_START_DELAY")
        #: Groups whose robots.txt is settled; the others get one request at a time.
        self._known: set[str] = set()
        #: What robots.txt has refused lately: server and URL.
        self._refused: dict[tuple[str, str], None] = {}
        self._delays: dict[str, float] = {}
        self._touched: dict[str, float] = {}
        #: Until when groups must wait, for pages that are on their way to the downloader already.
        self._early: dict[str, float] = {}
        self._failures: dict[str, _Trouble] = {}
        self._refusals: dict[str, _Trouble] = {}

    def attach(self, frontier: Frontier, writer: Writer, clock: Clock) -> None:
        """Name the frontier to tell, through its writer, and its clock."""
        self._clock = clock
        self._frontier = frontier
        self._writer = writer

    def __call__(self, group: str) -> tuple[float, int]:
        """The gap in seconds after the next request to a group, and how many requests it
        may have in flight (0: no limit)."""
        if not group:
            return 0.0, 0
        cap = self.cap(group)
        if not self._throttled:
            return self._rates.gap(group, self._rng), cap
        slot = self._engine.slot(group)
        start = max(self._rates.delay(group), self._start_delay)
        return slot.delay if slot else start, cap

    def cap(self, group: str) -> int:
        """How many requests a group may have in flight (0: no limit)."""
        if not group:
            return 0
        if self._robots and group not in self._known:
            return 1
        return self._rates.concurrency(group)

    def least_gap(self, group: str) -> float:
        """Seconds that always lie between two requests to a group."""
        return max(self._rates.least_gap(group), self._delays.get(group, 0.0))

    def settle_robots(self, group: str) -> None:
        """A group's robots.txt is known, or will never be: open it to its full width."""
        if self._robots and group not in self._known:
            self._known.add(group)
            self._writer.event(lambda: self._frontier.touch(group, self._clock()))

    def slow_down(self, request: Request, flight: Flight | None) -> str:
        """Set the request's downloader slot to the pace of its group, which is returned."""
        group = flight.lease.candidate.group if flight else group_of(request, self._groups)
        slot = request.meta.get("download_slot", group)
        self._engine.slow_down(slot, self.least_gap(group), own=not self._throttled)
        return group

    def reached(self, request: Request, flight: Flight | None, now: float) -> None:
        """A request reached the downloader: robots.txt and media as well as our own."""
        group = self.slow_down(request, flight)
        self._touched[group] = now
        if flight:
            lease = flight.lease
            lease.gap = max(lease.gap, self._delays.get(group, 0.0))
            if lease.gap > 0:
                self._take_turn(request, lease, now)
            self.settle_robots(group)

    def _take_turn(self, request: Request, lease: Lease, now: float) -> None:
        if now - (lease.turn - lease.gap) > max(_LATE * lease.gap, _LATE_FROM):
            # Its turn may be over before the frontier hears of it, and another run at the host.
            try:
                at = self._frontier.reached(lease, now)
            except FrontierError:
                self._engine.take_back(request)  # the next write says what is wrong, if anything
            else:
                if at > now:
                    self._engine.wait(request, at - now)
        else:
            self._writer.event(lambda: self._frontier.reached(lease, now))

    def answered(self, response: Response, flight: Flight, now: float) -> None:
        """A response came: a 429 or 503 asks to leave the host alone for a while."""
        group = flight.lease.candidate.group
        self._failures.pop(group, None)
        if response.status not in (429, 503):
            self._refusals.pop(group, None)
            return
        streak = self._refusals.setdefault(group, _Trouble()).count(flight, now)
        wait = self._retry_after(response)
        if wait is not None:
            self._hold(group, wait, now, "retry_after")
        elif streak:
            self._hold(group, pause(streak, longest=self._longest), now, "backoff")

    def overheard(self, response: Response, request: Request, now: float) -> None:
        """A response came to a request that did not pass through the frontier, for robots.txt
        or a file: it may ask to leave the host alone as well."""
        wait = self._retry_after(response) if response.status in (429, 503) else None
        if wait:
            self._hold(group_of(request, self._groups), wait, now, "retry_after")

    def _retry_after(self, response: Response) -> float | None:
        """For how many seconds a response asks to leave its host alone, if it does."""
        asked = parse_retry_after(response.headers.get("Retry-After"), time.time())
        if asked is None:
            return None
        wait, clamped = clamp_delay(asked, self._longest)
        if clamped:
            self._stats.inc_value("focus/delay/clamped")
        return wait

    def failed(self, flight: Flight, now: float, *, refused: bool) -> None:
        """A connection failed. A host that fails again and again is left alone, each time
        twice as long.

        :param refused: nobody listens. That takes no time and no place, and may be true of one
            port of several: some minutes later all that waits there is tried, and fails.
        """
        group = flight.lease.candidate.group
        streak = self._failures.setdefault(group, _Trouble()).count(flight, now) - _PATIENCE + 1
        if 0 < streak <= (_PAUSES if refused else streak):
            self._hold(group, pause(streak, longest=self._patience), now, "unreachable")

    def _hold(self, group: str, wait: float, now: float, why: str) -> None:
        if wait <= 0 or not group:
            return
        self._stats.inc_value(f"focus/hold/{why}")
        logger.info("Leaving %s alone for %.0f s (%s)", in_log(group), wait, why)
        self._writer.event(lambda: self._frontier.hold(group, now + wait, now))
        self._early[group] = max(now + wait, self._early.get(group, 0.0))

    async def robots_parsed(self, robotparser: RobotParser, request: Request) -> None:
        """Handler of :signal:`robots_parsed`, which holds that host's pages until it
        returns: take its Crawl-delay, and let the first page honour it."""
        group = group_of(request, self._groups)
        self._watch(robotparser, urlsplit(request.url).netloc)
        delay, clamped = clamp_delay(self._crawl_delay(robotparser, request), self._longest)
        if clamped:
            self._stats.inc_value("focus/delay/clamped")
        delay = self._delays[group] = max(delay, self._delays.get(group, 0.0))
        # A cache may have answered for robots.txt: then nobody was touched.
        fetched = max(self._touched.get(name, 0.0) for name in (group, host_of(request)))
        if delay or group not in self._known:
            self._writer.event(lambda: self._frontier.pace(group, delay, fetched))
        # The group opens when this request reaches the downloader, or has left: the next one
        # would be due together with it.
        self.slow_down(request, None)
        ready = fetched + self.least_gap(group)
        if ready - self._clock() > _SHORT:
            self._early[group] = max(ready, self._early.get(group, 0.0))
        while not self._engine.closing and 0 < (wait := ready - self._clock()) <= _SHORT:
            await sleep(min(wait, 0.2))
        self._engine.wake()

    def is_early(self, flight: Flight, now: float) -> bool:
        """Whether a request reaches the downloader long before its host may be touched: it
        was handed out before the host asked to be left alone."""
        group = flight.lease.candidate.group
        ready = self._early.get(group)
        if ready is None:
            return False
        if ready <= now:
            del self._early[group]
        return now < ready

    def _crawl_delay(self, robotparser: RobotParser, request: Request) -> Any:
        try:
            return robotparser.crawl_delay(self._agent(request))
        except Exception as error:  # noqa: BLE001 - a user's own parser may raise anything
            logger.warning(
                "Crawl-delay of %s cannot be read: %s", in_log(request.url), in_log(error)
            )
            return None

    def _agent(self, request: Request) -> str:
        agent = self._agents[0] or request.headers.get("User-Agent") or self._agents[1]
        return agent.decode("latin-1") if isinstance(agent, bytes) else str(agent)

    def _watch(self, robotparser: RobotParser, server: str) -> None:
        """Note what a parser refuses. It is not asked a second time: with a robots.txt of some
        megabytes an answer may take a tenth of a second."""
        ask = robotparser.allowed

        def allowed(url: str | bytes, user_agent: str | bytes) -> bool:
            verdict = ask(url, user_agent)
            if not verdict:
                if len(self._refused) >= _LATELY:
                    del self._refused[next(iter(self._refused))]
                self._refused[server, str(url)] = None
            return verdict

        robotparser.allowed = allowed  # type: ignore[method-assign]

    def forbids(self, request: Request) -> bool:
        """Whether robots.txt has refused a request just now."""
        refused = urlsplit(request.url).netloc, request.url
        if refused not in self._refused:
            return False
        del self._refused[refused]
        return True


def group_of(request: Request, groups: Groups) -> str:
    """The pace group of a request that did not come through the frontier."""
    slot = request.meta.get("download_slot")
    # The downloader writes the host there, as it is spelt, and a redirect copies that.
    hops = [request.url, *request.meta.get("redirect_urls", ())]
    if not isinstance(slot, str) or slot in (urlsplit(url).hostname for url in hops):
        return groups.of(host_of(request))
    return slot


def host_of(request: Request) -> str:
    """The host of a request; empty where it has none."""
    try:
        return canonical_host(request.url)
    except InvalidHost:
        return ""

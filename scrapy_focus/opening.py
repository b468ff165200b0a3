"""Puts a crawl together: reads the settings, loads what they name, opens the frontier."""

from __future__ import annotations

import json
import logging
import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from scrapy_focus.clock import Clock
from scrapy_focus.components import build_chain, build_dupefilter, build_policy
from scrapy_focus.decisions.hosts import twin_of
from scrapy_focus.decisions.politeness import Rates
from scrapy_focus.decisions.scope import InvalidScope, Scope
from scrapy_focus.decisions.shares import Shares
from scrapy_focus.ends import first_lines
from scrapy_focus.engine import Engine, spider_arguments
from scrapy_focus.exceptions import SettingError
from scrapy_focus.flights import Flights
from scrapy_focus.frontier import Frontier, Limits, Order
from scrapy_focus.frontier.memory import MemoryFrontier
from scrapy_focus.frontier.seen import EXACT
from scrapy_focus.frontier.sqlite import SQLiteFrontier
from scrapy_focus.gate import RobotsGate
from scrapy_focus.intake import Intake
from scrapy_focus.location import Location, find
from scrapy_focus.pacer import Pacer
from scrapy_focus.requests import RequestStorage
from scrapy_focus.settings import FocusSettings, read_settings
from scrapy_focus.twins import Twins

if TYPE_CHECKING:
    from scrapy import Spider
    from scrapy.crawler import Crawler
    from scrapy.statscollectors import StatsCollector

    from scrapy_focus.decisions.chain import Chain
    from scrapy_focus.dupefilter import DupeFilter

logger = logging.getLogger(__name__)

#: Seconds that a call waits for the frontier's own threads, inside the reactor.
_PATIENCE = 0.002


@dataclass(slots=True)
class Crawl:
    """The parts of one crawl."""

    crawler: Crawler
    spider: Spider
    stats: StatsCollector
    engine: Engine
    settings: FocusSettings
    scope: Scope
    policy: Any
    chain: Chain
    #: Knows what makes two requests the same.
    identity: DupeFilter
    #: Filters duplicates: ``identity``, unless DUPEFILTER_CLASS is another one.
    dupefilter: Any
    pacer: Pacer
    location: Location
    clock: Clock
    frontier: Frontier
    storage: RequestStorage
    flights: Flights
    gate: RobotsGate
    intake: Intake
    twins: Twins

    @property
    def needs_depth(self) -> bool:
        """Whether scope or order depend on how deep a page lies."""
        return bool(self.settings.max_depth or getattr(self.policy, "needs_depth", False))


def open_crawl(crawler: Crawler, spider: Spider) -> Crawl:
    """Make all parts of a crawl.

    :raises scrapy_focus.exceptions.FocusError: on what cannot be used or opened
    """
    assert crawler.stats
    engine = Engine(crawler)
    if engine:
        engine.check()
    settings = read_settings(crawler.settings, spider, spider_arguments(crawler))
    scope = build_scope(settings)
    identity, dupefilter = build_dupefilter(crawler)
    identity.forms = settings.forms
    policy = build_policy(crawler, settings.policy)
    chain, own_filter = build_chain(crawler, settings, policy, dupefilter)
    rng = random.Random()
    groups, longest, horizon = settings.groups, settings.max_crawl_delay, settings.horizon
    pacer = Pacer(crawler, engine, read_rates(crawler), groups, longest, horizon, rng)
    flights = Flights(identity.fingerprint)
    shares, seeds = settings.shares, engine.seeds
    intake = Intake(crawler.settings, identity, groups, shares, flights, seeds, own_filter)
    storage = RequestStorage(spider, settings.serializer)
    # Scrapy's interactive tools leave a job's frontier as it is.
    tool = engine.is_tool(spider)
    location = Location(None) if tool else find(settings.frontier, crawler.settings)
    clock = Clock(location.path)
    try:
        frontier = _open_frontier(settings, location, policy, pacer, clock, rng)
    except BaseException:
        location.remove()
        raise
    crawl = Crawl(
        crawler=crawler,
        spider=spider,
        stats=crawler.stats,
        engine=engine,
        settings=settings,
        scope=scope,
        policy=policy,
        chain=chain,
        identity=identity,
        dupefilter=dupefilter,
        pacer=pacer,
        location=location,
        clock=clock,
        frontier=frontier,
        storage=storage,
        flights=flights,
        gate=RobotsGate(crawler.settings.getbool("ROBOTSTXT_OBEY") and bool(engine)),
        intake=intake,
        twins=Twins(settings.www, scope),
    )
    if not tool:
        _say_hello(crawl)
    return crawl


def build_scope(settings: FocusSettings) -> Scope:
    """The job's scope.

    :raises scrapy_focus.exceptions.SettingError: on a bad domain or pattern; names the setting
    """
    try:
        return Scope(settings.domains, settings.included, settings.excluded, settings.max_depth)
    except InvalidScope as error:
        names = {
            "domains": settings.domains_setting,
            "included": "FOCUS_INCLUDED",
            "excluded": "FOCUS_EXCLUDED",
        }
        sentences = [f"{names.get(which, which)}: {text}" for which, text in error.problems]
        raise SettingError(" ".join(sentences)) from None


def read_rates(crawler: Crawler) -> Rates:
    """What the settings ask for each pace group.

    :raises scrapy_focus.exceptions.SettingError: on a bad entry of DOWNLOAD_SLOTS
    """
    settings = crawler.settings
    jitter = settings.getfloat("DOWNLOAD_DELAY_JITTER", 0.5)
    # Scrapy 2.18 knows only the older switch; in 2.19 it counts where it is set higher.
    switch = settings.getpriority("RANDOMIZE_DOWNLOAD_DELAY") or 0
    if switch > (settings.getpriority("DOWNLOAD_DELAY_JITTER") or 0):
        jitter = 0.5 if settings.getbool("RANDOMIZE_DOWNLOAD_DELAY") else 0.0
    try:
        return Rates(
            delay=settings.getfloat("DOWNLOAD_DELAY"),
            jitter=jitter,
            concurrency=settings.getint("CONCURRENT_REQUESTS_PER_DOMAIN"),
            slots=settings.getdict("DOWNLOAD_SLOTS"),
        )
    except ValueError as error:
        raise SettingError(str(error)) from None


def reopen_frontier(crawl: Crawl) -> Frontier:
    """The job once more, for what arrives after the run has ended."""
    settings = replace(crawl.settings, resume=True)
    where, policy, pacer, clock = crawl.location, crawl.policy, crawl.pacer, crawl.clock
    return _open_frontier(settings, where, policy, pacer, clock, random.Random())


def _open_frontier(
    settings: FocusSettings,
    location: Location,
    policy: Any,
    pacer: Pacer,
    clock: Clock,
    rng: random.Random,
) -> Frontier:
    limits = Limits(
        settings.max_pages,
        settings.max_pages_per_host,
        settings.max_bytes,
        settings.max_seconds,
        settings.max_waiting,
        settings.max_waiting_per_host,
        settings.shares.pages,
    )
    order = Order(getattr(policy, "ties", "host"), bool(getattr(policy, "uniform", False)))
    if location.path is None:
        if settings.seen != EXACT:
            logger.warning(
                "FOCUS_SEEN has no effect: a frontier in memory keeps all that it has seen."
            )
        return MemoryFrontier(pace=pacer, limits=limits, order=order, rng=rng)
    name = f"{type(policy).__module__}.{type(policy).__qualname__}"
    frontier = SQLiteFrontier(
        location.path,
        settings.job,
        pace=pacer,
        now=clock(),
        resume=settings.resume,
        limits=limits,
        order=order,
        policy=name,
        full=settings.full,
        seen=settings.seen,
        ahead=clock.ahead,
        rng=rng,
    )
    if frontier.policy_before != name and hasattr(policy, "rank"):
        number = frontier.rerank(policy.rank)
        logger.info("Ordered %d waiting URLs anew, by the policy %s", number, name)
    _divide(frontier, settings.shares)
    frontier.hurry(_PATIENCE)
    return frontier


def _divide(frontier: SQLiteFrontier, shares: Shares) -> None:
    """Let what earlier runs have found use the shares of this one."""
    prefixes = json.dumps(sorted(shares.pages)).encode()
    if (frontier.noted("shares") or b"[]") != prefixes:
        if number := frontier.divide(shares.of):
            logger.info("Looked for FOCUS_MAX_PAGES_PER_PATH at all URLs: %d concerned", number)
        frontier.note("shares", prefixes)


def _say_hello(crawl: Crawl) -> None:
    frontier, extra = crawl.frontier, {"spider": crawl.spider}
    counts = frontier.counts(crawl.clock())
    forced = frontier.start == "restarted" and crawl.settings.resume is False
    start = "forced" if forced else frontier.start
    for line in first_lines(frontier.name, crawl.settings.job, start, frontier.generation, counts):
        logger.info("%s", line, extra=extra)
    if crawl.location.private:
        logger.info(
            "This frontier ends with the run. To keep it, set FOCUS_FRONTIER or JOBDIR, or run "
            "the spider in a project.",
            extra=extra,
        )
    elif crawl.crawler.settings.get("JOBDIR") and not crawl.settings.frontier:
        logger.info(
            "JOBDIR has a frontier of its own: it shares no host's pace with other jobs.",
            extra=extra,
        )
    _warn_of_offsite(crawl)


def _warn_of_offsite(crawl: Crawl) -> None:
    """Scrapy's OffsiteMiddleware has a scope of its own."""
    allowed = getattr(crawl.spider, "allowed_domains", None) or ()
    narrow = Scope(list(filter(_is_domain, allowed)))
    domains, extra = crawl.scope.domains, {"spider": crawl.spider}
    wide = sorted(d for d in domains if narrow.refuse(f"http://{d}/", d))
    if wide and crawl.settings.domains_setting == "FOCUS_DOMAINS":
        logger.warning(
            "FOCUS_DOMAINS admits %s, which allowed_domains does not: Scrapy's "
            "OffsiteMiddleware will still refuse it. Widen allowed_domains too.",
            ", ".join(wide),
            extra=extra,
        )
    twins = map(twin_of, domains) if crawl.settings.www == "add" else ()
    if shut := sorted(t for t in twins if t and narrow.refuse(f"http://{t}/", t)):
        logger.warning(
            'FOCUS_WWW is "add", but Scrapy\'s OffsiteMiddleware will still refuse links to %s, '
            "which allowed_domains does not admit. Widen it, and name what is in scope in "
            "FOCUS_DOMAINS.",
            ", ".join(shut),
            extra=extra,
        )


def _is_domain(entry: object) -> bool:
    """Whether it is one of ``allowed_domains`` that means something."""
    try:
        return bool(Scope([entry]))  # type: ignore[list-item]
    except InvalidScope:
        return False

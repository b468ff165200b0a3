"""Where requests come in and go out: scope, chain and storage around the frontier."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from scrapy_focus.decisions.hosts import InvalidHost, canonical_host
from scrapy_focus.exceptions import Drop, FrontierBusy
from scrapy_focus.flights import Flight
from scrapy_focus.frontier import Ending, Outcome
from scrapy_focus.intake import check_values
from scrapy_focus.names import in_log, one_line
from scrapy_focus.requests import Unreadable, Unstorable

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from scrapy import Request

    from scrapy_focus.candidate import Candidate
    from scrapy_focus.frontier import Lease
    from scrapy_focus.opening import Crawl
    from scrapy_focus.writer import Writer

logger = logging.getLogger(__name__)

#: How many refused seeds the log names.
_NAMED = 10


class Door:
    """Turns requests into candidates for the frontier, and leases into requests.

    :param recent: keys that the frontier is known to hold
    :param entered: called with each candidate that is about to be stored
    """

    def __init__(
        self,
        crawl: Crawl,
        writer: Writer,
        recent: Container[bytes],
        entered: Callable[[Candidate], None],
    ) -> None:
        self._crawl = crawl
        self._stats = crawl.stats
        self._count = crawl.stats.inc_value  # looking it up takes as long as what it does
        self._extra = {"spider": crawl.spider}
        self._writer = writer
        # Nothing is asked before our own filter: what it has just seen need not be made a
        # candidate first.
        self._own_first = next(iter(crawl.chain.plugins), None) is crawl.identity
        #: Keys that the frontier is known to hold.
        self.recent = recent
        self._entered = entered
        #: Requests that are kept in memory, by key and copy.
        self._objects: dict[tuple[bytes, int], Request] = {}
        self._warned = False
        #: Whether a start request was taken in, or is known.
        self.seeds_taken = False
        #: Start requests that could not be taken in for an error.
        self.seeds_failed = 0
        self._seeds_refused: dict[str, str] = {}
        #: The start request that was yielded last, until it comes here.
        self._awaited: Request | None = None

    @property
    def seeds_refused(self) -> dict[str, str]:
        """Start requests that were refused, by URL, each with the rule that refused it."""
        self._name_missing()
        return self._seeds_refused

    @property
    def fate_of_seeds(self) -> str:
        """``refused`` or ``failed`` if that is what all start requests were, else nothing."""
        if self.seeds_taken or not self.seeds_refused:
            return ""
        return "failed" if self.seeds_failed == self._crawl.engine.seeds.count else "refused"

    def enter(self, request: Request) -> bool:
        """Take a request in, or refuse it and count why. Never raises: an error that
        escaped would lose the link, and could hang the engine."""
        if request is self._awaited:
            self._awaited = None
        try:
            if not self._enter(request):
                self._refuse(request, "duplicate")
                return False
        except Drop as drop:
            self._refuse(request, drop.reason)
            return False
        except Exception:
            logger.exception("Cannot enqueue %s: it is dropped", in_log(request), extra=self._extra)
            self._refuse(request, "error")
            return False
        self._count("scheduler/enqueued")
        return True

    def _enter(self, request: Request) -> bool:
        """Whether it was taken in; ``False`` if it is known."""
        crawl, meta = self._crawl, request.meta
        fingerprint = crawl.identity.fingerprint(request)
        if "retry_times" in meta and (flight := crawl.flights.retried_by(request, fingerprint)):
            self._retry(request, flight)
            return True
        source = crawl.flights.redirected_by(request) if "redirect_urls" in meta else None
        if not source and self._is_known(request, fingerprint):
            return False
        if source:
            source.redirected = True
            candidate = crawl.intake.hop(request, source, fingerprint)
        else:
            candidate = crawl.intake.link(request, fingerprint, crawl.clock())
        # In doubt it comes in: the scope is asked again before it is handed out.
        with suppress(FrontierBusy):
            if source:
                self._check_hop(request, candidate, source.lease.candidate)
            else:
                self.check_scope(request, candidate, hop=False)
        crawl.chain.enter(candidate, request)
        if source or not candidate.seed:
            self._check_traps(candidate)
        check_values(candidate)
        self._pack(request, candidate, chain=source is not None)
        self.seeds_taken = self.seeds_taken or candidate.seed
        self._writer.add(candidate)
        self._entered(candidate)
        return True

    def _is_known(self, request: Request, fingerprint: bytes) -> bool:
        """Whether a link can be refused without a look into the store. Most of the links of a
        page are on the page before as well."""
        return (
            self._own_first
            and (fingerprint in self.recent or self._writer.holds(fingerprint))
            and not request.dont_filter
            and "focus_key" not in request.meta
        )

    def _retry(self, request: Request, flight: Flight) -> None:
        candidate = self._crawl.intake.retry(request, flight)
        try:
            self.check_scope(request, candidate, hop=flight.redirect_times > 0)
        except Drop as drop:
            flight.refused = drop.reason
            raise
        if candidate.priority != flight.lease.candidate.priority:
            candidate.rank = getattr(self._crawl.policy, "rank", lambda c: c.rank)(candidate)
        self._pack(request, candidate, chain=True)
        flight.retry = candidate
        self._stats.inc_value("focus/retried")

    def _check_hop(self, request: Request, candidate: Candidate, before: Candidate) -> None:
        twins = self._crawl.twins
        try:
            twins.follow(before, candidate)
            self.check_scope(request, candidate, hop=True)
        except Drop as drop:
            if before.seed:
                rule = f"{in_log(request.url)}: {drop.reason}."
                if drop.reason != "www":
                    rule = self._crawl.scope.explain(candidate.url, candidate.host, candidate.depth)
                self._name_seed(request, f"{rule} {twins.advice(before.host, candidate.host)}")
            raise

    def check_scope(self, request: Request, candidate: Candidate, *, hop: bool) -> None:
        """Scope is no plugin: what a deleted line could remove would be no boundary.

        :raises scrapy_focus.Drop: if the candidate is out of it
        """
        reason: str | None = self._crawl.scope.refuse(
            candidate.url,
            candidate.host,
            candidate.depth,
            allow_offsite=not hop and bool(request.meta.get("allow_offsite")),
        )
        if reason:
            where = candidate.url, candidate.host, candidate.depth
            reason = self._crawl.twins.reconsider(reason, *where)
        if reason:
            raise Drop(reason)

    def _check_traps(self, candidate: Candidate) -> None:
        trap = self._crawl.settings.traps.refuse(candidate.url, candidate.discovered)
        if trap:
            raise Drop(f"trap_{trap}")

    def _pack(self, request: Request, candidate: Candidate, *, chain: bool) -> None:
        """Give the candidate the stored form of its request, or keep the request itself."""
        crawl = self._crawl
        if crawl.location.path is None:
            candidate.volatile = True
        elif not candidate.volatile:
            try:
                candidate.request = crawl.storage.pack(
                    request, hop=chain, copied_slots=crawl.flights.slots
                )
                return
            except Unstorable as error:
                self._keep(request, error)
                candidate.volatile = True
        if crawl.intake.own_slot(request) is None:
            # Copied from another page's meta, it would be the wrong one.
            request.meta.pop("download_slot", None)
        self._objects[candidate.key, candidate.copy] = request

    def _keep(self, request: Request, error: Unstorable) -> None:
        self._stats.inc_value("scheduler/unserializable")
        self._stats.inc_value("focus/unstorable")
        if not self._warned:
            self._warned = True
            logger.warning(
                "Cannot store %s: %s. It is kept in memory for this run, and lost if the run is "
                "interrupted. Further ones are only counted (focus/unstorable).",
                in_log(request),
                in_log(error),
                extra=self._extra,
            )

    def offered(self, request: Request) -> None:
        """The spider yields a start request, which should come here at once. If it is out of
        scope, Scrapy's OffsiteMiddleware may veto it before."""
        self._name_missing()
        self._awaited = request

    def _name_missing(self) -> None:
        request, self._awaited = self._awaited, None
        if request is not None and (rule := self._rule(request)):
            self._name_seed(request, rule)

    def _rule(self, request: Request) -> str | None:
        """The rule of the scope that refuses a start request, if one does."""
        scope = self._crawl.scope
        admitted = bool(request.meta.get("allow_offsite"))
        try:
            host: str | None = canonical_host(request.url)
        except InvalidHost:
            host = None
        if scope.refuse(request.url, host, allow_offsite=admitted) is None:
            return None
        return scope.explain(request.url, host, allow_offsite=admitted)

    def _name_seed(self, request: Request, rule: str) -> None:
        if len(self._seeds_refused) < _NAMED:
            self._seeds_refused.setdefault(request.url, in_log(rule))

    def _refuse(self, request: Request, reason: str) -> None:
        crawl = self._crawl
        self._writer.refuse(reason)
        if reason == "duplicate":
            self.seeds_taken = self.seeds_taken or request in crawl.engine.seeds
            crawl.dupefilter.log(request, crawl.spider)
        elif request in crawl.engine.seeds:
            self.seeds_failed += reason == "error"
            self._name_seed(
                request, self._rule(request) or f"{in_log(request.url)}: {in_log(reason)}."
            )

    def known(self, candidate: Candidate) -> None:
        """The frontier knew a candidate already."""
        self._objects.pop((candidate.key, candidate.copy), None)
        # A resumed run reads its start requests again: that refuses nothing.
        self._stats.inc_value(
            "focus/known_seeds"
            if candidate.seed and not candidate.charged
            else "focus/refused/duplicate"
        )

    def leave(self, lease: Lease, now: float) -> Flight | None:
        """The flight of a lease, or ``None`` where it cannot be handed out: the lease is
        settled then."""
        crawl, candidate = self._crawl, lease.candidate
        try:
            try:
                request = self._unpack(candidate)
            except InvalidHost as error:
                raise Unreadable(one_line(error)) from error
            # The job's scope may have been narrowed since it was stored.
            self.check_scope(request, candidate, hop=bool(request.meta.get("redirect_times")))
            if not candidate.host and crawl.gate.is_stuck(request):
                raise Drop("unsupported")
            crawl.chain.leave(candidate, request)
            return Flight(lease, request, now)
        except Drop as drop:
            outcome = self._drop(lease, drop.reason)
        except FrontierBusy:
            outcome = Outcome(lease, Ending.RELEASED, fetched=False)
        except Unreadable as error:
            self._stats.inc_value("focus/unreadable")
            logger.error(
                "Cannot read the stored request of %s: %s. It keeps waiting, for a run that can.",
                in_log(candidate.url),
                in_log(error),
                extra=self._extra,
            )
            outcome = Outcome(lease, Ending.ASIDE, fetched=False)
        except Exception:
            logger.exception("Cannot hand out %s", in_log(candidate.url), extra=self._extra)
            outcome = self._drop(lease, "error")
        self._writer.settle(outcome)
        return None

    def _drop(self, lease: Lease, reason: str) -> Outcome:
        self._stats.inc_value(f"focus/dropped/{reason}")
        return Outcome(lease, Ending.DROPPED, reason, fetched=False)

    def _unpack(self, candidate: Candidate) -> Request:
        # A retry that cannot be stored is kept in memory, its row as it was.
        request = self._objects.pop((candidate.key, candidate.copy), None)
        if request is not None:
            return request
        if candidate.volatile:
            raise Unreadable("it was kept in memory only")
        request = self._crawl.storage.unpack(
            candidate.request,
            url=candidate.url,
            depth=candidate.depth,
            priority=candidate.priority,
        )
        # Scope, budget and pace go by the host that is stored with it.
        if canonical_host(candidate.url) != candidate.host:
            raise Unreadable(f"it is stored with the host {one_line(candidate.host)}")
        if type(candidate.group) is not str or type(candidate.score) not in (int, float):
            raise Unreadable("its pace group or score has the wrong type")
        return request

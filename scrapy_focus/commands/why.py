"""``scrapy frontier why``: whether a URL would be taken, or how it stands."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from scrapy_focus.clock import Clock
from scrapy_focus.commands import views
from scrapy_focus.commands.keys import request_of
from scrapy_focus.commands.text import masked, moment, shown, span
from scrapy_focus.decisions.facets import count_in, part_of
from scrapy_focus.decisions.hosts import InvalidHost, canonical_host, twin_of
from scrapy_focus.frontier.listing import Place, find_place, find_urls, read_note
from scrapy_focus.frontier.seen import look_up
from scrapy_focus.notes import facet_note
from scrapy_focus.opening import build_scope
from scrapy_focus.twins import NOTE, OUTSIDE, hosts_in

if TYPE_CHECKING:
    from scrapy_focus.decisions.scope import Scope
    from scrapy_focus.decisions.traps import Traps
    from scrapy_focus.dupefilter import DupeFilter
    from scrapy_focus.frontier.database import Database
    from scrapy_focus.frontier.listing import UrlRow
    from scrapy_focus.frontier.report import Job
    from scrapy_focus.settings import FocusSettings


#: What a seen set says of a key; see :func:`.look_up`.
Gone = tuple[int, float] | bool | None


def judge(settings: FocusSettings, identity: DupeFilter, *, as_json: bool) -> Judge:
    """What a crawl with these settings decides by.

    :raises scrapy_focus.exceptions.SettingError: on a domain or a pattern that cannot be used
    """
    scope = build_scope(settings)
    return Judge(scope, settings.www, settings.traps, identity, as_json=as_json)


class Judge:
    """Says of URLs whether a crawl would take them, or how they stand."""

    def __init__(
        self, scope: Scope, www: str, traps: Traps, identity: DupeFilter, *, as_json: bool
    ) -> None:
        self._scope = scope
        self._www = www
        self._traps = traps
        self._identity = identity
        self._json = as_json

    def lines(
        self, urls: Iterable[str], db: Database | None = None, jobs: Sequence[Job] = ()
    ) -> Iterator[str]:
        """The lines of ``scrapy frontier why``: a paragraph for each URL.

        :param db: the frontier, if there is one
        """
        now = Clock(db.path)() if db else time.time()
        if db and self._www == "add":
            for job in jobs:
                self._scope.bring_in(hosts_in(read_note(db, job.id, NOTE)))
        for request in [request_of(url) for url in urls]:
            host = _host(request.url)
            refused: str | None = self._scope.refuse(request.url, host)
            rule = self._scope.explain(request.url, host) + self._by_www(request.url, host or "")
            if not refused and (shape := self._traps.explain(request.url, now)):
                refused = f"trap_{self._traps.refuse(request.url, now)}"
                rule += f" {shape}"
            key = self._identity.fingerprint(request)
            found = [(job, row) for job in jobs if db for row in find_urls(db, job.id, key)]
            gone = dict(_gone(db, jobs, found, key) if db else ())
            new = db and not (found or gone or refused)
            if new and (many := self._by_facets(db, request.url, jobs)):
                refused, rule = "trap_facets", f"{rule} {many}"
            if self._json:
                known = [json.loads(views.url_json(job, row)) for job, row in found]
                document: dict[str, Any] = {
                    "url": masked(request.url),
                    "key": key.hex(),
                    "refused": refused,
                }
                removed = [views.gone_json(job, what) for job, what in gone.items()]
                document |= {"rule": shown(rule), "found": known, "removed": removed}
                yield json.dumps(document)
                continue
            words = [shown(rule)]
            if refused:
                words.append(f"A crawl refuses it ({refused}).")
            elif not (found or gone):
                words.append("No crawl knows it yet: it would be taken.")
            words += (_fate(db, job, row, now) for job, row in found if db)
            words += (_end(job, what) for job, what in gone.items())
            yield " ".join(words)

    def _by_facets(self, db: Database | None, url: str, jobs: Sequence[Job]) -> str | None:
        """The cap on facets, as of what the jobs have counted, if a URL is over it."""
        path = self._traps.faceted(url)
        if path is None or db is None:
            return None
        name = facet_note(part_of(path))
        numbers = [count_in(path, read_note(db, job.id, name)) for job in jobs]
        return self._traps.explain_facets(max(numbers, default=0))

    def _by_www(self, url: str, host: str) -> str:
        """What :setting:`FOCUS_WWW` has to do with a URL, if anything."""
        twin = twin_of(host)
        if not twin:
            return ""
        if self._www == "never":
            return f" A redirect to it from {twin} would not be followed (FOCUS_WWW)."
        out = self._www == "add" and self._scope.refuse(url, host) in OUTSIDE
        if out and not self._scope.refuse(url, twin):
            return f" That changes if a start request on {twin} redirects there (FOCUS_WWW)."
        return ""


def _gone(
    db: Database, jobs: Iterable[Job], found: Iterable[tuple[Job, UrlRow]], key: bytes
) -> Iterator[tuple[Job, Gone]]:
    """The jobs whose seen set knows a key that they have no row of; or may know it."""
    known = {job for job, _ in found}
    for job in jobs:
        if job.gone and job.seen and job not in known:
            what = look_up(db.path, job.id, job.seen, key)
            if what is not False:
                yield job, what


def _end(job: Job, what: Gone) -> str:
    start = f"For the job {shown(job.name)!r} (generation {job.generation})"
    if what is None:
        return f"{start} nobody can tell: its {shown(job.seen or '')} set cannot be read."
    if isinstance(what, bool):
        return f"{start} it was seen, and its row was removed."
    state, at = what
    when = f" at {moment(at)}" if at else ""
    verb = {1: "is done", 2: "has failed", 3: "was dropped"}.get(state, "is over")
    return f"{start} it {verb}{when}, and its row was removed."


def _fate(db: Database, job: Job, row: UrlRow, now: float) -> str:
    start = f"For the job {shown(job.name)!r} (generation {job.generation})"
    if row.state == "waiting":
        place = find_place(db, row)
        return f"{start} it waits: {_waits(row, place, now)}."
    if row.state == "deferred":
        due = views.due(row)
        when = "for a run that can read it" if due is None else f"for {span(max(0.0, due - now))}"
        return f"{start} it waits {when}."
    if row.state == "leased":
        return f"{start} it is being fetched."
    if row.state == "done":
        return f"{start} it is done: it was handed out {_times(row.attempts)}."
    verb = "has failed" if row.state == "failed" else "was dropped"
    return f"{start} it {verb}: {shown(row.reason or '?')}, handed out {_times(row.attempts)}."


def _waits(row: UrlRow, place: Place, now: float) -> str:
    host = shown(row.host)
    if place.retired and place.share:
        share = shown(place.share)
        return f"{share} has spent its share of the pages of {host} (FOCUS_MAX_PAGES_PER_PATH)"
    if place.retired:
        return f"{host} has spent its share of the pages (FOCUS_MAX_PAGES_PER_HOST)"
    when = "may be touched now"
    if place.opens > now:
        when = f"is {'held' if place.held else 'cooling'} for {span(place.opens - now)}"
    ahead = {0: "it is the next of its host", 1: "one URL of its host comes first"}
    more = "" if place.ahead < place.most else " or more"
    return f"{host} {when}, and " + ahead.get(
        place.ahead, f"{place.ahead}{more} URLs of its host come first"
    )


def _times(number: int) -> str:
    return {0: "never", 1: "once"}.get(number, f"{number} times")


def _host(url: str) -> str | None:
    try:
        return canonical_host(url)
    except InvalidHost:
        return None

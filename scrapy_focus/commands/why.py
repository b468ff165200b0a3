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
from scrapy_focus.decisions.hosts import InvalidHost, canonical_host
from scrapy_focus.frontier.listing import Place, find_place, find_urls
from scrapy_focus.frontier.seen import look_up
from scrapy_focus.opening import build_scope
from scrapy_focus.settings import read_settings

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

    from scrapy_focus.decisions.scope import Scope
    from scrapy_focus.decisions.traps import Traps
    from scrapy_focus.dupefilter import DupeFilter
    from scrapy_focus.frontier.database import Database
    from scrapy_focus.frontier.listing import UrlRow
    from scrapy_focus.frontier.report import Job


#: What a seen set says of a key; see :func:`.look_up`.
Gone = tuple[int, float] | bool | None


def judge(crawler: Crawler, identity: DupeFilter, *, as_json: bool) -> Judge:
    """What a crawl with these settings decides by; ``allowed_domains`` is the one of the class.

    :raises scrapy_focus.exceptions.SettingError: on a setting that cannot be used
    """
    spider: Any = crawler.spidercls
    settings = read_settings(crawler.settings, spider, {})
    return Judge(build_scope(settings), settings.traps, identity, as_json=as_json)


class Judge:
    """Says of URLs whether a crawl would take them, or how they stand."""

    def __init__(self, scope: Scope, traps: Traps, identity: DupeFilter, *, as_json: bool) -> None:
        self._scope = scope
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
        for request in [request_of(url) for url in urls]:
            host = _host(request.url)
            refused: str | None = self._scope.refuse(request.url, host)
            rule = self._scope.explain(request.url, host)
            # Facets are counted by each run for itself: only a shape can be judged here.
            if not refused and (shape := self._traps.explain(request.url, now)):
                refused = f"trap_{self._traps.refuse(request.url, now)}"
                rule += f" {shape}"
            key = self._identity.fingerprint(request)
            found = [(job, row) for job in jobs if db for row in find_urls(db, job.id, key)]
            gone = dict(_gone(db, jobs, found, key) if db else ())
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

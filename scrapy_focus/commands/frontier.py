"""``scrapy frontier``: a look inside a frontier, also while a crawl uses it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from scrapy.commands import ScrapyCommand
from scrapy.exceptions import UsageError

from scrapy_focus.clock import Clock
from scrapy_focus.commands import views
from scrapy_focus.commands.keys import crawler_of, identity_of, keys, settings_of
from scrapy_focus.commands.text import shown
from scrapy_focus.commands.why import judge
from scrapy_focus.decisions.hosts import InvalidHost, canonical_name
from scrapy_focus.exceptions import FocusError, FrontierError, SettingError
from scrapy_focus.frontier.listing import STATES, read_urls
from scrapy_focus.frontier.report import Job, find_jobs, look_at, read_jobs
from scrapy_focus.location import Location, find_kept, parse

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

    from scrapy_focus.frontier.database import Database

#: How many URLs of each job are shown.
_LIMIT = 20
#: How many jobs an error names.
_NAMED = 10
#: What goes with what; --json with all.
_OPTIONS = {
    "stats": {"frontier", "job", "all"},
    "urls": {"frontier", "job", "all", "state", "host", "limit"},
    "why": {"frontier", "job", "all", "spider"},
    "key": {"spider"},
}
_OF_URLS = ("why", "key")


class Command(ScrapyCommand):
    """``scrapy frontier stats``, ``urls``, ``why`` and ``key``.

    It reads the file and writes nothing, starts no crawl and needs no reactor. It exits
    with 0, with 1 where there is no frontier to look into or no such job, and with 2 where
    the command is wrong.
    """

    requires_project = False
    requires_crawler_process = False
    default_settings: ClassVar[dict[str, Any]] = {"LOG_ENABLED": False}

    def syntax(self) -> str:
        return "[options] stats|urls|why URL …|key URL …"

    def short_desc(self) -> str:
        return "Look inside a crawl frontier, also while it is in use"

    def long_desc(self) -> str:
        return (
            'Look inside a crawl frontier, also while a crawl uses it. "stats" says of each '
            'job how it stands, what is done, what waits and when the next URL is due. "urls" '
            "lists stored URLs: waiting ones in the order of the policy, others newest first. "
            "Waiting, deferred and leased URLs are found at once, however large the frontier; "
            "without --state, and with done, failed and dropped, it is read from its newest URL "
            'back until there are enough, which with --host may be all of it. "why" says of URLs '
            'whether a crawl would take them, and by which rule not, or how they stand. "key" '
            "looks into no frontier: it shows by what a job tells URLs apart, and how each came "
            "about."
        )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        group = parser.add_argument_group(title="Frontier")
        group.add_argument(
            "--frontier",
            metavar="PLACE",
            help="a file, a folder that was a JOBDIR, or an address as in FOCUS_FRONTIER "
            "(default: where a crawl with these settings has its frontier)",
        )
        group.add_argument("--job", metavar="NAME", help="stats, urls, why: only this job")
        group.add_argument(
            "--all",
            action="store_true",
            help="stats, urls, why: also earlier generations of the jobs",
        )
        group.add_argument("--json", action="store_true", help="stats: one document; else lines")
        group.add_argument("--state", choices=STATES, help="urls: only those in this state")
        group.add_argument("--host", metavar="NAME", help="urls: only those of this host")
        group.add_argument(
            "--limit",
            type=_limit,
            metavar="N",
            help=f"urls: how many of each job, 0 for all (default: {_LIMIT})",
        )
        group.add_argument(
            "--spider", metavar="NAME", help="why, key: with the settings of this spider"
        )

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        check(args, opts)
        try:
            _write(self._lines(args, opts))
        except SettingError as error:
            raise UsageError(shown(str(error)), print_help=False) from error
        except FocusError as error:
            print(shown(str(error)), file=sys.stderr)
            self.exitcode = 1

    def _lines(self, args: list[str], opts: argparse.Namespace) -> Iterator[str]:
        assert self.settings is not None
        what, *given = args
        if what not in _OF_URLS:
            with look_at(self._find(opts.frontier, self.settings)) as db:
                yield from stats(db, opts) if what == "stats" else urls(db, opts)
            return
        crawler = crawler_of(self.settings, opts.spider)
        settings = settings_of(crawler)
        identity = identity_of(crawler, settings.forms)
        if what == "key":
            yield from keys(identity, given, as_json=opts.json)
            return
        decide = judge(settings, identity, as_json=opts.json)
        path = self._find(opts.frontier, crawler.settings)
        if not (opts.frontier or path.exists()):
            yield from decide.lines(given)  # no crawl has made it yet
            return
        with look_at(path) as db:
            yield from decide.lines(given, db, choose(db, find_jobs(db, old=opts.all), opts.job))

    def _find(self, place: str | None, settings: BaseSettings) -> Path:
        """The file of the frontier, named or the one that a crawl would use."""
        if place is None:
            address = settings.get("FOCUS_FRONTIER")
            found = find_kept(None if address is None else str(address), settings)
        elif "://" in place or place.startswith("memory:"):
            found = parse(place, "--frontier")
        else:
            path = Path(place).expanduser()
            found = Location(path / "frontier.db" if path.is_dir() else path)
        if found is None:
            raise UsageError(
                "outside a project, name a frontier by --frontier or -s FOCUS_FRONTIER=…",
                print_help=False,
            )
        if found.path is None:
            raise FrontierError("A frontier in memory ends with its run and cannot be looked into.")
        return found.path


def _limit(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{shown(text)} is not a whole number, 0 or more")
    return int(text)


def check(args: list[str], opts: argparse.Namespace) -> None:
    """Refuse what the command does not know.

    :raises scrapy.exceptions.UsageError: with a sentence that says what is wrong
    """
    what = args[0] if args else ""
    # Options that argparse does not know arrive among the arguments.
    strange = [arg for arg in args if arg not in _OPTIONS]
    if what in _OF_URLS:
        strange = [arg for arg in args if arg.startswith("-")]
    if strange:
        raise UsageError(f"{shown(strange[0])!r} is not known", print_help=False)
    if not what or (what in _OF_URLS) != (len(args) > 1):
        raise UsageError('say "stats", "urls", or "why" or "key" with URLs', print_help=False)
    for name in ("frontier", "job", "all", "state", "host", "limit", "spider"):
        if name not in _OPTIONS[what] and getattr(opts, name) not in (None, False):
            which = " and ".join(word for word, names in _OPTIONS.items() if name in names)
            raise UsageError(f"--{name} goes with {which} alone", print_help=False)
    if opts.host is not None:
        try:
            opts.host = canonical_name(opts.host)
        except InvalidHost as error:
            raise UsageError(shown(f"--host: {error}"), print_help=False) from error


def stats(db: Database, opts: argparse.Namespace) -> Iterator[str]:
    """The lines of ``scrapy frontier stats``."""
    now = Clock(db.path)()
    reports = read_jobs(db, choose(db, find_jobs(db, old=opts.all), opts.job), now)
    if opts.json:
        yield views.stats_json(db.path, reports, now)
    else:
        yield from views.stats_text(db.path, reports, now)


def urls(db: Database, opts: argparse.Namespace) -> Iterator[str]:
    """The lines of ``scrapy frontier urls``."""
    limit = _LIMIT if opts.limit is None else opts.limit or None
    found, clock = opts.json, Clock(db.path)
    for job in choose(db, find_jobs(db, old=opts.all), opts.job):
        now = clock()
        rows = read_urls(db, job.id, now, state=opts.state, host=opts.host, limit=limit)
        if opts.json:
            yield from (views.url_json(job, row) for row in rows)
            continue
        for line in views.urls_text(job, rows, now):
            found = True
            yield line
    if not found:
        yield "No such URLs."


def choose(db: Database, jobs: list[Job], name: str | None) -> list[Job]:
    """The jobs of that name, written as it is or as it is shown.

    :raises scrapy_focus.exceptions.FrontierError: if there is none
    """
    found = [job for job in jobs if name in (None, job.name, shown(job.name))]
    if not found and name is not None:
        known = [repr(shown(job.name)) for job in jobs[:_NAMED]]
        more = ["…"] if len(jobs) > _NAMED else []
        raise FrontierError(
            f"The frontier {db.path} has no job {name!r}. "
            + (f"It has {', '.join(known + more)}." if known else "It has no job yet.")
        )
    return found


def _write(lines: Iterable[str]) -> None:
    encoding = sys.stdout.encoding or "utf-8"
    try:
        for line in lines:
            # What the terminal's encoding lacks is no reason to fail.
            print(line.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read the pipe has seen enough. Nothing may be flushed to it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

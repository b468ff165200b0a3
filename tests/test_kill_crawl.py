"""A crawl that is killed (SIGKILL) at every hand-over, from its start to its end, and goes on.

``KILL_ROUNDS`` adds so many crawls that are killed at twenty of them each, at random.
"""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.frontier.audit import contradictions
from tests.frontier.books import assert_balanced
from tests.project import Project
from tests.site import Answer, Hit, Site, links, redirect

ROUNDS = int(os.environ.get("KILL_ROUNDS", "0"))
PAGES = 140
#: Requests at a time.
CONCURRENCY = 4

SPIDERS = """
    import os
    import signal
    from scrapy_focus.frontier.database import Database
    from scrapy_focus.scheduler import Scheduler
    from scrapy_focus.watcher import Watcher
    from scrapy_focus.writer import Writer

    where, _, times = os.environ.get("KILL", "").partition(" ")
    times = int(times or 0)

    def reach(place):
        global times
        if place == where:
            times -= 1
            if not times:
                os.kill(os.getpid(), signal.SIGKILL)

    def watch(owner, name, before=None, after=None):
        call = getattr(owner, name)

        def watched(*args, **kwargs):
            reach(before)
            result = call(*args, **kwargs)
            if result is not None or name != "next_request":
                reach(after)
            return result

        setattr(owner, name, watched)

    watch(Scheduler, "open", after="open")
    watch(Scheduler, "enqueue_request", after="enqueued")
    watch(Writer, "flush", before="flushing", after="flushed")
    watch(Database, "end", before="storing", after="stored")

    flush, end, of_page = Writer.flush, Database.end, False

    def flush_page(writer, *args, **kwargs):
        global of_page
        of_page = bool(writer._outcomes and writer._candidates)
        return flush(writer, *args, **kwargs)

    def end_page(database):
        end(database)
        if of_page:
            reach("page_stored")

    # How a page ended, and the last of its links.
    Writer.flush, Database.end = flush_page, end_page

    watch(Scheduler, "next_request", after="leased")
    watch(Watcher, "leaving", before="leaving", after="left")
    watch(Scheduler, "close", before="closing", after="closed")

    class Killer:
        @classmethod
        def from_crawler(cls, crawler):
            self = cls()
            self.handlers = []
            for name in (
                "spider_opened request_reached_downloader headers_received response_downloaded"
                " request_left_downloader response_received item_scraped spider_idle"
                " spider_closed engine_stopped"
            ).split():
                handler = lambda name=name: reach(name)
                self.handlers.append(handler)
                crawler.signals.connect(handler, getattr(signals, name))
            return self

    class Half(Spider):
        name = "half"

        async def start(self):
            yield Request(self.url, dont_filter=True)

        def parse(self, response):
            found = response.css("a::attr(href)").getall()
            yield {"half": response.url}
            for link in found[: len(found) // 2]:
                yield response.follow(link)
            reach("half")
            yield {"whole": response.url}
            for link in found[len(found) // 2 :]:
                yield response.follow(link)
            self.note("pages.txt", response.url)

        def note(self, file, *words):
            with open(file, "a") as out:
                out.write(" ".join(words) + "\\n")

    class Items:
        def process_item(self, item):
            (kind, url), = item.items()
            with open("items.txt", "a") as out:
                out.write(f"{kind} {url}\\n")
            return item
"""


class Web(Site):
    """Pages 0 to 139 that link others, some of them by a redirect, some busy at first."""

    def __init__(self) -> None:
        super().__init__(self._page)
        #: Called with the number of each request.
        self.asked = lambda number: None

    def _page(self, hit: Hit) -> Answer | str:
        self.asked(len(self.log))
        page = int(hit.path.rpartition("/")[2])
        if hit.path.startswith("/to/"):
            return redirect(f"/{page}")
        if page % 10 == 7 and self.paths().count(hit.path) == 1:
            return Answer(status=503)
        # From one page alone, so that a link that is lost is a page that is lost.
        near = (max(0, page - 1) // 2, 2 * page + 1, 2 * page + 2)
        return links(*(_path(n) for n in near if n < PAGES))

    @property
    def expected(self) -> Counter[str]:
        """How often each URL is fetched by a crawl that nobody kills."""
        hits: Counter[str] = Counter()
        for page in range(PAGES):
            hits[self.url(f"/{page}")] = 2 if page % 10 == 7 else 1
            if _path(page) != f"/{page}":
                hits[self.url(_path(page))] = 1
        return hits


def _path(page: int) -> str:
    """The path by which a page is linked."""
    return f"/to/{page}" if page % 10 == 3 else f"/{page}"


@pytest.fixture(name="web")
def _web() -> Iterator[Web]:
    with Web() as web:
        yield web


class Crawl(Project):
    def __init__(self, folder: Path, web: Web) -> None:
        super().__init__(
            folder,
            SPIDERS,
            EXTENSIONS={"spiders.StatsOut": 0, "spiders.Killer": 0},
            ITEM_PIPELINES={"spiders.Items": 0},
            CONCURRENT_REQUESTS=CONCURRENCY,
            ROBOTSTXT_OBEY=False,
            RETRY_TIMES=9,
        )
        self._web = web
        #: How often each URL was in flight at a kill.
        self.in_flight: Counter[str] = Counter()

    def kill(self, place: str, times: int) -> bool:
        """Crawl until the process kills itself at a place, reached so many times, or is killed
        when it has sent so many requests. Says whether it came there."""
        web = self._web
        self.environment["KILL"] = f"{place} {times}"
        # One at a time, and a page's links are stored with how it ended.
        concurrency = 1 if place == "page_stored" else CONCURRENCY
        settings = ("-s", "FOCUS_RESUME=True", "-s", f"CONCURRENT_REQUESTS={concurrency}")
        process = self.start("crawl", "half", "-a", f"url={web.url('/0')}", *settings)
        last = len(web.log) + times
        web.asked = lambda n: process.kill() if place == "sent" and n == last else None
        run = self.wait(process)
        assert run.returncode in (0, -signal.SIGKILL), run.log
        self._look()
        return run.returncode != 0

    def _look(self) -> None:
        """The books add up, and no more is in flight than can be."""
        assert not contradictions(self.frontier)
        assert_balanced(self.frontier)
        leased = [url for (url,) in self.rows("SELECT url FROM urls WHERE run IS NOT NULL")]
        # As many again may have come in and not be finished.
        assert len(leased) <= 4 * CONCURRENCY
        self.in_flight.update(leased)

    def finish(self) -> None:
        """Crawl to the end: each page's callback has run to its end and none of its items is
        lost; nothing was done twice but what was in flight at a kill."""
        self.environment["KILL"] = ""
        web = self._web
        run = self.crawl("half", f"url={web.url('/0')}", FOCUS_RESUME=True)
        assert (run.returncode, run.reason) == (0, "finished")
        pages = Counter(web.url(f"/{page}") for page in range(PAGES))
        hits = Counter(map(web.url, web.paths()))
        items = (self.folder / "items.txt").read_text().splitlines()
        assert_done(hits, web.expected, self.in_flight)
        assert_done(Counter(self.pages), pages, self.in_flight)
        for kind in ("half", "whole"):
            of_kind = Counter(item.split()[1] for item in items if item.startswith(kind))
            assert_done(of_kind, pages, self.in_flight)
        assert not contradictions(self.frontier)
        assert_balanced(self.frontier)
        urls = len(web.expected)
        assert self.rows("SELECT added, done, leased FROM jobs") == [(urls, urls, 0)]


def assert_done(found: Counter[str], expected: Counter[str], again: Counter[str]) -> None:
    assert not expected - found
    assert not found - expected - again


#: Where the process is killed, and which time that it comes there. Each goes on where the one
#: before was killed.
KILLS = [
    *(("open", 1), ("enqueued", 1), ("page_stored", 1), ("page_stored", 3), ("sent", 5)),
    *(("half", 4), ("response_downloaded", 4), ("item_scraped", 9), ("left", 7), ("leased", 9)),
    *(("spider_idle", 1), ("closing", 1), ("closed", 1)),
]
#: The last five come at the end of a crawl.
PLACES = [
    *("open", "spider_opened", "enqueued", "flushing", "storing", "stored", "flushed", "leased"),
    *("sent", "page_stored", "request_reached_downloader", "headers_received", "half"),
    *("response_downloaded", "request_left_downloader", "response_received", "item_scraped"),
    *("leaving", "left", "spider_idle", "closing", "closed", "spider_closed", "engine_stopped"),
]


def choose_kills(seed: int) -> list[tuple[str, int]]:
    rng = random.Random(seed)
    early = [(rng.choice(PLACES[2:-5]), rng.randint(1, 25)) for _ in range(14)]
    return early + [(rng.choice(PLACES), 1) for _ in range(6)]


@pytest.mark.parametrize("kills", [KILLS, *map(choose_kills, range(ROUNDS))])
def test_every_hand_over(tmp_path: Path, web: Web, kills: Sequence[tuple[str, int]]) -> None:
    crawl = Crawl(tmp_path / "project", web)
    for place, times in kills:
        assert crawl.kill(place, times) or kills is not KILLS, place
    crawl.finish()

"""Politeness (DESIGN.md, sections 2 to 5): when each host is asked, and who waits meanwhile.

Lower bounds on gaps are strict. They are read where a request reaches the downloader: on a
busy machine it may be read late by the server, and the next one in time. What the server
saw is compared as well. Upper bounds are generous.
"""

from __future__ import annotations

import signal
import time
from email.utils import formatdate
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
from typing import Any

import pytest

from tests.project import Project
from tests.site import Answer, Hit, Site, links, redirect

SPIDERS = """
import time
from scrapy.robotstxt import ProtegoRobotParser


class Sent:
    \"\"\"Notes when each request is handed to the downloader.\"\"\"

    @classmethod
    def from_crawler(cls, crawler):
        self = cls()
        crawler.signals.connect(self.note, signals.request_reached_downloader)
        return self

    def note(self, request):
        now = time.time()
        with open("sent.txt", "a") as file:
            file.write(f"{now} {request.url}\\n")


class LiteralParser(ProtegoRobotParser):
    \"\"\"Protego reads a Crawl-delay that makes no sense as none; other parsers do not.\"\"\"

    def __init__(self, robotstxt_body, spider):
        super().__init__(robotstxt_body, spider)
        _, found, self.delay = robotstxt_body.decode().partition("Crawl-delay:")

    def crawl_delay(self, user_agent):
        return float(self.delay) if self.delay else None


class Media(Follow):
    name = "media"

    def parse(self, response):
        yield from super().parse(response)
        if response.url == self.url:
            yield {"file_urls": [self.url + f"file{n}" for n in range(3)]}


class Slots(Follow):
    \"\"\"Gives hosts whose page says so one slot of their own.\"\"\"

    name = "slots"

    async def start(self):
        for url in self.url.split(","):
            slot = {"download_slot": "ours"} if "own" in url else {}
            yield Request(url, meta=slot)
"""

#: What a clock and a float may be off.
EXACT = 0.005


class Crawl(Project):
    """A project that notes when its requests went out."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        extensions = {"spiders.StatsOut": 0, "spiders.Sent": 0}
        super().__init__(folder, SPIDERS, EXTENSIONS=extensions, **settings)

    def sent(self, *urls: str) -> list[float]:
        """When requests to URLs that start with one of *urls* went out."""
        lines = (self.folder / "sent.txt").read_text().splitlines()
        found = [line.split(" ") for line in lines]
        return sorted(float(at) for at, url in found if url.startswith(urls))


def gaps(times: list[float]) -> list[float]:
    return [b - a for a, b in pairwise(times)]


def host(number: int) -> str:
    return f"127.0.1.{number}"


def numbered(count: int, first: int = 1) -> str:
    return links(*(f"/{n}" for n in range(first, first + count)))


def test_delays_jitter_and_slots(tmp_path: Path) -> None:
    default, exact, wide, own, also_own = hosts = [host(n) for n in range(5)]

    def answer(hit: Hit) -> Answer | str:
        if hit.path == "/6":
            return redirect("/7")
        return Answer(numbered(6), delay=0.05)

    with Site(answer, hosts) as site:
        crawl = Crawl(
            tmp_path / "p",
            DOWNLOAD_DELAY=0.2,
            CONCURRENT_REQUESTS_PER_DOMAIN=2,
            DOWNLOAD_SLOTS={
                exact: {"delay": 0.15, "jitter": 0, "concurrency": 1},
                wide: {"delay": 0, "concurrency": 3},
                "ours": {"delay": 0.1, "jitter": 0},
            },
        )
        seeds = [site.url("/", h) for h in (default, exact, wide)]
        seeds += [site.url("/own", h) for h in (own, also_own)]
        run = crawl.crawl("slots", "url=" + ",".join(seeds))

    assert run.reason == "finished"
    jittered = gaps(crawl.sent(site.url("/", default)))
    assert len(jittered) == 7
    assert min(jittered) >= 0.1 - EXACT
    assert max(jittered) - min(jittered) > 0.01
    assert mean(jittered) < 0.6
    assert min(gaps(crawl.sent(site.url("/", exact)))) >= 0.15 - EXACT
    assert 1 < site.busiest[wide] <= 3
    # Two hosts that share a slot share a pace; what they link to has its own again.
    assert min(gaps(crawl.sent(site.url("/own", own), site.url("/own", also_own)))) >= 0.1 - EXACT
    assert all(len(site.paths(h)) == 8 for h in hosts)


def test_media_keep_to_the_pace(tmp_path: Path) -> None:
    """They do not pass through the frontier, but through the downloader's slot."""
    with Site(lambda hit: links("/more") if hit.path == "/" else "") as site:
        crawl = Crawl(
            tmp_path / "p",
            DOWNLOAD_DELAY=0.4,
            DOWNLOAD_DELAY_JITTER=0.0,
            ITEM_PIPELINES={"scrapy.pipelines.files.FilesPipeline": 1},
            FILES_STORE=str(tmp_path / "files"),
        )
        run = crawl.crawl("media", f"url={site.url()}")

    assert run.reason == "finished"
    assert sorted(site.paths()) == ["/", "/file0", "/file1", "/file2", "/more"]
    assert min(site.gaps(site.hosts[0])) >= 0.3


def test_crawl_delay(tmp_path: Path) -> None:
    """20 fast hosts and a slow one (scrapy#892, #1371, #2474), robots.txt files of all kinds
    (crawler-commons#139, stormcrawler#549), refusals that cost no turn."""
    fast = [host(n) for n in range(1, 21)]
    slow, huge, odd, negative, short, burst, refusing = other = [host(n) for n in range(21, 28)]
    robots = {
        slow: "Crawl-delay: 1",
        huge: "Crawl-delay: 100000",
        odd: "Crawl-delay: nan",
        negative: "Crawl-delay: -1",
        short: "Crawl-delay: 0.1",
        burst: "Crawl-delay: 0.3",
        refusing: "Disallow: /no",
    }
    pages = {
        # Its queue runs empty after each page, and its pace is kept (nutch#729).
        slow: {"/": links("/1"), "/1": links("/2"), "/2": links("/3"), "/3": ""},
        huge: {"/": links("/1")},
        odd: {"/": numbered(5)},
        negative: {"/": numbered(5)},
        short: {"/": numbered(3)},
        refusing: {"/": links(*(f"/no{n}" for n in range(20)), "/yes")},
    }

    def answer(hit: Hit) -> Answer | str:
        if hit.path == "/robots.txt":
            body = f"User-agent: *\n{robots.get(hit.host, '')}\n"
            return Answer(body, delay=0.2 if hit.host == burst else 0)
        if hit.host in fast:
            return numbered(10)
        return pages.get(hit.host, {}).get(hit.path, "a page")

    with Site(answer, fast + other) as site:
        crawl = Crawl(
            tmp_path / "p",
            ROBOTSTXT_OBEY=True,
            ROBOTSTXT_PARSER="spiders.LiteralParser",
            FOCUS_MAX_CRAWL_DELAY=1,
            CONCURRENT_REQUESTS=8,
            DOWNLOAD_SLOTS={
                short: {"delay": 0.5, "jitter": 0},
                refusing: {"delay": 1, "jitter": 0},
            },
        )
        seeds = [site.url("/", h) for h in (slow, *fast, *other[1:])]
        seeds += [site.url(f"/{n}", burst) for n in range(5)]
        run = crawl.crawl("follow", "url=" + ",".join(seeds))

    def sent(name: str) -> list[float]:
        return crawl.sent(site.url("/", name))

    assert run.reason == "finished"
    # From robots.txt to the first page, and from page to page.
    assert len(sent(slow)) == 5
    assert min(gaps(sent(slow))) >= 1 - EXACT
    assert median(gaps(sent(slow))) < 1.05
    assert min(site.gaps(slow)) >= 0.75
    assert max(site.log, key=lambda hit: hit.time * (hit.host in fast)).time < sent(slow)[-1]
    assert all(len(site.paths(h)) == 11 for h in fast)
    # Clamped and counted, or no delay at all.
    assert min(gaps(sent(huge))) >= 1 - EXACT
    assert sent(odd)[-1] < sent(slow)[-1]
    assert sent(negative)[-1] < sent(slow)[-1]
    assert run.stats["focus/delay/clamped"] == 3
    # The longer of the two; robots.txt itself is not the frontier's to delay.
    assert min(gaps(sent(short)[1:])) >= 0.5 - EXACT
    # Six that waited for robots.txt together.
    assert len(sent(burst)) == 7
    assert min(gaps(sent(burst))) >= 0.3 - EXACT
    # A turn each would be 20 s.
    assert run.stats["focus/dropped/robots"] == 20
    assert sent(refusing)[-1] - sent(refusing)[0] < 10


def test_hosts_take_turns_side_by_side(tmp_path: Path) -> None:
    hosts = [host(n) for n in range(8)]

    with Site(lambda hit: numbered(4), hosts) as site:
        crawl = Crawl(tmp_path / "p", DOWNLOAD_DELAY=0.5)
        run = crawl.crawl("follow", "url=" + ",".join(site.url("/", h) for h in hosts))

    assert run.reason == "finished"
    times = [crawl.sent(site.url("/", h)) for h in hosts]
    assert all(len(t) == 5 and min(gaps(t)) >= 0.25 - EXACT for t in times)
    # Four gaps each: 2 s on average.
    assert max(t[-1] for t in times) - min(t[0] for t in times) < 4


def test_hosts_that_ask_to_be_left_alone(tmp_path: Path) -> None:
    """429 and 503 with and without Retry-After. Who waits takes nobody's place, and does
    not come back in a burst (crawlee-python#2127)."""
    seconds, date, silent, huge, many, free = hosts = [host(n) for n in range(6)]
    until: list[float] = []
    refusals: dict[str, int] = {}

    def answer(hit: Hit) -> Answer | str:
        refusals[hit.host] = number = refusals.get(hit.host, 0) + 1
        if hit.host == seconds and number == 1:
            return Answer(status=429, headers={"Retry-After": "1"})
        if hit.host == date and number == 1:
            until.append(int(time.time()) + 2)
            when = formatdate(until[0], usegmt=True)
            return Answer(status=503, headers={"Retry-After": when})
        if hit.host == silent and number <= 2:
            return Answer(status=(429, 503)[number - 1])
        if hit.host == huge and number == 1:
            return Answer(status=429, headers={"Retry-After": "100000"})
        if hit.host == many and number == 2:
            return Answer(status=429, headers={"Retry-After": "1"})
        return numbered(6) if hit.host in (many, free) else "a page"

    with Site(answer, hosts) as site:
        crawl = Crawl(
            tmp_path / "p",
            FOCUS_MAX_CRAWL_DELAY=2,
            CONCURRENT_REQUESTS=2,
            DOWNLOAD_SLOTS={many: {"delay": 0.1, "jitter": 0}},
        )
        run = crawl.crawl("follow", "url=" + ",".join(site.url("/", h) for h in hosts))

    def sent(name: str) -> list[float]:
        return crawl.sent(site.url("/", name))

    assert run.reason == "finished"
    assert len(crawl.pages) == 18
    assert gaps(sent(seconds))[0] >= 1 - EXACT
    assert sent(date)[1] >= until[0]
    first, second = gaps(sent(silent))
    assert first >= 1 - EXACT
    assert second >= 2 - EXACT
    assert 2 - EXACT <= gaps(sent(huge))[0] < 10
    assert run.stats["focus/delay/clamped"] == 1
    # Let alone for a second once, then at its pace again.
    assert len(sent(many)) == 8
    assert max(gaps(sent(many))) >= 0.9
    assert min(gaps(sent(many))) >= 0.1 - EXACT
    # Five hosts wait, two places: nobody notices.
    assert sent(free)[-1] < sent(seconds)[1]
    assert run.stats["focus/hold/retry_after"] == 4
    assert run.stats["focus/hold/backoff"] == 2


def test_hosts_that_do_not_answer(tmp_path: Path) -> None:
    """They are held with growing pauses, and their URLs fail after their retries."""
    answering = host(1)

    with Site(lambda hit: numbered(30), [answering]) as site:
        refusing = site.url("/", host(2))
        nowhere = "http://nohost.invalid/"
        crawl = Crawl(tmp_path / "p", RETRY_TIMES=4, CONCURRENT_REQUESTS=2)
        run = crawl.crawl("follow", f"url={refusing},{nowhere},{site.url()}")

    assert run.reason == "finished"
    for url in (refusing, nowhere):
        sent = crawl.sent(url)
        assert len(sent) == 5
        assert gaps(sent)[2] >= 1 - EXACT
        assert gaps(sent)[3] >= 2 - EXACT
        assert site.log[-1].time < sent[-1]
    assert len(site.paths()) == 31
    assert run.stats["focus/failed/unreachable"] == 2
    assert run.stats["focus/hold/unreachable"] == 6
    assert "2 failed (unreachable 2)" in run.log


def test_a_cached_crawl_runs_at_full_speed(tmp_path: Path) -> None:
    def answer(hit: Hit) -> Answer | str:
        if hit.path == "/robots.txt":
            return "User-agent: *\nDisallow: /no\nCrawl-delay: 20\n"
        return links(*(f"/{n}" for n in range(12)), *(f"/no{n}" for n in range(10)))

    with Site(answer) as site:
        crawl = Crawl(tmp_path / "p", ROBOTSTXT_OBEY=True, HTTPCACHE_ENABLED=True)
        first = crawl.crawl("follow", f"url={site.url()}", FOCUS_MAX_CRAWL_DELAY=0.01)
        fetched = len(site.log)
        second = crawl.crawl("follow", f"url={site.url()}", DOWNLOAD_DELAY=1)

    assert len(site.log) == fetched == 14
    for run in (first, second):
        assert run.reason == "finished"
        assert run.stats["focus/done"] == 13
        assert run.stats["focus/dropped/robots"] == 10
    # At a turn each it would be minutes.
    assert second.stats["elapsed_time_seconds"] < 8


def test_autothrottle_is_followed(tmp_path: Path) -> None:
    with Site(lambda hit: Answer(numbered(8), delay=0.1)) as site:
        crawl = Crawl(
            tmp_path / "p",
            AUTOTHROTTLE_ENABLED=True,
            AUTOTHROTTLE_START_DELAY=0.6,
            AUTOTHROTTLE_TARGET_CONCURRENCY=1.0,
        )
        run = crawl.crawl("follow", f"url={site.url()}")

    assert run.reason == "finished"
    found = gaps(crawl.sent(site.url()))
    assert len(found) == 8
    assert found[0] >= 0.6 - EXACT
    # It halves the difference to the latency each time: 0.35, 0.22, 0.16, …
    assert found[1] >= 0.35 - EXACT
    assert min(found) >= 0.1 - EXACT
    assert min(found[3:]) < 0.5


def test_two_jobs_share_a_hosts_pace(tmp_path: Path) -> None:
    slow, wide = hosts = [host(1), host(2)]
    answers = {slow: Answer(numbered(5)), wide: Answer(numbered(8), delay=0.2)}

    with Site(lambda hit: answers[hit.host], hosts) as site:
        settings = {
            "FOCUS_FRONTIER": f"sqlite:///{tmp_path / 'shared.db'}",
            "CONCURRENT_REQUESTS_PER_DOMAIN": 2,
            "DOWNLOAD_SLOTS": {slow: {"delay": 0.4, "jitter": 0}},
        }
        seeds = f"url={site.url('/', slow)},{site.url('/', wide)}"
        both = [Crawl(tmp_path / name, FOCUS_JOB=name, **settings) for name in "ab"]
        started = [crawl.start("crawl", "follow", "-a", seeds) for crawl in both]
        runs = [crawl.wait(process) for crawl, process in zip(both, started, strict=True)]

    assert [run.reason for run in runs] == ["finished"] * 2
    times = [crawl.sent(site.url("/", slow)) for crawl in both]
    assert [len(t) for t in times] == [6, 6]
    # They did meet.
    assert times[0][0] < times[1][-1]
    assert times[1][0] < times[0][-1]
    assert min(gaps(sorted(times[0] + times[1]))) >= 0.4 - EXACT
    assert len(site.paths(wide)) == 18
    assert site.busiest[wide] == 2


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGINT])
def test_a_hosts_pace_outlives_a_run(tmp_path: Path, sign: int) -> None:
    """scrapy#110: killed or stopped, and started again at once."""
    with Site(lambda hit: numbered(1)) as site:
        crawl = Crawl(tmp_path / "p", DOWNLOAD_DELAY=4, DOWNLOAD_DELAY_JITTER=0.25)
        crawl.crawl_until(lambda: len(crawl.pages) == 1, f"url={site.url()}", sign=sign)
        run = crawl.crawl("follow", f"url={site.url()}")

    assert run.reason == "finished"
    # The first page is asked for again if its outcome was not stored yet.
    assert 2 <= len(crawl.sent(site.url())) <= 3
    assert min(gaps(crawl.sent(site.url()))) >= 3 - EXACT


def test_a_stop_waits_for_no_host(tmp_path: Path) -> None:
    """scrapy#4749: requests that wait for a Crawl-delay go back, at once."""

    def answer(hit: Hit) -> Answer | str:
        return "User-agent: *\nCrawl-delay: 30\n" if hit.path == "/robots.txt" else numbered(5)

    with Site(answer) as site:
        crawl = Crawl(tmp_path / "p", ROBOTSTXT_OBEY=True)
        seeds = ",".join(site.url(f"/seed{n}") for n in range(5))
        asked: list[float] = []

        def robots_asked() -> bool:
            if site.log and not asked and "Crawled (200)" in crawl.log:
                asked.append(time.monotonic())
            return bool(asked)

        run = crawl.crawl_until(robots_asked, f"url={seeds}", sign=signal.SIGINT)
        assert time.monotonic() - asked[0] < 15
    assert run.reason == "shutdown"
    assert run.stats["focus/waiting"] == 5
    assert site.paths() == []

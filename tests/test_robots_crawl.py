"""robots.txt (DESIGN.md, section 5): its Crawl-delay, and who waits for it."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from statistics import median_low

from tests.paced import EXACT, Crawl, gaps, host, numbered
from tests.site import Answer, Hit, Site, links


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
    assert median_low(gaps(sent(slow))) < 1.05
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


def test_robots_txt_is_obeyed_by_all_who_wait_for_it(tmp_path: Path) -> None:
    """Scrapy's middleware lets the third and later ones pass: none of them waits with us, even
    where one pace group has two servers, or a middleware takes the first request away."""
    a, b, c = hosts = [host(n) for n in range(3)]

    def answer(hit: Hit) -> Answer | str:
        if hit.path == "/robots.txt":
            return Answer("User-agent: *\nDisallow: /no\n", delay=0.3)
        return "a page"

    with Site(answer, hosts) as site:
        crawl = Crawl(
            tmp_path / "p", ROBOTSTXT_OBEY=True, DOWNLOADER_MIDDLEWARES={"spiders.Veto": 50}
        )
        seeds = [
            site.url(f"/{kind}{n}-own", h)
            for h in (a, b)
            for n in range(6)
            for kind in ("no", "ok")
        ]
        seeds += [site.url(f"/{kind}{n}", c) for kind in ("veto", "no", "ok") for n in range(6)]
        run = crawl.crawl("slots", "url=" + ",".join(seeds))

    assert run.reason == "finished"
    assert sorted(site.paths()) == sorted(
        [f"/ok{n}-own" for n in range(6) for _ in (a, b)] + [f"/ok{n}" for n in range(6)]
    )
    assert run.stats["focus/dropped/robots"] == 18
    assert run.stats["focus/dropped/middleware"] == 6
    assert run.stats["robotstxt/request_count"] == 3


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

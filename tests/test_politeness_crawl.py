"""Politeness (DESIGN.md, sections 2 to 5): when each host is asked, and who waits meanwhile.

Lower bounds on gaps are strict, upper bounds are generous.
"""

from __future__ import annotations

import signal
import time
from email.utils import formatdate
from pathlib import Path
from statistics import mean

from tests.paced import EXACT, Crawl, gaps, host, numbered
from tests.site import Answer, Hit, Site, links, redirect


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
    answers = {slow: Answer(numbered(11)), wide: Answer(numbered(8), delay=0.2)}

    with Site(lambda hit: answers[hit.host], hosts) as site:
        settings = {
            "FOCUS_FRONTIER": f"sqlite:///{tmp_path / 'shared.db'}",
            "CONCURRENT_REQUESTS_PER_DOMAIN": 2,
            "DOWNLOAD_SLOTS": {slow: {"delay": 0.25, "jitter": 0}},
        }
        seeds = f"url={site.url('/', slow)},{site.url('/', wide)}"
        both = [Crawl(tmp_path / name, FOCUS_JOB=name, **settings) for name in "ab"]
        started = [crawl.start("crawl", "together", "-a", seeds) for crawl in both]
        for crawl, process in zip(both, started, strict=True):
            crawl.wait_until(process, lambda crawl=crawl: "ready" in crawl.log)
        for crawl in both:
            (crawl.folder / "go").touch()
        runs = [crawl.wait(process) for crawl, process in zip(both, started, strict=True)]

    assert [run.reason for run in runs] == ["finished"] * 2
    times = [crawl.sent(site.url("/", slow)) for crawl in both]
    assert [len(t) for t in times] == [12, 12]
    # They did meet. Whose turn it is each time is chance.
    assert times[0][0] < times[1][-1]
    assert times[1][0] < times[0][-1]
    assert min(gaps(sorted(times[0] + times[1]))) >= 0.25 - EXACT
    assert len(site.paths(wide)) == 18
    assert site.busiest[wide] == 2


def test_a_hosts_pace_outlives_a_run(tmp_path: Path) -> None:
    """scrapy#110: killed, then stopped, and started again at once."""
    with Site(lambda hit: numbered(2)) as site:
        crawl = Crawl(tmp_path / "p", DOWNLOAD_SLOTS={site.hosts[0]: {"delay": 2.5, "jitter": 0}})
        seed = f"url={site.url()}"
        for pages, sign in ((1, signal.SIGKILL), (2, signal.SIGINT)):
            crawl.crawl_until(lambda n=pages: len(set(crawl.pages)) == n, seed, sign=sign)
        run = crawl.crawl("follow", seed)

    assert run.reason == "finished"
    # A page is asked for again if its outcome was not stored yet when the kill came.
    assert 3 <= len(crawl.sent(site.url())) <= 4
    assert min(gaps(crawl.sent(site.url()))) >= 2.5 - EXACT

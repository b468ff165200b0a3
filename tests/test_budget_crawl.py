"""The budget (DESIGN.md, section 3): what a crawl fetches of a site that has more."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.project import Project
from tests.site import Answer, Hit, Site, links, redirect

SPIDERS = """
from scrapy.exceptions import IgnoreRequest
from scrapy.utils.asyncio import sleep


class Veto:
    def process_request(self, request):
        if "/veto" in request.url:
            raise IgnoreRequest


class Slow(Follow):
    name = "slow"

    async def parse(self, response):
        await sleep(1)
        for request in super().parse(response):
            yield request
"""
WIDE = {"CONCURRENT_REQUESTS": 16, "CONCURRENT_REQUESTS_PER_DOMAIN": 16}


def shop(hit: Hit) -> Answer | str:
    """A front page that links to 60 pages. Some of them are refused by robots.txt or by a
    middleware, fail once, or are reached over two hops; each is slow enough for many to be in
    flight."""
    if hit.path == "/robots.txt":
        return Answer("User-agent: *\nDisallow: /private\n")
    if hit.path == "/":
        kinds = ("page", "private", "retry", "hop", "veto")
        return links(*(f"/{kinds[n % 5]}/{n}" for n in range(60)))
    kind = hit.path.split("/")[1]
    if kind == "hop":
        return redirect(hit.path.replace("hop", "hop2"))
    if kind == "hop2":
        return redirect(hit.path.replace("hop2", "landed"))
    return Answer("a page", delay=0.03)


class Flaky:
    """The shop, in which each ``/retry`` page fails when it is asked for the first time."""

    def __init__(self) -> None:
        self.failed: set[str] = set()

    def __call__(self, hit: Hit) -> Answer | str:
        if hit.path.startswith("/retry") and hit.path not in self.failed:
            self.failed.add(hit.path)
            return Answer(status=500)
        return shop(hit)


def pages(site: Site, host: str | None = None) -> set[str]:
    """The pages that were fetched: one, whatever its attempts and hops."""
    return {path for path in site.paths(host) if not path.startswith(("/hop2", "/landed"))}


def test_pages_are_exact_and_a_larger_budget_goes_on(tmp_path: Path) -> None:
    """scrapy#1651: a budget of 10 is 10, however many requests are in flight at once."""
    with Site(Flaky()) as site:
        project = Project(
            tmp_path / "p",
            SPIDERS,
            ROBOTSTXT_OBEY=True,
            DOWNLOADER_MIDDLEWARES={"spiders.Veto": 50},
            **WIDE,
        )
        seed = f"url={site.url()}"
        for budget in (10, 25):
            run = project.crawl("follow", seed, FOCUS_MAX_PAGES=budget)
            assert run.reason == "focus_max_pages"
            assert run.stats["focus/pages"] == len(pages(site)) == budget
            assert run.stats["focus/waiting"] > 0
            # What was begun is brought to its end: every page's callback has run.
            assert len(project.pages) == budget

        again = project.crawl("follow", seed, FOCUS_MAX_PAGES=25)
        assert again.reason == "focus_max_pages"
        assert "nothing to do" in again.log
        assert len(pages(site)) == 25

        # 0 means none, on resume too (browsertrix-crawler#872).
        rest = project.crawl("follow", seed, FOCUS_MAX_PAGES=0)
    assert rest.reason == "finished"
    assert rest.stats["focus/waiting"] == 0
    assert len(pages(site)) == len(project.pages) == 37
    attempts = [path for path in site.paths() if not path.startswith("/retry")]
    assert len(attempts) == len(set(attempts))


def test_a_site_that_the_budget_just_covers_is_finished(tmp_path: Path) -> None:
    def answer(hit: Hit) -> str:
        return links(*(f"/{n}" for n in range(9)))

    with Site(answer) as site:
        run = Project(tmp_path / "p", FOCUS_MAX_PAGES=10, **WIDE).crawl(
            "follow", f"url={site.url()}"
        )
    assert run.reason == "finished"
    assert len(pages(site)) == run.stats["focus/pages"] == 10


def test_pages_per_host_are_exact(tmp_path: Path) -> None:
    """scrapy#1553. A host that has spent its share is retired: such an end is not finished."""
    hosts = [f"127.0.0.{n}" for n in range(1, 5)]

    def answer(hit: Hit) -> Answer | str:
        if hit.path == "/" and hit.host == hosts[0]:
            urls = [site.url(f"/{n}", host) for n in range(8) for host in hosts[:3]]
            return links(*urls, site.url("/only", hosts[3]))
        return Answer("a page", delay=0.02)

    with Site(answer, hosts) as site:
        project = Project(tmp_path / "p", **WIDE)
        for share in (3, 5):
            run = project.crawl("follow", f"url={site.url()}", FOCUS_MAX_PAGES_PER_HOST=share)
            assert run.reason == "focus_max_pages_per_host"
            assert [len(site.paths(host)) for host in hosts] == [share, share, share, 1]
            assert "retired 3" in run.log
        run = project.crawl("follow", f"url={site.url()}")
    assert run.reason == "finished"
    assert [len(site.paths(host)) for host in hosts] == [9, 8, 8, 1]


def test_the_budget_outlives_a_kill(tmp_path: Path) -> None:
    with Site(Flaky()) as site:
        project = Project(tmp_path / "p", FOCUS_MAX_PAGES=30, **WIDE)
        killed = project.crawl_until(lambda: len(pages(site)) >= 12, f"url={site.url()}")
        assert killed.returncode == -signal.SIGKILL
        run = project.crawl("follow", f"url={site.url()}")
    assert run.reason == "focus_max_pages"
    assert run.stats["focus/pages"] == len(pages(site)) == 30
    assert len(set(project.pages)) == 30


def test_two_processes_share_one_budget(tmp_path: Path) -> None:
    agents: set[str] = set()

    def answer(hit: Hit) -> Answer | str:
        agents.add(hit.headers["user-agent"])
        # Whoever comes first is kept until the other one is there.
        return shop(hit) if hit.path == "/" else Answer(delay=0.05 if len(agents) == 2 else 1.0)

    with Site(answer) as site:
        settings = {
            "FOCUS_FRONTIER": f"sqlite:///{tmp_path / 'shared.db'}",
            "FOCUS_JOB": "shared",
            "FOCUS_MAX_PAGES": 50,
            "CONCURRENT_REQUESTS": 3,
        }
        both = [Project(tmp_path / name, USER_AGENT=name, **settings) for name in "ab"]
        started = [project.start("crawl", "follow", "-a", f"url={site.url()}") for project in both]
        runs = [project.wait(process) for project, process in zip(both, started, strict=True)]

    assert [run.reason for run in runs] == ["focus_max_pages"] * 2
    assert both[0].pages
    assert both[1].pages
    assert len(site.paths()) == len(set(site.paths())) == 50
    assert len(both[0].pages + both[1].pages) == 50


def test_bytes(tmp_path: Path) -> None:
    page = links(*(f"/{n}" for n in range(100))).ljust(10_000)

    with Site(lambda hit: Answer(page, delay=0.02)) as site:
        project = Project(tmp_path / "p", SPIDERS, CONCURRENT_REQUESTS=1, FOCUS_JOB="one")
        for limit, enough in ((50_000, 5), (75_000, 8)):
            run = project.crawl("follow", f"url={site.url()}", FOCUS_MAX_BYTES=limit)
            assert run.reason == "focus_max_bytes"
            assert len(site.paths()) == enough
            assert run.stats["focus/bytes"] == enough * 10_000

        # What is in flight when it is reached is the overshoot, and no more, however long
        # what has arrived is worked on.
        run = project.crawl("slow", f"url={site.url()}", FOCUS_MAX_BYTES=150_000, **WIDE)
        assert run.reason == "focus_max_bytes"
        assert 15 <= len(site.paths()) <= 15 + 16
        assert run.stats["focus/bytes"] == len(site.paths()) * 10_000


def test_seconds(tmp_path: Path) -> None:
    page = links(*(f"/{n}" for n in range(40)))

    with Site(lambda hit: Answer(page, delay=0.1)) as site:
        project = Project(tmp_path / "p", CONCURRENT_REQUESTS=1)
        run = project.crawl("follow", f"url={site.url()}", FOCUS_MAX_SECONDS=1)
        assert run.reason == "focus_max_seconds"
        fetched = len(site.paths())
        assert 2 <= fetched < 41

        again = project.crawl("follow", f"url={site.url()}", FOCUS_MAX_SECONDS=1)
        assert again.reason == "focus_max_seconds"
        assert len(site.paths()) == fetched

        rest = project.crawl("follow", f"url={site.url()}", CONCURRENT_REQUESTS=16)
    assert rest.reason == "finished"
    assert len(site.paths()) == 41


@pytest.mark.parametrize("setting", ["FOCUS_MAX_SECONDS", "FOCUS_MAX_PAGES"])
def test_a_spent_budget_waits_for_no_host(tmp_path: Path, setting: str) -> None:
    """Nothing more is handed out, so that a long delay keeps nothing open."""
    with Site(lambda hit: links("/more")) as site:
        project = Project(tmp_path / "p", DOWNLOAD_DELAY=500, **{setting: 1})
        run = project.crawl("follow", f"url={site.url()}", timeout=20)
    assert run.reason == setting.lower()
    assert run.stats["focus/waiting"] == 1
    assert site.paths() == ["/"]


def test_what_waits_is_bounded(tmp_path: Path) -> None:
    """What is shed comes back, since every page links to it; start requests stay."""
    seeds = [f"/seed{n}" for n in range(8)]

    def answer(hit: Hit) -> str:
        return links(*(f"/{n}" for n in range(40)))

    with Site(answer) as site:
        project = Project(tmp_path / "p", CONCURRENT_REQUESTS=1, FOCUS_RESUME=False)
        urls = ",".join(map(site.url, seeds))
        for bounds in ({"FOCUS_MAX_WAITING": 5}, {"FOCUS_MAX_WAITING_PER_HOST": 5}):
            run = project.crawl("follow", f"url={urls}", **bounds)
            assert run.reason == "finished"
            stats = run.stats
            paths = site.paths()[-48:]
            assert sorted(paths) == sorted([*seeds, *(f"/{n}" for n in range(40))])
            # The first page finds 40 links, and 7 seeds wait; a link comes in once one has left.
            assert stats["focus/dropped/shed"] > 40
            assert stats["focus/added"] == 48 + stats["focus/dropped/shed"]
            ((added, done, dropped),) = project.rows("SELECT added, done, dropped FROM jobs")[-1:]
            assert (added, done) == (stats["focus/added"], 48)
            assert dropped == stats["focus/dropped/shed"]
            assert project.rows("SELECT count(*) FROM urls WHERE state <> 1") == [(0,)]
            assert f"shed {dropped}" in run.log


def test_pages_per_path_are_exact(tmp_path: Path) -> None:
    """Each host has its own share, over runs and with other limits."""
    hosts = ["127.0.0.1", "127.0.0.2"]

    def answer(hit: Hit) -> Answer | str:
        if hit.path.startswith("/moved/"):
            return redirect(hit.path.replace("moved", "calendar"))
        day = int(hit.path.rpartition("/")[2] or 0)
        urls = [site.url(f"/calendar/{day + n}", host) for n in (1, 2, 3) for host in hosts]
        return links(*urls, "/1", "/2", "/moved/7")

    def calendar() -> list[int]:
        return [sum(path.startswith("/calendar/") for path in site.paths(host)) for host in hosts]

    with Site(answer, hosts) as site:
        project = Project(tmp_path / "p", **WIDE)
        url = f"url={site.url()}"
        for share in (3, 5):
            shares = json.dumps({"*/calendar/": share})
            run = project.crawl("follow", url, FOCUS_MAX_PAGES_PER_PATH=shares)
            assert run.reason == "focus_max_pages_per_path"
            # A page that redirects there was paid where it began.
            assert calendar() in ([share + 1, share + 1], [share, share + 1], [share + 1, share])
            assert "capped 2" in run.log
        # A path that no run before has known: the pages fetched below it count.
        shares = json.dumps({"127.0.0.2/calendar/": 0, "*/calendar/": 100})
        before = calendar()
        run = project.crawl("follow", url, FOCUS_MAX_PAGES_PER_PATH=shares, FOCUS_MAX_PAGES=40)
        assert run.reason == "focus_max_pages"
        why = project.run("frontier", "why", "-s", f"FOCUS_JOB=follow {url}", waiting(project))
    assert sum(calendar()) > sum(before)
    assert "127.0.0.2/calendar/ has spent its share of the pages of 127.0.0.2" in why.log


def waiting(project: Project) -> str:
    """A URL that waits for a larger share."""
    ((url, *_),) = project.rows(
        "SELECT url FROM urls JOIN queues AS q ON q.id = queue"
        " WHERE state = 0 AND share = '127.0.0.2/calendar/' LIMIT 1"
    )
    return str(url)

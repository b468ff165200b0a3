"""Several crawls on one frontier at once: processes on one job, spiders in one process."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.paced import Crawl, gaps
from tests.project import Project, rows
from tests.site import Answer, Hit, Site, links

PAGES = 400
#: Several, since all that crawl a host share what it grants.
HOSTS = [f"127.0.0.{n}" for n in range(1, 6)]


class Web(Site):
    """Pages 0 to 399 that link others, on several hosts.

    :param delay: seconds that each takes, so that both processes have something to do
    """

    def __init__(self, delay: float = 0.05, hosts: Iterable[str] = HOSTS) -> None:
        super().__init__(self._page, hosts)
        self._delay = delay

    def page(self, number: int) -> str:
        return self.url(f"/{number}", self.hosts[number % len(self.hosts)])

    def _page(self, hit: Hit) -> Answer:
        page = int(hit.path.strip("/"))
        near = [*range(5 * page + 1, 5 * page + 6), 7 * page % PAGES, (page + 1) % PAGES]
        return Answer(links(*(self.page(n) for n in near if n < PAGES)), delay=self._delay)

    def assert_whole(self, *projects: Project) -> None:
        """Every page was fetched once, by one of the projects, and its callback ran."""
        pages = Counter(self.page(n) for n in range(PAGES))
        assert Counter(self.url(hit.path, hit.host) for hit in self.log) == pages
        assert Counter(page for project in projects for page in project.pages) == pages
        (job,) = projects[0].rows("SELECT finished IS NULL, added, done FROM jobs")
        assert job == (0, PAGES, PAGES)
        assert not list(projects[0].frontier.parent.glob("*.run-*"))


def pair(folder: Path) -> tuple[Project, Project]:
    """Two projects that share a frontier, each with its own log."""
    first = Project(folder / "first", ROBOTSTXT_OBEY=False)
    address = f"sqlite:///{first.frontier}"
    return first, Project(folder / "second", ROBOTSTXT_OBEY=False, FOCUS_FRONTIER=address)


def test_two_processes_on_one_job(tmp_path: Path) -> None:
    """scrapy-redis#40, #107: each URL is fetched once, both work, and both end."""
    projects = pair(tmp_path)
    with Web() as web:
        processes = [p.start("crawl", "follow", "-a", f"url={web.page(0)}") for p in projects]
        runs = [p.wait(process) for p, process in zip(projects, processes, strict=True)]

    assert [run.reason for run in runs] == ["finished", "finished"]
    assert sum("joined" in run.log for run in runs) == 1
    web.assert_whole(*projects)
    assert all(len(project.pages) > 20 for project in projects)


def test_one_of_two_is_stopped(tmp_path: Path) -> None:
    """What it had taken goes to the other one, and the job ends when that has finished."""
    first, second = pair(tmp_path)
    with Web(delay=0.3) as web:
        one, two = (p.start("crawl", "follow", "-a", f"url={web.page(0)}") for p in (first, second))
        first.wait_until(one, lambda: len(first.pages) > 20 and len(second.pages) > 20)
        one.send_signal(signal.SIGINT)
        assert first.wait(one).reason == "shutdown"
        # Whether the other one has ended by now is chance; the job ends no sooner.
        ended = "NOT EXISTS (SELECT 1 FROM runs WHERE ended IS NULL)"
        assert first.rows(f"SELECT finished IS NULL OR {ended} FROM jobs") == [(1,)]
        assert second.wait(two).reason == "finished"
    web.assert_whole(first, second)


def test_nobody_starts_over_what_another_is_at(tmp_path: Path) -> None:
    """FOCUS_RESUME=False joins a job that a live run is at."""
    first, second = pair(tmp_path)
    with Web() as web:
        arguments = ["crawl", "follow", "-a", f"url={web.page(0)}"]
        one = first.start(*arguments)
        first.wait_until(one, lambda: len(first.pages) > 20)
        two = second.start(*arguments, "-s", "FOCUS_RESUME=False")
        runs = [first.wait(one), second.wait(two)]
    assert [run.reason for run in runs] == ["finished", "finished"]
    assert "(generation 1), joined, another run is at it" in runs[1].log
    web.assert_whole(first, second)


@pytest.mark.parametrize("jobs", [["one", "one", "one"], ["one", "two"]], ids=["one", "two"])
def test_processes_that_are_killed(tmp_path: Path, jobs: list[str]) -> None:
    """On one job or on several: only what was in flight at a kill is fetched again, and all
    of them together leave each host its delay."""
    delay, kills, in_flight = 0.5, 2, 0
    path = tmp_path / "frontier.db"
    crawls: list[Crawl] = []
    for number, job in enumerate(jobs):
        crawl = Crawl(
            tmp_path / str(number),
            ROBOTSTXT_OBEY=False,
            FOCUS_FRONTIER=f"sqlite:///{path}",
            FOCUS_JOB=job,
            DOWNLOAD_DELAY=delay,
            RANDOMIZE_DOWNLOAD_DELAY=False,
            # Each process may be held up before it sends something, and sends it later then.
            EXTENSIONS={"spiders.StatsOut": 0},
            DOWNLOAD_HANDLERS={"http": "spiders.Noted"},
        )
        crawls.append(crawl)
    with Web(hosts=[f"127.0.0.{n}" for n in range(1, 61)]) as web:
        arguments = ["crawl", "follow", "-a", f"url={web.page(0)}"]
        processes = [crawl.start(*arguments) for crawl in crawls]
        for kill in range(kills):
            wanted = len(web.log) + 60
            victim = crawls[kill]
            victim.wait_until(processes[kill], lambda n=wanted: len(web.log) >= n)
            assert processes[kill].poll() is None
            processes[kill].kill()
            victim.wait(processes[kill])
            leased = "SELECT count(*) FROM urls JOIN runs AS r ON r.id = run WHERE r.pid = ?"
            in_flight += rows(path, leased, processes[kill].pid)[0][0]
            processes[kill] = victim.start(*arguments)
        runs = [c.wait(process) for c, process in zip(crawls, processes, strict=True)]
    for run in runs:
        assert run.reason == "finished"
        assert "Traceback" not in run.log
        assert "locked" not in run.log
    number = len(set(jobs))
    hits = Counter(web.url(hit.path, hit.host) for hit in web.log)
    assert set(hits) == {web.page(n) for n in range(PAGES)}
    assert min(hits.values()) == number
    assert sum(hits.values()) <= number * PAGES + in_flight
    for host in web.hosts:
        times = sorted(t for crawl in crawls for t in crawl.sent(f"http://{host}:"))
        # The rest is for a busy machine, which may hold up a process just before it sends.
        assert min(gaps(times)) > delay / 5


SCRIPT = """
    import sys
    from scrapy.crawler import {process}
    from scrapy.utils.project import get_project_settings
    from spiders import Follow, StatsOut
    from scrapy import Request, Spider

    class Hidden(Follow):
        name = "hidden"

        def __init__(self, page, url, **kwargs):
            super().__init__(**kwargs)
            self.start_urls = [url + page]

        async def start(self):
            for url in self.start_urls:
                yield Request(url)

    settings = get_project_settings()
    settings.set("EXTENSIONS", {{}})
    {reactor}
    process = {process}(settings)
    process.crawl(Follow, url=sys.argv[1] + "/a/0")
    process.crawl(Hidden, "/b/0", sys.argv[1])
    process.crawl(Hidden, page="/c/0", url=sys.argv[1])
    process.start()
"""


@pytest.mark.parametrize(
    ("process", "settings"),
    [
        ("AsyncCrawlerProcess", ""),
        ("CrawlerProcess", ""),
        ("CrawlerProcess", "twisted.internet.epollreactor.EPollReactor"),
    ],
    ids=["asyncio", "deferred", "epoll"],
)
def test_three_spiders_in_one_process(tmp_path: Path, process: str, settings: str) -> None:
    """Three jobs on one file at once, told apart by their spiders' arguments."""
    crawl = Project(tmp_path / "project", ROBOTSTXT_OBEY=False)
    reactor = f'settings.set("TWISTED_REACTOR", "{settings}")' if settings else ""

    def pages(hit: Hit) -> str:
        folder = hit.path.rpartition("/")[0]
        return links(*(f"{folder}/{n}" for n in range(40)))

    with Site(pages) as site:
        source = SCRIPT.format(process=process, reactor=reactor)
        for times in (1, 2):
            run = crawl.script(source, site.url(""))
            assert run.returncode == 0
            assert run.log.count("Spider closed (finished)") == 3
            assert "Traceback" not in run.log
            assert Counter(site.paths()) == {
                f"/{folder}/{n}": times for folder in "abc" for n in range(40)
            }
        jobs = crawl.rows("SELECT name, max(generation) FROM jobs GROUP BY name ORDER BY name")
        assert jobs == [
            (f"follow url={site.url('/a/0')}", 2),
            (f"hidden 0=/b/0 1={site.url('')}", 2),
            (f"hidden page=/c/0 url={site.url('')}", 2),
        ]

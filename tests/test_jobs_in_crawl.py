"""Jobs and runs as a user sees them: what goes on, what starts over, and where it is kept."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.project import Project
from tests.site import Answer, Hit, Site, links

ROOT = Path(__file__).parent.parent
JOBS = "SELECT name, generation FROM jobs ORDER BY name, generation"


def project(folder: Path, spiders: str = "", **settings: object) -> Project:
    return Project(folder / "project", spiders, **{"ROBOTSTXT_OBEY": False, **settings})


def pages(number: int) -> Site:
    """A site of that many pages, each of which links all others."""
    return Site(lambda hit: links(*(f"/{n}" for n in range(number))))


# -- going on and starting over ----------------------------------------------------------------


def test_a_finished_job_starts_over(tmp_path: Path) -> None:
    crawl = project(tmp_path)
    with pages(5) as site:
        url = f"url={site.url('/0')}"
        run = crawl.crawl("follow", url)
        assert "generation 1), a new job" in run.log
        run = crawl.crawl("follow", url)
        assert "generation 2), started over, having finished before" in run.log
        assert run.reason == "finished"
        assert Counter(site.paths()) == {f"/{n}": 2 for n in range(5)}
        assert crawl.rows(JOBS) == [(f"follow {url}", 1), (f"follow {url}", 2)]
        # The old generations' rows are cleared away by and by, while a crawl runs.
        rows = "SELECT count(*) FROM urls"
        crawl.crawl_until(
            lambda: len(site.log) > 10 and crawl.rows(rows) == [(5,)], url, DOWNLOAD_DELAY=60
        )
        assert crawl.rows(rows) == [(5,)]


def test_resume_can_be_forced(tmp_path: Path) -> None:
    crawl = project(tmp_path)
    with pages(12) as site:
        url = f"url={site.url('/0')}"
        crawl.crawl("follow", url, FOCUS_MAX_PAGES=3)
        # False: an unfinished job starts over.
        run = crawl.crawl("follow", url, FOCUS_MAX_PAGES=5, FOCUS_RESUME=False)
        assert "generation 2), started over, as FOCUS_RESUME says" in run.log
        assert site.paths().count("/0") == 2
        assert len(site.log) == 8
        run = crawl.crawl("follow", url, FOCUS_RESUME=True)
        assert "generation 2), resumed" in run.log
        assert len(site.log) == 15
        # True: a finished one does not.
        run = crawl.crawl("follow", url, FOCUS_RESUME=True)
        assert "generation 2), resumed" in run.log
        assert "so it had nothing to do" in run.log
        assert len(site.log) == 15


ARGUMENTS = """
    class Kept(Follow):
        name = "kept"

        async def start(self):
            yield Request(self.site + "/" + self.page)

    class Forgotten(Follow):
        name = "forgotten"

        def __init__(self, site, page="0", **kwargs):
            super().__init__(**kwargs)
            self.start_urls = [site + "/" + page]

        async def start(self):
            for url in self.start_urls:
                yield Request(url)
"""


@pytest.mark.parametrize("spider", ["kept", "forgotten"])
def test_other_arguments_are_another_job(tmp_path: Path, spider: str) -> None:
    """Also where the spider does not keep them as its attributes."""
    crawl = project(tmp_path, ARGUMENTS)
    with pages(8) as site:
        argument = f"site={site.url('')}"
        run = crawl.crawl(spider, argument, "page=0", FOCUS_MAX_PAGES=3)
        assert run.reason == "focus_max_pages"
        run = crawl.crawl(spider, argument, "page=1", FOCUS_MAX_PAGES=4)
        assert "a new job" in run.log
        assert len(site.log) == 7
        run = crawl.crawl(spider, "page=0", argument)
        assert "resumed" in run.log
        assert len(site.log) == 12
        names = [f"{spider} page={page} {argument}" for page in (0, 1)]
        assert crawl.rows(JOBS) == [(name, 1) for name in names]


def test_a_job_by_name(tmp_path: Path) -> None:
    """FOCUS_JOB: whatever spider and arguments, the same job."""
    crawl = project(tmp_path, ARGUMENTS)
    with pages(8) as site:
        crawl.crawl("follow", f"url={site.url('/0')}", FOCUS_MAX_PAGES=3, FOCUS_JOB="mine")
        run = crawl.crawl("kept", f"site={site.url('')}", "page=5", FOCUS_JOB="mine")
        assert run.reason == "finished"
        assert "Job: mine (generation 1), resumed" in run.log
        assert Counter(site.paths()) == {f"/{n}": 1 for n in range(8)}
        assert crawl.rows(JOBS) == [("mine", 1)]


# -- seeds -------------------------------------------------------------------------------------

SEEDS = """
    import asyncio
    from pathlib import Path

    class Failing(Follow):
        name = "failing"

        async def start(self):
            for n in range(10):
                yield Request(self.url + "/%d" % n)
                if n == 4 and Path("broken").exists():
                    raise RuntimeError("no more seeds")

    class Many(Follow):
        name = "many"

        async def start(self):
            for n in range(2000):
                yield Request(self.url + "/%d" % n, dont_filter=True)
                if n % 100 == 0:
                    await asyncio.sleep(0.02)

    class Thrice(Follow):
        name = "thrice"

        async def start(self):
            for n in (0, 1, 0, 0):
                yield Request(self.url + "/%d" % n, dont_filter=True)
"""


def test_a_start_that_raises(tmp_path: Path) -> None:
    """The seeds are incomplete: the job has not finished."""
    crawl = project(tmp_path, SEEDS)
    (crawl.folder / "broken").touch()
    with Site(lambda hit: "a page") as site:
        run = crawl.crawl("failing", f"url={site.url('')}")
        assert run.reason == "start_error"
        assert sorted(site.paths()) == [f"/{n}" for n in range(5)]
        (crawl.folder / "broken").unlink()
        run = crawl.crawl("failing", f"url={site.url('')}")
        assert "resumed" in run.log
        assert run.reason == "finished"
        assert Counter(site.paths()) == {f"/{n}": 1 for n in range(10)}


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGINT], ids=["kill", "Ctrl-C"])
def test_a_stop_before_the_seeds_are_in(tmp_path: Path, sign: signal.Signals) -> None:
    """heritrix3#227: the next run has them all."""
    crawl = project(tmp_path, SEEDS, CONCURRENT_REQUESTS=4)
    count = "SELECT count(*) FROM urls"

    def stored() -> int:
        return int(crawl.rows(count)[0][0]) if site.log else 0

    with Site(lambda hit: Answer("a page", delay=1)) as site:
        url = f"url={site.url('')}"
        run = crawl.crawl_until(lambda: stored() > 300, url, spider="many", sign=sign)
        first = stored()
        assert 300 < first < 2000
        run = crawl.crawl_until(lambda: stored() == 2000, url, spider="many", sign=signal.SIGINT)
        assert run.reason == "shutdown"
        assert stored() == 2000
        assert run.stats["focus/known_seeds"] == first


def test_the_same_seed_several_times(tmp_path: Path) -> None:
    """``dont_filter`` means each of them, and a resume finds them there."""
    crawl = project(tmp_path, SEEDS)
    with Site(lambda hit: "a page") as site:
        run = crawl.crawl("thrice", f"url={site.url('')}", FOCUS_MAX_PAGES=2)
        assert run.reason == "focus_max_pages"
        run = crawl.crawl("thrice", f"url={site.url('')}")
        assert Counter(site.paths()) == {"/0": 3, "/1": 1}
        assert run.stats["focus/known_seeds"] == 4


# -- where -------------------------------------------------------------------------------------


def test_jobdir(tmp_path: Path) -> None:
    crawl = project(tmp_path)
    with pages(10) as site:
        url = f"url={site.url('/0')}"
        run = crawl.crawl("follow", url, JOBDIR="jobs/one", CLOSESPIDER_PAGECOUNT=3)
        assert (crawl.folder / "jobs/one/frontier.db").is_file()
        assert not crawl.frontier.exists()
        assert "shares no host's pace with other jobs" in run.log
        run = crawl.crawl("follow", url, JOBDIR="jobs/one")
        assert run.reason == "finished"
        assert Counter(site.paths()) == {f"/{n}": 1 for n in range(10)}


def test_a_named_file(tmp_path: Path) -> None:
    """FOCUS_FRONTIER wins over JOBDIR; three slashes are relative, four absolute."""
    crawl = project(tmp_path)
    with pages(3) as site:
        url = f"url={site.url('/0')}"
        run = crawl.crawl("follow", url, FOCUS_FRONTIER="sqlite:///new/a b.db", JOBDIR="jobs")
        assert run.reason == "finished"
        file = crawl.folder / "new/a b.db"
        assert file.stat().st_mode & 0o777 == 0o600
        run = crawl.crawl("follow", url, FOCUS_FRONTIER=f"sqlite:///{file}")
        assert "generation 2" in run.log
        # Nothing else is left beside it.
        assert [path.name for path in file.parent.iterdir()] == [file.name]
        assert not crawl.frontier.exists()


def test_memory(tmp_path: Path) -> None:
    crawl = project(tmp_path, FOCUS_FRONTIER="memory:")

    def answer(hit: Hit) -> Answer | str:
        if hit.path == "/busy" and site.paths().count("/busy") == 1:
            return Answer(status=503, headers={"Retry-After": "0"})
        if hit.path == "/moved":
            return Answer(status=301, headers={"Location": "/target"})
        return links("/busy", "/moved", "/target", "/0")

    with Site(answer) as site:
        for _ in range(2):
            site.log.clear()
            run = crawl.crawl("follow", f"url={site.url('/0')}")
            assert run.reason == "finished"
            assert "a new job" in run.log
            assert Counter(site.paths()) == {"/0": 1, "/busy": 2, "/moved": 1, "/target": 1}
        assert not (crawl.folder / ".scrapy").exists()


SPIDER = """
import scrapy


class Alone(scrapy.Spider):
    name = "alone"
    custom_settings = {"ADDONS": {"scrapy_focus.Addon": 300}, "TELNETCONSOLE_ENABLED": False}

    async def start(self):
        yield scrapy.Request(self.url)

    def parse(self, response):
        for link in response.css("a::attr(href)").getall():
            yield response.follow(link)
"""


def runspider(folder: Path, *arguments: str) -> str:
    """``scrapy runspider`` outside of a project; its temporary files go to ``tmp``."""
    (folder / "alone.py").write_text(SPIDER)
    (folder / "tmp").mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-m", "scrapy", "runspider", "alone.py", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder / "tmp")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stderr


def test_outside_a_project(tmp_path: Path) -> None:
    """A private temporary file, gone at the end; the log says so, and how to keep it."""
    with pages(5) as site:
        arguments = ["-a", f"url={site.url('/0')}"]
        for _ in range(2):
            log = runspider(tmp_path, *arguments)
            assert "Spider closed (finished)" in log
            assert "a new job" in log
            assert "ends with the run. To keep it, set FOCUS_FRONTIER or JOBDIR" in log
            assert not list((tmp_path / "tmp").iterdir())
        assert Counter(site.paths()) == {f"/{n}": 2 for n in range(5)}
        # It goes also where the crawl does not come about.
        log = runspider(tmp_path, *arguments, "-s", "FOCUS_MAX_PAGES=many")
        assert "FOCUS_MAX_PAGES" in log
        assert not list((tmp_path / "tmp").iterdir())

        runspider(tmp_path, *arguments, "-s", "FOCUS_FRONTIER=sqlite:///kept.db")
        log = runspider(tmp_path, *arguments, "-s", "FOCUS_FRONTIER=sqlite:///kept.db")
        assert "This frontier ends with the run" not in log
        assert "generation 2" in log

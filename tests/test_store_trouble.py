"""The store fails while a crawl runs: it is locked, its disk is full, its folder is gone."""

from __future__ import annotations

import os
import random
import re
import resource
import shutil
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.project import Project, Run
from tests.site import Answer, Hit, Site, links

PAGES = 150


def answer(hit: Hit) -> str:
    """Pages that link five others each."""
    page = int(hit.path.strip("/"))
    return links(*(f"/{n}" for n in range(5 * page + 1, 5 * page + 6) if n < PAGES))


@pytest.fixture(name="site")
def _site() -> Iterator[Site]:
    with Site(answer) as site:
        yield site


@pytest.fixture(name="crawl")
def _crawl(tmp_path: Path) -> Project:
    return Project(tmp_path / "project", ROBOTSTXT_OBEY=False)


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Another program writes to the file, and takes its time."""
    connection = sqlite3.connect(file, timeout=10, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")
        connection.close()


def assert_whole(crawl: Project, site: Site) -> None:
    assert Counter(crawl.pages) == {site.url(f"/{n}"): 1 for n in range(PAGES)}
    assert Counter(site.paths()) == {f"/{n}": 1 for n in range(PAGES)}


# -- locked ------------------------------------------------------------------------------------


def test_locked_at_the_start(crawl: Project, site: Site) -> None:
    """Opening waits for a while."""
    url = f"url={site.url('/0')}"
    crawl.crawl("follow", url, FOCUS_MAX_PAGES=1)
    with locked(crawl.frontier):
        process = crawl.start("crawl", "follow", "-a", url)
        crawl.wait_until(process, lambda: "Spider opened" in crawl.log)
        time.sleep(1)
    run = crawl.wait(process)
    assert run.reason == "finished"
    assert_whole(crawl, site)


def test_locked_for_too_long_at_the_start(crawl: Project, site: Site) -> None:
    """Then it is refused in one sentence."""
    url = f"url={site.url('/0')}"
    crawl.crawl("follow", url, FOCUS_MAX_PAGES=1)
    with locked(crawl.frontier):
        run = crawl.crawl("follow", url)
    assert run.returncode == 1
    assert f"ERROR: The frontier {crawl.frontier} is locked by another program" in run.log
    assert len(site.log) == 1
    assert crawl.crawl("follow", url).reason == "finished"
    assert_whole(crawl, site)


#: Notes the longest time for which the reactor did nothing else.
TICKS = """
    from time import monotonic
    from scrapy.utils.asyncio import create_looping_call

    class Ticks:
        @classmethod
        def from_crawler(cls, crawler):
            self = cls()
            self.stats, self.last, self.longest = crawler.stats, None, 0.0
            self.loop = create_looping_call(self.tick)
            crawler.signals.connect(self.start, signals.spider_opened)
            crawler.signals.connect(self.stop, signals.spider_closed)
            return self

        def start(self):
            self.loop.start(0.01)

        def tick(self):
            now = monotonic()
            self.longest = max(self.longest, now - (self.last or now))
            self.last = now

        def stop(self):
            self.loop.stop()
            self.stats.set_value("held", self.longest)
"""
#: As long as another program may hold the lock; minutes, if somebody wants to know.
LOCKED = float(os.environ.get("TESTS_LOCKED", "3"))


def test_locked_in_the_middle(tmp_path: Path, site: Site) -> None:
    """scrapy-redis#108, heritrix: the crawl waits and goes on; nothing is lost or fetched twice.
    Nor is the reactor held."""
    extensions = {"spiders.StatsOut": 0, "spiders.Ticks": 0}
    crawl = Project(tmp_path / "project", TICKS, ROBOTSTXT_OBEY=False, EXTENSIONS=extensions)
    process = crawl.start("crawl", "follow", "-a", f"url={site.url('/0')}")
    crawl.wait_until(process, lambda: len(site.log) >= 40)
    with locked(crawl.frontier):
        time.sleep(LOCKED)
        reached = len(site.log)
    run = crawl.wait(process)
    assert reached < PAGES
    assert run.reason == "finished"
    assert 0 < run.stats["held"] < LOCKED / 2
    assert_whole(crawl, site)


@pytest.mark.parametrize(
    ("seconds", "sentence"), [(2, "Job so far: "), (8, "was locked for too long")]
)
def test_locked_at_the_end(crawl: Project, seconds: float, sentence: str) -> None:
    """Closing waits for a while. The leases go back all the same, if not now."""

    def slow(hit: Hit) -> Answer:
        return Answer(answer(hit), delay=1 if hit.path == "/3" else 0)

    with Site(slow) as site:
        url = f"url={site.url('/0')}"
        process = crawl.start("crawl", "follow", "-a", url, "-s", "CLOSESPIDER_PAGECOUNT=20")
        crawl.wait_until(process, lambda: "Closing spider" in crawl.log)
        with locked(crawl.frontier):
            time.sleep(seconds)
        run = crawl.wait(process)
        assert (run.returncode, run.reason) == (0, "closespider_pagecount")
        assert sentence in run.log
        run = crawl.crawl("follow", url)
        assert run.reason == "finished"
        assert set(crawl.pages) == {site.url(f"/{n}") for n in range(PAGES)}
        again = Counter(site.paths()) - Counter(set(site.paths()))
        # Only what the closing could not write any more.
        assert again.total() <= (0 if seconds == 2 else 32)


# -- a full disk -------------------------------------------------------------------------------


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")


@contextmanager
def disk(folder: Path, options: str) -> Iterator[None]:
    """A disk of its own at *folder*."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


def assert_stopped(crawl: Project, run: Run, *words: str) -> None:
    """A clean stop with a reason of its own, and one sentence that says why."""
    assert (run.returncode, run.reason) == (0, "focus_frontier_error")
    (error,) = re.findall(r"\[scrapy_focus\.scheduler\] ERROR: (.*)", run.log)
    assert str(crawl.frontier) in error
    assert all(word in error for word in words)
    assert "Traceback" not in run.log
    assert 0 < len(crawl.pages) < PAGES


def assert_whole_in_the_end(crawl: Project, site: Site) -> None:
    """Every page is there; what was in flight when the store failed was fetched twice."""
    assert set(crawl.pages) == {site.url(f"/{n}") for n in range(PAGES)}
    assert (Counter(site.paths()) - Counter(set(site.paths()))).total() <= 32


@needs_root
def test_a_full_disk(crawl: Project, site: Site) -> None:
    """After making room the next run goes on."""
    url = f"url={site.url('/0')}"
    folder = crawl.frontier.parent
    with disk(folder, "size=400k"):
        run = crawl.crawl("follow", url, timeout=30)
        assert_stopped(crawl, run, "no room left")
        subprocess.run(["mount", "-o", "remount,size=100m", folder], check=True)
        run = crawl.crawl("follow", url)
        assert run.reason == "finished"
        assert_whole_in_the_end(crawl, site)


def test_a_file_that_may_not_grow(crawl: Project, site: Site) -> None:
    """As on a full disk, by a limit of the process."""
    url = f"url={site.url('/0')}"
    process = crawl.start("crawl", "follow", "-a", url)
    crawl.wait_until(process, lambda: len(site.log) > 10)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (700_000, 700_000))
    run = crawl.wait(process, 30)
    assert_stopped(crawl, run)
    run = crawl.crawl("follow", url)
    assert run.reason == "finished"
    assert_whole_in_the_end(crawl, site)


FAILING = """
    import asyncio, os, resource

    class Failing(Follow):
        name = "failing"

        async def parse(self, response):
            for _ in super().parse(response):
                pass
            if not response.url.endswith("/0"):
                return
            for n in range(1, 61):
                yield response.follow(f"/{n}")
            if not os.path.exists("failed"):
                # Now there is no room for what was just written, and then there is again.
                open("failed", "w").close()
                limits = resource.getrlimit(resource.RLIMIT_FSIZE)
                size = os.stat(".scrapy/frontier.db-wal").st_size
                resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
                await asyncio.sleep(0.3)
                resource.setrlimit(resource.RLIMIT_FSIZE, limits)
"""


def test_no_page_is_done_whose_links_were_not_stored(tmp_path: Path) -> None:
    """The store fails for a moment, while a page is worked on: it comes again with its links."""
    with Site(lambda hit: "a page") as site:
        crawl = Project(tmp_path / "project", FAILING, ROBOTSTXT_OBEY=False)
        url = f"url={site.url('/0')}"
        run = crawl.crawl("failing", url)
        assert (run.returncode, run.reason) == (0, "focus_frontier_error")
        assert "Traceback" not in run.log
        run = crawl.crawl("failing", url)
        assert run.reason == "finished"
        assert set(site.paths()) == {f"/{n}" for n in range(61)}


def test_no_room_at_the_start(crawl: Project, site: Site) -> None:
    """Refused in one sentence."""
    url = f"url={site.url('/0')}"
    process = crawl.start("crawl", "follow", "-a", url)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (20_000, 20_000))
    run = crawl.wait(process, 30)
    assert run.returncode == 1
    assert f"ERROR: The frontier {crawl.frontier}" in run.log
    assert not site.log
    assert crawl.crawl("follow", url).reason == "finished"
    assert_whole(crawl, site)


@needs_root
def test_a_read_only_folder(crawl: Project, site: Site) -> None:
    """Refused in one sentence, with a frontier there and without; nothing is lost."""
    url = f"url={site.url('/0')}"
    folder = crawl.frontier.parent
    with disk(folder, "size=100m,ro"):
        run = crawl.crawl("follow", url)
        assert run.returncode == 1
        assert f"ERROR: The frontier {crawl.frontier} cannot be written" in run.log
        subprocess.run(["mount", "-o", "remount,rw", folder], check=True)
        crawl.crawl("follow", url, FOCUS_MAX_PAGES=5)
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        run = crawl.crawl("follow", url)
        assert run.returncode == 1
        assert f"ERROR: The frontier {crawl.frontier} cannot be written" in run.log
        assert len(site.log) == 5
        subprocess.run(["mount", "-o", "remount,rw", folder], check=True)
        assert crawl.crawl("follow", url).reason == "finished"
        assert_whole(crawl, site)


def test_the_folder_is_removed(crawl: Project, site: Site) -> None:
    """A clean stop, though nothing can go on from there."""
    process = crawl.start("crawl", "follow", "-a", f"url={site.url('/0')}")
    crawl.wait_until(process, lambda: len(site.log) >= 40)
    shutil.rmtree(crawl.frontier.parent)
    run = crawl.wait(process, 30)
    assert run.returncode == 0
    assert run.reason in ("finished", "focus_frontier_error")
    assert "Traceback" not in run.log


# -- damage ------------------------------------------------------------------------------------


def test_rows_that_another_program_has_spoilt(crawl: Project, site: Site) -> None:
    """A clean stop where they are hit upon; the next run has all that can be read."""
    url = f"url={site.url('/0')}"
    process = crawl.start("crawl", "follow", "-a", url)
    crawl.wait_until(process, lambda: len(site.log) >= 40)
    connection = sqlite3.connect(crawl.frontier, timeout=10)
    with connection:
        connection.execute("UPDATE hosts SET in_flight = 'some', next_at = 'soon', touched = x'00'")
        connection.execute("UPDATE queues SET ready = 'many', tie = x'00', pages = 'few'")
    connection.close()
    run = crawl.wait(process, 30)
    assert_stopped(crawl, run, "made no sense", "Run again")
    run = crawl.crawl("follow", url)
    assert run.reason == "finished"
    assert_whole_in_the_end(crawl, site)


@pytest.mark.parametrize("seed", range(3))
def test_bytes_that_are_overwritten(crawl: Project, site: Site, seed: int) -> None:
    """What comes of it, nobody knows; but it is an end with a reason."""
    rng = random.Random(seed)
    process = crawl.start("crawl", "follow", "-a", f"url={site.url('/0')}")
    crawl.wait_until(process, lambda: len(site.log) >= 40)
    for file in crawl.frontier.parent.glob("frontier.db*"):
        with file.open("r+b") as opened:
            size = file.stat().st_size
            for _ in range(20):
                opened.seek(rng.randrange(max(1, size)))
                opened.write(rng.randbytes(50))
    run = crawl.wait(process, 60)
    assert run.returncode == 0
    assert run.reason in ("finished", "focus_frontier_error", "focus_held", "focus_unreadable")
    assert run.reason == "finished" or f"ERROR: The frontier {crawl.frontier}" in run.log
    assert "Traceback" not in run.log

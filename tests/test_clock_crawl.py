"""Crawls during which the system's clock is set, or that are stopped for a while."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scrapy_focus.clock import Clock
from tests.paced import EXACT
from tests.project import Project
from tests.site import Answer, Hit, Site, links
from tests.test_together import Web, pair

HOUR, DAY = 3600, 86_400

#: A clock that is ahead by as many seconds as the file says, at this moment.
SHIFTED = """
import time as _time
from pathlib import Path as _Path

_real = _time.time


def _shifted():
    file = _Path("shift")
    return _real() + (float(file.read_text() or 0) if file.exists() else 0)


_time.time = _shifted
"""


def set_clock(folder: Path, by: float) -> None:
    (folder / "new").write_text(str(by))
    (folder / "new").rename(folder / "shift")


class TestClock:
    """The clock of a run."""

    @pytest.mark.parametrize("step", [HOUR, -HOUR, DAY, -DAY])
    def test_does_not_jump(self, monkeypatch: pytest.MonkeyPatch, step: float) -> None:
        clock, real = Clock(None), time.time
        before = clock()
        assert abs(before - real()) < 60
        monkeypatch.setattr(time, "time", lambda: real() + step)
        assert before <= clock() < before + 60

    @pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="another system")
    def test_runs_on_while_the_machine_is_suspended(self, monkeypatch: pytest.MonkeyPatch) -> None:
        real = time.clock_gettime
        asleep = 0.0

        def gettime(which: int) -> float:
            return real(which) + (asleep if which == time.CLOCK_BOOTTIME else 0)

        monkeypatch.setattr(time, "clock_gettime", gettime)
        clock = Clock(None)
        before = clock()
        asleep = 8.0 * HOUR
        assert before + asleep <= clock() < before + asleep + 60


@pytest.mark.parametrize(
    ("step", "sign"), [(HOUR, signal.SIGKILL), (-DAY, signal.SIGINT)], ids=["killed", "closed"]
)
def test_the_clock_is_set_between_two_runs(tmp_path: Path, step: float, sign: int) -> None:
    """A host's pace is neither forgotten nor kept for a day."""
    wait = 4
    crawl = Project(tmp_path / "p", SHIFTED, ROBOTSTXT_OBEY=False)

    def answer(hit: Hit) -> Answer | str:
        if len(site.log) > 1:
            return links("/1")
        return Answer(status=503, headers={"Retry-After": str(wait)})

    def is_held() -> bool:
        return bool(site.log) and crawl.rows("SELECT held > 0 FROM hosts") == [(1,)]

    with Site(answer) as site:
        crawl.crawl_until(is_held, f"url={site.url('/0')}", sign=sign)
        assert site.paths() == ["/0"]
        set_clock(crawl.folder, step)
        run = crawl.crawl("follow", f"url={site.url('/0')}", timeout=30)
        assert run.reason == "finished"
        assert site.paths() == ["/0", "/0", "/1"]
        # The server may have been late to read the first.
        assert site.gaps(site.hosts[0])[0] > wait - 0.5


@pytest.mark.parametrize("step", [HOUR, -DAY])
def test_a_hold_outlasts_a_step_of_the_clock(tmp_path: Path, step: float) -> None:
    """It ends neither early nor a day late."""
    crawl = Project(tmp_path / "p", SHIFTED, ROBOTSTXT_OBEY=False)
    timers: list[threading.Timer] = []

    def answer(hit: Hit) -> Answer | str:
        if timers:
            return links("/1")
        # Late enough for the hold to have been stored before.
        timers.append(threading.Timer(0.5, set_clock, (crawl.folder, step)))
        timers[0].start()
        return Answer(status=503, headers={"Retry-After": "2"})

    with Site(answer) as site:
        run = crawl.crawl("follow", f"url={site.url('/0')}", timeout=30)
        timers[0].join()
        assert run.reason == "finished"
        assert site.paths() == ["/0", "/0", "/1"]
        assert site.gaps(site.hosts[0])[0] >= 2 - EXACT


@pytest.mark.parametrize("step", [DAY, -HOUR])
def test_a_run_joins_after_the_clock_was_set(tmp_path: Path, step: float) -> None:
    """Both agree on when a host was touched, though their system's clock has jumped between
    their starts."""
    projects = first, second = pair(tmp_path)
    for project in projects:
        spiders = project.folder / "spiders.py"
        spiders.write_text(SHIFTED + spiders.read_text())
    with Web() as web:
        arguments = ["crawl", "follow", "-a", f"url={web.page(0)}", "-s", "DOWNLOAD_DELAY=0.02"]
        one = first.start(*arguments)
        first.wait_until(one, lambda: len(first.pages) > 10)
        for project in projects:
            set_clock(project.folder, step)
        two = second.start(*arguments)
        runs = [first.wait(one), second.wait(two)]
    assert [run.reason for run in runs] == ["finished", "finished"]
    assert "joined" in runs[1].log
    web.assert_whole(*projects)
    assert all(len(project.pages) > 20 for project in projects)


def test_a_stopped_process_loses_what_it_had(tmp_path: Path) -> None:
    """Its leases end meanwhile: another one takes them, and the late report is refused."""
    first, second = pair(tmp_path)
    stopped = threading.Event()

    def answer(hit: Hit) -> Answer | str:
        if hit.path == "/slow" and not stopped.is_set():
            return Answer("late", delay=1.0)
        return links("/slow", *(f"/{n}" for n in range(9)))

    with Site(answer) as site:
        arguments = ["crawl", "follow", "-a", f"url={site.url('/0')}"]
        one = first.start(*arguments)
        try:
            first.wait_until(one, lambda: "/slow" in site.paths())
            one.send_signal(signal.SIGSTOP)
            stopped.set()
            # As if it had been stopped for longer than a lease lasts.
            with sqlite3.connect(first.frontier, timeout=10) as connection:
                connection.execute("UPDATE urls SET ready_at = 1 WHERE run IS NOT NULL")
            connection.close()
            run = second.wait(second.start(*arguments))
            assert run.reason == "finished"
        finally:
            one.send_signal(signal.SIGCONT)
        run = first.wait(one)
        assert run.reason == "finished"
        assert run.stats["focus/stale"] >= 1
        assert site.paths().count("/slow") == 2
        assert first.rows("SELECT added, done, leased, finished IS NULL FROM jobs") == [
            (10, 10, 0, 0)
        ]


SHORT = """
from scrapy_focus import Scheduler


class ShortLeases(Scheduler):
    def __init__(self, crawler):
        super().__init__(crawler)
        self._lease_time = crawler.settings.getfloat("LEASE")


class Files(Follow):
    \"\"\"Yields files, which wait for their turn in the downloader, and a link.\"\"\"

    name = "files"

    def parse(self, response):
        yield from super().parse(response)
        if response.url == self.url:
            yield {"file_urls": [self.url + f"file{n}" for n in range(3)]}
"""


@contextmanager
def stopped(process: subprocess.Popen[str]) -> Iterator[None]:
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def short_leases(
    folder: Path, *, lease: float = 3.0, **settings: object
) -> tuple[Project, Project]:
    """Two projects that share a frontier, whose leases last for seconds."""
    settings["LEASE"] = lease
    settings["SCHEDULER"] = "spiders.ShortLeases"
    settings["DUPEFILTER_CLASS"] = "scrapy_focus.DupeFilter"
    first = Project(folder / "first", SHORT, **settings)
    address = f"sqlite:///{first.frontier}"
    return first, Project(folder / "second", SHORT, FOCUS_FRONTIER=address, **settings)


def test_what_waits_for_robots_txt_while_its_process_is_stopped(tmp_path: Path) -> None:
    """Another one fetches it meanwhile. It is not fetched again."""
    first, second = short_leases(tmp_path, ROBOTSTXT_OBEY=True)

    def answer(hit: Hit) -> Answer | str:
        if hit.path == "/robots.txt":
            return Answer("", delay=1.0 if len(site.log) == 1 else 0.0)
        return links("/1", "/2")

    with Site(answer) as site:
        arguments = ["crawl", "follow", "-a", f"url={site.url('/0')}"]
        one = first.start(*arguments)
        first.wait_until(one, lambda: bool(site.log))
        with stopped(one):
            assert second.wait(second.start(*arguments)).reason == "finished"
            assert sorted(site.paths()) == ["/0", "/1", "/2"]
        run = first.wait(one)
    assert run.reason == "finished"
    assert run.stats["focus/stale"] == 1
    assert sorted(site.paths()) == ["/0", "/1", "/2"]


def test_a_request_that_comes_late_takes_the_next_turn(tmp_path: Path) -> None:
    """Its process was stopped before it went out, and another one has touched the host since."""
    delay = 2.0
    first, second = pair(tmp_path)
    options = ("-s", f"DOWNLOAD_DELAY={delay}", "-s", "RANDOMIZE_DOWNLOAD_DELAY=0")

    def answer(hit: Hit) -> Answer | str:
        if hit.path == "/robots.txt":
            return Answer("", delay=1.0)
        return ""

    with Site(answer) as site:
        url = f"url={site.url('/first/0')}"
        one = first.start("crawl", "follow", "-a", url, *options, "-s", "ROBOTSTXT_OBEY=True")
        first.wait_until(one, lambda: bool(site.log))
        with stopped(one):
            two = second.start("crawl", "follow", "-a", f"url={site.url('/second/0')}", *options)
            second.wait_until(two, lambda: "/second/0" in site.paths())
        runs = [first.wait(one), second.wait(two)]
    assert [run.reason for run in runs] == ["finished", "finished"]
    (_, *hits) = site.log
    assert [hit.path for hit in hits] == ["/second/0", "/first/0"]
    # The server may be late to read the first of them.
    assert hits[1].time - hits[0].time > delay - 0.5


def test_what_waits_in_the_downloader_while_its_process_is_stopped(tmp_path: Path) -> None:
    """Behind files, which go past the frontier."""
    first, second = short_leases(
        tmp_path,
        ROBOTSTXT_OBEY=False,
        FOCUS_JOB="one",
        DOWNLOAD_DELAY=1.0,
        RANDOMIZE_DOWNLOAD_DELAY=False,
        ITEM_PIPELINES={"scrapy.pipelines.files.FilesPipeline": 1},
        FILES_STORE=str(tmp_path / "files"),
    )
    with Site(lambda hit: links("/1") if hit.path == "/" else "") as site:
        url = f"url={site.url('/')}"
        one = first.start("crawl", "files", "-a", url)
        leased = "SELECT 1 FROM urls WHERE url LIKE '%/1' AND run IS NOT NULL"
        first.wait_until(one, lambda: bool(site.log and first.rows(leased)))
        assert "/1" not in site.paths()
        with stopped(one):
            assert second.wait(second.start("crawl", "follow", "-a", url)).reason == "finished"
            assert site.paths().count("/1") == 1
        run = first.wait(one)
    assert run.reason == "finished"
    assert run.stats["focus/stale"] == 2  # the page's files were still on their way
    assert site.paths().count("/1") == 1


def test_a_slow_process_keeps_what_it_has(tmp_path: Path) -> None:
    """It renews its leases, though a page takes longer than they last."""
    first, second = short_leases(tmp_path, lease=5.0, ROBOTSTXT_OBEY=False)

    def answer(hit: Hit) -> Answer | str:
        return Answer("late", delay=7.0) if hit.path == "/slow" else links("/slow", "/1")

    with Site(answer) as site:
        arguments = ["crawl", "follow", "-a", f"url={site.url('/0')}"]
        one = first.start(*arguments)
        first.wait_until(one, lambda: "/slow" in site.paths())
        two = second.start(*arguments)
        runs = [first.wait(one), second.wait(two)]
    assert [run.reason for run in runs] == ["finished", "finished"]
    assert "joined" in runs[1].log
    assert not any("focus/stale" in run.stats for run in runs)
    assert sorted(site.paths()) == ["/0", "/1", "/slow"]

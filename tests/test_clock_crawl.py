"""Crawls during which the system's clock is set, or that are stopped for a while."""

from __future__ import annotations

import signal
import sqlite3
import threading
from pathlib import Path

import pytest

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

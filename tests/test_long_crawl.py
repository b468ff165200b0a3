"""One crawl that is killed now and then, with retries, redirects and holds: what it costs must not
grow, nothing may drift, and no host may be asked too soon.

Small as it stands; ``LONG_PAGES=200000 LONG_HOSTS=500 LONG_KILLS=20 LONG_DELAY=1`` makes it a long
run.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

from tests.frontier.audit import contradictions
from tests.project import Project
from tests.site import Answer, Hit, Site, links, redirect

PAGES = int(os.environ.get("LONG_PAGES", "1200"))
HOSTS = int(os.environ.get("LONG_HOSTS", "20"))
KILLS = int(os.environ.get("LONG_KILLS", "2"))
#: DOWNLOAD_DELAY, and what a Retry-After asks for, both in seconds.
DELAY, HOLD = float(os.environ.get("LONG_DELAY", "0")), 2
#: Seconds that one run may take.
PATIENCE = 60 + PAGES / 20
#: Bytes that the write-ahead log may take on the disk.
WAL = 24_000_000
#: Bytes that a process may grow by after so many pages. Its caches fill first; and for each page
#: Twisted keeps two timers that were cancelled until their time comes, three minutes later.
GROWTH = {200: 90_000_000, 100_000: 10_000_000}

WATCHED = """
class Watched(Follow):
    \"\"\"Notes how much memory its process has, every 50 pages.\"\"\"

    name = "watched"
    count = 0

    def parse(self, response):
        self.count += 1
        if self.count % 50 == 0:
            pages = int(open("/proc/self/statm").read().split()[1])
            with open("memory.txt", "a") as file:
                file.write(f"{self.count} {pages * 4096}\\n")
        yield from super().parse(response)
"""


class Web(Site):
    """Pages that link each other. Some redirect, some want to be asked again, later."""

    def __init__(self) -> None:
        super().__init__(self._page, [f"127.0.{1 + n // 250}.{1 + n % 250}" for n in range(HOSTS)])
        self._asked: set[str] = set()
        #: The requests that were answered by a Retry-After.
        self.held: list[Hit] = []

    def page(self, number: int) -> str:
        return self.url(f"/{number}", self.hosts[number % HOSTS])

    def _page(self, hit: Hit) -> Answer | str:
        number = int(hit.path.split("/")[1])
        if number % 17 == 3 and not hit.path.endswith("/moved"):
            return redirect(f"/{number}/moved")
        if number % 97 == 5 and hit.path not in self._asked:
            self._asked.add(hit.path)
            self.held.append(hit)
            return Answer(status=503, headers={"Retry-After": str(HOLD)})
        near = {n for n in (2 * number + 1, 2 * number + 2, 7 * number, number // 2) if n < PAGES}
        return links(*map(self.page, sorted(near)))


def test_what_it_costs_does_not_grow(tmp_path: Path) -> None:
    crawl = Project(
        tmp_path / "p",
        WATCHED,
        ROBOTSTXT_OBEY=False,
        LOG_LEVEL="INFO",
        DOWNLOAD_DELAY=DELAY,
        RANDOMIZE_DOWNLOAD_DELAY=False,
    )
    log = crawl.frontier.with_name(f"{crawl.frontier.name}-wal")
    largest = in_flight = 0
    kills: list[float] = []

    def reached(pages: int) -> bool:
        nonlocal largest
        largest = max(largest, log.stat().st_size if log.exists() else 0)
        return len(web.log) >= pages

    with Web() as web:
        arguments = ("crawl", "watched", "-a", f"url={web.page(0)}")
        for kill in range(1, KILLS + 1):
            process = crawl.start(*arguments)
            crawl.wait_until(process, lambda k=kill: reached(k * PAGES // (KILLS + 1)), PATIENCE)
            assert process.poll() is None
            kills.append(time.time())
            process.kill()
            crawl.wait(process)
            in_flight += crawl.rows("SELECT leased FROM jobs")[0][0]
        process = crawl.start(*arguments)
        crawl.wait_until(process, lambda: reached(10 * PAGES), PATIENCE)
        run = crawl.wait(process)
    assert run.reason == "finished"
    assert "Traceback" not in run.log
    assert not log.exists()

    # Nothing lost, and at most what was in flight at a kill twice.
    moved = len(range(3, PAGES, 17))
    refused = len(range(5, PAGES, 97))
    hits = Counter(web.url(hit.path, hit.host) for hit in web.log)
    assert len(hits) == PAGES + moved
    assert sum(hits.values()) <= PAGES + moved + refused + in_flight
    # No host was asked too soon.
    assert too_soon(web, kills) == []
    # Nothing drifted.
    total = PAGES + moved
    assert crawl.rows("SELECT added, done, leased, failed, dropped, pages FROM jobs") == [
        (total, total, 0, 0, 0, PAGES)
    ]
    # Nothing grew.
    assert largest < WAL
    for pages, most in GROWTH.items():
        assert memory_growth(crawl.folder, pages) < most
    assert contradictions(crawl.frontier) == {}


def too_soon(web: Web, kills: list[float]) -> list[tuple[Hit, float]]:
    """Requests that came while their host was to be left alone, and how long that had been asked
    for, by the web's own log."""
    found: list[tuple[Hit, float]] = []
    by_host: dict[str, list[Hit]] = {host: [] for host in web.hosts}
    for hit in web.log:
        by_host[hit.host].append(hit)
    for hits in by_host.values():
        # Half of it is for a busy machine: the web may be late to read the first one.
        found += ((b, b.time - a.time) for a, b in pairwise(hits) if b.time - a.time < DELAY / 2)
    for held in web.held:
        if any(-1 < kill - held.time < 1 for kill in kills):
            continue  # who was told so may be dead
        # What was on its way already comes within the first half of it.
        found += (
            (hit, hit.time - held.time)
            for hit in by_host[held.host]
            if HOLD / 2 < hit.time - held.time < HOLD - 0.1
        )
    return found


def memory_growth(folder: Path, pages: int) -> int:
    """How much the processes grew after so many pages, in bytes."""
    before = most = 0
    for line in (folder / "memory.txt").read_text().splitlines():
        count, size = map(int, line.split())
        if count <= pages:
            before = size
        else:
            most = max(most, size - before)
    return most

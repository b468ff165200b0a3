"""One crawl that is killed now and then, with retries, redirects and holds: what it costs must not
grow, and nothing may drift.

Small as it stands; ``LONG_PAGES=200000 LONG_HOSTS=500 LONG_KILLS=20`` makes it a long run.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from tests.frontier.audit import contradictions
from tests.project import Project
from tests.site import Answer, Hit, Site, links, redirect

PAGES = int(os.environ.get("LONG_PAGES", "1200"))
HOSTS = int(os.environ.get("LONG_HOSTS", "20"))
KILLS = int(os.environ.get("LONG_KILLS", "2"))
#: Seconds that one run may take.
PATIENCE = 60 + PAGES / 20
#: Bytes that the write-ahead log may take on the disk, and that a process may grow by once it
#: is warm: its caches are bounded.
WAL, GROWTH = 24_000_000, 60_000_000

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
    """Pages that link each other. Some redirect, some want to be asked again, in a second."""

    def __init__(self) -> None:
        super().__init__(self._page, [f"127.0.{1 + n // 250}.{1 + n % 250}" for n in range(HOSTS)])
        self._asked: set[str] = set()

    def page(self, number: int) -> str:
        return self.url(f"/{number}", self.hosts[number % HOSTS])

    def _page(self, hit: Hit) -> Answer | str:
        number = int(hit.path.split("/")[1])
        if number % 17 == 3 and not hit.path.endswith("/moved"):
            return redirect(f"/{number}/moved")
        if number % 97 == 5 and hit.path not in self._asked:
            self._asked.add(hit.path)
            return Answer(status=503, headers={"Retry-After": "1"})
        near = {n for n in (2 * number + 1, 2 * number + 2, 7 * number, number // 2) if n < PAGES}
        return links(*map(self.page, sorted(near)))


def test_what_it_costs_does_not_grow(tmp_path: Path) -> None:
    crawl = Project(tmp_path / "p", WATCHED, ROBOTSTXT_OBEY=False, LOG_LEVEL="INFO")
    log = crawl.frontier.with_name(f"{crawl.frontier.name}-wal")
    largest = 0

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
            process.kill()
            crawl.wait(process)
        process = crawl.start(*arguments)
        crawl.wait_until(process, lambda: reached(10 * PAGES), PATIENCE)
        run = crawl.wait(process)
    assert run.reason == "finished"
    assert "Traceback" not in run.log

    # Nothing lost, and at most what was in flight at a kill twice.
    moved = len(range(3, PAGES, 17))
    refused = len(range(5, PAGES, 97))
    hits = Counter(web.url(hit.path, hit.host) for hit in web.log)
    assert len(hits) == PAGES + moved
    assert sum(hits.values()) <= PAGES + moved + refused + 16 * KILLS
    # Nothing drifted.
    total = PAGES + moved
    assert crawl.rows("SELECT added, done, leased, failed, dropped, pages FROM jobs") == [
        (total, total, 0, 0, 0, PAGES)
    ]
    assert contradictions(crawl.frontier) == {}
    # Nothing grew.
    assert largest < WAL
    assert not log.exists()
    assert memory_growth(crawl.folder) < GROWTH


def memory_growth(folder: Path) -> int:
    """How much the processes grew after their first 200 pages, in bytes."""
    warm = most = 0
    for line in (folder / "memory.txt").read_text().splitlines():
        count, size = map(int, line.split())
        if count <= 200:
            warm = size
        most = max(most, size - warm)
    return most

"""Whole crawls with each seen set: killed, gone on with, and looked at."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.frontier.seen_sets import SETS
from tests.project import Project
from tests.site import Site, links

PAGES = 120

#: Rounds as small as this crawl.
SPIDERS = """
    from scrapy_focus import scheduler
    from scrapy_focus.frontier import pruning

    pruning._ROUND = 10
    scheduler._UPKEEP = scheduler._SWEEP = 0.005
"""


@pytest.fixture(name="site")
def _site() -> Iterator[Site]:
    site = Site()
    for number in range(PAGES):
        near = [f"/{(3 * number + step) % PAGES}" for step in range(1, 4)]
        site.pages[f"/{number}"] = links(*near, f"/{number // 2}")
    with site:
        yield site


@pytest.mark.parametrize("name", SETS)
def test_killed_and_gone_on_with(name: str, site: Site, tmp_path: Path) -> None:
    """Each page is fetched, and none again but what was in flight at a kill."""
    project = Project(tmp_path / "project", SPIDERS, FOCUS_SEEN=name, CONCURRENT_REQUESTS=4)
    url = f"url={site.url('/0')}"
    for part in (1, 2):
        project.crawl_until(lambda part=part: len(project.pages) >= part * PAGES // 3, url)
    run = project.crawl("follow", url)
    assert run.reason == "finished"
    fetched = Counter(hit.path for hit in site.hits)
    assert set(fetched) == {f"/{number}" for number in range(PAGES)}
    assert sum(fetched.values()) <= PAGES + 2 * 4
    ((rows, done, gone),) = project.rows(
        "SELECT (SELECT count(*) FROM urls), done, gone_done FROM jobs"
    )
    assert (rows + gone, done) == (PAGES, PAGES)
    assert gone >= PAGES // 3
    _look(project, name, site, gone)


def _look(project: Project, name: str, site: Site, gone: int) -> None:
    """The command says which rows are gone, and knows them all."""
    stats = json.loads(project.run("frontier", "stats", "--json").log)["jobs"][0]
    assert (stats["seen"], stats["removed"], stats["done"]) == (name, gone, PAGES)
    urls = [site.url(f"/{number}") for number in range(PAGES)]
    why = project.run("frontier", "why", *urls).log.splitlines()
    assert len(why) == PAGES
    words = "it is done at" if name == "rocksdb" else "it was seen, and its row was removed"
    assert sum(words in line for line in why) == gone
    assert sum("it is done: it was handed out" in line for line in why) == PAGES - gone
    listed = project.run("frontier", "urls", "--state", "done", "--limit", "0").log
    assert listed.count(site.url("/")) == PAGES - gone


def test_library_is_missing(site: Site, tmp_path: Path) -> None:
    code = "import sys; sys.modules['rbloom'] = None"
    project = Project(tmp_path / "project", code, FOCUS_SEEN="bloom")
    run = project.crawl("follow", f"url={site.url('/0')}")
    assert run.returncode
    assert "pip install scrapy_focus[bloom]" in run.log
    assert not site.hits

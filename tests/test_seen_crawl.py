"""Whole crawls with each seen set: killed, gone on with, and looked at."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from scrapy import Spider
from scrapy.settings import Settings

from scrapy_focus.exceptions import SettingError
from scrapy_focus.frontier.seen import Choice
from scrapy_focus.settings import FocusSettings, read_settings
from tests.frontier.seen_sets import SETS
from tests.project import Project
from tests.site import Answer, Hit, Site, links

PAGES = 120

#: Rounds as small as this crawl.
SPIDERS = """
    from scrapy_focus import scheduler
    from scrapy_focus.frontier import pruning
    from scrapy_focus.frontier.seen import filters

    pruning._ROUND, filters._AT_ONCE = 10, 64
    scheduler._UPKEEP = scheduler._SWEEP = 0.005
"""


@pytest.fixture(name="site")
def _site() -> Iterator[Site]:
    with Site(_page) as site:
        yield site


def _page(hit: Hit) -> Answer:
    number = int(hit.path[1:])
    near = (f"/{(3 * number + step) % PAGES}" for step in range(1, 4))
    return Answer(links(*near, f"/{number // 2}"), delay=0.02)


@pytest.mark.parametrize("name", SETS)
def test_killed_and_gone_on_with(name: str, site: Site, tmp_path: Path) -> None:
    """Each page is fetched, and none again but what was in flight at a kill."""
    project = Project(tmp_path / "project", SPIDERS, FOCUS_SEEN=name, CONCURRENT_REQUESTS=4)
    url = f"url={site.url('/0')}"
    leased = 0
    for part in (1, 2):
        project.crawl_until(lambda part=part: len(project.pages) >= part * PAGES // 3, url)
        leased += project.rows("SELECT count(*) FROM urls WHERE run IS NOT NULL")[0][0]
    run = project.crawl("follow", url)
    assert run.reason == "finished"
    fetched = Counter(hit.path for hit in site.log)
    assert set(fetched) == {f"/{number}" for number in range(PAGES)}
    assert sum(fetched.values()) <= PAGES + leased
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
    words = "it is done" if name == "rocksdb" else "it was seen, and its row was removed"
    known = [line for line in why if line.endswith("and its row was removed.")]
    assert len(known) == gone
    assert all(words in line for line in known)
    # Of what an earlier run has seen end nobody knows when that was.
    assert any("it is done at" in line for line in known) == (name == "rocksdb")
    assert sum("it is done: it was handed out" in line for line in why) == PAGES - gone
    listed = project.run("frontier", "urls", "--state", "done", "--limit", "0").log
    assert listed.count("\ndone ") == PAGES - gone


def test_library_is_missing(site: Site, tmp_path: Path) -> None:
    code = "import sys; sys.modules['rbloom'] = None"
    project = Project(tmp_path / "project", code, FOCUS_SEEN="bloom")
    run = project.crawl("follow", f"url={site.url('/0')}")
    assert run.returncode
    assert "pip install scrapy_focus[bloom]" in run.log
    assert not site.log


@pytest.mark.parametrize("bound", ["FOCUS_MAX_WAITING", "FOCUS_MAX_WAITING_PER_HOST"])
def test_what_is_shed_must_come_back(bound: str) -> None:
    """A bound on what waits needs a set that can forget."""

    def read(seen: str, waiting: int) -> FocusSettings:
        return read_settings(Settings({"FOCUS_SEEN": seen, bound: waiting}), Spider("spider"), {})

    with pytest.raises(SettingError, match=f"'bloom', which cannot forget, and {bound} is set"):
        read("bloom", 5)
    assert read("bloom", 0).seen == Choice("bloom")
    for name in ("exact", "cuckoo", "rocksdb"):
        assert read(name, 5).seen == Choice(name)

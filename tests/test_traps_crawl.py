"""Crawls of sites that make links without end."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from pathlib import Path

import pytest

from tests.project import ADDON, Project
from tests.site import Answer, Hit, Site, links


def endless(hit: Hit) -> Answer | str:
    """Each page has a link that is made of its own address."""
    path, _, query = hit.path.partition("?")
    if path == "/":
        month = datetime.now().astimezone().date().replace(day=1).isoformat()
        return links("/loop/a", "/deep/0", "/grow?p=0", f"/calendar/{month}", "/list?a&b&c&n=0")
    if path.startswith("/loop"):
        return links(path + "/a")  # a relative link that is taken for a folder
    if path.startswith("/deep"):
        return links(f"{path}/{path.count('/')}")
    if path == "/grow":
        return links(f"{path}?{query}&p{query.count('&')}=0")
    if path.startswith("/calendar"):
        month = date.fromisoformat(path.rpartition("/")[2])
        return links(f"/calendar/{(month + timedelta(days=31)).replace(day=1).isoformat()}")
    number = int(query.rpartition("=")[2])
    return links(*(f"{path}?a&b&c&n={n}" for n in (number + 1, number + 2)))


def count(site: Site, start: str) -> int:
    return sum(path.startswith(start) for path in site.paths())


def test_each_ends_by_its_cap(tmp_path: Path) -> None:
    crawl = Project(
        tmp_path / "p", **ADDON, FOCUS_TRAPS={"facets": 40, "ahead": 100}, ROBOTSTXT_OBEY=False
    )
    with Site(endless) as site:
        run = crawl.crawl("follow", f"url={site.url('/')}", timeout=60)
        assert run.reason == "finished"
        assert count(site, "/loop/a") == 3
        assert count(site, "/deep/") == 19
        assert count(site, "/grow?") == 30
        assert count(site, "/calendar/") in (4, 5)
        assert count(site, "/list?") == 40
    found = {name: n for name, n in run.stats.items() if "trap" in name}
    assert found == {
        "focus/refused/trap_repeats": 1,
        "focus/refused/trap_segments": 1,
        "focus/refused/trap_parameters": 1,
        "focus/refused/trap_ahead": 1,
        "focus/refused/trap_facets": found["focus/refused/trap_facets"],
    }
    assert crawl.rows("SELECT count(*) FROM urls") == [(len(site.paths()),)]


@pytest.mark.parametrize("name", ["repeats", "segments", "parameters", "ahead", "facets"])
def test_each_can_be_switched_off(name: str, tmp_path: Path) -> None:
    """By the command line, too. A budget ends the crawl instead."""
    crawl = Project(
        tmp_path / "p", **ADDON, ROBOTSTXT_OBEY=False, FOCUS_MAX_PAGES=150, FOCUS_POLICY="depth"
    )
    start = {
        "repeats": "/loop/a",
        "segments": "/deep/0",
        "parameters": "/grow?p=0",
        "ahead": f"/calendar/{datetime.now().astimezone().date().replace(day=1).isoformat()}",
        "facets": "/list?a&b&c&n=0",
    }[name]
    caps = f'{{"{name}": 0}}'
    if name in ("repeats", "facets"):
        caps = f'{{"{name}": 0, "segments": 0}}'
    with Site(endless) as site:
        crawl.crawl("follow", f"url={site.url(start)}", FOCUS_TRAPS=caps)
        assert len(site.paths()) == 150


def test_a_start_request_is_no_trap(tmp_path: Path) -> None:
    crawl = Project(tmp_path / "p", **ADDON, ROBOTSTXT_OBEY=False)
    with Site(lambda hit: "") as site:
        run = crawl.crawl("follow", f"url={site.url('/a' * 30)}")
        assert run.reason == "finished"
        assert site.paths() == ["/a" * 30]


def test_facets_are_counted_over_a_kill(tmp_path: Path) -> None:
    """What the notes of the job say counts in the next run, and ``why`` knows it."""

    def answer(hit: Hit) -> Answer | str:
        return Answer(delay=60) if hit.path == "/slow" else endless(hit)

    crawl = Project(tmp_path / "p", **ADDON, FOCUS_TRAPS={"facets": 40}, FOCUS_JOB="one")
    counted = "SELECT value FROM notes WHERE name LIKE 'facets%'"

    def is_kept() -> bool:
        # A start request is not counted.
        kept = crawl.rows(counted) if count(site, "/list?") == 41 else []
        return bool(kept) and kept[0][0].endswith(bytes([0, 0, 0, 40]))

    with Site(answer) as site:
        start = f"url={site.url('/slow')},{site.url('/list?a&b&c&n=0')}"
        crawl.crawl_until(is_kept, start)
        site.log.clear()
        run = crawl.crawl(
            *("follow", f"url={site.url('/list?a&b&c&n=500')}"),
            DOWNLOAD_TIMEOUT=1,
            RETRY_TIMES=0,
        )
        assert count(site, "/list?") == 1, "the start request, and nothing that it links to"
        assert run.stats["focus/refused/trap_facets"] == 2
        found = crawl.run("frontier", "why", site.url("/list?a&b&c&n=99"))
        assert "the job has 40 URLs of one path that have four parameters or more" in found.log
        assert "A crawl refuses it (trap_facets)." in found.log

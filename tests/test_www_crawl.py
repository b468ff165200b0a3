"""``FOCUS_WWW``: redirects between ``www.example.test`` and ``example.test``, in real crawls.

Names cannot be resolved here, so the site is the crawl's proxy and knows them all.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from scrapy_focus.decisions.scope import Scope
from scrapy_focus.exceptions import FrontierBusy
from scrapy_focus.frontier.sqlite import SQLiteFrontier
from scrapy_focus.twins import NOTE, Twins
from scrapy_focus.writer import Writer
from tests.frontier.helpers import T0, Paces, abandon, candidate
from tests.project import Project
from tests.site import Answer, Hit, Site, links, redirect

SPIDERS = """
class Allowed(Follow):
    name = "allowed"
    allowed_domains = ["www.example.test"]


class Ported(Follow):
    name = "ported"
    allowed_domains = ["example.test:8080", "example.test"]


class Fetch(Follow):
    name = "fetch"

    async def parse(self, response):
        try:
            await self.crawler.engine.download_async(Request("http://example.test/file"))
        except Exception:
            pass
"""
SEED = "url=http://www.example.test/"


class Web:
    """What its hosts answer; all other pages are empty."""

    def __init__(self) -> None:
        self.pages: dict[str, Answer | str] = {
            # In two steps, as from http to https and then to the other name.
            "www.example.test/": redirect("http://www.example.test/home"),
            "www.example.test/home": redirect("http://example.test/"),
            "example.test/": links("/a", "http://blog.example.test/", "http://www.example.test/b"),
            "example.test/a": links("/c", "http://www.other.test/"),
        }

    def __call__(self, hit: Hit) -> Answer | str:
        return self.pages.get(hit.host + hit.path, "a page")


@pytest.fixture
def web() -> Web:
    return Web()


@pytest.fixture
def site(web: Web) -> Iterator[Site]:
    with Site(web) as site:
        yield site


def project_at(site: Site, folder: Path, **settings: Any) -> Project:
    project = Project(folder, SPIDERS, **{"FOCUS_DOMAINS": ["www.example.test"], **settings})
    project.use_proxy(site.url())
    return project


def asked(site: Site) -> list[str]:
    return [hit.host + hit.path for hit in site.log]


START = ["www.example.test/", "www.example.test/home"]
ALL = [*START, "example.test/", "example.test/a", "www.example.test/b", "example.test/c"]


def refresh(to: str) -> str:
    return f'<html><head><meta http-equiv="refresh" content="0; url={to}">'


def test_strict(site: Site, tmp_path: Path) -> None:
    run = project_at(site, tmp_path / "p").crawl("follow", SEED)
    assert asked(site) == START
    assert run.stats["focus/refused/offsite"] == 1
    assert (
        "'http://example.test/' is out of scope: its host 'example.test' is not within "
        "'www.example.test'. A start request on 'www.example.test' redirects there; "
        'FOCUS_WWW = "add" lets it.'
    ) in run.log


@pytest.mark.parametrize("way", ["302", "meta"])
def test_add(site: Site, web: Web, tmp_path: Path, way: str) -> None:
    if way == "meta":
        web.pages["www.example.test/home"] = refresh("http://example.test/")
    project = project_at(site, tmp_path / "p", FOCUS_WWW="add")
    run = project.crawl("follow", SEED)
    assert sorted(asked(site)) == sorted(ALL)
    assert run.reason == "finished"
    # Not its other hosts, nor another's twin.
    assert run.stats["focus/refused/offsite"] == 2
    assert "WARNING" not in run.log
    why = project.run("frontier", "why", "http://example.test/a", "-s", "FOCUS_WWW=add")
    assert (
        "'http://example.test/a' is in scope: a start request has redirected to its host, and "
        "'www.example.test' is. For the job"
    ) in why.log
    # Started over, the job knows nothing of it.
    web.pages["www.example.test/home"] = links("http://example.test/a")
    run = project.crawl("follow", SEED)
    assert asked(site)[len(ALL) :] == START
    assert run.stats["focus/refused/offsite"] == 1


def test_only_a_start_request_adds(site: Site, web: Web, tmp_path: Path) -> None:
    web.pages["www.example.test/"] = links("/home", "http://example.test/a")
    project = project_at(site, tmp_path / "p", FOCUS_WWW="add")
    run = project.crawl("follow", SEED)
    assert asked(site) == START
    assert run.stats["focus/refused/offsite"] == 2
    why = project.run("frontier", "why", "http://example.test/a", "-s", "FOCUS_WWW=add")
    assert "start request on www.example.test redirects there (FOCUS_WWW). A crawl" in why.log


def test_add_with_patterns(site: Site, web: Web, tmp_path: Path) -> None:
    """On the twin a page is judged by the patterns of both names."""
    web.pages = {
        "example.test/docs": redirect("http://www.example.test/docs"),
        "www.example.test/docs": links("/docs/a", "/docs/private/b", "/docs/old/c", "/other"),
    }
    project = project_at(
        site,
        tmp_path / "p",
        FOCUS_DOMAINS=[],
        FOCUS_WWW="add",
        FOCUS_INCLUDED=["example.test/docs*"],
        FOCUS_EXCLUDED=["www.example.test/docs/private/*", "example.test/docs/old/*"],
    )
    run = project.crawl("follow", "url=http://example.test/docs")
    assert asked(site)[1:] == ["www.example.test/docs", "www.example.test/docs/a"]
    assert run.stats["focus/refused/excluded"] == 2
    assert run.stats["focus/refused/not_included"] == 1
    assert "FOCUS_WWW" not in run.log.replace("'FOCUS_WWW': 'add'", "")


@pytest.mark.parametrize("www", ["add", "strict"])
def test_it_is_kept_over_a_kill(site: Site, web: Web, tmp_path: Path, www: str) -> None:
    project = project_at(site, tmp_path / "p", FOCUS_WWW="add")
    page, web.pages["example.test/"] = web.pages["example.test/"], Answer(delay=60)
    project.crawl_until(lambda: "example.test/" in asked(site), SEED)
    web.pages["example.test/"] = page
    run = project.crawl("follow", SEED, FOCUS_WWW=www)
    assert run.reason == "finished"
    if www == "add":
        assert sorted(set(asked(site))) == sorted(ALL)
    else:
        assert asked(site)[3:] == [], "the scope is narrower now"
        assert run.stats["focus/dropped/offsite"] == 1


def test_other_processes_know(site: Site, web: Web, tmp_path: Path) -> None:
    """One is at a page that links to the twin, when another brings that in."""
    project = project_at(site, tmp_path / "p", FOCUS_WWW="add", FOCUS_JOB="job")
    web.pages["www.example.test/slow"] = Answer(
        links("http://example.test/from-here"), until=lambda: "example.test/c" in asked(site)
    )
    slow = "url=http://www.example.test/slow"
    first = project.start("crawl", "follow", "-a", slow, "-s", "CONCURRENT_REQUESTS=1")
    project.wait_until(first, lambda: bool(site.log))
    run = project.crawl("follow", SEED)
    project.wait(first)
    assert run.returncode == first.returncode == 0
    assert sorted(asked(site)) == sorted([*ALL, "www.example.test/slow", "example.test/from-here"])


def test_never(site: Site, web: Web, tmp_path: Path) -> None:
    """Neither from a start request nor from a link, whatever the scope admits."""
    web.pages["www.example.test/"] = links("http://example.test/old", "http://example.test/")
    web.pages["example.test/old"] = redirect("http://www.example.test/old")
    web.pages["example.test/a"] = refresh("http://www.example.test/a")
    project = project_at(site, tmp_path / "p", FOCUS_DOMAINS=["example.test"], FOCUS_WWW="never")
    run = project.crawl("follow", SEED + ",http://www.example.test/home")
    assert sorted(asked(site)) == sorted(
        [
            *START,
            *("example.test/", "example.test/old", "example.test/a"),
            *("www.example.test/b", "blog.example.test/"),
        ]
    )
    assert run.stats["focus/refused/www"] == 3
    assert "http://example.test/: www. A start request on 'www.example.test' redirects" in run.log
    why = project.run("frontier", "why", "http://example.test/x", "-s", "FOCUS_WWW=never")
    assert "A redirect to it from www.example.test would not be followed (FOCUS_WWW)." in why.log


def test_never_beside_the_scheduler(site: Site, web: Web, tmp_path: Path) -> None:
    """A robots.txt may lie elsewhere; a file may not."""
    web.pages = {
        "example.test/robots.txt": redirect("http://www.example.test/robots.txt"),
        "example.test/file": redirect("http://www.example.test/file"),
    }
    project = project_at(
        site,
        tmp_path / "p",
        FOCUS_DOMAINS=["example.test"],
        FOCUS_WWW="never",
        ROBOTSTXT_OBEY=True,
    )
    run = project.crawl("fetch", "url=http://example.test/")
    assert asked(site) == [
        "example.test/robots.txt",
        "www.example.test/robots.txt",
        *("example.test/", "example.test/file"),
    ]
    assert run.stats["focus/refused/www"] == 1


def test_scrapy_s_own_filter_is_named(site: Site, tmp_path: Path) -> None:
    project = project_at(site, tmp_path / "p", FOCUS_DOMAINS=None, FOCUS_WWW="add")
    run = project.crawl("allowed", SEED)
    # It lets a start request redirect there, and follows no link.
    assert asked(site) == [*START, "example.test/", "www.example.test/b"]
    assert "OffsiteMiddleware will still refuse links to example.test, which allowed" in run.log


def test_an_entry_of_allowed_domains_that_means_nothing(site: Site, tmp_path: Path) -> None:
    project = project_at(site, tmp_path / "p", FOCUS_DOMAINS=["example.test", "wide.test"])
    run = project.crawl("ported", "url=http://example.test/a")
    assert "FOCUS_DOMAINS admits wide.test, which allowed_domains does not" in run.log
    assert sorted(asked(site)) == ["example.test/a", "example.test/c"]


@contextmanager
def tidied(frontier: SQLiteFrontier) -> Iterator[None]:
    """While a thread of its own is at the frontier, and no call gets its turn."""
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with frontier._db._lock:
            held.set()
            done.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(10)
    yield
    done.set()
    thread.join(10)


def test_a_frontier_that_is_busy(tmp_path: Path) -> None:
    """What cannot be stored at once is stored with the next write; what cannot be known now
    is no refusal."""
    frontier = SQLiteFrontier(tmp_path / "frontier.db", "job", pace=Paces(), now=T0)
    frontier.hurry(0.001)
    writer = Writer(frontier, *[lambda *_: None] * 3)
    scopes = [Scope(["www.example.test"]) for _ in "ab"]
    one, other = (Twins("add", scope) for scope in scopes)
    for twins in (one, other):
        twins.attach(frontier, writer)
    seed = candidate("http://www.example.test/", host="www.example.test", seed=True)
    hop = candidate("http://example.test/", host="example.test", seed=True)
    with tidied(frontier):
        one.follow(seed, hop)
        assert scopes[0].refuse(hop.url, hop.host) is None
        with pytest.raises(FrontierBusy):
            other.reconsider("offsite", hop.url, hop.host)
        assert other.reconsider("offsite", "http://evil.test/", "evil.test") == "offsite"
    assert other.reconsider("offsite", hop.url, hop.host) == "offsite"
    frontier.note(NOTE, b"www.other.test")
    writer.flush(T0)
    assert frontier.noted(NOTE) == b"example.test\nwww.other.test"
    assert other.reconsider("offsite", hop.url, hop.host) is None
    abandon(frontier)


def test_another_value_is_an_error(site: Site, tmp_path: Path) -> None:
    run = project_at(site, tmp_path / "p").crawl("follow", SEED, FOCUS_WWW="yes")
    assert "FOCUS_WWW is 'yes'; it must be one of strict, add, never." in run.log
    assert asked(site) == []

"""``scrapy shell``, ``fetch``, ``parse`` and ``check`` leave a job's frontier as it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.project import ADDON, BY_HAND, Project
from tests.site import Site, links

CHECKED = '''
    class Checked(Follow):
        name = "checked"
        allowed_domains = ["127.0.0.1"]

        def parse_page(self, response):
            """Has a contract.

            @url %s/2
            @returns requests 3
            @scrapes title
            """
            yield {"title": "a page"}
            for link in response.css("a::attr(href)").getall():
                yield response.follow(link)
'''


@pytest.fixture(name="site")
def _site() -> Iterator[Site]:
    with Site(lambda hit: links("/0", "/1", "/2")) as site:
        yield site


@pytest.fixture(name="crawl", params=[ADDON, {**BY_HAND, "ADDONS": {}}], ids=["addon", "by hand"])
def _crawl(request: pytest.FixtureRequest, tmp_path: Path, site: Site) -> Iterator[Project]:
    """A project whose job is not done; in the end its frontier must be what it was."""
    crawl = Project(
        tmp_path / "project", CHECKED % site.url(""), ROBOTSTXT_OBEY=False, **request.param
    )
    url = f"url={site.url('/0')}"
    crawl.crawl("follow", url, FOCUS_MAX_PAGES=1)
    site.log.clear()
    before = {path.name: path.read_bytes() for path in crawl.frontier.parent.iterdir()}
    assert list(before) == ["frontier.db"]
    yield crawl
    assert {path.name: path.read_bytes() for path in crawl.frontier.parent.iterdir()} == before
    assert "Frontier:" not in crawl.log
    site.log.clear()
    assert crawl.crawl("follow", url).reason == "finished"
    assert sorted(site.paths()) == ["/1", "/2"]


def test_shell(crawl: Project, site: Site) -> None:
    """Also a second fetch of a page that the job has had, or the shell has."""
    fetches = "".join(f"fetch({site.url(path)!r}), " for path in ("/1", "/0", "/1"))
    code = f"({fetches} print('got', response.url, response.status))"
    run = crawl.run("shell", site.url("/0"), "-c", code)
    assert run.returncode == 0
    assert f"got {site.url('/1')} 200" in run.log
    assert site.paths() == ["/0", "/1", "/0", "/1"]


def test_fetch(crawl: Project, site: Site) -> None:
    run = crawl.run("fetch", site.url("/0"))
    assert run.returncode == 0
    assert '<a href="/1">/1</a>' in run.log
    assert site.paths() == ["/0"]


def test_parse(crawl: Project, site: Site) -> None:
    run = crawl.run("parse", "--spider", "checked", "-c", "parse_page", "-d", "2", site.url("/0"))
    assert run.returncode == 0
    assert "{'title': 'a page'}" in run.log
    assert f"<GET {site.url('/2')}>" in run.log
    assert sorted(site.paths()) == ["/0", "/1", "/2"]


def test_check(crawl: Project, site: Site) -> None:
    run = crawl.run("check", "checked")
    assert run.returncode == 0
    assert "Ran 2 contracts" in run.log
    assert run.log.rstrip().endswith("OK")
    assert site.paths() == ["/2"]

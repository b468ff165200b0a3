"""The first page of a host whose robots.txt asks for a long delay."""

from __future__ import annotations

from pathlib import Path

from tests.project import Project
from tests.site import Answer, Hit, Site, links

FAST, SLOW = "127.0.0.1", ("127.0.0.2", "127.0.0.3")


def answer(hit: Hit) -> Answer | str:
    if hit.path == "/robots.txt":
        delay = 3 if hit.host in SLOW else 0
        return Answer(
            f"User-agent: *\nCrawl-delay: {delay}\n", headers={"Content-Type": "text/plain"}
        )
    return links(*(f"/{n}" for n in range(20))) if hit.host == FAST else "<p>one page"


def test_a_long_crawl_delay_takes_no_place_from_other_hosts(tmp_path: Path) -> None:
    """crawlee-python#2127: hosts that must wait do not fill the downloader, and their first
    page honours the delay that robots.txt has just asked for."""
    with Site(answer, [*SLOW, FAST]) as site:
        project = Project(tmp_path / "p", ROBOTSTXT_OBEY=True, CONCURRENT_REQUESTS=2)
        run = project.crawl("follow", "url=" + ",".join(site.url(host=h) for h in site.hosts))
        assert run.reason == "finished"
        assert len(site.paths(FAST)) == 21
        last_fast = max(hit.time for hit in site.log if hit.host == FAST)
        for host in SLOW:
            assert site.paths(host) == ["/"]
            robots, page = (hit.time for hit in site.log if hit.host == host)
            assert page - robots >= 2.99
            assert last_fast < page
    assert run.stats["focus/leased"] == 23 + len(SLOW)
    assert run.stats["focus/pages"] == 23

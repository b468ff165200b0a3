"""Pace groups: many names on one server share its pace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scrapy_focus.decisions.groups import Groups
from tests.paced import EXACT, Crawl, gaps
from tests.project import ADDON
from tests.site import Answer, Hit, Site, links, redirect

HOSTS = ["127.0.0.1", "127.0.0.2", "127.0.0.3"]


@pytest.mark.parametrize(
    ("choice", "host", "group"),
    [
        ("host", "www.a.example", "www.a.example"),
        ("domain", "www.a.co.uk", "a.co.uk"),
        ("domain", "a.co.uk", "a.co.uk"),
        ("domain", "someone.github.io", "github.io"),
        ("domain", "www.xn--bcher-kva.com", "xn--bcher-kva.com"),
        ("domain", "co.uk", "co.uk"),
        ("domain", "localhost", "localhost"),
        ("domain", "a.b.localhost", "a.b.localhost"),
        ("domain", "127.0.0.1", "127.0.0.1"),
        ("domain", "::1", "::1"),
        ("domain", "", ""),
        ({"*.a.example": "a", "b.example": "a"}, "c.a.example", "a"),
        ({"*.a.example": "a", "b.example": "a"}, "a.example", "a.example"),
        ({"*.a.example": "a", "B.example": "a"}, "b.example", "a"),
        ({"c.a.example": "c", "*.a.example": "a"}, "c.a.example", "c"),
        ({"127.0.0.*": "here"}, "127.0.0.9", "here"),
        ({}, "a.example", "a.example"),
    ],
    ids=str,
)
def test_the_group_of_a_host(choice: Any, host: str, group: str) -> None:
    assert Groups(choice).of(host) == group


@pytest.mark.parametrize("choice", ["hosts", 5, {"a b": "c"}, {"a": ""}, {"a": 1}], ids=str)
def test_bad_choices(choice: Any) -> None:
    with pytest.raises(ValueError, match=r"it must be|is no pattern|are strings"):
        Groups(choice)


def test_hosts_of_one_group_share_its_pace(tmp_path: Path) -> None:
    """Also where one of them redirects to another."""
    crawl = Crawl(
        tmp_path / "p",
        **ADDON,
        DOWNLOAD_DELAY=0.15,
        RANDOMIZE_DOWNLOAD_DELAY=False,
        ROBOTSTXT_OBEY=False,
        FOCUS_PACE_BY={"127.0.0.1": "farm", "127.0.0.2": "farm"},
    )

    def answer(hit: Hit) -> Answer | str:
        if hit.path == "/2" and hit.host == HOSTS[0]:
            return redirect(site.url("/9", host=HOSTS[1]))
        return links("/1", "/2", "/3")

    with Site(answer, HOSTS) as site:
        seeds = ",".join(site.url("/0", host=host) for host in HOSTS)
        assert crawl.crawl("follow", f"url={seeds}").reason == "finished"
    farm = crawl.sent(*(site.url(f"/{n}", host) for n in range(10) for host in HOSTS[:2]))
    assert len(farm) == 9
    assert min(gaps(farm)) >= 0.15 - EXACT
    assert len(site.paths(HOSTS[2])) == 4
    assert crawl.rows("SELECT name FROM hosts ORDER BY name") == [(HOSTS[2],), ("farm",)]


def test_also_while_each_reads_its_robots_txt(tmp_path: Path) -> None:
    """The slot of the downloader that they share spaces what has waited for different files."""
    crawl = Crawl(
        tmp_path / "p",
        **ADDON,
        DOWNLOAD_DELAY=0.6,
        RANDOMIZE_DOWNLOAD_DELAY=False,
        ROBOTSTXT_OBEY=True,
        FOCUS_PACE_BY={"127.0.0.*": "farm"},
    )
    with Site(lambda hit: links("/1"), HOSTS) as site:
        seeds = ",".join(site.url("/0", host=host) for host in HOSTS)
        assert crawl.crawl("follow", f"url={seeds}").reason == "finished"
    times = [hit.time for hit in site.log if hit.path != "/robots.txt"]
    assert len(times) == 6
    # As the server saw them: it may have been late by half of it.
    assert min(gaps(times)) >= 0.3


def test_a_hold_is_the_whole_groups(tmp_path: Path) -> None:
    crawl = Crawl(
        tmp_path / "p",
        **ADDON,
        ROBOTSTXT_OBEY=False,
        FOCUS_PACE_BY={"127.0.0.*": "farm"},
        CONCURRENT_REQUESTS_PER_DOMAIN=1,
    )
    refused: list[float] = []

    def answer(hit: Hit) -> Answer | str:
        if hit.path == "/1" and not refused:
            refused.append(hit.time)
            return Answer(status=503, headers={"Retry-After": "2"})
        return links("/1")

    with Site(answer, HOSTS[:2]) as site:
        seeds = ",".join(site.url("/0", host=host) for host in site.hosts)
        assert crawl.crawl("follow", f"url={seeds}").reason == "finished"
    times = crawl.sent(*(site.url("/", host) for host in site.hosts))
    assert len(times) == 5
    assert not [at for at in times if refused[0] < at < refused[0] + 2 - EXACT]

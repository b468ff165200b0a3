"""The policies (DESIGN.md, section 3), one request at a time: the order is exact then."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scrapy.utils.test import get_crawler

from scrapy_focus.components import build_policy
from scrapy_focus.exceptions import SettingError
from tests.project import Project
from tests.site import Answer, Hit, Site, links

SPIDERS = """
from scrapy_focus import Policy


class Ranked(Spider):
    \"\"\"Reads priority and score from links such as ``/p2-s0.9``.\"\"\"

    name = "ranked"

    async def start(self):
        yield Request(self.url)

    def parse(self, response):
        for link in response.css("a::attr(href)").getall():
            name, *parts = link.rsplit("/")[-1].split("_")
            meta, priority = {}, 0
            for part in parts:
                if part[0] == "p":
                    priority = int(part[1:])
                else:
                    meta["focus_score"] = float(part[1:])
            yield response.follow(link, meta=meta, priority=priority)


class Backwards(Policy):
    \"\"\"The last letter of the alphabet first.\"\"\"

    def rank(self, candidate):
        return -ord(candidate.url[-1])


class Own(Follow):
    name = "own"
    custom_settings = {"FOCUS_POLICY": "spiders.Backwards"}


class Deep(Follow):
    name = "deep"
    custom_settings = {"FOCUS_POLICY": "depth"}
"""

HOSTS = ["127.0.0.1", "127.0.0.2", "127.0.0.3"]


def children(path: str) -> list[str]:
    """A tree of three levels below the root: ``/`` has ``/a``, ``/b`` and ``/c``, ``/a`` has
    ``/aa`` …"""
    return [path + letter for letter in "abc"] if len(path) < 4 else []


def host_of(path: str) -> str:
    """Neighbours in the tree live on different hosts."""
    return HOSTS[sum(map(ord, path)) % 3]


def level_order() -> list[str]:
    order = ["/"]
    for path in order:
        order += children(path)
    return order


def pre_order(path: str = "/") -> list[str]:
    return [path, *(deeper for child in children(path) for deeper in pre_order(child))]


@pytest.fixture
def tree() -> Iterator[Site]:
    def answer(hit: Hit) -> str:
        return links(*(site.url(path, host_of(path)) for path in children(hit.path)))

    with Site(answer, HOSTS) as site:
        yield site


def one_by_one(folder: Path, **settings: Any) -> Project:
    return Project(folder, SPIDERS, CONCURRENT_REQUESTS=1, **settings)


def test_breadth_goes_level_by_level(tree: Site, tmp_path: Path) -> None:
    project = one_by_one(tmp_path / "p", FOCUS_POLICY="breadth")
    run = project.crawl("follow", f"url={tree.url('/', host_of('/'))}")
    assert run.reason == "finished"
    assert tree.paths() == level_order()


def test_depth_follows_a_spur_to_its_end(tree: Site, tmp_path: Path) -> None:
    run = one_by_one(tmp_path / "p").crawl("deep", f"url={tree.url('/', host_of('/'))}")
    assert run.reason == "finished"
    assert tree.paths() == pre_order()


def test_priority_is_the_users_then_the_scores(tmp_path: Path) -> None:
    pages = {
        "/": ["low_p-1", "one", "two_p1", "good_p1_s0.9", "bad_p1_s0.1", "three_p1", "best_p2"],
        # What is found later is compared with everything that waits (scrapy#3666).
        "/best_p2": ["late_p1_s0.7", "last_p-2_s0.99", "four"],
    }

    with Site(lambda hit: links(*pages.get(hit.path, []))) as site:
        one_by_one(tmp_path / "p").crawl("ranked", f"url={site.url()}")

    assert site.paths() == [
        "/",
        "/best_p2",
        "/good_p1_s0.9",
        "/late_p1_s0.7",
        "/two_p1",
        "/three_p1",
        "/bad_p1_s0.1",
        "/one",
        "/four",
        "/low_p-1",
        "/last_p-2_s0.99",
    ]


def test_at_equal_rank_the_least_recently_touched_host(tmp_path: Path) -> None:
    a, b, c = HOSTS

    def answer(hit: Hit) -> str:
        if hit.path != "/":
            return "a page"
        return links(*(site.url(f"/{n}", host) for host in HOSTS for n in (1, 2)))

    with Site(answer, HOSTS) as site:
        one_by_one(tmp_path / "p").crawl("ranked", f"url={site.url('/', a)}")

    assert [(hit.host, hit.path) for hit in site.log] == [
        (a, "/"),
        *((b, "/1"), (c, "/1"), (a, "/1")),
        *((b, "/2"), (c, "/2"), (a, "/2")),
    ]


def test_random_differs_from_run_to_run(tmp_path: Path) -> None:
    paths = [f"/{n}" for n in range(40)]

    with Site(lambda hit: links(*paths)) as site:
        project = one_by_one(tmp_path / "p", FOCUS_POLICY="random")
        orders = []
        for _ in range(2):
            site.log.clear()
            assert project.crawl("follow", f"url={site.url()}").reason == "finished"
            orders.append(site.paths()[1:])

    assert sorted(orders[0]) == sorted(orders[1]) == sorted(paths)
    assert orders[0] != orders[1]
    assert paths not in orders


def test_a_policy_of_the_projects_own(tmp_path: Path) -> None:
    with Site(lambda hit: links("/b", "/d", "/a", "/c")) as site:
        run = one_by_one(tmp_path / "p").crawl("own", f"url={site.url()}")
    assert run.reason == "finished"
    assert site.paths() == ["/", "/d", "/c", "/b", "/a"]


def test_another_policy_on_resume_orders_what_waits(tree: Site, tmp_path: Path) -> None:
    project = one_by_one(tmp_path / "p")
    seed = f"url={tree.url('/', host_of('/'))}"
    first = project.crawl("follow", seed, FOCUS_POLICY="breadth", FOCUS_MAX_PAGES=3)
    assert first.reason == "focus_max_pages"
    assert tree.paths() == ["/", "/a", "/b"]

    rest = project.crawl("follow", seed, FOCUS_POLICY="depth")
    assert rest.reason == "finished"
    assert "Ordered 7 waiting URLs anew" in rest.log
    expected = [path for path in pre_order() if path not in ("/", "/a", "/b")]
    assert tree.paths()[3:] == expected


def test_a_retry_and_a_hop_keep_their_place(tmp_path: Path) -> None:
    """RETRY_PRIORITY_ADJUST and REDIRECT_PRIORITY_ADJUST count only where a user sets them."""
    failed: set[str] = set()

    def answer(hit: Hit) -> Answer | str:
        if "retry" in hit.path and hit.path not in failed:
            failed.add(hit.path)
            return Answer(status=500)
        if "hop" in hit.path:
            return Answer(status=302, headers={"Location": "/landed"})
        return links("/retry_p1", "/hop_p1", "/x_p1", "/y") if hit.path == "/" else ""

    with Site(answer) as site:
        project = one_by_one(tmp_path / "p")
        project.crawl("ranked", f"url={site.url()}")
        # Equal priority: the oldest first, and a hop is new.
        expected = ["/", "/retry_p1", "/retry_p1", "/hop_p1", "/x_p1", "/landed", "/y"]
        assert site.paths() == expected

        site.log.clear()
        failed.clear()
        adjusts = {"RETRY_PRIORITY_ADJUST": -5, "REDIRECT_PRIORITY_ADJUST": 5}
        project.crawl("ranked", f"url={site.url()}", **adjusts)
    expected = ["/", "/retry_p1", "/hop_p1", "/landed", "/x_p1", "/y", "/retry_p1"]
    assert site.paths() == expected


def test_a_policy_that_is_none(tmp_path: Path) -> None:
    run = one_by_one(tmp_path / "p", FOCUS_POLICY="best").crawl("follow", "url=data:,")
    assert run.returncode == 1
    sentence = "FOCUS_POLICY is 'best'; it must be one of priority, breadth, depth, random"
    assert sentence in run.log

    crawler = get_crawler()
    with pytest.raises(SettingError, match=r"names 'no\.Such', which cannot be loaded"):
        build_policy(crawler, "no.Such")
    with pytest.raises(SettingError, match=r"names 'scrapy\.Spider', which is no policy"):
        build_policy(crawler, "scrapy.Spider")

"""The ordering chain (DESIGN.md, section 3) in a user's project, and the duplicate filter in it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.project import Project
from tests.site import Answer, Hit, Site, links, redirect

EXAMPLES = Path(__file__).parent.parent / "docs" / "examples"

SPIDERS = """
import time
from scrapy_focus import Drop, DupeFilter, Plugin, Policy


class Noting(Plugin):
    def note(self, what, candidate):
        with open("chain.txt", "a") as file:
            path = candidate.url.rpartition("/")[2]
            file.write(f"{what} {type(self).__name__} /{path}\\n")

    def enter(self, candidate, request):
        self.note("enter", candidate)

    def leave(self, candidate, request):
        self.note("leave", candidate)

    def settled(self, candidate, outcome):
        self.note(f"{outcome.ending.value} {outcome.reason} {outcome.size} ->", candidate)


class Near(Noting):
    pass


class Middle(Noting):
    pass


class Far(Noting):
    def leave(self, candidate, request):
        super().leave(candidate, request)
        request.headers["X-Far"] = candidate.url


class Off(Noting):
    pass


class Clumsy(Plugin):
    @classmethod
    def from_crawler(cls, crawler):
        self = cls()
        self.word = crawler.settings["CLUMSY_WORD"]
        return self

    def enter(self, candidate, request):
        if "enter" in candidate.url:
            raise RuntimeError(self.word)
        if "nan" in candidate.url:
            candidate.score = float("nan")
        if "huge" in candidate.url:
            candidate.priority = 10**30
        if "text" in candidate.url:
            candidate.ready_at = "soon"

    def leave(self, candidate, request):
        if "leave" in candidate.url:
            raise RuntimeError("a clumsy leave")

    def settled(self, candidate, outcome):
        raise RuntimeError("a clumsy settled")


class Meta(Spider):
    \"\"\"Yields requests with the arguments that the test has written down.\"\"\"

    name = "meta"

    async def start(self):
        for request in self.requests(self.settings["REQUESTS"]):
            yield request

    def requests(self, found):
        for path, arguments in found:
            yield Request(self.url + path, **arguments)

    def parse(self, response):
        with open("pages.txt", "a") as file:
            file.write(response.url + "\\n")
        yield from self.requests(self.settings["FOUND"].pop(response.url[len(self.url):], []))


class Loud(DupeFilter):
    def log(self, request, spider):
        super().log(request, spider)
        spider.logger.warning("Again: %s", request.url)


class OnlyOnce:
    \"\"\"Somebody's own duplicate filter.\"\"\"

    @classmethod
    def from_crawler(cls, crawler):
        return cls()

    def open(self):
        self.paths = set()

    def request_seen(self, request):
        path = request.url.partition("?")[0]
        seen = path in self.paths
        self.paths.add(path)
        return seen

    def close(self, reason):
        print("closed with", reason)

    def log(self, request, spider):
        spider.logger.warning("Theirs: %s", request.url)
"""


@pytest.fixture
def site() -> Iterator[Site]:
    def answer(hit: Hit) -> Answer | str:
        if hit.path.startswith("/from"):
            return redirect("/to")
        return pages.get(hit.path, "a page")

    pages: dict[str, str] = {
        "/": links("/a", "/a", "/b"),
        "/clumsy": links("/enter", "/leave", "/nan", "/huge", "/text", "/good"),
        "/deep/deep/page": links("/x?sessionid=7", "/deep/1", "/2"),
    }
    with Site(answer) as site:
        yield site


def yielding(site: Site, folder: Path, requests: list[Any], **settings: Any) -> Project:
    settings = {"FOUND": {}, "CONCURRENT_REQUESTS": 1, **settings}
    return Project(folder, SPIDERS, REQUESTS=requests, **settings)


def test_the_order_of_the_chain(site: Site, tmp_path: Path) -> None:
    project = Project(
        tmp_path / "p",
        SPIDERS,
        CONCURRENT_REQUESTS=1,
        FOCUS_PLUGINS={
            "spiders.Far": 600,
            "spiders.Middle": 300,
            "spiders.Near": 50,
            "spiders.Off": None,
        },
    )
    run = project.crawl("follow", f"url={site.url()}")

    assert run.reason == "finished"
    lines = (project.folder / "chain.txt").read_text().splitlines()
    size = len(links("/a", "/a", "/b"))
    # The duplicate filter at 100 stands between Near and the others.
    assert lines[:8] == [
        *(f"enter {name} /" for name in ("Near", "Middle", "Far")),
        *(f"leave {name} /" for name in ("Far", "Middle", "Near")),
        *(f"enter {name} /a" for name in ("Near", "Middle")),
    ]
    assert lines.count("enter Near /a") == 2
    assert lines.count("enter Middle /a") == 1
    assert lines.count(f"done  {size} -> Middle /") == 1
    assert not any("Off" in line for line in lines)
    assert [hit.headers.get("x-far") for hit in site.log] == [
        site.url(path) for path in ("/", "/a", "/b")
    ]


def test_the_documentations_example(site: Site, tmp_path: Path) -> None:
    example = (EXAMPLES / "shallow.py").read_text()
    assert len([line for line in example.splitlines() if line.strip()]) <= 10
    project = Project(
        tmp_path / "p", CONCURRENT_REQUESTS=1, FOCUS_PLUGINS={"shallow.ShallowFirst": 300}
    )
    (project.folder / "shallow.py").write_text(example)
    run = project.crawl("follow", f"url={site.url('/deep/deep/page')}")

    assert run.reason == "finished"
    assert site.paths() == ["/deep/deep/page", "/2", "/deep/1"]
    assert run.stats["focus/refused/session"] == 1
    assert "refused (session 1)" in run.log


def test_an_error_in_a_plugin_loses_no_crawl(site: Site, tmp_path: Path) -> None:
    project = Project(
        tmp_path / "p", SPIDERS, CLUMSY_WORD="a clumsy enter", FOCUS_PLUGINS={"spiders.Clumsy": 300}
    )
    run = project.crawl("follow", f"url={site.url('/clumsy')}")

    assert run.reason == "finished"
    assert project.pages == [site.url("/clumsy"), site.url("/good")]
    assert run.stats["focus/refused/error"] == 1
    assert run.stats["focus/refused/invalid"] == 3
    assert run.stats["focus/dropped/error"] == 1
    for words in ("a clumsy enter", "a clumsy leave", "a clumsy settled"):
        assert words in run.log


@pytest.mark.parametrize(
    ("plugins", "sentence"),
    [
        ({"spiders.Missing": 1}, "FOCUS_PLUGINS names 'spiders.Missing', which cannot be loaded"),
        ({"spiders.Follow": 1}, "FOCUS_PLUGINS names 'spiders.Follow', which has none of the"),
    ],
)
def test_plugins_that_cannot_be_used(
    tmp_path: Path, plugins: dict[str, Any], sentence: str
) -> None:
    run = Project(tmp_path / "p", SPIDERS, FOCUS_PLUGINS=plugins).crawl("follow", "url=data:,")
    assert run.returncode == 1
    assert sentence in run.log


def test_what_makes_two_requests_the_same(site: Site, tmp_path: Path) -> None:
    requests = [
        # Their own identity, as a string or as bytes; not that of a redirect's target.
        ["/one", {"meta": {"focus_key": "k"}}],
        ["/two", {"meta": {"focus_key": b"k"}}],
        ["/from", {"meta": {"focus_key": "from"}}],
        ["/three", {"meta": {"focus_key": "from"}}],
        ["/four", {"meta": {"focus_key": 4}}],
        # As Scrapy's fingerprint sees it.
        ["/page?a=1&b=2", {}],
        ["/page?b=2&a=1", {}],
        ["/page?a=1&b=2", {"method": "POST"}],
        # dont_filter skips the duplicate check, for as often as it is asked.
        ["/again", {}],
        ["/again", {"dont_filter": True}],
        ["/again", {"dont_filter": True}],
        ["/again", {}],
    ]
    project = yielding(site, tmp_path / "p", requests, DUPEFILTER_DEBUG=True)
    run = project.crawl("meta", f"url={site.url('')}")

    assert run.reason == "finished"
    assert site.paths() == [
        *("/one", "/from", "/page?a=1&b=2", "/page?a=1&b=2", "/again", "/again", "/again", "/to")
    ]
    assert run.stats["focus/refused/invalid"] == 1
    assert run.stats["dupefilter/filtered"] == run.stats["focus/refused/duplicate"] == 4
    assert run.log.count("Filtered duplicate request: <GET") == 4


def test_a_dont_filter_seed_that_is_linked(site: Site, tmp_path: Path) -> None:
    """scrapy#991. Without DUPEFILTER_DEBUG only the first duplicate is logged."""
    project = yielding(
        site,
        tmp_path / "p",
        [["/seed", {"dont_filter": True}]],
        FOUND={"/seed": [["/seed", {}], ["/x", {}], ["/x", {}]]},
        DUPEFILTER_CLASS="spiders.Loud",
    )
    run = project.crawl("meta", f"url={site.url('')}")

    assert run.reason == "finished"
    assert site.paths() == ["/seed", "/x"]
    assert run.stats["dupefilter/filtered"] == 2
    assert run.log.count("no more duplicates will be shown") == 1
    # A subclass of ours is ours, and its log() is called as Scrapy calls it.
    assert run.log.count("WARNING: Again: ") == 2


def test_somebodys_own_duplicate_filter(site: Site, tmp_path: Path) -> None:
    requests = [["/a?1", {}], ["/a?2", {}], ["/b", {}], ["/a?3", {"dont_filter": True}]]
    project = yielding(site, tmp_path / "p", requests, DUPEFILTER_CLASS="spiders.OnlyOnce")
    run = project.crawl("meta", f"url={site.url('')}")

    assert run.reason == "finished"
    assert sorted(site.paths()) == ["/a?1", "/a?3", "/b"]
    assert "Theirs: " + site.url("/a?2") in run.log
    assert "closed with finished" in run.log
    assert run.stats["focus/refused/duplicate"] == 1


def test_scrapys_own_duplicate_filter_is_refused(site: Site, tmp_path: Path) -> None:
    project = Project(tmp_path / "p", ADDONS={}, SCHEDULER="scrapy_focus.Scheduler")
    run = project.crawl("follow", f"url={site.url()}")
    assert run.returncode == 1
    assert 'set DUPEFILTER_CLASS = "scrapy_focus.DupeFilter"' in run.log
    assert site.log == []


def test_scores_and_times_in_meta(site: Site, tmp_path: Path) -> None:
    later = time.time() + 6
    found = [
        ["/later", {"meta": {"focus_not_before": later}}],
        ["/past", {"meta": {"focus_not_before": later - 1000, "focus_score": 0.2}}],
        ["/good", {"meta": {"focus_score": 0.9}}],
        ["/best", {"meta": {"focus_score": 0}, "priority": 1}],
        *([f"/bad{n}", {"meta": {"focus_score": bad}}] for n, bad in enumerate(BAD_SCORES)),
        *([f"/bad{n}", {"meta": {"focus_not_before": bad}}] for n, bad in enumerate(BAD_TIMES)),
        ["/huge", {"priority": 10**30}],
    ]
    project = yielding(site, tmp_path / "p", [["/seed", {}]], FOUND={"/seed": found})
    run = project.crawl("meta", f"url={site.url('')}")

    assert run.reason == "finished"
    assert site.paths() == ["/seed", "/best", "/good", "/past", "/later"]
    assert site.log[-1].time >= later
    assert run.stats["focus/refused/invalid"] == len(BAD_SCORES) + len(BAD_TIMES) + 1


BAD_SCORES = [1, -0.1, "0.5", True, [], 1e300]
BAD_TIMES = ["soon", True, {}, -1e300, 1e300]

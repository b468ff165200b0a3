"""Scope (DESIGN.md, section 3) as the web sees it: what is never asked for, by any way out.

Names cannot be resolved here, so the site is the crawl's proxy and knows them all.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.project import BY_HAND, Project
from tests.site import Answer, Hit, Site, links, redirect

HANDS: list[dict[str, Any]] = [{}, {"ADDONS": {}, **BY_HAND}]
NO_MIDDLEWARES = {
    "DOWNLOADER_MIDDLEWARES": {"scrapy.downloadermiddlewares.offsite.OffsiteMiddleware": None},
    "SPIDER_MIDDLEWARES": {"scrapy.spidermiddlewares.depth.DepthMiddleware": None},
}

INSIDE = [
    "http://a.example.test/sub",
    "http://b.a.example.test/sub",
    "http://EXAMPLE.test:8080/port",
]
# scrapy#184, scrapy#477: what only looks like the domain.
OUTSIDE = [
    "http://evilexample.test/prefix",
    "http://example.test.evil.test/suffix",
    "http://test/parent",
    "http://evil.test/?query=http://example.test/",
    "http://evil.test/example.test/path",
    "http://example.test@evil.test/user",
    "http://evil.test:80/#example.test",
]
WAYS = ("301", "302", "303", "307", "308", "meta")

SPIDERS = """
from scrapy.exceptions import DontCloseSpider
from scrapy.spiders import SitemapSpider


class Leave(Spider):
    \"\"\"Tries to leave its domain in every way.\"\"\"

    name = "leave"
    allowed_domains = ["example.test"]
    idle = False

    @classmethod
    def from_crawler(cls, crawler, *args, **kwargs):
        self = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(self.on_idle, signals.spider_idle)
        return self

    async def start(self):
        yield Request("http://example.test/", dont_filter=True)
        yield Request("http://evil.test/seed", dont_filter=True)
        for way in ("301", "302", "303", "307", "308", "meta"):
            yield Request("http://example.test/seed-" + way, dont_filter=True)

    def parse(self, response):
        for link in response.css("a::attr(href)").getall():
            yield response.follow(link)
        if response.url == "http://example.test/":
            yield Request("http://evil.test/dont_filter", dont_filter=True)
            for url in ("http://other.test/admitted", "http://evil.test/in", "http://example.test/out"):
                yield Request(url, meta={"allow_offsite": True})

    def on_idle(self):
        if not self.idle:
            self.idle = True
            self.crawler.engine.crawl(Request("http://evil.test/idle"))
            self.crawler.engine.crawl(Request("http://example.test/idle"))
            raise DontCloseSpider


class Media(Follow):
    name = "media"
    allowed_domains = ["example.test"]

    async def parse(self, response):
        yield {"file_urls": [
            "http://example.test/file", "http://example.test/file-out", "http://evil.test/file",
        ]}
        for url in ("http://example.test/file-out?again", "http://evil.test/again"):
            try:
                await self.crawler.engine.download_async(Request(url))
            except Exception:
                pass
        yield response.follow("/secret")


class Ported(Follow):
    name = "ported"
    allowed_domains = ["example.test:8080"]


class Maps(SitemapSpider):
    name = "maps"
    allowed_domains = ["example.test"]
    sitemap_urls = ["http://example.test/robots.txt", "http://evil.test/seed.xml"]

    def parse(self, response):
        pass


class Canonical(Follow):
    name = "canonical"

    def parse(self, response):
        yield from super().parse(response)
        for link in response.css("link[rel=canonical]::attr(href)").getall():
            yield response.follow(link)


class Seeds(Spider):
    name = "seeds"
    allowed_domains = ["example.test"]

    async def start(self):
        for url in getattr(self, "urls", "").split():
            yield Request(url)

    def parse(self, response):
        pass
"""


class World:
    """The web of these tests: some pages misbehave, all others are empty."""

    def __init__(self) -> None:
        self.pages: dict[str, Answer | str] = {}
        self.failed: set[str] = set()

    def __call__(self, hit: Hit) -> Answer | str:
        address = hit.host + hit.path
        if re.search("retry|admitted$", hit.path) and address not in self.failed:
            self.failed.add(address)
            return Answer(status=500)
        if address in self.pages:
            return self.pages[address]
        if way := re.fullmatch("/(?:seed|link)-(.*)", hit.path):
            target = f"http://evil.test{hit.path}"
            if way[1] == "meta":
                return f'<html><head><meta http-equiv="refresh" content="0; url={target}">'
            return redirect(target, int(way[1]))
        return "a page"


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def site(world: World) -> Iterator[Site]:
    with Site(world) as site:
        yield site


def project_at(site: Site, folder: Path, **settings: Any) -> Project:
    project = Project(folder, SPIDERS, **settings)
    project.use_proxy(site.url())
    return project


def asked(site: Site) -> list[str]:
    """Host and path of everything that the web was asked for."""
    return [hit.host + hit.path for hit in site.log]


@pytest.mark.parametrize("by", HANDS, ids=["addon", "by_hand"])
@pytest.mark.parametrize("middlewares", [{}, NO_MIDDLEWARES], ids=["on", "off"])
def test_nothing_leaves_the_scope(
    site: Site, world: World, tmp_path: Path, by: dict[str, Any], middlewares: dict[str, Any]
) -> None:
    """scrapy#15, scrapy#1042: nor by a redirect; scrapy#184, scrapy#477: nor by looking alike."""
    hops = [f"/link-{way}" for way in WAYS]
    world.pages = {
        "example.test/": links(*INSIDE, *OUTSIDE, *hops, "/two-hops", "/retry"),
        "example.test/two-hops": redirect("/second-hop"),
        "example.test/second-hop": redirect("http://evil.test/two-hops"),
        "example.test/retry": redirect("http://evil.test/after-retry"),
        "example.test/out": redirect("http://evil.test/out"),
        "evil.test/in": redirect("http://example.test/in"),
        "other.test/admitted": links("/linked"),
        "other.test/linked": "never",
    }
    run = project_at(site, tmp_path / "p", **by, **middlewares).crawl("leave")

    outside = [url for url in asked(site) if not re.match(r"([a-z.]+\.)?example\.test/", url)]
    # What allow_offsite admits, one of them with its retry, and nothing that comes of it.
    assert sorted(outside) == ["evil.test/in", "other.test/admitted", "other.test/admitted"]
    inside = {"a.example.test/sub", "b.a.example.test/sub", "example.test/port"}
    inside |= {f"example.test/{page}" for page in ("", "in", "out", "idle", "retry", "two-hops")}
    assert inside <= set(asked(site))
    assert run.reason == "finished"
    # One for each of: links, hops (twelve), seed, dont_filter, two hops, after a retry,
    # out, linked from what was admitted, idle.
    refused = len(OUTSIDE) + 2 * len(WAYS) + 7
    found = run.stats.get("focus/refused/offsite", 0) + run.stats.get("offsite/filtered", 0)
    assert found == refused
    if middlewares:
        assert run.stats["focus/refused/offsite"] == refused


def test_what_bypasses_the_scheduler_with_the_addon(
    site: Site, world: World, tmp_path: Path
) -> None:
    world.pages = {
        # A robots.txt may lie elsewhere (RFC 9309, section 2.3.1.2).
        "example.test/robots.txt": redirect("http://elsewhere.test/robots.txt"),
        "elsewhere.test/robots.txt": Answer("User-agent: *\nDisallow: /secret\n"),
        "example.test/file-out": redirect("http://evil.test/file-out"),
        "example.test/file-out?again": redirect("http://evil.test/file-out"),
    }
    project = project_at(
        site,
        tmp_path / "p",
        ROBOTSTXT_OBEY=True,
        FILES_STORE=str(tmp_path / "files"),
        ITEM_PIPELINES={"scrapy.pipelines.files.FilesPipeline": 1},
        MEDIA_ALLOW_REDIRECTS=True,
        **NO_MIDDLEWARES,
    )
    run = project.crawl("media", "url=http://example.test/")

    assert sorted(set(asked(site))) == [
        "elsewhere.test/robots.txt",
        "example.test/",
        "example.test/file",
        "example.test/file-out",
        "example.test/file-out?again",
        "example.test/robots.txt",
    ]
    assert run.stats["focus/refused/offsite"] == 4
    assert run.stats["focus/dropped/robots"] == 1
    assert run.reason == "finished"


def test_depth_is_counted_in_links(site: Site, world: World, tmp_path: Path) -> None:
    """Neither a hop nor a retry makes a page deeper, or shallower."""
    world.pages = {
        "example.test/": links("/1"),
        "example.test/1": redirect("/1-hop"),
        "example.test/1-hop": links("/2-retry"),
        "example.test/2-retry": links("/3"),
    }
    project = project_at(site, tmp_path / "p", FOCUS_MAX_DEPTH=2)
    run = project.crawl("follow", "url=http://example.test/")

    paths = [hit.path for hit in site.log]
    assert paths == ["/", "/1", "/1-hop", "/2-retry", "/2-retry"]
    assert run.stats["focus/refused/depth"] == 1
    assert run.reason == "finished"


def test_depth_without_who_counts_it_is_refused(site: Site, tmp_path: Path) -> None:
    project = project_at(site, tmp_path / "p", FOCUS_MAX_DEPTH=2, **NO_MIDDLEWARES)
    run = project.crawl("follow", "url=http://example.test/")

    assert site.log == []
    assert "Spider closed (focus_unknown_depth)" in run.log
    assert "FOCUS_MAX_DEPTH" in run.log
    assert "DepthMiddleware" in run.log


def test_globs(site: Site, world: World, tmp_path: Path) -> None:
    pages = ["/keep/a", "/keep/b.pdf", "/keep/c", "/news", "/keep/%70rivate", "/keep/../news"]
    world.pages = {
        "example.test/keep": links(*pages, "http://www.example.test/keep/sub", "/keep/x/private/y"),
        "example.test/keep/a": redirect("/keep/x/private/hop"),
        "example.test/keep/c": redirect("/outside"),
    }
    project = project_at(
        site,
        tmp_path / "p",
        FOCUS_INCLUDED=["example.test/keep*"],
        FOCUS_EXCLUDED=["*/private*", "/keep/*/private/*", "/keep/private", "example.test/*.pdf"],
    )
    run = project.crawl("follow", "url=http://example.test/keep")

    assert sorted(asked(site)) == [
        "example.test/keep",
        "example.test/keep/a",
        "example.test/keep/c",
    ]
    assert run.stats["focus/refused/excluded"] == 4
    assert run.stats["focus/refused/not_included"] == 4
    assert run.reason == "finished"


def test_a_scope_narrowed_between_runs(site: Site, world: World, tmp_path: Path) -> None:
    urls = [f"http://{host}.test/{n}" for host in "ab" for n in range(3)]
    world.pages = {"a.test/": links(*urls, "/old")}
    project = project_at(site, tmp_path / "p")
    first = project.crawl("follow", "url=http://a.test/", FOCUS_MAX_PAGES=1)
    assert first.reason == "focus_max_pages"
    assert asked(site) == ["a.test/"]

    project.settings(
        ADDONS={"scrapy_focus.Addon": 300}, FOCUS_DOMAINS=["a.test"], FOCUS_EXCLUDED=["/old"]
    )
    run = project.crawl("follow", "url=http://a.test/")

    assert sorted(asked(site)) == ["a.test/", *(f"a.test/{n}" for n in range(3))]
    assert run.stats["focus/dropped/offsite"] == 3
    assert run.stats["focus/dropped/excluded"] == 1
    assert run.reason == "finished"
    assert "excluded 1" in run.log
    assert "offsite 3" in run.log


def messages(log: str, level: str) -> str:
    return "\n".join(line for line in log.splitlines() if f"] {level}:" in line)


def test_all_seeds_refused(site: Site, tmp_path: Path) -> None:
    project = project_at(site, tmp_path / "p", **NO_MIDDLEWARES)
    for _ in range(2):
        run = project.crawl("seeds", "urls=http://evil.test/ http://evilexample.test/x")
        assert run.reason == "focus_out_of_scope"
        assert run.returncode == 0
        error = messages(run.log, "ERROR")
        assert "http://evil.test/" in error
        assert "http://evilexample.test/x" in error
        assert "'example.test'" in error
    assert site.log == []


def test_some_seeds_refused(site: Site, tmp_path: Path) -> None:
    project = project_at(site, tmp_path / "p", **NO_MIDDLEWARES)
    for resume in ("auto", True):  # the second run knows the good seed already
        run = project.crawl(
            "seeds", "urls=http://evil.test/ http://example.test/", FOCUS_RESUME=resume
        )
        assert run.reason == "finished"
        warning = messages(run.log, "WARNING")
        assert "http://evil.test/" in warning
        assert "'example.test'" in warning
        assert not messages(run.log, "ERROR")
    assert asked(site) == ["example.test/"]


def test_no_seeds(site: Site, tmp_path: Path) -> None:
    run = project_at(site, tmp_path / "p").crawl("seeds")

    assert run.reason == "finished"
    assert "start request" in messages(run.log, "WARNING")
    assert site.log == []


def test_seeds_that_offsite_middleware_vetoes(site: Site, tmp_path: Path) -> None:
    """They never come to the scheduler, but a user wants to know all the same."""
    run = project_at(site, tmp_path / "p").crawl("seeds", "urls=http://evil.test/")

    assert run.reason == "focus_out_of_scope"
    assert "http://evil.test/" in messages(run.log, "ERROR")
    assert site.log == []


@pytest.mark.parametrize(
    ("spider", "settings", "name"),
    [
        ("ported", {}, "the spider's allowed_domains"),
        ("follow", {"FOCUS_DOMAINS": ["example.test:8080"]}, "FOCUS_DOMAINS"),
    ],
)
def test_a_port_in_the_domains(
    site: Site, tmp_path: Path, spider: str, settings: dict[str, Any], name: str
) -> None:
    """scrapy#50: a port there used to filter everything."""
    project = project_at(site, tmp_path / "p", **settings)
    run = project.crawl(spider, "url=http://example.test:8080/")

    assert run.returncode == 1
    assert site.log == []
    assert f"{name}: 'example.test:8080'" in messages(run.log, "ERROR")


def test_hosts_in_other_spellings(site: Site, world: World, tmp_path: Path) -> None:
    """crawlee-python#2144: punycode, a root dot and brackets, in settings and in links. A host has
    one pace, one share of the budget and one robots.txt a port, however it is spelt."""
    names = ["bücher.test", "dot.test.", "[::1]", "127.1"]
    world.pages = {
        "start.test/": links(
            *(f"http://{host}/{n}" for host in ("xn--bcher-kva.test", "BÜCHER.test") for n in "12"),
            *("http://b%C3%BCcher.test:8080/3", "http://dot.test/1", "http://DOT.test./2"),
            *("http://[::1]/1", "http://[0:0::1]:8080/2", "http://[::2]/1"),
            *("http://2130706433/1", "http://127.0.0.1:8080/2", "http://127.0.0.2/1"),
            *("http://xn--bcher-kva.test./4", "http://a.dot.test./3", "http://dottest/"),
        )
    }
    project = project_at(
        site,
        tmp_path / "p",
        FOCUS_DOMAINS=["start.test", *names],
        FOCUS_MAX_PAGES_PER_HOST=3,
        CONCURRENT_REQUESTS_PER_DOMAIN=1,
        DOWNLOAD_DELAY=0.01,
    )
    run = project.crawl("follow", "url=http://start.test/")

    assert run.stats["focus/refused/offsite"] == 3
    assert run.stats["focus/refused/duplicate"] == 2
    hosts = project.rows(
        "SELECT q.host, h.name, q.pages, q.waiting FROM queues AS q JOIN hosts AS h"
        " ON h.id = q.pace ORDER BY q.host"
    )
    assert hosts == [
        ("127.0.0.1", "127.0.0.1", 2, 0),
        ("::1", "::1", 2, 0),
        ("a.dot.test", "a.dot.test", 1, 0),
        ("dot.test", "dot.test", 2, 0),
        ("start.test", "start.test", 1, 0),
        ("xn--bcher-kva.test", "xn--bcher-kva.test", 3, 1),
    ]
    assert run.reason == "focus_max_pages_per_host"
    assert all(busy == 1 for busy in site.busiest.values())


def test_domains_wider_than_allowed_domains(site: Site, tmp_path: Path) -> None:
    project = project_at(site, tmp_path / "p", FOCUS_DOMAINS=["www.example.test", "wide.test"])
    run = project.crawl("seeds", "urls=http://www.example.test/")

    warning = messages(run.log, "WARNING")
    assert "FOCUS_DOMAINS admits wide.test, which allowed_domains does not" in warning
    assert asked(site) == ["www.example.test/"]


def sitemap(kind: str, *urls: str) -> Answer:
    tag = "url" if kind == "urlset" else "sitemap"
    entries = "".join(f"<{tag}><loc>{url}</loc></{tag}>" for url in urls)
    space = "http://www.sitemaps.org/schemas/sitemap/0.9"
    body = f'<?xml version="1.0"?><{kind} xmlns="{space}">{entries}</{kind}>'
    return Answer(body, headers={"Content-Type": "application/xml"})


@pytest.mark.parametrize("middlewares", [{}, NO_MIDDLEWARES], ids=["on", "off"])
def test_sitemaps(site: Site, world: World, tmp_path: Path, middlewares: dict[str, Any]) -> None:
    """A sitemap is a page like any other, and what it lists are links."""
    pages = ["http://example.test/1", "http://EXAMPLE.test:80/1#again", "http://evil.test/2"]
    pages += ["http://a.example.test/3", "http://example.test/private/4"]
    packed = gzip.compress(str(sitemap("urlset", *pages).body).encode())
    maps = ["http://example.test/map.xml.gz", "http://evil.test/map.xml"]
    world.pages = {
        "example.test/robots.txt": "\n".join(
            f"Sitemap: http://{host}/index.xml" for host in ("example.test", "evil.test")
        ),
        "example.test/index.xml": sitemap("sitemapindex", *maps, "http://example.test/moved.xml"),
        "example.test/map.xml.gz": Answer(packed, headers={"Content-Type": "application/gzip"}),
        "example.test/moved.xml": redirect("http://evil.test/moved.xml"),
    }
    project = project_at(site, tmp_path / "p", FOCUS_EXCLUDED=["/private/*"], **middlewares)
    run = project.crawl("maps")

    assert sorted(asked(site)) == [
        "a.example.test/3",
        *("example.test/1", "example.test/index.xml", "example.test/map.xml.gz"),
        *("example.test/moved.xml", "example.test/robots.txt"),
    ]
    found = run.stats.get("focus/refused/offsite", 0) + run.stats.get("offsite/filtered", 0)
    assert found == 5
    assert run.stats["focus/refused/excluded"] == 1
    assert run.stats["focus/refused/duplicate"] == 1
    assert run.reason == "finished"


def test_canonical_links_and_pages_that_refresh(site: Site, world: World, tmp_path: Path) -> None:
    """A canonical link is a link; one to the page itself is known, however it is spelt."""

    def canonical(url: str) -> str:
        return f'<html><head><link rel="canonical" href="{url}">'

    refresh = '<html><head><meta http-equiv="refresh" content="0; url={}">'
    world.pages = {
        "example.test/": links("/self", "/spelt", "/moved", "/out", "/again", "/round"),
        "example.test/self": canonical("/self"),
        "example.test/spelt": canonical("http://EXAMPLE.test:80/./spelt#top"),
        "example.test/moved": canonical("http://example.test/home"),
        "example.test/out": canonical("http://evil.test/out"),
        "example.test/again": refresh.format("http://EXAMPLE.test:80/again"),
        "example.test/round": refresh.format("/round-2"),
        "example.test/round-2": refresh.format("http://evil.test/round"),
    }
    project = project_at(site, tmp_path / "p", FOCUS_DOMAINS=["example.test"], REDIRECT_MAX_TIMES=3)
    run = project.crawl("canonical", "url=http://example.test/")

    found = [page.removeprefix("example.test/") for page in asked(site)]
    once = ["", "home", "moved", "out", "round", "round-2", "self", "spelt"]
    assert sorted(found) == ["", *["again"] * 4, *once[1:]]
    assert run.stats["focus/refused/offsite"] == 2
    assert run.stats["focus/refused/duplicate"] == 2
    assert run.reason == "finished"

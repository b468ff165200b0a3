"""Idioms of Scrapy's users, each stopped after its first page and resumed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.project import Project
from tests.site import Answer, Hit, Site, links

SPIDERS = """
    from scrapy.downloadermiddlewares.retry import get_retry_request
    from scrapy.exceptions import DontCloseSpider
    from scrapy.linkextractors import LinkExtractor
    from scrapy.spiders import CrawlSpider, Rule
    from scrapy.http.request import NO_CALLBACK

    def note(response, text=""):
        with open("pages.txt", "a") as file:
            file.write(response.url + text + "\\n")

    class Rules(CrawlSpider):
        name = "rules"
        rules = [
            Rule(LinkExtractor(allow="/item"), callback="parse_item", cb_kwargs={"kind": "item"}),
            Rule(LinkExtractor(allow="/list"), follow=True),
        ]

        async def start(self):
            yield Request(self.url + "/list/0")

        def parse_item(self, response, kind):
            assert kind == "item"
            note(response)

    class Retries(Spider):
        name = "retries"

        async def start(self):
            yield Request(self.url + "/first")
            yield Request(self.url + "/retried", meta={"dont_redirect": True})

        def parse(self, response):
            if b"again" in response.body:
                again = get_retry_request(response.request, spider=self, reason="again")
                if again:
                    yield again
                else:
                    note(response, "#given-up")
            else:
                note(response)

    class Errbacks(Spider):
        name = "errbacks"

        async def start(self):
            yield Request(self.url + "/first")
            yield Request(self.url + "/missing", errback=self.failed)
            yield Request(self.url + "/gone", errback=self.failed, meta={"max_retry_times": 1})

        def parse(self, response):
            note(response)

        def failed(self, failure):
            name = failure.request.url.rpartition("/")[2]
            yield Request(self.url + "/not-" + name)

    class Idle(Spider):
        name = "idle"
        more = 3

        @classmethod
        def from_crawler(cls, crawler, *args, **kwargs):
            spider = super().from_crawler(crawler, *args, **kwargs)
            crawler.signals.connect(spider.feed, signals.spider_idle)
            return spider

        async def start(self):
            yield Request(self.url + "/first")

        def feed(self):
            if self.more:
                self.more -= 1
                self.crawler.engine.crawl(Request(self.url + "/%d" % self.more))
                raise DontCloseSpider

        def parse(self, response):
            note(response)

    class Inline(Spider):
        name = "inline"

        async def start(self):
            yield Request(self.url + "/first")

        async def parse(self, response):
            for n in range(3):
                url = response.urljoin("/part/%d" % n)
                part = await self.crawler.engine.download_async(Request(url, NO_CALLBACK))
                note(part)
            yield response.follow("/part/0", callback=self.last)
            note(response)

        def last(self, response):
            note(response, "#last")

    class Again(Spider):
        name = "again"

        async def start(self):
            yield Request(self.url + "/poll")

        def parse(self, response, times=1):
            note(response)
            if times < 5:
                yield response.request.replace(dont_filter=True, cb_kwargs={"times": times + 1})
"""


def answer(hit: Hit) -> Answer | str:
    if hit.path.startswith("/list"):
        page = int(hit.path.rpartition("/")[2])
        return links(f"/list/{page + 1}", f"/item/{page}", "/item/0") if page < 6 else links()
    if hit.path == "/retried":
        return "again"
    if hit.path == "/missing":
        return Answer(status=404)
    if hit.path == "/gone":
        return Answer(status=503, headers={"Retry-After": "0"})
    return "a page"


@pytest.mark.parametrize(
    ("spider", "fetched", "noted"),
    [
        (
            "rules",
            {**{f"/list/{n}": 1 for n in range(7)}, **{f"/item/{n}": 1 for n in range(6)}},
            {f"/item/{n}": 1 for n in range(6)},
        ),
        ("retries", {"/first": 1, "/retried": 3}, {"/first": 1, "/retried#given-up": 1}),
        (
            "errbacks",
            {"/first": 1, "/missing": 1, "/gone": 2, "/not-missing": 1, "/not-gone": 1},
            {"/first": 1, "/not-missing": 1, "/not-gone": 1},
        ),
        ("again", {"/poll": 5}, {"/poll": 5}),
        (
            "inline",
            {"/first": 1, "/part/0": 2, "/part/1": 1, "/part/2": 1},
            {"/first": 1, "/part/0": 1, "/part/0#last": 1, "/part/1": 1, "/part/2": 1},
        ),
    ],
)
@pytest.mark.parametrize("stopped", [False, True], ids=["straight", "stopped"])
def test_idioms(
    tmp_path: Path, spider: str, fetched: dict[str, int], noted: dict[str, int], stopped: bool
) -> None:
    crawl = Project(tmp_path / "project", SPIDERS, ROBOTSTXT_OBEY=False)
    with Site(answer) as site:
        url = f"url={site.url('')}"
        if stopped:
            run = crawl.crawl(spider, url, CLOSESPIDER_PAGECOUNT=1, CONCURRENT_REQUESTS=1)
            assert run.reason == "closespider_pagecount"
        run = crawl.crawl(spider, url)
        assert run.reason == "finished"
        assert "Traceback" not in run.log
        assert "focus/unstorable" not in run.stats
        assert Counter(site.paths()) == fetched
        assert Counter(crawl.pages) == {site.url(path): times for path, times in noted.items()}
        states = dict(crawl.rows("SELECT state, count(*) FROM urls GROUP BY state"))
        assert set(states) <= {1, 2}


def test_an_idle_handler(tmp_path: Path) -> None:
    """It feeds the crawl as long as it likes; each run asks it anew."""
    crawl = Project(tmp_path / "project", SPIDERS, ROBOTSTXT_OBEY=False)
    with Site(answer) as site:
        run = crawl.crawl("idle", f"url={site.url('')}", timeout=30)
        assert run.reason == "finished"
        assert site.paths() == ["/first", "/2", "/1", "/0"]
        run = crawl.crawl("idle", f"url={site.url('')}", FOCUS_RESUME=True)
        assert run.reason == "finished"
        assert run.stats["focus/refused/duplicate"] == 4
        assert len(site.log) == 4

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urldefrag

import scrapy
from scrapy import signals
from scrapy.utils.project import data_path

from example.items import Page
from example.pydoc_server import PydocServer
from example.summary import summary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from typing_extensions import Self


class PydocSpider(scrapy.Spider):
    """The demo: a whole crawl, without the internet, of a site that every Python has with it::

        scrapy crawl pydoc

    It starts the standard library's documentation server, crawls it and stops it again: between
    700 and 900 pages, about 20 seconds. Press Ctrl-C on the way, or ``kill -9`` it, and run it
    again: it goes on. When it has finished, the next run starts over.
    """

    name = "pydoc"

    custom_settings = {
        # The scope: this host, and not these pages. Modules link to python.org and to the
        # files of their source; none of that is fetched.
        "FOCUS_DOMAINS": [PydocServer.HOST],
        # The server imports the module whose page is asked for, so some are better left alone.
        "FOCUS_EXCLUDED": [
            f"{PydocServer.HOST}/{name}"
            for name in (
                "antigravity.*",  # opens a browser
                "idlelib.*",  # open windows
                "turtledemo.*",
                "test.*",  # do whatever a test does
                "*.test.*",
                "*.tests.*",
                "_test*",
                "this.*",  # print something
                "__*hello__.*",
                "*.__main__.*",  # run a program
                "threading.*",  # loaded a second time, the server cannot end (Python < 3.13)
            )
        ],
        # The budget: enough for all of it. Try -s FOCUS_MAX_PAGES=300.
        "FOCUS_MAX_PAGES": 1_000,
        # The policy: all modules first, then what they link to.
        "FOCUS_POLICY": "breadth",
        # The server is ours. It answers one request at a time, and lets five more stand in line.
        "DOWNLOAD_DELAY": 0,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 4,
        "LOGSTATS_INTERVAL": 5,
        # closed() says it shorter.
        "STATS_DUMP": False,
    }

    server: PydocServer

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Self:
        spider = super().from_crawler(crawler, *args, **kwargs)
        spider.server = server = PydocServer(Path(data_path("pydoc")))
        spider.start_urls = [server.url]
        # A port is a part of a URL: at another port it is another site, hence another job.
        crawler.settings.set("FOCUS_JOB", f"pydoc-{server.port}", priority="spider")
        # The engine waits for the handlers of spider_opened before it fetches anything, be it
        # the first page or, on a resume, a page that has waited since the last run.
        crawler.signals.connect(server.start, signals.spider_opened)
        crawler.signals.connect(server.stop, signals.spider_closed)
        return spider

    def parse(self, response: Response, **kwargs: Any) -> Iterator[Any]:
        title = response.css("title::text").get(default="")
        title = title.removeprefix("Pydoc:").strip()
        yield Page(response.url, title, response.meta.get("depth", 0))
        # A page links to another once for each name in it: os.html#os-open, os.html#os-close …
        hrefs = response.css("a::attr(href)").getall()
        yield from response.follow_all(dict.fromkeys(urldefrag(href).url for href in hrefs))

    def closed(self, reason: str) -> None:
        assert self.crawler.stats
        budget = self.crawler.settings.getint("FOCUS_MAX_PAGES")
        self.logger.info(summary(self.crawler.stats.get_stats(), reason, budget))

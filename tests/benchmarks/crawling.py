"""In the child: whole crawls, of a spider that follows every link."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from scrapy import Request, Spider
from scrapy.crawler import AsyncCrawlerProcess

from tests.benchmarks.machine import resident

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from scrapy.crawler import Crawler
    from scrapy.http import Response

SETTINGS: dict[str, Any] = {
    "TELNETCONSOLE_ENABLED": False,
    "LOG_LEVEL": "INFO",
    "ROBOTSTXT_OBEY": False,
}


class Follow(Spider):
    """Follows every link of every page."""

    name = "follow"

    async def start(self) -> AsyncIterator[Any]:
        for url in self.start_urls:
            yield Request(url)

    def parse(self, response: Response) -> Iterator[Request]:
        for link in response.css("a::attr(href)").getall():
            yield response.follow(link)


def crawl(
    settings: dict[str, Any],
    urls: list[str],
    spider: type[Spider] = Follow,
    watch: Callable[[Crawler], None] | None = None,
) -> dict[str, Any]:
    """A crawl from start to end: its stats, seconds and memory.

    :param watch: called with the crawler before it runs
    """
    process = AsyncCrawlerProcess({**SETTINGS, **settings})
    crawler = process.create_crawler(spider)
    if watch:
        watch(crawler)
    process.crawl(crawler, start_urls=urls)
    used = time.process_time()
    process.start()
    used = time.process_time() - used
    stats = crawler.stats
    assert stats
    return {
        "pages": stats.get_value("response_received_count", 0),
        "reason": stats.get_value("finish_reason"),
        "seconds": stats.get_value("elapsed_time_seconds"),
        "errors": stats.get_value("log_count/ERROR", 0),
        "cpu": used,
        "resident": resident(),
    }

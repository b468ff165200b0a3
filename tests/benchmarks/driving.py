"""In the child: a real crawl whose scheduler is driven by hand.

The engine, its slot and all signals are real; only the downloader is left out. The spider's
``start()`` pauses the engine and takes its place: it calls the scheduler, and tells how a
page ended as the engine and the downloader do, by the same signals and by taking the
request out of ``slot.inprogress``. So a scheduler that holds a request until it is finished
pays for that here, too. The reactor does not turn meanwhile, hence no timer fires.
"""

from __future__ import annotations

import time
import traceback
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scrapy import Spider, signals
from scrapy.crawler import AsyncCrawlerProcess
from scrapy.exceptions import CloseSpider
from scrapy.http import Response
from scrapy.utils.httpobj import urlparse_cached

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from scrapy import Request
    from scrapy.crawler import Crawler

#: Requests that are in flight at the same time, as Scrapy's default has it.
WINDOW = 16

#: For a crawl that is driven by hand, and everything that makes crawls comparable.
SETTINGS: dict[str, Any] = {
    "TELNETCONSOLE_ENABLED": False,
    "LOG_LEVEL": "WARNING",
    "CONCURRENT_REQUESTS": WINDOW,
    "CONCURRENT_REQUESTS_PER_DOMAIN": WINDOW,
    "DOWNLOAD_DELAY": 0,
    "ROBOTSTXT_OBEY": False,
}


class Hands:
    """Does what the engine and the downloader do around a scheduler."""

    def __init__(self, crawler: Crawler) -> None:
        engine: Any = crawler.engine
        self.crawler = crawler
        self.scheduler: Any = engine._slot.scheduler
        self._slot = engine._slot
        self._spider = crawler.spider
        self._send = crawler.signals.send_catch_log

    def take(self) -> Request:
        """The next request.

        :raises RuntimeError: if there is none, also a second later: a frontier may be busy on
            threads of its own
        """
        for _ in range(1000):
            request: Request | None = self.scheduler.next_request()
            if request is not None:
                return request
            time.sleep(0.001)
        raise RuntimeError("the scheduler hands out nothing")

    def reach(self, request: Request) -> None:
        """A request goes to the downloader."""
        self._slot.add_request(request)
        request.meta["download_slot"] = urlparse_cached(request).hostname
        self._send(signals.request_reached_downloader, request=request, spider=self._spider)

    def finish(self, request: Request) -> None:
        """Its page comes, and its callback returns."""
        response = Response(request.url, request=request)
        about = {"request": request, "spider": self._spider}
        self._send(signals.response_downloaded, response=response, **about)
        self._send(signals.request_left_downloader, **about)
        self._send(signals.response_received, response=response, **about)
        self._slot.remove_request(request)

    def drop(self) -> None:
        """Let go of all that is in flight: a crawl does not end before."""
        for request in list(self._slot.inprogress):
            self._slot.remove_request(request)


class Flight:
    """Keeps :data:`WINDOW` requests in flight."""

    def __init__(self, hands: Hands) -> None:
        self._hands = hands
        self._requests: deque[Request] = deque()

    def add(self, request: Request) -> None:
        """One more; the oldest is finished first where there is no room."""
        if len(self._requests) >= WINDOW - 1:
            self._hands.finish(self._requests.popleft())
        self._hands.reach(request)
        self._requests.append(request)

    def finish(self) -> None:
        """Finish all."""
        while self._requests:
            self._hands.finish(self._requests.popleft())


def drive(settings: dict[str, Any], action: Callable[[Hands], dict[str, Any]]) -> dict[str, Any]:
    """Open a crawl, let *action* drive its scheduler, and close it.

    :raises RuntimeError: if the crawl cannot be opened, or *action* raises
    """
    result: dict[str, Any] = {}

    class Driven(Spider):
        name = "driven"

        async def start(self) -> AsyncIterator[Any]:
            engine = self.crawler.engine
            assert engine
            engine.pause()
            hands = Hands(self.crawler)
            try:
                result.update(action(hands))
            except Exception:  # noqa: BLE001  # whatever it is, the parent shows it
                result["error"] = traceback.format_exc()
                hands.drop()
            raise CloseSpider("measured")
            yield

    process = AsyncCrawlerProcess({**SETTINGS, **settings})
    process.crawl(Driven)
    process.start()
    if not result or "error" in result:
        raise RuntimeError(result.get("error", "the crawl did not start"))
    return result

"""The job's scope for what bypasses the scheduler."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy.exceptions import IgnoreRequest

from scrapy_focus.engine import scheduler_of
from scrapy_focus.names import in_log

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from typing_extensions import Self

logger = logging.getLogger(__name__)


class ScopeMiddleware:
    """Downloader middleware that refuses media requests, and redirects inside
    :meth:`engine.download_async() <scrapy.core.engine.ExecutionEngine.download_async>`, that
    leave the job's scope. What came through the scheduler has been checked there.

    A robots.txt may lie elsewhere (:rfc:`9309#section-2.3.1.2`).
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def process_request(self, request: Request) -> None:
        """Refuse a request that is out of scope.

        :raises scrapy.exceptions.IgnoreRequest: then
        """
        reason = scheduler_of(self._crawler).refuses(request)
        if reason is None:
            return
        assert self._crawler.stats
        self._crawler.stats.inc_value(f"focus/refused/{reason}")
        raise IgnoreRequest(f"Out of the job's scope ({reason}): {in_log(request.url)}")

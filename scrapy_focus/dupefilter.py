"""What "the same URL" means for a job: the chain's outermost plugin."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from scrapy.dupefilters import BaseDupeFilter
from scrapy.utils.request import RequestFingerprinter, referer_str

from scrapy_focus.decisions.chain import Plugin
from scrapy_focus.exceptions import Drop

if TYPE_CHECKING:
    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from scrapy.utils.request import RequestFingerprinterProtocol
    from typing_extensions import Self

    from scrapy_focus.candidate import Candidate

logger = logging.getLogger(__name__)


class DupeFilter(BaseDupeFilter, Plugin):
    """Duplicate filter (:setting:`DUPEFILTER_CLASS`) that asks the frontier.

    Two requests are the same if their :setting:`REQUEST_FINGERPRINTER_CLASS` says so, or
    if they carry the same :reqmeta:`focus_key`. It works with
    :class:`scrapy_focus.Scheduler` only.
    """

    def __init__(
        self, fingerprinter: RequestFingerprinterProtocol | None = None, debug: bool = False
    ) -> None:
        self._fingerprinter = fingerprinter or RequestFingerprinter()
        self._debug = debug
        self._logged = False
        self._seen: Callable[[bytes], bool] = lambda key: False

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler.request_fingerprinter, crawler.settings.getbool("DUPEFILTER_DEBUG"))

    def attach(self, seen: Callable[[bytes], bool]) -> None:
        """Name what knows which keys the frontier holds."""
        self._seen = seen

    def fingerprint(self, request: Request) -> bytes:
        """The crawler's own identity of a request."""
        return self._fingerprinter.fingerprint(request)

    def key(self, request: Request, fingerprint: bytes) -> bytes:
        """What the frontier knows a request by.

        :raises scrapy_focus.Drop: if ``focus_key`` is neither a string nor bytes
        """
        key = request.meta.get("focus_key")
        if key is None:
            return fingerprint
        if isinstance(key, str):
            key = key.encode("utf-8", "surrogatepass")
        if not isinstance(key, bytes):
            logger.error("focus_key of %s is %r; it must be a string or bytes.", request, key)
            raise Drop("invalid")
        # Never equal to a fingerprint, which would take 20 chosen bytes otherwise.
        return b"key:" + key

    def request_seen(self, request: Request) -> bool:
        return self._seen(self.key(request, self.fingerprint(request)))

    def enter(self, candidate: Candidate, request: Request) -> None:
        if candidate.copy == 0 and self._seen(candidate.key):
            raise Drop("duplicate")

    def log(self, request: Request, spider: Spider) -> None:
        """Log a filtered request, all of them with :setting:`DUPEFILTER_DEBUG`, and count it."""
        if self._debug:
            logger.debug(
                "Filtered duplicate request: %(request)s (referer: %(referer)s)",
                {"request": request, "referer": referer_str(request)},
                extra={"spider": spider},
            )
        elif not self._logged:
            logger.debug(
                "Filtered duplicate request: %(request)s - no more duplicates will be shown (see "
                "DUPEFILTER_DEBUG to show all duplicates)",
                {"request": request},
                extra={"spider": spider},
            )
            self._logged = True
        spider.crawler.stats.inc_value("dupefilter/filtered")


class ForeignDupeFilter(Plugin):
    """Another :setting:`DUPEFILTER_CLASS` than ours, honoured: what it lets pass is new."""

    def __init__(self, dupefilter: BaseDupeFilter) -> None:
        self._dupefilter = dupefilter

    def enter(self, candidate: Candidate, request: Request) -> None:
        if not request.dont_filter and self._dupefilter.request_seen(request):
            raise Drop("duplicate")

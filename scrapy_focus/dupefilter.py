"""What "the same URL" means for a job: the chain's outermost plugin."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from hashlib import sha1
from typing import TYPE_CHECKING

from scrapy import Request
from scrapy.dupefilters import BaseDupeFilter
from scrapy.utils.request import RequestFingerprinter, referer_str

from scrapy_focus.decisions.chain import Plugin
from scrapy_focus.exceptions import Drop
from scrapy_focus.names import in_log

if TYPE_CHECKING:
    from scrapy import Spider
    from scrapy.crawler import Crawler
    from scrapy.utils.request import RequestFingerprinterProtocol
    from typing_extensions import Self

    from scrapy_focus.candidate import Candidate

logger = logging.getLogger(__name__)

# URLs that are canonical as they are, whatever version of w3lib is asked: a plain host, with or
# without a port, a path without a dot after a slash (dot segments), at most one parameter.
_CANONICAL = re.compile(
    r"https?://(?:[a-z0-9_-]{1,63}\.)*[a-z0-9_-]{1,63}(?::(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}))?"
    r"(?:/(?!\.)[A-Za-z0-9!$&'()*+,\-.:=@_~]*)+(?:\?[A-Za-z0-9_~-]+=[A-Za-z0-9_.~-]*)?"
)


def _plain_fingerprint(request: Request) -> bytes | None:
    """What Scrapy's own fingerprinter says of a GET without a body whose URL is canonical, in
    a tenth of the time; ``None`` for any other request."""
    if request.method != "GET" or request.body or not _CANONICAL.fullmatch(request.url):
        return None
    record = f'{{"body": "", "headers": {{}}, "method": "GET", "url": "{request.url}"}}'
    return sha1(record.encode()).digest()  # noqa: S324 - no secret is kept by it


def _is_scrapys_own(fingerprinter: RequestFingerprinterProtocol) -> bool:
    """Whether :func:`_plain_fingerprint` can stand for a fingerprinter: a subclass may do
    anything, and so may a later Scrapy."""
    probe = Request("https://www.example.com:8080/a-b/c_d.html?page=2")
    return type(fingerprinter) is RequestFingerprinter and fingerprinter.fingerprint(
        probe
    ) == _plain_fingerprint(probe)


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
        self._is_scrapys_own = _is_scrapys_own(self._fingerprinter)
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
        plain = _plain_fingerprint(request) if self._is_scrapys_own else None
        return plain or self._fingerprinter.fingerprint(request)

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
            logger.error(
                "focus_key of %s is %s; it must be a string or bytes.",
                in_log(request),
                in_log(repr(key)),
            )
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
                {"request": in_log(request), "referer": in_log(referer_str(request))},
                extra={"spider": spider},
            )
        elif not self._logged:
            logger.debug(
                "Filtered duplicate request: %(request)s - no more duplicates will be shown (see "
                "DUPEFILTER_DEBUG to show all duplicates)",
                {"request": in_log(request)},
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

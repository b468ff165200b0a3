"""What "the same URL" means for a job: the chain's outermost plugin."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from hashlib import sha1
from typing import TYPE_CHECKING

from scrapy import Request
from scrapy.dupefilters import BaseDupeFilter
from scrapy.utils.request import RequestFingerprinter, referer_str

from scrapy_focus.decisions.canonical import Forms
from scrapy_focus.decisions.chain import Plugin
from scrapy_focus.decisions.hosts import ORDINARY
from scrapy_focus.exceptions import Drop
from scrapy_focus.names import in_log

if TYPE_CHECKING:
    from scrapy import Spider
    from scrapy.crawler import Crawler
    from scrapy.utils.request import RequestFingerprinterProtocol
    from typing_extensions import Self

    from scrapy_focus.candidate import Candidate

logger = logging.getLogger(__name__)

# URLs that the default rules leave as they are: a plain host, with or without a port, a path
# without a dot after a slash (dot segments) or anything encoded, at most one parameter.
_CANONICAL = re.compile(
    rf"https?://(?:{ORDINARY})(?::(?!80/|443/)[1-9][0-9]{{0,4}})?"
    r"(?:/(?!\.)[A-Za-z0-9!$&'()*+,\-.:;=@_~]*)+(?:\?[A-Za-z0-9_~-]+=[A-Za-z0-9_.~-]*)?"
)


def _identity(request: Request, url: str) -> bytes:
    """What Scrapy's own fingerprinter says of a request whose canonical URL is *url*."""
    body, method = request.body.hex(), request.method
    record = {"body": body, "headers": {}, "method": method, "url": url}
    return sha1(json.dumps(record).encode()).digest()  # noqa: S324 - no secret is kept by it


def _plain_identity(url: str) -> bytes:
    """The same of a GET without a body, whose URL has nothing that JSON would escape."""
    record = f'{{"body": "", "headers": {{}}, "method": "GET", "url": "{url}"}}'
    return sha1(record.encode()).digest()  # noqa: S324


def _is_scrapys_own(fingerprinter: RequestFingerprinterProtocol) -> bool:
    """Whether :func:`_identity` can stand for a fingerprinter: a subclass may do anything, and
    so may a later Scrapy."""
    url = "https://www.example.com:8080/a-b/c_d.html?page=2"
    post = Request(url, method="POST", body=b"{}")
    return (
        type(fingerprinter) is RequestFingerprinter
        and fingerprinter.fingerprint(Request(url)) == _plain_identity(url)
        and fingerprinter.fingerprint(post) == _identity(post, url)
    )


class DupeFilter(BaseDupeFilter, Plugin):
    """Duplicate filter (:setting:`DUPEFILTER_CLASS`) that asks the frontier.

    Two requests are the same if they have the same method, the same body and the same URL in
    the canonical form of the job (:setting:`FOCUS_CANONICAL`), if they carry the same
    :reqmeta:`focus_key`, or if a :setting:`REQUEST_FINGERPRINTER_CLASS` other than Scrapy's
    says so. It works with :class:`scrapy_focus.Scheduler` only.
    """

    def __init__(
        self, fingerprinter: RequestFingerprinterProtocol | None = None, debug: bool = False
    ) -> None:
        self._fingerprinter = fingerprinter or RequestFingerprinter()
        self._is_scrapys_own = _is_scrapys_own(self._fingerprinter)
        #: The canonical forms of URLs.
        self.forms = Forms({})
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
        """What a request is the same by, unless it carries a ``focus_key``."""
        url, forms = request.url, self.forms
        if not self._is_scrapys_own:
            return self._fingerprinter.fingerprint(self._canonical(request))
        if forms.are_default and _CANONICAL.fullmatch(url):
            if request.method == "GET" and not request.body:
                return _plain_identity(url)
        elif not request.meta.get("verbatim_url"):
            url = forms.of(url)(url)
        return _identity(request, url)

    def _canonical(self, request: Request) -> Request:
        """The request as another fingerprinter sees it: as it is, if the job has no rules."""
        if self.forms.are_default or request.meta.get("verbatim_url"):
            return request
        url = self.forms.of(request.url)(request.url)
        return request if url == request.url else request.replace(url=url)

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

"""What Scrapy itself leaves on a request on its way, and what of it is not worth storing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from scrapy import Request, Spider

#: What downloader middlewares and the downloader note in ``meta`` for themselves.
NEVER_STORED = frozenset({"_dont_cache", "cache_timestamp", "download_latency"})
#: What counts a chain's retries and redirects: copied into another request it would end that
#: one's chain too early.
CHAIN_KEYS = frozenset(
    {"redirect_reasons", "redirect_times", "redirect_ttl", "redirect_urls", "retry_times"}
)
_DROPPED = NEVER_STORED | CHAIN_KEYS
#: What HttpProxyMiddleware notes for a proxy of the environment's. Without it, it asks the
#: environment again.
PROXY_KEYS = frozenset({"_auth_proxy", "_scheme_proxy", "proxy"})


def clean_meta(meta: Mapping[str, Any], hop: bool) -> dict[str, Any]:
    """A copy of a request's *meta* without what is not worth storing or must not be copied.

    :param hop: whether the request is a retry or a redirect hop, which goes on with the counts of
        its chain. In any other request they come from ``meta=response.meta``.
    """
    dropped = NEVER_STORED if hop else _DROPPED
    if dropped.isdisjoint(meta):
        return dict(meta)
    return {key: value for key, value in meta.items() if key not in dropped}


def host_slot(url: str) -> str:
    """The download slot that Scrapy gives to a request for *url*, unless it goes by IP address."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


class Leftovers:
    """Tells what a request of one spider carries because Scrapy put it there.

    :param automatic_slot: gives the download slot of a URL whose request asks for none
    """

    def __init__(self, spider: Spider, automatic_slot: Callable[[str], str] = host_slot) -> None:
        self._automatic_slot = automatic_slot
        settings = getattr(getattr(spider, "crawler", None), "settings", None)
        # As DownloadTimeoutMiddleware finds it.
        timeout = settings.getfloat("DOWNLOAD_TIMEOUT") if settings is not None else None
        self._timeout: Any = getattr(spider, "download_timeout", timeout)
        self._jar = settings is None or settings.getbool("COOKIES_ENABLED")
        self._proxies = {_host_and_port(proxy) for proxy in getproxies().values()} - {None}

    def headers(self, request: Request, hop: bool) -> dict[bytes, list[bytes]]:
        """A copy of its headers, without those that are added again."""
        headers: dict[bytes, list[bytes]] = dict(request.headers)
        if hop:
            # CookiesMiddleware replaces the header, where it is at work at all.
            if self._jar and not request.meta.get("dont_merge_cookies"):
                headers.pop(b"Cookie", None)
            # HttpProxyMiddleware makes the header again for a proxy of the environment's. Of any
            # other, the header has the only copy of the password: it was cut out of the meta.
            if self._has_environment_proxy(request.meta):
                headers.pop(b"Proxy-Authorization", None)
        return headers

    def _has_environment_proxy(self, meta: dict[str, Any]) -> bool:
        # The mark alone would not do: it leaks into copied meta, where the proxy may be another.
        return (
            bool(meta.get("_scheme_proxy")) and _host_and_port(meta.get("proxy")) in self._proxies
        )

    def meta(self, request: Request, hop: bool, copied_slots: Iterable[str]) -> dict[str, Any]:
        """A copy of its meta, without what is set again or must not be copied."""
        meta = clean_meta(request.meta, hop)
        timeout = meta.get("download_timeout")
        if timeout is not None and _same(timeout, self._timeout):
            del meta["download_timeout"]
        slot = meta.get("download_slot")
        if slot is not None and (
            slot in [*copied_slots] or slot in self._automatic_slots(request, hop)
        ):
            del meta["download_slot"]
        if self._has_environment_proxy(meta):
            meta = {key: value for key, value in meta.items() if key not in PROXY_KEYS}
        return meta

    def _automatic_slots(self, request: Request, hop: bool) -> list[str]:
        # The request's own may go in any case: it would be set again.
        slots = [self._automatic_slot(request.url)]
        # A redirect hop has the slot of the URL that redirected.
        if hop and (urls := request.meta.get("redirect_urls")):
            slots.append(self._automatic_slot(urls[-1]))
        return slots


def _same(one: object, other: object) -> bool:
    return type(one) is type(other) and one == other


def _host_and_port(proxy: Any) -> str | None:
    text = str(proxy)
    try:
        return urlsplit(text if "://" in text else f"//{text}").netloc.rpartition("@")[2] or None
    except ValueError:
        return None

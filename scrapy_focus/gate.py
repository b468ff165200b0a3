"""One request at a time goes to a server whose robots.txt is not known yet."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from scrapy import Request

if TYPE_CHECKING:
    from scrapy_focus.flights import Flight


class RobotsGate:
    """Keeps requests back while another one waits for the same robots.txt.

    Scrapy's RobotsTxtMiddleware (2.18, 2.19) lets whoever waits as the third, and those
    after it, pass unchecked once the file is there. The frontier opens a pace group for one
    request at a time at first; but a group may have several servers (ports, a user's own
    ``download_slot``), each with a robots.txt of its own.

    :param obey: whether robots.txt is obeyed at all
    """

    def __init__(self, obey: bool) -> None:
        self._obey = obey
        #: Servers whose robots.txt is known to the middleware, or will never be.
        self._known: set[str] = set()
        self._parsed: set[str] = set()
        #: By server, the request that makes Scrapy fetch its robots.txt.
        self._asking: dict[str, Request] = {}
        self._kept: dict[str, deque[Flight]] = {}

    def __bool__(self) -> bool:
        """Whether requests are kept back."""
        return bool(self._kept)

    def knows(self, request: Request) -> bool:
        """Whether a request need not wait for its server's robots.txt."""
        return not self._obey or server_of(request) in self._known or _exempt(request)

    def is_stuck(self, request: Request) -> bool:
        """Whether the middleware would fail to ask for the request's robots.txt, and the next
        request of that kind would wait for it without end: ``view-source:`` and the like have no
        server."""
        if not self._obey or server_of(request) or _exempt(request):
            return False
        try:
            Request(f"{urlsplit(request.url).scheme}:///robots.txt")
        except ValueError:
            return True
        return False

    def admit(self, flight: Flight) -> bool:
        """Whether a request may go now; else it is kept."""
        if self.knows(flight.request):
            return True
        server = server_of(flight.request)
        if server not in self._asking:
            self._asking[server] = flight.request
            return True
        self._kept.setdefault(server, deque()).append(flight)
        return False

    def settle(self, request: Request) -> None:
        """A request has passed the middleware and reached the downloader: its server's
        robots.txt is known, or cannot be had."""
        if self._obey and not _exempt(request):
            self._known.add(server_of(request))

    def robots_parsed(self, request: Request) -> None:
        """Handler of :signal:`robots_parsed`. Whoever comes now would still have to wait."""
        self._parsed.add(server_of(request))

    def left(self, request: Request) -> None:
        """A request was refused or answered on its way to the downloader. If it was the one
        that asks, the file is known, or the next one asks."""
        if not self._asking:
            return
        server = server_of(request)
        if self._asking.get(server) is request:
            del self._asking[server]
            if server in self._parsed:
                self._known.add(server)

    def next(self) -> Flight | None:
        """A request that was kept and may go now."""
        for server, flights in self._kept.items():
            if server in self._known or server not in self._asking:
                flight = flights.popleft()
                if not flights:
                    del self._kept[server]
                if server not in self._known:
                    self._asking[server] = flight.request
                return flight
        return None

    def drain(self) -> list[Flight]:
        """All that is kept, to be given back."""
        flights = [flight for kept in self._kept.values() for flight in kept]
        self._kept.clear()
        return flights


def server_of(request: Request) -> str:
    """What has a robots.txt of its own, as Scrapy sees it: host and port."""
    return urlsplit(request.url).netloc


def _exempt(request: Request) -> bool:
    return bool(request.meta.get("dont_obey_robotstxt")) or request.url.startswith(
        ("data:", "file:")
    )

"""Follows each request that was handed out, by Scrapy's signals, until it is finished."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from scrapy import signals
from scrapy.exceptions import (
    DownloadCancelledError,
    DownloadConnectionRefusedError,
    NotSupported,
    UnsupportedURLSchemeError,
)
from twisted.internet.defer import CancelledError

from scrapy_focus.frontier import Ending

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response

    from scrapy_focus.opening import Crawl
    from scrapy_focus.writer import Writer

logger = logging.getLogger(__name__)

#: What a download ends with if its URL cannot be asked for. Nobody was: a page must not be
#: able to have another host left alone, by links to ``odd://host/``.
_UNSUPPORTED = (NotSupported, UnsupportedURLSchemeError, ValueError)


class Watcher:
    """Learns how leases end.

    :param changed: called when a host may have opened, or a row may wait again
    :param finished: called when a page is finished
    """

    def __init__(
        self,
        crawl: Crawl,
        writer: Writer,
        changed: Callable[[], None],
        finished: Callable[[], None],
    ) -> None:
        self._crawl = crawl
        self._flights = crawl.flights
        self._pacer = crawl.pacer
        self._clock = crawl.clock
        self._writer = writer
        self._changed = changed
        self._finished = finished
        connect = crawl.crawler.signals.connect
        connect(self._reached, signals.request_reached_downloader)
        connect(self._downloaded, signals.response_downloaded)
        connect(self._left, signals.request_left_downloader)
        connect(self._received, signals.response_received)
        connect(self._pacer.robots_parsed, signals.robots_parsed)
        connect(crawl.gate.robots_parsed, signals.robots_parsed)

    def _reached(self, request: Request) -> None:
        flight, now = self._flights.get(request), self._clock()
        if flight:
            self._flights.reached(flight, request.meta.get("download_slot"))
            self._crawl.gate.settle(request)
            if self._crawl.gate:
                self._crawl.engine.wake()
        # A process that was stopped for long may have lost its leases: others have been there.
        if flight and (flight.lease.until <= now or self._pacer.is_early(flight, now)):
            self._pacer.slow_down(request, flight)
            self._crawl.engine.take_back(request)
        else:
            self._pacer.reached(request, flight, now)
        self._changed()

    def _downloaded(self, response: Response, request: Request) -> None:
        flight = self._flights.get(request)
        if flight:
            flight.downloaded = True
            flight.size += len(response.body)
            self._pacer.answered(response, flight, self._clock())
        else:
            self._pacer.overheard(response, request, self._clock())

    def _left(self, request: Request) -> None:
        flight = self._flights.get(request)
        if not flight:
            return
        now = self._clock()
        self._flights.leave(flight)
        if not flight.downloaded:
            # Sent from a finally clause: the exception that ended the download is at hand.
            error = sys.exc_info()[1]
            if isinstance(error, (asyncio.CancelledError, CancelledError)):
                flight.cancelled = True
            elif isinstance(error, _UNSUPPORTED):
                flight.trouble = "unsupported"
            elif isinstance(error, DownloadCancelledError):
                flight.trouble = "response_refused"  # it is too large
            else:
                self._pacer.failed(
                    flight, now, refused=isinstance(error, DownloadConnectionRefusedError)
                )
        self._writer.left(flight.lease, now, fetched=not flight.unsupported, size=flight.size)
        self._changed()

    def _received(self, response: Response, request: Request) -> None:
        flight = self._flights.get(request) or self._flights.get(response.request)
        if not flight:
            return
        flight.received = True
        if not flight.reached:
            # A cache or a middleware answered: the host was not touched.
            self._flights.leave(flight)
            self._crawl.gate.left(flight.request)
            self._pacer.settle_robots(flight.lease.candidate.group)
            self._writer.left(flight.lease, self._clock(), fetched=False)
            self._changed()

    def leaving(self, request: Request) -> None:
        """A request has left ``inprogress``: it is finished, callback, items and all."""
        flight = self._flights.pop(request)
        if flight is None:
            return
        forbidden = not flight.reached and self._pacer.forbids(request)
        outcome = flight.outcome(forbidden)
        self._crawl.gate.left(request)
        if self._crawl.gate.knows(request):
            self._pacer.settle_robots(flight.lease.candidate.group)
        stats = self._crawl.stats
        if outcome.ending is Ending.DONE:
            stats.inc_value("focus/done")
            if flight.redirected and not flight.received:
                stats.inc_value("focus/redirected")
        elif outcome.ending is Ending.FAILED:
            stats.inc_value("focus/failed")
            stats.inc_value(f"focus/failed/{outcome.reason}")
        elif outcome.ending is Ending.DROPPED:
            stats.inc_value(f"focus/dropped/{outcome.reason}")
        self._writer.settle(outcome)
        self._tell_chain(flight.lease.candidate, outcome)
        self._finished()

    def _tell_chain(self, candidate: object, outcome: object) -> None:
        try:
            self._crawl.chain.settled(candidate, outcome)  # type: ignore[arg-type]
        except Exception:
            logger.exception("A plugin cannot take in how %s ended", candidate)

"""What this process has handed out and not yet seen the end of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scrapy_focus.candidate import Candidate
from scrapy_focus.frontier import Ending, Lease, Outcome

if TYPE_CHECKING:
    from scrapy import Request


@dataclass(slots=True, eq=False)
class Flight:
    """A request on its way: what has been seen of it so far."""

    lease: Lease
    request: Request
    #: When it was handed out (Unix time, seconds).
    since: float
    url: str = ""
    retry_times: int = 0
    redirect_times: int = 0
    #: The user's own ``download_slot``.
    own_slot: str | None = None
    #: The downloader has had it; it has left the downloader again.
    reached: bool = False
    left: bool = False
    #: A response came, whatever became of it; it was passed on to the spider.
    downloaded: bool = False
    received: bool = False
    redirected: bool = False
    #: The download was cancelled from outside: nothing is known of its end.
    cancelled: bool = False
    #: Why it has failed, if it does.
    trouble: str = "unreachable"
    #: Reason for which its retry was refused at the door.
    refused: str | None = None
    retry: Candidate | None = None
    size: int = 0

    def outcome(self, forbidden: bool) -> Outcome:
        """How it ended, now that it is finished.

        :param forbidden: whether the host's robots.txt refuses it
        """
        ending, reason = self._ending(forbidden)
        return Outcome(
            self.lease,
            ending,
            reason,
            fetched=self.reached and (self.left or self.downloaded) and not self.unsupported,
            size=self.size,
            retry=self.retry if ending is Ending.RETRY else None,
        )

    def _ending(self, forbidden: bool) -> tuple[Ending, str]:
        if self.retry:
            return Ending.RETRY, ""
        if self.refused:
            return Ending.DROPPED, self.refused
        if self.received or self.redirected:
            return Ending.DONE, ""
        if not self.reached:
            return Ending.DROPPED, "robots" if forbidden else "middleware"
        if self.cancelled or not self.left:
            return Ending.RELEASED, ""
        if self.downloaded:
            # A downloader middleware refused the response, e.g. one redirect too many.
            return Ending.FAILED, "response_refused"
        return Ending.FAILED, self.trouble

    @property
    def unsupported(self) -> bool:
        """Whether it was never sent: nothing here downloads such a URL."""
        return self.trouble == "unsupported"


@dataclass(slots=True)
class Flights:
    """All flights, by what can be asked of them."""

    fingerprint: Callable[[Request], bytes]
    #: By the request object itself: ids are reused, and meta is copied.
    _by_request: dict[Request, Flight] = field(default_factory=dict)
    _by_url: dict[str, list[Flight]] = field(default_factory=dict)
    #: Slots that the downloader has written into the meta of what is in flight.
    _slots: Counter[str] = field(default_factory=Counter)
    _places: Counter[str] = field(default_factory=Counter)

    def __len__(self) -> int:
        return len(self._by_request)

    def __iter__(self) -> Iterator[Flight]:
        return iter(list(self._by_request.values()))

    def get(self, request: Request | None) -> Flight | None:
        return self._by_request.get(request) if request is not None else None

    def add(self, flight: Flight) -> None:
        meta = flight.request.meta
        flight.url = flight.request.url
        flight.retry_times = meta.get("retry_times", 0)
        flight.redirect_times = meta.get("redirect_times", 0)
        flight.own_slot = meta.get("download_slot")
        group = flight.lease.candidate.group
        if flight.own_slot is None and group and not _is_spelt(flight.url, group):
            # Under each of its names a host would have a slot of its own in the downloader, which
            # is what spaces requests that were late on their way to it.
            meta["download_slot"] = group
        self._by_request[flight.request] = flight
        self._by_url.setdefault(flight.url, []).append(flight)
        self._places[group] += 1

    def leave(self, flight: Flight) -> None:
        """A request has left the downloader, or was answered before it came there."""
        self._free(flight)
        flight.left = True

    def _free(self, flight: Flight) -> None:
        if flight.left:
            return
        group = flight.lease.candidate.group
        self._places[group] -= 1
        if not self._places[group]:
            del self._places[group]

    def places(self, group: str) -> int:
        """How many requests to a pace group have not left the downloader."""
        return self._places[group]

    def pop(self, request: Request) -> Flight | None:
        flight = self._by_request.pop(request, None)
        if flight is None:
            return None
        same_url = self._by_url[flight.url]
        same_url.remove(flight)
        if not same_url:
            del self._by_url[flight.url]
        self._free(flight)
        slot = flight.request.meta.get("download_slot")
        if flight.reached and flight.own_slot is None and slot is not None:
            self._slots[slot] -= 1
            if self._slots[slot] <= 0:
                del self._slots[slot]
        return flight

    def reached(self, flight: Flight, slot: str | None) -> None:
        """The downloader has the request and has written its slot into its meta, which is
        not the user's own."""
        if not flight.reached and flight.own_slot is None and slot is not None:
            self._slots[slot] += 1
        flight.reached = True

    @property
    def slots(self) -> Collection[str]:
        """Slots that the downloader chose for what is in flight. In the meta of another
        request such a ``download_slot`` was copied, not meant."""
        return self._slots.keys()

    def retried_by(self, request: Request, fingerprint: bytes) -> Flight | None:
        """The flight whose next attempt this request is."""
        times = request.meta.get("retry_times", 0)
        if not times:
            return None
        for flight in self._by_request.values():
            if (
                flight.retry_times + 1 == times
                and flight.retry is None
                and self._is_same(flight, fingerprint)
            ):
                return flight
        return None

    def _is_same(self, flight: Flight, fingerprint: bytes) -> bool:
        if flight.lease.candidate.key == fingerprint:
            return True
        # It has a key of its own, or a fingerprint of an earlier run's.
        try:
            return self.fingerprint(flight.request) == fingerprint
        except Exception:  # noqa: BLE001 - a user's own fingerprinter may raise anything
            return False

    def redirected_by(self, request: Request) -> Flight | None:
        """The flight that redirected to this request."""
        urls = request.meta.get("redirect_urls")
        if not urls:
            return None
        times = request.meta.get("redirect_times", 0)
        for flight in self._by_url.get(urls[-1], ()):
            if flight.redirect_times + 1 == times and not flight.redirected:
                return flight
        return None


def _is_spelt(url: str, host: str) -> bool:
    """Whether a URL has its host in the canonical form."""
    start = url.find("//") + 2
    end = start + len(host)
    return url.startswith(host, start) and url[end : end + 1] in ":/?#"

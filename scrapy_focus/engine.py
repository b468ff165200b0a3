"""What scrapy_focus needs of Scrapy beyond its public interface, all in one place.

Each private name is looked for when the crawl opens, and a missing one is refused with a
sentence: better no crawl than one whose outcomes nobody sees.
"""

from __future__ import annotations

import gc
import inspect
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from types import FrameType, GeneratorType
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from scrapy import Request, __version__
from scrapy.crawler import Crawler
from scrapy.exceptions import IgnoreRequest
from scrapy.utils.asyncio import CallLaterResult, call_later

from scrapy_focus.exceptions import Unsupported

if TYPE_CHECKING:
    from scrapy import Spider
    from scrapy.core.downloader import Slot


#: For how many seconds start requests are read without a pause.
_TURN = 0.002
#: Seconds for which a slot sends nothing while a request is taken back.
_MOMENT = 0.05


class Engine:
    """The running engine of a crawl, or nothing where a scheduler is used without one."""

    def __init__(self, crawler: Crawler) -> None:
        try:
            self._engine: Any = crawler.engine
        except RuntimeError:
            self._engine = None
        self._slot: Any = getattr(self._engine, "_slot", None)
        self.seeds = Seeds()
        #: Whether the scheduler has nothing to hand out, as far as it knows.
        self.quiet: Callable[[], bool] = lambda: False

    def __bool__(self) -> bool:
        return self._slot is not None

    def check(self) -> None:
        """Look for every private name that is used here.

        :raises scrapy_focus.exceptions.Unsupported: if one is missing
        """
        needed = {
            "engine._start": hasattr(self._engine, "_start"),
            "engine._slot.inprogress": isinstance(getattr(self._slot, "inprogress", None), set),
            "engine._slot.nextcall": hasattr(self._slot, "nextcall"),
            "engine._slot.closing": hasattr(self._slot, "closing"),
            "engine.downloader.slots": hasattr(self._engine.downloader, "slots"),
        }
        missing = [name for name, found in needed.items() if not found]
        if missing:
            raise Unsupported(
                f"scrapy_focus needs {', '.join(missing)}, which Scrapy {__version__} or the "
                "DOWNLOADER in use does not have: use Scrapy's own DOWNLOADER, and a version of "
                "scrapy_focus that knows this Scrapy."
            )

    def is_tool(self, spider: Spider) -> bool:
        """Whether it is ``scrapy shell``, ``fetch``, ``parse`` or ``check`` that runs."""
        start = getattr(type(spider), "start", None)
        module = getattr(start, "__module__", None) or ""
        return module.startswith("scrapy.commands.") or (
            self._slot is not None and not self._slot.close_if_idle
        )

    def watch(self, leaves: Callable[[Request], None]) -> None:
        """Call *leaves* with each request that leaves ``inprogress``: it is finished then,
        callback, items and all. There is no signal for it."""
        self._slot.inprogress = _InProgress(self._slot.inprogress, leaves)
        start = self._engine._start
        if start is not None:
            self._engine._start = _Followed(start, self)

    def crawl(self, request: Request) -> None:
        """Take a request in, as the engine does with what the spider yields."""
        self._engine.crawl(request)

    @property
    def closing(self) -> bool:
        """Whether the crawl takes nothing new."""
        return self._slot is not None and self._slot.closing is not None

    @property
    def asks_in_vain(self) -> bool:
        """Whether a running engine that asked for a request now would get none."""
        return self._engine.running and not self.closing and self.quiet()

    @property
    def room(self) -> int:
        """How many requests the downloader would take now, at least 1."""
        downloader = self._engine.downloader if self._engine else None
        total = getattr(downloader, "total_concurrency", 1)
        return max(1, total - len(getattr(downloader, "active", ())))

    def wake(self) -> None:
        """Let the engine ask for the next request."""
        # Never with a delay: while one is pending every other call is a no-op.
        if self._slot is not None and not self.closing:
            self._slot.nextcall.schedule()

    def slot(self, key: str | None) -> Slot | None:
        """The downloader's slot of that key, if there is one now."""
        slots: dict[str, Slot] = self._engine.downloader.slots if self._engine else {}
        return slots.get(key) if key is not None else None

    def slow_down(self, key: str | None, delay: float, *, own: bool) -> None:
        """Set a downloader slot to the frontier's pace.

        The frontier draws the jitter; a second draw would make every request late. What
        bypasses the frontier (robots.txt, media) still keeps to *delay* seconds.

        :param own: whether the delay is the frontier's to set; else it is AutoThrottle's,
            and is only raised
        """
        slot = self.slot(key)
        if slot is None:
            return
        if hasattr(slot, "jitter"):
            slot.jitter = 0.0
        else:
            slot.randomize_delay = False
        slot.delay = delay if own else max(slot.delay, delay)

    def wait(self, request: Request, seconds: float) -> None:
        """Let a request that has just reached the downloader wait there."""
        slot = self.slot(request.meta.get("download_slot"))
        if slot is not None:
            # It is sent when the slot's delay has passed since then.
            slot.delay = max(slot.delay, seconds)
            slot.lastseen = max(slot.lastseen, time.monotonic() + seconds - slot.delay)

    def take_back(self, request: Request) -> None:
        """Take a request back that has just reached the downloader, before it is sent."""
        slot = self.slot(request.meta.get("download_slot"))
        if slot is not None:
            # A delay that counts from now on keeps the slot from sending anything in this turn.
            # It is set anew for the next request.
            slot.delay = max(slot.delay, _MOMENT)
            slot.lastseen = time.monotonic()
        call_later(0, self.drop_queued, [request])

    def drop_queued(self, requests: Iterable[Request]) -> None:
        """Take requests back that wait in the downloader for their turn: on closing nobody
        should wait for a site's delay."""
        wanted = set(requests)
        for slot in list(self._engine.downloader.slots.values()):
            for entry in [entry for entry in slot.queue if entry[0] in wanted]:
                slot.queue.remove(entry)
                # It is no failure: it goes back to the frontier, with its errback.
                entry[0].errback = None
                entry[1].errback(IgnoreRequest("Given back to the frontier"))


class _InProgress(set[Request]):
    """The engine's set of requests in progress; tells when one leaves."""

    def __init__(self, requests: Iterable[Request], leaves: Callable[[Request], None]) -> None:
        super().__init__(requests)
        self._leaves = leaves

    def remove(self, request: Request) -> None:
        super().remove(request)
        self._leaves(request)


class Seeds:
    """Reads the spider's start requests and remembers which objects they are.

    Nothing else proves a seed: ``is_start_request`` is in meta, and meta is copied.
    """

    def __init__(self) -> None:
        self._requests: WeakSet[Request] = WeakSet()
        #: Called with each start request as the spider yields it; must not raise.
        self.offered: Callable[[Request], None] = lambda request: None
        #: How many start requests the spider has yielded so far.
        self.count = 0

    def __contains__(self, request: Request) -> bool:
        return request in self._requests

    def saw(self, request: Request) -> None:
        self.count += 1
        self._requests.add(request)
        self.offered(request)


class _Followed:
    """An asynchronous iterator that shows each request that passes.

    After each one that it gets the engine turns to whatever else there is to do and asks the
    scheduler, which costs as much as to take one in. As long as it would ask in vain, a few are
    taken in here, one after the other.
    """

    def __init__(self, source: AsyncIterator[Any], engine: Engine) -> None:
        self._source = source
        self._engine = engine

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        engine, until = self._engine, time.monotonic() + _TURN
        while True:
            item = await anext(self._source)
            if not isinstance(item, Request):
                return item
            engine.seeds.saw(item)
            if time.monotonic() >= until or not engine.asks_in_vain:
                return item
            engine.crawl(item)


class Timer:
    """One delayed call that can be set again and again."""

    def __init__(self, action: Callable[[], None]) -> None:
        self._action = action
        self._call: CallLaterResult | None = None

    @property
    def pending(self) -> bool:
        return self._call is not None

    def set(self, delay: float) -> None:
        """Act after *delay* seconds instead of whenever it was due."""
        self.cancel()
        self._call = call_later(max(0.0, delay), self._fire)

    def cancel(self) -> None:
        if self._call is not None:
            self._call.cancel()
            self._call = None

    def _fire(self) -> None:
        self._call = None
        self._action()


def scheduler_of(crawler: Crawler) -> Any:
    """The scheduler of a running crawl."""
    # engine.scheduler is new in Scrapy 2.19.
    engine: Any = crawler.engine
    return engine._slot.scheduler


def spider_arguments(crawler: Crawler) -> dict[str, Any]:
    """The arguments that a crawl's spider was made with.

    Scrapy keeps them nowhere but in the frame of :meth:`Crawler.crawl_async
    <scrapy.crawler.Crawler.crawl_async>` or :meth:`Crawler.crawl
    <scrapy.crawler.Crawler.crawl>`. Should that not be found, they are what the spider has
    kept of them under their own names.
    """
    codes = {inspect.unwrap(crawl).__code__ for crawl in (Crawler.crawl_async, Crawler.crawl)}
    for frame in _frames(crawler):
        if frame.f_code in codes and frame.f_locals.get("self") is crawler:
            positional = {str(i): value for i, value in enumerate(frame.f_locals["args"])}
            return {**positional, **frame.f_locals["kwargs"]}
    return _kept_arguments(crawler.spider)


def _frames(crawler: Crawler) -> Iterator[FrameType]:
    """The frames below this call; then those that wait, of which one holds the crawler:
    with the asyncio reactor ``Crawler.crawl`` waits for a task, which makes this call."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back
    for holder in gc.get_referrers(crawler):
        # Python 3.10 keeps a generator's frame as an object of its own.
        waiting = holder.gi_frame if isinstance(holder, GeneratorType) else holder
        if isinstance(waiting, FrameType):
            yield waiting


def _kept_arguments(spider: Any) -> dict[str, Any]:
    parameters = inspect.signature(type(spider).__init__).parameters
    named = {
        name
        for name, parameter in parameters.items()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }
    own_init = not type(spider).__init__.__module__.startswith("scrapy.")
    hidden = {"self", "name", "crawler", "settings", "start_urls", "allowed_domains"}
    return {
        key: value
        for key, value in vars(spider).items()
        if isinstance(value, (str, int, float))
        and key not in hidden
        and not key.startswith("_")
        and (key in named or not own_init)
    }

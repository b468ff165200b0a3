"""(g) How long one call of ours holds the reactor, in a crawl with a million URLs waiting.

A whole crawl goes on with a filled frontier: 16 at once, a delay of a second a host, pages
of ten links to pages and hosts that are new or known, and every call of ours is timed from
outside: the scheduler's methods, handlers of signals, timers, and what follows a request
that has finished. A call within a call counts as a part of it; ``open`` and ``close`` are
exempt. Milliseconds on the wall, so what else the machine does is in them too; the last
column is the same by this thread's CPU time. The web server is the crawl's proxy, so that
hosts can have any name.
"""

from __future__ import annotations

import inspect
import os
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

from scrapy_focus import Scheduler
from scrapy_focus.engine import Engine, Timer
from tests.benchmarks.bench import Bench, Fill, Sample, at, middle
from tests.benchmarks.crawling import crawl
from tests.benchmarks.frontiers import quantile
from tests.benchmarks.peers import OURS, settings_of
from tests.benchmarks.server import Server
from tests.benchmarks.tables import Check, Report, Table

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

_METHODS = ("enqueue_request", "next_request", "has_pending_requests")
_SHARES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
#: A kind of call has a p99.9 if there are so many of it.
_ENOUGH = 1_000


def run(bench: Bench) -> Report:
    urls, hosts = bench.pick((500, 50), (50_000, 5_000), (1_000_000, 100_000))
    pages = bench.pick(30, 500, 5_000)
    with Server("endless", hosts=2 * hosts) as server:
        case = partial(
            bench.measure,
            "reactor:measure",
            path=Fill(urls, hosts),
            port=server.port,
            pages=pages,
        )
        samples = bench.alternate({"crawl": case})
    found = samples["crawl"]
    table = Table(
        f"One call of ours in the reactor, {urls:,} URLs waiting on {hosts:,} hosts: ms",
        ("call", "calls", *_SHARES, "p99.9 of CPU"),
    )
    for kind in sorted({kind for s in found for kind in s.get("kinds", ())}):
        have = [s["kinds"][kind] for s in found if kind in s.get("kinds", ())]
        row = [middle(have, at(share)) for share in _SHARES]
        cpu = middle(have, at("cpu p99.9"))
        table.rows.append([kind, round(middle(have, at("calls")) or 0), *row, cpu])
    what = f"one call of ours in the reactor, p99.9, {urls:,} waiting"
    checks = [
        Check(f"{what}, all calls", middle(found, lambda s: _worst(s, "all")), 5, unit="ms"),
        Check(f"{what}, worst kind of call", middle(found, _worst), 5, unit="ms"),
    ]
    return Report("reactor", [table], checks, samples=samples)


def _worst(sample: Sample, kind: str | None = None) -> float | None:
    """The longest p99.9 of all kinds that have one."""
    kinds = sample["kinds"] if kind is None else {kind: sample["kinds"][kind]}
    return max((k["p99.9"] for k in kinds.values() if k["calls"] >= _ENOUGH), default=None)


# -- in the child ---------------------------------------------------------------------


def measure(path: str, port: int, pages: int) -> Sample:
    os.environ.update(http_proxy=f"http://127.0.0.1:{port}", no_proxy="")
    stopwatch = Stopwatch()
    stopwatch.patch()
    settings = {**settings_of(OURS, None), "DOWNLOAD_DELAY": 1.0, "CLOSESPIDER_PAGECOUNT": pages}
    result = crawl(settings, [], watch=stopwatch.watch)
    if result["pages"] < pages:
        raise RuntimeError(f"only {result['pages']} pages were fetched")
    return {**result, "kinds": stopwatch.figures()}


class Stopwatch:
    """Times the outermost calls into scrapy_focus."""

    def __init__(self) -> None:
        self._wall: dict[str, list[int]] = defaultdict(list)
        self._cpu: dict[str, list[int]] = defaultdict(list)
        self._within = False
        #: Signals refer to their handlers weakly.
        self._handlers: list[Any] = []

    def timed(self, kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._within:
                return function(*args, **kwargs)
            self._within = True
            wall, cpu = time.perf_counter_ns(), time.thread_time_ns()
            try:
                return function(*args, **kwargs)
            finally:
                self._cpu[kind].append(time.thread_time_ns() - cpu)
                self._wall[kind].append(time.perf_counter_ns() - wall)
                self._within = False

        return call

    def patch(self) -> None:
        """Time what the engine and the reactor call directly."""
        for name in _METHODS:
            setattr(Scheduler, name, self.timed(name, getattr(Scheduler, name)))
        Timer._fire = self.timed("timer", Timer._fire)  # type: ignore[method-assign]
        watch = Engine.watch

        def timed_watch(self_: Engine, leaves: Callable[..., None]) -> None:
            watch(self_, self.timed("finished", leaves))

        Engine.watch = timed_watch  # type: ignore[assignment, method-assign]

    def watch(self, crawler: Crawler) -> None:
        """Time the handlers of signals that are ours and answer at once."""
        connect = crawler.signals.connect

        def timed_connect(receiver: Any, signal: Any, **kwargs: Any) -> None:
            module = getattr(receiver, "__module__", "") or ""
            if module.startswith("scrapy_focus.") and not inspect.iscoroutinefunction(receiver):
                receiver = self._handler(receiver)
            connect(receiver, signal, **kwargs)

        crawler.signals.connect = timed_connect  # type: ignore[method-assign]

    def _handler(self, receiver: Callable[..., Any]) -> Callable[..., Any]:
        names = set(inspect.signature(receiver).parameters)
        timed = self.timed("signal", receiver)

        def handler(**named: Any) -> Any:
            return timed(**{name: value for name, value in named.items() if name in names})

        self._handlers.append(handler)
        return handler

    def figures(self) -> dict[str, dict[str, float]]:
        """By kind of call, in milliseconds."""
        for times in (self._wall, self._cpu):
            times["all"] = [value for values in list(times.values()) for value in values]
        return {kind: self._figures(kind) for kind in sorted(self._wall)}

    def _figures(self, kind: str) -> dict[str, float]:
        wall, cpu = self._wall[kind], self._cpu[kind]
        shares = {name: quantile(wall, share) / 1e6 for name, share in _SHARES.items()}
        return {"calls": len(wall), **shares, "cpu p99.9": quantile(cpu, 0.999) / 1e6}

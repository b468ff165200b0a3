"""(h) How late a host is touched once it may be, and how busy that keeps a crawl.

Crawls of loopback hosts that always have something waiting, without jitter. *Lateness* is
how much longer than the delay a host was left alone, as the web server saw it: with one host
nothing but the wake-up leads to the next request. *Utilisation* is pages a second against
the ideal, min(slots ÷ fetch time, hosts ÷ (delay + fetch time)), with the fetch time that
was measured; pages count once the crawl has run for some seconds. Beside it is what Scrapy's
memory scheduler makes of the same.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from scrapy import signals

from tests.benchmarks.bench import Bench, Sample, at, middle
from tests.benchmarks.crawling import crawl
from tests.benchmarks.frontiers import quantile
from tests.benchmarks.peers import MEMORY, OURS, settings_of
from tests.benchmarks.server import Server
from tests.benchmarks.tables import Check, Report, Table

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response


@dataclass(frozen=True)
class Setting:
    """A crawl that waits for its hosts.

    :param delay: seconds between two requests to a host
    :param fetch: seconds until the server answers
    """

    hosts: int
    delay: float
    fetch: float
    slots: int = 16

    def __str__(self) -> str:
        hosts = "1 host" if self.hosts == 1 else f"{self.hosts} hosts"
        answer = f", answers after {self.fetch:g} s" if self.fetch else ""
        return f"{hosts} at {self.delay:g} s{answer}"


_ONE = Setting(1, 0.2, 0.0)
_SOME = Setting(20, 0.2, 0.0)
_FULL = Setting(200, 0.2, 0.1)
_FAR = Setting(200, 0.2, 0.25)
_SLOW = Setting(200, 2.0, 0.0)


def run(bench: Bench) -> Report:
    settings = bench.pick([_ONE], [_ONE, _SOME, _FULL], [_ONE, _SOME, _FULL, _FAR, _SLOW])
    warm, seconds = bench.pick((0.2, 0.8), (2.0, 5.0), (4.0, 15.0))
    report = Report("wakeup")
    table = Table(
        "Hosts that cool, without jitter",
        (
            *("crawl", "scheduler", "pages a second", "ideal", "utilisation"),
            *("late by ms, p50", "p99", "max", "CPU"),
        ),
    )
    for setting in settings:
        with Server("tree", delay=setting.fetch) as server:
            cases = {
                name: partial(
                    bench.measure,
                    "wakeup:measure",
                    peer=name,
                    port=server.port,
                    setting=asdict(setting),
                    warm=warm,
                    seconds=seconds,
                )
                for name in bench.pick([OURS], [OURS, MEMORY], [OURS, MEMORY])
            }
            samples = bench.alternate(cases)
        report.samples[str(setting)] = samples
        for name, found in samples.items():
            row = [middle(found, at(part)) for part in _PARTS]
            table.rows.append([str(setting), name, *row])
        report.checks += _checks(setting, samples[OURS])
    report.tables = [table]
    return report


_PARTS = ("rate", "ideal", "utilisation", "late p50", "late p99", "late max", "cpu")


def _checks(setting: Setting, ours: list[Sample]) -> list[Check]:
    if setting in (_ONE, _SOME):
        late = middle(ours, at("late p99"))
        return [Check(f"wake-up lateness p99, {setting}", late, 50, unit="ms")]
    used = middle(ours, at("utilisation"))
    return [Check(f"utilisation against the ideal, {setting}", used, 0.95, least=True)]


# -- in the child ---------------------------------------------------------------------


def measure(peer: str, port: int, setting: dict[str, Any], warm: float, seconds: float) -> Sample:
    wanted = Setting(**setting)
    arrivals = Arrivals()
    settings = {
        **settings_of(peer, None),
        "LOG_LEVEL": "WARNING",
        "DOWNLOAD_DELAY": wanted.delay,
        "DOWNLOAD_DELAY_JITTER": 0.0,
        "CONCURRENT_REQUESTS": wanted.slots,
        "CLOSESPIDER_TIMEOUT": warm + seconds + 0.5,
    }
    urls = [f"http://127.2.0.{number + 1}:{port}/0" for number in range(wanted.hosts)]
    result = crawl(settings, urls, watch=arrivals.watch)
    return {**arrivals.figures(wanted, warm, seconds), "cpu": result["cpu"] / result["seconds"]}


class Arrivals:
    """When the server received each request, by host, and how long its answer took."""

    def __init__(self) -> None:
        self._times: dict[str, list[float]] = defaultdict(list)
        self._fetches: list[float] = []
        self._start = 0.0

    def watch(self, crawler: Crawler) -> None:
        crawler.signals.connect(self._opened, signals.spider_opened)
        crawler.signals.connect(self._downloaded, signals.response_downloaded)

    def _opened(self) -> None:
        self._start = time.monotonic()

    def _downloaded(self, response: Response, request: Request) -> None:
        # The clock is one for all processes of a machine.
        received = float(response.headers["X-Received"] or 0)
        self._times[request.url.split("/")[2]].append(received)
        self._fetches.append(request.meta["download_latency"])

    def figures(self, setting: Setting, warm: float, seconds: float) -> Sample:
        start, end = self._start + warm, self._start + warm + seconds
        late: list[int] = []
        pages = 0
        for times in self._times.values():
            times.sort()
            inside = [at for at in times if start <= at < end]
            pages += len(inside)
            gaps = [b - a for a, b in pairwise(inside)]
            late += [round((gap - setting.delay) * 1e6) for gap in gaps]
        fetch = sum(self._fetches) / len(self._fetches)
        ideal = min(setting.slots / fetch, setting.hosts / (setting.delay + fetch))
        shares = {"p50": 0.5, "p99": 0.99, "max": 1.0}
        # Where the slots are the limit, hosts are late for want of one.
        timely = setting.hosts / setting.delay < setting.slots / fetch
        return {
            "rate": pages / seconds,
            "ideal": ideal,
            "utilisation": pages / seconds / ideal,
            "fetch": fetch,
            **{
                f"late {name}": quantile(late, share) / 1000 if timely else None
                for name, share in shares.items()
            },
        }

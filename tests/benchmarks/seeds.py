"""Start requests: 100,000 of ``start()`` enter in how many seconds?

On one host, and spread over 1,000 hosts, all of which cool for a minute once they were
touched: the hardest case, because the engine asks for a request after each seed. Seconds
from the first seed to the end of ``start()``, while pages come in as they may: those that
did are counted, since they cost something, too.
"""

from __future__ import annotations

import json
import os
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrapy import Request

from tests.benchmarks.bench import Bench, Sample, at, middle, ratio
from tests.benchmarks.crawling import Follow, crawl
from tests.benchmarks.machine import resident
from tests.benchmarks.peers import MEMORY, OURS, settings_of
from tests.benchmarks.server import Server
from tests.benchmarks.tables import Check, Report, Table

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_DELAY = 60.0


def run(bench: Bench) -> Report:
    seeds = bench.pick(300, 10_000, 100_000)
    with Server("tree") as server:
        cases = {
            f"{name}, {hosts:,} host{'s' * (hosts > 1)}": partial(
                bench.measure,
                "seeds:measure",
                peer=name,
                port=server.port,
                seeds=seeds,
                hosts=hosts,
            )
            for hosts in bench.pick([10], [1, 1_000], [1, 1_000])
            for name in (OURS, MEMORY)
        }
        samples = bench.alternate(cases)
    table = Table(
        f"{seeds:,} start requests",
        (
            *("scheduler", "seconds", "CPU seconds", "microseconds of CPU each"),
            *("CPU against memory", "pages meanwhile", "resident MB"),
        ),
    )
    checks = []
    for name, found in samples.items():
        row = [middle(found, at(part)) for part in ("seconds", "cpu")]
        each = middle(found, lambda s: s["cpu"] / seeds * 1e6)
        memory = samples[f"{MEMORY}, {name.partition(', ')[2]}"]
        against = ratio(found, memory, at("cpu"))
        size = middle(found, lambda s: s["resident"] / 1e6)
        table.rows.append([name, *row, each, against, middle(found, at("pages")), size])
        if name.startswith(OURS):
            what = f"{seeds:,} seeds enter, {name.partition(', ')[2]}"
            checks.append(Check(what, row[0], 10, unit="s", note="wanted: a few seconds"))
    return Report("seeds", [table], checks, samples=samples)


def measure(peer: str, port: int, seeds: int, hosts: int) -> Sample:
    """Does not return: it writes its result and ends the process, since a crawl whose
    downloader waits for a minute cannot be closed sooner."""
    Seeds.count, Seeds.hosts, Seeds.port = seeds, hosts, port
    settings = {**settings_of(peer, None), "DOWNLOAD_DELAY": _DELAY, "LOG_LEVEL": "WARNING"}
    return crawl(settings, [], spider=Seeds)


class Seeds(Follow):
    """Yields the seeds, and ends with them."""

    name = "seeds"
    count = hosts = port = 0

    async def start(self) -> AsyncIterator[Any]:
        wall, used = time.perf_counter(), time.process_time()
        for number in range(self.count):
            which = number % self.hosts
            host = f"127.1.{which // 250}.{which % 250 + 1}"
            yield Request(f"http://{host}:{self.port}/{number}")
        result = {
            "seconds": time.perf_counter() - wall,
            "cpu": time.process_time() - used,
            "resident": resident(),
            "pages": self.crawler.stats.get_value("response_received_count", 0),
        }
        _end(result)


def _end(result: Sample) -> None:
    Path("result.json").write_text(json.dumps(result), encoding="utf-8")
    os._exit(0)

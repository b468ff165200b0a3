"""What a long crawl holds in memory: a million URLs wait, and five million are done.

A real crawl, driven by hand, that goes on with such a frontier for some thousand pages of
ten links; against bare Scrapy, whose scheduler is a list with one request in it.
"""

from __future__ import annotations

import gc
import random
from functools import partial
from typing import TYPE_CHECKING

from scrapy import Request

from tests.benchmarks.bench import Bench, Fill, Sample, middle
from tests.benchmarks.driving import Flight, Hands, drive
from tests.benchmarks.machine import resident
from tests.benchmarks.peers import NONE, OURS, settings_of
from tests.benchmarks.server import host_name
from tests.benchmarks.tables import Check, Report, Table

if TYPE_CHECKING:
    from typing import Any

_LINKS = 10


def run(bench: Bench) -> Report:
    urls, seen = bench.pick((200, 200), (20_000, 20_000), (1_000_000, 5_000_000))
    hosts = bench.pick(20, 2_000, 100_000)
    pages = bench.pick(20, 500, 5_000)
    cases = {
        "bare Scrapy": partial(bench.measure, "memory:measure_bare", pages=pages),
        OURS: partial(
            bench.measure,
            "memory:measure",
            path=Fill(urls, hosts, seen=seen),
            hosts=hosts,
            pages=pages,
        ),
    }
    samples = bench.alternate(cases)
    bare, ours = (middle(found, lambda s: s["resident"] / 1e6) for found in samples.values())
    above = ours - bare if ours and bare else None
    title = f"Resident memory, {urls:,} waiting and {seen:,} seen on {hosts:,} hosts: MB"
    table = Table(title, ("crawl", "resident", "above bare Scrapy"))
    table.rows = [["bare Scrapy", bare, None], [OURS, ours, above]]
    what = f"resident memory above bare Scrapy, {urls:,} waiting and {seen:,} seen"
    return Report("memory", [table], [Check(what, above, 50, unit="MB")], samples=samples)


# -- in the child ---------------------------------------------------------------------


def measure_bare(pages: int) -> Sample:
    return drive(dict(NONE), partial(_crawl, pages, 1, 1))


def measure(path: str, hosts: int, pages: int) -> Sample:
    return drive(settings_of(OURS, None), partial(_crawl, pages, hosts, _LINKS))


def _crawl(pages: int, hosts: int, links: int, hands: Hands) -> dict[str, Any]:
    rng, flight = random.Random(1), Flight(hands)
    for number in range(pages):
        for link in range(links):
            url = f"http://{host_name(rng.randrange(hosts))}/{number}/{link}"
            hands.scheduler.enqueue_request(Request(url))
        request = hands.take()
        flight.add(request)
    del request
    flight.finish()
    gc.collect()
    return {"resident": resident()}

"""(c) What a lease costs along a politeness window.

A delay of 30 s and 1,500 leases at 20 ms, so that ever more hosts cool, 1,500 of 10,000 in
the end. Ranks follow the hosts, so that those that cool stand before all others: a store
that looks at them one after the other gets slower and slower. The clock is the benchmark's
own. In the frontier alone, at CPU time.
"""

from __future__ import annotations

import time
from functools import partial

from tests.benchmarks.bench import Bench, Fill, Sample, at, middle
from tests.benchmarks.frontiers import Crawl, Watch, open_frontier, stop
from tests.benchmarks.tables import Check, Report, Table

_DELAY, _STEP = 30.0, 0.02
_HOSTS = 10_000


def run(bench: Bench) -> Report:
    leases, part = bench.pick((60, 10), (1_500, 250), (1_500, 250))
    sizes = bench.pick([1_000], [100_000], [100_000, 1_000_000])
    hosts = bench.pick(100, _HOSTS, _HOSTS)
    cases = {
        f"{urls:,} URLs": partial(
            bench.measure,
            "window:measure",
            path=Fill(urls, hosts, ranks="host"),
            leases=leases,
            part=part,
        )
        for urls in sizes
    }
    samples = bench.alternate(cases)
    table = Table(
        f"A lease along a politeness window of {_DELAY:g} s: microseconds of CPU, p50",
        ("URLs", f"first {part}", f"last {part}", "ratio", "first p99", "last p99"),
    )
    checks = []
    for name, found in samples.items():
        value = middle(found, lambda s: s["last"]["cpu50"] / s["first"]["cpu50"])
        figures = [
            middle(found, at("first", "cpu50")),
            middle(found, at("last", "cpu50")),
            value,
            middle(found, at("first", "cpu99")),
            middle(found, at("last", "cpu99")),
        ]
        table.rows.append([name, *figures])
        what = f"last {part} against first {part} leases of a politeness window, {name}"
        checks.append(Check(what, value, 1.2))
    return Report("window", [table], checks, samples=samples)


def measure(path: str, leases: int, part: int) -> Sample:
    now = time.time()
    frontier = open_frontier(path, now, _DELAY, 16)
    # What opening has left to do, and the first reads of the file, belong to no window; an
    # hour later no host cools any more.
    Crawl(frontier, now, _STEP).advance(20)
    crawl = Crawl(frontier, now + 3600, _STEP)
    crawl.advance(leases)
    stop(frontier, crawl.now)
    return {"first": _part(crawl, 0, part), "last": _part(crawl, leases - part, part)}


def _part(crawl: Crawl, start: int, number: int) -> dict[str, float]:
    watch = Watch()
    watch.cpu = crawl.lease.cpu[start : start + number]
    watch.wall = crawl.lease.wall[start : start + number]
    return watch.figures()

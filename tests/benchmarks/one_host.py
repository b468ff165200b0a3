"""(e) One host with a million URLs: its queue is as long as a frontier can make it.

The frontier alone, without a delay, at CPU time.
"""

from __future__ import annotations

import time
from functools import partial

from tests.benchmarks.bench import Bench, Fill, Sample, at, middle, ratio
from tests.benchmarks.frontiers import Crawl, candidates, open_frontier, stop
from tests.benchmarks.tables import Check, Report, Table


def run(bench: Bench) -> Report:
    sizes = bench.pick([200], [1_000, 100_000], [1_000, 100_000, 1_000_000])
    turns = bench.pick(20, 300, 300)
    cases = {
        f"{urls:,} URLs": partial(
            bench.measure, "one_host:measure", path=Fill(urls, 1), turns=turns
        )
        for urls in sizes
    }
    samples = bench.alternate(cases)
    table = Table(
        "One host: microseconds of CPU a call, p50",
        ("URLs", "add", "lease", "lease p99", "settle", "page of ten links"),
    )
    for (name, found), urls in zip(samples.items(), sizes, strict=True):
        figures = [
            middle(found, at("lease", "cpu50")),
            middle(found, at("lease", "cpu99")),
            middle(found, at("settle", "cpu50")),
            middle(found, at("page", "cpu50")),
        ]
        table.rows.append([name, bench.filling(Fill(urls, 1))["add"], *figures])
    few, many = next(iter(samples)), list(samples)[-1]
    value = ratio(samples[many], samples[few], at("lease", "cpu50"))
    check = Check(f"lease p50, one host with {many} against {few}", value, 1.5)
    return Report("one_host", [table], [check], samples=samples)


def measure(path: str, turns: int) -> Sample:
    now = time.time()
    frontier = open_frontier(path, now)
    crawl = Crawl(frontier, now, 0.001)
    crawl.advance(turns)
    crawl.work(turns, candidates(1, start=10**10), 10)
    stop(frontier, crawl.now)
    return {
        "lease": crawl.lease.figures(),
        "settle": crawl.settle.figures(),
        "page": crawl.page.figures(),
    }

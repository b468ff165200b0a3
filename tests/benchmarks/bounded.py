"""How a bounded frontier bears ten million candidates, of which it keeps a hundred thousand.

The store alone: pages of ten links on many hosts, whose ranks come in no order, each page in one
transaction as a crawl does it, a page in five fetched. Against the same frontier without a bound,
for as many candidates as that takes until they are ten times the bound.
"""

from __future__ import annotations

import random
import time
from functools import partial
from pathlib import Path

from scrapy_focus.candidate import Candidate
from scrapy_focus.exceptions import FrontierBusy
from scrapy_focus.frontier import Ending, Limits, Outcome
from scrapy_focus.frontier.sqlite import SQLiteFrontier
from tests.benchmarks.bench import Bench, Sample, at, middle, ratio
from tests.benchmarks.machine import resident
from tests.benchmarks.server import host_name
from tests.benchmarks.tables import Check, Report, Table

_LINKS, _FETCHED = 10, 5


def run(bench: Bench) -> Report:
    bound = bench.pick(50, 1_000, 100_000)
    number = bench.pick(1_000, 50_000, 10_000_000)
    hosts = bench.pick(10, 100, 2_000)
    measure = partial(bench.measure, "bounded:measure", hosts=hosts)
    cases = {
        "bounded": partial(measure, number=number, bound=bound, first=10 * bound),
        "without a bound": partial(measure, number=10 * bound, bound=0, first=10 * bound),
    }
    samples = bench.alternate(cases)
    table = Table(
        f"{number:,} candidates on {hosts:,} hosts, at most {bound:,} waiting",
        ("candidates", "waiting", "resident MB", "file MB", "µs a candidate", "longest call, ms"),
    )
    bounded, free = samples["bounded"], samples["without a bound"]
    for name, found in samples.items():
        for mark in sorted(found[0].get("marks", {}), key=int):
            values = ("waiting", "resident", "file", "each", "longest")
            row = [middle(found, at("marks", mark, value)) for value in values]
            table.rows.append([f"{int(mark):,} ({name})", *row])
    last, early = str(number), str(number // 10)
    grown = ratio(bounded, bounded, at("marks", last, "resident"), at("marks", early, "resident"))
    first = str(10 * bound)
    checks = [
        Check("memory of a bounded frontier, the last tenth against the first", grown, 1.05),
        Check(
            "a candidate that is added and one shed, against one that is added",
            ratio(bounded, free, at("marks", first, "each")),
            2,
        ),
    ]
    return Report("bounded", [table], checks, samples=samples)


# -- in the child ---------------------------------------------------------------------


def measure(hosts: int, number: int, bound: int, first: int) -> Sample:
    rng = random.Random(1)
    path = Path("frontier.db")
    now = time.time()
    frontier = SQLiteFrontier(
        path, "job", pace=lambda group: (0.0, 0), now=now, limits=Limits(waiting=bound)
    )
    frontier.hurry(0.002)  # as in a crawl
    marks: dict[str, dict[str, float]] = {}
    wanted = {number * tenth // 10 for tenth in (1, 5, 10)} | {min(first, number)}
    spent = longest = 0.0
    since = 0
    for begin in range(0, number, _LINKS):
        found = []
        for link in range(begin, begin + _LINKS):
            host = host_name(rng.randrange(hosts))
            key = rng.getrandbits(160).to_bytes(20, "big")
            url = f"http://{host}/a/path/of/usual/length/{link}.html"
            found.append(
                Candidate(
                    url=url, host=host, group=host, key=key, rank=rng.random(), discovered=now
                )
            )
        done = False
        while not done:
            began = time.perf_counter()
            try:
                with frontier.transaction(soon=True):
                    frontier.add(found, now)
                    if begin // _LINKS % _FETCHED == 0:
                        leases = frontier.lease(1, now, now + 3600)
                        frontier.settle([Outcome(lease, Ending.DONE) for lease in leases], [], now)
                done = True
            except FrontierBusy:  # its own threads are at it
                time.sleep(0.005)
            took = time.perf_counter() - began
            if done:
                spent += took
                longest = max(longest, took)
        frontier.shed.clear()
        since += _LINKS
        if begin + _LINKS in wanted:
            marks[str(begin + _LINKS)] = {
                "waiting": frontier.counts(now).waiting,
                "resident": resident() / 1e6,
                "file": path.stat().st_size / 1e6,
                "each": spent / since * 1e6,
                "longest": longest * 1e3,
            }
            spent = longest = 0.0
            since = 0
    frontier.close("shutdown", finished=False, now=now)
    return {"marks": marks}

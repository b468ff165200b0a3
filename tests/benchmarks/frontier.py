"""(b) The frontier alone, in memory and in SQLite: what each call costs at each size.

URLs of 80 characters, ordinary GETs, on hosts in random order and with random ranks, so
that the best ones lie anywhere. Adds come in batches of 100, as from the Scheduler. Leases
are one at a time with a host's delay of a second, by a clock of the benchmark's own that
moves 0.15 s a lease, so that ten hosts suffice; each is settled before the next. *page* is
what the Scheduler does for a page of ten links: its settlement, the links and the next
lease in one transaction. Microseconds are the calling thread's CPU time; *reads* counts
reads from the file for each lease and its settlement, which SQLite's own cache did not have.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from tests.benchmarks.bench import Bench, Fill, Sample, at, middle, ratio
from tests.benchmarks.frontiers import (
    Crawl,
    Watch,
    add_many,
    added,
    candidates,
    in_time,
    open_frontier,
    reads_of,
    stop,
)
from tests.benchmarks.machine import resident
from tests.benchmarks.tables import Cell, Check, Report, Table

_DELAY, _STEP = 1.0, 0.15
_LINKS = 10


def run(bench: Bench) -> Report:
    report = Report("frontier")
    normal = [(1_000, 10), (100_000, 10), (100_000, 10_000), (1_000_000, 10_000)]
    normal.append((1_000_000, 100_000))
    sizes = bench.pick(
        [(200, 10)],
        [(1_000, 10), (10_000, 10), (100_000, 10_000)],
        normal,
        [*normal, (10_000_000, 100_000)],
    )
    turns = bench.pick(20, 200, 400)
    largest = bench.pick(0, 100_000, 1_000_000)
    cases = {}
    for urls, hosts in sizes:
        cases[f"SQLite {urls} {hosts}"] = partial(
            bench.measure,
            "frontier:measure_sqlite",
            path=Fill(urls, hosts),
            hosts=hosts,
            turns=turns,
        )
        if urls <= largest:
            cases[f"memory {urls} {hosts}"] = partial(
                bench.measure, "frontier:measure_memory", urls=urls, hosts=hosts, turns=turns
            )
    samples = bench.alternate(cases)
    fills = {f"SQLite {urls} {hosts}": bench.filling(Fill(urls, hosts)) for urls, hosts in sizes}
    report.samples = {**samples, "fills": fills}
    calls, whole = _tables()
    for name in cases:
        store, *place = name.split()
        shown: list[Cell] = [store, *map(int, place)]
        made = [fills[name]] if name in fills else samples[name]
        adds = [middle(made, at("add")), middle(made, at("add_last_tenth"))]
        calls.rows.append([*shown, *adds, *_calls(samples[name])])
        whole.rows.append([*shown, *_whole(samples[name], made)])
    report.tables = [calls, whole]
    report.checks = _checks(samples, fills)
    return report


def measure_sqlite(path: str, hosts: int, turns: int) -> Sample:
    now = time.time()
    opening = Watch()
    frontier = opening.time(lambda: open_frontier(path, now, _DELAY, 16))
    counting = Watch()
    frontier_counts = counting.time(lambda: frontier.counts(now))
    found = _use(Crawl(frontier, now, _STEP), hosts, turns)
    stop(frontier, now + 3600)
    return {
        **found,
        "open": opening.figures(),
        "counts": counting.figures(),
        "waiting": frontier_counts.waiting,
    }


def measure_memory(urls: int, hosts: int, turns: int) -> Sample:
    now = time.time()
    before = resident()
    frontier = open_frontier(None, now, _DELAY, 16)
    watch = add_many(frontier, candidates(hosts), urls, now)
    memory = resident() - before
    counting = Watch()
    counting.time(lambda: frontier.counts(now))
    return {
        **_use(Crawl(frontier, now, _STEP), hosts, turns),
        **added(watch, urls),
        "counts": counting.figures(),
        "filled": memory,
    }


def _use(crawl: Crawl, hosts: int, turns: int) -> dict[str, Any]:
    first = Watch()
    first.time(lambda: crawl.advance(1))
    reads = reads_of(lambda: crawl.advance(turns)) / (len(crawl.lease.cpu) - 1)
    due = Watch()
    for _ in in_time(turns):
        due.time(lambda: crawl.frontier.next_due(crawl.now))
    new = candidates(hosts, start=10**10)
    crawl.work(turns, new, _LINKS)
    return {
        "first": first.figures(),
        "lease": crawl.lease.figures(),
        "settle": crawl.settle.figures(),
        "page": crawl.page.figures(),
        "next_due": due.figures(),
        "reads": reads,
        "resident": resident(),
    }


def _tables() -> tuple[Table, Table]:
    place = ["store", "URLs", "hosts"]
    calls = Table(
        "The frontier alone: microseconds of CPU a call (p50, unless it says otherwise)",
        [
            *(*place, "add a URL", "of the last tenth", "lease", "lease mean", "lease p99"),
            *("settle", "page"),
            *("next_due", "reads"),
        ],
    )
    whole = Table(
        "The frontier alone: as a whole",
        [*place, "open ms", "counts ms", "first lease ms", "bytes a URL", "resident MB"],
    )
    return calls, whole


def _calls(samples: list[Sample]) -> list[float | None]:
    return [
        middle(samples, at("lease", "cpu50")),
        middle(samples, at("lease", "mean")),
        middle(samples, at("lease", "cpu99")),
        middle(samples, at("settle", "cpu50")),
        middle(samples, at("page", "cpu50")),
        middle(samples, at("next_due", "cpu50")),
        middle(samples, at("reads")),
    ]


def _whole(samples: list[Sample], made: list[Sample]) -> list[float | None]:
    return [
        middle(samples, _open),
        middle(samples, lambda s: s["counts"]["wall50"] / 1000),
        middle(samples, lambda s: s["first"]["wall50"] / 1000),
        middle(made, lambda s: s.get("bytes")),
        middle(samples, lambda s: s["resident"] / 1e6),
    ]


def _open(sample: Sample) -> float | None:
    """Milliseconds that opening takes, on the wall."""
    return float(sample["open"]["wall50"]) / 1000 if "open" in sample else None


def _checks(samples: dict[str, list[Sample]], fills: dict[str, Sample]) -> list[Check]:
    checks = []
    small = samples.get("SQLite 1000 10", [])
    for name, text, target in (
        ("SQLite 1000000 100000", "1 million URLs on 100,000 hosts", 1.5),
        ("SQLite 10000000 100000", "10 million URLs on 100,000 hosts", 2.0),
    ):
        large = samples.get(name, [])
        if small and large:
            lease = ratio(large, small, at("lease", "cpu50"))
            checks.append(Check(f"lease p50, {text} against 1,000 on 10", lease, target))
        if large:
            opened = middle(large, _open)
            checks.append(Check(f"open, {text}", opened, 1000, unit="ms"))
            size = fills[name]["bytes"]
            checks.append(Check(f"a waiting URL on disk, {text}", size, 250, unit="bytes"))
    many, few = samples.get("SQLite 1000000 10000", []), samples.get("SQLite 100000 10000", [])
    if many and few:
        value = ratio(many, few, _open)
        checks.append(Check("open on 10,000 hosts, 1 million URLs against 100,000", value, 1.2))
    return checks

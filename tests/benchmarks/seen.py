"""Seen sets: what a URL takes in memory and on the disk, how often a filter errs, how fast each is.

Keys are random, of 20 bytes, as fingerprints are. They come in as from the frontier, 50 at a time,
in rounds; *longest call* is the longest of all calls that a crawl's thread makes, in its own CPU
time: taking keys in, getting ready to be stored, and questions. Questions are half of known keys,
half of unknown ones. *exact* are the rows themselves, asked through their index.
"""

from __future__ import annotations

import gc
import random
import time
from functools import partial
from pathlib import Path
from typing import Any

from scrapy_focus.candidate import Candidate
from scrapy_focus.frontier import Ending, Outcome
from scrapy_focus.frontier.seen import Choice, Over, SeenSet, build_set
from scrapy_focus.frontier.sqlite import SQLiteFrontier
from tests.benchmarks.bench import Bench, Sample, at, middle
from tests.benchmarks.machine import resident
from tests.benchmarks.tables import Check, Report, Table

_SETS = ("exact", "bloom", "cuckoo", "rocksdb")
_LITTLE = 50


def run(bench: Bench) -> Report:
    urls = bench.pick(1_000, 100_000, 10_000_000)
    pages = bench.pick(300, 20_000, 200_000)
    cases = {}
    for name in _SETS:
        cases[name] = partial(bench.measure, "seen:measure", name=name, urls=urls)
        cases[f"{name} crawl"] = partial(bench.measure, "seen:crawl", name=name, pages=pages)
    samples = bench.alternate(cases)
    columns = ("set", "URLs", "memory, bytes a URL", "disk, bytes a URL", "wrong of a million")
    columns = (*columns, "adds/s", "questions/s", "longest call, ms")
    table = Table("Seen sets", columns)
    sizes = Table(
        f"The frontier's files after {pages:,} pages that are done: MB",
        ("set", "frontier", "set's own", "rows", "pages/s"),
    )
    for name in _SETS:
        keys = ("urls", "memory", "disk", "wrong", "adds", "questions", "longest")
        table.rows.append([name, *(middle(samples[name], at(key)) for key in keys)])
        found = samples[f"{name} crawl"]
        parts = ("file", "own", "rows", "pages")
        sizes.rows.append([name, *(middle(found, at(key)) for key in parts)])
    longest = [
        middle(samples[name], lambda s: s["longest"] or None) for name in _SETS if name != "exact"
    ]
    known = [number for number in longest if number is not None]
    check = Check("longest call of a seen set", max(known, default=None), 5, unit="ms")
    return Report("seen", [table, sizes], [check], samples=samples)


# -- in the child ---------------------------------------------------------------------


def measure(name: str, urls: int) -> Sample:
    path = Path("frontier.db")
    rng = random.Random(1)
    gc.disable()
    before = resident()
    if name == "exact":
        frontier = SQLiteFrontier(path, "job", pace=lambda _: (0.0, 0), now=0.0)
        began = time.perf_counter()
        for first in range(0, urls, 1000):
            keys = [rng.randbytes(20) for _ in range(min(1000, urls - first))]
            frontier.add([_candidate(key) for key in keys], 0.0)
        adds = urls / (time.perf_counter() - began)
        has: Any = frontier.seen
        longest = 0.0
    else:
        found = build_set(Choice(name), path.with_name("seen"))
        adds, longest = _fill(found, urls, rng)
        has = found.has
    memory = (resident() - before) / urls
    asked, wrong, most = _ask(has, urls)
    if name == "exact":
        frontier.close("shutdown", finished=False, now=0.0)
    else:
        found.stop()
        found.close()
    return {
        "urls": urls,
        "memory": memory,
        "disk": _size(path.parent) / urls,
        "wrong": wrong,
        "adds": adds,
        "questions": asked,
        "longest": 1000 * max(longest, most) if name != "exact" else None,
    }


def _fill(found: SeenSet, urls: int, rng: random.Random) -> tuple[float, float]:
    """Adds a second, and the longest call."""
    longest, left, took = 0.0, urls, 0.0
    clock = time.thread_time
    while left:
        number = min(left, max(10_000, min(100_000, found.count // 50)))
        rows = [
            Over(0, rng.randbytes(20), 0, 1, 1, f"www.host{row % 1000}.example", 1e9)
            for row in range(number)
        ]
        began, last = time.perf_counter(), clock()
        for first in range(0, number, _LITTLE):
            found.add(rows[first : first + _LITTLE])
            now = clock()
            longest, last = max(longest, now - last), now
        more = True
        while more:
            more = found.prepare()
            now = clock()
            longest, last = max(longest, now - last), now
        found.store(found.round + 1)
        took += time.perf_counter() - began
        left -= number
    return urls / took, longest


def _ask(has: Any, urls: int) -> tuple[float, float, float]:
    """Questions a second, how many of a million unknown keys are taken for known ones, and the
    longest call."""
    number = min(urls, 500_000)
    same, other = random.Random(1), random.Random(2)
    known = [same.randbytes(20) for _ in range(number)]
    unknown = [other.randbytes(20) for _ in range(number)]
    longest, clock = 0.0, time.thread_time
    began, last = time.perf_counter(), clock()
    for first, second in zip(known, unknown, strict=True):
        has(first)
        has(second)
        now = clock()
        longest, last = max(longest, now - last), now
    asked = 2 * number / (time.perf_counter() - began)
    assert all(map(has, known))
    more = min(4_000_000, 20 * number)
    wrong = sum(has(other.randbytes(20)) for _ in range(more)) / more * 1e6
    return asked, wrong, longest


def _candidate(key: bytes) -> Candidate:
    url = f"https://www.host.example/{key.hex()}/page.html"
    return Candidate(url=url, host="host", group="host", key=key, discovered=0.0)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def crawl(name: str, pages: int) -> Sample:
    """Pages are found, handed out and done, a hundred at a time."""
    path = Path("frontier.db")
    frontier = SQLiteFrontier(path, "job", pace=lambda _: (0.0, 0), now=0.0, seen=Choice(name))
    rng = random.Random(1)
    began = time.perf_counter()
    for first in range(0, pages, 100):
        found = [_candidate(rng.randbytes(20)) for _ in range(min(100, pages - first))]
        frontier.add(found, 0.0)
        leases = frontier.lease(100, 0.0, 1e9)
        frontier.settle([Outcome(lease, Ending.DONE) for lease in leases], [], 0.0)
        for _ in range(4):
            frontier.clear(100, 0.0)
    took = time.perf_counter() - began
    while frontier.clear(200, 0.0) or (frontier._pruner and frontier._pruner._thread):
        time.sleep(0.001)
    rows = frontier._db.one("SELECT count(*) FROM urls")[0]
    frontier.close("shutdown", finished=False, now=0.0)
    size = path.stat().st_size
    own = _size(path.parent) - size
    return {"file": size / 1e6, "own": own / 1e6, "rows": rows, "pages": pages / took}

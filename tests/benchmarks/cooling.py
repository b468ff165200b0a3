"""(d) Nothing is due: 100,000 hosts, and all of them cool.

``next_request`` of the real Scheduler, driven by hand, against one that hands a request out
of as many hosts that are open. *quiet*: asked again while nothing has happened. *asked anew*:
something has, so the store is asked. *after a link*: a link to one of those hosts has come in
meanwhile, which is stored on the way; that is more than asking, so it has no target. Of the
frontier alone, ``lease`` and ``next_due`` together.
"""

from __future__ import annotations

import random
import time
from functools import partial

from scrapy import Request

from tests.benchmarks.bench import Bench, Fill, Sample, at, middle, ratio
from tests.benchmarks.driving import Flight, Hands, drive
from tests.benchmarks.frontiers import Crawl, Watch, open_frontier, stop
from tests.benchmarks.peers import OURS, settings_of
from tests.benchmarks.server import host_name
from tests.benchmarks.tables import Check, Report, Table

#: A day: longer than any run of the command.
_COOLING = 86_400.0
_DELAY = 30.0


def run(bench: Bench) -> Report:
    hosts = bench.pick(50, 5_000, 100_000)
    calls = bench.pick(20, 500, 1_000)
    ready, cooling = Fill(2 * hosts, hosts), Fill(2 * hosts, hosts, cooling=_COOLING)
    cases = {
        "ready": partial(bench.measure, "cooling:measure_ready", path=ready, calls=calls),
        "cooling": partial(
            bench.measure, "cooling:measure_cooling", path=cooling, hosts=hosts, calls=calls
        ),
        "frontier, ready": partial(
            bench.measure, "cooling:measure_frontier", path=ready, calls=calls, cooling=False
        ),
        "frontier, cooling": partial(
            bench.measure, "cooling:measure_frontier", path=cooling, calls=calls, cooling=True
        ),
    }
    samples = bench.alternate(cases)
    table = Table(
        f"Nothing due, {hosts:,} hosts: microseconds of CPU a call",
        ("call", "p50", "p99", "against a successful one"),
    )
    checks = []
    for what, case, base, part in (
        ("next_request, successful", "ready", "ready", "successful"),
        ("next_request, nothing due, quiet", "cooling", "ready", "quiet"),
        ("next_request, nothing due, asked anew", "cooling", "ready", "anew"),
        ("next_request, nothing due, after a link", "cooling", "ready", "after"),
        ("frontier: lease, successful", "frontier, ready", "frontier, ready", "lease"),
        (
            "frontier: lease + next_due, nothing due",
            "frontier, cooling",
            "frontier, ready",
            "lease",
        ),
    ):
        value = ratio(
            samples[case],
            samples[base],
            at(part, "cpu50"),
            lambda s: (s.get("successful") or s["lease"])["cpu50"],
        )
        row = [middle(samples[case], at(part, q)) for q in ("cpu50", "cpu99")]
        table.rows.append([what, *row, value])
        if part in ("quiet", "anew"):
            checks.append(Check(f"{what}, against a successful one", value, 0.3))
    return Report("cooling", [table], checks, samples=samples)


# -- in the child ---------------------------------------------------------------------


def measure_ready(path: str, calls: int) -> Sample:
    return drive(_settings(), partial(_take, calls))


def measure_cooling(path: str, hosts: int, calls: int) -> Sample:
    return drive(_settings(), partial(_ask, hosts, calls))


def measure_frontier(path: str, calls: int, cooling: bool) -> Sample:
    now = time.time()
    frontier = open_frontier(path, now, _DELAY)
    crawl = Crawl(frontier, now, 0.001)
    if cooling:
        for _ in range(calls):
            crawl.lease.time(lambda: (frontier.lease(1, now, now + 600), frontier.next_due(now)))
    else:
        crawl.advance(calls)
    stop(frontier, now)
    return {"lease": crawl.lease.figures()}


def _settings() -> dict[str, object]:
    return {**settings_of(OURS, None), "DOWNLOAD_DELAY": _DELAY}


def _take(calls: int, hands: Hands) -> Sample:
    watch, flight = Watch(), Flight(hands)
    for _ in range(calls):
        flight.add(watch.time(hands.take))
    flight.finish()
    return {"successful": watch.figures()}


def _ask(hosts: int, calls: int, hands: Hands) -> Sample:
    quiet, anew, after = Watch(), Watch(), Watch()
    _nothing(hands, Watch())
    for _ in range(calls):
        _nothing(hands, quiet)
    for _ in range(calls):
        hands.scheduler._on_wake()
        _nothing(hands, anew)
    rng = random.Random(1)
    for number in range(calls):
        url = f"http://{host_name(rng.randrange(hosts))}/new/{number}"
        hands.scheduler.enqueue_request(Request(url))
        _nothing(hands, after)
    return {"quiet": quiet.figures(), "anew": anew.figures(), "after": after.figures()}


def _nothing(hands: Hands, watch: Watch) -> None:
    if watch.time(hands.scheduler.next_request) is not None:
        raise RuntimeError("something is handed out although all hosts cool")

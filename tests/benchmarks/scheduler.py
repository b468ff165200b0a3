"""(a) ``enqueue_request`` and ``next_request`` through each real scheduler.

One small GET request each, its fingerprint included. All requests go in, then some come out,
up to eight of each host, so that every host still waits, and none of them ends meanwhile:
*enqueue* and *next*, and *both* together.

After that a quarter comes out with 16 in flight, each one finished before the 16th after it:
*cycle* is what taking one, finishing it and taking it in have cost. The scheduler runs under a
real engine that is driven by hand (:mod:`tests.benchmarks.driving`), because a frontier is told
how each request ended and the others are not: *outcome* is what that costs at once, most of
it the engine's signals, and what is stored of it later is part of the next ``next_request``,
so *next, cycle* is more than *next*.

Microseconds of CPU for a request, all threads; of scrapy-redis with its server's. What the
same loop costs with a bare list for a scheduler is taken off. To the peers' favour the
downloader has no slots to be looked through, Redis saves nothing to disk, and the limit on
open files is raised as far as it goes. A part that takes too long ends early: its figure
is then for what it did, and the table marks it by ``*``.
"""

from __future__ import annotations

import errno
import time
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
from typing import TYPE_CHECKING, Any

from scrapy import Request

from tests.benchmarks.bench import Bench, Sample, at, middle, ratio
from tests.benchmarks.driving import WINDOW, Flight, Hands, drive
from tests.benchmarks.machine import allow_many_files, open_files, resident
from tests.benchmarks.peers import JOBDIR, MEMORY, NONE, OURS, REDIS, peers_of, settings_of
from tests.benchmarks.redis_server import server_seconds
from tests.benchmarks.tables import Cell, Check, Report, Table

if TYPE_CHECKING:
    from collections.abc import Iterator

_CHUNK = 100
_PARTS = ("enqueue", "next", "cycle_next", "outcome")
#: How many of each host are taken without an end: half of what it may have in flight.
_OF_EACH = WINDOW // 2
_NOTHING = "no scheduler"
#: Seconds after which a frontier's own threads have done what there was to do.
_REST = 1.0


def run(bench: Bench) -> Report:
    hosts = bench.pick([20], [1, 100, 2_000], [1, 100, 2_000, 10_000])
    requests = bench.pick(200, 4_000, 20_000)
    seconds = bench.pick(1.0, 5.0, 15.0)
    peers = peers_of(bench)
    cases = {
        f"{number:,} hosts, {name}": partial(
            bench.measure,
            "scheduler:measure",
            peer=name,
            redis_port=bench.redis.port if bench.redis else None,
            requests=requests,
            hosts=number,
            seconds=seconds,
        )
        for number in hosts
        for name in (_NOTHING, *peers)
    }
    samples = bench.alternate(cases)
    tables, checks = [], []
    for number in hosts:
        found = {name: samples[f"{number:,} hosts, {name}"] for name in (_NOTHING, *peers)}
        nothing = found.pop(_NOTHING)
        for name in peers:
            found[name] = [_without(a, b) for a, b in zip(found[name], nothing, strict=True)]
        tables.append(_table(number, found))
        checks += _checks(number, found)
    return Report("scheduler", tables, checks, samples=samples)


def _without(sample: Sample, nothing: Sample) -> Sample:
    """A sample without what the loop costs by itself."""
    if "failed" in sample or "failed" in nothing:
        return {"failed": sample.get("failed", nothing.get("failed"))}
    costs = {part: sample[part] - nothing[part] for part in (*_PARTS, "wall", "files")}
    return {
        **sample,
        **costs,
        "both": costs["enqueue"] + costs["next"],
        "cycle": costs["enqueue"] + costs["cycle_next"] + costs["outcome"],
    }


def _table(hosts: int, found: dict[str, list[Sample]]) -> Table:
    table = Table(
        f"Schedulers, {hosts:,} host{'s' * (hosts > 1)}: microseconds a request",
        (
            *("scheduler", "enqueue", "next", "both", "ours ÷ it", "both, wall", "ours ÷ it"),
            *("next, cycle", "outcome", "cycle", "ours ÷ it", "memory, bytes", "open files"),
        ),
    )
    for name, samples in found.items():
        failures = {s["failed"] for s in samples if "failed" in s}
        cut = "*" if any(s.get("cut") for s in samples) else ""
        row: list[Cell] = [": ".join([name + cut, *failures])]
        row += [middle(samples, at(part)) for part in ("enqueue", "next")]
        for part in ("both", "wall"):
            row += [middle(samples, at(part)), _against(found, name, part)]
        row += [middle(samples, at(part)) for part in ("cycle_next", "outcome", "cycle")]
        row.append(_against(found, name, "cycle"))
        row += [middle(samples, at(part)) for part in ("memory", "files")]
        table.rows.append(row)
    return table


def _against(found: dict[str, list[Sample]], name: str, part: str) -> float | None:
    """Our cost divided by a peer's, if both are there."""
    return ratio(found[OURS], found.get(name, []), lambda s: s.get(part)) if name in found else None


def _checks(hosts: int, found: dict[str, list[Sample]]) -> list[Check]:
    targets = {100: {JOBDIR: 1.0, REDIS: 0.2}, 2_000: {JOBDIR: 0.25, MEMORY: 0.4, REDIS: 0.2}}
    checks = []
    for name, target in targets.get(hosts, {}).items():
        # A crawl waits for Redis: that is no CPU, but it is time.
        part = "wall" if name == REDIS else "both"
        what = f"enqueue + next, {hosts:,} hosts, against {name}"
        note = "aim for 0.6" if (hosts, name) == (100, JOBDIR) else ""
        checks.append(Check(what, _against(found, name, part), target, note=note))
    if hosts == 10_000:
        files = middle(found[OURS], at("files"))
        checks.append(Check("open files at 10,000 hosts", files, 10))
    return checks


# -- in the child ---------------------------------------------------------------------


def measure(peer: str, redis_port: int | None, requests: int, hosts: int, seconds: float) -> Sample:
    allow_many_files()
    settings = dict(NONE) if peer == _NOTHING else settings_of(peer, redis_port)
    cycle = _Cycle(requests, hosts, seconds, redis_port if peer == REDIS else None)
    try:
        return drive(settings, cycle.run)
    except RuntimeError as error:
        if f"[Errno {errno.EMFILE}]" in str(error):
            return {"failed": "too many open files"}
        raise


@dataclass
class _Cycle:
    """Requests in, and some of them out."""

    requests: int
    hosts: int
    seconds: float
    redis_port: int | None

    def run(self, hands: Hands) -> dict[str, Any]:
        before = resident()
        enqueue = self._enter(hands)
        enqueue.rest()
        memory = resident() - before
        files = open_files()
        number = max(1, enqueue.number // 4)
        alone = self._take(hands, min(number, self.hosts * _OF_EACH))
        taken, outcome = self._leave(hands, number)
        return {
            "entered": enqueue.number,
            "left": taken.number,
            "cut": enqueue.number < self.requests or taken.number < number,
            "enqueue": enqueue.each(enqueue.cpu),
            "next": alone.each(alone.cpu),
            "wall": enqueue.each(enqueue.wall) + alone.each(alone.wall),
            "cycle_next": taken.each(taken.cpu),
            "outcome": outcome.each(outcome.cpu),
            "memory": memory / enqueue.number,
            "files": files,
        }

    def _enter(self, hands: Hands) -> _Cost:
        cost, source = _Cost(), self._source()
        end = time.monotonic() + self.seconds
        server = server_seconds(self.redis_port)
        while cost.number < self.requests and time.monotonic() < end:
            chunk = list(islice(source, min(_CHUNK, self.requests - cost.number)))
            cost.start()
            for request in chunk:
                hands.scheduler.enqueue_request(request)
            cost.stop(len(chunk))
        cost.cpu += server_seconds(self.redis_port) - server
        return cost

    def _source(self) -> Iterator[Request]:
        return (Request(f"http://h{i % self.hosts}.example.com/page/{i}") for i in count())

    def _take(self, hands: Hands, number: int) -> _Cost:
        """What taking has cost; what was taken is finished when all is measured."""
        cost = _Cost()
        requests = []
        end = time.monotonic() + self.seconds
        server = server_seconds(self.redis_port)
        while cost.number < number and time.monotonic() < end:
            cost.start()
            requests.append(hands.take())
            cost.stop()
        cost.cpu += server_seconds(self.redis_port) - server
        for request in requests:
            hands.reach(request)
            hands.finish(request)
        # Whoever has to store how they ended does so now.
        last = hands.take()
        hands.reach(last)
        hands.finish(last)
        return cost

    def _leave(self, hands: Hands, number: int) -> tuple[_Cost, _Cost]:
        """What taking and what finishing has cost."""
        taken, outcome, flight = _Cost(), _Cost(), Flight(hands)
        end = time.monotonic() + self.seconds
        server = server_seconds(self.redis_port)
        while taken.number < number and time.monotonic() < end:
            taken.start()
            request = hands.take()
            taken.stop()
            outcome.start()
            flight.add(request)
            outcome.stop()
        taken.cpu += server_seconds(self.redis_port) - server
        flight.finish()
        return taken, outcome


@dataclass
class _Cost:
    """Seconds that so many calls have taken."""

    number: int = 0
    cpu: float = 0.0
    wall: float = 0.0

    def start(self) -> None:
        self._cpu, self._wall = time.process_time(), time.perf_counter()

    def stop(self, number: int = 1) -> None:
        self.cpu += time.process_time() - self._cpu
        self.wall += time.perf_counter() - self._wall
        self.number += number

    def rest(self) -> None:
        """Wait for what goes on on other threads, such as checkpoints, and count that as well:
        else it would be found in whatever is measured next."""
        used = time.process_time()
        time.sleep(_REST)
        self.cpu += time.process_time() - used

    def each(self, seconds: float) -> float:
        """In microseconds a call."""
        return seconds / self.number * 1e6

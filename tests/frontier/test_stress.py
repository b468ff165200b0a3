"""Processes that share a frontier and are killed, one after the other, while they work.

The sizes are small; environment variables raise them, e.g. ``STRESS_PROCESSES=8
STRESS_URLS=20000 STRESS_HOSTS=200 STRESS_KILLS=10``.
"""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from .audit import contradictions
from .children import PRELUDE

PROCESSES = int(os.environ.get("STRESS_PROCESSES", "4"))
URLS = int(os.environ.get("STRESS_URLS", "2000"))
HOSTS = int(os.environ.get("STRESS_HOSTS", "40"))
KILLS = int(os.environ.get("STRESS_KILLS", "4"))
#: Seconds between two requests to a host.
GAP = 0.005

# Writes down what it was given, when, and what it was allowed to report. Ends when the job does.
WORKER = """
job, log, urls, hosts, gap, pages, share = sys.argv[3:10]
urls, hosts, gap, pages, share = int(urls), int(hosts), float(gap), int(pages), int(share)
log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

def note(*words):
    os.write(log, (" ".join(map(str, words)) + "\\n").encode())

def link(n):
    return candidate(f"{n % hosts}/{n}", rank=float(n))

def open_now():
    return SQLiteFrontier(
        path, job, pace=lambda group: (gap, 1), now=time.time(),
        resume=True, limits=Limits(pages=pages, pages_per_host=share),
    )

f = patient(open_now)
patient(f.add, [link(n) for n in range(urls if pages else 8)], time.time())
turns = 0
while True:
    turns += 1
    now = time.time()
    leases = patient(lambda: f.lease(2, now, now + 3600))
    if not leases:
        now = time.time()
        others = patient(f.others, now)
        if f.next_due(now) is None and not others:
            break
        time.sleep(0.002)
        continue
    for lease in leases:
        note("lease", lease.candidate.url, lease.turn - lease.gap, lease.fence)
    numbers = [int(lease.candidate.url.partition("/")[2]) for lease in leases]
    found = [link(n) for m in numbers for n in (2 * m + 1, 2 * m + 2, 3 * m) if n < urls]
    outcomes = [Outcome(lease, Ending.DONE) for lease in leases]
    accepted, _ = patient(f.settle, outcomes, found, time.time())
    for lease, is_accepted in zip(leases, accepted):
        note("done" if is_accepted else "stale", lease.candidate.url, 0, lease.fence)
    if turns % 50 == 0:
        patient(f.others, time.time())
patient(lambda: f.close("finished", finished=True, now=time.time()))
"""


@dataclass
class Worker:
    job: str
    log: Path
    process: subprocess.Popen[str]
    killed: bool = False
    _read: int = 0
    _done: int = 0

    def count_done(self) -> int:
        with self.log.open("rb") as file:
            file.seek(self._read)
            new = file.read()
        self._read += len(new)
        self._done += new.count(b"done ")
        return self._done

    @property
    def lines(self) -> list[list[str]]:
        return [line.split(" ") for line in self.log.read_text().splitlines()]


class Crew:
    """The processes at a frontier; whoever is killed is replaced, but for the last one."""

    def __init__(self, path: Path, pages: int = 0, share: int = 0) -> None:
        self.path = path
        self._budget = [str(pages), str(share)]
        self.workers: list[Worker] = []

    def start(self, job: str) -> None:
        log = self.path.with_name(f"{len(self.workers)}.log")
        log.touch()
        options = [job, str(log), str(URLS), str(HOSTS), str(GAP), *self._budget]
        process = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + WORKER, str(self.path), "0", *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        )
        self.workers.append(Worker(job, log, process))

    def work(self, jobs: list[str], wanted: int) -> None:
        """Let a process work for each of *jobs* until all have ended, killing one after each
        part of the *wanted* URLs."""
        rng = random.Random(1)
        try:
            for job in jobs:
                self.start(job)
            for kill in range(1, KILLS + 1):
                self._wait_for(kill * wanted // (KILLS + 1))
                running = [w for w in self.workers if w.process.poll() is None]
                if not running:
                    break
                victim = rng.choice(running)
                victim.process.kill()
                victim.process.wait()
                victim.killed = True
                # What the last one had taken comes back while the others work, at no new start.
                if kill < KILLS:
                    self.start(victim.job)
            for worker in self.workers:
                _, errors = worker.process.communicate(timeout=60 + URLS / 20)
                assert worker.killed or (worker.process.returncode, errors) == (0, "")
        finally:
            for worker in self.workers:
                worker.process.kill()
                worker.process.communicate()

    def _wait_for(self, done: int) -> None:
        while any(worker.process.poll() is None for worker in self.workers):
            if sum(worker.count_done() for worker in self.workers) >= done:
                return
            time.sleep(0.01)

    def check(self) -> dict[str, set[str]]:
        """Nothing was handed out twice without need, and no host too early. Says what is done."""
        touched: dict[str, list[float]] = defaultdict(list)
        done: dict[str, set[str]] = defaultdict(set)
        holders: dict[tuple[str, str], list[tuple[int, Worker]]] = defaultdict(list)
        for worker in self.workers:
            for what, url, at, fence in worker.lines:
                if what == "lease":
                    touched[url.partition("/")[0]].append(float(at))
                    holders[worker.job, url].append((int(fence), worker))
                else:
                    assert what == "done", "the report of a live process was refused"
                    assert url not in done[worker.job], "done twice"
                    done[worker.job].add(url)
        for (_, url), leases in holders.items():
            leases.sort(key=lambda lease: lease[0])
            assert all(worker.killed for _, worker in leases[:-1]), f"{url} was handed out again"
        for times in touched.values():
            assert all(b - a > GAP - 1e-6 for a, b in pairwise(sorted(times)))
        assert any(worker.killed for worker in self.workers)
        assert contradictions(self.path) == {}
        assert not list(self.path.parent.glob("*.run-*"))
        return done

    def rows(self, sql: str) -> list[tuple[object, ...]]:
        connection = sqlite3.connect(self.path)
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()


@pytest.mark.parametrize("jobs", [["one"], ["one", "two"]], ids=["one job", "two jobs"])
def test_each_url_once_and_no_host_early(tmp_path: Path, jobs: list[str]) -> None:
    crew = Crew(tmp_path / "frontier.db")
    crew.work([jobs[n % len(jobs)] for n in range(PROCESSES)], URLS * len(jobs))
    crew.check()
    counts = crew.rows(
        "SELECT name, finished IS NULL, added, done, leased, pages FROM jobs ORDER BY name"
    )
    assert counts == [(job, 0, URLS, URLS, 0, URLS) for job in jobs]


def test_budgets_are_exact(tmp_path: Path) -> None:
    share, pages = 9 * URLS // HOSTS // 10, 3 * URLS // 4
    crew = Crew(tmp_path / "frontier.db", pages, share)
    crew.work(["one"] * PROCESSES, pages)
    crew.check()
    counts = crew.rows("SELECT added, done, leased, pages FROM jobs")
    assert counts == [(URLS, pages, 0, pages)]
    hosts = Counter(
        url
        for (url,) in crew.rows(
            "SELECT substr(url, 1, instr(url, '/') - 1) FROM urls WHERE state = 1"
        )
    )
    assert max(hosts.values()) <= share

"""Real processes that use a frontier."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PRELUDE = """
import os, sys, time
from pathlib import Path
from scrapy_focus.candidate import Candidate
from scrapy_focus.exceptions import FocusError, FrontierBusy
from scrapy_focus.frontier import Limits, Order, Outcome, Ending
from scrapy_focus.frontier.sqlite import SQLiteFrontier

path, T0 = Path(sys.argv[1]), float(sys.argv[2])

def candidate(url, **fields):
    host = url.partition("/")[0]
    return Candidate(url=url, host=host, group=host, key=url.encode(), discovered=T0, **fields)

def open_(job="job", gap=0.0, cap=0, **options):
    return SQLiteFrontier(path, job, pace=lambda group: (gap, cap), now=T0, **options)

def patient(call, *args):
    while True:
        try:
            return call(*args)
        except FrontierBusy:
            time.sleep(0.001)

def say(*words):
    print(*words, flush=True)
"""


def start(code: str, path: Path, now: float) -> subprocess.Popen[str]:
    """Run *code*, after the prelude, in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + code, str(path), repr(now)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def run(code: str, path: Path, now: float) -> list[str]:
    """Run *code* to its end; the lines that it printed."""
    child = start(code, path, now)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 0, err
    return out.splitlines()


@contextmanager
def held(code: str, path: Path, now: float) -> Iterator[subprocess.Popen[str]]:
    """A process that has run *code* and lives on, until it is killed (SIGKILL)."""
    child = start(f"{code}\nsay('ready')\nsys.stdin.read()\n", path, now)
    try:
        assert child.stdout
        assert child.stderr
        line = child.stdout.readline()
        if line != "ready\n":
            child.kill()
            raise AssertionError(line + child.stderr.read())
        yield child
    finally:
        kill(child)


def kill(child: subprocess.Popen[str]) -> None:
    child.kill()
    child.wait()
    for stream in (child.stdin, child.stdout, child.stderr):
        if stream:
            stream.close()

"""A frontier whose process is killed (SIGKILL) before and after every statement, in every call,
while it is opened, migrated and closed."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from scrapy_focus.frontier import Ending, Outcome, database
from scrapy_focus.frontier.sqlite import SQLiteFrontier

from . import lives
from .audit import contradictions
from .books import Calls, assert_balanced, read, states

#: Later than every time in the frontier.
LATER = lives.T0 + 1e6


class Server:
    """Runs lives, each in a process that is forked from one that is warm and has no threads."""

    def __init__(self) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.frontier.lives"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def run(self, life: lives.Script, folder: Path, fatal: int = 0) -> int:
        """Run a life to its end, or to its death at a point; returns how its process ended."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(f"{life.__name__}\t{folder}\t{fatal}\t0\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate(timeout=60)


@pytest.fixture(name="server", scope="module")
def _server() -> Iterator[Server]:
    with closing(Server()) as server:
        yield server


def before(server: Server, life: lives.Script, base: Path) -> Path:
    """A folder in which all has happened that comes before a life."""
    folder = base / f"before-{life.__name__}"
    earlier = lives.LIVES[life]
    if earlier is None:
        folder.mkdir()
    else:
        shutil.copytree(before(server, earlier, base), folder)
        assert server.run(earlier, folder) == 0
    return folder


def drain(path: Path, job: str) -> list[str]:
    """Resume a job and finish it; what was handed out."""
    frontier = SQLiteFrontier(path, job, pace=lambda _: (0.0, 0), now=LATER, resume=True)
    found, now = [], LATER
    while True:
        leases = frontier.lease(1000, now, now + 3600)
        if not leases:
            due = frontier.next_due(now)
            if due is None:
                break
            now = max(now, due)
        found += [lease.candidate.url for lease in leases]
        frontier.settle([Outcome(lease, Ending.DONE) for lease in leases], [], now)
    frontier.close("finished", finished=True, now=now)
    return found


def check(folder: Path, calls: Calls, killed: Calls) -> None:
    """The file is what the calls have made that have returned, or they and the last, and
    a run that resumes finds just what it should.

    :param calls: those of a life that was not killed
    """
    path = folder / "frontier.db"
    found = read(path, killed.now)
    assert found in states(calls.returned[: killed.made], killed.lasting, killed.now)
    if found["jobs"]:
        assert not contradictions(path)
        assert_balanced(path)

    for job in found["jobs"] or ["job"]:
        urls = found["jobs"].get(job, {"urls": {}})["urls"]
        waiting = {url for url, (ending, *_) in urls.items() if ending == "waiting"}
        assert sorted(drain(path, job)) == sorted(waiting)
    assert not contradictions(path)
    assert_balanced(path)
    assert not list(folder.glob("*.run-*"))


@pytest.mark.parametrize("life", lives.LIVES, ids=lambda life: life.__name__)
def test_every_statement(
    server: Server, life: lives.Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that has returned is lost, each call has happened or has not, what is over is
    not handed out again, and everything else is, once."""
    template = before(server, life, tmp_path)
    folder = tmp_path / "life"
    shutil.copytree(template, folder)
    assert server.run(life, folder) == 0
    calls = Calls.read(folder / "calls")
    assert calls.made == len(calls.returned)
    if life is lives.migrated:
        monkeypatch.setattr(database, "migrations", lives.later_migrations())
    for fatal in count(1):
        shutil.rmtree(folder)
        shutil.copytree(template, folder)
        code = server.run(life, folder, fatal)
        killed = Calls.read(folder / "calls")
        assert killed.returned == calls.returned[: len(killed.returned)]
        try:
            check(folder, calls, killed)
        except BaseException as error:
            error.args = (f"killed at point {fatal} of {life.__name__}, {error}",)
            raise
        if code == 0:
            break
        assert code == -signal.SIGKILL
    assert fatal > 100
    if life is lives.migrated:
        with closing(sqlite3.connect(folder / "frontier.db")) as connection:
            assert connection.execute("SELECT count(*) FROM more").fetchall() == [(1,)]

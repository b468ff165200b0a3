"""A frontier whose process is killed (SIGKILL) before and after every statement, in every call,
while it is opened, migrated and closed."""

from __future__ import annotations

import shutil
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import chain, count
from pathlib import Path

import pytest

from scrapy_focus.frontier import Ending, Outcome, database
from scrapy_focus.frontier.sqlite import SQLiteFrontier

from . import lives
from .audit import contradictions
from .books import Calls, assert_balanced, check, drain, read_all, states, waiting
from .helpers import T0


@pytest.fixture(name="server", scope="module")
def _server() -> Iterator[lives.Server]:
    with closing(lives.Server()) as server:
        yield server


def before(server: lives.Server, life: lives.Script, base: Path) -> Path:
    """A folder in which all has happened that comes before a life."""
    folder = base / f"before-{life.__name__}"
    earlier = lives.LIVES[life]
    if earlier is None:
        folder.mkdir()
    else:
        shutil.copytree(before(server, earlier, base), folder)
        assert server.run(earlier, folder) == 0
    return folder


@pytest.mark.parametrize("life", lives.LIVES, ids=lambda life: life.__name__)
def test_every_statement(
    server: lives.Server, life: lives.Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that has returned is lost, each call has happened or has not, what is over is
    not handed out again, and everything else is, once."""
    template = before(server, life, tmp_path)
    folder = tmp_path / "life"
    shutil.copytree(template, folder)
    assert server.run(life, folder) == 0
    calls = Calls.read((folder / "calls").read_text())
    assert calls.made == len(calls.returned)
    if life is lives.migrated:
        monkeypatch.setattr(database, "migrations", lives.later_migrations())
    seen: object = None
    for fatal in count(1):
        shutil.rmtree(folder)
        shutil.copytree(template, folder)
        code = server.run(life, folder, fatal)
        killed = Calls.read((folder / "calls").read_text())
        assert killed.returned == calls.returned[: len(killed.returned)]
        found = killed, read_all(folder / "frontier.db"), sorted(folder.iterdir())
        if found != seen:  # else it is as after the statement before
            seen = found
            possible = states(calls.returned[: killed.made], killed.lasting, killed.now)
            try:
                check(folder / "frontier.db", possible, killed.now)
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


def test_beside_a_run_that_lives(server: lives.Server, tmp_path: Path) -> None:
    """It finds what the other one has left, and nothing that it knew of is out of date."""
    template = tmp_path / "before"
    template.mkdir()
    assert server.run(lives.new, template) == 0
    calls = Calls()
    # First of all as it is when nobody is killed.
    for fatal in chain([0], count(1)):
        folder = Path(shutil.copytree(template, tmp_path / str(fatal)))
        path = folder / "frontier.db"
        frontier = SQLiteFrontier(path, "job", pace=lambda _: (0.0, 0), now=T0, resume=True)
        # So that it has read what the other one is about to change.
        for lease in frontier.lease(9, T0, T0 + 60):
            frontier.settle([Outcome(lease, Ending.RELEASED, fetched=False)], [], T0)
        code = server.run(lives.joined, folder, fatal)
        killed = Calls.read((folder / "calls").read_text())
        if not fatal:
            calls = killed
        assert not frontier.others(T0)
        assert not contradictions(path)
        assert_balanced(path)
        possible = states(calls.returned[: killed.made], killed.lasting, killed.now)
        handed_out = sorted(drain(frontier))
        assert handed_out in [waiting(state, "job") for state in possible], fatal
        assert not contradictions(path)
        assert_balanced(path)
        if fatal and code == 0:
            break
        assert code == (-signal.SIGKILL if fatal else 0)
    assert fatal > 100

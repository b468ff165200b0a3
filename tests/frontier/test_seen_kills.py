"""A frontier whose rows go is killed (SIGKILL) before and after every statement and whatever it
does to the files of its seen set: while it opens, gathers, stores, removes and closes."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from scrapy_focus.frontier.sqlite import SQLiteFrontier

from . import lives
from .audit import contradictions
from .books import Calls, drain, read_all
from .helpers import T0, candidate
from .seen_sets import choice, prune, rounds_of


@pytest.fixture(name="server", scope="module")
def _server() -> Iterator[lives.Server]:
    with closing(lives.Server()) as server:
        yield server


def events(calls: list[dict[str, Any]], *kinds: str) -> set[str]:
    return {event[1] for call in calls for event in call["events"] if event[0] in kinds}


@pytest.mark.parametrize("life", [lives.bloom, lives.cuckoo, lives.rocksdb])
def test_no_url_is_lost_and_none_is_fetched_again(
    server: lives.Server, life: lives.Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds_of(3, monkeypatch)
    folder = tmp_path / "life"
    folder.mkdir()
    assert server.run(life, folder, 0, "files") == 0
    calls = Calls.read((folder / "calls").read_text())
    rounds = set()
    seen: object = None
    # The file of the second is written as that of the first.
    for fatal in count(1, 7 if life is lives.cuckoo else 1):
        shutil.rmtree(folder)
        folder.mkdir()
        code = server.run(life, folder, fatal, "files")
        killed = Calls.read((folder / "calls").read_text())
        maybe = calls.returned[len(killed.returned) : killed.made]
        told = [events(c, "added", "over") for c in (killed.returned, maybe)]
        found = told, read_all(folder / "frontier.db"), _files(folder)
        if found != seen:  # else it is as after the statement before
            seen = found
            try:
                rounds.add(check(life.__name__, folder, calls, killed))
            except BaseException as error:
                error.args = (f"killed at point {fatal} of {life.__name__}, {error}",)
                raise
        if code == 0:
            break
        assert code == -signal.SIGKILL
    assert rounds == {0, 1, 2}


def _files(folder: Path) -> list[tuple[Path, int]]:
    # RocksDB's threads write into a log of what they do.
    files = (path for path in folder.rglob("*") if "seen" in str(path) and path.name != "LOG")
    return sorted((path, path.stat().st_size) for path in files)


def check(name: str, folder: Path, calls: Calls, killed: Calls) -> int:
    """What the calls say is what the frontier says; returns how many rounds there were."""
    path, done = folder / "frontier.db", killed.returned
    maybe = calls.returned[len(done) : killed.made]
    added, over = events(done, "added"), events(done, "over")
    frontier = SQLiteFrontier(
        path, "job", pace=lambda _: (0.0, 0), now=T0, resume=True, seen=choice(name)
    )
    assert frontier._pruner
    number = frontier._pruner.set.round
    assert not any(frontier.add([candidate(url) for url in added], T0))
    given = drain(frontier)
    assert len(given) == len(set(given)), "each is handed out once"
    assert not set(given) & over, "what is over is not handed out again"
    assert set(given) >= added - over - events(maybe, "over"), "nothing is lost"
    assert set(given) <= added | events(maybe, "added")
    again = SQLiteFrontier(
        path, "job", pace=lambda _: (0.0, 0), now=T0, resume=True, seen=choice(name)
    )
    prune(again)
    assert not any(again.add([candidate(url) for url in added], T0))
    counts = again.counts(T0)
    assert counts.waiting == counts.leased == 0
    assert counts.done + counts.failed == counts.added >= len(added)
    again.close("finished", finished=True, now=T0)
    assert not contradictions(path)
    return number

"""What the tests of seen sets share."""

from __future__ import annotations

import time
from typing import Any

import pytest

from scrapy_focus.frontier import pruning
from scrapy_focus.frontier.seen import Choice, Over
from scrapy_focus.frontier.sqlite import SQLiteFrontier

from .helpers import T0

#: Of which each has its own file or folder.
SETS = ("bloom", "cuckoo", "rocksdb")


def choice(name: str, **options: Any) -> Choice:
    return Choice(name, **{"capacity": 1000, **options})


def over(*keys: bytes, **fields: Any) -> list[Over]:
    values = {"id": 0, "copy": 0, "state": 1, "charged": 1, "host": "a.example", "at": T0}
    return [Over(**{**values, **fields, "key": key}) for key in keys]


def rounds_of(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let so many rows be a round."""
    monkeypatch.setattr(pruning, "_ROUND", number)


def prune(frontier: SQLiteFrontier, limit: int = 50) -> None:
    """Remove all that can be removed now."""
    pruner = frontier._pruner
    assert pruner
    while frontier.clear(limit, T0) or pruner._thread:
        if pruner._thread:
            pruner._thread.join()
    assert not pruner._stopped


def prune_alone(frontier: SQLiteFrontier) -> None:
    """The same, all of it in the caller's thread."""
    pruner = frontier._pruner
    assert pruner
    deadline = time.monotonic() + 60
    while frontier.clear(50, T0) or pruner._thread:
        assert time.monotonic() < deadline

"""How start requests are read on behalf of the engine."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from scrapy import Request

from scrapy_focus.engine import Seeds, _Followed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SEEDS: list[Any] = [Request(f"https://example.com/{number}") for number in range(9)]
ITEM = {"an": "item"}


class Engine:
    """What the iterator needs of the engine; from the *busy*-th request on it has work."""

    def __init__(self, busy: int) -> None:
        self.seeds = Seeds()
        self.taken: list[Request] = []
        self._busy = busy

    @property
    def asks_in_vain(self) -> bool:
        return self.seeds.count <= self._busy

    def crawl(self, request: Request) -> None:
        self.taken.append(request)


def read(engine: Engine, entries: list[Any]) -> list[Any]:
    """What comes to the engine, in its order: as it was taken in, or returned."""

    async def start() -> AsyncIterator[Any]:
        for entry in entries:
            if isinstance(entry, Exception):
                raise entry
            await asyncio.sleep(0)
            yield entry

    async def follow() -> list[Any]:
        returned = []
        async for entry in _Followed(start(), engine):  # type: ignore[arg-type]
            returned.append(entry)
            engine.taken.append(entry)
        return returned

    return asyncio.run(follow())


@pytest.mark.parametrize(
    ("turn", "busy", "returned"),
    [
        (100.0, 0, SEEDS),
        (100.0, 4, SEEDS[4:]),
        (100.0, 9, []),
        (0.0, 9, SEEDS),  # the time is over at once
    ],
)
def test_start_requests_are_taken_in_at_once(
    monkeypatch: pytest.MonkeyPatch, turn: float, busy: int, returned: list[Any]
) -> None:
    """Only those after which the engine should look what there is to do come back to it."""
    monkeypatch.setattr("scrapy_focus.engine._TURN", turn)
    engine = Engine(busy)
    assert read(engine, SEEDS) == returned
    assert engine.taken == SEEDS
    assert engine.seeds.count == 9
    assert all(seed in engine.seeds for seed in SEEDS)


def test_items_among_start_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scrapy_focus.engine._TURN", 100.0)
    engine = Engine(9)
    entries = [ITEM, *SEEDS[:2], ITEM, SEEDS[2]]
    assert read(engine, entries) == [ITEM, ITEM]
    assert engine.taken == entries


def test_what_start_raises_comes_after_what_it_has_yielded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("scrapy_focus.engine._TURN", 100.0)
    engine = Engine(9)
    with pytest.raises(ValueError, match="no more"):
        read(engine, [*SEEDS[:3], ValueError("no more")])
    assert engine.taken == SEEDS[:3]

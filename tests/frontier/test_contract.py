"""Every store keeps the same contract."""

from __future__ import annotations

import pytest

from .helpers import LITTLE, T0, MemoryStore, SQLiteStore, offer, take
from .suite_bounds import Shedding
from .suite_budget import Spending
from .suite_ends import Counting, Settling
from .suite_hosts import Caps, Pacing, Turns
from .suite_urls import Adding, Ordering, Waiting


class TestMemory(
    Adding,
    Ordering,
    Waiting,
    Pacing,
    Turns,
    Caps,
    Settling,
    Spending,
    Shedding,
    Counting,
    MemoryStore,
):
    """The reference."""


class TestSQLite(
    Adding,
    Ordering,
    Waiting,
    Pacing,
    Turns,
    Caps,
    Settling,
    Spending,
    Shedding,
    Counting,
    SQLiteStore,
):
    """A file."""

    def test_very_much_at_once(self) -> None:
        """More becomes due than one call looks at: the rest is due at once, too."""
        frontier = self.open()
        self.paces.gap = 5.0
        hosts = [str(number) for number in range(1200)]
        offer(frontier, *(f"{host}/1" for host in hosts))
        offer(frontier, *(f"{host}/2" for host in hosts), ready_at=T0 + 5)
        for now in (T0, T0 + 5):
            found = 0
            while (due := frontier.next_due(now)) is not None and due <= now:
                found += len(take(frontier, 200, now))
            assert found == 1200


class TestLittleAtHand(
    Adding,
    Ordering,
    Waiting,
    Pacing,
    Turns,
    Caps,
    Settling,
    Spending,
    Shedding,
    Counting,
    SQLiteStore,
):
    """A file far larger than what is kept of it in memory."""

    @pytest.fixture(autouse=True)
    def keep_little(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for module, name, value in LITTLE:
            monkeypatch.setattr(module, name, value)

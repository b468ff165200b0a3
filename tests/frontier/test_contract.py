"""Every store keeps the same contract."""

from __future__ import annotations

from .helpers import MemoryStore, SQLiteStore
from .suite_budget import Spending
from .suite_ends import Counting, Settling
from .suite_hosts import Caps, Pacing, Turns
from .suite_urls import Adding, Ordering, Waiting


class TestMemory(
    Adding, Ordering, Waiting, Pacing, Turns, Caps, Settling, Spending, Counting, MemoryStore
):
    """The reference."""


class TestSQLite(
    Adding, Ordering, Waiting, Pacing, Turns, Caps, Settling, Spending, Counting, SQLiteStore
):
    """A file."""

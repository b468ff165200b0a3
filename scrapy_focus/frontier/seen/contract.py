"""What every seen set promises."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

#: Every choice of ``FOCUS_SEEN``, and whether what it knows can be forgotten.
CHOICES = {"exact": True, "bloom": False, "cuckoo": True, "rocksdb": True}


@dataclass(frozen=True, slots=True)
class Choice:
    """Which set, and how large."""

    name: str = "exact"
    #: bloom, cuckoo: the share of new URLs that may be taken for known ones.
    error: float = 1e-5
    #: bloom, cuckoo: how many URLs are expected. More are taken in all the same.
    capacity: int = 1_000_000

    @property
    def can_forget(self) -> bool:
        return CHOICES[self.name]


#: The rows themselves.
EXACT = Choice()


class Over(NamedTuple):
    """A row that is over: done, failed or dropped."""

    id: int
    key: bytes
    copy: int
    #: As in the schema.
    state: int
    charged: int
    host: str
    #: When it was over (Unix time, seconds).
    at: float


class Lost(Exception):
    """A set cannot be read; the message says why, as the end of a sentence."""


class Stopped(Exception):
    """A set was closed while it was stored."""


class SeenSet(ABC):
    """Knows keys whose rows are gone, and the copies among them.

    A row is removed only once :meth:`store` has returned, so that at every moment each URL is in
    the frontier, in what the set has stored, or in both. All is called by the crawl's thread and
    takes little time, but for :meth:`store`, which has one of its own; meanwhile nothing is added.

    :param path: a file or folder, this set's alone
    """

    name: ClassVar[str]
    #: The number of the last round that is stored: which removals it speaks for.
    round: int = 0
    #: How many keys it knows.
    count: int = 0

    def __init__(self, choice: Choice, path: Path) -> None:
        self.choice = choice
        self.path = path
        self._stopped = threading.Event()

    @abstractmethod
    def load(self, *, read_only: bool = False) -> None:
        """Read what was stored.

        :raises Lost: if it is not there, not whole, or of another set
        """

    @abstractmethod
    def has(self, key: bytes, copy: int = 0) -> bool:
        """Whether a row of this key is gone, whatever its copy; or, with a *copy*, that one."""

    @abstractmethod
    def add(self, rows: Sequence[Over]) -> None:
        """Take a few rows in, to be stored. Some may be known already, after a kill."""

    def prepare(self) -> bool:
        """Get a little readier to be stored; says whether there is more to do."""
        return False

    @abstractmethod
    def store(self, number: int) -> None:
        """Store what was added as the round of this number: when it returns, a power cut does not
        lose it. Until then :attr:`round` stays as it was, on the disk as well.

        :raises Stopped: if it was stopped meanwhile
        :raises OSError: if it cannot be written
        """

    @abstractmethod
    def remove(self, keys: Iterable[bytes]) -> None:
        """Forget keys, where the set can."""

    def find(self, key: bytes) -> tuple[int, float] | None:
        """The state that a key's row was in, and since when; of sets that keep it."""
        return None

    def of_domain(self, domain: str, limit: int) -> list[bytes]:
        """Some keys of a domain and its subdomains, in sets that keep hosts."""
        raise NotImplementedError(f"A {self.name} set does not know the hosts of its keys.")

    def stop(self) -> None:
        """Let :meth:`store` end at once, and leave what is stored as it was before."""
        self._stopped.set()

    def flush(self) -> None:  # noqa: B027 - most have nothing to do
        """Store what was forgotten, if that was not stored at once, after :meth:`stop`."""

    def close(self) -> None:  # noqa: B027 - most have nothing to do
        """Let go of it, after :meth:`stop`."""


def entry(key: bytes, copy: int = 0) -> bytes:
    """What stands for a key, or for one copy of it: no two of them are the same."""
    return b"\1" + copy.to_bytes(8, "big", signed=True) + key if copy else b"\0" + key

"""How many URLs of a path differ by their facets only: counted, bounded, and kept with a job.

What is kept is in parts, of some kilobytes at most: one that has changed is written as a whole.
"""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b
from itertools import chain, islice
from struct import iter_unpack, pack

__all__ = ["PARTS", "Facets"]

#: How many parts there are.
PARTS = 16
#: For so many paths the URLs are counted, in each part for those that were met last.
_PATHS = 10_000
#: The greatest number that an entry holds.
_MOST = 0xFFFFFFFF


class Facets:
    """Counts URLs by path.

    :param cap: how many of one path are taken, 1 or more; beyond it none is counted
    """

    def __init__(self, cap: int) -> None:
        self._cap = cap
        #: What is known of each part, what was met last at the end.
        self._counts: list[dict[bytes, int]] = [{} for _ in range(PARTS)]
        #: What was counted since a part was kept.
        self._new: dict[int, Counter[bytes]] = {}

    def refuse(self, path: str) -> bool:
        """Whether a URL of this path is over the cap. One that is not counts."""
        key, part = _key(path)
        counts = self._counts[part]
        number = counts.pop(key, 0)
        counts[key] = number
        if len(counts) > _PATHS // PARTS:
            del counts[next(iter(counts))]
        if number >= self._cap:
            return True
        counts[key] = number + 1
        self._new.setdefault(part, Counter())[key] += 1
        return False

    @property
    def changed(self) -> list[int]:
        """The parts that have changed since they were kept, the longest first."""
        return list(self._new)

    def merged(self, part: int, kept: bytes | None) -> bytes:
        """What to keep of a part in place of what is kept: others may have counted, too."""
        counts = _read(kept)
        for key, number in self._new.get(part, {}).items():
            counts[key] = counts.pop(key, 0) + number
        entries = [(key, min(number, _MOST)) for key, number in _last(counts).items()]
        return pack(f">{'8sI' * len(entries)}", *chain.from_iterable(entries))

    def load(self, part: int, kept: bytes | None) -> None:
        """Go on from what is kept of a part."""
        self._counts[part] = _read(kept)
        self._new.pop(part, None)


def part_of(path: str) -> int:
    """The part that a path belongs to."""
    return _key(path)[1]


def count_in(path: str, kept: bytes | None) -> int:
    """How many URLs of a path what is kept of its part says."""
    return _read(kept).get(_key(path)[0], 0)


def _key(path: str) -> tuple[bytes, int]:
    # That two of ten thousand share a key has a chance of 1e-11.
    key = blake2b(path.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return key, key[0] % PARTS


def _read(kept: bytes | None) -> dict[bytes, int]:
    """What is kept, whatever has become of it."""
    kept = kept or b""
    return _last(dict(iter_unpack(">8sI", kept[: len(kept) // 12 * 12])))


def _last(counts: dict[bytes, int]) -> dict[bytes, int]:
    """Those that were met last, as many as a part may have."""
    return dict(islice(counts.items(), max(0, len(counts) - _PATHS // PARTS), None))

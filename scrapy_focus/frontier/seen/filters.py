"""Filters: a few bytes a URL, all of them in memory, and a small share of errors.

A filter is split into parts by key, so that none is large and whatever must be done with one at
once takes little time.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol
from zlib import crc32

from scrapy_focus.frontier.seen.contract import (
    Choice,
    Lost,
    Over,
    SeenSet,
    Stopped,
    entry,
)

_MAGIC = b"focus seen 1\n"
#: How many parts there are, and how many are copied in one call.
_PARTS, _AT_ONCE = 64, 1
_LENGTH = struct.Struct(">Q")
_DIGEST = 16


class _Part(Protocol):
    def has(self, item: bytes) -> bool: ...
    def add(self, item: bytes) -> None: ...
    def remove(self, item: bytes) -> None: ...
    def dump(self) -> Iterable[bytes]: ...


class FilterSet(SeenSet):
    """A filter in memory, and the file that it is stored in whole."""

    def __init__(self, choice: Choice, path: Path) -> None:
        super().__init__(choice, path)
        capacity = -(-choice.capacity // _PARTS)
        self._parts: list[Any] = [self._new(capacity, choice.error) for _ in range(_PARTS)]
        #: Whether something was forgotten since it was stored.
        self._forgot = False
        #: The parts as they are about to be stored.
        self._dumps: list[list[bytes]] = []

    @abstractmethod
    def _new(self, capacity: int, error: float) -> _Part:
        """An empty part."""

    @abstractmethod
    def _read(self, capacity: int, error: float, dump: list[bytes]) -> _Part:
        """A part that was stored."""

    def has(self, key: bytes, copy: int = 0) -> bool:
        item = entry(key, copy)
        found: bool = self._parts[crc32(item) % _PARTS].has(item)
        return found

    def _add(self, item: bytes) -> None:
        part = self._parts[crc32(item) % _PARTS]
        # A row may come twice, after a kill.
        if not part.has(item):
            part.add(item)

    def add(self, rows: Sequence[Over]) -> None:
        for row in rows:
            self._add(entry(row.key))
            if row.copy:
                self._add(entry(row.key, row.copy))
        self.count += len(rows)

    def prepare(self) -> bool:
        if not self._dumps:
            self._forgot = False
        first = len(self._dumps)
        self._dumps += [list(part.dump()) for part in self._parts[first : first + _AT_ONCE]]
        return len(self._dumps) < _PARTS

    def store(self, number: int) -> None:
        self._save(number)
        self.round = number

    def remove(self, keys: Iterable[bytes]) -> None:
        for item in map(entry, keys):
            part = self._parts[crc32(item) % _PARTS]
            if part.has(item):
                part.remove(item)
                self._forgot = True

    def _save(self, number: int) -> None:
        """Write a new file beside the one before, which it replaces when it is whole."""
        new = self.path.with_name(f"{self.path.name}-new")
        head = {"set": self.name, "round": number, "count": self.count}
        head |= {"error": self.choice.error, "capacity": self.choice.capacity}
        digest = hashlib.blake2b(digest_size=_DIGEST)
        file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            with os.fdopen(file, "wb") as out:
                first = _MAGIC + json.dumps(head).encode() + b"\n"
                digest.update(first)
                out.write(first)
                for dump in self._dumps:
                    if self._stopped.is_set():
                        raise Stopped
                    for piece in (_LENGTH.pack(len(dump)), *dump):
                        framed = _LENGTH.pack(len(piece))
                        for data in (framed, piece):
                            digest.update(data)
                            out.write(data)
                out.write(digest.digest())
                out.flush()
                os.fsync(out.fileno())
            new.replace(self.path)
        except BaseException:
            with suppress(OSError):
                new.unlink()
            raise
        finally:
            self._dumps = []
        sync_folder(self.path.parent)

    def load(self, *, read_only: bool = False) -> None:
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            raise Lost("is missing") from None
        except OSError as error:
            raise Lost(f"cannot be read ({error.strerror})") from None
        body = memoryview(data)[:-_DIGEST]
        if not data.startswith(_MAGIC) or (
            hashlib.blake2b(body, digest_size=_DIGEST).digest() != data[-_DIGEST:]
        ):
            raise Lost("is damaged")
        at = data.index(b"\n", len(_MAGIC)) + 1
        head = json.loads(data[len(_MAGIC) : at])
        if head["set"] != self.name:
            raise Lost(f"is of the set {head['set']!r}")
        # It stays as it was made.
        self.choice = Choice(self.name, head["error"], head["capacity"])
        capacity = -(-self.choice.capacity // _PARTS)
        parts = []
        pieces = _pieces(body, at)
        for (number,) in (_LENGTH.unpack(next(pieces)) for _ in range(_PARTS)):
            dump = [bytes(next(pieces)) for _ in range(number)]
            parts.append(self._read(capacity, self.choice.error, dump))
        self._parts = parts
        self.round, self.count = head["round"], head["count"]

    def flush(self) -> None:
        if self._forgot:
            self._dumps = []
            while self.prepare():
                pass
            self._stopped.clear()
            with suppress(OSError):  # then it is seen still
                self._save(self.round)


def _pieces(data: memoryview, at: int) -> Any:
    while at < len(data):
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        yield data[at : at + length]
        at += length


def sync_folder(folder: Path) -> None:
    """Let a power cut not undo a rename."""
    if os.name == "nt":
        return
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _hash(item: bytes) -> int:
    """The same in every process, which Python's own is not."""
    return int.from_bytes(hashlib.blake2b(item, digest_size=16).digest(), "big", signed=True)


class _Layers:
    """Bloom filters, of which each is twice as large as the one before, and errs half as often:
    together they err no more often than they may."""

    def __init__(self, bloom: Any, capacity: int, error: float) -> None:
        self._bloom = bloom
        self._capacity, self._error = capacity, error
        # They are given hashes, so that each item is hashed once.
        self._layers: list[Any] = []
        #: How many more the last one takes.
        self._room = 0

    def has(self, item: bytes) -> bool:
        number = _hash(item)
        return any(number in layer for layer in self._layers)

    def add(self, item: bytes) -> None:
        if not self._room:
            self._room = self._capacity << len(self._layers)
            error = self._error / (2 << len(self._layers))
            self._layers.append(self._bloom(self._room, error, int))
        self._layers[-1].add(_hash(item))
        self._room -= 1

    def remove(self, item: bytes) -> None:
        raise NotImplementedError("Nothing can be taken out of a Bloom filter.")

    def dump(self) -> Iterable[bytes]:
        return [_LENGTH.pack(self._room), *(layer.save_bytes() for layer in self._layers)]

    def read(self, dump: list[bytes]) -> _Layers:
        (self._room,) = _LENGTH.unpack(dump[0])
        self._layers = [self._bloom.load_bytes(layer, int) for layer in dump[1:]]
        return self


class BloomSet(FilterSet):
    """Bloom filters of rbloom."""

    name = "bloom"

    def __init__(self, choice: Choice, path: Path) -> None:
        import rbloom  # noqa: PLC0415 - an extra

        self._bloom = rbloom.Bloom
        super().__init__(choice, path)

    def _new(self, capacity: int, error: float) -> _Part:
        return _Layers(self._bloom, capacity, error)

    def _read(self, capacity: int, error: float, dump: list[bytes]) -> _Part:
        return _Layers(self._bloom, capacity, error).read(dump)


class _Cuckoo:
    def __init__(self, scf: Any) -> None:
        self._scf = scf
        self.has = scf.might_contain
        self.add = scf.insert
        self.remove = scf.remove

    def dump(self) -> Iterable[bytes]:
        return [self._scf.serialize()]


class CuckooSet(FilterSet):
    """Cuckoo filters of scalable_cuckoo_filter, which grow by themselves."""

    name = "cuckoo"

    def __init__(self, choice: Choice, path: Path) -> None:
        import scf  # noqa: PLC0415 - an extra

        self._scf = scf.PyScalableCuckooFilter
        super().__init__(choice, path)

    def _new(self, capacity: int, error: float) -> _Part:
        return _Cuckoo(self._scf(capacity, error))

    def _read(self, capacity: int, error: float, dump: list[bytes]) -> _Part:
        return _Cuckoo(self._scf.deserialize(dump[0]))

"""A disk that is rebuilt as a power cut may leave it, from the journal of a process's writes
that ``powercut.c`` keeps."""

from __future__ import annotations

import random
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

_HEAD = struct.Struct("=cqII")
#: What a disk writes at once, in bytes.
_SECTOR = 512


class Record(NamedTuple):
    """One operation on a file."""

    #: w(rite), t(runcate), s(ync) or u(nlink).
    kind: str
    #: Where it is written; of t, the size.
    offset: int
    path: str
    data: bytes


def build(folder: Path) -> Path:
    """Compile the library that keeps the journal, to be preloaded."""
    library = folder / "powercut.so"
    source = Path(__file__).with_name("powercut.c")
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl", "-pthread"], check=True
    )
    return library


def read_journal(content: bytes) -> Iterator[Record]:
    at = 0
    while at < len(content):
        kind, offset, path_size, size = _HEAD.unpack_from(content, at)
        at += _HEAD.size
        path = content[at : at + path_size].decode()
        at += path_size
        yield Record(kind.decode(), offset, path, content[at : at + size])
        at += size


@dataclass(eq=False)
class _File:
    #: As it was synced last.
    synced: bytes = b""
    #: What has been done since.
    pending: list[Record] = field(default_factory=list)


def _written(content: bytearray, offset: int, data: bytes) -> None:
    content.extend(bytes(max(0, offset - len(content))))
    content[offset : offset + len(data)] = data


def _done(content: bytearray, record: Record) -> None:
    if record.kind == "w":
        _written(content, record.offset, record.data)
    else:
        del content[record.offset :]
        content.extend(bytes(record.offset - len(content)))


class Disk:
    """The files of one folder: what is safe, and what a power cut may take away.

    A sync makes a file's content safe, and a sync of the folder which files there are. Of
    what was done since, any part may have reached the disk, in any order: of a write,
    any of its sectors.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self._files: dict[str, _File] = {}
        #: As the folder was synced last, and what has become of names since.
        self._safe: dict[str, _File] = {}
        self._names: list[tuple[str, _File | None]] = []
        #: Whether the last rebuilt state lacked something that had been done.
        self.lacks = False

    def do(self, record: Record) -> None:
        path = record.path
        if path == self._folder:
            assert record.kind == "s"
            self._safe, self._names = dict(self._files), []
        elif record.kind == "u":
            self._files.pop(path, None)
            self._names.append((path, None))
        else:
            assert record.kind in "wts"
            if path not in self._files:
                self._files[path] = _File()
                self._names.append((path, self._files[path]))
            file = self._files[path]
            if record.kind == "s":
                content = bytearray(file.synced)
                for earlier in file.pending:
                    _done(content, earlier)
                file.synced, file.pending = bytes(content), []
            else:
                file.pending.append(record)

    def rebuild(self, folder: Path, rng: random.Random, kept: float) -> None:
        """Write down what may be left.

        :param kept: the probability of each operation that was not made safe
        """
        self.lacks = False
        names = dict(self._safe)
        for path, file in self._names:
            if not self._keeps(rng, kept):
                continue
            if file:
                names[path] = file
            else:
                names.pop(path, None)
        for path, file in names.items():
            (folder / Path(path).name).write_bytes(self._content(file, rng, kept))

    def _keeps(self, rng: random.Random, kept: float) -> bool:
        keeps = rng.random() < kept
        self.lacks |= not keeps
        return keeps

    def _content(self, file: _File, rng: random.Random, kept: float) -> bytes:
        content = bytearray(file.synced)
        for record in file.pending:
            if record.kind == "t" or rng.random() < 0.7:
                if self._keeps(rng, kept):
                    _done(content, record)
                continue
            # Torn.
            at, end = record.offset, record.offset + len(record.data)
            while at < end:
                sector = min(end, (at // _SECTOR + 1) * _SECTOR)
                if self._keeps(rng, kept):
                    _written(content, at, record.data[at - record.offset : sector - record.offset])
                at = sector
        return bytes(content)

"""Whether SQLite could read the whole write-ahead log of a file.

What a process has left in its log when it died is read when the file is opened next. SQLite reads
up to the first frame that is damaged and says nothing of the rest: here it is told.
https://www.sqlite.org/fileformat2.html#the_write_ahead_log
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

_HEADER = struct.Struct(">8I")
_FRAME = struct.Struct(">6I")
_MAGIC = (0x377F0682, 0x377F0683)
#: So many times a log is begun anew, at most, until it is removed.
_LOGS = 1 << 20


class Log(NamedTuple):
    """What a log's frames say of themselves."""

    salts: tuple[int, int]
    #: The number of the last frame, from 1, that ends a transaction, or may have done so before
    #: it was damaged; 0 where there is none.
    last: int


def read_log(database: Path) -> Log:
    """Look at the frames of a log, without a look at what they hold."""
    try:
        with Path(f"{database}-wal").open("rb") as file:
            header = file.read(_HEADER.size)
            if len(header) < _HEADER.size:
                return Log((0, 0), 0)
            magic, _, page, _, *salts, _, _ = _HEADER.unpack(header)
            intact = magic in _MAGIC and _sums(header[:24], magic) == _HEADER.unpack(header)[6:]
            if not intact:
                page, salts = _page_size(database), []
            return _last(file.read, page, salts)
    except OSError:
        return Log((0, 0), 0)


def _last(read: Callable[[int], bytes], page: int, salts: list[int]) -> Log:
    number = last = 0
    while len(frame := read(_FRAME.size + page)) == _FRAME.size + page:
        number += 1
        _, pages, *found = _FRAME.unpack_from(frame)
        # After a damaged header, its own frames are those that come first.
        salts = salts or found[:2]
        # What is left of an earlier log has a first salt that is a little smaller.
        older = 0 < (salts[0] - found[0]) % (1 << 32) < _LOGS
        if (pages and found[:2] == salts) or (found[:2] != salts and not older):
            last = number
    return Log((salts[0], salts[1]) if salts else (0, 0), last)


def _page_size(database: Path) -> int:
    with database.open("rb") as file:
        size = int.from_bytes(file.read(18)[16:], "big")
    return 65536 if size == 1 else max(size, 512)


def _sums(data: bytes, magic: int) -> tuple[int, int]:
    one = two = 0
    words = struct.unpack(f"{'>' if magic & 1 else '<'}{len(data) // 4}I", data)
    for first, second in zip(words[::2], words[1::2], strict=True):
        one = (one + first + two) & 0xFFFFFFFF
        two = (two + second + one) & 0xFFFFFFFF
    return one, two

"""Whether SQLite could read the whole write-ahead log of a file.

What a process has left in its log when it died is read when the file is opened next. SQLite reads
up to the first frame that is damaged and says nothing of the rest: here it is told.
https://www.sqlite.org/fileformat2.html#the_write_ahead_log
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

_HEADER = struct.Struct(">8I")
_FRAME = struct.Struct(">4I8x")
_MAGIC = (0x377F0682, 0x377F0683)
#: So many times a log is begun anew, at most, until it is removed.
_LOGS = 1 << 20


class Log(NamedTuple):
    """What a log says of itself."""

    header: bytes = b""
    #: The number of the last frame that ends a transaction, from 1, or may have done so before it
    #: was damaged; 0 where there is none. If the header is damaged nobody can tell: then 1.
    last: int = 0


def read_log(database: Path) -> Log:
    """Look at the frames of a log, without a look at what they hold."""
    try:
        with Path(f"{database}-wal").open("rb") as file:
            header = file.read(_HEADER.size)
            if len(header) < _HEADER.size:
                return Log()
            magic, _, page, _, *salts, one, two = _HEADER.unpack(header)
            if magic not in _MAGIC or _sums(header[:24], magic) != (one, two):
                return Log(header, 1)
            number = last = 0
            while len(frame := file.read(_FRAME.size + page)) == _FRAME.size + page:
                number += 1
                _, pages, *found = _FRAME.unpack_from(frame)
                # What is left of an earlier log has a first salt that is a little smaller.
                older = 0 < (salts[0] - found[0]) % (1 << 32) < _LOGS
                if pages if found == salts else not older:
                    last = number
            return Log(header, last)
    except OSError:
        return Log()


def _sums(data: bytes, magic: int) -> tuple[int, int]:
    one = two = 0
    words = struct.unpack(f"{'>' if magic & 1 else '<'}{len(data) // 4}I", data)
    for first, second in zip(words[::2], words[1::2], strict=True):
        one = (one + first + two) & 0xFFFFFFFF
        two = (two + second + one) & 0xFFFFFFFF
    return one, two

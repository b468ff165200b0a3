"""A RocksDB beside the frontier: exact, on the disk, with the state, time and host of each URL."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from scrapy_focus.exceptions import FrontierError
from scrapy_focus.frontier.seen.contract import (
    Choice,
    Lost,
    Over,
    SeenSet,
    Stopped,
    entry,
)
from scrapy_focus.frontier.seen.filters import sync_folder

#: Seconds that opening waits for another process.
_PATIENCE = 5.0
#: Seconds that the thread which writes sleeps after a little work, and how many rows that is:
#: Python lets a thread that computes go on for 5 ms, and the one that waits is the crawl's.
_PAUSE, _LITTLE = 0.0005, 50
#: The round and how many keys there are; written after what they speak of.
_MARK = b"m"
_ROUND = struct.Struct(">QQ")
#: State and time of a key, before its host.
_VALUE = struct.Struct(">Bd")


def _of_host(host: str) -> bytes:
    """What the index by host begins with: the labels from the last to the first."""
    return b"d" + ".".join(reversed(host.split("."))).encode()


class RocksSet(SeenSet):
    """RocksDB, by rocksdict."""

    name = "rocksdb"

    def __init__(self, choice: Choice, path: Path) -> None:
        import rocksdict  # noqa: PLC0415 - an extra

        super().__init__(choice, path)
        self._rocks = rocksdict
        self._db: Any = None
        #: What is about to be stored.
        self._added: list[Over] = []
        #: What was forgotten since it was added.
        self._unwanted: set[bytes] = set()

    def _open(self, *, read_only: bool = False) -> None:
        rocks = self._rocks
        options = rocks.Options(raw_mode=True)
        tables = rocks.BlockBasedOptions()
        # What is not there is told without a look at the disk.
        tables.set_bloom_filter(10, False)
        tables.set_block_cache(rocks.Cache(32_000_000))
        options.set_block_based_table_factory(tables)
        options.set_keep_log_file_num(1)
        access = rocks.AccessType.read_only() if read_only else rocks.AccessType.read_write()
        deadline = time.monotonic() + _PATIENCE
        while self._db is None:
            try:
                self._db = rocks.Rdict(str(self.path), options, access_type=access)
            except Exception as error:
                # A run that has just ended closes it in a moment.
                if "lock" not in str(error).lower() or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def load(self, *, read_only: bool = False) -> None:
        if not self.path.is_dir():
            raise Lost("is missing")
        try:
            self._open(read_only=read_only)
            mark = self._db.get(_MARK)
        except Exception as error:  # noqa: BLE001 - rocksdict has no other
            raise Lost(f"cannot be read ({' '.join(str(error).split())})") from None
        if mark is None or len(mark) != _ROUND.size:
            raise Lost("is damaged")
        self.round, self.count = _ROUND.unpack(mark)

    def _get(self, item: bytes) -> Any:
        if self._db is None:
            return None
        try:
            return self._db.get(item)
        except Exception as error:
            raise FrontierError(
                f"The seen set {self.path} cannot be read: {' '.join(str(error).split())}. Restore "
                "it from a copy, or start the job over: FOCUS_RESUME = False."
            ) from error

    def has(self, key: bytes, copy: int = 0) -> bool:
        return self._get(entry(key, copy)) is not None

    def find(self, key: bytes) -> tuple[int, float] | None:
        value = self._get(entry(key))
        return None if value is None else _VALUE.unpack_from(value)

    def add(self, rows: Sequence[Over]) -> None:
        self._added += rows
        self._unwanted.difference_update(row.key for row in rows)

    def store(self, number: int) -> None:
        if self._db is None:
            with suppress(FileExistsError):
                self.path.mkdir(mode=0o700)
            self._try(self._open)
            sync_folder(self.path.parent)
        for first in range(0, len(self._added), _LITTLE):
            if self._stopped.wait(_PAUSE):
                raise Stopped
            batch = self._rocks.WriteBatch(raw_mode=True)
            for row in self._added[first : first + _LITTLE]:
                value = _VALUE.pack(row.state, row.at) + row.host.encode()
                batch.put(entry(row.key), value)
                batch.put(_of_host(row.host) + b"\0" + row.key, b"")
                if row.copy:
                    batch.put(entry(row.key, row.copy), b"")
            self._try(self._db.write, batch)
        count = self.count + len(self._added)
        # What was forgotten meanwhile may have been written after that.
        self.remove(list(self._unwanted))
        batch = self._rocks.WriteBatch(raw_mode=True)
        batch.put(_MARK, _ROUND.pack(number, count))
        self._try(self._db.write, batch)
        self._sync()
        self._added = []
        self.round, self.count = number, count

    def _try(self, call: Callable[..., Any], *values: Any) -> None:
        try:
            call(*values)
        except Exception as error:
            raise OSError(0, " ".join(str(error).split())) from error

    def _sync(self) -> None:
        """What ``sync`` of rocksdict does, which would hold all threads meanwhile. What is in no
        log any more is in a table, which RocksDB has synced."""
        for log in self.path.glob("*.log"):
            with suppress(FileNotFoundError):
                file = os.open(log, os.O_RDONLY)
                try:
                    os.fsync(file)
                finally:
                    os.close(file)
        sync_folder(self.path)

    def remove(self, keys: Iterable[bytes]) -> None:
        keys = list(keys)
        self._unwanted.update(keys)
        if self._db is None:
            return
        batch = self._rocks.WriteBatch(raw_mode=True)
        for key in keys:
            value = self._get(entry(key))
            if value is not None:
                host = value[_VALUE.size :].decode()
                batch.delete(entry(key))
                batch.delete(_of_host(host) + b"\0" + key)
        self._try(self._db.write, batch)

    def of_domain(self, domain: str, limit: int) -> list[bytes]:
        found: list[bytes] = []
        if self._db is None:
            return found
        start = _of_host(domain)
        for parted in (b"\0", b"."):  # the domain itself, then what is below it
            cursor = self._db.iter()
            cursor.seek(start + parted)
            while cursor.valid() and len(found) < limit:
                item = cursor.key()
                if not item.startswith(start + parted):
                    break
                found.append(item[item.index(b"\0") + 1 :])
                cursor.next()
        return found

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

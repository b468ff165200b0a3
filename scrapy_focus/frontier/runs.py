"""Whether the process of a run is alive, told by an OS lock that it holds."""

from __future__ import annotations

import os
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path

if sys.platform != "win32":
    import fcntl


#: How many files of a folder are looked through for lock files.
_LOOKED_THROUGH = 1000


class RunLock:
    """A lock file that this run holds for as long as its process lives.

    ``flock`` belongs to the open file, not to the process: several crawlers in one
    process do not lose each other's locks, and a process id that the system uses again
    means nothing.

    :param ahead: how far the run's clock is ahead of the steady one, for runs that join it
    """

    def __init__(self, frontier: Path, ahead: float | None = None) -> None:
        self.token = uuid.uuid4().hex
        self._path = lock_path(frontier, self.token)
        self._file: int | None = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        if sys.platform != "win32":
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if ahead is not None:
            os.write(self._file, repr(ahead).encode())

    def release(self) -> None:
        """Give the lock back and remove its file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
            with suppress(OSError):
                self._path.unlink()


def find_boot() -> str | None:
    """Which of the machine's starts its steady clock counts from, where that can be told."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return None


class Company:
    """Whether other runs are at a frontier, as far as its folder tells."""

    def __init__(self, frontier: Path) -> None:
        self._frontier = frontier
        self._folder = frontier.absolute().parent
        self._changed = 0
        self._alone = False

    def alone(self, token: str) -> bool:
        """Whether the run with this token is the only one. A run shows itself before it
        touches the frontier."""
        try:
            changed = self._folder.stat().st_mtime_ns
        except OSError:
            return False
        if changed == self._changed:
            return self._alone
        # A file system tells times apart by some milliseconds only: look again until then.
        settled = time.time_ns() - changed > 100_000_000
        self._changed = changed if settled else 0
        self._alone = not self._finds_others(token)
        return self._alone

    def _finds_others(self, token: str) -> bool:
        prefix = f"{self._frontier.name}.run-"
        with os.scandir(self._folder) as entries:
            for number, entry in enumerate(entries):
                if number > _LOOKED_THROUGH:
                    return True  # for all that is known
                if entry.name.startswith(prefix) and entry.name != f"{prefix}{token}":
                    return True
        return False


def lock_path(frontier: Path, token: str) -> Path:
    """The lock file of the run with this token."""
    return frontier.with_name(f"{frontier.name}.run-{token}")


def is_alive(frontier: Path, token: str) -> bool:
    """Whether the process that started this run still holds its lock."""
    try:
        file = os.open(lock_path(frontier, token), os.O_RDONLY)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # not ours to judge
    try:
        if sys.platform == "win32":  # which refuses to remove an open file
            return True
        # Shared: two that look at the same moment must not take each other for the run.
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False


def clock_of(frontier: Path) -> float | None:
    """How far the clock of the runs that are at a frontier is ahead of the steady one, if there
    are any."""
    if sys.platform == "win32":
        return None  # a file of a run that is dead looks the same
    for token in _tokens(frontier):
        if is_alive(frontier, token):
            with suppress(OSError, ValueError):
                return float(lock_path(frontier, token).read_text())
    return None


def _tokens(frontier: Path) -> list[str]:
    """The tokens of all runs that have a lock file."""
    prefix = lock_path(frontier, "").name
    try:
        names = [path.name for path in frontier.parent.iterdir()]
    except OSError:
        return []  # opening the frontier will say why
    return [name[len(prefix) :] for name in names if name.startswith(prefix)]


def forget_dead(frontier: Path) -> None:
    """Remove the lock files that nobody holds: a run that is killed as it begins or ends leaves
    one that no row of the frontier names. Only who may write to the frontier may do so, since
    it takes that, too, to make a lock file and lock it."""
    for token in _tokens(frontier):
        if not is_alive(frontier, token):
            forget(frontier, token)


def forget(frontier: Path, token: str) -> None:
    """Remove the lock file of a run that is over."""
    with suppress(OSError):
        lock_path(frontier, token).unlink()

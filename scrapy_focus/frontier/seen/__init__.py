"""Sets that know which URLs a job has seen when their rows are gone.

Each is beside the frontier, in ``<frontier>.seen-<job>``. Its library is an extra, imported only
where the set is used.
"""

from __future__ import annotations

import importlib
import shutil
from contextlib import suppress
from pathlib import Path

from scrapy_focus.exceptions import FrontierError, SettingError
from scrapy_focus.frontier.seen.contract import (
    CHOICES,
    EXACT,
    Choice,
    Lost,
    Over,
    SeenSet,
    Stopped,
)

__all__ = [
    "CHOICES",
    "EXACT",
    "Choice",
    "Lost",
    "Over",
    "SeenSet",
    "Stopped",
    "build_set",
    "find_sets",
    "look_up",
    "path_of",
    "remove",
    "remove_old",
]

#: The module of each set, and the class.
_SETS = {
    "bloom": ("filters", "BloomSet"),
    "cuckoo": ("filters", "CuckooSet"),
    "rocksdb": ("rocks", "RocksSet"),
}


def path_of(frontier: Path, job: int) -> Path:
    """Where the seen set of a generation of a job is: a file, or a folder."""
    return frontier.with_name(f"{frontier.name}.seen-{job}")


def build_set(choice: Choice, path: Path) -> SeenSet:
    """An empty set; what is at the path is looked at by :meth:`.SeenSet.load`.

    :raises scrapy_focus.exceptions.SettingError: if its library is missing
    """
    module, name = _SETS[choice.name]
    cls = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    try:
        built: SeenSet = cls(choice, path)
    except ImportError as error:
        raise SettingError(
            f"FOCUS_SEEN is {choice.name!r}, which needs a library that is not installed: "
            f"pip install scrapy_focus[{choice.name}]"
        ) from error
    return built


def look_up(frontier: Path, job: int, name: str, key: bytes) -> tuple[int, float] | bool | None:
    """What the stored set of a job knows of a key: the state that its row was in and since when,
    whether it is known where it keeps no more, or ``None`` if nobody can tell."""
    if name not in _SETS:
        return None
    try:
        seen = build_set(Choice(name, capacity=1), path_of(frontier, job))
        seen.load(read_only=True)
    except (SettingError, Lost):
        return None
    try:
        return seen.find(key) or seen.has(key)
    finally:
        seen.close()


def remove(path: Path) -> None:
    """Remove a set, and what was left of its last store.

    :raises scrapy_focus.exceptions.FrontierError: if it cannot be removed
    """
    try:
        for part in (path, path.with_name(f"{path.name}-new")):
            if part.is_dir():
                shutil.rmtree(part)
            else:
                part.unlink(missing_ok=True)
    except OSError as error:
        raise FrontierError(
            f"The old seen set {path} cannot be removed: {error.strerror}."
        ) from error


def remove_old(found: list[tuple[Path, int]], jobs: set[int]) -> None:
    """Remove those of the sets whose jobs are not among these."""
    for path, job in found:
        if job not in jobs:
            with suppress(FrontierError):  # it is in nobody's way
                remove(path)


def find_sets(frontier: Path) -> list[tuple[Path, int]]:
    """The sets beside a frontier, and the generations of jobs that they are of."""
    prefix = f"{frontier.name}.seen-"
    try:
        names = [path.name for path in frontier.parent.iterdir()]
    except OSError:
        return []
    numbers = {
        name[len(prefix) :].removesuffix("-new") for name in names if name.startswith(prefix)
    }
    return [(path_of(frontier, int(n)), int(n)) for n in numbers if n.isascii() and n.isdigit()]

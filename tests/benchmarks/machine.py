"""The machine that a figure was measured on, and what Linux says of this process."""

from __future__ import annotations

import os
import platform
import resource
import sqlite3
import subprocess
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_PROC = Path("/proc/self")
_HERE = Path(__file__).parent


def describe(folder: Path) -> dict[str, str]:
    """What has to stand beside a figure.

    :param folder: where the measurements keep their files
    """
    return {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "cpu": _cpu(),
        "cores": str(os.cpu_count()),
        "load": f"{os.getloadavg()[0]:.1f} at the start",
        "system": f"{platform.system()} {platform.release()}",
        "file system": _output("stat", "--file-system", "--format=%T", str(folder)),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        **{name: _version(name) for name in ("scrapy", "twisted", "scrapy-redis")},
        "scrapy_focus": _output("git", "-C", str(_HERE), "describe", "--always", "--dirty"),
    }


def resident() -> int:
    """Bytes of memory that this process has now; 0 where Linux does not say."""
    try:
        return int((_PROC / "statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return 0


def open_files() -> int:
    """How many files this process has open; 0 where Linux does not say."""
    try:
        return len(list((_PROC / "fd").iterdir()))
    except OSError:
        return 0


def read_calls() -> int:
    """How often this process has read from a file: what SQLite's own cache did not have."""
    try:
        lines = dict(line.split(": ") for line in (_PROC / "io").read_text().splitlines())
    except OSError:
        return 0
    return int(lines["syscr"])


def allow_many_files() -> None:
    """Raise the limit on open files as far as it goes: a peer needs one for each host."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _cpu() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in text.splitlines() if "model name" in line]
    return names[0] if names else platform.machine()


def _output(*command: str) -> str:
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found.stdout.strip()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def touch_memory(folder: Path, megabytes: int) -> None:
    """Have so much memory at hand. A virtual machine may be given what it touches only then,
    which doubles the time of the commits that come first."""
    scratch = folder / "scratch"
    with scratch.open("wb") as file:
        for _ in range(megabytes):
            file.write(bytes(1_000_000))
    scratch.unlink()

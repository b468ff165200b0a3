"""What all benchmarks share: sizes, rounds, child processes, folders and fills."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, TypeVar

from tests.benchmarks import frontiers
from tests.benchmarks.machine import touch_memory

if TYPE_CHECKING:
    from tests.benchmarks.redis_server import RedisServer

ROOT = Path(__file__).parent.parent.parent

#: ``tiny`` proves that the benchmarks run, ``quick`` takes minutes, ``normal`` has the sizes
#: of the targets but for 10 million URLs, which ``full`` adds.
SIZES = ("tiny", "quick", "normal", "full")

Sample = dict[str, Any]
T = TypeVar("T")


class MeasurementError(Exception):
    """A measurement has failed; the message ends with its log."""


@dataclass(frozen=True)
class Fill:
    """A SQLite frontier that holds so much already.

    :param seen: rows that are done, beside the waiting ones
    :param cooling: seconds for which every host cools, from the time of the fill
    :param ranks: ``random``, or ``host``: the hosts one after the other, so that those
        that cool stand before those that are open
    """

    urls: int
    hosts: int
    seen: int = 0
    cooling: float = 0.0
    ranks: str = "random"

    @property
    def name(self) -> str:
        cooling = "-cooling" if self.cooling else ""
        return f"{self.urls}-{self.hosts}-{self.seen}-{self.ranks}{cooling}"


@dataclass
class Bench:
    """One run of the command.

    :param folder: where all files go; fills that are found there are used again
    """

    size: str
    rounds: int
    folder: Path
    redis: RedisServer | None
    say: Callable[[str], None]
    #: Measurements that have failed; the others go on.
    failures: list[str] = field(default_factory=list)

    def pick(self, tiny: T, quick: T, normal: T, full: T | None = None) -> T:
        """What belongs to the size that was asked for."""
        chosen = dict(zip(SIZES, (tiny, quick, normal, full), strict=True))[self.size]
        return normal if chosen is None else chosen

    @contextmanager
    def fresh(self) -> Iterator[Path]:
        """A new folder that ends with the measurement."""
        with tempfile.TemporaryDirectory(dir=self.folder, prefix="run-") as folder:
            yield Path(folder)

    def measure(self, function: str, /, **arguments: Any) -> Sample:
        """Call ``module:function`` in a process and a folder of its own.

        A :class:`Fill` among the arguments becomes the path of a copy of it.

        :raises MeasurementError: if it fails
        """
        with self.fresh() as folder:
            for name, value in arguments.items():
                if isinstance(value, Fill):
                    path = folder / "frontier.db"
                    shutil.copy(self.fill(value), path)
                    # Else the kernel does it while we measure.
                    with path.open("rb") as file:
                        os.fsync(file.fileno())
                    arguments[name] = str(path)
            touch_memory(folder, self.pick(0, 64, 256))
            return run_child(folder, function, arguments)

    def fill(self, fill: Fill) -> Path:
        """The file of a fill, made where it is not there yet."""
        path = self.folder / f"fill-{frontiers.schema_name()}-{fill.name}.db"
        if not path.exists() or _too_old(path, fill):
            self.say(f"  filling a frontier: {fill.name}")
            with self.fresh() as folder:
                arguments = {"path": str(folder / "frontier.db"), **asdict(fill)}
                if self.size == "tiny":
                    sample = frontiers.fill(**arguments)
                else:
                    sample = run_child(folder, "frontiers:fill", arguments)
                (folder / "frontier.db").rename(path)
            path.with_suffix(".json").write_text(json.dumps(sample), encoding="utf-8")
        return path

    def filling(self, fill: Fill) -> Sample:
        """What making a fill has cost."""
        text = self.fill(fill).with_suffix(".json").read_text(encoding="utf-8")
        return dict(json.loads(text))

    def alternate(self, cases: Mapping[str, Callable[[], Sample]]) -> dict[str, list[Sample]]:
        """Measure all cases in turn, as often as there are rounds.

        A sample that failed has nothing but ``failed``.
        """
        samples: dict[str, list[Sample]] = {name: [] for name in cases}
        for number in range(self.rounds):
            for name, case in cases.items():
                self.say(f"  {name} ({number + 1} of {self.rounds})")
                try:
                    sample = case()
                except MeasurementError as error:
                    self.fail(f"{name}: {error}")
                    sample = {"failed": "failed"}
                samples[name].append(sample)
        return samples

    def fail(self, text: str) -> None:
        """Keep in mind that something could not be measured, and say it."""
        self.failures.append(text)
        self.say(text)


def _too_old(path: Path, fill: Fill) -> bool:
    """Whether the hosts of a fill do not cool long enough any more."""
    return bool(fill.cooling) and time.time() - path.stat().st_mtime > fill.cooling / 2


def run_child(folder: Path, function: str, arguments: Mapping[str, Any]) -> Sample:
    """Call ``module:function`` in a process whose current folder is *folder*.

    :raises MeasurementError: if it fails
    """
    task, result, log = folder / "task.json", folder / "result.json", folder / "log.txt"
    task.write_text(json.dumps({"function": function, "arguments": arguments}), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    # Either of them would put the crawls into somebody's project.
    for name in ("SCRAPY_PROJECT", "SCRAPY_SETTINGS_MODULE"):
        environment.pop(name, None)
    with log.open("w") as output:
        status = subprocess.run(
            [sys.executable, "-m", "tests.benchmarks.child", str(task), str(result)],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        ).returncode
    if status or not result.exists():
        text = log.read_text(encoding="utf-8", errors="replace")
        raise MeasurementError(f"{function} failed with status {status}:\n{text[-4000:]}")
    return dict(json.loads(result.read_text(encoding="utf-8")))


def at(*keys: str) -> Callable[[Sample], Any]:
    """What a sample has under these keys, one within the other."""

    def value(sample: Sample) -> Any:
        found: Any = sample
        for key in keys:
            found = found[key]
        return found

    return value


def middle(samples: list[Sample], value: Callable[[Sample], float | None]) -> float | None:
    """The median of a value over the rounds, or ``None`` where no round has it."""
    values = [value(sample) for sample in samples if "failed" not in sample]
    found = [number for number in values if number is not None]
    return median(found) if found else None


def ratio(
    ours: list[Sample],
    theirs: list[Sample],
    value: Callable[[Sample], float | None],
    base: Callable[[Sample], float | None] | None = None,
) -> float | None:
    """The median over the rounds of our value divided by theirs of the same round: what
    slows the machine down for a while slows both.

    :param base: what to divide by, if it is not the same value
    """
    pairs = [
        (value(a), (base or value)(b))
        for a, b in zip(ours, theirs, strict=True)
        if "failed" not in a and "failed" not in b
    ]
    found = [a / b for a, b in pairs if a is not None and b]
    return median(found) if found else None

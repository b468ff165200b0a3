"""The command: ``python -m tests.benchmarks [names] [--quick] [--rounds N] [--json FILE]``."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

from tests.benchmarks.bench import ROOT, SIZES, Bench, MeasurementError
from tests.benchmarks.machine import describe
from tests.benchmarks.redis_server import RedisServer, missing
from tests.benchmarks.tables import Report, Table, checks_table

#: All benchmarks, in the order in which they run; each is a module of its own.
NAMES = (
    *("scheduler", "frontier", "window", "cooling", "one_host", "crawl", "reactor", "wakeup"),
    *("seeds", "memory", "bounded", "seen"),
)
#: Those with a column for scrapy-redis.
_WITH_REDIS = {"scheduler", "crawl"}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    names = options.names or NAMES
    if unknown := set(names) - set(NAMES):
        parser.error(f"there is no benchmark {', '.join(unknown)}; there are {', '.join(NAMES)}")
    with ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        redis = None
        if _WITH_REDIS & set(names):
            if lacking := missing():
                print(f"Without scrapy-redis: {lacking}.\n")
            else:
                redis = stack.enter_context(RedisServer())
        bench = Bench(options.size, options.rounds, folder.resolve(), redis, _say)
        machine = describe(folder)
        _show(Table("", ("machine", ""), list(machine.items())))
        reports = []
        for name in names:
            reports += _run(bench, name)
            if options.json:
                # After each: the whole takes long.
                options.json.write_text(_as_json(bench, machine, reports), encoding="utf-8")
    _show(checks_table(check for report in reports for check in report.checks))
    return 1 if bench.failures else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks",
        description="Measure what the frontier and its peers cost.",
        allow_abbrev=False,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured")
    parser.add_argument("--size", choices=SIZES, default="normal")
    for size in ("quick", "full"):
        parser.add_argument(f"--{size}", dest="size", action="store_const", const=size)
    parser.add_argument("--json", type=Path, help="write all samples to this file")
    parser.add_argument(
        "--folder", type=Path, help="keep filled frontiers there, and use those that are there"
    )
    return parser


def _run(bench: Bench, name: str) -> list[Report]:
    """The benchmark's report, if it comes to one."""
    _say(name)
    try:
        report: Report = import_module(f"tests.benchmarks.{name}").run(bench)
    except MeasurementError as error:
        bench.fail(f"{name}: {error}")
        return []
    for table in report.tables:
        _show(table)
    return [report]


def _as_json(bench: Bench, machine: dict[str, str], reports: list[Report]) -> str:
    found = {
        "machine": machine,
        "size": bench.size,
        "rounds": bench.rounds,
        "failures": bench.failures,
        "benchmarks": [asdict(report) for report in reports],
    }
    return json.dumps(found, indent=1)


def _show(table: Table) -> None:
    print(f"{table}\n", flush=True)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    # The children find their measurements from there.
    assert (ROOT / "tests" / "benchmarks").is_dir()
    sys.exit(main())

"""Runs Scrapy's own tests with scrapy_focus as the default scheduler and duplicate filter.

.. code-block:: shell

    pip install -e '.[conformance]'
    python -m tests.conformance.run                # ours
    python -m tests.conformance.run --baseline     # Scrapy's own, nothing left out
    python -m tests.conformance.run -- tests/test_crawl.py -k retry -x

The tests come from the sdist of the Scrapy version that is installed, and run against the
installed Scrapy. Everything happens in a folder of this run's own, with temporary files
inside it, so a frontier is found by one test only: outside a project it is a private
temporary file, inside one it belongs to a project that the test made.

The exit code and the closing line are pytest's.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

from tests.sdists import fetch

HERE = Path(__file__).resolve().parent
STARTUP = HERE / "startup"

#: Patterns of Scrapy's test modules, without ``test_`` and ``.py``. Each must match: a
#: module that Scrapy renames must not drop out of the run unnoticed.
SELECTION = (
    "addons",
    "closespider",
    "command_crawl",
    "command_fetch",
    "command_parse",
    "command_runspider",
    "command_shell",
    "core_downloader",
    "core_scraper",
    "crawl",
    "crawler",
    "crawler_runners",
    "downloadermiddleware",
    "downloaderslotssettings",
    "engine*",
    "feedexport",
    "logstats",
    "pipelines",
    "request_attribute_binding",
    "request_cb_kwargs",
    "request_left",
    "signals",
    "spider_crawl",
    "spider_sitemap",
    "spider_start",
    "spidermiddleware",
    "spidermiddleware_output_chain",
    "spiderstate",
    "stats",
)

#: Seconds after which a test counts as hung; the slowest takes about 3.
TEST_TIMEOUT = 120

#: Asks a child that is started just as the tests start theirs.
ASK_CHILD = """\
from tests.utils.cmdline import proc
for name in ("SCHEDULER", "DUPEFILTER_CLASS"):
    print(proc("settings", "--get", name)[1].strip())
"""


def main() -> int:
    options = parse_arguments()
    scrapy_version = version("scrapy")
    sdist = fetch("scrapy", scrapy_version)
    with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
        source = Path(folder, f"scrapy-{scrapy_version}")
        unpack(sdist, source)
        environment = make_environment(options, Path(folder))
        if not options.baseline:
            check_children(options, source, environment)
        return subprocess.call(pytest_command(options, source), cwd=source, env=environment)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Run Scrapy's own tests with scrapy_focus as the default.",
        epilog="What follows -- goes to pytest; tests that it names replace the selection.",
    )
    parser.add_argument(
        "--baseline", action="store_true", help="Scrapy's own classes, and no test left out"
    )
    parser.add_argument("--scheduler", default="scrapy_focus.Scheduler", metavar="CLASS")
    parser.add_argument("--dupefilter", default="scrapy_focus.DupeFilter", metavar="CLASS")
    parser.add_argument("--excluded", type=Path, default=HERE / "excluded.txt", metavar="FILE")
    parser.add_argument(
        "--only-excluded",
        action="store_true",
        help="run only what is left out otherwise: a test that passes needs no exclusion",
    )
    parser.add_argument("--workers", type=int, default=2, help="pytest processes; default: 2")
    parser.add_argument("pytest", nargs="*", help="arguments for pytest", metavar="-- ARGUMENT")
    return parser.parse_args()


def unpack(sdist: Path, target: Path) -> None:
    """The tests alone: with Scrapy's source beside them they would import that."""
    with tarfile.open(sdist) as archive:
        for member in archive.getmembers():
            name = member.name.partition("/")[2]
            if name.startswith("tests/") or name in ("conftest.py", "pyproject.toml"):
                archive.extract(member.replace(name=name), target, filter="data")


def make_environment(options: argparse.Namespace, folder: Path) -> dict[str, str]:
    # SCRAPY_PROJECT, SCRAPY_SETTINGS_MODULE and the like would put every test in a project.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SCRAPY_")}
    paths = [str(STARTUP), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    (folder / "tmp").mkdir()
    environment["TMPDIR"] = str(folder / "tmp")
    if not options.baseline:
        environment["CONFORMANCE_SCHEDULER"] = options.scheduler
        environment["CONFORMANCE_DUPEFILTER"] = options.dupefilter
    return environment


def check_children(options: argparse.Namespace, source: Path, environment: dict[str, str]) -> None:
    """Stop if the children of tests would run Scrapy's own classes."""
    command = [sys.executable, "-c", ASK_CHILD]
    answer = subprocess.run(
        command, cwd=source, env=environment, check=True, capture_output=True, text=True
    ).stdout.split()
    if answer != [options.scheduler, options.dupefilter]:
        sys.exit(f"The swap does not reach child processes; one has {answer} as its defaults.")


def pytest_command(options: argparse.Namespace, source: Path) -> list[str]:
    command = [sys.executable, "-m", "pytest", "-p", "conformance_plugin"]
    # Else pytest would also look beside the paths among its options, and find our setup.cfg.
    command += ["--config-file", "pyproject.toml", "--rootdir", "."]
    command += ["-n", str(options.workers) if options.workers > 1 else "0"]
    # A hung test is named and ended with its process, not waited for; the thread method,
    # because Twisted's reactor swallows what the signal method raises.
    command += ["--timeout", str(TEST_TIMEOUT), "--timeout-method", "thread"]
    command += ["--repeated", str(HERE / "repeated.txt")]
    whole = not any(argument.startswith("tests") for argument in options.pytest)
    if not options.baseline:
        command += ["--excluded", str(options.excluded.resolve())]
        command += ["--check-excluded"] if whole else []
        command += ["--only-excluded"] if options.only_excluded else []
    return command + options.pytest + (selected(source) if whole else [])


def selected(source: Path) -> list[str]:
    """The paths of the selected test modules, relative to *source*."""
    found: list[Path] = []
    for pattern in SELECTION:
        matches = sorted(source.glob(f"tests/test_{pattern}.py"))
        if not matches:
            sys.exit(f"This Scrapy has no tests/test_{pattern}.py; SELECTION needs a look.")
        found += matches
    return [str(path.relative_to(source)) for path in found]


if __name__ == "__main__":
    sys.exit(main())

"""A pytest plugin: leaves out the tests of ``excluded.txt``, gives those of ``repeated.txt``
more than one try, and says what is swapped in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import scrapy
from packaging.specifiers import SpecifierSet
from scrapy.settings import default_settings

#: How often a test of ``repeated.txt`` runs again at most, until it passes.
RERUNS = 4


@dataclass(frozen=True)
class Entry:
    """One line of a file: ``[>=2.19] tests/test_x.py::test_y  # reason``.

    The condition on Scrapy's version may be missing; the reason may not.
    """

    test: str
    reason: str
    versions: SpecifierSet

    @classmethod
    def parse(cls, line: str) -> Entry:
        # Two spaces: a test's own id may have a hash in it.
        rest, _, reason = line.partition("  # ")
        condition = ""
        if rest.startswith("["):
            condition, _, rest = rest[1:].partition("]")
        if not rest.strip() or not reason.strip():
            raise pytest.UsageError(f"an entry is 'test id  # reason', not {line!r}")
        return cls(rest.strip(), reason.strip(), SpecifierSet(condition))


def read_tests(path: Path) -> set[str]:
    """The tests in a file, those that hold for the Scrapy version that is installed."""
    lines = path.read_text(encoding="utf-8").splitlines()
    entries = [Entry.parse(line) for line in lines if line.strip() and line[0] != "#"]
    return {
        entry.test
        for entry in entries
        if entry.versions.contains(scrapy.__version__, prereleases=True)
    }


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("conformance")
    group.addoption("--excluded", type=Path, help="file of the tests to leave out")
    group.addoption("--repeated", type=Path, help="file of the tests that get several tries")
    group.addoption("--only-excluded", action="store_true", help="run just those instead")
    group.addoption(
        "--check-excluded", action="store_true", help="fail if one of them does not exist"
    )


def pytest_report_header() -> str:
    return (
        f"scrapy {scrapy.__version__}, scheduler: {default_settings.SCHEDULER},"
        f" duplicate filter: {default_settings.DUPEFILTER_CLASS}"
    )


class MissingTest(pytest.Item):
    """Fails in place of an excluded test that does not exist.

    A test, and not an error: of an error in its workers xdist shows nothing useful.
    """

    def runtest(self) -> None:
        pytest.fail(f"Scrapy {scrapy.__version__} has no such test", pytrace=False)


@pytest.hookimpl(tryfirst=True)  # before -k and -m take tests away
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    repeated: Path | None = config.getoption("repeated")
    if repeated is not None:
        tests = read_tests(repeated)
        for item in items:
            if item.nodeid in tests:
                item.add_marker(pytest.mark.flaky(reruns=RERUNS))
    path: Path | None = config.getoption("excluded")
    if path is None:
        return
    excluded = read_tests(path)
    wanted: bool = config.getoption("only_excluded")
    left_out = [item for item in items if (item.nodeid in excluded) is not wanted]
    missing = sorted(excluded - {item.nodeid for item in items})
    items[:] = [item for item in items if (item.nodeid in excluded) is wanted]
    config.hook.pytest_deselected(items=left_out)
    if items and config.getoption("check_excluded"):
        session = items[0].session
        items += [MissingTest.from_parent(session, name=f"{path.name}: {id_}") for id_ in missing]

"""The package as it is built, and the walls between its three rooms."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "scrapy_focus"
SQL_FILES = {path.relative_to(ROOT).as_posix() for path in PACKAGE.rglob("*.sql")}
MODULES = sorted(path.relative_to(ROOT).as_posix() for path in PACKAGE.rglob("*.py"))


# The package that is built


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist and, built from that, the wheel."""
    source = tmp_path_factory.mktemp("source") / "scrapy_focus"
    # From a copy: what an earlier build left beside the sources would come along.
    leftovers = (".*cache", ".git", ".scrapy*", ".venv*", "_build", "*.egg-info", "build", "dist")
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(*leftovers, "__pycache__"))
    target = tmp_path_factory.mktemp("built")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(target)]
    result = subprocess.run(command, cwd=source, check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return target


@pytest.fixture(scope="module")
def wheel(built: Path) -> Iterator[zipfile.ZipFile]:
    (path,) = built.glob("scrapy_focus-*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


@pytest.fixture(scope="module")
def sdist(built: Path) -> set[str]:
    """The sdist's files, relative to its one folder."""
    (path,) = built.glob("scrapy_focus-*.tar.gz")
    with tarfile.open(path) as archive:
        return {member.name.partition("/")[2] for member in archive if member.isfile()}


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return Parser().parsestr(wheel.read(name).decode())


def test_wheel_has_the_package_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    info = {name for name in names if name.partition("/")[0].endswith(".dist-info")}
    assert names - info == {*MODULES, *SQL_FILES, "scrapy_focus/py.typed"}


def test_wheel_has_sql(wheel: zipfile.ZipFile) -> None:
    assert {name for name in wheel.namelist() if name.endswith(".sql")} == SQL_FILES != set()


def test_wheel_has_the_license(wheel: zipfile.ZipFile, metadata: Message) -> None:
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in wheel.namelist())
    assert metadata["License-Expression"] == "BSD-3-Clause"
    assert not [c for c in metadata.get_all("Classifier", []) if c.startswith("License")]


def test_wheel_has_the_command(wheel: zipfile.ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    assert wheel.read(name).decode().split("\n")[:2] == [
        "[scrapy.commands]",
        "frontier = scrapy_focus.commands.frontier:Command",
    ]


def test_it_needs_four_packages(metadata: Message) -> None:
    requirements = map(Requirement, metadata.get_all("Requires-Dist", []))
    needed = {str(r) for r in requirements if r.marker is None or "extra" not in str(r.marker)}
    assert needed == {"scrapy>=2.18", "twisted", "w3lib", "protego"}
    assert metadata["Requires-Python"] == ">=3.10"


@pytest.mark.parametrize("folder", ["docs", "example_project", "tests"])
def test_sdist_has_all_files_of(folder: str, sdist: set[str]) -> None:
    kept = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".cfg", ".py", ".rst", ".sql", ".txt"} and "_build" not in path.parts
    }
    assert kept
    assert kept - sdist == set()


def test_sdist_has_what_a_release_needs(sdist: set[str]) -> None:
    needed = {"LICENSE", "README.rst", "CHANGES.rst", "setup.cfg", "pyproject.toml", ".ci/run"}
    assert needed - sdist == set()
    fixtures = {name for name in sdist if name.startswith("tests/frontier/fixtures/frontier-")}
    assert len(fixtures) == len(list((ROOT / "tests/frontier/fixtures").glob("*.db")))
    assert not [name for name in sdist - fixtures if name.endswith((".pyc", ".db"))]


# The three rooms, as the design calls them

#: For the files under a folder, what they must not import. The longest match counts.
WALLS = {
    "scrapy_focus/": ["sqlite3"],
    "scrapy_focus/decisions/": [
        "scrapy",
        "sqlite3",
        "time",
        "twisted",
        "scrapy_focus.frontier",
    ],
    "scrapy_focus/frontier/": ["scrapy", "twisted"],
}

#: All that the inner rooms may take of this package.
SHARED = {"scrapy_focus.candidate", "scrapy_focus.exceptions"}
ALLOWED = {
    "scrapy_focus/decisions/": {*SHARED, "scrapy_focus.decisions"},
    "scrapy_focus/frontier/": {*SHARED, "scrapy_focus.frontier"},
    # What they share has to be free of the rooms itself.
    "scrapy_focus/candidate.py": set(SHARED),
    "scrapy_focus/exceptions.py": set(SHARED),
}

#: A statement in capitals, as the SQL of this project is written.
SQL = re.compile(
    r"\bSELECT\b.+\bFROM\b|\bINSERT\b.+\bINTO\b|\bUPDATE\b.+\bSET\b|\bDELETE\s+FROM\b"
    r"|\b(CREATE|DROP|ALTER)\s+(UNIQUE\s+|TEMP\s+)?(TABLE|INDEX|TRIGGER|VIEW)\b|\bPRAGMA\b",
    re.DOTALL,
)


def imports(path: str, text: str) -> set[str]:
    """The full names of all modules, and names in them, that a module imports anywhere.

    Under ``if TYPE_CHECKING`` and in functions, too: a wall has no doors for types.
    """
    package = path.removesuffix(".py").split("/")[:-1]
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*above, *filter(None, [node.module])])
            found |= {f"{module}.{alias.name}" for alias in node.names}
    return found


def within(name: str, packages: set[str] | list[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def forbidden(path: str, text: str) -> set[str]:
    """What the module at *path* imports and must not."""
    wall = max((w for w in WALLS if path.startswith(w)), key=len)
    rooms = [r for r in ALLOWED if path.startswith(r)]
    return {
        name
        for name in imports(path, text)
        if within(name, WALLS[wall])
        or any(within(name, ["scrapy_focus"]) and not within(name, ALLOWED[r]) for r in rooms)
    }


def statements(text: str) -> list[str]:
    """The string constants of a module that hold SQL."""
    constants = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant))
    values = (node.value for node in constants)
    return [value for value in values if isinstance(value, str) and SQL.search(value)]


@pytest.mark.parametrize("module", MODULES)
def test_walls(module: str) -> None:
    assert forbidden(module, (ROOT / module).read_text(encoding="utf-8")) == set()


@pytest.mark.parametrize("module", [m for m in MODULES if "/frontier/" not in m])
def test_sql_is_in_the_frontier_alone(module: str) -> None:
    assert statements((ROOT / module).read_text(encoding="utf-8")) == []


def test_there_are_three_rooms() -> None:
    for room in ("decisions", "frontier"):
        assert (PACKAGE / room / "__init__.py").is_file()
        assert [m for m in MODULES if m.startswith(f"scrapy_focus/{room}/")]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("decisions/x.py", "import time"),
        ("decisions/x.py", "from time import monotonic"),
        ("decisions/x.py", "import scrapy.http"),
        ("decisions/x.py", "from scrapy_focus import frontier"),
        ("decisions/x.py", "from ..frontier.contract import Frontier"),
        ("decisions/x.py", "from .. import settings"),
        ("decisions/x.py", "if TYPE_CHECKING:\n    from scrapy import Request"),
        ("decisions/deep/x.py", "def f():\n    import twisted.web"),
        ("frontier/x.py", "from scrapy import Request"),
        ("frontier/x.py", "from scrapy_focus.decisions.hosts import canonical_host"),
        ("frontier/x.py", "import scrapy_focus.scheduler"),
        ("frontier/x.py", "from scrapy_focus import Scheduler"),
        ("candidate.py", "from scrapy_focus.scheduler import Scheduler"),
        ("scheduler.py", "import sqlite3"),
        ("commands/x.py", "from sqlite3 import connect"),
    ],
)
def test_a_hole_in_a_wall_is_seen(path: str, text: str) -> None:
    assert forbidden(f"scrapy_focus/{path}", text)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("decisions/x.py", "from datetime import datetime\nfrom .hosts import canonical_host"),
        ("decisions/x.py", "from scrapy_focus.candidate import Candidate"),
        ("frontier/x.py", "import sqlite3, time\nfrom scrapy_focus.frontier import contract"),
        ("frontier/x.py", "from scrapy_focus.exceptions import FrontierError"),
        ("scheduler.py", "import scrapy, time\nfrom scrapy_focus.frontier import Frontier"),
    ],
)
def test_what_a_room_may_know_is_not_refused(path: str, text: str) -> None:
    assert forbidden(f"scrapy_focus/{path}", text) == set()


@pytest.mark.parametrize(
    "text",
    [
        '"SELECT url\\nFROM urls"',
        'f"INSERT OR IGNORE INTO {table} VALUES (?)"',
        '"UPDATE hosts SET next_at = ?"',
        '"DELETE FROM urls"',
        '"PRAGMA journal_mode = WAL"',
    ],
)
def test_sql_is_recognised(text: str) -> None:
    assert statements(f"query = {text}")

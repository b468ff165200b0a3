"""What cannot work is refused when the crawl starts, in a sentence that names it."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.project import ADDON, BY_HAND, Project, Run
from tests.site import Site, links


@pytest.fixture(name="site", scope="module")
def _site() -> Iterator[Site]:
    with Site(lambda hit: links("/0", "/1", "/2")) as site:
        yield site


@pytest.fixture(name="crawl")
def _crawl(tmp_path: Path, site: Site) -> Project:
    site.log.clear()
    return Project(tmp_path / "project", PARTS, ROBOTSTXT_OBEY=False)


def errors(log: str) -> list[str]:
    """What scrapy_focus itself has to say."""
    return re.findall(r"\[scrapy_focus\.[a-z_.]+\] ERROR: (.*)", log)


def assert_refused(run: Run, *sentence: str) -> None:
    """One line says what is wrong, the last line too, and so does the exit code."""
    (error,) = errors(run.log)
    assert all(part in error for part in sentence), error
    assert run.log.rstrip().endswith(error)
    assert run.returncode == 1


# -- settings ----------------------------------------------------------------------------------

BAD: list[tuple[str, Any]] = [
    ("FOCUS_FRONTIER", "postgresql://me:secret@host/db"),
    ("FOCUS_FRONTIER", "frontier.db"),
    ("FOCUS_FRONTIER", "sqlite://frontier.db"),
    ("FOCUS_FRONTIER", "sqlite:///"),
    ("FOCUS_FRONTIER", "sqlite:///f.db?mode=memory"),
    ("FOCUS_FRONTIER", ""),
    ("FOCUS_FRONTIER", 5),
    ("FOCUS_JOB", "  "),
    ("FOCUS_JOB", 7),
    ("FOCUS_RESUME", "maybe"),
    ("FOCUS_POLICY", "best"),
    ("FOCUS_POLICY", "no.such.policy"),
    ("FOCUS_POLICY", "spiders.Follow"),
    ("FOCUS_PLUGINS", ["spiders.Plugin"]),
    ("FOCUS_PLUGINS", {"no.such.plugin": 100}),
    ("FOCUS_PLUGINS", {"spiders.Follow": 100}),
    ("FOCUS_PLUGINS", {"scrapy_focus.DupeFilter": "first"}),
    ("FOCUS_TOPIC", "news"),
    ("FOCUS_DOMAINS", ["http://a.example/path"]),
    ("FOCUS_DOMAINS", [5]),
    ("FOCUS_INCLUDED", ["http://a.example/*"]),
    ("FOCUS_EXCLUDED", 5),
    ("FOCUS_CANONICAL", ["slashes"]),
    ("FOCUS_CANONICAL", 5),
    ("FOCUS_TRAPS", {"loops": 3}),
    ("FOCUS_TRAPS", "3"),
    ("FOCUS_PACE_BY", "hosts"),
    ("FOCUS_PACE_BY", {"a b": "c"}),
    ("FOCUS_MAX_DEPTH", -1),
    ("FOCUS_MAX_DEPTH", 1.5),
    ("FOCUS_MAX_PAGES", "many"),
    ("FOCUS_MAX_PAGES", True),
    ("FOCUS_MAX_PAGES_PER_HOST", [1]),
    ("FOCUS_MAX_PAGES_PER_PATH", {"example.com": 1}),
    ("FOCUS_MAX_PAGES_PER_PATH", {"https://example.com/a/": 1}),
    ("FOCUS_MAX_PAGES_PER_PATH", {"example.com/a/": -1}),
    ("FOCUS_MAX_PAGES_PER_PATH", {"exa mple.com/a/": 1}),
    ("FOCUS_MAX_PAGES_PER_PATH", "[1]"),
    ("FOCUS_MAX_WAITING", -1),
    ("FOCUS_MAX_WAITING_PER_HOST", "many"),
    ("FOCUS_MAX_BYTES", "1 MB"),
    ("FOCUS_MAX_SECONDS", "inf"),
    ("FOCUS_MAX_CRAWL_DELAY", "nan"),
    ("FOCUS_HORIZON", -0.1),
    ("FOCUS_DURABILITY", "FULL"),
    ("FOCUS_SERIALIZER", "marshal"),
    ("FOCUS_SEEN", "redis"),
    ("FOCUS_SEEN", ["bloom"]),
    ("FOCUS_SEEN", {"error": 0.1}),
    ("FOCUS_SEEN", {"set": "rocksdb", "error": 0.1}),
    ("FOCUS_SEEN", {"set": "bloom", "error": 0}),
    ("FOCUS_SEEN", {"set": "bloom", "capacity": 1.5}),
    ("FOCUS_SEEN", "{bloom}"),
    ("DOWNLOAD_SLOTS", {"a": {"delay": -1}}),
    ("DOWNLOAD_DELAY", -1),
    ("CONCURRENT_REQUESTS_PER_DOMAIN", 0),
    ("DUPEFILTER_CLASS", "scrapy.dupefilters.RFPDupeFilter"),
    ("DUPEFILTER_CLASS", "no.such.Filter"),
]

#: ``scrapy crawl`` once for each settings module, in a process of its own each, forked so
#: that Scrapy is imported once.
FORKS = """
    import os, sys
    import scrapy.cmdline, scrapy.crawler, scrapy.core.engine, scrapy.spiders
    import scrapy_focus.opening

    url, modules = sys.argv[1], sys.argv[2:]
    for module in modules:
        pid = os.fork()
        if pid == 0:
            with open(module + ".log", "w") as log:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
            os.environ["SCRAPY_SETTINGS_MODULE"] = module
            scrapy.cmdline.execute(["scrapy", "crawl", "follow", "-a", "url=" + url])
        _, status = os.waitpid(pid, 0)
        with open(module + ".code", "w") as code:
            code.write(str(os.waitstatus_to_exitcode(status)))
"""


@pytest.fixture(name="refusals", scope="module")
def _refusals(tmp_path_factory: pytest.TempPathFactory, site: Site) -> Project:
    """A project that was run with every bad setting, once each."""
    site.log.clear()
    crawl = Project(tmp_path_factory.mktemp("bad") / "project")
    modules = []
    for number, (name, value) in enumerate(BAD):
        # As in settings.py: -s would make a string of every value.
        crawl.settings(**{**ADDON, name: value})
        modules.append(f"settings{number}")
        shutil.copy(crawl.folder / "settings.py", crawl.folder / f"settings{number}.py")
    crawl.script(FORKS, site.url("/0"), *modules)
    assert not site.log
    assert not crawl.frontier.exists()
    return crawl


@pytest.mark.parametrize("number", range(len(BAD)), ids=[f"{n}={v}" for n, v in BAD])
def test_bad_settings(refusals: Project, number: int) -> None:
    log = (refusals.folder / f"settings{number}.log").read_text()
    code = int((refusals.folder / f"settings{number}.code").read_text())
    assert_refused(Run(code, log, {}), BAD[number][0])
    assert "secret" not in log.partition("scrapy_focus")[2]


def test_an_unknown_setting(crawl: Project, site: Site) -> None:
    """It is reported with the nearest one that there is."""
    run = crawl.crawl("follow", f"url={site.url('/0')}", FOCUS_MAX_PAGE=1, FOCUS_DELAY=2)
    assert (run.returncode, run.reason) == (0, "finished")
    assert "There is no setting FOCUS_MAX_PAGE. Did you mean FOCUS_MAX_PAGES?" in run.log
    assert "There is no setting FOCUS_DELAY." in run.log


# -- other parts -------------------------------------------------------------------------------

PARTS = """
    from scrapy.dupefilters import BaseDupeFilter

    class ByPath(BaseDupeFilter):
        def __init__(self):
            self.seen = set()

        def request_seen(self, request):
            path = request.url.partition("?")[0]
            known = path in self.seen
            self.seen.add(path)
            return known

        def open(self):
            print("filter opened", flush=True)

        def close(self, reason):
            print("filter closed:", reason, flush=True)

        def log(self, request, spider):
            print("filter refused", request.url, flush=True)

    class Again(Follow):
        name = "again"

        def parse(self, response):
            yield from super().parse(response)
            if len(response.meta.get("again", "")) < 2:
                yield response.follow("/0", meta={"again": response.meta.get("again", "") + "x"})
"""


def test_no_filter_at_all(crawl: Project, site: Site) -> None:
    """Scrapy's BaseDupeFilter is honoured: nothing is a duplicate."""
    run = crawl.crawl(
        "again",
        f"url={site.url('/0')}",
        DUPEFILTER_CLASS="scrapy.dupefilters.BaseDupeFilter",
        CLOSESPIDER_PAGECOUNT=30,
    )
    assert run.reason == "closespider_pagecount"
    assert "dupefilter/filtered" not in run.stats
    assert site.paths().count("/0") > 5


@pytest.mark.parametrize("way", [ADDON, BY_HAND], ids=["addon", "by hand"])
def test_a_filter_of_the_users(crawl: Project, site: Site, way: dict[str, Any]) -> None:
    """It is honoured, with its own ``open``, ``close`` and ``log``."""
    crawl.settings(**{**way, "DUPEFILTER_CLASS": "spiders.ByPath"})
    run = crawl.crawl("again", f"url={site.url('/0')},{site.url('/0?x=1')}")
    assert run.reason == "finished"
    # Seeds with dont_filter are not asked about.
    assert sorted(site.paths()) == ["/0", "/0", "/0?x=1", "/1", "/2"]
    assert run.log.count("filter opened") == 1
    assert run.log.count("filter closed: finished") == 1
    assert run.log.count("filter refused") == run.stats["focus/refused/duplicate"]


@pytest.mark.parametrize("setting", ["FOCUS_MAX_DEPTH=2", "FOCUS_POLICY=breadth"])
def test_depth_without_its_middleware(crawl: Project, site: Site, setting: str) -> None:
    name, value = setting.split("=")
    depth = "scrapy.spidermiddlewares.depth.DepthMiddleware"
    without = {"SPIDER_MIDDLEWARES": {depth: None}}
    run = crawl.crawl("follow", f"url={site.url('/0')}", **without, **{name: value})
    assert "Spider closed (focus_unknown_depth)" in run.log
    (error,) = errors(run.log)
    assert "FOCUS_MAX_DEPTH" in error
    assert "DepthMiddleware" in error
    assert not site.log
    # Its seeds are not lost.
    run = crawl.crawl("follow", f"url={site.url('/0')}", **without)
    assert run.reason == "finished"
    assert len(site.log) == 3


# -- files -------------------------------------------------------------------------------------


def spoil_other_program(file: Path) -> None:
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE mine (value)")
    connection.close()


def spoil_no_database(file: Path) -> None:
    file.write_text("A text. " * 1000)


def spoil_newer(file: Path) -> None:
    with sqlite3.connect(file) as connection:
        connection.execute("PRAGMA application_id = 0x666F6375")
        connection.execute("PRAGMA user_version = 999")
        connection.execute("CREATE TABLE urls (id)")
    connection.close()


def spoil_folder(file: Path) -> None:
    file.mkdir()


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (spoil_other_program, "another program"),
        (spoil_no_database, "not a SQLite database"),
        (spoil_newer, "newer"),
        (spoil_folder, "is a folder"),
    ],
)
def test_a_file_that_is_no_frontier(crawl: Project, site: Site, spoil: Any, sentence: str) -> None:
    """It is refused, and stays as it is."""
    file = crawl.folder / "some.db"
    spoil(file)
    before = file.is_file() and file.read_bytes()
    run = crawl.crawl("follow", f"url={site.url('/0')}", FOCUS_FRONTIER="sqlite:///some.db")
    assert_refused(run, "some.db", sentence)
    assert not site.log
    assert before == (file.is_file() and file.read_bytes())
    assert sorted(path.name for path in crawl.folder.glob("some*")) == ["some.db"]

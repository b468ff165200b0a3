"""What a site, or whoever can write to a frontier's file, must not achieve: to run code, to leave
the job's bounds, to write into the log or the terminal, to stop the crawl or learn a password."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import stat
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from scrapy.settings import Settings

from scrapy_focus.exceptions import Drop, SettingError
from scrapy_focus.location import parse
from scrapy_focus.settings import read_settings
from tests.project import Project
from tests.site import Hit, Site, links

#: A title, colours, a new line that looks like the log's own, and text that runs backwards.
ESCAPE = "\x1b]0;title\x07\x1b[31m\r\n2026-01-01 [scrapy] ERROR: forged\u202e\x9b"


def change(crawl: Project, path: str, column: str, value: Any) -> None:
    with closing(sqlite3.connect(crawl.frontier)) as connection, connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        done = connection.execute(
            f"UPDATE urls SET {column} = ? WHERE url LIKE '%/' || ?", (value, path)
        )
        assert done.rowcount == 1


def our_lines(log: str) -> list[str]:
    return [line for line in log.split("\n") if "[scrapy_focus" in line]


def assert_clean(log: str) -> None:
    """Nothing of :data:`ESCAPE` that does something is in a log's lines."""
    for line in log.split("\n"):
        assert line.isprintable() or not line.replace("\t", "").strip("\r"), ascii(line)
        assert not line.startswith("2026-01-01"), line


# -- stored rows -------------------------------------------------------------------------------

ROWS: dict[str, tuple[str, Any]] = {
    "garbage": ("request", b"\xff\x00garbage"),
    "json": ("request", b'{"m":"GET"'),
    "text": ("request", '{"m":"GET"}'),
    "pickle": ("request", b"\x80\x04cposix\nsystem\n(S'touch owned'\ntR."),
    "class": ("request", b'{"r":"os:system"}'),
    "no-request": ("request", b'{"r":"spiders:Follow"}'),
    "callback": ("request", b'{"c":"__class__"}'),
    "unknown-callback": ("request", json.dumps({"c": f"parse{ESCAPE}"}).encode()),
    "item": ("request", b'{"t":{"x":{"!o":["subprocess:Popen",{"args":"touch owned"}]}}}'),
    "host": ("url", "http://other.test/"),
    "scheme": ("url", "file:///etc/passwd"),
    "no-url": ("url", f"nonsense {ESCAPE}"),
    "user": ("url", "http://127.0.0.1:1\\@other.test/"),
    "blob-url": ("url", b"http://127.0.0.1/"),
    "no-host": ("url", "http:///path"),
    "depth": ("depth", "deep"),
    "priority": ("priority", b"\x00"),
    "attempts": ("attempts", "many"),
    "score": ("score", "good"),
    "time": ("ready_at", "soon"),
}


def test_malformed_rows_in_a_crawl(tmp_path: Path) -> None:
    """Each is set aside and counted; none of them runs or goes anywhere; all others are fetched."""
    names = [*ROWS, *(f"good-{n}" for n in range(5))]
    pages = {"/": links(*(f"/{name}" for name in names))}
    with Site(lambda hit: pages.get(hit.path, "a page")) as site:
        crawl = Project(tmp_path / "p", ROBOTSTXT_OBEY=False)
        url = f"url={site.url('/')}"
        assert crawl.crawl("follow", url, FOCUS_MAX_PAGES=1).reason == "focus_max_pages"
        for name, (column, value) in ROWS.items():
            change(crawl, name, column, value)
        before = {row[0]: row for row in crawl.rows("SELECT * FROM urls")}
        run = crawl.crawl("follow", url)
        # Nothing else waits: what is left is the reason.
        assert (run.returncode, run.reason) == (0, "focus_unreadable")
        assert Counter(site.paths()) == Counter(["/", *(f"/good-{n}" for n in range(5))])
        # The one without a time never comes to its turn.
        assert run.stats["focus/unreadable"] == len(ROWS) - 1
        assert "Traceback" not in run.log
        assert_clean(run.log)
        assert not (crawl.folder / "owned").exists()
        ids = [number for (number,) in crawl.rows("SELECT id FROM urls WHERE state = 0")]
        assert len(ids) == len(ROWS)
        stored = {row[0]: row for row in crawl.rows("SELECT * FROM urls")}
        # They are as they were, but for what says that they are set aside.
        columns = [row[1] for row in crawl.rows("PRAGMA table_info(urls)")]
        free = {columns.index(name) for name in ("ready_at", "attempts", "charged")}
        for number in ids:
            for place, value in enumerate(before[number]):
                assert place in free or stored[number][place] == value
        # And the command shows them to nobody's harm.
        for what in (["stats"], ["urls"], ["urls", "--json"], ["urls", "--state", "deferred"]):
            run = crawl.run("frontier", *what)
            assert run.returncode == 0
            assert "Traceback" not in run.log
            assert_clean(run.log)


def test_text_that_is_none_in_a_crawl(tmp_path: Path) -> None:
    """SQLite stores half a character as text, and cannot read it: the crawl can go on all the
    same, and the command shows it."""
    with Site(lambda hit: links(*(f"/{n}" for n in range(8)))) as site:
        crawl = Project(tmp_path / "p", ROBOTSTXT_OBEY=False)
        url = f"url={site.url('/0')}"
        crawl.crawl("follow", url, FOCUS_MAX_PAGES=1)
        with closing(sqlite3.connect(crawl.frontier)) as connection, connection:
            text = "CAST(x'eda080' || url AS TEXT)"
            connection.execute(f"UPDATE urls SET url = {text} WHERE url LIKE '%/3'")
            connection.execute(f"UPDATE urls SET parent = {text} WHERE url LIKE '%/4'")
        for what in (["stats"], ["urls"], ["urls", "--json"]):
            assert crawl.run("frontier", *what).returncode == 0
        run = crawl.crawl("follow", url)
        assert (run.reason, run.stats["focus/unreadable"]) == ("focus_unreadable", 2)
        errors = [line for line in our_lines(run.log) if "ERROR" in line]
        assert len(errors) == 2
        assert all("cannot be read and is set aside: row" in line for line in errors)
        assert Counter(site.paths()) == Counter(f"/{n}" for n in range(8) if n not in (3, 4))
        assert "Traceback" not in run.log


# -- the door ----------------------------------------------------------------------------------

DOOR = f"""
    from scrapy_focus import Drop

    ESCAPE = {ESCAPE!r}

    class Hostile(Spider):
        name = "hostile"

        async def start(self):
            yield Request(self.url)

        def parse(self, response):
            if response.url != self.url:
                return
            yield Request(self.url + "slot", meta={{"download_slot": "a\\ud800"}})
            yield Request(self.url + "escaped-slot", meta={{"download_slot": ESCAPE}})
            yield Request(self.url + "key", meta={{"focus_key": "\\ud800"}})
            yield Request(self.url + "bad-key", meta={{"focus_key": [ESCAPE]}})
            yield Request(self.url + "\\ud800", meta={{"verbatim_url": True}})
            yield Request(self.url + ESCAPE, meta={{"verbatim_url": True, "drop": True}})
            yield Request(self.url + "'); DROP TABLE urls; --")
            yield Request(self.url + "a" * 100_000)
            yield Request(self.url + "lambda", errback=lambda failure: None)
            yield Request(self.url + "meta", meta={{"note": "\\ud800" + ESCAPE}})
            for name in ("rank", "big", "parent", "text"):
                yield Request(self.url + name, meta={{"break": name}})
            for n in range(3):
                yield Request(self.url + str(n))

    class Breaks:
        def enter(self, candidate, request):
            if request.meta.get("drop"):
                raise Drop("no\\ud800" + ESCAPE)
            match request.meta.get("break"):
                case "rank":
                    candidate.rank = "best"
                case "big":
                    candidate.rank = 1 << 80
                case "parent":
                    candidate.parent = "\\ud800"
                case "text":
                    candidate.priority = None
"""


def test_hostile_requests_at_the_door(tmp_path: Path) -> None:
    """What no store can keep is refused as invalid and counted; the rest goes in."""
    with Site(lambda hit: "a page") as site:
        crawl = Project(
            tmp_path / "p",
            DOOR,
            ROBOTSTXT_OBEY=False,
            FOCUS_PLUGINS={"spiders.Breaks": 900},
            DUPEFILTER_DEBUG=True,
            URLLENGTH_LIMIT=0,
        )
        run = crawl.crawl("hostile", f"url={site.url('/')}")
        assert run.reason == "finished"
        # The slot, a key that is a list, half a character in a URL, and four of the plugin's.
        assert run.stats["focus/refused/invalid"] == 7
        refused = [name for name in run.stats if name.startswith("focus/refused/no")]
        assert [run.stats[name] for name in refused] == [1]
        assert "focus/failed" not in run.stats
        paths = Counter(site.paths())
        assert paths["/" + "a" * 100_000] == 1
        wanted = ["/", "/escaped-slot", "/key", "/lambda", "/meta", "/0", "/1", "/2"]
        assert all(paths[path] == 1 for path in wanted)
        assert sum("DROP" in path for path in paths) == 1
        assert paths.total() == len(wanted) + 2
        for line in our_lines(run.log):
            assert line.isprintable(), ascii(line)
            assert len(line) < 1500
        assert "Traceback" not in run.log
        assert not [line for line in run.log.split("\n") if line.startswith("2026-01-01")]
        assert crawl.rows("SELECT count(*) FROM urls WHERE state = 1") == [(paths.total() - 1,)]
        for what in (["stats"], ["urls", "--limit", "0"], ["urls", "--json"]):
            run = crawl.run("frontier", *what)
            assert run.returncode == 0
            assert_clean(run.log)


def test_a_job_whose_name_is_no_text(tmp_path: Path) -> None:
    """Bytes of the command line that are no UTF-8 come as half characters."""
    with Site(lambda hit: "a page") as site:
        crawl = Project(tmp_path / "p", ROBOTSTXT_OBEY=False)
        odd = os.fsdecode(b"odd=\xff")
        run = crawl.crawl("follow", f"url={site.url('/')}", odd)
        assert run.reason == "finished"
        assert crawl.rows("SELECT name FROM jobs") == [(rf"follow odd=\udcff url={site.url('/')}",)]


@pytest.mark.parametrize("reason", ["plain", 5, "half \ud800", ("a", "tuple"), None])
def test_reasons_can_be_stored(reason: Any) -> None:
    text = Drop(reason).reason
    assert text.encode().decode() == text
    assert reason != "plain" or text == "plain"


# -- files and addresses -----------------------------------------------------------------------


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions")
def test_all_files_of_a_crawl_are_private(tmp_path: Path) -> None:
    """The file, its log, its shared memory and the run's lock, whatever the umask."""
    modes: dict[str, int] = {}

    def look(hit: Hit) -> str:
        folder = tmp_path / "p" / ".scrapy"
        for file in folder.glob("frontier.db*"):
            modes[re.sub("run-.*", "run", file.name)] = stat.S_IMODE(file.stat().st_mode)
        return "a page"

    before = os.umask(0)
    try:
        with Site(look) as site:
            crawl = Project(tmp_path / "p", ROBOTSTXT_OBEY=False)
            crawl.crawl("follow", f"url={site.url('/')}")
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(
        ("frontier.db", "frontier.db-wal", "frontier.db-shm", "frontier.db.run"), 0o600
    )


ADDRESSES = [
    "postgresql://user:s3cret@host/db",
    "postgresql+psycopg2://user:s3cret@host/db",
    "user:s3cret@host://x",
    "user:s3cret@host",
    "s3cret://x",
    "://user:s3cret@",
    "sqlite://user:s3cret@host/x.db",
    "sqlite:///user:s3cret@x.db",
    "sqlite:////user:s3cret@host/x.db",
    "sqlite:///x.db?key=s3cret",
    "sqlite:user:s3cret@x",
    "s3cret\x1b[31m://x",
    "s3cret\ud800",
]


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_password_in_an_address_is_not_shown(address: str) -> None:
    with pytest.raises(SettingError, match="FOCUS_FRONTIER") as found:
        parse(str(read_address(address)))
    assert "s3cret" not in str(found.value)
    assert str(found.value).isprintable()


def test_an_address_of_another_type_is_not_shown() -> None:
    with pytest.raises(SettingError, match="FOCUS_FRONTIER") as found:
        read_address(["postgresql://user:s3cret@host/db"])
    assert "s3cret" not in str(found.value)


def read_address(value: object) -> str | None:
    class Spider:
        name = "x"

    return read_settings(Settings({"FOCUS_FRONTIER": value}), Spider(), {}).frontier  # type: ignore[arg-type]


def test_a_password_in_an_address_reaches_nobody(tmp_path: Path) -> None:
    """Neither the log nor the stats, in a crawl and in the command."""
    crawl = Project(tmp_path / "p", FOCUS_FRONTIER="postgresql://user:s3cret@host/db")
    run = crawl.crawl("follow", "url=http://127.0.0.1:9/")
    assert run.returncode == 1
    assert "has an address of the form 'postgresql' that is not known" in run.log
    assert "s3cret" not in run.log
    assert "s3cret" not in json.dumps(run.stats)
    shown = crawl.run("frontier", "stats")
    assert shown.returncode == 2
    assert "s3cret" not in shown.log

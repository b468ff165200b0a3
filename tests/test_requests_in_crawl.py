"""What a request carries comes back from the SQLite file, in a real crawl."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from pathlib import Path

import pytest

from tests.project import Project
from tests.site import Answer, Hit, Site, links


def project(folder: Path, spiders: str = "", **settings: object) -> Project:
    return Project(folder / "project", spiders, **{"ROBOTSTXT_OBEY": False, **settings})


CARRIES = """
    from dataclasses import dataclass
    from datetime import date, datetime, timedelta, timezone
    from decimal import Decimal
    from scrapy import FormRequest, Item, Field
    from scrapy.http import JsonRequest

    class Page(Item):
        title = Field()

    @dataclass
    class Price:
        amount: Decimal

    VALUES = {
        "tuple": (1, (2, "three")),
        "set": {1, "two"},
        "frozenset": frozenset({3}),
        "bytes": b"\\x00\\xff",
        "datetime": datetime(2024, 2, 29, 12, 30, 1, 5, timezone(timedelta(hours=2))),
        "date": date(2024, 2, 29),
        "decimal": Decimal("1.10"),
        "item": Page(title="Title"),
        "dataclass": Price(Decimal("2.50")),
        "keys": {1: "one", (2, 3): "pair", None: b"none"},
        "text": "\\u00fc\\U0001f600 ' \\" \\\\ </script>",
        "nested": [{"a": [(1, {2})]}],
        "none": None,
        "big": 2 ** 80,
        "float": 0.1,
        "true": True,
    }

    class Carries(Spider):
        name = "carries"

        async def start(self):
            yield Request(self.url + "/0")

        def parse(self, response):
            url = self.url
            yield Request(url + "/values", self.checked, meta={**VALUES}, cb_kwargs={**VALUES})
            yield Request(
                url + "/put",
                self.parse_answer,
                method="PUT",
                body=b"\\x00body\\xff",
                headers={"X-Many": ["one", "two"], "X-Latin": "\\u00fc".encode("latin-1")},
                cookies={"session": "abc"},
                flags=["flagged"],
                cb_kwargs={"flags": ["flagged"]},
            )
            yield Request(url + "/jar", self.parse_answer, cookies=[{"name": "n", "value": "v"}])
            form = {"a": "1", "b": ["2", "3"]}
            yield FormRequest(url + "/form", self.parse_answer, formdata=form)
            yield JsonRequest(url + "/json", self.parse_answer, data={"a": [1, None]})
            yield Request(url + "/head", self.parse_answer, method="HEAD")
            yield Request(url + "/missing", self.parse_answer, errback=self.failed)
            accepts = {"handle_httpstatus_list": [404]}
            yield Request(url + "/missing?ok", self.parse_answer, meta=accepts)

        def checked(self, response, **kwargs):
            for name, value in VALUES.items():
                for found in (response.meta[name], kwargs[name]):
                    assert found == value and type(found) is type(value), (name, found)
            assert list(response.meta["keys"]) == [1, (2, 3), None]
            self.note(response)

        def parse_answer(self, response, flags=None):
            assert response.request.flags == (flags or []), response.request.flags
            self.note(response, type(response.request).__name__)

        def failed(self, failure):
            self.note(failure.value.response, "errback")

        def note(self, response, *more):
            with open("noted.txt", "a") as file:
                file.write(" ".join([response.url[len(self.url):], *more]) + "\\n")
"""


@pytest.mark.parametrize("serializer", ["json", "pickle"])
def test_everything_comes_back(tmp_path: Path, serializer: str) -> None:
    """Stored by one run, handed out by the next."""
    crawl = project(tmp_path, CARRIES, FOCUS_SERIALIZER=serializer)

    def answer(hit: Hit) -> Answer:
        return Answer("a page", status=404 if hit.path.startswith("/missing") else 200)

    with Site(answer) as site:
        run = crawl.crawl("carries", f"url={site.url('')}", FOCUS_MAX_PAGES=1)
        assert run.reason == "focus_max_pages"
        assert "focus/unstorable" not in run.stats
        assert crawl.rows("SELECT count(*), sum(owner IS NOT NULL) FROM urls") == [(9, 0)]
        run = crawl.crawl("carries", f"url={site.url('')}")
        assert run.reason == "finished"
        hits = {hit.path: hit for hit in site.log}

    noted = (crawl.folder / "noted.txt").read_text().splitlines()
    assert sorted(noted) == [
        "/form FormRequest",
        "/head Request",
        "/jar Request",
        "/json JsonRequest",
        "/missing errback",
        "/missing?ok Request",
        "/put Request",
        "/values",
    ]
    assert "Traceback" not in run.log
    put = hits["/put"]
    assert (put.method, put.body) == ("PUT", b"\x00body\xff")
    assert put.headers["x-latin"] == "ü"
    assert "session=abc" in put.headers["cookie"]
    assert "n=v" in hits["/jar"].headers["cookie"]
    assert (hits["/form"].method, hits["/form"].body) == ("POST", b"a=1&b=2&b=3")
    assert (hits["/json"].method, json.loads(hits["/json"].body)) == ("POST", {"a": [1, None]})
    assert hits["/json"].headers["content-type"] == "application/json"
    assert hits["/head"].method == "HEAD"


def test_an_ordinary_get_has_no_blob(tmp_path: Path) -> None:
    crawl = project(tmp_path)
    with Site(lambda hit: links("/a", "/b")) as site:
        crawl.crawl("follow", f"url={site.url('/0')}")
        rows = crawl.rows("SELECT length(request) FROM urls WHERE seed = 0")
        # What there is of it: the header Referer, which Scrapy sets on what a page links.
        assert len(rows) == 2
        assert all(size is None or size < 80 for (size,) in rows)


RENAMED = """
    class Renamed(Spider):
        name = "renamed"

        async def start(self):
            yield Request(self.url + "/0")

        def parse(self, response):
            self.note(response)
            yield Request(self.url + "/detail", self.parse_detail)
            yield Request(self.url + "/other", self.note)

        def parse_detail(self, response):
            self.note(response)

        def note(self, response):
            with open("pages.txt", "a") as file:
                file.write(response.url + "\\n")
"""


def test_a_callback_that_is_gone(tmp_path: Path) -> None:
    """Its row keeps waiting, counted as unreadable, and goes on when the name is back."""
    crawl = project(tmp_path, RENAMED)
    spiders = crawl.folder / "spiders.py"
    before = spiders.read_text()
    with Site(lambda hit: "a page") as site:
        url = f"url={site.url('')}"
        crawl.crawl("renamed", url, FOCUS_MAX_PAGES=1)

        spiders.write_text(before.replace("parse_detail", "parse_product"))
        for waiting in (2, 1):
            run = crawl.crawl("renamed", url)
            assert (run.returncode, run.reason) == (0, "focus_unreadable")
            assert run.stats["focus/unreadable"] == 1
            assert "the spider has no method parse_detail" in run.log
            assert "Traceback" not in run.log
            assert f"Waiting: {waiting}" in run.log
        assert crawl.pages == [site.url("/0"), site.url("/other")]

        spiders.write_text(before)
        run = crawl.crawl("renamed", url)
        assert run.reason == "finished"
        assert site.paths() == ["/0", "/other", "/detail"]


#: Values of columns that no version of ours has written.
MALFORMED: list[tuple[str, object]] = [
    ("request", b""),
    ("request", b"{"),
    ("request", b"not json"),
    ("request", b'{"c": 5}'),
    ("request", b'{"c": "__class__"}'),
    ("request", b'{"c": "settings"}'),
    ("request", b'{"r": "os:system"}'),
    ("request", b'{"t": [1, 2]}'),
    ("request", b'{"unknown": 1}'),
    ("request", b'{"h": [1]}'),
    ("request", b"\x80\x04\x95\xff"),
    ("request", "text"),
    ("request", 7),
    ("url", 5),
    ("url", "no url"),
    ("url", b"http://127.0.0.1/"),
    ("depth", "deep"),
    ("priority", "high"),
]


def test_malformed_rows(tmp_path: Path) -> None:
    """Each is set aside, and the crawl goes on."""
    crawl = project(tmp_path)
    paths = [f"/{n}" for n in range(len(MALFORMED))]
    with Site(lambda hit: links(*paths, "/good", "/better")) as site:
        crawl.crawl("follow", f"url={site.url('/seed')}", FOCUS_MAX_PAGES=1)
        connection = sqlite3.connect(crawl.frontier)
        for path, (column, value) in zip(paths, MALFORMED, strict=True):
            found = connection.execute(
                f"UPDATE urls SET {column} = ? WHERE url = ?", (value, site.url(path))
            )
            assert found.rowcount == 1
        connection.commit()
        connection.close()
        run = crawl.crawl("follow", f"url={site.url('/seed')}", timeout=30)
        assert Counter(site.paths()) == dict.fromkeys(("/seed", "/good", "/better"), 1)
        assert (run.returncode, run.reason) == (0, "focus_unreadable")
        assert run.stats["focus/unreadable"] == len(MALFORMED)
        # Some have a wrong type, which the frontier sees.
        told = ("Cannot read the stored request", "cannot be read and is set aside: row")
        assert sum(run.log.count(words) for words in told) == len(MALFORMED)

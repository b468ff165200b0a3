"""What users of other schedulers reported about requests: their identity, order and storage."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.project import Project
from tests.site import Answer, Hit, Site, links, redirect


def project(folder: Path, spiders: str = "", **settings: object) -> Project:
    return Project(folder / "project", spiders, **{"ROBOTSTXT_OBEY": False, **settings})


FINGERPRINTERS = """
    from hashlib import sha1
    from scrapy.utils.request import RequestFingerprinter

    class WithoutQuery:
        def fingerprint(self, request):
            return sha1(request.url.partition("?")[0].encode()).digest()

    class Fragile(RequestFingerprinter):
        def fingerprint(self, request):
            if "bad" in request.url:
                raise ValueError("this one I cannot tell")
            return super().fingerprint(request)
"""


def test_one_identity(tmp_path: Path) -> None:
    """scrapy#900, scrapy-redis#111: every part has the crawler's fingerprint, for seeds, links,
    retries and redirects, in this run and the next."""
    crawl = project(tmp_path, FINGERPRINTERS, REQUEST_FINGERPRINTER_CLASS="spiders.WithoutQuery")

    def answer(hit: Hit) -> Answer | str:
        if hit.path == "/moved?x=1":
            return redirect("/page?x=3")
        if hit.path == "/busy?x=1" and site.paths().count(hit.path) == 1:
            return Answer(status=503, headers={"Retry-After": "0"})
        return links("/page?x=1", "/page?x=2", "/moved?x=1", "/busy?x=1", "/busy?x=2", "/0?x=9")

    with Site(answer) as site:
        run = crawl.crawl("follow", f"url={site.url('/0')}", CLOSESPIDER_PAGECOUNT=1)
        assert run.reason == "closespider_pagecount"
        run = crawl.crawl("follow", f"url={site.url('/0')}")
        assert run.reason == "finished"
        assert sorted(site.paths()) == ["/0", "/busy?x=1", "/busy?x=1", "/moved?x=1", "/page?x=1"]
        assert len(crawl.pages) == 3


def test_a_fingerprinter_that_raises(tmp_path: Path) -> None:
    """scrapy#6784: the request is dropped and counted, and the crawl goes on."""
    crawl = project(tmp_path, FINGERPRINTERS, REQUEST_FINGERPRINTER_CLASS="spiders.Fragile")

    def answer(hit: Hit) -> Answer | str:
        if hit.path == "/moved":
            return redirect("/bad-target")
        return links("/bad-link", "/moved", "/good")

    with Site(answer) as site:
        run = crawl.crawl("follow", f"url={site.url('/bad-seed')},{site.url('/0')}", timeout=30)
        assert (run.returncode, run.reason) == (0, "finished")
        assert sorted(site.paths()) == ["/0", "/good", "/moved"]
        assert run.stats["focus/refused/error"] == 4
        assert "this one I cannot tell" in run.log


def test_a_stored_request_whose_fingerprint_raises(tmp_path: Path) -> None:
    """scrapy#6784 again, on the way out: the fingerprinter has changed between two runs."""
    crawl = project(tmp_path, FINGERPRINTERS)
    with Site(lambda hit: links("/bad", "/good", "/better")) as site:
        crawl.crawl("follow", f"url={site.url('/0')}", CLOSESPIDER_PAGECOUNT=1, FOCUS_MAX_PAGES=1)
        run = crawl.crawl(
            "follow",
            f"url={site.url('/0')}",
            REQUEST_FINGERPRINTER_CLASS="spiders.Fragile",
            timeout=30,
        )
        assert (run.returncode, run.reason) == (0, "finished")
        # What is stored is known by its key: nobody asks the fingerprinter again.
        assert sorted(site.paths()) == ["/0", "/bad", "/better", "/good"]
        assert "focus/dropped/error" not in run.stats


ORDER = """
    class Order(Follow):
        name = "order"

        async def start(self):
            yield Request(self.url + "/0", priority=100)
            for i in range(1, 4):
                yield Request(self.url + "/low/%d" % i)

        def parse(self, response):
            self.note(response)
            if response.url.endswith("/0"):
                for i in range(1, 4):
                    # Only the second one can be stored.
                    note = lambda response: self.note(response)
                    yield response.follow("/memory/%d" % i, callback=note, priority=1)
                    yield response.follow("/stored/%d" % i, priority=2)
            if response.url.endswith("/stored/2"):
                yield response.follow("/best", priority=9)
                yield response.follow("/worst", priority=-9)

        def note(self, response):
            with open("pages.txt", "a") as file:
                file.write(response.url + "\\n")
"""


def test_one_order_over_everything(tmp_path: Path) -> None:
    """scrapy#3666: what is kept in memory does not beat a better request in the store, nor does
    what this run has found beat what an earlier one has."""
    crawl = project(tmp_path, ORDER)
    with Site(lambda hit: "a page") as site:
        url = f"url={site.url('')}"
        settings = {"CONCURRENT_REQUESTS": 1}
        run = crawl.crawl("order", url, FOCUS_MAX_PAGES=2, **settings)
        assert run.reason == "focus_max_pages"
        assert site.paths() == ["/0", "/stored/1"]
        # The callbacks in memory are lost, and no page will name them again.
        run = crawl.crawl("order", url, **settings)
        assert run.reason == "finished"
        stored = ["/0", "/stored/1", "/stored/2", "/best", "/stored/3"]
        assert site.paths() == [*stored, "/low/1", "/low/2", "/low/3", "/worst"]

        site.log.clear()
        run = crawl.crawl("order", url, FOCUS_RESUME=False, **settings)
        memory = [f"/memory/{i}" for i in (1, 2, 3)]
        assert site.paths() == [*stored, *memory, "/low/1", "/low/2", "/low/3", "/worst"]


def test_no_limit_on_resume(tmp_path: Path) -> None:
    """browsertrix-crawler#872: 0 means none, on resume too."""
    crawl = project(tmp_path)
    limits = ("PAGES", "PAGES_PER_HOST", "BYTES", "SECONDS", "DEPTH")
    none = {f"FOCUS_MAX_{limit}": 0 for limit in limits}
    with Site(lambda hit: links(*(f"/{n}" for n in range(30)))) as site:
        run = crawl.crawl("follow", f"url={site.url('/0')}", FOCUS_MAX_PAGES=5)
        assert run.reason == "focus_max_pages"
        assert len(site.log) == 5
        run = crawl.crawl("follow", f"url={site.url('/0')}", FOCUS_MAX_PAGES_PER_HOST=10)
        assert run.reason == "focus_max_pages_per_host"
        assert len(site.log) == 10
        run = crawl.crawl("follow", f"url={site.url('/0')}", **none)
        assert run.reason == "finished"
        assert Counter(site.paths()) == {f"/{n}": 1 for n in range(30)}


UNSTORABLE = """
    class Unstorable(Follow):
        name = "unstorable"

        async def start(self):
            yield Request(self.url + "/0", priority=9)
            yield Request(self.url + "/seed", callback=lambda response: self.note(response))

        def parse(self, response):
            self.note(response)
            if response.url.endswith(("/0", "/late")):
                selector = response.css("a")[0]
                note = lambda response: self.note(response)
                yield response.follow("/lambda", callback=note, priority=5)
                yield response.follow("/selector", self.shown, meta={"a": selector}, priority=5)
                yield response.follow("/kwargs", self.shown, cb_kwargs={"a": selector}, priority=5)
                yield response.follow("/late")

        def shown(self, response, a=None):
            selector = response.meta.get("a") or a
            assert selector.attrib["href"] == "/a", selector
            self.note(response)

        def note(self, response):
            with open("pages.txt", "a") as file:
                file.write(response.url + "\\n")
"""

IN_MEMORY = ("/lambda", "/selector", "/kwargs")


def test_what_cannot_be_stored(tmp_path: Path) -> None:
    """scrapy#1990, scrapy-redis#178: a lambda or a Selector in a request is kept for the run,
    counted, and logged once."""
    crawl = project(tmp_path, UNSTORABLE)
    with Site(lambda hit: links("/a")) as site:
        run = crawl.crawl("unstorable", f"url={site.url('')}")
        assert (run.returncode, run.reason) == (0, "finished")
        paths = ["/0", "/late", "/seed", *IN_MEMORY]
        assert Counter(site.paths()) == dict.fromkeys(paths, 1)
        assert Counter(crawl.pages) == {site.url(path): 1 for path in paths}
        assert run.stats["focus/unstorable"] >= 4
        assert run.log.count("It is kept in memory for this run") == 1
        assert "Traceback" not in run.log


def test_what_cannot_be_stored_is_found_again(tmp_path: Path) -> None:
    """scrapy#1990, scrapy-redis#178: it is never marked seen in the store, so that after a kill
    it is fetched when it is found again."""
    crawl = project(tmp_path, UNSTORABLE, CONCURRENT_REQUESTS=3, ROBOTSTXT_OBEY=False)
    held = list(IN_MEMORY)

    def answer(hit: Hit) -> Answer:
        return Answer(links("/a"), delay=60 * (hit.path in held))

    with Site(answer) as site:
        url = f"url={site.url('')}"
        crawl.crawl_until(
            lambda: (
                set(held) <= set(site.paths())
                and crawl.rows("SELECT sum(state) FROM urls") == [(2,)]
            ),
            url,
            spider="unstorable",
        )
        held.clear()
        run = crawl.crawl("unstorable", url)
        assert run.reason == "finished"
        # The seed was done, but the store does not know it: it had a lambda too.
        assert Counter(site.paths()) == {
            "/0": 1,
            "/late": 1,
            **dict.fromkeys(("/seed", *IN_MEMORY), 2),
        }
        assert set(crawl.pages) == {site.url(path) for path in site.paths()}

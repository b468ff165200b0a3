"""What users of other schedulers and frontiers reported, each as a test.

The number in a docstring is where it was reported: ``scrapy#4106`` is an issue of Scrapy's.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.project import Project
from tests.site import Answer, Hit, Site, links, redirect

LEASED = "SELECT url FROM urls WHERE run IS NOT NULL"


def star(number: int) -> Callable[[Hit], str]:
    """Answers with a page 0 that links all others, up to *number* - 1."""
    hub = links(*(f"/{page}" for page in range(1, number)))
    return lambda hit: hub if hit.path == "/0" else links()


def chain(number: int) -> Callable[[Hit], str]:
    """Answers with pages each of which links the next, up to *number* - 1."""

    def answer(hit: Hit) -> str:
        page = int(hit.path.strip("/"))
        return links(f"/{page + 1}") if page + 1 < number else links()

    return answer


def project(folder: Path, spiders: str = "", **settings: object) -> Project:
    return Project(folder / "project", spiders, **{"ROBOTSTXT_OBEY": False, **settings})


CLOSING = """
    from scrapy.exceptions import CloseSpider

    class Closing(Follow):
        name = "closing"
        seen = 0

        def parse(self, response):
            yield from super().parse(response)
            self.seen += 1
            if self.seen == int(self.settings.get("CLOSE_AT", 0)):
                raise CloseSpider("enough")
"""


def test_work_is_left_after_close_spider(tmp_path: Path) -> None:
    """scrapy#4106: closed at the 5th callback of 40, the other 35 arrive."""
    crawl = project(tmp_path, CLOSING)
    with Site(star(40)) as site:
        run = crawl.crawl("closing", f"url={site.url('/0')}", CLOSE_AT=5, CONCURRENT_REQUESTS=1)
        assert run.reason == "enough"
        assert 5 <= len(crawl.pages) < 10
        run = crawl.crawl("closing", f"url={site.url('/0')}")
        assert run.reason == "finished"
        assert Counter(crawl.pages) == {site.url(f"/{page}"): 1 for page in range(40)}
        assert len(site.log) == 40


def test_ctrl_c_twice(tmp_path: Path) -> None:
    """scrapy#2399: an unclean stop loses nothing."""
    crawl = project(tmp_path)
    held = ["/7", "/11"]

    def answer(hit: Hit) -> Answer:
        return Answer(star(40)(hit), delay=60 * (hit.path in held))

    with Site(answer) as site:
        process = crawl.start("crawl", "follow", "-a", f"url={site.url('/0')}")
        crawl.wait_until(process, lambda: set(held) <= set(site.paths()))
        process.send_signal(signal.SIGINT)
        crawl.wait_until(process, lambda: "Closing spider (shutdown)" in crawl.log)
        process.send_signal(signal.SIGINT)
        crawl.wait(process)
        held.clear()
        assert crawl.crawl("follow", f"url={site.url('/0')}").reason == "finished"
        assert set(crawl.pages) == {site.url(f"/{page}") for page in range(40)}


def test_counts_after_a_kill(tmp_path: Path) -> None:
    """scrapy#3333: what waits is counted by its rows."""
    crawl = project(tmp_path)
    with Site(star(200)) as site:
        crawl.crawl_until(lambda: len(site.log) >= 50, f"url={site.url('/0')}")
        (waiting, done), *_ = crawl.rows("SELECT sum(state = 0), sum(state = 1) FROM urls")
        run = crawl.crawl("follow", f"url={site.url('/0')}")
        assert f"Waiting: {waiting}, done: {done}" in run.log
        assert run.stats["focus/leased"] == waiting
        assert crawl.rows("SELECT added, leased, done FROM jobs") == [(200, 0, 200)]


def test_a_chain_goes_on(tmp_path: Path) -> None:
    """scrapy#5312: a chain of 50 that was stopped at 14 reaches 50."""
    crawl = project(tmp_path)
    with Site(chain(50)) as site:
        url = f"url={site.url('/0')}"
        run = crawl.crawl("follow", url, CLOSESPIDER_PAGECOUNT=14)
        assert run.reason == "closespider_pagecount"
        assert 14 <= len(crawl.pages) < 20
        assert crawl.crawl("follow", url).reason == "finished"
        assert crawl.pages == [site.url(f"/{page}") for page in range(50)]


SITEMAP = """
    from scrapy.spiders import SitemapSpider

    class Sitemap(SitemapSpider):
        name = "sitemap"
        url = None

        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.sitemap_urls = [self.url]

        def parse(self, response):
            with open("pages.txt", "a") as file:
                file.write(response.url + "\\n")
"""


def test_sitemap_spider_resumes(tmp_path: Path) -> None:
    """scrapy#4479: a seed that is known already does not end a job with work waiting."""
    crawl = project(tmp_path, SITEMAP)

    def answer(hit: Hit) -> Answer | str:
        if hit.path != "/sitemap.xml":
            return "a page"
        entries = "".join(f"<url><loc>{site.url(f'/{n}')}</loc></url>" for n in range(60))
        xml = f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{entries}</urlset>'
        return Answer(xml, headers={"Content-Type": "application/xml"})

    with Site(answer) as site:
        url = f"url={site.url('/sitemap.xml')}"
        run = crawl.crawl("sitemap", url, CLOSESPIDER_PAGECOUNT=20)
        assert run.reason == "closespider_pagecount"
        assert crawl.crawl("sitemap", url).reason == "finished"
        assert Counter(crawl.pages) == {site.url(f"/{n}"): 1 for n in range(60)}
        assert site.paths().count("/sitemap.xml") == 1


def test_a_seed_that_is_linked(tmp_path: Path) -> None:
    """scrapy#991: a ``dont_filter`` seed that a page links is fetched once."""
    crawl = project(tmp_path)
    with Site(lambda hit: links("/a", "/b")) as site:
        run = crawl.crawl("follow", f"url={site.url('/a')},{site.url('/b')}")
        assert run.reason == "finished"
        assert sorted(site.paths()) == ["/a", "/b"]
        assert run.stats["focus/refused/duplicate"] == 4


QUICK = """
    class Quick(Follow):
        name = "quick"

        async def start(self):
            yield Request(self.url + "/0", errback=self.failed)

        def parse(self, response):
            yield from super().parse(response)
            yield Request(response.urljoin("/other"), errback=self.failed)

        def failed(self, failure):
            with open("errors.txt", "a") as file:
                file.write(repr(failure.value))
"""


@pytest.mark.parametrize("obey", [False, True], ids=["pages", "robots.txt"])
def test_a_graceful_stop_is_quick(tmp_path: Path, obey: bool) -> None:
    """scrapy#4749: Ctrl-C waits for no delay, and the leases go back; also of a page that waits
    in the downloader, because its robots.txt has been fetched."""
    crawl = project(tmp_path, QUICK, ROBOTSTXT_OBEY=obey)
    with Site(star(20)) as site:
        url = f"url={site.url('')}"
        slow = {"DOWNLOAD_DELAY": 600, "DOWNLOAD_DELAY_JITTER": 0}
        run = crawl.crawl_until(
            lambda: bool(obey or crawl.pages) and len(site.log) == 1,
            url,
            spider="quick",
            sign=signal.SIGINT,
            timeout=30,
            **slow,
        )
        assert run.reason == "shutdown"
        fetched = [] if obey else ["/0"]
        assert site.paths() == fetched
        assert not crawl.rows(LEASED)
        assert crawl.rows("SELECT count(*) FROM urls WHERE state <> 0") == [(len(fetched),)]
        run = crawl.crawl("quick", url, FOCUS_HORIZON=10)
        if fetched:
            # The host is due in ten minutes only, which this run need not wait for.
            assert run.reason == "focus_held"
            assert site.paths() == fetched
        else:
            # The turn that fetched nothing was given back, and this run has no delay.
            assert run.reason == "finished"
            assert len(site.paths()) == len(crawl.pages) == 21
        assert not (crawl.folder / "errors.txt").exists()


def test_a_dead_worker(tmp_path: Path) -> None:
    """frontera#120, scrapy-cluster#255: what a dead worker had taken comes back once."""
    crawl = project(tmp_path, CONCURRENT_REQUESTS_PER_DOMAIN=2)
    other = Project(tmp_path / "other", ROBOTSTXT_OBEY=False, CONCURRENT_REQUESTS_PER_DOMAIN=2)
    held = {"/1", "/2"}

    def answer(hit: Hit) -> Answer:
        return Answer(star(30)(hit), delay=60 * (hit.path in held))

    with Site(answer) as site:
        arguments = ["crawl", "follow", "-a", f"url={site.url('/0')}"]
        first = crawl.start(*arguments)
        crawl.wait_until(first, lambda: held <= set(site.paths()))
        address = f"FOCUS_FRONTIER=sqlite:///{crawl.frontier}"
        second = other.start(*arguments, "-s", address, "-s", "CONCURRENT_REQUESTS_PER_DOMAIN=4")
        other.wait_until(second, lambda: len(other.pages) == 27)
        held.clear()
        first.kill()
        first.wait()
        run = other.wait(second)
        assert run.reason == "finished"
        assert Counter(site.paths()) == {f"/{n}": 2 if n in (1, 2) else 1 for n in range(30)}
        assert len(set(crawl.pages + other.pages)) == 30


KEYS = """
    class Keys(Follow):
        name = "keys"

        async def start(self):
            yield Request(self.url + "/moved", meta={"focus_key": "mine"})
            yield Request(self.url + "/same", meta={"focus_key": "mine"})

        def parse(self, response):
            yield from super().parse(response)
            if response.url.endswith("/target"):
                yield response.follow("/target")
                yield response.follow("/child", meta=response.meta)
"""


def test_a_key_in_meta_is_not_the_redirects(tmp_path: Path) -> None:
    """apify-sdk-python#1097: meta carries the key to the target, which is crawled all the same."""
    crawl = project(tmp_path, KEYS)
    with Site(lambda hit: redirect("/target") if hit.path == "/moved" else "a page") as site:
        run = crawl.crawl("keys", f"url={site.url('')}")
        assert run.reason == "finished"
        # /same has the key of /moved; /child has copied it, which was the user's own doing.
        assert site.paths() == ["/moved", "/target"]
        assert crawl.pages == [site.url("/target")]
        assert run.stats["focus/refused/duplicate"] == 3


def test_an_endless_redirect(tmp_path: Path) -> None:
    """frontera#87: its count survives the store, and no row is there twice."""
    crawl = project(tmp_path, REDIRECT_MAX_TIMES=10)
    held = ["/5"]

    def answer(hit: Hit) -> Answer:
        to = f"/{int(hit.path.strip('/')) + 1}"
        return Answer(status=302, headers={"Location": to}, delay=60 * (hit.path in held))

    with Site(answer) as site:
        crawl.crawl_until(lambda: "/5" in site.paths(), f"url={site.url('/0')}")
        held.clear()
        run = crawl.crawl("follow", f"url={site.url('/0')}")
        assert run.reason == "finished"
        assert site.paths() == [f"/{n}" for n in (0, 1, 2, 3, 4, 5, 5, 6, 7, 8, 9, 10)]
        assert run.stats["focus/failed/response_refused"] == 1
        assert not crawl.rows("SELECT key FROM urls GROUP BY key HAVING count(*) > 1")


def test_a_redirect_to_itself(tmp_path: Path) -> None:
    """scrapy#1225: the page's callback runs, directly or by way of another page; a loop ends at
    REDIRECT_MAX_TIMES."""
    crawl = project(tmp_path, REDIRECT_MAX_TIMES=6)

    def answer(hit: Hit) -> Answer | str:
        visited = "visited" in hit.headers.get("cookie", "")
        if hit.path == "/loop":
            return redirect("/loop")
        if hit.path == "/set":
            return Answer(status=302, headers={"Location": "/way", "Set-Cookie": "visited=1"})
        if hit.path == "/way" and not visited:
            return redirect("/set")
        if hit.path == "/self" and site.paths().count("/self") == 1:
            return redirect("/self")
        return "a page"

    with Site(answer) as site:
        seeds = ",".join(map(site.url, ("/self", "/way", "/loop")))
        run = crawl.crawl("follow", f"url={seeds}", CONCURRENT_REQUESTS=1)
        assert run.reason == "finished"
        assert sorted(crawl.pages) == [site.url("/self"), site.url("/way")]
        assert Counter(site.paths()) == {"/self": 2, "/way": 2, "/set": 1, "/loop": 7}
        assert run.stats["focus/failed/response_refused"] == 1


def test_retry_and_redirect_together(tmp_path: Path) -> None:
    """scrapy#6895: a retry is an attempt of the same row; a redirect's target is deduplicated,
    whatever way leads to it."""
    crawl = project(tmp_path)

    def answer(hit: Hit) -> Answer | str:
        if site.paths().count(hit.path) == 1 and hit.path in ("/a", "/target"):
            return Answer(status=503, headers={"Retry-After": "0"})
        if hit.path in ("/a", "/b"):
            return redirect("/target")
        return links("/a", "/b", "/target")

    with Site(answer) as site:
        seeds = ",".join(map(site.url, ("/a", "/b", "/target")))
        run = crawl.crawl("follow", f"url={seeds}")
        assert run.reason == "finished"
        assert Counter(site.paths()) == {"/a": 2, "/b": 1, "/target": 2}
        assert crawl.pages == [site.url("/target")]
        assert run.stats["focus/retried"] == 2
        assert crawl.rows("SELECT count(*) FROM urls") == [(3,)]


def test_nothing_is_silent(tmp_path: Path) -> None:
    """scrapy#105, scrapy-redis#149: what is filtered is counted, and a rerun that does nothing
    says so."""
    crawl = project(tmp_path, FOCUS_EXCLUDED=["*/out*"])
    with Site(lambda hit: links("/a", "/a", "/out", "http://other.invalid/")) as site:
        settings = {"FOCUS_DOMAINS": "127.0.0.1"}
        run = crawl.crawl("follow", f"url={site.url('/')}", **settings)
        assert "2 done" in run.log
        assert "7 refused (duplicate 3, excluded 2, offsite 2)" in run.log
        assert run.stats["focus/refused/duplicate"] == run.stats["dupefilter/filtered"] == 3
        run = crawl.crawl("follow", f"url={site.url('/')}", FOCUS_RESUME=True, **settings)
        assert run.reason == "finished"
        assert "2 done" in run.log
        assert "This run: 0 new, 0 handed out, so it had nothing to do." in run.log
        assert len(site.log) == 2


def test_a_deliberate_copy_stays_one_through_its_redirect(tmp_path: Path) -> None:
    """Two different seeds that redirect to one page fetch it once; one seed that is asked
    for twice on purpose fetches its target twice."""

    def answer(hit: Hit) -> Answer | str:
        return redirect("/target") if hit.path in ("/a", "/b") else "<p>here"

    with Site(answer) as site:
        once = Project(tmp_path / "once")
        run = once.crawl("follow", f"url={site.url('/a')},{site.url('/b')}")
        assert run.reason == "finished"
        assert sorted(site.paths()) == ["/a", "/b", "/target"]
        site.log.clear()
        twice = Project(tmp_path / "twice")
        run = twice.crawl("follow", f"url={site.url('/a')},{site.url('/a')}")
        assert run.reason == "finished"
        assert sorted(site.paths()) == ["/a", "/a", "/target", "/target"]

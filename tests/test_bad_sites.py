"""Sites that are broken, or hostile: what they do to a crawl, and to other hosts. Nothing.

The access log of the test's own site says what was fetched, and when.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request
from scrapy.utils.request import fingerprint

from tests.frontier.audit import contradictions
from tests.paced import EXACT, Crawl, gaps, host, numbered
from tests.project import Project
from tests.site import Answer, Hit, Site, links, redirect

#: How many links the page has that has very many; MANY_LINKS=1000000 takes some minutes.
MANY = int(os.environ.get("MANY_LINKS", "30000"))
#: Size of the huge robots.txt, in bytes.
HUGE = int(os.environ.get("HUGE_ROBOTS", "1000000"))

ODD = '''
import json
import re


class Odd(Follow):
    """Asks for the URLs in a file, if a request can be made of them."""

    name = "odd"
    handle_httpstatus_all = True

    async def start(self):
        for url in json.loads(Path("urls.json").read_text()):
            try:
                request = Request(url)
            except ValueError:
                self.crawler.stats.inc_value("odd/unmade")
            else:
                yield request


class Many(Spider):
    """Follows links without a look at what else is on the page."""

    name = "many"
    url = None

    async def start(self):
        yield Request(self.url)

    def parse(self, response):
        for path in re.findall('href="([^"]*)"', response.text):
            yield Request(response.urljoin(path))


class Copying(Follow):
    """Copies meta from page to page, with a callback that cannot be stored."""

    name = "copying"

    def parse(self, response):
        for link in response.css("a::attr(href)").getall():
            callback = lambda response: self.parse(response)
            yield response.follow(link, callback, meta=response.meta)


class CountingParser(ProtegoRobotParser):
    """Counts what it is asked."""

    @classmethod
    def from_crawler(cls, crawler, robotstxt_body):
        parser = super().from_crawler(crawler, robotstxt_body)
        parser.stats = crawler.stats
        return parser

    def allowed(self, url, user_agent):
        self.stats.inc_value("parser/asked")
        if "/raises" in url:
            raise ValueError("a bad parser")
        return super().allowed(url, user_agent)
'''


class OddCrawl(Crawl):
    """A project with the spiders above, which notes when its requests went out."""

    def __init__(self, folder: Path, urls: list[str] | None = None, **settings: Any) -> None:
        super().__init__(folder, ODD, **settings)
        (folder / "urls.json").write_text(json.dumps(urls))

    def balance(self) -> dict[str, int]:
        """How the job's URLs have ended; that nothing contradicts it is checked."""
        assert contradictions(self.frontier) == {}
        names = ("added", "done", "failed", "dropped", "leased")
        values = self.rows(f"SELECT {', '.join(names)} FROM jobs")[0]
        assert not self.rows("SELECT key FROM urls GROUP BY key HAVING count(*) > 1")
        return {name: value for name, value in zip(names, values, strict=True) if value}


def text(*lines: str) -> str:
    return "\n".join(["User-agent: *", "Disallow: /no", *lines, ""])


# -- robots.txt --------------------------------------------------------------------------------

#: What a robots.txt may be. All that can be read of these is that ``/no`` is refused.
ROBOTS: dict[str, Answer] = {
    "absent": Answer(status=404),
    "forbidden": Answer(status=403),
    "error": Answer(text(), status=500),
    "busy": Answer(status=503, headers={"Retry-After": "1"}),
    "binary": Answer(bytes(range(256)) * 500),
    "nul": Answer(b"\0" + text("Crawl-delay: \x001").encode() + b"\0"),
    "utf-16": Answer(text().encode("utf-16")),
    "latin-1": Answer(text("Disallow: /caf\xe9").encode("latin-1")),
    "mark": Answer(b"\xef\xbb\xbf" + text().encode()),
    "page": Answer("<html><title>Welcome</title>" + "<p>User-agent: *</p>" * 100),
    "moved": Answer(status=301, headers={"Location": "ELSEWHERE/moved"}),
    "loop": Answer(status=302, headers={"Location": "/robots.txt"}),
    "closed": Answer(status=None),
    "reset": Answer(text(), headers={"Content-Length": "1000"}, reset=True),
    "silent": Answer(delay=60),
    "slow": Answer(text(), drip=0.02),
    "long-line": Answer(f"User-agent: {'x' * 100_000}\nDisallow: {'/' * 100_000}\n"),
}


class RobotsWeb(Site):
    """A host for each kind of robots.txt."""

    def __init__(self) -> None:
        self._kinds = {host(number): kind for number, kind in enumerate(ROBOTS)}
        super().__init__(self._page, [*self._kinds, host(100)])

    def of(self, kind: str, path: str = "/") -> str:
        return self.url(path, {kind: name for name, kind in self._kinds.items()}[kind])

    def fetched(self) -> dict[str, list[str]]:
        """The pages that were fetched, by kind."""
        return {kind: sorted(self.paths(name)) for name, kind in self._kinds.items()}

    def _page(self, hit: Hit) -> Answer | str:
        kind = self._kinds.get(hit.host)
        if kind is None:  # another host's robots.txt lies here
            return Answer(text("Crawl-delay: 0.3"))
        if hit.path != "/robots.txt":
            return links("/0", "/1", "/2", "/no")
        answer = ROBOTS[kind]
        if kind == "moved":
            return redirect(self.url("/moved", host(100)))
        return answer


def test_robots_txt_of_all_kinds(tmp_path: Path) -> None:
    """What is fetched is what Scrapy's own scheduler fetches, also where a host's pages wait for
    its robots.txt together: as fast as may be, and others need not wait."""
    settings: dict[str, Any] = {"ROBOTSTXT_OBEY": True, "DOWNLOAD_DELAY": 0.1}
    settings |= {"DOWNLOAD_TIMEOUT": 2, "RETRY_TIMES": 1}
    seeds = [(kind, path) for path in ("/", "/0", "/1", "/2", "/no") for kind in ROBOTS]
    with RobotsWeb() as theirs, RobotsWeb() as ours:
        own = Project(tmp_path / "own", ADDONS={}, **settings)
        crawl = OddCrawl(tmp_path / "p", **settings)
        # One page first: Scrapy lets the third that waits for a robots.txt pass unchecked.
        first = own.start("crawl", "follow", "-a", "url=" + ",".join(map(theirs.of, ROBOTS)))
        run = crawl.crawl("follow", "url=" + ",".join(ours.of(*seed) for seed in seeds))

        assert own.wait(first).reason == run.reason == "finished"
        assert ours.fetched() == theirs.fetched()
        refused = {kind for kind, paths in ours.fetched().items() if "/no" not in paths}
        assert refused == {"error", "latin-1", "mark", "moved", "slow"}
        for kind in ROBOTS:
            robots = crawl.sent(ours.of(kind, "/robots.txt"))
            pages = [at for at in crawl.sent(ours.of(kind)) if at not in robots]
            assert min(gaps(pages)) >= (0.3 if kind == "moved" else 0.05) - EXACT, kind
        # The one that is silent, twice for two seconds, keeps no one waiting.
        last = max(max(crawl.sent(ours.of(kind))) for kind in ROBOTS if kind != "silent")
        assert last < crawl.sent(ours.of("silent", "/0"))[0]
        # Its robots.txt has asked to be left alone.
        busy = crawl.sent(ours.of("busy", "/robots.txt"))
        assert crawl.sent(ours.of("busy", "/0"))[0] - busy[-1] >= 1 - EXACT
    total, dropped = len(seeds), len(refused)
    assert crawl.balance() == {"added": total, "done": total - dropped, "dropped": dropped}
    assert run.stats["focus/dropped/robots"] == dropped
    assert run.stats["focus/hold/retry_after"] == 2


def test_a_huge_robots_txt(tmp_path: Path) -> None:
    """We ask it nothing twice, whatever its answers take; and a parser that raises is not ours to
    fall over."""
    lines = [f"Disallow: /no/{number}*/x$" for number in range(HUGE // 25)]

    def answer(hit: Hit) -> Answer | str:
        if hit.path == "/robots.txt":
            return "\n".join(["User-agent: *", "Disallow: /no*0", *lines])
        return numbered(4) if hit.path == "/" else "a page"

    with Site(answer) as site:
        crawl = OddCrawl(
            tmp_path / "p", ROBOTSTXT_OBEY=True, ROBOTSTXT_PARSER="spiders.CountingParser"
        )
        paths = ["/", *(f"/no{number}" for number in range(20)), "/raises"]
        run = crawl.crawl("follow", "url=" + ",".join(map(site.url, paths)))

    assert run.reason == "finished"
    allowed = {path for path in paths[:-1] if not path.endswith("0")} | {f"/{n}" for n in range(1, 5)}
    assert set(site.paths()) == allowed
    assert run.stats["focus/dropped/robots"] == 2
    assert run.stats["focus/dropped/middleware"] == 1
    assert run.stats["parser/asked"] == len(allowed) + 3
    assert crawl.balance() == {"added": 26, "done": 23, "dropped": 3}


# -- what is asked of one host is not asked of another -----------------------------------------


@pytest.mark.parametrize("spider", ["follow", "copying"])
def test_nobody_speaks_for_another_host(tmp_path: Path, spider: str) -> None:
    """Neither by its answers nor by its robots.txt, by what it links to, where it redirects to or
    what a spider copies from page to page."""
    bad, good, slow, sorry = hosts = [host(n) for n in range(4)]
    later = {"Retry-After": "2"}
    forged = {**later, "Host": good, "Location": f"//{good}/", "X-Forwarded-Host": good}

    def answer(hit: Hit) -> Answer | str:
        if hit.host == sorry:
            first = hit.path == "/robots-of-bad" and site.paths(sorry).count(hit.path) == 1
            return Answer(status=503, headers=later) if first else "a page"
        if hit.path == "/robots.txt":
            if hit.host == bad:
                return redirect(site.url("/robots-of-bad", sorry))
            return text("Crawl-delay: 0.4") if hit.host == slow else "User-agent: *"
        if hit.host != bad:
            return numbered(30) if hit.host == good else "a page"
        if hit.path == "/":
            pages = [f"/{n}" for n in range(4)]
            odd = [f"{odd}{good}/{n}" for n in range(12) for odd in ("odd://", "http://x:y@")]
            return links(*odd, "/forged", *pages, *(site.url("/", name) for name in (good, sorry)))
        if hit.path == "/forged":
            first = site.paths(bad).count(hit.path) == 1
            return Answer(status=503, headers=forged) if first else "a page"
        return redirect(site.url(hit.path, slow))

    with Site(answer, hosts) as site:
        crawl = OddCrawl(tmp_path / "p", ROBOTSTXT_OBEY=True)
        run = crawl.crawl(spider, f"url={site.url('/', bad)}")

    def sent(name: str) -> list[float]:
        return crawl.sent(site.url("/", name))

    assert run.reason == "finished"
    assert len(site.paths(good)) == 31
    assert sorted(site.paths(slow)) == [f"/{n}" for n in range(4)]
    assert min(gaps(sent(slow))) >= 0.4 - EXACT
    # Each waits as it has asked itself, and no one else does.
    assert gaps(crawl.sent(site.url("/forged", bad)))[0] >= 2 - EXACT
    assert sent(sorry)[-1] - sent(sorry)[0] >= 2 - EXACT
    held = [line.split("Leaving ")[1].split()[0] for line in run.log.splitlines() if "alone" in line]
    assert sorted(held) == [bad, sorry]
    assert run.stats["focus/failed/unsupported"] == 24
    assert crawl.balance() == {"added": 66, "done": 42, "failed": 24}
    assert crawl.rows("SELECT pages FROM jobs") == [(38,)]


def test_who_shares_a_slot_shares_its_delay(tmp_path: Path) -> None:
    one, other = hosts = [host(1), host(2)]

    def answer(hit: Hit) -> Answer | str:
        return text(f"Crawl-delay: {0.3 if hit.host == one else 0}")

    with Site(answer, hosts) as site:
        crawl = OddCrawl(tmp_path / "p", ROBOTSTXT_OBEY=True)
        seeds = [site.url(f"/own{n}", name) for n in range(4) for name in hosts]
        run = crawl.crawl("slots", "url=" + ",".join(seeds))

    assert run.reason == "finished"
    assert len(site.paths()) == 8
    # Here the downloader's slot spaces them: a page that waits for its robots.txt is late.
    times = [hit.time for hit in site.log if hit.path.startswith("/own")]
    assert min(gaps(times)) >= 0.2


def test_a_host_by_many_names(tmp_path: Path) -> None:
    """Each has a robots.txt of its own for Scrapy, and would have a slot in the downloader."""
    names = ["127.1", "0x7f.0.0.1", "127.0.0.1", "[::ffff:127.0.0.1]"]

    with Site(lambda hit: text("Crawl-delay: 0.3")) as site:
        crawl = OddCrawl(tmp_path / "p", ROBOTSTXT_OBEY=True)
        urls = [f"http://{name}:{site.port}/{n}" for n in range(3) for name in names]
        run = crawl.crawl("follow", "url=" + ",".join(urls))

    assert run.reason == "finished"
    assert sorted(crawl.pages) == sorted(urls)
    # The first page waits as well: robots.txt was asked for at this host, by whatever name.
    assert min(gaps(crawl.sent("http"))[:1]) >= 0.3 - EXACT
    assert min(gaps([hit.time for hit in site.log if hit.path != "/robots.txt"])) >= 0.2
    assert crawl.balance() == {"added": 12, "done": 12}

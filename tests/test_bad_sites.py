"""Sites that are broken, or hostile: what they do to a crawl, and to other hosts. Nothing.

The access log of the test's own site says what was fetched, and when.
"""

from __future__ import annotations

import json
import os
import re
import socket
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from scrapy import Request

from scrapy_focus import DupeFilter
from scrapy_focus.decisions.groups import Groups
from scrapy_focus.gate import RobotsGate
from scrapy_focus.pacer import group_of
from tests.frontier.audit import contradictions
from tests.paced import EXACT, Crawl, gaps, host, numbered
from tests.project import Project
from tests.site import Answer, Hit, Site, links, redirect
from tests.test_hosts import URLS, host_or_none

#: How many links the page has that has very many; MANY_LINKS=1000000 takes some minutes.
MANY = int(os.environ.get("MANY_LINKS", "10000"))
#: Size of the huge robots.txt, in bytes.
HUGE = int(os.environ.get("HUGE_ROBOTS", "1000000"))

ODD = '''
import json
import re
from scrapy.utils.request import RequestFingerprinter


class Odd(Follow):
    """Asks for the URLs in a file, if a request can be made of them: as seeds or as links."""

    name = "odd"

    async def start(self):
        if self.url:
            yield Request(self.url)
        else:
            for request in self.requests():
                yield request

    def parse(self, response):
        if response.url == self.url:
            yield from self.requests()

    def requests(self):
        for url in json.loads(Path("urls.json").read_text()):
            try:
                request = Request(url)
            except ValueError:
                continue
            yield request


class Impatient(Follow):
    """Waits a second for an answer to what the file names, except the last two."""

    name = "impatient"

    async def start(self):
        *urls, last, good = json.loads(Path("urls.json").read_text())
        for url in urls:
            yield Request(url, meta={"download_timeout": 1})
        yield Request(last)
        yield Request(good)


class Many(Odd):
    """Follows links without a look at what else is on the page."""

    name = "many"

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


class Late:
    """Keeps some requests for a while on their way to the downloader."""

    async def process_request(self, request):
        if "/late" in request.url:
            await asyncio.sleep(0.3)


class CountingFingerprinter(RequestFingerprinter):
    """Counts the URLs that take it long."""

    @classmethod
    def from_crawler(cls, crawler):
        fingerprinter = cls(crawler)
        fingerprinter.stats = crawler.stats
        return fingerprinter

    def fingerprint(self, request):
        if len(request.url) > 10_000:
            self.stats.inc_value("fingerprinter/long")
        return super().fingerprint(request)


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
        return {name: value for name, value in zip(names, values, strict=True) if value}


def our_trouble(log: str) -> list[str]:
    """Errors of ours in a log; Scrapy reports each page that cannot be fetched as one."""
    lines = log.splitlines()
    ours = [line for line in lines if "[scrapy_focus" in line and "] ERROR" in line]
    return ours + [line for line in lines if "/scrapy_focus/" in line and "File " in line]


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
    "slow": Answer(text(), drip=0.01),
    "long-line": Answer(f"User-agent: {'x' * 100_000}\nDisallow: {'/' * 100_000}\n"),
}


class RobotsWeb(Site):
    """A host for each kind of robots.txt.

    :param page: what its pages are
    """

    def __init__(self, page: str = "a page") -> None:
        self._content = page
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
            return self._content
        answer = ROBOTS[kind]
        if kind == "moved":
            return redirect(self.url("/moved", host(100)))
        return answer


def test_robots_txt_of_all_kinds(tmp_path: Path) -> None:
    """What is fetched is what Scrapy's own scheduler fetches, also where a host's pages wait for
    its robots.txt together."""
    settings: dict[str, Any] = {"ROBOTSTXT_OBEY": True, "DOWNLOAD_DELAY": 0.1}
    settings |= {"DOWNLOAD_TIMEOUT": 2, "RETRY_TIMES": 1}
    seeds = [(kind, path) for path in ("/", "/0", "/1", "/2", "/no") for kind in ROBOTS]
    with RobotsWeb(links("/0", "/1", "/2", "/no")) as theirs, RobotsWeb() as ours:
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
    allowed = {path for path in paths[:-1] if not path.endswith("0")} | {
        f"/{n}" for n in range(1, 5)
    }
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
    assert sorted(re.findall("Leaving (.*) alone", run.log)) == [bad, sorry]
    assert run.stats["focus/failed/unsupported"] == 24
    assert crawl.balance() == {"added": 66, "done": 42, "failed": 24}
    assert crawl.rows("SELECT pages FROM jobs") == [(38,)]


def test_who_is_on_the_way_turns_back(tmp_path: Path) -> None:
    """A request that was handed out before its host has asked to be left alone is not sent."""

    def answer(hit: Hit) -> Answer | str:
        first = hit.path == "/now" and site.paths().count("/now") == 1
        return Answer(status=503, headers={"Retry-After": "1"}) if first else "a page"

    with Site(answer) as site:
        crawl = OddCrawl(
            tmp_path / "p", ROBOTSTXT_OBEY=False, DOWNLOADER_MIDDLEWARES={"spiders.Late": 50}
        )
        run = crawl.crawl("follow", f"url={site.url('/late')},{site.url('/now')}")

    assert run.reason == "finished"
    assert site.paths()[0] == "/now"
    assert sorted(site.paths()) == ["/late", "/now", "/now"]
    assert site.gaps(site.hosts[0])[0] >= 1 - EXACT
    assert crawl.balance() == {"added": 2, "done": 2}


def test_who_shares_a_slot_shares_its_delay(tmp_path: Path) -> None:
    one, _ = hosts = [host(1), host(2)]

    def answer(hit: Hit) -> Answer | str:
        return text(f"Crawl-delay: {0.3 if hit.host == one else 0}")

    with Site(answer, hosts) as site:
        crawl = OddCrawl(tmp_path / "p", ROBOTSTXT_OBEY=True)
        seeds = [site.url(f"/own{n}", name) for n in range(3) for name in hosts]
        run = crawl.crawl("slots", "url=" + ",".join(seeds))

    assert run.reason == "finished"
    assert len(site.paths()) == 6
    # Here the downloader's slot spaces them: a page that waits for its robots.txt is late.
    times = [hit.time for hit in site.log if hit.path.startswith("/own")]
    assert min(gaps(times)) >= 0.2


def test_a_host_by_many_names(tmp_path: Path) -> None:
    """Each has a robots.txt of its own for Scrapy, and would have a slot in the downloader."""
    names = ["127.1", "127.0.0.1", "[::ffff:127.0.0.1]"]

    with Site(lambda hit: text("Crawl-delay: 0.3")) as site:
        crawl = OddCrawl(tmp_path / "p", ROBOTSTXT_OBEY=True)
        urls = [f"http://{name}:{site.port}/{n}" for n in range(3) for name in names]
        run = crawl.crawl("follow", "url=" + ",".join(urls))

    assert run.reason == "finished"
    assert sorted(crawl.pages) == sorted(urls)
    # The first page waits as well: robots.txt was asked for at this host, by whatever name.
    assert min(gaps(crawl.sent("http"))[:1]) >= 0.3 - EXACT
    assert min(gaps([hit.time for hit in site.log if hit.path != "/robots.txt"])) >= 0.2
    assert crawl.balance() == {"added": 9, "done": 9}


# -- hosts that never answer -------------------------------------------------------------------


def test_hosts_that_answer_badly_or_never(tmp_path: Path) -> None:
    """Each URL is tried as often as RETRY_TIMES says and fails; no place is lost for ever, and
    nobody else waits for them."""
    silent, closed, cut, endless, garbage, too_large, last, good = [host(n) for n in range(8)]
    bad = [silent, closed, cut, endless, garbage, too_large, refusing := host(50)]
    answers = {
        silent: Answer(delay=60),
        closed: Answer(status=None),
        cut: Answer("begun", headers={"Content-Length": "1000"}, reset=True),
        endless: Answer("x" * 10_000, drip=0.05),
        garbage: Answer("", headers={"Content-Length": "soon", "\x00": "\xff"}),
        too_large: Answer("x" * 20_000),
        good: Answer(numbered(30)),
        # It answers when all of the others' pages are there.
        last: Answer(until=lambda: len(site.paths(good)) == 31),
    }

    with Site(lambda hit: answers[hit.host], answers) as site:
        urls = [site.url(f"/{n}", name) for n in range(2) for name in bad]
        crawl = OddCrawl(
            tmp_path / "p",
            [*urls, site.url("/", last), site.url("/", good)],
            ROBOTSTXT_OBEY=False,
            DOWNLOAD_MAXSIZE=15_000,
            RETRY_TIMES=1,
            CONCURRENT_REQUESTS=10,
        )
        run = crawl.crawl("impatient")

    assert run.reason == "finished"
    assert our_trouble(run.log) == []
    assert len(site.paths(good)) == 31
    for name in (silent, closed, cut, endless, garbage, refusing):
        for n in range(2):
            assert len(crawl.sent(site.url(f"/{n}", name))) == 2, name
    # It has answered, so it is not asked again, and there is no other reason to wait.
    assert len(site.paths(too_large)) == 2
    assert run.stats["focus/failed/unreachable"] == 12
    assert run.stats["focus/failed/response_refused"] == 2
    assert crawl.balance() == {"added": 46, "done": 32, "failed": 14}


# -- redirects ---------------------------------------------------------------------------------

#: Where redirects lead that lead nowhere; 127.0.1.3 is out of scope.
NOWHERE = ["http://a..b/", "http://[::1", "http://127.0.0.1:99999/", "odd://x/", "", "//"]
NOWHERE += ["http://127.0.1.3/", "http://a.127.0.1.3/", "javascript:alert(1)", "http:///", "\xff"]


def test_redirects_that_go_round(tmp_path: Path) -> None:
    """Across hosts, each hop at the pace of its own; out of scope and to what is no URL. There is
    one row for each URL, and each end is counted."""
    a, b, slow = hosts = [host(n) for n in range(3)]

    def answer(hit: Hit) -> Answer | str:
        kind, _, number = hit.path[1:].partition("/")
        if kind == "ring":  # a, b, a
            return redirect(site.url(hit.path, b if hit.host == a else a))
        if kind == "chain" and number != "9":
            to = (a, b, slow)[int(number) % 3]
            return redirect(site.url(f"/chain/{int(number) + 1}", to))
        if kind == "refresh":
            to = site.url(f"/refresh/{number}x", b if hit.host == a else a)
            return f'<html><head><meta http-equiv="refresh" content="0; url={to}"></head></html>'
        if kind == "bad" and number.isdigit():
            return Answer(status=302, headers={"Location": NOWHERE[int(number)]})
        return "a page"

    with Site(answer, hosts) as site:
        crawl = OddCrawl(
            tmp_path / "p",
            ROBOTSTXT_OBEY=False,
            REDIRECT_MAX_TIMES=10,
            DOWNLOAD_SLOTS={slow: {"delay": 0.3, "jitter": 0}},
            FOCUS_DOMAINS=[a, b, slow],
        )
        paths = ["/ring", "/refresh/", *(f"/chain/{n}" for n in (0, 3, 6))]
        paths += [f"/bad/{n}" for n in range(len(NOWHERE))]
        run = crawl.crawl("follow", "url=" + ",".join(site.url(path, a) for path in paths))

    assert run.reason == "finished"
    # What was stored was fetched, once each: a ring is a row for each time round.
    hits = Counter(site.url(hit.path, hit.host) for hit in site.log)
    assert hits == Counter(url for (url,) in crawl.rows("SELECT url FROM urls"))
    for way in ("/ring", "/refresh/"):
        assert sum(number for url, number in hits.items() if way in url) == 11
    assert min(gaps(crawl.sent(site.url("/", slow)))) >= 0.3 - EXACT
    # Two chains end where others were before, two targets have no host, one is out of scope.
    refused = {"duplicate": 2, "invalid": 2, "offsite": 1}
    assert {reason: run.stats[f"focus/refused/{reason}"] for reason in refused} == refused
    # Once round too often (in four ways), and three targets of which Scrapy makes no request.
    assert run.stats["focus/failed/response_refused"] == 7
    assert crawl.balance() == {"added": 67, "done": 60, "failed": 7}
    assert our_trouble(run.log) == []


# -- URLs --------------------------------------------------------------------------------------

LABEL = "a" * 63


def filled(pattern: str, *parts: str) -> list[str]:
    return [pattern.format(part) for part in parts]


#: Each is fetched, or Scrapy itself makes no request of it.
FINE = [
    *filled("http://{}.test/", "under_score", "-a-", "UPPER", "B\xfccher", LABEL, "%61", "xn--"),
    *filled("http://{}/", "dot.test.", "xn--zz99999.test", "a\u3002test"),
    *filled("http://{}/", "127.1", "0x7f.1", "0177.0.0.1", "2130706433", "127.0.0.1.:81"),
    *filled("http://[{}]/", "::1", "2001:DB8::1", "2001:db8:0:0::1", "::ffff:1.2.3.4"),
    *filled("http://a.test:{}/", "", "0", "080", "65535", "65536", "8 0", "-1", "x"),
    *filled("http://{}@a.test/user", "", "u", "u:p", ":", "a@b", "u:p:q", "%40"),
    *filled("http://a.test/{}", " a b", "%ff%fe", "%FF%FE", "\xe9", "%C3%A9", "%zz", "%00", "a\\b"),
    *filled("http://a.test/{}", "\x00", "\t\n\rx", "\x7f\x80", "\u202e\U0001f600", "\udc80"),
    *filled("http://a.test/{}", "#", "#f", "..", "../..", "//", ";?;", '"<>`{{}}|^'),
    *filled("http://a.test?{}", "", "q", "a=1&a=2", "a=2&a=1", "b&a", "a&b", "?", "a=%zz"),
    *filled("http:{}a.test/case", "\\\\", "//b@", "/\\"),
    *("http://a.test\\@b.test/", "HTTP://a.test/case", "  http://a.test/blanks  "),
    *("data:,x", "data:text/html,<a href=http://a.test/in-data>x</a>"),
]
#: Each is refused as invalid, or Scrapy makes no request of it.
INVALID = [
    *filled("http:{}", "//", "///", "///x", "/a.test", "//.", "//..", "//@/", "a.test"),
    *filled("http://{}.test/", "*", "a,b", "a b", "a\x00", "a%00", "a%2f", "a%20b", "a.", ""),
    *filled("http://{}/", f"{'a' * 300}.test", ".".join([LABEL] * 4), "\u2100.test", "\udc80.test"),
    *filled("http://{}/", "256.1.1.1", "1.2.3.4.5", "4294967296", "a.1"),
    *filled("http://{}/", "[fe80::1%25eth0]", "[", "[::1", "]", "::1", "[]"),
    *("1odd://a.test/", "//a.test/", "a.test", "", "\ufeffhttp://a.test/bom"),
]
#: Each fails or is dropped: nothing here downloads it, or nothing is there.
FAILING = [
    *filled("{}://a.test/", "odd", "javascript", "mailto", "data", "s3"),
    # Of the first of these two Scrapy finds no robots.txt to ask for, and the second waits for it.
    *("view-source:http://a.test/", "blob:http://a.test/1"),
    *("javascript:alert(1)", "mailto:a@a.test", "tel:1", "about:blank", "data:"),
    *("file:///nowhere", "file://a.test/nowhere", "ftp://127.0.0.1:1/x", "https://127.0.0.1:1/"),
]


@pytest.mark.parametrize("way", ["seeds", "links"])
def test_odd_urls(tmp_path: Path, way: str) -> None:
    """Each is fetched, fails or is refused, for a reason that is counted, and no two are one that
    the default rules tell apart."""
    every = FINE + INVALID + FAILING
    keys: dict[str, bytes] = {}
    for url in every:
        with suppress(ValueError):
            keys[url] = DupeFilter().fingerprint(Request(url))

    with Site(lambda hit: "a page") as site:
        crawl = OddCrawl(tmp_path / "p", every, ROBOTSTXT_OBEY=True, RETRY_ENABLED=False)
        crawl.use_proxy(site.url())  # to which every host is known
        start = "http://start.test/"
        run = crawl.crawl("odd", *([f"url={start}"] if way == "links" else []))

    assert run.reason == "finished"
    assert our_trouble(run.log) == []
    rows = {bytes(key): state for key, state in crawl.rows("SELECT key, state FROM urls")}
    found = {url: rows.get(key) for url, key in keys.items()}
    assert {url for url in FINE if found.get(url, 1) != 1} == set()
    assert {url for url in INVALID if found.get(url) is not None} == set()
    assert {url for url in FAILING if found.get(url, 2) not in (2, 3)} == set()
    # The site has seen each that is done, once.
    done = [url for (url,) in crawl.rows("SELECT url FROM urls WHERE state = 1")]
    parts = [urlsplit(url) for url in done if not url.startswith("data:")]
    pages = Counter((part.hostname, part._replace(scheme="", netloc="").geturl()) for part in parts)
    assert pages == Counter((hit.host, hit.path) for hit in site.log if hit.path != "/robots.txt")
    # And the books hold.
    refused = {"invalid": sum(found[url] is None for url in keys)}
    refused["duplicate"] = len(keys) - refused["invalid"] + (way == "links") - len(rows)
    assert {reason: run.stats[f"focus/refused/{reason}"] for reason in refused} == refused
    assert run.stats["focus/failed/unreachable"] == 4
    assert run.stats["focus/dropped/unsupported"] == 2
    ends = {"failed": len(rows) - len(done) - 2, "dropped": 2}
    assert crawl.balance() == {"added": len(rows), "done": len(done), **ends}


@given(URLS, URLS)
def test_the_pace_of_any_request(url: str, before: str) -> None:
    """It is its host's, also where the downloader has written a slot into meta, or a redirect has
    copied one; nothing raises."""
    with suppress(ValueError):
        request, source = Request(url), Request(before)
        host = host_or_none(request.url) or ""
        assert group_of(request, Groups("host")) == host
        request.meta["download_slot"] = urlsplit(request.url).hostname or ""
        assert group_of(request, Groups("host")) == host
        request.meta.update(download_slot=urlsplit(source.url).hostname, redirect_urls=[source.url])
        assert group_of(request, Groups("host")) == host
        request.meta["download_slot"] = "the user's"
        assert group_of(request, Groups("host")) == "the user's"
        RobotsGate(obey=True).is_stuck(request)


def test_very_long_urls(tmp_path: Path) -> None:
    """100 kB as a seed, a link and where a redirect leads to, and a chain of redirects that are as
    long as Scrapy's downloader can take."""
    long = "x" * 100_000

    def answer(hit: Hit) -> Answer | str:
        if hit.path == "/":
            return links(f"/link-{long}", f"/link-{long}?b&a", f"/link-{long}?a&b", "/hop-", "/far")
        if hit.path == "/far":
            return redirect(f"/{long}")
        if hit.path.startswith("/hop-"):
            return redirect(f"/hop-{'x' * 15_000}{len(site.log)}")
        return "a page"

    with Site(answer) as site:
        settings: dict[str, Any] = {"URLLENGTH_LIMIT": 0, "FOCUS_EXCLUDED": ["*/no*"]}
        settings["REQUEST_FINGERPRINTER_CLASS"] = "spiders.CountingFingerprinter"
        seeds = [site.url("/"), site.url(f"/seed-{long}")]
        crawl = OddCrawl(tmp_path / "p", seeds, **settings)
        run = crawl.crawl("many")

    assert run.reason == "finished"
    assert our_trouble(run.log) == []
    stored = {url for (url,) in crawl.rows("SELECT url FROM urls")}
    fetched = {site.url(path) for path in site.paths()}
    assert stored == fetched
    lengths = Counter(len(path) for path in site.paths() if len(path) > 100_000)
    assert lengths == {100_006: 2, 100_010: 1}
    assert run.stats["focus/refused/duplicate"] == 1
    # About once each: not all that are before it in a chain again at each hop, which is 190.
    assert run.stats["fingerprinter/long"] < 50
    # A chain that is too long, and a header that is.
    assert run.stats["focus/failed/response_refused"] == 1
    assert run.stats["focus/failed/unreachable"] == 1
    assert crawl.balance() == {"added": 26, "done": 24, "failed": 2}


# -- very many links ---------------------------------------------------------------------------


def test_very_many_links_on_a_page(tmp_path: Path) -> None:
    """None is lost, and each that is there twice is counted."""
    page = links(*(f"/{number % (MANY // 3 * 2)}" for number in range(MANY)))

    with Site(lambda hit: page) as site:
        crawl = OddCrawl(tmp_path / "p", ROBOTSTXT_OBEY=False, LOG_LEVEL="INFO")
        run = crawl.crawl("many", f"url={site.url()}", timeout=600, FOCUS_MAX_PAGES=1)

    assert run.reason == "focus_max_pages"
    assert site.paths() == ["/"]
    assert run.stats["focus/refused/duplicate"] == MANY - MANY // 3 * 2
    assert crawl.balance() == {"added": MANY // 3 * 2 + 1, "done": 1}
    stored = {url for (url,) in crawl.rows("SELECT url FROM urls")}
    assert stored == {site.url(), *(site.url(f"/{number}") for number in range(MANY // 3 * 2))}


DEAD = """
from scrapy_focus import pacer

pacer._PAUSES = 2  # of 3 seconds in all, in place of 255


class Many(Spider):
    name = "many"

    async def start(self):
        for n in range(int(self.number)):
            yield Request(f"{self.bad}{n}")
        for n in range(10):
            yield Request(f"{self.good}{n}")

    def parse(self, response):
        pass
"""


def test_a_dead_port_with_many_urls(tmp_path: Path) -> None:
    """It has the pace of its host, whose other port waits for it, and whose turn comes all the
    same: each URL is tried as often as RETRY_TIMES says, fails, and the crawl is finished."""
    with socket.socket() as unused, Site(lambda hit: "a page") as site:
        unused.bind(("127.0.0.1", 0))  # nobody listens there, and nobody else gets it
        bad = f"http://127.0.0.1:{unused.getsockname()[1]}/"
        crawl = Project(tmp_path / "p", DEAD, ROBOTSTXT_OBEY=False, RETRY_TIMES=1)
        run = crawl.crawl("many", "number=40", f"bad={bad}", f"good={site.url()}")

        assert run.reason == "finished"
        assert len(site.paths()) == 10
        assert run.stats["focus/failed/unreachable"] == 40
        assert run.stats["focus/leased"] == 90
        assert run.stats["focus/hold/unreachable"] == 2


def test_a_host_that_hangs_keeps_no_crawl_open(tmp_path: Path) -> None:
    """It is left alone for longer each time, at last for longer than FOCUS_HORIZON, whatever a
    site may ask for; the rest waits for the next run."""
    silent, good = host(0), host(1)
    answers = {silent: Answer(delay=60), good: Answer("a page")}
    with Site(lambda hit: answers[hit.host], answers) as site:
        crawl = Project(tmp_path / "p", DEAD, ROBOTSTXT_OBEY=False, RETRY_TIMES=0)
        run = crawl.crawl(
            *("many", "number=60", f"bad={site.url('/', silent)}", f"good={site.url('/', good)}"),
            DOWNLOAD_TIMEOUT=0.2,
            FOCUS_HORIZON=3,
            FOCUS_MAX_CRAWL_DELAY=1,
        )

        assert run.reason == "focus_held"
        assert len(site.paths(good)) == 10
        # Three rounds, and one after each of the pauses of 1 and 2 seconds.
        assert len(site.paths(silent)) == run.stats["focus/failed/unreachable"] <= 5 * 8
        assert run.stats["focus/hold/unreachable"] == 3

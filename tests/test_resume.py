"""A crawl that was killed or stopped goes on where it was, and nothing is lost."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.project import ADDON, BY_HAND, Project
from tests.site import Answer, Hit, Site, links, redirect

#: A tree of pages, each linked from several others.
PAGES = 400

#: Ways to run a crawl: how it is turned on, and under which reactor.
HAND = {**BY_HAND, "ADDONS": {}}
EPOLL = {"TWISTED_REACTOR": "twisted.internet.epollreactor.EPollReactor"}
NO_REACTOR = {"TWISTED_REACTOR_ENABLED": False}
WAYS = {
    "addon": ADDON,
    "by hand": HAND,
    "epoll by hand": {**HAND, **EPOLL},
    "no reactor": {**ADDON, **NO_REACTOR},
}

LEASED = "SELECT url FROM urls WHERE run IS NOT NULL"

CLOSING = """
    from scrapy.exceptions import CloseSpider

    class Closing(Follow):
        name = "closing"
        seen = 0

        def parse(self, response):
            yield from super().parse(response) or ()
            self.seen += 1
            if self.seen == int(self.close_at):
                raise CloseSpider("enough")
"""


def tree(number: int = PAGES) -> Any:
    """Answers with pages 0 to *number* - 1, each of which links ten others, many twice."""

    def answer(hit: Hit) -> Answer | str:
        if not hit.path.strip("/").isdigit():
            return Answer(status=404)
        page = int(hit.path.strip("/"))
        below = [5 * page + i for i in range(1, 6)]
        near = [7 * page % number, (page + 1) % number, page // 2, page // 3, page]
        return links(*(f"/{other}" for other in below + near if other < number))

    return answer


def chain(number: int) -> Any:
    """Answers with pages each of which links the next."""

    def answer(hit: Hit) -> Answer | str:
        if hit.path == "/robots.txt":
            return Answer(status=404)
        page = int(hit.path.strip("/"))
        return links(f"/{page + 1}") if page + 1 < number else links()

    return answer


def assert_whole(project: Project, site: Site, pages: int) -> None:
    """Every page's callback ran exactly once, and the server was asked once for each."""
    expected = {f"/{page}": 1 for page in range(pages)}
    assert Counter(site.paths()) == expected
    assert Counter(project.pages) == {site.url(path): 1 for path in expected}
    assert project.rows("SELECT count(*), sum(state = 1) FROM urls") == [(pages, pages)]


# -- killed ----------------------------------------------------------------------------------


def test_three_kills(tmp_path: Path) -> None:
    """Every callback runs; nothing is fetched twice but what was in flight at a kill."""
    project = Project(tmp_path / "project", ROBOTSTXT_OBEY=False)
    in_flight: Counter[str] = Counter()
    with Site(tree()) as site:
        for fetched in (PAGES // 5, PAGES // 2, PAGES * 4 // 5):
            project.crawl_until(lambda: len(site.log) >= fetched, f"url={site.url('/0')}")  # noqa: B023
            leased = [url for (url,) in project.rows(LEASED)]
            # Eight of one host at a time, and as many whose callback has not finished.
            assert len(leased) <= 32
            in_flight.update(leased)
        run = project.crawl("follow", f"url={site.url('/0')}")

    assert run.reason == "finished"
    assert "resumed" in run.log
    urls = {site.url(f"/{page}") for page in range(PAGES)}
    fetched_again = Counter(map(site.url, site.paths())) - Counter(urls)
    assert set(project.pages) == urls
    assert not fetched_again - in_flight
    assert not Counter(project.pages) - Counter(urls) - in_flight


SLOW = """
    import asyncio
    from pathlib import Path
    from scrapy.utils.defer import maybe_deferred_to_future

    async def wait_for(what):
        # Until the test lets it go.
        Path(what + ".started").touch()
        while not Path("go").exists():
            await asyncio.sleep(0.02)

    class Slow(Follow):
        name = "slow"
        custom_settings = {"ITEM_PIPELINES": {"spiders.SlowPipeline": 1}}

        async def start(self):
            for path in ("/callback", "/pipeline", "/from/a", "/from/b", "/busy", "/page"):
                yield Request(self.url + path, callback=getattr(self, "parse_" + path[1:], None))

        async def parse_callback(self, response):
            yield response.follow("/early")
            await wait_for("callback")
            yield response.follow("/late")
            self.note(response)

        def parse_pipeline(self, response):
            yield {"url": response.url}

        def parse(self, response):
            self.note(response)

        def note(self, response):
            chain = [response.url, *response.meta.get("redirect_urls", [])]
            with open("pages.txt", "a") as file:
                file.write(" <- ".join(chain) + " retries %s" % response.meta.get("retry_times"))
                file.write("\\n")

    class SlowPipeline:
        async def process_item(self, item):
            await wait_for("pipeline")
            with open("items.txt", "a") as file:
                file.write(item["url"] + "\\n")
            return item
"""


def test_everything_in_flight_at_a_kill(tmp_path: Path) -> None:
    """Two redirects, a slow callback, a slow pipeline and a retry are all in flight."""
    project = Project(tmp_path / "project", SLOW, ROBOTSTXT_OBEY=False, RETRY_TIMES=3)
    go = project.folder / "go"

    def answer(hit: Hit) -> Answer | str:
        # What must be in flight stays so until the first run is dead.
        patience = Answer("ready", delay=0 if go.exists() else 60)
        if hit.path.startswith("/from/"):
            return redirect(hit.path.replace("from", "to"))
        if hit.path.startswith("/to/"):
            return patience
        if hit.path == "/busy":
            return Answer(status=503) if site.paths().count("/busy") == 1 else patience
        return "a page"

    def all_in_flight() -> bool:
        paths = site.paths()
        return (
            {"/to/a", "/to/b", "/early", "/page"} <= set(paths)
            and paths.count("/busy") == 2
            and (project.folder / "callback.started").exists()
            and (project.folder / "pipeline.started").exists()
            and len(project.rows("SELECT 1 FROM urls WHERE state = 1")) == 4
        )

    with Site(answer) as site:
        project.crawl_until(all_in_flight, f"url={site.url('')}", spider="slow")
        leased = {url for (url,) in project.rows(LEASED)}
        assert leased == {
            *map(site.url, ("/callback", "/pipeline", "/to/a", "/to/b", "/busy")),
        }
        go.touch()
        run = project.crawl("slow", f"url={site.url('')}")

    assert run.reason == "finished"
    assert Counter(site.paths()) == {
        "/callback": 2,
        "/pipeline": 2,
        "/from/a": 1,
        "/from/b": 1,
        "/to/a": 2,
        "/to/b": 2,
        "/busy": 3,
        "/early": 1,
        "/late": 1,
        "/page": 1,
    }
    noted = (project.folder / "pages.txt").read_text().splitlines()
    assert sorted(noted) == sorted(
        f"{chain} retries {retries}"
        for chain, retries in [
            (site.url("/callback"), None),
            (site.url("/early"), None),
            (site.url("/late"), None),
            (site.url("/page"), None),
            (f"{site.url('/to/a')} <- {site.url('/from/a')}", None),
            (f"{site.url('/to/b')} <- {site.url('/from/b')}", None),
            (site.url("/busy"), 1),
        ]
    )
    assert (project.folder / "items.txt").read_text().split() == [site.url("/pipeline")]


# -- stopped ---------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_every_stop(tmp_path: Path, way: dict[str, Any]) -> None:
    """Stopped in each way, one after the other, and in the end everything is there."""
    project = Project(tmp_path / "project", CLOSING, **way)
    held = tmp_path / "held"
    in_flight: Counter[str] = Counter()
    slow: list[str] = []

    def answer(hit: Hit) -> Answer | str:
        page = tree(200)(hit)
        # Ctrl-C waits for two of them, whichever they are.
        if held.exists() and len(slow) < 2 and isinstance(page, str):
            slow.append(hit.path)
            return Answer(page, delay=60)
        return page

    with Site(answer) as site:
        url = f"url={site.url('/0')}"

        run = project.crawl_until(lambda: len(site.paths()) >= 10, url, sign=signal.SIGINT)
        assert (run.returncode, run.reason) == (0, "shutdown")
        assert not project.rows(LEASED)
        assert len(project.pages) == len(site.paths())

        held.touch()
        process = project.start("crawl", "follow", "-a", url)
        project.wait_until(process, lambda: len(slow) == 2)
        process.send_signal(signal.SIGINT)
        project.wait_until(process, lambda: "Closing spider (shutdown)" in project.log)
        process.send_signal(signal.SIGINT)
        assert project.wait(process).reason in (None, "shutdown")
        in_flight.update(url for (url,) in project.rows(LEASED))
        held.unlink()

        run = project.crawl("closing", url, "close_at=15", FOCUS_JOB=f"follow {url}")
        assert (run.returncode, run.reason) == (0, "enough")

        spent = project.rows("SELECT pages FROM jobs")[0][0]
        run = project.crawl("follow", url, FOCUS_MAX_PAGES=spent + 20)
        assert (run.returncode, run.reason) == (0, "focus_max_pages")
        assert project.rows("SELECT pages FROM jobs")[0][0] == spent + 20

        project.crawl_until(lambda: len(set(site.paths())) >= 150, url)
        in_flight.update(url for (url,) in project.rows(LEASED))

        run = project.crawl("follow", url)
        assert (run.returncode, run.reason) == (0, "finished")

    urls = {site.url(f"/{page}") for page in range(200)}
    assert set(project.pages) == urls
    assert not Counter(project.pages) - Counter(urls) - in_flight
    assert not Counter(map(site.url, site.paths())) - Counter(urls) - in_flight
    assert len(in_flight) <= 64


def test_ctrl_c(tmp_path: Path) -> None:
    """Once: what is in flight finishes, the rest goes back and waits."""
    project = Project(tmp_path / "project")
    with Site(tree(120)) as site:
        project.crawl_until(
            lambda: len(site.paths()) >= 30, f"url={site.url('/0')}", sign=signal.SIGINT
        )
        assert len(project.pages) == len(site.paths()) < 120
        project.crawl("follow", f"url={site.url('/0')}")
        assert_whole(project, site, 120)


def test_what_ends_while_the_crawl_closes(tmp_path: Path) -> None:
    """Links, a redirect and a retry that come after Ctrl-C wait for the next run."""
    project = Project(tmp_path / "project", ROBOTSTXT_OBEY=False)

    def answer(hit: Hit) -> Answer | str:
        late = 2 if site.paths().count(hit.path) == 1 else 0
        if hit.path == "/moved":
            return Answer(status=302, headers={"Location": "/target"}, delay=late)
        if hit.path == "/busy" and late:
            return Answer(status=503, headers={"Retry-After": "0"}, delay=late)
        if hit.path == "/page":
            return Answer(links("/child"), delay=late)
        return "a page"

    with Site(answer) as site:
        url = "url=" + ",".join(map(site.url, ("/moved", "/busy", "/page")))
        run = project.crawl_until(lambda: len(site.log) == 3, url, sign=signal.SIGINT)
        assert run.reason == "shutdown"
        assert len(site.log) == 3
        waiting = project.rows("SELECT url FROM urls WHERE state = 0")
        assert {url for (url,) in waiting} == set(map(site.url, ("/target", "/busy", "/child")))
        run = project.crawl("follow", url)
        assert run.reason == "finished"
        once = dict.fromkeys(("/moved", "/target", "/page", "/child"), 1)
        assert Counter(site.paths()) == once | {"/busy": 2}
        assert set(project.pages) == set(map(site.url, ("/target", "/busy", "/page", "/child")))


def test_the_count_of_retries_is_kept(tmp_path: Path) -> None:
    """A page that is never well is given up after as many attempts, kill or not."""
    project = Project(tmp_path / "project", ROBOTSTXT_OBEY=False, RETRY_TIMES=3)

    def answer(hit: Hit) -> Answer:
        held = len(site.log) == 3
        return Answer(status=500, delay=60 if held else 0)

    with Site(answer) as site:
        project.crawl_until(lambda: len(site.log) == 3, f"url={site.url('/dead')}")
        run = project.crawl("follow", f"url={site.url('/dead')}")
        assert run.reason == "finished"
        # One and three more, and the one that the kill cut short.
        assert len(site.log) == 5
        assert run.stats["retry/max_reached"] == 1
        assert project.rows("SELECT state, attempts FROM urls") == [(1, 5)]

"""Start requests that come faster than pages can be fetched, in real crawls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .project import Project
from .site import Site, links

SPIDERS = """
    from scrapy.exceptions import CloseSpider


    class Many(Follow):
        name = "many"
        pipelines = {"spiders.Note": 1}
        custom_settings = {"ITEM_PIPELINES": pipelines, "DOWNLOAD_DELAY": 60}

        async def start(self):
            for number in range(1000):
                yield Request(f"{self.url}/{number}")
                if number % 100 == 0:
                    taken = self.crawler.stats.get_value("scheduler/enqueued")
                    yield {"number": number, "taken": taken}
            if self.fails:
                raise ValueError("no more")
            raise CloseSpider("enough")

        fails = False


    class Note:
        def process_item(self, item):
            with open("items.jsonl", "a") as file:
                file.write(json.dumps(item) + "\\n")
            return item


    class Ahead(Follow):
        # Drives the scheduler by hand: six requests in, three out, then what a test wants.
        name = "ahead"
        more = None

        async def start(self):
            self.scheduler = self.crawler.engine._slot.scheduler
            self.enter(*range(6))
            order = self.leave(3)
            ahead = [len(self.scheduler._ahead)]
            if self.more == "better":
                self.enter("better", priority=1)
                order += self.leave(5)
            elif self.more == "singly":
                for number in range(6, 40):
                    self.enter(number)
                    order += self.leave(1)
                    ahead.append(len(self.scheduler._ahead))
            with open("order.json", "w") as file:
                json.dump([order, ahead], file)
            raise CloseSpider("seen")
            yield

        def enter(self, *names, **options):
            for name in names:
                self.scheduler.enqueue_request(Request(f"{self.url}/{name}", **options))

        def leave(self, number):
            requests = [self.scheduler.next_request() for _ in range(number)]
            return [request and request.url.rpartition("/")[2] for request in requests]
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project", SPIDERS)


def notes(project: Project) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (project.folder / "items.jsonl").read_text().splitlines()]


def test_items_come_in_their_place(project: Project) -> None:
    with Site(lambda hit: links()) as site:
        run = project.crawl("many", f"url={site.url('')}", timeout=60)
    assert run.reason == "enough"
    assert run.stats["scheduler/enqueued"] == run.stats["focus/added"] == 1000
    assert [note["number"] for note in notes(project)] == list(range(0, 1000, 100))
    # All that was yielded before an item has been taken in by then.
    assert [note["taken"] for note in notes(project)] == [n + 1 for n in range(0, 1000, 100)]
    assert project.rows("SELECT count(*) FROM urls") == [(1000,)]


def test_what_start_raises_comes_after_what_it_has_yielded(project: Project) -> None:
    with Site(lambda hit: links()) as site:
        run = project.crawl("many", f"url={site.url('')}", "fails=1", FOCUS_MAX_PAGES=1, timeout=60)
    assert run.reason == "focus_max_pages"
    assert "ValueError: no more" in run.log
    assert run.stats["focus/added"] == 1000


def test_what_was_chosen_ahead_gives_way(project: Project) -> None:
    """Several are leased in one go, and what comes meanwhile and is better still comes first."""
    with Site(lambda hit: links()) as site:
        run = project.crawl("ahead", f"url={site.url('')}", "more=better")
    assert run.reason == "seen"
    order, ahead = json.loads((project.folder / "order.json").read_text())
    assert order == ["0", "1", "2", "better", "3", "4", "5", None]
    assert ahead == [3]


def test_what_was_chosen_ahead_and_not_asked_for_goes_back(project: Project) -> None:
    with Site(lambda hit: links()) as site:
        run = project.crawl("ahead", f"url={site.url('')}")
        assert run.reason == "seen"
        assert run.stats["focus/leased"] == 3
        # Those that were handed out count as pages, and those behind them do not.
        assert project.rows("SELECT leased, pages FROM jobs") == [(0, 3)]


def test_nothing_is_chosen_ahead_for_who_asks_singly(project: Project) -> None:
    with Site(lambda hit: links()) as site:
        run = project.crawl(
            "ahead", f"url={site.url('')}", "more=singly", CONCURRENT_REQUESTS_PER_DOMAIN=100
        )
    assert run.reason == "seen"
    order, ahead = json.loads((project.folder / "order.json").read_text())
    assert order == [str(number) for number in range(37)]
    assert ahead[1] == 3
    assert ahead[-1] == 0
    assert project.rows("SELECT leased, pages, added FROM jobs") == [(0, 37, 40)]

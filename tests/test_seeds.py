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
        name = "ahead"

        async def start(self):
            scheduler = self.crawler.engine._slot.scheduler
            for number in range(6):
                scheduler.enqueue_request(Request(f"{self.url}/{number}"))
            order = [scheduler.next_request() for _ in range(3)]
            ahead = len(scheduler._ahead)
            scheduler.enqueue_request(Request(f"{self.url}/better", priority=1))
            order += [scheduler.next_request() for _ in range(4)]
            nothing = scheduler.next_request()
            with open("order.json", "w") as file:
                urls = [request.url.rpartition("/")[2] for request in order]
                json.dump([urls, ahead, nothing], file)
            raise CloseSpider("seen")
            yield


    class Left(Follow):
        name = "left"

        async def start(self):
            scheduler = self.crawler.engine._slot.scheduler
            for number in range(6):
                scheduler.enqueue_request(Request(f"{self.url}/{number}"))
            for number in range(3):
                scheduler.next_request()
            raise CloseSpider("seen")
            yield
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
        run = project.crawl("ahead", f"url={site.url('')}")
    assert run.reason == "seen"
    order, ahead, nothing = json.loads((project.folder / "order.json").read_text())
    assert order == ["0", "1", "2", "better", "3", "4", "5"]
    assert ahead == 3
    assert nothing is None


def test_what_was_chosen_ahead_and_not_asked_for_goes_back(project: Project) -> None:
    with Site(lambda hit: links()) as site:
        run = project.crawl("left", f"url={site.url('')}")
        assert run.reason == "seen"
        assert run.stats["focus/leased"] == 3
        # Those that were handed out count as pages, and those behind them do not.
        assert project.rows("SELECT leased, pages FROM jobs") == [(0, 3)]

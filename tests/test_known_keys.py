"""Duplicates are found, whether the scheduler remembers their keys or has to ask the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from scrapy import Request, Spider
from scrapy.utils.test import get_crawler

from scrapy_focus import Scheduler

if TYPE_CHECKING:
    from pathlib import Path

URLS = [f"https://example.com/{number}" for number in range(6)]


def opened(folder: Path, **settings: object) -> tuple[Scheduler, Spider]:
    crawler = get_crawler(
        settings_dict={
            "ADDONS": {"scrapy_focus.Addon": 300},
            "FOCUS_FRONTIER": f"sqlite:///{folder / 'frontier.db'}",
            "FOCUS_JOB": "keys",
            **settings,
        }
    )
    crawler.spider = Spider.from_crawler(crawler, "keys")
    scheduler = Scheduler.from_crawler(crawler)
    scheduler.open(crawler.spider)
    return scheduler, crawler.spider


def taken(scheduler: Scheduler) -> list[bool]:
    return [scheduler.enqueue_request(Request(url)) for url in URLS]


@pytest.mark.parametrize("remembered", [3, 6, 7])
def test_duplicates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remembered: int) -> None:
    monkeypatch.setattr("scrapy_focus.scheduler._RECENT", remembered)
    scheduler, spider = opened(tmp_path)
    assert taken(scheduler) == [True] * 6
    assert taken(scheduler) == [False] * 6  # not stored yet
    assert scheduler.next_request() is not None
    assert taken(scheduler) == [False] * 6
    scheduler.close("shutdown")
    stats = spider.crawler.stats
    assert stats
    assert stats.get_value("scheduler/enqueued") == stats.get_value("focus/added") == 6
    assert stats.get_value("focus/refused/duplicate") == 12

    scheduler, _ = opened(tmp_path)
    assert taken(scheduler) == [False] * 6  # of an earlier run
    scheduler.close("shutdown")

    scheduler, _ = opened(tmp_path, FOCUS_RESUME=False)
    assert taken(scheduler) == [True] * 6
    assert scheduler.next_request() is not None
    assert taken(scheduler) == [False] * 6
    scheduler.close("shutdown")

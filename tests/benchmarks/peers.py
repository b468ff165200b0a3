"""The schedulers that are compared, by the settings that turn them on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import scrapy.squeues
from scrapy.core.scheduler import BaseScheduler

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scrapy import Request

    from tests.benchmarks.bench import Bench

OURS = "scrapy_focus"
MEMORY = "memory"
JOBDIR = "JOBDIR, disk queue"
SQLITE = "JOBDIR, SQLite queue"
REDIS = "scrapy-redis"

#: By what each peer's settings need: nothing, or the port of a Redis server.
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    OURS: {
        "ADDONS": {"scrapy_focus.Addon": 300},
        "FOCUS_FRONTIER": "sqlite:///frontier.db",
        "FOCUS_JOB": "bench",
    },
    MEMORY: {},
    JOBDIR: {"JOBDIR": "job"},
    SQLITE: {
        "JOBDIR": "job",
        "SCHEDULER_DISK_QUEUE": "scrapy.squeues.PickleLifoSQLiteQueue",
        "SCHEDULER_START_DISK_QUEUE": "scrapy.squeues.PickleFifoSQLiteQueue",
    },
    REDIS: {
        "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
        "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
        "SCHEDULER_FLUSH_ON_START": True,
    },
}


def peers_of(bench: Bench) -> list[str]:
    """The schedulers that can be measured here, ours first."""
    missing = set() if bench.redis else {REDIS}
    if bench.size == "tiny":
        missing |= {JOBDIR, SQLITE}
    if not hasattr(scrapy.squeues, "PickleLifoSQLiteQueue"):
        missing.add(SQLITE)  # new in Scrapy 2.19
    return [name for name in SETTINGS if name not in missing]


def settings_of(name: str, redis_port: int | None) -> dict[str, Any]:
    """The settings of a peer; all paths are relative to the current folder."""
    settings = dict(SETTINGS[name])
    if name == REDIS:
        settings["REDIS_URL"] = f"redis://127.0.0.1:{redis_port}/0"
    return settings


class NoScheduler(BaseScheduler):
    """A bare list: what the loop around a scheduler costs without one."""

    def __init__(self) -> None:
        self._requests: list[Request] = []

    def has_pending_requests(self) -> bool:
        return bool(self._requests)

    def enqueue_request(self, request: Request) -> bool:
        self._requests.append(request)
        return True

    def next_request(self) -> Request | None:
        return self._requests.pop() if self._requests else None


#: What is taken off each peer's figures: the signals that an engine sends cost something
#: without a scheduler too.
NONE: Mapping[str, Any] = {"SCHEDULER": "tests.benchmarks.peers.NoScheduler"}

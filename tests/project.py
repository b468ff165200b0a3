"""Runs spiders as a user does: in a project, by ``scrapy crawl``, in a child process."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SETTINGS = """
BOT_NAME = "tests"
SPIDER_MODULES = ["spiders"]
EXTENSIONS = {"spiders.StatsOut": 0}
TELNETCONSOLE_ENABLED = False
LOG_LEVEL = "DEBUG"
"""

_SPIDERS = '''
import json
import scrapy
from scrapy import Request, Spider, signals


class StatsOut:
    """Writes the stats where the test finds them."""

    @classmethod
    def from_crawler(cls, crawler):
        self = cls()
        self.crawler = crawler
        crawler.signals.connect(self.write, signals.engine_stopped)
        return self

    def write(self):
        with open("stats.json", "w") as file:
            json.dump(self.crawler.stats.get_stats(), file, default=str)


class Follow(Spider):
    """Follows every link, and notes each page whose callback ran."""

    name = "follow"
    url = None

    async def start(self):
        for url in self.url.split(","):
            yield Request(url, dont_filter=True)

    def parse(self, response):
        with open("pages.txt", "a") as file:
            file.write(response.url + "\\n")
        for link in response.css("a::attr(href)").getall():
            yield response.follow(link)
'''

#: The one line, or the two: the guarantees hold with either.
ADDON = {"ADDONS": {"scrapy_focus.Addon": 300}}
BY_HAND = {"SCHEDULER": "scrapy_focus.Scheduler", "DUPEFILTER_CLASS": "scrapy_focus.DupeFilter"}


@dataclass
class Run:
    """How a crawl went."""

    returncode: int
    log: str
    stats: dict[str, Any]

    @property
    def reason(self) -> str | None:
        return self.stats.get("finish_reason")


class Project:
    """A Scrapy project in *folder*.

    :param spiders: source of further spiders
    :param settings: added to the project's settings
    """

    def __init__(self, folder: Path, spiders: str = "", **settings: Any) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        (folder / "scrapy.cfg").write_text("[settings]\ndefault = settings\n")
        (folder / "spiders.py").write_text(_SPIDERS + textwrap.dedent(spiders))
        #: Added to the environment of the child processes.
        self.environment: dict[str, str] = {}
        self.settings(**{**ADDON, **settings})

    @property
    def frontier(self) -> Path:
        return self.folder / ".scrapy" / "frontier.db"

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """What the frontier's file says to a query; it is only read."""
        return rows(self.frontier, sql, *values)

    @property
    def pages(self) -> list[str]:
        """The URLs whose callback ran, in order, over all runs."""
        file = self.folder / "pages.txt"
        return file.read_text().split() if file.exists() else []

    def settings(self, **settings: Any) -> None:
        """Write the project's settings anew."""
        lines = [f"{name} = {value!r}" for name, value in settings.items()]
        (self.folder / "settings.py").write_text(_SETTINGS + "\n".join(lines) + "\n")

    def use_proxy(self, url: str) -> None:
        """Crawl through a proxy, to which every host name is known: a :class:`Site`."""
        self.environment |= {"http_proxy": url, "no_proxy": ""}

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start ``scrapy`` with these arguments; its log goes to ``log.txt``."""
        return self._start("-m", "scrapy", *arguments)

    def script(self, source: str, *arguments: str, timeout: float = 120) -> Run:
        """Run a script in the project's folder to its end."""
        (self.folder / "script.py").write_text(textwrap.dedent(source))
        return self.wait(self._start("script.py", *arguments), timeout)

    def _start(self, *arguments: str) -> subprocess.Popen[str]:
        (self.folder / "stats.json").unlink(missing_ok=True)
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
        environment.pop("SCRAPY_SETTINGS_MODULE", None)
        environment.update(self.environment)
        with (self.folder / "log.txt").open("w") as log:
            return subprocess.Popen(
                [sys.executable, *arguments],
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
            )

    def crawl(
        self, spider: str = "follow", *arguments: str, timeout: float = 60, **settings: Any
    ) -> Run:
        """``scrapy crawl`` to its end. Arguments of the form ``name=value`` are the spider's."""
        process = self.start("crawl", spider, *_options(arguments, settings))
        return self.wait(process, timeout)

    def run(self, *arguments: str, timeout: float = 60) -> Run:
        """``scrapy`` with these arguments, to its end."""
        return self.wait(self.start(*arguments), timeout)

    def wait(self, process: subprocess.Popen[str], timeout: float = 60) -> Run:
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"still running after {timeout} s:\n{self.log[-4000:]}") from None
        stats = self.folder / "stats.json"
        found = json.loads(stats.read_text()) if stats.exists() else {}
        return Run(process.returncode, self.log, found)

    def wait_until(
        self, process: subprocess.Popen[str], condition: Callable[[], bool], timeout: float = 60
    ) -> None:
        """Wait until *condition* holds, or the process has ended."""
        deadline = time.monotonic() + timeout
        while process.poll() is None and not condition():
            if time.monotonic() > deadline:
                process.kill()
                process.wait()
                raise AssertionError(f"the condition did not come true:\n{self.log[-4000:]}")
            time.sleep(0.005)

    @property
    def log(self) -> str:
        return (self.folder / "log.txt").read_text()

    def crawl_until(
        self,
        condition: Callable[[], bool],
        *arguments: str,
        spider: str = "follow",
        sign: int = signal.SIGKILL,
        timeout: float = 60,
        **settings: Any,
    ) -> Run:
        """Crawl until *condition* holds, then send a signal and wait for the end."""
        process = self.start("crawl", spider, *_options(arguments, settings))
        self.wait_until(process, condition, timeout)
        if process.poll() is None:
            process.send_signal(sign)
        return self.wait(process, timeout)


def rows(path: Path, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    """What the file of a frontier says to a query; it is only read."""
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return connection.execute(sql, values).fetchall()
    finally:
        connection.close()


def _options(arguments: tuple[str, ...], settings: dict[str, Any]) -> list[str]:
    given = [part for argument in arguments for part in ("-a", argument)]
    for name, value in settings.items():
        text = json.dumps(value) if isinstance(value, (dict, list)) else str(value)
        given += ["-s", f"{name}={text}"]
    return given

"""Crawls that note when each request went out, for the tests of politeness.

Lower bounds on gaps are strict there. They are read where a request reaches the downloader:
on a busy machine it may be read late by the server, and the next one in time.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.project import Project
from tests.site import links

SPIDERS = """
import asyncio
import time
from pathlib import Path
from scrapy.core.downloader.handlers.http11 import HTTP11DownloadHandler
from scrapy.exceptions import IgnoreRequest
from scrapy.robotstxt import ProtegoRobotParser


class Sent:
    \"\"\"Notes when each request is handed to the downloader.\"\"\"

    @classmethod
    def from_crawler(cls, crawler):
        self = cls()
        crawler.signals.connect(self.note, signals.request_reached_downloader)
        return self

    def note(self, request):
        now = time.time()
        with open("sent.txt", "a") as file:
            file.write(f"{now} {request.url}\\n")


class Noted(HTTP11DownloadHandler):
    \"\"\"Notes when each request is sent, having waited in the downloader.\"\"\"

    async def download_request(self, request):
        Sent.note(self, request)
        return await super().download_request(request)


class Together(Follow):
    \"\"\"Begins when its test says so: processes do not start equally fast.\"\"\"

    name = "together"

    async def start(self):
        print("ready", flush=True)
        while not Path("go").exists():
            await asyncio.sleep(0.01)
        async for request in super().start():
            yield request


class Veto:
    def process_request(self, request):
        if "/veto" in request.url:
            raise IgnoreRequest


class LiteralParser(ProtegoRobotParser):
    \"\"\"Protego reads a Crawl-delay that makes no sense as none; other parsers do not.\"\"\"

    def __init__(self, robotstxt_body, spider):
        super().__init__(robotstxt_body, spider)
        _, found, self.delay = robotstxt_body.decode().partition("Crawl-delay:")

    def crawl_delay(self, user_agent):
        return float(self.delay) if self.delay else None


class Media(Follow):
    name = "media"

    def parse(self, response):
        yield from super().parse(response)
        if response.url == self.url:
            yield {"file_urls": [self.url + f"file{n}" for n in range(3)]}


class Slots(Follow):
    \"\"\"Gives hosts whose page says so one slot of their own.\"\"\"

    name = "slots"

    async def start(self):
        for url in self.url.split(","):
            slot = {"download_slot": "ours"} if "own" in url else {}
            yield Request(url, meta=slot)
"""

#: What a clock and a float may be off.
EXACT = 0.005


class Crawl(Project):
    """A project that notes when its requests went out.

    :param spiders: source of further spiders
    """

    def __init__(self, folder: Path, spiders: str = "", **settings: Any) -> None:
        settings.setdefault("EXTENSIONS", {"spiders.StatsOut": 0, "spiders.Sent": 0})
        super().__init__(folder, SPIDERS + spiders, **settings)

    def sent(self, *urls: str) -> list[float]:
        """When requests to URLs that start with one of *urls* went out."""
        lines = (self.folder / "sent.txt").read_text().splitlines()
        found = [line.split(" ") for line in lines]
        return sorted(float(at) for at, url in found if url.startswith(urls))


def gaps(times: list[float]) -> list[float]:
    return [b - a for a, b in pairwise(times)]


def host(number: int) -> str:
    return f"127.0.1.{number}"


def numbered(count: int, first: int = 1) -> str:
    return links(*(f"/{n}" for n in range(first, first + count)))

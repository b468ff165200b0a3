"""Crawls 4,231 sites with real robots.txt files, those among the tests in Protego's sdist.

.. code-block:: shell

    python -m tests.conformance.robots

A web server on loopback is the proxy of the crawl and has each file at its site. Each site's page
must be fetched or refused, none before the site's Crawl-delay has passed, and as many sites must
have one as a plain look at the files finds.
"""

from __future__ import annotations

import sys
import tarfile
import tempfile
from math import isfinite
from pathlib import Path

from tests.paced import EXACT, Crawl
from tests.sdists import fetch
from tests.site import Answer, Hit, Site

RELEASE = "0.7.0"
SHA256 = "2c032d9736a1f4f0c4318f3558353ae34da5cd038f1a5e064ded7548df315e5a"
FILES = 4231
AGENT = "example-bot/1.0 (+https://bot.example)"
#: The longest delay in seconds that is granted to a site, so that the crawl is short.
LONGEST = 0.2


def main() -> None:
    sdist = fetch("protego", RELEASE, SHA256)
    files = read(sdist)
    check(len(files), FILES, "files")
    delays = {name: delay for name, body in files.items() if (delay := plain_delay(body))}

    def answer(hit: Hit) -> Answer:
        return Answer(files[hit.host] if hit.path == "/robots.txt" else "a page")

    with tempfile.TemporaryDirectory() as folder, Site(answer) as site:
        settings = {"USER_AGENT": AGENT, "ROBOTSTXT_OBEY": True, "LOG_LEVEL": "INFO"}
        crawl = Crawl(Path(folder, "p"), SPIDER, FOCUS_MAX_CRAWL_DELAY=LONGEST, **settings)
        crawl.use_proxy(site.url())
        (crawl.folder / "names.txt").write_text("\n".join(files))
        run = crawl.crawl("sites", timeout=600)
        granted = crawl.rows("SELECT count(*) FROM hosts WHERE delay > 0")[0][0]
        sent = times(crawl.folder / "sent.txt")

    check(run.reason, "finished", "how the crawl ended")
    check("Traceback" in run.log, False, "whether the log has a traceback")
    pages = {hit.host for hit in site.log if hit.path == "/"}
    refused = run.stats["focus/dropped/robots"]
    check(run.stats["focus/done"], len(pages), "pages that were fetched")
    check(len(pages) + refused, FILES, "pages that were fetched or refused")
    check(granted, len(delays), "sites whose Crawl-delay is honoured")
    clamped = sum(delay > LONGEST for delay in delays.values())
    check(run.stats["focus/delay/clamped"], clamped, "delays that were clamped")
    early = [name for name in pages if wait(sent, name) < min(delays.get(name, 0), LONGEST) - EXACT]
    check(early, [], "sites that were asked too early")
    print(f"{len(pages)} pages fetched, {refused} refused, {granted} delays honoured")


#: The names are too many for a command line.
SPIDER = """
class Sites(Spider):
    name = "sites"

    async def start(self):
        for name in Path("names.txt").read_text().split():
            yield Request(f"http://{name}/")

    def parse(self, response):
        pass
"""


def check(found: object, expected: object, what: str) -> None:
    if found != expected:
        sys.exit(f"{what}: {found!r}, expected {expected!r}")


def read(sdist: Path) -> dict[str, bytes]:
    """The files by the name of their site."""
    files = {}
    with tarfile.open(sdist) as archive:
        for member in archive:
            folder, _, name = member.name.rpartition("/")
            if folder.endswith("/test_data") and (file := archive.extractfile(member)):
                files[name] = file.read()
    return files


def plain_delay(body: bytes) -> float:
    """The Crawl-delay that a robots.txt has for :data:`AGENT`, found without Protego; 0 if none."""
    delays: dict[str, float] = {}
    agents: list[str] = []
    in_rules = False
    for line in body.decode("utf-8-sig", "ignore").splitlines():
        field, _, value = (part.strip().lower() for part in line.split("#")[0].partition(":"))
        if field == "user-agent":
            agents = [*([] if in_rules else agents), value]
            delays.setdefault(value, 0.0)
        in_rules = field in ("allow", "disallow", "crawl-delay") or (
            in_rules and field != "user-agent"
        )
        if field == "crawl-delay" and (delay := number(value)) is not None:
            delays |= dict.fromkeys(agents, delay)
    named = [agent for agent in delays if agent and agent in AGENT]
    return delays[max(named, key=len)] if named else delays.get("*", 0.0)


def number(value: str) -> float | None:
    try:
        delay = float(value)
    except ValueError:
        return None
    return delay if isfinite(delay) and delay >= 0 else None


def times(file: Path) -> dict[str, float]:
    """When each URL was sent."""
    lines = (line.split(" ") for line in file.read_text().splitlines())
    return {url: float(at) for at, url in lines}


def wait(sent: dict[str, float], name: str) -> float:
    """Seconds from a site's robots.txt to its page."""
    return sent[f"http://{name}/"] - sent[f"http://{name}/robots.txt"]


if __name__ == "__main__":
    main()

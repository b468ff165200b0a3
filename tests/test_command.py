"""``scrapy frontier``: on frontiers that crawls use, that they left, and that are none."""

from __future__ import annotations

import configparser
import ctypes
import json
import math
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request

from scrapy_focus import DupeFilter
from scrapy_focus.candidate import Candidate
from scrapy_focus.exceptions import FrontierError
from scrapy_focus.frontier import Ending, Limits, Order, Outcome, listing, report
from scrapy_focus.frontier.listing import STATES, read_urls
from scrapy_focus.frontier.report import find_jobs, look_at, read_jobs
from scrapy_focus.frontier.runs import RunLock, is_alive, lock_path
from scrapy_focus.frontier.sqlite import SQLiteFrontier
from tests.project import ADDON, Project
from tests.site import Answer, Hit, Site, links

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module", autouse=True)
def entry_point(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Scrapy's child processes find the command, whether the package is installed or not."""
    folder = tmp_path_factory.mktemp("metadata")
    info = folder / "scrapy_focus_here-0.dist-info"
    info.mkdir()
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    found = setup["options.entry_points"]["scrapy.commands"]
    (info / "entry_points.txt").write_text(f"[scrapy.commands]\n{found}\n")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: scrapy_focus_here\nVersion: 0\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "PYTHONPATH", f"{ROOT}{os.pathsep}{folder}")
        yield


Done = subprocess.CompletedProcess[str]


def frontier(*arguments: str | Path, cwd: Path, **options: Any) -> Done:
    """Run ``scrapy frontier`` as a user does."""
    return subprocess.run(
        [sys.executable, "-m", "scrapy", "frontier", *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        encoding="utf-8",
        timeout=60,
        check=False,
        **options,
    )


def text(*arguments: str | Path, cwd: Path) -> str:
    done = frontier(*arguments, cwd=cwd)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def jobs(*arguments: str | Path, cwd: Path) -> list[dict[str, Any]]:
    document = json.loads(text("stats", "--json", *arguments, cwd=cwd))
    assert document.keys() == {"frontier", "time", "jobs"}
    assert abs(document["time"] - time.time()) < 60
    found: list[dict[str, Any]] = document["jobs"]
    return found


def only_job(*arguments: str | Path, cwd: Path) -> dict[str, Any]:
    (job,) = jobs(*arguments, cwd=cwd)
    return job


def urls(*arguments: str | Path, cwd: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text("urls", "--json", *arguments, cwd=cwd).splitlines()]


def error(*arguments: str | Path, cwd: Path) -> str:
    """The one sentence that an attempt ends with."""
    done = frontier(*arguments, cwd=cwd)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    return done.stderr


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def wait_for(condition: Callable[[], Any], timeout: float = 60) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.02)


SEVERAL = """

class Rules(Spider):
    name = "rules"
    custom_settings = {"FOCUS_CANONICAL": ["slash"]}

    async def start(self):
        yield Request(self.url)

    def parse(self, response):
        pass
"""

# -- a frontier that a crawl makes, uses and leaves ------------------------------------------

JOB_KEYS = (
    "job generation latest cleared policy state reason created finished runs next_due waits_for "
    "waits_for_host added waiting deferred unreadable leased lost done failed dropped seen removed "
    "refused "
    "reasons hosts pages bytes seconds"
)
URL_KEYS = (
    "job generation state url host rank due lease_end attempts depth priority score seed "
    "discovered parent reason"
)
HEADINGS = "STATE RANK DUE ATTEMPTS DEPTH PRIORITY REASON URL"
STALLED, COOLING, HELD = "127.0.0.1", "127.0.0.2", "127.0.0.3"


class Stalling:
    """Hosts that keep a crawl waiting, until they are told to be quick: one does not answer,
    one sends Retry-After. (The third is paced by a setting.)"""

    def __init__(self) -> None:
        self.slow = True

    def __call__(self, hit: Hit) -> Answer | str:
        if self.slow and hit.path == "/stalled":
            return Answer(delay=600)
        if self.slow and hit.host == HELD and hit.path == "/1":
            return Answer(status=503, headers={"Retry-After": "1000"})
        if hit.path == "/":
            return links("/1", "/2", "/stalled", "/excluded", "#top", "http://x.test/")
        return links("/1")


def test_while_a_crawl_is_at_it_after_a_kill_and_at_the_end(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        **ADDON,
        "FOCUS_DOMAINS": [STALLED, COOLING, HELD],
        "FOCUS_EXCLUDED": ["*/excluded"],
        "CONCURRENT_REQUESTS_PER_DOMAIN": 1,
    }
    slow = {**settings, "DOWNLOAD_SLOTS": {COOLING: {"delay": 500.0, "concurrency": 1}}}
    project = Project(tmp_path / "project", **slow)
    answer, here = Stalling(), project.folder
    with Site(answer, [STALLED, COOLING, HELD]) as site:
        seeds = "url=" + ",".join(site.url(host=host) for host in site.hosts)
        process = project.start("crawl", "follow", "-a", seeds)
        done = (
            "SELECT done FROM jobs WHERE leased = 1 AND seconds > 0"
            " AND EXISTS (SELECT 1 FROM hosts WHERE held > 0)"
        )
        try:
            wait_for(lambda: "/stalled" in site.paths(STALLED) and "/1" in site.paths(HELD))
            wait_for(lambda: site.paths(COOLING) and project.rows(done) >= [(5,)])
            before = files(project.frontier.parent)
            check_running(only_job(cwd=here), process.pid)
            check_running_text(text("stats", cwd=here), process.pid)
            check_running_urls(here, site)
            assert files(project.frontier.parent).keys() == before.keys()
            assert process.poll() is None
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        check_killed(here, process.pid)
        answer.slow = False
        project.settings(**settings)
        # A test cannot wait for what cools and what is held.
        connection = sqlite3.connect(project.frontier)
        with connection:
            connection.execute("UPDATE hosts SET next_at = 0, held = 0")
            connection.execute("UPDATE urls SET ready_at = 1 WHERE ready_at > 0 AND run IS NULL")
        connection.close()
        run = project.crawl("follow", seeds)
        assert run.reason == "finished", run.log
        check_finished(project)


def check_running(job: dict[str, Any], pid: int) -> None:
    assert " ".join(job) == JOB_KEYS
    assert job["job"].startswith("follow url=http://127.0.0.1:")
    assert (job["generation"], job["latest"], job["cleared"]) == (1, True, False)
    assert (job["state"], job["reason"], job["finished"]) == ("running", None, None)
    (run,) = job["runs"]
    assert (run["pid"], run["alive"], run["leased"]) == (pid, True, 1)
    assert job["leased"] == 1
    assert job["lost"] == 0
    assert job["hosts"]["cooling"] == 1
    assert job["hosts"]["held"] == 1
    assert job["hosts"]["ready"] == job["hosts"]["retired"] == 0
    # The crawl stands still: this is what for.
    assert job["waits_for"] == "cooling"
    assert job["waits_for_host"] == COOLING
    assert 0 < job["next_due"] - time.time() < 800  # jitter
    assert job["waiting"] > 0
    parts = (job[name] for name in ("waiting", "leased", "done", "failed", "dropped"))
    assert job["added"] == sum(parts)
    assert {"excluded", "offsite", "duplicate"} <= job["reasons"]["refused"].keys()
    assert job["refused"] == sum(job["reasons"]["refused"].values())
    assert job["pages"] > 0
    assert job["bytes"] > 0
    assert job["seconds"] > 0


def check_running_text(shown: str, pid: int) -> None:
    assert re.search(rf"^State: running: process {pid} since 20\d\d-", shown, re.MULTILINE)
    assert re.search(r"^Next URL: in \d+ min.*: 127\.0\.0\.2 is cooling$", shown, re.MULTILINE)
    assert re.search(r"^  leased +1$", shown, re.MULTILINE)
    assert re.search(r"^  refused +\d+  duplicate \d+, excluded \d+, ", shown, re.MULTILINE)
    assert re.search(r"^  hosts +\d+  (busy 1, )?cooling 1, held 1$", shown, re.MULTILINE)


def check_running_urls(here: Path, site: Site) -> None:
    (leased,) = urls("--state", "leased", cwd=here)
    assert " ".join(leased) == URL_KEYS
    assert leased["url"] == site.url("/stalled")
    assert (leased["state"], leased["host"], leased["attempts"]) == ("leased", STALLED, 1)
    assert leased["lease_end"] > time.time()
    assert leased["due"] is None
    waiting = urls("--state", "waiting", "--host", COOLING, cwd=here)
    assert {row["host"] for row in waiting} == {COOLING}
    assert {row["state"] for row in waiting} == {"waiting"}
    (seed,) = urls("--state", "done", "--host", STALLED, cwd=here)[-1:]
    assert (seed["seed"], seed["depth"], seed["url"]) == (True, 0, site.url("/"))
    lines = text("urls", "--state", "leased", cwd=here).splitlines()
    assert lines[0].startswith("Job: follow url=")
    assert " ".join(lines[1].split()) == HEADINGS
    assert lines[2].split() == ["leased", "1", "1", "0", site.url("/stalled")]


def check_killed(here: Path, pid: int) -> None:
    job = only_job(cwd=here)
    assert (job["state"], job["reason"]) == ("interrupted", "killed")
    assert [run["alive"] for run in job["runs"]] == [False]
    assert (job["leased"], job["lost"]) == (1, 1)
    assert job["hosts"]["busy"] == 0
    # What the dead run had taken comes back at once.
    assert job["next_due"] <= time.time()
    shown = text("stats", cwd=here)
    assert f"State: interrupted: process {pid} died\n" in shown
    assert "Next URL: as soon as the job is run again: " in shown
    assert re.search(r"^  leased +1  by runs that died 1$", shown, re.MULTILINE)
    assert len(urls("--state", "leased", cwd=here)) == 1


def check_finished(project: Project) -> None:
    here = project.folder
    before = files(project.frontier.parent)
    job = only_job(cwd=here)
    assert (job["state"], job["reason"], job["runs"]) == ("finished", "finished", [])
    assert (job["waiting"], job["leased"], job["lost"]) == (0, 0, 0)
    assert (job["next_due"], job["waits_for"]) == (None, None)
    assert sum(job["hosts"].values()) == 0
    shown = text("stats", cwd=here)
    assert re.search(r"^State: finished: 20\d\d-", shown, re.MULTILINE)
    assert "Next URL: none, nothing is left\n" in shown
    found = urls("--limit", "0", cwd=here)
    assert len(found) == job["added"]
    for state in STATES:
        number = sum(row["state"] == state for row in found)
        assert number == job.get(state, 0) == len(urls("--state", state, "--limit", "0", cwd=here))
    assert text("urls", "--state", "waiting", cwd=here) == "No such URLs.\n"
    assert files(project.frontier.parent) == before


def test_reasons_a_spent_budget_and_old_generations(tmp_path: Path) -> None:
    project = Project(tmp_path / "project", ROBOTSTXT_OBEY=True, RETRY_ENABLED=False)
    here = project.folder

    def answer(hit: Hit) -> Answer | str:
        if hit.path == "/robots.txt":
            return "User-agent: *\nDisallow: /private"
        return Answer(status=None) if hit.path == "/broken" else links("/a", "/broken", "/private")

    with Site(answer) as site:
        run = project.crawl("follow", f"url={site.url()}")
        assert run.reason == "finished", run.log
        job = only_job(cwd=here)
        assert (job["done"], job["failed"], job["dropped"]) == (2, 1, 1)
        assert job["reasons"]["dropped"] == {"robots": 1}
        (reason,) = job["reasons"]["failed"]
        (failed,) = urls("--state", "failed", cwd=here)
        assert (failed["reason"], failed["url"]) == (reason, site.url("/broken"))
        (dropped,) = urls("--state", "dropped", cwd=here)
        assert (dropped["reason"], dropped["url"]) == ("robots", site.url("/private"))
        shown = text("stats", cwd=here)
        assert re.search(rf"^  failed +1  {reason} 1\n  dropped +1  robots 1$", shown, re.MULTILINE)
        project.crawl("follow", f"url={site.url()}", FOCUS_MAX_PAGES=1)
    second, first = jobs("--all", cwd=here)
    assert second == only_job(cwd=here)
    assert (second["generation"], second["state"]) == (2, "ended")
    assert (second["reason"], second["pages"]) == ("focus_max_pages", 1)
    assert (second["waits_for"], second["next_due"]) == ("budget", None)
    assert (first["generation"], first["latest"], first["done"]) == (1, False, 2)
    assert (first["waits_for"], first["next_due"]) == (None, None)
    shown = text("stats", "--all", cwd=here)
    assert "State: ended: focus_max_pages\n" in shown
    assert "Next URL: when FOCUS_MAX_PAGES is raised: the job has used it up\n" in shown
    assert "replaced by a later generation" in shown
    assert {row["generation"] for row in urls(cwd=here)} == {2}
    assert {row["generation"] for row in urls("--all", cwd=here)} == {1, 2}
    assert len(urls("--job", job["job"], "--state", "waiting", "--limit", "1", cwd=here)) == 1


# -- where it looks --------------------------------------------------------------------------


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A small frontier, in a folder that is no project."""
    path = tmp_path / "made" / "frontier.db"
    make(path, "some job", ["http://a.test/1", "http://b.test/2"])
    return path


def candidate(url: str, **fields: Any) -> Candidate:
    host = fields.pop("host", url.split("/")[2].rpartition("@")[2])
    fields.setdefault("discovered", time.time())
    return Candidate(url=url, host=host, group=host, key=url.encode(), **fields)


def open_(path: Path, job: str = "job", **options: Any) -> SQLiteFrontier:
    options = {"pace": lambda group: (0.0, 0), "now": time.time(), **options}
    return SQLiteFrontier(path, job, **options)


def make(path: Path, job: str, found: list[str], reason: str = "enough") -> None:
    store = open_(path, job)
    store.add([candidate(url) for url in found], time.time())
    store.close(reason, finished=False, now=time.time())


def test_finds_the_frontier_that_a_crawl_would_use(tmp_path: Path, made: Path) -> None:
    project = Project(tmp_path / "project")
    here = project.folder
    (here / "below").mkdir()
    make(project.frontier, "of the project", [])
    make(here / "jobs" / "frontier.db", "of the JOBDIR", [])

    def found(*arguments: str | Path, cwd: Path = here) -> str:
        name: str = only_job(*arguments, cwd=cwd)["job"]
        return name

    assert found() == found(cwd=here / "below") == "of the project"
    assert found("-s", "JOBDIR=jobs") == "of the JOBDIR"
    for place in (made, "../made/frontier.db", f"sqlite:///{made}", "../made"):
        assert found("--frontier", place) == "some job"
    for place in (f"sqlite:///{made}", "sqlite:///../made/frontier.db"):
        assert found("-s", f"FOCUS_FRONTIER={place}") == "some job"
    project.settings(FOCUS_FRONTIER=f"sqlite:///{made}", JOBDIR="jobs")
    assert found() == "some job"


def test_outside_a_project(tmp_path: Path, made: Path) -> None:
    assert only_job("--frontier", made, cwd=tmp_path)["job"] == "some job"
    assert only_job("-s", f"FOCUS_FRONTIER=sqlite:///{made}", cwd=tmp_path)["job"] == "some job"
    done = frontier("stats", cwd=tmp_path)
    assert done.returncode == 2
    assert "outside a project, name a frontier by --frontier" in done.stderr


@pytest.mark.parametrize("inside", [True, False])
def test_scrapy_lists_it(inside: bool, tmp_path: Path) -> None:
    here = Project(tmp_path / "project").folder if inside else tmp_path
    command = [sys.executable, "-m", "scrapy"]
    done = subprocess.run(command, cwd=here, capture_output=True, text=True, check=True)
    assert re.search(r"^  frontier +Look inside a crawl frontier", done.stdout, re.MULTILINE)


def test_needs_no_reactor(tmp_path: Path, made: Path) -> None:
    code = (
        "import sys; from scrapy.cmdline import execute\n"
        "try: execute()\n"
        "finally: assert 'twisted.internet.reactor' not in sys.modules"
    )
    command = [sys.executable, "-c", code, "frontier", "stats", "--frontier", str(made)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], 'say "stats", "urls", or "why" or "key" with URLs'),
        (["stats", "urls"], 'say "stats", "urls", or "why" or "key" with URLs'),
        (["key"], 'say "stats", "urls", or "why" or "key" with URLs'),
        (["key", "not a url"], "Missing scheme in request url: not%20a%20url"),
        (["key", "http://a.test/", "--job", "x"], "--job goes with stats and urls and why alone"),
        (["key", "http://a.test/", "--spider", "x"], "there is no spider 'x'"),
        (["key", "http://a.test/", "--keys"], "'--keys' is not known"),
        (["stats", "--spider", "x"], "--spider goes with why and key alone"),
        (["all"], "'all' is not known"),
        (["stats", "--jsno"], "'--jsno' is not known"),
        (["stats", "--state", "done"], "--state goes with urls alone"),
        (["stats", "--host", "a.test"], "--host goes with urls alone"),
        (["stats", "--limit", "1"], "--limit goes with urls alone"),
        (["urls", "--state", "lost"], "invalid choice: 'lost'"),
        (["urls", "--limit", "few"], "few is not a whole number, 0 or more"),
        (["urls", "--limit", "-1"], "-1 is not a whole number, 0 or more"),
        (["urls", "--host", "http://a.test/"], "--host: 'http://a.test/' is not"),
        (["urls", "--host", "\x1b[1m"], r"--host: '\x1b[1m' is not a host name"),
        (["stats", "--frontier", "postgresql://me:secret@a.test/db"], "--frontier has an address"),
        (["stats", "-s", "FOCUS_FRONTIER=mysql://me:secret@a.test/db"], "FOCUS_FRONTIER has an"),
        (["stats", "-s", "FOCUS_FRONTIER"], "Invalid -s value"),
    ],
)
def test_wrong_usage(arguments: list[str], complaint: str, tmp_path: Path) -> None:
    done = frontier(*arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr
    assert "secret" not in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


# -- keys ------------------------------------------------------------------------------------


def test_key(tmp_path: Path) -> None:
    one, other = "http://www.a.test:80/b/?d=1&c=2#e", "https://me:secret@a.test/b?c=2&d=1"
    output = text("key", one, other, "-s", "FOCUS_CANONICAL=www,slash,https", cwd=tmp_path)
    first, second = output.split("\n\n")
    assert first.splitlines()[:-1] == [
        "http://www.a.test:80/b/?d=1&c=2#e",
        "  port      http://www.a.test/b/?d=1&c=2#e",
        "  order     http://www.a.test/b/?c=2&d=1#e",
        "  fragment  http://www.a.test/b/?c=2&d=1",
        "  https     https://www.a.test/b/?c=2&d=1",
        "  www       https://a.test/b/?c=2&d=1",
        "  slash     https://a.test/b?c=2&d=1",
    ]
    assert "secret" not in second
    plain = json.loads(text("key", "--json", "https://a.test/b?c=2&d=1", cwd=tmp_path))
    assert plain == {"url": "https://a.test/b?c=2&d=1", "key": plain["key"], "rules": []}
    assert first.splitlines()[-1] == f"  key       {plain['key']}"


def test_key_is_the_one_that_a_crawl_stores(tmp_path: Path) -> None:
    crawl = Project(tmp_path / "p", SEVERAL, ROBOTSTXT_OBEY=False)
    with Site(lambda hit: "") as site:
        url = site.url("/b/?c=1")
        assert crawl.crawl("rules", f"url={url}").reason == "finished"
    document = json.loads(text("key", "--json", "--spider", "rules", url, cwd=crawl.folder))
    assert crawl.rows("SELECT hex(key) FROM urls") == [(document["key"].upper(),)]
    assert [step["rule"] for step in document["rules"]] == ["slash"]
    assert document["key"] != json.loads(text("key", "--json", url, cwd=crawl.folder))["key"]


# -- why -------------------------------------------------------------------------------------


def test_why_before_and_after_a_crawl(tmp_path: Path) -> None:
    crawl = Project(
        tmp_path / "p", SEVERAL, FOCUS_DOMAINS=["127.0.0.1"], FOCUS_EXCLUDED=["/private*"]
    )
    with Site(lambda hit: "") as site:
        url, private = site.url("/b/?c=1"), site.url("/private/\x1b[1m")
        given = ("why", "--spider", "rules", url, private, "http://x.test/\n")
        known, excluded, offsite = text(*given, cwd=crawl.folder).splitlines()
        assert known == f"'{url}' is in scope. No crawl knows it yet: it would be taken."
        assert excluded.endswith("excluded pattern '/private*'. A crawl refuses it (excluded).")
        assert "/private/%1B%5B1m" in excluded
        assert "its host 'x.test' is not within '127.0.0.1'. A crawl refuses it" in offsite
        assert crawl.crawl("rules", f"url={url}").reason == "finished"
    job = f"the job 'rules url={url}' (generation 1)"
    assert text("why", "--spider", "rules", site.url("/b?c=1"), cwd=crawl.folder) == (
        f"'{site.url('/b?c=1')}' is in scope. For {job} it is done: it was handed out once.\n"
    )
    trap, *facets = (
        "http://127.0.0.1/a/a/a/a",
        "http://127.0.0.1/?a&b&c&d",
        "http://127.0.0.1/?a&b&c&e",
    )
    caps = ("-s", 'FOCUS_TRAPS={"facets": 1}')
    looped, *counted = text("why", *caps, trap, *facets, cwd=crawl.folder).splitlines()
    assert "more than 3 times in a row that a sequence of path segments stands" in looped
    assert looped.endswith("A crawl refuses it (trap_repeats).")
    assert all(line.endswith("No crawl knows it yet: it would be taken.") for line in counted)
    (line,) = text("why", "--json", private, cwd=crawl.folder).splitlines()
    document = json.loads(line)
    assert document.keys() == {"url", "key", "refused", "rule", "found", "removed"}
    assert (document["refused"], document["found"]) == ("excluded", [])


def test_why_something_waits(tmp_path: Path) -> None:
    path, now = tmp_path / "frontier.db", time.time()
    names = ["cooling", "held", "free", "spent", "later", "lost", "gone", "out"]
    stored = SQLiteFrontier(
        path,
        "job",
        pace=lambda group: (500.0 if group == "cooling" else 0.0, 0),
        now=now,
        limits=Limits(pages_per_host=3),
    )
    made = {}
    for host in names:
        for number in range(3 if host == "free" else 5):
            url = f"http://{host}/{number}"
            made[url] = Candidate(
                url=url,
                host=host,
                group=host,
                key=DupeFilter().fingerprint(Request(url)),
                discovered=now,
                rank=number,
                ready_at=now + 5000 if host == "later" else 0.0,
            )
    stored.add(made.values(), now)
    for lease in stored.lease(100, now, now + 600):
        ends = {"gone": Ending.FAILED, "out": Ending.DROPPED}
        host = lease.candidate.host
        if host in ("free", "held"):
            stored.settle([Outcome(lease, Ending.RELEASED, fetched=False)], [], now)
        elif host in ends:
            stored.settle([Outcome(lease, ends[host], "unlucky")], [], now)
    stored.hold("held", now + 1000, now)

    def why(host: str, number: int) -> str:
        url = f"http://{host}/{number}"
        line = text("why", "--frontier", path, url, cwd=tmp_path)
        start = f"'{url}' is in scope. For the job 'job' (generation 1) it "
        assert line.startswith(start)
        return line.removeprefix(start).rstrip()

    assert re.fullmatch(
        r"waits: cooling is cooling for [5-8] min( \d+ s)?, and one URL of its host comes first\.",
        why("cooling", 2),
    )
    assert re.match(r"waits: held is held for 1[3-6] min", why("held", 4))
    assert why("free", 0) == "waits: free may be touched now, and it is the next of its host."
    assert why("spent", 4) == (
        "waits: spent has spent its share of the pages (FOCUS_MAX_PAGES_PER_HOST)."
    )
    assert re.match(r"waits for 1 h (1[5-9]|2[0-3]) min", why("later", 0))
    assert why("lost", 0) == "is being fetched."
    assert why("gone", 0) == "has failed: unlucky, handed out once."
    assert why("out", 0) == "was dropped: unlucky, handed out once."
    stored.close("shutdown", finished=False, now=now)


# -- what is no frontier ---------------------------------------------------------------------


def test_a_frontier_that_is_missing_is_not_made(tmp_path: Path) -> None:
    here = Project(tmp_path / "project").folder
    before = sorted(tmp_path.rglob("*"))
    for arguments in ([], ["--frontier", "no/such/file.db"], ["--frontier", "."]):
        for what in ("stats", "urls"):
            assert "There is no frontier at " in error(what, *arguments, cwd=here)
    assert "in memory" in error("stats", "-s", "FOCUS_FRONTIER=memory:", cwd=here)
    after = [path for path in sorted(tmp_path.rglob("*")) if "__pycache__" not in path.parts]
    assert after == before


def foreign(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE jobs (id)")
    connection.close()


def newer(path: Path) -> None:
    make(path, "job", [])
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()


def damaged(path: Path) -> None:
    make(path, "job", [])
    path.write_bytes(path.read_bytes()[:100] + b"\xff" * 10_000)


@pytest.mark.parametrize(
    ("write", "complaint"),
    [
        (foreign, "is a database of another program, not a frontier"),
        (newer, "was written by a newer one"),
        (damaged, "is damaged, or not a SQLite database"),
        (lambda path: path.write_text("plain words\n" * 100), "is damaged, or not a SQLite"),
        (lambda path: path.touch(), "There is no frontier in"),
    ],
)
def test_what_is_no_frontier_is_left_alone(
    write: Callable[[Path], Any], complaint: str, tmp_path: Path
) -> None:
    path = tmp_path / "file.db"
    write(path)
    before = files(tmp_path)
    for what in ("stats", "urls"):
        assert complaint in error(what, "--frontier", path, cwd=tmp_path)
    assert files(tmp_path) == before


def test_an_older_frontier_is_left_to_the_next_crawl(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "migrations", lambda: [(99, "")])
    with pytest.raises(FrontierError, match="the next crawl brings it there"), look_at(made):
        pass


def test_no_such_job(made: Path, tmp_path: Path) -> None:
    message = error("urls", "--frontier", made, "--job", "other", cwd=tmp_path)
    assert "has no job 'other'. It has 'some job'." in message


# -- read-only places, and what a crash leaves -----------------------------------------------


def powerless() -> None:
    """Take from root, in a container, the power to write whatever the modes forbid."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
            assert libc.prctl(24, capability, 0, 0, 0) == 0  # PR_CAPBSET_DROP


@pytest.fixture
def read_only(made: Path) -> Iterator[Callable[[], None]]:
    """Call it to take the right to write away."""

    def close() -> None:
        for path in made.parent.iterdir():
            path.chmod(0o400)
        made.parent.chmod(0o500)

    yield close
    made.parent.chmod(0o700)


def look(path: Path, *arguments: str) -> Done:
    return frontier(*arguments, "--frontier", path, cwd=path.parent, preexec_fn=powerless)


def test_a_read_only_folder(made: Path, read_only: Callable[[], None]) -> None:
    read_only()
    before = files(made.parent)
    done = look(made, "stats", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["jobs"][0]["waiting"] == 2
    assert look(made, "urls").stdout.count("http") == 2
    assert files(made.parent) == before


def test_a_read_only_folder_that_a_crawl_is_writing(
    made: Path, read_only: Callable[[], None]
) -> None:
    store = open_(made, "live")
    store.add([candidate("http://a.test/3")], time.time())
    read_only()
    live, old = json.loads(look(made, "stats", "--json").stdout)["jobs"]
    assert (live["job"], live["state"], live["waiting"]) == ("live", "running", 1)
    assert (old["job"], old["state"], old["reason"]) == ("some job", "ended", "enough")
    made.parent.chmod(0o700)
    store.close("enough", finished=False, now=time.time())


def test_a_crawl_that_ends_while_it_is_looked_at(made: Path) -> None:
    store = open_(made, "live")
    with look_at(made) as db:
        assert len(find_jobs(db)) == 2
        store.close("enough", finished=False, now=time.time())
    assert [path.name for path in made.parent.iterdir()] == ["frontier.db"]


KILLED = """
import os, sys, time
sys.path[:] = {path!r}
from tests.test_command import candidate, open_
from pathlib import Path
store = open_(Path({file!r}), "killed")
store.add([candidate(f"http://a.test/{{i}}") for i in range(5)], time.time())
store.lease(2, time.time(), time.time() + 1000)
os.kill(os.getpid(), 9)
"""


@pytest.fixture
def killed(made: Path) -> Path:
    """A frontier whose last writer was killed: its log lies beside it."""
    code = KILLED.format(path=[str(ROOT), *sys.path], file=str(made))
    subprocess.run([sys.executable, "-c", code], check=False, timeout=60)
    assert made.with_name("frontier.db-wal").stat().st_size > 0
    return made


@pytest.mark.parametrize("index", [True, False], ids=["shm", "no shm"])
@pytest.mark.parametrize("closed", [False, True], ids=["writable", "read-only"])
def test_what_a_crash_leaves(
    index: bool, closed: bool, killed: Path, read_only: Callable[[], None]
) -> None:
    shm = killed.with_name("frontier.db-shm")
    if not index:
        shm.unlink()
    if closed:
        read_only()
    before = files(killed.parent)
    done = look(killed, "stats", "--json")
    if closed and not index:
        # The log cannot be read, and without it the file is not the frontier.
        assert done.returncode == 1
        assert "a copy of all of them in a folder that can be written" in done.stderr
        assert done.stderr.count("\n") == 1
    else:
        job, _ = json.loads(done.stdout)["jobs"]
        assert (job["job"], job["state"], job["reason"]) == ("killed", "interrupted", "killed")
        assert (job["added"], job["waiting"], job["lost"]) == (5, 3, 2)
    after = files(killed.parent)
    assert {**after, shm.name: b""} == {**before, shm.name: b""}


WITHOUT_LOG = """
import os, sqlite3
connection = sqlite3.connect({file!r}, isolation_level=None)
assert connection.execute("PRAGMA journal_mode = DELETE").fetchone() == ("delete",)
connection.execute("PRAGMA cache_size = 1")
connection.execute("BEGIN IMMEDIATE")
connection.execute("UPDATE urls SET url = url || hex(zeroblob(1000))")
os.kill(os.getpid(), 9)
"""


def test_what_a_crash_leaves_on_a_network_drive(tmp_path: Path) -> None:
    """There is no log to read past a half done write: it has to be undone first."""
    path = tmp_path / "frontier.db"
    make(path, "job", [f"http://a.test/{number}" for number in range(500)])
    code = WITHOUT_LOG.format(file=str(path))
    subprocess.run([sys.executable, "-c", code], check=False, timeout=60)
    before = files(tmp_path)
    assert "frontier.db-journal" in before
    message = error("stats", "--frontier", path, cwd=tmp_path)
    assert "was left in the middle of a write; the next crawl puts it right." in message
    assert files(tmp_path) == before
    make(path, "other", [])
    assert len(jobs("--frontier", path, cwd=tmp_path)) == 2


def test_a_file_that_may_not_be_read(made: Path) -> None:
    made.chmod(0)
    done = look(made, "stats")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "cannot be read" in done.stderr


def test_to_look_is_not_to_live(made: Path) -> None:
    """Two that ask at the same time whether a run lives do not take each other for it."""
    lock = RunLock(made)
    assert is_alive(made, lock.token)
    path = lock_path(made, lock.token)
    os.close(lock._file or -1)
    with path.open() as other:
        import fcntl

        fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
        assert not is_alive(made, lock.token)


# -- what must not reach a terminal ----------------------------------------------------------

ESCAPE = "\x1b]0;title\x07\x9b31m\u202e\r\n\x7f\u2028\u200b"
HOSTILE = f"http://a.test/{ESCAPE}?x=ü"
SECRET = "https://me:p%40ss:word@b.test/x?next=ftp://you:other@c.test/"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    path = tmp_path / "hostile.db"
    store = open_(path, f"job {ESCAPE} url={SECRET}")
    now = time.time()
    store.add([candidate(HOSTILE), candidate(SECRET, parent=SECRET)], now)
    store.settle([Outcome(store.lease(1, now, now + 9)[0], Ending.FAILED, reason=ESCAPE)], [], now)
    store.count("refused", {ESCAPE: 3})
    store.close(f"ended {ESCAPE}", finished=False, now=now)
    return path


@pytest.mark.parametrize("what", [["stats"], ["urls"], ["stats", "--json"], ["urls", "--json"]])
def test_nothing_hostile_reaches_the_terminal(
    what: list[str], hostile: Path, tmp_path: Path
) -> None:
    shown = text(*what, "--frontier", hostile, cwd=tmp_path)
    assert all(line.isprintable() for line in shown.split("\n"))
    for secret in ("me:", "p%40ss", "word", "you:", "other@"):
        assert secret not in shown
    assert r"\u202e" in shown
    assert "://***@b.test/x?next=ftp://***@c.test/" in shown
    if "--json" in what:
        assert shown.isascii()
    else:
        assert r"\x1b]0;title\x07\x9b31m\u202e\r\n\x7f\u2028\u200b" in shown


def test_json_says_it_exactly(hostile: Path, tmp_path: Path) -> None:
    found = {row["url"]: row for row in urls("--frontier", hostile, cwd=tmp_path)}
    assert found[HOSTILE]["reason"] == ESCAPE
    assert found[HOSTILE]["host"] == "a.test"
    job = only_job("--frontier", hostile, cwd=tmp_path)
    assert job["reasons"] == {"failed": {ESCAPE: 1}, "dropped": {}, "refused": {ESCAPE: 3}}
    assert job["reason"] == f"ended {ESCAPE}"


def test_a_job_is_found_by_its_name_and_by_what_is_shown(hostile: Path, tmp_path: Path) -> None:
    name = only_job("--frontier", hostile, cwd=tmp_path)["job"]
    (title,) = re.findall(
        "^Job: (.*) \\(gen", text("stats", "--frontier", hostile, cwd=tmp_path), 8
    )
    for job in (title, f"job {ESCAPE} url={SECRET}"):
        assert only_job("--frontier", hostile, "--job", job, cwd=tmp_path)["job"] == name
    message = error("urls", "--frontier", hostile, "--job", ESCAPE + SECRET, cwd=tmp_path)
    assert message[:-1].isprintable()
    assert "p%40ss" not in message


def test_an_encoding_that_lacks_characters(hostile: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = frontier("urls", "--frontier", hostile, cwd=tmp_path, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert r"?x=\xfc" in done.stdout


def test_a_pipe_that_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "frontier.db"
    make(path, "job", [f"http://a.test/{number}" for number in range(5000)])
    command = [sys.executable, "-m", "scrapy", "frontier", "urls", "--limit", "0", "--frontier"]
    process = subprocess.Popen(
        [*command, str(path)], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout
    assert process.stdout.readline().startswith(b"Job: job")
    process.stdout.close()
    assert process.stderr
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(60) == 0


# -- the order and the states of URLs --------------------------------------------------------


def listed(
    path: Path, state: listing.State | None, limit: int | None = None, **options: Any
) -> Any:
    options = {"host": None, "now": time.time(), **options}
    with look_at(path) as db:
        (job,) = find_jobs(db)
        return list(read_urls(db, job.id, state=state, limit=limit, **options))


@pytest.mark.parametrize("ties", ["host", "age"])
def test_waiting_urls_come_as_they_will_be_handed_out(ties: Any, tmp_path: Path) -> None:
    rng, path = random.Random(7), tmp_path / "frontier.db"
    store = open_(path, order=Order(ties))
    start = time.time()
    for number in range(120):
        rank = rng.choice([-1.5, -0.5, 0.25, 3.0])
        store.add([candidate(f"http://{rng.choice('abcde')}.test/{number}", rank=rank)], start)
    for number in range(10):
        store.lease(1, start + number, start + 1000)
    shown = [row.url for row in listed(path, "waiting", now=start + 10)]
    for limit in (1, 2, 13):
        assert [row.url for row in listed(path, "waiting", limit, now=start + 10)] == shown[:limit]
    on_one_host = [row.url for row in listed(path, "waiting", host="c.test")]
    assert on_one_host == [url for url in shown if "//c.test/" in url]
    leased: list[str] = []
    while leases := store.lease(1, start + 10 + len(leased), start + 1000):
        leased += [lease.candidate.url for lease in leases]
    assert leased == shown
    assert len(leased) == 110
    store.close("enough", finished=False, now=start)


def test_what_a_retired_host_may_still_hand_out_comes_first(tmp_path: Path) -> None:
    path, now = tmp_path / "frontier.db", time.time()
    store = open_(path, limits=Limits(pages_per_host=1))
    store.add([candidate(f"http://a.test/{number}", rank=number) for number in range(3)], now)
    store.add([candidate("http://a.test/hop", rank=9.0, charged=True)], now)
    store.lease(1, now, now + 1000)
    assert [row.url[14:] for row in listed(path, "waiting")] == ["hop", "1", "2"]
    assert due(path, now) == (now, "ready", "a.test")
    store.lease(1, now, now + 1000)
    assert due(path, now) == (None, "leased", None)
    store.close("enough", finished=False, now=now)


def test_states_and_counts_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "_STEP", 3)  # many steps, over gaps
    path, now = tmp_path / "frontier.db", time.time()
    other = open_(path, "other")
    other.add([candidate(f"http://a.test/other/{number}") for number in range(10)], now)
    store = open_(path, "job")
    for number in range(40):
        later = now + 100 - number if number % 4 == 0 else 0.0
        store.add([candidate(f"http://a.test/{number:02}", ready_at=later)], now)
    leases = store.lease(24, now, now + 1000)
    endings = [Ending.DONE, Ending.FAILED, Ending.DROPPED, Ending.ASIDE]
    ended = [Outcome(lease, endings[i % 4], reason="why") for i, lease in enumerate(leases[:20])]
    store.settle(ended, [], now)
    with look_at(path) as db:
        job = next(job for job in find_jobs(db) if job.name == "job")

        def found(state: listing.State | None, limit: int | None = None, **options: Any) -> Any:
            options.setdefault("host", None)
            return list(read_urls(db, job.id, now, state=state, limit=limit, **options))

        (job_report,) = read_jobs(db, [job], now)
        counts = job_report.counts
        assert counts == store.counts(now)
        for state in STATES:
            rows = found(state)
            assert len(rows) == getattr(counts, state), state
            assert rows == found(state, host="a.test")
            assert found(state, host="b.test") == []
            assert found(state, 3) == rows[:3]
            if state != "waiting":
                assert {row.state for row in rows} == {state}
            if state not in ("waiting", "deferred"):
                assert [row.id for row in rows] == sorted((r.id for r in rows), reverse=True)
        everything = found(None)
        assert len(everything) == counts.added == 40
        assert [row.id for row in everything] == sorted((r.id for r in everything), reverse=True)
        deferred = found("deferred")
        assert [row.ready_at for row in deferred] == sorted(row.ready_at for row in deferred)
        assert found("waiting")[-len(deferred) :] == deferred
    store.close("enough", finished=False, now=now)
    other.close("enough", finished=False, now=now)
    rows = urls("--frontier", path, "--job", "job", "--state", "deferred", cwd=tmp_path)
    assert [row["due"] for row in rows[:-5]] == sorted(row["due"] for row in rows[:-5])
    assert [(row["due"], row["reason"]) for row in rows[-5:]] == [(None, "unreadable")] * 5
    table = text("urls", "--frontier", path, "--job", "job", "--state", "deferred", cwd=tmp_path)
    assert re.search(r"^deferred +0 +in \d.* +0 +0 +0 +http://a\.test/36$", table, re.MULTILINE)


def due(path: Path, now: float) -> report.Due:
    with look_at(path) as db:
        (found,) = read_jobs(db, find_jobs(db), now)
    return found.due


def test_a_host_that_is_held_without_end(tmp_path: Path) -> None:
    path, now = tmp_path / "frontier.db", time.time()
    store = open_(path)
    store.add([candidate("http://held.test/", rank=math.inf)], now)
    store.hold("held.test", math.inf, now)
    assert due(path, now) == (None, "held", "held.test")
    store.close("focus_held", finished=False, now=now)
    job = only_job("--frontier", path, cwd=tmp_path)
    assert (job["next_due"], job["waits_for"], job["waits_for_host"]) == (None, "held", "held.test")
    shown = text("stats", "--frontier", path, cwd=tmp_path)
    assert "Next URL: at no time that is known: held.test is held\n" in shown
    (row,) = urls("--frontier", path, cwd=tmp_path)
    assert row["rank"] is None


def test_what_a_crawl_that_stands_still_waits_for(tmp_path: Path) -> None:
    path, now = tmp_path / "frontier.db", time.time()
    store = open_(path, pace=lambda group: (0.0, 1))
    assert due(path, now) == (None, None, None)
    store.add([candidate("http://late.test/", ready_at=now + 900)], now)
    assert due(path, now) == (now + 900, "deferred", "late.test")
    assert due(path, now + 901) == (now + 901, "deferred", "late.test")
    store.add([candidate("http://held.test/")], now)
    store.hold("held.test", now + 800, now)
    assert due(path, now) == (now + 800, "held", "held.test")
    store.add([candidate("http://slow.test/")], now)
    store.pace("slow.test", 700.0, now)
    assert due(path, now) == (now + 700, "cooling", "slow.test")
    assert due(path, now + 750)[:2] == (now + 750, "ready")
    store.add([candidate("http://free.test/1"), candidate("http://free.test/2")], now)
    assert due(path, now) == (now, "ready", "free.test")
    (lease,) = store.lease(1, now, now + 1000)
    assert due(path, now) == (now + 700, "cooling", "slow.test")
    assert store.counts(now).hosts["busy"] == 1
    store.settle([Outcome(lease, Ending.DONE)], [], now)
    assert due(path, now) == (now, "ready", "free.test")
    store.close("enough", finished=False, now=now)


@pytest.mark.parametrize("busy", [True, False])
def test_what_waits_for_no_time(busy: bool, tmp_path: Path) -> None:
    path, now = tmp_path / "frontier.db", time.time()
    store = open_(path, pace=lambda group: (0.0, 1), limits=Limits(pages_per_host=0 if busy else 1))
    store.add([candidate("http://a.test/1"), candidate("http://a.test/2")], now)
    (lease,) = store.lease(1, now, now + 1000)
    assert due(path, now) == (None, "busy" if busy else "leased", None)
    store.settle([Outcome(lease, Ending.ASIDE if busy else Ending.DONE)], [], now)
    if busy:
        (lease,) = store.lease(1, now, now + 1000)
        store.settle([Outcome(lease, Ending.ASIDE)], [], now)
    assert due(path, now) == (None, "unreadable" if busy else "retired", None)
    store.close("enough", finished=False, now=now)


def test_many_urls_are_read_in_steps_and_indexes_find_them(made: Path) -> None:
    """Plans, by statement: what each must use, and that it sorts nothing large."""
    names = (
        "job",
        "host",
        "limit",
        "queue",
        "at",
        "id",
        "page",
        "charged",
        "last",
        "step",
        "state",
    )
    values = dict.fromkeys(names, 0)
    waiting = "USING INDEX urls_ready (queue=? AND rank>?)"
    expected = {
        listing._HEADS.format(host=""): "queues USING INDEX sqlite_autoindex_queues_1 (job=?)",
        listing._RETIRED.format(host=""): "queues USING INDEX sqlite_autoindex_queues_1 (job=?)",
        listing._READY.format(charged=""): waiting,
        listing._READY.format(charged=" AND u.charged = 1"): "USING INDEX urls_charged (job=? AND",
        listing._READY.format(charged=" AND u.charged = 0"): waiting,
        listing._DEFERRED.format(host=""): "USING INDEX urls_deferred (job=? AND charged=? AND",
        listing._DEFERRED.format(host=listing._ON_HOST): "USING INDEX urls_deferred (job=? AND",
        listing._LEASED.format(host=""): "USING INDEX urls_leased (run=?)",
        listing._NEWEST.format(state=" AND u.state = :state", host=listing._ON_HOST): (
            "u USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"
        ),
        report._LEASED.replace("?", ":id"): "USING COVERING INDEX urls_leased (run=?)",
        report._RUNS.replace("?", ":id"): "USING INDEX runs_open (job=?)",
        report._FIRST_DEFERRED.replace("?1", ":job").replace("?2", ":charged"): (
            "USING INDEX urls_deferred (job=? AND charged=? AND ready_at>? AND ready_at<?)"
        ),
    }
    sorts = {listing._HEADS.format(host=""), listing._LEASED.format(host="")}
    with look_at(made) as db:
        for sql, part in expected.items():
            plan = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {sql}", values)]
            assert any(part in line for line in plan), (sql, plan)
            assert not any(re.match("SCAN (u|urls|queues|hosts)\\b", line) for line in plan), plan
            if sql not in sorts:
                assert not any("TEMP B-TREE" in line for line in plan), (sql, plan)

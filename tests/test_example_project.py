"""The example project, run as its readers run it: ``scrapy crawl`` in child processes."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from scrapy.exceptions import CloseSpider

from tests.project import Project
from tests.site import Answer, Hit, Site, links

EXAMPLE = Path(__file__).parent.parent / "example_project"


class Example(Project):
    """A copy of the example project, so that the repository stays as it is."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {}
        ignored = shutil.ignore_patterns(".scrapy", "__pycache__", "*.jsonl")
        shutil.copytree(EXAMPLE, folder, ignore=ignored)

    def output(self, *arguments: str, ends: str = "finished", code: int = 0) -> str:
        """Run ``scrapy`` and return what it printed.

        :param ends: the reason for which the spider must close
        """
        run = self.run(*arguments, timeout=120)
        assert run.returncode == code, run.log
        if arguments[0] == "crawl" and not code:
            assert f"Spider closed ({ends})" in run.log, run.log
        return run.log

    def items(self, file: str) -> list[dict[str, Any]]:
        lines = (self.folder / file).read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]


@pytest.fixture
def project(tmp_path: Path) -> Example:
    return Example(tmp_path / "project")


def test_the_project_has_three_spiders(project: Example) -> None:
    assert project.output("list").split() == ["archive", "pydoc", "site"]


# --- site and archive, on a small site

PAGES = {
    "/": ["/a", "/b?page=1", "/b?page=2", "/paper.pdf", "/login", "/private/", "mailto:me@a.b"],
    "/a": ["/", "/a/deep", "//127.0.0.2:{port}/outside", "file:///etc/hostname"],
    "/a/deep": ["/a/deep/er", "/a#top"],
    "/a/deep/er": ["/a/deep/er/still"],
    "/a/deep/er/still": [],
    "/b?page=1": ["/b?page=2"],
    "/b?page=2": ["/%2e%2e%2f%2e%2e%2fescape"],
    "/%2e%2e%2f%2e%2e%2fescape": [],
}
DEPTHS = {
    "/": 0,
    "/a": 1,
    "/b?page=1": 1,
    "/b?page=2": 1,
    "/a/deep": 2,
    "/%2e%2e%2f%2e%2e%2fescape": 2,
    "/a/deep/er": 3,
    "/a/deep/er/still": 4,
}


@pytest.fixture
def site() -> Iterator[Site]:
    def answer(hit: Hit) -> Answer | str:
        if hit.path == "/robots.txt":
            return Answer(
                "User-agent: *\nDisallow: /private/\n", headers={"Content-Type": "text/plain"}
            )
        port = hit.headers["host"].rpartition(":")[2]
        hrefs = [href.format(port=port) for href in PAGES.get(hit.path, [])]
        return f"<title> Page {hit.path} </title>{links(*hrefs)}"

    with Site(answer, hosts=("127.0.0.1", "127.0.0.2")) as site:
        yield site


def test_site_keeps_to_its_scope_and_goes_on_with_a_larger_budget(
    project: Example, site: Site
) -> None:
    crawl = ["crawl", "site", "-a", f"url={site.url()}", "-o", "pages.jsonl"]
    crawl += ["-s", "DOWNLOAD_DELAY=0"]

    project.output(*crawl, "-s", "FOCUS_MAX_PAGES=3", ends="focus_max_pages")
    assert len(site.paths()) == 3

    project.output(*crawl)
    # Not the login page, the private one and the other host; and nothing twice.
    assert sorted(site.paths()) == sorted(DEPTHS)
    found = {item["url"]: item for item in project.items("pages.jsonl")}
    assert {url: item["depth"] for url, item in found.items()} == {
        site.url(path): depth for path, depth in DEPTHS.items()
    }
    assert found[site.url("/a")]["title"] == "Page /a"


def test_site_says_what_it_needs(project: Example) -> None:
    assert "Say which site: scrapy crawl site -a url=" in project.output("crawl", "site", code=1)


def test_archive_saves_each_page_in_its_folder(project: Example, site: Site) -> None:
    project.output(
        *("crawl", "archive", "-a", f"url={site.url()}", "-a", "to=../copies"),
        *("-o", "copies.jsonl", "-s", "DOWNLOAD_DELAY=0"),
    )
    expected = {path for path, depth in DEPTHS.items() if depth <= 3}
    assert set(site.paths()) == expected
    # Level by level.
    assert [DEPTHS[path] for path in site.paths()] == sorted(DEPTHS[path] for path in expected)

    copies = project.folder.parent / "copies"
    saved = {copies / item["file"]: item for item in project.items("copies.jsonl")}
    assert {item["url"] for item in saved.values()} == {site.url(path) for path in expected}
    assert {file for file in copies.rglob("*") if file.is_file()} == set(saved)
    for file, item in saved.items():
        assert file.parent == copies / f"127.0.0.1_{site.port}"
        assert file.suffix == ".html"
        assert item["title"] in file.read_text(encoding="utf-8")


def test_file_names_are_unique_and_lead_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    from example.spiders.archive import file_name

    urls = [
        "http://host/",
        "http://host/a",
        "http://host/A",
        "http://host/a/",
        "http://host/a/b",
        "http://host/a_b",
        "http://host/a?b",
        "http://host:8080/a",
        "http://host/../../etc/passwd",
        "http://host/..%2f..%5cetc",
        "http://host/a:b|c*?<nul>",
        "http://../x",
        "http://./x",
        "http://[::1]:80/x",
        "http://user:secret@host/b",
        f"http://host/{'long/' * 500}?{'q' * 2000}",
    ]
    names = [file_name(url, b"text/html; charset=utf-8") for url in urls]
    assert len({str(name).lower() for name in names}) == len(urls)
    for name in names:
        folder, file = name.parts
        assert re.fullmatch(r"(?!\.)[\w.-]+", folder, re.ASCII), name
        assert re.fullmatch(r"[\w-]{1,100}\.html", file, re.ASCII), name
        assert "secret" not in str(name)
    assert file_name("http://host/p.pdf", b"application/pdf").suffix == ".pdf"
    assert file_name("http://host/p", b"no/such-type").suffix == ".bin"
    assert file_name("http://host/p", None).suffix == ".bin"


# --- pydoc, the demo

DONE = "pages done"
CHARGED = "pages charged to the budget, in all runs of this job"


def fact(output: str, words: str) -> int:
    """Return the number before ``words`` in the demo's summary, 0 where it has no such line."""
    found = re.search(rf"^ +([\d,]+)  {words}", output, re.MULTILINE)
    return int(found[1].replace(",", "")) if found else 0


def server(output: str) -> tuple[str, int]:
    """Return the URL and the process of the documentation server."""
    found = re.search(r"pydoc server runs at (\S+), process (\d+)", output)
    assert found, output
    return found[1], int(found[2])


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state != "Z"  # it has ended, and nobody has asked how


@contextmanager
def occupied(port: int) -> Iterator[None]:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))
        other.listen()
        yield


def crawled(project: Example) -> int:
    """Return how many pages a crawl of the demo says that it has crawled, so far."""
    return max(map(int, re.findall(r"Crawled (\d+) pages", project.log)), default=0)


def test_the_demo_goes_on_where_its_budget_ended(project: Example) -> None:
    crawl = ["crawl", "pydoc", "-o", "pages.jsonl", "-s"]
    first = project.output(*crawl, "FOCUS_MAX_PAGES=30", ends="focus_max_pages")
    url, process = server(first)
    assert not is_running(process)
    assert "a new job" in first
    assert fact(first, DONE) == 30
    assert fact(first, "URLs that wait for the next run") > 30
    assert fact(first, "links that the scope refused") > 0
    assert fact(first, "links to a URL that was known already") > 0

    # The command that it prints, to the letter.
    command = re.search(r"To go on with twice as many:\n +\S+ -m scrapy (.+)", first)
    assert command
    second = project.output(*command[1].split(), ends="focus_max_pages")
    assert command[1].split() == [*crawl, "FOCUS_MAX_PAGES=60"]
    assert server(second)[0] == url
    assert "resumed" in second
    assert fact(second, DONE) == 30
    assert fact(second, CHARGED) == 60

    urls = [item["url"] for item in project.items("pages.jsonl")]
    assert len(urls) == len(set(urls)) == 60
    assert all(found.startswith(url) for found in urls)
    assert not [found for found in urls if re.search(r"antigravity|idlelib|/this|/test\.", found)]


def test_the_demo_goes_on_after_a_kill(project: Example) -> None:
    crawl = project.start("crawl", "pydoc", "-s", "LOGSTATS_INTERVAL=0.2")
    project.wait_until(crawl, lambda: crawled(project) >= 30)
    url, process = server(project.log)
    assert is_running(process)
    crawl.kill()
    crawl.wait()
    budget = crawled(project) + 60

    # The next run waits for the server to end, which loses its standard input to the kill.
    output = project.output(
        *("crawl", "pydoc", "-s", f"FOCUS_MAX_PAGES={budget}"), ends="focus_max_pages"
    )
    assert not is_running(process)
    assert server(output)[0] == url
    assert "resumed" in output
    assert fact(output, CHARGED) == budget
    # What was in flight at the kill is fetched again, what was done is not.
    assert 0 < fact(output, DONE) < budget - 10


def test_the_demo_goes_on_after_ctrl_c(project: Example) -> None:
    crawl = project.start("crawl", "pydoc", "-s", "LOGSTATS_INTERVAL=0.2")
    project.wait_until(crawl, lambda: crawled(project) >= 1)
    crawl.send_signal(signal.SIGINT)
    output = project.wait(crawl).log
    assert "Spider closed (shutdown)" in output
    assert "To go on from here:" in output
    # The server was there until the last page in flight was done, and not longer.
    assert fact(output, "attempts after the first") == fact(output, "pages given up") == 0
    assert not is_running(server(output)[1])

    budget = f"FOCUS_MAX_PAGES={fact(output, DONE) + 10}"
    output = project.output("crawl", "pydoc", "-s", budget, ends="focus_max_pages")
    assert "resumed" in output
    assert fact(output, DONE) == 10


def test_the_demo_starts_over_when_it_has_finished(project: Example) -> None:
    for start in ("a new job", "started over"):
        output = project.output("crawl", "pydoc", "-s", "FOCUS_EXCLUDED=127.0.0.1/*.*")
        assert start in output
        assert "Once more from the start:" in output
        assert fact(output, DONE) == fact(output, CHARGED) == 1


def test_the_demo_stops_when_its_server_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    from example.pydoc_server import PydocServer

    server = PydocServer(tmp_path)
    with occupied(server.port):
        with pytest.raises(CloseSpider) as refusal:
            asyncio.run(server.start())
        server.stop()
    assert refusal.value.reason == "pydoc_not_started"
    assert "in use" in (tmp_path / "server.log").read_text()


def test_the_demo_moves_to_another_port_only_if_its_own_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    from example.pydoc_server import same_port_as_before

    file = tmp_path / "port"
    port = same_port_as_before("127.0.0.1", file)
    assert same_port_as_before("127.0.0.1", file) == port
    with occupied(port):
        moved = same_port_as_before("127.0.0.1", file, patience=0.2)
    assert moved != port
    assert same_port_as_before("127.0.0.1", file) == moved
    file.write_text("")  # a disk that was full
    assert same_port_as_before("127.0.0.1", file) > 0

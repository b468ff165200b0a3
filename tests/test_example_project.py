"""The example project, run as its readers run it: ``scrapy crawl`` in child processes."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "example_project"

# Plenty, for a machine that is busy with other things.
TIMEOUT = 120


class Project:
    """A copy of the example project, so that the repository stays as it is."""

    def __init__(self, folder: Path):
        self.folder = folder
        ignored = shutil.ignore_patterns(".scrapy", "__pycache__", "*.jsonl")
        shutil.copytree(EXAMPLE, folder, ignore=ignored)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        return subprocess.Popen(
            [sys.executable, "-m", "scrapy", *arguments],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: str, code: int = 0) -> str:
        """Run ``scrapy`` to its end and return what it printed."""
        with self.start(*arguments) as process:
            try:
                output, _ = process.communicate(timeout=TIMEOUT)
            finally:
                process.kill()
        assert process.returncode == code, output
        return output

    def items(self, file: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / file).open(encoding="utf-8")]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


def closed_as(reason: str, output: str) -> bool:
    return f"Spider closed ({reason})" in output


# -- site and archive: a small site on loopback --------------------------------------------------

PAGES = {
    "/": ["/a", "/b?page=1", "/b?page=2", "/paper.pdf", "/login", "/private/", "mailto:me@a.b"],
    "/a": ["/", "/a/deep", "//localhost:{port}/outside", "file:///etc/hostname"],
    "/a/deep": ["/a/deep/er", "/a#top"],
    "/a/deep/er": ["/a/deep/er/still"],
    "/a/deep/er/still": [],
    "/b?page=1": ["/b?page=2"],
    "/b?page=2": ["/%2e%2e%2f%2e%2e%2fescape"],
    "/%2e%2e%2f%2e%2e%2fescape": [],
    "/login": [],
    "/private/": [],
    "/outside": [],
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


class Site:
    """Serves PAGES and remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.answer(self)

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing: pytest shows what matters."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/"

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        self.asked.append(handler.path)
        if handler.path == "/robots.txt":
            self.send(handler, "text/plain", b"User-agent: *\nDisallow: /private/\n")
        elif handler.path == "/paper.pdf":
            self.send(handler, "application/pdf", b"%PDF-1.4")
        elif handler.path in PAGES:
            links = [link.format(port=self.port) for link in PAGES[handler.path]]
            anchors = "".join(f'<a href="{link}">x</a>' for link in links)
            page = f"<title> Page {handler.path} </title>{anchors}"
            self.send(handler, "text/html; charset=utf-8", page.encode())
        else:
            handler.send_error(404)

    @staticmethod
    def send(handler: BaseHTTPRequestHandler, mime: str, body: bytes) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", mime)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    @property
    def pages_asked(self) -> list[str]:
        return sorted(path for path in self.asked if path != "/robots.txt")


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    thread = threading.Thread(target=site.server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield site
    site.server.shutdown()
    site.server.server_close()
    thread.join()


def test_the_project_has_three_spiders(project: Project) -> None:
    assert project.run("list").split() == ["archive", "pydoc", "site"]


def test_site_keeps_to_its_scope_and_goes_on_when_the_budget_is_raised(
    project: Project, site: Site
) -> None:
    crawl = ["crawl", "site", "-a", f"url={site.url}", "-o", "pages.jsonl", "-s", "DOWNLOAD_DELAY=0"]

    output = project.run(*crawl, "-s", "FOCUS_MAX_PAGES=3")
    assert closed_as("focus_max_pages", output)
    assert len(site.pages_asked) == 3

    output = project.run(*crawl)
    assert closed_as("finished", output)
    # Not the login page, the private one and the other host; and nothing twice.
    assert site.pages_asked == sorted(DEPTHS)
    found = {item["url"].removeprefix(site.url[:-1]): item for item in project.items("pages.jsonl")}
    assert {path: item["depth"] for path, item in found.items()} == DEPTHS
    assert found["/a"]["title"] == "Page /a"


def test_site_says_what_it_needs(project: Project) -> None:
    assert "Say which site: scrapy crawl site -a url=" in project.run("crawl", "site", code=1)


def test_archive_saves_each_page_in_its_folder(project: Project, site: Site) -> None:
    output = project.run(
        *("crawl", "archive", "-a", f"url={site.url}", "-a", "to=../copies"),
        *("-o", "copies.jsonl", "-s", "DOWNLOAD_DELAY=0"),
    )
    assert closed_as("finished", output)
    expected = {path for path, depth in DEPTHS.items() if depth <= 3}
    # Level by level, in the order in which the links were found.
    asked = [path for path in site.asked if path != "/robots.txt"]
    assert [DEPTHS[path] for path in asked] == sorted(DEPTHS[path] for path in expected)
    assert set(asked) == expected

    copies = project.folder.parent / "copies"
    items = project.items("copies.jsonl")
    assert {item["url"].removeprefix(site.url[:-1]) for item in items} == expected
    saved = {copies / item["file"]: item for item in items}
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


# -- pydoc: the demo -----------------------------------------------------------------------------


def fact(output: str, words: str) -> int:
    """Return the number that the demo's summary gives for ``words``, 0 where it has no such line."""
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
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")  # where there is one: a zombie has ended
    try:
        return not stat.parent.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def ends(condition: Callable[[], bool], seconds: float = 20) -> bool:
    deadline = time.monotonic() + seconds
    while condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def read_until(process: subprocess.Popen[str], pattern: str) -> str:
    """Return what ``process`` has printed when a line of it matches ``pattern``."""
    assert process.stdout
    output = ""
    for line in process.stdout:
        output += line
        if re.search(pattern, line):
            return output
    raise AssertionError(f"no line matches {pattern!r} in: {output}")


def test_the_demo_goes_on_where_its_budget_ended(project: Project) -> None:
    first = project.run("crawl", "pydoc", "-o", "pages.jsonl", "-s", "FOCUS_MAX_PAGES=40")
    assert closed_as("focus_max_pages", first)
    url, process = server(first)
    assert not is_running(process)
    assert fact(first, "pages done") == 40
    assert fact(first, "URLs that wait for the next run") > 40
    assert fact(first, "links that the scope refused") > 0
    assert fact(first, "links to a URL that was known already") > 0

    # It prints the command that goes on: run exactly that, budget doubled.
    command = re.search(r"With a larger one it goes on:\n +(.+)", first)
    assert command
    assert command[1].endswith("crawl pydoc -o pages.jsonl -s FOCUS_MAX_PAGES=40 -s FOCUS_MAX_PAGES=80")
    second = project.run(*command[1].partition(" -m scrapy ")[2].split())
    assert closed_as("focus_max_pages", second)
    assert server(second)[0] == url
    assert fact(second, "pages done") == 40
    assert fact(second, "pages charged to the budget, in all runs of this job") == 80

    urls = [item["url"] for item in project.items("pages.jsonl")]
    assert len(urls) == len(set(urls)) == 80
    assert all(found.startswith(url) for found in urls)
    assert not [found for found in urls if re.search(r"antigravity|idlelib|/this|/test\.", found)]


def test_the_demo_goes_on_after_a_kill(project: Project) -> None:
    with project.start("crawl", "pydoc", "-s", "LOGSTATS_INTERVAL=0.2") as crawl:
        output = read_until(crawl, r"Crawled (\d{3}|[5-9]\d) pages")
        url, process = server(output)
        assert is_running(process)
        crawl.send_signal(signal.SIGKILL)
    # The server ends by itself, with the crawl that held its standard input.
    assert ends(lambda: is_running(process))

    output = project.run("crawl", "pydoc", "-s", "FOCUS_MAX_PAGES=150")
    assert closed_as("focus_max_pages", output)
    assert server(output)[0] == url
    assert fact(output, "pages charged to the budget, in all runs of this job") == 150
    # What was in flight at the kill is fetched again, what was done is not.
    assert 0 < fact(output, "pages done") < 120


def test_the_demo_goes_on_after_ctrl_c(project: Project) -> None:
    with project.start("crawl", "pydoc", "-s", "LOGSTATS_INTERVAL=0.2") as crawl:
        output = read_until(crawl, r"Crawled [1-9]\d* pages")
        crawl.send_signal(signal.SIGINT)
        output += crawl.communicate(timeout=TIMEOUT)[0]
    assert closed_as("shutdown", output)
    assert "To go on from here:" in output
    # The server was there until the last page in flight was done, and not longer.
    assert fact(output, "attempts after the first") == fact(output, "pages given up") == 0
    assert not is_running(server(output)[1])
    done = fact(output, "pages done")

    output = project.run("crawl", "pydoc", "-s", f"FOCUS_MAX_PAGES={done + 10}")
    assert closed_as("focus_max_pages", output)
    assert fact(output, "pages done") == 10


def test_the_demo_starts_over_when_it_has_finished(project: Project) -> None:
    runs = [project.run("crawl", "pydoc", "-s", "FOCUS_EXCLUDED=127.0.0.1/*.*") for _ in range(2)]
    for output in runs:
        assert closed_as("finished", output)
        assert "Once more from the start:" in output
        assert fact(output, "pages done") > 0
    assert fact(runs[0], "pages done") == fact(runs[1], "pages done")


def test_the_demo_takes_another_port_when_its_own_is_taken(project: Project) -> None:
    crawl = ["crawl", "pydoc", "-s", "FOCUS_MAX_PAGES=1"]
    url, _ = server(project.run(*crawl))
    with socket.socket() as squatter:
        squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        squatter.bind(("127.0.0.1", int(url.rpartition(":")[2].strip("/"))))
        squatter.listen()
        output = project.run(*crawl)
    assert "is taken: another one, and a crawl from the start" in output
    assert server(output)[0] != url
    assert fact(output, "pages done") == 1

"""A real web server on loopback, with as many hosts as a test wants, and its access log.

The log is the oracle of most tests: what the server saw, not what the crawler says. As
the proxy of a crawl (:meth:`tests.project.Project.use_proxy`) the site serves whatever host
name it is asked for.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Hit:
    """One request, as the server received it."""

    time: float
    host: str
    path: str
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass
class Answer:
    """What the server replies, after *delay* seconds and not before *until* is true. Without a
    status it hangs up.

    A ``Content-Length`` among the headers need not be true. With *drip* the body comes in
    single bytes, so many seconds apart; with *reset* the connection is reset after it.
    """

    body: str | bytes = ""
    status: int | None = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    delay: float = 0.0
    until: Callable[[], bool] = lambda: True
    drip: float = 0.0
    reset: bool = False


Answerer = Callable[[Hit], "Answer | str"]


def links(*paths: str) -> str:
    """A page with these links."""
    anchors = "".join(f'<a href="{path}">{path}</a>\n' for path in paths)
    return f"<html><body>{anchors}</body></html>"


def redirect(to: str, status: int = 302) -> Answer:
    return Answer(status=status, headers={"Location": to})


class Site:
    """Serves what *answer* says on one port of each host, from a thread of its own."""

    def __init__(self, answer: Answerer, hosts: Iterable[str] = ("127.0.0.1",)) -> None:
        self._answer = answer
        self.hosts = list(hosts)
        self.log: list[Hit] = []
        #: The most requests of each host that were open at the same time.
        self.busiest: dict[str, int] = {}
        self._open: Counter[str] = Counter()
        self.port = 0
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *args: object) -> None:
        self._loop.call_soon_threadsafe(self._done.set)
        self._thread.join(10)

    def url(self, path: str = "/", host: str | None = None) -> str:
        return f"http://{host or self.hosts[0]}:{self.port}{path}"

    def paths(self, host: str | None = None) -> list[str]:
        """What was asked for, in order, without robots.txt."""
        return [
            hit.path for hit in self.log if hit.path != "/robots.txt" and host in (None, hit.host)
        ]

    def gaps(self, host: str) -> list[float]:
        """Seconds between the requests to a host, robots.txt included."""
        times = [hit.time for hit in self.log if hit.host == host]
        return [b - a for a, b in pairwise(times)]

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._done = asyncio.Event()
        servers: list[Any] = []
        for host in self.hosts:
            # The first host picks a free port for all of them.
            servers.append(
                await asyncio.start_server(self._client(host), host, self.port, limit=1 << 20)
            )
            self.port = servers[0].sockets[0].getsockname()[1]
        self._ready.set()
        await self._done.wait()
        for server in servers:
            server.close()

    def _client(self, host: str) -> Callable[..., Awaitable[None]]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                while await self._exchange(host, reader, writer):
                    pass
            except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                pass  # the other side, or the site itself, has gone
            finally:
                writer.close()

        return serve

    async def _answered(self, hit: Hit) -> Answer:
        self._open[hit.host] += 1
        self.busiest[hit.host] = max(self.busiest.get(hit.host, 0), self._open[hit.host])
        try:
            answer = self._answer(hit)
            if isinstance(answer, str):
                answer = Answer(answer)
            if answer.delay:
                await asyncio.sleep(answer.delay)
            while not answer.until():  # noqa: ASYNC110 - nobody could tell us
                await asyncio.sleep(0.01)
            return answer
        finally:
            self._open[hit.host] -= 1

    async def _exchange(
        self, host: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *rest = head.decode("latin-1").split("\r\n")
        method, path, _ = first.split(" ", 2)
        headers = {}
        for line in rest:
            name, found, value = line.partition(":")
            if found:
                headers[name.strip().lower()] = value.strip()
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        if "://" in path:
            # A proxy is asked with the whole URL.
            target = urlsplit(path)
            host, path = target.hostname or "", target._replace(scheme="", netloc="").geturl()
        hit = Hit(time.time(), host, path, method, headers, body)
        self.log.append(hit)
        answer = await self._answered(hit)
        if answer.status is None:
            return False
        content = answer.body.encode() if isinstance(answer.body, str) else answer.body
        given = {
            "Content-Length": str(len(content)),
            "Content-Type": "text/html; charset=utf-8",
            **answer.headers,
        }
        lines = [f"HTTP/1.1 {answer.status} Status"]
        lines += [f"{name}: {value}" for name, value in given.items()]
        writer.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n")
        if method != "HEAD" and not answer.drip:
            writer.write(content)
        for byte in content if answer.drip else b"":
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(answer.drip)
        await writer.drain()
        if answer.reset:
            writer.transport.abort()
        return not answer.reset

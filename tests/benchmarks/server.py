"""A web server in a process of its own: ``python -m tests.benchmarks.server KIND``.

It serves every address of 127.0.0.0/8, and as a proxy every host name. It prints its port
and ends with its standard input. Kinds of page, each of links only:

``web``: page i of 3,001 links to ten others, and all can be reached from page 0;
``endless``: ten links to pages that nobody has seen yet, on hosts of its own;
``tree``: page i links to 2 i + 1 and 2 i + 2 of the same host.

Each answer says in ``X-Received`` when its request came, by the monotonic clock.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self

ROOT = Path(__file__).parent.parent.parent
#: Pages of the ``web``, and the links of each.
PAGES, LINKS = 3_001, 10

_HEAD = (
    "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {size}\r\n"
    "X-Received: {received:.6f}\r\n\r\n"
)

Pages = Callable[[str], str]


def host_name(number: int) -> str:
    """Names of one length for the hosts of all benchmarks."""
    return f"h{number:06d}.example.com"


class Server:
    """The server while the context lasts.

    :param delay: seconds until it answers
    :param pages: of the ``web``
    :param hosts: that the links of ``endless`` go to
    """

    def __init__(self, kind: str, delay: float = 0.0, pages: int = PAGES, hosts: int = 1) -> None:
        options = {"delay": delay, "pages": pages, "hosts": hosts}
        self._arguments = [kind, *(f"--{name}={value}" for name, value in options.items())]

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.benchmarks.server", *self._arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout
        self.port = int(self._process.stdout.readline())
        return self

    def __exit__(self, *args: object) -> None:
        self._process.terminate()
        self._process.communicate()


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("kind", choices=["web", "endless", "tree"])
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--pages", type=int, default=PAGES)
    parser.add_argument("--hosts", type=int, default=1)
    options = parser.parse_args()
    pages: dict[str, Pages] = {
        "web": _web(options.pages),
        "endless": _endless(options.hosts),
        "tree": _tree,
    }
    asyncio.run(_serve(pages[options.kind], options.delay))


async def _serve(pages: Pages, delay: float) -> None:
    # Of its own: nothing of the crawl's may keep it from answering in time.
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(pages, delay), "0.0.0.0", 0, backlog=1000)
    print(server.sockets[0].getsockname()[1], flush=True)
    # The other end goes with the process that started this one.
    await loop.run_in_executor(None, sys.stdin.read)


class _Connection(asyncio.Protocol):
    """GET requests without a body, one after the other."""

    def __init__(self, pages: Pages, delay: float) -> None:
        self._pages = pages
        self._delay = delay
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while b"\r\n\r\n" in self._received:
            head, _, self._received = self._received.partition(b"\r\n\r\n")
            path = head.split(b" ", 2)[1].decode("latin-1").rpartition("/")[2]
            now = time.monotonic()
            if self._delay:
                asyncio.get_running_loop().call_later(self._delay, self._answer, path, now)
            else:
                self._answer(path, now)

    def _answer(self, path: str, received: float) -> None:
        assert isinstance(self._transport, asyncio.Transport)
        body = self._pages(path).encode()
        head = _HEAD.format(size=len(body), received=received)
        if not self._transport.is_closing():
            self._transport.write(head.encode() + body)


def _web(pages: int) -> Pages:
    return lambda path: _links(
        f"/{(int(path) * LINKS + number + 1) % pages}" for number in range(LINKS)
    )


def _endless(hosts: int) -> Pages:
    rng, numbers = random.Random(7), count()
    return lambda path: _links(
        f"http://{host_name(rng.randrange(hosts))}/endless-{next(numbers)}" for _ in range(LINKS)
    )


def _tree(path: str) -> str:
    number = int(path)
    return _links((f"/{2 * number + 1}", f"/{2 * number + 2}"))


def _links(addresses: Iterable[str]) -> str:
    return "".join(f'<a href="{address}">x</a>' for address in addresses)


if __name__ == "__main__":
    main()

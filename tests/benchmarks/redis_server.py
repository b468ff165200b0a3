"""A real Redis server of our own for the peer that needs one."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self

_PATIENCE = 10.0


class RedisServer:
    """Runs on a free loopback port while the context lasts.

    It saves nothing to disk, which is to its favour. What it costs is read from the server
    itself and added to what its clients cost.
    """

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="redis-")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        options = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        self._process = subprocess.Popen(
            ["redis-server", "--port", str(self.port), *options],
            cwd=self._folder.name,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        try:
            self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *args: object) -> None:
        self._process.terminate()
        self._process.wait()
        self._folder.cleanup()

    def _wait(self) -> None:
        deadline = time.monotonic() + _PATIENCE
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                time.sleep(0.02)
            else:
                return
        raise RuntimeError(f"redis-server does not answer on port {self.port}")


def missing() -> str | None:
    """What has to be installed before scrapy-redis can be measured, or ``None``."""
    if shutil.which("redis-server") is None:
        return "there is no redis-server; install one, e.g. by apt-get install redis-server"
    if find_spec("scrapy_redis") is None:
        return "scrapy-redis is not installed; pip install -e '.[benchmarks]' does it"
    return None


def server_seconds(port: int | None) -> float:
    """CPU seconds that the server on that port has used so far; 0 without one."""
    if port is None:
        return 0.0
    from redis import Redis

    with Redis(port=port) as client:
        used = client.info("cpu")
    return float(used["used_cpu_user"]) + float(used["used_cpu_sys"])

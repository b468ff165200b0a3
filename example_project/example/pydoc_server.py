"""A site for the demo: the documentation server of the standard library, ``python -m pydoc``."""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from scrapy.exceptions import CloseSpider

if TYPE_CHECKING:
    from pathlib import Path

logger = logging.getLogger(__name__)


class PydocServer:
    """Runs the server in a child process while the spider is open.

    :param folder: a folder for the server's log, for the port to use again in the next run, and
        for an empty folder to run in. It is made if need be.
    """

    HOST = "127.0.0.1"

    #: Seconds that the server may take to start.
    PATIENCE = 30

    def __init__(self, folder: Path):
        # pydoc also documents what lies in its working directory: let that be nothing.
        self._cwd = folder / "empty"
        self._cwd.mkdir(parents=True, exist_ok=True)
        self._log = folder / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.port = same_port_as_before(self.HOST, folder / "port")

    @property
    def url(self) -> str:
        return f"http://{self.HOST}:{self.port}/"

    async def start(self) -> None:
        """Start the server and wait until it answers.

        :raises scrapy.exceptions.CloseSpider: when it does not.
        """
        process = self._launch()
        deadline = time.monotonic() + self.PATIENCE
        while b"Server ready" not in self._log.read_bytes():
            if process.poll() is not None or time.monotonic() > deadline:
                logger.error("The pydoc server did not start; it says why in %s", self._log)
                raise CloseSpider("pydoc_not_started")
            await asyncio.sleep(0.05)
        logger.info("The pydoc server runs at %s, process %d", self.url, process.pid)

    def _launch(self) -> subprocess.Popen[bytes]:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                # -I and -S: without the packages and the settings of whoever runs it.
                [sys.executable, "-I", "-S", "-m", "pydoc", "-n", self.HOST, "-p", str(self.port)],
                cwd=self._cwd,
                # The server runs until its standard input ends. We hold the other end of this
                # pipe, and the system closes it for us even on a kill -9.
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                # A Ctrl-C is for the crawl alone, which finishes the pages in flight.
                start_new_session=True,
                creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
            )
        return self._process

    def stop(self) -> None:
        """Stop the server, at once: it has nothing to lose."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


def same_port_as_before(host: str, file: Path, patience: float = 5) -> int:
    """Return a free port, the one that ``file`` remembers if possible.

    :param patience: seconds to wait for that port. The server of a crawl that was killed just
        now needs up to two until it ends. Nothing else runs yet that this would hold up.
    """
    remembered = file.read_text() if file.exists() else ""
    if remembered.isdecimal():
        before = int(remembered)
        deadline = time.monotonic() + patience
        while not is_free(host, before):
            if time.monotonic() > deadline:
                logger.warning("Port %d is taken: another one, and a crawl from the start", before)
                break
            time.sleep(0.1)
        else:
            return before
    # Below the ports that systems give to outgoing connections, so that it is likely to be free
    # the next time too.
    port = next(p for p in random.sample(range(20_000, 32_000), 1_000) if is_free(host, p))
    file.write_text(str(port))
    return port


def is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        if sys.platform != "win32":  # there it would mean: free even if it is taken
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True

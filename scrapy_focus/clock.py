"""What time it is for a frontier."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from scrapy_focus.frontier.runs import clock_of

if TYPE_CHECKING:
    from pathlib import Path


class Clock:
    """Unix time, in seconds, that does not jump when the system's clock is set.

    It is the system's clock as it was when the first of the runs that are at a frontier now
    began, carried on by the monotonic clock, which all processes of a machine share. So they
    agree on when a host was touched, whatever happens to the system's clock meanwhile.

    :param frontier: its file, if other processes may be at it
    """

    def __init__(self, frontier: Path | None) -> None:
        shared = clock_of(frontier) if frontier else None
        #: How far it is ahead of the monotonic clock.
        self.ahead = time.time() - time.monotonic() if shared is None else shared

    def __call__(self) -> float:
        return self.ahead + time.monotonic()

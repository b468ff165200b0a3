"""What time it is for a frontier."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from scrapy_focus.frontier.runs import clock_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def steady_clock() -> Callable[[], float]:
    """A clock, in seconds, that nobody sets and that all processes of a machine share."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        # It goes on while the machine is suspended.
        return partial(time.clock_gettime, time.CLOCK_BOOTTIME)
    return time.monotonic


class Clock:
    """Unix time, in seconds, that does not jump when the system's clock is set.

    It is the system's clock as it was when the first of the runs that are at a frontier now
    began, carried on by a clock that nobody sets, which all processes of a machine share. So
    they agree on when a host was touched, whatever happens to the system's clock meanwhile.

    :param frontier: its file, if other processes may be at it
    """

    def __init__(self, frontier: Path | None) -> None:
        self._steady = steady_clock()
        shared = clock_of(frontier) if frontier else None
        #: How far it is ahead of the clock that nobody sets.
        self.ahead = time.time() - self._steady() if shared is None else shared

    def __call__(self) -> float:
        return self.ahead + self._steady()

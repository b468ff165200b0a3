"""What the frontier did in a run, in words, from Scrapy's stats."""

from __future__ import annotations

import os
import shlex
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

# Some of the stats that scrapy_focus collects. Its documentation has them all.
LINES = {
    "focus/added": "new URLs that were stored",
    "dupefilter/filtered": "links to a URL that was known already",
    "focus/refused": "links that the scope refused",
    "focus/leased": "URLs that were handed out",
    "focus/retried": "attempts after the first",
    "focus/done": "pages done",
    "focus/failed": "pages given up",
    "focus/dropped": "stored URLs dropped unfetched",
    "focus/pages": "pages charged to the budget, in all runs of this job",
    "focus/waiting": "URLs that wait for the next run",
}


def summary(stats: Mapping[str, Any], reason: str, budget: int) -> str:
    """Return the summary of a run that closed for ``reason``, one fact a line."""
    lines = ["What the frontier did in this run:"]
    for name, words in LINES.items():
        reasons = {
            key.removeprefix(f"{name}/"): value
            for key, value in stats.items()
            if key.startswith(f"{name}/") and not key.endswith("/duplicate")  # counted above
        }
        value = stats.get(name, sum(reasons.values()))
        if not value:
            continue
        why = ", ".join(f"{key} {count:,}" for key, count in sorted(reasons.items()))
        lines.append(f"{value:10,}  {words}" + (f" ({why})" if why else ""))
    return "\n".join([*lines, what_next(reason, budget)])


def what_next(reason: str, budget: int) -> str:
    again = command_line()
    if reason == "finished":
        return f"All is done. Once more from the start:\n    {again}"
    if reason == "focus_max_pages":
        spent, larger = (f"FOCUS_MAX_PAGES={pages}" for pages in (budget, 2 * budget))
        again = again.replace(spent, larger) if spent in again else f"{again} -s {larger}"
        return f"The budget of {budget:,} pages is spent. To go on with twice as many:\n    {again}"
    return f"It ended early ({reason}). To go on from here:\n    {again}"


def command_line() -> str:
    """Return the command that runs this process, to be pasted into a shell."""
    command = sys.orig_argv
    if os.access(command[1], os.X_OK):  # bin/scrapy, which its first line hands to Python
        command = command[1:]
    return shlex.join(command)

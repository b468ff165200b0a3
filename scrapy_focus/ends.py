"""How a run starts and ends, in words: log lines and close reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_focus.names import in_log

if TYPE_CHECKING:
    from scrapy_focus.frontier import Counts

_STARTS = {
    "new": "a new job",
    "resumed": "resumed",
    "joined": "joined, another run is at it",
    "restarted": "started over, having finished before",
    "forced": "started over, as FOCUS_RESUME says",
}


def first_lines(name: str, job: str, start: str, generation: int, counts: Counts) -> list[str]:
    """What a user must know before the crawl begins."""
    lines = [f"Frontier: {name}", f"Job: {in_log(job)} (generation {generation}), {_STARTS[start]}"]
    if start in ("resumed", "joined"):
        lines.append(
            f"Waiting: {counts.waiting}, done: {counts.done}, failed: {counts.failed}, dropped: "
            f"{counts.dropped}. To start over: -s FOCUS_RESUME=False"
        )
    return lines


def end_reason(counts: Counts, spent: str | None, seeds: str) -> str:
    """Why a crawl that has nothing more to fetch ends.

    :param spent: the part of the budget that is spent, if any
    :param seeds: ``refused`` or ``failed`` if that is what all seeds of the run were
    """
    if not counts.waiting:
        if counts.added or not seeds:
            return "finished"
        # Where a start request cannot be taken in, Scrapy's own scheduler stops the engine.
        return "focus_out_of_scope" if seeds == "refused" else "shutdown"
    if spent:
        return f"focus_{spent}"
    if counts.hosts.get("retired"):
        return "focus_max_pages_per_host"
    if counts.hosts.get("capped"):
        return "focus_max_pages_per_path"
    if counts.unreadable == counts.waiting:
        return "focus_unreadable"
    return "focus_held"


def last_line(counts: Counts, new: int, handed_out: int) -> str:
    """What was done, what waits, what was dropped and why, in one line."""
    parts = [
        f"{counts.done} done",
        _with_reasons(counts.failed, "failed", counts),
        _with_reasons(counts.dropped, "dropped", counts),
        f"{counts.waiting} waiting" + _list(counts.hosts, "host"),
    ]
    refused = sum(counts.reasons.get("refused", {}).values())
    parts.append(_with_reasons(refused, "refused", counts))
    line = f"Job so far: {', '.join(parts)}. This run: {new} new, {handed_out} handed out"
    if not handed_out:
        line += ", so it had nothing to do"
    return line + "."


def _with_reasons(number: int, kind: str, counts: Counts) -> str:
    return f"{number} {kind}{_list(counts.reasons.get(kind, {}))}"


def _list(numbers: dict[str, int], unit: str = "") -> str:
    if not numbers:
        return ""
    each = (f"{in_log(name)} {number}" for name, number in sorted(numbers.items()))
    return f" ({unit + 's ' if unit else ''}{', '.join(each)})"

"""What ``scrapy frontier`` shows: jobs and URLs, as text and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from scrapy_focus.commands.text import masked, moment, shown, size, span, table
from scrapy_focus.frontier import ASIDE

if TYPE_CHECKING:
    from pathlib import Path

    from scrapy_focus.frontier.listing import UrlRow
    from scrapy_focus.frontier.report import Job, JobReport, WaitsFor

#: Which setting has to be raised after which end.
_BUDGET = {
    "focus_max_pages": "FOCUS_MAX_PAGES",
    "focus_max_bytes": "FOCUS_MAX_BYTES",
    "focus_max_seconds": "FOCUS_MAX_SECONDS",
}
_WHY: dict[WaitsFor, str] = {
    "ready": "{host} may be touched",
    "cooling": "{host} is cooling",
    "held": "{host} is held",
    "deferred": "a URL on {host} waits for its time",
    "lost": "a run that died had taken it",
    "busy": "the hosts that wait have as many requests in flight as they may",
    "leased": "nothing waits, but what is in flight may bring more",
    "retired": "the hosts that wait have spent their share, FOCUS_MAX_PAGES_PER_HOST",
    "capped": "the paths that wait have spent their share, FOCUS_MAX_PAGES_PER_PATH",
    "unreadable": "what waits cannot be read by this run",
}
_HEADINGS = ("STATE", "RANK", "DUE", "ATTEMPTS", "DEPTH", "PRIORITY", "REASON", "URL")
_NUMBERS = (False, True, True, True, True, True, False, False)


def stats_text(path: Path, reports: Iterable[JobReport], now: float) -> Iterator[str]:
    """The jobs of a frontier, a paragraph and a table each."""
    yield f"Frontier: {shown(str(path))}"
    none = True
    for report in reports:
        none = False
        yield ""
        yield _title(report.job)
        yield f"State: {_state(report)}"
        if report.job.latest:
            yield f"Next URL: {_next(report, now)}"
        for line in table(_numbers(report), (False, True, False)):
            yield f"  {line}"
    if none:
        yield "No crawl has used it yet."


def _title(job: Job) -> str:
    return f"Job: {shown(job.name)} (generation {job.generation})"


def _state(report: JobReport) -> str:
    job, alive = report.job, [run for run in report.runs if run.alive]
    words: str = report.state
    if report.runs:
        each = [f"process {run.pid} since {moment(run.started)}" for run in alive]
        each += [f"process {run.pid} died" for run in report.runs if not run.alive]
        words += f": {', '.join(each)}"
    elif job.finished is not None:
        words += f": {moment(job.finished)}"
    elif report.reason:
        words += f": {shown(report.reason)}"
    if not job.latest:
        words += "; replaced by a later generation"
    return words + (" and cleared away" if job.cleared else "")


def _next(report: JobReport, now: float) -> str:
    due = report.due
    if due.waits_for is None:
        return "none, nothing is left"
    if report.reason in _BUDGET:
        return f"when {_BUDGET[report.reason]} is raised: the job has used it up"
    why = _WHY[due.waits_for].format(host=shown(due.host or "no host"))
    if due.at is None:
        return f"at no time that is known: {why}"
    if due.at > now:
        return f"in {span(due.at - now)} ({moment(due.at)}): {why}"
    return f"now: {why}" if report.running else f"as soon as the job is run again: {why}"


def _numbers(report: JobReport) -> Iterator[tuple[str, str, str]]:
    counts, reasons = report.counts, report.counts.reasons
    waiting = {"deferred": counts.deferred, "unreadable": counts.unreadable}
    refused = reasons.get("refused", {})
    yield "added", str(counts.added), ""
    yield "waiting", str(counts.waiting), _each(waiting)
    yield "leased", str(counts.leased), _each({"by runs that died": report.lost})
    yield "done", str(counts.done), ""
    yield "failed", str(counts.failed), _each(reasons.get("failed", {}))
    yield "dropped", str(counts.dropped), _each(reasons.get("dropped", {}))
    if report.job.gone:
        known = (
            f"rows of these, known to the {shown(report.job.seen)} set" if report.job.seen else ""
        )
        yield "removed", str(report.job.gone), known
    yield "refused", str(sum(refused.values())), _each(refused)
    yield "hosts", str(sum(counts.hosts.values())), _each(counts.hosts)
    yield "pages", str(counts.pages), ""
    yield "bytes", str(counts.bytes), size(counts.bytes) if counts.bytes >= 1000 else ""
    yield "seconds", f"{counts.seconds:.1f}", span(counts.seconds) if counts.seconds >= 60 else ""


def _each(numbers: Mapping[str, int]) -> str:
    return ", ".join(f"{shown(name)} {n}" for name, n in sorted(numbers.items()) if n)


def stats_json(path: Path, reports: Iterable[JobReport], now: float) -> str:
    """The same as one JSON document."""
    document = {"frontier": masked(str(path)), "time": now, "jobs": [*map(_job_json, reports)]}
    return json.dumps(document, indent=2)


def _job_json(report: JobReport) -> dict[str, Any]:
    job, counts, due = report.job, report.counts, report.due
    spent = due.waits_for and report.reason in _BUDGET
    return {
        **_names(job),
        "latest": job.latest,
        "cleared": bool(job.cleared),
        "policy": job.policy,
        "state": report.state,
        "reason": report.reason and masked(report.reason),
        "created": job.created,
        "finished": job.finished,
        "runs": [run._asdict() for run in report.runs],
        "next_due": None if spent else due.at,
        "waits_for": "budget" if spent else due.waits_for,
        "waits_for_host": None if spent else due.host,
        "added": counts.added,
        "waiting": counts.waiting,
        "deferred": counts.deferred,
        "unreadable": counts.unreadable,
        "leased": counts.leased,
        "lost": report.lost,
        "done": counts.done,
        "failed": counts.failed,
        "dropped": counts.dropped,
        "seen": masked(job.seen or "exact"),
        "removed": job.gone,
        "refused": sum(counts.reasons.get("refused", {}).values()),
        "reasons": {
            kind: {masked(name): n for name, n in counts.reasons.get(kind, {}).items()}
            for kind in ("failed", "dropped", "refused")
        },
        "hosts": {
            state: counts.hosts.get(state, 0)
            for state in ("ready", "cooling", "busy", "held", "retired", "capped")
        },
        "pages": counts.pages,
        "bytes": counts.bytes,
        "seconds": counts.seconds,
    }


def _names(job: Job) -> dict[str, Any]:
    return {"job": masked(job.name), "generation": job.generation}


def urls_text(job: Job, rows: Iterable[UrlRow], now: float) -> Iterator[str]:
    """URLs of a job as a table; nothing if there are none."""
    for number, line in enumerate(table(_cells(rows, now), _NUMBERS)):
        if not number:
            yield _title(job)
        yield line


def _cells(rows: Iterable[UrlRow], now: float) -> Iterator[tuple[str, ...]]:
    for number, row in enumerate(rows):
        if not number:
            yield _HEADINGS
        at = due(row)
        waits = row.state in ("waiting", "deferred")
        yield (
            row.state,
            f"{row.rank:.10g}" if waits else "",
            "" if at is None else "now" if at <= now else f"in {span(at - now)}",
            *(str(row.attempts), str(row.depth), str(row.priority)),
            shown(_reason(row) or ""),
            shown(row.url),
        )


def url_json(job: Job, row: UrlRow) -> str:
    """A URL as one line of JSON."""
    document = {
        **_names(job),
        "state": row.state,
        "url": masked(row.url),
        "host": row.host,
        "rank": row.rank,
        "due": due(row),
        "lease_end": row.ready_at if row.state == "leased" else None,
        "attempts": row.attempts,
        "depth": row.depth,
        "priority": row.priority,
        "score": row.score,
        "seed": bool(row.seed),
        "discovered": row.discovered,
        "parent": row.parent and masked(row.parent),
        "reason": _reason(row),
    }
    return json.dumps({name: _finite(value) for name, value in document.items()})


def gone_json(job: Job, what: tuple[int, float] | bool | None) -> dict[str, Any]:
    """What is known of a URL whose row was removed."""
    state, at = what if isinstance(what, tuple) else (0, 0.0)
    states = {1: "done", 2: "failed", 3: "dropped"}
    return {**_names(job), "known": what and True, "state": states.get(state), "time": at or None}


def _finite(value: Any) -> Any:
    """JSON has no other numbers."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def due(row: UrlRow) -> float | None:
    """When a deferred row is due, if time alone makes it so."""
    return row.ready_at if row.state == "deferred" and row.ready_at < ASIDE else None


def _reason(row: UrlRow) -> str | None:
    if row.state == "deferred" and row.ready_at >= ASIDE:
        return "unreadable"
    return row.reason and masked(row.reason)

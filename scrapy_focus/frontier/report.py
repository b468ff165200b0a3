"""What a frontier looks like from outside: counts, read by one statement each."""

from __future__ import annotations

from scrapy_focus.frontier.contract import Counts
from scrapy_focus.frontier.database import Database

# One row a queue, however many URLs it has. ``at`` of a job that nobody is at is old, so
# that only a host with requests in flight is busy.
_HOSTS = (
    "SELECT state, count(DISTINCT host), sum(deferred) FROM (SELECT q.host, q.waiting - q.ready"
    " AS deferred, CASE WHEN q.retired AND q.head IS NULL THEN 'retired'"
    " WHEN q.at = 1e18 AND h.in_flight > 0 THEN 'busy' WHEN h.held > :now THEN 'held'"
    " WHEN h.next_at > :now THEN 'cooling' ELSE 'ready' END AS state"
    " FROM queues AS q CROSS JOIN hosts AS h ON h.id = q.pace"
    " WHERE q.job = :job AND q.waiting > 0) GROUP BY state"
)
# Served by urls_deferred.
_UNREADABLE = (
    "SELECT count(*) FROM urls WHERE job = ? AND charged IN (0, 1) AND state = 0"
    " AND ready_at > 0 AND ready_at >= 1e17 AND run IS NULL"
)


def read_counts(db: Database, job: int, now: float) -> Counts:
    """The counts of one generation of a job."""
    added, leased, done, failed, dropped, pages, size, seconds = db.one(
        "SELECT added, leased, done, failed, dropped, pages, bytes, seconds FROM jobs WHERE id = ?",
        job,
    )
    hosts = db.execute(_HOSTS, {"job": job, "now": now}).fetchall()
    reasons: dict[str, dict[str, int]] = {}
    for kind, reason, number in db.execute(
        "SELECT kind, reason, count FROM reasons WHERE job = ? ORDER BY kind, reason", (job,)
    ):
        reasons.setdefault(kind, {})[reason] = number
    return Counts(
        waiting=added - leased - done - failed - dropped,
        leased=leased,
        done=done,
        failed=failed,
        dropped=dropped,
        deferred=sum(deferred for _, _, deferred in hosts),
        unreadable=db.one(_UNREADABLE, job)[0],
        added=added,
        pages=pages,
        bytes=size,
        seconds=seconds,
        reasons=reasons,
        hosts={state: number for state, number, _ in hosts},
    )

"""Checks a SQLite frontier's file against itself: what it keeps to be fast must be what its
rows say."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

# A generation that is over is cleared away in steps: only the latest must be in order.
LATEST = "(SELECT max(id) FROM jobs GROUP BY name)"

# Each finds rows that contradict themselves.
CONTRADICTIONS = {
    "a queue's counts": f"""
        SELECT q.id, q.waiting, q.ready, sum(u.state = 0 AND u.run IS NULL) AS waits,
        sum(u.ready_at = 0) AS is_ready FROM queues AS q
        LEFT JOIN urls AS u ON u.queue = q.id AND u.state = 0 WHERE q.job IN {LATEST} GROUP BY q.id
        HAVING q.waiting <> ifnull(waits, 0) OR q.ready <> ifnull(is_ready, 0)""",
    "a queue's head": f"""
        SELECT q.id, q.head, q.head_id, q.retired FROM queues AS q
        WHERE q.job IN {LATEST} AND q.head_id IS NOT (
        SELECT id FROM urls AS u WHERE u.queue = q.id AND state = 0 AND ready_at = 0
        AND (charged = 1 OR NOT q.retired) ORDER BY rank, id LIMIT 1)""",
    "the rank of a queue's head": f"""
        SELECT q.id, q.head, u.rank FROM queues AS q LEFT JOIN urls AS u ON u.id = q.head_id
        WHERE q.job IN {LATEST} AND q.head IS NOT u.rank""",
    "a queue's tie, by age": """
        SELECT id, tie, head_id FROM queues WHERE aged AND head IS NOT NULL AND tie <> head_id""",
    "a queue's tie, by host": """
        SELECT q.id, q.tie, h.touched FROM queues AS q JOIN hosts AS h ON h.id = q.pace
        WHERE NOT aged AND q.job IN (SELECT job FROM runs WHERE ended IS NULL)
        AND q.tie <> h.touched""",
    "when a queue opens": """
        SELECT q.id, q.at, h.next_at, h.held FROM queues AS q JOIN hosts AS h ON h.id = q.pace
        WHERE q.job IN (SELECT job FROM runs WHERE ended IS NULL)
        AND CASE WHEN q.at = 1e18 THEN h.in_flight = 0
        ELSE q.at > 0 AND q.at <> max(h.next_at, h.held) END""",
    "a host's requests in flight": """
        SELECT h.name, h.in_flight FROM hosts AS h WHERE h.in_flight <> (SELECT count(*)
        FROM urls AS u JOIN queues AS q ON q.id = u.queue
        WHERE q.pace = h.id AND u.run IS NOT NULL AND u.in_flight = 1)""",
    "requests in flight that nobody has": "SELECT id FROM urls WHERE in_flight AND run IS NULL",
    "leases of runs that are over": """
        SELECT u.id FROM urls AS u JOIN runs AS r ON r.id = u.run WHERE r.ended IS NOT NULL""",
    "rows of runs that are over": """
        SELECT u.id FROM urls AS u JOIN runs AS r ON r.id = u.owner WHERE r.ended IS NOT NULL""",
    "a job's counts": f"""
        SELECT j.id, j.added, j.leased, sum(u.state = 0) AS open, sum(u.run IS NOT NULL) AS held
        FROM jobs AS j LEFT JOIN urls AS u ON u.job = j.id WHERE j.id IN {LATEST} GROUP BY j.id
        HAVING j.added - j.done - j.failed - j.dropped <> ifnull(open, 0)
        OR j.leased <> ifnull(held, 0)""",
    "a queue without a host": """
        SELECT id FROM queues WHERE pace NOT IN (SELECT id FROM hosts)""",
    "a row without a queue": "SELECT id FROM urls WHERE queue NOT IN (SELECT id FROM queues)",
    "two rows of one key": "SELECT 1 FROM urls GROUP BY job, key, copy HAVING count(*) > 1",
    "two generations at work": """
        SELECT j.name FROM runs AS r JOIN jobs AS j ON j.id = r.job WHERE r.ended IS NULL
        GROUP BY j.name HAVING count(DISTINCT j.id) > 1""",
}


@contextmanager
def look_into(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that leaves the file as it is."""
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        yield connection


def contradictions(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """What is wrong with a frontier, if anything is."""
    with look_into(path) as connection:
        found = {name: connection.execute(sql).fetchall() for name, sql in CONTRADICTIONS.items()}
    return {name: rows for name, rows in found.items() if rows}

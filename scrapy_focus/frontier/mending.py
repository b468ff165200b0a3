"""Rows that no run has written like that: damaged, or changed by hand.

SQLite keeps any value in any column, and damage of a file may look like data. A URL that makes no
sense is set aside when its turn comes; all that a run needs beside it, the small tables and what
they count, is looked at when it opens, and :func:`mend` looks at every row once something there
does not add up, or an error says so. What tells how a crawl stands is then counted or set anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_focus.frontier.contract import ASIDE
from scrapy_focus.frontier.rows import MOST

if TYPE_CHECKING:
    from scrapy_focus.frontier.database import Database

#: What a column may be asked to hold. SQLite puts all numbers before all text, and that before
#: all blobs; what is compared with NULL is NULL. A number that is far from infinite is a time.
_KINDS = {
    "text": "typeof({0}) = 'text' AND is_text(CAST({0} AS BLOB))",
    "blob": "typeof({0}) = 'blob'",
    "flag": "{0} IN (0, 1)",
    "count": f"{{0}} BETWEEN 0 AND {MOST}",
    "whole": "typeof({0}) = 'integer'",
    "number": "{0} BETWEEN -9e999 AND 9e999",
    "time": "{0} BETWEEN -1e300 AND 1e300",
}


def _is(column: str, kind: str) -> str:
    """The condition that a column is of a kind: with a question mark, or empty."""
    sound = f"({_KINDS[kind.rstrip('?')].format(column)})"
    return f"({column} IS NULL OR {sound})" if kind.endswith("?") else sound


# Served by urls_ready.
_OF_URLS = "(SELECT {} FROM urls WHERE queue = queues.id AND state = 0 AND ready_at = 0 LIMIT 1)"
_OPEN = "(SELECT id FROM runs WHERE ended IS NULL)"
_LAST = "(SELECT max(id) FROM jobs)"
_OLDER = (
    "ifnull((SELECT max(generation) FROM jobs AS o WHERE o.name = jobs.name AND o.id < jobs.id), 0)"
)
# It is a part of a file's name.
_TOKEN = (
    f"{_is('token', 'text')} AND length(token) BETWEEN 1 AND 200 AND token NOT GLOB '*[/\\]*'"
    " AND instr(CAST(token AS BLOB), x'00') = 0"
)
# What is ready has a head, unless the share of the host is spent.
_HEAD = f"head IS NULL AND (ready = 0 OR retired = 1) OR ready > 0 AND {_is('head', 'number')}"

#: Rows that are gone, and are counted still.
_GONE = ("gone_done", "gone_failed", "gone_dropped", "gone_pages")

#: For each column its kind, or a condition, and what takes the place of what is not like that.
#: A host whose pace is not known is left alone for its delay once more. What is still not as it
#: must be then, such as a queue of no host, is left out.
_SMALL: dict[str, list[tuple[str, str, str]]] = {
    "jobs": [
        ("name", "text", "'unreadable-' || id"),
        ("generation", "count", f"1 + {_OLDER}"),
        ("policy", "text", "''"),
        ("finished", "number?", "NULL"),
        ("cleared", "flag", "0"),
        *((name, "count", "0") for name in _GONE),
        ("seen_round", "count", "(gone_done + gone_failed + gone_dropped > 0)"),
        ("seen", "text?", "NULL"),
        (
            *("pages", "count"),
            "(gone_pages + (SELECT count(*) FROM urls WHERE job = jobs.id AND charged = 1))",
        ),
        *((name, "count", "0") for name in ("added", "leased", "done", "failed", "dropped")),
        ("bytes", "count", "0"),
        ("seconds", "time", "0"),
    ],
    "runs": [
        ("token", f"ended IS NOT NULL OR {_TOKEN}", "'unreadable-' || id"),
        (
            "job",
            "ended IS NOT NULL OR job IN (SELECT id FROM jobs)",
            f"ifnull((SELECT job FROM urls WHERE run = runs.id), {_LAST})",
        ),
    ],
    "reasons": [("reason", "text", "'unreadable'"), ("count", "count", "0")],
    # Nobody asks for a note of another name, and half of a value is none.
    "notes": [("name", "text", "NULL"), ("value", "blob", "NULL")],
    "hosts": [
        ("name", "text", "(SELECT host FROM queues WHERE pace = hosts.id)"),
        ("delay", "time", "0"),
        ("next_at", "time", ":now + delay"),
        ("held", "number", "0"),  # it may be without end
        ("touched", "time", "0"),
        ("in_flight", "count", "0"),
    ],
    "queues": [
        ("host", "text", "(SELECT name FROM hosts WHERE id = pace)"),
        ("pace", "pace IN (SELECT id FROM hosts)", "(SELECT id FROM hosts WHERE name = host)"),
        ("job", "job IN (SELECT id FROM jobs)", _OF_URLS.format("job")),
        (
            "owner",
            "owner = 0 OR owner IN (SELECT id FROM runs)",
            f"ifnull({_OF_URLS.format('owner')}, 0)",
        ),
        ("share", "text", "''"),
        *((name, "count", "0") for name in ("waiting", "ready", "pages")),
        ("retired", "flag", "0"),
        ("head", _HEAD, "NULL"),
        ("head_id", f"(head IS NULL) = (head_id IS NULL) AND {_is('head_id', 'count?')}", "NULL"),
        ("tie", "number", "0"),
        ("aged", "flag", "0"),
        ("at", "number", ":now"),
    ],
}
_CHECKS = {
    table: [
        (column, f"({_is(column, sound) if sound.rstrip('?') in _KINDS else sound})", value)
        for column, sound, value in columns
    ]
    for table, columns in _SMALL.items()
}
_UNSOUND = {
    table: f"FROM {table} WHERE NOT ifnull({' AND '.join(sound for _, sound, _ in columns)}, 0)"
    for table, columns in _CHECKS.items()
}

#: The columns of a URL, by their kind.
_URL = {
    "blob": ("key",),
    "blob?": ("request",),
    "text": ("url",),
    "text?": ("parent",),
    "flag": ("in_flight", "charged", "seed"),
    "count": ("attempts",),
    "whole": ("copy", "depth"),
    "number": ("rank",),
    "time": ("ready_at", "priority", "discovered"),
    "time?": ("score",),
}
#: A waiting URL that is as it must be.
_SOUND = " AND ".join(
    (
        *(_is(column, kind) for kind, columns in _URL.items() for column in columns),
        f"state IS 0 AND ready_at BETWEEN 0 AND {ASIDE!r}",
        "(run IS NOT NULL OR in_flight = 0)",
    )
)
# What is aside already is not set aside again.
_SET_ASIDE = (
    f"UPDATE urls SET state = 0, ready_at = {ASIDE!r}, run = NULL, in_flight = 0,"
    f" charged = (charged IS 1) WHERE ifnull(state, 0) NOT IN (1, 2, 3) AND NOT ifnull({_SOUND}, 0)"
    f" AND NOT (state IS 0 AND run IS NULL AND in_flight IS 0 AND ready_at IS {ASIDE!r}"
    f" AND {_is('charged', 'flag')})"
)
# A URL of no job is its queue's, else the newest job's to report. One in no queue gets into one of
# a host that no URL has: whoever hands it out will see that.
_LOST = "(queue IS NULL OR queue NOT IN (SELECT id FROM queues))"
_ITS_JOB = "(SELECT job FROM queues WHERE id = queue)"
_FIND_JOB = (
    f"UPDATE OR IGNORE urls SET job = {_ITS_JOB} WHERE NOT {_LOST} AND job IS NOT {_ITS_JOB}"
)
_ANY_JOB = (
    f"UPDATE OR IGNORE urls SET job = {_LAST} WHERE {_LOST}"
    " AND (job IS NULL OR job NOT IN (SELECT id FROM jobs))"
)
_LOST_JOBS = f"SELECT DISTINCT job FROM urls WHERE {_LOST} AND job IN (SELECT id FROM jobs)"
_NO_HOST = "unreadable"
_ADD_HOST = "INSERT OR IGNORE INTO hosts (name) VALUES (?)"
_ADD_QUEUE = (
    "INSERT OR IGNORE INTO queues (job, host, pace) SELECT ?1, name, id FROM hosts WHERE name = ?2"
)
_FIND_QUEUE = (
    "UPDATE urls SET queue = (SELECT id FROM queues WHERE job = ?1 AND host = ?2 AND owner = 0"
    " AND share = '')"
    f" WHERE job = ?1 AND {_LOST}"
)

_WAITING = (
    "SELECT queue, count(*), sum(ready_at = 0) FROM urls WHERE state = 0 AND run IS NULL"
    " GROUP BY queue"
)
# Served by urls_ready.
_BEST = (
    "SELECT rank, id FROM urls WHERE queue = ? AND state = 0 AND ready_at = 0"
    " AND (charged = 1 OR NOT ?) ORDER BY rank, id LIMIT 1"
)
_COUNT = (
    "UPDATE queues SET waiting = ?1, ready = ?2, head = ?3, head_id = ?4 WHERE id = ?5 AND"
    " (waiting <> ?1 OR ready <> ?2 OR head IS NOT ?3 OR head_id IS NOT ?4)"
)
# An old generation is cleared away in steps, so that only the latest adds up.
_LATEST = "SELECT max(id) FROM jobs GROUP BY name"
_STATES = (
    "SELECT job, count(*), sum(state = 0 AND run IS NOT NULL), sum(state = 1), sum(state = 2),"
    f" sum(state = 3) FROM urls WHERE job IN ({_LATEST}) GROUP BY job"
)
# What was shed has left no row.
_SHED = "SELECT count FROM reasons WHERE job = ? AND kind = 'dropped' AND reason = 'shed'"
_ADDED = "?2 + gone_done + gone_failed + gone_dropped"
_COUNT_JOB = (
    f"UPDATE jobs SET added = {_ADDED}, leased = ?3, done = ?4 + gone_done,"
    " failed = ?5 + gone_failed, dropped = ?6 + gone_dropped WHERE id = ?1"
    f" AND (added <> {_ADDED} OR leased <> ?3 OR done <> ?4 + gone_done"
    " OR failed <> ?5 + gone_failed OR dropped <> ?6 + gone_dropped)"
)
# Served by urls_leased.
_NO_RUN = f"run IS NOT NULL AND run NOT IN {_OPEN}"
_TAKE_BACK = f"UPDATE urls SET run = NULL, ready_at = 0, in_flight = 0 WHERE {_NO_RUN}"
# Served by the unique index of queues.
_DIFFER = (
    "FROM jobs AS j LEFT JOIN (SELECT job, sum(waiting) AS waiting FROM queues GROUP BY job) AS q"
    f" ON q.job = j.id WHERE j.id IN ({_LATEST})"
    " AND added - leased - done - failed - dropped <> ifnull(waiting, 0)"
)
# Served by the unique index of queues and by urls_deferred.
_ADDS_UP = (
    "SELECT (SELECT ifnull(sum(waiting - ready), 0) FROM queues WHERE job = ?1) ="
    " (SELECT count(*) FROM urls WHERE job = ?1 AND charged IN (0, 1) AND state = 0"
    " AND ready_at > 0 AND run IS NULL)"
)


def is_sound(db: Database) -> bool:
    """Whether the small tables, and what they count, make sense; without a look at the URLs."""
    wrong = (*_UNSOUND.values(), f"FROM urls WHERE {_NO_RUN}", _DIFFER)
    return not any(db.one(f"SELECT 1 {rest} LIMIT 1") for rest in wrong)


def adds_up(db: Database, job: int) -> bool:
    """Whether all that a job defers can be found."""
    return bool(db.one(_ADDS_UP, job)[0])


def mend(db: Database, now: float) -> tuple[bool, int]:
    """Look at every row. Says whether something was changed, and how many URLs were set aside."""
    before = _changes(db)
    for table, columns in _CHECKS.items():
        for column, sound, value in columns:
            sql = f"UPDATE OR IGNORE {table} SET {column} = {value} WHERE NOT ifnull({sound}, 0)"
            db.execute(sql, {"now": now} if ":now" in sql else {})
        db.execute(f"DELETE {_UNSOUND[table]}")
    db.execute(_FIND_JOB)
    db.execute(_ANY_JOB)
    for (job,) in db.execute(_LOST_JOBS).fetchall():
        db.execute(_ADD_HOST, (_NO_HOST,))
        db.execute(_ADD_QUEUE, (job, _NO_HOST))
        db.execute(_FIND_QUEUE, (job, _NO_HOST))
    db.execute(_TAKE_BACK)
    aside = db.execute(_SET_ASIDE).rowcount
    _count(db)
    return _changes(db) > before, aside


def _changes(db: Database) -> int:
    return int(db.one("SELECT total_changes()")[0])


def _count(db: Database) -> None:
    """Count what waits in each queue, and the rows of each job."""
    waiting = {queue: numbers for queue, *numbers in db.execute(_WAITING).fetchall()}
    for number, retired in db.execute("SELECT id, retired FROM queues").fetchall():
        head = db.one(_BEST, number, retired) or (None, None)
        db.execute(_COUNT, (*waiting.get(number, (0, 0)), *head, number))
    states = {job: numbers for job, *numbers in db.execute(_STATES).fetchall()}
    for (job,) in db.execute(_LATEST).fetchall():
        added, leased, done, failed, dropped = states.get(job, (0, 0, 0, 0, 0))
        shed = (db.one(_SHED, job) or (0,))[0]
        db.execute(_COUNT_JOB, (job, added + shed, leased, done, failed, dropped + shed))

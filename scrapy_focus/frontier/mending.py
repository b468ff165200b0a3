"""Rows that no run has written like that: damaged, or changed by hand.

SQLite keeps any value in any column, and damage of a file may look like data. Such rows are not
looked for on the way in and out, where they would cost every URL. :func:`look_over` looks at the
small tables when a run opens, and :func:`mend` at all rows where something does not add up, or
once an error says so. What tells how a crawl stands is counted or set anew; a URL whose own row
makes no sense is set aside, as it is, for someone to look at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy_focus.frontier.contract import ASIDE

if TYPE_CHECKING:
    from scrapy_focus.frontier.database import Database

#: Larger than every count and far from where whole numbers end.
_MOST = 1 << 53
#: A number of that size is no time.
_NEVER = 1e300


def _number(column: str, least: float = -_NEVER, most: float = _NEVER) -> str:
    return f"(typeof({column}) IN ('integer', 'real') AND {column} BETWEEN {least!r} AND {most!r})"


def _any_number(column: str) -> str:
    return f"(typeof({column}) IN ('integer', 'real'))"


def _whole(column: str, least: int = 0, most: int = _MOST) -> str:
    return f"(typeof({column}) = 'integer' AND {column} BETWEEN {least} AND {most})"


def _text(column: str) -> str:
    return f"(typeof({column}) = 'text' AND is_text(CAST({column} AS BLOB)))"


def _blob(column: str) -> str:
    return f"(typeof({column}) = 'blob')"


def _or_null(column: str, condition: str) -> str:
    return f"({column} IS NULL OR {condition})"


# A run is known by its number, and by a token that is part of a file's name.
_FILE_NAME = (
    "(typeof(token) = 'text' AND length(token) BETWEEN 1 AND 200 AND token NOT GLOB '*[/\\]*'"
    " AND instr(CAST(token AS BLOB), x'00') = 0 AND is_text(CAST(token AS BLOB)))"
)

# Each sets a column anew in the rows that do not have what it needs. A host whose pace is not
# known is left alone for its delay once more; a queue is told by its host. Of a host or a queue
# without a readable name no URL can be fetched: the door compares it with the URL's.
_SMALL: list[tuple[str, str, str, str]] = [
    ("runs", "token", f"ended IS NOT NULL OR {_FILE_NAME}", "'unreadable-' || id"),
    (
        "runs",
        "job",
        "ended IS NOT NULL OR job IN (SELECT id FROM jobs)",
        "ifnull((SELECT job FROM urls WHERE run = runs.id), (SELECT max(id) FROM jobs))",
    ),
    ("jobs", "name", _text("name"), "'unreadable-' || id"),
    ("jobs", "generation", _whole("generation", 1), "id + (SELECT count(*) FROM jobs)"),
    ("jobs", "finished", _or_null("finished", _any_number("finished")), "NULL"),
    ("jobs", "policy", _text("policy"), "''"),
    ("jobs", "cleared", _whole("cleared", 0, 1), "0"),
    ("jobs", "pages", _whole("pages"), "(SELECT sum(charged = 1) FROM urls WHERE job = jobs.id)"),
    ("jobs", "bytes", _whole("bytes"), "0"),
    ("jobs", "seconds", _number("seconds", 0), "0"),
    ("hosts", "delay", _number("delay", 0), "0"),
    ("hosts", "next_at", _number("next_at"), ":now + delay"),
    ("hosts", "held", _any_number("held"), "0"),  # it may be without end
    ("hosts", "touched", _number("touched"), "0"),
    ("hosts", "in_flight", _whole("in_flight"), "0"),
    ("queues", "pages", _whole("pages"), "0"),
    ("queues", "retired", _whole("retired", 0, 1), "0"),
    ("queues", "aged", _whole("aged", 0, 1), "0"),
    ("queues", "waiting", _whole("waiting"), "0"),
    ("queues", "ready", _whole("ready"), "0"),
    ("queues", "at", f"{_any_number('at')} AND at >= 0", ":now"),
    ("queues", "tie", _any_number("tie"), "0"),
]
_SMALL += [
    ("jobs", name, _whole(name), "0") for name in ("added", "leased", "done", "failed", "dropped")
]
# The best row of a queue is counted anew.
_HEAD = f"(head IS NULL AND head_id IS NULL OR {_any_number('head')} AND {_whole('head_id')})"
_SMALL.append(("queues", "head = NULL, head_id", _HEAD, "NULL"))

_UNSOUND = {
    table: f"SELECT 1 FROM {table} WHERE NOT ifnull("
    + " AND ".join(f"({sound})" for of, _, sound, _ in _SMALL if of == table)
    + ", 0) LIMIT 1"
    for table in ("runs", "jobs", "hosts", "queues")
}

# All that a run reads of a URL.
_SOUND = " AND ".join(
    (
        *(_blob("key"), _whole("copy", -(1 << 63), (1 << 63) - 1), _text("url")),
        *(_whole("charged", 0, 1), _whole("attempts"), _any_number("rank"), _whole("depth")),
        *(_number("priority"), _or_null("score", _number("score")), _whole("seed", 0, 1)),
        *(_number("discovered"), _or_null("parent", _text("parent"))),
        *(_or_null("request", _blob("request")), _number("ready_at", 0, ASIDE)),
        _whole("in_flight", 0, 1),
    )
)
_SET_ASIDE = (
    f"UPDATE urls SET ready_at = {ASIDE!r}, run = NULL, in_flight = 0,"
    f" charged = CASE WHEN {_whole('charged', 0, 1)} THEN charged ELSE 0 END"
    f" WHERE state = 0 AND NOT (run IS NULL AND ready_at IS {ASIDE!r}) AND NOT ({_SOUND})"
)
# What no run of ours has leased comes back; a state that there is not is none.
_NO_STATE = (
    f"UPDATE urls SET state = 0, run = NULL, ready_at = {ASIDE!r}, in_flight = 0"
    " WHERE state IS NULL OR state NOT IN (0, 1, 2, 3)"
)
# Served by urls_leased.
_NO_RUN = (
    "UPDATE urls SET run = NULL, ready_at = 0, in_flight = 0 WHERE run IS NOT NULL"
    " AND run NOT IN (SELECT id FROM runs WHERE ended IS NULL)"
)
_NO_FLIGHT = "UPDATE urls SET in_flight = 0 WHERE in_flight IS NOT 0 AND run IS NULL"
_NO_JOB = (
    "UPDATE OR IGNORE urls SET job = (SELECT job FROM queues WHERE id = queue) WHERE queue IN"
    " (SELECT id FROM queues) AND job IS NOT (SELECT job FROM queues WHERE id = queue)"
)
_NO_QUEUE = (
    "SELECT DISTINCT job FROM urls WHERE (queue IS NULL OR queue NOT IN (SELECT id FROM queues))"
    " AND job IN (SELECT id FROM jobs)"
)
_INTO_QUEUE = (
    "UPDATE urls SET queue = (SELECT id FROM queues WHERE job = ?1 AND host = ?2 AND owner = 0)"
    " WHERE job = ?1 AND (queue IS NULL OR queue NOT IN (SELECT id FROM queues))"
)
# Of no job and in no queue: it is the newest job's to report.
_NOWHERE = (
    "UPDATE OR IGNORE urls SET job = (SELECT max(id) FROM jobs) WHERE (queue IS NULL OR"
    " queue NOT IN (SELECT id FROM queues)) AND (job IS NULL OR job NOT IN (SELECT id FROM jobs))"
)
_STRAY_QUEUES = (
    "SELECT id FROM queues WHERE pace IS NULL OR pace NOT IN (SELECT id FROM hosts) OR job IS NULL"
    f" OR job NOT IN (SELECT id FROM jobs) OR NOT {_whole('owner')}"
    " OR owner <> 0 AND owner NOT IN (SELECT id FROM runs)"
)
_PLACE = (
    "SELECT (SELECT id FROM jobs WHERE id = job), (SELECT id FROM hosts WHERE id = pace),"
    f" CASE WHEN {_whole('owner')} AND owner IN (SELECT id FROM runs) THEN owner ELSE 0 END"
    " FROM queues WHERE id = ?"
)
_JOB_OF_URLS = "SELECT job FROM urls WHERE queue = ? AND job IN (SELECT id FROM jobs) LIMIT 1"
_TWIN = (
    "SELECT id FROM queues WHERE job = ?1 AND pace = ?3 AND owner = ?4 AND id <> ?5"
    " AND host = ifnull(?2, (SELECT host FROM queues WHERE id = ?5))"
)
_NAMELESS = f"SELECT id FROM {{table}} WHERE NOT {_text('{column}')}"
_WAITING = (
    "SELECT queue, count(*), sum(ready_at = 0) FROM urls WHERE state = 0 AND run IS NULL"
    " AND queue IN (SELECT id FROM queues) GROUP BY queue"
)
# Served by urls_ready, or by urls_charged.
_BEST = (
    "SELECT rank, id FROM urls WHERE queue = ? AND state = 0 AND ready_at = 0 ORDER BY rank, id"
    " LIMIT 1"
)
_BEST_PAID = (
    "SELECT rank, id FROM urls WHERE job = ? AND queue = ? AND state = 0 AND ready_at = 0"
    " AND charged = 1 ORDER BY rank, id LIMIT 1"
)
_COUNT = (
    "UPDATE queues SET waiting = ?1, ready = ?2, head = ?3, head_id = ?4 WHERE id = ?5 AND"
    " (waiting <> ?1 OR ready <> ?2 OR head IS NOT ?3 OR head_id IS NOT ?4)"
)
# An old generation is cleared away in steps, so that only the latest adds up.
_COUNTED = (
    "SELECT job, count(*), sum(state = 0 AND run IS NOT NULL), sum(state = 1), sum(state = 2),"
    " sum(state = 3) FROM urls WHERE job IN (SELECT max(id) FROM jobs GROUP BY name) GROUP BY job"
)
_COUNT_JOB = (
    "UPDATE jobs SET added = ?2, leased = ?3, done = ?4, failed = ?5, dropped = ?6 WHERE id = ?1"
    " AND (added <> ?2 OR leased <> ?3 OR done <> ?4 OR failed <> ?5 OR dropped <> ?6)"
)
# Served by the unique index of queues and by urls_deferred.
_ADDS_UP = (
    "SELECT j.added - j.leased - j.done - j.failed - j.dropped = q.waiting AND q.lost = 0"
    " AND q.waiting - q.ready = (SELECT count(*) FROM urls WHERE job = j.id AND charged IN (0, 1)"
    " AND state = 0 AND ready_at > 0 AND run IS NULL) FROM jobs AS j,"
    " (SELECT ifnull(sum(waiting), 0) AS waiting, ifnull(sum(ready), 0) AS ready,"
    " ifnull(sum(retired = 0 AND (ready > 0) <> (head IS NOT NULL)), 0) AS lost"
    " FROM queues WHERE job = ?1) AS q WHERE j.id = ?1"
)


def look_over(db: Database, now: float) -> int:
    """Put right what the small tables say, without a look at the URLs. Says how much."""
    changed = 0
    for table, unsound in _UNSOUND.items():
        # One look at a row that is as it should be.
        if db.one(unsound):
            changed += sum(_fix(db, now, *rule) for rule in _SMALL if rule[0] == table)
    changed += sum(_mend_stray(db, number) for (number,) in _all(db, _STRAY_QUEUES))
    return changed + db.execute(_NO_RUN).rowcount


def adds_up(db: Database, job: int) -> bool:
    """Whether the counts of a job's queues and the job's own agree with what waits."""
    return bool(db.one(_ADDS_UP, job)[0])


def mend(db: Database, now: float) -> tuple[int, int]:
    """Look at every row. Says how much was put right, and how many URLs were set aside."""
    changed = look_over(db, now)
    changed += _rename(db, "hosts", "name") + _rename(db, "queues", "host")
    changed += db.execute(_NO_JOB).rowcount + db.execute(_NOWHERE).rowcount
    changed += sum(_gather(db, job) for (job,) in _all(db, _NO_QUEUE))
    aside = db.execute(_NO_STATE).rowcount + db.execute(_SET_ASIDE).rowcount
    changed += aside + db.execute(_NO_FLIGHT).rowcount + _count(db)
    return changed, aside


def is_text(value: Any) -> bool:
    """Whether bytes can be read as text; for use in SQL."""
    try:
        value.decode()
    except (AttributeError, UnicodeDecodeError):
        return False
    return True


def _all(db: Database, sql: str, *values: Any) -> list[Any]:
    return db.execute(sql, values).fetchall()


def _fix(db: Database, now: float, table: str, column: str, sound: str, value: str) -> int:
    sql = f"UPDATE {table} SET {column} = {value} WHERE NOT ifnull({sound}, 0)"
    return db.execute(sql, {"now": now} if ":now" in value else {}).rowcount


def _mend_stray(db: Database, number: int) -> int:
    """A queue without a job takes that of its URLs; one without a pace group gets one that no URL
    has; and what belongs to a run that there never was is for all. It may be another queue then."""
    job, pace, owner = db.one(_PLACE, number)
    name = None
    if job is None:
        job = (db.one(_JOB_OF_URLS, number) or (None,))[0]
    if pace is None:
        name = f"unreadable-{number}"
        db.execute("INSERT OR IGNORE INTO hosts (name) VALUES (?)", (name,))
        pace = db.one("SELECT id FROM hosts WHERE name = ?", name)[0]
    twin = db.one(_TWIN, job, name, pace, owner, number)
    if twin:
        db.execute("UPDATE urls SET queue = ? WHERE queue = ?", (twin[0], number))
    if twin or job is None:
        db.execute("DELETE FROM queues WHERE id = ?", (number,))
    else:
        db.execute(
            "UPDATE queues SET job = ?1, host = coalesce(?2, host, 'unreadable-' || id), pace = ?3,"
            " owner = ?4 WHERE id = ?5",
            (job, name, pace, owner, number),
        )
    return 1


def _gather(db: Database, job: int) -> int:
    """URLs of a job that are in no queue get one, of a host that no URL has."""
    name = "unreadable"
    db.execute("INSERT OR IGNORE INTO hosts (name) VALUES (?)", (name,))
    db.execute(
        "INSERT OR IGNORE INTO queues (job, host, pace) SELECT ?, ?, id FROM hosts WHERE name = ?",
        (job, name, name),
    )
    return db.execute(_INTO_QUEUE, (job, name)).rowcount


def _rename(db: Database, table: str, column: str) -> int:
    """Give rows without a readable name one that no URL has."""
    found = _all(db, _NAMELESS.format(table=table, column=column))
    for (number,) in found:
        name = f"unreadable-{number}"
        if table == "hosts":
            db.execute("UPDATE OR REPLACE queues SET host = ? || id WHERE pace = ?", (name, number))
        db.execute(f"UPDATE OR REPLACE {table} SET {column} = ? WHERE id = ?", (name, number))
    return len(found)


def _count(db: Database) -> int:
    """Count what waits in each queue, and the rows of each job."""
    counts = {queue: (waiting, ready) for queue, waiting, ready in _all(db, _WAITING)}
    changed = 0
    for number, job, retired in _all(
        db, "SELECT id, job, retired FROM queues WHERE job IN (SELECT id FROM jobs)"
    ):
        waiting, ready = counts.get(number, (0, 0))
        head = db.one(_BEST_PAID, job, number) if retired else db.one(_BEST, number)
        values = (waiting, ready, *(head or (None, None)), number)
        changed += db.execute(_COUNT, values).rowcount
    return changed + sum(db.execute(_COUNT_JOB, row).rowcount for row in _all(db, _COUNTED))

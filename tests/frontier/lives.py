"""Scripted lives of a frontier, each in a process that may be killed at any statement.

Every call is noted twice in a file beside the frontier, by one write each: before it is made,
and when it has returned, with what it was asked and what it answered. That is what a test
holds the frontier to afterwards.

``python -m tests.frontier.lives`` reads from its standard input what to run: the name of a
life, its folder, the point to be killed at (0: none), and words: ``full``, if a power cut may
lose nothing, and ``network``, if there is no write-ahead log. It answers with how the process
ended.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from scrapy_focus.candidate import Candidate
from scrapy_focus.frontier import Ending, Lease, Limits, Order, Outcome, database, pruning
from scrapy_focus.frontier.seen import Choice, filters
from scrapy_focus.frontier.seen.rocks import RocksSet
from scrapy_focus.frontier.sqlite import SQLiteFrontier

T0 = 1_000_000.0
#: Gap and cap of each pace group; of the others, none.
PACES = {"b": (5.0, 0), "c": (0.0, 1)}

#: A later version of the schema, as a migration would make it.
LATER = """
CREATE TABLE more (x);
INSERT INTO more VALUES ('a value; with a semicolon');
ALTER TABLE urls ADD COLUMN seen_again INTEGER NOT NULL DEFAULT 0;
UPDATE urls SET seen_again = 1 WHERE state = 1;
CREATE INDEX urls_seen_again ON urls (seen_again) WHERE seen_again;
"""

Event = list[Any]


# Not from .helpers, which needs pytest: what is forked so often had better be small.
def candidate(url: str, **fields: Any) -> Candidate:
    host = url.partition("/")[0]
    return Candidate(url=url, host=host, group=host, key=url.encode(), discovered=T0, **fields)


class Statements:
    """Counts the points before and after each statement of the main thread, and kills the
    process at one of them.

    The point before a statement is the one after the statement before, and counts as one, unless
    something else was done in between that can be seen from outside.
    """

    def __init__(self, folder: Path, fatal: int) -> None:
        self._folder = folder
        self._fatal = fatal
        self._number = 0
        self._seen: object = None

    def _point(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self._number += 1
            if self._number == self._fatal:
                signal.raise_signal(signal.SIGKILL)

    @contextmanager
    def _around(self) -> Iterator[None]:
        # How many files there are (each run has its lock's), and what the calls have noted.
        calls = self._folder / "calls"
        seen = len(list(self._folder.iterdir())), calls.stat().st_size
        if seen != self._seen:
            self._point()
        self._seen = seen
        yield
        self._point()

    def watch_files(self) -> None:
        """Count what is done to the files of a seen set, too."""
        self._wrap(os, "open")
        self._wrap(os, "fsync")
        self._wrap(Path, "replace")
        self._wrap(Path, "unlink")
        self._wrap(RocksSet, "_try")

    def _wrap(self, owner: Any, name: str) -> None:
        call = getattr(owner, name)

        def watched(*arguments: Any, **options: Any) -> Any:
            with self._around():
                return call(*arguments, **options)

        setattr(owner, name, watched)

    def watch(self) -> None:
        """Count those of every connection that is made from now on."""
        around, connect = self._around, sqlite3.connect

        class Connection(sqlite3.Connection):
            def execute(self, *arguments: Any) -> sqlite3.Cursor:
                with around():
                    return super().execute(*arguments)

            def close(self) -> None:
                with around():
                    super().close()

        def watched(*arguments: Any, **options: Any) -> sqlite3.Connection:
            return connect(*arguments, factory=Connection, **options)

        sqlite3.connect = watched  # type: ignore[assignment]


class Life:
    """One run after the other of jobs in one file.

    :param full: as of :class:`SQLiteFrontier`
    """

    def __init__(self, folder: Path, *, full: bool) -> None:
        self._path = folder / "frontier.db"
        self._full = full
        self._log = os.open(folder / "calls", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._events: list[Event] | None = None
        self.now = T0
        self.frontier: SQLiteFrontier
        self._job = ""

    @contextmanager
    def call(self, *, lasting: bool = True) -> Iterator[list[Event]]:
        """Note what is done inside as one call.

        :param lasting: whether it is stored when it has returned
        """
        if self._events is not None:
            yield self._events
            return
        self._events = events = []
        self._note(self.now)
        yield events
        self._events = None
        self._note({"job": self._job, "lasting": lasting, "events": events})

    def _note(self, what: object) -> None:
        os.write(self._log, json.dumps(what).encode() + b"\n")

    @contextmanager
    def transaction(self, *, soon: bool = False, lasting: bool | None = None) -> Iterator[None]:
        lasting = not soon if lasting is None else lasting
        with self.call(lasting=lasting), self.frontier.transaction(soon=soon):
            yield

    def open(self, start: str, job: str = "job", **options: Any) -> None:
        self._job = job
        with self.call() as events:
            self.frontier = SQLiteFrontier(
                self._path,
                job,
                pace=lambda group: PACES.get(group, (0.0, 0)),
                now=self.now,
                full=self._full,
                ahead=0.0,
                **options,
            )
            assert self.frontier.start == start
            events.append(["opened", self.frontier.generation])

    def close(self, *, finished: bool = False) -> None:
        with self.call() as events:
            reason = "finished" if finished else "shutdown"
            self.frontier.close(reason, finished=finished, now=self.now)
            events.append(["closed", finished])

    def add(self, *urls: str, known: int = 0, **fields: Any) -> None:
        """Add URLs, of which the first ones are known."""
        with self.call() as events:
            new = self.frontier.add([candidate(url, **fields) for url in urls], self.now)
            assert new == [False] * known + [True] * (len(urls) - known)
            if not fields.get("volatile"):  # gone with its run
                events.extend(["added", url] for url in urls[known:])
            events.extend(self._shed())

    def lower(self, limit: int) -> bool:
        """Shed so many of what is too much, at most."""
        with self.call() as events:
            more = self.frontier.clear(limit, self.now)
            events.extend(self._shed())
        return more

    def _shed(self) -> list[list[Any]]:
        keys, self.frontier.shed[:] = list(self.frontier.shed), []
        return [["shed", key.decode()] for key in keys]

    def lease(self, limit: int, number: int) -> dict[str, Lease]:
        """Lease so many, and find that so many can be."""
        with self.call() as events:
            leases = self.frontier.lease(limit, self.now, self.now + 3600)
            assert len(leases) == number
            for lease in leases:
                taken = lease.candidate
                events.append(["leased", taken.url, taken.group, lease.turn, lease.prior])
        return {lease.candidate.url: lease for lease in leases}

    def reached(self, lease: Lease) -> None:
        with self.call() as events:
            self.frontier.reached(lease, self.now)
            if lease.gap:
                events.append(["paced", lease.candidate.group, self.now + lease.gap])

    def left(self, lease: Lease, *, size: int = 0) -> None:
        with self.call() as events:
            self.frontier.left(lease, self.now, size=size)
            events.append(["used", size, 0.0])

    def settle(
        self,
        lease: Lease,
        ending: Ending = Ending.DONE,
        *links: str,
        fetched: bool = True,
        reason: str = "",
        ready_at: float = 0.0,
    ) -> None:
        """Settle a lease, with new links that were found on its page."""
        page = lease.candidate
        retry = None
        if ending is Ending.RETRY:
            retry = candidate(page.url, rank=1.0, ready_at=ready_at, priority=3)
        outcome = Outcome(lease, ending, reason, fetched=fetched, size=7, retry=retry)
        with self.call() as events:
            found = [candidate(link) for link in links]
            accepted, new = self.frontier.settle([outcome], found, self.now)
            assert accepted == [True]
            assert all(new)
            if not fetched:
                events.append(["unused", page.url, page.group, lease.turn, lease.prior])
            if ending in (Ending.DONE, Ending.FAILED, Ending.DROPPED):
                events.append(["over", page.url, ending.value, reason])
            events.append(["used", 7, 0.0])
            events.extend(["added", link] for link in links)
            events.extend(self._shed())

    def pace(self, group: str, delay: float) -> None:
        with self.call() as events:
            self.frontier.pace(group, delay, self.now)
            events.append(["paced", group, self.now + delay])
            events.append(["delay", group, delay])

    def hold(self, group: str, until: float) -> None:
        with self.call() as events:
            self.frontier.hold(group, until, self.now)
            events.append(["held", group, until])

    def refuse(self, reason: str, number: int) -> None:
        with self.call() as events:
            self.frontier.count("refused", {reason: number})
            events.append(["refused", reason, number])

    def beat(self, seconds: float) -> None:
        with self.call() as events:
            self.frontier.beat(seconds, self.now)
            events.append(["used", 0, seconds])

    def look(self, action: Callable[[SQLiteFrontier], object]) -> Any:
        """Do something that leaves URLs, hosts and counts as they are."""
        with self.call():
            return action(self.frontier)

    def empty_log(self) -> None:
        """What the thread for checkpoints does when the log has grown."""
        checkpointer = self.frontier._db._checkpointer
        assert checkpointer
        self.look(lambda _: checkpointer._copy())


def later_migrations() -> Callable[[], list[tuple[int, str]]]:
    """The steps of a newer version."""
    steps = database.migrations()
    return lambda: [*steps, (len(steps) + 1, LATER)]


def new(life: Life) -> None:
    """A new file, and two jobs in it."""
    life.open("new", "other")
    life.add("b/0", "e/0", rank=-1.0)
    life.close()
    life.open("new")
    life.add("a/1", "a/2", "a/3", "b/1", "b/2", "c/1", "c/2")
    life.add("a/1", "a/5", known=1, ready_at=T0 + 8)
    life.refuse("depth", 2)
    life.close()


def crawl(life: Life) -> None:
    """Every call once at least, most of them alone."""
    life.open("resumed")
    leases = life.lease(3, 3)
    life.refuse("scope", 1)
    leases |= life.lease(9, 2)
    assert set(leases) == {"a/1", "a/2", "a/3", "b/1", "c/1"}
    for url in ("a/1", "b/1", "c/1"):
        life.reached(leases[url])
    life.left(leases["b/1"], size=100)
    life.settle(leases["a/1"], Ending.DONE, "a/4", "d/1")
    life.settle(leases["b/1"], Ending.RETRY, ready_at=T0 + 4)
    life.settle(leases["c/1"], Ending.FAILED, reason="unreachable")
    life.hold("c", T0 + 50)
    life.pace("a", 2.0)
    life.settle(leases["a/2"], Ending.RELEASED, fetched=False)
    life.look(lambda f: f.renew([leases["a/3"]], T0 + 7200))
    life.look(lambda f: f.rerank(lambda c: float(len(c.url))))
    life.empty_log()
    life.beat(1.5)
    life.now = T0 + 9
    life.look(lambda f: f.touch("a", life.now))
    more = life.lease(3, 3)
    assert set(more) == {"a/2", "b/1", "d/1"}
    life.settle(more["a/2"], Ending.DROPPED, fetched=False, reason="robots")
    life.settle(more["d/1"], Ending.ASIDE, fetched=False)
    life.look(lambda f: f.others(life.now))
    life.look(lambda f: f.next_due(life.now))
    life.look(lambda f: f.counts(life.now))
    life.look(lambda f: f.clear(9, life.now))
    life.settle(leases["a/3"], Ending.DONE, "a/6")
    life.close()


def turns(life: Life) -> None:
    """As the scheduler writes: what a turn of the reactor has brought, in one transaction; and
    what may be lost, a moment later."""
    life.open("resumed", order=Order(ties="age"))
    with life.transaction(soon=True):
        life.add("f/1", "f/2")
    with life.transaction(soon=True):
        leases = life.lease(2, 2)
    with life.transaction(soon=True):
        life.add("f/3")
    with life.transaction():
        life.left(leases["a/1"], size=30)
        life.left(leases["a/2"], size=30)
        life.settle(leases["a/1"], Ending.DONE)
        life.settle(leases["a/2"], Ending.DONE)
        life.add("a/7", "a/8", "f/4")
        leases = life.lease(4, 4)
    for lease in leases.values():
        with life.transaction(soon=True, lasting=lease.gap > 0):
            life.reached(lease)
    with life.transaction(soon=True):
        life.settle(leases["a/3"], Ending.DONE, "a/9")
    with life.transaction(soon=True, lasting=True):
        life.pace("c", 3.0)
    with life.transaction(soon=True):
        life.add("g/1")
    life.close()


def budget(life: Life) -> None:
    """A budget of pages: each that is charged is stored at once."""
    life.open("resumed", limits=Limits(pages=5, pages_per_host=2))
    with life.transaction(soon=True, lasting=True):
        leases = life.lease(9, 4)
    assert set(leases) == {"a/1", "a/2", "b/1", "c/1"}
    life.settle(leases["a/1"], Ending.DROPPED, fetched=False, reason="robots")
    life.settle(leases["c/1"], Ending.RETRY)
    with life.transaction(soon=True, lasting=True):
        leases |= life.lease(9, 2)
    assert set(leases) == {"a/1", "a/2", "a/3", "b/1", "c/1", "c/2"}
    for url in ("a/2", "a/3", "b/1", "c/2"):
        life.settle(leases[url], Ending.DONE, f"{url}/x")
    life.lease(9, 1)
    assert life.frontier.spent() == "max_pages"
    life.close()


def bounded(life: Life) -> None:
    """Less may wait than does: the worst is shed, in steps, and with what is added."""
    life.open("resumed", limits=Limits(waiting=6, waiting_per_host=3))
    while life.lower(1):
        pass
    life.add("d/1", "d/2", rank=-1.0)
    with life.transaction(soon=True):
        life.add("a/9", rank=9.0)
        life.add("d/3", "d/4", rank=-2.0)
    leases = life.lease(2, 2)
    life.settle(leases["d/3"], Ending.DONE, "d/5", "e/1", "e/2", "e/3", "e/4")
    life.settle(leases["d/4"], Ending.RELEASED, fetched=False)
    life.add("f/1")
    life.close()


def dead(life: Life) -> None:
    """Two runs that never end."""
    life.open("resumed", "other")
    life.lease(1, 1)
    life.open("resumed")
    leases = life.lease(4, 4)
    life.reached(leases["a/1"])
    life.left(leases["a/2"])
    life.add("h/1", volatile=True)


def resumed(life: Life) -> None:
    """After runs that were killed."""
    life.now = T0 + 20
    life.open("resumed")
    leases = life.lease(9, 6)
    life.settle(leases["a/1"], Ending.DONE, "i/1")
    life.close()


def again(life: Life) -> None:
    """Started over, to its end, while the generation before is cleared away."""
    life.now = T0 + 20_000
    life.open("restarted", resume=False)
    life.add("a/1", "j/1")
    leases = life.lease(9, 2)
    while life.look(lambda f: f.clear(3, life.now)):
        pass
    for lease in leases.values():
        life.settle(lease)
    life.close(finished=True)
    life.open("restarted")
    life.add("a/1")
    life.close()


def migrated(life: Life) -> None:
    """A newer version comes to a frontier that was killed."""
    database.migrations = later_migrations()
    life.now = T0 + 20
    life.open("resumed")
    life.settle(life.lease(1, 1)["a/1"])
    life.close()


def joined(life: Life) -> None:
    """Beside a run that lives."""
    life.open("joined")
    leases = life.lease(9, 5)
    assert set(leases) == {"a/1", "a/2", "a/3", "b/1", "c/1"}
    with life.transaction(soon=True, lasting=True):
        life.add("k/1")
    life.settle(leases["a/1"], Ending.DONE, "a/4")
    life.settle(leases["c/1"], Ending.RETRY)
    life.pace("a", 3.0)
    life.close()


class Inline(threading.Thread):
    """A thread whose work is done when it has been started."""

    def start(self) -> None:
        self.run()

    def is_alive(self) -> bool:
        return False

    def join(self, timeout: float | None = None) -> None:
        """There is nothing to wait for."""


def _remove_rows(life: Life, name: str) -> None:
    """Rows that are over are removed, in several runs, of which one leaves some to the next."""
    pruning._ROUND, filters._AT_ONCE = 3, 64
    seen = Choice(name, capacity=1)
    for run in range(2):
        life.open("resumed" if run else "new", seen=seen)
        with life.transaction():
            life.add(*(f"a/{run}-{number}" for number in range(5)))
        leases = life.lease(4, 4)
        with life.transaction():
            for number, lease in enumerate(leases.values()):
                ending = Ending.DONE if number else Ending.FAILED
                life.settle(lease, ending, reason="" if number else "timeout")
        for _ in range(7 if run else 6):  # the first leaves some to the second
            life.look(lambda f: f.clear(3, life.now))
        life.close()


def bloom(life: Life) -> None:
    _remove_rows(life, "bloom")


def cuckoo(life: Life) -> None:
    _remove_rows(life, "cuckoo")


def rocksdb(life: Life) -> None:
    _remove_rows(life, "rocksdb")


Script = Callable[[Life], None]

#: Each life that a test runs alone, and the one before it.
LIVES: dict[Script, Script | None] = {
    new: None,
    crawl: new,
    turns: new,
    budget: new,
    bounded: new,
    dead: new,
    resumed: dead,
    again: crawl,
    migrated: dead,
}


def run(name: str, folder: Path, fatal: int, words: str) -> None:
    """Live a life and end, without a word to the store if it was not closed."""
    if "network" in words:
        database._on_network = lambda path: True
    # The same each time: nothing is stored by a thread, and no name is drawn.
    database._LINGER = 3600.0
    calls = folder / "calls"
    numbers = count(calls.stat().st_size if calls.exists() else 0)
    uuid.uuid4 = lambda: uuid.UUID(int=next(numbers), version=4)
    os.getpid = lambda: 1
    statements = Statements(folder, fatal)
    statements.watch()
    life = Life(folder, full="full" in words)
    if "files" in words:
        statements.watch_files()
        pruning.threading = SimpleNamespace(Thread=Inline)  # type: ignore[assignment]
    globals()[name](life)


class Server:
    """Runs lives, each in a process that is forked from one that is warm and has no threads."""

    def __init__(self, environment: Mapping[str, str] = {}) -> None:
        path = os.pathsep.join(p for p in sys.path if p)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.frontier.lives"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path, **environment},
        )

    def run(self, life: Script, folder: Path, fatal: int = 0, words: str = "") -> int:
        """Run a life to its end, or to its death at a point; returns how its process ended."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(f"{life.__name__}\t{folder}\t{fatal}\t{words}\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate(timeout=60)


def serve() -> None:
    gc.freeze()
    for line in sys.stdin:
        name, folder, fatal, words = line.split("\t")
        child = os.fork()
        if not child:
            try:
                run(name, Path(folder), int(fatal), words)
                os._exit(0)
            finally:
                sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
                os._exit(1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    serve()

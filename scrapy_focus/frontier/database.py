"""The connection to a frontier's SQLite file: opening, migrating, transactions, checkpoints."""

from __future__ import annotations

import logging
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from importlib import resources
from pathlib import Path
from typing import Any, NoReturn

from scrapy_focus.exceptions import FocusError, FrontierBusy, FrontierError, FrontierTooNew
from scrapy_focus.frontier.wal import Log, read_log

logger = logging.getLogger(__name__)

#: "focu", in the file's header: says that a SQLite file is a frontier.
APPLICATION_ID = 0x666F6375

#: Seconds that opening waits for another program's lock; no other call waits for one. And how
#: long all calls wait for this connection's own threads, unless it is set otherwise.
_PATIENCE = 5.0

#: Size in bytes past which the WAL is copied back into the file. So few pages more are copied
#: while nothing may be written, unless more are written each time that it is tried.
_WAL_SIZE, _FEW_PAGES, _PASSES = 16_000_000, 512, 5

#: Seconds after which a transaction that lingers is stored at the latest, and how many
#: changes it may gather, since storing them holds the caller.
_LINGER, _MANY = 0.02, 64

#: What a malformed row may raise, wherever it is worked on.
_OF_ROWS = (
    sqlite3.IntegrityError,
    TypeError,
    ValueError,
    OverflowError,
    AttributeError,
    LookupError,
)

#: File systems on which the shared memory that WAL needs does not work between machines.
_NETWORK = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "fuse.sshfs"}


def migrations() -> list[tuple[int, str]]:
    """The numbered steps that make a frontier, each with its SQL."""
    folder = resources.files("scrapy_focus.frontier") / "migrations"
    found = [
        (int(entry.name[:4]), entry.read_text(encoding="utf-8"))
        for entry in folder.iterdir()
        if entry.name.endswith(".sql")
    ]
    return sorted(found)


class Database:
    """One connection. Every statement of the frontier goes through it.

    :param path: the file; made, readable for its owner alone, where it does not exist
    :param full: sync at every commit, so that a power cut loses nothing settled
    :param alone: asked whether no other process wants to write. Then a transaction that may
        be stored soon stays open when it ends, to be stored with the next ones
    :param read_only: look only; never makes or changes the file
    :param immutable: with *read_only*: the file does not change meanwhile, so no lock is
        taken, for which SQLite would need files beside it
    """

    def __init__(
        self,
        path: Path,
        *,
        full: bool = False,
        read_only: bool = False,
        immutable: bool = False,
        alone: Callable[[], bool] = lambda: False,
    ) -> None:
        self.path = path
        self._alone = alone
        #: Called when a transaction has begun, with whether another connection has written
        #: since the last one; before it is stored; and when it is undone.
        self.begun: Callable[[bool], None] = lambda changed: None
        self.storing: Callable[[], None] = lambda: None
        self.undone: Callable[[], None] = lambda: None
        #: Called after an error that rows may have caused; says whether it has put some right.
        self.mended: Callable[[], bool] = lambda: False
        #: Whether the open transaction must be stored when it ends.
        self.urgent = False
        #: Taken by each transaction, and by the thread that stores what lingers.
        self._lock = threading.Lock()
        self._part = _Part(self)
        self._lingering = False
        self._changes = 0
        self._failure: Exception | None = None
        self._depth = 0
        self._undone = False
        self._version = 0
        #: Seconds that a call waits for this connection's own threads.
        self.patience = _PATIENCE
        self._checkpointer: _Checkpointer | None = None
        self._committer: _Committer | None = None
        log = Log() if read_only else read_log(path)
        try:
            self._connection = self._connect(read_only, immutable)
        except sqlite3.Error as error:
            self.fail(error)
        self.execute = self._connection.execute
        self._connection.create_function("is_text", 1, _is_text, deterministic=True)
        if read_only:
            # To look at what cannot be read is what one looks for.
            self._connection.text_factory = lambda data: data.decode(errors="backslashreplace")
        try:
            self._check()
            if not read_only:
                self._prepare(full)
                self._compare(log)
                self._migrate()
        except UnicodeDecodeError:
            self._connection.close()
            # SQLite quotes what it cannot read of a schema, bytes that are no text among it.
            self.fail(sqlite3.DatabaseError("malformed database schema"))
        except sqlite3.Error as error:
            self._connection.close()
            self.fail(error)
        except BaseException:
            self._connection.close()
            raise
        if not read_only:
            self._checkpointer = _Checkpointer(path, self._empty_wal)
            self._committer = _Committer(self._store)

    def _connect(self, read_only: bool, immutable: bool) -> sqlite3.Connection:
        if read_only:
            try:
                found = self.path.is_file()
            except OSError:  # a folder on the way may not be entered
                found = False
            if not found:
                raise FrontierError(f"There is no frontier at {self.path}.")
        else:
            self._make_file()
        mode = f"ro&immutable={int(immutable)}" if read_only else "rw"
        return sqlite3.connect(
            f"{self.path.absolute().as_uri()}?mode={mode}",
            uri=True,
            timeout=_PATIENCE,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )

    def _make_file(self) -> None:
        try:
            # is_dir() of pathlib raises where a folder on the way may not be entered.
            if self.path.is_dir():
                raise FrontierError(f"The frontier's path {self.path} is a folder; name a file.")
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # Private from its first byte on; the -wal and -shm files take over its mode.
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, stat.S_IRUSR | stat.S_IWUSR))
        except OSError as error:
            raise FrontierError(
                f"The frontier {self.path} cannot be written: {error.strerror}. Give write "
                "access to the file and its folder, or name another place in FOCUS_FRONTIER."
            ) from error

    def _check(self) -> None:
        # In this order: another process may be making the frontier at this moment, tables and
        # application id in one transaction.
        tables = self.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        application = self._pragma("application_id")
        if application != APPLICATION_ID and (tables or application):
            raise FrontierError(
                f"{self.path} is a database of another program, not a frontier; name another "
                "file in FOCUS_FRONTIER."
            )
        known = migrations()[-1][0]
        version = self._pragma("user_version")
        if version > known:
            raise FrontierTooNew(
                f"The frontier {self.path} has schema version {version}, and this scrapy_focus "
                f"knows versions up to {known}: it was written by a newer one. Upgrade "
                "scrapy_focus, or name another file in FOCUS_FRONTIER."
            )

    def _prepare(self, full: bool) -> None:
        # Half of SQLite's own: a commit writes whole pages, of which a URL touches a dozen. Of no
        # effect on a frontier that exists.
        self.execute("PRAGMA page_size = 2048")
        journal = "DELETE" if _on_network(self.path) else "WAL"
        self._mode = mode = self._switch(journal)
        if mode != "wal":
            logger.warning(
                "The frontier %s is on a file system that cannot share a write-ahead log, such "
                "as a network drive: it works, slower, and from one machine only.",
                self.path,
            )
        # FULL is not enough without a write-ahead log: the last commit removes a journal, and would
        # be undone where a power cut brings that back. With such a log EXTRA is the same as FULL.
        enough = "NORMAL" if mode == "wal" else "FULL"
        self.execute(f"PRAGMA synchronous = {'EXTRA' if full else enough}")
        # The checkpointer's thread does it: on the reactor's it takes tens of milliseconds.
        self.execute("PRAGMA wal_autocheckpoint = 0")
        self.execute("PRAGMA cache_size = -20000")
        self.execute("PRAGMA temp_store = MEMORY")

    def _compare(self, before: Log) -> None:
        """Say so if a part of the log that was found could not be read."""
        if not before.last or self._mode != "wal":
            return
        _, read, _ = self.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        # Unless another process has begun it anew, or removed it, meanwhile.
        if read < before.last and read_log(self.path) == before:
            logger.error(
                "The write-ahead log of the frontier %s was damaged: what had been stored last, "
                "before the crawl was interrupted, is lost. It goes on from what was stored "
                "before that.",
                self.path,
            )

    def _switch(self, journal: str) -> str:
        # SQLite's own timeout does not count here, and another process may be opening the
        # frontier at this moment.
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                return str(self.execute(f"PRAGMA journal_mode = {journal}").fetchone()[0])
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def _migrate(self) -> None:
        steps = migrations()
        if self._pragma("user_version") == steps[-1][0]:
            return
        self.execute("BEGIN IMMEDIATE")
        try:
            # Read again under the lock: another process may have been faster.
            version = self._pragma("user_version")
            for number, script in steps:
                if number > version:
                    for statement in _statements(script):
                        self.execute(statement)
                    self.execute(f"PRAGMA user_version = {number}")
            self.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            self.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                self.execute("ROLLBACK")
            raise

    def _pragma(self, name: str) -> int:
        return int(self.execute(f"PRAGMA {name}").fetchone()[0])

    @property
    def within(self) -> bool:
        """Whether a transaction is open."""
        return self._depth > 0

    def stop_waiting(self) -> None:
        """From now on a lock that another connection holds is an error at once."""
        self.execute("PRAGMA busy_timeout = 0")

    def take_turn(self) -> None:
        """Keep this connection's own threads off it, until the lock is released.

        :raises scrapy_focus.exceptions.FrontierBusy: if that takes longer than :attr:`patience`
        """
        if not self._lock.acquire(timeout=self.patience):
            raise FrontierBusy(f"The frontier {self.path} is being tidied; try again in a moment.")

    def transaction(self, *, soon: bool = False) -> AbstractContextManager[None]:
        """Write. The outermost one commits, with *soon* a moment later, unless something
        inside is :attr:`urgent`; any error undoes all of it."""
        return self._part if self._depth else _Transaction(self, soon)

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Read: all statements inside see one state, with what this connection has changed."""
        if self._depth:
            yield
            return
        self.take_turn()
        try:
            if self._lingering:
                yield
                return
            self.execute("BEGIN")
            try:
                yield
            finally:
                self.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - raised below
            failed = error
        else:
            return
        finally:
            self._lock.release()
        self.explain(failed)
        raise failed

    def reading(self) -> AbstractContextManager[None]:
        """Read, with the errors of :mod:`scrapy_focus.exceptions`."""
        return _Reading(self)

    def begin(self) -> None:
        """Open a transaction, or go on with the one that lingers."""
        if self._failure:
            error, self._failure = self._failure, None
            raise error
        if self._lingering:
            self.begun(False)
            return
        self.execute("BEGIN IMMEDIATE")
        before, self._version = self._version, self._pragma("data_version")
        self.begun(self._version != before)

    def end(self) -> None:
        """End the open transaction: store it, or let it linger.

        :raises scrapy_focus.exceptions.FrontierError: if a part of it has failed
        """
        if self._undone:
            raise FrontierError(
                f"Nothing was written to the frontier {self.path}: a part of it failed."
            )
        if self.urgent or not self._may_linger():
            self.storing()
            self.execute("COMMIT")
            self._lingering = False
        elif not self._lingering:
            self._lingering = True
            self._changes = self._connection.total_changes
            assert self._committer
            self._committer.start()

    def _may_linger(self) -> bool:
        # Without a write-ahead log a reader can keep a transaction from being stored.
        if self._lingering:
            return self._connection.total_changes - self._changes < _MANY
        return self._mode == "wal" and self._alone()

    def _store(self) -> None:
        with self._lock:
            self._store_lingering()

    def _store_lingering(self) -> None:
        """Store what lingers; a failure is the next transaction's."""
        if not self._lingering:
            return
        try:
            self.storing()
            self.execute("COMMIT")
            self._lingering = False
        except Exception as error:  # noqa: BLE001 - there is nobody here to catch it
            self._failure = error
            self.roll_back()

    def _empty_wal(self) -> None:
        """Copy the rest of the WAL, and empty it. Done by another connection it would make this
        one forget all that it has read."""
        with self._lock:
            self._store_lingering()
            _checkpoint(self._connection, "TRUNCATE")

    def roll_back(self) -> None:
        """Undo the open transaction, with what lingers in it; a full disk may have done so by
        itself."""
        self._lingering = False
        with suppress(sqlite3.Error):
            self.execute("ROLLBACK")
        self.undone()

    def one(self, sql: str, *values: Any) -> Any:
        """The first row of a query, or ``None``."""
        return self.execute(sql, values).fetchone()

    def insert(self, sql: str, *values: Any) -> int:
        """Insert a row; returns its number."""
        number = self.execute(sql, values).lastrowid
        assert number is not None
        return number

    def ask(self, sql: str, *values: Any) -> Any:
        """:meth:`one` for a question that may stand outside of transactions."""
        if self._depth:
            return self.one(sql, *values)
        self.take_turn()
        try:
            with self.reading():
                return self.one(sql, *values)
        finally:
            self._lock.release()

    def explain(self, error: BaseException) -> None:
        """Raise what an error means here, after what it has ended, unless it is another's.

        :raises scrapy_focus.exceptions.FrontierError: also if malformed rows were its reason,
            which have been put right or set aside
        """
        reason = error.__cause__ if isinstance(error, FrontierError) else error
        if is_of_rows(reason):
            if self.mended():
                raise FrontierError(
                    f"Rows of the frontier {self.path} made no sense; they have been put right or "
                    "set aside. Run again: the crawl goes on where it was."
                ) from reason
            logger.debug("What could not be done with a row", exc_info=reason)
        if not isinstance(error, FocusError) and (
            isinstance(error, sqlite3.Error) or is_of_rows(error)
        ):
            self.fail(error)

    def fail(self, error: BaseException) -> NoReturn:
        """Raise what an error means here."""
        text = _in_a_line(error)
        # Not by what it quotes of a row.
        kind = "" if is_of_rows(error) else text
        if "locked" in kind or "busy" in kind:
            raise FrontierBusy(
                f"The frontier {self.path} is locked by another program; try again when it "
                "has finished."
            ) from error
        if "not a database" in kind or "malformed" in kind or "file is encrypted" in kind:
            what = "is damaged, or not a SQLite database. Restore it from a copy, or name another"
            raise FrontierError(
                f"The frontier {self.path} {what} file in FOCUS_FRONTIER."
            ) from error
        if "full" in kind:
            raise FrontierError(
                f"There is no room left on the disk of the frontier {self.path}. Make room and "
                "run again: the crawl goes on where it was."
            ) from error
        raise FrontierError(f"The frontier {self.path} cannot be used: {text}.") from error

    def close(self) -> None:
        """Close the connection; the last one of a file also empties the WAL."""
        for thread in (self._checkpointer, self._committer):
            if thread:
                thread.stop()
        self._store()
        with suppress(sqlite3.Error):
            self._connection.close()


# Classes, since a crawl enters some of these a dozen times a page, and the generators of
# contextlib would take as long as the statements inside.


class _Reading(AbstractContextManager[None]):
    """Translates the driver's errors."""

    __slots__ = ("_db",)

    def __init__(self, db: Database) -> None:
        self._db = db

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # SQLite's own message may quote what is no text.
        if isinstance(error, (sqlite3.Error, UnicodeDecodeError)):
            self._db.fail(error)


class _Part(_Reading):
    """A transaction inside another one."""

    __slots__ = ()

    def __enter__(self) -> None:
        self._db._depth += 1

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._db._depth -= 1
        if error is not None:
            # Whoever catches this must not make the outer transaction store one half of it.
            self._db._undone = True
            super().__exit__(kind, error, trace)


class _Transaction(_Reading):
    """The outermost transaction."""

    __slots__ = ("_soon",)

    def __init__(self, db: Database, soon: bool) -> None:
        super().__init__(db)
        self._soon = soon

    def __enter__(self) -> None:
        db = self._db
        db.take_turn()
        db._depth, db._undone = 1, False
        db.urgent = not self._soon
        try:
            db.begin()
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        db, failed = self._db, error
        try:
            if error is None:
                db.end()
                return
        except BaseException as ended:  # noqa: BLE001 - raised below
            failed = ended
        finally:
            if failed is not None:
                db.roll_back()
            db._depth = 0
            db._lock.release()
        assert failed is not None
        db.explain(failed)
        if error is None:
            raise failed


class _Committer:
    """Stores what lingers, a moment after it began to, on a thread of its own: whoever uses
    the frontier may never call again."""

    def __init__(self, store: Callable[[], None]) -> None:
        self._store = store
        self._begun = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """A transaction has begun to linger."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="focus-commit", daemon=True)
            self._thread.start()
        self._begun.set()

    def _run(self) -> None:
        while self._begun.wait() and not self._stopped.is_set():
            self._begun.clear()
            self._stopped.wait(_LINGER)
            self._store()

    def stop(self) -> None:
        self._stopped.set()
        self._begun.set()
        if self._thread:
            self._thread.join()


class _Checkpointer:
    """Copies the WAL back into the file and empties it, on a thread of its own.

    A PASSIVE checkpoint waits for nobody and makes nobody wait, but while it copies more is
    written. So it is tried again at once, with less to do each time, and the rest is copied
    while no transaction may begin. Only then can the WAL be emptied: not by whoever writes
    next, since of a large one that takes tens of milliseconds.

    :param empty: empties the WAL, while no transaction may begin
    """

    def __init__(self, path: Path, empty: Callable[[], None]) -> None:
        self._path = path
        self._empty = empty
        self._wal = Path(f"{path}-wal")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="focus-checkpoint", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.5):
            try:
                if self._wal.stat().st_size >= _WAL_SIZE:
                    self._copy()
            except (OSError, sqlite3.Error):
                # Gone, full or locked: the crawl's own writes report what is wrong.
                continue

    def _copy(self) -> None:
        connection = sqlite3.connect(self._path, isolation_level=None, timeout=0)
        try:
            pages = 0
            for _ in range(_PASSES):
                before, pages = pages, _checkpoint(connection, "PASSIVE")
                if pages - before <= _FEW_PAGES:
                    break
        finally:
            connection.close()
        self._empty()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def _checkpoint(connection: sqlite3.Connection, mode: str) -> int:
    """Copy what can be copied. Says how many pages the WAL held when that began."""
    _, pages, _ = connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
    return int(pages)


def is_of_rows(error: BaseException | None) -> bool:
    """Whether an error may come from what a row holds, and not from the file or its locks."""
    return isinstance(error, _OF_ROWS) or is_no_text(error)


def is_no_text(error: BaseException | None) -> bool:
    """Whether SQLite has found bytes where text should be."""
    return isinstance(error, sqlite3.OperationalError) and str(error).startswith("Could not decode")


def _is_text(value: Any) -> bool:
    """Whether bytes can be read as text; for use in SQL."""
    try:
        value.decode()
    except (AttributeError, UnicodeDecodeError):
        return False
    return True


def _in_a_line(error: BaseException) -> str:
    """An error's text as a log may show it, without a full stop."""
    text = str(error).rstrip(".")
    if not isinstance(error, sqlite3.Error):
        text = f"{type(error).__name__}: {text}"
    return "".join(c if c.isprintable() else "?" for c in text[:200])


def _statements(script: str) -> Iterator[str]:
    pending = ""
    for part in script.split(";")[:-1]:
        pending += f"{part};"
        if sqlite3.complete_statement(pending):  # not within a string or a comment
            yield pending
            pending = ""


def _on_network(path: Path) -> bool:
    """Whether the file lies on a network file system, as far as Linux tells."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    place = str(path.absolute())
    best, kind = "", ""
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        point = left.split()[4].encode().decode("unicode_escape")
        inside = place.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, right.split()[0]
    return kind in _NETWORK

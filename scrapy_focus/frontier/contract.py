"""What every frontier promises. One object is one run's view of one job.

The contract is synchronous, and the time is always an argument: Unix time in
seconds. Nothing here sleeps, waits for a lock or reads a clock.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from scrapy_focus.candidate import Candidate

#: ``ready_at`` of a row that this run cannot read: set aside until the next run opens.
ASIDE = 1e17

#: Given a pace group, the gap in seconds that this job wants after the next request to
#: it, and how many requests it may have in flight there (0: no limit).
Pace = Callable[[str], tuple[float, int]]


@dataclass(frozen=True, slots=True)
class Limits:
    """The job's budget; 0 means none."""

    pages: int = 0
    pages_per_host: int = 0
    bytes: int = 0
    seconds: float = 0.0
    #: URLs that wait, in all and of each host.
    waiting: int = 0
    waiting_per_host: int = 0
    #: Pages of each host by what else has a share of them (the candidate says); 0 is a limit here.
    pages_per_share: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Order:
    """How a policy wants equal ranks told apart, and whether it wants ranks at all."""

    #: ``host``: the least recently touched host first, within a host the oldest URL;
    #: ``age``: the oldest URL first, whatever its host.
    ties: Literal["host", "age"] = "host"
    #: Every waiting URL of a ready host equally likely at each lease.
    uniform: bool = False


class Ending(Enum):
    """How a lease can end."""

    #: The callback or errback has finished, or the page redirected.
    DONE = "done"
    #: Given up after its retries.
    FAILED = "failed"
    #: Removed unfetched.
    DROPPED = "dropped"
    #: Another attempt of the same row follows.
    RETRY = "retry"
    #: Given back as it was.
    RELEASED = "released"
    #: This run cannot read it; the next one may.
    ASIDE = "aside"


@dataclass(slots=True)
class Lease:
    """A URL that was handed out, and what its report must carry."""

    id: int
    #: The attempt number; a report with an older one is refused.
    fence: int
    candidate: Candidate
    #: When the lease ends (Unix time, seconds) unless it is renewed.
    until: float
    #: Seconds that must lie between this request and the next to its pace group.
    gap: float
    #: The host's ``next_at`` that this lease set, and the one before it.
    turn: float
    prior: float


@dataclass(slots=True)
class Outcome:
    """The report on a lease."""

    lease: Lease
    ending: Ending
    #: Counted with failed and dropped rows.
    reason: str = ""
    #: Whether anything was asked of the host. If not, the turn is given back to the
    #: host, and the page to the budget: unless it is done all the same (a cache
    #: answered), or an earlier attempt was charged.
    fetched: bool = True
    #: Bytes received, without those that :meth:`Frontier.left` has reported.
    size: int = 0
    #: The next attempt, with :attr:`Ending.RETRY`.
    retry: Candidate | None = None


@dataclass(slots=True)
class Counts:
    """Where the job's rows are. ``added`` is the sum of the first five."""

    waiting: int = 0
    leased: int = 0
    done: int = 0
    failed: int = 0
    dropped: int = 0
    #: Rows that wait for a time of their own; part of ``waiting``.
    deferred: int = 0
    #: Rows that this run cannot read; part of ``deferred``.
    unreadable: int = 0
    added: int = 0
    pages: int = 0
    bytes: int = 0
    seconds: float = 0.0
    #: By kind (``failed``, ``dropped``, ``refused``), then by reason.
    reasons: dict[str, dict[str, int]] = field(default_factory=dict)
    #: Hosts with waiting rows, by state: ready, cooling, busy, held, retired (its share of the
    #: budget is spent), capped (those of its paths are).
    hosts: dict[str, int] = field(default_factory=dict)


class Frontier(ABC):
    """A job's URLs and the hosts that they live on.

    Every method that writes may raise :exc:`~scrapy_focus.exceptions.FrontierBusy`
    (nothing was changed: call again later) or
    :exc:`~scrapy_focus.exceptions.FrontierError` (the store is in trouble: nothing was
    changed, and what was to be stored soon is lost as well).
    """

    #: How this run found the job: ``new``, ``resumed``, ``joined`` or ``restarted``.
    start: str = "new"
    #: Number of the job's generation, from 1.
    generation: int = 1
    #: What the store is, for the log; never with credentials.
    name: str = ""
    #: How many rows this run has set aside by itself: what they hold is malformed.
    aside: int = 0

    def __init__(self) -> None:
        #: Keys of what this run has shed, for the caller to take out.
        self.shed: list[bytes] = []

    @property
    def prunes(self) -> bool:
        """Whether :meth:`clear` also removes rows that are over, so that more comes to do."""
        return False

    @abstractmethod
    def transaction(self, *, soon: bool = False) -> AbstractContextManager[None]:
        """All calls inside are stored together or not at all.

        With *soon* they may be stored some 20 milliseconds later, together with what follows:
        at the latest with the next transaction without it. A process that is killed before
        loses them, and so does an error in a later call. What must not be lost is stored at
        once all the same: a host's turn, a hold, a page that was charged to a limit.
        """

    @abstractmethod
    def seen(self, key: bytes) -> bool:
        """Whether a row with this key is stored, whatever its copy or state."""

    @abstractmethod
    def add(self, candidates: Sequence[Candidate], now: float) -> list[bool]:
        """Store what is new: exactly one row for each (key, copy), and none for copy 0
        where the key is known under any copy. Says for each whether it was new.

        If more waits then than :class:`Limits` allow, the rows with the worst ranks are shed, among
        equals the latest: removed as if they had never been found, and counted as dropped. Not
        start requests, what was handed out before or is paid for, volatile and unreadable rows.
        """

    @abstractmethod
    def lease(self, limit: int, now: float, until: float) -> list[Lease]:
        """Hand out up to *limit* URLs, best first, of hosts that may be touched now.

        Choosing and claiming are one act. It charges the budget, takes the host's turn
        and holds each row until *until*. Leases of other runs that have ended by *now*
        come back first.
        """

    @abstractmethod
    def settle(
        self, outcomes: Sequence[Outcome], candidates: Sequence[Candidate], now: float
    ) -> tuple[list[bool], list[bool]]:
        """Report how leases ended and add what was found meanwhile, in one transaction.

        :return: for each outcome whether it was accepted (a stale one changes nothing),
            and for each candidate whether it was new.
        """

    @abstractmethod
    def reached(self, lease: Lease, now: float) -> float:
        """The request reached the downloader. Says when it may be sent: now, or, if its turn is
        over and another run has taken the host's since, at the next one, which it takes. The
        host's ``next_at`` is at least ``lease.gap`` later."""

    @abstractmethod
    def left(self, lease: Lease, now: float, *, fetched: bool = True, size: int = 0) -> None:
        """The request takes no place in its host's allowance any more, and *size* bytes
        were received, which the outcome leaves out then. With ``fetched=False`` the host's
        turn is given back. The second call changes nothing."""

    @abstractmethod
    def renew(self, leases: Iterable[Lease], until: float) -> None:
        """Hold these leases until *until*. Of one that was lost ``until`` stays as it was."""

    @abstractmethod
    def pace(self, group: str, delay: float, now: float) -> None:
        """Record that the host itself asks for *delay* seconds between requests. A
        lease then waits for the longer of that and what the job wants. ``next_at``
        moves forward to *now* + *delay*, never back."""

    @abstractmethod
    def hold(self, group: str, until: float, now: float) -> None:
        """Leave the host alone until *until*; a shorter hold does not shorten it."""

    @abstractmethod
    def touch(self, group: str, now: float) -> None:
        """Look again whether the host may be touched: the job's own limit on requests in
        flight has changed."""

    @abstractmethod
    def next_due(self, now: float) -> float | None:
        """When the next lease can succeed (at most *now*: at once), or ``None`` if never.
        A busy host is due when its request leaves, which is no time: it is not counted."""

    @abstractmethod
    def spent(self) -> str | None:
        """Which part of the job's budget is spent (``max_pages``, ``max_bytes`` or
        ``max_seconds``), as of the last write, or ``None``."""

    @abstractmethod
    def others(self, now: float) -> bool:
        """Whether a live run other than this one holds leases of the job. Leases of dead
        runs are taken back on the way."""

    @abstractmethod
    def count(self, kind: str, reasons: Mapping[str, int]) -> None:
        """Add to the job's counters, e.g. what was refused at the door."""

    @abstractmethod
    def note(self, name: str, value: bytes) -> None:
        """Keep *value* with the job until it is started over, in place of what is kept under
        this name. All runs of the job have the same notes. It is written as a whole: some
        kilobytes are fine, megabytes are not."""

    @abstractmethod
    def noted(self, name: str) -> bytes | None:
        """What the job keeps under a name, or ``None``. Within a transaction no other run
        changes it until that has ended."""

    @abstractmethod
    def beat(self, seconds: float, now: float) -> None:
        """Add *seconds* of crawling to what the job has used."""

    @abstractmethod
    def clear(self, limit: int, now: float) -> bool:
        """Remove up to *limit* rows: of generations that are over, of what is too much since a
        limit was lowered, and of URLs that are over whose keys a seen set has stored. Says whether
        there may be more to do at once."""

    @abstractmethod
    def counts(self, now: float) -> Counts:
        """Where the job's rows are."""

    @abstractmethod
    def rerank(self, rank: Callable[[Candidate], float]) -> int:
        """Give every waiting row its rank anew; says how many there are."""

    @abstractmethod
    def close(self, reason: str, *, finished: bool, now: float) -> None:
        """Give back the run's leases, forget its volatile rows and end it. ``finished``
        says that the job has nothing left to do: the next start is a new generation."""

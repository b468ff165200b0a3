"""What a call of the SQLite store costs: query plans, and the work that SQLite does."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from scrapy_focus.frontier import (
    Ending,
    Lease,
    Limits,
    Order,
    Outcome,
    bounds,
    choosing,
    jobs,
    ledger,
    rows,
    sqlite,
)
from scrapy_focus.frontier.sqlite import SQLiteFrontier

from .helpers import LONG, T0, Paces, SQLiteStore, candidate, end, offer, take, take_urls

#: Every statement of the hot path, the index that serves it, and how far that goes.
#: PK: by the row's number.
PK = "USING INTEGER PRIMARY KEY (rowid=?)"
INDEXES = {
    (sqlite, "_SEEN"): "urls USING COVERING INDEX urls_key (job=? AND key=?)",
    (rows, "_FIND_QUEUE"): "q USING INDEX sqlite_autoindex_queues_1"
    " (job=? AND host=? AND pace=? AND owner=? AND share=?)",
    (sqlite, "_NOTED"): "notes USING PRIMARY KEY (job=? AND name=?)",
    (sqlite, "_CLAIM"): f"urls {PK}",
    (sqlite, "_LEASED"): f"urls {PK}",
    (sqlite, "_SETTLE"): f"urls {PK}",
    (sqlite, "_GIVE_BACK"): f"urls {PK}",
    (sqlite, "_CHANGE"): f"urls {PK}",
    (sqlite, "_LEAVE"): f"urls {PK}",
    (sqlite, "_RENEW"): f"urls {PK}",
    (sqlite, "_SOME"): "urls USING INTEGER PRIMARY KEY (rowid>?)",
    (jobs, "_LOOK"): "queues USING INDEX sqlite_autoindex_queues_1 (job=?)",
    (jobs, "_READ_AGAIN"): "urls USING INDEX urls_deferred (job=? AND charged=? AND ready_at>?)",
    (choosing, "_BEST"): "queues USING INDEX queues_open (job=? AND owner=? AND head>?)",
    (choosing, "_NTH"): "urls USING COVERING INDEX urls_ready (queue=?)",
    (choosing, "_COUNT_CHARGED"): "urls USING INDEX urls_charged (job=? AND queue=?)",
    (choosing, "_NTH_CHARGED"): "urls USING INDEX urls_charged (job=? AND queue=?)",
    (choosing, "_DUE"): "urls USING INDEX urls_deferred"
    " (job=? AND charged=? AND ready_at>? AND ready_at<?)",
    (choosing, "_MAKE_READY"): f"urls {PK}",
    (choosing, "_COOLED"): "queues USING INDEX queues_cooling (job=? AND at>? AND at<?)",
    (choosing, "_FIRST_OPENING"): "queues USING INDEX queues_cooling (job=? AND at>?)",
    (choosing, "_FIRST_DUE"): "urls USING INDEX urls_deferred"
    " (job=? AND charged=? AND ready_at>? AND ready_at<?)",
    (choosing, "_NEXT_OPENING"): "queues USING INDEX queues_cooling (job=? AND at>? AND at<?)",
    (choosing, "_NEXT_READY"): "u USING INDEX urls_deferred"
    " (job=? AND charged=? AND ready_at>? AND ready_at<?)",
    (choosing, "_NEXT_END"): "u USING COVERING INDEX urls_leased (run=?)",
    (rows, "_LOAD_QUEUE"): f"q {PK}",
    (rows, "_SAVE_QUEUE"): f"queues {PK}",
    (rows, "_LOAD_HOST"): f"hosts {PK}",
    (rows, "_SAVE_HOST"): f"hosts {PK}",
    (rows, "_LOAD_QUEUES"): f"q {PK}",
    (rows, "_LOAD_URL"): f"u {PK}",
    (rows, "_QUEUES_OF"): "queues USING COVERING INDEX queues_pace (pace=? AND job=?)",
    (rows, "_HEAD"): "urls USING COVERING INDEX urls_ready (queue=? AND rank>? AND rank<?)",
    (rows, "_FIRST"): "u USING INDEX urls_ready (queue=? AND rank>? AND rank<?)",
    (
        rows,
        "_CHARGED_HEAD",
    ): "urls USING INDEX urls_charged (job=? AND queue=? AND rank>? AND rank<?)",
    (ledger, "_TOTALS"): f"r {PK}",
    (ledger, "_ADD"): f"jobs {PK}",
    (ledger, "_HOST_PAGES"): "queues USING INDEX sqlite_autoindex_queues_1 (job=? AND host=?)",
    (ledger, "_SHARE_PAGES"): "queues USING INDEX sqlite_autoindex_queues_1 (job=? AND host=?)",
    (sqlite, "_SOME_OF_ALL"): "urls USING INTEGER PRIMARY KEY (rowid>?)",
    (ledger, "_HOST_QUEUES"): "queues USING COVERING INDEX sqlite_autoindex_queues_1"
    " (job=? AND host=?)",
    (ledger, "_WAITING"): f"jobs {PK}",
    (bounds, "_WORST"): "urls USING INDEX urls_worst (job=? AND rank>? AND rank<?)",
    (bounds, "_WORST_OF_QUEUE"): "urls USING INDEX urls_worst_of_queue"
    " (queue=? AND rank>? AND rank<?)",
    (bounds, "_REMOVE"): f"urls {PK}",
    (bounds, "_QUEUES_OF"): "queues USING INDEX sqlite_autoindex_queues_1 (job=? AND host=?)",
    (jobs, "_LEASED_BY"): "u USING INDEX urls_leased (run=?)",
    (jobs, "_ENDED"): "u USING INDEX urls_leased (run=? AND ready_at<?)",
    (jobs, "_FREE"): f"urls {PK}",
    (jobs, "_OTHERS"): "u USING COVERING INDEX urls_leased (run=?)",
    (jobs, "_KEPT_BUSY"): "ours USING INDEX queues_pace (pace=? AND job=?)",
    (jobs, "_CLEAR_URLS"): "urls USING COVERING INDEX urls_key (job=?)",
    (jobs, "_CLEAR_QUEUES"): "queues USING COVERING INDEX sqlite_autoindex_queues_1 (job=?)",
    (jobs, "_CLEAR_HOSTS"): "hosts USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
}
#: These look at all entries of a small index, or of all queues that are open, and sort.
SORTED = {
    (choosing, "_PAID"): "u USING INDEX urls_charged (job=?)",
    (choosing, "_OPEN"): "queues USING INDEX queues_open (job=? AND owner=? AND head>?)",
}
LARGE = re.compile(r"^SCAN (urls|queues|hosts|jobs|u|q|h|ours|theirs)\b")


class Plans(SQLiteStore):
    def plan(self, frontier: SQLiteFrontier, sql: str, *values: Any) -> list[str]:
        """SQLite's plan, one line a step; parameters as they are when it runs."""
        if not values:
            numbered = [int(number) for number in re.findall(r"\?(\d)", sql)]
            values = (1,) * (max(numbered, default=0) or sql.count("?"))
        found = frontier._db._connection.execute(f"EXPLAIN QUERY PLAN {sql}", values)
        return [detail for *_, detail in found]


class TestPlans(Plans):
    """``EXPLAIN QUERY PLAN``."""

    @pytest.mark.parametrize(
        ("module", "name"), [*INDEXES, *SORTED], ids=lambda value: getattr(value, "__name__", value)
    )
    def test_the_index_that_serves_it(self, module: Any, name: str) -> None:
        frontier = self.open(limits=Limits(waiting=9, waiting_per_host=9))
        plan = self.plan(frontier, getattr(module, name))
        expected = {**INDEXES, **SORTED}[module, name]
        assert f"SEARCH {expected}" in plan
        assert not [step for step in plan if LARGE.match(step)]
        if (module, name) not in SORTED:
            assert not [step for step in plan if "TEMP B-TREE" in step]

    @pytest.mark.parametrize(
        "order", [Order(), Order(ties="age"), Order(uniform=True)], ids=["host", "age", "uniform"]
    )
    @pytest.mark.parametrize(
        "limits",
        [
            Limits(),
            Limits(pages=6),
            Limits(pages_per_host=2),
            Limits(pages_per_share={"": 3}),
            Limits(waiting=4, waiting_per_host=2),
            Limits(bytes=9**9, seconds=9**9),
        ],
        ids=["none", "pages", "pages_per_host", "pages_per_share", "waiting", "others"],
    )
    def test_whatever_a_crawl_executes(self, order: Order, limits: Limits) -> None:
        """Record all statements of a small crawl of each policy: none scans a table, and
        each is in the table above, or so plain that it needs no index."""
        frontier = self.open(order=order, limits=limits)
        executed: dict[str, Any] = {}
        execute = frontier._db.execute

        def record(sql: str, *values: Any) -> Any:
            executed[sql] = values[0] if values else ()
            return execute(sql, *values)

        frontier._db.execute = record  # type: ignore[method-assign,assignment]
        self.crawl(frontier)
        frontier._db.execute = execute  # type: ignore[method-assign]
        assert len(executed) > 30
        for sql, values in executed.items():
            if sql.startswith(("SELECT", "UPDATE", "DELETE", "INSERT")):
                for step in self.plan(frontier, sql, *values):
                    assert not LARGE.match(step), sql
                    if "TEMP B-TREE" in step:
                        assert sql in [getattr(*place) for place in SORTED], sql

    def crawl(self, frontier: SQLiteFrontier) -> None:
        other = self.open()
        offer(other, "x/1", "x/2")
        other.lease(1, T0, T0 + 1)
        offer(frontier, *(f"{host}/{n}" for host in "abcde" for n in range(4)))
        offer(frontier, "a/0", "b/9", copy=1)
        offer(frontier, "c/9", ready_at=T0 + 1)
        offer(frontier, "d/9", volatile=True)
        frontier.pace("a", 1.0, T0)
        frontier.hold("b", T0 + 1, T0)
        frontier.touch("c", T0)
        for second in range(8):
            now = T0 + second
            frontier.next_due(now)
            frontier.seen(b"a/1")
            for lease, ending in zip(take(frontier, 6, now), Ending, strict=False):
                frontier.reached(lease, now)
                frontier.left(lease, now)
                frontier.renew([lease], now + LONG)
                retry = lease.candidate if ending is Ending.RETRY else None
                outcome = Outcome(lease, ending, fetched=second % 2 == 0, retry=retry)
                frontier.settle([outcome], [candidate(f"a/{second}{ending}")], now)
            frontier.count("refused", {"depth": 1})
            frontier.beat(1.0, now)


class TestWork(Plans):
    """SQLite's virtual machine, counted: a call costs the same in a small frontier and in a
    large one, whatever is cooling."""

    SMALL, LARGE = 1_000, 50_000

    @contextmanager
    def counted(self, frontier: SQLiteFrontier) -> Iterator[list[int]]:
        """The number of instructions that the machine executes meanwhile."""
        steps = [0]

        def count() -> int:
            steps[0] += 1
            return 0

        frontier._db._connection.set_progress_handler(count, 1)
        try:
            yield steps
        finally:
            frontier._db._connection.set_progress_handler(None, 0)

    def filled(self, number: int, **options: Any) -> SQLiteFrontier:
        """A frontier of *number* URLs on a fiftieth of as many hosts."""
        self.path = self.path.with_name(f"{number}-{len(self.opened)}.db")
        frontier = self.open(**options)
        found = [
            candidate(f"{n % (number // 50)}/{n}", rank=float(n * 7919 % 100))
            for n in range(number)
        ]
        with frontier.transaction():
            frontier.add(found, T0)
        return frontier

    def cost(
        self, frontier: SQLiteFrontier, call: Callable[[SQLiteFrontier, int], object]
    ) -> float:
        """Instructions a call, on average over twenty."""
        with self.counted(frontier) as steps:
            for number in range(20):
                call(frontier, number)
        return steps[0] / 20

    def compare(
        self,
        call: Callable[[SQLiteFrontier, int], object],
        prepare: Callable[[SQLiteFrontier], object] = lambda frontier: None,
        large: int = LARGE,
        **options: Any,
    ) -> None:
        costs = []
        for number in (self.SMALL, large):
            frontier = self.filled(number, **options)
            prepare(frontier)
            costs.append(self.cost(frontier, call))
        assert costs[1] <= costs[0] * 1.5, costs
        assert costs[1] < 3000, costs

    @pytest.mark.parametrize("ties", ["host", "age"])
    def test_many_hosts_ready(self, ties: Any) -> None:
        leases: dict[SQLiteFrontier, list[Lease]] = {}

        def step(frontier: SQLiteFrontier, number: int) -> None:
            mine = leases.setdefault(frontier, [])
            offer(frontier, f"{number}/new{number}", f"new{number}/1", f"{number}/{number}")
            assert frontier.seen(f"{number}/new{number}".encode())
            frontier.next_due(T0)
            mine += take(frontier, 1, T0 + number)
            frontier.reached(mine[-1], T0 + number)
            if number % 3 == 2:
                end(frontier, mine.pop(0), now=T0 + number)
                lease = mine.pop()
                end(frontier, lease, Ending.RETRY, retry=lease.candidate, now=T0 + number)

        self.compare(step, order=Order(ties=ties), paces=Paces(1.0, 4))

    def cool(self, frontier: SQLiteFrontier) -> None:
        """Touch every host."""
        while take(frontier, 100):
            pass

    def test_all_hosts_cooling(self) -> None:
        def step(frontier: SQLiteFrontier, number: int) -> None:
            assert take(frontier, 1, T0 + 1) == []
            assert frontier.next_due(T0 + 1) == T0 + 600
            offer(frontier, f"{number}/more{number}", rank=-1.0)

        self.compare(step, self.cool, paces=Paces(600.0))

    def test_many_hosts_open_again(self) -> None:
        """Which of them cool is found without a look at those that do so no more."""

        def prepare(frontier: SQLiteFrontier) -> None:
            for number in range(frontier.counts(T0).added // 50):
                offer(frontier, f"{number}/first", rank=-1.0)
                assert take_urls(frontier, 1, T0 + number / 50) == [f"{number}/first"]

        def step(frontier: SQLiteFrontier, number: int) -> None:
            offer(frontier, f"new{number}/1", rank=-1.0)
            assert take_urls(frontier, 1, T0 + 100 + number / 50) == [f"new{number}/1"]

        self.compare(step, prepare, paces=Paces(1.0))

    def test_all_hosts_busy(self) -> None:
        def step(frontier: SQLiteFrontier, number: int) -> None:
            assert take(frontier, 1, T0 + 1) == []
            assert frontier.next_due(T0 + 1) is None

        self.compare(step, self.cool, paces=Paces(cap=1))

    def test_one_host_ready_behind_many_that_cool(self) -> None:
        def step(frontier: SQLiteFrontier, number: int) -> None:
            assert take(frontier, 1, T0 + 1)[0].candidate.host == "fast"

        def prepare(frontier: SQLiteFrontier) -> None:
            self.cool(frontier)
            self.paces.groups["fast"] = (0.0, 0)
            offer(frontier, *(f"fast/{number}" for number in range(40)), rank=1000.0)

        self.paces.gap = 600.0
        self.compare(step, prepare)

    def test_much_that_is_deferred(self) -> None:
        def prepare(frontier: SQLiteFrontier) -> None:
            number = frontier.counts(T0).added
            found = [candidate(f"later/{n}", ready_at=T0 + 500 + n) for n in range(number)]
            frontier.add(found, T0)
            self.cool(frontier)

        def step(frontier: SQLiteFrontier, number: int) -> None:
            assert take(frontier, 1, T0 + 1) == []
            assert frontier.next_due(T0 + 1) == T0 + 500

        self.compare(step, prepare, paces=Paces(600.0))

    def test_a_spent_budget(self) -> None:
        """What waits behind it is not looked at."""

        def step(frontier: SQLiteFrontier, number: int) -> None:
            leases = take(frontier, 1, T0 + number)
            assert frontier.next_due(T0 + number) is None
            end(frontier, leases, Ending.RETRY, retry=leases[0].candidate)

        self.compare(step, lambda f: end(f, take(f), Ending.RELEASED), limits=Limits(pages=1))

    def test_hosts_that_have_spent_their_share(self) -> None:
        def step(frontier: SQLiteFrontier, number: int) -> None:
            assert take(frontier, 1, T0 + 1) == []
            assert frontier.next_due(T0 + 1) is None

        self.compare(step, self.cool, limits=Limits(pages_per_host=1))

    def test_much_that_is_done(self) -> None:
        def prepare(frontier: SQLiteFrontier) -> None:
            while frontier.counts(T0).waiting > 100:
                end(frontier, take(frontier, 450))

        def step(frontier: SQLiteFrontier, number: int) -> None:
            end(frontier, take(frontier, 1, T0 + number), now=T0 + number)
            frontier.next_due(T0 + number)

        self.compare(step, prepare, large=10_000)

    def test_other_jobs_on_the_same_hosts(self) -> None:
        """A touch of a host concerns the jobs that a run is at, not all that ever were."""
        costs = []
        for number in (1, 60):
            self.path = self.path.with_name(f"jobs-{number}.db")
            for job in range(number):
                other = self.open(f"job{job}")
                offer(other, *(f"a/{n}" for n in range(5)))
                other.close("shutdown", finished=False, now=T0)
            frontier = self.open("mine")
            offer(frontier, *(f"a/{n}" for n in range(40)))
            costs.append(self.cost(frontier, lambda f, n: end(f, take(f, 1, T0 + n))))
        assert costs[1] <= costs[0] * 1.2, costs

    def test_counts(self) -> None:
        """They look at one row a host, however many URLs it has."""
        costs = []
        for number in (10, 1000):
            self.path = self.path.with_name(f"counts-{number}.db")
            frontier = self.open()
            offer(frontier, *(f"{n % 10}/{n}" for n in range(number)))
            costs.append(self.cost(frontier, lambda f, _: f.counts(T0)))
        assert costs[1] <= costs[0] * 1.2, costs

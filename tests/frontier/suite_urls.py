"""The contract, part one: what is stored, and in which order it is handed out."""

from __future__ import annotations

import random

import pytest

from scrapy_focus.candidate import Candidate
from scrapy_focus.frontier import ASIDE, Ending, Order

from .helpers import LONG, T0, Store, candidate, drain, end, offer, take, take_urls, urls


class Adding(Store):
    """``add`` and ``seen``."""

    def test_only_what_is_new_is_stored(self) -> None:
        frontier = self.open()
        assert offer(frontier, "a/1", "a/2", "a/1") == [True, True, False]
        assert offer(frontier, "a/2", "b/1") == [False, True]
        assert frontier.counts(T0).added == 3
        assert sorted(take_urls(frontier)) == ["a/1", "a/2", "b/1"]

    def test_nothing_is_not_much(self) -> None:
        frontier = self.open()
        assert frontier.add([], T0) == []
        assert frontier.settle([], [], T0) == ([], [])
        assert take(frontier) == []
        assert take(frontier, limit=0) == []

    def test_a_key_is_seen_from_then_on(self) -> None:
        frontier = self.open()
        assert not frontier.seen(b"a/1")
        offer(frontier, "a/1")
        assert frontier.seen(b"a/1")
        assert not frontier.seen(b"a/")
        assert not frontier.seen(b"a/11")

    @pytest.mark.parametrize("ending", [Ending.DONE, Ending.FAILED, Ending.DROPPED])
    def test_a_row_stays_seen_however_it_ended(self, ending: Ending) -> None:
        frontier = self.open()
        offer(frontier, "a/1")
        end(frontier, take(frontier), ending)
        assert frontier.seen(b"a/1")
        assert offer(frontier, "a/1") == [False]
        assert drain(frontier) == []

    def test_a_filtered_request_matches_any_copy(self) -> None:
        """A seed with ``dont_filter`` is not fetched again when a page links to it."""
        frontier = self.open()
        assert offer(frontier, "a/1", copy=1) == [True]
        assert frontier.seen(b"a/1")
        assert offer(frontier, "a/1") == [False]

    def test_a_copy_matches_only_itself(self) -> None:
        frontier = self.open()
        assert offer(frontier, "a/1") == [True]
        assert offer(frontier, "a/1", copy=1) == [True]
        assert offer(frontier, "a/1", copy=1) == [False]
        assert offer(frontier, "a/1", copy=2) == [True]
        assert offer(frontier, "a/1", copy=-(2**62)) == [True]
        assert offer(frontier, "a/1", copy=-(2**62)) == [False]
        assert len(take(frontier, 9)) == 4

    def test_keys_are_compared_whole(self) -> None:
        frontier = self.open()
        keys = [b"x" * 40, b"x" * 39 + b"y", b"x" * 39, b"x" * 8, b"", b"\x00", b"\x00y", b"\x00z"]
        assert frontier.add([candidate("a/1", key=key) for key in keys], T0) == [True] * len(keys)
        assert frontier.add([candidate("a/2", key=key) for key in keys], T0) == [False] * len(keys)

    def test_it_comes_back_as_it_was(self) -> None:
        frontier = self.open()
        given = Candidate(
            url="http://www.a.example/x?y=é#z",
            host="www.a.example",
            group="slow",
            key=b"\x00\xff",
            copy=3,
            depth=7,
            parent="http://a.example/",
            seed=True,
            priority=-12,
            score=0.125,
            rank=1.5,
            discovered=T0 - 5,
            request=b"\x00{}",
        )
        frontier.add([given], T0)
        lease = take(frontier)[0]
        given.attempts = 1
        assert lease.candidate == given
        assert lease.fence == 1

    def test_the_store_keeps_its_own(self) -> None:
        """Whoever goes on using a candidate does not change what is stored."""
        frontier = self.open()
        given = candidate("a/1", rank=1.0)
        frontier.add([given], T0)
        given.rank, given.url = 5.0, "b/1"
        end(frontier, first := take(frontier), Ending.RELEASED)
        first[0].candidate.rank = -9.0
        again = take(frontier)[0].candidate
        assert (again.url, again.rank) == ("a/1", 1.0)

    def test_a_deferred_row_waits_for_its_time(self) -> None:
        frontier = self.open()
        offer(frontier, "a/1", ready_at=T0 + 10)
        offer(frontier, "b/1", ready_at=T0 + 5, rank=1.0)
        assert take(frontier, now=T0 + 4.9) == []
        assert frontier.next_due(T0 + 4.9) == T0 + 5
        assert take_urls(frontier, now=T0 + 5) == ["b/1"]
        assert frontier.next_due(T0 + 5) == T0 + 10
        assert take_urls(frontier, now=T0 + 11) == ["a/1"]

    def test_a_time_that_has_passed_defers_nothing(self) -> None:
        frontier = self.open()
        offer(frontier, "a/1", ready_at=T0)
        offer(frontier, "a/2", ready_at=T0 - 1)
        assert frontier.counts(T0).deferred == 0
        assert take_urls(frontier) == ["a/1", "a/2"]


class Ordering(Store):
    """The order of leases."""

    def test_best_rank_first(self) -> None:
        frontier = self.open()
        for url, rank in (("a/1", 2.0), ("b/1", -1.0), ("a/2", 0.5), ("c/1", 1.0), ("a/3", -2.5)):
            offer(frontier, url, rank=rank)
        assert take_urls(frontier) == ["a/3", "b/1", "a/2", "c/1", "a/1"]

    def test_the_order_does_not_depend_on_how_many_are_asked_for(self) -> None:
        found = []
        for limit in (1, 2, 5, 100):
            frontier = self.fresh()
            rng = random.Random(1)
            for number in range(60):
                host = rng.choice("abcde")
                offer(frontier, f"{host}/{number}", rank=float(rng.randrange(4)))
            order = []
            while leases := take(frontier, limit):
                order += urls(leases)
            found.append(order)
        assert found[0] == found[1] == found[2] == found[3]
        assert len(found[0]) == 60

    def test_at_equal_rank_the_least_recently_touched_host_goes_first(self) -> None:
        frontier = self.open()
        offer(frontier, "a/1", "a/2", "a/3", "b/1", "b/2", "c/1")
        found = []
        for second in range(6):
            found += take_urls(frontier, 1, T0 + second)
        assert found == ["a/1", "b/1", "c/1", "a/2", "b/2", "a/3"]

    def test_rank_goes_before_the_host(self) -> None:
        frontier = self.open()
        offer(frontier, "a/1", "a/2", rank=-0.6)
        offer(frontier, "b/1", rank=-0.5)
        assert [take_urls(frontier, 1, T0 + n)[0] for n in range(3)] == ["a/1", "a/2", "b/1"]

    def test_within_a_host_the_oldest_first(self) -> None:
        frontier = self.open()
        offer(frontier, "a/2", "a/1", "a/3")
        assert take_urls(frontier) == ["a/2", "a/1", "a/3"]

    def test_untouched_hosts_are_told_apart_by_their_oldest_url(self) -> None:
        frontier = self.open()
        offer(frontier, "b/9", rank=1.0)
        offer(frontier, "a/1", "b/1")
        assert take_urls(frontier) == ["a/1", "b/1", "b/9"]

    def test_a_better_url_that_comes_late_is_next(self) -> None:
        frontier = self.open()
        offer(frontier, "a/1", "a/2", rank=1.0)
        take(frontier)
        offer(frontier, "a/3", rank=0.0)
        offer(frontier, "b/1", rank=0.5)
        assert take_urls(frontier) == ["a/3", "b/1", "a/2"]

    def test_new_hosts_do_not_keep_an_old_one_waiting_for_good(self) -> None:
        """As long as they are fewer than what is handed out."""
        frontier = self.open()
        offer(frontier, "old/1", rank=0.5)
        offer(frontier, *(f"{number}/1" for number in range(40)))
        served = []
        for step in range(82):
            if step % 2:
                offer(frontier, f"new{step}/1", rank=0.25)
            leases = take(frontier, now=T0 + step)
            end(frontier, leases, now=T0 + step)
            served += urls(leases)
        assert served[:40] == [f"{number}/1" for number in range(40)]
        assert len(served) == 82
        assert "old/1" in served

    def test_by_age_the_oldest_goes_first_whatever_its_host(self) -> None:
        frontier = self.open(order=Order(ties="age"))
        offer(frontier, "a/1", "a/2", "b/1", "a/3", "c/1")
        found = [take_urls(frontier, 1, T0 + n)[0] for n in range(5)]
        assert found == ["a/1", "a/2", "b/1", "a/3", "c/1"]

    def test_by_age_rank_still_goes_first(self) -> None:
        frontier = self.open(order=Order(ties="age"))
        offer(frontier, "a/1", "b/1", rank=1.0)
        offer(frontier, "c/1", "b/2", rank=0.0)
        assert take_urls(frontier) == ["c/1", "b/2", "a/1", "b/1"]

    def test_a_row_that_went_back_keeps_its_age(self) -> None:
        for ties in ("host", "age"):
            frontier = self.fresh(order=Order(ties=ties))
            offer(frontier, "a/1", "a/2", "a/3")
            end(frontier, take(frontier), Ending.RELEASED)
            assert take_urls(frontier) == ["a/1", "a/2", "a/3"]

    def test_uniform_finds_everything_once(self) -> None:
        frontier = self.open(order=Order(uniform=True), rng=random.Random(3))
        wanted = [f"{host}/{number}" for host in "abc" for number in range(10)]
        offer(frontier, *wanted, rank=1.0)
        found = drain(frontier)
        assert found != wanted
        assert sorted(found) == sorted(wanted)

    def test_uniform_is_reproducible_with_a_seed(self) -> None:
        orders = []
        for seed in (1, 1, 2):
            frontier = self.fresh(order=Order(uniform=True), rng=random.Random(seed))
            offer(frontier, *(f"a/{number}" for number in range(20)))
            orders.append(drain(frontier))
        assert orders[0] == orders[1] != orders[2]

    def test_ranks_may_be_anything_that_compares(self) -> None:
        frontier = self.open()
        ranks = [float("inf"), 1e300, 0.0, -0.0, -1e-300, float("-inf"), 3]
        for number, rank in enumerate(ranks):
            offer(frontier, f"a/{number}", rank=rank)
        assert take_urls(frontier) == ["a/5", "a/4", "a/2", "a/3", "a/6", "a/1", "a/0"]

    def test_rerank(self) -> None:
        frontier = self.open()
        offer(frontier, "a/1", "b/2", "a/3", "b/4", rank=0.0)
        offer(frontier, "a/5", rank=0.0, ready_at=T0 + 1)
        offer(frontier, "a/0", rank=-1.0)
        end(frontier, take(frontier))
        seen: list[Candidate] = []

        def rank(found: Candidate) -> float:
            seen.append(found)
            return -float(found.url[-1])

        assert frontier.rerank(rank) == 5
        assert {c.attempts for c in seen} == {0}
        assert sorted(c.url for c in seen) == ["a/1", "a/3", "a/5", "b/2", "b/4"]
        assert take_urls(frontier, now=T0 + 1) == ["a/5", "b/4", "a/3", "b/2", "a/1"]

    def test_rerank_reaches_what_is_leased(self) -> None:
        frontier = self.open()
        offer(frontier, "a/1", "a/2")
        leases = take(frontier)
        frontier.rerank(lambda c: float(c.url == "a/1"))
        end(frontier, leases, Ending.RELEASED)
        assert take_urls(frontier) == ["a/2", "a/1"]

    def test_rerank_by_age(self) -> None:
        frontier = self.open(order=Order(ties="age"))
        offer(frontier, "a/1", "b/1", "b/2", "a/2", rank=2.0)
        frontier.rerank(lambda c: 1.0)
        assert take_urls(frontier) == ["a/1", "b/1", "b/2", "a/2"]


class Waiting(Store):
    """``next_due``."""

    def test_never_where_nothing_waits(self) -> None:
        frontier = self.open()
        assert frontier.next_due(T0) is None
        offer(frontier, "a/1")
        leases = take(frontier)
        assert frontier.next_due(T0) is None
        end(frontier, leases)
        assert frontier.next_due(T0 + LONG) is None

    def test_at_once(self) -> None:
        frontier = self.open()
        offer(frontier, "a/1")
        due = frontier.next_due(T0)
        assert due is not None
        assert due <= T0

    def test_when_the_first_host_opens(self) -> None:
        frontier = self.open()
        self.paces.groups = {"a": (10.0, 0), "b": (7.0, 0), "c": (3.0, 0)}
        offer(frontier, "a/1", "a/2", "b/1", "b/2", "c/1")
        assert len(take(frontier, 3)) == 3
        assert frontier.next_due(T0) == T0 + 7
        assert frontier.next_due(T0 + 6.5) == T0 + 7
        due = frontier.next_due(T0 + 9)
        assert due is not None
        assert due <= T0 + 9

    def test_when_a_row_is_due(self) -> None:
        frontier = self.open()
        self.paces.gap = 10.0
        offer(frontier, "a/1", "a/2")
        take(frontier)
        offer(frontier, "b/1", ready_at=T0 + 4)
        assert frontier.next_due(T0) == T0 + 4

    def test_a_row_that_no_run_can_read_is_not_due(self) -> None:
        frontier = self.open()
        offer(frontier, "a/1")
        end(frontier, take(frontier), Ending.ASIDE, fetched=False)
        assert frontier.next_due(T0) is None
        assert frontier.next_due(ASIDE - 1) is None
        assert take(frontier, now=T0 + 1e9) == []

    def test_a_host_held_without_end_is_not_due(self) -> None:
        frontier = self.open()
        offer(frontier, "a/1")
        frontier.hold("a", float("inf"), T0)
        assert frontier.next_due(T0) is None
        assert take(frontier, now=T0 + 1e9) == []
        assert frontier.counts(T0).hosts == {"held": 1}

    def test_the_lease_agrees(self) -> None:
        """Whenever something is due, leasing then finds it."""
        frontier = self.open()
        rng = random.Random(5)
        self.paces.groups = {host: (float(rng.randrange(5)), 1) for host in "abcdef"}
        for number in range(60):
            host = rng.choice("abcdef")
            offer(frontier, f"{host}/{number}", ready_at=T0 + rng.randrange(40))
        now, found = T0, 0
        while (due := frontier.next_due(now)) is not None:
            now = max(now, due)
            leases = take(frontier, now=now)
            assert leases or frontier.next_due(now) != due
            found += len(leases)
            end(frontier, leases, now=now)
        assert found == 60

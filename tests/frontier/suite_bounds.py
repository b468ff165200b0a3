"""The contract, part five: how much may wait."""

from __future__ import annotations

from dataclasses import replace

from scrapy_focus.frontier import Ending, Frontier, Limits, Order

from .helpers import T0, Store, drain, end, offer, take


class Shedding(Store):
    """The worst leaves."""

    def test_the_worst_of_all_hosts(self) -> None:
        frontier = self.open(limits=Limits(waiting=3))
        offer(frontier, "a/1", "b/1", rank=1.0)
        offer(frontier, "a/9", "b/9", rank=9.0)
        assert taken_out(frontier) == [b"b/9"]
        offer(frontier, "c/0", rank=0.0)
        assert taken_out(frontier) == [b"a/9"]
        assert drain(frontier) == ["c/0", "a/1", "b/1"]

    def test_the_worst_of_one_host(self) -> None:
        frontier = self.open(limits=Limits(waiting_per_host=2))
        for rank in (3, 1, 2):
            offer(frontier, f"a/{rank}", rank=float(rank))
        offer(frontier, "b/7", "b/8", rank=9.0)
        assert taken_out(frontier) == [b"a/3"]
        assert drain(frontier) == ["a/1", "a/2", "b/7", "b/8"]

    def test_a_host_in_two_groups(self) -> None:
        frontier = self.open(limits=Limits(waiting_per_host=2))
        offer(frontier, "a/1", rank=1.0)
        offer(frontier, "a/2", "a/3", rank=3.0, group="slot")
        assert taken_out(frontier) == [b"a/3"]
        offer(frontier, "a/0", rank=0.0)
        assert taken_out(frontier) == [b"a/2"]
        assert drain(frontier) == ["a/0", "a/1"]

    def test_among_equals_the_latest(self) -> None:
        frontier = self.open(limits=Limits(waiting=2))
        assert offer(frontier, "a/1", "a/2", "a/3") == [True] * 3
        assert taken_out(frontier) == [b"a/3"]
        offer(frontier, "a/4")
        assert taken_out(frontier) == [b"a/4"]

    def test_it_may_come_back(self) -> None:
        frontier = self.open(limits=Limits(waiting=1))
        offer(frontier, "a/1", rank=1.0)
        offer(frontier, "a/2", rank=2.0)
        assert not frontier.seen(b"a/2")
        assert drain(frontier) == ["a/1"]
        assert offer(frontier, "a/2", rank=2.0) == [True]
        assert drain(frontier) == ["a/2"]

    def test_the_books(self) -> None:
        frontier = self.open(limits=Limits(waiting=2))
        offer(frontier, *(f"a/{number}" for number in range(5)))
        counts = frontier.counts(T0)
        assert (counts.added, counts.waiting, counts.dropped) == (5, 2, 3)
        assert counts.reasons == {"dropped": {"shed": 3}}

    def test_what_is_kept(self) -> None:
        """Start requests, what is leased, what is paid for, what lives only for the run, and what
        cannot be read."""
        frontier = self.open(limits=Limits(waiting=1))
        leases = []
        for number in range(3):
            offer(frontier, f"a/{number}", rank=0.0)
            leases += take(frontier)
        odd, leased, retried = leases
        end(frontier, odd, Ending.ASIDE, fetched=False)
        end(frontier, retried, Ending.RETRY, retry=replace(retried.candidate, rank=9.0))
        offer(frontier, "s/1", "s/2", rank=8.0, seed=True)
        offer(frontier, "v/1", rank=8.0, volatile=True)
        offer(frontier, "p/1", rank=8.0, charged=True)
        assert taken_out(frontier) == []
        offer(frontier, "b/1", rank=0.0)
        assert taken_out(frontier) == [b"b/1"]
        end(frontier, leased)
        assert frontier.counts(T0).waiting == 6
        assert sorted(drain(frontier)) == ["a/2", "p/1", "s/1", "s/2", "v/1"]

    def test_what_waits_for_its_time(self) -> None:
        frontier = self.open(limits=Limits(waiting=2))
        offer(frontier, "a/1", "a/2", ready_at=T0 + 5, rank=3.0)
        offer(frontier, "b/1", rank=1.0)
        assert taken_out(frontier) == [b"a/2"]
        assert frontier.counts(T0).deferred == 1
        assert drain(frontier, T0 + 5) == ["b/1", "a/1"]

    def test_one_copy_of_several(self) -> None:
        frontier = self.open(limits=Limits(waiting=1))
        offer(frontier, "a/1", rank=0.0)
        offer(frontier, "a/1", rank=1.0, copy=1)
        assert taken_out(frontier) == [b"a/1"]
        assert frontier.seen(b"a/1")
        assert drain(frontier) == ["a/1"]

    def test_in_no_order(self) -> None:
        frontier = self.open(limits=Limits(waiting=3), order=Order(uniform=True))
        offer(frontier, *(f"{host}/{number}" for host in "ab" for number in range(5)))
        assert sorted(drain(frontier)) == ["a/0", "a/1", "a/2"]

    def test_of_what_is_at_hand(self) -> None:
        """A queue whose first rows have been read, down to its head."""
        frontier = self.open(limits=Limits(waiting=4))
        offer(frontier, *(f"a/{number}" for number in range(4)), rank=5.0)
        end(frontier, take(frontier))
        for number in range(5):
            offer(frontier, f"b/{number}", rank=1.0)
        assert taken_out(frontier) == [b"a/3", b"a/2", b"a/1", b"b/4"]
        assert drain(frontier) == ["b/0", "b/1", "b/2", "b/3"]

    def test_with_a_spent_share(self) -> None:
        frontier = self.open(limits=Limits(waiting=2, pages_per_host=1))
        offer(frontier, "a/1", "a/2", "a/3", rank=1.0)
        end(frontier, take(frontier))
        offer(frontier, "b/1", rank=5.0)
        offer(frontier, "b/0", rank=0.0)
        assert taken_out(frontier) == [b"a/3", b"b/1"]
        assert drain(frontier) == ["b/0"]


def taken_out(frontier: Frontier) -> list[bytes]:
    """The keys that were shed since the last call."""
    keys = list(frontier.shed)
    frontier.shed.clear()
    return keys

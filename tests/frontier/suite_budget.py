"""The contract, part four: the budget."""

from __future__ import annotations

from dataclasses import replace

from scrapy_focus.frontier import Ending, Limits, Order, Outcome

from .helpers import T0, Store, candidate, drain, end, offer, take, take_urls, urls


class Spending(Store):
    """The budget."""

    def test_pages_below_a_path(self) -> None:
        """Each host has its own share of it; the rest of the host goes on."""
        frontier = self.open(limits=Limits(pages_per_share={"*/c/": 2}))
        for host in "ab":
            offer(frontier, *(f"{host}/c/{n}" for n in range(4)), share="*/c/")
            offer(frontier, f"{host}/1", f"{host}/2", f"{host}/3")
        assert sorted(drain(frontier)) == sorted(
            f"{host}/{path}" for host in "ab" for path in ("c/0", "c/1", "1", "2", "3")
        )
        counts = frontier.counts(T0)
        assert (counts.waiting, counts.hosts) == (4, {"capped": 2})
        assert frontier.next_due(T0) is None

    def test_a_share_of_nothing(self) -> None:
        frontier = self.open(limits=Limits(pages_per_share={"a/c/": 0}))
        offer(frontier, "a/c/1", share="a/c/")
        offer(frontier, "a/1")
        assert drain(frontier) == ["a/1"]

    def test_a_page_of_a_share_is_given_back(self) -> None:
        frontier = self.open(limits=Limits(pages_per_share={"a/c/": 1}))
        offer(frontier, "a/c/1", "a/c/2", "a/c/3", share="a/c/")
        lease = take(frontier)[0]
        assert lease.candidate.share == "a/c/"
        assert take(frontier) == []
        end(frontier, lease, Ending.DROPPED, fetched=False, reason="robots")
        assert drain(frontier) == ["a/c/2"]

    def test_a_share_counts_for_its_host(self) -> None:
        frontier = self.open(limits=Limits(pages_per_host=3, pages_per_share={"a/c/": 2}))
        offer(frontier, *(f"a/c/{n}" for n in range(4)), share="a/c/", rank=-1.0)
        offer(frontier, "a/1", "a/2", "a/3")
        assert drain(frontier) == ["a/c/0", "a/c/1", "a/1"]
        assert frontier.counts(T0).hosts == {"retired": 1, "capped": 1}

    def test_a_share_in_two_groups(self) -> None:
        frontier = self.open(limits=Limits(pages_per_share={"a/c/": 3}))
        offer(frontier, "a/c/1", "a/c/2", share="a/c/")
        offer(frontier, "a/c/3", "a/c/4", share="a/c/", group="slot")
        assert len(drain(frontier)) == 3

    def test_pages(self) -> None:
        frontier = self.open(limits=Limits(pages=3))
        offer(frontier, *(f"{host}/{n}" for host in "ab" for n in range(5)))
        assert frontier.spent() is None
        assert len(take(frontier, 16)) == 3
        assert frontier.spent() == "max_pages"
        assert frontier.next_due(T0) is None
        assert frontier.counts(T0).pages == 3
        assert frontier.counts(T0).waiting == 7

    def test_the_best_pages(self) -> None:
        """It is taken at the lease: the best, not the first found."""
        frontier = self.open(limits=Limits(pages=2))
        for number in range(6):
            offer(frontier, f"a/{number}", rank=-float(number))
        assert drain(frontier) == ["a/5", "a/4"]

    def test_none(self) -> None:
        frontier = self.open(limits=Limits(0, 0, 0, 0.0))
        offer(frontier, *(f"a/{number}" for number in range(20)))
        leases = take(frontier, 20)
        end(frontier, leases, size=10**9)
        frontier.beat(1e9, T0)
        assert len(leases) == 20
        assert frontier.spent() is None

    def test_a_page_that_was_not_fetched_is_given_back(self) -> None:
        frontier = self.open(limits=Limits(pages=2))
        offer(frontier, *(f"a/{number}" for number in range(5)))
        leases = take(frontier, 5)
        assert len(leases) == 2
        end(frontier, leases[0], Ending.DROPPED, fetched=False)
        assert frontier.spent() is None
        assert len(take(frontier, 5)) == 1
        assert frontier.counts(T0).pages == 2

    def test_a_page_from_a_cache_is_a_page(self) -> None:
        frontier = self.open(limits=Limits(pages=2))
        offer(frontier, *(f"a/{number}" for number in range(5)))
        found = 0
        while leases := take(frontier):
            end(frontier, leases, Ending.DONE, fetched=False)
            found += 1
        assert found == 2

    def test_retries_of_a_page_are_paid(self) -> None:
        frontier = self.open(limits=Limits(pages=1))
        offer(frontier, "a/1", "a/2", rank=0.0)
        for attempt in range(1, 4):
            lease = take(frontier, 5)[0]
            assert lease.candidate.url == "a/1"
            assert lease.candidate.charged == (attempt > 1)
            end(frontier, lease, Ending.RETRY, retry=replace(lease.candidate, rank=5.0))
        assert frontier.counts(T0).pages == 1
        end(frontier, take(frontier))
        assert take(frontier) == []
        assert frontier.next_due(T0) is None

    def test_hops_of_a_page_are_paid(self) -> None:
        frontier = self.open(limits=Limits(pages=1))
        offer(frontier, "a/1", "a/2")
        lease = take(frontier)[0]
        hop = candidate("b/1", charged=True, rank=9.0)
        frontier.settle([Outcome(lease, Ending.DONE)], [hop], T0)
        assert drain(frontier) == ["b/1"]
        assert frontier.counts(T0).pages == 1

    def test_what_is_paid_is_not_paid_back(self) -> None:
        frontier = self.open(limits=Limits(pages=2))
        offer(frontier, "a/1", "a/2", "a/3")
        lease = take(frontier)[0]
        end(frontier, lease, Ending.RETRY, retry=lease.candidate)
        again = take(frontier)[0]
        assert again.candidate.charged
        end(frontier, again, Ending.DROPPED, fetched=False)
        assert frontier.counts(T0).pages == 1
        assert len(take(frontier, 9)) == 1

    def test_paid_rows_come_best_first_once_the_budget_is_spent(self) -> None:
        last = {"host": ["b/1", "a/1", "c/1", "a/2"], "age": ["b/1", "a/1", "a/2", "c/1"]}
        for ties, expected in last.items():
            frontier = self.fresh(limits=Limits(pages=1), order=Order(ties=ties))
            offer(frontier, "x/0", rank=-9.0)
            take(frontier)
            offer(frontier, "x/9", rank=-5.0)
            offer(frontier, "c/0", rank=1.0)
            offer(frontier, "a/1", "a/2", rank=1.0, charged=True)
            offer(frontier, "b/1", rank=0.0, charged=True)
            offer(frontier, "c/1", rank=1.0, charged=True)
            assert [url for n in range(1, 6) for url in take_urls(frontier, 1, T0 + n)] == expected

    def test_paid_rows_wait_for_their_host(self) -> None:
        frontier = self.open(limits=Limits(pages=1))
        offer(frontier, "a/1", "a/2", "b/1")
        lease = take(frontier)[0]
        frontier.hold("a", T0 + 20, T0)
        end(frontier, lease, Ending.RETRY, retry=lease.candidate)
        assert take(frontier) == []
        assert frontier.next_due(T0) == T0 + 20
        assert take_urls(frontier, now=T0 + 20) == ["a/1"]

    def test_paid_rows_wait_for_their_time(self) -> None:
        frontier = self.open(limits=Limits(pages=1))
        offer(frontier, "a/1")
        offer(frontier, "a/2", ready_at=T0 + 3)
        lease = take(frontier)[0]
        retry = replace(lease.candidate, ready_at=T0 + 20)
        end(frontier, lease, Ending.RETRY, retry=retry)
        assert frontier.next_due(T0) == T0 + 20
        assert take_urls(frontier, now=T0 + 20) == ["a/1"]
        assert frontier.next_due(T0 + 20) is None

    def test_pages_of_a_host(self) -> None:
        frontier = self.open(limits=Limits(pages_per_host=2))
        offer(frontier, *(f"{host}/{n}" for host in "ab" for n in range(5)))
        assert sorted(take_urls(frontier)) == ["a/0", "a/1", "b/0", "b/1"]
        assert frontier.spent() is None
        assert frontier.next_due(T0) is None
        assert frontier.counts(T0).hosts == {"retired": 2}
        offer(frontier, "a/9", "c/1", rank=-1.0)
        assert take_urls(frontier) == ["c/1"]

    def test_pages_of_a_host_over_its_pace_groups(self) -> None:
        frontier = self.open(limits=Limits(pages_per_host=3))
        offer(frontier, "a/1", "a/2")
        offer(frontier, "a/3", "a/4", group="slot")
        offer(frontier, "a/5", "a/6", group="slot2")
        assert len(take(frontier, 16)) == 3

    def test_pages_of_each_host_in_one_pace_group(self) -> None:
        frontier = self.open(limits=Limits(pages_per_host=1))
        offer(frontier, "a/1", "a/2", "b/1", "b/2", group="shared")
        assert sorted(take_urls(frontier)) == ["a/1", "b/1"]

    def test_retries_of_a_retired_host(self) -> None:
        frontier = self.open(limits=Limits(pages_per_host=1))
        offer(frontier, "a/1", "a/2", "b/1")
        first = take(frontier)[0]
        end(frontier, first, Ending.RETRY, retry=replace(first.candidate, rank=8.0))
        assert take_urls(frontier, 9) == ["b/1", "a/1"]
        assert take(frontier) == []

    def test_hops_to_a_retired_host(self) -> None:
        frontier = self.open(limits=Limits(pages_per_host=1))
        offer(frontier, "a/1", "a/2", "b/1")
        leases = take(frontier, 9)
        assert urls(leases) == ["a/1", "b/1"]
        frontier.settle(
            [Outcome(leases[1], Ending.DONE)], [candidate("a/9", charged=True, rank=9.0)], T0
        )
        assert drain(frontier) == ["a/9"]

    def test_a_retired_host_revives_when_a_page_is_given_back(self) -> None:
        frontier = self.open(limits=Limits(pages_per_host=1))
        offer(frontier, "a/1", "a/2")
        offer(frontier, "a/3", group="slot")
        lease = take(frontier, 9)[0]
        assert frontier.next_due(T0) is None
        end(frontier, lease, Ending.DROPPED, fetched=False)
        assert frontier.next_due(T0) is not None
        assert len(take(frontier, 9)) == 1

    def test_deferred_rows_of_a_retired_host_are_not_due(self) -> None:
        frontier = self.open(limits=Limits(pages_per_host=1))
        offer(frontier, "a/1")
        offer(frontier, "a/2", ready_at=T0 + 5)
        offer(frontier, "b/1", ready_at=T0 + 50)
        take(frontier)
        assert frontier.next_due(T0) == T0 + 50

    def test_a_host_that_is_retired_before_its_first_row(self) -> None:
        frontier = self.open(limits=Limits(pages_per_host=1))
        offer(frontier, "a/1")
        take(frontier)
        offer(frontier, "a/2", group="slot")
        assert take(frontier) == []

    def test_both_kinds_of_pages(self) -> None:
        frontier = self.open(limits=Limits(pages=3, pages_per_host=2))
        offer(frontier, *(f"{host}/{n}" for host in "abc" for n in range(5)))
        found = take_urls(frontier, 99)
        assert len(found) == 3
        assert max(sum(url.startswith(host) for url in found) for host in "abc") <= 2

    def test_uniform_keeps_to_the_budget(self) -> None:
        frontier = self.open(limits=Limits(pages=4, pages_per_host=2), order=Order(uniform=True))
        offer(frontier, *(f"{host}/{n}" for host in "abc" for n in range(5)))
        leases = take(frontier, 99)
        assert len(leases) == 4
        end(frontier, leases[0], Ending.RETRY, retry=leases[0].candidate)
        assert take_urls(frontier) == urls(leases[:1])

    def test_uniform_serves_what_a_retired_host_has_paid_for(self) -> None:
        frontier = self.open(limits=Limits(pages_per_host=1), order=Order(uniform=True))
        offer(frontier, "a/1", "a/2", "a/3")
        offer(frontier, "a/4", charged=True)
        found = take_urls(frontier)
        assert "a/4" in found
        assert len(found) == 2

    def test_bytes(self) -> None:
        frontier = self.open(limits=Limits(bytes=100))
        offer(frontier, *(f"a/{number}" for number in range(9)))
        first, second = take(frontier, 2)
        end(frontier, first, size=99)
        assert frontier.spent() is None
        end(frontier, second, Ending.FAILED, size=1)
        assert frontier.spent() == "max_bytes"
        assert take(frontier) == []
        assert frontier.next_due(T0) is None
        assert frontier.counts(T0).bytes == 100

    def test_bytes_count_as_soon_as_they_are_here(self) -> None:
        """While a slow callback still runs; and once."""
        frontier = self.open(limits=Limits(bytes=100))
        offer(frontier, "a/1", "a/2")
        lease = take(frontier)[0]
        frontier.left(lease, T0, size=100)
        frontier.left(lease, T0, size=100)
        assert frontier.spent() == "max_bytes"
        assert take(frontier) == []
        end(frontier, lease, size=1)
        frontier.left(lease, T0, size=100)
        assert frontier.counts(T0).bytes == 101

    def test_bytes_stop_retries_too(self) -> None:
        frontier = self.open(limits=Limits(bytes=100))
        offer(frontier, "a/1")
        lease = take(frontier)[0]
        end(frontier, lease, Ending.RETRY, retry=lease.candidate, size=100)
        assert take(frontier) == []
        assert frontier.next_due(T0) is None

    def test_seconds(self) -> None:
        frontier = self.open(limits=Limits(seconds=10.0))
        offer(frontier, "a/1", "a/2")
        frontier.beat(9.5, T0)
        take(frontier)
        frontier.beat(0.5, T0)
        assert frontier.spent() == "max_seconds"
        assert take(frontier) == []
        assert frontier.counts(T0).seconds == 10.0

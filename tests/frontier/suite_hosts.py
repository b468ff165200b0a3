"""The contract, part two: a host's pace."""

from __future__ import annotations

from scrapy_focus.frontier import Ending

from .helpers import T0, Store, end, offer, take, take_urls


class Pacing(Store):
    """Gaps, delays, holds: when a host may be touched again."""

    def test_a_gap_lies_between_two_requests(self) -> None:
        frontier = self.open()
        self.paces.gap = 2.0
        offer(frontier, "a/1", "a/2", "b/1")
        leases = take(frontier, 5)
        assert [lease.candidate.url for lease in leases] == ["a/1", "b/1"]
        assert [(lease.gap, lease.prior, lease.turn) for lease in leases] == [(2, 0, T0 + 2)] * 2
        assert take(frontier, now=T0 + 1.9) == []
        assert take_urls(frontier, now=T0 + 2) == ["a/2"]

    def test_the_turn_is_taken_whatever_becomes_of_the_request(self) -> None:
        frontier = self.open()
        self.paces.gap = 2.0
        offer(frontier, "a/1", "a/2")
        end(frontier, take(frontier))
        assert take(frontier, now=T0 + 1) == []

    def test_a_slow_start_moves_the_turn(self) -> None:
        """The gap is measured from when the request reached the downloader."""
        frontier = self.open()
        self.paces.gap = 2.0
        offer(frontier, "a/1", "a/2")
        lease = take(frontier)[0]
        frontier.reached(lease, T0 + 1.5)
        assert frontier.next_due(T0 + 2) == T0 + 3.5
        assert take(frontier, now=T0 + 3.4) == []
        assert take_urls(frontier, now=T0 + 3.5) == ["a/2"]

    def test_a_late_report_moves_nothing_back(self) -> None:
        frontier = self.open()
        self.paces.gap = 2.0
        offer(frontier, "a/1", "a/2")
        lease = take(frontier)[0]
        frontier.reached(lease, T0 + 5)
        frontier.reached(lease, T0 + 1)
        frontier.pace("a", 1.0, T0)
        frontier.hold("a", T0 + 1, T0)
        assert frontier.next_due(T0) == T0 + 7

    def test_a_clock_that_is_set_back_opens_no_host_early(self) -> None:
        """Also one that the store had already found open."""
        frontier = self.open()
        self.paces.gap = 1.0
        offer(frontier, "a/1", "a/2", "a/3")
        assert take_urls(frontier) == ["a/1"]
        assert take_urls(frontier, now=T0 + 10) == ["a/2"]
        offer(frontier, "b/1", "b/2", rank=-1.0)
        assert take_urls(frontier, 1, now=T0 + 12) == ["b/1"]
        assert take(frontier, 5, now=T0 + 5) == []
        assert frontier.next_due(T0 + 5) == T0 + 11
        assert take_urls(frontier, now=T0 + 11) == ["a/3"]
        assert take_urls(frontier, now=T0 + 13) == ["b/2"]

    def test_a_site_s_own_delay(self) -> None:
        frontier = self.open()
        offer(frontier, "a/1", "a/2", "a/3")
        frontier.pace("a", 5.0, T0)
        assert frontier.next_due(T0) == T0 + 5
        lease = take(frontier, now=T0 + 5)[0]
        assert (lease.gap, lease.turn) == (5, T0 + 10)
        end(frontier, lease, now=T0 + 6)
        assert frontier.next_due(T0 + 6) == T0 + 10

    def test_the_longer_of_the_job_s_gap_and_the_site_s_delay(self) -> None:
        frontier = self.open()
        self.paces.groups = {"a": (1.0, 0), "b": (9.0, 0)}
        frontier.pace("a", 5.0, T0)
        frontier.pace("b", 5.0, T0)
        offer(frontier, "a/1", "b/1")
        gaps = {lease.candidate.host: lease.gap for lease in take(frontier, 2, T0 + 5)}
        assert gaps == {"a": 5, "b": 9}

    def test_the_delay_is_not_added_to_the_gap(self) -> None:
        """robots.txt was fetched at T0: the first page may follow at T0 + delay."""
        frontier = self.open()
        self.paces.gap = 3.0
        offer(frontier, "a/1")
        frontier.pace("a", 5.0, T0)
        assert frontier.next_due(T0 + 1) == T0 + 5

    def test_a_delay_may_be_taken_back_and_then_counts_no_more(self) -> None:
        frontier = self.open()
        frontier.pace("a", 5.0, T0)
        frontier.pace("a", 0.0, T0 + 1)
        offer(frontier, "a/1", "a/2")
        assert frontier.next_due(T0 + 1) == T0 + 5
        assert len(take(frontier, 2, T0 + 5)) == 2

    def test_a_hold(self) -> None:
        frontier = self.open()
        offer(frontier, "a/1", "b/1", rank=1.0)
        offer(frontier, "a/0")
        frontier.hold("a", T0 + 60, T0)
        assert take_urls(frontier) == ["b/1"]
        assert frontier.next_due(T0) == T0 + 60
        frontier.hold("a", T0 + 30, T0 + 1)
        assert frontier.next_due(T0 + 1) == T0 + 60
        assert take_urls(frontier, now=T0 + 60) == ["a/0", "a/1"]

    def test_a_hold_is_no_delay(self) -> None:
        frontier = self.open()
        frontier.hold("a", T0 + 60, T0)
        offer(frontier, "a/1")
        lease = take(frontier, now=T0 + 60)[0]
        assert lease.gap == 0

    def test_a_host_that_is_not_known_yet(self) -> None:
        """robots.txt, and the answers to it, come before the first URL may be stored."""
        frontier = self.open()
        frontier.pace("a", 4.0, T0)
        frontier.hold("b", T0 + 9, T0)
        frontier.touch("c", T0)
        offer(frontier, "a/1", "b/1", "c/1")
        assert take_urls(frontier) == ["c/1"]
        assert take_urls(frontier, now=T0 + 4) == ["a/1"]
        assert take_urls(frontier, now=T0 + 9) == ["b/1"]

    def test_a_cooling_host_stands_in_nobody_s_way(self) -> None:
        frontier = self.open()
        self.paces.groups = {"slow": (100.0, 0)}
        offer(frontier, *(f"slow/{number}" for number in range(20)), rank=-1.0)
        offer(frontier, *(f"fast/{number}" for number in range(5)))
        assert take_urls(frontier) == ["slow/0", *(f"fast/{number}" for number in range(5))]

    def test_hosts_of_one_pace_group_take_turns(self) -> None:
        frontier = self.open()
        self.paces.gap = 2.0
        offer(frontier, "a/1", "b/1", "a/2", group="shared")
        offer(frontier, "c/1")
        assert take_urls(frontier) == ["a/1", "c/1"]
        assert frontier.next_due(T0) == T0 + 2
        assert take_urls(frontier, now=T0 + 2) == ["b/1"]
        assert take_urls(frontier, now=T0 + 4) == ["a/2"]

    def test_one_host_in_two_pace_groups(self) -> None:
        frontier = self.open()
        self.paces.gap = 2.0
        offer(frontier, "a/1", "a/2")
        offer(frontier, "a/3", group="slot")
        assert take_urls(frontier) == ["a/1", "a/3"]

    def test_no_host_and_no_pace(self) -> None:
        frontier = self.open()
        self.paces.gap, self.paces.groups = 9.0, {"": (0.0, 0)}
        offer(frontier, "data:,1", "data:,2", host="", group="")
        assert take_urls(frontier) == ["data:,1", "data:,2"]


class Turns(Store):
    """A turn is provisional until the request reaches the downloader."""

    def test_given_back_when_nothing_was_asked_of_the_host(self) -> None:
        frontier = self.open()
        self.paces.gap = 5.0
        offer(frontier, "a/1", "a/2", "a/3")
        lease = take(frontier)[0]
        frontier.left(lease, T0 + 1, fetched=False)
        assert take_urls(frontier, now=T0 + 1) == ["a/2"]
        assert take(frontier, now=T0 + 2) == []

    def test_given_back_with_the_settlement(self) -> None:
        for ending in (Ending.DONE, Ending.DROPPED, Ending.RELEASED, Ending.ASIDE):
            frontier = self.fresh()
            self.paces.gap = 5.0
            offer(frontier, "a/1", "a/2")
            end(frontier, take(frontier), ending, fetched=False)
            assert len(take(frontier)) == 1
            assert take(frontier) == []

    def test_back_to_what_it_was(self) -> None:
        frontier = self.open()
        self.paces.gap = 5.0
        offer(frontier, "a/1", "a/2", "a/3")
        end(frontier, take(frontier))
        lease = take(frontier, now=T0 + 5)[0]
        assert (lease.prior, lease.turn) == (T0 + 5, T0 + 10)
        end(frontier, lease, Ending.DROPPED, now=T0 + 5, fetched=False)
        assert take_urls(frontier, now=T0 + 5) == ["a/3"]

    def test_not_when_something_else_has_moved_it_since(self) -> None:
        frontier = self.open()
        self.paces.gap = 5.0
        offer(frontier, "a/1", "a/2")
        lease = take(frontier)[0]
        frontier.pace("a", 20.0, T0 + 1)
        end(frontier, lease, Ending.DROPPED, fetched=False)
        assert frontier.next_due(T0) == T0 + 21

    def test_not_a_hold(self) -> None:
        frontier = self.open()
        self.paces.gap = 5.0
        offer(frontier, "a/1", "a/2")
        lease = take(frontier)[0]
        frontier.hold("a", T0 + 30, T0)
        end(frontier, lease, Ending.DROPPED, fetched=False)
        assert frontier.next_due(T0) == T0 + 30

    def test_only_once(self) -> None:
        frontier = self.open()
        self.paces.gap = 5.0
        offer(frontier, "a/1", "a/2", "a/3")
        first = take(frontier)[0]
        frontier.left(first, T0, fetched=False)
        second = take(frontier)[0]
        frontier.left(first, T0, fetched=False)
        end(frontier, first, Ending.DROPPED, fetched=False)
        assert second.turn == T0 + 5
        assert take(frontier) == []

    def test_a_cached_crawl_runs_at_full_speed(self) -> None:
        frontier = self.open()
        self.paces.gap, self.paces.cap = 5.0, 1
        offer(frontier, *(f"a/{number}" for number in range(30)))
        done = 0
        while leases := take(frontier):
            end(frontier, leases, Ending.DONE, fetched=False)
            done += 1
        assert done == 30


class Caps(Store):
    """How many requests a host may have in flight."""

    def test_busy_until_one_leaves(self) -> None:
        frontier = self.open()
        self.paces.cap = 2
        offer(frontier, "a/1", "a/2", "a/3", "a/4", "b/1", rank=0.0)
        leases = take(frontier, 9)
        assert [lease.candidate.url for lease in leases] == ["a/1", "b/1", "a/2"]
        assert frontier.next_due(T0) is None
        frontier.left(leases[0], T0 + 1)
        assert take_urls(frontier, now=T0 + 1) == ["a/3"]
        assert take(frontier, now=T0 + 1) == []

    def test_left_counts_once(self) -> None:
        frontier = self.open()
        self.paces.cap = 2
        offer(frontier, *(f"a/{number}" for number in range(9)))
        first, second = take(frontier, 9)
        for _ in range(3):
            frontier.left(first, T0)
        end(frontier, first)
        frontier.left(first, T0)
        assert len(take(frontier, 9)) == 1
        end(frontier, second)
        assert len(take(frontier, 9)) == 1

    def test_settling_frees_what_has_not_left(self) -> None:
        for ending in Ending:
            frontier = self.fresh()
            self.paces.cap = 1
            offer(frontier, "a/1", "a/2")
            end(frontier, take(frontier, 9), ending)
            assert len(take(frontier, 9)) == 1
            assert frontier.next_due(T0) is None

    def test_a_finished_download_whose_callback_runs_takes_no_place(self) -> None:
        frontier = self.open()
        self.paces.cap = 1
        offer(frontier, *(f"a/{number}" for number in range(5)))
        leases = []
        for _ in range(5):
            leases += take(frontier)
            frontier.left(leases[-1], T0)
        assert len(leases) == 5
        assert frontier.counts(T0).leased == 5

    def test_a_cap_that_has_changed(self) -> None:
        frontier = self.open()
        self.paces.cap = 1
        offer(frontier, *(f"a/{number}" for number in range(9)))
        take(frontier, 9)
        self.paces.cap = 3
        frontier.touch("a", T0)
        assert frontier.next_due(T0) is not None
        second = take(frontier, 9)
        assert len(second) == 2
        self.paces.cap = 1
        frontier.touch("a", T0)
        end(frontier, second)
        assert frontier.next_due(T0) is None

    def test_the_cap_belongs_to_the_group(self) -> None:
        frontier = self.open()
        self.paces.cap = 1
        offer(frontier, "a/1", "b/1", group="shared")
        lease = take(frontier, 9)[0]
        assert take(frontier) == []
        frontier.left(lease, T0)
        assert take_urls(frontier) == ["b/1"]

    def test_no_limit(self) -> None:
        frontier = self.open()
        offer(frontier, *(f"a/{number}" for number in range(50)))
        assert len(take(frontier, 99)) == 50

    def test_busy_and_cooling(self) -> None:
        """A host opens when it is neither: the later of the two counts."""
        frontier = self.open()
        self.paces.cap, self.paces.gap = 1, 5.0
        offer(frontier, "a/1", "a/2")
        lease = take(frontier)[0]
        assert frontier.next_due(T0) is None
        frontier.left(lease, T0 + 1)
        assert frontier.next_due(T0 + 1) == T0 + 5
        assert take(frontier, now=T0 + 4) == []
        assert take_urls(frontier, now=T0 + 5) == ["a/2"]

"""The contract, part three: settlement and counts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scrapy_focus.frontier import Counts, Ending, Limits, Outcome

from .helpers import T0, Store, candidate, end, offer, take, take_urls


class Settling(Store):
    """``settle``: how a lease ends."""

    @pytest.mark.parametrize("ending", [Ending.DONE, Ending.FAILED, Ending.DROPPED])
    def test_over(self, ending: Ending) -> None:
        frontier = self.open()
        offer(frontier, "a/1")
        assert end(frontier, take(frontier), ending, reason="why") == [True]
        counts = frontier.counts(T0)
        assert getattr(counts, ending.value) == 1
        assert (counts.waiting, counts.leased, counts.added) == (0, 0, 1)
        expected = {} if ending is Ending.DONE else {ending.value: {"why": 1}}
        assert counts.reasons == expected
        assert take(frontier) == []

    def test_a_reason_that_nobody_gave(self) -> None:
        frontier = self.open()
        offer(frontier, "a/1")
        end(frontier, take(frontier), Ending.FAILED)
        assert frontier.counts(T0).reasons == {"failed": {"unknown": 1}}

    def test_a_page_and_its_links_are_one(self) -> None:
        frontier = self.open()
        offer(frontier, "a/1")
        lease = take(frontier)[0]
        found = [candidate("a/2"), candidate("a/1"), candidate("b/1")]
        assert frontier.settle([Outcome(lease, Ending.DONE)], found, T0) == (
            [True],
            [True, False, True],
        )
        assert take_urls(frontier) == ["b/1", "a/2"]

    def test_released_is_as_it_was(self) -> None:
        frontier = self.open()
        offer(frontier, "a/1", rank=0.5, priority=3, request=b"{}", depth=2)
        first = take(frontier)[0]
        end(frontier, first, Ending.RELEASED, fetched=False)
        second = take(frontier)[0]
        assert second.fence == first.fence + 1
        assert second.candidate == replace(first.candidate, attempts=2)

    def test_a_retry_is_another_attempt_of_the_same_row(self) -> None:
        frontier = self.open()
        offer(frontier, "a/1", "a/2", rank=0.0, depth=4, request=b"1", parent="a/0")
        first = take(frontier)[0]
        retry = replace(first.candidate, rank=1.0, priority=-1, request=b"2")
        assert end(frontier, first, Ending.RETRY, retry=retry) == [True]
        counts = frontier.counts(T0)
        assert (counts.added, counts.waiting, counts.pages) == (2, 2, 1)
        other, second = take(frontier, 2)
        assert other.candidate.url == "a/2"
        assert second.id == first.id
        assert second.candidate == replace(retry, attempts=2, charged=True)
        assert (second.candidate.depth, second.candidate.parent) == (4, "a/0")
        end(frontier, second)
        assert frontier.counts(T0).done == 1

    def test_a_retry_may_wait_for_its_time(self) -> None:
        frontier = self.open()
        offer(frontier, "a/1")
        lease = take(frontier)[0]
        retry = replace(lease.candidate, ready_at=T0 + 9)
        end(frontier, lease, Ending.RETRY, retry=retry)
        assert frontier.counts(T0).deferred == 1
        assert frontier.next_due(T0) == T0 + 9
        assert take(frontier, now=T0 + 8) == []
        assert take_urls(frontier, now=T0 + 9) == ["a/1"]

    def test_a_retry_whose_time_has_passed(self) -> None:
        frontier = self.open()
        offer(frontier, "a/1")
        lease = take(frontier)[0]
        end(frontier, lease, Ending.RETRY, retry=replace(lease.candidate, ready_at=T0 - 1))
        assert frontier.counts(T0).deferred == 0
        assert take_urls(frontier) == ["a/1"]

    def test_a_retry_that_cannot_be_stored_leaves_what_is(self) -> None:
        frontier = self.open()
        offer(frontier, "a/1", request=b"stored")
        lease = take(frontier)[0]
        retry = replace(lease.candidate, request=None, volatile=True, rank=4.0)
        end(frontier, lease, Ending.RETRY, retry=retry)
        again = take(frontier)[0].candidate
        assert (again.request, again.rank) == (b"stored", 4.0)

    def test_aside(self) -> None:
        frontier = self.open()
        offer(frontier, "a/1", "a/2")
        end(frontier, take(frontier), Ending.ASIDE, fetched=False)
        counts = frontier.counts(T0)
        assert (counts.waiting, counts.deferred, counts.unreadable) == (2, 1, 1)
        assert counts.pages == 0
        assert take_urls(frontier) == ["a/2"]

    @pytest.mark.parametrize("ending", Ending)
    def test_the_same_report_twice_changes_nothing(self, ending: Ending) -> None:
        frontier = self.open()
        self.paces.gap, self.paces.cap = 5.0, 1
        offer(frontier, "a/1", "a/2")
        lease = take(frontier)[0]
        report = [Outcome(lease, ending, "why", size=7, fetched=False, retry=lease.candidate)]
        assert frontier.settle(report, [], T0)[0] == [True]
        before = frontier.counts(T0)
        assert frontier.settle(report, [], T0)[0] == [False]
        assert frontier.settle(report * 2, [], T0)[0] == [False, False]
        assert frontier.counts(T0) == before

    def test_the_same_report_twice_in_one_call(self) -> None:
        frontier = self.open()
        offer(frontier, "a/1")
        report = Outcome(take(frontier)[0], Ending.DONE, size=5)
        assert frontier.settle([report, report], [], T0)[0] == [True, False]
        counts = frontier.counts(T0)
        assert (counts.done, counts.bytes) == (1, 5)

    def test_a_stale_fence_is_refused(self) -> None:
        frontier = self.open()
        self.paces.cap = 1
        offer(frontier, "a/1", "a/2")
        first = take(frontier)[0]
        end(frontier, first, Ending.RELEASED)
        second = take(frontier)[0]
        assert second.id == first.id
        before = frontier.counts(T0)
        frontier.left(first, T0)
        until = first.until
        frontier.renew([first], T0 + 1)
        assert first.until == until, "it is lost, and must not look as if it were not"
        links = [candidate("a/3")]
        assert frontier.settle([Outcome(first, Ending.DONE, size=3)], links, T0) == (
            [False],
            [True],
        )
        after = frontier.counts(T0)
        assert replace(after, added=before.added, waiting=before.waiting) == before
        assert take(frontier) == []
        assert end(frontier, second) == [True]

    def test_a_lease_nobody_gave(self) -> None:
        frontier = self.open()
        offer(frontier, "a/1")
        lease = take(frontier)[0]
        for wrong in (replace(lease, id=99), replace(lease, fence=0), replace(lease, fence=2)):
            assert end(frontier, wrong) == [False]
            frontier.left(wrong, T0)
        assert end(frontier, lease) == [True]

    def test_many_at_once(self) -> None:
        frontier = self.open()
        offer(frontier, *(f"{host}/{number}" for host in "abc" for number in range(4)))
        leases = take(frontier, 12)
        endings = list(Ending)
        reports = [
            Outcome(lease, endings[n % 6], "x", retry=lease.candidate)
            for n, lease in enumerate(leases)
        ]
        assert frontier.settle(reports, [], T0)[0] == [True] * 12
        counts = frontier.counts(T0)
        assert (counts.done, counts.failed, counts.dropped) == (2, 2, 2)
        assert (counts.waiting, counts.deferred, counts.leased) == (6, 2, 0)

    def test_a_lease_can_be_renewed(self) -> None:
        frontier = self.open()
        offer(frontier, "a/1")
        lease = take(frontier)[0]
        frontier.renew([lease], T0 + 1e6)
        assert lease.until == T0 + 1e6
        assert take(frontier, now=T0 + 1e5) == []

    def test_a_run_s_own_leases_do_not_end(self) -> None:
        """It lives, so it will report: handing the row out again would fetch it twice."""
        frontier = self.open()
        offer(frontier, "a/1")
        lease = frontier.lease(1, T0, T0 + 1)[0]
        assert take(frontier, now=T0 + 1e6) == []
        assert frontier.next_due(T0 + 1e6) is None
        assert end(frontier, lease, now=T0 + 1e6) == [True]


class Counting(Store):
    """``count`` and ``counts``."""

    def test_empty(self) -> None:
        assert self.open().counts(T0) == Counts()

    def test_the_sum(self) -> None:
        frontier = self.open()
        offer(frontier, *(f"a/{number}" for number in range(10)))
        offer(frontier, "a/0", "a/10", ready_at=T0 + 5)
        leases = take(frontier, 6)
        for lease, ending in zip(leases[:4], Ending, strict=False):
            end(frontier, lease, ending, reason="x", retry=lease.candidate)
        counts = frontier.counts(T0)
        assert counts == Counts(
            waiting=6,
            leased=2,
            done=1,
            failed=1,
            dropped=1,
            deferred=1,
            added=11,
            pages=6,
            reasons={"failed": {"x": 1}, "dropped": {"x": 1}},
            hosts={"ready": 1},
        )

    def test_reasons_add_up(self) -> None:
        frontier = self.open()
        frontier.count("refused", {"offsite": 2, "depth": 1})
        frontier.count("refused", {"offsite": 3})
        frontier.count("dropped", {"scope": 1})
        assert frontier.counts(T0).reasons == {
            "refused": {"offsite": 5, "depth": 1},
            "dropped": {"scope": 1},
        }

    def test_notes(self) -> None:
        frontier = self.open()
        assert frontier.noted("a") is None
        frontier.note("a", b"one")
        frontier.note("b", b"")
        frontier.note("a", b"\x00\xfftwo")
        assert (frontier.noted("a"), frontier.noted("b")) == (b"\x00\xfftwo", b"")
        assert frontier.counts(T0) == Counts(), "they are no URLs"
        with frontier.transaction():
            frontier.note("a", b"three")
            assert frontier.noted("a") == b"three"
        assert frontier.noted("a") == b"three"

    def test_hosts_by_state(self) -> None:
        frontier = self.open(limits=Limits(pages_per_host=3))
        self.paces.groups = {"cooling": (9.0, 0), "busy": (0.0, 1), "empty": (9.0, 0)}
        for host in ("ready", "cooling", "busy", "held"):
            offer(frontier, f"{host}/1", f"{host}/2")
        offer(frontier, "empty/1")
        assert len(take(frontier, 5)) == 5
        offer(frontier, "retired/1", "retired/2", "retired/3", "retired/4", rank=-1.0)
        assert len(take(frontier, 3)) == 3
        offer(frontier, "ready/3")
        frontier.hold("held", T0 + 5, T0)
        states = {"ready": 1, "cooling": 1, "busy": 1, "held": 1, "retired": 1}
        assert frontier.counts(T0).hosts == states
        assert frontier.counts(T0 + 9).hosts == {"ready": 3, "busy": 1, "retired": 1}

    def test_a_host_in_two_groups_is_one_host(self) -> None:
        frontier = self.open()
        offer(frontier, "a/1")
        offer(frontier, "a/2", group="slot")
        assert frontier.counts(T0).hosts == {"ready": 1}

    def test_volatile_rows_are_rows(self) -> None:
        frontier = self.open()
        offer(frontier, "a/1", rank=1.0)
        offer(frontier, "a/2", "b/1", volatile=True)
        offer(frontier, "a/3", rank=-1.0)
        assert offer(frontier, "a/2") == [False]
        assert frontier.counts(T0).added == 4
        leases = take(frontier, 9)
        assert [(lease.candidate.url, lease.candidate.volatile) for lease in leases] == [
            ("a/3", False),
            *(("b/1", True), ("a/2", True)),
            ("a/1", False),
        ]
        end(frontier, leases[:2])
        end(frontier, leases[2:], Ending.RETRY, retry=replace(leases[2].candidate, rank=2.0))
        assert frontier.counts(T0).done == 2

    def test_volatile_rows_keep_to_pace_and_budget(self) -> None:
        frontier = self.open(limits=Limits(pages_per_host=2))
        self.paces.gap = 5.0
        offer(frontier, "a/1", "a/2", volatile=True)
        offer(frontier, "a/3")
        assert len(take(frontier, 9)) == 1
        assert take(frontier, now=T0 + 4) == []
        assert len(take(frontier, 9, T0 + 5)) == 1
        assert take(frontier, now=T0 + 50) == []

    def test_nobody_else(self) -> None:
        frontier = self.open()
        offer(frontier, "a/1")
        take(frontier)
        assert not frontier.others(T0)
        assert not any([frontier.clear(10, T0) for _ in range(3)][1:])

    def test_what_a_transaction_has_changed_is_seen_in_it(self) -> None:
        frontier = self.open(limits=Limits(pages=1))
        with frontier.transaction():
            offer(frontier, "a/1", "a/2")
            assert frontier.seen(b"a/1")
            assert frontier.counts(T0).waiting == 2
            assert frontier.next_due(T0) is not None
            lease = take(frontier)[0]
            assert frontier.spent() == "max_pages"
            assert frontier.counts(T0).leased == 1
            end(frontier, lease)
            assert frontier.next_due(T0) is None
            assert frontier.counts(T0).done == 1
        assert frontier.counts(T0).waiting == 1

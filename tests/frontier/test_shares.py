"""Shares of the budget that another run has not known."""

from __future__ import annotations

from scrapy_focus.frontier import Ending, Limits

from .audit import contradictions
from .helpers import T0, SQLiteStore, drain, end, offer, take, take_urls


def share(url: str, host: str) -> str:
    """What is below ``/c`` has a share."""
    return f"{host}/c" if url.startswith(f"{host}/c") else ""


class TestShares(SQLiteStore):
    def test_what_an_earlier_run_has_found(self) -> None:
        """It waits for the share that it has now, and what was fetched has used it."""
        frontier = self.open()
        offer(frontier, *(f"a/c{number}" for number in range(5)), "a/1", "b/c1")
        offer(frontier, "a/c9", ready_at=T0 + 5)
        end(frontier, take(frontier, 2))
        frontier.close("shutdown", finished=False, now=T0)

        limits = Limits(pages_per_share={"a/c": 3})
        again = self.open(limits=limits)
        assert again.divide(share) == 7
        assert again.divide(share) == 0
        # Two were fetched, by whichever order: of each host one.
        assert sorted(drain(again, T0 + 5)) == ["a/1", "a/c1", "a/c2"]
        counts = again.counts(T0 + 5)
        assert (counts.waiting, counts.pages) == (3, 5)
        assert counts.hosts == {"capped": 1}
        again.close("focus_max_pages_per_path", finished=False, now=T0 + 5)
        assert contradictions(self.path) == {}

        more = self.open(limits=Limits(pages_per_share={"a/c": 4}), now=T0 + 5)
        assert drain(more, T0 + 5) == ["a/c3"]
        more.close("shutdown", finished=False, now=T0 + 5)

        none = self.open(now=T0 + 5)
        assert none.divide(lambda url, host: "") == 7
        assert drain(none, T0 + 5) == ["a/c4", "a/c9"]
        none.close("finished", finished=True, now=T0 + 5)
        assert contradictions(self.path) == {}

    def test_while_another_run_is_at_it(self) -> None:
        """Its leases go on, and what they have charged is the share's."""
        one = self.open()
        offer(one, "a/c1", "a/c2", "a/c3")
        lease = take(one)[0]
        two = self.open(limits=Limits(pages_per_share={"a/c": 2}))
        two.divide(share)
        assert take_urls(two) == ["a/c2"]
        end(one, lease, Ending.RETRY, retry=lease.candidate)
        assert take_urls(one) == ["a/c1"]  # it is paid for
        assert take_urls(two) == []
        one.close("shutdown", finished=False, now=T0)
        two.close("shutdown", finished=False, now=T0)
        assert contradictions(self.path) == {}

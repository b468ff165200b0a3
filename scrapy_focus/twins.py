"""``FOCUS_WWW``: what a redirect from ``example.com`` to ``www.example.com``, or back, means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_focus.decisions.hosts import are_twins, twin_of
from scrapy_focus.exceptions import Drop, FrontierError

if TYPE_CHECKING:
    from scrapy_focus.candidate import Candidate
    from scrapy_focus.decisions.scope import Scope
    from scrapy_focus.frontier import Frontier
    from scrapy_focus.writer import Writer

#: The note that names the hosts which redirects have brought into a job's scope, one a line.
NOTE = "www"

#: What keeps a page out that its twin would let in.
OUTSIDE = ("offsite", "not_included")


def hosts_in(note: bytes | None) -> list[str]:
    """The hosts that a note names."""
    return (note or b"").decode("ascii", "replace").split()


class Twins:
    """Applies the policy to the redirects of a job.

    :param policy: ``strict``, ``add`` or ``never``
    """

    def __init__(self, policy: str, scope: Scope) -> None:
        self.policy = policy
        self._scope = scope

    def attach(self, frontier: Frontier, writer: Writer) -> None:
        """Name the job's frontier, and what writes to it when it is busy now."""
        self._frontier = frontier
        self._writer = writer

    def follow(self, source: Candidate, target: Candidate) -> None:
        """A page redirects.

        :raises scrapy_focus.Drop: if it must not lead where it does
        """
        if self.forbids(source.host, target.host):
            raise Drop("www")
        if self.policy == "add" and source.seed and twin_of(target.host) == source.host:
            reason = self._scope.refuse(target.url, target.host, target.depth)
            if reason in OUTSIDE:
                self._scope.bring_in([target.host])
                self._store()

    def forbids(self, source: str, target: str) -> bool:
        """Whether no redirect may lead from one host to the other."""
        return self.policy == "never" and are_twins(source, target)

    def advice(self, source: str, target: str) -> str:
        """What to say of a start request that redirects from one host to another, in vain."""
        where = f"A start request on {source!r} redirects there"
        if self.policy == "add" or not are_twins(source, target):
            return f"{where}."
        return f'{where}; FOCUS_WWW = "add" lets it.'

    def reconsider(self, reason: str | None, url: str, host: str, depth: int = 0) -> str | None:
        """Why a URL is out of scope that was about to be refused for a reason: another run of
        the job may have brought its host in, now or before.

        :raises scrapy_focus.exceptions.FrontierBusy: if that cannot be known at this moment
        """
        if self.policy != "add" or reason not in OUTSIDE:
            return reason
        twin = twin_of(host)
        if not twin or self._scope.refuse(url, twin, depth):
            return reason
        self._load()
        return self._scope.refuse(url, host, depth)

    def _load(self) -> None:
        self._scope.bring_in(hosts_in(self._frontier.noted(NOTE)))

    def _store(self) -> None:
        try:
            self._note()
        except FrontierError:
            # It may be busy; if there is more to it, the next write says so.
            self._writer.event(self._note)

    def _note(self) -> None:
        with self._frontier.transaction():
            self._load()
            self._frontier.note(NOTE, "\n".join(sorted(self._scope.brought_in)).encode())

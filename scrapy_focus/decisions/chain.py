"""The ordering chain: what a candidate passes on its way into the frontier and back out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

    from scrapy_focus.candidate import Candidate


class Plugin:
    """Base class of the ordering chain's plugins; override what you need.

    A plugin is switched on by its class, or the path of its class, in ``FOCUS_PLUGINS``.
    """

    @classmethod
    def from_crawler(cls, crawler: Any) -> Self:
        """Make the plugin for a crawl; read settings from ``crawler.settings`` here."""
        return cls()

    def enter(self, candidate: Candidate, request: Any) -> None:
        """On the way in, before the candidate is stored: change it, or refuse it.

        :raises scrapy_focus.Drop: to refuse it, with the reason to count it under
        """

    def leave(self, candidate: Candidate, request: Any) -> None:
        """On the way out, before the downloader gets the request: change the request."""

    def settled(self, candidate: Candidate, outcome: Any) -> None:
        """The page's callback has finished, or the URL was given up: learn from it.

        *outcome* has ``ending``, ``reason``, ``fetched`` and ``size`` (bytes).
        """


class Policy(Plugin):
    """Base class of the policies: the plugin at 500 that says what comes first."""

    #: How equal ranks are told apart: ``host``, the least recently touched host first,
    #: and within a host the oldest URL; or ``age``, the oldest URL of all.
    ties: str = "host"
    #: Draw each time among all waiting URLs of ready hosts, whatever their ranks.
    uniform: bool = False
    #: Whether it needs to know how deep a URL lies.
    needs_depth: bool = False

    def rank(self, candidate: Candidate) -> float:
        """What the candidate is ordered by, lower first."""
        raise NotImplementedError

    def enter(self, candidate: Candidate, request: Any) -> None:
        candidate.rank = self.rank(candidate)


class Chain:
    """Plugins in their order: the lowest is nearest the spider, the highest nearest the
    queue."""

    def __init__(self, plugins: Iterable[tuple[int, Any]]) -> None:
        ordered = [plugin for _, plugin in sorted(plugins, key=lambda pair: pair[0])]
        self.plugins = ordered
        self._enter = _overriding(ordered, "enter")
        self._leave = _overriding(reversed(ordered), "leave")
        self._settled = _overriding(ordered, "settled")

    def enter(self, candidate: Candidate, request: Any) -> None:
        """Pass a candidate inwards. A plugin may raise :exc:`~scrapy_focus.Drop`."""
        for step in self._enter:
            step(candidate, request)

    def leave(self, candidate: Candidate, request: Any) -> None:
        """Pass a request outwards."""
        for step in self._leave:
            step(candidate, request)

    def settled(self, candidate: Candidate, outcome: Any) -> None:
        """Tell how it ended."""
        for step in self._settled:
            step(candidate, outcome)


def _overriding(plugins: Iterable[Any], name: str) -> list[Any]:
    """The plugins' methods of that name, without those that do nothing."""
    return [
        getattr(plugin, name)
        for plugin in plugins
        if hasattr(plugin, name) and getattr(type(plugin), name, None) is not getattr(Plugin, name)
    ]

"""The policies that say what is fetched first; ``FOCUS_POLICY`` picks one."""

from __future__ import annotations

from scrapy_focus.candidate import Candidate
from scrapy_focus.decisions.chain import Policy


class PriorityPolicy(Policy):
    """Best first: the user's integer priority decides, and the score orders within it."""

    def rank(self, candidate: Candidate) -> float:
        return -(candidate.priority + candidate.score)


class BreadthPolicy(Policy):
    """Level by level, in the order of discovery within a level, whatever the priority."""

    ties = "age"
    needs_depth = True

    def rank(self, candidate: Candidate) -> float:
        return candidate.depth


class DepthPolicy(Policy):
    """The deepest URL first, so that a spur is followed to its end before the crawl returns."""

    ties = "age"
    needs_depth = True

    def rank(self, candidate: Candidate) -> float:
        return -candidate.depth


class RandomPolicy(Policy):
    """A uniform sample: at every lease each waiting URL of a ready host is equally likely."""

    uniform = True

    def rank(self, candidate: Candidate) -> float:
        return 0.0


POLICIES: dict[str, type[Policy]] = {
    "priority": PriorityPolicy,
    "breadth": BreadthPolicy,
    "depth": DepthPolicy,
    "random": RandomPolicy,
}

"""What a job keeps beside its URLs, on the way to its notes and back."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from scrapy_focus.decisions.facets import PARTS

if TYPE_CHECKING:
    from scrapy_focus.decisions.facets import Facets
    from scrapy_focus.frontier import Frontier

#: Seconds after which no further part is kept for now. One of them takes half a millisecond.
_TURN = 0.002


def facet_note(part: int) -> str:
    """The note that keeps a part of the facets."""
    return f"facets-{part:x}"


def load_facets(facets: Facets, frontier: Frontier) -> None:
    """Go on counting where the job's runs before have left off."""
    for part in range(PARTS):
        facets.load(part, frontier.noted(facet_note(part)))


def keep_facets(facets: Facets, frontier: Frontier) -> None:
    """Keep what has changed, as much of it as a turn of the reactor allows; what other runs have
    counted is known then, too."""
    kept = {}
    until = time.perf_counter() + _TURN
    with frontier.transaction(soon=True):
        for part in facets.changed:
            name = facet_note(part)
            kept[part] = facets.merged(part, frontier.noted(name))
            frontier.note(name, kept[part])
            if time.perf_counter() > until:
                break
    for part, value in kept.items():
        facets.load(part, value)

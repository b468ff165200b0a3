"""The frontier: URLs, hosts and jobs in a store. It knows nothing of Scrapy and can be
used without it."""

from scrapy_focus.frontier.contract import (
    ASIDE,
    Counts,
    Ending,
    Frontier,
    Lease,
    Limits,
    Order,
    Outcome,
    Pace,
)

__all__ = [
    "ASIDE",
    "Counts",
    "Ending",
    "Frontier",
    "Lease",
    "Limits",
    "Order",
    "Outcome",
    "Pace",
]

"""The one value that all three rooms share."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Candidate:
    """A URL offered to the frontier, and later the same URL as it is handed out.

    Plugins of the ordering chain read and change it; the frontier stores it.
    """

    #: The URL to fetch, as it was found.
    url: str
    #: Canonical host name; empty for ``data:`` and ``file:`` URLs.
    host: str
    #: The pace group: what shares one pace. The host, unless the request carries
    #: a ``download_slot`` of the user's own.
    group: str
    #: What makes two URLs of a job the same; the request's fingerprint unless
    #: ``focus_key`` overrides it.
    key: bytes
    #: Tells requests with one key apart: 0 for a filtered request, k for the k-th
    #: ``dont_filter`` seed, a unique negative number for any other ``dont_filter``
    #: request.
    copy: int = 0
    #: Links from a seed, which has 0.
    depth: int = 0
    #: URL of the page it was found on, where that is known.
    parent: str | None = None
    #: Whether it is a start request.
    seed: bool = False
    #: :attr:`scrapy.Request.priority`.
    priority: int = 0
    #: How good it looks, 0 <= score < 1; 0.5 where nothing is known.
    score: float = 0.5
    #: What the store orders by, lower first; it belongs to the policy.
    rank: float = 0.0
    #: Not before this time (Unix time, seconds); 0 for at once.
    ready_at: float = 0.0
    #: When it was first offered (Unix time, seconds).
    discovered: float = 0.0
    #: How often it has been handed out.
    attempts: int = 0
    #: Whether the budget has paid for it: a retry, or a hop of a page that was
    #: charged when it was first handed out.
    charged: bool = False
    #: The stored request; ``None`` for a GET that the other fields describe.
    request: bytes | None = None
    #: Whether it lives only as long as the run, its request being kept in memory.
    volatile: bool = False
    #: What else than its host has a share of the budget that it uses: a prefix of URLs, or empty.
    share: str = ""

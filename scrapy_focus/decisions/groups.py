"""Pace groups: which hosts share one pace, as they do where many names are one server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

from .globs import ByHost

__all__ = ["Groups"]


class Groups:
    """Names the pace group of each host.

    :param choice: ``"host"``: each host has a pace of its own; ``"domain"``: all hosts of a
        registered domain share one; or names of groups by host: a name stands for itself alone,
        ``*`` for any run of characters, and a host that none fits is a group of its own
    :raises ValueError: on anything else
    """

    #: The pace group of a canonical host name.
    of: Callable[[str], str]

    def __init__(self, choice: str | Mapping[str, str]) -> None:
        if choice == "domain":
            self.of = _domains()
        elif choice == "host":
            self.of = str
        elif isinstance(choice, Mapping):
            if not all(isinstance(n, str) and n.strip() for item in choice.items() for n in item):
                raise ValueError("a host and its group are strings that are not empty.")
            named = ByHost(choice)
            self.of = lambda host: named.get(host) or host
        else:
            raise ValueError('it must be "host", "domain", or a dict of hosts and their groups.')


def _domains() -> Callable[[str], str]:
    from tldextract import TLDExtract  # noqa: PLC0415 - Scrapy brings it; it is slow to import

    # With the public suffixes that it brings, nothing is fetched. Those under which companies let
    # others register names are no suffixes here: such names do share their servers.
    extract = TLDExtract(suffix_list_urls=(), cache_dir=None)

    @lru_cache(maxsize=4096)
    def domain(host: str) -> str:
        found = extract.extract_str(host)
        return f"{found.domain}.{found.suffix}" if found.domain and found.suffix else host

    return domain

"""Shares of the budget: how many pages of a host may lie below a path."""

from __future__ import annotations

from collections.abc import Mapping

from .canonical import DEFAULT
from .globs import ByHost, readings

__all__ = ["InvalidShare", "Shares"]


class InvalidShare(ValueError):
    """A prefix or a number that cannot be used. Its text says why."""


class Shares:
    """Tells which share of a host a URL belongs to.

    :param pages: how many pages, by ``host/path/``: a name of a host stands for itself alone, ``*``
        for any run of characters in it, and each host that fits has a share of its own. A path is
        compared with the beginning of that of a URL, both without dot segments and needless
        escapes; of several that fit the longest counts, of equals the first.
    :raises InvalidShare: on a prefix or a number that cannot be used
    """

    def __init__(self, pages: Mapping[str, int]) -> None:
        self.pages = {_checked(prefix): _number(prefix, n) for prefix, n in pages.items()}
        by_length = sorted(self.pages, key=lambda p: len(p.partition("/")[2]), reverse=True)
        try:
            self._prefixes = [(ByHost({p.partition("/")[0]: True}), _path(p), p) for p in by_length]
        except ValueError as error:
            raise InvalidShare(str(error)) from None

    def __bool__(self) -> bool:
        return bool(self._prefixes)

    def of(self, url: str, host: str) -> str:
        """The prefix whose share a URL uses, or an empty string.

        :param host: the URL's canonical host name
        """
        here = [(path, prefix) for hosts, path, prefix in self._prefixes if hosts.get(host)]
        if not here:
            return ""
        paths = readings(DEFAULT(url))[0]
        for path, prefix in here:
            if any(written.startswith(path) for written in paths):
                return prefix
        return ""


def _checked(prefix: object) -> str:
    if not isinstance(prefix, str) or "/" not in prefix or prefix.startswith("/"):
        raise InvalidShare(f"{prefix!r} is no prefix of URLs, such as example.com/calendar/.")
    if "://" in prefix or any(character in prefix for character in "?#"):
        raise InvalidShare(f"{prefix!r} must be a host and a path, without scheme or query.")
    return prefix


def _path(prefix: str) -> str:
    """The path of a prefix, as those of URLs are compared."""
    path = f"/{prefix.partition('/')[2]}"
    return readings(DEFAULT(f"http://host.invalid{path}"))[0][0]


def _number(prefix: str, pages: object) -> int:
    if isinstance(pages, bool) or not isinstance(pages, int) or pages < 0:
        raise InvalidShare(f"{prefix} has the share {pages!r}; it must be a whole number.")
    return pages

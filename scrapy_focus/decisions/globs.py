"""Glob patterns on ``host/path``, and the forms in which the paths of URLs are compared."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import Generic, TypeVar
from urllib.parse import unquote

from .hosts import canonical_name, cleaned, shown

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Pattern:
    text: str  # as the user wrote it
    host: str  # canonical, "*" for any
    path: str  # with its leading slash, otherwise as written


_PATH = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:(?://[^/?#\\]*)?([^?#]*)")
_NOT_NORMAL = re.compile(r"[%\\]|//|/\.")
_SLASHES = re.compile(r"/{2,}")


def readings(url: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the path in every reading (as written, too), and in the normal ones."""
    match = _PATH.match(cleaned(url))
    path = match[1] if match else ""
    if not path.startswith(("/", "\\")):
        path = "/" + path
    if _NOT_NORMAL.search(path) is None:
        return (path,), (path,)
    plain = decoded(path)
    one_slash_first = without_dots(_SLASHES.sub("/", plain))
    dots_first = _SLASHES.sub("/", without_dots(plain))
    normal = tuple(dict.fromkeys((one_slash_first, dots_first)))
    return tuple(dict.fromkeys((path, plain, *normal))), normal


def decoded(text: str) -> str:
    # Bytes that are not UTF-8 are kept apart from each other, so that a pattern for the
    # paths of a Latin-1 site matches those and no others.
    return unquote(text, errors="surrogateescape").replace("\\", "/")


def without_dots(path: str) -> str:
    """Resolve the dot segments of a path that starts with a slash (RFC 3986, 5.2.4)."""
    if "/." not in path:
        return path
    kept: list[str] = []
    segments = path.split("/")[1:]
    for segment in segments:
        if segment == "..":
            del kept[-1:]
        elif segment != ".":
            kept.append(segment)
    if segments[-1] in {".", ".."}:
        kept.append("")
    return "/" + "/".join(kept)


def as_written(text: str) -> str:
    return text


def normalised(text: str) -> str:
    return _SLASHES.sub("/", decoded(text))


def compiled(patterns: Iterable[Pattern], *readers: Callable[[str], str]) -> re.Pattern[str] | None:
    """Return one regular expression for all *patterns*, to match against host + path.

    :param readers: each brings what is literal in the paths of the patterns into a form
        that paths are compared in.
    """
    sources = [_source(pattern, reader) for pattern in patterns for reader in readers]
    return re.compile("|".join(dict.fromkeys(sources)), re.DOTALL) if sources else None


def _source(pattern: Pattern, reader: Callable[[str], str]) -> str:
    # The path starts with a slash and a host has none, so the two halves meet at one place.
    host = _joined(pieces_of(pattern.host, as_written), "[^/]", "")
    return host + _joined(pieces_of(pattern.path, reader), ".", r"\Z")


def _joined(pieces: Sequence[str], character: str, end: str) -> str:
    first, *rest = pieces
    if not rest:
        return first + end
    *middle, last = rest
    source = first + "".join(_atomic(f"{character}*?{piece}") for piece in middle)
    if end and not last:
        return source  # The rest may be anything, so it need not be looked at.
    return f"{source}{character}*{last}{end}"


# The leftmost place for a piece between two wildcards is as good as any other, so it is
# never looked for again: many wildcards in one pattern must not cost a power of the path.
if sys.version_info >= (3, 11):

    def _atomic(source: str) -> str:
        return f"(?>{source})"

else:
    _group_numbers = count()

    def _atomic(source: str) -> str:
        name = f"_{next(_group_numbers)}"
        return f"(?=(?P<{name}>{source}))(?P={name})"


class ByHost(Generic[_T]):
    """Values by host: a name stands for itself alone, and ``*`` for any run of characters.

    :param values: by pattern; the first that fits a host counts
    :raises ValueError: on a pattern that is none
    """

    def __init__(self, values: Mapping[str, _T]) -> None:
        self._values = [(_host_pattern(pattern), value) for pattern, value in values.items()]
        #: The value of a canonical host name, or ``None``.
        self.get = lru_cache(maxsize=4096)(self._find)

    def __bool__(self) -> bool:
        return bool(self._values)

    def _find(self, host: str) -> _T | None:
        return next((value for pattern, value in self._values if pattern.fullmatch(host)), None)


def _host_pattern(pattern: str) -> re.Pattern[str]:
    try:
        name = pattern.lower() if "*" in pattern else canonical_name(pattern)
        return re.compile(".*".join(pieces_of(name, as_written)), re.DOTALL)
    except ValueError as error:  # an InvalidHost is one
        raise ValueError(f"{shown(pattern)} is no pattern for hosts: {error}") from error


_TOKEN = re.compile(r"(\*+)|\[(!?)(\]?[^\]]*)\]|([^*\[]+)|\[", re.DOTALL)
_CLASS_ITEM = re.compile(r"(.)-(.)|(.)", re.DOTALL)


def pieces_of(glob: str, reader: Callable[[str], str]) -> list[str]:
    """Return what stands between the stars of *glob*, as regular expressions.

    :param reader: see :func:`compiled`.
    :raises ValueError: for a bad character class.
    """
    pieces = [""]
    for token in _TOKEN.finditer(glob):
        star, negation, members, literal = token.groups()
        if star:
            pieces.append("")
        elif literal:
            pieces[-1] += re.escape(reader(literal))
        elif members:
            pieces[-1] += f"[{'^' if negation else ''}{_class_items(glob, members)}]"
        else:
            raise ValueError(
                f"{glob!r} has a '[' that begins no character class; write '[[]' for the "
                f"character itself."
            )
    return pieces


def _class_items(glob: str, members: str) -> str:
    items = ""
    for low, high, single in (match.groups() for match in _CLASS_ITEM.finditer(members)):
        if single is None and low > high:
            raise ValueError(f"{glob!r} has a backward range; write '{high}-{low}'.")
        items += re.escape(single) if single else f"{re.escape(low)}-{re.escape(high)}"
    return items

"""Plain text for a terminal, or for whoever reads a pipe: the same for both."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

_CREDENTIALS = re.compile(r"://[^/?#\s]*@")

#: How many rows of a table are measured, and kept in memory, at a time.
_MEASURED = 1000

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
#: The start of the year 10000: later times are no times.
_LAST_DATE = 253402300800.0


def masked(text: str) -> str:
    """*text* without the user names and passwords of URLs in it."""
    return _CREDENTIALS.sub("://***@", text)


def shown(text: str) -> str:
    """*text* as a terminal may see it: without credentials, and with whatever is not
    printable, such as control and formatting characters, escaped as in Python."""
    text = masked(text)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def table(rows: Iterable[Sequence[str]], right: Sequence[bool]) -> Iterator[str]:
    """Lines with the cells in columns, two spaces between them.

    :param right: for each column whether it is aligned to the right
    """
    widths = [0] * len(right)
    rest = iter(rows)
    while part := list(islice(rest, _MEASURED)):
        for row in part:
            widths = [max(width, len(cell)) for width, cell in zip(widths, row, strict=True)]
        for row in part:
            cells = zip(row, widths, right, strict=True)
            yield "  ".join(f"{c:>{w}}" if r else f"{c:<{w}}" for c, w, r in cells).rstrip()


def span(seconds: float) -> str:
    """A time span in its two largest units."""
    if not 0 <= seconds < _LAST_DATE:
        return f"{seconds:g} s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    left = round(seconds)
    parts = []
    for size, unit in _UNITS:
        number, left = divmod(left, size)
        parts.append(f"{number} {unit}" if number else "")
    first = next(i for i, part in enumerate(parts) if part)
    return " ".join(part for part in parts[first : first + 2] if part)


def moment(at: float) -> str:
    """A Unix time as local date and time."""
    if not 0 < at < _LAST_DATE:
        return f"{at:g}"
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def size(number: int) -> str:
    """A number of bytes in the largest unit that fits."""
    value = float(number)
    for unit in ("bytes", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.1f} TB"

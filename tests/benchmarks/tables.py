"""Tables of figures, as they stand in the README: reStructuredText that a terminal can show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

Cell = str | int | float | None


@dataclass
class Table:
    """Figures under headings; a float is shown with three digits that count, ``None`` as a dash."""

    title: str
    columns: Sequence[str]
    rows: list[Sequence[Cell]] = field(default_factory=list)

    def __str__(self) -> str:
        cells = [[show(cell) for cell in row] for row in self.rows]
        widths = [max(map(len, column)) for column in zip(self.columns, *cells, strict=True)]
        rule = "  ".join("=" * width for width in widths)
        numeric = [
            all(not isinstance(row[index], str) for row in self.rows)
            for index in range(len(widths))
        ]
        lines = [_line(row, widths, numeric) for row in [list(self.columns), *cells]]
        body = [rule, lines[0], rule, *lines[1:], rule]
        return "\n".join([self.title, "", *body] if self.title else body)


@dataclass
class Check:
    """A figure beside its target.

    :param least: whether the target is the least that will do, not the most
    :param unit: of both
    :param note: what the figure is not, where it is not quite what the target means
    """

    what: str
    value: float | None
    target: float
    least: bool = False
    unit: str = ""
    note: str = ""

    @property
    def holds(self) -> bool | None:
        """Whether it is met; ``None`` where it was not measured."""
        if self.value is None:
            return None
        return self.value >= self.target if self.least else self.value <= self.target


@dataclass
class Report:
    """What one benchmark has found."""

    name: str
    tables: list[Table] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    #: Everything that was measured, by case, one sample a round.
    samples: dict[str, Any] = field(default_factory=dict)


def checks_table(checks: Iterable[Check]) -> Table:
    """All figures that have a target."""
    table = Table("", ("measure", "figure", "target", "holds"))
    for check in checks:
        sign = "≥" if check.least else "≤"
        unit = f" {check.unit}" if check.unit else ""
        holds = {True: "yes", False: "NO", None: "not measured"}[check.holds]
        what = f"{check.what} ({check.note})" if check.note else check.what
        figure = "–" if check.value is None else show(float(check.value)) + unit
        table.rows.append((what, figure, f"{sign} {check.target:g}{unit}", holds))
    return table


def show(cell: Cell) -> str:
    """A cell's text."""
    if cell is None:
        return "–"
    if not isinstance(cell, float):
        return str(cell) if isinstance(cell, str) else f"{cell:,}"
    if abs(cell) >= 1000:
        return f"{cell:,.0f}"
    digits = 0 if abs(cell) >= 100 else 1 if abs(cell) >= 10 else 2 if abs(cell) >= 1 else 3
    return f"{cell:.{digits}f}"


def _line(cells: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    padded = [
        cell.rjust(width) if right else cell.ljust(width)
        for cell, width, right in zip(cells, widths, numeric, strict=True)
    ]
    return "  ".join(padded).rstrip()

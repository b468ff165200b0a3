"""What is shown of a frontier's rows, whatever they hold."""

from __future__ import annotations

from typing import Any


def as_text(value: Any) -> str:
    """A column that should hold text."""
    return value if type(value) is str else repr(value)


def as_number(value: Any, otherwise: float = float("nan")) -> float:
    """A column that should hold a number."""
    return value if type(value) in (int, float) else otherwise


def as_whole(value: Any, otherwise: int = 0) -> int:
    """A column that should hold a whole number."""
    return value if type(value) is int else otherwise


def or_none(value: Any, shape: Any) -> Any:
    """A column that may be empty."""
    return None if value is None else shape(value)

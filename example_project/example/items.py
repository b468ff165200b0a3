"""What the spiders yield."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Page:
    """A page that was fetched."""

    url: str
    title: str
    depth: int  # links followed from the first page to here


@dataclass
class SavedPage(Page):
    """A page of which a copy is kept."""

    file: str  # relative to the archive's folder

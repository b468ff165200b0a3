"""Configuration of the documentation, built with ``sphinx-build -n -W``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

project = "scrapy_focus"
author = copyright = "scrapy_focus contributors"
extensions = ["sphinx.ext.autodoc"]
exclude_patterns = ["_build"]
html_theme = "alabaster"
autodoc_typehints = "description"
autodoc_member_order = "bysource"

# What Scrapy documents is looked up there by its reader: a build needs no internet.
nitpick_ignore_regex = [
    (r"std:(setting|reqmeta|stat)", r"(?!FOCUS_|focus).*"),
    (r"std:signal", r".*"),
    (r"py:.*", r"(scrapy|twisted|urllib|typing|typing_extensions)\b(?!_).*"),
    (r"py:.*", r"(collections|contextlib|pathlib)\b.*"),
    (r"py:class", r"(Spider|Request|Crawler|RequestFingerprinterProtocol|Deferred|BaseSettings)"),
    (r"py:class", r"(Self|optional|Any)"),
    (r"py:class", r"(scrapy_focus\.frontier\.contract\.)?(Pace|_.*)"),
]


def setup(app: Any) -> None:
    """The markup of Scrapy's own documentation, for settings, stats and meta keys."""
    for kind in ("setting", "stat", "reqmeta", "signal"):
        app.add_crossref_type(kind, kind, indextemplate=f"pair: %s; {kind}")

"""What the whole suite shares."""

from __future__ import annotations

import os


def pytest_configure() -> None:
    # Either of them would put every crawl of the tests into somebody's project, and decide
    # where it keeps its frontier.
    for name in ("SCRAPY_PROJECT", "SCRAPY_SETTINGS_MODULE"):
        os.environ.pop(name, None)

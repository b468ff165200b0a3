"""The add-on: one line in ``ADDONS`` turns everything on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

#: Priority of what Scrapy's commands set, e.g. the duplicate filter of ``scrapy shell``.
_COMMAND = 10


class Addon:
    """Sets the scheduler and the duplicate filter, and adds the middleware that checks what
    does not come through the scheduler.

    What a project sets itself stays as it is.
    """

    def update_settings(self, settings: BaseSettings) -> None:
        """Called by Scrapy before the crawl is put together."""
        settings.set("SCHEDULER", "scrapy_focus.Scheduler", "addon")
        if settings.getpriority("DUPEFILTER_CLASS") != _COMMAND:
            settings.set("DUPEFILTER_CLASS", "scrapy_focus.DupeFilter", "addon")
        path = "scrapy_focus.middleware.ScopeMiddleware"
        middlewares = settings["DOWNLOADER_MIDDLEWARES"]
        if path not in middlewares:
            middlewares[path] = 40

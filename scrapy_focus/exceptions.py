"""The errors of scrapy_focus. Each message is one sentence that can be shown to a user."""

from __future__ import annotations


class FocusError(Exception):
    """Base of all errors that scrapy_focus raises."""


class SettingError(FocusError, ValueError):
    """A setting has a value that cannot be used; the message names the setting."""


class Unsupported(FocusError):
    """Something that scrapy_focus builds on is missing in this Scrapy or this project."""


class FrontierError(FocusError):
    """The frontier cannot be opened, read or written; the message names the file."""


class FrontierBusy(FrontierError):
    """Another connection holds the frontier's write lock at this moment. Try again soon."""


class FrontierTooNew(FrontierError):
    """The frontier was written by a newer version of scrapy_focus."""


class Drop(FocusError):
    """Raised by a plugin's ``enter`` to refuse a candidate, with the reason to count it under.

    :param reason: a short lower-case word; it becomes part of the stat
        ``focus/refused/<reason>``.
    """

    def __init__(self, reason: str) -> None:
        # It is stored, and printed: nothing in it may stop that.
        reason = str(reason).encode(errors="backslashreplace").decode()
        super().__init__(reason)
        self.reason = reason

"""Where a crawl's frontier is."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from scrapy.utils.project import inside_project, project_data_dir

from scrapy_focus.exceptions import SettingError

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

_FILE = "frontier.db"


@dataclass(frozen=True, slots=True)
class Location:
    """A frontier's place: a file, or memory where there is none."""

    path: Path | None
    #: The file is this run's alone and ends with it.
    private: bool = False

    def remove(self) -> None:
        """Remove a private frontier, and nothing else."""
        if self.private and self.path:
            shutil.rmtree(self.path.parent, ignore_errors=True)


def find(address: str | None, settings: BaseSettings) -> Location:
    """The frontier that the settings name, else the one that the circumstances give.

    ``FOCUS_FRONTIER`` comes first, then ``JOBDIR``, then the project's own file, and
    outside a project a private file that ends with the run.

    :raises scrapy_focus.exceptions.SettingError: if the address cannot be read
    """
    if address is not None:
        return parse(address)
    if settings.get("JOBDIR"):
        return Location(Path(settings["JOBDIR"]) / _FILE)
    if inside_project():
        return Location(Path(project_data_dir()) / _FILE)
    return Location(Path(tempfile.mkdtemp(prefix="scrapy-focus-")) / _FILE, private=True)


def parse(address: str) -> Location:
    """Read an address as SQLAlchemy writes them: ``sqlite:///relative.db``,
    ``sqlite:////absolute.db``; or ``memory:``.

    :raises scrapy_focus.exceptions.SettingError: if it is anything else
    """
    if address in ("memory:", "memory://"):
        return Location(None)
    scheme, found, rest = address.partition("://")
    if found and scheme == "sqlite" and rest.startswith("/") and len(rest) > 1:
        if "?" in rest:
            raise SettingError(
                "FOCUS_FRONTIER has options after a question mark; a sqlite address has none."
            )
        return Location(Path(unquote(rest[1:])).expanduser())
    # The address may carry a password: only its scheme is shown.
    raise SettingError(
        f"FOCUS_FRONTIER has an address of the form {scheme[:20] if found else 'without a scheme'!r}"
        " that is not known; write sqlite:///relative/path.db, sqlite:////absolute/path.db or"
        " memory: instead."
    )

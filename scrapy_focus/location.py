"""Where a crawl's frontier is."""

from __future__ import annotations

import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from scrapy.utils.conf import closest_scrapy_cfg, get_config
from scrapy.utils.project import DATADIR_CFG_SECTION, inside_project

from scrapy_focus.exceptions import SettingError

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

_FILE = "frontier.db"

#: A driver may be named, as SQLAlchemy does.
_SCHEME = re.compile(r"[a-z]{2,12}(?:\+[a-z]+[0-9]?)?")
_CREDENTIALS = re.compile(r"//?[^/]*:[^/]*@")


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
    kept = find_kept(address, settings)
    if kept is not None:
        return kept
    return Location(Path(tempfile.mkdtemp(prefix="scrapy-focus-")) / _FILE, private=True)


def find_kept(address: str | None, settings: BaseSettings) -> Location | None:
    """The frontier of :func:`find`, unless it would be a private one. Makes nothing.

    :raises scrapy_focus.exceptions.SettingError: if the address cannot be read
    """
    if address is not None:
        return parse(address)
    if settings.get("JOBDIR"):
        return Location(Path(settings["JOBDIR"]) / _FILE)
    folder = _project_folder()
    return Location(folder / _FILE) if folder else None


def _project_folder() -> Path | None:
    """The project's data folder. Scrapy's ``project_data_dir`` would make it, and fails
    where SCRAPY_SETTINGS_MODULE stands for a project without a scrapy.cfg."""
    if not inside_project():
        return None
    config = get_config()
    if config.has_option(DATADIR_CFG_SECTION, "default"):
        return Path(config.get(DATADIR_CFG_SECTION, "default"))
    found = closest_scrapy_cfg()
    return (Path(found).parent / ".scrapy").resolve() if found else None


def parse(address: str, name: str = "FOCUS_FRONTIER") -> Location:
    """Read an address as SQLAlchemy writes them: ``sqlite:///relative.db``,
    ``sqlite:////absolute.db``; or ``memory:``.

    :param name: who gave it, for the error
    :raises scrapy_focus.exceptions.SettingError: if it is anything else
    """
    if address in ("memory:", "memory://"):
        return Location(None)
    scheme, found, rest = address.partition("://")
    if found and scheme == "sqlite" and rest.startswith("/") and len(rest) > 1:
        if "?" in rest:
            raise SettingError(
                f"{name} has options after a question mark; a sqlite address has none."
            )
        if _CREDENTIALS.match(rest):
            raise SettingError(
                f"{name} has a user and a password; a sqlite address has none. Write "
                "sqlite:///relative/path.db or sqlite:////absolute/path.db instead."
            )
        return Location(Path(unquote(rest[1:])).expanduser())
    # The address may carry a password: no more than its scheme is shown.
    kind = f" of the form {scheme!r}" if _SCHEME.fullmatch(scheme) and found else ""
    raise SettingError(
        f"{name} has an address{kind} that is not known; write sqlite:///relative/path.db,"
        " sqlite:////absolute/path.db or memory: instead."
    )

"""Changes Scrapy's default scheduler and duplicate filter before anything reads them.

Python imports this module when it starts, in every process that has this folder on
``PYTHONPATH``: pytest, its workers, and the ``scrapy`` commands that tests run as
children, whatever their working directory. Scrapy itself is not imported here, so that
a test which looks at what is imported when sees what it would see otherwise.
"""

from __future__ import annotations

import os
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

_DEFAULTS = "scrapy.settings.default_settings"
_SWAPPED = {
    setting: os.environ[variable]
    for setting, variable in (
        ("SCHEDULER", "CONFORMANCE_SCHEDULER"),
        ("DUPEFILTER_CLASS", "CONFORMANCE_DUPEFILTER"),
    )
    if os.environ.get(variable)
}


class _Loader(SourceFileLoader):
    """Loads the module of the defaults, then puts ours over them."""

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        vars(module).update(_SWAPPED)


class _Finder(MetaPathFinder):
    """Finds that one module and leaves all others to the usual finders."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if fullname != _DEFAULTS:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(fullname, spec.origin)
        return spec


if _SWAPPED:
    sys.meta_path.insert(0, _Finder())

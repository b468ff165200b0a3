"""Loads what the settings name: the policy, the plugins, the duplicate filter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy.dupefilters import RFPDupeFilter
from scrapy.utils.misc import build_from_crawler, load_object

from scrapy_focus.decisions.chain import Chain, Policy
from scrapy_focus.decisions.policies import POLICIES
from scrapy_focus.dupefilter import DupeFilter, ForeignDupeFilter
from scrapy_focus.exceptions import SettingError

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

    from scrapy_focus.settings import FocusSettings

_DUPEFILTER_ORDER = 100
_POLICY_ORDER = 500


def load(setting: str, path: Any) -> Any:
    """The object at a path.

    :raises scrapy_focus.exceptions.SettingError: if it cannot be imported; names the setting
    """
    try:
        return load_object(path)
    except (ImportError, ValueError, NameError, TypeError) as error:
        raise SettingError(f"{setting} names {path!r}, which cannot be loaded: {error}") from error


def build_policy(crawler: Crawler, choice: Any) -> Any:
    """The policy that ``FOCUS_POLICY`` names: one of ours, or a class by its path."""
    if isinstance(choice, str) and "." not in choice:
        if choice not in POLICIES:
            raise SettingError(
                f"FOCUS_POLICY is {choice!r}; it must be one of {', '.join(POLICIES)}, or the path "
                "of a class."
            )
        cls: Any = POLICIES[choice]
    else:
        cls = load("FOCUS_POLICY", choice)
    if not (isinstance(cls, type) and hasattr(cls, "enter")):
        raise SettingError(
            f"FOCUS_POLICY names {choice!r}, which is no policy: derive it from "
            "scrapy_focus.Policy."
        )
    return build_from_crawler(cls, crawler)


def build_dupefilter(crawler: Crawler) -> tuple[DupeFilter, Any]:
    """Who knows a request's identity, and who filters duplicates.

    The second is another DUPEFILTER_CLASS if there is one, which is honoured; except
    Scrapy's default, which forgets what an earlier run has seen.
    """
    cls = load("DUPEFILTER_CLASS", crawler.settings["DUPEFILTER_CLASS"])
    if cls is RFPDupeFilter:
        raise SettingError(
            "DUPEFILTER_CLASS is scrapy.dupefilters.RFPDupeFilter, which knows nothing of the "
            "frontier and forgets what an earlier run has seen; set DUPEFILTER_CLASS = "
            '"scrapy_focus.DupeFilter".'
        )
    dupefilter = build_from_crawler(cls, crawler)
    if isinstance(dupefilter, DupeFilter):
        return dupefilter, dupefilter
    return build_from_crawler(DupeFilter, crawler), dupefilter


def build_chain(
    crawler: Crawler, settings: FocusSettings, policy: Policy, dupefilter: Any
) -> tuple[Chain, bool]:
    """The ordering chain, and whether our duplicate filter is in it."""
    own = isinstance(dupefilter, DupeFilter)
    filter_order: int | None = _DUPEFILTER_ORDER
    plugins: list[tuple[int, Any]] = [(_POLICY_ORDER, policy)]
    for path, order in settings.plugins.items():
        cls = load("FOCUS_PLUGINS", path)
        if isinstance(cls, type) and issubclass(cls, DupeFilter):
            filter_order = order
        elif order is not None:
            plugins.append((order, _build_plugin(crawler, path, cls)))
    if filter_order is not None:
        plugins.append((filter_order, dupefilter if own else ForeignDupeFilter(dupefilter)))
    return Chain(plugins), own and filter_order is not None


def _build_plugin(crawler: Crawler, path: Any, cls: Any) -> Any:
    if not any(callable(getattr(cls, name, None)) for name in ("enter", "leave", "settled")):
        raise SettingError(
            f"FOCUS_PLUGINS names {path!r}, which has none of the methods enter, leave and "
            "settled: derive it from scrapy_focus.Plugin."
        )
    return build_from_crawler(cls, crawler)

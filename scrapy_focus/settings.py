"""The ``FOCUS_…`` settings, read in one place into one frozen object."""

from __future__ import annotations

import difflib
import json
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from scrapy_focus.decisions.canonical import Forms
from scrapy_focus.decisions.groups import Groups
from scrapy_focus.decisions.traps import InvalidCap, Traps
from scrapy_focus.exceptions import SettingError
from scrapy_focus.frontier.seen import CHOICES, EXACT, Choice

if TYPE_CHECKING:
    from scrapy import Spider
    from scrapy.settings import BaseSettings

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

#: Every setting of this project with its default.
DEFAULTS: dict[str, Any] = {
    "FOCUS_FRONTIER": None,
    "FOCUS_JOB": None,
    "FOCUS_RESUME": "auto",
    "FOCUS_POLICY": "priority",
    "FOCUS_PLUGINS": {},
    "FOCUS_TOPIC": None,
    "FOCUS_DOMAINS": None,
    "FOCUS_INCLUDED": [],
    "FOCUS_EXCLUDED": [],
    "FOCUS_CANONICAL": [],
    "FOCUS_TRAPS": {},
    "FOCUS_PACE_BY": "host",
    "FOCUS_MAX_DEPTH": 0,
    "FOCUS_MAX_PAGES": 0,
    "FOCUS_MAX_PAGES_PER_HOST": 0,
    "FOCUS_MAX_BYTES": 0,
    "FOCUS_MAX_SECONDS": 0,
    "FOCUS_MAX_CRAWL_DELAY": 3600,
    "FOCUS_HORIZON": 3600,
    "FOCUS_DURABILITY": "normal",
    "FOCUS_SERIALIZER": "json",
    "FOCUS_SEEN": "exact",
}


@dataclass(frozen=True, slots=True)
class FocusSettings:
    """What a user has asked for. Times in seconds, sizes in bytes, 0 for no limit."""

    frontier: str | None
    job: str
    resume: bool | None
    policy: Any
    plugins: dict[Any, int | None]
    domains: tuple[str, ...]
    domains_setting: str
    included: tuple[str, ...]
    excluded: tuple[str, ...]
    forms: Forms
    traps: Traps
    groups: Groups
    max_depth: int
    max_pages: int
    max_pages_per_host: int
    max_bytes: int
    max_seconds: float
    max_crawl_delay: float
    horizon: float
    full: bool
    serializer: Literal["json", "pickle"]
    seen: Choice


def read_settings(
    settings: BaseSettings, spider: Spider, arguments: Mapping[str, Any]
) -> FocusSettings:
    """Read and check them all.

    :param arguments: the spider's arguments, part of the job's default name

    :raises scrapy_focus.exceptions.SettingError: on a value that cannot be used
    """
    _report_unknown(settings)
    if settings.get("FOCUS_TOPIC") is not None:
        raise SettingError(
            "FOCUS_TOPIC is set, but this version of scrapy_focus has no topic plugin yet; "
            "remove the setting, or score URLs in a plugin of your own (FOCUS_PLUGINS)."
        )
    domains_setting = "FOCUS_DOMAINS"
    if settings.get("FOCUS_DOMAINS") is None:
        domains_setting = "the spider's allowed_domains"
        domains = _strings(domains_setting, getattr(spider, "allowed_domains", None))
    else:
        domains = _strings(domains_setting, settings.get("FOCUS_DOMAINS"))

    def read(name: str, convert: Callable[[str, Any], _T]) -> _T:
        return convert(name, settings.get(name, DEFAULTS[name]))

    return FocusSettings(
        frontier=read("FOCUS_FRONTIER", _address),
        job=read("FOCUS_JOB", _text) or job_name(spider, arguments),
        resume=read("FOCUS_RESUME", _resume),
        policy=settings.get("FOCUS_POLICY", DEFAULTS["FOCUS_POLICY"]),
        plugins=_components(settings),
        domains=domains,
        domains_setting=domains_setting,
        included=read("FOCUS_INCLUDED", _strings),
        excluded=read("FOCUS_EXCLUDED", _strings),
        forms=read("FOCUS_CANONICAL", read_forms),
        traps=read("FOCUS_TRAPS", read_traps),
        groups=read("FOCUS_PACE_BY", _groups),
        max_depth=read("FOCUS_MAX_DEPTH", _whole),
        max_pages=read("FOCUS_MAX_PAGES", _whole),
        max_pages_per_host=read("FOCUS_MAX_PAGES_PER_HOST", _whole),
        max_bytes=read("FOCUS_MAX_BYTES", _whole),
        max_seconds=read("FOCUS_MAX_SECONDS", _seconds),
        max_crawl_delay=read("FOCUS_MAX_CRAWL_DELAY", _seconds),
        horizon=read("FOCUS_HORIZON", _seconds),
        full=read("FOCUS_DURABILITY", _choice("normal", "full")) == "full",
        serializer=cast(
            "Literal['json', 'pickle']", read("FOCUS_SERIALIZER", _choice("json", "pickle"))
        ),
        seen=_shedding(settings, read("FOCUS_SEEN", read_seen)),
    )


def read_forms(name: str, value: Any) -> Forms:
    """The canonical forms that ``FOCUS_CANONICAL`` names, for all hosts or by host."""
    try:
        if isinstance(value, str):
            # From the command line: names, or JSON.
            value = json.loads(value) if value.strip()[:1] in ("[", "{") else _strings(name, value)
        if not isinstance(value, Mapping):
            value = {"*": value} if value else {}
        return Forms({host: [c] if isinstance(c, str) else c for host, c in value.items()})
    except TypeError:
        problem = "it must be a list of rules, or a dict of hosts and lists of rules"
    except ValueError as error:  # an InvalidRule is one, and what JSON raises
        problem = str(error)
    raise SettingError(f"{name} is {value!r}: {problem}")


def read_traps(name: str, value: Any) -> Traps:
    """The caps of ``FOCUS_TRAPS``, a dict, or its JSON from the command line."""
    try:
        caps = json.loads(value) if isinstance(value, str) else value
        if not isinstance(caps, Mapping):
            raise InvalidCap("it must be a dict of traps and numbers.")
        return Traps(caps)
    except ValueError as error:  # an InvalidCap is one, and what JSON raises
        raise SettingError(f"{name} is {value!r}: {error}") from None


def read_seen(name: str, value: Any) -> Choice:
    """The seen set of ``FOCUS_SEEN``: its name, or a dict of that and its size, which may be JSON
    from the command line."""
    try:
        is_json = isinstance(value, str) and value.strip().startswith("{")
        options = json.loads(value) if is_json else value
        if isinstance(options, str):
            options = {"set": options}
        if not isinstance(options, Mapping):
            raise ValueError("it must be a name, or a dict with the name as its set")
        kind = options.get("set")
        if kind not in CHOICES:
            raise ValueError(f"the set must be one of {', '.join(CHOICES)}")
        fields = {"error", "capacity"} if kind in ("bloom", "cuckoo") else set()
        if strange := sorted(map(str, options.keys() - fields - {"set"})):
            raise ValueError(f"{strange[0]!r} is no option of this set")
        error, capacity = options.get("error", EXACT.error), options.get("capacity", EXACT.capacity)
        if not isinstance(error, float) or not 1e-9 <= error <= 0.1:
            raise ValueError("the error must be a number between 1e-9 and 0.1")
        if type(capacity) is not int or not 1 <= capacity <= 10**10:
            raise ValueError("the capacity must be a whole number, 1 or more")
    except ValueError as problem:  # what JSON raises is one
        raise SettingError(f"{name} is {value!r}: {str(problem).rstrip('.')}.") from None
    return Choice(kind, error, capacity)


def _shedding(settings: BaseSettings, seen: Choice) -> Choice:
    """What is shed must be able to come back."""
    bounds = (name for name in DEFAULTS if "MAX_WAITING" in name)
    bound = next((name for name in bounds if settings.get(name)), None)
    if bound and not seen.can_forget:
        able = [f'"{name}"' for name, can_forget in CHOICES.items() if can_forget]
        raise SettingError(
            f"FOCUS_SEEN is {seen.name!r}, which cannot forget, and {bound} is set: what is shed "
            f"must be able to come back. Set FOCUS_SEEN to {' or '.join(able)}, or {bound} to 0."
        )
    return seen


def _groups(name: str, value: Any) -> Groups:
    try:
        # From the command line, a dict is JSON.
        is_json = isinstance(value, str) and value.strip().startswith("{")
        return Groups(json.loads(value) if is_json else value)
    except ValueError as error:
        raise SettingError(f"{name} is {value!r}: {error}") from None


def job_name(spider: Spider, arguments: Mapping[str, Any]) -> str:
    """The spider's name with its arguments: other arguments are another job."""
    name = " ".join([str(spider.name), *(f"{k}={v}" for k, v in sorted(arguments.items()))])
    # Bytes of the command line that are no text.
    return name.encode(errors="backslashreplace").decode()


def _report_unknown(settings: BaseSettings) -> None:
    for name in settings:
        if not (isinstance(name, str) and name.startswith("FOCUS_")) or name in DEFAULTS:
            continue
        near = difflib.get_close_matches(name, DEFAULTS, n=1, cutoff=0)
        logger.warning("There is no setting %s. Did you mean %s?", name, near[0])


def _components(settings: BaseSettings) -> dict[Any, int | None]:
    try:
        plugins = settings.getdict("FOCUS_PLUGINS")
    except ValueError as error:
        raise SettingError(
            f"FOCUS_PLUGINS must be a dict of classes and orders: {error}."
        ) from None
    for plugin, order in plugins.items():
        if order is not None and (isinstance(order, bool) or not isinstance(order, int)):
            raise SettingError(
                f"FOCUS_PLUGINS gives {plugin!r} the order {order!r}; an order is a whole number, "
                "or None to switch it off."
            )
    return plugins


def _whole(name: str, value: Any) -> int:
    number = _seconds(name, value)
    if number != int(number):
        raise SettingError(f"{name} is {value!r}; it must be a whole number, 0 for no limit.")
    return int(number)


def _seconds(name: str, value: Any) -> float:
    try:
        if isinstance(value, bool):
            raise ValueError
        number = float(0 if value is None else value)
    except (TypeError, ValueError):
        number = -1.0
    if not 0 <= number < math.inf:
        raise SettingError(f"{name} is {value!r}; it must be a number, 0 or more.")
    return number


def _text(name: str, value: Any) -> str | None:
    if value is None or (isinstance(value, str) and value.strip() and _is_text(value)):
        return value
    raise SettingError(f"{name} is {value!r}; it must be a string that is not empty.")


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:  # bytes of the command line that are no text
        return False
    return True


def _address(name: str, value: Any) -> str | None:
    # It may carry a password: it is not shown.
    if value is None or (isinstance(value, (str, Path)) and _is_text(str(value)) and str(value)):
        return None if value is None else str(value)
    raise SettingError(f"{name} is no address; it must be a string such as sqlite:///path.db.")


def _resume(name: str, value: Any) -> bool | None:
    known = {"auto": None, "true": True, "1": True, "false": False, "0": False}
    key = str(value).lower()
    if key not in known:
        raise SettingError(f'{name} is {value!r}; it must be "auto", True or False.')
    return known[key]


def _choice(*choices: str) -> Callable[[str, Any], str]:
    def convert(name: str, value: Any) -> str:
        if value not in choices:
            raise SettingError(f"{name} is {value!r}; it must be one of {', '.join(choices)}.")
        return str(value)

    return convert


def _strings(name: str, value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    try:
        # Scrapy passes over a None among allowed_domains.
        items = tuple(item for item in value if item is not None)
    except TypeError:
        items = (0,)
    if not all(isinstance(item, str) for item in items):
        raise SettingError(f"{name} is {value!r}; it must be a list of strings.")
    return items

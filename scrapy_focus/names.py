"""Names in stored requests: of classes, and of a spider's methods.

A class is named as ``module:qualified.name`` and only looked up among those that are already
imported. A method is looked up on the spider. Reading a row imports nothing and runs nothing.
"""

from __future__ import annotations

import sys
from types import MethodType, ModuleType
from typing import TYPE_CHECKING, Any, cast

from scrapy.http.request import NO_CALLBACK

if TYPE_CHECKING:
    from scrapy import Spider


class Unstorable(ValueError):
    """This cannot be stored; the message says what and why."""


class Unreadable(ValueError):
    """This stored row cannot be read back; the message says why, in one line."""


def one_line(value: object, limit: int = 200) -> str:
    """*value* as text that is safe in a log: one line, at most *limit* characters."""
    text = str(value)
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def in_log(value: object) -> str:
    """A request, a URL or a name as a log may show it: a site has chosen what is in it."""
    return one_line(value, 500)


def find_class(name: Any) -> type:
    """The class called *name*, if it is already imported.

    Nothing is imported, and no module-level ``__getattr__`` nor a lazy module's loader runs.

    :raises Unreadable: if there is no such class in memory
    """
    if type(name) is not str:
        raise Unreadable("a class is not named by text")
    module_name, _, path = name.partition(":")
    module = sys.modules.get(module_name)
    found: Any = module
    if issubclass(type(module), ModuleType):
        space = object.__getattribute__(module, "__dict__")
        for part in path.split("."):
            found = space.get(part)
            if not issubclass(type(found), type):
                break
            space = found.__dict__
        else:
            return cast("type", found)
    raise Unreadable(f"no class {one_line(name)} is imported")


def class_name(cls: type) -> str:
    """The name under which :func:`find_class` finds *cls*.

    :raises Unstorable: if it would not, as for a class that was made inside a function
    """
    name = f"{cls.__module__}:{cls.__qualname__}"
    try:
        found = find_class(name)
    except Unreadable:
        found = None
    if found is not cls:
        raise Unstorable(f"class {one_line(name)} cannot be found by its name")
    return name


def static(cls: type, name: str) -> Any:
    """A class attribute, without running a metaclass's or a descriptor's code."""
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return None


class SpiderMethods:
    """The names of a spider's methods, and the methods of these names."""

    def __init__(self, spider: Spider) -> None:
        self._spider = spider
        self._names: dict[Any, str] = {}
        self._checked: set[str] = set()

    def name(self, callback: Any) -> str | bool:
        if callback is NO_CALLBACK:
            return False
        if not isinstance(callback, MethodType) or callback.__self__ is not self._spider:
            raise Unstorable(f"{one_line(repr(callback))} is not a method of the spider")
        function = callback.__func__
        name = self._names.get(function)
        if name is None or not self._is(name, function):
            name = self._find(callback)
            self._names[function] = name
        return name

    def _find(self, callback: MethodType) -> str:
        """Its own name, or, for a private method or a reference, what the spider calls it."""
        function = callback.__func__
        if self._is(own := getattr(function, "__name__", ""), function):
            return own
        for space in (*map(vars, type(self._spider).__mro__), vars(self._spider)):
            for name, value in space.items():
                # A bound method is one that was set on the instance.
                found = value.__func__ if type(value) is MethodType else value
                if found is function and self._is(name, function):
                    return name
        raise Unstorable(f"the spider has no attribute that is {one_line(repr(callback))}")

    def _is(self, name: str, function: Any) -> bool:
        try:
            found = self.method(name)
        except Unreadable:
            return False
        return getattr(found, "__func__", None) is function

    def method(self, name: Any) -> Any:
        """The spider's method *name*; nothing but a method of this very spider."""
        if name is False:
            return NO_CALLBACK
        if name not in self._checked:
            self._check(name)
        try:
            found = getattr(self._spider, name)
        except Exception as error:
            raise Unreadable(f"the spider has no method {one_line(name)}") from error
        if isinstance(found, MethodType) and found.__self__ is self._spider:
            return found
        raise Unreadable(f"{one_line(name)} is not a method of the spider")

    def _check(self, name: Any) -> None:
        """Refuse what ``getattr`` had better not touch: properties would run."""
        if type(name) is not str or (name.startswith("__") and name.endswith("__")):
            raise Unreadable(f"{one_line(name)} is not a name for a callback")
        for cls in type(self._spider).__mro__:
            if name in vars(cls):
                attribute = vars(cls)[name]
                if hasattr(type(attribute), "__get__") and not callable(attribute):
                    raise Unreadable(f"{one_line(name)} is not a method of the spider")
                break
        else:
            if name not in vars(self._spider):
                raise Unreadable(f"the spider has no method {one_line(name)}")
        self._checked.add(name)

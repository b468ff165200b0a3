"""Python values as JSON: what JSON would change is tagged, and comes back as it was.

:func:`encode` is a strict whitelist. A value that it does not know raises :exc:`Unstorable`, so
that whatever it accepts comes back equal and of the same type, and nobody has to look twice.

A tagged value is an object with one member whose name begins with ``!``. A user's own dict with
such a key is written as pairs, so no dict can pass for a tag.

Classes go by name (see :mod:`scrapy_focus.names`). Reading never calls a class that a row names.
"""

from __future__ import annotations

import base64
import dataclasses
import math
import re
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, EnumMeta
from functools import lru_cache
from types import MemberDescriptorType, NoneType
from typing import TYPE_CHECKING, Any
from uuid import UUID
from zoneinfo import ZoneInfo

from scrapy import Item
from scrapy.utils.trackref import object_ref

from scrapy_focus.names import Unreadable, Unstorable, class_name, find_class, one_line, static

if TYPE_CHECKING:
    from collections.abc import Callable


#: How deep containers may be nested. Both ways need a few Python frames for each level, and what
#: could be written near the bottom of a shallow stack must be readable from a deep one too.
MAX_NESTING = 100

_TAG = "!"
_INT_LIMIT = 1 << 63  # beyond it other readers of JSON lose digits, and Python refuses 4,300 digits
_ITEM_STATE = vars(Item()).keys()
_MICROSECOND = timedelta(microseconds=1)
_ZONE_KEY = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*")


@lru_cache(maxsize=512)
def _layout(cls: type) -> tuple[str, ...]:
    """The fields of a dataclass or attrs class whose instances are their fields and no more.

    :raises Unstorable: for any other class, and where copying the fields would not make an equal
        instance or would run code
    """
    if static(cls, "__dataclass_fields__") is not None:
        fields = tuple(field.name for field in dataclasses.fields(cls))
    elif isinstance(attributes := static(cls, "__attrs_attrs__"), tuple):
        fields = tuple(str(attribute.name) for attribute in attributes)
    else:
        raise Unstorable(f"no way is known to store a {_show(cls)}")
    if static(cls, "__eq__") is object.__eq__:
        raise Unstorable(f"a copy of a {_show(cls)} is not equal to it")
    try:
        object.__new__(cls)
    except TypeError as error:  # a subclass of dict, an exception, an abstract class
        raise Unstorable(f"a {_show(cls)} is more than its fields") from error
    for name in _slots(cls) - {"__dict__", "__weakref__"}:
        if name not in fields:
            raise Unstorable(f"a {_show(cls)} has a slot {name} that is not a field")
    for name in fields:
        attribute = static(cls, name)
        if hasattr(type(attribute), "__set__") and type(attribute) is not MemberDescriptorType:
            raise Unstorable(f"the field {name} of a {_show(cls)} is computed")
    return fields


def _slots(cls: type) -> set[str]:
    names: set[str] = set()
    for base in cls.__mro__:
        slots = base.__dict__.get("__slots__", ())
        names.update((slots,) if isinstance(slots, str) else slots)
    return names


def _show(cls: type) -> str:
    return one_line(f"{cls.__module__}.{cls.__qualname__}")


# -- values to JSON ----------------------------------------------------------------------------


def encode(value: Any, room: int = MAX_NESTING) -> Any:
    """*value* as something that :mod:`json` writes and reads without a change.

    A string of lxml's comes back as a plain one.

    :param room: how many more levels of containers are allowed
    :raises Unstorable: for a value that would not come back equal and of the same type
    """
    kind = type(value)
    if kind is str and value.isascii():
        return value
    encoder = _ENCODERS.get(kind)
    if encoder is not None:
        return encoder(value, room)
    return _encode_object(value, kind, room)


def encode_bytes(value: Any) -> Any:
    """Bytes that are known to be bytes when they are read: text, where they are UTF-8."""
    if type(value) is not bytes:
        raise Unstorable(f"bytes are expected, not a {_show(type(value))}")
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"!B": base64.b64encode(value).decode()}


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return True


def _encode_str(value: str, _room: int) -> Any:
    if _is_text(value):
        return value
    return {"!u": base64.b64encode(value.encode("utf-8", "surrogatepass")).decode()}


def _encode_int(value: int, _room: int) -> Any:
    return value if -_INT_LIMIT <= value < _INT_LIMIT else {"!i": hex(value)}


def _encode_float(value: float, _room: int) -> Any:
    return value if math.isfinite(value) else {"!n": repr(value)}


def _encode_bytes(value: bytes, _room: int) -> Any:
    plain = encode_bytes(value)
    return {"!b": plain} if type(plain) is str else plain


def _deeper(room: int) -> int:
    if room <= 0:
        raise Unstorable(f"nested deeper than {MAX_NESTING} levels, or contains itself")
    return room - 1


def _encode_list(value: Any, room: int) -> list[Any]:
    room = _deeper(room)
    return [encode(item, room) for item in value]


def _encode_dict(value: dict[Any, Any], room: int) -> Any:
    room = _deeper(room)
    if all(map(_is_plain_key, value)):
        return {key: encode(item, room) for key, item in value.items()}
    return {"!d": [[encode(key, room), encode(item, room)] for key, item in value.items()]}


def _is_plain_key(key: Any) -> bool:
    return type(key) is str and not key.startswith(_TAG) and (key.isascii() or _is_text(key))


def _as_list(tag: str) -> Callable[[Any, int], Any]:
    return lambda value, room: {tag: _encode_list(value, room)}


def _encode_zone(zone: tzinfo | None) -> list[Any]:
    if zone is None:
        return []
    if type(zone) is timezone:
        offset = zone.utcoffset(None)
        name = zone.tzname(None)
        own_name = [] if name == timezone(offset).tzname(None) else [encode(name)]
        return [offset // _MICROSECOND, *own_name]
    if type(zone) is ZoneInfo and zone.key is not None and ZoneInfo(zone.key) is zone:
        return [zone.key]
    raise Unstorable(f"a time zone of type {_show(type(zone))} cannot be stored")


def _encode_clock(tag: str) -> Callable[[Any, int], Any]:
    def encoder(value: datetime | time, _room: int) -> Any:
        naive = value.replace(tzinfo=None, fold=0).isoformat()
        return {tag: [naive, value.fold, *_encode_zone(value.tzinfo)]}

    return encoder


def _encode_object(value: Any, cls: Any, room: int) -> Any:
    if issubclass(cls, Enum):
        return _encode_member(value, cls)
    if issubclass(cls, str) and cls.__module__ == "lxml.etree":
        # Text that knows its place in a page, such as CrawlSpider's meta["link_text"].
        return _encode_str(str.__str__(value), room)
    state = dict(getattr(value, "__dict__", ()))
    if issubclass(cls, tuple) and isinstance(static(cls, "_fields"), tuple):
        content: Any = _encode_list(tuple.__iter__(value), room)
        tag, extra = "!N", state
    else:
        room = _deeper(room)
        tag, extra = "!o", state
        if Item in cls.__mro__:
            names = tuple(Item.__iter__(value))
            values: Any = (Item.__getitem__(value, name) for name in names)
            extra = {name: state[name] for name in state.keys() - _ITEM_STATE}
        else:
            names = _layout(cls)
            values = (getattr(value, name) for name in names)
            extra = {name: state[name] for name in state.keys() - set(names)}
        content = _encode_dict(dict(zip(names, values, strict=True)), room)
    if extra:
        raise Unstorable(f"a {_show(cls)} has the attribute {one_line(min(extra))}, not a field")
    return {tag: [class_name(cls), content]}


def _encode_member(value: Enum, cls: type[Enum]) -> Any:
    if cls.__members__.get(value.name) is not value:  # several flags at once have no name
        raise Unstorable(f"{one_line(repr(value))} is not one member of its enum")
    return {"!e": [class_name(cls), encode(value.name)]}


_ENCODERS: dict[type, Callable[[Any, int], Any]] = {
    NoneType: lambda value, room: value,
    bool: lambda value, room: value,
    str: _encode_str,
    int: _encode_int,
    float: _encode_float,
    bytes: _encode_bytes,
    list: _encode_list,
    dict: _encode_dict,
    tuple: _as_list("!t"),
    set: _as_list("!s"),
    frozenset: _as_list("!f"),
    datetime: _encode_clock("!dt"),
    time: _encode_clock("!ti"),
    date: lambda value, room: {"!da": value.isoformat()},
    timedelta: lambda value, room: {"!td": [value.days, value.seconds, value.microseconds]},
    Decimal: lambda value, room: {"!D": str(value)},
    UUID: lambda value, room: {"!U": value.hex},
}


# -- JSON to values ----------------------------------------------------------------------------


def decode(value: Any) -> Any:
    """What :func:`encode` was given, from its result.

    Nothing is imported and nothing that *value* names is called, whatever *value* is. Where it is
    not something that :func:`encode` made, it raises :exc:`Unreadable` or what the malformed part
    happens to raise; the caller makes one error of them.
    """
    kind = type(value)
    if kind is list:
        return [decode(item) for item in value]
    if kind is not dict:
        return value
    if len(value) == 1:
        [(tag, content)] = value.items()
        if tag.startswith(_TAG):
            decoder = _DECODERS.get(tag)
            if decoder is None:
                raise Unreadable(f"the tag {one_line(tag)} is unknown")
            return decoder(content)
    return {key: decode(item) for key, item in value.items()}


def decode_bytes(value: Any) -> bytes:
    """The other way for :func:`encode_bytes`."""
    found = value.encode() if type(value) is str else decode(value)
    if type(found) is not bytes:
        raise Unreadable(f"bytes are expected, not a {_show(type(found))}")
    return found


def _text(value: Any) -> str:
    if type(value) is not str:
        raise Unreadable(f"text is expected, not a {_show(type(value))}")
    return value


def _list(value: Any) -> list[Any]:
    if type(value) is not list:
        raise Unreadable(f"a list is expected, not a {_show(type(value))}")
    return value


def _base64(value: Any) -> bytes:
    return base64.b64decode(_text(value), validate=True)


def _decode_float(content: Any) -> float:
    if content not in ("nan", "inf", "-inf"):
        raise Unreadable("not a float that JSON lacks")
    return float(content)


def _decode_pairs(content: Any) -> dict[Any, Any]:
    return {decode(key): decode(item) for key, item in map(_list, _list(content))}


def _decode_zone(parts: list[Any]) -> tzinfo | None:
    match parts:
        case []:
            return None
        case [int(offset)]:
            return timezone(offset * _MICROSECOND)
        case [int(offset), name]:
            return timezone(offset * _MICROSECOND, decode(name))
        case [str(key)] if _ZONE_KEY.fullmatch(key):
            # The name of a data file; the pattern keeps it inside the time zone database.
            return ZoneInfo(key)
    raise Unreadable("not a time zone")


def _decode_datetime(content: Any) -> datetime:
    naive, fold, *zone = _list(content)
    return datetime.fromisoformat(_text(naive)).replace(tzinfo=_decode_zone(zone), fold=fold)


def _decode_time(content: Any) -> time:
    naive, fold, *zone = _list(content)
    return time.fromisoformat(_text(naive)).replace(tzinfo=_decode_zone(zone), fold=fold)


def _decode_timedelta(content: Any) -> timedelta:
    days, seconds, microseconds = _list(content)
    return timedelta(days, seconds, microseconds)


def _decode_member(content: Any) -> Enum:
    name, member = _list(content)
    cls: Any = find_class(name)
    if not issubclass(type(cls), EnumMeta):
        raise Unreadable(f"{one_line(name)} is not an enum")
    found: Enum = cls.__members__[decode(member)]
    return found


def _decode_namedtuple(content: Any) -> tuple[Any, ...]:
    name, values = _list(content)
    cls = find_class(name)
    fields = static(cls, "_fields")
    if not issubclass(cls, tuple) or not isinstance(fields, tuple):
        raise Unreadable(f"{one_line(name)} is not a named tuple")
    if len(_list(values)) != len(fields):
        raise Unreadable(f"the fields of {one_line(name)} are not those that were stored")
    return tuple.__new__(cls, map(decode, values))


def _decode_object(content: Any) -> Any:
    name, values = _list(content)
    cls = find_class(name)
    fields = decode(values)
    if type(fields) is not dict:
        raise Unreadable(f"the fields of {one_line(name)} are missing")
    if Item in cls.__mro__:
        return _build_item(cls, fields)
    try:
        layout = _layout(cls)
    except Unstorable as error:
        raise Unreadable(str(error)) from error
    if fields.keys() != set(layout):
        raise Unreadable(f"the fields of {one_line(name)} are not those that were stored")
    # Neither __init__ nor __post_init__ runs: the fields are what they had become. This way
    # also serves frozen classes.
    built: Any = object.__new__(cls)
    for field, value in fields.items():
        object.__setattr__(built, field, value)
    return built


def _build_item(cls: type[Item], fields: dict[str, Any]) -> Item:
    built: Item = object_ref.__new__(cls)
    Item.__init__(built)
    for field, value in fields.items():
        Item.__setitem__(built, field, value)  # a KeyError for a field that is no more
    return built


_DECODERS: dict[str, Callable[[Any], Any]] = {
    "!u": lambda content: _base64(content).decode("utf-8", "surrogatepass"),
    "!i": lambda content: int(_text(content), 16),
    "!n": _decode_float,
    "!b": lambda content: _text(content).encode(),
    "!B": _base64,
    "!d": _decode_pairs,
    "!t": lambda content: tuple(map(decode, _list(content))),
    "!s": lambda content: set(map(decode, _list(content))),
    "!f": lambda content: frozenset(map(decode, _list(content))),
    "!dt": _decode_datetime,
    "!ti": _decode_time,
    "!da": lambda content: date.fromisoformat(_text(content)),
    "!td": _decode_timedelta,
    "!D": lambda content: Decimal(_text(content)),
    "!U": lambda content: UUID(hex=_text(content)),
    "!e": _decode_member,
    "!N": _decode_namedtuple,
    "!o": _decode_object,
}

"""The stored form of a Scrapy request.

The URL, the depth (``meta["depth"]``) and the priority are columns of a row. Everything else is in
one blob, which holds only what differs from the default, so that an ordinary GET has none, and one
without a depth or an ordinary start request one letter. Any other blob is JSON with short keys (see
:data:`_TYPES`), or a pickle of the same dict where the user asked for that. JSON begins with ``{``
and such a pickle with the byte 0x80.

A row is read without importing anything and without calling anything that it names except a
subclass of :class:`scrapy.Request`: its class and its callbacks are looked up.
"""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any, Literal

import scrapy.http
from scrapy import Request
from scrapy.http import FormRequest, Headers, JsonRequest, XmlRpcRequest

from scrapy_focus.leftovers import CHAIN_KEYS, NEVER_STORED, Leftovers, clean_meta, host_slot
from scrapy_focus.names import (
    SpiderMethods,
    Unreadable,
    Unstorable,
    class_name,
    find_class,
    one_line,
)
from scrapy_focus.values import decode, decode_bytes, encode, encode_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from scrapy import Spider

__all__ = [
    "CHAIN_KEYS",
    "NEVER_STORED",
    "RequestStorage",
    "Unreadable",
    "Unstorable",
    "clean_meta",
]

#: The keys of a stored request, each with what it holds and the types that it may have.
_TYPES: dict[str, tuple[str, tuple[type, ...]]] = {
    "a": ("attributes of the class", (dict,)),
    "b": ("body", (bytes,)),
    "c": ("callback", (str, bool)),  # False is NO_CALLBACK
    "d": ("dont_filter", (object,)),
    "e": ("errback", (str, bool)),
    "f": ("flags", (list, tuple)),
    "h": ("headers", (dict,)),
    "k": ("cookies", (dict, list, tuple)),
    "m": ("method", (str,)),
    "n": ("encoding", (str,)),
    "r": ("class", (str,)),
    "t": ("meta", (dict,)),  # without "depth", where that is the column's
    "x": ("cb_kwargs", (dict,)),
    "z": ("marker for meta without a depth", (bool,)),
}

_DEFAULTS: tuple[tuple[str, str, Any], ...] = (
    ("b", "body", b""),
    ("d", "dont_filter", False),
    ("f", "flags", []),
    ("k", "cookies", {}),
    ("m", "method", "GET"),
    ("n", "encoding", "utf-8"),
    ("x", "cb_kwargs", {}),
)
#: What constructors change; with what to assign for the default.
_ASSIGNED: tuple[tuple[str, str, Any], ...] = (
    ("d", "dont_filter", False),
    ("f", "flags", None),
    ("k", "cookies", None),
    ("m", "method", "GET"),
)

#: The records of a start request that has nothing of its own, without and with ``dont_filter``, and
#: of a GET that no middleware has given a depth, by a letter that stands for each: it saves most of
#: the time and of the room.
_NO_DEPTH: dict[str, Any] = {"z": True}
_PLAIN_SEED: dict[str, Any] = {"z": True, "t": {"is_start_request": True}}
_LETTERS: dict[bytes, dict[str, Any]] = {
    b"g": _NO_DEPTH,
    b"s": _PLAIN_SEED,
    b"d": {"d": True, **_PLAIN_SEED},
}

_DEPTH_LIMIT = 1 << 31
#: Classes whose ``__init__`` is known to take their attributes as they are.
_EXACT = (Request, FormRequest, JsonRequest, XmlRpcRequest)


class RequestStorage:
    """Packs the requests of one spider into bytes, and unpacks them.

    :param spider: the spider whose methods are the callbacks
    :param serializer: what new rows are written in (``FOCUS_SERIALIZER``). ``"json"`` reads JSON
        only; ``"pickle"`` reads both, and whoever can write to the store can then run code here.
    :param automatic_slot: gives the download slot of a URL whose request asks for none
    """

    def __init__(
        self,
        spider: Spider,
        serializer: Literal["json", "pickle"] = "json",
        *,
        automatic_slot: Callable[[str], str] = host_slot,
    ) -> None:
        if serializer not in ("json", "pickle"):
            raise ValueError(f"serializer must be 'json' or 'pickle', not {serializer!r}")
        self._pickles = serializer == "pickle"
        self._methods = SpiderMethods(spider)
        self._leftovers = Leftovers(spider, automatic_slot)

    # -- to bytes ------------------------------------------------------------------------------

    def pack(
        self, request: Request, *, hop: bool = False, copied_slots: Iterable[str] = ()
    ) -> bytes | None:
        """The stored form of *request*, without its URL, depth and priority.

        The request is not changed. Not stored are: what is in :data:`NEVER_STORED`; in ``meta``,
        the ``download_timeout`` and the ``download_slot`` that Scrapy itself would set; the chain's
        counts, unless *hop*; and, where *hop*, the headers that middlewares add again.

        :param hop: whether it is a retry or a redirect hop of a request that was handed out
        :param copied_slots: automatic slots, of other pages, that ``meta`` may have been copied
            with. As a ``download_slot`` they are dropped too.
        :return: ``None`` for an ordinary GET
        :raises Unstorable: if it would not come back as it is
        """
        try:
            return self._pack(request, hop, copied_slots)
        except Unstorable:
            raise
        except Exception as error:  # code of the user's own: properties, constructors, pickling
            raise Unstorable(_reason(error)) from error

    def _pack(self, request: Request, hop: bool, copied_slots: Iterable[str]) -> bytes | None:
        if not request.url.isascii():
            request.url.encode()  # a verbatim URL may be no text
        if _is_plain(request):
            meta = request.meta
            if not meta:
                return b"g"
            if len(meta) == 1 and _is_depth(meta.get("depth")):
                return None
        record = self._record(request, hop, copied_slots)
        if not record:
            return None
        if (letter := _letter(record)) is not None:
            return letter
        _check(record, Unstorable)
        data = self._dump(record)
        if type(request) not in _EXACT:
            self._prove(request, hop, data)
        return data

    def _record(self, request: Request, hop: bool, copied_slots: Iterable[str]) -> dict[str, Any]:
        record: dict[str, Any] = {}
        if type(request) is not Request:
            _add_class(record, request)
        if request.callback is not None:
            record["c"] = self._methods.name(request.callback)
        if request.errback is not None:
            record["e"] = self._methods.name(request.errback)
        if request.headers and (headers := self._leftovers.headers(request, hop)):
            record["h"] = headers
        for key, attribute, default in _DEFAULTS:
            if (value := getattr(request, attribute)) != default:
                record[key] = value
        self._add_meta(record, request, hop, copied_slots)
        return record

    def _add_meta(
        self, record: dict[str, Any], request: Request, hop: bool, copied_slots: Iterable[str]
    ) -> None:
        in_column = _is_depth(request.meta.get("depth"))
        if in_column and len(request.meta) == 1:
            return
        meta = self._leftovers.meta(request, hop, copied_slots)
        if in_column:
            del meta["depth"]
        elif "depth" not in meta:
            record["z"] = True
        if meta:
            record["t"] = meta

    def _dump(self, record: dict[str, Any]) -> bytes:
        if self._pickles:
            return pickle.dumps(record, protocol=4)
        plain = {
            key: writer(value) if (writer := _WRITERS.get(key)) else _encode_field(key, value)
            for key, value in record.items()
        }
        return _to_json(plain).encode()

    def _prove(self, request: Request, hop: bool, data: bytes) -> None:
        """A user's own class may do anything in ``__init__``: see what it does."""
        try:
            record = self._load(data)
            again = self._build(record, request.url, 0, request.priority)
        except Unreadable as error:
            raise Unstorable(str(error)) from error
        found = self._record(again, hop, ())
        # These are the very objects of the record, so that a NaN equals itself here.
        if again.url != request.url or found != record:
            raise Unstorable(f"a {one_line(type(request).__name__)} is changed by its own __init__")

    # -- from bytes ----------------------------------------------------------------------------

    def unpack(self, data: bytes | None, *, url: str, depth: int, priority: int) -> Request:
        """The request that :meth:`pack` made *data* of.

        The URL is taken as it is: it was made safe when the request was made.

        :param depth: comes back as ``meta["depth"]``, unless the request had none
        :raises Unreadable: whatever is wrong with the row, be it made by accident or on purpose
        """
        try:
            if type(url) is not str or type(depth) is not int or type(priority) is not int:
                raise Unreadable("its URL, depth or priority has the wrong type")
            if data is None:
                return _plain(url, {"depth": depth}, priority)
            if data == b"g":
                return _plain(url, {}, priority)
            return self._build(self._load(data), url, depth, priority)
        except Unreadable:
            raise
        except Exception as error:  # a malformed row may break anything
            raise Unreadable(f"the row is malformed: {_reason(error)}") from error

    def _load(self, data: bytes) -> dict[str, Any]:
        if type(data) is not bytes:
            raise Unreadable("its data is not bytes")
        if data in _LETTERS:
            return _LETTERS[data]
        first = data[:1]
        if first == b"{":
            record = _from_json(data)
        elif first != b"\x80":
            raise Unreadable("its data is neither JSON nor a pickle")
        elif self._pickles:
            record = pickle.loads(data)  # noqa: S301 - the user's explicit choice
        else:
            raise Unreadable(
                "it is a pickle, written with FOCUS_SERIALIZER = 'pickle', and only read with it"
            )
        if type(record) is not dict:
            raise Unreadable("its data is not a dict")
        _check(record, Unreadable)
        if first != b"{":
            _encode_headers(record.get("h", {}))  # raises where they are not bytes
        return record

    def _build(self, record: dict[str, Any], url: str, depth: int, priority: int) -> Request:
        get = record.get
        meta: dict[str, Any] = {} if "z" in record else {"depth": depth}
        if "t" in record:
            meta.update(record["t"])
        encoding = get("n", "utf-8")
        if encoding != "utf-8":
            "".encode(encoding)  # is it one?
        arguments = {
            "url": url,
            # As the URL was stored, so it comes back; and most of the constructor's time is saved.
            "meta": {**meta, "verbatim_url": True},
            "body": get("b", b""),
            "encoding": encoding,
            "priority": priority,
            "cb_kwargs": get("x"),
        }
        name = get("r")
        if name is None:
            request = Request(**arguments)
        else:
            request = _construct(_request_class(name), record, arguments)
            request.meta.clear()
            request.meta.update(meta)
        if "verbatim_url" in meta:
            request.meta["verbatim_url"] = meta["verbatim_url"]
        else:
            request.meta.pop("verbatim_url", None)
        callback, errback = get("c"), get("e")
        if callback is not None:
            request.callback = self._methods.method(callback)
        if errback is not None:
            request.errback = self._methods.method(errback)
        for key, attribute, default in _ASSIGNED:
            if key in record or name is not None:
                setattr(request, attribute, get(key, default))
        if "h" in record or name is not None:
            headers = Headers(encoding=encoding)
            dict.update(headers, get("h", {}))
            request.headers = headers
        return request


# -- helpers -----------------------------------------------------------------------------------


def _reason(error: Exception) -> str:
    try:
        return one_line(f"{type(error).__name__}: {error}")
    except Exception:  # noqa: BLE001 - a __str__ that raises
        return one_line(type(error).__name__)


def _is_depth(depth: object) -> bool:
    """Whether it fits into the column."""
    return type(depth) is int and 0 <= depth < _DEPTH_LIMIT


def _is_plain(request: Request) -> bool:
    """Whether a request has nothing to store but what is in its meta: by far the most have."""
    return (
        type(request) is Request
        and request.callback is None
        and request.errback is None
        and not request.headers
        and request.dont_filter is False
        and request.method == "GET"
        and request.body == b""
        and request.cookies == {}
        and request.cb_kwargs == {}
        and request.flags == []
        and request.encoding == "utf-8"
    )


def _plain(url: str, meta: dict[str, Any], priority: int) -> Request:
    """A request that :func:`_is_plain`."""
    # As the URL was stored, so it comes back; and most of the constructor's time is saved.
    meta["verbatim_url"] = True
    request = Request(url, meta=meta, priority=priority)
    del request.meta["verbatim_url"]
    return request


def _letter(record: dict[str, Any]) -> bytes | None:
    """The letter that stands for a record, if there is one. Values are compared by identity: 1 is
    equal to ``True``, and would come back as it."""
    if "z" not in record:
        return None
    if len(record) == 1:
        return b"g"
    meta = record.get("t")
    if not meta or len(meta) > 1 or meta.get("is_start_request") is not True:
        return None
    if len(record) == 2:
        return b"s"
    return b"d" if len(record) == 3 and record.get("d") is True else None


def _check(record: dict[str, Any], wrong: type[ValueError]) -> None:
    for key, value in record.items():
        label, types = _TYPES.get(key, (None, ()))
        if label is None:
            raise wrong(f"the key {one_line(key)} is unknown; is it from a newer scrapy_focus?")
        if not isinstance(value, types):
            raise wrong(f"{label} cannot be a {one_line(type(value).__name__)}")


def _add_class(record: dict[str, Any], request: Request) -> None:
    cls = type(request)
    # Scrapy's own by their public name: a frontier outlives a version of Scrapy.
    public = vars(scrapy.http).get(cls.__name__) is cls
    record["r"] = cls.__name__ if public else class_name(cls)
    extras = {
        name: getattr(request, name) for name in cls.attributes if name not in Request.attributes
    }
    if extras:
        record["a"] = extras


def _request_class(name: str) -> type[Request]:
    cls = find_class(name if ":" in name else f"scrapy.http:{name}")
    if Request not in cls.__mro__:
        raise Unreadable(f"{one_line(name)} is not a class of requests")
    return cls


def _construct(cls: type[Request], record: dict[str, Any], arguments: dict[str, Any]) -> Request:
    """As :meth:`.Request.replace` does: what is in ``attributes`` is an argument."""
    arguments["headers"] = record.get("h")
    for key, attribute, default in _ASSIGNED:
        arguments[attribute] = record.get(key, default)
    extras = record.get("a", {})
    if unknown := extras.keys() - (set(cls.attributes) - set(Request.attributes)):
        raise Unreadable(f"{cls.__name__} has no attribute {one_line(min(unknown))} any more")
    arguments |= extras
    return cls(**{name: value for name, value in arguments.items() if name in cls.attributes})


_to_json = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":")
).encode


def _refuse_constant(name: str) -> Any:
    raise Unreadable(f"its data is not JSON: {name}")


_read_json = json.JSONDecoder(parse_constant=_refuse_constant).raw_decode


def _encode_field(key: str, value: Any) -> Any:
    try:
        return encode(value)
    except Unstorable as error:
        raise Unstorable(f"{_TYPES[key][0]}{_culprit(value)}: {error}") from error


def _culprit(value: Any) -> str:
    """Which entry of a dict cannot be stored, as ``['name']``."""
    for name, entry in value.items() if isinstance(value, dict) else ():
        try:
            encode(entry)
        except Unstorable:
            return one_line(f"[{name!r}]")
    return ""


def _encode_headers(headers: dict[bytes, list[bytes]]) -> list[Any]:
    """Names and values in turn; a name that has one value, as nearly all have, without a list."""
    flat: list[Any] = []
    for name, values in headers.items():
        several = [encode_bytes(value) for value in values]
        flat += encode_bytes(name), several[0] if len(several) == 1 else several
    return flat


def _decode_headers(flat: Any) -> dict[bytes, list[bytes]]:
    if type(flat) is not list:
        raise Unreadable("its headers are not a list")
    return {
        decode_bytes(name): list(map(decode_bytes, value if type(value) is list else [value]))
        for name, value in zip(flat[::2], flat[1::2], strict=True)
    }


_WRITERS: dict[str, Callable[[Any], Any]] = {"b": encode_bytes, "h": _encode_headers}
_READERS: dict[str, Callable[[Any], Any]] = {"b": decode_bytes, "h": _decode_headers}


def _from_json(data: bytes) -> dict[str, Any]:
    text = data.decode()
    plain, end = _read_json(text)
    if end != len(text):
        raise Unreadable("there is something after its JSON")
    return {key: _READERS.get(key, decode)(value) for key, value in plain.items()}

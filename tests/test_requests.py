"""The stored form of a request: what comes back, what cannot be stored, what cannot be read."""

from __future__ import annotations

import dataclasses
import enum
import functools
import http
import importlib.util
import json
import math
import pickle
import sys
import types
import uuid
from collections import Counter, OrderedDict, defaultdict, namedtuple
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, available_timezones

import attrs
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from scrapy import Field, Item, Request, Selector, Spider
from scrapy.downloadermiddlewares.httpproxy import HttpProxyMiddleware
from scrapy.http import FormRequest, Headers, JsonRequest, Response, XmlRpcRequest
from scrapy.http.request import NO_CALLBACK
from scrapy.utils.test import get_crawler

from scrapy_focus.names import class_name, find_class
from scrapy_focus.requests import (
    CHAIN_KEYS,
    NEVER_STORED,
    RequestStorage,
    Unreadable,
    Unstorable,
    clean_meta,
)
from scrapy_focus.values import _DECODERS, MAX_NESTING, decode, encode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import TypeAlias

    Values: TypeAlias = st.SearchStrategy[Any]

URL = "https://example.com/a?b=c"
ZONES = [  # none where the system has no time zone database
    ZoneInfo(key)
    for key in sorted({"Europe/Berlin", "America/New_York", "UTC"} & available_timezones())
]
ran: list[str] = []  # what must never have run
#: A busy machine is no failure.
relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


# -- what the tests store ----------------------------------------------------------------------


def reference(self: Any, response: Any) -> None: ...


def private_reference(self: Any, response: Any) -> None: ...


def decorated(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        return function(*args)

    return wrapper


def unchanged(value: Any) -> Any:
    return value


class Mixin:
    def __mixin_callback(self, response: Any) -> None: ...


class Base(Spider):
    def parse_item(self, response: Any) -> None: ...

    def parse_base(self, response: Any) -> None: ...


class MySpider(Mixin, Base):
    name = "my"
    a_reference = reference
    __a_reference = private_reference
    settings_like: ClassVar[Any] = {"a": 1}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.on_instance = types.MethodType(reference, self)
        self.elsewhere = Elsewhere().callback

    def parse(self, response: Any, **kwargs: Any) -> None: ...

    def parse_item(self, response: Any) -> None: ...

    def failed(self, failure: Any) -> None: ...

    def __parse_private(self, response: Any) -> None: ...

    @decorated
    def parse_decorated(self, response: Any) -> None: ...

    @classmethod
    def of_class(cls, response: Any) -> None: ...

    @staticmethod
    def static(response: Any) -> None: ...

    @property
    def a_property(self) -> Any:
        ran.append("property")
        return self.parse

    @functools.cached_property
    def a_cached_property(self) -> Any:
        ran.append("cached_property")
        return self.parse


class Elsewhere:
    def callback(self, response: Any) -> None: ...


class MyRequest(Request):
    pass


class ExtraRequest(FormRequest):
    attributes = (*FormRequest.attributes, "extra")

    def __init__(self, *args: Any, extra: Any = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.extra = extra


class NosyRequest(Request):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.meta["made"] = True
        self.headers["X-Made"] = "1"


class GrowingRequest(Request):
    def __init__(self, url: str, **kwargs: Any) -> None:
        super().__init__(url + "/", **kwargs)


class DemandingRequest(Request):
    def __init__(self, url: str, needed: int, **kwargs: Any) -> None:
        super().__init__(url, **kwargs)


class Product(Item):
    name = Field()
    price = Field()


class OddProduct(Item):
    name = Field()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        ran.append("Item.__init__")
        super().__init__(*args, **kwargs)


@dataclasses.dataclass
class Plain:
    a: Any
    b: Any = None
    hidden: Any = dataclasses.field(default=3, init=False, compare=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    a: Any
    b: Any = None

    def __post_init__(self) -> None:
        ran.append("__post_init__")


@dataclasses.dataclass
class Child(Plain):
    c: Any = None


@dataclasses.dataclass(eq=False)
class ByIdentity:
    a: Any


@dataclasses.dataclass
class Listing(list):  # type: ignore[type-arg]
    a: Any = None


@dataclasses.dataclass
class Computed:
    a: Any

    @property
    def b(self) -> Any:
        return self.a

    @b.setter
    def b(self, value: Any) -> None:
        ran.append("setter")


Computed.__dataclass_fields__["b"] = dataclasses.fields(Plain)[1]


class SlottedBase:
    __slots__ = ("secret",)


@dataclasses.dataclass
class Slotted(SlottedBase):
    a: Any


@attrs.define
class Defined:
    a: Any
    _b: Any = None


@attrs.frozen
class FrozenDefined:
    a: Any
    b: Any = attrs.field(default=None, converter=unchanged)


@attrs.define(slots=False)
class Unslotted:
    a: Any


class Point(NamedTuple):
    x: Any
    y: Any = 0


Old = namedtuple("Old", ["x", "y"])  # noqa: PYI024 - users have these, too


class Colour(enum.Enum):
    RED = 1
    BLUE = "b"


class Access(enum.Flag):
    READ = 1
    WRITE = 2


class Text(str):
    __slots__ = ()


class Number(int):
    pass


class Zone(tzinfo):
    def utcoffset(self, when: datetime | None) -> timedelta:
        return timedelta(0)

    def dst(self, when: datetime | None) -> None: ...

    def tzname(self, when: datetime | None) -> None: ...


class Outer:
    @dataclasses.dataclass
    class Inner:
        a: Any


@pytest.fixture(autouse=True)
def nothing_ran() -> Iterator[None]:
    ran.clear()
    yield
    ran.clear()


@pytest.fixture
def spider() -> MySpider:
    return MySpider()


@pytest.fixture
def storage(spider: MySpider) -> RequestStorage:
    return RequestStorage(spider)


def crawling(**settings: Any) -> RequestStorage:
    return RequestStorage(MySpider.from_crawler(get_crawler(MySpider, settings)))


def same(one: Any, other: Any) -> bool:
    """Whether they are equal, and of the same types all the way down."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return repr(one) == repr(other)
    if isinstance(one, Decimal):
        return bool(one.as_tuple() == other.as_tuple())
    if isinstance(one, (datetime, time)):
        return repr(one) == repr(other)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, (set, frozenset)):
        return one == other and all(any(same(a, b) for b in other) for a in one)
    if isinstance(one, (dict, Item)):
        return same(list(one.items()), list(other.items()))
    if dataclasses.is_dataclass(one):
        names = [field.name for field in dataclasses.fields(one)]
    elif attrs.has(type(one)):
        names = [field.name for field in attrs.fields(type(one))]
    else:
        return bool(one == other)
    return all(same(getattr(one, name), getattr(other, name)) for name in names)


def pass_through(storage: RequestStorage, request: Request, **options: Any) -> Request:
    data = storage.pack(request, **options)
    depth = request.meta.get("depth", 0)
    return storage.unpack(
        data,
        url=request.url,
        depth=depth if type(depth) is int else 0,
        priority=request.priority,
    )


def assert_same_request(spider: Spider, one: Request, other: Request) -> None:
    assert type(other) is type(one)
    first, second = one.to_dict(spider=spider), other.to_dict(spider=spider)
    assert first.keys() == second.keys()
    for name, left in first.items():
        right = second[name]
        if isinstance(left, dict):  # the order of meta and headers is no matter
            assert left.keys() == right.keys(), name
            assert all(same(left[key], right[key]) for key in left), name
        else:
            assert same(left, right), name
    assert other.headers.encoding == other.encoding


def row(**record: Any) -> bytes:
    return json.dumps(record).encode()


def read(storage: RequestStorage, data: Any) -> Request:
    return storage.unpack(data, url=URL, depth=1, priority=0)


def refusal(storage: RequestStorage, data: Any) -> str:
    with pytest.raises(Unreadable) as caught:
        read(storage, data)
    message = str(caught.value)
    assert message
    assert message.isprintable()
    assert len(message) < 400
    return message


# -- an ordinary GET, and what is stored at all ------------------------------------------------


def test_an_ordinary_get_needs_no_blob(storage: RequestStorage) -> None:
    request = Request(URL, meta={"depth": 3}, priority=7)
    assert storage.pack(request) is None
    back = storage.unpack(None, url=URL, depth=3, priority=7)
    assert type(back) is Request
    assert (back.url, back.meta, back.priority) == (URL, {"depth": 3}, 7)
    assert back.to_dict() == request.to_dict()


def test_only_what_differs_is_stored(storage: RequestStorage, spider: MySpider) -> None:
    request = Request(
        URL, spider.parse_item, headers={"Referer": "https://example.com/é"}, meta={"depth": 1}
    )
    expected = '{"c":"parse_item","h":["Referer","https://example.com/é"]}'
    assert storage.pack(request) == expected.encode()


@pytest.mark.parametrize(
    "changes",
    [
        {"method": "POST"},
        {"headers": {"A": "b"}},
        {"body": "b"},
        {"cookies": {"a": "b"}},
        {"meta": {"depth": 1, "a": 1}},
        {"meta": {}},
        {"encoding": "latin-1"},
        {"dont_filter": True},
        {"flags": ["a"]},
        {"cb_kwargs": {"a": 1}},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_each_difference_is_stored(
    storage: RequestStorage, spider: MySpider, changes: dict[str, Any]
) -> None:
    request = Request(URL, **({"meta": {"depth": 1}} | changes))
    assert storage.pack(request) is not None
    assert_same_request(spider, request, pass_through(storage, request))


@pytest.mark.parametrize("meta", [{}, {"a": 1}, {"is_start_request": True}])
def test_no_depth_stays_no_depth(storage: RequestStorage, meta: dict[str, Any]) -> None:
    assert pass_through(storage, Request(URL, meta=meta)).meta == meta


@pytest.mark.parametrize("serializer", ["json", "pickle"])
@pytest.mark.parametrize(
    "request_",
    [
        Request(URL, meta={"is_start_request": True}),
        Request(URL, meta={"is_start_request": True}, dont_filter=True),
        Request(URL),
    ],
    ids=["seed", "unfiltered seed", "no depth"],
)
def test_what_is_one_letter(spider: MySpider, serializer: Any, request_: Request) -> None:
    storage, request = RequestStorage(spider, serializer), request_
    assert len(storage.pack(request) or b"") == 1
    back = pass_through(storage, request)
    assert_same_request(spider, request, back)
    back.meta["more"] = 1
    assert_same_request(spider, request, pass_through(storage, request))


@pytest.mark.parametrize(
    "changes",
    [
        {"dont_filter": 1},
        {"dont_filter": "yes"},
        {"meta": {"is_start_request": 1}},
        {"meta": {"is_start_request": False}},
        {"meta": {"is_start_request": True, "depth": 0}},
        {"meta": {"is_start_request": True, "depth": None}},
        {"meta": {"is_start_request": True, "a": 1}},
        {"meta": {"a": True}},
        {"flags": ["d"]},
        {"method": "POST", "dont_filter": True},
        {"headers": {"A": "b"}},
    ],
    ids=str,
)
def test_what_is_nearly_an_ordinary_start_request(
    storage: RequestStorage, spider: MySpider, changes: dict[str, Any]
) -> None:
    request = Request(URL, **({"meta": {"is_start_request": True}} | changes))
    assert len(storage.pack(request) or b"") > 1
    assert_same_request(spider, request, pass_through(storage, request))


@pytest.mark.parametrize("depth", [0, 1, True, "3", None, 2.0, -1, 1 << 40])
def test_a_depth_comes_back_as_it_was(storage: RequestStorage, depth: Any) -> None:
    assert same(pass_through(storage, Request(URL, meta={"depth": depth})).meta["depth"], depth)


def test_packing_changes_nothing(storage: RequestStorage, spider: MySpider) -> None:
    meta = {"depth": 1, "download_slot": "example.com", "retry_times": 1, "list": [1]}
    request = Request(
        URL,
        spider.parse,
        headers={"Cookie": "a=b"},
        meta=meta,
        cookies={"a": "b"},
        cb_kwargs={"a": (1,)},
        flags=["x"],
    )
    before = request.to_dict(spider=spider)
    before = {name: dict(v) if isinstance(v, dict) else v for name, v in before.items()}
    storage.pack(request)
    storage.pack(request, hop=True)
    assert request.to_dict(spider=spider) == before
    assert request.meta == meta


# -- everything that to_dict carries -----------------------------------------------------------


@pytest.mark.parametrize("serializer", ["json", "pickle"])
def test_all_attributes(spider: MySpider, serializer: Any) -> None:
    request = Request(
        URL,
        callback=spider.parse_item,
        errback=spider.failed,
        method="put",
        body="Łódź",
        headers=[("A", "b"), ("X-Many", ["1", b"\xff"]), ("X-None", None), ("X-Empty", "")],
        cookies={"currency": "Ł", b"bytes": 1},
        encoding="cp1250",
        priority=20,
        dont_filter=True,
        meta={"a": {"b": (1, [b"2"])}, "depth": 4},
        cb_kwargs={"k": "v", "when": datetime(2024, 2, 29, tzinfo=timezone.utc)},
        flags=["one", "two"],
    )
    storage = RequestStorage(spider, serializer)
    assert_same_request(spider, request, pass_through(storage, request))


@pytest.mark.parametrize(
    "body", [b"\xff\xfe", "é€".encode(), b"\x00\x01", b'{"a": "b"}', b"x" * 100_000]
)
def test_bodies(storage: RequestStorage, body: bytes) -> None:
    request = Request(URL, method="POST", body=body)
    assert pass_through(storage, request).body == body


@pytest.mark.parametrize(
    "cookies",
    [
        {"a": "b"},
        [{"name": "a", "value": "b", "domain": "example.com", "secure": True}],
        [{"name": b"a", "value": 1.5}],
    ],
)
def test_cookies(storage: RequestStorage, cookies: Any) -> None:
    assert same(pass_through(storage, Request(URL, cookies=cookies)).cookies, cookies)


def test_headers_come_back_byte_for_byte(storage: RequestStorage) -> None:
    # Neither name would survive being normalized a second time, or at all.
    headers = Headers()
    dict.update(headers, {b"x-lower": [b"1"], "É-a".encode(): [b"\xff", b""], b"\xff": []})
    request = Request(URL)
    request.headers = headers
    assert dict(pass_through(storage, request).headers) == dict(headers)


def test_headers_can_be_changed_afterwards(storage: RequestStorage) -> None:
    back = pass_through(storage, Request(URL, headers={"A": "b"}, encoding="latin-1"))
    back.headers.setdefault("User-Agent", "é")
    assert back.headers["user-agent"] == b"\xe9"
    assert back.headers["a"] == b"b"


@pytest.mark.parametrize("method", ["HEAD", "get", "Brew"])
def test_a_method_comes_back_as_it_was(storage: RequestStorage, method: str) -> None:
    request = Request(URL)
    request.method = method
    assert pass_through(storage, request).method == method


@pytest.mark.parametrize(
    "request_",
    [
        MyRequest(URL),
        FormRequest(URL, formdata={"a": "é", "b": ["1", "2"]}),
        FormRequest(URL, formdata={"a": "1"}, method="GET"),
        FormRequest(URL, body="a=1"),
        JsonRequest(URL, data={"a": [1]}),
        JsonRequest(URL, dumps_kwargs={"indent": 4, "separators": (",", ":")}, data=[]),
        JsonRequest(URL, body=b"", method="DELETE"),
        XmlRpcRequest(URL, methodname="add", params=(1, 2)),
        XmlRpcRequest(URL, body=b"x", method="GET", dont_filter=False),
        ExtraRequest(URL, formdata={"a": "1"}, extra={"b": (1,)}),
        ExtraRequest(URL),
        NosyRequest(URL, headers={"A": "b"}),
    ],
    ids=repr,
)
@pytest.mark.parametrize("serializer", ["json", "pickle"])
def test_subclasses(spider: MySpider, request_: Request, serializer: Any) -> None:
    storage = RequestStorage(spider, serializer)
    request_.meta["depth"] = 2
    assert_same_request(spider, request_, pass_through(storage, request_))


def test_headers_that_a_subclass_would_add_again_stay_away(
    storage: RequestStorage, spider: MySpider
) -> None:
    request = JsonRequest(URL, data={})
    del request.headers["Accept"]
    del request.headers["Content-Type"]
    assert_same_request(spider, request, pass_through(storage, request))
    nosy = NosyRequest(URL)
    del nosy.headers["X-Made"], nosy.meta["made"]
    assert_same_request(spider, nosy, pass_through(storage, nosy))


def test_scrapys_own_classes_go_by_their_public_name(storage: RequestStorage) -> None:
    data = storage.pack(JsonRequest(URL, meta={"depth": 1}))
    assert data is not None
    assert json.loads(data)["r"] == "JsonRequest"


def test_a_class_that_its_own_constructor_changes_cannot_be_stored(
    storage: RequestStorage,
) -> None:
    with pytest.raises(Unstorable, match="GrowingRequest is changed"):
        storage.pack(GrowingRequest(URL))
    with pytest.raises(Unstorable, match="needed"):
        storage.pack(DemandingRequest(URL, needed=1))


def test_a_class_made_in_a_function_cannot_be_stored(storage: RequestStorage) -> None:
    class Local(Request):
        pass

    with pytest.raises(Unstorable, match="cannot be found by its name"):
        storage.pack(Local(URL))


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com/a b?c=é",
        "https://bücher.example/%7euser/%zz?x=[1]#frag",
        "data:text/plain,hello world",
        "http://[::1]:8080/a",
    ],
)
@pytest.mark.parametrize("verbatim", [True, False, None])
def test_a_url_comes_back_as_it_is(
    storage: RequestStorage, spider: MySpider, url: str, verbatim: bool | None
) -> None:
    meta = {} if verbatim is None else {"verbatim_url": verbatim}
    for cls in (Request, JsonRequest, MyRequest):
        request = cls(url, meta=meta)
        back = pass_through(storage, request)
        assert back.url == request.url
        assert_same_request(spider, request, back)


def test_a_url_that_is_no_text_cannot_be_stored(storage: RequestStorage) -> None:
    with pytest.raises(Unstorable, match="surrogates"):
        storage.pack(Request("http://example.com/\ud800", meta={"verbatim_url": True}))


# -- callbacks ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "parse",
        "parse_item",
        "parse_base",
        "a_reference",
        "_MySpider__a_reference",
        "_MySpider__parse_private",
        "_Mixin__mixin_callback",
        "parse_decorated",
    ],
)
def test_callbacks_are_stored_by_name(spider: MySpider, name: str) -> None:
    storage = RequestStorage(spider)
    method = getattr(spider, name)
    for _ in range(2):  # the second time from the cache
        data = storage.pack(Request(URL, method, errback=method, meta={"depth": 1}))
        assert data == row(c=name, e=name).replace(b" ", b"")
    back = read(RequestStorage(spider), data)
    assert (back.callback, back.errback) == (method, method)


def test_a_method_set_on_the_spider(spider: MySpider, storage: RequestStorage) -> None:
    another = MySpider()
    another.new = types.MethodType(private_reference, another)  # type: ignore[attr-defined]
    own = RequestStorage(another)
    back = pass_through(own, Request(URL, another.new))  # type: ignore[attr-defined]
    assert back.callback == another.new  # type: ignore[attr-defined]
    # Where a class has the same function under a name, either name is right.
    assert pass_through(storage, Request(URL, spider.on_instance)).callback == spider.on_instance


def test_no_callback(storage: RequestStorage) -> None:
    back = pass_through(storage, Request(URL, NO_CALLBACK))
    assert back.callback is NO_CALLBACK
    assert back.errback is None


def test_what_is_no_method_of_the_spider_cannot_be_stored(
    storage: RequestStorage, spider: MySpider
) -> None:
    def function(response: Any) -> None: ...

    foreign = [
        lambda response: None,
        function,
        functools.partial(spider.parse, a=1),
        Elsewhere().callback,
        spider.elsewhere,
        MySpider().parse,
        super(MySpider, spider).parse_item,
        MySpider.of_class,
        MySpider.static,
        types.MethodType(function, spider),
        types.MethodType(lambda self, response: None, spider),
        spider.__init__,  # type: ignore[misc]
        print,
        Elsewhere,
    ]
    for callback in foreign:
        with pytest.raises(Unstorable, match="spider"):
            storage.pack(Request(URL, callback))
        with pytest.raises(Unstorable, match="spider"):
            storage.pack(Request(URL, errback=callback))
    request = Request(URL)
    request.callback = "parse"  # type: ignore[assignment]
    with pytest.raises(Unstorable, match="spider"):
        storage.pack(request)


def test_a_method_that_was_replaced_cannot_be_stored(
    storage: RequestStorage, spider: MySpider
) -> None:
    request = Request(URL, spider.parse)
    assert storage.pack(request)
    spider.parse = None  # type: ignore[assignment,method-assign]
    with pytest.raises(Unstorable):
        storage.pack(request)
    assert "parse" in refusal(storage, row(c="parse"))
    spider.parse = spider.parse_item  # type: ignore[assignment,method-assign]
    with pytest.raises(Unstorable):
        storage.pack(request)


def test_a_callback_that_is_gone_is_named(storage: RequestStorage) -> None:
    assert refusal(storage, row(c="parse_gone")) == "the spider has no method parse_gone"
    assert refusal(storage, row(e="parse_gone")) == "the spider has no method parse_gone"


def test_a_callback_that_comes_back_is_found(storage: RequestStorage, spider: MySpider) -> None:
    refusal(storage, row(c="later"))
    spider.later = types.MethodType(reference, spider)  # type: ignore[attr-defined]
    assert read(storage, row(c="later")).callback == spider.later  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "name",
    [
        "__class__",
        "__init__",
        "__reduce_ex__",
        "__eq__",
        "name",
        "settings_like",
        "a_property",
        "a_cached_property",
        "of_class",
        "static",
        "elsewhere",
        "from_crawler",
        "",
        "a b",
        "parse\n\x1b[31m",
        "\ud800",
        "x" * 10_000,
        True,
        0,
        1,
        1.5,
        [],
        {},
        ["parse"],
        {"!t": ["parse"]},
        {"!b": "parse"},
    ],
    ids=lambda name: ascii(name)[:20],
)
def test_what_is_no_method_cannot_be_a_callback(storage: RequestStorage, name: Any) -> None:
    refusal(storage, row(c=name))
    refusal(storage, row(e=name))
    assert ran == []


# -- what is dropped ---------------------------------------------------------------------------

CHAIN = {
    "redirect_times": 1,
    "redirect_ttl": 19,
    "redirect_urls": ["https://elsewhere.example/"],
    "redirect_reasons": [302],
    "retry_times": 2,
}


def test_a_chains_counts_stay_with_the_chain(storage: RequestStorage) -> None:
    request = Request(URL, meta={"depth": 1, "max_retry_times": 5, **CHAIN})
    kept = {"depth": 1, "max_retry_times": 5}
    assert pass_through(storage, request).meta == kept
    assert pass_through(storage, request, hop=True).meta == {**kept, **CHAIN}


@pytest.mark.parametrize("hop", [False, True])
def test_what_scrapy_notes_for_itself_is_dropped(storage: RequestStorage, hop: bool) -> None:
    meta = {"download_latency": 0.1, "cache_timestamp": 1.0, "_dont_cache": True, "depth": 1}
    assert storage.pack(Request(URL, meta=meta), hop=hop) is None
    assert clean_meta(meta, hop) == {"depth": 1}


def test_headers_of_a_fresh_request_are_kept(storage: RequestStorage) -> None:
    headers = {"Cookie": "a=b", "Proxy-Authorization": "Basic x"}
    back = pass_through(storage, Request(URL, headers=headers))
    assert back.headers == Headers(headers)


def test_the_cookie_header_of_a_hop_is_made_again() -> None:
    headers = {"Cookie": "a=b", "A": "b"}
    request = Request(URL, headers=headers, cookies={"c": "d"})
    back = pass_through(crawling(), request, hop=True)
    assert back.headers == Headers({"A": "b"})
    assert back.cookies == {"c": "d"}
    # With nothing to make it again, it is the user's own.
    assert pass_through(crawling(COOKIES_ENABLED=False), request, hop=True).headers["Cookie"]
    request.meta["dont_merge_cookies"] = True
    assert pass_through(crawling(), request, hop=True).headers["Cookie"] == b"a=b"


def proxied(middleware: HttpProxyMiddleware, request: Request) -> tuple[Any, Any]:
    middleware.process_request(request)
    return request.meta.get("proxy"), request.headers.get("Proxy-Authorization")


def test_a_hop_through_the_environments_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://user:secret@proxy.example:8080")
    monkeypatch.delenv("no_proxy", raising=False)
    middleware, storage = HttpProxyMiddleware(), crawling()
    request = Request(URL, meta={"depth": 1})
    proxy, header = proxied(middleware, request)
    assert (proxy, bool(header)) == ("http://proxy.example:8080", True)
    assert storage.pack(request, hop=True) is None
    assert storage.pack(Request(URL, meta=request.meta)) is None
    assert proxied(middleware, pass_through(storage, request, hop=True)) == (proxy, header)


def test_an_environment_with_broken_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://[broken")
    monkeypatch.setenv("https_proxy", "/var/run/docker.sock")
    meta = {"proxy": None, "_scheme_proxy": True}
    assert pass_through(crawling(), Request(URL, meta=meta), hop=True).meta == meta


def test_a_hop_through_a_proxy_of_the_requests_own(monkeypatch: pytest.MonkeyPatch) -> None:
    # The middleware takes the password out of the meta: the header must be kept.
    monkeypatch.setenv("https_proxy", "http://user:secret@proxy.example:8080")
    middleware, storage = HttpProxyMiddleware(), crawling()
    own = Request(URL, meta={"proxy": "http://me:mine@other.example:8080"})
    proxy, header = proxied(middleware, own)
    assert (proxy, bool(header)) == ("http://other.example:8080", True)
    assert proxied(middleware, pass_through(storage, own, hop=True)) == (proxy, header)
    # The mark of the environment's proxy leaks into copied meta.
    copied = Request(URL, meta={"_scheme_proxy": True, "proxy": "http://me:mine@other.example"})
    proxy, header = proxied(middleware, copied)
    for hop in (False, True):
        assert proxied(middleware, pass_through(storage, copied, hop=hop))[0] == proxy
    assert proxied(middleware, pass_through(storage, copied, hop=True)) == (proxy, header)


@pytest.mark.parametrize("hop", [False, True])
def test_the_timeout_that_would_be_set_again_is_dropped(hop: bool) -> None:
    storage = crawling(DOWNLOAD_TIMEOUT=7)
    assert storage.pack(Request(URL, meta={"depth": 1, "download_timeout": 7.0}), hop=hop) is None
    for timeout in (180.0, 5, 7, None, 0):
        request = Request(URL, meta={"download_timeout": timeout})
        assert pass_through(storage, request, hop=hop).meta["download_timeout"] == timeout


def test_the_slot_that_would_be_set_again_is_dropped(storage: RequestStorage) -> None:
    def meta(slot: str, **options: Any) -> dict[str, Any]:
        chain = {"redirect_urls": ["https://first.example/", "https://before.example:8/"]}
        request = Request(URL, meta={"download_slot": slot, **chain})
        return pass_through(storage, request, **options).meta

    for hop in (False, True):
        assert "download_slot" not in meta("example.com", hop=hop)
        assert meta("mine", hop=hop)["download_slot"] == "mine"
        assert meta("first.example", hop=hop)["download_slot"] == "first.example"
    # A redirect hop has the slot of the URL before it.
    assert "download_slot" not in meta("before.example", hop=True)
    assert meta("before.example")["download_slot"] == "before.example"
    # A link has the slot of its page where meta was copied.
    assert "download_slot" not in meta("page.example", copied_slots=["page.example"])


def test_slots_by_another_rule(spider: MySpider) -> None:
    def port_slot(url: str) -> str:
        return urlsplit(url).netloc

    storage = RequestStorage(spider, automatic_slot=port_slot)
    request = Request("http://example.com:8/", meta={"download_slot": "example.com:8"})
    assert pass_through(storage, request).meta == {}


# -- values ------------------------------------------------------------------------------------

VALUES: Sequence[Any] = [
    0,
    -(2**63),
    2**63,
    -(2**70),
    10**5000,
    True,
    None,
    "",
    "é\n\x00\U0001f600",
    "\ud800",
    "\ud83d\ude00",  # two lone surrogates, not one character
    1.0,
    -0.0,
    1e300,
    5e-324,
    math.inf,
    -math.inf,
    math.nan,
    b"",
    b"abc",
    b"\xff\x00",
    (),
    (1, (2, [3])),
    set(),
    {1, "a", (b"b", None)},
    frozenset({1.5, frozenset()}),
    {},
    {"a": {"b": []}},
    {1: "a", None: "b", False: "c", 2.5: "d", (1, 2): "e", b"f": "f", "g": {2: 3}},
    {"\ud800": 1},
    {"!b": "x"},
    {"!d": [["a", "b"]]},
    {"!": 1},
    {"!b": "x", "a": {"!t": [1]}},
    datetime(1, 1, 1),
    datetime(2024, 2, 29, 12, 30, 15, 999999),
    datetime(2024, 2, 29, fold=1),
    datetime(2024, 2, 29, tzinfo=timezone.utc),
    datetime(2024, 2, 29, tzinfo=timezone(timedelta(hours=-5, minutes=-30, microseconds=1))),
    datetime(2024, 2, 29, tzinfo=timezone(timedelta(0), "GMT")),
    *(datetime(2024, 10, 27, 2, 30, tzinfo=zone, fold=1) for zone in ZONES),
    date(2024, 2, 29),
    time(1, 2, 3, 4),
    time(1, 2, fold=1, tzinfo=timezone.utc),
    timedelta(days=-1, microseconds=1),
    timedelta.max,
    Decimal("1.10"),
    Decimal("-0E+5"),
    Decimal("NaN123"),
    Decimal("-Infinity"),
    Decimal(10) ** 6000,
    uuid.UUID(int=5),
    Colour.RED,
    Access.READ,
    http.HTTPStatus.OK,
    Point(1, [2]),
    Old(x=(1,), y=b""),
    urlsplit("http://example.com/a?b#c"),
    Product(name="a", price=Decimal("1.5")),
    Product(),
    Plain(1, {"a": (1,)}),
    Child(1, c=Plain(2)),
    Frozen(b"a"),
    Outer.Inner([]),
    Defined(1, b={2}),
    FrozenDefined((1,)),
    Unslotted("a"),
    [Product(name=Frozen(Defined(Point(Colour.BLUE, {Frozen(1): 2}))))],
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: f"{type(value).__name__}")
def test_values_come_back_as_they_were(storage: RequestStorage, value: Any) -> None:
    back = pass_through(storage, Request(URL, meta={"v": value}, cb_kwargs={"v": value}))
    assert same(back.meta, {"v": value})
    assert same(back.cb_kwargs, {"v": value})


def test_no_constructor_runs(storage: RequestStorage) -> None:
    item = OddProduct(name="a")
    data = storage.pack(Request(URL, meta={"a": Frozen(1), "b": item}))
    ran.clear()
    back = read(storage, data)
    assert back.meta == {"a": Frozen(1), "b": item}
    assert ran == ["__post_init__"]  # that of the line above


def test_fields_that_changed_since_are_stored_as_they_are(storage: RequestStorage) -> None:
    plain = Plain(1)
    plain.hidden = [5]
    assert pass_through(storage, Request(URL, meta={"a": plain})).meta["a"].hidden == [5]


def with_extra(value: Any) -> Any:
    value.__dict__["_extra"] = 1
    return value


def endless() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def endless_item() -> Product:
    value = Product()
    value["name"] = {"again": value}
    return value


def nested(levels: int) -> Any:
    value: Any = 1
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


def local_dataclass() -> Any:
    @dataclasses.dataclass
    class Local:
        a: int = 1

    return Local()


def impostor() -> Any:
    """An object of a class whose name leads to another one."""

    @dataclasses.dataclass
    class Impostor:
        a: int = 1

    Impostor.__qualname__ = "Plain"
    return Impostor()


UNSTORABLE: dict[str, Any] = {
    "object": object(),
    "function": len,
    "class": Plain,
    "lambda": lambda: None,
    "generator": iter([1]),
    "str subclass": Text("a"),
    "int subclass": Number(1),
    "OrderedDict": OrderedDict(a=1),
    "defaultdict": defaultdict(list),
    "Counter": Counter("a"),
    "Headers": Headers({"a": "b"}),
    "Field": Field(a=1),
    "bytearray": bytearray(b"a"),
    "memoryview": memoryview(b"a"),
    "complex": 1j,
    "range": range(3),
    "selector": Selector(text="<p>a</p>"),
    "response": Response(URL),
    "request": Request(URL),
    "module": json,
    "exception": ValueError("a"),
    "time zone": datetime(2024, 1, 1, tzinfo=Zone()),
    **{f"{zone} again": time(1, tzinfo=ZoneInfo.no_cache(zone.key)) for zone in ZONES},
    "flags": Access.READ | Access.WRITE,
    "no equality": ByIdentity(1),
    "dataclass and list": Listing(1),
    "computed field": Computed(1),
    "hidden slot": Slotted(1),
    "extra attribute": with_extra(Plain(1)),
    "extra attribute of an item": with_extra(Product(name="a")),
    "extra attribute of an attrs class": with_extra(Unslotted(1)),
    "local class": local_dataclass(),
    "impostor": impostor(),
    "cycle": endless(),
    "cycle through an item": endless_item(),
    "deep": nested(MAX_NESTING + 1),
    "very deep": nested(100_000),
    "inside a dataclass": Plain(Text("a")),
    "inside an item": Product(name=Text("a")),
    "inside a tuple": (Text("a"),),
    "as a key": {Text("a"): 1},
    "inside a named tuple": Point(Text("a")),
}


@pytest.mark.parametrize("value", UNSTORABLE.values(), ids=UNSTORABLE)
def test_what_json_would_change_cannot_be_stored(storage: RequestStorage, value: Any) -> None:
    with pytest.raises(Unstorable) as caught:
        storage.pack(Request(URL, meta={"fine": 1, "v": value}))
    assert str(caught.value).startswith("meta['v']: ")
    with pytest.raises(Unstorable, match=r"^cb_kwargs\['v'\]: "):
        storage.pack(Request(URL, cb_kwargs={"v": value}))
    assert ran == []


def test_every_field_is_checked(storage: RequestStorage) -> None:
    request = Request(URL)
    for attribute, value in (
        ("method", 1),
        ("method", None),
        ("flags", 5),
        ("flags", [object()]),
        ("cookies", 5),
        ("cookies", {"a": object()}),
        ("dont_filter", object()),
    ):
        broken = request.copy()
        setattr(broken, attribute, value)
        with pytest.raises(Unstorable, match=attribute):
            storage.pack(broken)
    broken = request.copy()
    dict.update(broken.headers, {b"A": ["text"]})
    with pytest.raises(Unstorable, match="bytes"):
        storage.pack(broken)


def test_what_raises_when_it_is_read_cannot_be_stored(storage: RequestStorage) -> None:
    broken = ExtraRequest(URL)
    del broken.extra
    with pytest.raises(Unstorable, match="extra"):
        storage.pack(broken)
    with pytest.raises(Unstorable, match=r"^Mute$"):
        storage.pack(Request(URL, meta={"download_slot": Touchy()}))


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError


class Touchy:
    def __eq__(self, other: object) -> bool:
        raise Mute

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize("levels", [1, 50, MAX_NESTING - 1])
def test_nesting_within_the_limit(storage: RequestStorage, levels: int) -> None:
    # Read at the bottom of a stack that is deeper than the one it was written from.
    data = storage.pack(Request(URL, meta={"v": nested(levels)}))

    def deep(frames: int) -> Request:
        return deep(frames - 1) if frames else read(storage, data)

    assert deep(200).meta["v"] == nested(levels)


# Deferred, not recursive(): Hypothesis warns of the very long description of that.
hashable: Values = st.deferred(lambda: hashable_leaves | hashable_containers)
hashable_leaves: Values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(st.characters(codec=None, exclude_categories=())),
    st.binary(),
    st.decimals(allow_nan=False),
    st.uuids(),
    st.sampled_from(Colour),
    st.dates(),
    st.timedeltas(),
    st.times(timezones=st.sampled_from([None, timezone.utc])),
    st.datetimes(timezones=st.sampled_from([None, timezone.utc, *ZONES])),
)
hashable_containers: Values = st.one_of(
    st.lists(hashable, max_size=3).map(tuple),
    st.frozensets(hashable, max_size=3),
    st.builds(Frozen, hashable, hashable),
    st.builds(FrozenDefined, hashable, hashable),
    st.builds(Point, hashable, hashable),
)
values: Values = st.deferred(lambda: leaves | containers)
leaves: Values = hashable | st.floats() | st.decimals() | st.integers(min_value=10**19)
containers: Values = st.one_of(
    st.lists(values, max_size=4),
    st.lists(values, max_size=3).map(tuple),
    st.dictionaries(st.text(max_size=3) | st.just("!b") | hashable, values, max_size=4),
    st.sets(hashable, max_size=4),
    st.builds(Plain, values, values),
    st.builds(Defined, values, values),
    st.builds(Product, st.fixed_dictionaries({"name": values}, optional={"price": values})),
)


@relaxed
@given(values)
def test_any_value_comes_back_as_it_was(value: Any) -> None:
    text = json.dumps(encode(value), ensure_ascii=False, allow_nan=False).encode().decode()
    assert same(decode(json.loads(text)), value)


def is_own(key: str) -> bool:
    return key not in NEVER_STORED | CHAIN_KEYS  # Hypothesis finds these in the source


@relaxed
@given(
    method=st.text(min_size=1, max_size=5),
    headers=st.dictionaries(
        st.binary(min_size=1, max_size=5), st.lists(st.binary(max_size=5), max_size=3), max_size=3
    ),
    body=st.binary(),
    cookies=st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
    meta=st.dictionaries(st.text(max_size=12).filter(is_own), values, max_size=3),
    cb_kwargs=st.dictionaries(st.text(max_size=12), values, max_size=3),
    flags=st.lists(st.text(max_size=3), max_size=2),
    encoding=st.sampled_from(["utf-8", "latin-1", "UTF-8"]),
    dont_filter=st.booleans(),
    cls=st.sampled_from([Request, FormRequest, JsonRequest, XmlRpcRequest, MyRequest]),
    priority=st.integers(-100, 100),
    callback=st.sampled_from([None, "parse", "parse_item"]),
)
def test_any_request_comes_back_as_it_was(
    cls: type[Request], callback: str | None, **arguments: Any
) -> None:
    spider = MySpider()
    if callback is not None:
        arguments["callback"] = getattr(spider, callback)
    request = cls(URL, **arguments)
    for storage in (RequestStorage(spider), RequestStorage(spider, "pickle")):
        assert_same_request(spider, request, pass_through(storage, request))


# -- rows that cannot be read ------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"}",
        b"null",
        b"[]",
        b'"c"',
        b" {}",
        b"{} ",
        b"{}{}",
        b"\xff",
        b'{"c":"\xff"}',
        b'{"c":',
        b'{"b":NaN}',
        b'{"t":{"a":Infinity}}',
        b'{"t":' + b"[" * 5000,
        b'{"t":' + b'{"a":' * 5000,
        b'{"t":{"a":' + b"[" * 400 + b"]" * 400 + b"}}" + b" ",
        b'{"t":{"a":' + b"1" * 10_000 + b"}}",
        row(t={"!d": [[{"!s": []}, 1]]}),
        row(y=1),
        row(**{"a\n\x1b": 1}),
        row(m=1),
        row(b=1),
        row(b=[]),
        row(b={"!t": []}),
        row(b={"!B": "*"}),
        row(b={"!B": "é"}),
        row(b="\ud800"),
        row(h="ab"),
        row(h={}),
        row(h=["A"]),
        row(h=["A", 1]),
        row(h=["A", [[]]]),
        row(h=[["A"], "b"]),
        row(h=[1, 2]),
        row(k=1),
        row(k="a"),
        row(t=[]),
        row(t=None),
        row(x=[]),
        row(x={"!d": 1}),
        row(f={}),
        row(f="a"),
        row(n=1),
        row(n="no-such-encoding"),
        row(n="zlib"),
        row(n="os.path"),
        row(n="a\x00b"),
        row(z=1),
        row(a=[]),
        row(r=1),
        row(r=""),
        row(r="NoSuchRequest"),
        row(r="Response"),
        row(r="os:system"),
        row(r="builtins:eval"),
        row(r="builtins:object"),
        row(r="scrapy:Spider"),
        row(r="scrapy.http:request"),
        row(r="scrapy.http:Request.url"),
        row(r="no.such.module:Request"),
        row(r="scrapy.http.Request"),
        row(r="JsonRequest", a={"gone": 1}),
        row(r="JsonRequest", a={"dumps_kwargs": 5}),
        row(r="JsonRequest", a={"data": 5}),
        row(r="JsonRequest", a={"url": "https://other.example/"}),
        row(r="JsonRequest", a={"callback": "parse"}),
        row(r=f"{__name__}:DemandingRequest"),
    ],
    ids=lambda data: ascii(data)[2:40],
)
def test_a_malformed_row_is_unreadable(storage: RequestStorage, data: bytes) -> None:
    refusal(storage, data)


@pytest.mark.parametrize(
    "value",
    [
        {"!": 1},
        {"!x": 1},
        {"!u": 1},
        {"!u": "//8="},
        {"!i": 5},
        {"!i": "g"},
        {"!n": 1},
        {"!n": "1"},
        {"!n": [1]},
        {"!b": 1},
        {"!B": "a"},
        {"!d": {}},
        {"!d": [[1]]},
        {"!d": ["ab"]},
        {"!d": [[[], 1]]},
        {"!t": "abc"},
        {"!s": {"a": 1}},
        {"!s": [[]]},
        {"!f": [{}]},
        {"!dt": "2024-01-01"},
        {"!dt": ["2024-01-01", 2]},
        {"!dt": ["2024-01-01", "0"]},
        {"!dt": [1, 0]},
        {"!dt": ["2024-13-01", 0]},
        {"!dt": ["2024-01-01", 0, 10**12]},
        {"!dt": ["2024-01-01", 0, "No/Such_Zone"]},
        {"!dt": ["2024-01-01", 0, "../../etc/passwd"]},
        {"!dt": ["2024-01-01", 0, "/etc/passwd"]},
        {"!dt": ["2024-01-01", 0, "Europe"]},
        {"!dt": ["2024-01-01", 0, 0, 5]},
        {"!dt": ["2024-01-01", 0, 0, "a", "b"]},
        {"!dt": ["2024-01-01", 0, []]},
        {"!ti": ["25:00", 0]},
        {"!da": "x"},
        {"!td": [1]},
        {"!td": [10**20, 0, 0]},
        {"!td": ["a", 0, 0]},
        {"!D": "x"},
        {"!D": 1.5},
        {"!U": "x"},
        {"!e": ["os:O_RDONLY", "a"]},
        {"!e": [f"{__name__}:Plain", "a"]},
        {"!e": [f"{__name__}:Colour", "GREEN"]},
        {"!e": [f"{__name__}:Colour", "__class__"]},
        {"!e": f"{__name__}:Colour"},
        {"!N": [f"{__name__}:Point", [1]]},
        {"!N": [f"{__name__}:Point", [1, 2, 3]]},
        {"!N": [f"{__name__}:Point", "ab"]},
        {"!N": ["builtins:tuple", []]},
        {"!N": [f"{__name__}:Plain", [1]]},
        {"!o": ["builtins:object", {}]},
        {"!o": ["subprocess:Popen", {"args": "true"}]},
        {"!o": ["builtins:dict", {}]},
        {"!o": ["scrapy.http:Request", {}]},
        {"!o": [f"{__name__}:Elsewhere", {}]},
        {"!o": [f"{__name__}:Plain", {"a": 1}]},
        {"!o": [f"{__name__}:Plain", {"a": 1, "b": 2, "hidden": 3, "more": 4}]},
        {"!o": [f"{__name__}:Plain", {"a": 1, "b": 2, "__class__": 3}]},
        {"!o": [f"{__name__}:Plain", []]},
        {"!o": [f"{__name__}:Computed", {"a": 1, "b": 2}]},
        {"!o": [f"{__name__}:Listing", {"a": 1}]},
        {"!o": [f"{__name__}:Product", {"gone": 1}]},
        {"!o": [f"{__name__}:Product", [1]]},
        {"!o": [f"{__name__}:no_such_class", {}]},
        {"!o": [f"{__name__}:Plain.__init__", {}]},
        {"!o": [f"{__name__}:", {}]},
        {"!o": [":", {}]},
        {"!o": [5, {}]},
        {"!o": []},
    ],
    ids=ascii,
)
def test_a_malformed_value_is_unreadable(storage: RequestStorage, value: Any) -> None:
    refusal(storage, row(t={"v": value}))
    refusal(storage, row(x={"v": [value]}))
    assert ran == []


def test_columns_of_the_wrong_type(storage: RequestStorage) -> None:
    fine: dict[str, Any] = {"url": URL, "depth": 1, "priority": 0}
    wrong: dict[str, list[Any]] = {
        "url": [None, 1, b"http://a/", "no scheme", ""],
        "depth": [None, "1", 1.5],
        "priority": [None, "1", 1.5],
    }
    for name, columns in wrong.items():
        for column in columns:
            with pytest.raises(Unreadable):
                storage.unpack(None, **(fine | {name: column}))
    for data in ("{}", 5, bytearray(b"{}"), ["{}"]):
        refusal(storage, data)


def test_a_class_that_is_not_imported_is_not_imported(
    storage: RequestStorage, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "focus_unimported.py").write_text(
        "from scrapy import Item, Request\nclass Mine(Item): pass\nclass My(Request): pass\n"
    )
    rows = row(t={"v": {"!o": ["focus_unimported:Mine", {}]}}), row(r="focus_unimported:My")
    for data in rows:
        assert "focus_unimported" in refusal(storage, data)
    assert "focus_unimported" not in sys.modules
    spec = importlib.util.find_spec("focus_unimported")
    assert spec is not None
    assert spec.loader is not None
    lazy = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    lazy.exec_module(module)
    monkeypatch.setitem(sys.modules, "focus_unimported", module)
    for data in rows:
        assert "focus_unimported" in refusal(storage, data)
    assert module.Mine  # now it is loaded
    assert type(read(storage, rows[0]).meta["v"]) is module.Mine
    assert type(read(storage, rows[1])) is module.My


def test_a_modules_own_getattr_does_not_run(
    storage: RequestStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = types.ModuleType("focus_lazy")
    module.__getattr__ = ran.append  # type: ignore[method-assign]
    for name, imported in (("lazy", module), ("object", Elsewhere()), ("none", None)):
        monkeypatch.setitem(sys.modules, f"focus_{name}", imported)
    for name in ("focus_lazy", "focus_object", "focus_none"):
        refusal(storage, row(r=f"{name}:Anything"))
    assert ran == []


def test_names_of_classes() -> None:
    for cls in (Plain, Outer.Inner, Request, int, OrderedDict):
        assert find_class(class_name(cls)) is cls


class Recorder:
    """Sees every import of a module that is not imported yet."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        # A codec and a time zone are data that the standard library looks up.
        if not name.startswith(("encodings.", "tzdata")):
            self.seen.append(name)


def fuzz(storage: RequestStorage, data: Any) -> None:
    imports = Recorder()
    sys.meta_path.insert(0, imports)
    request, message = None, ""
    try:
        request = read(storage, data)
    except Unreadable as error:
        message = str(error)
    finally:
        sys.meta_path.remove(imports)
    assert message.isprintable()
    assert message or type(request) in (Request, FormRequest, JsonRequest, ExtraRequest)
    assert imports.seen == []


def samples() -> list[bytes]:
    spider = MySpider()
    storage = RequestStorage(spider)
    requests = [Request(URL, meta={"v": value}) for value in VALUES if value != 10**5000]
    requests += [
        Request(URL, spider.parse, headers={"A": ["b", b"\xff"]}, errback=spider.failed),
        JsonRequest(URL, data={"a": 1}, cookies=[{"name": "a", "value": "b"}]),
        ExtraRequest(URL, formdata={"a": "1"}, extra=(1,), encoding="latin-1", flags=["a"]),
        Request(URL, cb_kwargs={"a": Plain(Product(name=1))}, body=b"\xff", method="PUT"),
    ]
    return [data for request in requests if (data := storage.pack(request)) is not None]


SAMPLES = samples()
FUZZED = RequestStorage(MySpider())
json_values: Values = st.deferred(lambda: json_leaves | json_containers)
json_leaves: Values = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just(URL)
)
json_containers: Values = st.one_of(
    st.lists(json_values, max_size=3),
    st.dictionaries(st.text(max_size=3), json_values, max_size=3),
    st.dictionaries(st.sampled_from(["!x", *_DECODERS]), json_values, min_size=1, max_size=1),
)


@relaxed
@given(st.binary() | st.binary().map(lambda data: b"{" + data))
def test_random_bytes(data: bytes) -> None:
    fuzz(FUZZED, data)


@relaxed
@given(st.dictionaries(st.sampled_from("abcdefhkmnrtxzq"), json_values, max_size=4))
def test_random_records(record: dict[str, Any]) -> None:
    fuzz(FUZZED, json.dumps(record).encode())


@relaxed
@given(st.sampled_from(SAMPLES), st.data())
def test_rows_with_some_bytes_changed(sample: bytes, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(sample)))
    end = data.draw(st.integers(start, min(len(sample), start + 8)))
    fuzz(FUZZED, sample[:start] + data.draw(st.binary(max_size=4)) + sample[end:])
    fuzz(FUZZED, sample[:start])


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(value, (dict, list)):
        for key, entry in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(entry, (*path, key))


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    changed = dict(value) if isinstance(value, dict) else list(value)
    changed[path[0]] = replaced(value[path[0]], path[1:], new)
    return changed


@relaxed
@given(st.sampled_from(SAMPLES), json_values, st.data())
def test_rows_with_a_part_replaced(sample: bytes, new: Any, data: st.DataObject) -> None:
    record = json.loads(sample)
    path = data.draw(st.sampled_from(list(places(record))))
    assume(path)
    fuzz(FUZZED, json.dumps(replaced(record, path, new)).encode())


# -- pickle ------------------------------------------------------------------------------------


class Bomb:
    def __reduce__(self) -> Any:
        return ran.append, ("pickle",)


def test_pickle_stores_what_json_cannot(spider: MySpider) -> None:
    storage = RequestStorage(spider, "pickle")
    value = OrderedDict(a=Text("b"))
    request = Request(URL, spider.parse_item, meta={"v": value, "depth": 1}, body=b"\xff")
    data = storage.pack(request)
    assert data is not None
    assert data[:1] == b"\x80"
    back = read(storage, data)
    assert back.meta == {"v": value, "depth": 1}
    assert type(back.meta["v"]["a"]) is Text
    assert back.callback == spider.parse_item


def test_pickle_has_the_same_checks(spider: MySpider) -> None:
    storage = RequestStorage(spider, "pickle")
    assert storage.pack(Request(URL, meta={"depth": 1})) is None
    with pytest.raises(Unstorable, match="spider"):
        storage.pack(Request(URL, Elsewhere().callback))
    unpicklable = [(c for c in ""), Selector(text="a"), local_dataclass(), nested(100_000)]
    for value in unpicklable:
        with pytest.raises(Unstorable):
            storage.pack(Request(URL, meta={"v": value}))
    records: list[Any] = [
        [],
        {"c": "__class__"},
        {"c": "a_property"},
        {"y": 1},
        {"h": {b"a": "b"}},
        {"h": {"a": [b"b"]}},
        {"b": "text"},
        {"r": "os:system"},
    ]
    for record in records:
        refusal(storage, pickle.dumps(record))
    for data in (b"\x80", b"\x80\x04", b"\x80\x04.", b"\x80\xff", pickle.dumps({"b": b"x"})[:-3]):
        refusal(storage, data)
    assert ran == []


def test_json_rows_are_read_in_pickle_mode(spider: MySpider) -> None:
    request = Request(URL, spider.parse, meta={"v": (1,), "depth": 1})
    data = RequestStorage(spider).pack(request)
    assert read(RequestStorage(spider, "pickle"), data).meta == request.meta


def test_no_pickle_is_read_in_json_mode(storage: RequestStorage, spider: MySpider) -> None:
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert "FOCUS_SERIALIZER" in refusal(storage, pickle.dumps({"t": Bomb()}, protocol))
    for protocol in (0, 1):
        refusal(storage, pickle.dumps({"t": Bomb()}, protocol))
    assert ran == []


def test_an_unknown_serializer(spider: MySpider) -> None:
    with pytest.raises(ValueError, match="serializer"):
        RequestStorage(spider, "yaml")  # type: ignore[arg-type]

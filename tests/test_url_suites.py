"""Our canonical form on the cases of other projects' tests: what they call the same is the same
here, except where a list says why it is not.

The cases are read from the sources of their tests, which are not run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from scrapy import Request

from scrapy_focus.decisions.canonical import DEFAULT, Forms
from tests.sdists import fetch, read

W3LIB = (
    *("w3lib", "2.5.0"),
    "a7ddf714508ddc1b8563bd19ace2feb28080bbaca39326cbc964359f6754f615",
)
URL_NORMALIZE = (
    *("url_normalize", "3.1.0"),
    "138912833c0005ec77e756ec220590f8971ff046227280790ceb00f5ab9d56b6",
)
COURLAN = (
    *("courlan", "1.4.0"),
    "fbbac7b7fcde2195ea08e707609503c81cf39c891e8d26cdb1fed4585782d63d",
)

#: The rules that a job has to name for what w3lib, and so Scrapy's fingerprint, does anyway.
AS_W3LIB = Forms({"*": ["form"]})


def asserted(source: bytes, function: str) -> Iterator[tuple[str, str]]:
    """What a test says of a function without further arguments: what is given to it, and what
    it returns, or what else it returns the same for."""

    def value(node: ast.expr) -> Any:
        if isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else ""
            if name != function or node.keywords or len(node.args) != 1:
                raise ValueError
            node = node.args[0]
        value = ast.literal_eval(node)
        return value.decode() if isinstance(value, bytes) else value

    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assert) and isinstance(node.test, ast.Compare):
            sides = [node.test.left, *node.test.comparators]
            if not any(isinstance(side, ast.Call) for side in sides):
                continue
            try:
                given, returned = map(value, sides)
            except ValueError:
                continue
            if isinstance(given, str) and isinstance(returned, str):
                assert isinstance(node.test.ops[0], ast.Eq)
                yield given, returned


def parameters(source: bytes, test: str) -> list[Any]:
    """What a test is parametrized with."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and node.name == test:
            (decorator,) = node.decorator_list
            assert isinstance(decorator, ast.Call)
            found = ast.literal_eval(decorator.args[1])
            assert isinstance(found, list)
            return found
    raise AssertionError(test)


def form(url: str, forms: Forms | None = None) -> str:
    """The canonical form of what a spider makes of a URL."""
    url = Request(url).url
    return forms.of(url)(url) if forms else DEFAULT(url)


def is_url(text: str) -> bool:
    """Whether a request can have it as its URL."""
    try:
        Request(text)
    except ValueError:
        return False
    return True


def apart(cases: list[tuple[str, str]], forms: Forms | None = None) -> set[str]:
    """Those given URLs that are not the same here as what is returned for them."""
    return {given for given, returned in cases if form(given, forms) != form(returned, forms)}


def test_w3lib() -> None:
    source = read(fetch(*W3LIB), "tests/test_url.py")
    every = list(asserted(source, "canonicalize_url"))
    cases = [(given, returned) for given, returned in every if is_url(given)]
    assert len(cases) > 60
    site = "http://www.example.com"
    #: As a form reads them: an empty parameter is none, "c" is "c=", "+" is a space, and what is
    #: encoded in a value is that. A server need not read a query as a form.
    of_forms = {
        f"{site}/do?&a=1",
        f"{site}/do?b=&c&a=2",
        f"{site}/do?1750,4",
        f"{site}/do?q=a space&a=1",
        f"{site}/do?q=a%20space&a=1",
        f"{site}/do?price(£)=500&a=1",
    }
    #: Values of one name in another order: that order may mean something.
    values = {f"{site}/do?c=3&b=5&b=2&a=50"}
    assert apart(cases) == of_forms | values
    assert apart(cases, AS_W3LIB) == values


def test_w3lib_makes_urls_that_are_the_same() -> None:
    """What a spider fetches is what w3lib makes of a link: that changes no key."""
    source = read(fetch(*W3LIB), "tests/test_url.py")
    cases = [case for case in asserted(source, "safe_url_string") if is_url(case[0])]
    assert len(cases) > 25
    assert apart(cases) == set()


def test_url_normalize() -> None:
    source = read(fetch(*URL_NORMALIZE), "tests/test_url_normalize.py")
    site = "http://host.example"

    def absolute(url: str) -> str:
        return site + url if url.startswith("/") and not url.startswith("//") else url

    given = parameters(source, "test_url_normalize_expected_changes")
    cases = [(absolute(a), absolute(b)) for a, b in given if is_url(absolute(a))]
    assert len(cases) > 35
    assert apart(cases) == {
        # Several slashes may be another page than one.
        *(f"{site}/foo//", f"{site}/foo///bar//"),
        # Users that are empty are sent as they are.
        *("http://:@example.com/", "http://@example.com/"),
        # With its root dot it is another name to a server.
        *("http://www.example.com./", "http://www.foo.com.:81/foo"),
        "http://www.foo.com./foo/bar.html",
        # Letters that only look alike to Unicode are other bytes.
        "http://example.com/?q=C%CC%A7",
        # What stands for a fragment with Google once is a page of its own.
        "http://example.com/#!5753509/hello-world",
    }
    paths = parameters(
        read(fetch(*URL_NORMALIZE), "tests/test_normalize_path.py"),
        "test_normalize_path_result_is_expected",
    )
    cases = [(site + a, site + b) for a, b in paths if a[:1] in ("", "/")]
    assert len(cases) > 20
    assert apart(cases) == {f"{site}/foo//", f"{site}/foo///bar//"}
    queries = read(fetch(*URL_NORMALIZE), "tests/test_normalize_query.py")
    cases = [
        (f"{site}/?{a}", f"{site}/?{b}" if b else f"{site}/")
        for test in ("result_is_expected", "preserves_form_plus_meaning")
        for a, b in parameters(queries, f"test_normalize_query_{test}")
    ]
    assert len(cases) == 13
    # Empty parameters are sent as they are; and Unicode as above.
    assert apart(cases) == {f"{site}/?&&&", f"{site}/?q=C%CC%A7"}
    kept = parameters(source, "test_url_normalize_no_changes_expected")
    kept = [absolute(url) for url in kept if is_url(absolute(url))]
    assert len(kept) > 20
    changed = {url for url in kept if form(url) != Request(url).url.partition("#")[0]}
    assert changed == set()


def test_courlan() -> None:
    source = read(fetch(*COURLAN), "tests/unit_tests.py")
    cases = [*asserted(source, "normalize_url"), *asserted(source, "clean_url")]
    cases = [(given, returned) for given, returned in cases if is_url(given)]
    assert len(cases) > 25
    #: Parameters by which campaigns mark links.
    marked = {
        "http://test.org/?utm_source=rss&utm_medium=rss",
        "http://test.net/foo.html?utm_source=twitter",
        "http://test.org/?utm_source=rss&#038;utm_medium=rss",
    }
    others = {
        # Several slashes may be another page than one.
        "https://hanxiao.io//404.html",
        # A page may be found by these; whoever knows better names them.
        *("http://test.org/?s_cid=123&clickid=1", "http://test.org/?aftr_source=0"),
        *("http://test.org/?fb_ref=0", "http://test.org/?this_affiliate=0"),
        # It is not one of the letters that may be encoded or not.
        "https://example.org/ab'c",
        # What follows a quotation mark is cut off there.
        *('https://example.org/abc"', "https://example.org/abc<"),
    }
    assert apart(cases) == marked | others
    assert apart(cases, Forms({"*": ["tracking"]})) == others
    drop = {"drop": ["s_cid", "clickid", "aftr_source", "fb_ref", "this_affiliate"]}
    named = {url for url in others if url.startswith("http://test.org/?")}
    assert apart(cases, Forms({"*": ["tracking", drop]})) == others - named

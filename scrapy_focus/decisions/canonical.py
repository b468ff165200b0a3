"""The canonical form of a URL: what is left of it when a job compares URLs.

It is a key only: what is fetched is the URL that was found. The form is made by named rules,
one after the other, in the order of ``RULES``. Those that are on by default change nothing
that a server may tell apart if it follows the standards; all others assume something of a site,
so a job switches them on (:setting:`FOCUS_CANONICAL`), for all hosts or for some.

Sources: RFC 3986, section 6.2, for what is equivalent by syntax and by scheme; the URL standard
(https://url.spec.whatwg.org) for hosts, and for the parameters of a query.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import translate
from typing import Any
from urllib.parse import parse_qsl, urlencode

from .globs import ByHost, without_dots
from .hosts import InvalidHost, canonical_host, canonical_name, shown

__all__ = ["DEFAULT", "RULES", "Canonical", "Forms", "InvalidRule", "Rule"]


class InvalidRule(ValueError):
    """A rule that cannot be used; the message is a sentence that says why."""


@dataclass(frozen=True, slots=True)
class Parts:
    """A URL, taken apart and not changed. What it does not have is ``None``."""

    scheme: str
    authority: str | None
    path: str
    query: str | None
    fragment: str | None

    def __str__(self) -> str:
        text = self.scheme + ":"
        if self.authority is not None:
            text += "//" + self.authority
        text += self.path
        if self.query is not None:
            text += "?" + self.query
        if self.fragment is not None:
            text += "#" + self.fragment
        return text


@dataclass(frozen=True, slots=True)
class Rule:
    """One step towards the canonical form."""

    name: str
    #: Which URLs are the same by it, and what that assumes.
    assumes: str
    apply: Callable[[Parts], Parts]
    default: bool = False


# RFC 3986, appendix B, with a scheme.
_URL = re.compile(r"([^:/?#]+):(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?", re.DOTALL)
_AUTHORITY = re.compile(r"(.*@)?(\[[^\]]*\]|[^:]*)(?::(.*))?", re.DOTALL)
_PORTS = {"http": "80", "https": "443", "ftp": "21", "ws": "80", "wss": "443"}
_ESCAPE = re.compile("%[0-9A-Fa-f]{2}")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_INDEX = re.compile(r"/(?:index\.[a-z]{2,5}|default\.aspx?|default\.html?)\Z", re.IGNORECASE)

# What marketing adds to links, none of which a page depends on. Source: the query stripping
# list of Firefox (https://firefox.settings.services.mozilla.com/v1/buckets/main/collections/
# query-stripping/records), and the campaign parameters of Google, Matomo and Piwik.
_TRACKING = re.compile(
    r"utm_.+|mtm_.+|pk_(?:campaign|kwd|keyword|source|medium|content|cid)|__hs[a-z]+|__s|_hsenc"
    r"|_hsmi|hsctatracking|_openstat|_ga|_gl|dclid|fbclid|gbraid|gclid|gclsrc|igshid|mc_cid|mc_eid"
    r"|mkt_tok|ml_subscriber(?:_hash)?|msclkid|oft_[a-z]+|oly_(?:anon|enc)_id|rb_clickid|s_cid"
    r"|srsltid|ttclid|twclid|vero_(?:conv|id)|wbraid|wickedid|yclid",
    re.IGNORECASE,
)
# The names by which the usual servers pass a session on in URLs.
_SESSION = re.compile(
    r"phpsessid|jsessionid|aspsessionid[a-z]*|asp\.net_sessionid|sessid|session_?id|cfid|cftoken"
    r"|osCsid|zenid",
    re.IGNORECASE,
)
_SESSION_IN_PATH = re.compile(r";jsessionid=[^/;]*", re.IGNORECASE)


class Canonical:
    """Brings URLs into the canonical form of a job.

    :param rules: in the order in which they are applied
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = tuple(rules)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the rules."""
        return tuple(rule.name for rule in self.rules)

    def __call__(self, url: str) -> str:
        match = _URL.fullmatch(url)
        if match is None:
            return url
        parts = Parts(*match.groups())
        for rule in self.rules:
            parts = rule.apply(parts)
        return str(parts)

    def steps(self, url: str) -> Iterator[tuple[Rule, str]]:
        """Each rule that changes *url*, and what it makes of it."""
        match = _URL.fullmatch(url)
        if match is None:
            return
        parts = Parts(*match.groups())
        for rule in self.rules:
            before, parts = parts, rule.apply(parts)
            if parts != before:
                yield rule, str(parts)


# -- rules that are on by default -------------------------------------------------------


def _host(parts: Parts) -> Parts:
    scheme = parts.scheme.lower()
    user, host, port = _authority(parts)
    try:
        name = canonical_name(host) if host else ""
    except InvalidHost:
        return replace(parts, scheme=scheme)
    # With its root dot it is another name to a server, though the same one to DNS.
    if host.endswith(".") and not name[-1].isdigit():
        name += "."
    return replace(parts, scheme=scheme, authority=_joined(parts, user, _bracketed(name), port))


def _port(parts: Parts) -> Parts:
    user, host, port = _authority(parts)
    if port is None or port not in ("", _PORTS.get(parts.scheme)):
        return parts
    return replace(parts, authority=_joined(parts, user, host, None))


def _escapes(parts: Parts) -> Parts:
    query = parts.query
    return replace(parts, path=_escaped(parts.path), query=query and _escaped(query))


def _dots(parts: Parts) -> Parts:
    if parts.authority is None:
        return parts
    return replace(parts, path=without_dots(parts.path) if parts.path else "/")


def _order(parts: Parts) -> Parts:
    if not parts.query or "&" not in parts.query:
        return parts
    return replace(parts, query="&".join(sorted(parts.query.split("&"), key=_name)))


def _fragment(parts: Parts) -> Parts:
    return replace(parts, fragment=None)


# -- rules by choice --------------------------------------------------------------------


def _hashbang(parts: Parts) -> Parts:
    if parts.fragment is None or not parts.fragment.startswith("!"):
        return replace(parts, fragment=None)
    return parts


def _https(parts: Parts) -> Parts:
    return replace(parts, scheme="https") if parts.scheme == "http" else parts


def _www(parts: Parts) -> Parts:
    user, host, port = _authority(parts)
    # "www.com" is a domain of its own.
    if not host.startswith("www.") or host.count(".") < 2:
        return parts
    return replace(parts, authority=_joined(parts, user, host[4:], port))


def _index(parts: Parts) -> Parts:
    return replace(parts, path=_INDEX.sub("/", parts.path))


def _slash(parts: Parts) -> Parts:
    return replace(parts, path=parts.path.rstrip("/") or "/")


def _session(parts: Parts) -> Parts:
    parts = replace(parts, path=_SESSION_IN_PATH.sub("", parts.path))
    return _kept(parts, lambda parameter: not _SESSION.fullmatch(_name(parameter)))


def _tracking(parts: Parts) -> Parts:
    return _kept(parts, lambda parameter: not _TRACKING.fullmatch(_name(parameter)))


def _form(parts: Parts) -> Parts:
    # The URL of a request is ASCII.
    if not parts.query or not parts.query.isascii():
        return parts
    given = parse_qsl(parts.query, keep_blank_values=True, encoding="latin-1")
    return replace(parts, query=urlencode(given, encoding="latin-1"))


def _blank(parts: Parts) -> Parts:
    return _kept(parts, lambda parameter: bool(parameter.partition("=")[2]))


def _repeated(parts: Parts) -> Parts:
    if not parts.query:
        return parts
    return replace(parts, query="&".join(dict.fromkeys(parts.query.split("&"))))


#: All rules that have a name, in the order in which they are applied.
RULES: dict[str, Rule] = {
    rule.name: rule
    for rule in (
        Rule(
            "host",
            "Scheme and host in lower case, the host as DNS is asked for it: RFC 3986, 6.2.2.1,"
            " and the host parser of the URL standard. A root dot is kept.",
            _host,
            default=True,
        ),
        Rule("port", "The scheme's default port is none: RFC 3986, 6.2.3.", _port, default=True),
        Rule(
            "escapes",
            "Percent-encoding in upper case, and none of letters, digits, '-', '.', '_' and '~':"
            " RFC 3986, 6.2.2.1 and 6.2.2.2. Everything else stays as it is: an encoded slash is"
            " no slash.",
            _escapes,
            default=True,
        ),
        Rule(
            "dots",
            "'.' and '..' in the path are resolved, and no path is '/': RFC 3986, 6.2.2.3 and"
            " 6.2.3.",
            _dots,
            default=True,
        ),
        Rule(
            "order",
            "Parameters of different names may change places, those of one name may not: the"
            " server reads the query as a form (URL standard, section 5).",
            _order,
            default=True,
        ),
        Rule(
            "fragment",
            "What follows '#' is not sent to the server: RFC 3986, 3.5.",
            _fragment,
            default=True,
        ),
        Rule(
            "hashbang",
            "As fragment, except for those that start with '!': a script loads by them what the"
            " page shows.",
            _hashbang,
        ),
        Rule("https", "http and https serve the same.", _https),
        Rule("www", "The host with 'www.' serves the same as the one without.", _www),
        Rule(
            "index",
            "index.html, index.php, default.aspx and the like are what a folder shows.",
            _index,
        ),
        Rule("slash", "A path serves the same with a slash at its end and without.", _slash),
        Rule(
            "session",
            "PHPSESSID, jsessionid and the other usual names of sessions change nothing that is"
            " worth a fetch.",
            _session,
        ),
        Rule(
            "form",
            "The query is read as a form and in no other way: '+' is '%20', an encoded '/' is '/',"
            " and 'a' is 'a='.",
            _form,
        ),
        Rule(
            "tracking", "utm_source, gclid and other marks of campaigns change nothing.", _tracking
        ),
        Rule("blank", "A parameter without a value is none.", _blank),
        Rule("repeated", "A parameter that stands twice, word for word, stands once.", _repeated),
    )
}
#: What a job has if it says nothing.
DEFAULT = Canonical([rule for rule in RULES.values() if rule.default])


# -- what a job says --------------------------------------------------------------------


class Forms:
    """The canonical forms of a job, which may differ by host.

    :param by_host: changes to the default rules, by host: a name stands for itself alone, and
        ``*`` for any run of characters. The first pattern that fits a host counts; a host that
        none fits has the default rules
    :raises InvalidRule: on a change or a pattern that cannot be used

    A change is the name of a rule to add, ``-`` and the name of one to leave out, ``{"drop":
    [...]}`` for parameters to leave out, by name or glob, or ``{"replace": [expression,
    replacement]}`` for a regular expression that is applied to the whole URL, after all rules.
    """

    def __init__(self, by_host: Mapping[str, Iterable[Any]]) -> None:
        forms = {pattern: _build(changes) for pattern, changes in by_host.items()}
        try:
            self._forms = ByHost(forms)
        except ValueError as error:
            raise InvalidRule(str(error)) from error

    @property
    def are_default(self) -> bool:
        """Whether every host has the default rules."""
        return not self._forms

    def of(self, url: str) -> Canonical:
        """The form of a URL's host."""
        if not self._forms:
            return DEFAULT
        try:
            return self._forms.get(canonical_host(url)) or DEFAULT
        except InvalidHost:
            return DEFAULT


def _build(changes: Iterable[Any]) -> Canonical:
    """The default rules, changed."""
    names = {rule.name for rule in DEFAULT.rules}
    last: list[Rule] = []
    for change in changes:
        if isinstance(change, Mapping) and len(change) == 1:
            last += (_made(kind, value) for kind, value in change.items())
        elif isinstance(change, str) and change.removeprefix("-") in RULES:
            name = change.removeprefix("-")
            (names.discard if change.startswith("-") else names.add)(name)
        else:
            raise InvalidRule(
                f"{shown(str(change))} is no rule; the rules are {', '.join(RULES)}, each with '-'"
                ' to leave it out, {"drop": [names]} and {"replace": [expression, replacement]}.'
            )
    if "hashbang" in names:
        names.discard("fragment")
    return Canonical([*(rule for name, rule in RULES.items() if name in names), *last])


def _made(kind: Any, value: Any) -> Rule:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):
        raise InvalidRule(f"{kind!r} needs a list of strings, not {shown(str(value))}.")
    if kind == "drop" and texts:
        return _dropping(texts)
    if kind == "replace" and len(texts) == 2:
        return _replacing(*texts)
    raise InvalidRule(
        f'{kind!r} with {len(texts)} entries is no rule; write {{"drop": [names]}} or '
        '{"replace": [expression, replacement]}.'
    )


def _dropping(names: Sequence[str]) -> Rule:
    match = re.compile("|".join(map(translate, names))).match

    def drop(parts: Parts) -> Parts:
        return _kept(parts, lambda parameter: not match(_name(parameter)))

    return Rule("drop", f"The parameters {', '.join(names)} change nothing.", drop)


def _replacing(expression: str, replacement: str) -> Rule:
    try:
        pattern = re.compile(expression)
        pattern.sub(replacement, "")
    except (re.error, IndexError) as error:
        raise InvalidRule(f"{shown(expression)} cannot be used: {error}.") from error

    def apply(parts: Parts) -> Parts:
        match = _URL.fullmatch(pattern.sub(replacement, str(parts)))
        return Parts(*match.groups()) if match else parts

    return Rule("replace", f"What {expression} matches is {replacement!r}.", apply)


# -- parts ------------------------------------------------------------------------------


def _authority(parts: Parts) -> tuple[str, str, str | None]:
    """The user with its ``@``, the host, and the port."""
    match = _AUTHORITY.fullmatch(parts.authority or "")
    return (match[1] or "", match[2], match[3]) if match else ("", parts.authority or "", None)


def _joined(parts: Parts, user: str, host: str, port: str | None) -> str | None:
    if parts.authority is None:
        return None
    return user + host + ("" if port is None else f":{port}")


def _bracketed(name: str) -> str:
    return f"[{name}]" if ":" in name else name


def _escaped(text: str) -> str:
    return _ESCAPE.sub(_escape, text) if "%" in text else text


def _escape(match: re.Match[str]) -> str:
    character = chr(int(match[0][1:], 16))
    return character if character in _UNRESERVED else match[0].upper()


def _name(parameter: str) -> str:
    return parameter.partition("=")[0]


def _kept(parts: Parts, keep: Callable[[str], bool]) -> Parts:
    """The URL with those of its parameters; without any, it has no query."""
    if not parts.query:
        return parts
    kept = "&".join(filter(keep, parts.query.split("&")))
    return replace(parts, query=kept or None)

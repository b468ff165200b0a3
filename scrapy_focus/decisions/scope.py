"""What a job may fetch: domains, patterns on ``host/path`` and a greatest depth.

There is one :class:`Scope` for each job, and it is the one judge of what is in bounds:
links, seeds, retries, redirect hops and rows that are about to be leased are all put to it.

**Domains.** A URL's host is one of the domains or a subdomain of one, compared label by
label on canonical names (:mod:`scrapy_focus.decisions.hosts`). No domains: every host. A
leading dot is allowed and means nothing: ``.example.com`` is ``example.com``.

**Patterns.** ``HOST/PATH``, split at the first slash; both sides must match whole.

- ``*`` stands for any run of characters, also none, and is the only wildcard of the host;
  the path also has ``[abc]``, ``[a-z]`` and ``[!abc]`` for one character. In the path ``*``
  crosses slashes; in the host it crosses dots, but never runs into the path.
- A pattern without a slash is a host with everything on it. One that starts with a slash
  is a path on any host: ``/*.pdf``, or ``/*/private/*`` for a folder at any depth but the
  first. (``*.pdf`` would be hosts, and is an error.)
- ``example.com`` is that host alone; its subdomains are ``*.example.com``.
- ``/news/*`` does not match ``/news``; ``/news*`` matches both, and ``/newsletter``.
- Hosts are compared in canonical form, paths with their case. A pattern has no scheme, no
  port, no query (``?``) and no fragment (``#``): they are not looked at, so a pattern with
  one of them could never match and is an error. IPv6 hosts stand in brackets.

**Paths have a normal form**, so that an exclusion cannot be dodged by another spelling:
percent-decoded once, ``\\`` read as ``/``, repeated slashes made one, ``.`` and ``..``
resolved; ``""`` is ``/``, and a path without a slash in front (``data:``) gets one. Where
servers differ on repeated slashes before ``..``, both readings are kept. A URL is excluded
if any reading matches, the path as it was written among them; it is included only if all
the normal ones match.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import Literal, TypeVar

from .globs import Pattern, as_written, compiled, decoded, normalised, pieces_of, readings
from .hosts import InvalidHost, canonical_host, canonical_name, shown, twin_of

__all__ = ["InvalidScope", "Reason", "Scope"]

#: Why a URL is out of scope.
Reason = Literal["invalid", "offsite", "excluded", "not_included", "depth"]


class InvalidScope(ValueError):
    """Rules that cannot be used; the message has one sentence for each bad entry."""

    #: For each bad entry the argument of :class:`Scope` that holds it, and a sentence that
    #: says which entry, what is wrong with it, and what to write instead.
    problems: tuple[tuple[str, str], ...]

    def __init__(self, problems: Iterable[tuple[str, str]]) -> None:
        self.problems = tuple(problems)
        super().__init__(" ".join(f"{argument}: {text}" for argument, text in self.problems))


class Scope:
    """The boundary of a job.

    :param domains: host names, each with its subdomains; none of them: every host.
    :param included: patterns, of which a URL must match one, if there are any.
    :param excluded: patterns, of which a URL must match none. They win over *included*.
    :param max_depth: greatest depth, in links from a seed; 0: no limit.
    :raises InvalidScope: (a :exc:`ValueError`) if any entry cannot be used. It names all
        the bad ones at once.
    """

    #: The domains, as canonical names; empty for every host.
    domains: frozenset[str]
    #: Greatest depth; 0 for no limit.
    max_depth: int

    def __init__(
        self,
        domains: Sequence[str] = (),
        included: Sequence[str] = (),
        excluded: Sequence[str] = (),
        max_depth: int = 0,
    ) -> None:
        problems: list[tuple[str, str]] = []
        self.domains = frozenset(_read("domains", domains, _domain, problems))
        self._included = _read("included", included, _included_pattern, problems)
        self._excluded = _read("excluded", excluded, _pattern, problems)
        self.max_depth = max_depth
        #: Hosts that count as their twins.
        self.brought_in: frozenset[str] = frozenset()
        if isinstance(max_depth, bool) or not isinstance(max_depth, int) or max_depth < 0:
            text = f"{max_depth!r} is not a depth; write a whole number, 0 for no limit."
            problems.append(("max_depth", text))
        if problems:
            raise InvalidScope(problems)
        self._include = compiled(self._included, normalised)
        # Slashes are not merged here: "*//*" means two slashes, and would become "*/*".
        self._exclude = compiled(self._excluded, decoded, as_written)

    def refuse(
        self, url: str, host: str | None, depth: int = 0, *, allow_offsite: bool = False
    ) -> Reason | None:
        """Say why *url* is out of scope, or ``None`` if it is in scope.

        :param host: what :func:`~scrapy_focus.decisions.hosts.canonical_host` returns for
            *url*: ``""`` if it has no host. ``None`` if it raised.
        :param depth: links from a seed, which has 0.
        :param allow_offsite: skip the check of the domains, and no other.
        :return: the first that applies of ``"invalid"`` (the host cannot be read),
            ``"offsite"``, ``"excluded"``, ``"not_included"``, ``"depth"``.
        """
        if host is None:
            return "invalid"
        reason = self._judge(url, host, depth, allow_offsite)
        if reason and host in self.brought_in and reason in ("offsite", "not_included"):
            # What is excluded there stays so, whatever its twin says.
            if self._exclude and self._excluded_by(url, host):
                return "excluded"
            return self._judge(url, twin_of(host), depth, allow_offsite)
        return reason

    def _judge(self, url: str, host: str, depth: int, allow_offsite: bool) -> Reason | None:
        if self.domains and not allow_offsite and not self._on_site(host):
            return "offsite"
        if (self._exclude or self._include) and (reason := self._by_pattern(url, host)):
            return reason
        return "depth" if 0 < self.max_depth < depth else None

    def bring_in(self, hosts: Iterable[str]) -> None:
        """From now on, judge pages on these hosts, too, as if they were on their twins: those
        with ``www.`` in front, or without it."""
        self.brought_in |= frozenset(hosts)

    def explain(
        self, url: str, host: str | None, depth: int = 0, *, allow_offsite: bool = False
    ) -> str:
        """Return a sentence that names the very rule by which :meth:`refuse` decides."""
        address = shown(url)
        match self.refuse(url, host, depth, allow_offsite=allow_offsite):
            case "invalid":
                return f"{address} is out of scope: {_unreadable(url)}"
            case "offsite":
                names = _some(sorted(self.domains))
                return f"{address} is out of scope: its host {host!r} is not within {names}."
            case "excluded":
                text = self._excluded_by(url, host or "") or self._excluded_by(
                    url, twin_of(host or "")
                )
                return f"{address} is out of scope: it matches the excluded pattern {text!r}."
            case "not_included":
                texts = _some([pattern.text for pattern in self._included])
                return f"{address} is out of scope: it matches none of the included {texts}."
            case "depth":
                return (
                    f"{address} is out of scope: it is {depth} links from a seed, and the "
                    f"greatest depth is {self.max_depth}."
                )
            case None if host and self._judge(url, host, depth, allow_offsite):
                return (
                    f"{address} is in scope: a start request has redirected to its host, and "
                    f"{twin_of(host)!r} is."
                )
            case None:
                return f"{address} is in scope."

    def signature(self) -> str:
        """Return a short hash of the rules, 16 hex digits.

        It is the same for equal rules in any order, in every process and on every machine:
        compare it to see whether a job's scope has changed between two runs.
        """
        rules = (
            sorted(self.domains),
            sorted({pattern.host + pattern.path for pattern in self._included}),
            sorted({pattern.host + pattern.path for pattern in self._excluded}),
            self.max_depth,
        )
        return sha256(ascii(rules).encode()).hexdigest()[:16]

    def _on_site(self, host: str) -> bool:
        # From the whole name towards its last label: the cost is the number of labels,
        # whatever the number of domains.
        rest, dot = host, "."
        while dot:
            if rest in self.domains:
                return True
            _, dot, rest = rest.partition(".")
        return False

    def _by_pattern(self, url: str, host: str) -> Reason | None:
        written, normal = readings(url)
        if (exclude := self._exclude) is not None:
            for path in written:
                if exclude.match(host + path):
                    return "excluded"
        if (include := self._include) is not None:
            for path in normal:
                if not include.match(host + path):
                    return "not_included"
        return None

    def _excluded_by(self, url: str, host: str) -> str | None:
        paths, _ = readings(url)
        for pattern in self._excluded:
            alone = compiled([pattern], decoded, as_written)
            if alone and any(alone.match(host + path) for path in paths):
                return pattern.text
        return None


# --- reading the rules


_T = TypeVar("_T")


def _read(
    argument: str,
    entries: object,
    read_entry: Callable[[str], _T],
    problems: list[tuple[str, str]],
) -> tuple[_T, ...]:
    """Read the entries of one list; add a sentence to *problems* for each bad one."""
    if isinstance(entries, (str, bytes)) or not isinstance(entries, Iterable):
        problems.append((argument, f"{entries!r} is not a list; write [{entries!r}]."))
        return ()
    read = []
    for entry in entries:
        try:
            read.append(read_entry(_text(entry)))
        except ValueError as error:
            problems.append((argument, str(error)))
    return tuple(read)


def _text(entry: object) -> str:
    if not isinstance(entry, str):
        raise ValueError(f"{entry!r} is not a string; write a host name or a pattern in quotes.")
    if not entry.strip():
        raise ValueError(f"{entry!r} is empty; remove it.")
    if entry != entry.strip():
        raise ValueError(f"{entry!r} has blanks around it; write {entry.strip()!r}.")
    return entry


def _domain(entry: str) -> str:
    if not entry.strip("*."):
        raise ValueError(f"{entry!r} is not a domain; leave the list empty to allow every host.")
    if entry.startswith("*.") and "*" not in entry[2:]:
        raise ValueError(
            f"{entry!r} has a wildcard; write {entry[2:]!r}, which includes its subdomains."
        )
    if "*" in entry:
        raise ValueError(f"{entry!r} has a wildcard; write it as a pattern to include instead.")
    return _host(entry, entry.removeprefix("."))


def _host(entry: str, name: str) -> str:
    """Return the canonical *name*, or say what to write in place of *entry*."""
    try:
        return canonical_name(name)
    except InvalidHost as error:
        try:
            meant = canonical_host(name if "://" in name else f"any://{name.lstrip('/')}")
        except InvalidHost:
            meant = ""
        better = entry.replace(name, f"[{meant}]" if ":" in meant else meant, 1)
        hint = f"write {better!r}" if meant else "write a host name such as 'example.com'"
        raise ValueError(
            f"{entry!r} is not a host name alone, without scheme, port and path "
            f"({str(error).rstrip('.')}); {hint}."
        ) from error


_SCHEME = re.compile(r"(?:\*|[A-Za-z][A-Za-z0-9+.\-]*)://+|//+")
#: No top-level domains, so a pattern on hosts with one of them was meant for files.
_FILE_ENDING = re.compile(
    r"\*\.(?:avi|bmp|css|csv|docx?|exe|gif|gz|html?|ico|iso|jpe?g|js|json|mp[34]|pdf|php|png|"
    r"pptx?|rar|svg|tar|tgz|txt|wav|webp|xlsx?|xml)",
    re.IGNORECASE,
)
_GLOB_LABEL = re.compile(r"[a-z0-9_*-]{1,63}")


def _pattern(entry: str) -> Pattern:
    if scheme := _SCHEME.match(entry):
        raise ValueError(
            f"{entry!r} starts with a scheme, which is not compared; "
            f"write {entry[scheme.end() :]!r}."
        )
    if mark := re.search("[?#]", entry):
        part = "query" if mark[0] == "?" else "fragment"
        raise ValueError(
            f"{entry!r} has a {mark[0]!r}, but the {part} of a URL is not compared and the "
            f"wildcard is '*'; write {entry[: mark.start()]!r}."
        )
    host, slash, path = entry.partition("/")
    if _FILE_ENDING.fullmatch(host):
        raise ValueError(f"{entry!r} is a pattern on hosts; write {'/' + entry!r}.")
    pattern = Pattern(entry, _host_glob(entry, host), f"/{path}" if slash else "/*")
    pieces_of(pattern.path, decoded)  # for its errors
    return pattern


def _included_pattern(entry: str) -> Pattern:
    pattern = _pattern(entry)
    if {".", ".."} & set(decoded(pattern.path).split("/")):
        raise ValueError(
            f"{entry!r} has a '.' or '..' segment, which no path has in its normal form; "
            f"write the path that it leads to."
        )
    return pattern


def _host_glob(entry: str, host: str) -> str:
    if "*" not in host:
        return _host(entry, host) if host else "*"
    if port := re.search(":[0-9*]*$", host):
        raise ValueError(
            f"{entry!r} has a port, which is not compared; write {entry.replace(port[0], '', 1)!r}."
        )
    return ".".join(_glob_label(entry, label) for label in host.removesuffix(".").split("."))


def _glob_label(entry: str, label: str) -> str:
    try:
        name = label if "*" in label else label.encode("idna").decode("ascii")
    except UnicodeError:
        name = ""
    if _GLOB_LABEL.fullmatch(name.lower()) is None:
        raise ValueError(
            f"{entry!r} has {label!r} in its host; write letters, digits, '-', '_' and '*' "
            f"there, and a label of other letters without '*'."
        )
    return name.lower()


# --- messages


def _some(texts: Sequence[str], most: int = 5) -> str:
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(map(repr, texts[:most])) + more


def _unreadable(url: str) -> str:
    try:
        canonical_host(url)
    except InvalidHost as error:
        return str(error)
    return "its host cannot be read."

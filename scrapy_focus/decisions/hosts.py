"""The identity of hosts: one canonical name, for URLs and for settings alike.

Scope, budgets and politeness compare host names. They all compare what this module
returns, so that ``Bücher.Example.``, ``xn--bcher-kva.example`` and
``b%C3%BCcher.example`` are one host, wherever they were written.

The canonical form is:

- lower case ASCII (IDNA 2003, as w3lib encodes the URL of a request), without the root
  dot;
- an IPv4 address as a dotted quad. ``127.1``, ``0x7f.1`` and ``2130706433`` are
  ``127.0.0.1``, as they are for browsers and for the resolver;
- an IPv6 address compressed and **without brackets**. An IPv4-mapped one,
  ``::ffff:127.0.0.1``, is the IPv4 address that it reaches;
- never a port, never user information.

What cannot be read with certainty is refused with :exc:`InvalidHost`, above all where the
parsers on the way disagree: ``http://a.example\\@b.example/`` is ``a.example`` for a
browser and ``b.example`` for :func:`urllib.parse.urlsplit`. A host that is returned is
the one that Scrapy's download handlers connect to.
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import IPv6Address
from urllib.parse import unquote_to_bytes

__all__ = ["InvalidHost", "are_twins", "canonical_host", "canonical_name", "is_within", "twin_of"]

#: Longest host name in DNS, without the root dot (RFC 1035, section 2.3.4).
_MAX_NAME = 253
#: A name longer than this is not worth decoding: the idna codec is slow on long input.
_MAX_INPUT = 4 * _MAX_NAME

#: Schemes whose URLs have an authority that is ignored, or none.
_HOSTLESS = frozenset({"about", "blob", "data", "file", "javascript", "mailto"})
#: Schemes that must have a host, and for which browsers read ``\`` as ``/``.
_SPECIAL = frozenset({"ftp", "http", "https", "ws", "wss"})

_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#: A regular expression for hosts that are canonical already: a name whose last label starts with
#: a letter, so that it cannot be an IPv4 address, or a dotted quad.
ORDINARY = rf"(?:[a-z0-9_-]{{1,63}}\.)*[a-z][a-z0-9_-]{{0,62}}|(?:{_OCTET}\.){{3}}{_OCTET}"
# Every other URL takes the slow path.
_ORDINARY_URL = re.compile(
    rf"https?://({ORDINARY})(?::(?:[0-9]{{1,4}}|[1-5][0-9]{{4}}))?(?=[/?#]|\Z)"
)
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):(//)?([^/?#]*)")
_HOST_AND_PORT = re.compile(r"(\[[^\[\]]*\]|[^\[\]:]*)(?::0*([0-9]{0,5}))?")
# Underscores and outer hyphens are against the letter of RFC 1123, and alive in DNS.
_NAME = re.compile(r"(?:[a-z0-9_-]{1,63}\.)*[a-z0-9_-]{1,63}")
_DOTS = re.compile("[.\u3002\uff0e\uff61]")  # RFC 3490, section 3.1
_NUMBER = re.compile(r"0x([0-9a-f]*)|(0[0-7]*)|([1-9][0-9]*)")
_ENDS_IN_NUMBER = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)", re.DOTALL)

# What the URL standard strips from the ends of a URL, and removes anywhere in it. w3lib and
# urlsplit do the same, so a URL with a tab in its host does reach the host without it.
_CONTROLS_AND_SPACE = "".join(map(chr, range(0x21)))
_TAB_OR_NEWLINE = {ord(character): None for character in "\t\n\r"}


class InvalidHost(ValueError):
    """A host name that cannot be read; the message is a sentence that says why."""


def canonical_host(url: str) -> str:
    """Return the canonical host name of *url*.

    :return: the host, or ``""`` for a URL that has none, such as ``data:``, ``file:`` and
        ``about:`` URLs.
    :raises InvalidHost: if the host cannot be read, if two parsers could read different
        hosts, or if *url* is not absolute. No other exception is raised.
    """
    ordinary = _ORDINARY_URL.match(url)
    if ordinary is not None and len(ordinary[1]) <= _MAX_NAME:
        return ordinary[1]
    authority = _authority(url)
    return _host_in(authority) if authority else ""


def _authority(url: str) -> str:
    """Return what stands between ``//`` and the path; ``""`` where no host is meant."""
    parts = _URL.match(cleaned(url))
    if parts is None:
        raise InvalidHost(f"{shown(url)} has no scheme, so its host is not known.")
    scheme, slashes, authority = parts[1].lower(), parts[2], parts[3]
    if scheme in _HOSTLESS:
        return ""
    if slashes and authority:
        return authority
    if scheme in _SPECIAL:
        # A browser would look for the host further on, where urlsplit sees none.
        raise InvalidHost(f"{shown(url)} has no host.")
    return ""


def _host_in(authority: str) -> str:
    user, _, host_and_port = authority.rpartition("@")
    # A browser takes a backslash for a slash; urlsplit refuses some users that it reads.
    if "\\" in authority or "[" in user or "]" in user or not user.isascii():
        raise InvalidHost(f"{shown(authority)} is not read alike by all parsers of URLs.")
    parts = _HOST_AND_PORT.fullmatch(host_and_port)
    if parts is None or int(parts[2] or 0) > 0xFFFF:
        raise InvalidHost(f"{shown(authority)} is not a host with or without a port.")
    return canonical_name(parts[1])


@lru_cache(maxsize=4096)
def canonical_name(name: str) -> str:
    """Return the canonical form of a host name that stands alone, as in a setting.

    :param name: a host name or an IP address; IPv6 with or without brackets.
    :raises InvalidHost: if it is not a host name. No other exception is raised.
    """
    if name.startswith("[") or ":" in name:
        return _ipv6(name)
    text = _to_ascii(name).lower().removesuffix(".")
    if len(text) > _MAX_NAME:
        raise InvalidHost(f"{shown(name)} is longer than the {_MAX_NAME} characters of DNS.")
    if _NAME.fullmatch(text) is None:
        raise InvalidHost(f"{shown(name)} is not a host name: {_complaint(text)}.")
    if _ENDS_IN_NUMBER.fullmatch(text):
        return _ipv4(text)
    return text


def is_within(host: str, domain: str) -> bool:
    """Return whether *host* is *domain* or a subdomain of it, whole labels compared.

    Both are canonical names. An IP address has no subdomains.
    """
    if host == domain:
        return True
    return bool(domain) and host.endswith("." + domain) and not _ENDS_IN_NUMBER.fullmatch(host)


def twin_of(host: str) -> str:
    """Return *host*, a canonical name, with ``www.`` in front, or without it if it has that.

    :return: ``""`` where that makes no sense: for addresses, names without a dot, and none.
    """
    bare = host.removeprefix("www.")
    if "." not in bare or len(bare) > _MAX_NAME - 4 or _ENDS_IN_NUMBER.fullmatch(bare):
        return ""
    return bare if bare != host else f"www.{host}"


def are_twins(host: str, other: str) -> bool:
    """Return whether two canonical names differ by ``www.`` in front, and by nothing else."""
    return bool(host and other) and (twin_of(host) == other or twin_of(other) == host)


def cleaned(url: str) -> str:
    """Return *url* as every parser of URLs begins with it."""
    if not url.isprintable():
        url = url.translate(_TAB_OR_NEWLINE)
    return url.strip(_CONTROLS_AND_SPACE)


def shown(text: str) -> str:
    """Return *text* quoted for a message, however long it is."""
    return repr(text if len(text) <= 100 else text[:97] + "...")


def _to_ascii(name: str) -> str:
    if len(name) > _MAX_INPUT:
        raise InvalidHost(f"{shown(name)} is too long to be a host name.")
    if "%" in name and not name.isascii():
        # A browser decodes the one before it encodes the other, w3lib does not decode.
        raise InvalidHost(f"{shown(name)} mixes percent-encoding and other characters.")
    try:
        text = unquote_to_bytes(name).decode() if "%" in name else name
        if text.isascii():
            return text
        # The codec of the standard library, since w3lib uses it: another one would give a
        # setting another name than a request (IDNA 2008 encodes "ß", IDNA 2003 has "ss").
        encoded = text.encode("idna").decode("ascii")
    except UnicodeError as error:
        raise InvalidHost(f"{shown(name)} cannot be encoded for DNS: {error}.") from error
    if encoded.count(".") != len(_DOTS.findall(text)):
        # Some characters stand for a digit with a dot. Whether it separates labels depends
        # on the version of w3lib.
        raise InvalidHost(f"{shown(name)} has a dot that is part of another character.")
    return encoded


def _ipv6(name: str) -> str:
    bare = name[1:-1] if name.startswith("[") and name.endswith("]") else name
    try:
        # A zone ("fe80::1%eth0") means something on one machine only; URLs carry none.
        if "%" in bare:
            raise ValueError("zones are not supported")
        address = IPv6Address(bare)
    except ValueError as error:
        raise InvalidHost(f"{shown(name)} is not an IPv6 address: {error}.") from error
    # Its own form because it is the same machine, and because Python 3.13 began to print
    # mapped addresses in another way.
    mapped = address.ipv4_mapped
    return str(address if mapped is None else mapped)


def _ipv4(name: str) -> str:
    """Read an IPv4 address as the URL standard and ``inet_aton`` do.

    https://url.spec.whatwg.org/#concept-ipv4-parser
    """
    numbers = [_number(label) for label in name.split(".")]
    known = [number for number in numbers if number is not None]
    *high, low = known or [-1]
    if (
        len(known) != len(numbers)
        or len(known) > 4
        or any(number > 255 for number in high)
        or low >= 256 ** (4 - len(high))
    ):
        raise InvalidHost(f"{shown(name)} ends in a number but is not an IPv4 address.")
    octets = [*high, *low.to_bytes(4 - len(high), "big")]
    return ".".join(map(str, octets))


def _number(label: str) -> int | None:
    match = _NUMBER.fullmatch(label)
    if match is None:
        return None
    if match[1] is not None:
        return int(match[1] or "0", 16)
    return int(match[2], 8) if match[2] else int(match[3])


def _complaint(text: str) -> str:
    labels = text.split(".")
    if not text:
        return "it is empty"
    if not all(labels):
        return "a label is empty"
    if any(len(label) > 63 for label in labels):
        return "a label is longer than 63 characters"
    odd = sorted(set(re.sub(r"[a-z0-9_.-]", "", text)))
    return f"it contains {', '.join(map(repr, odd))}"

"""URLs and URIs as policy reads them: which host a URL means beyond doubt, and in which ways a URI may be spelt.

Programs disagree about odd URLs, and a server may use any of them. So a host is told only where all agree; a URL with a
user in it, a backslash, an escape in its host, a number in place of an address or a character beyond ASCII has none.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable

__all__ = ["HostError", "compile_hosts", "host_of", "uri_forms"]

_MOST_TEXT = 8192
_MOST_HOST = 253
_URL = re.compile(
    r"(?:https?|wss?)://(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{0,5}))?(?P<rest>[/?#].*)?",
    re.ASCII | re.IGNORECASE | re.DOTALL,
)
_CONTROL = re.compile(r"[\x00-\x20\x7f-\xa0\u2028\u2029\ud800-\udfff]")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
# The URL standard of browsers reads any host that ends so as an IPv4 address, in four notations.
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(//[^/?#]*)?([^?#]*)(.*)", re.ASCII | re.DOTALL)
# What an escape may stand for without changing the meaning (RFC 3986, 2.3), and what would change the path.
_ESCAPE = re.compile(r"%(2[de]|2f|3[0-9]|4[1-9a-f]|5[0-9ac]|5f|6[1-9a-f]|7[0-9ae])", re.IGNORECASE)
_CASELESS = frozenset({"file", "ftp", "http", "https", "ws", "wss"})


class HostError(ValueError):
    """A pattern names no host; the message says why and what to write."""


def host_of(url: str) -> str | None:
    """Say which host a URL means, in small letters; None where programs may disagree."""
    found = None if len(url) > _MOST_TEXT or _CONTROL.search(url) else _URL.fullmatch(url)
    if found is None or int(found["port"] or 0) > 65535:
        return None
    rest = found["rest"] or ""
    # Where no slash ends the authority, some look for a user beyond the '?' or '#'.
    if rest[:1] in ("?", "#") and ("@" in rest or "\\" in rest):
        return None
    return _plain_host(found["host"].lower())


def _plain_host(host: str) -> str | None:
    """Give a host in its one spelling; None if it has none."""
    if host.startswith("["):
        return _address(host[1:-1], version=6)
    host = host.removesuffix(".")
    labels = host.split(".")
    if len(host) > _MOST_HOST or not all(map(_LABEL.fullmatch, labels)):
        return None
    return _address(host, version=4) if _NUMBER.fullmatch(labels[-1]) else host


def _address(text: str, *, version: int) -> str | None:
    from ipaddress import IPv6Address, ip_address

    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return None
    return str(address) if address.version == version and (version == 6 or str(address) == text) else None


def compile_hosts(patterns: Iterable[str]) -> Callable[[str], bool]:
    """Make the function that tells whether a host is one of these, or below one that is written ``*.example.com``.

    Raises:
        HostError: a pattern is neither.
    """
    exact, below = set[str](), list[str]()
    for pattern in patterns:
        under = pattern.startswith("*.")
        host = _plain_host(_bracketed(pattern.removeprefix("*.").lower()))
        if host is None or (under and _NUMBER.fullmatch(host.rpartition(".")[2])):
            raise HostError(f"{pattern!r} is no host: {_host_fix(pattern)}")
        below.append(f".{host}") if under else exact.add(host)
    hosts, ends = frozenset(exact), tuple(below)
    return lambda host: host in hosts or host.endswith(ends)


def _bracketed(text: str) -> str:
    return f"[{text}]" if text.count(":") > 1 and not text.startswith("[") else text


def _host_fix(pattern: str) -> str:
    if not pattern.isascii():
        return "write it in its ASCII form, xn--..."
    if "/" in pattern or ":" in pattern:
        return "write the host alone, without scheme, port and path"
    return "write a name, an address, or '*.' and a name for all below it"


def uri_forms(uri: str) -> tuple[str, ...]:
    """Give a URI as it is and, if that differs, with dots, double slashes and escapes of its path resolved."""
    found = _URI.fullmatch(uri)
    if found is None:
        return (uri,)
    scheme, authority, path, rest = found[1].lower(), found[2], found[3], found[4]
    path = _ESCAPE.sub(lambda escape: chr(int(escape[1], 16)), path).replace("\\", "/")
    if authority is not None:
        authority = authority.lower() if scheme in _CASELESS else authority
        authority = "//" if scheme == "file" and authority == "//localhost" else authority
    if path.startswith("/"):
        straight = posixpath.normpath(path)
        path = "/" + straight.lstrip("/") + ("/" if path.endswith("/") and straight.strip("/") else "")
    straightened = f"{scheme}:{authority or ''}{path}{rest}"
    return (uri,) if straightened == uri else (uri, straightened)

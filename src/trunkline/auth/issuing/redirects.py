"""Redirect URIs: which are acceptable, whether one is registered, and how parameters are added.

URIs are compared as written, character by character: a parser removes line breaks, folds case and drops fragments, and
so takes two different URIs for one. Only the port of a loopback URI is free, since a native program listens on any port
that the system assigns (RFC 8252, 7.3).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from urllib.parse import SplitResult, urlencode, urlsplit

__all__ = ["host_of", "is_loopback", "origin_of", "redirect_fault", "registered", "with_parameters"]

_LONGEST = 2000
# The characters of RFC 3986; neither white space nor a backslash, which browsers read as a slash.
_WRITTEN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]+")
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\]")
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
# The part before the port, the port, and the rest.
_LOOPBACK_PORT = re.compile(r"(http://(?:localhost|127\.0\.0\.1|\[::1\]))(?::([1-9][0-9]{0,4}))?((?:[/?].*)?)")
#: Schemes that browsers handle themselves, so that they cannot belong to an application.
_TAKEN = frozenset(
    ("about", "blob", "data", "file", "filesystem", "ftp", "http", "https", "javascript", "mailto")
).union(("vbscript", "view-source", "ws", "wss"))


def redirect_fault(uri: object, *, schemes: Iterable[str] = ()) -> str | None:
    """Return what is wrong with a redirect URI; None if it is acceptable.

    ``schemes`` are private-use schemes of applications, allowed besides https and loopback.
    """
    if not isinstance(uri, str) or len(uri) > _LONGEST or not _WRITTEN.fullmatch(uri):
        return "is not a valid URI"
    parts = _split(uri)
    if parts is None:
        return "is not a valid URI"
    if "#" in uri:
        return "has a fragment"
    if parts.scheme in schemes and parts.scheme not in _TAKEN:
        return None
    if "@" in parts.netloc or not _HOST.fullmatch(_name(parts)):
        return "has no plain host"
    if parts.scheme == "https" or (parts.scheme == "http" and is_loopback(uri)):
        return None
    return "is neither https nor http at a loopback address"


def registered(uri: str, known: Iterable[str]) -> bool:
    """Return True if a URI is among those that a client registered, compared as written except for a loopback port.

    ``known`` were checked by ``redirect_uri_problem``, so a URI that equals one has no fragment or control character.
    """
    return any(uri == one or _same_but_port(uri, one) for one in known)


def is_loopback(uri: str) -> bool:
    """Return True if a URI is an http URI on the user's own machine."""
    parts = _split(uri)
    return parts is not None and parts.scheme == "http" and _name(parts) in _LOOPBACK


def host_of(uri: str) -> str:
    """Return the part that the user should check: the host, or the scheme of an application."""
    parts = urlsplit(uri)
    return parts.netloc if parts.scheme in ("http", "https") else f"{parts.scheme}:"


def origin_of(uri: str) -> str:
    """Return the origin of a URI, as a content security policy names it."""
    parts = urlsplit(uri)
    return f"{parts.scheme}://{parts.netloc}" if parts.scheme in ("http", "https") else f"{parts.scheme}:"


def with_parameters(uri: str, parameters: Mapping[str, str | None]) -> str:
    """Add parameters to a URI that may already have some; those that are None are left out."""
    added = urlencode({name: value for name, value in parameters.items() if value is not None})
    return f"{uri}{'&' if '?' in uri else '?'}{added}"


def _same_but_port(uri: str, known: str) -> bool:
    one, other = _LOOPBACK_PORT.fullmatch(uri), _LOOPBACK_PORT.fullmatch(known)
    if one is None or other is None or int(one[2] or 0) > 65535:
        return False
    return (one[1], one[3]) == (other[1], other[3])


def _split(uri: str) -> SplitResult | None:
    try:
        parts = urlsplit(uri)
        _ = parts.port
    except ValueError:
        return None
    return parts


def _name(parts: SplitResult) -> str:
    """Return the host as written, without the port."""
    return re.sub(r":\d*$", "", parts.netloc)

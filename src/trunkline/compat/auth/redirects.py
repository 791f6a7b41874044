"""Redirect URIs: which a client may name, and how parameters are added to them.

An allowed URI is a pattern with ``*`` for a port, for the part of a host before a domain, or inside a path. A URI is
taken apart before it is compared, so that what stands before an ``@`` is never mistaken for a host.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from ipaddress import ip_address
from types import MappingProxyType
from typing import Any
from urllib.parse import quote_plus, unquote, urlencode, urlsplit

from pydantic import AnyUrl

__all__ = [
    "DEFAULT_LOCALHOST_PATTERNS",
    "UNSAFE_REDIRECT_URI_SCHEMES",
    "add_query_params",
    "build_client_redirect",
    "is_loopback_host",
    "is_redirect_uri_allowed_for_application_type",
    "is_unsafe",
    "matches_allowed_pattern",
    "replace_query_param",
    "validate_redirect_uri",
]

#: Schemes that run something in the browser or read local files instead of leading to a client.
UNSAFE_REDIRECT_URI_SCHEMES = frozenset({"javascript", "data", "file", "vbscript"})
DEFAULT_LOCALHOST_PATTERNS = ("http://localhost:*", "http://127.0.0.1:*")
_DEFAULT_PORTS = MappingProxyType({"http": "80", "https": "443"})
_SCHEME = re.compile(r"\s*([A-Za-z][A-Za-z0-9+.-]*)\s*:")


# --- parameters ------------------------------------------------------------------------------------------------------


def _with_query(url: str, query: str) -> str:
    # The rest stays byte for byte: a URI that was registered may have escapes that are not UTF-8.
    head, hash_, fragment = url.partition("#")
    return f"{head.partition('?')[0]}{'?' if query else ''}{query}{hash_}{fragment}"


def _query(url: str) -> str:
    return url.partition("#")[0].partition("?")[2]


def add_query_params(url: str, params: dict[str, str]) -> str:
    """Return a URL with parameters added after those it has."""
    return _with_query(url, "&".join(filter(None, (_query(url), urlencode(params)))))


def replace_query_param(url: str, key: str, value: str) -> str:
    """Return a URL with the first parameter of a name replaced, or added if there is none."""
    parts = _query(url).split("&") if _query(url) else []
    written = f"{key}={quote_plus(value)}"
    for index, part in enumerate(parts):
        if unquote(part.partition("=")[0]) == key:
            parts[index] = written
            break
    else:
        parts.append(written)
    return _with_query(url, "&".join(parts))


def build_client_redirect(url: str, params: dict[str, str], *, iss: str) -> str:
    """Return the URL that an answer is sent to: the client's own, the parameters, and the issuer once (RFC 9207).

    Raises:
        ValueError: the parameters contain the issuer.
    """
    if "iss" in params:
        raise ValueError("pass the issuer as iss=, not among the parameters")
    return replace_query_param(add_query_params(url, params), "iss", iss)


# --- patterns --------------------------------------------------------------------------------------------------------


def is_loopback_host(host: str | None) -> bool:
    """Return whether a host is this machine: ``localhost`` and names below it, 127.0.0.0/8, ``::1``."""
    name = (host or "").strip("[]").lower().removesuffix(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def _host_and_port(netloc: str) -> tuple[str, str | None]:
    if netloc.startswith("["):
        host, _, rest = netloc.partition("]")
        return f"{host}]".lower(), rest[1:] if rest.startswith(":") else None
    host, colon, port = netloc.partition(":")
    return host.lower(), port if colon else None


def _host_matches(host: str, pattern: str) -> bool:
    if pattern.startswith("*."):
        return host.endswith(pattern[1:]) and len(host) > len(pattern) - 1
    return pattern == "*" or host == pattern


def _port_matches(port: str | None, pattern: str | None, scheme: str, host: str) -> bool:
    if pattern == "*":
        return True
    default = _DEFAULT_PORTS.get(scheme)
    if pattern is None and is_loopback_host(host):
        # RFC 8252, 7.3: the port of a loopback redirect is chosen when it is needed.
        return True
    return (port or default) == (pattern or default)


def _path_matches(path: str, pattern: str) -> bool:
    if any(segment in (".", "..") for segment in unquote(path).split("/")):
        return False
    if pattern in ("", "/"):
        return True
    return fnmatchcase(path, pattern) if "*" in pattern else path == pattern


def is_unsafe(uri: str) -> bool:
    """Return whether a URI has a scheme that no client can be at."""
    found = _SCHEME.match(uri)
    return found is None or found[1].lower() in UNSAFE_REDIRECT_URI_SCHEMES


def matches_allowed_pattern(uri: str, pattern: str) -> bool:
    """Return whether a URI matches a pattern."""
    try:
        given, allowed = urlsplit(uri), urlsplit(pattern)
    except ValueError:
        return False
    if given.scheme.lower() != allowed.scheme.lower() or "@" in given.netloc:
        return False
    host, port = _host_and_port(given.netloc)
    allowed_host, allowed_port = _host_and_port(allowed.netloc)
    return (
        _host_matches(host, allowed_host)
        and _port_matches(port, allowed_port, given.scheme.lower(), host)
        and _path_matches(given.path, allowed.path)
    )


def validate_redirect_uri(redirect_uri: str | AnyUrl | None, allowed_patterns: Sequence[str] | None) -> bool:
    """Return whether a redirect URI is allowed; without patterns, whether it is safe at all."""
    if redirect_uri is None:
        return True
    uri = str(redirect_uri)
    if is_unsafe(uri):
        return False
    return allowed_patterns is None or any(matches_allowed_pattern(uri, pattern) for pattern in allowed_patterns)


def is_redirect_uri_allowed_for_application_type(redirect_uri: str | AnyUrl, application_type: str | None) -> bool:
    """Return whether a redirect URI fits the kind of a client (OpenID Connect registration, 2)."""
    uri: Any = str(redirect_uri)
    if is_unsafe(uri):
        return False
    parsed = urlsplit(uri)
    loopback = is_loopback_host(_host_and_port(parsed.netloc.rpartition("@")[2])[0])
    if application_type == "web":
        return parsed.scheme == "https" and bool(parsed.netloc) and not loopback
    if application_type == "native":
        return parsed.scheme != "http" or loopback
    return True

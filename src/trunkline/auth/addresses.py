"""Checks of URLs that other parties supply: where secrets may be sent, what a browser may open, and what a URL covers.

URLs are compared and split here; nothing is fetched and no name is resolved.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from urllib.parse import SplitResult, urlsplit

from trunkline.net.addresses import is_loopback

__all__ = ["canonical", "covers", "is_private", "may_carry_secrets", "openable", "origin", "split"]

# The characters of a URI, without those that mean something to a shell and that no endpoint needs.
_PLAIN = re.compile(r"[A-Za-z0-9\-._~:/?#\[\]@!*+,=%&]+")
_PORTS: Mapping[str, int] = MappingProxyType({"http": 80, "https": 443})


def split(url: str) -> SplitResult | None:
    """Split an http or https URL; return None if it is not one, or contains user information."""
    try:
        parts = urlsplit(url)
        good = (
            parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and "@" not in parts.netloc
        )
    except ValueError:
        return None
    return parts if good and url.isascii() and url.isprintable() and " " not in url else None


def is_private(host: str | None) -> bool:
    """Return True if a host is an IP address that only this machine or its network can reach."""
    from ipaddress import ip_address

    try:
        return is_loopback(host) or ip_address(host or "").is_private
    except ValueError:
        return False


def may_carry_secrets(url: str) -> bool:
    """Return True if secrets may be sent to a URL: it is https, or on this machine."""
    parts = split(url)
    return parts is not None and (parts.scheme == "https" or is_loopback(parts.hostname))


def openable(url: str) -> bool:
    """Return True if a browser may be sent to a URL: https or loopback, no fragment, and plain characters only."""
    parts = split(url)
    return (
        parts is not None
        and may_carry_secrets(url)
        and not parts.fragment
        and _PLAIN.fullmatch(url) is not None
        and "&" not in parts.path + parts.netloc
    )


def origin(url: str) -> str:
    """Return scheme, host and port of a URL; the default port is left out."""
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    host = f"[{host}]" if ":" in host else host
    port = "" if parts.port in (None, _PORTS.get(parts.scheme)) else f":{parts.port}"
    return f"{parts.scheme}://{host}{port}"


def canonical(url: str) -> str:
    """Return a server's URL as tokens are requested for it: without query, fragment and trailing slash."""
    return origin(url) + urlsplit(url).path.rstrip("/")


def covers(resource: str, server: str) -> bool:
    """Return True if a resource is the server, or a parent path of it on the same origin."""
    above, below = canonical(resource), canonical(server)
    return urlsplit(resource).query == "" and (above == below or below.startswith(above + "/"))

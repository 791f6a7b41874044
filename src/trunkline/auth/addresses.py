"""Judges URLs that others name: where secrets may go, what a browser may open, and whether two name the same thing.

It compares and takes apart; it fetches nothing and resolves no name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from urllib.parse import SplitResult, urlsplit

from trunkline.net.addresses import is_loopback

__all__ = ["canonical", "covers", "is_private", "may_carry_secrets", "openable", "origin", "split"]

# What a URI may consist of, without the characters that mean something to a shell and that no endpoint needs.
_PLAIN = re.compile(r"[A-Za-z0-9\-._~:/?#\[\]@!*+,=%&]+")
_PORTS: Mapping[str, int] = MappingProxyType({"http": 80, "https": 443})


def split(url: str) -> SplitResult | None:
    """Take a URL of the web apart; None if it is none, or names a user."""
    try:
        parts = urlsplit(url)
        good = (
            parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and "@" not in parts.netloc
        )
    except ValueError:
        return None
    return parts if good and url.isascii() and url.isprintable() and " " not in url else None


def is_private(host: str | None) -> bool:
    """Tell whether a host name is an address that only this machine or its network knows."""
    from ipaddress import ip_address

    try:
        return is_loopback(host) or ip_address(host or "").is_private
    except ValueError:
        return False


def may_carry_secrets(url: str) -> bool:
    """Tell whether a URL keeps what is sent there from others: https, or this machine."""
    parts = split(url)
    return parts is not None and (parts.scheme == "https" or is_loopback(parts.hostname))


def openable(url: str) -> bool:
    """Tell whether a browser may be sent to a URL: of the web, safe from listeners, and plain in its characters."""
    parts = split(url)
    return (
        parts is not None
        and may_carry_secrets(url)
        and not parts.fragment
        and _PLAIN.fullmatch(url) is not None
        and "&" not in parts.path + parts.netloc
    )


def origin(url: str) -> str:
    """Give scheme, host and port, the latter only where it is not the usual one."""
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    host = f"[{host}]" if ":" in host else host
    port = "" if parts.port in (None, _PORTS.get(parts.scheme)) else f":{parts.port}"
    return f"{parts.scheme}://{host}{port}"


def canonical(url: str) -> str:
    """Give a server's URL in the form that tokens are asked for: no query, no fragment, no slash at the end."""
    return origin(url) + urlsplit(url).path.rstrip("/")


def covers(resource: str, server: str) -> bool:
    """Tell whether a resource is the server, or a folder above it on the same origin."""
    above, below = canonical(resource), canonical(server)
    return urlsplit(resource).query == "" and (above == below or below.startswith(above + "/"))

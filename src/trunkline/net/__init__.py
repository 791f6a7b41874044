"""The one HTTP client for untrusted URLs, and the parsing and classification of URLs and addresses.

``Fetcher`` resolves a host once, refuses addresses that are not public, and checks every redirect in the same way.
Import from here: the modules inside are not part of the public API, whatever their names. Names are loaded on first
access: many programs only classify an address.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trunkline._lazy import lazy_exports

if TYPE_CHECKING:
    from trunkline.net.addresses import (
        ListenAddress,
        NotPublicAddress,
        is_loopback,
        parse_listen_address,
        reachable_url,
        special_range,
    )
    from trunkline.net.fetcher import BeforeHop, Fetcher, FetchResponse, Resolve
    from trunkline.net.urls import ParsedURL, is_proxy_url, parse_url, redact_url

__all__ = [
    "BeforeHop",
    "FetchResponse",
    "Fetcher",
    "ListenAddress",
    "NotPublicAddress",
    "ParsedURL",
    "Resolve",
    "is_loopback",
    "is_proxy_url",
    "parse_listen_address",
    "parse_url",
    "reachable_url",
    "redact_url",
    "special_range",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "trunkline.net.addresses": (
                "ListenAddress",
                "NotPublicAddress",
                "is_loopback",
                "parse_listen_address",
                "reachable_url",
                "special_range",
            ),
            "trunkline.net.fetcher": ("BeforeHop", "FetchResponse", "Fetcher", "Resolve"),
            "trunkline.net.urls": ("ParsedURL", "is_proxy_url", "parse_url", "redact_url"),
        },
    )

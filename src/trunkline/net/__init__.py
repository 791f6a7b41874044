"""Addresses and URLs, and the one HTTP client for untrusted URLs; see ``fetcher`` for what it guards against.

Each name is loaded on first use: many modules only need to classify an address.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trunkline.net.addresses import NotPublicAddress, is_loopback, special_range
    from trunkline.net.fetcher import BeforeHop, Fetcher, FetchResponse, Resolve
    from trunkline.net.urls import ParsedURL, is_proxy_url, parse_url

__all__ = [
    "BeforeHop",
    "FetchResponse",
    "Fetcher",
    "NotPublicAddress",
    "ParsedURL",
    "Resolve",
    "is_loopback",
    "is_proxy_url",
    "parse_url",
    "special_range",
]

_HOMES = MappingProxyType(
    {
        "trunkline.net.addresses": ("NotPublicAddress", "is_loopback", "special_range"),
        "trunkline.net.fetcher": ("BeforeHop", "FetchResponse", "Fetcher", "Resolve"),
        "trunkline.net.urls": ("ParsedURL", "is_proxy_url", "parse_url"),
    }
)


def __getattr__(name: str) -> Any:
    """Load a public name on first access (PEP 562)."""
    for home, names in _HOMES.items():
        if name in names:
            from importlib import import_module

            value = globals()[name] = getattr(import_module(home), name)
            return value
    raise AttributeError(f"module 'trunkline.net' has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names."""
    return list(__all__)

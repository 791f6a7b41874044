"""The one HTTP client for untrusted URLs; see ``fetcher`` for what it guards against.

It is loaded on first use: many modules only need to classify an address.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trunkline.net.addresses import special_range

if TYPE_CHECKING:
    from trunkline.net.fetcher import BeforeHop, Fetcher, FetchResponse, Resolve

__all__ = ["BeforeHop", "FetchResponse", "Fetcher", "Resolve", "special_range"]


def __getattr__(name: str) -> Any:
    """Load a public name on first access (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module 'trunkline.net' has no attribute {name!r}")
    import trunkline.net.fetcher as fetcher

    value = globals()[name] = getattr(fetcher, name)
    return value

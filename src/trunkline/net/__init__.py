"""The one HTTP client for what is fetched on somebody else's word; see ``fetcher`` for what it guards against."""

from __future__ import annotations

from trunkline.net.addresses import special_range
from trunkline.net.fetcher import BeforeHop, Fetched, Fetcher, Resolve

__all__ = ["BeforeHop", "Fetched", "Fetcher", "Resolve", "special_range"]

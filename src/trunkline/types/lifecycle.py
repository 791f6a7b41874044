"""How two sides meet: ``initialize`` in handshake revisions, ``server/discover`` in stateless ones."""

from __future__ import annotations

from typing import Any

from msgspec import field

from trunkline.types.base import CacheableResult, Implementation, RequestParams, Wire

__all__ = ["DiscoverResult", "InitializeRequestParams", "InitializeResult"]


class InitializeRequestParams(RequestParams, frozen=True, kw_only=True):
    """Who the client is, what it can do, and the revision it would like."""

    protocol_version: str
    capabilities: dict[str, Any]
    client_info: Implementation


class InitializeResult(Wire, frozen=True, kw_only=True):
    """Who the server is, what it can do, and the revision both will speak."""

    protocol_version: str
    capabilities: dict[str, Any]
    server_info: Implementation
    instructions: str | None = None
    meta: dict[str, Any] | None = field(name="_meta", default=None)


class DiscoverResult(CacheableResult, frozen=True, kw_only=True):
    """The revisions a server speaks and what it can do; who it is stands in ``_meta``."""

    supported_versions: list[str]
    capabilities: dict[str, Any]
    instructions: str | None = None

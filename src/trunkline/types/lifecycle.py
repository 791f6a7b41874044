"""Initialization: ``initialize`` in handshake revisions, ``server/discover`` in stateless ones."""

from __future__ import annotations

from typing import Any

from msgspec import field

from trunkline.types.base import CacheableResult, Implementation, RequestParams, Wire

__all__ = ["DiscoverResult", "InitializeRequestParams", "InitializeResult"]


class InitializeRequestParams(RequestParams, frozen=True, kw_only=True):
    """The client's name, its capabilities, and the revision it requests."""

    protocol_version: str
    capabilities: dict[str, Any]
    client_info: Implementation


class InitializeResult(Wire, frozen=True, kw_only=True):
    """The server's name, its capabilities, and the negotiated revision."""

    protocol_version: str
    capabilities: dict[str, Any]
    server_info: Implementation
    instructions: str | None = None
    meta: dict[str, Any] | None = field(name="_meta", default=None)


class DiscoverResult(CacheableResult, frozen=True, kw_only=True):
    """The revisions that a server speaks and its capabilities; its name is in ``_meta``."""

    supported_versions: list[str]
    capabilities: dict[str, Any]
    instructions: str | None = None

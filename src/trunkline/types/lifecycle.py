"""Initialization, discovery and capabilities.

``initialize`` in handshake revisions, ``server/discover`` in stateless ones. Capabilities are typed for building; on
the wire and in records they travel as plain JSON objects, kept as they came, since unknown members must stay
readable. An empty record such as ``RootsCapability()`` is the empty object, which declares the capability without its
options.
"""

from __future__ import annotations

from typing import Any

from msgspec import field

from trunkline.types.base import CacheableResult, Implementation, RequestParams, Wire

__all__ = [
    "ClientCapabilities",
    "DiscoverResult",
    "ElicitationCapability",
    "InitializeRequestParams",
    "InitializeResult",
    "PromptsCapability",
    "ResourcesCapability",
    "RootsCapability",
    "SamplingCapability",
    "ServerCapabilities",
    "ToolsCapability",
]


class RootsCapability(Wire, frozen=True, kw_only=True):
    """The client has roots; with ``list_changed`` it notifies when they change."""

    list_changed: bool | None = None


class SamplingCapability(Wire, frozen=True, kw_only=True):
    """The client has a model; ``context`` and ``tools`` declare that it accepts server context and tools."""

    context: dict[str, Any] | None = None
    tools: dict[str, Any] | None = None


class ElicitationCapability(Wire, frozen=True, kw_only=True):
    """The client can ask its user; an empty record means by forms."""

    form: dict[str, Any] | None = None
    url: dict[str, Any] | None = None


class ClientCapabilities(Wire, frozen=True, kw_only=True):
    """What a client offers to a server."""

    experimental: dict[str, Any] | None = None
    roots: RootsCapability | None = None
    sampling: SamplingCapability | None = None
    elicitation: ElicitationCapability | None = None
    tasks: dict[str, Any] | None = None
    extensions: dict[str, Any] | None = None


class PromptsCapability(Wire, frozen=True, kw_only=True):
    """The server has prompts; with ``list_changed`` it notifies when the list changes."""

    list_changed: bool | None = None


class ResourcesCapability(Wire, frozen=True, kw_only=True):
    """The server has resources; the flags declare notifications of changes of a resource and of the list."""

    subscribe: bool | None = None
    list_changed: bool | None = None


class ToolsCapability(Wire, frozen=True, kw_only=True):
    """The server has tools; with ``list_changed`` it notifies when the list changes."""

    list_changed: bool | None = None


class ServerCapabilities(Wire, frozen=True, kw_only=True):
    """What a server offers."""

    experimental: dict[str, Any] | None = None
    logging: dict[str, Any] | None = None
    completions: dict[str, Any] | None = None
    prompts: PromptsCapability | None = None
    resources: ResourcesCapability | None = None
    tools: ToolsCapability | None = None
    tasks: dict[str, Any] | None = None
    extensions: dict[str, Any] | None = None


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

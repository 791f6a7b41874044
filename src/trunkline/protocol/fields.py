"""Every field and content type that was added or removed between revisions, one row each.

A type or field without a row is as old as the first revision that can carry it. A row on a type applies to its
subclasses, unless they have a row of their own. The rows say what must not be written; reading accepts everything.
Capabilities have rows for the code that builds them, but what was declared is never removed from a message: the
specification leaves their set open.
"""

from __future__ import annotations

from functools import cache

from msgspec import Struct

import trunkline.types as t
from trunkline.protocol.revisions import (
    ALL_REVISIONS,
    HANDSHAKE,
    ONLY_2025_11,
    SINCE_2025_03,
    SINCE_2025_06,
    SINCE_2025_11,
    STATELESS,
    Revision,
    Span,
)

__all__ = [
    "CONTENT_TYPES",
    "FIELDS",
    "MULTIPLE_BLOCKS",
    "ContentTypeSpan",
    "FieldSpan",
    "hidden_fields",
    "lacks_content_type",
]


class FieldSpan(Struct, frozen=True):
    """The revisions that have a field."""

    type: type[Struct]
    attribute: str
    span: Span


class ContentTypeSpan(Struct, frozen=True):
    """The revisions that have a type of content block."""

    type: type[Struct]
    span: Span


#: The revisions in which one sampling message may hold several blocks.
MULTIPLE_BLOCKS = SINCE_2025_11

CONTENT_TYPES: tuple[ContentTypeSpan, ...] = (
    ContentTypeSpan(t.AudioContent, SINCE_2025_03),
    ContentTypeSpan(t.ResourceLink, SINCE_2025_06),
    ContentTypeSpan(t.ToolUseContent, SINCE_2025_11),
    ContentTypeSpan(t.ToolResultContent, SINCE_2025_11),
)

FIELDS: tuple[FieldSpan, ...] = (
    # Requests, results and notifications in general.
    FieldSpan(t.RequestMeta, "protocol_version", STATELESS),
    FieldSpan(t.RequestMeta, "client_info", STATELESS),
    FieldSpan(t.RequestMeta, "client_capabilities", STATELESS),
    FieldSpan(t.RequestMeta, "log_level", STATELESS),
    FieldSpan(t.Result, "result_type", STATELESS),
    FieldSpan(t.CacheableResult, "ttl_ms", STATELESS),
    FieldSpan(t.CacheableResult, "cache_scope", STATELESS),
    FieldSpan(t.ProgressNotificationParams, "message", SINCE_2025_03),
    # Implementations.
    FieldSpan(t.Implementation, "title", SINCE_2025_06),
    FieldSpan(t.Implementation, "description", SINCE_2025_11),
    FieldSpan(t.Implementation, "website_url", SINCE_2025_11),
    FieldSpan(t.Implementation, "icons", SINCE_2025_11),
    # Content.
    FieldSpan(t.Annotations, "last_modified", SINCE_2025_06),
    FieldSpan(t.TextContent, "meta", SINCE_2025_06),
    FieldSpan(t.ImageContent, "meta", SINCE_2025_06),
    FieldSpan(t.AudioContent, "meta", SINCE_2025_06),
    FieldSpan(t.EmbeddedResource, "meta", SINCE_2025_06),
    FieldSpan(t.ResourceContents, "meta", SINCE_2025_06),
    FieldSpan(t.ResourceLink, "icons", SINCE_2025_11),
    # Tools.
    FieldSpan(t.Tool, "annotations", SINCE_2025_03),
    FieldSpan(t.Tool, "title", SINCE_2025_06),
    FieldSpan(t.Tool, "output_schema", SINCE_2025_06),
    FieldSpan(t.Tool, "meta", SINCE_2025_06),
    FieldSpan(t.Tool, "icons", SINCE_2025_11),
    FieldSpan(t.Tool, "execution", ONLY_2025_11),
    FieldSpan(t.CallToolRequestParams, "task", ONLY_2025_11),
    FieldSpan(t.CallToolRequestParams, "input_responses", STATELESS),
    FieldSpan(t.CallToolRequestParams, "request_state", STATELESS),
    FieldSpan(t.CallToolResult, "structured_content", SINCE_2025_06),
    # Resources.
    FieldSpan(t.Resource, "title", SINCE_2025_06),
    FieldSpan(t.Resource, "meta", SINCE_2025_06),
    FieldSpan(t.Resource, "icons", SINCE_2025_11),
    FieldSpan(t.ResourceTemplate, "title", SINCE_2025_06),
    FieldSpan(t.ResourceTemplate, "meta", SINCE_2025_06),
    FieldSpan(t.ResourceTemplate, "icons", SINCE_2025_11),
    FieldSpan(t.ReadResourceRequestParams, "input_responses", STATELESS),
    FieldSpan(t.ReadResourceRequestParams, "request_state", STATELESS),
    # Prompts and completion.
    FieldSpan(t.Prompt, "title", SINCE_2025_06),
    FieldSpan(t.Prompt, "meta", SINCE_2025_06),
    FieldSpan(t.Prompt, "icons", SINCE_2025_11),
    FieldSpan(t.PromptArgument, "title", SINCE_2025_06),
    FieldSpan(t.GetPromptRequestParams, "input_responses", STATELESS),
    FieldSpan(t.GetPromptRequestParams, "request_state", STATELESS),
    FieldSpan(t.PromptReference, "title", SINCE_2025_06),
    FieldSpan(t.CompleteRequestParams, "context", SINCE_2025_06),
    # Requests of a server; inside a result a request has no `_meta`.
    FieldSpan(t.SamplingMessage, "meta", SINCE_2025_11),
    FieldSpan(t.CreateMessageRequestParams, "meta", HANDSHAKE),
    FieldSpan(t.CreateMessageRequestParams, "tools", SINCE_2025_11),
    FieldSpan(t.CreateMessageRequestParams, "tool_choice", SINCE_2025_11),
    FieldSpan(t.CreateMessageRequestParams, "task", ONLY_2025_11),
    FieldSpan(t.CreateMessageResult, "meta", ALL_REVISIONS),
    FieldSpan(t.ElicitRequestParams, "meta", HANDSHAKE),
    FieldSpan(t.ElicitRequestParams, "mode", SINCE_2025_11),
    FieldSpan(t.ElicitRequestParams, "url", SINCE_2025_11),
    FieldSpan(t.ElicitRequestParams, "elicitation_id", ONLY_2025_11),
    FieldSpan(t.ElicitRequestParams, "task", ONLY_2025_11),
    FieldSpan(t.ElicitResult, "meta", HANDSHAKE),
    FieldSpan(t.ListRootsResult, "meta", HANDSHAKE),
    FieldSpan(t.Root, "meta", SINCE_2025_06),
    # Capabilities.
    FieldSpan(t.ClientCapabilities, "elicitation", SINCE_2025_06),
    FieldSpan(t.ClientCapabilities, "tasks", ONLY_2025_11),
    FieldSpan(t.RootsCapability, "list_changed", HANDSHAKE),
    FieldSpan(t.SamplingCapability, "context", SINCE_2025_11),
    FieldSpan(t.SamplingCapability, "tools", SINCE_2025_11),
    FieldSpan(t.ElicitationCapability, "form", SINCE_2025_11),
    FieldSpan(t.ElicitationCapability, "url", SINCE_2025_11),
    FieldSpan(t.ServerCapabilities, "completions", SINCE_2025_03),
    FieldSpan(t.ServerCapabilities, "tasks", ONLY_2025_11),
)


@cache
def hidden_fields(kind: type, revision: Revision) -> frozenset[str]:
    """Return the attributes of a type that a revision does not have."""
    spans: dict[str, Span] = {}
    for ancestor in reversed(kind.__mro__):
        spans.update((row.attribute, row.span) for row in FIELDS if row.type is ancestor)
    return frozenset(attribute for attribute, span in spans.items() if not span.covers(revision))


@cache
def lacks_content_type(kind: type, revision: Revision) -> bool:
    """Return True if the type is a content block that a revision does not have."""
    return any(row.type is kind and not row.span.covers(revision) for row in CONTENT_TYPES)

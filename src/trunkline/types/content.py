"""What people and models read: content blocks, told apart by their ``type`` member, and the contents of resources."""

from __future__ import annotations

from typing import Any, TypeAlias

from msgspec import UNSET, field

from trunkline.types.base import Annotations, Icon, Wire

__all__ = [
    "AudioContent",
    "ContentBlock",
    "EmbeddedResource",
    "ImageContent",
    "ResourceContents",
    "ResourceLink",
    "SamplingMessageContentBlock",
    "TextContent",
    "ToolResultContent",
    "ToolUseContent",
]


class ResourceContents(Wire, frozen=True, kw_only=True):
    """What a resource holds: ``text``, or ``blob`` as base64 text."""

    uri: str
    mime_type: str | None = None
    text: str | None = None
    blob: str | None = None
    meta: dict[str, Any] | None = field(name="_meta", default=None)


class TextContent(Wire, frozen=True, kw_only=True, tag_field="type", tag="text"):
    """A block of text."""

    text: str
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = field(name="_meta", default=None)


class ImageContent(Wire, frozen=True, kw_only=True, tag_field="type", tag="image"):
    """A picture, as base64 text."""

    data: str
    mime_type: str
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = field(name="_meta", default=None)


class AudioContent(Wire, frozen=True, kw_only=True, tag_field="type", tag="audio"):
    """A sound, as base64 text."""

    data: str
    mime_type: str
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = field(name="_meta", default=None)


class ResourceLink(Wire, frozen=True, kw_only=True, tag_field="type", tag="resource_link"):
    """A resource that can be read, named but not included."""

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    icons: list[Icon] | None = None
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = field(name="_meta", default=None)


class EmbeddedResource(Wire, frozen=True, kw_only=True, tag_field="type", tag="resource"):
    """A resource with its contents."""

    resource: ResourceContents
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = field(name="_meta", default=None)


ContentBlock: TypeAlias = TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource


def _no_blocks() -> list[ContentBlock]:
    return []


class ToolUseContent(Wire, frozen=True, kw_only=True, tag_field="type", tag="tool_use"):
    """A model's wish, while sampling, to call a tool."""

    id: str
    name: str
    input: dict[str, Any]
    meta: dict[str, Any] | None = field(name="_meta", default=None)


class ToolResultContent(Wire, frozen=True, kw_only=True, tag_field="type", tag="tool_result"):
    """What the tool that a model wished to call has answered."""

    tool_use_id: str
    content: list[ContentBlock] = field(default_factory=_no_blocks)
    structured_content: Any = UNSET
    is_error: bool | None = None
    meta: dict[str, Any] | None = field(name="_meta", default=None)


SamplingMessageContentBlock: TypeAlias = TextContent | ImageContent | AudioContent | ToolUseContent | ToolResultContent

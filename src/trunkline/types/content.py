"""Content blocks, distinguished by their ``type`` member, and the contents of resources."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, TypeAlias

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
    """The contents of a resource: ``text``, or ``blob`` as base64."""

    uri: str
    mime_type: str | None = None
    text: str | None = None
    blob: str | None = None
    meta: dict[str, Any] | None = field(name="_meta", default=None)


class TextContent(Wire, frozen=True, kw_only=True, tag_field="type", tag="text"):
    """A block of text."""

    type: ClassVar[Literal["text"]] = "text"
    text: str
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = field(name="_meta", default=None)


class ImageContent(Wire, frozen=True, kw_only=True, tag_field="type", tag="image"):
    """An image, as base64."""

    type: ClassVar[Literal["image"]] = "image"
    data: str
    mime_type: str
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = field(name="_meta", default=None)


class AudioContent(Wire, frozen=True, kw_only=True, tag_field="type", tag="audio"):
    """Audio, as base64."""

    type: ClassVar[Literal["audio"]] = "audio"
    data: str
    mime_type: str
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = field(name="_meta", default=None)


class ResourceLink(Wire, frozen=True, kw_only=True, tag_field="type", tag="resource_link"):
    """A link to a resource, without its contents."""

    type: ClassVar[Literal["resource_link"]] = "resource_link"
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

    type: ClassVar[Literal["resource"]] = "resource"
    resource: ResourceContents
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = field(name="_meta", default=None)


ContentBlock: TypeAlias = TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource


def _no_blocks() -> list[ContentBlock]:
    return []


class ToolUseContent(Wire, frozen=True, kw_only=True, tag_field="type", tag="tool_use"):
    """A tool call requested by a model while sampling."""

    type: ClassVar[Literal["tool_use"]] = "tool_use"
    id: str
    name: str
    input: dict[str, Any]
    meta: dict[str, Any] | None = field(name="_meta", default=None)


class ToolResultContent(Wire, frozen=True, kw_only=True, tag_field="type", tag="tool_result"):
    """The result of a tool call that a model requested."""

    type: ClassVar[Literal["tool_result"]] = "tool_result"
    tool_use_id: str
    content: list[ContentBlock] = field(default_factory=_no_blocks)
    structured_content: Any = UNSET
    is_error: bool | None = None
    meta: dict[str, Any] | None = field(name="_meta", default=None)


SamplingMessageContentBlock: TypeAlias = TextContent | ImageContent | AudioContent | ToolUseContent | ToolResultContent

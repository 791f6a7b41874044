"""Formats content blocks as text; binary content is represented by its type and size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import trunkline.types as t
from trunkline.cli.output import one_line, size_text, wire_json

__all__ = ["block_text", "contents_bytes", "contents_text", "result_text"]


def block_text(block: Any) -> str:
    """Format one content block."""
    match block:
        case t.TextContent():
            return block.text
        case t.ImageContent() | t.AudioContent():
            kind = "image" if isinstance(block, t.ImageContent) else "audio"
            return f"[{kind}: {one_line(block.mime_type)}, {_blob_size(block.data)}]"
        case t.ResourceLink():
            return f"[link: {one_line(block.title or block.name)} <{one_line(block.uri)}>]"
        case t.EmbeddedResource():
            return contents_text(block.resource)
        case t.ToolUseContent():
            return f"[wants to call {one_line(block.name)} with {wire_json(block.input).decode()}]"
        case t.ToolResultContent():
            return "\n".join(block_text(each) for each in block.content)
        case _:
            return f"[{type(block).__name__}]"


def result_text(content: Sequence[Any], structured: Any) -> str:
    """Format the result of a tool: its content blocks or, if it has none, its structured content."""
    if not content and structured is not None:
        return wire_json(structured, indent=2).decode()
    return "\n".join(block_text(block) for block in content)


def contents_text(contents: t.ResourceContents) -> str:
    """Format the contents of a resource."""
    if contents.text is not None:
        return contents.text
    kind = one_line(contents.mime_type or "unknown type")
    return f"[binary: {one_line(contents.uri)}, {kind}, {_blob_size(contents.blob or '')}]"


def contents_bytes(contents: t.ResourceContents) -> bytes:
    """Return the raw contents of a resource.

    Raises:
        ValueError: the server sent invalid base64.
    """
    if contents.text is not None:
        return contents.text.encode("utf-8", "surrogatepass")
    from base64 import b64decode

    return b64decode(contents.blob or "", validate=True)


def _blob_size(data: str) -> str:
    return size_text(len(data) * 3 // 4 - data[-2:].count("="))

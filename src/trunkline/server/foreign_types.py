"""Values made of another package's protocol types, recognised by their shape and turned into ours.

The official SDK and FastMCP describe results, content, messages and icons with pydantic models of the same names and
members as the specification. A handler may return them, and options may hold them: without this they would be written
as JSON text, and a failure would read as a success. Nothing is imported: a class is known by its name and its members.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Struct

import trunkline.types as t

__all__ = ["FOREIGN_NAMES", "foreign_kind", "recognise"]

#: By the name of the class: our type, and the members that such a value has.
_KINDS: Mapping[str, tuple[type[Struct], tuple[str, ...]]] = MappingProxyType(
    {
        "CallToolResult": (t.CallToolResult, ("content",)),
        "TextContent": (t.TextContent, ("type", "text")),
        "ImageContent": (t.ImageContent, ("type", "data")),
        "AudioContent": (t.AudioContent, ("type", "data")),
        "EmbeddedResource": (t.EmbeddedResource, ("type", "resource")),
        "ResourceLink": (t.ResourceLink, ("type", "uri")),
        "TextResourceContents": (t.ResourceContents, ("uri", "text")),
        "BlobResourceContents": (t.ResourceContents, ("uri", "blob")),
        "ReadResourceResult": (t.ReadResourceResult, ("contents",)),
        "PromptMessage": (t.PromptMessage, ("role", "content")),
        "GetPromptResult": (t.GetPromptResult, ("messages",)),
        "SamplingMessage": (t.SamplingMessage, ("role", "content")),
        "Icon": (t.Icon, ("src",)),
        "Annotations": (t.Annotations, ("audience",)),
        "ToolAnnotations": (t.ToolAnnotations, ("title",)),
        "Completion": (t.Completion, ("values",)),
    }
)
FOREIGN_NAMES = frozenset(_KINDS)


def foreign_kind(kind: object) -> type[Struct] | None:
    """Return our type for a class of another package that has the name and members of one, or None."""
    if not isinstance(kind, type) or issubclass(kind, Struct) or not hasattr(kind, "model_dump"):
        return None
    fields = getattr(kind, "model_fields", {})
    for each in kind.__mro__:
        if each.__name__ in _KINDS:
            ours, members = _KINDS[each.__name__]
            return ours if all(name in fields for name in members) else None
    return None


def recognise(value: Any) -> Any:
    """Return a value of a foreign type as ours; anything else is returned as it is.

    A class may say itself what it becomes, with a method ``__protocol_result__``.

    Raises:
        TypeError: it has the name of such a type but not its members.
    """
    convert = getattr(type(value), "__protocol_result__", None)
    if convert is not None:
        return convert(value)
    ours = foreign_kind(type(value))
    if ours is None:
        return value
    plain = value.model_dump(mode="json", by_alias=True, exclude_none=True)
    if ours is t.CallToolResult and plain.get("isError") is False:
        del plain["isError"]
    try:
        return msgspec.convert(plain, ours)
    except msgspec.ValidationError as error:
        raise TypeError(f"{type(value).__name__}: {error}") from error

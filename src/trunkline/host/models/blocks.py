"""Helpers shared by all provider adapters: arguments and results as text, and media that a model cannot take.

Media from the user or from a server's request that the model cannot take is rejected, by name. In a tool result it
becomes a note instead, since a conversation must be able to go on after any result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from trunkline.host.models.interface import (
    AudioBlock,
    ImageBlock,
    Message,
    ModelError,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    Traits,
)

__all__ = [
    "AUDIO_FORMATS",
    "IMAGE_TYPES",
    "as_count",
    "as_object",
    "check_media",
    "encoded",
    "read_call",
    "result_blocks",
    "sent_arguments",
]

#: Image types that vision models accept.
IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
#: Audio types that audio models accept, and what the API calls them.
AUDIO_FORMATS: Mapping[str, str] = MappingProxyType(
    {
        "audio/wav": "wav",
        "audio/x-wav": "wav",
        "audio/wave": "wav",
        "audio/mpeg": "mp3",
        "audio/mp3": "mp3",
    }
)
# The maximum length of invalid arguments that is repeated to the model.
_MOST_RAW = 4096
#: Encodes any value as compact JSON.
encoded = msgspec.json.encode


def as_object(value: Any) -> Mapping[str, Any]:
    """Return a provider's value if it is an object, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def as_count(value: Any) -> int:
    """Return a provider's value if it is an integer, else 0."""
    return value if isinstance(value, int) else 0


def read_call(call_id: str, name: str, raw: str) -> ToolUseBlock:
    """Parse a tool call as the model wrote it; arguments that are no JSON object stay text, missing ones are empty."""
    if not raw.strip():
        return ToolUseBlock(call_id, name, {})
    try:
        arguments = msgspec.json.decode(raw)
    except msgspec.DecodeError:
        arguments = None
    if not isinstance(arguments, dict):
        return ToolUseBlock(call_id, name, None, raw)
    return ToolUseBlock(call_id, name, arguments)


def sent_arguments(block: ToolUseBlock) -> dict[str, Any]:
    """Return a call's arguments for the provider: always an object, even if the model wrote none.

    Servers of local models parse them for their templates, and fail on anything else.
    """
    if block.arguments is not None:
        return block.arguments
    return {"not_json": (block.raw or "")[:_MOST_RAW]}


def check_media(messages: tuple[Message, ...], *, name: str, traits: Traits) -> None:
    """Check that a model accepts the media in the messages; tool results are not checked.

    Raises:
        ModelError: it does not.
    """
    for message in messages:
        for block in message.content:
            why = _unfit(block, traits) if isinstance(block, ImageBlock | AudioBlock) else None
            if why is not None:
                fix = "choose a model that can, or leave it out"
                raise ModelError(f"{name} cannot take {why}: {fix}.", fault="refused")


def result_blocks(block: ToolResultBlock, traits: Traits) -> Iterator[TextBlock | ImageBlock | AudioBlock]:
    """Yield the content of a tool result as the model can take it."""
    for each in block.content:
        why = None if isinstance(each, TextBlock) else _unfit(each, traits)
        if why is None:
            yield each
        else:
            yield TextBlock(f"[The result has {why}, which cannot be shown to you.]")


def _unfit(block: ImageBlock | AudioBlock | TextBlock, traits: Traits) -> str | None:
    """Return what the block is, if the model cannot take it."""
    match block:
        case ImageBlock() if not traits.images:
            return "images"
        case ImageBlock() if block.mime_type.lower() not in IMAGE_TYPES:
            return f"an image of type {block.mime_type[:60]!r}"
        case AudioBlock() if not traits.audio:
            return "audio"
        case AudioBlock() if block.mime_type.lower() not in AUDIO_FORMATS:
            return f"audio of type {block.mime_type[:60]!r}"
        case _:
            return None

"""What the translations to all providers share: arguments and results as text, and what a model cannot be shown.

What the person or a server's question brings and the model cannot take is refused, by name. In the result of a tool it
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

#: What vision models take.
IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
#: What models that hear take, and what it is called there.
AUDIO_FORMATS: Mapping[str, str] = MappingProxyType(
    {
        "audio/wav": "wav",
        "audio/x-wav": "wav",
        "audio/wave": "wav",
        "audio/mpeg": "mp3",
        "audio/mp3": "mp3",
    }
)
# So much is repeated to a model of what it wrote instead of JSON.
_MOST_RAW = 4096
#: Writes any value as compact JSON.
encoded = msgspec.json.encode


def as_object(value: Any) -> Mapping[str, Any]:
    """Take an object of a provider's; whatever else is there is one without members."""
    return value if isinstance(value, Mapping) else {}


def as_count(value: Any) -> int:
    """Take a count of a provider's; whatever else is there is none."""
    return value if isinstance(value, int) else 0


def read_call(call_id: str, name: str, raw: str) -> ToolUseBlock:
    """Read a call as a model wrote it; arguments that are no JSON object stay text, none at all are an empty one."""
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
    """Give a call's arguments as the provider gets them again: an object, also where the model wrote none.

    Servers of local models parse them for their templates, and fail on anything else.
    """
    if block.arguments is not None:
        return block.arguments
    return {"not_json": (block.raw or "")[:_MOST_RAW]}


def check_media(messages: tuple[Message, ...], *, name: str, traits: Traits) -> None:
    """Make sure that a model can take what the messages bring; results of tools are not looked at.

    Raises:
        ModelError: it cannot.
    """
    for message in messages:
        for block in message.content:
            why = _unfit(block, traits) if isinstance(block, ImageBlock | AudioBlock) else None
            if why is not None:
                fix = "choose a model that can, or leave it out"
                raise ModelError(f"{name} cannot take {why}: {fix}.", fault="refused")


def result_blocks(block: ToolResultBlock, traits: Traits) -> Iterator[TextBlock | ImageBlock | AudioBlock]:
    """Give what came of a call as a model can take it."""
    for each in block.content:
        why = None if isinstance(each, TextBlock) else _unfit(each, traits)
        if why is None:
            yield each
        else:
            yield TextBlock(f"[The result has {why}, which cannot be shown to you.]")


def _unfit(block: ImageBlock | AudioBlock | TextBlock, traits: Traits) -> str | None:
    """Say what it is, if the model cannot take it."""
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

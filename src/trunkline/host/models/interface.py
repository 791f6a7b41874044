"""The interface between a host and a model: messages and tools in, a stream of events out.

The words are neutral, like MCP's; each adapter translates to and from its vendor's. A conversation is a tuple of
messages: a tool result is its own message, right after the message that called the tool. No I/O.

Helpers for all adapters are here too: arguments and results as text, and media that a model cannot take. Media from the
user or from a server's request that the model cannot take is rejected, by name. In a tool result it becomes a note
instead, since a conversation must be able to go on after any result.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Literal, Protocol, TypeAlias

import msgspec
from msgspec import Struct

from trunkline.errors import TrunklineError

__all__ = [
    "AUDIO_FORMATS",
    "IMAGE_TYPES",
    "AudioBlock",
    "Block",
    "Finished",
    "ImageBlock",
    "Model",
    "ModelError",
    "ModelEvent",
    "ModelFault",
    "ModelMessage",
    "ModelRequest",
    "StopReason",
    "TextBlock",
    "TextDelta",
    "ToolResultBlock",
    "ToolSpec",
    "ToolUseBegun",
    "ToolUseBlock",
    "Traits",
    "Usage",
    "as_count",
    "as_object",
    "check_media",
    "encode_json",
    "parse_tool_call",
    "result_blocks",
    "sent_arguments",
]

StopReason: TypeAlias = Literal["end", "tools", "length", "stop_sequence", "refusal"]
#: What went wrong with a model: who can fix it, and whether waiting helps.
ModelFault: TypeAlias = Literal["no key", "refused key", "rate limited", "down", "cut off", "too long", "refused"]


class ModelError(TrunklineError):
    """A model did not answer; the message is one sentence with the fix."""

    def __init__(
        self, message: str, *, fault: ModelFault, retry_after: float | None = None, transient: bool = False
    ) -> None:
        """Store what went wrong, and after how many seconds to retry, if the provider said so."""
        super().__init__(message)
        self.fault: ModelFault = fault
        self.retry_after = retry_after
        #: Whether the same request may succeed in a moment, with nothing changed.
        self.transient = transient


# --- messages --------------------------------------------------------------------------------------------------------


class TextBlock(Struct, frozen=True, tag="text"):
    """Text."""

    text: str


class ImageBlock(Struct, frozen=True, tag="image"):
    """An image, as base64."""

    data: str
    mime_type: str


class AudioBlock(Struct, frozen=True, tag="audio"):
    """Audio, as base64."""

    data: str
    mime_type: str


class ToolUseBlock(Struct, frozen=True, tag="tool_use"):
    """A tool call by the model; arguments that were not a JSON object are None, with the original text in ``raw``."""

    id: str
    name: str
    arguments: dict[str, Any] | None
    raw: str | None = None


class ToolResultBlock(Struct, frozen=True, tag="tool_result"):
    """The result of a tool call."""

    id: str
    content: tuple[TextBlock | ImageBlock | AudioBlock, ...]
    is_error: bool = False


Block: TypeAlias = TextBlock | ImageBlock | AudioBlock | ToolUseBlock | ToolResultBlock


class ModelMessage(Struct, frozen=True):
    """One message of a conversation; tool results come in a user message."""

    role: Literal["user", "assistant"]
    content: tuple[Block, ...]

    @property
    def text(self) -> str:
        """The text of the message, blocks joined."""
        return "".join(block.text for block in self.content if isinstance(block, TextBlock))

    @property
    def tool_uses(self) -> tuple[ToolUseBlock, ...]:
        """The tool calls in the message."""
        return tuple(block for block in self.content if isinstance(block, ToolUseBlock))


class ToolSpec(Struct, frozen=True):
    """A tool as offered to a model: its wire name and a schema that the provider accepts."""

    name: str
    description: str
    input_schema: dict[str, Any]


class ModelRequest(Struct, frozen=True, kw_only=True):
    """A request for one turn of a model."""

    messages: tuple[ModelMessage, ...]
    system: str | None = None
    tools: tuple[ToolSpec, ...] = ()
    max_tokens: int = 4096
    temperature: float | None = None
    stop_sequences: tuple[str, ...] = ()
    #: ``auto``, ``any`` (one must be called), ``none``, or the name of the one to call.
    tool_choice: str = "auto"


# --- answers ---------------------------------------------------------------------------------------------------------


class Usage(Struct, frozen=True):
    """The cost of a turn, in tokens."""

    input_tokens: int = 0
    output_tokens: int = 0
    #: Input tokens that were read from a cache.
    cached_tokens: int = 0
    #: Input tokens that were written to a cache.
    written_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            self.written_tokens + other.written_tokens,
        )


class TextDelta(Struct, frozen=True, tag="text_delta"):
    """More text."""

    text: str


class ToolUseBegun(Struct, frozen=True, tag="tool_use_begun"):
    """The model has started writing a tool call; for display only."""

    name: str


class Finished(Struct, frozen=True, tag="finished"):
    """The end of a turn: the whole message, why it ended, and its usage. Always the last event."""

    message: ModelMessage
    stop_reason: StopReason
    usage: Usage
    #: The model that answered, as the provider names it.
    model: str


ModelEvent: TypeAlias = TextDelta | ToolUseBegun | Finished


class Traits(Struct, frozen=True, kw_only=True):
    """What a model can do, as far as it is known."""

    tools: bool = True
    images: bool = False
    audio: bool = False
    window_tokens: int = 128_000
    #: US dollars per million tokens; None if unknown.
    input_price: float | None = None
    output_price: float | None = None
    #: For selection by a server's preferences, from 0 to 1.
    speed: float = 0.5
    intelligence: float = 0.5
    #: Which schemas it accepts: the name of a projection in ``host/chat``.
    schemas: str = "plain"
    #: The maximum number of tokens in one turn, including reasoning.
    output_tokens: int = 4096
    #: Whether it accepts a temperature; otherwise none is sent.
    temperature: bool = True
    #: US dollars per million input tokens that were read from a cache, or written to one; None: the same as others.
    cached_price: float | None = None
    written_price: float | None = None
    #: Input of more tokens than this makes the whole turn more expensive, by these factors; None if it does not.
    long_tokens: int | None = None
    long_input_factor: float = 1.0
    long_output_factor: float = 1.0

    def cost(self, usage: Usage) -> float | None:
        """Return the cost of one turn in US dollars; None if the prices are unknown."""
        if self.input_price is None or self.output_price is None:
            return None
        cached, written = usage.cached_tokens, usage.written_tokens
        plain = max(0, usage.input_tokens - cached - written)
        read_price = self.input_price if self.cached_price is None else self.cached_price
        write_price = self.input_price if self.written_price is None else self.written_price
        taken = plain * self.input_price + cached * read_price + written * write_price
        given = usage.output_tokens * self.output_price
        if self.long_tokens is not None and usage.input_tokens > self.long_tokens:
            taken, given = taken * self.long_input_factor, given * self.long_output_factor
        return (taken + given) / 1_000_000


class Model(Protocol):
    """A model that can be called."""

    @property
    def name(self) -> str:
        """``provider:model``."""

    @property
    def traits(self) -> Traits:
        """What the model can do."""

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Run a turn; closing the iterator stops it at the provider.

        Raises (while iterating):
            ModelError: there is no answer, or it is incomplete.
        """

    async def aclose(self) -> None:
        """Close the connections."""


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
encode_json = msgspec.json.encode


def as_object(value: Any) -> Mapping[str, Any]:
    """Return a provider's value if it is an object, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def as_count(value: Any) -> int:
    """Return a provider's value if it is an integer, else 0."""
    return value if isinstance(value, int) else 0


def parse_tool_call(call_id: str, name: str, raw: str) -> ToolUseBlock:
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


def check_media(messages: tuple[ModelMessage, ...], *, name: str, traits: Traits) -> None:
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

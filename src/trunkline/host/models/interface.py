"""What a host asks of a model, and what it gets: messages and tools in, a stream of events out.

Neutral words, as MCP has them; each adapter translates to and from its vendor's. A conversation is a tuple of messages:
what a tool answered is a message of its own, right after the message that called it. Nothing here does I/O.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import Struct

from trunkline.errors import TrunklineError

__all__ = [
    "AudioBlock",
    "Block",
    "Finished",
    "ImageBlock",
    "Message",
    "Model",
    "ModelError",
    "ModelEvent",
    "ModelFault",
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
]

StopReason: TypeAlias = Literal["end", "tools", "length", "stop_sequence", "refusal"]
#: What went wrong with a model: whose fix it is, and whether waiting helps.
ModelFault: TypeAlias = Literal["no key", "refused key", "rate limited", "down", "cut off", "too long", "refused"]


class ModelError(TrunklineError):
    """A model did not answer; the message is one sentence with the fix."""

    def __init__(
        self, message: str, *, fault: ModelFault, retry_after: float | None = None, passing: bool = False
    ) -> None:
        """Keep what went wrong, and after how many seconds another try makes sense, if the provider said so."""
        super().__init__(message)
        self.fault: ModelFault = fault
        self.retry_after = retry_after
        #: Whether the same request may well succeed in a moment, with nothing changed.
        self.passing = passing


# --- what is said ----------------------------------------------------------------------------------------------------


class TextBlock(Struct, frozen=True, tag="text"):
    """Text."""

    text: str


class ImageBlock(Struct, frozen=True, tag="image"):
    """An image, as base64."""

    data: str
    mime_type: str


class AudioBlock(Struct, frozen=True, tag="audio"):
    """Sound, as base64."""

    data: str
    mime_type: str


class ToolUseBlock(Struct, frozen=True, tag="tool_use"):
    """The model wants a tool called; arguments that were no JSON object are None, with what it wrote in ``raw``."""

    id: str
    name: str
    arguments: dict[str, Any] | None
    raw: str | None = None


class ToolResultBlock(Struct, frozen=True, tag="tool_result"):
    """What came of a call."""

    id: str
    content: tuple[TextBlock | ImageBlock | AudioBlock, ...]
    is_error: bool = False


Block: TypeAlias = TextBlock | ImageBlock | AudioBlock | ToolUseBlock | ToolResultBlock


class Message(Struct, frozen=True):
    """One message of a conversation; results of tools come in a message of the user's."""

    role: Literal["user", "assistant"]
    content: tuple[Block, ...]

    @property
    def text(self) -> str:
        """Its text, blocks joined."""
        return "".join(block.text for block in self.content if isinstance(block, TextBlock))

    @property
    def tool_uses(self) -> tuple[ToolUseBlock, ...]:
        """The calls it asks for."""
        return tuple(block for block in self.content if isinstance(block, ToolUseBlock))


class ToolSpec(Struct, frozen=True):
    """A tool as it is offered to a model: its wire name and a schema that the provider accepts."""

    name: str
    description: str
    input_schema: dict[str, Any]


class ModelRequest(Struct, frozen=True, kw_only=True):
    """One turn to be made by a model."""

    messages: tuple[Message, ...]
    system: str | None = None
    tools: tuple[ToolSpec, ...] = ()
    max_tokens: int = 4096
    temperature: float | None = None
    stop_sequences: tuple[str, ...] = ()
    #: ``auto``, ``any`` (one must be called), ``none``, or the name of the one to call.
    tool_choice: str = "auto"


# --- what comes back -------------------------------------------------------------------------------------------------


class Usage(Struct, frozen=True):
    """What a turn cost, in tokens."""

    input_tokens: int = 0
    output_tokens: int = 0
    #: Of the input, those that were read from a cache.
    cached_tokens: int = 0
    #: Of the input, those that were written to a cache.
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
    """The model begins to write a call; for show only."""

    name: str


class Finished(Struct, frozen=True, tag="finished"):
    """The turn is over: the whole message, why it ended, and what it cost. Always the last event."""

    message: Message
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
    #: US dollars for a million tokens; None if not known.
    input_price: float | None = None
    output_price: float | None = None
    #: For choosing by a server's preferences, from 0 to 1.
    speed: float = 0.5
    intelligence: float = 0.5
    #: Which schemas it accepts: the name of a projection in ``host/chat/projection.py``.
    schemas: str = "plain"
    #: The most it writes in one turn, what it thinks included.
    output_tokens: int = 4096
    #: Whether it takes a temperature; where it does not, none is sent.
    temperature: bool = True
    #: US dollars for a million tokens of input that were read from a cache, or written to one; None: as any other.
    cached_price: float | None = None
    written_price: float | None = None
    #: Input of more tokens than this makes the whole turn dearer, by these factors; None if it does not.
    long_tokens: int | None = None
    long_input_factor: float = 1.0
    long_output_factor: float = 1.0

    def cost(self, usage: Usage) -> float | None:
        """Say what one turn cost in US dollars; None if the prices are not known."""
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
    """A model that can be asked."""

    @property
    def name(self) -> str:
        """``provider:model``."""

    @property
    def traits(self) -> Traits:
        """What it can do."""

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Make a turn; closing the iterator stops it at the provider.

        Raises (while iterating):
            ModelError: there is no answer, or not all of it.
        """

    async def aclose(self) -> None:
        """Let its connections go."""

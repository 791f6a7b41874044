"""The events of a conversation, for a user interface to show, and the context usage.

The context usage is how much of the model's window each server's tools and results, and the messages, take. Texts in
events are words of a model or a server: a terminal must escape them before it shows them. Tokens are estimated from
text, in the same way for every provider; the provider's own count is the usage.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from trunkline.host.models.interface import ModelFault, Usage
from trunkline.host.upstreams.catalog.search import SearchMode

__all__ = [
    "CallFinished",
    "CallProgressed",
    "CallProposed",
    "CallStarted",
    "ChatEvent",
    "ChatLimits",
    "ChatNotice",
    "ChatOptions",
    "ContextUsage",
    "ServerUsage",
    "TextReceived",
    "TurnEndReason",
    "TurnEnded",
    "context_usage",
]


class ChatLimits(Struct, frozen=True, kw_only=True):
    """The limits of a conversation; reaching one ends the turn, and its last event says which."""

    #: Answers of the model to one message of the person.
    turns: int = 25
    #: Tokens of the whole conversation, in and out, as the provider counts them; None: unlimited.
    tokens: int | None = None
    #: US dollars for the whole conversation; it applies only if the model's prices are known.
    cost: float | None = None
    #: Seconds for one message of the person, not counting the time spent waiting for the person.
    seconds: float | None = None
    #: Concurrent calls at all servers together; each server's own ``concurrency`` applies too.
    calls_at_once: int = 16
    #: Calls that one answer of the model may ask for; further ones are not made.
    calls_in_a_turn: int = 64


class ChatOptions(Struct, frozen=True, kw_only=True):
    """The options of a conversation."""

    #: The person's own instructions to the model.
    system: str | None = None
    limits: ChatLimits = ChatLimits()
    #: Tokens of one answer of the model; None: the model's maximum, within reason.
    max_tokens: int | None = None
    temperature: float | None = None
    #: Tokens of a result above which it is spilled to a file; a tool may ask for another number below the ceiling.
    result_tokens: int = 10_000
    result_ceiling: int = 50_000
    #: Whether tools are searched instead of listed; ``auto``: above this share of the model's window.
    search: SearchMode = "auto"
    share: float = 0.10
    #: Bytes of each server's instructions that are sent to the model.
    instruction_bytes: int = 2048
    #: The share of the window at which old results are removed, and the share to get down to.
    full: float = 0.85
    relieved: float = 0.60
    #: Seconds for which large results are kept in files.
    spill_seconds: float = 24 * 3600.0


class ServerUsage(Struct, frozen=True, kw_only=True):
    """What one server takes of the context window, in tokens."""

    #: The server's name; ``trunkline`` for the host's own tools.
    server: str
    #: How many of its tools are offered.
    tools: int = 0
    #: The size of their definitions, sent with every request.
    tool_tokens: int = 0
    #: The size of its instructions, sent with every request.
    instruction_tokens: int = 0
    #: The size of its results, resources and prompts in the conversation.
    result_tokens: int = 0

    @property
    def tokens(self) -> int:
        """The sum of all parts."""
        return self.tool_tokens + self.instruction_tokens + self.result_tokens


class ContextUsage(Struct, frozen=True, kw_only=True):
    """What the next request sends to the model, by who takes the space."""

    #: The size of the model's context window.
    window_tokens: int
    #: The system prompt of the host and of the person.
    system_tokens: int = 0
    #: The messages of the person and the model.
    message_tokens: int = 0
    #: By server, the largest first.
    servers: tuple[ServerUsage, ...] = ()

    @property
    def tokens(self) -> int:
        """The total size of the request."""
        return self.system_tokens + self.message_tokens + sum(share.tokens for share in self.servers)

    @property
    def share(self) -> float:
        """The share of the window that is used."""
        return self.tokens / self.window_tokens if self.window_tokens else 1.0


def context_usage(
    *,
    window_tokens: int,
    system_tokens: int,
    message_tokens: int,
    tools: Mapping[str, int],
    counts: Mapping[str, int],
    instructions: Mapping[str, int],
    results: Mapping[str, int],
) -> ContextUsage:
    """Build the context usage from the parts of each server."""
    shares = [
        ServerUsage(
            server=server,
            tools=counts.get(server, 0),
            tool_tokens=tools.get(server, 0),
            instruction_tokens=instructions.get(server, 0),
            result_tokens=results.get(server, 0),
        )
        for server in dict.fromkeys([*tools, *instructions, *results])
    ]
    return ContextUsage(
        window_tokens=window_tokens,
        system_tokens=system_tokens,
        message_tokens=message_tokens,
        servers=tuple(sorted(shares, key=lambda share: (-share.tokens, share.server))),
    )


#: Why a turn ended. ``limit``: one of the conversation's limits; ``stuck``: the model repeated itself; ``model``: the
#: model failed, and the conversation continues with the next message.
TurnEndReason: TypeAlias = Literal["end", "length", "refusal", "limit", "stuck", "cancelled", "model"]


class TextReceived(Struct, frozen=True, tag="said"):
    """The model wrote more text."""

    text: str


class CallProposed(Struct, frozen=True, tag="proposed"):
    """The model asks for a tool call, which is not authorized yet.

    ``server`` is ``trunkline`` for the host's own tools; it is None, and ``tool`` is what the model wrote, if there is
    no such tool. ``arguments`` is None if the model did not write a JSON object.
    """

    call_id: str
    server: str | None
    tool: str
    arguments: dict[str, Any] | None


class CallStarted(Struct, frozen=True, tag="began"):
    """A call has its slot, and goes to authorization and then to its server."""

    call_id: str


class CallProgressed(Struct, frozen=True, tag="progressed"):
    """The server reported progress of a call."""

    call_id: str
    progress: float
    total: float | None = None
    message: str | None = None


class CallFinished(Struct, frozen=True, tag="ended"):
    """A call has ended; the preview is the beginning of what the model sees."""

    call_id: str
    preview: str
    is_error: bool = False
    #: The policy or the person denied it.
    denied: bool = False
    #: It was cancelled.
    cancelled: bool = False
    seconds: float = 0.0
    #: The file with the whole result, if it was too large for the model.
    spilled: str | None = None


class ChatNotice(Struct, frozen=True, tag="noticed"):
    """A notice for the person: tools that were added or removed, trimmed context, a limit; one sentence."""

    text: str


class TurnEnded(Struct, frozen=True, tag="turn_over"):
    """The turn has ended; always the last event."""

    reason: TurnEndReason
    #: The usage of this turn, in tokens as the provider counts them.
    usage: Usage
    #: The cost of this turn in US dollars; None if the model's prices are not known.
    cost: float | None
    context_usage: ContextUsage
    #: An explanation, if the reason is not ``end``; one sentence.
    detail: str | None = None
    #: The kind of model failure, for the reason ``model``.
    fault: ModelFault | None = None


ChatEvent: TypeAlias = (
    TextReceived | CallProposed | CallStarted | CallProgressed | CallFinished | ChatNotice | TurnEnded
)

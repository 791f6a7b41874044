"""What happens in a conversation, as the events that a face shows.

Texts in them are a model's or a server's words: a terminal makes them inert before it shows them.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import Struct

from trunkline.host.chat.account import Account
from trunkline.host.models.interface import ModelFault, Usage

__all__ = [
    "Began",
    "ChatEvent",
    "Ended",
    "Noticed",
    "Progressed",
    "Proposed",
    "Said",
    "TurnOver",
    "TurnReason",
]

#: Why it is the person's turn again. ``limit``: one of the conversation's limits; ``stuck``: the model repeated
#: itself; ``model``: the model failed, and the same conversation goes on with the next message.
TurnReason: TypeAlias = Literal["end", "length", "refusal", "limit", "stuck", "cancelled", "model"]


class Said(Struct, frozen=True, tag="said"):
    """The model said something more."""

    text: str


class Proposed(Struct, frozen=True, tag="proposed"):
    """The model wants a tool called; nothing was judged yet.

    ``server`` is ``trunkline`` for the host's own tools; it is None, and ``tool`` what the model wrote, if there is no
    such tool. ``arguments`` is None if the model wrote no JSON object.
    """

    call_id: str
    server: str | None
    tool: str
    arguments: dict[str, Any] | None


class Began(Struct, frozen=True, tag="began"):
    """A call has its place, and goes to the judgement of policy and person, and then to its server."""

    call_id: str


class Progressed(Struct, frozen=True, tag="progressed"):
    """The server said how far a call is."""

    call_id: str
    progress: float
    total: float | None = None
    message: str | None = None


class Ended(Struct, frozen=True, tag="ended"):
    """A call is over; the preview is the beginning of what the model gets to see."""

    call_id: str
    preview: str
    is_error: bool = False
    #: Policy or person said no.
    denied: bool = False
    #: It was called off.
    cancelled: bool = False
    seconds: float = 0.0
    #: The file that has the whole result, if it was too large to be shown to the model.
    spilled: str | None = None


class Noticed(Struct, frozen=True, tag="noticed"):
    """Something the person should know: tools that came or went, context that was trimmed, a limit; one sentence."""

    text: str


class TurnOver(Struct, frozen=True, tag="turn_over"):
    """It is the person's turn; always the last event of what was said."""

    reason: TurnReason
    #: What this turn took, in tokens as the provider counts them.
    usage: Usage
    #: What it cost in US dollars; None if the model's prices are not known.
    cost: float | None
    account: Account
    #: What to know or to do, if the reason is not ``end``; one sentence.
    detail: str | None = None
    #: What failed at the model, for the reason ``model``.
    fault: ModelFault | None = None


ChatEvent: TypeAlias = Said | Proposed | Began | Progressed | Ended | Noticed | TurnOver

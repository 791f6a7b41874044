"""The events of a conversation, for a user interface to show.

Texts in them come from a model or a server: a terminal must escape them before it shows them.
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

#: Why a turn ended. ``limit``: one of the conversation's limits; ``stuck``: the model repeated itself; ``model``: the
#: model failed, and the conversation continues with the next message.
TurnReason: TypeAlias = Literal["end", "length", "refusal", "limit", "stuck", "cancelled", "model"]


class Said(Struct, frozen=True, tag="said"):
    """The model wrote more text."""

    text: str


class Proposed(Struct, frozen=True, tag="proposed"):
    """The model asks for a tool call, which is not authorized yet.

    ``server`` is ``trunkline`` for the host's own tools; it is None, and ``tool`` is what the model wrote, if there is
    no such tool. ``arguments`` is None if the model did not write a JSON object.
    """

    call_id: str
    server: str | None
    tool: str
    arguments: dict[str, Any] | None


class Began(Struct, frozen=True, tag="began"):
    """A call has its slot, and goes to authorization and then to its server."""

    call_id: str


class Progressed(Struct, frozen=True, tag="progressed"):
    """The server reported progress of a call."""

    call_id: str
    progress: float
    total: float | None = None
    message: str | None = None


class Ended(Struct, frozen=True, tag="ended"):
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


class Noticed(Struct, frozen=True, tag="noticed"):
    """A notice for the person: tools that were added or removed, trimmed context, a limit; one sentence."""

    text: str


class TurnOver(Struct, frozen=True, tag="turn_over"):
    """The turn has ended; always the last event."""

    reason: TurnReason
    #: The usage of this turn, in tokens as the provider counts them.
    usage: Usage
    #: The cost of this turn in US dollars; None if the model's prices are not known.
    cost: float | None
    account: Account
    #: An explanation, if the reason is not ``end``; one sentence.
    detail: str | None = None
    #: The kind of model failure, for the reason ``model``.
    fault: ModelFault | None = None


ChatEvent: TypeAlias = Said | Proposed | Began | Progressed | Ended | Noticed | TurnOver

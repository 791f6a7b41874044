"""The limits and options of a conversation."""

from __future__ import annotations

from msgspec import Struct

from trunkline.host.catalog.search import Mode

__all__ = ["ChatLimits", "ChatOptions"]


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
    search: Mode = "auto"
    share: float = 0.10
    #: Bytes of each server's instructions that are sent to the model.
    instruction_bytes: int = 2048
    #: The share of the window at which old results are removed, and the share to get down to.
    full: float = 0.85
    relieved: float = 0.60
    #: Seconds for which large results are kept in files.
    spill_seconds: float = 24 * 3600.0

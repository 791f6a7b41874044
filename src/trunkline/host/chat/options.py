"""What a conversation may take, and how it is held: the numbers that whoever begins one can set."""

from __future__ import annotations

from msgspec import Struct

from trunkline.host.catalog.search import Mode

__all__ = ["ChatLimits", "ChatOptions"]


class ChatLimits(Struct, frozen=True, kw_only=True):
    """What a conversation may take; whatever reaches a limit ends the turn with a sentence that says which."""

    #: Answers of the model to one message of the person's.
    turns: int = 25
    #: Tokens of the whole conversation, in and out, as the provider counts them; None: any number.
    tokens: int | None = None
    #: US dollars for the whole conversation; it holds where the model's prices are known.
    cost: float | None = None
    #: Seconds for one message of the person's, without those in which a person was waited for.
    seconds: float | None = None
    #: Calls at once, at all servers together; each server's own ``concurrency`` holds too.
    calls_at_once: int = 16
    #: Calls that one answer of the model may ask for; those beyond are not made.
    calls_in_a_turn: int = 64


class ChatOptions(Struct, frozen=True, kw_only=True):
    """How a conversation is held."""

    #: The person's own instructions to the model.
    system: str | None = None
    limits: ChatLimits = ChatLimits()
    #: Tokens of one answer of the model; None: what the model can write, within reason.
    max_tokens: int | None = None
    temperature: float | None = None
    #: Tokens of a result beyond which it goes to a file; a tool may ask for another number under the ceiling.
    result_tokens: int = 10_000
    result_ceiling: int = 50_000
    #: Whether tools are searched instead of shown: by themselves, above a share of the model's window.
    search: Mode = "auto"
    share: float = 0.10
    #: What servers say of how to use them goes to the model, so many bytes of each.
    instruction_bytes: int = 2048
    #: The share of the window at which old results are taken out, and the share they are taken out down to.
    full: float = 0.85
    relieved: float = 0.60
    #: Seconds for which large results are kept in files.
    spill_seconds: float = 24 * 3600.0

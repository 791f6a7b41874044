"""A turn for programs: one message, and the outcome as one object."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from trunkline.host.chat.conversation import Attachment, Conversation, Parties
from trunkline.host.chat.events import ChatEvent, Ended, Noticed, Proposed, Said, TurnOver, TurnReason
from trunkline.host.chat.options import ChatOptions
from trunkline.host.core import HostCore
from trunkline.host.models.interface import Model, ModelError, ModelFault, Usage

__all__ = ["CallOutcome", "CallRecord", "ChatReply", "ask", "chat"]

CallOutcome: TypeAlias = Literal["ok", "error", "denied", "cancelled"]


class CallRecord(Struct, frozen=True, kw_only=True):
    """A call that the model made."""

    #: None if there was no such tool.
    server: str | None
    tool: str
    arguments: dict[str, Any] | None
    outcome: CallOutcome
    seconds: float
    #: The beginning of its result.
    preview: str


class ChatReply(Struct, frozen=True, kw_only=True):
    """The outcome of a message."""

    #: The last text of the model, after its calls.
    text: str
    stop: TurnReason
    #: An explanation, if the model did not stop by itself.
    detail: str | None
    fault: ModelFault | None
    calls: tuple[CallRecord, ...]
    usage: Usage
    cost: float | None
    model: str
    #: Notices of the turn, a sentence each.
    notices: tuple[str, ...] = ()

    def whole(self) -> ChatReply:
        """Return this reply, or raise if the model failed.

        Raises:
            ModelError: there is no answer, or only part of it.
        """
        if self.fault is not None:
            raise ModelError(self.detail or "The model failed.", fault=self.fault)
        return self


async def ask(
    conversation: Conversation,
    text: str,
    *,
    attachments: Sequence[Attachment] = (),
    tell: Callable[[ChatEvent], Awaitable[None]] | None = None,
) -> ChatReply:
    """Send a message and wait for the outcome; ``tell`` is called with the events meanwhile."""
    heard = _Heard()
    async with aclosing(conversation.say(text, attachments=attachments)) as events:
        async for event in events:
            heard.hear(event)
            if tell is not None:
                await tell(event)
    over = heard.over
    assert over is not None
    return ChatReply(
        text="".join(heard.said),
        stop=over.reason,
        detail=over.detail,
        fault=over.fault,
        calls=tuple(heard.calls),
        usage=over.usage,
        cost=over.cost,
        model=conversation.model.name,
        notices=tuple(heard.notices),
    )


async def chat(
    core: HostCore,
    prompt: str,
    parties: Parties,
    *,
    model: Model | str | None = None,
    options: ChatOptions | None = None,
    attachments: Sequence[Attachment] = (),
) -> ChatReply:
    """Run a conversation of one message; a model given by name is opened for it and closed again.

    Raises:
        ModelError: there is no answer, or only part of it.
        ConfigError: no model was chosen, or it is not known.
        TrunklineError: something cannot be attached.
    """
    if model is not None and not isinstance(model, str):
        return (await ask(Conversation(core, model, parties, options=options), prompt, attachments=attachments)).whole()
    from trunkline.host.models.choosing import open_model

    opened = open_model(model)
    try:
        conversation = Conversation(core, opened, parties, options=options)
        return (await ask(conversation, prompt, attachments=attachments)).whole()
    finally:
        await opened.aclose()


class _Heard:
    """Collects the events of a turn for a reply."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.calls: list[CallRecord] = []
        self.notices: list[str] = []
        self.over: TurnOver | None = None
        self._proposed: dict[str, Proposed] = {}
        self._called = False

    def hear(self, event: ChatEvent) -> None:
        """Add an event."""
        if isinstance(event, Said):
            if self._called:
                # Text before calls is not part of the reply if more text follows them.
                self.said, self._called = [], False
            self.said.append(event.text)
        elif isinstance(event, Proposed):
            self._proposed[event.call_id], self._called = event, True
        elif isinstance(event, Ended):
            self.calls.append(_record(self._proposed[event.call_id], event))
        elif isinstance(event, Noticed):
            self.notices.append(event.text)
        elif isinstance(event, TurnOver):
            self.over = event


def _record(proposed: Proposed, ended: Ended) -> CallRecord:
    outcome: CallOutcome = "error" if ended.is_error else "ok"
    if ended.denied:
        outcome = "denied"
    elif ended.cancelled:
        outcome = "cancelled"
    return CallRecord(
        server=proposed.server,
        tool=proposed.tool,
        arguments=proposed.arguments,
        outcome=outcome,
        seconds=ended.seconds,
        preview=ended.preview,
    )

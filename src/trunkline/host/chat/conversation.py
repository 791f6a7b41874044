"""A conversation of a person with a model that uses the servers of a host.

The model is offered tools, and its calls go through policy, approval and audit. A resource is added when the person
or the program attaches it, a prompt when they pick it. A turn can be cancelled at any moment, by cancel, by leaving
the loop or by cancelling the task: the conversation continues with the next message. For programs, ask sends one
message and returns the outcome as one object.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Literal, TypeAlias

from msgspec import Struct

import trunkline.types as t
from trunkline.errors import InvalidParams
from trunkline.host.authorization.approval import Prompter
from trunkline.host.authorization.policy.policy import Policy
from trunkline.host.chat.events import (
    CallFinished,
    CallProposed,
    ChatEvent,
    ChatNotice,
    ChatOptions,
    ContextUsage,
    TextReceived,
    TurnEnded,
    TurnEndReason,
)
from trunkline.host.chat.history import History, SavedConversation, save_conversation
from trunkline.host.chat.prompt_builder import PromptBuilder
from trunkline.host.chat.rendering import Rendered, RenderedBlock
from trunkline.host.chat.spill import Spill
from trunkline.host.chat.tool_calls import ResultCallback, ToolCaller
from trunkline.host.chat.toolbox import HOST_SERVER
from trunkline.host.chat.turn import ChatTurn
from trunkline.host.core import HostCore
from trunkline.host.models.interface import (
    AudioBlock,
    ImageBlock,
    Model,
    ModelError,
    ModelFault,
    ModelMessage,
    TextBlock,
    Usage,
)
from trunkline.host.server_requests.handlers import ServerRequestHandler
from trunkline.host.session import HostSession
from trunkline.host.upstreams.catalog.names import item_id

__all__ = ["Attachment", "CallOutcome", "CallRecord", "ChatParticipants", "ChatReply", "Conversation", "ask", "chat"]

#: An attachment of a message: a resource by its server and URI, or a content block.
Attachment: TypeAlias = tuple[str, str] | TextBlock | ImageBlock | AudioBlock

_CONTINUE = "Go on."


class ChatParticipants(Struct, frozen=True, kw_only=True):
    """The participants besides the model: the session, its policy, and who is asked."""

    session: HostSession
    policy: Policy
    #: Answers requests of servers.
    request_handler: ServerRequestHandler
    #: Asks a person for approval; None if there is no one to ask.
    prompter: Prompter | None = None
    #: The user picked the attachments and prompts, so default rules require no further approval for them.
    typed: bool = False
    #: Called with the raw result of each call.
    on_result: ResultCallback | None = None


class Conversation:
    """A conversation with a model; one turn at a time."""

    def __init__(
        self,
        core: HostCore,
        model: Model,
        parties: ChatParticipants,
        *,
        options: ChatOptions | None = None,
        saved: SavedConversation | None = None,
    ) -> None:
        """Start a conversation, or continue a saved one; no request is sent yet. The caller closes the model."""
        options = options or ChatOptions()
        name = parties.session.id if saved is None else saved.outputs
        spill = Spill(core.folder / "spill", name, seconds=options.spill_seconds)
        history = History(() if saved is None else saved.messages)
        self._core = core
        self._prompt = PromptBuilder(
            core,
            model,
            session=parties.session,
            policy=parties.policy,
            options=options,
            history=history,
            spill=spill,
        )
        if saved is not None:
            history.left_out = saved.left_out
            self._prompt.usage, self._prompt.cost = saved.usage, saved.cost
            self._prompt.spilled_ids.update(saved.kept_as)
            self._restore_taint(parties.session)
        self._caller = ToolCaller(
            core,
            session=parties.session,
            policy=parties.policy,
            request_handler=parties.request_handler,
            prompter=parties.prompter,
            spill=spill,
            options=options,
            typed=parties.typed,
            on_result=parties.on_result,
        )
        self._attached: list[tuple[str | None, RenderedBlock]] = []
        self._turn: ChatTurn | None = None

    def _restore_taint(self, session: HostSession) -> None:
        """Taint the session with the servers in the saved history: a new session does not make their text harmless."""
        upstreams = self._core.supervisor.upstreams
        for server in self._prompt.history.shares()[1]:
            upstream = upstreams.get(server)
            if server != HOST_SERVER and (upstream is None or not upstream.entry.settings.trusted):
                session.taint.add_source(server, server, trusted=False)

    # --- state -------------------------------------------------------------------------------------------------------

    @property
    def messages(self) -> tuple[ModelMessage, ...]:
        """All messages, oldest first."""
        return self._prompt.history.messages

    @property
    def usage(self) -> Usage:
        """The total usage, in tokens as the provider counts them."""
        return self._prompt.usage

    @property
    def cost(self) -> float | None:
        """The total cost in US dollars; None if the model's prices are not known."""
        return self._prompt.cost

    @property
    def model(self) -> Model:
        """The model."""
        return self._prompt.model

    @model.setter
    def model(self, model: Model) -> None:
        self._prompt.model = model

    @property
    def skipped(self) -> Mapping[str, str]:
        """The tools that are not offered to the model, with the reasons, by the tool's id."""
        self._prompt.refresh()
        return self._prompt.toolbox.skipped

    def context_usage(self) -> ContextUsage:
        """Return how much of the model's window is used, by server."""
        if not len(self._prompt.history):
            self._prompt.refresh()
        return self._prompt.context_usage()

    # --- turns -------------------------------------------------------------------------------------------------------

    async def say(self, text: str = "", *, attachments: Sequence[Attachment] = ()) -> AsyncGenerator[ChatEvent, None]:
        """Send a message, and yield the events of the turn; the last one is ``TurnEnded``.

        Earlier attachments are sent with it. Without a text the model continues from where it is. A turn that is still
        running is cancelled first.

        Raises:
            TrunklineError: something cannot be attached; no message was sent then.
        """
        await self._stop()
        for each in attachments:
            await self._attach(each)
        await self._prompt.list_skills()
        turn = self._turn = ChatTurn(self._prompt, self._caller)
        self._add(text, turn)
        turn.begin()
        try:
            async for event in turn.events():
                yield event
        finally:
            await turn.stop()
            if self._turn is turn:
                self._turn = None

    def cancel(self) -> None:
        """Cancel the running turn, if any: its calls are cancelled, and its last event says so."""
        if self._turn is not None:
            self._turn.cancel()

    def clear(self) -> None:
        """Delete the messages and the spilled outputs; usage and cost stay.

        Raises:
            RuntimeError: a turn is running.
        """
        if self._turn is not None:
            raise RuntimeError("a turn is running: cancel it first")
        self._prompt.history.clear()
        self._caller.skills.clear()
        self._prompt.spill.clear()
        self._prompt.spilled_ids.clear()
        self._attached.clear()

    async def _stop(self) -> None:
        turn, self._turn = self._turn, None
        if turn is not None:
            await turn.stop()

    def _add(self, text: str, turn: ChatTurn) -> None:
        """Add the person's message to the history, after notes of the host and attachments."""
        history = self._prompt.history
        notices, for_model = self._prompt.refresh()
        for notice in notices:
            turn.tell(ChatNotice(notice))
        blocks: list[tuple[str | None, RenderedBlock]] = []
        if for_model is not None:
            blocks.append((None, TextBlock(f"[Note from the host: {for_model}]")))
        blocks += self._attached
        self._attached = []
        messages = history.messages
        if text.strip():
            blocks.append((None, TextBlock(text)))
        elif not messages or messages[-1].role == "assistant":
            # If the last message is the model's own, it would be taken for the beginning of its answer.
            blocks.append((None, TextBlock(_CONTINUE)))
        if blocks:
            history.add(
                ModelMessage("user", tuple(block for _, block in blocks)), servers=[server for server, _ in blocks]
            )

    # --- attachments and prompts -------------------------------------------------------------------------------------

    async def attach_resource(self, server: str, uri: str) -> Rendered:
        """Read a resource and attach it to the next message; return what the model will see of it.

        Raises:
            PolicyDenied: the policy or the person denied it.
            TrunklineError: it cannot be read.
        """
        found = self._core.catalog.find_resource(item_id(server, uri))
        if found is None or found[0] != server:
            raise InvalidParams(f"{server} has no resource {uri!r}")
        owner, own, item = found
        requester = self._caller.requester(caller="user")
        result = await self._core.read_resource(owner, own, item, requester)
        limit = self._prompt.options.result_ceiling
        rendered = self._prompt.renderer.resource(result.contents, limit=limit)
        head = TextBlock(f"[The user attached this resource of the server {owner}: {own}]")
        self._attached += [(owner, head), *((owner, block) for block in rendered.content)]
        return rendered

    async def use_prompt(self, server: str, name: str, arguments: Mapping[str, str] | None = None) -> str:
        """Add a prompt that the person picked to the conversation; ``say`` then has the model answer it.

        Returns the prompt's description, or an empty string.

        Raises:
            PolicyDenied: the policy or the person denied it.
            TrunklineError: there is no such prompt, or it cannot be rendered.
        """
        item = self._core.catalog.prompts.get(item_id(server, name))
        if item is None:
            raise InvalidParams(f"{server} has no prompt {name!r}")
        await self._stop()
        result = await self._core.get_prompt(item, dict(arguments or {}), self._caller.requester(caller="user"))
        history = self._prompt.history
        if result.messages and result.messages[0].role == "assistant" and not len(history):
            history.say(f"[The user picked the prompt {name} of the server {server}.]")
        for message in result.messages:
            self._add_prompted(message, server)
        return result.description or ""

    def _add_prompted(self, message: t.PromptMessage, server: str) -> None:
        rendered = self._prompt.renderer.block(message.content, limit=self._prompt.options.result_ceiling)
        # Providers accept only text in messages of the model.
        plain = all(isinstance(block, TextBlock) for block in rendered.content)
        role = message.role if plain else "user"
        self._prompt.history.add(ModelMessage(role, rendered.content), servers=[server] * len(rendered.content))

    async def _attach(self, attachment: Attachment) -> None:
        if isinstance(attachment, tuple):
            await self.attach_resource(*attachment)
        else:
            self._attached.append((None, attachment))

    # --- saving ------------------------------------------------------------------------------------------------------

    def snapshot(self) -> SavedConversation:
        """Return what is needed to continue the conversation later."""
        prompt = self._prompt
        return SavedConversation(
            model=prompt.model.name,
            outputs=prompt.spill.name,
            messages=prompt.history.entries,
            usage=prompt.usage,
            cost=prompt.cost,
            left_out=prompt.history.left_out,
            kept_as=dict(prompt.spilled_ids),
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the conversation to a file that only its owner can read; ``load_conversation`` loads it."""
        save_conversation(self.snapshot(), path)

    async def aclose(self) -> None:
        """Cancel the running turn; outputs in files stay until they expire."""
        await self._stop()


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
    stop: TurnEndReason
    #: An explanation, if the model did not stop by itself.
    detail: str | None
    fault: ModelFault | None
    calls: tuple[CallRecord, ...]
    usage: Usage
    cost: float | None
    model: str
    #: Notices of the turn, a sentence each.
    notices: tuple[str, ...] = ()

    def raise_for_fault(self) -> ChatReply:
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
    collector = _ReplyCollector()
    async with aclosing(conversation.say(text, attachments=attachments)) as events:
        async for event in events:
            collector.add(event)
            if tell is not None:
                await tell(event)
    over = collector.over
    assert over is not None
    return ChatReply(
        text="".join(collector.texts),
        stop=over.reason,
        detail=over.detail,
        fault=over.fault,
        calls=tuple(collector.calls),
        usage=over.usage,
        cost=over.cost,
        model=conversation.model.name,
        notices=tuple(collector.notices),
    )


async def chat(
    core: HostCore,
    prompt: str,
    parties: ChatParticipants,
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
        return (
            await ask(Conversation(core, model, parties, options=options), prompt, attachments=attachments)
        ).raise_for_fault()
    from trunkline.host.models.selection import open_model

    opened = open_model(model)
    try:
        conversation = Conversation(core, opened, parties, options=options)
        return (await ask(conversation, prompt, attachments=attachments)).raise_for_fault()
    finally:
        await opened.aclose()


class _ReplyCollector:
    """Collects the events of a turn for a reply."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.calls: list[CallRecord] = []
        self.notices: list[str] = []
        self.over: TurnEnded | None = None
        self._proposed: dict[str, CallProposed] = {}
        self._called = False

    def add(self, event: ChatEvent) -> None:
        """Add an event."""
        if isinstance(event, TextReceived):
            if self._called:
                # Text before calls is not part of the reply if more text follows them.
                self.texts, self._called = [], False
            self.texts.append(event.text)
        elif isinstance(event, CallProposed):
            self._proposed[event.call_id], self._called = event, True
        elif isinstance(event, CallFinished):
            self.calls.append(_record(self._proposed[event.call_id], event))
        elif isinstance(event, ChatNotice):
            self.notices.append(event.text)
        elif isinstance(event, TurnEnded):
            self.over = event


def _record(proposed: CallProposed, ended: CallFinished) -> CallRecord:
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

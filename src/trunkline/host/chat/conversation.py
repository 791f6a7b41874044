"""A conversation of a person with a model that uses the servers of a host.

::

    async for event in conversation.say("What is in the report?"):
        ...

The model is offered tools, and its calls go through policy, approval and audit. A resource is added when the person or
the program attaches it, a prompt when they pick it. A turn can be cancelled at any moment, by ``cancel``, by leaving
the loop or by cancelling the task: the conversation continues with the next message.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

import trunkline.types as t
from trunkline.errors import InvalidParams
from trunkline.host.catalog.names import id_of
from trunkline.host.chat.account import Account
from trunkline.host.chat.calls import Calling
from trunkline.host.chat.events import ChatEvent, Noticed
from trunkline.host.chat.history import History
from trunkline.host.chat.options import ChatOptions
from trunkline.host.chat.outputs import Rendered, Shown
from trunkline.host.chat.own_tools import HOST
from trunkline.host.chat.saving import Saved, write_saved
from trunkline.host.chat.spill import Spill
from trunkline.host.chat.talk import Talk
from trunkline.host.chat.turn import Turn
from trunkline.host.core import HostCore
from trunkline.host.desks import Desk
from trunkline.host.judgement.consent import Face
from trunkline.host.models.interface import AudioBlock, ImageBlock, Message, Model, TextBlock, Usage
from trunkline.host.policy.policy import Policy
from trunkline.host.session import HostSession

__all__ = ["Attachment", "Conversation", "Parties"]

#: An attachment of a message: a resource by its server and URI, or a content block.
Attachment: TypeAlias = tuple[str, str] | TextBlock | ImageBlock | AudioBlock

_GO_ON = "Go on."


class Parties(Struct, frozen=True, kw_only=True):
    """The participants besides the model: the session, its policy, and who is asked."""

    session: HostSession
    policy: Policy
    #: Answers requests of servers.
    desk: Desk
    #: Asks a person for approval; None if there is no one to ask.
    face: Face | None = None


class Conversation:
    """A conversation with a model; one turn at a time."""

    def __init__(
        self,
        core: HostCore,
        model: Model,
        parties: Parties,
        *,
        options: ChatOptions | None = None,
        saved: Saved | None = None,
    ) -> None:
        """Start a conversation, or continue a saved one; no request is sent yet. The caller closes the model."""
        options = options or ChatOptions()
        name = parties.session.id if saved is None else saved.outputs
        spill = Spill(core.folder / "spill", name, seconds=options.spill_seconds)
        history = History(() if saved is None else saved.messages)
        self._core = core
        self._talk = Talk(
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
            self._talk.usage, self._talk.cost = saved.usage, saved.cost
            self._talk.kept_as.update(saved.kept_as)
            self._take_up_taint(parties.session)
        self._calling = Calling(
            core,
            session=parties.session,
            policy=parties.policy,
            desk=parties.desk,
            face=parties.face,
            spill=spill,
            options=options,
        )
        self._attached: list[tuple[str | None, Shown]] = []
        self._turn: Turn | None = None

    def _take_up_taint(self, session: HostSession) -> None:
        """Taint the session with the servers in the saved history: a new session does not make their text harmless."""
        upstreams = self._core.supervisor.upstreams
        for server in self._talk.history.shares()[1]:
            upstream = upstreams.get(server)
            if server != HOST and (upstream is None or not upstream.entry.settings.trusted):
                session.taint.take(server, server, trusted=False)

    # --- state -------------------------------------------------------------------------------------------------------

    @property
    def messages(self) -> tuple[Message, ...]:
        """All messages, oldest first."""
        return self._talk.history.messages

    @property
    def usage(self) -> Usage:
        """The total usage, in tokens as the provider counts them."""
        return self._talk.usage

    @property
    def cost(self) -> float | None:
        """The total cost in US dollars; None if the model's prices are not known."""
        return self._talk.cost

    @property
    def model(self) -> Model:
        """The model."""
        return self._talk.model

    @model.setter
    def model(self, model: Model) -> None:
        self._talk.model = model

    @property
    def skipped(self) -> Mapping[str, str]:
        """The tools that are not offered to the model, with the reasons, by the tool's id."""
        self._talk.refresh()
        return self._talk.toolbox.skipped

    def account(self) -> Account:
        """Return how much of the model's window is used, by server."""
        if not len(self._talk.history):
            self._talk.refresh()
        return self._talk.account()

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
        turn = self._turn = Turn(self._talk, self._calling)
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
        self._talk.history.clear()
        self._talk.spill.clear()
        self._talk.kept_as.clear()
        self._attached.clear()

    async def _stop(self) -> None:
        turn, self._turn = self._turn, None
        if turn is not None:
            await turn.stop()

    def _add(self, text: str, turn: Turn) -> None:
        """Add the person's message to the history, after notes of the host and attachments."""
        history = self._talk.history
        notices, for_model = self._talk.refresh()
        for notice in notices:
            turn.tell(Noticed(notice))
        blocks: list[tuple[str | None, Shown]] = []
        if for_model is not None:
            blocks.append((None, TextBlock(f"[Note from the host: {for_model}]")))
        blocks += self._attached
        self._attached = []
        messages = history.messages
        if text.strip():
            blocks.append((None, TextBlock(text)))
        elif not messages or messages[-1].role == "assistant":
            # If the last message is the model's own, it would be taken for the beginning of its answer.
            blocks.append((None, TextBlock(_GO_ON)))
        if blocks:
            history.add(Message("user", tuple(block for _, block in blocks)), servers=[server for server, _ in blocks])

    # --- attachments and prompts -------------------------------------------------------------------------------------

    async def attach_resource(self, server: str, uri: str) -> Rendered:
        """Read a resource and attach it to the next message; return what the model will see of it.

        Raises:
            PolicyDenied: the policy or the person denied it.
            TrunklineError: it cannot be read.
        """
        found = self._core.catalog.find_resource(id_of(server, uri))
        if found is None or found[0] != server:
            raise InvalidParams(f"{server} has no resource {uri!r}")
        owner, own, item = found
        asker = self._calling.asker(caller="user")
        result = await self._core.read_resource(owner, own, item, asker)
        limit = self._talk.options.result_ceiling
        rendered = self._talk.renderer.resource(result.contents, limit=limit)
        head = TextBlock(f"[The user attached this resource of the server {owner}:]")
        self._attached += [(owner, head), *((owner, block) for block in rendered.content)]
        return rendered

    async def use_prompt(self, server: str, name: str, arguments: Mapping[str, str] | None = None) -> str:
        """Add a prompt that the person picked to the conversation; ``say`` then has the model answer it.

        Returns the prompt's description, or an empty string.

        Raises:
            PolicyDenied: the policy or the person denied it.
            TrunklineError: there is no such prompt, or it cannot be rendered.
        """
        item = self._core.catalog.prompts.get(id_of(server, name))
        if item is None:
            raise InvalidParams(f"{server} has no prompt {name!r}")
        await self._stop()
        result = await self._core.get_prompt(item, dict(arguments or {}), self._calling.asker(caller="user"))
        history = self._talk.history
        if result.messages and result.messages[0].role == "assistant" and not len(history):
            history.say(f"[The user picked the prompt {name} of the server {server}.]")
        for message in result.messages:
            self._add_prompted(message, server)
        return result.description or ""

    def _add_prompted(self, message: t.PromptMessage, server: str) -> None:
        rendered = self._talk.renderer.block(message.content, limit=self._talk.options.result_ceiling)
        # Providers accept only text in messages of the model.
        plain = all(isinstance(block, TextBlock) for block in rendered.content)
        role = message.role if plain else "user"
        self._talk.history.add(Message(role, rendered.content), servers=[server] * len(rendered.content))

    async def _attach(self, attachment: Attachment) -> None:
        if isinstance(attachment, tuple):
            await self.attach_resource(*attachment)
        else:
            self._attached.append((None, attachment))

    # --- saving ------------------------------------------------------------------------------------------------------

    def snapshot(self) -> Saved:
        """Return what is needed to continue the conversation later."""
        talk = self._talk
        return Saved(
            model=talk.model.name,
            outputs=talk.spill.name,
            messages=talk.history.kept,
            usage=talk.usage,
            cost=talk.cost,
            left_out=talk.history.left_out,
            kept_as=dict(talk.kept_as),
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the conversation to a file that only its owner can read; ``load_conversation`` loads it."""
        write_saved(self.snapshot(), path)

    async def aclose(self) -> None:
        """Cancel the running turn; outputs in files stay until they expire."""
        await self._stop()

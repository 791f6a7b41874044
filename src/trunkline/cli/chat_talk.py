"""A chat that goes on: the conversation, its turns, the prompts and resources that the person picks, and its file.

It does what a line means; where lines come from, and what the commands are, is known elsewhere.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import NamedTuple

import trunkline.types as t
from trunkline.cli.chat_forms import Unreadable
from trunkline.cli.chat_guided import Guided
from trunkline.cli.chat_input import Lines
from trunkline.cli.chat_model import model_of
from trunkline.cli.chat_opening import Room
from trunkline.cli.chat_proposals import Proposal, Proposals
from trunkline.cli.chat_screen import ChatScreen
from trunkline.cli.chat_words import Mention
from trunkline.cli.output import one_line
from trunkline.errors import ConfigError
from trunkline.host.catalog.items import Item
from trunkline.host.chat.conversation import Conversation
from trunkline.host.chat.options import ChatOptions
from trunkline.host.chat.saving import Saved, read_saved
from trunkline.host.folders import private_folder
from trunkline.host.models.interface import Model

__all__ = ["ChatTalk", "Wishes"]


class Wishes(NamedTuple):
    """How a chat is held."""

    options: ChatOptions
    #: What it goes on from.
    saved: Saved | None = None
    #: The file it is kept in, and the folder for one if it is not named; None for both: it is not kept.
    file: Path | None = None
    folder: Path | None = None
    #: The file of what was typed.
    history: Path | None = None


class ChatTalk:
    """One chat."""

    def __init__(self, room: Room, wishes: Wishes, *, show: ChatScreen, lines: Lines, proposals: Proposals) -> None:
        """Begin, or go on with what was saved."""
        self.room = room
        self.show = show
        self.lines = lines
        self.wishes = wishes
        self.guided = Guided(room, show, asks=lines.asks)
        self.conversation: Conversation | None = None
        self._proposals = proposals
        self._file = wishes.file
        self._switched: list[Model] = []
        #: Whether the model is at work.
        self.turning = False
        if room.model is not None:
            self.conversation = self._conversation(room.model, wishes.saved)

    @property
    def file(self) -> Path | None:
        """Where it is kept, once there is something to keep."""
        return self._file if self.conversation is not None and self.conversation.messages else None

    def _conversation(self, model: Model, saved: Saved | None) -> Conversation:
        return self.room.host.conversation(model, session=self.room.session, options=self.wishes.options, saved=saved)

    async def aclose(self) -> None:
        """Stop what runs, and let models go that were switched to."""
        if self.conversation is not None:
            await self.conversation.aclose()
        for model in self._switched:
            await model.aclose()

    # --- talking -----------------------------------------------------------------------------------------------------

    async def say(self, text: str, attachments: Sequence[Mention] = ()) -> None:
        """Say something to the model and show what comes of it.

        Raises:
            TrunklineError: something cannot be attached; nothing was said then.
        """
        conversation = self.conversation
        assert conversation is not None
        pairs = [(each.server, each.uri) for each in attachments]
        self.turning = True
        try:
            async with aclosing(conversation.say(text, attachments=pairs)) as events:
                async for event in events:
                    # While somebody is asked, nothing is written into the question.
                    async with self.room.questions.turn:
                        self.show.show(event)
        finally:
            self.turning = False
        await self.keep()

    def cancel(self) -> None:
        """Call off the turn."""
        if self.conversation is not None:
            self.conversation.cancel()

    async def attach(self, mention: Mention) -> None:
        """Have a resource go with the next message; without a model it is shown.

        Raises:
            TrunklineError: it cannot be read, or the policy or the person said no.
        """
        if self.conversation is None:
            await self.guided.show_resource(mention.server, mention.uri)
            return
        rendered = await self.conversation.attach_resource(mention.server, mention.uri)
        size = len(rendered.text)
        self.show.line("note", f"{mention.uri} of {mention.server} goes with your next message: {size:,} characters")

    async def switch(self, choice: str) -> None:
        """Go on with another model.

        Raises:
            ConfigError: it is not known.
            Failure: there is no key for it.
        """
        model = model_of(choice, self.room.host.configuration)
        assert model is not None
        self._switched.append(model)
        if self.conversation is None:
            self.conversation = self._conversation(model, None)
        else:
            self.conversation.model = model
        self.show.line("note", f"the model is {model.name} from now on")

    # --- prompts -----------------------------------------------------------------------------------------------------

    async def pick(self, item: Item, typed: str) -> None:
        """Fill in a prompt, ask for what is missing, and have the model answer it; without a model it is shown.

        Raises:
            Unreadable: arguments are missing and nobody can be asked, or what was typed are none.
            TrunklineError: it cannot be filled in, or the policy or the person said no.
        """
        arguments = await self._arguments(item, typed)
        if self.conversation is None:
            await self.guided.show_prompt(item, arguments)
            return
        await self.conversation.use_prompt(item.server, item.name, arguments)
        await self.say("")

    async def _arguments(self, item: Item, typed: str) -> dict[str, str]:
        definition = item.definition
        assert isinstance(definition, t.Prompt)
        given = _pairs(typed)
        declared = {each.name: each for each in definition.arguments or ()}
        unknown = [name for name in given if name not in declared]
        if unknown:
            raise Unreadable(f"{item.name} has no argument {unknown[0]!r}; it has: {', '.join(declared) or 'none'}")
        # Whoever typed all that is needed is not asked for the rest.
        needed = [each for each in declared.values() if each.required and each.name not in given]
        asked = [each for each in declared.values() if each.name not in given] if not given else needed
        if needed and not self.lines.asks:
            names = " ".join(f"{each.name}=..." for each in needed)
            raise Unreadable(f"give its arguments: /{item.server}:{item.name} {names}")
        for argument in asked if self.lines.asks else ():
            value = await self._ask(item, argument, given)
            if value:
                given[argument.name] = value
        return given

    async def _ask(self, item: Item, argument: t.PromptArgument, given: dict[str, str]) -> str:
        if argument.description:
            self.show.tell(f"  {one_line(argument.description)}")

        async def propose(before: str) -> Sequence[Proposal]:
            return await self._proposals.argument(item, argument.name, before, given)

        optional = "" if argument.required else " (optional)"
        while True:
            value = await self.lines.answer(f"{argument.name}{optional}:", propose)
            if value or not argument.required:
                return value
            self.show.tell("  this must be filled in; Ctrl-C leaves")

    # --- keeping it --------------------------------------------------------------------------------------------------

    async def keep(self) -> None:
        """Write the chat to its file, if it is kept; a file that cannot be written is said, and the chat goes on."""
        conversation = self.conversation
        if conversation is None or not conversation.messages:
            return
        if self._file is None and self.wishes.folder is not None:
            name = f"{time.strftime('%Y%m%d-%H%M%S')}-{self.room.session.id[:8]}.json"
            self._file = private_folder(self.wishes.folder) / name
        if self._file is not None:
            try:
                await asyncio.to_thread(conversation.save, self._file)
            except (OSError, ConfigError) as error:
                self.show.line("failed", f"the conversation is not kept: {error}")

    async def save(self, path: str) -> None:
        """Write it to another file, too.

        Raises:
            ConfigError: something else is in that file, or it cannot be written.
        """
        if self.conversation is None:
            raise ConfigError("There is no conversation: no model is chosen.")
        conversation = self.conversation

        def write() -> None:
            if os.path.lexists(path):
                # What is in the way may be anything; only an older conversation is written over.
                read_saved(path)
            conversation.save(path)

        try:
            await asyncio.to_thread(write)
        except OSError as error:
            raise ConfigError(f"{path} cannot be written: {error.strerror}.") from error

    def clear(self) -> None:
        """Forget what was said; the file stays as it is, and what comes goes to another."""
        if self.conversation is not None:
            self.conversation.clear()
        if self.wishes.folder is not None:
            self._file = None


def _pairs(typed: str) -> dict[str, str]:
    import shlex

    try:
        words = shlex.split(typed)
    except ValueError as error:
        raise Unreadable(str(error)) from error
    odd = [word for word in words if "=" not in word]
    if odd:
        raise Unreadable(f"{odd[0]!r} is no name=value")
    return dict(word.partition("=")[::2] for word in words)

"""A running chat: the conversation and its turns, the prompts and resources the user picks, and the saved file.

It carries out what lines mean; reading lines and defining commands is up to other modules.
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
    """Options of a chat session."""

    options: ChatOptions
    #: The saved conversation to resume.
    saved: Saved | None = None
    #: The file to save to, and the directory for a new one if it is None; both None: the chat is not saved.
    file: Path | None = None
    folder: Path | None = None
    #: The file of the input history.
    history: Path | None = None


class ChatTalk:
    """One chat session."""

    def __init__(self, room: Room, wishes: Wishes, *, show: ChatScreen, lines: Lines, proposals: Proposals) -> None:
        """Start a conversation, or resume the saved one."""
        self.room = room
        self.show = show
        self.lines = lines
        self.wishes = wishes
        self.guided = Guided(room, show, asks=lines.asks)
        self.conversation: Conversation | None = None
        self._proposals = proposals
        self._file = wishes.file
        self._switched: list[Model] = []
        #: True while the model is responding.
        self.turning = False
        if room.model is not None:
            self.conversation = self._conversation(room.model, wishes.saved)

    @property
    def file(self) -> Path | None:
        """The file the chat is saved to, once there is something to save."""
        return self._file if self.conversation is not None and self.conversation.messages else None

    def _conversation(self, model: Model, saved: Saved | None) -> Conversation:
        return self.room.host.conversation(model, session=self.room.session, options=self.wishes.options, saved=saved)

    async def aclose(self) -> None:
        """Stop the conversation, and close the models that were switched to."""
        if self.conversation is not None:
            await self.conversation.aclose()
        for model in self._switched:
            await model.aclose()

    # --- talking -----------------------------------------------------------------------------------------------------

    async def say(self, text: str, attachments: Sequence[Mention] = ()) -> None:
        """Send a message to the model and show the events of its turn.

        Raises:
            TrunklineError: something cannot be attached; nothing was sent.
        """
        conversation = self.conversation
        assert conversation is not None
        pairs = [(each.server, each.uri) for each in attachments]
        self.turning = True
        try:
            async with aclosing(conversation.say(text, attachments=pairs)) as events:
                async for event in events:
                    # Do not print into a question that is being asked.
                    async with self.room.questions.turn:
                        self.show.show(event)
        finally:
            self.turning = False
        await self.keep()

    def cancel(self) -> None:
        """Cancel the current turn."""
        if self.conversation is not None:
            self.conversation.cancel()

    async def attach(self, mention: Mention) -> None:
        """Attach a resource to the next message; without a model, show it.

        Raises:
            TrunklineError: it cannot be read, or the policy or the user denied it.
        """
        if self.conversation is None:
            await self.guided.show_resource(mention.server, mention.uri)
            return
        rendered = await self.conversation.attach_resource(mention.server, mention.uri)
        size = len(rendered.text)
        self.show.line("note", f"attached to your next message: {mention.uri} of {mention.server}, {size:,} characters")

    async def switch(self, choice: str) -> None:
        """Continue with another model.

        Raises:
            ConfigError: the model is unknown.
            CommandError: its API key is missing.
        """
        model = model_of(choice, self.room.host.configuration)
        assert model is not None
        self._switched.append(model)
        if self.conversation is None:
            self.conversation = self._conversation(model, None)
        else:
            self.conversation.model = model
        self.show.line("note", f"switched to {model.name}")

    # --- prompts -----------------------------------------------------------------------------------------------------

    async def pick(self, item: Item, typed: str) -> None:
        """Render a prompt, after asking for missing arguments, and send it to the model; without a model, show it.

        Raises:
            InvalidChatInput: arguments are invalid, or missing and the user cannot be asked.
            TrunklineError: it cannot be rendered, or the policy or the user denied it.
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
        # If all required arguments were typed, the optional ones are not asked for.
        needed = [each for each in declared.values() if each.required and each.name not in given]
        asked = [each for each in declared.values() if each.name not in given] if not given else needed
        if needed and not self.lines.asks:
            names = " ".join(f"{each.name}=..." for each in needed)
            raise Unreadable(f"missing arguments: /{item.server}:{item.name} {names}")
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
            self.show.tell("  a value is required; Ctrl-C cancels")

    # --- saving ------------------------------------------------------------------------------------------------------

    async def keep(self) -> None:
        """Save the chat, if it is to be saved; if that fails, print why and go on."""
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
                self.show.line("failed", f"the conversation could not be saved: {error}")

    async def save(self, path: str) -> None:
        """Save the conversation to another file.

        Raises:
            ConfigError: the file holds something else, or cannot be written.
        """
        if self.conversation is None:
            raise ConfigError("There is no conversation to save: no model is chosen.")
        conversation = self.conversation

        def write() -> None:
            if os.path.lexists(path):
                # Overwrite only a saved conversation, not any other file.
                read_saved(path)
            conversation.save(path)

        try:
            await asyncio.to_thread(write)
        except OSError as error:
            raise ConfigError(f"{path} cannot be written: {error.strerror}.") from error

    def clear(self) -> None:
        """Clear the conversation; its file is left as it is, and what follows is saved to a new one."""
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
        raise Unreadable(f"{odd[0]!r} is not name=value")
    return dict(word.partition("=")[::2] for word in words)

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
from trunkline.cli.chat.completion import ChatCompleter, CompletionItem, ResourceMention
from trunkline.cli.chat.display import ChatDisplay
from trunkline.cli.chat.input import ChatInput
from trunkline.cli.chat.setup import ChatRuntime, open_chat_model
from trunkline.cli.chat.tool_picker import InvalidChatInput, ToolPicker
from trunkline.cli.ui.output import one_line
from trunkline.errors import ConfigError
from trunkline.host.chat.conversation import Conversation
from trunkline.host.chat.events import ChatOptions
from trunkline.host.chat.history import SavedConversation, load_conversation
from trunkline.host.models.interface import Model
from trunkline.host.state_files import private_folder
from trunkline.host.upstreams.catalog.items import CatalogItem

__all__ = ["ChatSession", "ChatSessionOptions"]


class ChatSessionOptions(NamedTuple):
    """Options of a chat session."""

    options: ChatOptions
    #: The saved conversation to resume.
    saved: SavedConversation | None = None
    #: The file to save to, and the directory for a new one if it is None; both None: the chat is not saved.
    file: Path | None = None
    folder: Path | None = None
    #: The file of the input history.
    history: Path | None = None


class ChatSession:
    """One chat session."""

    def __init__(
        self,
        runtime: ChatRuntime,
        session_options: ChatSessionOptions,
        *,
        show: ChatDisplay,
        lines: ChatInput,
        proposals: ChatCompleter,
    ) -> None:
        """Start a conversation, or resume the saved one."""
        self.runtime = runtime
        self.show = show
        self.lines = lines
        self.session_options = session_options
        self.tool_picker = ToolPicker(runtime, show, asks=lines.asks)
        self.conversation: Conversation | None = None
        self._proposals = proposals
        self._file = session_options.file
        self._switched: list[Model] = []
        #: True while the model is responding.
        self.turning = False
        if runtime.model is not None:
            self.conversation = self._conversation(runtime.model, session_options.saved)

    @property
    def file(self) -> Path | None:
        """The file the chat is saved to, once there is something to save."""
        return self._file if self.conversation is not None and self.conversation.messages else None

    def _conversation(self, model: Model, saved: SavedConversation | None) -> Conversation:
        return self.runtime.host.conversation(
            model, session=self.runtime.session, options=self.session_options.options, saved=saved
        )

    async def aclose(self) -> None:
        """Stop the conversation, and close the models that were switched to."""
        if self.conversation is not None:
            await self.conversation.aclose()
        for model in self._switched:
            await model.aclose()

    # --- talking -----------------------------------------------------------------------------------------------------

    async def say(self, text: str, attachments: Sequence[ResourceMention] = ()) -> None:
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
                    async with self.runtime.questions.terminal_lock:
                        self.show.show(event)
        finally:
            self.turning = False
        await self.keep()

    def cancel(self) -> None:
        """Cancel the current turn."""
        if self.conversation is not None:
            self.conversation.cancel()

    async def attach(self, mention: ResourceMention) -> None:
        """Attach a resource to the next message; without a model, show it.

        Raises:
            TrunklineError: it cannot be read, or the policy or the user denied it.
        """
        if self.conversation is None:
            await self.tool_picker.show_resource(mention.server, mention.uri)
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
        model = open_chat_model(choice, self.runtime.host.configuration)
        assert model is not None
        self._switched.append(model)
        if self.conversation is None:
            self.conversation = self._conversation(model, None)
        else:
            self.conversation.model = model
        self.show.line("note", f"switched to {model.name}")

    # --- prompts -----------------------------------------------------------------------------------------------------

    async def pick(self, item: CatalogItem, typed: str) -> None:
        """Render a prompt, after asking for missing arguments, and send it to the model; without a model, show it.

        Raises:
            InvalidChatInput: arguments are invalid, or missing and the user cannot be asked.
            TrunklineError: it cannot be rendered, or the policy or the user denied it.
        """
        arguments = await self._arguments(item, typed)
        if self.conversation is None:
            await self.tool_picker.show_prompt(item, arguments)
            return
        await self.conversation.use_prompt(item.server, item.name, arguments)
        await self.say("")

    async def _arguments(self, item: CatalogItem, typed: str) -> dict[str, str]:
        definition = item.definition
        assert isinstance(definition, t.Prompt)
        given = _pairs(typed)
        declared = {each.name: each for each in definition.arguments or ()}
        unknown = [name for name in given if name not in declared]
        if unknown:
            raise InvalidChatInput(
                f"{item.name} has no argument {unknown[0]!r}; it has: {', '.join(declared) or 'none'}"
            )
        # If all required arguments were typed, the optional ones are not asked for.
        needed = [each for each in declared.values() if each.required and each.name not in given]
        asked = [each for each in declared.values() if each.name not in given] if not given else needed
        if needed and not self.lines.asks:
            names = " ".join(f"{each.name}=..." for each in needed)
            raise InvalidChatInput(f"missing arguments: /{item.server}:{item.name} {names}")
        for argument in asked if self.lines.asks else ():
            value = await self._ask(item, argument, given)
            if value:
                given[argument.name] = value
        return given

    async def _ask(self, item: CatalogItem, argument: t.PromptArgument, given: dict[str, str]) -> str:
        if argument.description:
            self.show.show_text(f"  {one_line(argument.description)}")

        async def completer(before: str) -> Sequence[CompletionItem]:
            return await self._proposals.argument(item, argument.name, before, given)

        optional = "" if argument.required else " (optional)"
        while True:
            value = await self.lines.answer(f"{argument.name}{optional}:", completer)
            if value or not argument.required:
                return value
            self.show.show_text("  a value is required; Ctrl-C cancels")

    # --- saving ------------------------------------------------------------------------------------------------------

    async def keep(self) -> None:
        """Save the chat, if it is to be saved; if that fails, print why and go on."""
        conversation = self.conversation
        if conversation is None or not conversation.messages:
            return
        if self._file is None and self.session_options.folder is not None:
            name = f"{time.strftime('%Y%m%d-%H%M%S')}-{self.runtime.session.id[:8]}.json"
            self._file = private_folder(self.session_options.folder) / name
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
                load_conversation(path)
            conversation.save(path)

        try:
            await asyncio.to_thread(write)
        except OSError as error:
            raise ConfigError(f"{path} cannot be written: {error.strerror}.") from error

    def clear(self) -> None:
        """Clear the conversation; its file is left as it is, and what follows is saved to a new one."""
        if self.conversation is not None:
            self.conversation.clear()
        if self.session_options.folder is not None:
            self._file = None


def _pairs(typed: str) -> dict[str, str]:
    import shlex

    try:
        words = shlex.split(typed)
    except ValueError as error:
        raise InvalidChatInput(str(error)) from error
    odd = [word for word in words if "=" not in word]
    if odd:
        raise InvalidChatInput(f"{odd[0]!r} is not name=value")
    return dict(word.partition("=")[::2] for word in words)

"""Chats of the console: conversations with a model, saved where ``trunkline chat`` saves them.

A chat that was started in the terminal can be continued in the page, and the other way round: folder and format are the
same. Each open chat has its own session, so that untrusted content in one does not taint another. Approvals of a
model's calls go to the inbox; attachments and prompts that the user picks count as the user's own calls.

The events of a turn are published to all pages. Text arrives in pieces of a few characters; they are joined, so that a
page gets at most twenty text events a second.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

import trunkline.types as t
from trunkline.console.chat_calls import ChatCalls
from trunkline.console.chat_messages import (
    CallEnding,
    EventJoiner,
    LiveTurn,
    Message,
    Part,
    context_view,
    first_line,
    page_context,
    render_history,
)
from trunkline.console.routing import ApiError
from trunkline.console.saved_chats import SavedChats, is_chat_id
from trunkline.errors import ConfigError, TrunklineError
from trunkline.host.authorization.approval import ApprovalAnswer, ApprovalRequest
from trunkline.host.chat.conversation import Attachment, ChatParticipants, Conversation
from trunkline.host.chat.events import TurnEnded
from trunkline.host.chat.history import SavedConversation, load_conversation, save_conversation
from trunkline.host.models.configured import configured_model, model_table, open_configured_model
from trunkline.host.models.interface import Model, ModelError, TextBlock
from trunkline.host.models.selection import known_models
from trunkline.host.session import HostSession
from trunkline.host.state_files import private_folder
from trunkline.host.upstreams.catalog.items import CatalogItem

if TYPE_CHECKING:
    from trunkline.console.console import Console

__all__ = ["NO_MODEL_FIX", "CallOutput", "Chat", "ChatMessage", "Chats"]

log = logging.getLogger("trunkline.console")

#: How to configure a model.
NO_MODEL_FIX = (
    "Set TRUNKLINE_MODEL or the model table of your configuration, for example to ollama:qwen3, or set "
    "ANTHROPIC_API_KEY or OPENAI_API_KEY, and start the console again. Without a model you call the tools yourself."
)
_MOST_OPEN = 16  # Open chats, each with its history in memory; idle ones are closed and reopened from their files.
_MOST_OUTPUTS = 32  # Complete results kept for pages of tools (MCP Apps), per chat.
_MOST_ENDINGS = 2000  # Outcomes of calls kept per chat: more than a history holds.
_MOST_ATTACHMENTS = 20  # Attachments of one message.
_MOST_TEXT = 1024 * 1024  # Characters of a message: more than fit into the window of any model.
_VENDOR_KEYS = MappingProxyType({"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY"})


class ChatMessage(Struct, frozen=True, kw_only=True):
    """A message of the user."""

    text: str = ""
    #: Resources, by their ids.
    attachments: tuple[str, ...] = ()
    #: The id of a prompt, and its arguments.
    prompt: str | None = None
    prompt_arguments: dict[str, str] = {}
    #: The server whose page (MCP Apps) wrote the text; None if the user did.
    page_of: str | None = None
    #: Whether to repeat the turn that failed; the other members are then empty.
    retry: bool = False


class CallOutput(Struct, frozen=True, kw_only=True):
    """A call of a model with its raw result."""

    item: CatalogItem
    arguments: dict[str, Any]
    result: t.CallToolResult


class ChatPrompter:
    """Asks for approval of one chat's calls, one at a time: an answer that is remembered applies to the next call."""

    def __init__(self, console: Console) -> None:
        """Ask through the inbox of the console."""
        self._console = console

    async def __call__(self, question: ApprovalRequest) -> ApprovalAnswer | None:
        """Add a question to the inbox."""
        return await self._console.inbox.approve(question)


class Chat:
    """One open chat."""

    def __init__(
        self, chat_id: str, session: HostSession, file: Path, saved: SavedConversation | None, calls: ChatCalls
    ) -> None:
        """Open a saved conversation, or start an empty one; a model is needed only for the next message."""
        self.id = chat_id
        self.session = session
        self.file = file
        self.saved = saved
        self.conversation: Conversation | None = None
        self.live: LiveTurn | None = None
        self.task: asyncio.Task[None] | None = None
        #: True while the model is answering; reading attachments comes before.
        self.turning = False
        #: The model chosen for this chat; None for the last one used, or the default.
        self.choice: str | None = None
        #: Why the last turn failed, or could not be saved.
        self.problem: str | None = None if saved is None else saved.problem
        #: Whether the last turn failed, so that it can be repeated.
        self.retriable = self.problem is not None
        #: The message of a turn that failed before it was added to the conversation.
        self.unsent: ChatMessage | None = None
        #: The time and size of the file when this console last wrote or read it: a terminal may continue the chat.
        self.stamp: tuple[int, int] | None = None
        self.endings: dict[str, CallEnding] = {}
        self.outputs: OrderedDict[str, CallOutput] = OrderedDict()
        self.calls = calls
        #: Context from pages (MCP Apps) for the next message: by view, the server and the text.
        self.contexts: dict[str, tuple[str, str]] = {}

    @property
    def running(self) -> bool:
        """Whether the model is answering."""
        return self.task is not None and not self.task.done()

    @property
    def current(self) -> SavedConversation | None:
        """The conversation as it would be saved now; None if it is empty."""
        return self.saved if self.conversation is None else self.conversation.snapshot()

    def keep_output(self, call_id: str, item: CatalogItem, arguments: dict[str, Any], result: t.CallToolResult) -> None:
        """Called with each result; records it, and stores those of tools with a page."""
        self.calls.keep_result(call_id, item, arguments, result)
        if item.app_uri is not None:
            self.outputs[call_id] = CallOutput(item=item, arguments=arguments, result=result)
            if len(self.outputs) > _MOST_OUTPUTS:
                self.outputs.popitem(last=False)


class Chats:
    """The chats of a console."""

    def __init__(self, console: Console) -> None:
        """Create the chats; nothing is read yet."""
        self._console = console
        self._open: OrderedDict[str, Chat] = OrderedDict()
        self._models: dict[str | None, Model] = {}
        self._saved = SavedChats(self.folder)
        self._opening = asyncio.Lock()
        #: Context from pages (MCP Apps) without a chat, for the next message of any chat.
        self._page_contexts: dict[str, tuple[str, str]] = {}

    @property
    def folder(self) -> Path:
        """The folder of ``trunkline chat``."""
        return self._console.core.folder / "conversations"

    async def aclose(self) -> None:
        """Cancel running turns, and close models and sessions."""
        for chat in tuple(self._open.values()):
            await self._close(chat)
        models, self._models = self._models, {}
        for model in models.values():
            await model.aclose()

    # --- models ------------------------------------------------------------------------------------------------------

    @property
    def _environ(self) -> Mapping[str, str] | None:
        return self._console.assembly.options.get("environ")

    def default_model(self) -> str | None:
        """Return the model of new chats; None if none is configured, or the configuration is invalid."""
        try:
            return configured_model(self._console.options.model, self._console.host.configuration, self._environ)
        except ConfigError as error:
            log.warning("%s", error)
            return None

    def models(self) -> list[dict[str, Any]]:
        """Return the available models: the default one, and those of vendors whose API key is set."""
        import os

        default, env = self.default_model(), self._environ or os.environ
        with suppress(ConfigError):
            table = model_table(self._console.host.configuration) or {}
            names = [default, table.get("name"), env.get("TRUNKLINE_MODEL")]
            names += [name for name in known_models() if env.get(_VENDOR_KEYS.get(name.partition(":")[0], ""))]
            return [{"name": name, "current": name == default} for name in dict.fromkeys(names) if name]
        return []

    async def _model(self, choice: str | None) -> Model:
        """Return an open model.

        Raises:
            ApiError: there is none, or it cannot be opened.
        """
        if choice not in self._models:
            configuration, environ = self._console.host.configuration, self._environ
            wanted = choice or self._console.options.model
            try:
                model = await asyncio.to_thread(open_configured_model, wanted, configuration, environ)
            except (ConfigError, ModelError) as error:
                raise ApiError(409, "model_unavailable", str(error)) from error
            if model is None:
                raise ApiError(409, "no_model", "No model is configured.", fix=NO_MODEL_FIX)
            self._models[choice] = model
        return self._models[choice]

    async def switch(self, chat: Chat, choice: str) -> None:
        """Continue a chat with another model.

        Raises:
            ApiError: the model is answering, or the other one cannot be opened.
        """
        _check_idle(chat)
        model = await self._model(choice)
        chat.choice = choice
        if chat.conversation is not None:
            chat.conversation.model = model
        self._publish(chat, {"kind": "model", "model": model.name})

    # --- the list ----------------------------------------------------------------------------------------------------

    async def listed(self) -> list[dict[str, Any]]:
        """Return the saved and the open chats, latest first."""
        rows = await asyncio.to_thread(self._saved.rows)
        known = {row["id"] for row in rows}
        unsaved = [chat for chat in self._open.values() if chat.id not in known and chat.live is not None]
        fresh = [{"id": chat.id, "title": _title(chat), "at": time.time(), "messages": 1} for chat in unsaved]
        return [*fresh, *rows]

    # --- opening and closing -----------------------------------------------------------------------------------------

    async def create(self) -> Chat:
        """Start a chat; it is saved with its first message."""
        session = self._console.open_session()
        chat_id = f"{time.strftime('%Y%m%d-%H%M%S')}-{session.id[:8]}"
        return await self._add(Chat(chat_id, session, self.folder / f"{chat_id}.json", None, ChatCalls(self._console)))

    async def get(self, chat_id: str) -> Chat:
        """Return a chat, opened from its file if necessary; one that was continued in a terminal is read again.

        Raises:
            ApiError: there is no such chat.
        """
        async with self._opening:
            chat = self._open.get(chat_id)
            if chat is not None and (chat.running or chat.stamp == _stamp(chat.file)):
                self._open.move_to_end(chat_id)
                return chat
            file = self.folder / f"{chat_id}.json"
            if not is_chat_id(chat_id) or (chat is None and _stamp(file) is None):
                raise ApiError(404, "not_found", f"There is no chat {chat_id[:100]!r}.")
            if chat is not None:
                await self._close(chat)
            stamp = _stamp(file)
            saved = None if stamp is None else await asyncio.to_thread(load_conversation, file)
            opened = Chat(chat_id, self._console.open_session(), file, saved, ChatCalls(self._console))
            opened.stamp = stamp
            return await self._add(opened)

    async def _add(self, chat: Chat) -> Chat:
        self._open[chat.id] = chat
        idle = [each for each in self._open.values() if not each.running and each is not chat]
        for each in idle[: max(0, len(self._open) - _MOST_OPEN)]:
            await self._close(each)
        return chat

    async def _close(self, chat: Chat) -> None:
        if self._open.get(chat.id) is chat:
            del self._open[chat.id]
        if chat.task is not None:
            chat.task.cancel()
            await asyncio.wait([chat.task])
        if chat.conversation is not None:
            await chat.conversation.aclose()
        await self._console.core.close_session(chat.session)

    async def delete(self, chat_id: str) -> None:
        """Delete a chat and its file.

        Raises:
            ApiError: there is no such chat.
        """
        chat = await self.get(chat_id)
        await self._close(chat)
        await asyncio.to_thread(chat.file.unlink, missing_ok=True)
        self._console.events.publish("chats")

    # --- what is shown -----------------------------------------------------------------------------------------------

    def view(self, chat: Chat) -> dict[str, Any]:
        """Return a chat as the page shows it."""
        current, conversation = chat.current, chat.conversation
        messages: list[Message] = []
        if chat.live is not None:
            # The history of a running turn is incomplete; the live turn has its events.
            current = chat.saved
        if current is not None:
            messages = render_history(current.messages, self._console.host.catalog, chat.endings)
        if chat.live is not None:
            messages += chat.live.messages
        elif chat.unsent is not None:
            messages.append({"role": "user", "parts": self._user_parts(chat.unsent)})
        usage = None if current is None else current.usage
        return {
            "id": chat.id,
            "title": _title(chat),
            "model": self._model_of(chat),
            "messages": self._completed(chat, messages),
            "usage": {"input": usage.input_tokens if usage else 0, "output": usage.output_tokens if usage else 0},
            "cost": None if current is None else current.cost,
            "context": None if conversation is None else context_view(conversation.context_usage()),
            "running": chat.running,
            "problem": chat.problem,
            "retriable": chat.retriable,
        }

    def _model_of(self, chat: Chat) -> str | None:
        if chat.conversation is not None:
            return chat.conversation.model.name
        return chat.choice or self.default_model()

    def _completed(self, chat: Chat, messages: list[Message]) -> list[Message]:
        """Add to each call the inbox item that it waits for, and the page that shows its result."""
        waiting = {item["call"]: item["id"] for item in self._console.inbox.items() if item.get("call")}
        for part in (part for message in messages for part in message["parts"] if part["type"] == "call"):
            if part["state"] in ("proposed", "running") and part["call_id"] in waiting:
                part["item"] = waiting[part["call_id"]]
            output = chat.outputs.get(part["call_id"])
            if output is not None and self._console.apps_origin is not None:
                part["app"] = output.item.app_uri
        return messages

    # --- turns -------------------------------------------------------------------------------------------------------

    async def send(self, chat: Chat, message: ChatMessage) -> None:
        """Send a message; the answer is published as events.

        Raises:
            ApiError: there is no model, the model is answering, or an item in the message does not exist.
        """
        _check_idle(chat)
        if message.retry:
            if not chat.retriable:
                raise ApiError(409, "nothing_failed", "There is no failed turn to repeat.")
            message = chat.unsent or message
        attachments = self._resolve(message)
        conversation = await self._conversation(chat)
        # Another request may have started a turn in the meantime.
        _check_idle(chat)
        chat.problem, chat.retriable, chat.unsent = None, False, None
        if conversation.messages:
            chat.saved = conversation.snapshot()
        chat.live = LiveTurn(self._user_parts(message))
        self._publish(chat, {"kind": "user", "message": {"role": "user", "parts": self._user_parts(message)}})
        chat.task = asyncio.get_running_loop().create_task(self._run(chat, conversation, message, attachments))

    def cancel(self, chat: Chat) -> None:
        """Cancel the turn of a chat, if one is running."""
        if not chat.running or chat.task is None:
            return
        if chat.turning and chat.conversation is not None:
            chat.conversation.cancel()
        else:
            # The turn is still reading attachments or rendering a prompt.
            chat.task.cancel()

    async def _conversation(self, chat: Chat) -> Conversation:
        if chat.conversation is None:
            model = await self._model(chat.choice)
            if chat.conversation is None:
                chat.conversation = Conversation(self._console.core, model, self._participants(chat), saved=chat.saved)
        return chat.conversation

    def _participants(self, chat: Chat) -> ChatParticipants:
        host = self._console.host
        return ChatParticipants(
            session=chat.session,
            policy=host.policy,
            request_handler=host._request_handler(),
            prompter=ChatPrompter(self._console),
            typed=True,
            on_result=chat.keep_output,
        )

    def _resolve(self, message: ChatMessage) -> list[Attachment]:
        """Return the resources of a message as pairs of server and URI.

        Raises:
            ApiError: the message is empty or too long, or an item in it does not exist.
        """
        catalog = self._console.host.catalog
        if not message.text.strip() and message.prompt is None and not message.attachments and not message.retry:
            raise ApiError(400, "invalid_request", "The message is empty.")
        if len(message.text) > _MOST_TEXT or len(message.attachments) > _MOST_ATTACHMENTS:
            raise ApiError(
                413, "too_large", f"A message may have {_MOST_TEXT} characters and {_MOST_ATTACHMENTS} attachments."
            )
        if message.prompt is not None and catalog.find_prompt(message.prompt) is None:
            raise ApiError(404, "not_found", f"No server has a prompt {message.prompt[:200]!r}.")
        found: list[Attachment] = []
        for each in message.attachments:
            resource = catalog.find_resource(each)
            if resource is None:
                raise ApiError(404, "not_found", f"No server has a resource {each[:200]!r}.")
            found.append((resource[0], resource[1]))
        return found

    def _user_parts(self, message: ChatMessage) -> list[Part]:
        parts: list[Part] = []
        for each in message.attachments:
            found = self._console.host.catalog.find_resource(each)
            if found is not None:
                name = found[1].rstrip("/").rpartition("/")[2] or found[1]
                parts.append({"type": "attachment", "server": found[0], "uri": found[1], "name": name})
        if message.prompt is not None:
            parts.append({"type": "notice", "text": f"The prompt {message.prompt} was used."})
        if message.text.strip():
            parts.append({"type": "text", "text": message.text})
        return parts

    async def _run(
        self, chat: Chat, conversation: Conversation, message: ChatMessage, attachments: list[Attachment]
    ) -> None:
        """Run a turn to its end, and save it."""
        deltas = EventJoiner(lambda event: self._publish(chat, event))
        try:
            await self._turn(chat, conversation, message, attachments, deltas)
        except asyncio.CancelledError:
            # By ``cancel`` or ``aclose``: the history is consistent, and is saved as usual.
            deltas.put({"kind": "turn_over", "reason": "cancelled", "detail": "The turn was cancelled."})
        except Exception as error:
            if isinstance(error, TrunklineError):
                chat.problem = str(error) or type(error).__name__
            else:
                log.exception("a turn of the chat %s failed", chat.id)
                chat.problem = f"The turn failed inside the host: {type(error).__name__}"
            chat.retriable, chat.unsent = True, None if chat.turning or message.retry else message
            deltas.put({"kind": "failed", "text": chat.problem})
        finally:
            deltas.close()
            chat.calls.close()
            chat.turning = False
            if chat.live is not None:
                chat.endings = dict([*chat.endings.items(), *chat.live.endings.items()][-_MOST_ENDINGS:])
            chat.live = None
            await self._save(chat)
            self._publish(chat, {"kind": "saved"})
            self._console.events.publish("chats")

    async def _turn(
        self,
        chat: Chat,
        conversation: Conversation,
        message: ChatMessage,
        attachments: list[Attachment],
        deltas: EventJoiner,
    ) -> None:
        if message.prompt is not None:
            item = self._console.host.catalog.find_prompt(message.prompt)
            if item is None:
                raise ConfigError(f"The prompt {message.prompt} no longer exists.")
            await conversation.use_prompt(item.server, item.name, message.prompt_arguments)
        blocks = [*self._contexts(chat, message), *attachments]
        live = chat.live
        async with aclosing(conversation.say(message.text, attachments=blocks)) as events:
            async for event in events:
                chat.turning = True
                if live is not None:
                    live.add(event)
                chat.calls.add(event)
                deltas.add(event)
                if isinstance(event, TurnEnded) and event.reason not in ("end", "cancelled"):
                    chat.problem, chat.retriable = event.detail, True

    def set_context(self, chat_id: str | None, view: str, server: str, text: str) -> None:
        """Set the context from a view for the next message; it replaces the earlier one, or removes it if empty."""
        chat = None if chat_id is None else self._open.get(chat_id)
        contexts = self._page_contexts if chat is None else chat.contexts
        self._page_contexts.pop(view, None)
        contexts.pop(view, None)
        if text:
            contexts[view] = server, text

    def _contexts(self, chat: Chat, message: ChatMessage) -> Sequence[TextBlock]:
        """Return the context from pages; it comes from their servers, and taints the session."""
        contexts = {**self._page_contexts, **chat.contexts}
        self._page_contexts, chat.contexts = {}, {}
        servers = [server for server, _ in contexts.values()] + ([message.page_of] if message.page_of else [])
        upstreams = self._console.core.supervisor.upstreams
        for server in servers:
            upstream = upstreams.get(server)
            trusted = upstream is not None and upstream.entry.settings.trusted
            chat.session.taint.add_source(server, server, trusted=trusted)
        return [page_context(server, text) for server, text in contexts.values()]

    async def _save(self, chat: Chat) -> None:
        conversation = chat.conversation
        if conversation is None or not conversation.messages:
            return
        try:
            saved = replace(conversation.snapshot(), problem=chat.problem)
            await asyncio.to_thread(_write, saved, chat.file)
        except (OSError, ConfigError) as error:
            chat.problem = f"The chat could not be saved: {error}"
            self._publish(chat, {"kind": "noticed", "text": chat.problem})
        chat.saved, chat.stamp = conversation.snapshot(), _stamp(chat.file)

    def _publish(self, chat: Chat, event: dict[str, Any]) -> None:
        self._console.events.publish("chat", chat=chat.id, event=event)


def _check_idle(chat: Chat) -> None:
    if chat.running:
        raise ApiError(409, "running", "The model is still answering.", fix="Wait for the answer, or stop it.")


def _write(saved: SavedConversation, file: Path) -> None:
    private_folder(file.parent)
    save_conversation(saved, file)


def _stamp(file: Path) -> tuple[int, int] | None:
    try:
        stat = file.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size


def _title(chat: Chat) -> str:
    found = chat.saved or chat.current
    if found is not None and found.messages:
        texts = (
            block.text
            for entry in found.messages
            if entry.message.role == "user"
            for block, server in zip(entry.message.content, entry.servers, strict=False)
            if isinstance(block, TextBlock) and server is None and not block.text.startswith("[")
        )
        return first_line(next(texts, "")) or chat.id
    parts = chat.live.messages[0]["parts"] if chat.live is not None else []
    return first_line(next((part["text"] for part in parts if part["type"] == "text"), "")) or "New chat"

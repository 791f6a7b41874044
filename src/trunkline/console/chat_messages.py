"""The messages of a chat as the page shows them: text, tool calls with their outcome, attachments and notices.

A turn of the model is one message, even if it took several requests: text and calls in the order of events. The history
holds what was sent to the model, the live turn what happens now; both are rendered in the same form.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from trunkline.host.chat.events import (
    CallFinished,
    CallProgressed,
    CallProposed,
    CallStarted,
    ChatEvent,
    ChatNotice,
    ContextUsage,
    TextReceived,
    TurnEnded,
)
from trunkline.host.chat.history import HistoryEntry, text_of
from trunkline.host.chat.toolbox import HOST_SERVER, HostToolError, parse_inner_call
from trunkline.host.models.interface import Block, TextBlock, ToolResultBlock, ToolUseBlock
from trunkline.host.upstreams.catalog.catalog import Catalog
from trunkline.host.upstreams.catalog.search import CALL_TOOL

__all__ = [
    "CallEnding",
    "EventJoiner",
    "LiveTurn",
    "Message",
    "Part",
    "call_part",
    "context_view",
    "event_view",
    "first_line",
    "page_context",
    "render_history",
]

#: A part of a message, and a message, as JSON values.
Part = dict[str, Any]
Message = dict[str, Any]

_NOTE = re.compile(r"\[Note from the host: (.*)\]\Z", re.S)
# Conversations saved by earlier versions have no URI here.
_ATTACHED = re.compile(r"\[The user attached this resource of the server .*?:(?: (.*))?\]\Z", re.S)
_CONTEXT = re.compile(r"\[Context from a page of the server (.*?), which the user allowed:\]\n", re.S)
_LONGEST_TEXT = 256 * 1024  # Characters of one part: a browser stays fast with that much.
_PREVIEW = 400  # Characters of a result, as in the events of a conversation.
_MOST_MESSAGES = 500  # Messages of a history: the latest.
_LONGEST_TITLE = 80  # Characters; a row of a list shows no more.
_TEXT_SECONDS = 0.05  # Between two events of text, and of progress.


class CallEnding(Struct, frozen=True):
    """The outcome of a model's call; the history itself holds only what the model saw."""

    state: str
    preview: str
    seconds: float | None = None


def page_context(server: str, text: str) -> TextBlock:
    """Return the content block with the context of a page (MCP Apps) for the model."""
    return TextBlock(f"[Context from a page of the server {server}, which the user allowed:]\n{text}")


def first_line(text: str) -> str:
    """Return the beginning of a text as one line."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_TITLE else f"{line[: _LONGEST_TITLE - 1]}…"


def context_view(usage: ContextUsage) -> dict[str, Any]:
    """Return the use of the model's context window as JSON."""
    parts: list[Part] = [
        {"name": "messages", "server": None, "tokens": usage.message_tokens},
        {"name": "system", "server": None, "tokens": usage.system_tokens},
        *({"name": share.server, "server": share.server, "tokens": share.tokens} for share in usage.servers),
    ]
    return {"window": usage.window_tokens, "used": usage.tokens, "parts": [part for part in parts if part["tokens"]]}


def render_history(
    entries: Sequence[HistoryEntry], catalog: Catalog, endings: Mapping[str, CallEnding]
) -> list[Message]:
    """Return the latest messages of a history; ``endings`` has the outcomes of calls, which the history lacks."""
    rendering = _Rendering(catalog, endings)
    for entry in entries[-_MOST_MESSAGES:]:
        rendering.add(entry)
    return rendering.messages


class _Rendering:
    """Builds the messages of a history, entry by entry."""

    def __init__(self, catalog: Catalog, endings: Mapping[str, CallEnding]) -> None:
        self.messages: list[Message] = []
        self._catalog = catalog
        self._endings = endings
        self._calls: dict[str, Part] = {}

    def add(self, entry: HistoryEntry) -> None:
        blocks = list(zip(entry.message.content, entry.servers, strict=False))
        if entry.message.role == "assistant":
            self._say("model", [part for block, server in blocks for part in self._of_model(block, server)])
            return
        for block, server in blocks:
            if isinstance(block, ToolResultBlock):
                self._end(block, server)
        parts = _of_user([pair for pair in blocks if not isinstance(pair[0], ToolResultBlock)])
        within = parts and all(part["type"] == "notice" for part in parts) and self.messages
        # A note of the host between two requests is part of the current turn.
        self._say(self.messages[-1]["role"] if within else "user", parts)

    def _say(self, role: str, parts: list[Part]) -> None:
        if not parts:
            return
        if self.messages and self.messages[-1]["role"] == role == "model":
            self.messages[-1]["parts"] += parts
        else:
            self.messages.append({"role": role, "parts": parts})

    def _of_model(self, block: Block, server: str | None) -> Iterable[Part]:
        if isinstance(block, TextBlock):
            yield _text(block.text, server)
        elif isinstance(block, ToolUseBlock):
            part = self._calls[block.id] = self._call(block)
            yield part

    def _call(self, block: ToolUseBlock) -> Part:
        name, arguments = block.name, block.arguments
        if name == CALL_TOOL and arguments is not None:
            try:
                name, arguments = parse_inner_call(arguments)
            except HostToolError:
                arguments = block.arguments
        item = self._catalog.by_wire["tool"].get(name)
        server, tool = (None, name) if item is None else (item.server, item.name)
        return call_part(block.id, server, tool, arguments, state="cancelled")

    def _end(self, block: ToolResultBlock, server: str | None) -> None:
        part = self._calls.get(block.id)
        if part is None:
            return
        if part["server"] is None and server is not None:
            # The server is gone or was renamed: take its name from the tool name that the model used.
            part["server"], part["tool"] = server, part["tool"].removeprefix(f"{server}__")
        ending = self._endings.get(block.id) or _ending(block)
        part.update(state=ending.state, preview=ending.preview, seconds=ending.seconds)


def _ending(block: ToolResultBlock) -> CallEnding:
    """Return the outcome of a call, derived from the text that was sent to the model."""
    text = text_of(block)
    state = "error" if block.is_error else "done"
    if block.is_error and text.startswith("Not allowed: "):
        state = "denied"
    elif block.is_error and text.startswith(("Cancelled", "Not called", "The result is lost")):
        state = "cancelled"
    return CallEnding(state, _clipped(text, _PREVIEW))


def call_part(
    call_id: str, server: str | None, tool: str, arguments: dict[str, Any] | None, *, state: str = "proposed"
) -> Part:
    """Return the part for a call."""
    return {
        "type": "call",
        "call_id": call_id,
        "server": server,
        "tool": tool,
        "arguments": arguments,
        "state": state,
        "preview": "",
        "seconds": None,
    }


def _of_user(blocks: Sequence[tuple[Block, str | None]]) -> list[Part]:
    parts: list[Part] = []
    attaching: str | None = None
    for block, server in blocks:
        if not isinstance(block, TextBlock):
            if attaching is None or server != attaching:
                parts.append({"type": "notice", "text": f"An attachment: {type(block).__name__.removesuffix('Block')}"})
            continue
        head = None if server is None else _ATTACHED.match(block.text)
        if head is not None:
            uri = head[1] or ""
            attaching = server
            name = uri.rstrip("/").rpartition("/")[2]
            parts.append({"type": "attachment", "server": server, "uri": uri, "name": name or uri})
        elif attaching is None or server != attaching:
            attaching = None
            parts.append(_of_host(block.text) or _text(block.text, server))
    return parts


def _of_host(text: str) -> Part | None:
    """Return the notice for a text that the host added to the user's message; None if the user wrote it."""
    note, context = _NOTE.match(text), _CONTEXT.match(text)
    if note is not None:
        return {"type": "notice", "text": note[1]}
    return None if context is None else {"type": "notice", "text": f"Context from a page of {context[1]} was added."}


def _text(text: str, server: str | None) -> Part:
    part: Part = {"type": "text", "text": _clipped(text, _LONGEST_TEXT)}
    # A prompt of a server; ``trunkline`` is the host itself.
    return part if server in (None, HOST_SERVER) else {**part, "server": server}


def _clipped(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


class LiveTurn:
    """The running turn: the user's message, and the text and calls of the model so far."""

    def __init__(self, user: list[Part]) -> None:
        """Start with the user's message."""
        self._user = user
        self._parts: list[Part] = []
        self._calls: dict[str, Part] = {}
        #: The outcomes of calls, for the history.
        self.endings: dict[str, CallEnding] = {}

    @property
    def messages(self) -> list[Message]:
        """The messages so far."""
        user = [{"role": "user", "parts": self._user}] if self._user else []
        return [*user, {"role": "model", "parts": self._parts}]

    def add(self, event: ChatEvent) -> None:
        """Add an event of the conversation."""
        match event:
            case TextReceived(text=text):
                self._say(text)
            case CallProposed(call_id=call_id, server=server, tool=tool, arguments=arguments):
                part = self._calls[call_id] = call_part(call_id, server, tool, arguments)
                self._parts.append(part)
            case CallStarted(call_id=call_id):
                self._update(call_id, state="running")
            case CallProgressed(call_id=call_id):
                progress = {"progress": event.progress, "total": event.total, "message": event.message}
                self._update(call_id, progress=progress)
            case CallFinished(call_id=call_id):
                ending = CallEnding(_state(event), event.preview, event.seconds)
                self.endings[call_id] = ending
                self._update(call_id, state=ending.state, preview=ending.preview, seconds=ending.seconds)
                self._calls.get(call_id, {}).pop("progress", None)
            case ChatNotice(text=text):
                self._parts.append({"type": "notice", "text": text})

    def _say(self, text: str) -> None:
        last = self._parts[-1] if self._parts else None
        if last is None or last["type"] != "text":
            self._parts.append({"type": "text", "text": text})
        elif len(last["text"]) < _LONGEST_TEXT:
            last["text"] = _clipped(last["text"] + text, _LONGEST_TEXT)

    def _update(self, call_id: str, **members: Any) -> None:
        part = self._calls.get(call_id)
        if part is not None:
            part.update(members)


def _state(event: CallFinished) -> str:
    if event.cancelled:
        return "cancelled"
    if event.denied:
        return "denied"
    return "error" if event.is_error else "done"


class EventJoiner:
    """Joins pieces of text, and of progress, to limit the number of events a second; keeps the order."""

    def __init__(self, publish: Callable[[dict[str, Any]], None]) -> None:
        """Publish with this function."""
        self._publish = publish
        self._text: list[str] = []
        self._progress: dict[str, dict[str, Any]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._at = 0.0

    def add(self, event: ChatEvent) -> None:
        """Publish an event, now or joined with the following ones."""
        if isinstance(event, TextReceived):
            self._text.append(event.text)
        elif isinstance(event, CallProgressed):
            self._progress[event.call_id] = event_view(event)
        else:
            self.put(event_view(event))
            return
        loop = asyncio.get_running_loop()
        if self._timer is None:
            self._timer = loop.call_at(max(loop.time(), self._at + _TEXT_SECONDS), self._flush)

    def put(self, event: dict[str, Any]) -> None:
        """Publish an event now, after the pending ones."""
        self._flush()
        self._publish(event)

    def close(self) -> None:
        """Publish the pending events."""
        self._flush()

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._text or self._progress:
            self._at = asyncio.get_running_loop().time()
        if self._text:
            text, self._text = "".join(self._text), []
            self._publish({"kind": "said", "text": text})
        progress, self._progress = self._progress, {}
        for each in progress.values():
            self._publish(each)


def event_view(event: ChatEvent) -> dict[str, Any]:
    """Return an event of a conversation as JSON, with its tag as ``kind``."""
    view: dict[str, Any] = msgspec.to_builtins(event)
    view = {"kind": view.pop("type"), **view}
    if isinstance(event, TurnEnded):
        view["context"] = context_view(event.context_usage)
        view["usage"] = {"input": event.usage.input_tokens, "output": event.usage.output_tokens}
        del view["context_usage"]
    return view

"""OpenAI's chat completions, as many other servers speak them too, both ways; no I/O.

Deviations of other servers are handled here: calls without ids or all of index 0, arguments that are objects, ``stop``
as the reason although tools are called, a whole message instead of a stream. Values of an unexpected type are ignored,
never treated as an error of ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from secrets import token_hex
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from trunkline.host.models.interface import (
    AUDIO_FORMATS,
    AudioBlock,
    Block,
    Finished,
    ImageBlock,
    ModelEvent,
    ModelMessage,
    ModelRequest,
    StopReason,
    TextBlock,
    TextDelta,
    ToolResultBlock,
    ToolSpec,
    ToolUseBegun,
    Traits,
    Usage,
    as_count,
    as_object,
    encode_json,
    parse_tool_call,
    result_blocks,
    sent_arguments,
)

__all__ = ["ChatAccumulator", "chat_body", "chunk_error", "data_url"]

_CHOICES: Mapping[str, str] = MappingProxyType({"auto": "auto", "any": "required", "none": "none"})
_STOPS: Mapping[str, StopReason] = MappingProxyType(
    {
        "stop": "end",
        "tool_calls": "tools",
        "function_call": "tools",
        "length": "length",
        "content_filter": "refusal",
    }
)


# --- the request -----------------------------------------------------------------------------------------------------


def chat_body(request: ModelRequest, *, model: str, traits: Traits, limit_member: str) -> dict[str, Any]:
    """Build the request body; servers use different names for the member that limits the answer."""
    messages: list[dict[str, Any]] = []
    if request.system:
        messages.append({"role": "system", "content": request.system})
    for message in request.messages:
        messages += _assistant(message) if message.role == "assistant" else _user(message, traits)
    body: dict[str, Any] = {
        "model": model,
        "messages": messages,
        "stream": True,
        "stream_options": {"include_usage": True},
        limit_member: request.max_tokens,
    }
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
        body["tool_choice"] = _choice(request.tool_choice)
    if request.stop_sequences:
        body["stop"] = list(request.stop_sequences)
    if request.temperature is not None and traits.temperature:
        body["temperature"] = request.temperature
    return body


def _tool(tool: ToolSpec) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
    return {"type": "function", "function": function}


def _choice(choice: str) -> Any:
    return _CHOICES.get(choice) or {"type": "function", "function": {"name": choice}}


def _assistant(message: ModelMessage) -> list[dict[str, Any]]:
    calls = [
        {
            "id": use.id,
            "type": "function",
            "function": {"name": use.name, "arguments": encode_json(sent_arguments(use)).decode()},
        }
        for use in message.tool_uses
    ]
    if not calls and not message.text:
        return []
    written: dict[str, Any] = {"role": "assistant", "content": message.text}
    if calls:
        written["tool_calls"] = calls
    return [written]


def _user(message: ModelMessage, traits: Traits) -> list[dict[str, Any]]:
    """Build the messages of a user turn: tool results first, each as a message, with their media right after them."""
    results: list[dict[str, Any]] = []
    parts: list[dict[str, Any]] = []
    for block in message.content:
        if isinstance(block, ToolResultBlock):
            text, media = _result(block, traits)
            results.append({"role": "tool", "tool_call_id": block.id, "content": text})
            if media:
                parts += [{"type": "text", "text": f"What the call {block.id} shows:"}, *media]
    parts += [part for block in message.content if (part := _part(block)) is not None]
    if not parts:
        return results
    if all(part["type"] == "text" for part in parts):
        # Not every server accepts parts, but each accepts a string.
        return [*results, {"role": "user", "content": "\n".join(part["text"] for part in parts)}]
    return [*results, {"role": "user", "content": parts}]


def _result(block: ToolResultBlock, traits: Traits) -> tuple[str, list[dict[str, Any]]]:
    """Return a tool result as text, and its media, which a tool message cannot contain."""
    texts = ["The call failed:"] if block.is_error else []
    media: list[dict[str, Any]] = []
    for each in result_blocks(block, traits):
        if isinstance(each, TextBlock):
            texts.append(each.text)
        else:
            part = _part(each)
            media += [part] if part is not None else []
    if media:
        texts.append("[What else it has is shown after the results.]")
    return "\n".join(texts) or "(nothing)", media


def _part(block: Block) -> dict[str, Any] | None:
    match block:
        case TextBlock():
            return {"type": "text", "text": block.text} if block.text else None
        case ImageBlock():
            return {"type": "image_url", "image_url": {"url": data_url(block)}}
        case AudioBlock():
            audio = {"data": block.data, "format": AUDIO_FORMATS[block.mime_type.lower()]}
            return {"type": "input_audio", "input_audio": audio}
        case _:
            return None


def data_url(block: ImageBlock) -> str:
    """Return an image as a data URL."""
    return f"data:{block.mime_type.lower()};base64,{block.data}"


# --- the answer ------------------------------------------------------------------------------------------------------


class _Call(Struct):
    """A tool call that is still being received."""

    index: int
    id: str
    name: str
    pieces: list[str]


class ChatAccumulator:
    """Accumulates an answer: feed it chunks, or one whole completion, then call ``finished``."""

    def __init__(self) -> None:
        """Start empty."""
        self._texts: list[str] = []
        self._calls: list[_Call] = []
        self._stop: str | None = None
        self._refused = False
        self._usage = Usage()
        self._model = ""
        #: Whether the provider marked the answer as complete.
        self.done = False

    def feed(self, chunk: Mapping[str, Any]) -> Iterator[ModelEvent]:
        """Process a chunk of the stream; yield the events that it means to us."""
        self._model = self._model or _text(chunk.get("model"))
        if isinstance(chunk.get("usage"), Mapping):
            self._usage = _usage(chunk["usage"])
        for choice in _objects(chunk.get("choices")):
            if choice.get("index", 0) != 0:
                continue
            delta = choice.get("delta", choice.get("message"))
            if isinstance(delta, Mapping):
                yield from self._add(delta)
            if isinstance(choice.get("finish_reason"), str):
                self._stop = choice["finish_reason"]
                self.done = True

    def _add(self, delta: Mapping[str, Any]) -> Iterator[ModelEvent]:
        refusal = _text(delta.get("refusal"))
        self._refused = self._refused or bool(refusal)
        text = _text(delta.get("content")) + refusal
        if text:
            self._texts.append(text)
            yield TextDelta(text)
        for piece in _objects(delta.get("tool_calls")):
            yield from self._call(piece)

    def _call(self, piece: Mapping[str, Any]) -> Iterator[ModelEvent]:
        function = piece.get("function")
        if not isinstance(function, Mapping):
            return
        index = piece["index"] if isinstance(piece.get("index"), int) else len(self._calls)
        call_id, name = _text(piece.get("id")), _text(function.get("name"))
        call = self._continued_call(index, call_id, name)
        if call is None:
            call = _Call(index, call_id, name, [])
            self._calls.append(call)
            yield ToolUseBegun(name)
        arguments = function.get("arguments")
        if arguments is not None:
            call.pieces.append(arguments if isinstance(arguments, str) else encode_json(arguments).decode())

    def _continued_call(self, index: int, call_id: str, name: str) -> _Call | None:
        """Return the call at this index that a chunk continues, or None.

        A different id starts a new call, and so does a name without an id.
        """
        for call in reversed(self._calls):
            if call.index == index:
                new = (call_id and call_id != call.id) or (name and not call_id)
                return None if new else call
        return None

    def finished(self) -> Finished:
        """Return the complete answer."""
        text = "".join(self._texts)
        blocks: list[Block] = [TextBlock(text)] if text else []
        taken: set[str] = set()
        for call in self._calls:
            call_id = call.id if call.id and call.id not in taken else f"call_{token_hex(8)}"
            taken.add(call_id)
            blocks.append(parse_tool_call(call_id, call.name, "".join(call.pieces)))
        return Finished(ModelMessage("assistant", tuple(blocks)), self._reason(), self._usage, self._model)

    def _reason(self) -> StopReason:
        stop = _STOPS.get(self._stop or "", "end")
        if self._refused:
            return "refusal"
        if stop in ("end", "tools"):
            return "tools" if self._calls else "end"
        return stop


def chunk_error(chunk: Mapping[str, Any]) -> Any:
    """Return the error that a chunk contains instead of a part of the answer, or None."""
    if chunk.get("error"):
        return chunk["error"]
    return chunk if chunk.get("object") == "error" else None


def _usage(usage: Mapping[str, Any]) -> Usage:
    parts = as_object(usage.get("prompt_tokens_details"))
    return Usage(
        as_count(usage.get("prompt_tokens")),
        as_count(usage.get("completion_tokens")),
        as_count(parts.get("cached_tokens")),
        as_count(parts.get("cache_write_tokens")),
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []

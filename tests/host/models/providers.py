"""Fake providers: a small HTTP server on this machine, and the wire format of each vendor."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from trunkline.host.models.interface import (
    Model,
    ModelError,
    ModelEvent,
    ModelMessage,
    ModelRequest,
    TextBlock,
    ToolSpec,
)
from trunkline.host.models.selection import open_model

__all__ = [
    "ANTHROPIC",
    "CHAT",
    "COMPATIBLE",
    "DIALECTS",
    "HELLO",
    "KEY",
    "LOOK",
    "RESPONSES",
    "Called",
    "Dialect",
    "Played",
    "Reply",
    "cut_short",
    "dialect_of",
    "opened",
    "played",
]

KEY = "sk-test-0123456789abcdef0123456789"
HELLO = ModelMessage("user", (TextBlock("Hello?"),))
LOOK = ToolSpec("look", "Looks.", {"type": "object"})


class Reply(NamedTuple):
    """The response to one request: parts of a body, sent one by one."""

    parts: Sequence[bytes] = ()
    status: int = 200
    kind: str = "text/event-stream"
    headers: Sequence[tuple[str, str]] = ()
    #: What happens after the last part: the body ends, the connection breaks, it waits, or the last part is repeated.
    then: str = "end"


class Seen(NamedTuple):
    """A request as it was received."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class Played:
    """A fake provider: its responses, and the requests it received."""

    def __init__(self, replies: Sequence[Reply]) -> None:
        """Answer with these responses in order; the last one is repeated."""
        self.replies = list(replies)
        self.seen: list[Seen] = []
        self.hung_up = asyncio.Event()
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        try:
            while await self._exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            self.hung_up.set()
        finally:
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {line.split(": ", 1)[0].lower(): line.split(": ", 1)[1] for line in head[1:] if line}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        self.seen.append(Seen(head[0].split()[1], headers, json.loads(body)))
        reply = self.replies[0] if len(self.replies) == 1 else self.replies.pop(0)
        fields = [("Content-Type", reply.kind), ("Transfer-Encoding", "chunked"), *reply.headers]
        lines = [f"HTTP/1.1 {reply.status} Played", *(f"{name}: {value}" for name, value in fields)]
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        for part in reply.parts:
            await _send(writer, part)
        return await self._end(reply, reader, writer)

    async def _end(self, reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        if reply.then == "end":
            writer.write(b"0\r\n\r\n")
            await writer.drain()
            return True
        while reply.then == "repeat":
            await _send(writer, reply.parts[-1])
        if reply.then == "wait":
            await reader.read()
            self.hung_up.set()
        writer.transport.abort()
        return False


async def _send(writer: asyncio.StreamWriter, part: bytes) -> None:
    writer.write(b"%x\r\n%b\r\n" % (len(part), part))
    await writer.drain()


@asynccontextmanager
async def played(*replies: Reply) -> AsyncIterator[Played]:
    """Run a fake provider."""
    provider = Played(replies)
    tasks: set[asyncio.Task[None]] = set()

    def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.ensure_future(provider.serve(reader, writer)))

    server = await asyncio.start_server(accepted, "127.0.0.1", 0)
    provider.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield provider
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def opened(dialect: Dialect, *replies: Reply, **more: Any) -> AsyncIterator[tuple[Model, Played]]:
    """Open a model at a fake provider that answers with these responses; skip the test if its package is missing."""
    async with played(*replies) as provider:
        model = dialect_of(dialect).open(provider.url, **more)
        try:
            yield model, provider
        finally:
            await model.aclose()


# --- what a vendor's wire looks like ---------------------------------------------------------------------------------


class Called(NamedTuple):
    """A tool call to answer with, its arguments in the pieces they are sent in."""

    id: str
    name: str
    pieces: Sequence[str]


class Dialect(NamedTuple):
    """How one kind of provider is called and how it answers."""

    name: str
    model: str
    #: The package that must be installed.
    needs: str
    #: The end of the provider's URL, and the path that is requested.
    base: str
    path: str
    answer: Callable[[Sequence[str], Sequence[Called], str], list[bytes]]
    refusal: Callable[[str, str], dict[str, Any]]
    #: Further configuration.
    options: Mapping[str, Any] = MappingProxyType({})

    def open(self, url: str, **more: Any) -> Model:
        """Open a model at a fake provider."""
        pace = {"tries": 1, "first_wait": 0.001, "idle_seconds": 60.0, **more.pop("pace", {})}
        table = {"url": url + self.base, "key": KEY, "pace": pace, **self.options, **more}
        return open_model(self.model, environ={}, options=table)

    def reply(
        self, texts: Sequence[str] = (), calls: Sequence[Called] = (), *, stop: str = "end", then: str = "end"
    ) -> Reply:
        """Answer with texts and calls."""
        return Reply(self.answer(texts, calls, stop), then=then)

    def refuse(self, status: int, kind: str, words: str, **headers: str) -> Reply:
        """Answer with an error."""
        fields = [(name.replace("_", "-"), value) for name, value in headers.items()]
        return Reply([json.dumps(self.refusal(kind, words)).encode()], status, "application/json", fields)


def _sse(data: Any, event: str | None = None) -> bytes:
    name = f"event: {event}\n" if event else ""
    return f"{name}data: {json.dumps(data)}\n\n".encode()


def messages(texts: Sequence[str], calls: Sequence[Called], stop: str) -> list[bytes]:
    """Answer as Anthropic does, reasoning first."""
    usage = {"input_tokens": 5, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 1, "output_tokens": 1}
    head: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-played"}
    unfinished: dict[str, Any] = {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**head, **unfinished}},
        {"type": "ping"},
        *_block(0, {"type": "thinking", "thinking": "", "signature": ""}, "thinking_delta", "thinking", ["Hm", "m."]),
    ]
    events.insert(
        -1, {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "signed"}}
    )
    if texts:
        events += _block(1, {"type": "text", "text": ""}, "text_delta", "text", texts)
    for index, call in enumerate(calls, 2):
        begun = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
        events += _block(index, begun, "input_json_delta", "partial_json", call.pieces)
    reason = {"end": "tool_use" if calls else "end_turn", "length": "max_tokens", "refusal": "refusal"}[stop]
    events.append(
        {
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": None},
            "usage": {"output_tokens": 7},
        }
    )
    events.append({"type": "message_stop"})
    return [_sse(event, event["type"]) for event in events]


def _block(index: int, head: dict[str, Any], kind: str, member: str, pieces: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": head},
        *({"type": "content_block_delta", "index": index, "delta": {"type": kind, member: piece}} for piece in pieces),
        {"type": "content_block_stop", "index": index},
    ]


def chat(texts: Sequence[str], calls: Sequence[Called], stop: str) -> list[bytes]:
    """Answer as OpenAI's chat completions do."""
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": text} for text in texts]
    for index, call in enumerate(calls):
        function = {"name": call.name, "arguments": ""}
        deltas.append({"tool_calls": [{"index": index, "id": call.id, "type": "function", "function": function}]})
        deltas += [{"tool_calls": [{"index": index, "function": {"arguments": piece}}]} for piece in call.pieces]
    reason = {"end": "tool_calls" if calls else "stop", "length": "length", "refusal": "content_filter"}[stop]
    usage = {"prompt_tokens": 10, "completion_tokens": 7, "total_tokens": 17}
    usage_with_details = {**usage, "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 1}}
    chunks = [
        *(_chunk([{"index": 0, "delta": delta, "finish_reason": None}]) for delta in deltas),
        _chunk([{"index": 0, "delta": {}, "finish_reason": reason}]),
        {**_chunk([]), "usage": usage_with_details},
    ]
    return [*map(_sse, chunks), b"data: [DONE]\n\n"]


def _chunk(choices: list[Any]) -> dict[str, Any]:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "played-1"}
    return {**head, "choices": choices, "usage": None}


def responses(texts: Sequence[str], calls: Sequence[Called], stop: str) -> list[bytes]:
    """Answer as OpenAI's Responses API does, reasoning first."""
    thought: dict[str, Any] = {
        "id": "rs_1",
        "type": "reasoning",
        "summary": [],
        "encrypted_content": "sealed",
        "status": None,
    }
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": _response("in_progress", stop)},
        {"type": "response.output_item.added", "output_index": 0, "item": thought},
        {"type": "response.output_item.done", "output_index": 0, "item": thought},
    ]
    if texts:
        content = [{"type": "output_text", "text": "".join(texts), "annotations": []}]
        item = {"id": "m_1", "type": "message", "role": "assistant", "status": "completed", "content": content}
        place = {"item_id": "m_1", "output_index": 1, "content_index": 0}
        events.append({"type": "response.output_item.added", "output_index": 1, "item": {**item, "content": []}})
        events += [{"type": "response.output_text.delta", **place, "delta": text, "logprobs": []} for text in texts]
        events.append({"type": "response.output_item.done", "output_index": 1, "item": item})
    for index, call in enumerate(calls, 2):
        item = {"id": f"fc_{index}", "type": "function_call", "call_id": call.id, "name": call.name}
        place = {"item_id": item["id"], "output_index": index}
        events.append({"type": "response.output_item.added", "output_index": index, "item": {**item, "arguments": ""}})
        events += [{"type": "response.function_call_arguments.delta", **place, "delta": piece} for piece in call.pieces]
        done = {**item, "arguments": "".join(call.pieces), "status": "completed"}
        events.append({"type": "response.output_item.done", "output_index": index, "item": done})
    status = "completed" if stop == "end" else "incomplete"
    events.append({"type": f"response.{status}", "response": _response(status, stop)})
    return [_sse({**event, "sequence_number": number}, event["type"]) for number, event in enumerate(events)]


def _response(status: str, stop: str) -> dict[str, Any]:
    reasons = {"length": "max_output_tokens", "refusal": "content_filter"}
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "gpt-played",
        "status": status,
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "incomplete_details": {"reason": reasons[stop]} if stop in reasons else None,
        "usage": {
            "input_tokens": 10,
            "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 1},
            "output_tokens": 7,
            "output_tokens_details": {"reasoning_tokens": 2},
            "total_tokens": 17,
        },
    }


def _anthropic_refusal(kind: str, words: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": words}}


def _openai_refusal(kind: str, words: str) -> dict[str, Any]:
    return {"error": {"message": words, "type": "invalid_request_error", "param": None, "code": kind}}


ANTHROPIC = Dialect(
    "anthropic",
    "anthropic:claude-sonnet-5",
    "anthropic",
    "",
    "/v1/messages",
    messages,
    _anthropic_refusal,
)
RESPONSES = Dialect("responses", "openai:gpt-6.1-terra", "openai", "/v1", "/v1/responses", responses, _openai_refusal)
CHAT = Dialect(
    "chat", "openai:gpt-4.1", "openai", "/v1", "/v1/chat/completions", chat, _openai_refusal, {"api": "chat"}
)
COMPATIBLE = Dialect(
    "compatible",
    "compatible:played",
    "aiohttp",
    "/v1",
    "/v1/chat/completions",
    chat,
    _openai_refusal,
    {"traits": {"images": True}},
)
DIALECTS = [pytest.param(each, id=each.name) for each in (ANTHROPIC, RESPONSES, CHAT, COMPATIBLE)]


def dialect_of(each: Dialect) -> Dialect:
    """Return a wire format if its package is installed; otherwise skip the test."""
    pytest.importorskip(each.needs, reason=f"the package {each.needs} is not installed")
    return each


async def cut_short(model: Model, request: ModelRequest) -> tuple[list[ModelEvent], ModelError | None]:
    """Return the events of a turn, and how it failed."""
    events: list[ModelEvent] = []
    try:
        async for event in model.stream(request):
            events.append(event)  # noqa: PERF401 - what came before the failure counts
    except ModelError as error:
        return events, error
    return events, None

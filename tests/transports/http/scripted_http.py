"""An HTTP server played by a table of answers, over real sockets and without any HTTP library.

Each request is looked up by the JSON-RPC method of its body, or else by its verb. What stands there is a result, a
``Status``, an async function that is given the request and writes whatever bytes it likes, or a list of these, taken in
turn with the last one repeated.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Struct

from trunkline.protocol.revisions import NEWEST, NEWEST_HANDSHAKE
from trunkline.types import RequestId

__all__ = [
    "CAPABILITIES",
    "LISTENING",
    "TOOLS",
    "Got",
    "HttpScript",
    "Reply",
    "Status",
    "Writer",
    "break_off",
    "handshake_script",
    "old_script",
    "stateless_script",
    "streaming",
]

CAPABILITIES: Mapping[str, Any] = {
    "tools": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "prompts": {},
}
TOOLS: Mapping[str, Any] = {"tools": [{"name": "add", "inputSchema": {"type": "object"}}]}


class Got(Struct):
    """A request as it came."""

    verb: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def message(self) -> dict[str, Any]:
        """The JSON-RPC message in the body; empty if there is none."""
        message = json.loads(self.body) if self.body else {}
        return message if isinstance(message, dict) else {}

    @property
    def id(self) -> RequestId:
        """The id of the message."""
        id: RequestId = self.message["id"]
        return id

    @property
    def method(self) -> str | None:
        """The method of the message."""
        method: str | None = self.message.get("method")
        return method


class Status(Struct):
    """An answer with a status and any body."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = {}
    type: str | None = None


class Writer:
    """Writes the answer to one request."""

    def __init__(self, stream: asyncio.StreamWriter) -> None:
        """Write to a connection."""
        self._stream = stream
        self.open = False

    def raw(self, data: bytes) -> None:
        """Write any bytes."""
        self._stream.write(data)

    def status(self, answer: Status) -> None:
        """Write a whole answer."""
        headers = {**answer.headers, "Content-Length": str(len(answer.body))}
        if answer.type is not None:
            headers["Content-Type"] = answer.type
        self.raw(_head(answer.status, headers) + answer.body)

    def json(self, message: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        """Write a message as a whole answer."""
        body = json.dumps(message).encode()
        self.status(Status(status, body, headers or {}, "application/json; charset=utf-8"))

    def result(self, got: Got, result: Any, headers: Mapping[str, str] | None = None) -> None:
        """Answer a request."""
        self.json({"jsonrpc": "2.0", "id": got.id, "result": result}, headers=headers)

    def stream(self, headers: Mapping[str, str] | None = None) -> None:
        """Begin a stream of events; the end of the connection is its end."""
        self.open = True
        self.raw(_head(200, {**(headers or {}), "Content-Type": "text/event-stream", "Connection": "close"}))

    def event(self, message: Any = None, **fields: Any) -> None:
        """Write an event; without a message its data is empty."""
        data = b"" if message is None else json.dumps(message).encode()
        lines = b"".join(b"%s: %s\n" % (name.encode(), str(value).encode()) for name, value in fields.items())
        self.raw(lines + b"data: %s\n\n" % data)

    async def until_left(self) -> None:
        """Wait until the client has closed the connection."""
        await self._stream.drain()
        await self.left.wait()

    #: Set when the client closes.
    left: asyncio.Event

    async def flush(self) -> None:
        """Send what was written."""
        await self._stream.drain()

    def break_off(self) -> None:
        """Cut the connection."""
        self._stream.transport.abort()


Reply = Callable[[Got, Writer], Awaitable[None]]


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} Some Reason", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


class HttpScript:
    """A server that answers from a table."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        """Set the table of replies; it may be changed while the script runs."""
        self.table: dict[str, Any] = dict(table)
        self.requests: list[Got] = []
        self.url = ""
        self.changed = asyncio.Event()
        self._turns: dict[str, int] = {}
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self.connections = 0
        self.port = 0

    async def __aenter__(self) -> HttpScript:
        """Listen, on the port of before if there was one."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Stop, and cut all connections."""
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    # --- what came ---------------------------------------------------------------------------------------------------

    @property
    def names(self) -> list[str]:
        """The methods of what was posted, and the verbs of all else, in order."""
        return [got.method or got.verb for got in self.requests]

    def of(self, name: str) -> list[Got]:
        """The requests with a method or verb."""
        return [got for got in self.requests if name in (got.method, got.verb)]

    async def until(self, condition: Callable[[], Any]) -> None:
        """Wait until a condition holds that only requests can make true."""
        while not condition():
            self.changed.clear()
            await self.changed.wait()

    # --- serving -----------------------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, stream: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            while (got := await _read(reader)) is not None:
                self.requests.append(got)
                self.changed.set()
                if not await self._reply(got, reader, stream):
                    break
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            stream.close()

    async def _reply(self, got: Got, reader: asyncio.StreamReader, stream: asyncio.StreamWriter) -> bool:
        writer = Writer(stream)
        writer.left = asyncio.Event()
        answer = self._answer(got)
        if callable(answer):
            watch = asyncio.ensure_future(_watch(reader, writer))
            self._tasks.add(watch)
            try:
                await answer(got, writer)
            finally:
                watch.cancel()
                await asyncio.gather(watch, return_exceptions=True)
        elif isinstance(answer, Status):
            writer.status(answer)
        elif "id" in got.message:
            writer.result(got, answer)
        else:
            writer.status(Status(202))
        await stream.drain()
        return not writer.open

    def _answer(self, got: Got) -> Any:
        name = got.method if got.method in self.table else got.verb
        answer = self.table.get(name, Status(405) if got.verb != "POST" else Status(202))
        if isinstance(answer, list):
            turn = self._turns.get(name, 0)
            self._turns[name] = turn + 1
            answer = answer[min(turn, len(answer) - 1)]
        return answer


async def _watch(reader: asyncio.StreamReader, writer: Writer) -> None:
    """Wait for a disconnect while an answer is being written; clients do not pipeline here."""
    if not await reader.read(1):
        writer.left.set()


async def _read(reader: asyncio.StreamReader) -> Got | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.rstrip("\r\n").split("\r\n")
    verb, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Got(verb, path, headers, body)


# --- tables ----------------------------------------------------------------------------------------------------------


def stateless_script(table: Mapping[str, Any] | None = None) -> HttpScript:
    """Make a server of the stateless era."""
    discovered = {
        "resultType": "complete",
        "supportedVersions": [NEWEST.name],
        "capabilities": CAPABILITIES,
        "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "scripted", "version": "1"}},
    }
    called = {"resultType": "complete", "content": [{"type": "text", "text": "3"}]}
    return HttpScript({"server/discover": discovered, "tools/list": TOOLS, "tools/call": called, **(table or {})})


def old_script(table: Mapping[str, Any] | None = None, *, refusal: Status | None = None) -> HttpScript:
    """Make a server that knows neither era over POST: it refuses every POST alike."""
    return HttpScript({"POST": refusal or Status(405, b"Method Not Allowed"), **(table or {})})


def streaming(*parts: Any, stay: bool = False, left: asyncio.Event | None = None, **fields: Any) -> Reply:
    """Return a reply that is a stream of parts: bytes as they are, messages as events with these fields.

    A part may be a function that makes one for the request. The stream ends at once, or with ``stay`` when the client
    leaves; ``left`` is then set.
    """

    async def reply(got: Got, writer: Writer) -> None:
        writer.stream()
        for part in parts:
            made = part(got) if callable(part) else part
            if isinstance(made, bytes):
                writer.raw(made)
            else:
                writer.event(made, **fields)
        await writer.flush()
        if stay or left is not None:
            await writer.until_left()
        if left is not None:
            left.set()

    return reply


async def break_off(got: Got, writer: Writer) -> None:
    """Cut the connection instead of an answer."""
    writer.break_off()


#: A GET that is answered with a stream on which nothing comes.
LISTENING = streaming(stay=True)


def handshake_script(
    table: Mapping[str, Any] | None = None,
    *,
    session: str | None = "session-1",
    revision: str = NEWEST_HANDSHAKE.name,
) -> HttpScript:
    """Make a server of the handshake era; its GET is refused unless the table says otherwise."""
    agreed = {"protocolVersion": revision, "capabilities": CAPABILITIES, "serverInfo": {"name": "old", "version": "1"}}

    async def initialize(got: Got, writer: Writer) -> None:
        writer.result(got, agreed, {} if session is None else {"Mcp-Session-Id": session})

    return HttpScript(
        {
            "server/discover": Status(400, b"Bad Request: no session"),
            "initialize": initialize,
            "tools/list": TOOLS,
            "tools/call": {"content": [{"type": "text", "text": "3"}]},
            "ping": {},
            "logging/setLevel": {},
            "DELETE": Status(200),
            **(table or {}),
        }
    )

"""A server played by a table, reached over HTTP: what a client of ours meets on a socket, down to the bytes.

It speaks HTTP by itself, so that nothing of ours judges what a client sends. An answer is one JSON body, unless
something was said before it on the same response, which makes that a stream. What answers nothing goes where the
revision has it go: onto the response of a request that waits, else onto the stream that the client opened, else it
waits for either. A client that closes the response of a waiting request has cancelled it, where there is no other way
to say so; that is noted as if it had been said.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from tests.interaction.rows import STATELESS
from tests.interaction.script import Failure, Script
from trunkline import Client

__all__ = ["SESSION", "Asked", "PairScript", "Response", "WebScript"]

SESSION = "session-of-a-script"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
STATUSES: Mapping[int, int] = {-32601: 404, -32600: 400, -32602: 400, -32020: 400, -32021: 400, -32022: 400}
REASONS: Mapping[int, str] = {200: "OK", 202: "Accepted", 204: "No Content", 400: "Bad Request", 404: "Not Found"}


class Asked(Struct, frozen=True):
    """One HTTP request of the client."""

    verb: str
    target: str
    headers: Mapping[str, str]
    body: bytes = b""

    @property
    def message(self) -> Any:
        """What was posted."""
        return json.loads(self.body)


class Response:
    """An HTTP response that may become a stream."""

    def __init__(self, writer: asyncio.StreamWriter, id: Any = None) -> None:
        self._writer = writer
        self.id = id
        self.streaming = False
        self.done = False

    def plain(self, status: int, body: bytes = b"", **headers: str) -> bool:
        """Answer in one piece; give True, as what answered a request does."""
        kind = "content-type: application/json\r\n" if body else ""
        extra = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        line = f"HTTP/1.1 {status} {REASONS.get(status, 'No')}\r\n{kind}{extra}content-length: {len(body)}\r\n\r\n"
        self._writer.write(line.encode() + body)
        self.done = True
        return True

    def event(self, data: bytes, *, event: str = "message", id: str | None = None, retry: int | None = None) -> None:
        """Add an event to the stream, which begins with the first."""
        self.begin()
        fields = ([] if id is None else [f"id: {id}"]) + ([] if retry is None else [f"retry: {retry}"])
        head = "".join(f"{field}\n" for field in [f"event: {event}", *fields])
        self._writer.write(head.encode() + b"data: " + data + b"\n\n")

    def begin(self, **headers: str) -> None:
        """Begin the stream."""
        if not self.streaming:
            self.streaming = True
            extra = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
            line = f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{extra}connection: close\r\n\r\n"
            self._writer.write(line.encode())

    def raw(self, data: bytes) -> None:
        """Write bytes as they are."""
        self._writer.write(data)

    def end(self) -> None:
        """End the stream, and the connection with it."""
        self.done = True
        self._writer.close()

    def on(self, writer: asyncio.StreamWriter) -> bool:
        """Return whether it is on a connection."""
        return self._writer is writer


class WebScript(Script):
    """A scripted server over Streamable HTTP."""

    def __init__(self, revision: str, table: Mapping[str, Any], **setting: Any) -> None:
        """Listen from the first client on."""
        super().__init__(revision, table, **setting)
        #: Every HTTP request that came, in order.
        self.asked: list[Asked] = []
        #: Is shown each request first, and says whether it has answered it.
        self.intercept: Callable[[Asked, Response], object] | None = None
        #: The id of the session that it gives; None for none.
        self.session: str | None = SESSION
        #: Whether answers come on a stream although nothing came before them.
        self.streamed = False
        #: Where the old transport wants messages posted to.
        self.address = "/messages?of=this"
        #: The requests that wait for their answer, and the stream that the client opened.
        self.waiting: list[Response] = []
        self.standing: Response | None = None
        self._unsaid: list[bytes] = []
        self._writers: set[asyncio.StreamWriter] = set()
        self._listening: asyncio.Task[None] | None = None
        self._socket: socket.socket | None = None

    @property
    def url(self) -> str:
        """Where it is reached; it listens from now on."""
        if self._socket is None:
            # With its protocol named, small writes are not held back: asyncio looks at that.
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
            self._socket.bind(("127.0.0.1", 0))
            self._listening = asyncio.get_running_loop().create_task(self._listen(self._socket))
            # A task that is cancelled before it ran cleans nothing up.
            self._listening.add_done_callback(self._stopped)
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}/mcp"

    def client(self, **options: Any) -> Client:
        """Return a client of this server, with the script's revision by default."""
        return Client(self.url, **{"revision": self.revision, **options})

    # --- as the test's own side --------------------------------------------------------------------------------------

    def say(self, message: object) -> None:
        """Send JSON, or text or bytes as they are, where it belongs."""
        text = message if isinstance(message, str | bytes) else json.dumps(message)
        data = text if isinstance(text, bytes) else text.encode()
        response = self._answered(message)
        if response is not None:
            self._finish(response, data, 200)
            return
        place = self._place(message)
        if place is None:
            self._unsaid.append(data)
        else:
            place.event(data)

    def end(self) -> None:
        """Go away."""
        if self._listening is not None:
            self._listening.cancel()
        for writer in self._writers:
            writer.close()

    async def until_asked(self, verb: str) -> None:
        """Wait for a request with a verb."""
        while all(asked.verb != verb for asked in self.asked):
            self._changed.clear()
            await self._changed.wait()

    def _answered(self, message: object) -> Response | None:
        """Find the request that a message answers."""
        single = message[0] if isinstance(message, list) and message else message
        if not isinstance(single, dict) or "method" in single or "id" not in single:
            return None
        return next((each for each in self.waiting if each.id == single["id"]), None)

    def _place(self, message: object) -> Response | None:
        """Find the stream for a message that answers nothing."""
        params = message.get("params") if isinstance(message, dict) else None
        meta = params.get("_meta") if isinstance(params, dict) else None
        named = meta.get(SUBSCRIPTION) if isinstance(meta, dict) else None
        subscribed = [each for each in self.waiting if named is not None and each.id == named]
        return next(iter([*subscribed, *reversed(self.waiting)]), self.standing)

    def _finish(self, response: Response, data: bytes, status: int) -> None:
        self.waiting.remove(response)
        session = self._session_for(data)
        if self.streamed and status == 200:
            response.begin(**session)
        if response.streaming:
            response.event(data)
            response.end()
        else:
            response.plain(status, data, **session)

    def _session_for(self, data: bytes) -> dict[str, str]:
        """Return the header with the session that a response opens, if it opens one."""
        opens = b'"protocolVersion"' in data and b'"serverInfo"' in data and self.revision not in STATELESS
        return {"mcp_session_id": self.session} if opens and self.session is not None else {}

    # --- HTTP --------------------------------------------------------------------------------------------------------

    async def _listen(self, listening: socket.socket) -> None:
        server = await asyncio.start_server(self._serve, sock=listening)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            server.close()
            for writer in list(self._writers):
                writer.close()

    def _stopped(self, _: object) -> None:
        if self._socket is not None:
            self._socket.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        self.closed.clear()
        try:
            while (asked := await _read(reader)) is not None:
                self.asked.append(asked)
                response = Response(writer)
                if self.intercept is None or not self.intercept(asked, response):
                    self.arrived(asked, response)
                self._changed.set()
        finally:
            self._hung_up(writer)
            writer.close()

    def arrived(self, asked: Asked, response: Response) -> None:
        """Handle a request in the form of the transport."""
        if asked.verb == "POST":
            self._posted(json.loads(asked.body), response)
        elif asked.verb == "GET" and self.revision not in STATELESS:
            response.begin()
            self._stand(response)
        else:
            response.plain(204 if asked.verb == "DELETE" else 405)

    def _posted(self, message: Any, response: Response) -> None:
        self.received.append(message)
        if "method" not in message or "id" not in message:
            response.plain(202)
            return
        response.id = message["id"]
        self.waiting.append(response)
        self._flush(response)
        asyncio.get_running_loop().call_soon(self._requested, message)

    def _stand(self, response: Response) -> None:
        self.standing = response
        self._flush(response)

    def _flush(self, response: Response) -> None:
        unsaid, self._unsaid = self._unsaid, []
        for data in unsaid:
            response.event(data)

    def _hung_up(self, writer: asyncio.StreamWriter) -> None:
        self._writers.discard(writer)
        lost = [response for response in self.waiting if response.on(writer)]
        for response in lost:
            self.waiting.remove(response)
            if self.revision in STATELESS:
                params = {"requestId": response.id}
                self.received.append({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
        if self.standing is not None and self.standing.on(writer):
            self.standing = None
        if not self._writers:
            self.closed.set()
        self._changed.set()

    def _fail(self, request: Mapping[str, Any], failure: Failure) -> None:
        error = {"code": failure.code, "message": failure.message}
        error |= {} if failure.data is None else {"data": failure.data}
        data = json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error}).encode()
        status = STATUSES.get(failure.code, 200) if self.revision in STATELESS else 200
        for response in [each for each in self.waiting if each.id == request["id"]]:
            self._finish(response, data, status)


class PairScript(WebScript):
    """A scripted server over the transport of the first revision."""

    def client(self, **options: Any) -> Client:
        """Return a client that knows the transport."""
        entry = {"type": "sse", "url": self.url}
        return Client(entry, **{"revision": self.revision, **options})

    def say(self, message: object) -> None:
        """Send JSON, or text or bytes as they are, on the stream."""
        text = message if isinstance(message, str | bytes) else json.dumps(message)
        data = text if isinstance(text, bytes) else text.encode()
        if self.standing is None:
            self._unsaid.append(data)
        else:
            self.standing.event(data)

    def arrived(self, asked: Asked, response: Response) -> None:
        """Handle a request in the form of the transport."""
        if asked.verb == "GET":
            response.event(self.address.encode(), event="endpoint")
            self._stand(response)
            return
        message = json.loads(asked.body)
        self.received.append(message)
        response.plain(202)
        if "method" in message and "id" in message:
            asyncio.get_running_loop().call_soon(self._requested, message)

    def _fail(self, request: Mapping[str, Any], failure: Failure) -> None:
        Script._fail(self, request, failure)


async def _read(reader: asyncio.StreamReader) -> Asked | None:
    """Read a request; None at the end of the connection."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, *fields = head.rstrip("\r\n").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    verb, target, _ = line.split(" ")
    return Asked(verb, target, headers, body)

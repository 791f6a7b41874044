"""The raw client's HTTP: a server of ours on a socket, and the two ways to reach it, in the same event loop.

``Streamable`` posts each message and merges all that comes back, on whichever response, into the peer's one inbox.
``OldPair`` reads everything from one stream. Both keep every HTTP exchange, so that a test can look at statuses and
headers. A message counts as said once the server has read it: a wrapper around the application tells.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol
from urllib.parse import urljoin

import aiohttp
from msgspec import Struct

from tests.interaction.rows import SINCE_2025_06, STATELESS
from trunkline import Server
from trunkline.transports.http.server.serve import serve

__all__ = ["Event", "OldPair", "Reply", "Streamable", "headers_of", "read_events", "served"]

ACCEPT = "application/json, text/event-stream"
MARK = "x-raw-number"
META = "io.modelcontextprotocol/"
#: Which member of the params is mirrored in a header, by method.
NAMED: Mapping[str, str] = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    **dict.fromkeys(("tasks/get", "tasks/update", "tasks/cancel"), "taskId"),
}


class Inbox(Protocol):
    """Who takes what came."""

    revision: str

    def take(self, data: bytes) -> None: ...


class Event(Struct, frozen=True):
    """One event of a stream."""

    data: bytes
    id: str | None = None
    event: str = "message"
    retry: int | None = None


class Reply(Struct):
    """One HTTP response, as far as it came."""

    verb: str
    #: Set when its head came, when its first event did, and when its first message did.
    begun: asyncio.Event
    told: asyncio.Event
    spoken: asyncio.Event
    status: int = 0
    headers: Mapping[str, str] = {}
    body: bytes = b""
    events: list[Event] = []
    #: Whether it came to its end.
    finished: bool = False

    @property
    def kind(self) -> str:
        """The content type without parameters."""
        return self.headers.get("Content-Type", "").partition(";")[0]

    @property
    def messages(self) -> list[Any]:
        """The messages it brought."""
        if self.kind == "text/event-stream":
            return [json.loads(event.data) for event in self.events if event.data and event.event == "message"]
        return [json.loads(self.body)] if self.body else []


async def read_events(content: aiohttp.StreamReader) -> AsyncIterator[Event]:
    """Read events as a browser would."""
    fields: dict[str, Any] = {}
    buffer = b""
    async for part in content.iter_any():
        *lines, buffer = (buffer + part).split(b"\n")
        for line in lines:
            name, _, value = line.rstrip(b"\r").partition(b":")
            value = value.removeprefix(b" ")
            if not line.rstrip(b"\r"):
                if fields:
                    yield Event(b"\n".join(fields.pop("data", [])), **fields)
                fields = {}
            elif name == b"data":
                fields.setdefault("data", []).append(value)
            elif name == b"retry":
                fields["retry"] = int(value)
            elif name in (b"id", b"event"):
                fields[name.decode()] = value.decode()


@contextlib.asynccontextmanager
async def served(server: Server, **options: Any) -> AsyncIterator[tuple[str, Any]]:
    """Run a server on a socket of its own; give its URL and its application, which notes what it has read."""
    endpoint = server.asgi(**options)
    app = Noting(endpoint)
    started: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    stopping = asyncio.Event()
    running = asyncio.create_task(
        serve(app, limits=server.limits, port=0, log_level=None, started=started.set_result, stopping=stopping)
    )
    try:
        yield f"{await started}/mcp", app
    finally:
        await endpoint.aclose()
        stopping.set()
        await running
        from tests.interaction.wire import end_threads

        end_threads(server)


class Noting:
    """An application around another that tells when a body was read."""

    def __init__(self, app: Any) -> None:
        """Stand around an application."""
        self.app = app
        self.path = app.path
        self._read: dict[bytes, asyncio.Event] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        mark = dict(scope["headers"]).get(MARK.encode()) if scope["type"] == "http" else None
        if mark is None:
            await self.app(scope, receive, send)
            return

        async def noting() -> Any:
            message = await receive()
            if not message.get("more_body"):
                self.read(mark).set()
            return message

        await self.app(scope, noting, send)

    def read(self, mark: bytes) -> asyncio.Event:
        """Return the event that a body was read."""
        return self._read.setdefault(mark, asyncio.Event())

    def __getattr__(self, name: str) -> Any:
        return getattr(self.app, name)


class _Web:
    """What both ways share: a server, an HTTP client, and a list of all that came."""

    def __init__(self, server: Server, options: Mapping[str, Any]) -> None:
        self._stack = contextlib.AsyncExitStack()
        self._server = server
        self._options = options
        self._tasks: set[asyncio.Task[Any]] = set()
        self._last = 0
        #: Every HTTP exchange, in the order of the requests.
        self.replies: list[Reply] = []
        #: What every request says beside its own headers.
        self.extra: dict[str, str] = {}

    async def open(self) -> None:
        self.url, self.app = await self._stack.enter_async_context(served(self._server, **self._options))
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=None, sock_read=None)
        # Cookies and redirects are not used here.
        session = aiohttp.ClientSession(connector=connector, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar())
        self.http = await self._stack.enter_async_context(session)

    async def hand_over(self, url: str, data: bytes, headers: Mapping[str, str], peer: Inbox) -> asyncio.Task[Any]:
        """Post a body; come back once the server has read it, or refused to."""
        self._last += 1
        mark = str(self._last)
        read = asyncio.ensure_future(self.app.read(mark.encode()).wait())
        _, work = self.begin("POST", url, {**headers, MARK: mark}, peer, data=data)
        await asyncio.wait([read, work], return_when=asyncio.FIRST_COMPLETED)
        read.cancel()
        return work

    def begin(
        self, verb: str, url: str, headers: Mapping[str, str], peer: Inbox | None = None, *, data: bytes | None = None
    ) -> tuple[Reply, asyncio.Task[Any]]:
        """Start an HTTP request; the reply grows as it comes, and the task ends with it."""
        reply = Reply(verb, asyncio.Event(), asyncio.Event(), asyncio.Event())
        self.replies.append(reply)
        # In one piece a large body would be written without a turn for anybody else, of which the library warns.
        body = io.BytesIO(data) if data is not None else None
        length = {} if data is None else {"Content-Length": str(len(data))}
        headers = {**length, **self.extra, **headers}
        task = asyncio.create_task(self._run(reply, url, headers, body, peer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return reply, task

    async def _run(self, reply: Reply, url: str, headers: Mapping[str, str], body: Any, peer: Inbox | None) -> None:
        asked = self.http.request(reply.verb, url, headers=headers, data=body, allow_redirects=False)
        async with asked as response:
            reply.status, reply.headers = response.status, response.headers
            self.began(reply)
            reply.begun.set()
            if reply.kind == "text/event-stream":
                async for event in read_events(response.content):
                    reply.events.append(event)
                    reply.told.set()
                    if event.data:
                        reply.spoken.set()
                    self.came(event, peer)
            else:
                reply.body = await response.read()
                if reply.body and peer is not None:
                    peer.take(reply.body)
        reply.finished = True

    async def head(self, reply: Reply, task: asyncio.Task[Any]) -> None:
        """Wait until the head of a response came, or the request failed."""
        begun = asyncio.ensure_future(reply.begun.wait())
        await asyncio.wait([begun, task], return_when=asyncio.FIRST_COMPLETED)
        begun.cancel()

    async def exchange(self, verb: str, headers: Mapping[str, str], *, data: bytes | None = None) -> Reply:
        """Send a separate HTTP request to the endpoint and return the whole response."""
        reply, task = self.begin(verb, self.url, headers, data=data)
        await task
        return reply

    def began(self, reply: Reply) -> None:
        """Called when the head of a response has arrived."""

    def came(self, event: Event, peer: Inbox | None) -> None:
        """Hand an event on."""
        if event.data and event.event == "message" and peer is not None:
            peer.take(event.data)

    async def end(self) -> None:
        """Hang up."""
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        await self.end()
        await self._stack.aclose()


class Streamable(_Web):
    """Streamable HTTP, as the revision has it."""

    def __init__(self, server: Server, revision: str, *, listening: bool = True, **options: Any) -> None:
        super().__init__(server, options)
        self.revision = revision
        #: Whether to open the GET stream once the server knows that we are ready.
        self.listening = listening
        self.session: str | None = None
        self._posts: dict[Any, asyncio.Task[Any]] = {}

    def start(self, peer: Any) -> None:
        self._peer = peer

    async def write(self, data: bytes) -> None:
        message = _parsed(data)
        if self._hangs_up(message):
            return
        task = await self.hand_over(self.url, data, self.headers(message), self._peer)
        if isinstance(message, dict) and "id" in message and "method" in message:
            self._posts[_key(message["id"])] = task
        elif isinstance(message, dict):
            await task
        if _method(message) == "notifications/initialized" and self.listening and self.session is not None:
            await self.listen()

    def headers(self, message: object = None) -> dict[str, str]:
        """Return the headers of a request with a message."""
        found = {"Accept": ACCEPT, **({} if message is None else {"Content-Type": "application/json"})}
        spoken = _spoken(message)
        if spoken is not None or (self.revision in STATELESS and _method(message) != "initialize"):
            return {**found, **headers_of(message, self.revision if spoken is None else spoken)}
        if self.session is not None:
            found["Mcp-Session-Id"] = self.session
            # 2025-03-26 does not have this header.
            if self.revision in SINCE_2025_06:
                found["MCP-Protocol-Version"] = self.revision
        return found

    def began(self, reply: Reply) -> None:
        self.session = reply.headers.get("Mcp-Session-Id", self.session)

    async def listen(self, *, last: str | None = None) -> Reply:
        """Open the GET stream, or take another up behind an event; come back when its head came."""
        resumed = {} if last is None else {"Last-Event-ID": last}
        headers = {**self.headers(), **resumed, "Accept": "text/event-stream"}
        reply, task = self.begin("GET", self.url, headers, self._peer)
        await self.head(reply, task)
        return reply

    def _hangs_up(self, message: object) -> bool:
        """Cancel in the manner of the stateless revisions: by closing the response."""
        if self.revision not in STATELESS or _method(message) != "notifications/cancelled":
            return False
        assert isinstance(message, dict)
        params = message.get("params")
        task = self._posts.get(_key(params.get("requestId"))) if isinstance(params, dict) else None
        if task is None:
            return False
        task.cancel()
        return True


class OldPair(_Web):
    """The transport of the first revision: a stream on which all messages come, and posts that bring them."""

    def __init__(self, server: Server, revision: str, **options: Any) -> None:
        super().__init__(server, options)
        self.address: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def start(self, peer: Any) -> None:
        self._peer = peer
        headers = {"Accept": "text/event-stream"}
        self.begin("GET", f"{self.url}/sse", headers, peer)

    def came(self, event: Event, peer: Inbox | None) -> None:
        if event.event == "endpoint" and peer is not None:
            self.address.set_result(urljoin(self.url, event.data.decode()))
        else:
            super().came(event, peer)

    async def write(self, data: bytes) -> None:
        headers = {"Content-Type": "application/json"}
        await (await self.hand_over(await self.address, data, headers, self._peer))


def headers_of(message: object, revision: str) -> dict[str, str]:
    """Return the headers that mirror a body in a stateless revision."""
    headers = {"MCP-Protocol-Version": revision}
    method = _method(message)
    if isinstance(method, str) and method:
        headers["Mcp-Method"] = method
        params = message.get("params") if isinstance(message, dict) else None
        name = params.get(NAMED.get(method, "")) if isinstance(params, dict) else None
        if isinstance(name, str):
            headers["Mcp-Name"] = _safe(name)
    return headers


def _safe(value: str) -> str:
    """Write a value as a header can carry it."""
    plain = value.isascii() and value.isprintable() and value == value.strip() and not value.startswith("=?base64?")
    return value if plain else f"=?base64?{base64.b64encode(value.encode()).decode()}?="


def _parsed(data: bytes) -> object:
    try:
        return json.loads(data)
    except ValueError:
        return data


def _method(message: object) -> Any:
    return message.get("method") if isinstance(message, dict) else None


def _spoken(message: object) -> str | None:
    """Return the revision in the envelope of a request."""
    params = message.get("params") if isinstance(message, dict) else None
    meta = params.get("_meta") if isinstance(params, dict) else None
    version = meta.get(f"{META}protocolVersion") if isinstance(meta, dict) else None
    return version if isinstance(version, str) and version.isprintable() else None


def _key(id: object) -> object:
    return type(id), repr(id)

"""Shared by the tests of the HTTP server: a server to call, requests straight through ASGI, and real sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any
from urllib.parse import urlsplit

from msgspec import Meta

import trunkline.types as t
from trunkline import Context, Server
from trunkline.protocol.caller import Principal
from trunkline.protocol.limits import Limits
from trunkline.protocol.revisions import HANDSHAKE_NAMES, NEWEST, NEWEST_HANDSHAKE
from trunkline.protocol.sse import EventReader, ServerSentEvent
from trunkline.transports.http.server.endpoint import Endpoint
from trunkline.transports.http.server.serve import serve

__all__ = [
    "BATCHING",
    "HANDSHAKE",
    "META",
    "POLLING",
    "STATELESS",
    "App",
    "Call",
    "SessionClient",
    "Workshop",
    "ask",
    "authenticate",
    "initialize",
    "modern",
    "modern_headers",
    "notification",
    "post",
    "request",
    "running",
    "tool",
    "until",
]

STATELESS = NEWEST.name
HANDSHAKE = NEWEST_HANDSHAKE.name
#: The revision with batches, and the one whose streams open with an id.
BATCHING, POLLING = HANDSHAKE_NAMES[1], HANDSHAKE_NAMES[3]
META = {t.META_PROTOCOL_VERSION: STATELESS, t.META_CLIENT_CAPABILITIES: {}}
BOTH = "application/json, text/event-stream"

Message = MutableMapping[str, Any]
App = Callable[[Any, Any, Any], Awaitable[None]]


#: Arguments that HTTP repeats in headers.
Place = Annotated[str | None, Meta(extra_json_schema={"x-mcp-header": "Region"})]
Size = Annotated[int | None, Meta(extra_json_schema={"x-mcp-header": "Size"})]


# --- a server --------------------------------------------------------------------------------------------------------


class Workshop:
    """A server whose tools wait, tell, ask and count, and what became of them."""

    def __init__(self, limits: Limits | None = None, **options: Any) -> None:
        self.count = 0
        self.started = asyncio.Event()
        self.proceed = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.sent = 0
        self.server = Server("workshop", version="1", limits=limits, **options)
        for function in (self.add, self.wait, self.steps, self.region, self.ask_name, self.flood, self.poll, self.who):
            self.server.tool(function)
        self.server.tool(self.grow)
        self.server.resource("note://one", name="one")(lambda: "first")

    def asgi(self, **options: Any) -> Endpoint:
        return self.server.asgi(**options)

    async def add(self, a: int = 1, b: int = 2) -> int:
        self.count += 1
        return a + b

    async def wait(self, ctx: Context, say: str = "") -> str:
        """Wait for ``proceed``; send a log message first if ``say`` is set."""
        if say:
            await ctx.info(say)
        self.started.set()
        try:
            await self.proceed.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return f"done {say}"

    async def steps(self, ctx: Context, n: int = 3) -> str:
        """Report progress for each step."""
        for step in range(n):
            await ctx.info(f"step {step}")
        return "walked"

    async def region(self, place: Place = None, size: Size = None) -> str:
        self.count += 1
        return f"{place} {size}"

    async def ask_name(self, ctx: Context) -> str:
        return str((await ctx.elicit("Your name?", str)).data)

    async def flood(self, ctx: Context, n: int = 1000, size: int = 1000) -> str:
        """Send more than a stalled client reads."""
        self.started.set()
        try:
            for _ in range(n):
                await ctx.info("x" * size)
                self.sent += 1
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return "flooded"

    async def poll(self, ctx: Context) -> str:
        """Release the stream and wait for ``proceed``."""
        await ctx.info("before")
        left = await ctx.close_stream()
        self.started.set()
        await self.proceed.wait()
        await ctx.info("after")
        return f"left {left}"

    async def who(self, ctx: Context) -> str:
        return "nobody" if ctx.auth is None else ctx.auth.subject

    async def grow(self, ctx: Context) -> str:
        """Add a tool: every client hears of it."""
        self.server.add_tool(self.add, name=f"more{self.count}")
        self.count += 1
        return str(ctx.session_id)


def authenticate(headers: Mapping[str, str]) -> Principal | None:
    """Return a principal with the bearer token as its name."""
    scheme, _, name = headers.get("authorization", "").partition(" ")
    if name == "broken":
        raise RuntimeError("the directory is away")
    return Principal(subject=name, issuer="tests") if scheme == "Bearer" and name else None


# --- one request, straight through ASGI ------------------------------------------------------------------------------


class Call:
    """One HTTP request to an ASGI application: what it sends back, and a client that may stall or hang up."""

    def __init__(
        self,
        app: App,
        verb: str,
        path: str,
        *,
        headers: Sequence[tuple[bytes, bytes]] = (),
        body: Sequence[bytes] = (b"",),
        query: bytes = b"",
        root_path: str = "",
        server: tuple[str, int] | None = ("127.0.0.1", 8000),
    ) -> None:
        self.scope: dict[str, Any] = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http", "method": verb,
            "path": root_path + path, "raw_path": path.encode("utf-8", "replace"), "root_path": root_path,
            "query_string": query, "headers": list(headers), "server": server, "client": ("127.0.0.1", 5),
        }  # fmt: skip
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.raw_headers: list[tuple[bytes, bytes]] = []
        self.body = b""
        self.complete = False
        #: What the application sent after the client had disconnected.
        self.late: list[Message] = []
        #: Sending to a client that is gone raises, as newer ASGI servers have it, or does nothing.
        self.raises = False
        self._pieces = list(body)
        self._gone = asyncio.Event()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._moved = asyncio.Condition()
        self._reader = EventReader(max_event=1 << 24)
        self._events: list[ServerSentEvent] = []
        self.task: asyncio.Task[None] = asyncio.get_running_loop().create_task(self._run(app))

    async def _run(self, app: App) -> None:
        try:
            await app(self.scope, self.receive, self.send)
        finally:
            async with self._moved:
                self._moved.notify_all()

    # --- what the application sees ---

    async def receive(self) -> Message:
        if self._pieces:
            piece = self._pieces.pop(0)
            return {"type": "http.request", "body": piece, "more_body": bool(self._pieces)}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        await self._flowing.wait()
        if self._gone.is_set():
            self.late.append(message)
            if self.raises:
                raise OSError("the client is gone")
            return
        if message["type"] == "http.response.start":
            assert self.status is None, "a response begins once"
            self.status = message["status"]
            self.raw_headers = [(bytes(name), bytes(value)) for name, value in message["headers"]]
            self.headers = {name.decode(): value.decode() for name, value in self.raw_headers}
        else:
            assert self.status is not None, "a body comes after the head"
            chunk = message.get("body", b"")
            self.body += chunk
            if self.headers.get("content-type") == "text/event-stream":
                self._events += self._reader.feed(chunk)
            if not message.get("more_body"):
                self.complete = True
                self._gone.set()
        async with self._moved:
            self._moved.notify_all()

    # --- what a test does ---

    def hang_up(self) -> None:
        self._gone.set()
        self._flowing.set()

    def stall(self) -> None:
        """Stop reading: writers have to wait."""
        self._flowing.clear()

    def flow(self) -> None:
        self._flowing.set()

    async def until(self, ready: Callable[[], bool]) -> None:
        """Wait until something is so, looking whenever the application has sent something or ended."""
        async with self._moved:
            await self._moved.wait_for(lambda: ready() or self.task.done())
        if not ready():
            await self.task
            raise AssertionError(f"the application ended before: {self.status} {self.body!r}")

    async def head(self) -> int:
        """Wait for the status."""
        await self.until(lambda: self.status is not None)
        assert self.status is not None
        return self.status

    async def whole(self) -> Call:
        """Wait for the end of the response."""
        await self.task
        assert self.complete, f"the response is not complete: {self.status} {self.body!r}"
        return self

    async def ended(self) -> None:
        """Wait until the application has nothing more to do with the request."""
        await asyncio.wait([self.task])
        self.task.result()

    async def event(self) -> ServerSentEvent:
        """Return the next event with data."""
        while True:
            await self.until(lambda: bool(self._events))
            event = self._events.pop(0)
            if event.data:
                return event

    async def message(self) -> Any:
        """Return the next message of the stream."""
        return json.loads((await self.event()).data)

    async def opening(self) -> ServerSentEvent:
        """Return the next event, with or without data."""
        await self.until(lambda: bool(self._events))
        return self._events.pop(0)

    def taken(self) -> list[ServerSentEvent]:
        """Return the events that arrived and were not returned yet."""
        events, self._events = self._events, []
        return events

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def messages(self) -> list[Any]:
        """The messages that arrived and were not returned yet."""
        return [json.loads(event.data) for event in self.taken() if event.data]

    @property
    def error(self) -> tuple[int | None, int]:
        """The status and the JSON-RPC code of a refusal."""
        return self.status, self.json["error"]["code"]


def pairs(headers: Mapping[str, str | None]) -> list[tuple[bytes, bytes]]:
    """Write headers as ASGI has them; None leaves one out."""
    given = {"host": "127.0.0.1:8000", "accept": BOTH, "content-type": "application/json", **headers}
    return [
        (name.lower().replace("_", "-").encode(), value.encode("latin-1"))
        for name, value in given.items()
        if value is not None
    ]


def ask(
    app: App,
    verb: str = "POST",
    path: str = "/mcp",
    *,
    body: bytes | Sequence[bytes] = b"",
    headers: Mapping[str, str | None] | None = None,
    twice: Sequence[tuple[bytes, bytes]] = (),
    **more: Any,
) -> Call:
    """Send any request."""
    pieces = [body] if isinstance(body, bytes) else body
    return Call(app, verb, path, headers=[*pairs(headers or {}), *twice], body=pieces, **more)


def post(app: App, message: Any, path: str = "/mcp", **headers: Any) -> Call:
    """Post a message, or bytes as they are."""
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    return ask(app, "POST", path, body=body, headers=headers)


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds, for a bounded time."""
    async with asyncio.timeout(120):
        while not condition():  # noqa: ASYNC110  what is observed has no event
            await asyncio.sleep(0.005)


# --- messages --------------------------------------------------------------------------------------------------------


def request(method: str, params: Any = None, *, id: Any = 1) -> dict[str, Any]:
    message = {"jsonrpc": "2.0", "id": id, "method": method}
    return message if params is None else {**message, "params": params}


def notification(method: str, params: Any = None) -> dict[str, Any]:
    message = {"jsonrpc": "2.0", "method": method}
    return message if params is None else {**message, "params": params}


def tool(name: str, *, id: Any = 1, meta: Mapping[str, Any] | None = None, **arguments: Any) -> dict[str, Any]:
    params: dict[str, Any] = {"name": name, "arguments": arguments}
    return request("tools/call", params if meta is None else {**params, "_meta": meta}, id=id)


def modern_headers(method: str, name: str | None = None) -> dict[str, Any]:
    headers: dict[str, Any] = {"mcp-protocol-version": STATELESS, "mcp-method": method}
    return headers if name is None else {**headers, "mcp-name": name}


def modern(app: App, message: Mapping[str, Any], *, meta: Mapping[str, Any] | None = None, **headers: Any) -> Call:
    """Post a request of the stateless revision, with the headers and the ``_meta`` it needs."""
    params = dict(message.get("params", {}))
    params["_meta"] = {**META, **params.get("_meta", {}), **(meta or {})}
    named = params.get("name") or params.get("uri")
    own = {name.replace("_", "-"): value for name, value in headers.items()}
    return post(app, {**message, "params": params}, **{**modern_headers(message["method"], named), **own})


def initialize(revision: str = HANDSHAKE, capabilities: Mapping[str, Any] | None = None) -> dict[str, Any]:
    info = {"name": "tester", "version": "1"}
    params = {"protocolVersion": revision, "capabilities": dict(capabilities or {}), "clientInfo": info}
    return request("initialize", params, id=0)


class SessionClient:
    """A handshake client that has opened a session."""

    def __init__(self, app: App, id: str, revision: str, token: str | None) -> None:
        self.app = app
        self.id = id
        self.revision = revision
        self.token = token

    @classmethod
    async def open(
        cls,
        app: App,
        revision: str = HANDSHAKE,
        *,
        capabilities: Mapping[str, Any] | None = None,
        token: str | None = None,
        ready: bool = True,
    ) -> SessionClient:
        bearer = None if token is None else f"Bearer {token}"
        opened = await post(app, initialize(revision, capabilities), authorization=bearer).whole()
        assert opened.status == 200, opened.body
        client = cls(app, opened.headers["mcp-session-id"], revision, token)
        if ready:
            assert (await client.post(notification("notifications/initialized")).whole()).status == 202
        return client

    def headers(self, **more: str | None) -> dict[str, Any]:
        bearer = None if self.token is None else f"Bearer {self.token}"
        own = {"mcp-session-id": self.id, "mcp-protocol-version": self.revision, "authorization": bearer}
        return {**own, **{name.replace("_", "-"): value for name, value in more.items()}}

    def post(self, message: Any, **more: str | None) -> Call:
        return post(self.app, message, **self.headers(**more))

    def get(self, last: str | None = None, **more: str | None) -> Call:
        return ask(self.app, "GET", headers=self.headers(last_event_id=last, content_type=None, **more))

    def delete(self, **more: str | None) -> Call:
        return ask(self.app, "DELETE", headers=self.headers(content_type=None, **more))

    async def listening(self, last: str | None = None) -> Call:
        """Open the GET stream and wait until it is there."""
        call = self.get(last)
        assert await call.head() == 200, call.body
        return call


# --- real sockets ----------------------------------------------------------------------------------------------------


class Running:
    """An endpoint served on a free port of this machine."""

    def __init__(self, url: str, stopping: asyncio.Event, task: asyncio.Task[None]) -> None:
        self.url = url
        self.stopping = stopping
        self.task = task

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 0

    async def connect(self, **options: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, **options)

    async def post(
        self, message: Any, headers: Mapping[str, str | None], **options: Any
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Post a message on a connection of its own, and leave the answer to be read."""
        reader, writer = await self.connect(**options)
        body = json.dumps(message).encode()
        lines = [b"POST /mcp HTTP/1.1", *(b"%b: %b" % pair for pair in pairs(headers))]
        lines += [b"content-length: %d" % len(body), b"", body]
        writer.write(b"\r\n".join(lines))
        await writer.drain()
        return reader, writer


@asynccontextmanager
async def running(endpoint: Endpoint, limits: Limits | None = None) -> AsyncIterator[Running]:
    """Serve an endpoint in this loop; stop it at the end."""
    stopping = asyncio.Event()
    url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(
        serve(endpoint, limits=limits or Limits(drain_seconds=1), port=0, started=url.set_result, stopping=stopping)
    )
    waited: list[asyncio.Future[Any]] = [task, url]
    await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
    try:
        yield Running(url.result(), stopping, task)
    finally:
        stopping.set()
        await task

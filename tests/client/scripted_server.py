"""A server that answers from a table, on the other end of a memory link, and a clock that is advanced by hand."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import UNSET

from trunkline.client.client import Client
from trunkline.client.options import ClientState
from trunkline.protocol.caller import Origin
from trunkline.protocol.jsonrpc import (
    ErrorResponse,
    Incoming,
    Message,
    Notification,
    Outbound,
    Request,
    Response,
)
from trunkline.protocol.revisions import NEWEST, NEWEST_HANDSHAKE
from trunkline.transports.link import Link
from trunkline.types import ErrorObject, RequestId

__all__ = [
    "CAPABILITIES",
    "DIE",
    "Fail",
    "ManualClock",
    "Scripted",
    "Stage",
    "handshake_server",
    "settle",
    "state_of",
    "stateless",
]

CAPABILITIES: Mapping[str, Any] = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "completions": {},
    "logging": {},
}


class Fail(Exception):
    """Raised in a table to answer with this error."""

    def __init__(self, code: int, message: str = "no", data: Any = UNSET) -> None:
        """Store the members of the error object."""
        super().__init__(message)
        self.error = ErrorObject(code=code, message=message, data=data)


#: An answer that ends the connection instead.
DIE = object()

Answer = Any | Callable[[dict[str, Any]], Any]


class Stage:
    """One conversation: what was received on it, and methods to send unsolicited messages."""

    def __init__(self, server: Scripted, link: Link) -> None:
        """Serve on a link."""
        self._server = server
        self._link = link
        #: The answers to the server's own requests, by id.
        self.answers: dict[RequestId | None, Any] = {}
        self.ended = False

    def message_received(self, incoming: Incoming, origin: Origin) -> None:
        """Answer from the table."""
        if isinstance(incoming, Request):
            self._requested(incoming)
        elif isinstance(incoming, Notification):
            self._server.received.append((incoming.method, _read(incoming.params)))
        elif isinstance(incoming, Response):
            self.answers[incoming.id] = _read(incoming.result)
        elif isinstance(incoming, ErrorResponse):
            self.answers[incoming.id] = incoming.error
        self._server.changed.set()

    def eof_received(self, error: Exception | None = None, *, about: RequestId | None = None) -> None:
        """Record the end."""
        self.ended = True
        self._server.changed.set()

    def _requested(self, request: Request) -> None:
        params = _read(request.params)
        self._server.received.append((request.method, params))
        self._server.ids.append(request.id)
        answer = self._server.table.get(request.method, Fail(-32601, "Method not found"))
        try:
            if callable(answer):
                answer = answer(params)
        except Fail as failure:
            answer = failure
        if answer is DIE:
            self.die()
        elif isinstance(answer, Fail):
            self.put(ErrorResponse(request.id, answer.error))
        elif answer is not None:
            self.put(Response(request.id, answer))

    def put(self, message: Message) -> None:
        """Send any message."""
        self._link.send([Outbound(message)])

    def say(self, method: str, params: Any = None) -> None:
        """Send a notification."""
        self.put(Notification(method, params))

    def ask(self, id: RequestId, method: str, params: Any = None) -> None:
        """Send a request."""
        self.put(Request(id, method, params))

    def die(self) -> None:
        """Close the connection."""
        self._server.dying.append(asyncio.ensure_future(self._link.aclose()))


class Scripted:
    """A server that looks each request up in a table: a result, a function of the params, a Fail, DIE, or silence."""

    def __init__(self, table: Mapping[str, Answer]) -> None:
        """Store the table; it may be changed while it is in use."""
        self.table: dict[str, Any] = dict(table)
        #: All requests and notifications, in order.
        self.received: list[tuple[str, Any]] = []
        #: The ids of the requests, in order.
        self.ids: list[RequestId] = []
        self.stages: list[Stage] = []
        self.dying: list[asyncio.Future[None]] = []
        self.changed = asyncio.Event()

    def accept(self, link: Link) -> None:
        """Serve on one more link."""
        stage = Stage(self, link)
        self.stages.append(stage)
        link.attach(stage)

    @property
    def stage(self) -> Stage:
        """The newest conversation."""
        return self.stages[-1]

    @property
    def methods(self) -> list[str]:
        """The methods received, in order."""
        return [method for method, _ in self.received]

    def params_of(self, method: str) -> list[Any]:
        """The params of all messages with a method."""
        return [params for name, params in self.received if name == method]

    async def until(self, condition: Callable[[], Any]) -> None:
        """Wait until a condition holds that only messages to this server can make true."""
        while not condition():
            self.changed.clear()
            await self.changed.wait()


def _read(raw: Any) -> Any:
    return None if raw is None else msgspec.json.decode(raw)


def stateless(table: Mapping[str, Answer] | None = None, **capabilities: Any) -> Scripted:
    """Create a stateless server."""
    discovered = {
        "resultType": "complete",
        "supportedVersions": [NEWEST.name],
        "capabilities": capabilities or CAPABILITIES,
        "instructions": "Be kind.",
        "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "scripted", "version": "1"}},
    }
    return Scripted({"server/discover": discovered, **(table or {})})


def handshake_server(
    table: Mapping[str, Answer] | None = None, *, revision: str = NEWEST_HANDSHAKE.name, **capabilities: Any
) -> Scripted:
    """Create a handshake server."""
    agreed = {
        "protocolVersion": revision,
        "capabilities": capabilities or CAPABILITIES,
        "serverInfo": {"name": "scripted", "version": "1"},
        "instructions": "Be kind.",
    }
    return Scripted({"initialize": agreed, "ping": {}, **(table or {})})


def state_of(client: Client) -> ClientState:
    """Return a client's state; a function, so that a type checker does not assume that it stays the same."""
    return client.state


async def settle() -> None:
    """Run everything that can run without time passing."""
    for _ in range(20):
        await asyncio.sleep(0)


class _Timer:
    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class ManualClock:
    """A clock that stands still until it is advanced."""

    def __init__(self) -> None:
        """Start at a time other than zero."""
        self._now = 1000.0
        self._count = 0
        self._timers: list[tuple[float, int, _Timer, Callable[[], None]]] = []

    def now(self) -> float:
        """Return the current time."""
        return self._now

    def call_at(self, when: float, callback: Callable[[], None]) -> _Timer:
        """Schedule a callback."""
        timer = _Timer()
        self._count += 1
        heapq.heappush(self._timers, (when, self._count, timer, callback))
        return timer

    async def advance(self, seconds: float) -> None:
        """Advance the clock, run the callbacks that fall due, and let everything run that follows."""
        await settle()
        until = self._now + seconds
        while self._timers and self._timers[0][0] <= until:
            when, _, timer, callback = heapq.heappop(self._timers)
            self._now = max(self._now, when)
            if not timer.cancelled:
                callback()
                await settle()
        self._now = until
        await settle()

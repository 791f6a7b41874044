"""A connection over a link controlled by the test, which reads what is sent and decides what arrives."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec

from trunkline.connection import Connection, Exchange, Timeouts
from trunkline.protocol.caller import MEMORY, Origin
from trunkline.protocol.jsonrpc import Outbound, decode, encode
from trunkline.protocol.limits import Limits
from trunkline.protocol.peer import NotificationReceived
from trunkline.service import ErrorReply
from trunkline.testing.clock import FakeClock
from trunkline.timers import Timers
from trunkline.transports.link import Link, Receiver

__all__ = [
    "NO_TIMEOUTS",
    "Handler",
    "Scene",
    "Served",
    "Wire",
    "answer",
    "cancel",
    "codes",
    "echo",
    "encode_text",
    "failure",
    "progress",
    "request",
    "result",
]

Handler = Callable[[Exchange], Coroutine[Any, Any, Any]]
NO_TIMEOUTS = Timeouts(None, None)
LIMITS = Limits(eof_seconds=5.0, exit_seconds=0.05)


class Wire(Link):
    """A link that records what is sent and delivers what the test passes in."""

    def __init__(self) -> None:
        """Create a link without messages."""
        self.receiver: Receiver | None = None
        self.writes: list[list[Any]] = []
        self.drained = 0
        self.closed = 0

    def attach(self, receiver: Receiver) -> None:
        """Store the receiver."""
        self.receiver = receiver

    def send(self, batch: Sequence[Outbound]) -> None:
        """Record the messages."""
        self.writes.append([msgspec.json.decode(encode(outbound.message)) for outbound in batch])

    async def drain(self) -> None:
        """Count the calls."""
        self.drained += 1

    async def aclose(self) -> None:
        """Count the calls."""
        self.closed += 1

    @property
    def sent(self) -> list[Any]:
        """All messages sent so far."""
        return [message for write in self.writes for message in write]

    def bring(self, *texts: str) -> None:
        """Deliver messages."""
        assert self.receiver is not None
        for text in texts:
            self.receiver.message_received(decode(text.encode()), MEMORY)


class Served:
    """A service with the test's handlers, by method name."""

    def __init__(self, handlers: dict[str, Handler | ErrorReply], *, batches: bool) -> None:
        """Store the handlers."""
        self.handlers = handlers
        self.batches = batches
        self.session = None
        self.notices: list[str] = []
        self.ended = 0
        self.at_end: Callable[[], object] = lambda: None

    def request_received(self, exchange: Exchange, origin: Origin) -> Coroutine[Any, Any, Any] | ErrorReply:
        """Return the handler's coroutine; an unknown method raises, as a broken service would."""
        handler = self.handlers[exchange.method]
        return handler if isinstance(handler, ErrorReply) else handler(exchange)

    def notification_received(self, event: NotificationReceived, origin: Origin) -> None:
        """Record the notification; the name ``broken`` raises."""
        self.notices.append(event.method)
        assert event.method != "broken"

    def accepts_batches(self) -> bool:
        """Return what the test configured."""
        return self.batches

    def input_ended(self) -> None:
        """Count the calls, and call ``at_end``."""
        self.ended += 1
        self.at_end()


class Scene:
    """A connection with its wire, its service and its clock."""

    def __init__(self, *, batches: bool = False, limits: Limits = LIMITS, **handlers: Handler | ErrorReply) -> None:
        """Connect; the names of the handlers are the methods."""
        self.clock = FakeClock()
        self.wire = Wire()
        self.served = Served(handlers, batches=batches)
        self.connection = Connection(self.wire, self.served, limits=limits, timers=Timers(self.clock))
        self.connection.start()
        #: Handlers wait until this is set.
        self.gate = asyncio.Event()
        self.log: list[str] = []

    async def turn(self, times: int = 10) -> None:
        """Run everything that can run without time passing."""
        for _ in range(times):
            await asyncio.sleep(0)

    def ask(self, method: str = "m", timeouts: Timeouts = NO_TIMEOUTS, **more: Any) -> asyncio.Task[msgspec.Raw]:
        """Start a request."""
        return asyncio.ensure_future(self.connection.request(method, {}, timeouts=timeouts, **more))

    async def wait(self, _: Exchange) -> str:
        """Wait for the gate, and record a cancellation; a handler."""
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.log.append("cancelled")
            raise
        return "waited"

    async def stubborn(self, _: Exchange) -> str:
        """Suppress the cancellation and return a result anyway; a handler."""
        with contextlib.suppress(asyncio.CancelledError):
            await self.gate.wait()
        self.log.append("swallowed")
        return "stubborn"


async def echo(exchange: Exchange) -> Any:
    """Return the params; a handler."""
    return exchange.params


def request(id: int | str, method: str) -> str:
    """Return an encoded request."""
    return encode_text({"id": id, "method": method})


def cancel(id: int | str) -> str:
    """Return an encoded cancellation."""
    return encode_text({"method": "notifications/cancelled", "params": {"requestId": id}})


def result(id: int, value: Any = None) -> str:
    """Return an encoded response."""
    return encode_text({"id": id, "result": value})


def progress(token: int, amount: float) -> str:
    """Return an encoded progress notification."""
    return encode_text({"method": "notifications/progress", "params": {"progressToken": token, "progress": amount}})


def encode_text(members: dict[str, Any]) -> str:
    """Return an encoded message."""
    return msgspec.json.encode({"jsonrpc": "2.0", **members}).decode()


def answer(id: int | str, value: Any) -> dict[str, Any]:
    """Return a decoded response."""
    return {"jsonrpc": "2.0", "id": id, "result": value}


def codes(messages: list[Any]) -> list[tuple[Any, int]]:
    """Return the ids and codes of error responses."""
    return [(message["id"], message["error"]["code"]) for message in messages]


async def failure(task: asyncio.Task[Any]) -> BaseException:
    """Wait for a task that must fail."""
    await asyncio.wait([task])
    error = task.exception()
    assert error is not None
    return error

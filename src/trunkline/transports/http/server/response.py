"""An HTTP response that is a stream of server-sent events.

An ASGI task runs each response. While its stream is quiet that task only waits for the client to disconnect, so that a
disconnect is seen at once; events are written by a short task of their own. The response owns its own state: the stream
that feeds it, and whatever opened it, only call its methods.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from trunkline.protocol.sse import encode_comment
from trunkline.transports.http.server.asgi import Headers, Receive, Send
from trunkline.transports.http.server.event_log import EventStream

__all__ = ["COMMENT", "EVENT_STREAM", "ClientConnection", "DisconnectListener", "SSEResponse", "StreamOwner"]

#: The headers of a stream: no proxy may keep, change or gather what comes.
EVENT_STREAM: tuple[tuple[bytes, bytes], ...] = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)
#: SSE comment sent as a keep-alive.
COMMENT = encode_comment()


class StreamOwner(Protocol):
    """The registry of the open streams: counts them and keeps them alive."""

    def stream_opened(self, response: SSEResponse) -> None:
        """Called when a response begins."""

    def stream_closed(self, response: SSEResponse) -> None:
        """Called when it is over."""


class ClientConnection(Protocol):
    """The connection below a response, where the HTTP server provides it: it reports that the client disconnected."""

    def add_disconnect_callback(self, callback: Callable[[], None]) -> None:
        """Register a callback for the end of the connection."""

    def forget(self, callback: Callable[[], None]) -> None:
        """Remove a callback."""


class DisconnectListener(Protocol):
    """The object to notify when a client disconnects before the end of its response."""

    def client_disconnected(self) -> None:
        """Called when the client disconnects."""


class SSEResponse:
    """A response that writes the events of a stream, until the stream ends or the client disconnects."""

    __slots__ = (
        "_beside",
        "_busy",
        "_dismissed",
        "_finished",
        "_gone",
        "_leaving",
        "_listener",
        "_over",
        "_quiet",
        "_send",
        "_task",
        "stream",
    )

    def __init__(
        self, stream: EventStream, send: Send, *, leaving: bool = False, listener: DisconnectListener | None = None
    ) -> None:
        """Prepare to write a stream; with ``leaving`` only what waits already.

        ``listener`` is notified if the client disconnects before the end.
        """
        self._listener = listener
        self.stream: EventStream = stream
        self._send = send
        # Nothing is written before the head.
        self._busy = True
        self._task: asyncio.Task[None] | None = None
        self._over: asyncio.Future[None] | None = None
        self._beside: tuple[StreamOwner, ClientConnection] | None = None
        self._finished = False
        self._gone = False
        self._dismissed = False
        self._leaving = leaving
        #: Rounds of the owner's clock without anything written.
        self._quiet = 0

    async def run(
        self,
        receive: Receive,
        headers: Headers,
        *,
        owner: StreamOwner,
        watched: bool = False,
        carrier: ClientConnection | None = None,
    ) -> bool:
        """Write until the end; return whether the client stayed until then.

        With ``watched`` the caller waits for the client's disconnect and reports it by ``hang_up``; with ``carrier``
        the connection does.
        """
        if watched or carrier is not None:
            self._over = asyncio.get_running_loop().create_future()
        if carrier is not None:
            carrier.add_disconnect_callback(self.hang_up)
        owner.stream_opened(self)
        if self.stream.reader is None:
            self.stream.attach(self)
        try:
            await self._send({"type": "http.response.start", "status": 200, "headers": [*EVENT_STREAM, *headers]})
            if not self.stream.ended and not self.stream.has_pending:
                # The head leaves at once: whoever opens a stream waits for it.
                await self._send({"type": "http.response.body", "body": COMMENT, "more_body": True})
            await self._write()
            while not (self._finished or self._gone):
                if self._over is not None:
                    await self._over
                elif (await receive())["type"] == "http.disconnect" and not self._finished:
                    self._gone = True
            if self._task is not None and not self._gone:
                await asyncio.wait([self._task])
        except OSError:
            self._gone = True
        finally:
            if carrier is not None:
                carrier.forget(self.hang_up)
            self.stream.detach(self)
            owner.stream_closed(self)
            if self._task is not None:
                self._task.cancel()
        if self._gone and self._listener is not None:
            self._listener.client_disconnected()
        return not self._gone

    def start(self, headers: Headers, *, owner: StreamOwner, carrier: ClientConnection) -> asyncio.Future[None]:
        """Start to write while the work that fills the stream goes on; return a future of the end.

        No task waits meanwhile: the connection reports a disconnect.
        """
        over = self._over = asyncio.get_running_loop().create_future()
        self._beside = (owner, carrier)
        carrier.add_disconnect_callback(self.hang_up)
        owner.stream_opened(self)
        self.stream.attach(self)
        self._task = asyncio.get_running_loop().create_task(self._begin(headers), name="trunkline")
        return over

    async def _begin(self, headers: Headers) -> None:
        try:
            await self._send({"type": "http.response.start", "status": 200, "headers": [*EVENT_STREAM, *headers]})
        except OSError:
            self.hang_up()
        await self._write()

    def wake(self) -> None:
        """Write what has come."""
        if not (self._busy or self._finished or self._gone):
            self._busy = True
            self._task = asyncio.get_running_loop().create_task(self._write(), name="trunkline")

    def dismiss(self) -> None:
        """End this response and leave the stream to another."""
        self._dismissed = True
        self.wake()

    def leave(self) -> None:
        """End this response after what waits; the stream goes on without it."""
        self._leaving = True
        self.wake()

    def move(self, stream: EventStream) -> None:
        """Write another stream from now on; what the first one brought is left behind."""
        self.stream.detach(self)
        self.stream = stream
        stream.attach(self)
        self.wake()

    def hang_up(self) -> None:
        """Called when the client disconnects."""
        self._gone = True
        self._stop()

    def tick(self, rounds: int) -> None:
        """Count a round of the owner's clock; write a keep-alive comment after so many quiet ones."""
        self._quiet += 1
        if self._quiet >= rounds and not (self._busy or self._finished or self._gone):
            self._busy = True
            self._task = asyncio.get_running_loop().create_task(self._write(COMMENT), name="trunkline")

    async def _write(self, chunk: bytes = b"") -> None:
        """Write what waits until nothing does; the only place that writes."""
        try:
            while not self._gone:
                stream = self.stream
                if not self._dismissed:
                    chunk = chunk + stream.take() if chunk else stream.take()
                self._finished = self._dismissed or self._leaving or (stream.ended and not stream.has_pending)
                if not (chunk or self._finished):
                    break
                self._quiet = 0
                body = {"type": "http.response.body", "body": chunk, "more_body": not self._finished}
                await self._send(body)
                if self._finished:
                    self._stop()
                    break
                chunk = b""
        except OSError:
            # Some servers say so when the client is gone; others say nothing.
            self.hang_up()
        finally:
            self._busy = False
            self._task = None

    def _stop(self) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_result(None)
        if self._beside is None:
            return
        (owner, carrier), self._beside = self._beside, None
        carrier.forget(self.hang_up)
        self.stream.detach(self)
        owner.stream_closed(self)
        if self._gone and self._listener is not None:
            self._listener.client_disconnected()

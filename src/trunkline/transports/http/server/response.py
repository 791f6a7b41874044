"""An HTTP response that is a stream of server-sent events.

While a stream is quiet nothing runs: the connection reports that the client disconnected, and events are written by a
short task of their own. The response owns its own state: the stream that feeds it, and the object that opened it, only
call its methods.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from trunkline.protocol.sse import encode_comment, encode_event
from trunkline.transports.http.server.asgi import Headers, Send
from trunkline.transports.http.server.event_stream import EventStream
from trunkline.transports.http.server.request import ClientConnection, DirectExchange

__all__ = ["COMMENT", "EVENT_STREAM", "DisconnectListener", "SSEResponse", "StreamOwner"]

#: The headers of a stream: no proxy may cache, change or buffer it.
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
        """Called when a response has ended."""


class DisconnectListener(Protocol):
    """The object to notify when a client disconnects before the end of its response."""

    def client_disconnected(self) -> None:
        """Called when the client disconnects."""


class SSEResponse:
    """A response that writes the events of a stream, until the stream ends or the client disconnects."""

    __slots__ = (
        "_background",
        "_busy",
        "_direct",
        "_disconnected",
        "_dismissed",
        "_ended",
        "_finished",
        "_finishing",
        "_listener",
        "_quiet_rounds",
        "_send",
        "_task",
        "stream",
    )

    def __init__(
        self,
        stream: EventStream,
        send: Send,
        *,
        finishing: bool = False,
        listener: DisconnectListener | None = None,
        direct: DirectExchange | None = None,
    ) -> None:
        """Prepare to write a stream; with ``finishing`` only the events that are pending already.

        ``listener`` is notified if the client disconnects before the end. ``direct`` writes without waiting.
        """
        self._listener = listener
        self._direct = direct
        self.stream: EventStream = stream
        self._send = send
        # Nothing is written before the headers.
        self._busy = True
        self._task: asyncio.Task[None] | None = None
        #: Done at the end of the response.
        self._ended: asyncio.Future[None] | None = None
        #: The owner and the connection of a response that has begun and not ended.
        self._background: tuple[StreamOwner, ClientConnection] | None = None
        self._finished = False
        self._disconnected = False
        self._dismissed = False
        self._finishing = finishing
        #: Rounds of the owner's clock without anything written.
        self._quiet_rounds = 0

    async def run(self, headers: Headers, *, owner: StreamOwner, connection: ClientConnection) -> bool:
        """Write until the end; return whether the client stayed until then."""
        ended = self.start(headers, owner=owner, connection=connection)
        try:
            await asyncio.wait([ended])
            if self._task is not None and not self._disconnected:
                await asyncio.wait([self._task])
        finally:
            # Nothing to do, unless this task was cancelled.
            self._stop()
            if self._task is not None:
                self._task.cancel()
        return not self._disconnected

    def start(self, headers: Headers, *, owner: StreamOwner, connection: ClientConnection) -> asyncio.Future[None]:
        """Start to write, and return a future that is done at the end; no task waits meanwhile."""
        ended = self._ended = asyncio.get_running_loop().create_future()
        self._background = (owner, connection)
        connection.add_disconnect_callback(self.client_disconnected)
        owner.stream_opened(self)
        if self.stream.reader is None:
            self.stream.attach(self)
        self._task = asyncio.get_running_loop().create_task(self._begin(headers), name="trunkline")
        return ended

    async def _begin(self, headers: Headers) -> None:
        quiet = not self.stream.ended and not self.stream.has_pending
        try:
            await self._send({"type": "http.response.start", "status": 200, "headers": [*EVENT_STREAM, *headers]})
        except OSError:
            self.client_disconnected()
        # With a comment the headers leave at once: a client that opens a stream waits for them.
        await self._write(COMMENT if quiet else b"")

    def wake(self) -> None:
        """Write the pending events."""
        if not (self._busy or self._finished or self._disconnected):
            self._busy = True
            self._task = asyncio.get_running_loop().create_task(self._write(), name="trunkline")

    def write_event(self, data: bytes) -> bool:
        """Write an event of no log at once, without a task; return False if others come first or it would wait."""
        if (
            self._direct is None
            or self._busy
            or self._finished
            or self._disconnected
            or self._dismissed
            or self._finishing
            or self.stream.has_pending
            or not self._direct.write_chunk(encode_event(data))
        ):
            return False
        self._quiet_rounds = 0
        return True

    def dismiss(self) -> None:
        """End this response and leave the stream to another."""
        self._dismissed = True
        self.wake()

    def finish(self) -> None:
        """End this response after the pending events; the stream goes on without it."""
        self._finishing = True
        self.wake()

    def move(self, stream: EventStream) -> None:
        """Write another stream from now on; what is pending in the first one is dropped."""
        self.stream.detach(self)
        self.stream = stream
        stream.attach(self)
        self.wake()

    def client_disconnected(self) -> None:
        """Called when the client disconnects."""
        self._disconnected = True
        self._stop()

    def tick(self, rounds: int) -> None:
        """Count a round of the owner's clock; write a keep-alive comment after so many quiet ones."""
        self._quiet_rounds += 1
        if self._quiet_rounds >= rounds and not (self._busy or self._finished or self._disconnected):
            self._busy = True
            self._task = asyncio.get_running_loop().create_task(self._write(COMMENT), name="trunkline")

    async def _write(self, chunk: bytes = b"") -> None:
        """Write until nothing is pending; the only place that writes."""
        try:
            while not self._disconnected:
                stream = self.stream
                if not self._dismissed:
                    chunk = chunk + stream.take() if chunk else stream.take()
                self._finished = self._dismissed or self._finishing or (stream.ended and not stream.has_pending)
                if not (chunk or self._finished):
                    break
                self._quiet_rounds = 0
                body = {"type": "http.response.body", "body": chunk, "more_body": not self._finished}
                await self._send(body)
                if self._finished:
                    self._stop()
                    break
                chunk = b""
        except OSError:
            # Some HTTP servers raise when the client has disconnected; others do not.
            self.client_disconnected()
        finally:
            self._busy = False
            self._task = None

    def _stop(self) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)
        if self._background is None:
            return
        (owner, connection), self._background = self._background, None
        connection.remove_disconnect_callback(self.client_disconnected)
        self.stream.detach(self)
        owner.stream_closed(self)
        if self._disconnected and self._listener is not None:
            self._listener.client_disconnected()

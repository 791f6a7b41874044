"""The HTTP response to one request: a JSON body if the answer is the first thing out, else a stream of events.

An ASGI task runs each reply. While a stream is quiet that task only waits for the client to hang up, so that it is seen
at once; what comes to be written is written by a short task of its own. A request that is answered quickly is never
watched: the watch begins when it is still unanswered after a moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol

from trunkline.protocol.sse import encode_comment
from trunkline.transports.http.event_log import EventStream

__all__ = ["COMMENT", "EVENT_STREAM", "JSON", "Carrier", "Headers", "Receive", "Send", "StreamReply", "send_plain"]

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

#: The type of every other body.
JSON = (b"content-type", b"application/json")
#: The head of a stream: no proxy may keep, change or gather what comes.
EVENT_STREAM: tuple[tuple[bytes, bytes], ...] = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)
#: Says nothing, and so that the connection lives.
COMMENT = encode_comment()


class Owner(Protocol):
    """Who wants to know of the open streams: it counts them and keeps them alive."""

    def stream_opened(self, reply: StreamReply) -> None:
        """Take a stream in."""

    def stream_closed(self, reply: StreamReply) -> None:
        """Let it go."""


class Carrier(Protocol):
    """The connection below a response, where the server that runs us gives it: it can say that the client left."""

    def when_lost(self, callback: Callable[[], None]) -> None:
        """Have something called when the connection ends."""

    def forget(self, callback: Callable[[], None]) -> None:
        """Have it not called."""


class Leavable(Protocol):
    """Who wants to know that a client left."""

    def gone(self) -> None:
        """Learn that it did."""


class StreamReply:
    """A response that writes the events of a stream, until the stream ends or the client hangs up."""

    __slots__ = (
        "_beside",
        "_busy",
        "_dismissed",
        "_finished",
        "_gone",
        "_leaving",
        "_link",
        "_over",
        "_quiet",
        "_send",
        "_task",
        "stream",
    )

    def __init__(self, stream: EventStream, send: Send, *, leaving: bool = False, link: Leavable | None = None) -> None:
        """Prepare to write a stream; one that is leaving writes what waits and ends.

        ``link`` is told if the client leaves before the end.
        """
        self._link = link
        self.stream = stream
        self._send = send
        # Nothing is written before the head.
        self._busy = True
        self._task: asyncio.Task[None] | None = None
        self._over: asyncio.Future[None] | None = None
        self._beside: tuple[Owner, Carrier] | None = None
        self._finished = False
        self._gone = False
        self._dismissed = False
        self._leaving = leaving
        #: Rounds of the owner's clock without a word.
        self._quiet = 0

    async def run(
        self,
        receive: Receive,
        headers: Headers,
        *,
        owner: Owner,
        watched: bool = False,
        carrier: Carrier | None = None,
    ) -> bool:
        """Write until the end; tell whether the client stayed until then.

        With ``watched`` somebody else waits for the client's hang-up and says so by ``hang_up``; with a carrier that
        does.
        """
        if watched or carrier is not None:
            self._over = asyncio.get_running_loop().create_future()
        if carrier is not None:
            carrier.when_lost(self.hang_up)
        owner.stream_opened(self)
        if self.stream.reader is None:
            self.stream.attach(self)
        try:
            await self._send({"type": "http.response.start", "status": 200, "headers": [*EVENT_STREAM, *headers]})
            if not self.stream.ended and not self.stream.waits:
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
        if self._gone and self._link is not None:
            self._link.gone()
        return not self._gone

    def start(self, headers: Headers, *, owner: Owner, carrier: Carrier) -> asyncio.Future[None]:
        """Begin to write beside the work that fills the stream; what is given is done at the end.

        No task waits meanwhile: the carrier says when the client leaves.
        """
        over = self._over = asyncio.get_running_loop().create_future()
        self._beside = (owner, carrier)
        carrier.when_lost(self.hang_up)
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
        """Learn that the client is gone."""
        self._gone = True
        self._stop()

    def tick(self, rounds: int) -> None:
        """Count a round of the owner's clock; after so many quiet ones a comment keeps the stream alive."""
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
                self._finished = self._dismissed or self._leaving or (stream.ended and not stream.waits)
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
        if self._gone and self._link is not None:
            self._link.gone()


async def send_plain(send: Send, status: int, headers: Headers, body: bytes = b"") -> None:
    """Send a whole response."""
    # RFC 9110, 8.6: a response without content has no length either.
    sized = headers if status == 204 else [*headers, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": sized})
    await send({"type": "http.response.body", "body": body})

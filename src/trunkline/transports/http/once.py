"""A link that lasts one request: a POST of a stateless revision, and what sessions build on.

The client's hang-up ends it: nothing sent can arrive any more, so the request is cancelled. The first thing out decides
the form: an answer makes the response JSON, with a status that says what kind of error it is; anything else makes it a
stream of events that the answer ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

from trunkline.errors import ConnectionLost, InsufficientScope
from trunkline.protocol.codes import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CLIENT_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from trunkline.protocol.jsonrpc import ErrorResponse, Message, Notification, Outbound, Response, encode
from trunkline.transports.http.event_log import EventStream
from trunkline.transports.http.refusals import Refused
from trunkline.transports.http.replies import StreamReply
from trunkline.transports.link import Receiver
from trunkline.transports.wire import encode_each

__all__ = ["STATUSES", "HandshakeLink", "OnceLink", "Stoppable", "encoded"]

#: The HTTP status of an error answer in stateless revisions; all others are 200.
STATUSES: Mapping[int, int] = MappingProxyType(
    {
        METHOD_NOT_FOUND: 404,
        PARSE_ERROR: 400,
        INVALID_REQUEST: 400,
        INVALID_PARAMS: 400,
        HEADER_MISMATCH: 400,
        MISSING_CLIENT_CAPABILITY: 400,
        UNSUPPORTED_PROTOCOL_VERSION: 400,
    }
)


class Stoppable(Protocol):
    """Something under way that can be called off."""

    def cancel(self) -> Any:
        """Call it off."""


class OnceLink:
    """One request and its answer."""

    __slots__ = (
        "_limit",
        "_waiter",
        "answer",
        "closed",
        "failed",
        "json_only",
        "lacks",
        "leaving",
        "left",
        "receiver",
        "refusal",
        "reply",
        "rounds",
        "status",
        "stream",
        "streaming",
        "streams",
        "visit",
        "watch",
        "work",
    )

    def __init__(self, limit: int, *, json_only: bool = False) -> None:
        """Carry one request; at most so many bytes wait to be written before senders are made to wait."""
        self._limit = limit
        self._waiter: asyncio.Future[None] | None = None
        self.receiver: Receiver | None = None
        #: The client takes no stream: only the answer is sent.
        self.json_only = json_only
        #: The answer as it is written, if it was the first thing out; with its status.
        self.answer: bytes | None = None
        self.status = 200
        #: The events, once something came before the answer.
        self.stream: EventStream | None = None
        #: The response that writes them.
        self.reply: StreamReply | None = None
        #: Nothing more is carried.
        self.closed = False
        #: The client is gone.
        self.left = False
        #: What the client is told if there is no answer.
        self.refusal: Refused | None = None
        #: The answer is an error.
        self.failed = False
        #: What the client's token lacks, if that is the error.
        self.lacks: InsufficientScope | None = None
        #: The response is to end as soon as it has begun; what is sent later waits to be asked for.
        self.leaving = False
        #: The work of serving the request, if whoever brought it is to do it; and what to call when a stream begins.
        self.work: Coroutine[Any, Any, None] | None = None
        self.streams: Callable[[OnceLink], None] | None = None
        self.streaming: asyncio.Future[Any] | None = None
        self.visit: Any = None
        #: Waits for the client's hang-up; and how long the request has been looked at. Upkeep writes both.
        self.watch: Stoppable | None = None
        self.rounds = -1

    # --- the link ----------------------------------------------------------------------------------------------------

    def attach(self, receiver: Receiver) -> None:
        """Know who takes messages."""
        self.receiver = receiver

    def send(self, batch: Sequence[Outbound]) -> None:
        """Answer, or stream; what comes after the answer is dropped."""
        for outbound in batch:
            if self.closed:
                return
            message = outbound.message
            kind = type(message)
            if kind is Response and self.stream is None:
                # What nearly every request comes to.
                self.answer = encoded(outbound)
                self.closed = True
                if self._waiter is not None:
                    self._wake()
                self._answered()
            elif kind is Response or kind is ErrorResponse or kind is tuple:
                self._answer(outbound, message)
            else:
                self._tell(outbound)

    async def drain(self) -> None:
        """Wait until the client has read enough."""
        if self.stream is not None:
            await self.stream.drain(self._limit)

    async def aclose(self) -> None:
        """Carry nothing more; a response that has not begun has none."""
        self._close()

    def run_here(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[Any]:
        """Let the task that brings the request do the work of serving it: a task the less for each request."""
        self.work = work
        task = asyncio.current_task()
        assert task is not None
        return task

    # --- for the endpoint --------------------------------------------------------------------------------------------

    @property
    def decided(self) -> bool:
        """Whether the form of the response is known, or that there will be none."""
        return self.answer is not None or self.stream is not None or self.closed

    async def decision(self) -> None:
        """Wait until the form of the response is known."""
        if not self.decided:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def begin_stream(self) -> None:
        """Make it a stream now: the answer takes its time."""
        if not self.decided and not self.json_only:
            self._open_stream()
            self._wake()

    def gone(self) -> None:
        """Learn that the client hung up: whatever is being done for it is cancelled."""
        self.left = True
        if self.reply is not None:
            self.reply.hang_up()
        self._end("the client hung up")

    def lost(self, refusal: Refused) -> None:
        """Learn that no answer is wanted any more; a client that has seen nothing yet is told why."""
        self.refusal = refusal
        self._end(str(refusal))

    def _end(self, reason: str) -> None:
        if not self.closed:
            self._close()
            if self.receiver is not None:
                self.receiver.eof_received(ConnectionLost(reason))

    # --- forms -------------------------------------------------------------------------------------------------------

    def _answer(self, outbound: Outbound, message: Message | tuple[Message, ...]) -> None:
        data = encoded(outbound)
        if type(message) is ErrorResponse:
            self.failed = True
            self.status = self._status(message)
            if isinstance(outbound.hint, InsufficientScope):
                # RFC 6750, 3.1, in every revision: clients look at the status to get a token that allows more.
                self.status, self.lacks = 403, outbound.hint
        if self.stream is None:
            self.answer = data
        else:
            self.stream.push(data, last=True)
        self._close()

    def _tell(self, outbound: Outbound) -> None:
        data = b"" if self.json_only else encoded(outbound)
        if not data:
            return
        stream = self.stream or self._open_stream()
        stream.push(data, droppable=type(outbound.message) is Notification)
        self._wake()

    def _answered(self) -> None:
        """Let those go who know the request as one being served."""

    def _status(self, error: ErrorResponse) -> int:
        return STATUSES.get(error.error.code, 200)

    def _open_stream(self) -> EventStream:
        self.stream = self._new_stream()
        if self.streams is not None:
            self.streams(self)
        return self.stream

    def _new_stream(self) -> EventStream:
        return EventStream()

    def _close(self) -> None:
        self.closed = True
        if self.stream is not None and not self.stream.ended:
            self.stream.end()
        self._wake()

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


class HandshakeLink(OnceLink):
    """One request of a handshake client: an error is an answer like any other."""

    __slots__ = ()

    def _status(self, error: ErrorResponse) -> int:
        return 200


def encoded(outbound: Outbound) -> bytes:
    """Write a message; an answer that cannot be written becomes an error, anything else nothing at all."""
    try:
        return encode(outbound.message)
    except Exception:  # noqa: BLE001
        # An encoder runs code of the user's types; whoever waits still gets an answer.
        return b"".join(encode_each([outbound]))

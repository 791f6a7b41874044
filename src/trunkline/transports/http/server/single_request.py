"""One HTTP request and its response: the link of a POST without a session, and the base of those within one.

``SingleRequestTransport`` owns the whole life of one response. Other objects call its methods and never write its
state: the connection sends through it, the endpoint awaits ``respond``, the registry of open responses calls ``check``
and ``tick``, the stream's response and the HTTP server report a disconnect.

The first message sent decides the form: an answer makes the response JSON, with a status for the kind of error;
anything else makes it a stream of events that the answer ends. A disconnect ends a request without a session: nothing
sent can arrive any more, so the request is cancelled.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from trunkline.errors import ConnectionLost, InsufficientScope
from trunkline.protocol.error_codes import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CLIENT_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from trunkline.protocol.jsonrpc import ErrorResponse, Message, Outbound, Response, encode
from trunkline.transports.codec_errors import encode_each
from trunkline.transports.http.server.asgi import JSON, RETRY_SOON, TOO_MANY, UNAVAILABLE, Headers, HTTPException
from trunkline.transports.http.server.event_stream import EventStream
from trunkline.transports.http.server.open_responses import OpenResponses
from trunkline.transports.http.server.request import ClientConnection, HttpRequest, send_response
from trunkline.transports.http.server.response import SSEResponse
from trunkline.transports.link import Link, Receiver

__all__ = ["STATUSES", "HandshakeRequestTransport", "SingleRequestTransport", "encoded"]

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
        TOO_MANY: TOO_MANY,
    }
)


class SingleRequestTransport(Link):
    """The link of one HTTP request, and the owner of its response."""

    __slots__ = (
        "_answer",
        "_closed",
        "_disconnected",
        "_failed",
        "_failure",
        "_held",
        "_insufficient_scope",
        "_limit",
        "_open_responses",
        "_release_early",
        "_request",
        "_retry_after",
        "_rounds",
        "_sse",
        "_sse_end",
        "_status",
        "_stream",
        "_waiter",
        "_watched",
        "_withdrawn",
        "_work",
        "can_stream",
        "receiver",
    )

    can_stream: bool
    ends_with_response = True

    def __init__(self, request: HttpRequest, open_responses: OpenResponses) -> None:
        """Prepare the response of a request; ``respond`` sends it."""
        self._request: HttpRequest | None = request
        #: What the request holds until it is answered, or no longer served.
        self._held = request.take_held()
        self._open_responses = open_responses
        #: How many bytes may be pending before ``drain`` waits.
        self._limit = request.limits.write_bytes
        self.receiver: Receiver | None = None
        self.can_stream = not request.json_only
        #: The encoded answer and its status, if it was the first message sent.
        self._answer: bytes | None = None
        self._status = 200
        #: Whether the answer is an error; and the scopes that the client's token lacks, if that is the error.
        self._failed = False
        self._insufficient_scope: InsufficientScope | None = None
        #: The events, once something was sent before the answer; the response that writes them; its end, if it is
        #: written while the request is being served.
        self._stream: EventStream | None = None
        self._sse: SSEResponse | None = None
        self._sse_end: asyncio.Future[Any] | None = None
        #: The response is to end as soon as it has begun; what is sent later is kept until the client requests it.
        self._release_early = False
        #: Nothing more is sent.
        self._closed = False
        #: Whether the client has disconnected; and the error to send if it has not and there is no answer.
        self._disconnected = False
        self._failure: HTTPException | None = None
        #: The coroutine that serves the request, if ``respond`` is to run it; and whether the client has cancelled it.
        self._work: Coroutine[Any, Any, None] | None = None
        self._withdrawn = False
        #: Done once the form of the response is known.
        self._waiter: asyncio.Future[None] | None = None
        #: The connection that reports a disconnect, if it is watched; and for how many rounds of the clock the request
        #: has been open.
        self._watched: ClientConnection | None = None
        self._rounds = -1

    # --- the link ----------------------------------------------------------------------------------------------------

    def attach(self, receiver: Receiver) -> None:
        """Store the receiver; the endpoint delivers the request to it."""
        self.receiver = receiver

    def send(self, batch: Sequence[Outbound]) -> None:
        """Set the answer, or add to the stream; messages after the answer are dropped."""
        for outbound in batch:
            if self._closed:
                return
            message = outbound.message
            kind = type(message)
            if kind is Response and self._stream is None:
                # The common case: the answer is the first message sent.
                self._answer = encoded(outbound)
                self._closed = True
                if self._waiter is not None:
                    self._wake()
                self._answered()
            elif kind is Response or kind is ErrorResponse or kind is tuple:
                self._send_answer(outbound, message)
            else:
                self._send_event(outbound)

    def send_event(self, data: bytes) -> bool:
        """Write an encoded notification at once; return False if it must be sent the usual way."""
        return self._sse is not None and not self._closed and self._sse.write_event(data)

    async def drain(self) -> None:
        """Wait until the client has read enough."""
        if self._stream is not None:
            await self._stream.drain(self._limit)

    async def aclose(self) -> None:
        """Send nothing more; a response that has not begun has no answer."""
        self._close()

    def run_inline(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[Any]:
        """Store the coroutine that serves the request; ``respond`` runs it, which saves a task for each request."""
        self._work = work
        task = asyncio.current_task()
        assert task is not None
        return task

    # --- for the endpoint --------------------------------------------------------------------------------------------

    async def respond(self, headers: Headers | None = None, *, unless_error: bool = False) -> None:
        """Run the work kept by ``run_inline``, if any, and send the response: JSON, or a stream.

        ``headers`` are added to it; with ``unless_error`` only if the answer is a result.

        Raises:
            HTTPException: there is no answer; the reason is to be sent to the client.
        """
        request = self._request
        assert request is not None
        try:
            if self._work is not None:
                self._open_responses.request_started(self)
                await self._work
                if not self._closed or self._disconnected or self._failure is not None:
                    self._work_stopped()
                if request.direct is None:
                    # The answers of one turn of the loop are sent together, which the HTTP server of this package does
                    # itself: under load that saves a fifth of the processor time of each, since clients come back in
                    # groups and not one by one.
                    await asyncio.sleep(0)
            elif not self._decided:
                self._open_responses.request_started(self)
                self._waiter = asyncio.get_running_loop().create_future()
                await self._waiter
            if self._answer is not None:
                if (
                    self._status == 200
                    and not headers
                    and self._insufficient_scope is None
                    and request.direct is not None
                    and request.direct.write_json(self._answer)
                ):
                    return
                head = [JSON] if headers is None or (unless_error and self._failed) else [JSON, *headers]
                if self._insufficient_scope is not None:
                    head += self._open_responses.challenge(self._insufficient_scope, request)
                elif self._status in (TOO_MANY, UNAVAILABLE):
                    head.append(self._retry_after)
                await send_response(request.send, self._status, head, self._answer)
            elif self._stream is not None:
                await self._respond_with_stream(self._stream, request, headers or [])
            if self._answer is None and self._sse is None:
                await self._respond_without_answer(request)
        except BaseException:
            self.client_disconnected()
            if self._sse_end is not None:
                self._sse_end.cancel()
            raise
        finally:
            # Within a session the request may still be served; the rest is freed now, which breaks reference cycles.
            self._open_responses.request_finished(self)
            self._request = None
            if self._closed:
                self.receiver = None
            if self._watched is not None:
                self._watched.remove_disconnect_callback(self.client_disconnected)
                self._watched = None

    async def _respond_with_stream(self, stream: EventStream, request: HttpRequest, headers: Headers) -> None:
        if stream.storing is not None:
            # Until its first event is stored a request can still be refused.
            await asyncio.wait([stream.storing])
        if self._answer is not None:
            await send_response(request.send, self._status, [JSON, *headers], self._answer)
        elif self._sse_end is not None:
            await asyncio.wait([self._sse_end])
        elif self._stream is not None and (sse := self._open_sse(stream, request)) is not None:
            await sse.run(headers, owner=self._open_responses, connection=request.connection)

    @property
    def succeeded(self) -> bool:
        """Whether the request was answered with a result and the client had not disconnected."""
        return self._closed and not self._failed and not self._disconnected

    def abort(self, failure: HTTPException) -> None:
        """Stop serving the request; if the response has not begun, ``failure`` is sent."""
        self._failure = failure
        self._end(str(failure))

    # --- for the registry of open responses --------------------------------------------------------------------------

    def client_disconnected(self) -> None:
        """Called when the client disconnects: the request is cancelled."""
        self._disconnected = True
        if self._sse is not None:
            self._sse.client_disconnected()
        self._end("the client disconnected")

    def check(self) -> bool:
        """Watch for a disconnect from the second call on; return whether to call again soon.

        Most requests are answered before that, and are never watched.
        """
        if self._rounds < 0:
            self._rounds = 0
            return True
        if self._watched is None and not self._decided and self._request is not None:
            self._watched = self._request.connection
            self._watched.add_disconnect_callback(self.client_disconnected)
            self._open_responses.start_clock()
        return False

    def tick(self, rounds: int) -> None:
        """Count a round of the clock; after so many without an answer, begin a stream."""
        self._rounds += 1
        if self._rounds >= rounds:
            self._begin_stream()

    # --- ending ------------------------------------------------------------------------------------------------------

    def _work_stopped(self) -> None:
        """Handle the end of the work without an answer: the request was cancelled, or this task was.

        Raises:
            CancelledError: the task was cancelled.
        """
        task = asyncio.current_task()
        assert task is not None
        if not (self._disconnected or self._withdrawn) and self._failure is None and task.cancelling():
            raise asyncio.CancelledError
        while task.cancelling():
            task.uncancel()
        if self._withdrawn:
            self._close()

    async def _respond_without_answer(self, request: HttpRequest) -> None:
        if self._failure is not None:
            raise self._failure
        if not self._disconnected:
            # The client cancelled the request: 2025-11-25, basic/utilities/cancellation, wants no answer sent.
            await request.answer(202)

    def _end(self, reason: str) -> None:
        if not self._closed:
            self._close()
            if self.receiver is not None:
                self.receiver.eof_received(ConnectionLost(reason))

    def _close(self) -> None:
        self._closed = True
        if self._stream is not None and not self._stream.ended:
            self._stream.end()
        self._wake()
        self._answered()

    # --- the form of the response ------------------------------------------------------------------------------------

    @property
    def _decided(self) -> bool:
        """Whether the form of the response is known, or it is known that there will be none."""
        return self._answer is not None or self._stream is not None or self._closed

    def _send_answer(self, outbound: Outbound, message: Message | tuple[Message, ...]) -> None:
        data = encoded(outbound)
        if type(message) is ErrorResponse:
            self._failed = True
            self._status = self._status_of(message)
            self._retry_after = _retry_after(message)
            if outbound.insufficient_scope is not None:
                # RFC 6750, 3.1, in every revision: clients look at the status to get a token that allows more.
                self._status, self._insufficient_scope = 403, outbound.insufficient_scope
            elif message.error.code == UNAVAILABLE:
                # What the workers share cannot be reached; the same status in every revision, for proxies and clients.
                self._status = UNAVAILABLE
        if self._stream is None:
            self._answer = data
        else:
            self._stream.push(data, last=True)
        self._close()

    def _send_event(self, outbound: Outbound) -> None:
        data = encoded(outbound) if self.can_stream else b""
        if not data:
            return
        stream = self._stream
        if stream is not None:
            stream.push(data)
            return
        # Pushed before the response begins: a stream that stores its events first can still refuse the request.
        stream = self._stream = self._new_stream()
        stream.push(data)
        if self._work is not None:
            self._write_alongside(stream)
        self._wake()

    def _answered(self) -> None:
        """Called when the request is answered, or no longer served."""
        if self._held is not None:
            self._held.release()

    def _status_of(self, error: ErrorResponse) -> int:
        return STATUSES.get(error.error.code, 200)

    def _begin_stream(self) -> None:
        if not self._decided and self.can_stream:
            stream = self._stream = self._new_stream()
            if self._work is not None:
                self._write_alongside(stream)
            self._wake()

    def _new_stream(self) -> EventStream:
        return EventStream()

    def _write_alongside(self, stream: EventStream) -> None:
        """Start to write the stream while the work that fills it continues."""
        request = self._request
        if request is not None and (sse := self._open_sse(stream, request)) is not None:
            self._sse_end = sse.start([], owner=self._open_responses, connection=request.connection)

    def _open_sse(self, stream: EventStream, request: HttpRequest) -> SSEResponse | None:
        """Create the response that writes the stream; if too many are open, abort the request and return None."""
        request.drop_headers()
        try:
            self._open_responses.check_streams()
        except HTTPException as refusal:
            self.abort(refusal)
            return None
        self._sse = SSEResponse(
            stream, request.send, finishing=self._release_early, listener=self, direct=request.direct
        )
        return self._sse

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


def _retry_after(answer: ErrorResponse) -> tuple[bytes, bytes]:
    """Return the header that says when to try again: when the error does, or soon."""
    data = answer.error.data
    seconds = data.get("retryAfter") if isinstance(data, Mapping) else None
    if not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
        # A handler may have written anything there.
        return RETRY_SOON
    return b"retry-after", b"%d" % math.ceil(seconds)


class HandshakeRequestTransport(SingleRequestTransport):
    """One request of a handshake client: the status of an error answer is 200."""

    __slots__ = ()

    def _status_of(self, error: ErrorResponse) -> int:
        return 200


def encoded(outbound: Outbound) -> bytes:
    """Encode a message; an answer that cannot be encoded becomes an error, any other message no bytes."""
    try:
        return encode(outbound.message)
    except Exception:  # noqa: BLE001
        # An encoder runs code of the user's types; the caller still gets an answer.
        return b"".join(encode_each([outbound]))

"""HTTP/1.1 on one connection: uvicorn's parser class with deadlines, sizes and the refusals it lacks.

It knows bytes and clocks, no messages and no application. Uvicorn's class on httptools waits for ever for a head or a
body, caps neither headers nor chunk extensions, lets trailers become headers, queues pipelined requests without bound
and lets a client that does not read hold a response. Here a connection notes *when* it began to wait and *how many*
bytes came that were no body; one timer for all connections (`Watch`) compares the first with the limits, so that a
request costs no timer of its own.

What is used of uvicorn's class besides its callbacks: ``parser``, ``flow``, ``transport``, ``pipeline``, ``scope``,
``headers``, ``url``, ``connections``, ``server_state``, and of a cycle ``response_started``, ``response_complete``,
``disconnected``, ``keep_alive``, ``body``, ``more_body`` and ``message_event``. All are there from 0.38 on.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Any

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from trunkline.protocol.limits import Limits
from trunkline.transports.http.server.request import CONNECTION_KEY

__all__ = ["ConnectionTracker", "UvicornProtocol"]

#: Requests that may wait behind the one being answered. Clients hardly pipeline; sixteen is what benchmarks use.
PIPELINED = 16
#: Seconds between two sweeps, unless a limit is so short that this would be coarse.
TICK_SECONDS = 1.0

# What a connection waits for; plain numbers, since a look at a member of an enumeration costs four times as much.
_BETWEEN, _HEAD, _BODY, _CHUNKS = range(4)

_VERSIONS = ("1.1", "1.0")
_INVALID = (HTTPStatus.BAD_REQUEST, "This is not a valid HTTP request.")
_HEAD_TOO_LARGE = (HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "The head of the request is too large.")
_TOO_MUCH_FRAMING = (HTTPStatus.BAD_REQUEST, "The chunks of the body are far larger than what is in them.")

_Message = MutableMapping[str, Any]


class ConnectionTracker:
    """All connections of a server and the one timer that looks after them.

    ``now`` is the time of the last sweep: a connection reads it instead of the clock, so a limit is kept to within two
    sweeps and never cut short.
    """

    def __init__(self, limits: Limits, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Take the limits; the clock is a parameter for tests."""
        self.limits = limits
        self.connections: set[UvicornProtocol] = set()
        self.empty = asyncio.Event()
        self.empty.set()
        shortest = min(limits.header_seconds, limits.body_seconds, limits.idle_seconds, limits.keep_alive_seconds)
        self.tick = min(TICK_SECONDS, shortest / 4)
        self.log = _ConnectionLog(logging.getLogger("trunkline.transports"))
        self._clock = clock
        self.now = clock()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, connection: UvicornProtocol) -> None:
        """Look after a connection from now on."""
        self.connections.add(connection)
        self.empty.clear()
        if self._timer is None:
            self.now = self._clock()
            self._arm()

    def remove(self, connection: UvicornProtocol) -> None:
        """Forget a connection that is closed."""
        self.connections.discard(connection)
        if not self.connections and self._timer is not None:
            self.empty.set()
            self._timer.cancel()
            self._timer = None

    def sweep(self) -> None:
        """End what has waited too long."""
        self.now = self._clock()
        for connection in tuple(self.connections):
            connection.check(self.now)

    def _arm(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self.tick, self._on_tick)

    def _on_tick(self) -> None:
        self._arm()
        self.sweep()


class _BadRequest(Exception):
    """Raised in a parser's callback: the rest of the bytes is not looked at."""


class _ConnectionLog(logging.LoggerAdapter[logging.Logger]):
    """The log that uvicorn's class writes to; a request cancelled at the end of a drain is no error of the program."""

    #: Asked by uvicorn's class before each of its trace lines.
    level = logging.INFO

    def error(self, msg: object, *args: object, exc_info: Any = None, **kwargs: Any) -> None:
        """Log unless it tells of a cancelled request."""
        if not isinstance(exc_info, asyncio.CancelledError):
            super().error(msg, *args, exc_info=exc_info, **kwargs)


class UvicornProtocol(HttpToolsProtocol):
    """One HTTP connection, kept within the limits of its watch."""

    # uvicorn's own attributes fill a dictionary that all connections share the keys of; more would end the sharing.
    __slots__ = (
        "_earlier",
        "_lost",
        "_refusal",
        "_unsent",
        "_unsent_since",
        "deaf",
        "ending",
        "framing",
        "header_bytes",
        "phase",
        "since",
        "watch",
    )

    def __init__(self, *args: Any, watch: ConnectionTracker, access_log: bool = False, **kwargs: Any) -> None:
        """Take uvicorn's arguments and the watch; the access log is off unless asked for."""
        super().__init__(*args, **kwargs)
        self.watch = watch
        self.access_log = access_log
        self.logger = watch.log  # type: ignore[assignment]
        self.header_bytes = watch.limits.header_bytes
        self.phase = _HEAD
        #: When the phase began.
        self.since = watch.now
        #: Bytes of this request that are no body; each byte of body pays for one of framing.
        self.framing = 0
        #: Whether what still comes is thrown away: the connection ends with the last answer under way.
        self.deaf = False
        #: Whether the server stops, so that each answer is the connection's last.
        self.ending = False
        self._refusal = _INVALID
        self._earlier: tuple[RequestResponseCycle, ...] = ()
        self._lost: tuple[Callable[[], None], ...] = ()
        self._unsent = 0
        self._unsent_since = watch.now

    # --- the connection -----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a head; a connection beyond the cap is told so, one far beyond it is dropped."""
        super().connection_made(transport)
        self.watch.add(self)
        self.since = self.watch.now
        most = self.watch.limits.connections
        if len(self.connections) > most:
            self.app = _overloaded
        if len(self.connections) > most + most // 8 + 8:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell every request that is being answered; uvicorn tells the last one alone."""
        self.watch.remove(self)
        super().connection_lost(exc)
        lost, self._lost = self._lost, ()
        for callback in lost:
            callback()
        for cycle in self._earlier:
            if not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()

    # --- what an application may ask: see `visits.Carrier` ------------------------------------------------------------

    def add_disconnect_callback(self, callback: Callable[[], None]) -> None:
        """Have something called when the connection ends."""
        self._lost = (*self._lost, callback)
        if self.transport.is_closing():
            asyncio.get_running_loop().call_soon(callback)

    def remove_disconnect_callback(self, callback: Callable[[], None]) -> None:
        """Have it not called."""
        self._lost = tuple(each for each in self._lost if each != callback)

    def shutdown(self) -> None:
        """Close as soon as nothing is under way: no request, and no head that has begun to come."""
        self.ending = True
        if self.phase != _HEAD or not self.framing or self._unanswered():
            super().shutdown()

    def check(self, now: float) -> None:
        """End the connection if the other side is too slow to send, or to read."""
        limits = self.watch.limits
        if self.transport.is_closing() or self.flow.write_paused:
            self._check_unsent(now, limits.idle_seconds)
        else:
            self._unsent = 0
        if self.transport.is_closing():
            return
        if self.flow.read_paused:
            # We do not read, so the other side cannot be late.
            self.since = now
            return
        waited = now - self.since - self.watch.tick
        if self.phase == _BETWEEN:
            if waited > limits.keep_alive_seconds and self._unanswered() is None:
                self.transport.close()
        elif self.phase == _HEAD:
            if waited > limits.header_seconds:
                self._end_head()
        elif waited > limits.body_seconds:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, "The body did not come in time.")

    def _end_head(self) -> None:
        if self.framing:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, "The head did not come in time.")
        else:
            self.transport.close()

    def _check_unsent(self, now: float, patience: float) -> None:
        unsent = self.transport.get_write_buffer_size()
        if not self._unsent or unsent < self._unsent:
            self._unsent, self._unsent_since = unsent, now
        elif now - self._unsent_since > patience:
            self.transport.abort()

    # --- bytes in -----------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Parse what came, at most a head's worth at a time."""
        if self.phase == _BETWEEN and not self.deaf:
            self.phase = _HEAD
            self.since = self.watch.now
        if len(data) <= self.header_bytes:
            self._feed(data)
            return
        whole = memoryview(data)
        for start in range(0, len(data), self.header_bytes):
            self._feed(whole[start : start + self.header_bytes])

    def _feed(self, data: bytes | memoryview) -> None:
        if self.deaf:
            return
        self.framing += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._feed_without_upgrade(data, upgrade)
        except httptools.HttpParserError:
            self._refuse(*self._refusal)
        if self.framing > self.header_bytes and not self.deaf:
            self._refuse(*(_HEAD_TOO_LARGE if self.phase == _HEAD else _TOO_MUCH_FRAMING))

    def _feed_without_upgrade(self, data: bytes | memoryview, upgrade: httptools.HttpParserUpgrade) -> None:
        """Parse a request again without its wish to change the protocol.

        The parser takes all that follows such a head for another protocol, the request's own body included; Java's
        HttpClient asks for HTTP/2 in this way on every plain request, also on those with a body.
        """
        if self.parser.get_method() == b"CONNECT":
            self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, "This is no proxy.")
            return
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
        lines += [b"%s: %s" % (name, value) for name, value in self.headers if name != b"upgrade"]
        # After a request that is the connection's last the old parser takes no more.
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        try:
            self.parser.feed_data(b"\r\n".join([*lines, b"", bytes(data[upgrade.args[0] :])]))
        except httptools.HttpParserUpgrade:
            # The next request of the same bytes asks as well: no honest client pipelines such wishes.
            self._refuse(HTTPStatus.BAD_REQUEST, "Only one request at a time may ask for another protocol.")
        except httptools.HttpParserError:
            self._refuse(*self._refusal)

    # --- what the parser finds ----------------------------------------------------------------------------------------

    # These run for every request: where uvicorn's own is short it is written out, without the looks at WebSockets, and
    # elsewhere the class is named instead of `super()`, which costs three times as much.

    def on_headers_complete(self) -> None:
        """Let a request in, if it is one we take."""
        if self.parser.should_upgrade():
            return  # it is parsed again: see _feed_without_upgrade
        if self.framing > self.header_bytes and self._head_bytes() > self.header_bytes:
            self._reject(*_HEAD_TOO_LARGE)
        if self.pipeline and len(self.pipeline) >= PIPELINED:
            self._reject(HTTPStatus.BAD_REQUEST, "Too many requests wait on this connection.")
        before = self.cycle
        # An application that waits for long need not hold a task for the sake of hearing that its client left.
        self.scope[CONNECTION_KEY] = self  # type: ignore[typeddict-unknown-key]
        HttpToolsProtocol.on_headers_complete(self)
        # The parser gives trailers as headers: they must not join those that the application has checked.
        self.headers = []
        self.phase = _BODY
        self.since = self.watch.now
        if self.pipeline:
            # Uvicorn stops reading here, and would not see that the client of the request under way has left.
            self.flow.resume_reading()
            self._earlier = tuple(cycle for cycle in (*self._earlier, before) if not cycle.response_complete)
        if self.ending:
            self.cycle.keep_alive = False
        if self.scope["http_version"] not in _VERSIONS:
            self._reject(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "This server speaks HTTP/1.1.")

    def on_chunk_header(self) -> None:
        """Refuse a chunked body that two parsers could read in two ways."""
        if self.phase == _BODY:
            self.phase = _CHUNKS
            codings = [value.strip().lower() for name, value in self.scope["headers"] if name == b"transfer-encoding"]
            if codings != [b"chunked"] or self.scope["http_version"] != "1.1":
                self._reject(HTTPStatus.BAD_REQUEST, "The only transfer coding is chunked, in HTTP/1.1.")

    def on_body(self, body: bytes) -> None:
        """Hand on a piece of the body."""
        self.framing -= 2 * len(body)
        cycle = self.cycle
        if cycle.response_complete:
            return
        cycle.body += body
        if len(cycle.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        cycle.message_event.set()

    def on_message_complete(self) -> None:
        """Wait for the next request."""
        if self.parser.should_upgrade():
            return
        cycle = self.cycle
        if not cycle.response_complete:
            cycle.more_body = False
            cycle.message_event.set()
        self.phase = _BETWEEN
        self.since = self.watch.now
        self.framing = 0

    def on_response_complete(self) -> None:
        """Go on with the next request; a rest is ended by the sweep, where uvicorn sets a timer for each."""
        if self.pipeline or self.transport.is_closing():
            HttpToolsProtocol.on_response_complete(self)
            return
        self.server_state.total_requests += 1
        self.flow.resume_reading()
        if self.phase == _BETWEEN:
            self.since = self.watch.now

    def _head_bytes(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    # --- refusing -----------------------------------------------------------------------------------------------------

    def _reject(self, status: HTTPStatus, sentence: str) -> None:
        """Stop the parser from inside one of its callbacks; `_feed` then refuses."""
        self._refusal = (status, sentence)
        raise _BadRequest

    def _refuse(self, status: HTTPStatus, sentence: str) -> None:
        """Take nothing more; say why, unless another answer has begun: then that one is the last."""
        self.deaf = True
        self.logger.debug("Refused a request of %s: %d, %s", self.client, status, sentence)
        in_body = self.phase in (_BODY, _CHUNKS)
        self.phase = _BETWEEN
        if in_body:
            self._give_up_current()
        last = self._unanswered()
        if last is not None:
            last.keep_alive = False
            return
        if not (in_body and self.cycle.response_started):
            self.transport.write(self._answer(status, sentence))
        self.transport.close()

    def _give_up_current(self) -> None:
        """Tell the application that the rest of this request will not come."""
        current = self.cycle
        if self.pipeline and self.pipeline[0][0] is current:
            self.pipeline.popleft()
        if not current.response_complete:
            current.disconnected = True
            current.message_event.set()

    def _unanswered(self) -> RequestResponseCycle | None:
        """Find the last request whose answer is still due."""
        for cycle in (self.cycle, *reversed(self._earlier)):
            if cycle is not None and not cycle.response_complete and not cycle.disconnected:
                return cycle
        return None

    def _answer(self, status: HTTPStatus, sentence: str) -> bytes:
        lines = [f"HTTP/1.1 {status.value} {status.phrase}".encode()]
        lines += [b"%s: %s" % header for header in self.server_state.default_headers]
        lines += [b"content-type: text/plain; charset=utf-8", b"content-length: %d" % len(sentence)]
        return b"\r\n".join([*lines, b"connection: close", b"", sentence.encode()])


async def _overloaded(
    scope: _Message, receive: Callable[[], Awaitable[_Message]], send: Callable[[_Message], Awaitable[None]]
) -> None:
    """Answer in the application's place on a connection beyond the cap."""
    body = b"Too many connections are open."
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(body))]
    headers += [(b"connection", b"close"), (b"retry-after", b"1")]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": body})

"""HTTP/1.1 on one connection: uvicorn's protocol class with the timeouts, size limits and checks that it lacks.

It knows bytes and clocks, no messages and no application. Uvicorn's class on httptools waits for ever for the headers
or the body of a request, limits neither headers nor chunk extensions, lets trailers become headers, queues pipelined
requests without bound and lets a client that does not read hold a response. Here a connection records *when* it began
to wait and *how many* bytes arrived that were not body; the `ConnectionTracker` compares the times with the limits.

Used of uvicorn's class besides its callbacks: ``parser``, ``flow``, ``transport``, ``pipeline``, ``scope``,
``headers``, ``url``, ``connections``, ``tasks``, ``server_state``, ``app_state``, ``root_path``, ``server``, ``client``
and ``scheme``. All exist from 0.38 on. A request is a ``UvicornCycle``, not uvicorn's own class.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from contextvars import Context
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from trunkline.transports.http.server.connection_tracker import ConnectionTracker, RequestTarget, TaskFactory
from trunkline.transports.http.server.request import CONNECTION_KEY
from trunkline.transports.http.server.uvicorn_cycle import UvicornCycle

__all__ = ["UvicornProtocol"]

#: How many requests may be queued behind the one being answered. Clients hardly pipeline; benchmarks use sixteen.
PIPELINED = 16
# What a connection waits for; plain numbers, since access to a member of an enumeration costs four times as much.
_BETWEEN, _HEAD, _BODY, _CHUNKS = range(4)

_VERSIONS = ("1.1", "1.0")
_INVALID = (HTTPStatus.BAD_REQUEST, "This is not a valid HTTP request.")
_HEAD_TOO_LARGE = (HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "The head of the request is too large.")
_TOO_MUCH_FRAMING = (HTTPStatus.BAD_REQUEST, "The chunks of the body are far larger than what is in them.")

_Message = MutableMapping[str, Any]

#: From so many connections on, responses are written in groups. Below that a single client is served, which has one
#: connection for its requests and perhaps another for a stream.
GROUPED_FROM = 3
# How many parsed request targets are kept; most servers have one path.
_TARGETS = 64
# A longer target is parsed each time: what is kept stays small.
_TARGET_BYTES = 256


class _BadRequest(Exception):
    """Raised in a callback of the parser: the rest of the data is not parsed."""


class UvicornProtocol(HttpToolsProtocol):
    """One HTTP connection, within the limits of its tracker."""

    # uvicorn's own attributes fill a key-sharing dictionary; more attributes would end the sharing.
    __slots__ = (
        "_disconnect_callbacks",
        "_earlier",
        "_new",
        "_rejection",
        "_unsent",
        "_unsent_since",
        "_unwritten",
        "discarding",
        "ending",
        "framing",
        "header_bytes",
        "phase",
        "since",
        "tracker",
    )

    cycle: UvicornCycle

    def __init__(self, *args: Any, tracker: ConnectionTracker, access_log: bool = False, **kwargs: Any) -> None:
        """Accept uvicorn's arguments and the tracker; the access log is off by default."""
        super().__init__(*args, **kwargs)
        self.tracker = tracker
        self.access_log = access_log
        self.logger = tracker.log  # type: ignore[assignment]
        self.header_bytes = tracker.limits.header_bytes
        self.phase = _HEAD
        #: When the phase began.
        self.since = tracker.now
        #: Bytes of this request that are not body; each byte of body allows one byte of framing.
        self.framing = 0
        #: Whether further input is discarded: the connection ends after the last response in progress.
        self.discarding = False
        #: Whether the server stops, so that each response is the connection's last.
        self.ending = False
        self._rejection = _INVALID
        #: A request whose task is not started yet.
        self._new: UvicornCycle | None = None
        self._earlier: tuple[UvicornCycle, ...] = ()
        self._disconnect_callbacks: tuple[Callable[[], None], ...] = ()
        self._unsent = 0
        self._unsent_since = tracker.now
        #: A response that the tracker will have written at the next turn of the loop.
        self._unwritten = b""

    # --- the connection -----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start to wait for a request; a connection over the limit replaces one that waits, or gets an error."""
        super().connection_made(transport)
        self.tracker.add(self)
        self.since = self.tracker.now
        self.ending = self.tracker.retired_at is not None
        if not self.tracker.make_room(self):
            self.app = _overloaded

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the disconnect to every request that is being answered; uvicorn reports it to the last one alone."""
        self.tracker.remove(self)
        super().connection_lost(exc)
        callbacks, self._disconnect_callbacks = self._disconnect_callbacks, ()
        for callback in callbacks:
            callback()
        for cycle in self._earlier:
            if not cycle.response_complete:
                cycle.disconnected = True
                cycle.set()
        # Both refer to this connection: without them it is freed at once, and not by the garbage collector.
        self.scope = self.cycle = None  # type: ignore[assignment]
        self._earlier = ()

    # --- the connection as an application sees it: `request.ClientConnection` -----------------------------------------

    def add_disconnect_callback(self, callback: Callable[[], None]) -> None:
        """Register a callback for the end of the connection."""
        self._disconnect_callbacks = (*self._disconnect_callbacks, callback)
        if self.transport.is_closing():
            asyncio.get_running_loop().call_soon(callback)

    def remove_disconnect_callback(self, callback: Callable[[], None]) -> None:
        """Remove a callback."""
        self._disconnect_callbacks = tuple(each for each in self._disconnect_callbacks if each != callback)

    @property
    def is_busy(self) -> bool:
        """Whether a request is being answered, or the connection is closing."""
        return self.transport.is_closing() or self._unanswered() is not None

    @property
    def is_silent(self) -> bool:
        """Whether no request is being answered, and none has begun to arrive."""
        return not self.is_busy and (self.phase == _BETWEEN or not self.framing)

    def retire(self) -> None:
        """Make the next response the connection's last, or the current one if its headers are not sent yet.

        After headers that do not say so, the client may send its next request on this connection.
        """
        self.ending = True
        current = self._unanswered()
        if current is not None and not current.response_started:
            current.keep_alive = False

    def shutdown(self) -> None:
        """Close as soon as no request is in progress and none has begun to arrive."""
        self.ending = True
        self.write_now()
        if self.phase != _HEAD or not self.framing or self._unanswered():
            super().shutdown()

    def check(self, now: float) -> None:
        """Close the connection if the client is too slow to send, or to read."""
        limits = self.tracker.limits
        if self.transport.is_closing() or self.flow.write_paused:
            self._check_unsent(now, limits.idle_seconds)
        else:
            self._unsent = 0
        if self.transport.is_closing():
            return
        if self.flow.read_paused:
            # This side does not read, so the client cannot be late.
            self.since = now
            return
        waited = now - self.since - self.tracker.tick
        if self.phase == _BETWEEN:
            if waited > limits.keep_alive_seconds and self._unanswered() is None:
                self.transport.close()
        elif self.phase == _HEAD:
            if waited > limits.header_seconds:
                self._head_timed_out()
        elif waited > limits.body_seconds:
            self._reject(HTTPStatus.REQUEST_TIMEOUT, "The body did not come in time.")

    def _head_timed_out(self) -> None:
        if self.framing:
            self._reject(HTTPStatus.REQUEST_TIMEOUT, "The head did not come in time.")
        else:
            self.transport.close()

    def _check_unsent(self, now: float, timeout: float) -> None:
        unsent = self.transport.get_write_buffer_size()
        if not self._unsent or unsent < self._unsent:
            self._unsent, self._unsent_since = unsent, now
        elif now - self._unsent_since > timeout:
            self.transport.abort()

    # --- bytes out ----------------------------------------------------------------------------------------------------

    def write_grouped(self, data: bytes) -> None:
        """Write a whole response, together with those of other connections if there are many."""
        if len(self.connections) < GROUPED_FROM:
            self.transport.write(data)
        else:
            self._unwritten = data
            self.tracker.write_soon(self)

    def write_now(self) -> None:
        """Write the response that waits for the next turn of the loop; whatever else is written comes after it."""
        if self._unwritten:
            data, self._unwritten = self._unwritten, b""
            # uvloop raises if the connection was lost meanwhile, and the grouped responses of others would stay behind.
            if not self.transport.is_closing():
                self.transport.write(data)

    # --- bytes in -----------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Parse received data, at most ``header_bytes`` at a time."""
        if self.phase == _BETWEEN and not self.discarding:
            self.phase = _HEAD
            self.since = self.tracker.now
        if len(data) <= self.header_bytes:
            self._feed(data)
            return
        whole = memoryview(data)
        for start in range(0, len(data), self.header_bytes):
            self._feed(whole[start : start + self.header_bytes])

    def _feed(self, data: bytes | memoryview) -> None:
        if self.discarding:
            return
        self.framing += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._feed_without_upgrade(data, upgrade)
        except httptools.HttpParserError:
            self._reject(*self._rejection)
        if self.framing > self.header_bytes and not self.discarding:
            self._reject(*(_HEAD_TOO_LARGE if self.phase == _HEAD else _TOO_MUCH_FRAMING))
        if self._new is not None:
            cycle, self._new = self._new, None
            self._start(cycle, self.tracker.start_task)

    def _feed_without_upgrade(self, data: bytes | memoryview, upgrade: httptools.HttpParserUpgrade) -> None:
        """Parse a request again without its ``Upgrade`` header.

        The parser treats all data after such headers as another protocol, the request's own body included; Java's
        HttpClient asks for HTTP/2 in this way with every plain request, also with those that have a body.
        """
        if self.parser.get_method() == b"CONNECT":
            self._reject(HTTPStatus.METHOD_NOT_ALLOWED, "This is no proxy.")
            return
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
        lines += [b"%s: %s" % (name, value) for name, value in self.headers if name != b"upgrade"]
        # After a request that is the connection's last the old parser accepts no more data.
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        try:
            self.parser.feed_data(b"\r\n".join([*lines, b"", bytes(data[upgrade.args[0] :])]))
        except httptools.HttpParserUpgrade:
            # The next request in the same data asks for an upgrade too: no legitimate client pipelines those.
            self._reject(HTTPStatus.BAD_REQUEST, "Only one request at a time may ask for another protocol.")
        except httptools.HttpParserError:
            self._reject(*self._rejection)

    # --- callbacks of the parser --------------------------------------------------------------------------------------

    # These run for every request: where uvicorn's own method is short it is repeated here, without the checks for
    # WebSockets, and elsewhere the class is named instead of `super()`, which costs three times as much.

    def on_message_begin(self) -> None:
        """Start to parse a request."""
        self.url = b""
        self.expect_100_continue = False
        self.headers = []

    def on_headers_complete(self) -> None:
        """Start a request, if it is acceptable."""
        if self.parser.should_upgrade():
            return  # The request is parsed again: see _feed_without_upgrade.
        if self.framing > self.header_bytes and self._head_bytes() > self.header_bytes:
            self._stop_parsing(*_HEAD_TOO_LARGE)
        if self.pipeline and len(self.pipeline) >= PIPELINED:
            self._stop_parsing(HTTPStatus.BAD_REQUEST, "Too many requests wait on this connection.")
        if self._unwritten:
            self.write_now()
        before = self.cycle
        version = self.parser.get_http_version()
        path, raw_path, query = self.tracker.targets.get(self.url) or self._parse_target(self.url)
        self.scope = {
            "type": "http",
            # A copy for each request, since middleware may change it: a literal is the cheapest.
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": version,
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "method": self.parser.get_method().decode("ascii"),
            "root_path": self.root_path,
            "path": path,
            "raw_path": raw_path,
            "query_string": query,
            "headers": self.headers,
            "state": self.app_state.copy(),
            # With this, an application that waits for long needs no task that waits for its client to disconnect.
            CONNECTION_KEY: self,  # type: ignore[misc]
        }
        keep_alive = version != "1.0" and self.parser.should_keep_alive() and not self.ending
        cycle = self.cycle = UvicornCycle(self, self.scope, keep_alive=keep_alive)
        # The parser reports trailers as headers: they must not be added to those that the application has checked.
        self.headers = []
        self.phase = _BODY
        self.since = self.tracker.now
        if before is None or before.response_complete:
            # Its task is started when all data at hand is parsed: then the body is usually there.
            self._new = cycle
        else:
            # Uvicorn stops reading here, and would not notice that the client of the current request disconnects.
            self.pipeline.appendleft((cycle, self.app))
            self._earlier = tuple(each for each in (*self._earlier, before) if not each.response_complete)
        if version not in _VERSIONS:
            self._stop_parsing(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "This server speaks HTTP/1.1.")

    def _parse_target(self, url: bytes) -> RequestTarget:
        """Parse a request target; an invalid one raises an error of the parser."""
        parsed = httptools.parse_url(url)
        raw_path = parsed.path
        path = raw_path.decode("ascii")
        if "%" in path:
            path = unquote(path)
        target = (self.root_path + path, self.root_path.encode("ascii") + raw_path, parsed.query or b"")
        targets = self.tracker.targets
        if len(url) <= _TARGET_BYTES:
            if len(targets) >= _TARGETS:
                targets.clear()
            targets[url] = target
        return target

    def _start_asgi_task(self, cycle: UvicornCycle, app: Any) -> None:  # type: ignore[override]
        """Start the next pipelined request; called by uvicorn's class at the end of the response before it."""
        self._start(cycle, self.loop.create_task)

    def _start(self, cycle: UvicornCycle, create_task: TaskFactory) -> None:
        work = cycle.run_asgi(self.app)
        if getattr(self.config, "reset_contextvars", False):
            task = self.loop.create_task(work, context=Context())
        else:
            task = create_task(work)
        # Started eagerly, most are done by now; uvicorn waits for the others when it shuts down.
        if not task.done():
            cycle.task = task
            self.tasks.add(task)

    def on_chunk_header(self) -> None:
        """Reject a chunked body that two parsers could read in two ways."""
        if self.phase == _BODY:
            self.phase = _CHUNKS
            codings = [value.strip().lower() for name, value in self.scope["headers"] if name == b"transfer-encoding"]
            if codings != [b"chunked"] or self.scope["http_version"] != "1.1":
                self._stop_parsing(HTTPStatus.BAD_REQUEST, "The only transfer coding is chunked, in HTTP/1.1.")

    def on_body(self, body: bytes) -> None:
        """Pass a part of the body to the application."""
        self.framing -= 2 * len(body)
        cycle = self.cycle
        if cycle.response_complete:
            return
        if cycle.body:
            cycle.body = bytearray(cycle.body) if type(cycle.body) is bytes else cycle.body
            cycle.body += body
        else:
            # Most bodies are one part, and need no copy.
            cycle.body = body
        if len(cycle.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        cycle.set()

    def on_message_complete(self) -> None:
        """Wait for the next request."""
        if self.parser.should_upgrade():
            return
        cycle = self.cycle
        if not cycle.response_complete:
            cycle.more_body = False
            cycle.set()
        self.phase = _BETWEEN
        self.since = self.tracker.now
        self.framing = 0

    def on_response_complete(self) -> None:
        """Continue with the next request; the sweep closes idle connections, where uvicorn sets a timer for each."""
        if self.pipeline or self.transport.is_closing():
            self.write_now()
            HttpToolsProtocol.on_response_complete(self)
            return
        self.server_state.total_requests += 1
        if self.flow.read_paused:
            self.flow.resume_reading()
        if self.phase == _BETWEEN:
            self.since = self.tracker.now

    def _head_bytes(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    # --- rejecting ----------------------------------------------------------------------------------------------------

    def _stop_parsing(self, status: HTTPStatus, sentence: str) -> None:
        """Stop the parser from inside one of its callbacks; `_feed` then sends the error."""
        self._rejection = (status, sentence)
        raise _BadRequest

    def _reject(self, status: HTTPStatus, sentence: str) -> None:
        """Accept no more input and send an error, unless another response has begun: then that one is the last."""
        self.write_now()
        self.discarding = True
        self.logger.debug("Rejected a request of %s: %d, %s", self.client, status, sentence)
        in_body = self.phase in (_BODY, _CHUNKS)
        self.phase = _BETWEEN
        if in_body:
            self._abandon_current()
        last = self._unanswered()
        if last is not None:
            last.keep_alive = False
            return
        if not (in_body and self.cycle.response_started):
            self.transport.write(self._error_response(status, sentence))
        self.transport.close()

    def _abandon_current(self) -> None:
        """Report to the application that the rest of this request will not arrive."""
        current = self.cycle
        if self.pipeline and self.pipeline[0][0] is current:
            self.pipeline.popleft()
        if not current.response_complete:
            current.disconnected = True
            current.set()

    def _unanswered(self) -> UvicornCycle | None:
        """Return the last request without a complete response."""
        for cycle in (self.cycle, *reversed(self._earlier)):
            if cycle is not None and not cycle.response_complete and not cycle.disconnected:
                return cycle
        return None

    def _error_response(self, status: HTTPStatus, sentence: str) -> bytes:
        lines = [f"HTTP/1.1 {status.value} {status.phrase}".encode()]
        lines += [b"%s: %s" % header for header in self.server_state.default_headers]
        lines += [b"content-type: text/plain; charset=utf-8", b"content-length: %d" % len(sentence)]
        return b"\r\n".join([*lines, b"connection: close", b"", sentence.encode()])


async def _overloaded(
    scope: _Message, receive: Callable[[], Awaitable[_Message]], send: Callable[[_Message], Awaitable[None]]
) -> None:
    """Answer instead of the application on a connection over the limit."""
    body = b"Too many connections are open."
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(body))]
    headers += [(b"connection", b"close"), (b"retry-after", b"1")]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": body})

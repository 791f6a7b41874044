"""One HTTP request on a connection of uvicorn, and its response.

Uvicorn's own class serves every ASGI application alike: it creates an event for each request, copies the body, and
checks each header of a response by regular expressions. Most of our requests arrive in one piece and are answered with
one JSON body, and for these `take_body` and `write_json` do the same work in one step each. Everything else takes
uvicorn's way.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from trunkline.transports.http.server.asgi import JSON
from trunkline.transports.http.server.request import DirectExchange

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from trunkline.transports.http.server.uvicorn_protocol import UvicornProtocol

__all__ = ["JsonHead", "UvicornCycle"]

# A body of up to this size is written together with its headers; a larger one is not worth the copy.
_JOINED = 65536

_Headers = list[tuple[bytes, bytes]]


class JsonHead:
    """The headers of a JSON response up to its length, encoded once for each value of the default headers.

    Uvicorn creates a new list of default headers each second, with the date.
    """

    __slots__ = ("default_headers", "encoded")

    def __init__(self) -> None:
        """Encode nothing yet."""
        self.default_headers: _Headers | None = None
        self.encoded = b""

    def encode(self, default_headers: _Headers) -> None:
        """Encode the headers for other default headers."""
        self.default_headers = default_headers
        lines = [b"%b: %b\r\n" % header for header in (*default_headers, JSON)]
        self.encoded = b"".join((STATUS_LINE[200], *lines, b"content-length: "))


class UvicornCycle(RequestResponseCycle, DirectExchange):
    """A request and its response, as uvicorn's protocol class and the application see them."""

    # Uvicorn's class has no slots; with these, an instance has no dictionary unless another attribute is set.
    __slots__ = (
        "_event",
        "_signalled",
        "body",
        "chunked_encoding",
        "connection",
        "disconnected",
        "expected_content_length",
        "flow",
        "keep_alive",
        "more_body",
        "response_complete",
        "response_started",
        "scope",
        "task",
        "transport",
        "waiting_for_100_continue",
    )

    body: bytes | bytearray  # type: ignore[assignment]

    def __init__(self, connection: UvicornProtocol, scope: Any, *, keep_alive: bool) -> None:
        """Start to receive a request; uvicorn's initializer is not called."""
        self.connection = connection
        self.scope = scope
        self.transport = connection.transport
        self.flow = connection.flow
        self.keep_alive = keep_alive
        self.waiting_for_100_continue = connection.expect_100_continue
        self.disconnected = False
        self.body = b""
        self.more_body = True
        self.response_started = False
        self.response_complete = False
        self.chunked_encoding = None
        self.expected_content_length = 0
        #: The task of the application.
        self.task: asyncio.Task[None] | None = None
        #: Whether something was received, or the request is over, since the last `receive`; and the event to wait for
        #: that, created when an application waits.
        self._signalled = False
        self._event: asyncio.Event | None = None

    # --- what uvicorn's class has as attributes -----------------------------------------------------------------------

    @property
    def message_event(self) -> UvicornCycle:  # type: ignore[override]
        """The object whose `set` wakes the application."""
        return self

    @property
    def default_headers(self) -> _Headers:  # type: ignore[override]
        """The headers of every response."""
        return self.connection.server_state.default_headers

    @property
    def logger(self) -> Any:  # type: ignore[override]
        """The logger of the connection."""
        return self.connection.logger

    @property
    def access_log(self) -> bool:  # type: ignore[override]
        """Whether responses are logged."""
        return self.connection.access_log

    @property
    def access_logger(self) -> logging.Logger:  # type: ignore[override]
        """The logger of responses."""
        return self.connection.access_logger

    def on_response(self) -> None:
        """Called when the response is complete."""
        self.connection.on_response_complete()

    def set(self) -> None:
        """Wake the application if it waits in `receive`."""
        self._signalled = True
        if self._event is not None:
            self._event.set()

    # --- the application ----------------------------------------------------------------------------------------------

    async def run_asgi(self, app: Callable[..., Awaitable[None]]) -> None:
        """Run the application; its errors are logged and end the response."""
        try:
            try:
                await app(self.scope, self.receive, self.send)
                if self.response_complete or self.disconnected:
                    return
                self.logger.error("The application returned before its response was complete.")
            except BaseException as error:
                self.logger.error("Exception in ASGI application\n", exc_info=error)
            if self.response_started:
                self.transport.close()
            else:
                await self.send_500_response()
        finally:
            # A callback of the task would cost an entry in the loop's queue for each request.
            self.connection.tasks.discard(self.task)
            self.task = None

    async def receive(self) -> Any:
        """Return the next part of the body, or the disconnect."""
        if self.waiting_for_100_continue and not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.waiting_for_100_continue = False
        if not self.disconnected and not self.response_complete:
            self.flow.resume_reading()
            if not self._signalled:
                if self._event is None:
                    self._event = asyncio.Event()
                await self._event.wait()
            if self._event is not None:
                self._event.clear()
            self._signalled = False
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        body, self.body = bytes(self.body), b""
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    # --- as a `DirectExchange` ----------------------------------------------------------------------------------------

    def take_body(self) -> bytes | None:
        """Return the body if all of it is here; `receive` then waits for the disconnect."""
        if self.more_body or self.disconnected or self.waiting_for_100_continue or not self._signalled:
            return None
        self._signalled = False
        if self._event is not None:
            self._event.clear()
        if self.flow.read_paused:
            self.flow.resume_reading()
        body, self.body = bytes(self.body), b""
        return body

    def write_chunk(self, body: bytes) -> bool:
        """Write a part of a response that has begun; False if `send` must be used, which may wait."""
        if self.flow.write_paused or not self.response_started or self.response_complete or not self.chunked_encoding:
            return False
        if not self.disconnected and not self.transport.is_closing():
            self.transport.write(b"%x\r\n%b\r\n" % (len(body), body))
        return True

    def write_json(self, body: bytes) -> bool:
        """Write a whole response with status 200; False if `send` must be used, which may wait."""
        connection = self.connection
        if self.response_started or self.flow.write_paused or not self.keep_alive or connection.access_log:
            return False
        if self.disconnected:
            return True
        head = connection.tracker.json_head
        if head.default_headers is not connection.server_state.default_headers:
            head.encode(connection.server_state.default_headers)
        size = len(body)
        if size <= _JOINED:
            connection.write_grouped(b"%b%d\r\n\r\n%b" % (head.encoded, size, body))
        else:
            self.transport.write(b"%b%d\r\n\r\n" % (head.encoded, size))
            self.transport.write(body)
        self.waiting_for_100_continue = False
        self.response_started = self.response_complete = True
        if self._event is not None:
            self._event.set()
        connection.on_response_complete()
        return True

"""One request of a client over HTTP: its POST, and whatever comes back on it.

The answer may be one JSON message, a stream of events that ends with it, an HTTP status with or without a message, or
nothing. Whatever it is concerns this request alone: an answer that names another request is a breach, and never reaches
the one it names. A stream that ends early is taken up again by GET where the server gave its events ids.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Protocol

import aiohttp
from msgspec import UNSET

from trunkline.errors import (
    ConnectionLost,
    HttpError,
    RemoteProtocolError,
    SessionExpired,
    TrunklineError,
    request_failed,
)
from trunkline.protocol.caller import Origin
from trunkline.protocol.jsonrpc import Batch, ErrorResponse, Incoming, InvalidMessage, Response, decode
from trunkline.protocol.limits import Limits
from trunkline.protocol.sse import EventReader, ServerSentEvent
from trunkline.transports.http.client.errors import NETWORK_ERRORS, status_error
from trunkline.transports.http.client.headers import HeaderBuilder
from trunkline.transports.http.client.http_client import HttpClient, read_body
from trunkline.transports.http.client.response_body import media_type, read_events, read_to_end, retry_delay
from trunkline.transports.link import Receiver
from trunkline.types import RequestId

__all__ = ["HTTP", "ExchangeOwner", "HttpExchange"]

log = logging.getLogger("trunkline.transports")

#: How what came over HTTP reached us.
HTTP = Origin("http")


class ExchangeOwner(Protocol):
    """What an exchange needs of the link it belongs to."""

    http: HttpClient
    headers: HeaderBuilder
    limits: Limits
    #: Whether streams can be taken up again.
    resumable: bool
    #: Whether several messages may come as one array.
    batches: bool

    @property
    def receiver(self) -> Receiver:
        """Who is told."""

    def done(self, exchange: HttpExchange) -> None:
        """Learn that an exchange is over."""

    def begin_session(self, id: str | None) -> None:
        """Take the session id of an ``initialize`` answer, if it has one."""


class HttpExchange:
    """One request and what came of it."""

    __slots__ = ("_link", "answered", "id", "method", "task")

    def __init__(self, link: ExchangeOwner, id: RequestId, method: str) -> None:
        """Make an exchange that has not begun; whoever starts it writes its task."""
        self._link = link
        self.id = id
        self.method = method
        self.answered = False
        self.task: asyncio.Task[None] | None = None

    async def run(self, head: Mapping[str, str], body: bytes) -> None:
        """Send the request, and tell the receiver what came of it."""
        link = self._link
        try:
            response = await link.http.open("POST", head, body=body)
            try:
                await self._read(response, in_session="Mcp-Session-Id" in head)
            except NETWORK_ERRORS as error:
                raise link.http.failure(error) from error
            finally:
                if not response.content.is_eof():
                    response.close()
        except TrunklineError as error:
            link.receiver.eof_received(error, about=self.id)
        except Exception as error:
            log.exception("%s failed (request %r)", self.method, self.id)
            link.receiver.eof_received(ConnectionLost(f"the exchange failed: {error}"), about=self.id)
        finally:
            link.done(self)

    async def _read(self, response: aiohttp.ClientResponse, *, in_session: bool) -> None:
        status = response.status
        if status >= 300:
            await self._refused(response, in_session=in_session)
            return
        if self.method == "initialize":
            self._link.begin_session(response.headers.get("Mcp-Session-Id"))
        kind = media_type(response)
        if kind == "application/json":
            self._take_whole(await read_body(response, self._link.limits.message_bytes))
        elif kind == "text/event-stream":
            await self._stream(response)
        else:
            what = f"with {kind[:80]!r}, which is neither JSON nor a stream of events" if kind else "without a message"
            raise RemoteProtocolError(f"the server answered {self.method} with status {status} {what}")

    async def _refused(self, response: aiohttp.ClientResponse, *, in_session: bool) -> None:
        """Find out what a status that says no means: a lost session, an answer after all, or a failure."""
        if in_session and response.status == 404:
            # 2025-11-25, basic/transports, Session Management: the client must start a new session.
            raise SessionExpired("the server no longer knows this session")
        try:
            body = await read_body(response, self._link.limits.message_bytes)
        except NETWORK_ERRORS:
            body = b""
        if media_type(response) == "application/json":
            incoming = decode(body, self._link.limits)
            if isinstance(incoming, ErrorResponse) and incoming.id in (None, self.id):
                error = incoming.error
                failure = request_failed(error.code, error.message, None if error.data is UNSET else error.data)
                failure.status = response.status
                raise failure
        raise status_error(response, "POST", body=body)

    def _take_whole(self, body: bytes) -> None:
        incoming = decode(body, self._link.limits)
        if type(incoming) is InvalidMessage:
            raise RemoteProtocolError(f"the answer to {self.method} is no message: {incoming.message}")
        self.take(incoming)
        if not self.answered:
            raise RemoteProtocolError(f"the answer to {self.method} is a message, but no answer")

    def take(self, incoming: Incoming) -> None:
        """Hand a message on that came on this exchange.

        Raises:
            RemoteProtocolError: it answers a request of another exchange.
        """
        kind = type(incoming)
        if kind is Response or kind is ErrorResponse:
            incoming = self._own(incoming)
        elif kind is InvalidMessage:
            if incoming.response and incoming.id == self.id:  # type: ignore[union-attr]
                raise RemoteProtocolError(f"the answer to {self.method} is none: {incoming.message}")  # type: ignore[union-attr]
            log.debug("an event that is no message: %s", incoming.message)  # type: ignore[union-attr]
            return
        elif kind is Batch:
            if not self._link.batches:
                raise RemoteProtocolError(f"the answer to {self.method} is an array, which this revision has not")
            for item in incoming.items:  # type: ignore[union-attr]
                self.take(item)
            return
        self._link.receiver.message_received(incoming, HTTP)

    def _own(self, answer: Incoming) -> ErrorResponse | Response:
        assert isinstance(answer, Response | ErrorResponse)
        if answer.id is None and isinstance(answer, ErrorResponse):
            # Who could not read our id can only mean the request of this exchange.
            answer = ErrorResponse(self.id, answer.error)
        elif answer.id != self.id or type(answer.id) is not type(self.id):
            raise RemoteProtocolError(f"the server answered request {self.id!r} with the id {answer.id!r}")
        self.answered = True
        return answer

    # --- streams -----------------------------------------------------------------------------------------------------

    async def _stream(self, response: aiohttp.ClientResponse) -> None:
        reader = EventReader(max_event=self._link.limits.message_bytes)
        if await read_events(response, reader, self._event):
            await read_to_end(response)
        elif self._link.resumable and reader.last_id:
            await self._resume(reader)
        else:
            raise ConnectionLost(f"the stream ended before the answer to {self.method} came")

    def _event(self, event: ServerSentEvent) -> bool:
        # Events without data only carry an id.
        if event.data:
            self.take(decode(event.data, self._link.limits))
        return self.answered

    async def _resume(self, reader: EventReader) -> None:
        """Take the stream up again, and again, until the answer came or nothing new comes any more."""
        limits = self._link.limits
        last_id, retry, failures = reader.last_id, reader.retry, 0
        while failures < limits.resumptions:
            failures += 1
            await asyncio.sleep(retry_delay(retry, failures))
            reader = EventReader(max_event=limits.message_bytes)
            reader.last_id = last_id
            if await self._take_up(reader):
                return
            if reader.last_id != last_id:
                failures = 0
            last_id, retry = reader.last_id, retry if reader.retry is None else reader.retry
        raise ConnectionLost(
            f"the stream ended before the answer to {self.method} came, and {limits.resumptions} tries to take it up "
            "again brought nothing new"
        )

    async def _take_up(self, reader: EventReader) -> bool:
        """Ask for what came after the last event; tell whether the answer did.

        Raises:
            ConnectionLost: the server does not have the stream any more.
        """
        link = self._link
        try:
            response = await link.http.open("GET", link.headers.for_get(reader.last_id))
        except ConnectionLost as error:
            log.debug("a stream could not be taken up: %s", error)
            return False
        try:
            if response.status >= 500:
                return False
            if response.status != 200 or media_type(response) != "text/event-stream":
                raise ConnectionLost(
                    f"the stream ended before the answer to {self.method} came, and cannot be taken up again"
                ) from _refusal(response)
            if not await read_events(response, reader, self._event):
                return False
            await read_to_end(response)
            return True
        finally:
            if not response.content.is_eof():
                response.close()


def _refusal(response: aiohttp.ClientResponse) -> HttpError:
    return status_error(response, "GET")

"""One request of a client over HTTP: its POST, and the response to it.

The response may be one JSON message, a stream of events that ends with the answer, an HTTP status with or without a
message, or nothing. It concerns this request alone: an answer with the id of another request is a protocol violation,
and is never delivered to that request. A stream that ends early is resumed by GET if the server gave its events ids.
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
    RemoteProtocolError,
    SessionExpired,
    TrunklineError,
    request_failed,
)
from trunkline.protocol.caller import Origin
from trunkline.protocol.jsonrpc import Batch, ErrorResponse, Incoming, InvalidMessage, Request, Response, decode
from trunkline.protocol.limits import Limits
from trunkline.protocol.sse import EventReader, ServerSentEvent
from trunkline.transports.http.client.errors import NETWORK_ERRORS, status_error
from trunkline.transports.http.client.headers import HeaderBuilder
from trunkline.transports.http.client.http_client import HttpClient
from trunkline.transports.http.client.response_body import (
    media_type,
    read_body,
    read_events,
    read_to_end,
    retry_delay,
)
from trunkline.transports.link import Receiver
from trunkline.types import RequestId

__all__ = ["HTTP", "ClientExchange", "ExchangeOwner"]

log = logging.getLogger("trunkline.transports")

#: The origin of messages that a client receives over HTTP.
HTTP = Origin("http")


class ExchangeOwner(Protocol):
    """The link of an exchange, as the exchange sees it."""

    http: HttpClient
    headers: HeaderBuilder
    limits: Limits
    #: Whether streams can be resumed.
    resumable: bool
    #: Whether several messages may arrive as one array.
    batches: bool

    @property
    def receiver(self) -> Receiver:
        """The receiver of the messages."""

    def done(self, exchange: ClientExchange) -> None:
        """Called when an exchange has ended."""

    def asked(self, id: RequestId, exchange: ClientExchange) -> None:
        """Called with the id of a request of the server that arrived on an exchange."""

    def begin_session(self, id: str | None) -> None:
        """Called with the session id of the response to ``initialize``, if it has one."""


class ClientExchange:
    """One request and its response."""

    __slots__ = ("_link", "answered", "id", "method", "task")

    def __init__(self, link: ExchangeOwner, id: RequestId, method: str) -> None:
        """Prepare an exchange; the link starts it and sets its task."""
        self._link = link
        self.id = id
        self.method = method
        self.answered = False
        self.task: asyncio.Task[None] | None = None

    async def run(self, head: Mapping[str, str], body: bytes) -> None:
        """Send the request, and deliver the answer or the failure to the receiver."""
        link = self._link
        try:
            response = await link.http.open("POST", head, body=body, about=self.id)
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
            await self._raise_for_status(response, in_session=in_session)
            return
        if self.method == "initialize":
            self._link.begin_session(response.headers.get("Mcp-Session-Id"))
        kind = media_type(response)
        if kind == "application/json":
            self._deliver_body(await read_body(response, self._link.limits.message_bytes))
        elif kind == "text/event-stream":
            await self._read_stream(response)
        else:
            what = f"with {kind[:80]!r}, which is neither JSON nor a stream of events" if kind else "without a message"
            raise RemoteProtocolError(f"the server answered {self.method} with status {status} {what}")

    async def _raise_for_status(self, response: aiohttp.ClientResponse, *, in_session: bool) -> None:
        """Raise the exception for an error status: a lost session, the JSON-RPC error in the body, or a failure."""
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
                failure.challenge = response.headers.get("WWW-Authenticate")
                raise failure
        raise status_error(response, "POST", body=body)

    def _deliver_body(self, body: bytes) -> None:
        incoming = decode(body, self._link.limits)
        if type(incoming) is InvalidMessage:
            raise RemoteProtocolError(f"the response to {self.method} is not a JSON-RPC message: {incoming.message}")
        self._deliver(incoming)
        if not self.answered:
            raise RemoteProtocolError(f"the body of the response to {self.method} does not answer the request")

    def _deliver(self, incoming: Incoming) -> None:
        """Deliver a message that arrived on this exchange.

        Raises:
            RemoteProtocolError: it answers a request of another exchange.
        """
        kind = type(incoming)
        if kind is Response or kind is ErrorResponse:
            incoming = self._check_id(incoming)
        elif kind is InvalidMessage:
            if incoming.response and incoming.id == self.id:  # type: ignore[union-attr]
                raise RemoteProtocolError(f"the response to {self.method} is not valid: {incoming.message}")  # type: ignore[union-attr]
            log.debug("ignored an event that is not a message: %s", incoming.message)  # type: ignore[union-attr]
            return
        elif kind is Batch:
            if not self._link.batches:
                raise RemoteProtocolError(f"the response to {self.method} is a batch, which this revision lacks")
            for item in incoming.items:  # type: ignore[union-attr]
                self._deliver(item)
            return
        elif kind is Request:
            self._link.asked(incoming.id, self)  # type: ignore[union-attr, arg-type]
        self._link.receiver.message_received(incoming, HTTP)

    def _check_id(self, answer: Incoming) -> ErrorResponse | Response:
        assert isinstance(answer, Response | ErrorResponse)
        if answer.id is None and isinstance(answer, ErrorResponse):
            # A server that could not read our id can only mean the request of this exchange.
            answer = ErrorResponse(self.id, answer.error)
        elif answer.id != self.id or type(answer.id) is not type(self.id):
            raise RemoteProtocolError(f"the server answered request {self.id!r} with the id {answer.id!r}")
        self.answered = True
        return answer

    # --- streams -----------------------------------------------------------------------------------------------------

    async def _read_stream(self, response: aiohttp.ClientResponse) -> None:
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
            self._deliver(decode(event.data, self._link.limits))
        return self.answered

    async def _resume(self, reader: EventReader) -> None:
        """Resume the stream until the answer arrives, or several attempts in a row bring nothing new."""
        limits = self._link.limits
        last_id, retry, failures = reader.last_id, reader.retry, 0
        while failures < limits.resumptions:
            failures += 1
            await asyncio.sleep(retry_delay(retry, failures))
            reader = EventReader(max_event=limits.message_bytes)
            reader.last_id = last_id
            if await self._resume_once(reader):
                return
            if reader.last_id != last_id:
                failures = 0
            last_id, retry = reader.last_id, retry if reader.retry is None else reader.retry
        raise ConnectionLost(
            f"the stream ended before the answer to {self.method} came, and {limits.resumptions} attempts to resume it "
            "brought nothing new"
        )

    async def _resume_once(self, reader: EventReader) -> bool:
        """Request the events after the last one; return whether the answer was among them.

        Raises:
            ConnectionLost: the server no longer has the stream.
        """
        link = self._link
        try:
            response = await link.http.open("GET", link.headers.for_get(reader.last_id))
        except ConnectionLost as error:
            log.debug("a stream could not be resumed: %s", error)
            return False
        try:
            if response.status >= 500:
                return False
            if response.status != 200 or media_type(response) != "text/event-stream":
                raise ConnectionLost(
                    f"the stream ended before the answer to {self.method} came, and cannot be resumed"
                ) from status_error(response, "GET")
            if not await read_events(response, reader, self._event):
                return False
            await read_to_end(response)
            return True
        finally:
            if not response.content.is_eof():
                response.close()

"""Handshake sessions over HTTP: opening one, its requests, its GET stream, and its end.

A session has one standing connection, made by ``initialize``, on which the server sends messages of its own: they go to
the session's GET stream. Each POSTed request is a link and a connection of its own, so that two calls with one id are
both answered, each on its own response. Other messages that a client posts are routed: an answer goes to the connection
that sent the request, found by the id of that request; a cancellation to the request it names; all others to the
standing connection. A client that disconnects has cancelled nothing: its stream is kept, and can be resumed.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec.structs import replace

from trunkline.protocol.caller import Origin, Principal, Session, same_principal
from trunkline.protocol.jsonrpc import (
    Batch,
    ErrorResponse,
    Incoming,
    InvalidMessage,
    Message,
    Notification,
    Outbound,
    Request,
    Response,
    batch_fault,
    requests_of,
)
from trunkline.protocol.limits import Limits
from trunkline.protocol.revisions import ASSUMED_WITHOUT_HEADER, Feature, Revision, find_revision
from trunkline.transports.http.server.asgi import Headers, HTTPException, invalid_body, session_ended, too_many
from trunkline.transports.http.server.event_log import EventLog, EventStream
from trunkline.transports.http.server.open_responses import Challenge, OpenResponses
from trunkline.transports.http.server.request import HttpRequest
from trunkline.transports.http.server.response import SSEResponse
from trunkline.transports.http.server.single_request import HandshakeRequestTransport, SingleRequestTransport, encoded
from trunkline.transports.link import AcceptedConnection, Acceptor, Link, Receiver
from trunkline.types import CancelledNotificationParams, ProgressNotificationParams, RequestId

__all__ = [
    "HttpSession",
    "SessionEndpoint",
    "SessionLink",
    "SessionRegistry",
    "SessionRequestTransport",
    "decode_params",
    "version_headers",
]

_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class SessionLink(Link):
    """The standing link of a session: messages that belong to no request go to the session's GET stream."""

    __slots__ = ("_limit", "_opening", "_session", "receiver")

    def __init__(self, session: HttpSession, limit: int) -> None:
        """Create the link of a session; ``drain`` waits while more than ``limit`` bytes are pending."""
        self._session = session
        self._limit = limit
        self.receiver: Receiver | None = None
        #: The request that opens the session, until it is answered.
        self._opening: tuple[RequestId, SingleRequestTransport] | None = None

    def attach(self, receiver: Receiver) -> None:
        """Store the receiver; the session delivers messages to it."""
        self.receiver = receiver

    def send(self, batch: Sequence[Outbound]) -> None:
        """Answer the opening request, or add to the GET stream.

        Equal pending notifications are merged; notifications for a client that does not keep up are dropped.
        """
        get_stream = self._session.get_stream
        for outbound in batch:
            if self._opening is not None and outbound.about == self._opening[0]:
                self._opening[1].send([outbound])
            elif type(outbound.message) is Request:
                get_stream.push(encoded(outbound))
            elif (
                type(outbound.message) is Notification
                and not get_stream.is_congested(self._limit)
                and (data := encoded(outbound))
            ):
                get_stream.push(data, droppable=True, merge=True)

    @property
    def delivers_requests(self) -> bool:
        """Whether the client reads the GET stream."""
        return self._session.get_stream.reader is not None

    def begin_opening(self, id: RequestId, transport: SingleRequestTransport) -> None:
        """Send the answer to this request, which opens the session, through its own response."""
        self._opening = (id, transport)

    def end_opening(self) -> None:
        """Called when the response to the opening request was sent, or can no longer be sent."""
        self._opening = None

    async def drain(self) -> None:
        """Wait until the client has read the GET stream down to the limit of pending bytes."""
        await self._session.get_stream.drain(self._limit)

    async def aclose(self) -> None:
        """End the GET stream, and the response to the opening request if it has not been sent."""
        self._session.get_stream.end()
        if self._opening is not None:
            self._opening[1].abort(session_ended())


class SessionRequestTransport(HandshakeRequestTransport):
    """One POST of a session, with a request or with a batch of them."""

    __slots__ = ("_retry_ms", "_session", "ids", "name")

    def __init__(
        self,
        request: HttpRequest,
        open_responses: OpenResponses,
        *,
        session: HttpSession,
        ids: frozenset[RequestId],
        retry_ms: int,
    ) -> None:
        """Prepare the response to the requests with these ids."""
        super().__init__(request, open_responses)
        self._session = session
        self._retry_ms = retry_ms
        self.ids: frozenset[RequestId] = ids
        #: The prefix of the ids of requests that the server sends here.
        self.name: str = session.register(self)

    def client_disconnected(self) -> None:
        """Called when the client disconnects: that cancels nothing, and a stream that can be resumed is kept."""
        self._disconnected = True
        if self._sse is not None:
            self._sse.client_disconnected()
        if self._stream is not None:
            self._stream.release()

    def cancelled(self, id: RequestId, task: asyncio.Task[None] | None) -> None:
        """Called when the client has cancelled a request; the response ends once its handler has ended.

        What the handler still sends meanwhile (that it needs no answer to a request of its own) goes out first.
        """
        if task is None or task.done():
            self.withdraw(id)
        elif self._work is None:
            task.add_done_callback(lambda _: self.withdraw(id))
        else:
            # `respond` runs in this task, and ends the response once the handler has ended.
            self._withdrawn = True

    def withdraw(self, id: RequestId) -> None:
        """Called when a cancelled request is over: once all are, the response ends without an answer."""
        self.ids -= {id}
        if not (self.ids or self._closed):
            self._close()

    def release_stream(self) -> bool:
        """End the response; the client can request the rest of the stream later. False where it cannot."""
        if self._closed or not self.can_stream or Feature.STREAM_POLLING not in self._session.features:
            return False
        self._begin_stream()
        if self._stream is None or not self._stream.release_reader():
            self._release_early = True
        return True

    def _send_event(self, outbound: Outbound) -> None:
        if not self.can_stream and type(outbound.message) is Request:
            # This response cannot carry a request; the GET stream is the other way to the client.
            self._session.get_stream.push(encoded(outbound))
            return
        super()._send_event(outbound)

    def _new_stream(self) -> EventStream:
        stream = self._session.log.open(awaited=not self._disconnected)
        if Feature.STREAM_POLLING in self._session.features:
            # From here on the client has an event id to resume from, whatever happens next.
            stream.push(b"", retry=self._retry_ms)
        return stream

    def _answered(self) -> None:
        super()._answered()
        self._session.unregister(self)


class HttpSession:
    """The session of one ``Mcp-Session-Id``."""

    __slots__ = (
        "_last",
        "_requests",
        "connection",
        "features",
        "get_stream",
        "id",
        "link",
        "log",
        "origin",
        "seen",
        "session",
        "version",
        "waiting_responses",
    )

    def __init__(self, id: str, origin: Origin, *, limits: Limits, now: float) -> None:
        """Create a session that ``initialize`` has not opened yet."""
        self.id: str = id
        #: The sender of ``initialize``; no other principal may use the session.
        self.origin: Origin = origin
        self.log: EventLog = EventLog(limits)
        #: The stream of messages that belong to no request.
        self.get_stream: EventStream = self.log.open()
        #: Responses that wait until the one that writes the GET stream ends.
        self.waiting_responses: list[SSEResponse] = []
        self.link: SessionLink = SessionLink(self, limits.write_bytes)
        self.connection: AcceptedConnection | None = None
        self.session: Session | None = None
        self.features: frozenset[Feature] = frozenset()
        #: The name of the negotiated revision, as ``MCP-Protocol-Version`` has it.
        self.version: bytes = b""
        #: The time of the client's last request.
        self.seen: float = now
        self._requests: dict[str, SessionRequestTransport] = {}
        self._last = 0

    def opened(self, session: Session) -> None:
        """Called when ``initialize`` has succeeded."""
        session.id = self.id
        # Of the headers only the revision is kept: it holds for all requests, and a stateless one is known by it.
        self.origin = Origin("http", self.origin.principal, version_headers(session.revision), self.origin.address)
        session.caller = replace(session.caller, origin=self.origin)
        self.session = session
        self.features = session.revision.features
        self.version = session.revision.name.encode()

    # --- requests ----------------------------------------------------------------------------------------------------

    def register(self, transport: SessionRequestTransport) -> str:
        """Add a request in flight and return its name."""
        self._last += 1
        name = str(self._last)
        self._requests[name] = transport
        return name

    def unregister(self, transport: SessionRequestTransport) -> None:
        """Remove a request that is over."""
        self._requests.pop(transport.name, None)

    @property
    def in_flight(self) -> int:
        """How many requests are being served."""
        return len(self._requests)

    @property
    def open_streams(self) -> int:
        """How many responses read its streams, or wait to read the GET stream."""
        return len(self.waiting_responses) + sum(stream.reader is not None for stream in self.log.streams.values())

    @property
    def busy(self) -> bool:
        """Whether a request is being served or a stream is being read."""
        return bool(self._requests) or self.open_streams > 0

    # --- the GET stream ----------------------------------------------------------------------------------------------

    def join(self, response: SSEResponse) -> None:
        """Write the GET stream to a response, once no other reads it: no message is sent twice."""
        if self.get_stream.reader is None:
            response.move(self.get_stream)
        else:
            self.waiting_responses.append(response)

    def leave(self, response: SSEResponse) -> None:
        """Remove a response; the next one that waits takes its place."""
        if response in self.waiting_responses:
            self.waiting_responses.remove(response)
        elif self.waiting_responses and self.get_stream.reader is None:
            self.waiting_responses.pop(0).move(self.get_stream)

    def end_get_stream(self) -> None:
        """End the response that writes the GET stream, and those that wait for it."""
        self.get_stream.end()
        for response in self.waiting_responses:
            response.stream.end()

    # --- routing of messages that are not requests -------------------------------------------------------------------

    def deliver(self, message: Message | InvalidMessage) -> None:
        """Deliver a message that is not a request to the connection it is for."""
        if isinstance(message, Response | ErrorResponse | InvalidMessage):
            receiver = self._requester(message.id)
        elif message.method == "notifications/cancelled":
            self._cancel(message)
            return
        elif message.method == "notifications/progress":
            receiver = self._progress_target(message)
        else:
            receiver = self.link.receiver
        if receiver is not None:
            receiver.message_received(message, self.origin)

    def _requester(self, id: RequestId | None) -> Receiver | None:
        """Return the connection that sent the request with an id: its transport's name, a dot and a number."""
        if not isinstance(id, str):
            return self.link.receiver
        transport = self._requests.get(id.partition(".")[0])
        return None if transport is None else transport.receiver

    def _cancel(self, message: Message) -> bool:
        """Cancel the request that a notification names; return whether it is served here."""
        params = decode_params(message, CancelledNotificationParams)
        if params is None or params.request_id is None:
            return False
        wanted = params.request_id
        # 1, True and 1.0 are equal, and different ids.
        same = {(type(wanted), wanted)}
        found = [each for each in self._requests.values() if any((type(id), id) in same for id in each.ids)]
        # A client that uses one id for two requests cannot say which of them it means; serving both loses nothing.
        if len(found) != 1 or found[0].receiver is None:
            return bool(found)
        transport, receiver = found[0], found[0].receiver
        served = getattr(receiver, "exchanges", {}).get(wanted)
        receiver.message_received(message, self.origin)
        transport.cancelled(wanted, getattr(served, "task", None))
        return True

    def _progress_target(self, message: Message) -> Receiver | None:
        params = decode_params(message, ProgressNotificationParams)
        return None if params is None else self._requester(params.progress_token)

    # --- the end -----------------------------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """End the session: cancel its requests, end its streams, drop its events."""
        for transport in list(self._requests.values()):
            transport.abort(session_ended())
        self.log.close()
        self.end_get_stream()
        if self.connection is not None:
            self.link.receiver = None
            await self.connection.aclose()


class SessionRegistry:
    """All sessions of one endpoint."""

    __slots__ = ("_limits", "_new_id", "_now", "by_id")

    def __init__(self, limits: Limits, *, now: Callable[[], float], new_id: Callable[[], str]) -> None:
        """Start without sessions; the ids that ``new_id`` returns must not be guessable."""
        self._limits = limits
        self._now = now
        self._new_id = new_id
        self.by_id: dict[str, HttpSession] = {}

    def make(self, origin: Origin) -> HttpSession | None:
        """Create a session; None if there are too many."""
        if len(self.by_id) >= self._limits.sessions:
            return None
        session = HttpSession(self._new_id(), origin, limits=self._limits, now=self._now())
        self.by_id[session.id] = session
        return session

    def find(self, id: str, principal: Principal | None) -> HttpSession | None:
        """Return the open session with this id; None if it belongs to another principal."""
        session = self.by_id.get(id)
        if session is None or session.session is None:
            return None
        if session.origin.principal is not principal and not same_principal(session.origin.principal, principal):
            return None
        session.seen = self._now()
        return session

    def remove(self, session: HttpSession) -> Coroutine[Any, Any, None]:
        """Remove a session; awaiting the coroutine ends it."""
        self.by_id.pop(session.id, None)
        return session.aclose()

    def __len__(self) -> int:
        return len(self.by_id)

    def end_expired(self) -> list[Coroutine[Any, Any, None]]:
        """Remove the sessions that were idle for too long; awaiting the coroutines ends them."""
        return [self.remove(session) for session in self.expired()]

    def expired(self) -> Iterator[HttpSession]:
        """Yield the sessions that were idle for too long, and drop the streams of the others that ended long ago."""
        now, limits = self._now(), self._limits
        for session in list(self.by_id.values()):
            session.log.sweep(now)
            if session.busy:
                session.seen = now
                continue
            ready = session.session is not None and session.session.initialized
            if now - session.seen > (limits.session_seconds if ready else limits.unready_seconds):
                yield session


class SessionEndpoint:
    """The part of an endpoint that serves clients of handshake revisions."""

    def __init__(
        self,
        acceptor: Acceptor,
        *,
        limits: Limits,
        retry_ms: int,
        challenge: Challenge,
        sessions: SessionRegistry | None = None,
        transport: type[SessionRequestTransport] = SessionRequestTransport,
    ) -> None:
        """Start without sessions; requests within them are served by the given class of transports."""
        self._acceptor = acceptor
        self._limits = limits
        self._retry_ms = retry_ms
        self._transport = transport
        if sessions is None:
            sessions = SessionRegistry(limits, now=time.monotonic, new_id=lambda: secrets.token_urlsafe(32))
        self.sessions: SessionRegistry = sessions
        self.open_responses: OpenResponses = OpenResponses(limits, self.sessions, challenge=challenge)

    deliver_legacy: Callable[[str, bytes, Principal | None], None]  # What other workers received for it.

    def legacy_options(self) -> dict[str, Any]:
        """Return how streams of the oldest transport are named and reached, if several workers serve them."""
        return {}

    def start(self) -> None:
        """Called when the endpoint starts."""

    async def aclose(self) -> None:
        """Called when the endpoint has ended."""

    # --- POST --------------------------------------------------------------------------------------------------------

    async def open(self, request: HttpRequest, incoming: Request) -> None:
        """Open a session; if the answer is an error there is none."""
        origin = request.origin
        session = self.sessions.make(origin)
        if session is None:
            raise too_many("sessions")
        self.open_responses.start_clock()
        transport = SingleRequestTransport(request, self.open_responses)
        session.link.begin_opening(incoming.id, transport)
        connection = session.connection = self._acceptor.accept(session.link)
        connection.message_received(incoming, origin)
        headers: Headers = []
        if connection.session is not None:
            session.opened(connection.session)
            headers = [(b"mcp-session-id", session.id.encode())]
        try:
            await transport.respond(headers, unless_error=True)
        finally:
            session.link.end_opening()
            if session.session is None or not transport.succeeded:
                await self.sessions.remove(session)

    async def use(self, request: HttpRequest, incoming: Incoming, *, id: bytes, version: bytes | None) -> None:
        """Serve a POST within a session."""
        session = self._find(request, id, version)
        if type(incoming) is not Request:
            batch, others = self._sort(session, incoming)
            for item in others:
                session.deliver(item)
            if batch is None:
                await request.answer(202)
                return
            incoming = batch
        if session.in_flight >= self._limits.in_flight:
            raise too_many("requests in flight")
        single = type(incoming) is Request
        ids = frozenset((incoming.id,)) if single else requests_of(incoming)  # type: ignore[union-attr]
        transport = self._transport(request, self.open_responses, session=session, ids=ids, retry_ms=self._retry_ms)
        # Other HTTP servers may cancel the task of a client that disconnects, which must not cancel its request.
        inline = transport.run_inline if single and request.direct is not None else None
        receiver = self._acceptor.accept_one(transport, session.session, f"{transport.name}.", inline)
        # The same principal may present another token: its scopes count for this request. So does the address.
        origin = session.origin
        if request.principal is not None or request.client_address != origin.address:
            origin = Origin("http", request.principal, origin.headers, request.client_address)
        receiver.message_received(incoming, origin)
        await transport.respond([])

    def _sort(self, session: HttpSession, incoming: Incoming) -> tuple[Batch | None, list[Message | InvalidMessage]]:
        """Separate the messages that must be answered from those that are only delivered.

        Raises:
            HTTPException: the body is undecodable, or the batch as a whole is invalid.
        """
        if type(incoming) is not Batch:
            if type(incoming) is InvalidMessage and not incoming.response:
                raise invalid_body(incoming, incoming.message)
            return None, [incoming]  # type: ignore[list-item]
        if Feature.BATCHES not in session.features:
            raise HTTPException(400, "Invalid request: batches are not in this revision")
        if (fault := batch_fault(incoming)) is not None:
            raise HTTPException(400, fault)
        answered = [each for each in incoming.items if _must_be_answered(each)]
        others = [each for each in incoming.items if each not in answered]
        return Batch(tuple(answered)) if answered else None, others

    async def serve_alone(self, request: HttpRequest, incoming: Incoming, *, version: bytes | None) -> None:
        """Serve a handshake client without a session: nothing is known of its earlier requests."""
        revision = (None if version is None else find_revision(version.decode())) or ASSUMED_WITHOUT_HEADER
        batch = type(incoming) is Batch and Feature.BATCHES in revision.features
        if type(incoming) is InvalidMessage or (type(incoming) is Batch and not batch):
            raise invalid_body(incoming, "Invalid request: batches are not in this revision")
        if type(incoming) is Batch and (fault := batch_fault(incoming)) is not None:
            raise HTTPException(400, fault)
        if not requests_of(incoming):
            await request.answer(202)
            return
        transport, origin, session = HandshakeRequestTransport(request, self.open_responses), request.origin, None
        if batch or incoming.method != "initialize":  # type: ignore[union-attr]
            session = Session(revision, None, {}, origin=origin)
            session.ready()
        self._acceptor.accept_one(transport, session, "", None).message_received(incoming, origin)
        await transport.respond([])

    def _find(self, request: HttpRequest, id: bytes, version: bytes | None) -> HttpSession:
        """Return the session that a request names.

        Raises:
            HTTPException: the principal has no session with this id, or the session has another revision.
        """
        session = self.sessions.find(id.decode("latin-1"), request.principal)
        if session is None:
            raise HTTPException(404, "No such session; send initialize again")
        if version is not None and version != session.version:
            agreed = session.version.decode()
            raise HTTPException(400, f"MCP-Protocol-Version does not match the session, which speaks {agreed}")
        return session

    # --- GET and DELETE ----------------------------------------------------------------------------------------------

    async def listen(self, request: HttpRequest, *, id: bytes, version: bytes | None) -> None:
        """Write the GET stream to a response, or resume a stream that the client lost."""
        session = self._find(request, id, version)
        if session.open_streams >= self._limits.session_streams:
            raise too_many("open streams")
        self.open_responses.check_streams()
        last = request.field(b"last-event-id")
        if last is not None:
            response = self._resume(session, last.decode("latin-1"), request)
        else:
            response = SSEResponse(EventStream(), request.send)
            if Feature.STREAM_POLLING in session.features and session.get_stream.reader is None:
                session.get_stream.push(b"", retry=self._retry_ms, merge=True)
            session.join(response)
        request.drop_headers()
        try:
            await response.run([], owner=self.open_responses, connection=request.connection)
        finally:
            session.leave(response)

    def _resume(self, session: HttpSession, last: str, request: HttpRequest) -> SSEResponse:
        """Continue the stream that an event belongs to, after that event; no other stream."""
        found = session.log.find(last)
        if found is None or not found[0].rewind(found[1]):
            raise HTTPException(400, f"Last-Event-ID {last[:40]!r} belongs to no stream that can be resumed here")
        response = SSEResponse(found[0], request.send)
        found[0].attach(response)
        return response

    async def end(self, request: HttpRequest, *, id: bytes, version: bytes | None) -> None:
        """End a session."""
        await self.sessions.remove(self._find(request, id, version))
        await request.answer(204)


@cache
def version_headers(revision: Revision) -> Mapping[str, str]:
    """Return the headers that are kept of a session."""
    return MappingProxyType({"mcp-protocol-version": revision.name})


def decode_params(message: Any, kind: Any) -> Any:
    """Return the params of a message as a type; None if they are not of it."""
    try:
        return msgspec.json.decode(message.params or b"null", type=kind)
    except _UNREADABLE:
        return None


def _must_be_answered(item: Message | InvalidMessage) -> bool:
    return type(item) is Request or (type(item) is InvalidMessage and not item.response)

"""A handshake session as one worker holds it: its link, its requests, and its state.

A session is known by the facts in its id, so that any worker serves any of its requests: a worker that first sees an id
makes the session from them, and drops it when it was not used for a while. What changes is in the store. Where one
process has the store to itself, a session that is dropped has ended.

Each POSTed request is a link and a connection of its own, so that two calls with one id are both answered, each on its
own response. Messages that belong to no request go to the GET stream. They come from the standing connection, which
is made on first need and closed with the session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from trunkline.errors import ConnectionLost, StoreUnavailable
from trunkline.protocol.caller import Origin, Principal, Session, owner_name, same_principal
from trunkline.protocol.error_codes import INTERNAL_ERROR
from trunkline.protocol.jsonrpc import (
    ErrorResponse,
    InvalidMessage,
    Message,
    Notification,
    Outbound,
    Request,
    Response,
    encode,
)
from trunkline.protocol.limits import Limits
from trunkline.protocol.revisions import Feature
from trunkline.store.interface import Store
from trunkline.transports.http.server.asgi import HTTPException, session_ended, unavailable
from trunkline.transports.http.server.event_stream import EventStream
from trunkline.transports.http.server.open_responses import OpenResponses
from trunkline.transports.http.server.request import HttpRequest
from trunkline.transports.http.server.response import SSEResponse
from trunkline.transports.http.server.sessions.facts import LIFETIME, SessionFacts
from trunkline.transports.http.server.sessions.streams import GET_STREAM, ProducedStream, SessionLog
from trunkline.transports.http.server.sessions.worker import SessionWorker, WorkerMessage
from trunkline.transports.http.server.single_request import HandshakeRequestTransport, encoded
from trunkline.transports.link import AcceptedConnection, Acceptor, Link, Receiver
from trunkline.types import CancelledNotificationParams, ErrorObject, ProgressNotificationParams, RequestId

__all__ = [
    "WORKER_GONE",
    "HttpSession",
    "OpenGetStream",
    "SessionAcceptor",
    "SessionLink",
    "SessionRequestTransport",
    "SessionState",
    "decode_params",
]

#: The error of a request whose worker has ended before it was answered.
WORKER_GONE = "The worker that served this request has ended, and its outcome is unknown; call again if that is safe"
#: How often a change of shared state is tried again when another worker changed it at the same time.
_ATTEMPTS = 20
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class SessionAcceptor(Acceptor, Protocol):
    """An acceptor of sessions that any worker may have opened, which passes on what workers announce."""

    def start(self) -> None:
        """Called when the endpoint starts."""

    async def leave(self) -> None:
        """Called before the store is closed."""

    def resume(self, link: Link, session: Session, prefix: str) -> AcceptedConnection:
        """Serve the standing link of a session; the ids of requests to the client begin with ``prefix``."""

    def announced(self, announcements: list[bytes] | None) -> None:
        """Called with announcements of other workers, for listen streams; None if some are missing."""

    def notify(self, connection: AcceptedConnection, announcement: bytes | None) -> bool:
        """Send one session the notices of an announcement, before this returns; None if some are missing.

        Return whether they may be repeated, since they say only that something has changed.
        """


class OpenGetStream(Protocol):
    """The response that is the GET stream of a session, as the session sees it."""

    pending_bytes: int

    def announced(self, id: str, body: bytes | None) -> None:
        """Called with each announcement; with None if some before this one are missing."""

    def save(self) -> None:
        """Store how far the client has come in the log, if it has moved."""

    def end(self) -> None:
        """End the response; its client opens the stream again."""


class SessionState(Struct, frozen=True, array_like=True):
    """What a client may change in its session."""

    version: int = 0
    log_level: str | None = "info"
    subscriptions: frozenset[str] = frozenset()


class SessionLink(Link):
    """The standing link of a session: messages that belong to no request go to the session's GET stream."""

    __slots__ = ("_limit", "_session", "collected", "receiver")

    def __init__(self, session: HttpSession, limit: int) -> None:
        """Create the link of a session; ``drain`` waits while more than ``limit`` bytes are pending."""
        self._session = session
        self._limit = limit
        self.receiver: Receiver | None = None
        #: While the notices of an announcement are made: collects them instead of sending; otherwise None.
        self.collected: list[bytes] | None = None

    def attach(self, receiver: Receiver) -> None:
        """Store the receiver; the session delivers messages to it."""
        self.receiver = receiver

    def send(self, batch: Sequence[Outbound]) -> None:
        """Add to the GET stream.

        Equal notifications that wait are merged; those for a client that does not keep up are dropped.
        """
        for outbound in batch:
            if type(outbound.message) is Request:
                self._session.push_request(outbound, self.receiver)
            elif type(outbound.message) is Notification and (data := encoded(outbound)):
                if self.collected is not None:
                    self.collected.append(data)
                elif not self._is_congested():
                    self._session.outbox.push(data, merge=True)

    def _is_congested(self) -> bool:
        reading = self._session.get_stream
        return (0 if reading is None else reading.pending_bytes) + self._session.outbox.pending_bytes > self._limit

    @property
    def delivers_requests(self) -> bool:
        """Whether the client reads the GET stream at this worker."""
        return self._session.get_stream is not None

    async def drain(self) -> None:
        """Wait until at most the limit of bytes waits to be stored."""
        await self._session.outbox.drain(self._limit)

    async def aclose(self) -> None:
        """Do nothing: another worker may continue the session."""


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
        #: The prefix of the ids of requests that the server sends here, and the name of the stream.
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

        Whatever the handler sends before it ends is still written, such as that a request of its own needs no answer.
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

    def cannot_store(self) -> None:
        """Called when nothing could be stored, so that the response could not be resumed.

        A request that is answered by now gets its answer, without the notifications before it; others are refused.
        """
        stream = self._stream
        if self._sse is not None or not isinstance(stream, ProducedStream):
            return
        self._stream = None
        stream.drop()
        if self._closed:
            self._answer = stream.answer
        else:
            self.abort(unavailable())

    def abort(self, failure: HTTPException) -> None:
        """Stop serving the request; a response that has not begun has no stream any more.

        One that has begun ends with an error: a client that resumes it at another worker would find its end without a
        response, and wait for ever.
        """
        stream, message = self._stream, str(failure) if failure.status == 404 else WORKER_GONE
        if self._sse is None and isinstance(stream, ProducedStream):
            stream.drop()
            self._stream = None
        elif stream is not None and not self._closed:
            for number, id in enumerate(self.ids, 1):
                error = ErrorResponse(id, ErrorObject(code=INTERNAL_ERROR, message=message))
                stream.push(encode(error), last=number == len(self.ids))
        super().abort(failure)

    def _send_event(self, outbound: Outbound) -> None:
        if not self.can_stream and type(outbound.message) is Request:
            # This response cannot carry a request; the GET stream is the other way to the client.
            self._session.push_request(outbound, self.receiver)
            return
        super()._send_event(outbound)

    def _write_alongside(self, stream: EventStream) -> None:
        """Begin the response once its first event is stored: until then the request can be refused."""
        if stream.storing is None:
            super()._write_alongside(stream)
        else:
            stream.storing.add_done_callback(lambda _: self._begin_late(stream))

    def _begin_late(self, stream: EventStream) -> None:
        if self._stream is stream and self._sse is None:
            super()._write_alongside(stream)

    def _new_stream(self) -> EventStream:
        session = self._session
        stream = session.log.open(self.name, ids=tuple(self.ids), awaited=not self._disconnected, producer=self)
        if Feature.STREAM_POLLING in session.features:
            # From here on the client has an event id to resume from, whatever happens next.
            stream.push(b"", retry=self._retry_ms)
        return stream

    def _answered(self) -> None:
        super()._answered()
        self._session.unregister(self)


class HttpSession:
    """The session of one ``Mcp-Session-Id`` at this worker."""

    __slots__ = (
        "_acceptor",
        "_last",
        "_requests",
        "_standing",
        "_worker",
        "beginning",
        "changes",
        "closed",
        "connection",
        "facts",
        "features",
        "get_stream",
        "id",
        "known_changes",
        "link",
        "log",
        "origin",
        "outbox",
        "owner",
        "seen",
        "session",
        "state",
        "told",
        "turn_released",
        "version",
        "waiting_responses",
    )

    def __init__(
        self,
        id: str,
        facts: SessionFacts,
        session: Session,
        *,
        worker: SessionWorker,
        acceptor: SessionAcceptor,
        limits: Limits,
        now: float,
    ) -> None:
        """Hold a session; ``now`` is when its client was last seen."""
        self.id: str = id
        self.facts: SessionFacts = facts
        self._worker = worker
        self._acceptor = acceptor
        #: The sender of ``initialize``; no other principal may use the session.
        self.origin: Origin = session.caller.origin
        #: The name under which its caller is counted.
        self.owner: str = owner_name(self.origin.principal, self.origin.address)
        self.log: SessionLog = SessionLog(worker, facts.key, limits)
        #: What this worker adds to the GET stream.
        self.outbox: ProducedStream = ProducedStream(GET_STREAM, self.log)
        #: The GET stream of the session, if it is open at this worker.
        self.get_stream: OpenGetStream | None = None
        #: The last announcement that the client heard of here; at first the last one before the session was opened.
        self.told: str = facts.since
        #: How many responses are about to become the GET stream.
        self.beginning: int = 0
        #: Responses that wait until the one that is the GET stream ends; and what wakes them.
        self.waiting_responses: list[SSEResponse] = []
        self.turn_released: asyncio.Event | None = None
        #: Whether it is served here no longer.
        self.closed: bool = False
        self.link: SessionLink = SessionLink(self, limits.write_bytes)
        self.connection: AcceptedConnection | None = None
        self.session: Session = session
        self.features: frozenset[Feature] = session.revision.features
        #: The name of the negotiated revision, as ``MCP-Protocol-Version`` has it.
        self.version: bytes = session.revision.name.encode()
        #: The time of the client's last request.
        self.seen: float = now
        self._requests: dict[str, SessionRequestTransport] = {}
        self._last = 0
        #: The prefix of the ids of requests that the standing connection sends.
        self._standing = worker.next_name()
        self.state: SessionState = SessionState()
        #: How often the state in the store may have changed, and how many of these changes are known.
        self.changes: int = 1
        self.known_changes: int = 0
        session.id = id
        session.store = self

    # --- requests ----------------------------------------------------------------------------------------------------

    def register(self, transport: SessionRequestTransport) -> str:
        """Add a request in flight and return its name, which no request of another worker has."""
        self._last += 1
        name = f"{self._standing}-{self._last}"
        self._requests[name] = transport
        return name

    def unregister(self, transport: SessionRequestTransport) -> None:
        """Remove a request that is over."""
        self._requests.pop(transport.name, None)

    def belongs_to(self, principal: Principal | None) -> bool:
        """Return whether a principal may use the session: the one that opened it."""
        owner = self.origin.principal
        return owner is principal or same_principal(owner, principal)

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
        return bool(self._requests) or self.beginning > 0 or self.open_streams > 0

    def push_request(self, outbound: Outbound, receiver: Receiver | None) -> None:
        """Add a request of the server to the GET stream; one that the log cannot keep fails at once."""
        data, request = encoded(outbound), outbound.message
        if len(data) <= self.log.max_bytes or receiver is None or type(request) is not Request:
            self.outbox.push(data)
            return
        error = ConnectionLost(
            f"a request of {len(data)} bytes is larger than what a session keeps (log_bytes={self.log.max_bytes})"
        )
        asyncio.get_running_loop().call_soon(partial(receiver.eof_received, error, about=request.id))

    # --- the standing connection -------------------------------------------------------------------------------------

    def standing_connection(self) -> AcceptedConnection:
        """Return the connection for messages that belong to no request; it is made when it is first needed.

        Raises:
            HTTPException: the session has ended here: nothing would close the connection.
        """
        if self.closed:
            raise session_ended()
        if self.connection is None:
            self.connection = self._acceptor.resume(self.link, self.session, f"{self._standing}.")
        return self.connection

    def connect(self) -> None:
        """Make the standing connection, unless there is one; a task may outlive its session, which then has none."""
        if not self.closed:
            self.standing_connection()

    def notices(self, announcement: bytes | None) -> tuple[list[bytes], bool]:
        """Return the notifications of an announcement for this client, encoded, and whether they may be repeated.

        Without an announcement some are missing, and anything may have changed.
        """
        connection = self.standing_connection()
        # What was sent before is no part of it.
        connection.flush()
        collected: list[bytes] = []
        self.link.collected = collected
        try:
            repeatable = self._acceptor.notify(connection, announcement)
        finally:
            self.link.collected = None
        return collected, repeatable

    # --- routing of messages that are not requests -------------------------------------------------------------------

    def deliver(self, message: Message | InvalidMessage) -> None:
        """Deliver a message that is not a request to the connection it is for."""
        if isinstance(message, Response | ErrorResponse | InvalidMessage):
            receiver = self._requester(message.id)
        elif message.method == "notifications/cancelled":
            self.cancel(message)
            return
        elif message.method == "notifications/progress":
            params = decode_params(message, ProgressNotificationParams)
            receiver = None if params is None else self._requester(params.progress_token)
        else:
            self.standing_connection()
            receiver = self.link.receiver
        if receiver is not None:
            receiver.message_received(message, self.origin)

    def _requester(self, id: RequestId | None) -> Receiver | None:
        """Return the connection that sent the request with an id: its transport's name, a dot and a number."""
        name = id.partition(".")[0] if isinstance(id, str) else ""
        if name == self._standing:
            return self.link.receiver
        transport = self._requests.get(name)
        return None if transport is None else transport.receiver

    def cancel(self, message: Message) -> bool:
        """Cancel the request that a notification names; return whether it is served here."""
        params = decode_params(message, CancelledNotificationParams)
        if params is None or params.request_id is None:
            return False
        cancelled_id = params.request_id
        # 1, True and 1.0 are equal, and different ids.
        same = {(type(cancelled_id), cancelled_id)}
        transports = [
            transport for transport in self._requests.values() if any((type(id), id) in same for id in transport.ids)
        ]
        # A client that uses one id for two requests cannot say which of them it means; serving both loses nothing.
        if len(transports) != 1 or transports[0].receiver is None:
            return bool(transports)
        transport, receiver = transports[0], transports[0].receiver
        exchange = getattr(receiver, "exchanges", {}).get(cancelled_id)
        receiver.message_received(message, self.origin)
        transport.cancelled(cancelled_id, getattr(exchange, "task", None))
        return True

    # --- the state in the store --------------------------------------------------------------------------------------

    @property
    def _state_key(self) -> str:
        return f"state:{self.facts.key}"

    @property
    def stale(self) -> bool:
        """Whether the state in the store may be another by now."""
        return self.known_changes < self.changes

    async def load(self, *, required: bool = False) -> None:
        """Read the state in the store, unless it is known.

        Raises:
            StoreUnavailable: it cannot be read, and is required; otherwise what is known is used until then.
        """
        if not self.stale:
            return
        changes = self.changes
        try:
            stored = await self._worker.store.get(self._state_key)
        except StoreUnavailable:
            if required:
                raise
            return
        self.known_changes = max(self.known_changes, changes)
        if stored is not None:
            self.apply(msgspec.msgpack.decode(stored, type=SessionState))

    def apply(self, state: SessionState) -> None:
        """Use a state, unless a newer one is known."""
        if state.version > self.state.version:
            self.state = state
            self.session.log_level = state.log_level  # type: ignore[assignment]
            self.session.subscriptions = state.subscriptions

    async def set_log_level(self, level: str) -> None:
        """Set the log level on every worker."""
        await self._change(lambda old: SessionState(old.version + 1, level, old.subscriptions))

    async def subscribe(self, uri: str) -> None:
        """Subscribe to a resource on every worker."""
        await self._change(lambda old: SessionState(old.version + 1, old.log_level, old.subscriptions | {uri}))

    async def unsubscribe(self, uri: str) -> None:
        """Unsubscribe from a resource on every worker."""
        await self._change(lambda old: SessionState(old.version + 1, old.log_level, old.subscriptions - {uri}))

    async def _change(self, change: Callable[[SessionState], SessionState]) -> None:
        store, key = self._worker.store, self._state_key
        for _ in range(_ATTEMPTS):
            stored = await store.get(key)
            # It may have expired where the session has no end.
            new = change(self.state if stored is None else msgspec.msgpack.decode(stored, type=SessionState))
            data = msgspec.msgpack.encode(new)
            if await _swap(store, key, stored, data):
                self.apply(new)
                await self._worker.broadcast(WorkerMessage("state", self.facts.key, data))
                return
        raise StoreUnavailable("the session is being changed by too many requests at once")

    # --- the end -----------------------------------------------------------------------------------------------------

    def end_streams_without_end(self) -> None:
        """End the responses that read the GET stream here, wait for it, or read what another worker produces.

        The streams themselves go on, and their clients resume them.
        """
        for stream in list(self.log.streams.values()):
            if not isinstance(stream, ProducedStream):
                stream.end()
        for response in self.waiting_responses:
            response.stream.end()

    async def aclose(self, failure: HTTPException | None = None) -> None:
        """Stop serving the session here: its requests are cancelled, its streams end.

        Without a failure the session has ended; otherwise only this worker serves it no longer.
        """
        self.closed = True
        for transport in list(self._requests.values()):
            transport.abort(failure or session_ended())
        self.log.close()
        self.outbox.drop()
        self.end_streams_without_end()
        if self.connection is not None:
            self.link.receiver = None
            await self.connection.aclose()


async def _swap(store: Store, key: str, old: bytes | None, new: bytes) -> bool:
    if old is None:
        return await store.put(key, new, ttl=LIFETIME, only_if_absent=True)
    return await store.replace(key, old, new, ttl=LIFETIME)


def decode_params(message: Any, kind: Any) -> Any:
    """Return the params of a message as a type; None if they are not of it."""
    try:
        return msgspec.json.decode(message.params or b"null", type=kind)
    except _UNREADABLE:
        return None

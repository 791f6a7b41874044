"""Handshake sessions over HTTP: what one ``Mcp-Session-Id`` stands for, and the links that serve it.

A session has one standing conversation, made by ``initialize``, on which the server speaks unasked: its messages go to
the session's GET stream. Each POSTed request is a link and a conversation of its own, so that two calls with one id are
both answered, each on its own response. What a client posts beside requests is brought to whom it is for: an answer to
the conversation that asked, known by the id it was asked under; a cancellation to the request it names; all else to the
standing one. A client that hangs up has cancelled nothing: its stream is kept, and may be taken up again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from trunkline.protocol.caller import Origin, Principal, Session
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
)
from trunkline.protocol.limits import Limits
from trunkline.protocol.revisions import Feature, Revision
from trunkline.transports.http.server.asgi import session_ended
from trunkline.transports.http.server.event_log import EventLog, EventStream
from trunkline.transports.http.server.open_responses import OpenResponses
from trunkline.transports.http.server.request import HttpRequest
from trunkline.transports.http.server.response import SSEResponse
from trunkline.transports.http.server.single_request import HandshakeRequestTransport, SingleRequestTransport, encoded
from trunkline.transports.link import Link, Receiver
from trunkline.types import CancelledNotificationParams, ProgressNotificationParams, RequestId

__all__ = [
    "AcceptedConnection",
    "Acceptor",
    "HttpSession",
    "SessionLink",
    "SessionRegistry",
    "SessionRequestTransport",
    "requests_of",
    "same_principal",
]

_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class AcceptedConnection(Receiver, Protocol):
    """What an endpoint sees of a connection that was accepted."""

    @property
    def session(self) -> Session | None:
        """What ``initialize`` made, once it has."""

    @property
    def exchanges(self) -> Mapping[RequestId, object]:
        """The requests being served."""

    async def aclose(self) -> None:
        """End it."""


class Acceptor(Protocol):
    """Who serves what an endpoint brings."""

    def accept(self, link: Link) -> AcceptedConnection:
        """Serve a link for as long as it lasts."""

    def accept_one(
        self, link: Link, session: Session | None, prefix: str, create_task: Callable[..., Any] | None
    ) -> Receiver:
        """Serve a link that brings one message, within a session or alone; nothing need be closed.

        ``create_task`` says what is done with the work of serving it, if it is not to be a task of its own.
        """

    def end_subscriptions(self) -> None:
        """End what would stream for ever: the endpoint is about to stop."""

    async def release(self) -> None:
        """Learn that nothing more will be brought."""


class SessionLink(Link):
    """The standing link of a session: what the server says unasked goes to the session's GET stream."""

    __slots__ = ("_limit", "_opening", "_session", "receiver")

    def __init__(self, session: HttpSession, limit: int) -> None:
        """Carry what belongs to no request."""
        self._session = session
        self._limit = limit
        self.receiver: Receiver | None = None
        #: The request that opens the session, until it is answered.
        self._opening: tuple[RequestId, SingleRequestTransport] | None = None

    def attach(self, receiver: Receiver) -> None:
        """Know who takes messages."""
        self.receiver = receiver

    def send(self, batch: Sequence[Outbound]) -> None:
        """Answer the opening request, or add to the GET stream.

        Equal notices that wait fall together; those for a client that does not keep up are dropped.
        """
        standing = self._session.get_stream
        for outbound in batch:
            if self._opening is not None and outbound.about == self._opening[0]:
                self._opening[1].send([outbound])
            elif type(outbound.message) is Request:
                standing.push(encoded(outbound))
            elif (
                type(outbound.message) is Notification
                and not standing.is_congested(self._limit)
                and (data := encoded(outbound))
            ):
                standing.push(data, droppable=True, merge=True)

    def begin_opening(self, id: RequestId, transport: SingleRequestTransport) -> None:
        """Send the answer to this request, which opens the session, through its own response."""
        self._opening = (id, transport)

    def end_opening(self) -> None:
        """Called when that response was sent, or never will be."""
        self._opening = None

    async def drain(self) -> None:
        """Wait until the client has read enough."""
        await self._session.get_stream.drain(self._limit)

    async def aclose(self) -> None:
        """End the GET stream, and the response to the opening request if there is none yet."""
        self._session.get_stream.end()
        if self._opening is not None:
            self._opening[1].abort(session_ended())


class SessionRequestTransport(HandshakeRequestTransport):
    """One POST of a session with a request, or with a batch of them, in it."""

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
        """Carry the requests with these ids."""
        super().__init__(request, open_responses)
        self._session = session
        self._retry_ms = retry_ms
        self.ids: frozenset[RequestId] = ids
        #: What the ids of questions asked here begin with.
        self.name: str = session.register(self)

    def client_disconnected(self) -> None:
        """Called when the client disconnects: that cancels nothing, and what is sent is kept if it can be requested."""
        self._disconnected = True
        if self._sse is not None:
            self._sse.hang_up()
        if self._stream is not None:
            self._stream.release()

    def withdraw(self, id: RequestId) -> None:
        """Called when a request is cancelled: once all are, no answer comes and the response ends without one."""
        self.ids -= {id}
        if not (self.ids or self._closed):
            self._close()

    def release_stream(self) -> bool:
        """End the response, and go on with the stream when the client requests it; False where it cannot."""
        if self._closed or not self.can_stream or Feature.STREAM_POLLING not in self._session.features:
            return False
        self._begin_stream()
        if self._stream is None or not self._stream.release_reader():
            self._release_early = True
        return True

    def _send_event(self, outbound: Outbound) -> None:
        if not self.can_stream and type(outbound.message) is Request:
            # There is no stream on which to ask here; the GET stream is the other way to the client.
            self._session.get_stream.push(encoded(outbound))
            return
        super()._send_event(outbound)

    def _new_stream(self) -> EventStream:
        stream = self._session.log.open(awaited=not self._disconnected)
        if Feature.STREAM_POLLING in self._session.features:
            # Now the client has an id to come back with, whatever happens next.
            stream.push(b"", retry=self._retry_ms)
        return stream

    def _close(self) -> None:
        super()._close()
        self._answered()

    def _answered(self) -> None:
        self._session.forget(self)


class HttpSession:
    """What one session id stands for."""

    __slots__ = (
        "_exchanges",
        "_last",
        "connection",
        "features",
        "get_stream",
        "id",
        "limits",
        "link",
        "log",
        "origin",
        "principal",
        "seen",
        "session",
        "waiting_responses",
    )

    def __init__(self, id: str, origin: Origin, *, limits: Limits, now: float) -> None:
        """Begin a session that nobody has opened yet."""
        self.id: str = id
        self.origin: Origin = origin
        self.principal: Principal | None = origin.principal
        self.limits: Limits = limits
        self.log: EventLog = EventLog(limits)
        #: What the server says unasked.
        self.get_stream: EventStream = self.log.open()
        #: Responses that wait until the one that writes it ends.
        self.waiting_responses: list[SSEResponse] = []
        self.link: SessionLink = SessionLink(self, limits.write_bytes)
        self.connection: AcceptedConnection | None = None
        self.session: Session | None = None
        self.features: frozenset[Feature] = frozenset()
        #: The last time the client said something.
        self.seen: float = now
        self._exchanges: dict[str, SessionRequestTransport] = {}
        self._last = 0

    def opened(self, session: Session) -> None:
        """Learn what ``initialize`` made."""
        session.id = self.id
        # Of the headers only the revision is kept: it holds for all requests, and a stateless one is known by it.
        self.origin = Origin("http", self.principal, _spoken(session.revision))
        session.caller = replace(session.caller, origin=self.origin)
        self.session = session
        self.features = session.revision.features

    # --- exchanges ---------------------------------------------------------------------------------------------------

    def register(self, exchange: SessionRequestTransport) -> str:
        """Take an exchange in and name it."""
        self._last += 1
        name = str(self._last)
        self._exchanges[name] = exchange
        return name

    def forget(self, exchange: SessionRequestTransport) -> None:
        """Let an exchange that is over go."""
        self._exchanges.pop(exchange.name, None)

    @property
    def in_flight(self) -> int:
        """How many requests are being served."""
        return len(self._exchanges)

    @property
    def open_streams(self) -> int:
        """How many of its streams are being read, or wait to be."""
        return len(self.waiting_responses) + sum(stream.reader is not None for stream in self.log.streams.values())

    @property
    def busy(self) -> bool:
        """Whether somebody is there: a request being served, or a stream being read."""
        return bool(self._exchanges) or self.open_streams > 0

    # --- the GET stream ----------------------------------------------------------------------------------------------

    def join(self, reply: SSEResponse) -> None:
        """Let a response write what the server says unasked, once no other does: no message goes to two."""
        if self.get_stream.reader is None:
            reply.move(self.get_stream)
        else:
            self.waiting_responses.append(reply)

    def leave(self, reply: SSEResponse) -> None:
        """Let a response go; the next that stands by takes its place."""
        if reply in self.waiting_responses:
            self.waiting_responses.remove(reply)
        elif self.waiting_responses and self.get_stream.reader is None:
            self.waiting_responses.pop(0).move(self.get_stream)

    # --- the switchboard ---------------------------------------------------------------------------------------------

    def deliver(self, message: Message | InvalidMessage) -> None:
        """Bring a message that is no request to whom it is for."""
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
        """Find who asked under an id: exchanges ask under their name, a dot and a number."""
        if not isinstance(id, str):
            return self.link.receiver
        exchange = self._exchanges.get(id.partition(".")[0])
        return None if exchange is None else exchange.receiver

    def _cancel(self, message: Message) -> None:
        params = _read(message, CancelledNotificationParams)
        if params is None or params.request_id is None:
            return
        wanted = params.request_id
        found = [each for each in self._exchanges.values() if any(_same(wanted, id) for id in each.ids)]
        # A client that gives two requests one id cannot say which of them it means; to go on with both loses nothing.
        if len(found) != 1 or found[0].receiver is None:
            return
        exchange, receiver = found[0], found[0].receiver
        served = getattr(receiver, "exchanges", {}).get(wanted)
        receiver.message_received(message, self.origin)
        task: asyncio.Task[None] | None = getattr(served, "task", None)
        if task is None or task.done():
            exchange.withdraw(wanted)
        else:
            # What the handler still says when it is stopped (that it needs no answer to a question) goes out first.
            task.add_done_callback(lambda _: exchange.withdraw(wanted))

    def _progress_target(self, message: Message) -> Receiver | None:
        params = _read(message, ProgressNotificationParams)
        return None if params is None else self._requester(params.progress_token)

    # --- the end -----------------------------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """End everything: what is served is cancelled, streams end, kept events are forgotten."""
        for exchange in list(self._exchanges.values()):
            exchange.abort(session_ended())
        self.log.close()
        for reply in self.waiting_responses:
            reply.stream.end()
        if self.connection is not None:
            self.link.receiver = None
            await self.connection.aclose()


class SessionRegistry:
    """All sessions of one endpoint."""

    __slots__ = ("_limits", "_new_id", "_now", "by_id")

    def __init__(self, limits: Limits, *, now: Callable[[], float], new_id: Callable[[], str]) -> None:
        """Start without any; ids must be such that nobody can guess one."""
        self._limits = limits
        self._now = now
        self._new_id = new_id
        self.by_id: dict[str, HttpSession] = {}

    def make(self, origin: Origin) -> HttpSession | None:
        """Begin a session; None if there are too many."""
        if len(self.by_id) >= self._limits.sessions:
            return None
        session = HttpSession(self._new_id(), origin, limits=self._limits, now=self._now())
        self.by_id[session.id] = session
        return session

    def find(self, id: str, principal: Principal | None) -> HttpSession | None:
        """Give the session of this principal with this id; one of somebody else's is none."""
        session = self.by_id.get(id)
        if session is None or session.session is None or not same_principal(session.principal, principal):
            return None
        session.seen = self._now()
        return session

    def remove(self, session: HttpSession) -> Coroutine[Any, Any, None]:
        """Forget a session; what is given ends it when awaited."""
        self.by_id.pop(session.id, None)
        return session.aclose()

    def __len__(self) -> int:
        return len(self.by_id)

    def end_expired(self) -> list[Coroutine[Any, Any, None]]:
        """Remove the sessions that rested too long; awaiting what is returned ends them."""
        return [self.remove(session) for session in self.expired()]

    def expired(self) -> Iterator[HttpSession]:
        """Yield the sessions that rested too long, and let each forget streams that ended long ago."""
        now, limits = self._now(), self._limits
        for session in list(self.by_id.values()):
            session.log.sweep(now)
            if session.busy:
                session.seen = now
                continue
            ready = session.session is not None and session.session.initialized
            if now - session.seen > (limits.session_seconds if ready else limits.unready_seconds):
                yield session


@cache
def _spoken(revision: Revision) -> Mapping[str, str]:
    return MappingProxyType({"mcp-protocol-version": revision.name})


def _read(message: Any, kind: Any) -> Any:
    try:
        return msgspec.json.decode(message.params or b"null", type=kind)
    except _UNREADABLE:
        return None


def _same(one: RequestId, other: RequestId) -> bool:
    return type(one) is type(other) and one == other


def same_principal(one: Principal | None, other: Principal | None) -> bool:
    """Tell whether two are one: nobody is only the same as nobody."""
    if one is None or other is None:
        return one is other
    return one.identity == other.identity


def requests_of(incoming: Incoming) -> frozenset[RequestId]:
    """Give the ids of the requests in what was posted."""
    items = incoming.items if isinstance(incoming, Batch) else (incoming,)
    return frozenset(item.id for item in items if isinstance(item, Request))

"""A handshake session that several workers share, as one worker holds it.

It is made from the facts in the session id when a worker first sees it, and dropped when it was not used for a while:
nothing is lost with it. Requests are those that this worker serves; the standing connection exists while it is needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from trunkline.errors import StoreUnavailable
from trunkline.protocol.caller import Origin, Principal, Session, same_principal
from trunkline.protocol.error_codes import INTERNAL_ERROR
from trunkline.protocol.jsonrpc import ErrorResponse, Message, encode
from trunkline.protocol.limits import Limits
from trunkline.protocol.revisions import Feature, find_revision
from trunkline.store.interface import Store
from trunkline.transports.http.server.asgi import HTTPException, unavailable
from trunkline.transports.http.server.event_log import EventStream
from trunkline.transports.http.server.sessions import (
    HttpSession,
    SessionLink,
    SessionRegistry,
    SessionRequestTransport,
    version_headers,
)
from trunkline.transports.http.server.shared.facts import LIFETIME, SessionFacts
from trunkline.transports.http.server.shared.streams import GET_STREAM, LogStream, ProducedStream, SharedEventLog
from trunkline.transports.http.server.shared.worker import SharedWorker, WorkerMessage
from trunkline.transports.link import AcceptedConnection, Acceptor, Link, Receiver
from trunkline.types import ErrorObject

__all__ = [
    "WORKER_GONE",
    "GetTurn",
    "SharedAcceptor",
    "SharedRegistry",
    "SharedRequestTransport",
    "SharedSession",
    "SharedState",
]

#: The error of a request whose worker has ended before it was answered.
WORKER_GONE = "The worker that served this request has ended, and its outcome is unknown; call again if that is safe"
#: How often a change of shared state is tried again when another worker changed it at the same time.
_ATTEMPTS = 20
#: A session that a worker has not served for so many seconds is dropped there.
_RESIDENT_SECONDS = 300.0


class SharedAcceptor(Acceptor, Protocol):
    """An acceptor that can serve sessions which another worker opened, and pass on what other workers announce."""

    def start(self) -> None:
        """Called when the endpoint starts."""

    async def leave(self) -> None:
        """Called before the store is closed."""

    def resume(self, link: Link, session: Session, prefix: str) -> AcceptedConnection:
        """Serve the standing link of a session; the ids of requests to the client begin with ``prefix``."""

    def announced(self, announcements: list[bytes] | None) -> None:
        """Called with announcements of other workers, for listen streams; None if some are missing."""

    def notify(self, connection: AcceptedConnection, announcement: bytes | None) -> None:
        """Send one session the notices of an announcement, before this returns; None if some are missing."""


class GetTurn(Protocol):
    """The turn of a response to be the GET stream of a session."""

    @property
    def stream(self) -> LogStream:
        """What the response reads."""

    def announced(self, id: str, body: bytes | None) -> None:
        """Called with each announcement; with None if some before this one are missing."""

    def save(self) -> None:
        """Store how far the client has come, if it has moved."""


class SharedState(Struct, frozen=True, array_like=True):
    """What a client may change in its session."""

    version: int = 0
    log_level: str | None = "info"
    subscriptions: frozenset[str] = frozenset()


class SharedRequestTransport(SessionRequestTransport):
    """One POST of a shared session."""

    __slots__ = ()

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
        stream = self._stream
        if self._sse is None and isinstance(stream, ProducedStream):
            stream.drop()
            self._stream = None
        elif stream is not None and not self._closed:
            for number, id in enumerate(self.ids, 1):
                error = ErrorResponse(id, ErrorObject(code=INTERNAL_ERROR, message=WORKER_GONE))
                stream.push(encode(error), last=number == len(self.ids))
        super().abort(failure)

    def _write_alongside(self, stream: EventStream) -> None:
        """Begin the response once its first event is stored: until then the request can be refused."""
        storing = getattr(stream, "storing", None)
        if storing is None:
            super()._write_alongside(stream)
        else:
            storing.add_done_callback(lambda _: self._begin_late(stream))

    def _begin_late(self, stream: EventStream) -> None:
        if self._stream is stream and self._sse is None:
            super()._write_alongside(stream)

    def _new_stream(self) -> EventStream:
        session = self._session
        assert isinstance(session, SharedSession)
        stream = session.shared_log.open(self.name, ids=tuple(self.ids), awaited=not self._disconnected, producer=self)
        if Feature.STREAM_POLLING in session.features:
            # From here on the client has an event id to resume from, whatever happens next.
            stream.push(b"", retry=self._retry_ms)
        return stream


class SharedSession(HttpSession):
    """The session of one sealed id at this worker."""

    __slots__ = (
        "_acceptor",
        "_standing",
        "_worker",
        "changes",
        "facts",
        "known_changes",
        "own_stream",
        "shared_log",
        "state",
        "turn",
    )

    def __init__(
        self, id: str, facts: SessionFacts, session: Session, *, worker: SharedWorker, acceptor: Any, limits: Limits
    ) -> None:
        """Hold a session; the acceptor is a `SharedAcceptor`."""
        self.id = id
        self.facts: SessionFacts = facts
        self._worker = worker
        self._acceptor: SharedAcceptor = acceptor
        self.origin = session.caller.origin
        self.shared_log: SharedEventLog = SharedEventLog(worker, facts.key, limits)
        self.log = self.shared_log  # type: ignore[assignment]  # it has what a session uses of a log
        #: What this worker adds to the GET stream.
        self.own_stream: ProducedStream = ProducedStream(GET_STREAM, self.shared_log, lost=self._get_event_lost)
        self.get_stream = self.own_stream
        #: The turn of the response that is the GET stream of the session, if it is open at this worker.
        self.turn: GetTurn | None = None
        self.waiting_responses = []
        self.link = _SharedLink(self, limits.write_bytes)
        self.connection = None
        self.session = session
        self.features = session.revision.features
        self.version = session.revision.name.encode()
        self.seen = 0.0
        self._requests = {}
        self._last = 0
        self._standing = worker.next_name()
        self.state: SharedState = SharedState()
        #: How often the shared state may have changed, and how many of these changes are known.
        self.changes: int = 1
        self.known_changes: int = 0
        session.id = id
        session.store = self
        session.ready()

    # --- requests ----------------------------------------------------------------------------------------------------

    def register(self, transport: SessionRequestTransport) -> str:
        """Add a request in flight and return its name, which no request of another worker has."""
        name = self._worker.next_name()
        self._requests[name] = transport
        return name

    def standing_connection(self) -> AcceptedConnection:
        """Return the connection for messages that belong to no request; it is made when it is first needed."""
        if self.connection is None:
            assert self.session is not None
            self.connection = self._acceptor.resume(self.link, self.session, f"{self._standing}.")
        return self.connection

    def connect(self) -> None:
        """Make the standing connection, unless there is one."""
        self.standing_connection()

    def _requester(self, id: Any) -> Receiver | None:
        name = id.partition(".")[0] if isinstance(id, str) else ""
        if name == self._standing:
            return self.link.receiver
        transport = self._requests.get(name)
        return None if transport is None else transport.receiver

    def cancel_here(self, message: Message) -> bool:
        """Cancel the request that a notification names, if this worker serves it."""
        return self._cancel(message)

    # --- shared state ------------------------------------------------------------------------------------------------

    @property
    def _state_key(self) -> str:
        return f"state:{self.facts.key}"

    @property
    def stale(self) -> bool:
        """Whether the shared state may be another by now."""
        return self.known_changes < self.changes

    async def load(self, *, required: bool = False) -> None:
        """Read the shared state, unless it is known.

        Raises:
            StoreUnavailable: it cannot be read, and is required; otherwise what is known is used until then.
        """
        if not self.stale:
            return
        changes = self.changes
        try:
            found = await self._worker.store.get(self._state_key)
        except StoreUnavailable:
            if required:
                raise
            return
        self.known_changes = max(self.known_changes, changes)
        if found is not None:
            self.apply(msgspec.msgpack.decode(found, type=SharedState))

    def apply(self, state: SharedState) -> None:
        """Use a state, unless a newer one is known."""
        if state.version > self.state.version and self.session is not None:
            self.state = state
            self.session.log_level = state.log_level  # type: ignore[assignment]
            self.session.subscriptions = state.subscriptions

    async def set_log_level(self, level: str) -> None:
        """Set the log level on every worker."""
        await self._change(lambda old: SharedState(old.version + 1, level, old.subscriptions))

    async def subscribe(self, uri: str) -> None:
        """Subscribe to a resource on every worker."""
        await self._change(lambda old: SharedState(old.version + 1, old.log_level, old.subscriptions | {uri}))

    async def unsubscribe(self, uri: str) -> None:
        """Unsubscribe from a resource on every worker."""
        await self._change(lambda old: SharedState(old.version + 1, old.log_level, old.subscriptions - {uri}))

    async def _change(self, change: Callable[[SharedState], SharedState]) -> None:
        store, key = self._worker.store, self._state_key
        for _ in range(_ATTEMPTS):
            found = await store.get(key)
            new = change(SharedState() if found is None else msgspec.msgpack.decode(found, type=SharedState))
            data = msgspec.msgpack.encode(new)
            if await _swap(store, key, found, data):
                self.apply(new)
                await self._worker.broadcast(WorkerMessage("state", self.facts.key, data))
                return
        raise StoreUnavailable("the session is being changed by too many requests at once")

    # --- the GET stream ----------------------------------------------------------------------------------------------

    def end_get_stream(self) -> None:
        """End the responses that read the GET stream here, wait for it, or read what another worker produces.

        The streams themselves go on, and their clients resume them.
        """
        for stream in self.shared_log.streams.values():
            if isinstance(stream, LogStream):
                stream.end()
        for response in self.waiting_responses:
            response.stream.end()

    def _get_event_lost(self) -> None:
        """Called when an event of the GET stream was not stored: its client reconnects, and reads the notices again."""
        if self.turn is not None:
            self.turn.stream.end()

    @property
    def open_streams(self) -> int:
        """The number of responses at this worker that read a stream of the session, or wait for its GET stream."""
        reading = sum(stream.reader is not None for stream in self.shared_log.streams.values())
        return len(self.waiting_responses) + reading


class _SharedLink(SessionLink):
    """The standing link of a shared session."""

    __slots__ = ()

    @property
    def delivers_requests(self) -> bool:
        """Whether the client reads the GET stream at this worker."""
        session = self._session
        return isinstance(session, SharedSession) and session.turn is not None

    async def aclose(self) -> None:
        """Do nothing: another worker may continue the session."""


async def _swap(store: Store, key: str, old: bytes | None, new: bytes) -> bool:
    if old is None:
        return await store.put(key, new, ttl=LIFETIME, only_if_absent=True)
    return await store.replace(key, old, new, ttl=LIFETIME)


class SharedRegistry(SessionRegistry):
    """The shared sessions that this worker holds."""

    __slots__ = ("_acceptor", "_worker", "by_key")

    def __init__(self, limits: Limits, worker: SharedWorker, acceptor: SharedAcceptor, *, now: Callable[[], float]):
        """Start without sessions; ``now`` returns monotonic time."""
        super().__init__(limits, now=now, new_id=lambda: "")
        self._worker = worker
        self._acceptor = acceptor
        self.by_key: dict[str, SharedSession] = {}

    def hold(self, id: str, facts: SessionFacts, session: Session) -> SharedSession:
        """Add a session to this worker; if there are too many, the oldest one that is not in use is removed."""
        held = SharedSession(id, facts, session, worker=self._worker, acceptor=self._acceptor, limits=self._limits)
        held.seen = self._now()
        if len(self.by_id) >= self._limits.sessions:
            idle = next((each for each in self.by_id.values() if not each.busy), None)
            if idle is not None:
                self._worker.spawn(self.remove(idle))
        self.by_id[id] = held
        self.by_key[facts.key] = held
        return held

    def revive(self, id: str, facts: SessionFacts) -> SharedSession | None:
        """Add a session that another worker opened; return None if its revision is not known here."""
        revision = find_revision(facts.revision)
        if revision is None:
            return None
        origin = Origin("http", facts.principal, version_headers(revision))
        session = Session(revision, facts.client_info, facts.capabilities, origin=origin)
        return self.hold(id, facts, session)

    def belongs_to(self, facts: SessionFacts, principal: Principal | None) -> bool:
        """Return whether a session belongs to a principal."""
        return same_principal(facts.principal, principal)

    def remove(self, session: HttpSession) -> Coroutine[Any, Any, None]:
        """Drop a session here; awaiting the coroutine ends its requests and streams at this worker."""
        assert isinstance(session, SharedSession)
        if self.by_key.get(session.facts.key) is session:
            del self.by_key[session.facts.key]
        return super().remove(session)

    def expired(self) -> Iterator[HttpSession]:
        """Yield the sessions that this worker needs no more, and those whose time is over."""
        now, wall = self._now(), self._worker.now()
        loop_now = asyncio.get_running_loop().time()
        for session in list(self.by_id.values()):
            assert isinstance(session, SharedSession)
            session.shared_log.sweep(loop_now)
            if session.turn is not None:
                session.turn.save()
            if session.facts.expires <= wall:
                yield session
            elif session.busy:
                session.seen = now
            elif now - session.seen > _RESIDENT_SECONDS:
                yield session

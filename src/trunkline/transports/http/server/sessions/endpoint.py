"""The part of an endpoint that serves clients of handshake revisions, in sessions that any worker may have opened.

A request within a session is served where it arrives. Answers, progress and cancellations that are for a request at
another worker go by that worker's channel; if no worker listens there, the client gets an error at once.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Sequence

import msgspec

from trunkline.errors import StoreUnavailable
from trunkline.protocol.caller import Origin, Principal, Session, owner_name, same_principal
from trunkline.protocol.error_codes import INTERNAL_ERROR
from trunkline.protocol.jsonrpc import (
    Batch,
    ErrorResponse,
    Incoming,
    InvalidMessage,
    Message,
    Notification,
    Request,
    Response,
    batch_fault,
    decode,
    encode,
    requests_of,
)
from trunkline.protocol.limits import Limits
from trunkline.protocol.revisions import ASSUMED_WITHOUT_HEADER, Feature, find_revision
from trunkline.transports.http.server.asgi import (
    Headers,
    HTTPException,
    invalid_body,
    session_ended,
    too_many,
    unavailable,
)
from trunkline.transports.http.server.event_stream import EventStream
from trunkline.transports.http.server.open_responses import Challenge, OpenResponses
from trunkline.transports.http.server.request import HttpRequest
from trunkline.transports.http.server.response import SSEResponse
from trunkline.transports.http.server.sessions.facts import LIFETIME, SessionFacts
from trunkline.transports.http.server.sessions.get_stream import TURN_SECONDS, GetPosition, GetStream, release_turn
from trunkline.transports.http.server.sessions.registry import SessionRegistry
from trunkline.transports.http.server.sessions.session import (
    WORKER_GONE,
    HttpSession,
    SessionAcceptor,
    SessionRequestTransport,
    SessionState,
    decode_params,
)
from trunkline.transports.http.server.sessions.streams import GET_STREAM, LoggedEvent, LogStream
from trunkline.transports.http.server.sessions.worker import GRACE_SECONDS, SessionWorker, WorkerMessage, worker_of
from trunkline.transports.http.server.single_request import HandshakeRequestTransport, SingleRequestTransport
from trunkline.types import CancelledNotificationParams, ErrorObject, ProgressNotificationParams, RequestId

__all__ = ["SessionEndpoint"]

log = logging.getLogger("trunkline.http")


class SessionEndpoint:
    """Serves handshake clients."""

    def __init__(
        self, acceptor: SessionAcceptor, worker: SessionWorker, *, limits: Limits, retry_ms: int, challenge: Challenge
    ) -> None:
        """Start without sessions."""
        self._acceptor = acceptor
        self._worker = worker
        self._limits = limits
        self._retry_ms = retry_ms
        self.sessions: SessionRegistry = SessionRegistry(limits, worker, acceptor, now=time.monotonic)
        self.open_responses: OpenResponses = OpenResponses(limits, self.sessions, challenge=challenge)
        #: The streams of other workers that are read here, by worker.
        self._reading: dict[str, dict[LogStream, tuple[HttpSession, tuple[RequestId, ...]]]] = {}
        #: Since when the workers of these streams do not respond.
        self._silent: dict[str, float] = {}
        self._checking: asyncio.Task[None] | None = None

    deliver_legacy: Callable[[str, bytes, Principal | None], None]  # What other workers received for it.

    # --- life --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Join the other workers, if there are any; needs a running event loop."""
        self._acceptor.start()
        if not self._worker.is_alone:
            self._worker.start(self)

    async def aclose(self) -> None:
        """Leave the other workers."""
        if self._checking is not None:
            self._checking.cancel()
            self._checking = None
        await self._acceptor.leave()
        await self._worker.aclose()

    async def _ready(self) -> None:
        """Wait a moment for the other workers at the start.

        Raises:
            StoreUnavailable: the store has not been reached yet.
        """
        self._worker.start(self)
        await self._worker.started()
        self._worker.check()

    # --- the oldest transport ----------------------------------------------------------------------------------------

    async def new_legacy_name(self) -> str:
        """Return a name for a stream of the oldest transport: its worker, sealed, so that no client can make one.

        Before the first client can post to another worker, this one listens for what is posted there.
        """
        if not self._worker.is_alone:
            self.start()
            await self._worker.started()
        return self._worker.ids.name_stream(self._worker.id)

    async def forward_legacy(self, name: str, body: bytes, principal: Principal | None) -> None:
        """Send what was posted for a stream of another worker there, by the name of the stream.

        Raises:
            HTTPException: no worker has that stream.
        """
        await self._ready()
        message = WorkerMessage("legacy", name, msgspec.msgpack.encode((body, principal)))
        owner = self._worker.ids.worker_of_stream(name)
        if owner is None or owner == self._worker.id or not await self._worker.send(owner, message):
            raise HTTPException(404, "No such session; open the event stream first")

    # --- POST --------------------------------------------------------------------------------------------------------

    async def open(self, request: HttpRequest, incoming: Request) -> None:
        """Open a session; if the answer is an error there is none."""
        await self._ready()
        origin, worker = request.origin, self._worker
        owner = owner_name(origin.principal, origin.address)
        if not self.sessions.has_room(owner):
            raise too_many("sessions")
        transport = SingleRequestTransport(request, self.open_responses)
        # In a task of its own: a response that becomes a stream has the id in its head.
        receiver = self._acceptor.accept_one(transport, None, "", None)
        receiver.message_received(incoming, origin)
        session: Session | None = getattr(receiver, "session", None)
        # A handler of `initialize` that never returns holds nothing for long.
        deadline = asyncio.get_running_loop().call_later(self._limits.unready_seconds, transport.abort, session_ended())
        headers: Headers = []
        id = ""
        try:
            if session is not None:
                facts = worker.ids.facts(
                    session,
                    request.principal,
                    generation=worker.store.generation,
                    since=worker.position,
                    lifetime=math.inf if worker.is_alone else LIFETIME,
                )
                id, stored = worker.ids.write(facts)
                if stored is not None and not worker.is_alone:
                    await worker.store.put(f"facts:{facts.key}", stored, ttl=LIFETIME)
                headers = [(b"mcp-session-id", id.encode())]
            await transport.respond(headers, unless_error=True)
        except BaseException:
            transport.abort(unavailable())
            raise
        finally:
            deadline.cancel()
        if session is not None and transport.succeeded and id not in self.sessions.by_id:
            self.sessions.make_room(owner)
            self.sessions.open(id, facts, session, origin)
            self.open_responses.start_clock()

    async def use(self, request: HttpRequest, incoming: Incoming, *, id: bytes, version: bytes | None) -> None:
        """Serve a POST within a session."""
        session = await self._session(request, id, version)
        if type(incoming) is not Request:
            batch, others = self._sort(session, incoming)
            for item in others:
                await self._deliver(session, item)
            if batch is None:
                await request.answer(202)
                return
            if session.closed:
                raise session_ended()
            incoming = batch
        if session.in_flight >= self._limits.in_flight:
            raise too_many("requests in flight")
        single = type(incoming) is Request
        ids = frozenset((incoming.id,)) if single else requests_of(incoming)  # type: ignore[union-attr]
        transport = SessionRequestTransport(
            request, self.open_responses, session=session, ids=ids, retry_ms=self._retry_ms
        )
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
        answered = [item for item in incoming.items if _must_be_answered(item)]
        others = [item for item in incoming.items if item not in answered]
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

    # --- finding a session -------------------------------------------------------------------------------------------

    async def _session(self, request: HttpRequest, id: bytes, version: bytes | None) -> HttpSession:
        """Return the session that a request names, as this worker holds it from now on.

        Raises:
            HTTPException: the principal has no session with this id, or the session has another revision.
        """
        name = id.decode("latin-1")
        by_id = self.sessions.by_id
        session = by_id.get(name)
        if session is None and not self._worker.is_alone:
            await self._revive(request, name)
            session = by_id.get(name)
        elif session is not None and session.known_changes < session.changes:
            await session.load()
            # It may have ended meanwhile.
            session = by_id.get(name)
        if session is None or not session.belongs_to(request.principal):
            raise HTTPException(404, "No such session; send initialize again")
        session.seen = self.sessions.now()
        if version is not None and version != session.version:
            agreed = session.version.decode()
            raise HTTPException(400, f"MCP-Protocol-Version does not match the session, which speaks {agreed}")
        return session

    async def _revive(self, request: HttpRequest, id: str) -> None:
        """Create the session that an id describes, if it belongs to the sender of the request; else do nothing."""
        await self._ready()
        worker = self._worker
        facts = worker.ids.read(id)
        if facts is None or self._has_ended(facts) or id in self.sessions.by_id:
            return
        if facts.stored:
            stored = await worker.store.get(f"facts:{facts.key}")
            facts = None if stored is None else worker.ids.decode(stored)
            if facts is None or self._has_ended(facts) or id in self.sessions.by_id:
                # Meanwhile it was terminated, or another request has revived it.
                return
        if facts is None or not same_principal(facts.principal, request.principal):
            return
        session = self.sessions.revive(id, facts, request.client_address)
        if session is None:
            raise too_many("sessions")
        self.open_responses.start_clock()
        await session.load()

    def _has_ended(self, facts: SessionFacts) -> bool:
        worker = self._worker
        return facts.generation != worker.store.generation or worker.is_terminated(facts.key)

    # --- messages for requests of other workers ----------------------------------------------------------------------

    async def _deliver(self, session: HttpSession, message: Message | InvalidMessage) -> None:
        """Deliver a message that is not a request to the connection it is for, at whatever worker that is.

        Raises:
            HTTPException: it answers a request of a worker that is gone.
        """
        if isinstance(message, Response | ErrorResponse | InvalidMessage):
            await self._deliver_to(_owner(message.id), session, message, required=True)
        elif message.method == "notifications/progress":
            params = decode_params(message, ProgressNotificationParams)
            await self._deliver_to(_owner(params and params.progress_token), session, message, required=False)
        elif message.method == "notifications/cancelled":
            params = decode_params(message, CancelledNotificationParams)
            if not session.cancel(message) and params is not None and params.request_id is not None:
                # Nothing else of it is needed, and every worker gets it.
                named = Notification(message.method, {"requestId": params.request_id})
                await self._worker.send_small(None, WorkerMessage("cancel", session.facts.key, encode(named)))
        else:
            session.deliver(message)

    async def _deliver_to(
        self, owner: str | None, session: HttpSession, message: Message | InvalidMessage, *, required: bool
    ) -> None:
        if owner is None or owner == self._worker.id:
            session.deliver(message)
            return
        if isinstance(message, InvalidMessage):
            return
        forwarded = WorkerMessage("message", session.facts.key, encode(message))
        if not required:
            await self._worker.send_small(owner, forwarded)
        # If it is not certain, the answer is in the inbox of that worker, which reads it once it is connected.
        elif await self._worker.send_answer(owner, forwarded) is False:
            raise HTTPException(410, "The worker that asked has ended, and its request with it; call again")

    # --- GET and DELETE ----------------------------------------------------------------------------------------------

    async def listen(self, request: HttpRequest, *, id: bytes, version: bytes | None) -> None:
        """Write the GET stream to a response, or resume a stream that the client lost."""
        session = await self._session(request, id, version)
        if session.open_streams >= self._limits.session_streams:
            raise too_many("open streams")
        self.open_responses.check_streams()
        header = request.field(b"last-event-id")
        if header is None:
            await self._listen(session, request)
            return
        last = header.decode("latin-1")
        position = GetPosition.parse(last)
        event = await session.log.find(last if position is None else position.entry)
        if position is not None and (event is not None or not position.entry or await session.log.is_empty()):
            await self._listen(session, request, after=position, from_start=event is None)
        elif position is None and event is not None and event.stream != GET_STREAM:
            await self._resume_stream(session, event, last, request)
        else:
            raise HTTPException(400, f"Last-Event-ID {last[:40]!r} belongs to no stream that can be resumed here")

    async def _resume_stream(self, session: HttpSession, event: LoggedEvent, last: str, request: HttpRequest) -> None:
        """Continue the stream that an event belongs to, after that event."""
        stream = LogStream(event.stream, session.log, after=last)
        stream.ended = event.last
        owner = event.stream.partition("-")[0]
        name = self._worker.next_name()
        session.log.streams[name] = stream
        try:
            if not event.last:
                await stream.start()
                if not stream.ended:
                    await self._watch(owner, stream, session, event.ids)
            response = SSEResponse(stream, request.send)
            request.drop_headers()
            await response.run([], owner=self.open_responses, connection=request.connection)
        finally:
            session.log.streams.pop(name, None)
            self._reading.get(owner, {}).pop(stream, None)
            await stream.aclose()

    async def _listen(
        self,
        session: HttpSession,
        request: HttpRequest,
        *,
        after: GetPosition | None = None,
        from_start: bool = False,
    ) -> None:
        """Write the GET stream, once no other response of any worker does; a client that resumes it does at once.

        With ``from_start`` nothing is left of the log after which the client would resume.
        """
        response = SSEResponse(EventStream(), request.send)
        stream = GetStream(session, response, after=after, from_start=from_start, retry_ms=self._retry_ms)
        # The first attempt decides about the status of the response.
        begun = await stream.begin()
        waiting = None if begun else self._worker.spawn(stream.wait())
        request.drop_headers()
        try:
            await response.run([], owner=self.open_responses, connection=request.connection)
        finally:
            if waiting is not None:
                waiting.cancel()
            await stream.close()

    async def end(self, request: HttpRequest, *, id: bytes, version: bytes | None) -> None:
        """Terminate a session on every worker."""
        session = await self._session(request, id, version)
        facts, worker = session.facts, self._worker
        if worker.is_alone:
            await self.sessions.remove(session)
        else:
            await worker.terminate(facts.key, facts.expires)
            worker.spawn(self.sessions.forget(facts.key))
        await request.answer(204)

    # --- workers that are gone ---------------------------------------------------------------------------------------

    async def _watch(self, owner: str, stream: LogStream, session: HttpSession, ids: tuple[RequestId, ...]) -> None:
        """Check, now and regularly, that the worker that produces a stream is alive; if not, answer in its place."""
        self._reading.setdefault(owner, {})[stream] = (session, ids)
        resumed = WorkerMessage("resumed", session.facts.key, stream.name.encode())
        if owner == self._worker.id:
            if not self._produces(session, stream.name):
                # Where the client does not keep up, the end of the stream is further on in the log.
                if not stream.paused:
                    await self._answer_for(owner, [stream])
            else:
                self._resumed(resumed)
        elif await self._is_gone(owner, resumed):
            await self._answer_for(owner)
        elif self._checking is None:
            self._checking = asyncio.get_running_loop().create_task(self._check_workers(), name="trunkline")

    def _produces(self, session: HttpSession, name: str) -> bool:
        held = self.sessions.by_key.get(session.facts.key)
        return held is not None and name in held.log.streams

    async def _check_workers(self) -> None:
        try:
            while any(self._reading.values()):
                await asyncio.sleep(TURN_SECONDS)
                others = [owner for owner, streams in self._reading.items() if streams and owner != self._worker.id]
                for owner in others:
                    try:
                        if await self._is_gone(owner, WorkerMessage("check")):
                            await self._answer_for(owner)
                    except StoreUnavailable:
                        break
            self._silent.clear()
        finally:
            self._checking = None

    async def _is_gone(self, owner: str, message: WorkerMessage) -> bool:
        """Send a message to a worker; return whether it has been silent for longer than connections take."""
        now = asyncio.get_running_loop().time()
        if await self._worker.send(owner, message) is not False:
            self._silent.pop(owner, None)
            return False
        # It may be connecting again, while this worker was connected all the time.
        return now - self._silent.setdefault(owner, now) >= GRACE_SECONDS

    async def _answer_for(self, owner: str, streams: Sequence[LogStream] | None = None) -> None:
        """Answer the requests of a worker that is gone, whose streams are read here, with an error.

        With ``streams`` the worker is there, and serves the requests of these no longer.
        """
        reading = self._reading.get(owner, {})
        for stream in list(reading) if streams is None else streams:
            # Removed first, so that another task does not answer it too.
            if (watched := reading.pop(stream, None)) is None:
                continue
            session, ids = watched
            try:
                while ids:
                    error = ErrorResponse(ids[0], ErrorObject(code=INTERNAL_ERROR, message=WORKER_GONE))
                    event = LoggedEvent(stream.name, encode(error), last=len(ids) == 1, ids=ids)
                    await session.log.append(event)
                    ids = ids[1:]
                if not watched[1]:
                    await session.log.append(LoggedEvent(stream.name, b"", last=True))
            except BaseException:
                # Its client still waits, unless it has left meanwhile; the next check tries again.
                if stream in session.log.streams.values():
                    reading[stream] = (session, ids)
                raise

    # --- as the listener of the worker -------------------------------------------------------------------------------

    def message_received(self, message: WorkerMessage) -> None:
        """Handle a message of another worker."""
        if message.kind == "legacy":
            body, principal = msgspec.msgpack.decode(message.body, type=tuple[bytes, Principal | None])
            self.deliver_legacy(message.key, body, principal)
            return
        if message.kind == "turn":
            release_turn(self._worker, message)
            return
        session = self.sessions.by_key.get(message.key)
        if session is None:
            return
        if message.kind == "state" and message.body:
            session.apply(msgspec.msgpack.decode(message.body, type=SessionState))
        elif message.kind == "state":
            session.changes += 1
            self._worker.spawn(session.load())
        elif message.kind == "resumed":
            self._resumed(message)
        elif message.kind in ("message", "cancel"):
            incoming = decode(message.body, self._limits)
            if message.kind == "message":
                session.deliver(incoming)  # type: ignore[arg-type]  # another worker has decoded and sorted it
            else:
                session.cancel(incoming)  # type: ignore[arg-type]

    def _resumed(self, message: WorkerMessage) -> None:
        session = self.sessions.by_key.get(message.key)
        stream = None if session is None else session.log.streams.get(message.body.decode())
        if stream is not None and stream.reader is not None:
            stream.reader.dismiss()

    def session_terminated(self, key: str) -> None:
        """End what this worker holds of a session."""
        session = self.sessions.by_key.get(key)
        if session is not None:
            self._worker.spawn(self.sessions.remove(session))

    def generation_changed(self) -> None:
        """End all sessions: events may be missing."""
        for session in list(self.sessions.by_key.values()):
            self._worker.spawn(self.sessions.remove(session))

    def connection_restored(self) -> None:
        """Read the state of all sessions again, each with its next use: thousands at once would be a burst."""
        for session in self.sessions.by_key.values():
            session.changes += 1

    def announced(self, id: str, body: bytes | None, *, own: bool) -> None:
        """Pass on an announcement: to the sessions whose GET stream is read here, and to listen streams."""
        for session in list(self.sessions.by_key.values()):
            if session.get_stream is not None:
                try:
                    session.get_stream.announced(id, body)
                except Exception:
                    # It reads the announcement again when it is resumed; the others must hear of it now.
                    log.exception("a session could not be notified of a change")
                    session.get_stream.end()
        # In one process the listen streams have heard of it: all of its endpoints have one hub.
        if not (own or self._worker.is_alone):
            self._acceptor.announced(None if body is None else [body])


def _owner(id: object) -> str | None:
    """Return the worker that sent a request with this id; None if no worker makes such ids."""
    name, dot, _ = id.partition(".") if isinstance(id, str) else ("", "", "")
    return worker_of(name) if dot else None


def _must_be_answered(item: Message | InvalidMessage) -> bool:
    return type(item) is Request or (type(item) is InvalidMessage and not item.response)

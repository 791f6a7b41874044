"""The part of an endpoint that serves clients of handshake revisions, where several workers share their sessions.

A request within a session is served where it arrives. Answers, progress and cancellations that are for a request at
another worker go by that worker's channel; if no worker listens there, the client gets an error at once.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec

from trunkline.errors import StoreUnavailable
from trunkline.protocol.caller import Principal
from trunkline.protocol.error_codes import INTERNAL_ERROR
from trunkline.protocol.jsonrpc import (
    ErrorResponse,
    Incoming,
    InvalidMessage,
    Message,
    Notification,
    Request,
    Response,
    decode,
    encode,
)
from trunkline.protocol.limits import Limits
from trunkline.transports.http.server.asgi import Headers, HTTPException, too_many
from trunkline.transports.http.server.event_log import EventStream
from trunkline.transports.http.server.open_responses import Challenge
from trunkline.transports.http.server.request import HttpRequest
from trunkline.transports.http.server.response import SSEResponse
from trunkline.transports.http.server.sessions import SessionEndpoint, decode_params
from trunkline.transports.http.server.shared.facts import LIFETIME, SessionFacts
from trunkline.transports.http.server.shared.sessions import (
    WORKER_GONE,
    SharedAcceptor,
    SharedRegistry,
    SharedRequestTransport,
    SharedSession,
    SharedState,
)
from trunkline.transports.http.server.shared.streams import GET_STREAM, LoggedEvent, LogStream
from trunkline.transports.http.server.shared.turns import TURN_SECONDS, Turn, release_turn
from trunkline.transports.http.server.shared.worker import GRACE_SECONDS, SharedWorker, WorkerMessage, worker_of
from trunkline.transports.http.server.single_request import SingleRequestTransport
from trunkline.types import CancelledNotificationParams, ErrorObject, ProgressNotificationParams, RequestId

__all__ = ["SharedSessionEndpoint"]


class SharedSessionEndpoint(SessionEndpoint):
    """Serves handshake clients with sessions that several workers share."""

    sessions: SharedRegistry

    def __init__(
        self, acceptor: SharedAcceptor, worker: SharedWorker, *, limits: Limits, retry_ms: int, challenge: Challenge
    ) -> None:
        """Start without sessions."""
        registry = SharedRegistry(limits, worker, acceptor, now=time.monotonic)
        super().__init__(
            acceptor,
            limits=limits,
            retry_ms=retry_ms,
            challenge=challenge,
            sessions=registry,
            transport=SharedRequestTransport,
        )
        self._shared_acceptor = acceptor
        self._worker = worker
        #: The streams of other workers that are read here, by worker.
        self._reading: dict[str, dict[LogStream, tuple[SharedSession, tuple[RequestId, ...]]]] = {}
        #: Since when the workers of these streams do not respond.
        self._silent: dict[str, float] = {}
        self._checking: asyncio.Task[None] | None = None

    # --- life --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Join the other workers; needs a running event loop."""
        self._shared_acceptor.start()
        self._worker.start(self)

    async def aclose(self) -> None:
        """Leave the other workers."""
        if self._checking is not None:
            self._checking.cancel()
        await self._shared_acceptor.leave()
        await self._worker.aclose()

    def legacy_options(self) -> dict[str, Any]:
        """Return how streams of the oldest transport are named, after their worker, and reached there."""
        return {
            "forward": self._forward_legacy,
            "new_name": lambda: self._worker.ids.name_stream(self._worker.id),
        }

    async def _forward_legacy(self, name: str, body: bytes, principal: Principal | None) -> None:
        await self._ready()
        message = WorkerMessage("legacy", name, msgspec.msgpack.encode((body, principal)))
        owner = self._worker.ids.worker_of_stream(name)
        if owner is None or owner == self._worker.id or not await self._worker.send(owner, message):
            raise HTTPException(404, "No such session; open the event stream first")

    # --- POST --------------------------------------------------------------------------------------------------------

    async def open(self, request: HttpRequest, incoming: Request) -> None:
        """Open a session: its id is all there is of it."""
        await self._ready()
        transport = SingleRequestTransport(request, self.open_responses)
        inline = transport.run_inline if request.direct is not None else None
        receiver = self._acceptor.accept_one(transport, None, "", inline)
        receiver.message_received(incoming, request.origin)
        session = getattr(receiver, "session", None)
        headers: Headers = []
        id = ""
        if session is not None:
            worker = self._worker
            facts = worker.ids.facts(
                session, request.principal, generation=worker.store.generation, since=worker.position
            )
            id, stored = worker.ids.write(facts)
            if stored is not None:
                await worker.store.put(_facts_key(facts), stored, ttl=LIFETIME)
            headers = [(b"mcp-session-id", id.encode())]
        await transport.respond(headers, unless_error=True)
        if session is not None and transport.succeeded and id not in self.sessions.by_id:
            held = self.sessions.revive(id, facts)
            if held is not None:
                held.known_changes = held.changes
                self.open_responses.start_clock()

    async def use(self, request: HttpRequest, incoming: Incoming, *, id: bytes, version: bytes | None) -> None:
        """Serve a POST within a session."""
        held = self.sessions.by_id.get(id.decode("latin-1"))
        if held is None:
            await self._revive(request, id)
        elif held.stale:  # type: ignore[attr-defined]  # a `SharedSession`
            await held.load()  # type: ignore[attr-defined]
        if type(incoming) is not Request:
            session = self._held(request, id, version)
            batch, others = self._sort(session, incoming)
            for item in others:
                await self._deliver(session, item)
            if batch is None:
                await request.answer(202)
                return
            incoming = batch
        await super().use(request, incoming, id=id, version=version)

    def _held(self, request: HttpRequest, id: bytes, version: bytes | None) -> SharedSession:
        session = self._find(request, id, version)
        assert isinstance(session, SharedSession)
        return session

    async def _revive(self, request: HttpRequest, id: bytes) -> None:
        """Create the session that an id describes, if it belongs to the sender of the request; else do nothing."""
        await self._ready()
        worker, text = self._worker, id.decode("latin-1")
        facts = worker.ids.read(text)
        if facts is None or self._has_ended(facts):
            return
        if facts.stored:
            stored = await worker.store.get(_facts_key(facts))
            facts = None if stored is None else worker.ids.decode(stored)
            if facts is None or self._has_ended(facts) or text in self.sessions.by_id:
                # Meanwhile it was terminated, or another request has revived it.
                return
        if facts is None or not self.sessions.belongs_to(facts, request.principal):
            return
        session = self.sessions.revive(text, facts)
        if session is not None:
            self.open_responses.start_clock()
            await session.load()

    def _has_ended(self, facts: SessionFacts) -> bool:
        worker = self._worker
        return facts.generation != worker.store.generation or worker.is_terminated(facts.key)

    async def _ready(self) -> None:
        """Wait a moment for the other workers at the start.

        Raises:
            StoreUnavailable: the store has not been reached yet.
        """
        self.start()
        await self._worker.started()
        self._worker.check()

    # --- messages for requests of other workers ----------------------------------------------------------------------

    async def _deliver(self, session: SharedSession, message: Message | InvalidMessage) -> None:
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
            if not session.cancel_here(message) and params is not None and params.request_id is not None:
                # Nothing else of it is needed, and every worker gets it.
                named = Notification(message.method, {"requestId": params.request_id})
                await self._worker.send_small(None, WorkerMessage("cancel", session.facts.key, encode(named)))
        else:
            session.standing_connection()
            session.deliver(message)

    async def _deliver_to(
        self, owner: str | None, session: SharedSession, message: Message | InvalidMessage, *, required: bool
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
        if id.decode("latin-1") not in self.sessions.by_id:
            await self._revive(request, id)
        session = self._held(request, id, version)
        if session.open_streams >= self._limits.session_streams:
            raise too_many("open streams")
        self.open_responses.check_streams()
        last = request.field(b"last-event-id")
        if last is None:
            await self._listen(session, request, after=None)
            return
        text = last.decode("latin-1")
        event = await session.shared_log.find(text)
        if event is None:
            raise HTTPException(400, f"Last-Event-ID {text[:40]!r} belongs to no stream that can be resumed here")
        if event.stream == GET_STREAM:
            await self._listen(session, request, after=text)
        else:
            await self._resume_stream(session, event, text, request)

    async def _resume_stream(self, session: SharedSession, event: LoggedEvent, last: str, request: HttpRequest) -> None:
        """Continue the stream that an event belongs to, after that event."""
        stream = session.shared_log.read(event.stream, after=last)
        stream.ended = event.last
        owner = event.stream.partition("-")[0]
        name = self._worker.next_name()
        session.shared_log.streams[name] = stream
        try:
            if not event.last:
                await stream.start()
                if not stream.ended:
                    await self._watch(owner, stream, session, event.ids)
            response = SSEResponse(stream, request.send)
            request.drop_headers()
            await response.run([], owner=self.open_responses, connection=request.connection)
        finally:
            session.shared_log.streams.pop(name, None)
            self._reading.get(owner, {}).pop(stream, None)
            await stream.aclose()

    async def _listen(self, session: SharedSession, request: HttpRequest, *, after: str | None) -> None:
        """Write the GET stream, once no other response of any worker does; a client that resumes it does at once."""
        idle = EventStream()
        response = SSEResponse(idle, request.send)
        turn = Turn(self._worker, self._shared_acceptor, session, response, after=after, retry_ms=self._retry_ms)
        # The first attempt decides about the status of the response.
        begun = await turn.begin()
        waiting = None if begun else self._worker.spawn(turn.wait())
        request.drop_headers()
        try:
            await response.run([], owner=self.open_responses, connection=request.connection)
        finally:
            if waiting is not None:
                waiting.cancel()
            await turn.end()

    async def end(self, request: HttpRequest, *, id: bytes, version: bytes | None) -> None:
        """Terminate a session on every worker."""
        if id.decode("latin-1") not in self.sessions.by_id:
            await self._revive(request, id)
        session = self._held(request, id, version)
        facts = session.facts
        await self._worker.terminate(facts.key, facts.expires)
        key = facts.key
        self._worker.spawn(
            self._worker.store.delete(f"events:{key}", f"state:{key}", f"facts:{key}", f"got:{key}", f"get:{key}")
        )
        await request.answer(204)

    # --- workers that are gone ---------------------------------------------------------------------------------------

    async def _watch(self, owner: str, stream: LogStream, session: SharedSession, ids: tuple[RequestId, ...]) -> None:
        """Check, now and regularly, that the worker that produces a stream is alive; if not, answer in its place."""
        self._reading.setdefault(owner, {})[stream] = (session, ids)
        resumed = WorkerMessage("resumed", session.facts.key, stream.name.encode())
        if owner == self._worker.id:
            if not self._produces(session, stream.name):
                await self._answer_for(owner)
            else:
                self._resumed(resumed)
        elif await self._is_gone(owner, resumed):
            await self._answer_for(owner)
        elif self._checking is None:
            self._checking = asyncio.get_running_loop().create_task(self._check_workers(), name="trunkline")

    def _produces(self, session: SharedSession, name: str) -> bool:
        held = self.sessions.by_key.get(session.facts.key)
        return held is not None and name in held.shared_log.streams

    async def _check_workers(self) -> None:
        while any(self._reading.values()):
            await asyncio.sleep(TURN_SECONDS)
            for owner in [owner for owner, streams in self._reading.items() if streams and owner != self._worker.id]:
                try:
                    if await self._is_gone(owner, WorkerMessage("check")):
                        await self._answer_for(owner)
                except StoreUnavailable:
                    break
        self._silent.clear()
        self._checking = None

    async def _is_gone(self, owner: str, message: WorkerMessage) -> bool:
        """Send a message to a worker; return whether it has been silent for longer than connections take."""
        now = asyncio.get_running_loop().time()
        if await self._worker.send(owner, message) is not False:
            self._silent.pop(owner, None)
            return False
        # It may be connecting again, while this worker was connected all the time.
        return now - self._silent.setdefault(owner, now) >= GRACE_SECONDS

    async def _answer_for(self, owner: str) -> None:
        """Answer the requests of a worker that is gone, whose streams are read here, with an error."""
        reading = self._reading.get(owner, {})
        for stream in list(reading):
            # Removed first, so that another task does not answer it too.
            if (found := reading.pop(stream, None)) is None:
                continue
            session, ids = found
            try:
                while ids:
                    error = ErrorResponse(ids[0], ErrorObject(code=INTERNAL_ERROR, message=WORKER_GONE))
                    event = LoggedEvent(stream.name, encode(error), last=len(ids) == 1, ids=ids)
                    await session.shared_log.append(event)
                    ids = ids[1:]
                if not found[1]:
                    await session.shared_log.append(LoggedEvent(stream.name, b"", last=True))
            except BaseException:
                # Its client still waits, unless it has left meanwhile; the next check tries again.
                if stream in session.shared_log.streams.values():
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
            session.apply(msgspec.msgpack.decode(message.body, type=SharedState))
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
                session.cancel_here(incoming)  # type: ignore[arg-type]

    def _resumed(self, message: WorkerMessage) -> None:
        session = self.sessions.by_key.get(message.key)
        stream = None if session is None else session.shared_log.streams.get(message.body.decode())
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
        """Read the shared state of all sessions again, with the next use of each; take turns anew."""
        for session in self.sessions.by_key.values():
            session.changes += 1
            self._worker.spawn(session.load())

    def announced(self, id: str, body: bytes | None, *, own: bool) -> None:
        """Pass on an announcement: to the sessions whose GET stream is read here, and to listen streams."""
        for session in self.sessions.by_key.values():
            if session.turn is not None:
                session.turn.announced(id, body)
        if not own:
            self._shared_acceptor.announced(None if body is None else [body])


def _owner(id: object) -> str | None:
    """Return the worker that sent a request with this id; None if no worker makes such ids."""
    name, dot, _ = id.partition(".") if isinstance(id, str) else ("", "", "")
    return worker_of(name) if dot else None


def _facts_key(facts: SessionFacts) -> str:
    return f"facts:{facts.key}"

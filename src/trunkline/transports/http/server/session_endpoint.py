"""What clients of handshake revisions send to an endpoint: opening a session, using it, and the verbs beside POST.

The links and the switchboard are in ``sessions``; this is the way from an HTTP request to them and back.
"""

from __future__ import annotations

import secrets
import time

from trunkline.protocol.caller import Origin, Session
from trunkline.protocol.jsonrpc import Batch, Incoming, InvalidMessage, Message, Request, batch_fault
from trunkline.protocol.limits import Limits
from trunkline.protocol.revisions import ASSUMED_WITHOUT_HEADER, Feature, find_revision
from trunkline.transports.http.server.asgi import Headers, HTTPException, invalid_body, too_many
from trunkline.transports.http.server.event_log import EventStream
from trunkline.transports.http.server.open_responses import Challenge, OpenResponses
from trunkline.transports.http.server.request import HttpRequest
from trunkline.transports.http.server.response import SSEResponse
from trunkline.transports.http.server.sessions import (
    Acceptor,
    HttpSession,
    SessionRegistry,
    SessionRequestTransport,
    requests_of,
)
from trunkline.transports.http.server.single_request import HandshakeRequestTransport, SingleRequestTransport

__all__ = ["SessionEndpoint"]


class SessionEndpoint:
    """The sessions of one endpoint, as its visitors see them."""

    def __init__(self, acceptor: Acceptor, *, limits: Limits, retry_ms: int, challenge: Challenge) -> None:
        """Start without sessions."""
        self._acceptor = acceptor
        self._limits = limits
        self._retry_ms = retry_ms
        self.sessions: SessionRegistry = SessionRegistry(
            limits, now=time.monotonic, new_id=lambda: secrets.token_urlsafe(32)
        )
        self.open_responses: OpenResponses = OpenResponses(limits, self.sessions, challenge=challenge)

    # --- POST --------------------------------------------------------------------------------------------------------

    async def open(self, request: HttpRequest, incoming: Request) -> None:
        """Open a session; an answer that is an error leaves none."""
        origin = request.origin
        session = self.sessions.make(origin)
        if session is None:
            raise too_many("sessions")
        self.open_responses.start_clock()
        opening = SingleRequestTransport(request, self.open_responses)
        session.link.begin_opening(incoming.id, opening)
        conversation = session.connection = self._acceptor.accept(session.link)
        conversation.message_received(incoming, origin)
        headers: Headers = []
        if conversation.session is not None:
            session.opened(conversation.session)
            headers = [(b"mcp-session-id", session.id.encode())]
        try:
            await opening.respond(headers, unless_error=True)
        finally:
            session.link.end_opening()
            if session.session is None or not opening.succeeded:
                await self.sessions.remove(session)

    async def use(self, request: HttpRequest, incoming: Incoming, *, id: bytes, version: bytes | None) -> None:
        """Serve what a session's client posts."""
        session = self.find(request, id, version)
        if type(incoming) is not Request:
            asked, others = self._sort(session, incoming)
            for item in others:
                session.deliver(item)
            if asked is None:
                await request.answer(202)
                return
            incoming = asked
        if session.in_flight >= self._limits.in_flight:
            raise too_many("requests in flight")
        transport = SessionRequestTransport(
            request, self.open_responses, session=session, ids=requests_of(incoming), retry_ms=self._retry_ms
        )
        receiver = self._acceptor.accept_one(transport, session.session, f"{transport.name}.", None)
        # The same principal may come with another token: what it allows counts for this request.
        origin = session.origin
        if request.principal is not None:
            origin = Origin("http", request.principal, origin.headers)
        receiver.message_received(incoming, origin)
        await transport.respond([])

    def _sort(self, session: HttpSession, incoming: Incoming) -> tuple[Batch | None, list[Message | InvalidMessage]]:
        """Part what must be answered from what is only brought to somebody.

        Raises:
            Refused: it cannot be read, or the batch as a whole is against the rules.
        """
        if type(incoming) is not Batch:
            if type(incoming) is InvalidMessage and not incoming.response:
                raise invalid_body(incoming, incoming.message)
            return None, [incoming]  # type: ignore[list-item]
        if Feature.BATCHES not in session.features:
            raise HTTPException(400, "Invalid request: batches are not in this revision")
        if (wrong := batch_fault(incoming)) is not None:
            raise HTTPException(400, wrong)
        asked = [each for each in incoming.items if _must_be_answered(each)]
        return Batch(tuple(asked)) if asked else None, [each for each in incoming.items if each not in asked]

    async def serve_alone(self, request: HttpRequest, incoming: Incoming, *, version: bytes | None) -> None:
        """Serve a handshake client without a session: what it said before is not known."""
        revision = (None if version is None else find_revision(version.decode())) or ASSUMED_WITHOUT_HEADER
        batch = type(incoming) is Batch and Feature.BATCHES in revision.features
        if type(incoming) is InvalidMessage or (type(incoming) is Batch and not batch):
            raise invalid_body(incoming, "Invalid request: batches are not in this revision")
        if type(incoming) is Batch and (wrong := batch_fault(incoming)) is not None:
            raise HTTPException(400, wrong)
        if not requests_of(incoming):
            await request.answer(202)
            return
        transport, origin, session = HandshakeRequestTransport(request, self.open_responses), request.origin, None
        if batch or incoming.method != "initialize":  # type: ignore[union-attr]
            session = Session(revision, None, {}, origin=origin)
            session.ready()
        self._acceptor.accept_one(transport, session, "", None).message_received(incoming, origin)
        await transport.respond([])

    def find(self, request: HttpRequest, id: bytes, version: bytes | None) -> HttpSession:
        """Return the session that a request names.

        Raises:
            Refused: there is none of this id and principal, or it speaks another revision.
        """
        session = self.sessions.find(id.decode("latin-1"), request.principal)
        if session is None or session.session is None:
            raise HTTPException(404, "No such session; send initialize again")
        spoken = session.session.revision.name
        if version is not None and version.decode("latin-1") != spoken:
            raise HTTPException(400, f"MCP-Protocol-Version does not match the session, which speaks {spoken}")
        return session

    # --- GET and DELETE ----------------------------------------------------------------------------------------------

    async def listen(self, request: HttpRequest, *, id: bytes, version: bytes | None) -> None:
        """Bring what the server says unasked, or go on with a stream that was lost."""
        session = self.find(request, id, version)
        if session.open_streams >= self._limits.session_streams:
            raise too_many("open streams")
        self.open_responses.check_streams()
        last = request.field(b"last-event-id")
        if last is not None:
            reply = self._resumed(session, last.decode("latin-1"), request)
        else:
            reply = SSEResponse(EventStream(), request.send)
            if Feature.STREAM_POLLING in session.features and session.get_stream.reader is None:
                session.get_stream.push(b"", retry=self._retry_ms, merge=True)
            session.join(reply)
        request.forget()
        try:
            await reply.run(request.receive, [], owner=self.open_responses, carrier=request.carrier)
        finally:
            session.leave(reply)

    def _resumed(self, session: HttpSession, last: str, request: HttpRequest) -> SSEResponse:
        """Go on with the stream that an event belongs to, behind it, and with no other."""
        found = session.log.find(last)
        if found is None or not found[0].rewind(found[1]):
            raise HTTPException(400, f"Last-Event-ID {last[:40]!r} is of no stream that is kept here")
        reply = SSEResponse(found[0], request.send)
        found[0].attach(reply)
        return reply

    async def end(self, request: HttpRequest, *, id: bytes, version: bytes | None) -> None:
        """End a session."""
        await self.sessions.remove(self.find(request, id, version))
        await request.answer(204)


def _must_be_answered(item: Message | InvalidMessage) -> bool:
    return type(item) is Request or (type(item) is InvalidMessage and not item.response)

"""The ASGI entry: one endpoint that serves every era at once, and the table that says which request goes where.

A POST whose version header names a stateless revision, or one nobody knows, lasts one request. A POST without one, or
with a handshake revision, opens a session or belongs to one. GET and DELETE belong to sessions; a GET that names
neither is a client of the oldest transport. Everything is untrusted here: the guard looks at the head before a byte of
the body is read, the body is bounded in size and time, and what is refused is refused with a JSON-RPC error that says
why. What a message means is the business of whoever accepts the links.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from trunkline.protocol.batches import fault
from trunkline.protocol.caller import Origin, Principal
from trunkline.protocol.jsonrpc import (
    Batch,
    Incoming,
    Malformed,
    Notification,
    Request,
    decode,
)
from trunkline.protocol.limits import Limits
from trunkline.protocol.revisions import HANDSHAKE_NAMES, Feature
from trunkline.transports.http.event_log import EventStream
from trunkline.transports.http.guard import Guard, accepts, is_json
from trunkline.transports.http.once import OnceLink
from trunkline.transports.http.refusals import Refused, no_request, not_used, stopping, too_many
from trunkline.transports.http.replies import JSON, Headers, Receive, Send, StreamReply, send_plain
from trunkline.transports.http.sessions import Acceptor, ExchangeLink, HttpSession, Sessions, requests_of
from trunkline.transports.http.upkeep import Upkeep

__all__ = ["Authenticate", "Endpoint", "EndpointOptions"]

log = logging.getLogger("trunkline.http")

#: Says who sends a request with these headers (names in lower case), or None if nobody who may.
Authenticate = Callable[[Mapping[str, str]], Awaitable[Principal | None] | Principal | None]

Scope = MutableMapping[str, Any]
_HANDSHAKE = frozenset(name.encode() for name in HANDSHAKE_NAMES)
# Given twice, a proxy in front might have judged another value than we do.
_SINGLE = frozenset(
    {b"host", b"origin", b"content-type", b"content-length", b"authorization", b"last-event-id", b"accept"}
)
_BOTH = frozenset({b"application/json, text/event-stream", b"text/event-stream, application/json"})


class EndpointOptions(Struct, frozen=True, kw_only=True):
    """How an endpoint behaves; the public face of ``Server.asgi`` and ``Server.run`` fills it in."""

    path: str = "/mcp"
    #: Serve the pair of the oldest HTTP transport as well.
    sse: bool = True
    sse_path: str | None = None
    message_path: str | None = None
    #: Keep sessions for handshake clients; without, each of their requests stands alone.
    sessions: bool = True
    #: Never stream: an answer is one JSON body, and nothing else reaches the client.
    json_only: bool = False
    #: After how long a client that lost a stream is asked to come back.
    retry_ms: int = 1000


class Endpoint:
    """An ASGI application that carries messages to whoever accepts them."""

    def __init__(
        self,
        acceptor: Acceptor,
        options: EndpointOptions,
        *,
        guard: Guard,
        limits: Limits,
        authenticate: Authenticate | None = None,
    ) -> None:
        """Serve an acceptor at a path; nothing runs before the first request."""
        self._acceptor = acceptor
        self._options = options
        self._guard = guard
        self._limits = limits
        self._authenticate = authenticate
        self.path = options.path.rstrip("/")
        self.sessions = Sessions(limits, now=time.monotonic, new_id=lambda: secrets.token_urlsafe(32))
        self.upkeep = Upkeep(limits, self.sessions)
        self.draining = False
        self._verbs: Mapping[str, Callable[[Scope, Mapping[bytes, bytes], Receive, Send], Awaitable[None]]] = (
            MappingProxyType({"POST": self._post, "GET": self._get, "DELETE": self._delete})
        )
        self._pair = None
        if options.sse:
            from trunkline.transports.http.sse_server import SsePair

            self._pair = SsePair(self, options, acceptor=acceptor, limits=limits)

    # --- ASGI --------------------------------------------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request, or follow the server's life."""
        if scope["type"] != "http":
            await self._other(scope, receive, send)
            return
        headers = dict(scope["headers"])
        cors: Headers = []
        try:
            self._check_head(scope, headers)
            if b"origin" in headers:
                cors = self._guard.cors_headers(headers[b"origin"])
            path = _path(scope)
            if path == self.path or path == self.path + "/":
                verb = self._verbs.get(scope["method"])
                if verb is None:
                    await self._options_or_refuse(scope, headers, send)
                elif cors:
                    await verb(scope, headers, receive, _with(send, cors))
                else:
                    await verb(scope, headers, receive, send)
            elif self._pair is not None and self._pair.serves(path):
                await self._pair.respond(path, scope, headers, receive, _with(send, cors) if cors else send)
            else:
                raise Refused(404, f"Nothing is at {path[:80]!r}; the endpoint is {self.path or '/'}")
        except Refused as refusal:
            await send_plain(send, refusal.status, [JSON, *refusal.headers, *cors], refusal.body)

    async def _other(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            # There is no such transport; refusing the handshake is all there is to do.
            await receive()
            await send({"type": "websocket.close", "code": 1003})
            return
        if scope["type"] != "lifespan":
            raise NotImplementedError(f"an MCP endpoint serves HTTP, not {scope['type']}")
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.aclose()
                await send({"type": "lifespan.shutdown.complete"})
                return

    @asynccontextmanager
    async def lifespan(self, app: object = None) -> AsyncIterator[None]:
        """Wrap the life of an application this is mounted in: at its end sessions and streams end cleanly."""
        try:
            yield
        finally:
            await self.aclose()

    # --- the head ----------------------------------------------------------------------------------------------------

    def _check_head(self, scope: Scope, headers: Mapping[bytes, bytes]) -> None:
        given = scope["headers"]
        if len(headers) != len(given):
            names = [name for name, _ in given if name in _SINGLE or name.startswith(b"mcp-")]
            twice = {name.decode("latin-1") for name in names if names.count(name) > 1}
            if twice:
                raise Refused(400, f"Header given more than once: {', '.join(sorted(twice))}")
        host, origin = headers.get(b"host"), headers.get(b"origin")
        refusal = self._guard.check(
            () if host is None else (host,), () if origin is None else (origin,), server=scope.get("server")
        )
        if refusal is not None:
            raise Refused(refusal.status, refusal.message)

    async def _options_or_refuse(self, scope: Scope, headers: Mapping[bytes, bytes], send: Send) -> None:
        if scope["method"] == "OPTIONS" and b"access-control-request-method" in headers:
            allowed = self._guard.preflight(
                headers.get(b"origin"),
                headers[b"access-control-request-method"],
                requested_headers=headers.get(b"access-control-request-headers"),
            )
            if allowed is not None:
                await send_plain(send, 204, allowed)
                return
        raise Refused(405, f"{scope['method'][:20]} is not used here", headers=((b"allow", b"POST, GET, DELETE"),))

    async def principal(self, headers: Mapping[bytes, bytes]) -> Principal | None:
        """Find out who sends a request; whoever cannot be found out is refused, never taken for nobody."""
        if self._authenticate is None:
            return None
        readable = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers.items()}
        try:
            found = self._authenticate(readable)
            principal = await found if isinstance(found, Awaitable) else found
        except Exception:
            log.exception("authentication failed")
            principal = None
        if principal is None:
            raise Refused(
                401, "Authorization is needed: send a valid token", headers=((b"www-authenticate", b"Bearer"),)
            )
        return principal

    async def body(self, headers: Mapping[bytes, bytes], receive: Receive) -> bytes:
        """Read a body, as far as the limit and the clock allow.

        Raises:
            Refused: it is no JSON by its type, too long, or too slow.
        """
        if not is_json(headers.get(b"content-type")):
            raise Refused(415, "The body must be application/json")
        limit = self._limits.body_bytes
        length = headers.get(b"content-length")
        if length is not None and length.isdigit() and int(length[:20]) > limit:
            raise self._too_long()
        message = await receive()
        body: bytes = message.get("body", b"")
        if not message.get("more_body") and message["type"] == "http.request":
            if len(body) > limit:
                raise self._too_long()
            return body
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                return await self._rest(message, receive)
        except TimeoutError:
            raise Refused(408, "The body took too long", headers=((b"connection", b"close"),)) from None

    async def _rest(self, message: MutableMapping[str, Any], receive: Receive) -> bytes:
        parts, size = [], 0
        while message["type"] == "http.request":
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self._limits.body_bytes:
                raise self._too_long()
            if not message.get("more_body"):
                return b"".join(parts)
            message = await receive()
        raise Refused(400, "The body ended early")

    def _too_long(self) -> Refused:
        close = ((b"connection", b"close"),)
        return Refused(413, f"A body of more than {self._limits.body_bytes} bytes", headers=close)

    # --- POST --------------------------------------------------------------------------------------------------------

    async def _post(self, scope: Scope, headers: Mapping[bytes, bytes], receive: Receive, send: Send) -> None:
        if self.draining:
            raise stopping()
        principal = None if self._authenticate is None else await self.principal(headers)
        json_only = self._options.json_only
        accept = headers.get(b"accept")
        if accept is not None and accept not in _BOTH:
            json, stream = accepts(accept)
            if not json and not stream:
                raise Refused(406, "Accept must name application/json and text/event-stream")
            json_only = json_only or not stream
        body = await self.body(headers, receive)
        incoming = decode(body, self._limits)
        version = headers.get(b"mcp-protocol-version")
        id = headers.get(b"mcp-session-id")
        if version is not None and version not in _HANDSHAKE:
            await self._once(incoming, _origin(scope, principal), receive, send, json_only=json_only)
        elif id is not None and self._options.sessions:
            session = self._session(id, version, principal)
            await self._in_session(session, incoming, receive, send, json_only=json_only)
        elif type(incoming) is Request and incoming.method == "initialize" and self._options.sessions:
            await self._initialize(incoming, _origin(scope, principal), receive, send, json_only=json_only)
        elif type(incoming) is Request:
            await self._once(incoming, _origin(scope, principal), receive, send, json_only=json_only)
        else:
            raise no_request(incoming, "Mcp-Session-Id header is missing: send initialize first")

    async def _once(self, incoming: Incoming, origin: Origin, receive: Receive, send: Send, *, json_only: bool) -> None:
        """Serve a request that stands alone."""
        if type(incoming) is Notification:
            # 2026-07-28 has none over HTTP; what is sent all the same is taken and means nothing.
            await send_plain(send, 202, [])
            return
        if type(incoming) is not Request:
            raise no_request(incoming, "Invalid request: a body holds one request or one notification")
        link = OnceLink(self._limits.write_bytes, json_only=json_only)
        self._acceptor.accept_one(link, None, "").message_received(incoming, origin)
        await self._reply(link, receive, send, [])

    async def _initialize(
        self, incoming: Request, origin: Origin, receive: Receive, send: Send, *, json_only: bool
    ) -> None:
        """Open a session; an answer that is an error leaves none."""
        session = self.sessions.make(origin)
        if session is None:
            raise too_many("sessions")
        self.upkeep.begin()
        opening = OnceLink(self._limits.write_bytes, json_only=json_only)
        session.link.opening = (incoming.id, opening)
        conversation = session.conversation = self._acceptor.accept(session.link)
        conversation.message_received(incoming, origin)
        headers: Headers = []
        if conversation.session is not None:
            session.opened(conversation.session)
            headers = [(b"mcp-session-id", session.id.encode())]
        try:
            await self._reply(opening, receive, send, headers, unless_error=True)
        finally:
            session.link.opening = None
            if session.session is None or opening.status != 200 or opening.failed or not opening.closed:
                await self.sessions.remove(session)

    async def _in_session(
        self, session: HttpSession, incoming: Incoming, receive: Receive, send: Send, *, json_only: bool
    ) -> None:
        """Serve what a session's client posts."""
        if type(incoming) is Malformed and not incoming.response:
            raise no_request(incoming, incoming.message)
        items = incoming.items if type(incoming) is Batch else (incoming,)
        if type(incoming) is Batch:
            if Feature.BATCHES not in session.features:
                raise Refused(400, "Invalid request: batches are not in this revision")
            if (wrong := fault(incoming)) is not None:
                raise Refused(400, wrong)
        asked = [item for item in items if type(item) is Request or (type(item) is Malformed and not item.response)]
        for item in items:
            if item not in asked:
                session.deliver(item)
        if not asked:
            await send_plain(send, 202, [])
            return
        if session.in_flight >= self._limits.in_flight:
            raise too_many("requests in flight")
        link = ExchangeLink(session, requests_of(incoming), json_only=json_only, retry_ms=self._options.retry_ms)
        receiver = self._acceptor.accept_one(link, session.session, f"{link.name}.")
        receiver.message_received(
            Batch(tuple(asked)) if type(incoming) is Batch else incoming,  # type: ignore[arg-type]
            session.origin,
        )
        await self._reply(link, receive, send, [])

    def _session(self, id: bytes, version: bytes | None, principal: Principal | None) -> HttpSession:
        session = self.sessions.find(id.decode("latin-1"), principal)
        if session is None:
            raise Refused(404, "No such session; send initialize again")
        assert session.session is not None
        spoken = session.session.revision.name
        if version is not None and version.decode("latin-1") != spoken:
            raise Refused(400, f"MCP-Protocol-Version does not match the session, which speaks {spoken}")
        return session

    async def _reply(
        self, link: OnceLink, receive: Receive, send: Send, headers: Headers, *, unless_error: bool = False
    ) -> None:
        """Send what a link brings: JSON, or a stream."""
        upkeep = self.upkeep
        if not link.decided:
            upkeep.watch(link, receive)
        try:
            if not link.decided:
                await link.decision()
            if link.answer is not None:
                head = [] if unless_error and link.failed else headers
                await send_plain(send, link.status, [JSON, *head], link.answer)
            elif link.stream is not None:
                upkeep.check_streams()
                link.reply = StreamReply(link.stream, send, leaving=link.leaving)
                if not await link.reply.run(receive, headers, owner=upkeep, watched=link.watch is not None):
                    link.gone()
        except (asyncio.CancelledError, Refused):
            link.gone()
            raise
        finally:
            upkeep.done(link)

    # --- GET and DELETE ----------------------------------------------------------------------------------------------

    async def _get(self, scope: Scope, headers: Mapping[bytes, bytes], receive: Receive, send: Send) -> None:
        version, id = headers.get(b"mcp-protocol-version"), headers.get(b"mcp-session-id")
        if self.draining:
            raise stopping()
        if version is not None and version not in _HANDSHAKE:
            raise not_used("GET")
        if not accepts(headers.get(b"accept"))[1]:
            raise Refused(406, "This is an MCP endpoint: a GET must accept text/event-stream")
        if id is None or not self._options.sessions:
            if version is None and id is None and self._pair is not None:
                await self._pair.open(scope, headers, receive, send)
                return
            raise not_used("GET") if not self._options.sessions else Refused(400, "Mcp-Session-Id header is missing")
        session = self._session(id, version, await self.principal(headers))
        if session.open_streams >= self._limits.session_streams:
            raise too_many("open streams")
        self.upkeep.check_streams()
        last = headers.get(b"last-event-id")
        if last is not None:
            await self._resume(session, last.decode("latin-1"), receive, send)
        else:
            await self._listen(session, receive, send)

    async def _resume(self, session: HttpSession, last: str, receive: Receive, send: Send) -> None:
        """Go on with the stream that an event belongs to, behind it, and with no other."""
        found = session.log.find(last)
        if found is None or not found[0].rewind(found[1]):
            raise Refused(400, f"Last-Event-ID {last[:40]!r} is of no stream that is kept here")
        reply = StreamReply(found[0], send)
        found[0].attach(reply)
        try:
            await reply.run(receive, [], owner=self.upkeep)
        finally:
            session.leave(reply)

    async def _listen(self, session: HttpSession, receive: Receive, send: Send) -> None:
        """Bring what the server says unasked."""
        reply = StreamReply(EventStream(), send)
        if Feature.STREAM_POLLING in session.features and session.standing.reader is None:
            session.standing.push(b"", retry=self._options.retry_ms, merge=True)
        session.join(reply)
        try:
            await reply.run(receive, [], owner=self.upkeep)
        finally:
            session.leave(reply)

    async def _delete(self, scope: Scope, headers: Mapping[bytes, bytes], receive: Receive, send: Send) -> None:
        version, id = headers.get(b"mcp-protocol-version"), headers.get(b"mcp-session-id")
        if (version is not None and version not in _HANDSHAKE) or not self._options.sessions:
            raise not_used("DELETE")
        if id is None:
            raise Refused(400, "Mcp-Session-Id header is missing")
        session = self._session(id, version, await self.principal(headers))
        await self.sessions.remove(session)
        await send_plain(send, 204, [])

    # --- the end -----------------------------------------------------------------------------------------------------

    async def drain(self, seconds: float) -> None:
        """Take no new work, let requests in flight finish, end streams with a result; after so long cancel the rest."""
        self.draining = True
        self._acceptor.wind_down()
        for session in self.sessions.by_id.values():
            session.standing.end()
            for reply in session.standing_by:
                reply.stream.end()
        if not await self.upkeep.settled(seconds):
            left = list(self.upkeep.in_flight)
            log.warning("%d requests did not finish in %g s and are cancelled", len(left), seconds)
            for link in left:
                link.lost()
        for session in list(self.sessions.by_id.values()):
            await self.sessions.remove(session)
        if self._pair is not None:
            await self._pair.aclose()

    async def aclose(self) -> None:
        """End everything now."""
        if not self.draining:
            await self.drain(0)
        self.upkeep.stop()
        await self._acceptor.release()


def _path(scope: Scope) -> str:
    """Give the path below where the application is mounted."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    return path[len(root) :] if root and path.startswith(root) else path


def _origin(scope: Scope, principal: Principal | None) -> Origin:
    headers = {
        name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"] if name.startswith(b"mcp-")
    }
    return Origin("http", principal, headers)


def _with(send: Send, headers: Headers) -> Send:
    """Add headers to whatever response is sent."""

    async def sends(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *headers]}
        await send(message)

    return sends

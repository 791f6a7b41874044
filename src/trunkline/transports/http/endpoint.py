"""The ASGI entry: one endpoint that serves every era at once, and the table that says which request goes where.

A POST whose version header names a stateless revision, or one nobody knows, lasts one request. A POST without one, or
with a handshake revision, opens a session or belongs to one. GET and DELETE belong to sessions; a GET that names
neither is a client of the oldest transport. Everything is untrusted here: the guard looks at the head before a byte of
the body is read, the body is bounded in size and time, and what is refused is refused with a JSON-RPC error that says
why. What a message means is the business of whoever accepts the links.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from trunkline.errors import ConfigError, InsufficientScope
from trunkline.protocol.access import Denied
from trunkline.protocol.caller import Principal
from trunkline.protocol.jsonrpc import Notification, Request, decode
from trunkline.protocol.limits import Limits
from trunkline.protocol.revisions import HANDSHAKE_NAMES, STATELESS_NAMES
from trunkline.transports.http.gate import Gate
from trunkline.transports.http.guard import Guard, accepts
from trunkline.transports.http.handshake import Handshake
from trunkline.transports.http.once import SingleRequestTransport
from trunkline.transports.http.refusals import (
    JSON,
    Headers,
    Receive,
    Refused,
    Scope,
    Send,
    no_request,
    not_used,
    send_plain,
    stopping,
)
from trunkline.transports.http.sessions import Acceptor, requests_of
from trunkline.transports.http.visits import HttpRequest, RequestHeaders

__all__ = ["Endpoint", "EndpointOptions"]

log = logging.getLogger("trunkline.http")

_HANDSHAKE = frozenset(name.encode() for name in HANDSHAKE_NAMES)
_STATELESS = frozenset(name.encode() for name in STATELESS_NAMES)
# Given twice, a proxy in front might have judged another value than we do.
_SINGLE = frozenset(
    {b"host", b"origin", b"content-type", b"content-length", b"authorization", b"dpop", b"last-event-id", b"accept"}
)
_REMEMBERED = 256
_WELL_KNOWN = "/.well-known/"
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
        gate: Gate | None = None,
    ) -> None:
        """Serve an acceptor at a path; nothing runs before the first request."""
        self._acceptor = acceptor
        self._options = options
        self._guard = guard
        self._limits = limits
        self._gate = gate
        self._single = _SINGLE if gate is None else _SINGLE | {gate.header}
        self.path = options.path.rstrip("/")
        #: Heads that the guard has let in before.
        self._welcome: set[tuple[bytes | None, bytes | None, str | None]] = set()
        self._paths = frozenset({self.path, f"{self.path}/"})
        self._handshake = Handshake(acceptor, limits=limits, retry_ms=options.retry_ms, challenge=self._lacking)
        self.sessions = self._handshake.sessions
        self.open_responses = self._handshake.open_responses
        self.draining = False
        self._verbs: Mapping[str, Callable[[HttpRequest], Awaitable[None]]] = MappingProxyType(
            {"POST": self._post, "GET": self._get, "DELETE": self._delete}
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
        request = HttpRequest(scope, receive, send, self._limits)
        cors: Headers = []
        try:
            if self._check_head(request) and scope["method"] != "OPTIONS":
                # A preflight is answered with headers of its own.
                cors = self._guard.cors_headers(request.headers[b"origin"])
                request.send = _with(send, cors) if cors else send
            path: str = scope["path"]
            if root := scope.get("root_path"):
                path = _below(root, path)
            if path in self._paths:
                verb = self._verbs.get(scope["method"])
                if self._gate is not None and verb is not None:
                    request.principal = await self._enter(self._gate, request)
                await (self.answer_options(request) if verb is None else verb(request))
            elif self._pair is not None and self._pair.serves(path):
                if self._gate is not None and scope["method"] != "OPTIONS":
                    request.principal = await self._enter(self._gate, request)
                await self._pair.respond(path, request)
            elif self._gate is not None and (beside := self._gate.route(path)) is not None:
                if scope["method"] == "OPTIONS":
                    await self.answer_options(request)
                else:
                    await beside(scope, receive, request.send)
            else:
                raise Refused(404, f"Nothing is at {path[:80]!r}; the endpoint is {self.path or '/'}")
        except Refused as refusal:
            await send_plain(send, refusal.status, [JSON, *refusal.headers, *cors], refusal.body)

    async def well_known(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve what belongs at the root of an origin, for an endpoint that is mounted below it.

        It is an application of its own, to be mounted at ``/.well-known``.
        """
        path: str = scope["path"]
        whole = path if path.startswith(_WELL_KNOWN) else f"{scope.get('root_path', '')}{path}"
        await self({**scope, "path": whole, "root_path": ""}, receive, send)

    async def _other(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            # There is no such transport; refusing the handshake is all there is to do.
            await receive()
            await send({"type": "websocket.close", "code": 1003})
            return
        if scope["type"] != "lifespan":
            raise ConfigError(f"an MCP endpoint serves HTTP, not {scope['type']}")
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self.draining = False
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.aclose()
                await send({"type": "lifespan.shutdown.complete"})
                return

    @asynccontextmanager
    async def lifespan(self, app: object = None) -> AsyncIterator[None]:
        """Wrap the life of an application this is mounted in: at its end sessions and streams end cleanly."""
        # An application may be started again after its end; tests do so all the time.
        self.draining = False
        try:
            yield
        finally:
            await self.aclose()

    # --- the head ----------------------------------------------------------------------------------------------------

    def _check_head(self, request: HttpRequest) -> bool:
        """See that a request may be looked at; tell whether a web page sends it.

        Raises:
            Refused: it may not.
        """
        scope, headers = request.scope, request.headers
        given = scope["headers"]
        if len(headers) != len(given):
            names = [name for name, _ in given if name in self._single or name.startswith(b"mcp-")]
            twice = {name.decode("latin-1") for name in names if names.count(name) > 1}
            if twice:
                raise Refused(400, f"Header given more than once: {', '.join(sorted(twice))}")
        host, origin = headers.get(b"host"), headers.get(b"origin")
        server = scope.get("server")
        head = (host, origin, server and server[0])
        if head in self._welcome:
            return origin is not None
        refusal = self._guard.check(() if host is None else (host,), () if origin is None else (origin,), server=server)
        if refusal is not None:
            raise Refused(refusal.status, refusal.message)
        if len(self._welcome) >= _REMEMBERED:
            self._welcome.clear()
        self._welcome.add(head)
        return origin is not None

    async def answer_options(self, request: HttpRequest) -> None:
        """Answer a browser that asks whether a page may call.

        Raises:
            Refused: it may not, or the verb is another that is not used.
        """
        method, headers = request.scope["method"], request.headers
        if method == "OPTIONS" and b"access-control-request-method" in headers:
            allowed = self._guard.preflight(
                headers.get(b"origin"),
                headers[b"access-control-request-method"],
                requested_headers=headers.get(b"access-control-request-headers"),
            )
            if allowed is not None:
                await request.answer(204, allowed)
                return
        raise Refused(405, f"{method[:20]} is not used here", headers=((b"allow", b"POST, GET, DELETE"),))

    async def _enter(self, gate: Gate, request: HttpRequest) -> Principal:
        """Find out who sends a request; whoever cannot be found out is refused, never taken for nobody."""
        found = await gate.admit(RequestHeaders(request.headers), method=request.scope["method"], url=_url(request))
        if not isinstance(found, Principal):
            head = (_challenge(gate, found, request), *gate.fields(found))
            raise Refused(found.status, found.message, headers=head)
        return found

    def _lacking(self, needed: InsufficientScope, request: HttpRequest) -> Headers:
        """Say what a token must allow that was good, but not for this."""
        if self._gate is None:
            return []
        denied = Denied(status=403, message=needed.message, error="insufficient_scope", scopes=needed.scopes)
        return [_challenge(self._gate, denied, request)]

    # --- POST --------------------------------------------------------------------------------------------------------

    async def _post(self, request: HttpRequest) -> None:
        request.json_only = self._options.json_only
        accept = request.headers.get(b"accept")
        if accept not in _BOTH and accept is not None:
            json, stream = accepts(accept)
            if not json and not stream:
                raise Refused(406, "Accept must name application/json and text/event-stream")
            request.json_only = request.json_only or not stream
        incoming = decode(await request.body(), self._limits)
        if self.draining and requests_of(incoming):
            # What is in flight may still wait for an answer that its client posts.
            raise stopping()
        version, id = request.field(b"mcp-protocol-version"), request.field(b"mcp-session-id")
        alone = version is not None and version not in _HANDSHAKE
        if not alone and not self._options.sessions:
            await self._handshake.serve_alone(request, incoming, version=version)
        elif not alone and id is not None:
            await self._handshake.use(request, incoming, id=id, version=version)
        elif not alone and type(incoming) is Request and incoming.method == "initialize":
            await self._handshake.open(request, incoming)
        elif type(incoming) is Request:
            # It stands alone and is served in this very task: its client's hang-up is the end of both.
            transport = SingleRequestTransport(request, self.open_responses)
            receiver = self._acceptor.accept_one(transport, None, "", transport.run_inline)
            receiver.message_received(incoming, request.origin)
            # What was read is not kept for as long as it is being answered.
            del incoming, receiver
            await transport.respond()
        elif not alone:
            raise no_request(incoming, "Mcp-Session-Id header is missing: send initialize first")
        elif type(incoming) is not Notification:
            raise no_request(incoming, "Invalid request: a body holds one request or one notification")
        elif version not in _STATELESS:
            raise _unsupported(version or b"")
        else:
            # 2026-07-28 has none over HTTP; what is sent all the same is taken and means nothing.
            await request.answer(202)

    # --- GET and DELETE ----------------------------------------------------------------------------------------------

    async def _get(self, request: HttpRequest) -> None:
        version, id = request.field(b"mcp-protocol-version"), request.field(b"mcp-session-id")
        if self.draining:
            raise stopping()
        if version is not None and version not in _HANDSHAKE:
            raise _without_sessions("GET", version)
        if not accepts(request.headers.get(b"accept"))[1]:
            raise Refused(406, "This is an MCP endpoint: a GET must accept text/event-stream")
        if id is not None and self._options.sessions:
            await self._handshake.listen(request, id=id, version=version)
        elif version is None and id is None and self._pair is not None:
            if b"text/event-stream" not in request.headers.get(b"accept", b"").lower():
                # A browser or a person takes anything; a stream that says nothing would only puzzle them.
                raise Refused(406, "This is an MCP endpoint: POST to it, or GET with Accept: text/event-stream")
            await self._pair.open(request)
        elif (version is None and id is None) or not self._options.sessions:
            raise not_used("GET")
        else:
            raise Refused(400, "Mcp-Session-Id header is missing")

    async def _delete(self, request: HttpRequest) -> None:
        version, id = request.field(b"mcp-protocol-version"), request.field(b"mcp-session-id")
        if version is not None and version not in _HANDSHAKE:
            raise _without_sessions("DELETE", version)
        if not self._options.sessions:
            raise not_used("DELETE")
        if id is None:
            raise Refused(400, "Mcp-Session-Id header is missing")
        await self._handshake.end(request, id=id, version=version)

    # --- the end -----------------------------------------------------------------------------------------------------

    async def drain(self, seconds: float) -> None:
        """Take no new work, let requests in flight finish, end streams with a result; after so long cancel the rest."""
        self.draining = True
        self._acceptor.wind_down()
        for session in self.sessions.by_id.values():
            session.standing.end()
            for reply in session.standing_by:
                reply.stream.end()
        if not await self.open_responses.wait_idle(seconds, self._busy):
            left = list(self.open_responses.in_flight)
            log.warning("%d requests did not finish in %g s and are cancelled", len(left), seconds)
            for response in left:
                response.abort(stopping())
        for session in list(self.sessions.by_id.values()):
            await self.sessions.remove(session)
        if self._pair is not None:
            await self._pair.aclose()

    def _busy(self) -> bool:
        """Tell whether requests are being served that no response waits for."""
        served = any(session.in_flight for session in self.sessions.by_id.values())
        return served or (self._pair is not None and self._pair.busy)

    async def aclose(self) -> None:
        """End everything now."""
        if not self.draining:
            await self.drain(0)
        self.open_responses.stop()
        await self._acceptor.release()


def _challenge(gate: Gate, denied: Denied, request: HttpRequest) -> tuple[bytes, bytes]:
    challenge = gate.challenge(denied, origin=request.address, root=request.scope.get("root_path", ""))
    return b"www-authenticate", challenge.encode("latin-1", "replace")


def _url(request: HttpRequest) -> str:
    """Give the address that was called, without the query, as the client wrote it."""
    root, path = request.scope.get("root_path", ""), request.scope["path"]
    return f"{request.address}{path if path.startswith(root) else root + path}"


def _below(root: str, path: str) -> str:
    """Give the path below where the application is mounted."""
    return path[len(root) :] if path.startswith(root) else path


def _without_sessions(verb: str, version: bytes) -> Refused:
    """Refuse a verb that belongs to sessions, in a revision that has none or that nobody knows."""
    return not_used(verb) if version in _STATELESS else _unsupported(version)


def _unsupported(version: bytes) -> Refused:
    return Refused(400, f"Unsupported MCP-Protocol-Version {version[:40].decode('latin-1')!r}")


def _with(send: Send, headers: Headers) -> Send:
    """Add headers to whatever response is sent."""

    async def sends(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *headers]}
        await send(message)

    return sends

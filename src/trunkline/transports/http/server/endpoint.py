"""The ASGI application of an MCP endpoint, which serves every era at once, and its routing table.

A POST whose version header names a stateless revision, or an unknown one, is served on its own. A POST without that
header, or with a handshake revision, opens a session or belongs to one. GET and DELETE belong to sessions; a GET that
names neither a session nor a version comes from a client of the oldest transport. All input is untrusted: ``Host`` and
``Origin`` are checked before a byte of the body is read, the body is limited in size and time, and every rejection is a
JSON-RPC error with the reason. What a message means is up to the acceptor of the links.

The ``OriginPolicy`` decides from where a request may come, the ``Authenticator`` who may send it. The endpoint knows no
tokens itself.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from trunkline.errors import ConfigError, InsufficientScope, StoreUnavailable
from trunkline.protocol.caller import AccessDenied, Principal
from trunkline.protocol.jsonrpc import Notification, Request, decode, requests_of
from trunkline.protocol.limits import Limits
from trunkline.protocol.revisions import HANDSHAKE_NAMES, STATELESS_NAMES
from trunkline.transports.http.server.asgi import (
    JSON,
    Headers,
    HTTPException,
    Receive,
    Scope,
    Send,
    invalid_body,
    method_not_allowed,
    stopping,
    unavailable,
)
from trunkline.transports.http.server.open_responses import OpenResponses
from trunkline.transports.http.server.origin_policy import OriginPolicy, accepts
from trunkline.transports.http.server.request import HttpRequest, MemoryBudget, RequestHeaders
from trunkline.transports.http.server.sessions.endpoint import SessionEndpoint
from trunkline.transports.http.server.sessions.registry import SessionRegistry
from trunkline.transports.http.server.sessions.session import SessionAcceptor
from trunkline.transports.http.server.sessions.worker import SessionWorker
from trunkline.transports.http.server.single_request import SingleRequestTransport

if TYPE_CHECKING:
    from trunkline.transports.http.server.rate_limits import RequestLimiter

__all__ = ["ASGIApp", "Authenticator", "Endpoint", "EndpointOptions"]

log = logging.getLogger("trunkline.http")

#: An ASGI application.
ASGIApp = Callable[[Any, Any, Any], Awaitable[None]]


class Authenticator(Protocol):
    """Decides who may call, and builds the challenge for a request that may not.

    It may also serve documents besides the endpoint: the metadata from which a client learns where to get a token, or
    the pages of an authorization server.
    """

    @property
    def header(self) -> bytes:
        """The header it reads, in lower case; a request that repeats it is rejected."""

    async def authenticate(self, headers: Mapping[str, str], *, method: str, url: str) -> Principal | AccessDenied:
        """Return the sender of a request with these headers (names in lower case) to a URL.

        Raises:
            StoreUnavailable: it cannot be decided now; nothing else is raised.
        """

    def challenge(self, denied: AccessDenied, *, origin: str, root: str) -> str:
        """Return the ``WWW-Authenticate`` header of a denial, for an endpoint at this origin and root path."""

    def fields(self, denied: AccessDenied) -> Sequence[tuple[bytes, bytes]]:
        """Return further headers of a denial."""

    def route(self, path: str) -> ASGIApp | None:
        """Return the application that serves a path besides the endpoint, if there is one."""


_HANDSHAKE = frozenset(name.encode() for name in HANDSHAKE_NAMES)
_STATELESS = frozenset(name.encode() for name in STATELESS_NAMES)
# If one of these is repeated, a proxy in front may have checked another value than this endpoint does.
_SINGLE = frozenset(
    {b"host", b"origin", b"content-type", b"content-length", b"authorization", b"dpop", b"last-event-id", b"accept"}
)
# How many accepted combinations of Host, Origin and local address are remembered.
_REMEMBERED = 256
_WELL_KNOWN = "/.well-known/"
_BOTH = frozenset({b"application/json, text/event-stream", b"text/event-stream, application/json"})


class EndpointOptions(Struct, frozen=True, kw_only=True):
    """The options of an endpoint; ``Server.asgi`` and ``Server.run`` build them from their own."""

    path: str = "/mcp"
    #: Serve the two paths of the oldest HTTP transport as well.
    sse: bool = True
    sse_path: str | None = None
    message_path: str | None = None
    #: Keep sessions for handshake clients; otherwise each of their requests is served on its own.
    sessions: bool = True
    #: Never stream: the response is one JSON body, and no other message reaches the client.
    json_only: bool = False
    #: The delay after which a client that lost a stream is asked to reconnect.
    retry_ms: int = 1000


class Endpoint:
    """An ASGI application that delivers the messages of HTTP requests to an acceptor."""

    def __init__(
        self,
        acceptor: SessionAcceptor,
        options: EndpointOptions,
        *,
        origin_policy: OriginPolicy,
        limits: Limits,
        worker: SessionWorker,
        authenticator: Authenticator | None = None,
        limiter: RequestLimiter | None = None,
    ) -> None:
        """Serve an acceptor at a path; nothing runs before the first request.

        The sessions are those of ``worker``; ``limiter`` counts the requests of each caller.
        """
        self._acceptor = acceptor
        self._options = options
        self._origin_policy = origin_policy
        self._limits = limits
        self._authenticator = authenticator
        self._limiter = limiter
        #: What the requests in progress hold.
        self.memory: MemoryBudget = MemoryBudget(limits)
        self._single = _SINGLE if authenticator is None else _SINGLE | {authenticator.header}
        self.path: str = options.path.rstrip("/")
        #: Combinations of Host, Origin and local address that the origin policy has accepted.
        self._accepted_heads: set[tuple[bytes | None, bytes | None, str | None]] = set()
        self._paths = frozenset({self.path, f"{self.path}/"})
        self.worker: SessionWorker = worker
        self._session_endpoint = SessionEndpoint(
            acceptor, worker, limits=limits, retry_ms=options.retry_ms, challenge=self._scope_challenge
        )
        self.sessions: SessionRegistry = self._session_endpoint.sessions
        self.open_responses: OpenResponses = self._session_endpoint.open_responses
        self.draining: bool = False
        self._methods: Mapping[str, Callable[[HttpRequest], Awaitable[None]]] = {
            "POST": self._post,
            "GET": self._get,
            "DELETE": self._delete,
        }
        self._legacy_sse = None
        if options.sse:
            from trunkline.transports.http.server.legacy_sse import LegacySseEndpoint

            self._legacy_sse = LegacySseEndpoint(
                self,
                options,
                acceptor=acceptor,
                limits=limits,
                forward=self._session_endpoint.forward_legacy,
                new_name=self._session_endpoint.new_legacy_name,
            )
            self._session_endpoint.deliver_legacy = self._legacy_sse.deliver

    # --- ASGI --------------------------------------------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request, or handle the lifespan protocol."""
        if scope["type"] != "http":
            await self._non_http(scope, receive, send)
            return
        request = HttpRequest(scope, receive, send, self._limits, self.memory)
        try:
            if self._check_head(request) and scope["method"] != "OPTIONS":
                # A preflight is answered with headers of its own.
                cors = self._origin_policy.cors_headers(request.headers[b"origin"])
                if cors:
                    request.add_response_headers(cors)
            path: str = scope["path"]
            if root := scope.get("root_path"):
                path = _relative_path(root, path)
            if path in self._paths:
                handler = self._methods.get(scope["method"])
                if self._authenticator is not None and handler is not None:
                    request.principal = await self._authenticate(self._authenticator, request)
                if self._limiter is not None and handler is not None:
                    await self._limiter.admit(request)
                await (self.answer_options(request) if handler is None else handler(request))
            elif self._legacy_sse is not None and self._legacy_sse.serves(path):
                if self._authenticator is not None and scope["method"] != "OPTIONS":
                    request.principal = await self._authenticate(self._authenticator, request)
                if self._limiter is not None:
                    await self._limiter.admit(request)
                await self._legacy_sse.respond(path, request)
            elif self._authenticator is not None and (app := self._authenticator.route(path)) is not None:
                if scope["method"] == "OPTIONS":
                    await self.answer_options(request)
                else:
                    await app(scope, receive, request.send)
            else:
                raise HTTPException(404, f"Nothing is at {path[:80]!r}; the endpoint is {self.path or '/'}")
        except HTTPException as error:
            await request.answer(error.status, [JSON, *error.headers], error.body)
        except StoreUnavailable:
            refusal = unavailable()
            await request.answer(refusal.status, [JSON, *refusal.headers], refusal.body)
        finally:
            if request.held is not None:
                request.held.release()

    async def well_known(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the well-known documents of an endpoint that is mounted below the root of its origin.

        This is an ASGI application of its own, to be mounted at ``/.well-known``.
        """
        path: str = scope["path"]
        whole = path if path.startswith(_WELL_KNOWN) else f"{scope.get('root_path', '')}{path}"
        await self({**scope, "path": whole, "root_path": ""}, receive, send)

    async def _non_http(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            # There is no such transport; the handshake is rejected.
            await receive()
            await send({"type": "websocket.close", "code": 1003})
            return
        if scope["type"] != "lifespan":
            raise ConfigError(f"an MCP endpoint serves HTTP, not {scope['type']}")
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self.draining = False
                self.start()
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.aclose()
                await send({"type": "lifespan.shutdown.complete"})
                return

    def start(self) -> None:
        """Join the other workers; called at the start or with the first request."""
        self._session_endpoint.start()

    @asynccontextmanager
    async def lifespan(self, app: object = None) -> AsyncIterator[None]:
        """Return the lifespan for an application that mounts this one: at its end sessions and streams end cleanly."""
        # An application may be started again after its end; tests do so often.
        self.draining = False
        self.start()
        try:
            yield
        finally:
            await self.aclose()

    # --- headers and authentication ----------------------------------------------------------------------------------

    def _check_head(self, request: HttpRequest) -> bool:
        """Check the headers of a request; return whether a web page sends it.

        Raises:
            HTTPException: a header is repeated, or the origin policy denies the request.
        """
        scope, headers = request.scope, request.headers
        given = scope["headers"]
        if len(headers) != len(given):
            names = [name for name, _ in given if name in self._single or name.startswith(b"mcp-")]
            repeated = {name.decode("latin-1") for name in names if names.count(name) > 1}
            if repeated:
                raise HTTPException(400, f"Header given more than once: {', '.join(sorted(repeated))}")
        host, origin = headers.get(b"host"), headers.get(b"origin")
        server = scope.get("server")
        head = (host, origin, server and server[0])
        if head in self._accepted_heads:
            return origin is not None
        denied = self._origin_policy.check(
            () if host is None else (host,), () if origin is None else (origin,), server=server
        )
        if denied is not None:
            raise HTTPException(denied.status, denied.message)
        if len(self._accepted_heads) >= _REMEMBERED:
            self._accepted_heads.clear()
        self._accepted_heads.add(head)
        return origin is not None

    async def answer_options(self, request: HttpRequest) -> None:
        """Answer the CORS preflight of a browser.

        Raises:
            HTTPException: the page may not call, or the HTTP method is another one that is not used.
        """
        method, headers = request.scope["method"], request.headers
        if method == "OPTIONS" and b"access-control-request-method" in headers:
            allowed = self._origin_policy.preflight(
                headers.get(b"origin"),
                headers[b"access-control-request-method"],
                requested_headers=headers.get(b"access-control-request-headers"),
            )
            if allowed is not None:
                await request.answer(204, allowed)
                return
        raise HTTPException(405, f"{method[:20]} is not used here", headers=((b"allow", b"POST, GET, DELETE"),))

    async def _authenticate(self, authenticator: Authenticator, request: HttpRequest) -> Principal:
        """Return the sender of a request; one that cannot be authenticated is rejected, never treated as anonymous."""
        found = await authenticator.authenticate(
            RequestHeaders(request.headers), method=request.scope["method"], url=_url(request)
        )
        if not isinstance(found, Principal):
            head = (_challenge(authenticator, found, request), *authenticator.fields(found))
            raise HTTPException(found.status, found.message, headers=head)
        return found

    def _scope_challenge(self, needed: InsufficientScope, request: HttpRequest) -> Headers:
        """Return the challenge for a valid token without the needed scopes."""
        if self._authenticator is None:
            return []
        denied = AccessDenied(status=403, message=needed.message, error="insufficient_scope", scopes=needed.scopes)
        return [_challenge(self._authenticator, denied, request)]

    # --- POST --------------------------------------------------------------------------------------------------------

    async def _post(self, request: HttpRequest) -> None:
        request.json_only = self._options.json_only
        accept = request.headers.get(b"accept")
        if accept not in _BOTH and accept is not None:
            json, stream = accepts(accept)
            if not json and not stream:
                raise HTTPException(406, "Accept must name application/json and text/event-stream")
            request.json_only = request.json_only or not stream
        body = request.take_body()
        incoming = decode(await request.body() if body is None else body, self._limits)
        # A large body is freed while the request is served.
        del body
        if self._limiter is not None and (more := len(requests_of(incoming)) - 1) > 0:
            await self._limiter.admit(request, more)
        if self.draining and requests_of(incoming):
            # A request in flight may still wait for an answer that its client posts.
            raise stopping()
        version, id = request.field(b"mcp-protocol-version"), request.field(b"mcp-session-id")
        alone = version is not None and version not in _HANDSHAKE
        if not alone and not self._options.sessions:
            await self._session_endpoint.serve_alone(request, incoming, version=version)
        elif not alone and id is not None:
            await self._session_endpoint.use(request, incoming, id=id, version=version)
        elif not alone and type(incoming) is Request and incoming.method == "initialize":
            await self._session_endpoint.open(request, incoming)
        elif type(incoming) is Request:
            # It is served on its own, in this very task: a disconnect of its client ends both.
            transport = SingleRequestTransport(request, self.open_responses)
            receiver = self._acceptor.accept_one(transport, None, "", transport.run_inline)
            receiver.message_received(incoming, request.origin)
            # The decoded message is freed while it is being answered.
            del incoming, receiver
            await transport.respond()
        elif not alone:
            raise invalid_body(incoming, "Mcp-Session-Id header is missing: send initialize first")
        elif type(incoming) is not Notification:
            raise invalid_body(incoming, "Invalid request: a body holds one request or one notification")
        elif version not in _STATELESS:
            raise _unsupported(version or b"")
        else:
            # 2026-07-28 has no notifications over HTTP; one that is sent nevertheless is accepted and ignored.
            await request.answer(202)

    # --- GET and DELETE ----------------------------------------------------------------------------------------------

    async def _get(self, request: HttpRequest) -> None:
        version, id = request.field(b"mcp-protocol-version"), request.field(b"mcp-session-id")
        if self.draining:
            raise stopping()
        if version is not None and version not in _HANDSHAKE:
            raise _without_sessions("GET", version)
        if not accepts(request.headers.get(b"accept"))[1]:
            raise HTTPException(406, "This is an MCP endpoint: a GET must accept text/event-stream")
        if id is not None and self._options.sessions:
            await self._session_endpoint.listen(request, id=id, version=version)
        elif version is None and id is None and self._legacy_sse is not None:
            if b"text/event-stream" not in request.headers.get(b"accept", b"").lower():
                # A browser or curl accepts anything; an open stream without events would only confuse its user.
                raise HTTPException(406, "This is an MCP endpoint: POST to it, or GET with Accept: text/event-stream")
            await self._legacy_sse.open(request)
        elif (version is None and id is None) or not self._options.sessions:
            raise method_not_allowed("GET")
        else:
            raise HTTPException(400, "Mcp-Session-Id header is missing")

    async def _delete(self, request: HttpRequest) -> None:
        version, id = request.field(b"mcp-protocol-version"), request.field(b"mcp-session-id")
        if version is not None and version not in _HANDSHAKE:
            raise _without_sessions("DELETE", version)
        if not self._options.sessions:
            raise method_not_allowed("DELETE")
        if id is None:
            raise HTTPException(400, "Mcp-Session-Id header is missing")
        await self._session_endpoint.end(request, id=id, version=version)

    # --- the end -----------------------------------------------------------------------------------------------------

    def end_streams(self) -> None:
        """End the streams that would not end by themselves; their clients open them again, at another worker."""
        self._acceptor.end_subscriptions()
        for session in self.sessions.by_id.values():
            session.end_streams_without_end()
        if self._legacy_sse is not None:
            self._legacy_sse.end_idle()

    async def drain(self, seconds: float) -> None:
        """Reject new requests, let those in flight finish, and end streams; cancel the rest after so many seconds."""
        self.draining = True
        begun = time.monotonic()
        self.end_streams()
        if not await self.open_responses.wait_idle(seconds, self._busy):
            left = list(self.open_responses.in_flight)
            log.warning("%d requests did not finish in %g s and are cancelled", len(left), seconds)
            for response in left:
                response.abort(stopping())
        await self._acceptor.drain(max(0.0, seconds - (time.monotonic() - begun)))
        for session in list(self.sessions.by_id.values()):
            await self.sessions.remove(session, stopping())
        if self._legacy_sse is not None:
            await self._legacy_sse.aclose()

    def _busy(self) -> bool:
        """Return whether requests are being served that no response waits for."""
        served = any(session.in_flight for session in self.sessions.by_id.values())
        return served or (self._legacy_sse is not None and self._legacy_sse.busy)

    async def aclose(self) -> None:
        """End all sessions and streams now."""
        if not self.draining:
            await self.drain(0)
        self.open_responses.stop()
        await self._session_endpoint.aclose()
        await self._acceptor.release()


def _challenge(authenticator: Authenticator, denied: AccessDenied, request: HttpRequest) -> tuple[bytes, bytes]:
    challenge = authenticator.challenge(denied, origin=request.address, root=request.scope.get("root_path", ""))
    return b"www-authenticate", challenge.encode("latin-1", "replace")


def _url(request: HttpRequest) -> str:
    """Return the URL that was called, without the query, as the client wrote it."""
    root, path = request.scope.get("root_path", ""), request.scope["path"]
    return f"{request.address}{path if path.startswith(root) else root + path}"


def _relative_path(root: str, path: str) -> str:
    """Return the path below the one that the application is mounted at."""
    return path[len(root) :] if path.startswith(root) else path


def _without_sessions(method: str, version: bytes) -> HTTPException:
    """Return the error for an HTTP method of sessions in a revision that has none, or in an unknown one."""
    return method_not_allowed(method) if version in _STATELESS else _unsupported(version)


def _unsupported(version: bytes) -> HTTPException:
    return HTTPException(400, f"Unsupported MCP-Protocol-Version {version[:40].decode('latin-1')!r}")

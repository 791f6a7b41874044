"""HTTP of foreign servers: Starlette applications with routes of their own around our endpoint, and running them."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import msgspec
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount

from trunkline_compat.auth import own_auth
from trunkline_compat.context import CURRENT_REQUEST
from trunkline_compat.streams import SessionMessage, to_message
from trunkline_compat.types import to_plain

__all__ = [
    "SessionManager",
    "SseServerTransport",
    "StarletteWithLifespan",
    "TransportSecuritySettings",
    "create_sse_app",
    "create_streamable_http_app",
    "make_app",
    "run_http",
]

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
#: Options of ours with the same name there.
_SHARED = ("json_response", "stateless_http", "sse_path", "message_path", "allowed_hosts", "allowed_origins")
_IGNORED = ("event_store", "retry_interval")
#: The most bytes of a message that a transport joined by hand receives.
_BODY_BYTES = 4 * 1024 * 1024


class StarletteWithLifespan(Starlette):
    """An application that shows its lifespan, for the application that it is mounted in."""

    @property
    def lifespan(self) -> Any:
        """The lifespan of the endpoint."""
        return self.router.lifespan_context


@dataclass
class TransportSecuritySettings:
    """Which ``Host`` and ``Origin`` headers are accepted; a name with ``:*`` means any port."""

    enable_dns_rebinding_protection: bool = True
    allowed_hosts: list[str] = field(default_factory=list)
    allowed_origins: list[str] = field(default_factory=list)

    def refusal(self, request: Request) -> int | None:
        """Return the status of a request whose headers are not accepted; None if they are."""
        host, origin = request.headers.get("host", ""), request.headers.get("origin")
        if not self.enable_dns_rebinding_protection:
            return None
        if host not in self.allowed_hosts and f"{host.rpartition(':')[0]}:*" not in self.allowed_hosts:
            return 421
        accepted = (None, *self.allowed_origins)
        return None if origin in accepted or f"{(origin or '').rpartition(':')[0]}:*" in accepted else 403

    def options(self) -> dict[str, Any]:
        """Return the same as options of ours."""
        if not self.enable_dns_rebinding_protection:
            return {"allowed_hosts": ["*"]}
        return {
            "allowed_hosts": [name.removesuffix(":*") for name in self.allowed_hosts],
            "allowed_origins": [name.removesuffix(":*") for name in self.allowed_origins],
        }


class _WithRequest:
    """Sets the HTTP request while it is served, for functions that look its headers up."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        token = CURRENT_REQUEST.set(Request(scope) if scope["type"] == "http" else None)
        try:
            await self._app(scope, receive, send)
        finally:
            CURRENT_REQUEST.reset(token)


def make_app(server: Any, transport: str, path: str | None, options: Mapping[str, Any]) -> Any:
    """Return a Starlette application: our endpoint, the server's own routes and the given middleware."""
    own_options = _endpoint_options(server, options)
    settings = getattr(server, "settings", None)
    endpoint_path = path or getattr(settings, "streamable_http_path", None) or "/mcp"
    if transport == "sse":
        own_options["sse_path"] = path or own_options.get("sse_path") or getattr(settings, "sse_path", "/sse")
        message_path = str(own_options.get("message_path") or getattr(settings, "message_path", "/messages/"))
        own_options["message_path"] = message_path.rstrip("/") or "/messages"
        endpoint_path = "/mcp"
    auth = own_auth(server, options, endpoint_path)
    if auth is not None:
        own_options["auth"] = auth
    endpoint = server.server.asgi(endpoint_path.rstrip("/") or "/", **own_options)
    routes = [*(options.get("routes") or ()), *getattr(server, "custom_routes", ())]
    app = StarletteWithLifespan(
        routes=[*routes, Mount("/", app=_WithRequest(endpoint))],
        middleware=list(options.get("middleware") or ()),
        lifespan=endpoint.lifespan,
    )
    app.state.fastmcp_server = server
    app.state.path = endpoint_path
    return app


def _endpoint_options(server: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    settings = getattr(server, "settings", None)
    chosen: dict[str, Any] = {}
    for name in ("json_response", "stateless_http"):
        chosen[name] = getattr(settings, name, False)
    security = options.get("transport_security") or getattr(settings, "transport_security", None)
    if security is not None:
        chosen |= security.options()
    chosen |= {name: options[name] for name in _SHARED if options.get(name) is not None}
    for name in _IGNORED:
        if options.get(name) is not None:
            warnings.warn(f"{name}= has no effect under trunkline-compat: Limits of Trunkline apply", stacklevel=4)
    return chosen


def create_streamable_http_app(server: Any, streamable_http_path: str, **options: Any) -> Any:
    """Return the application of the newer HTTP transports."""
    return make_app(server, "http", streamable_http_path, options)


def create_sse_app(server: Any, message_path: str, sse_path: str, **options: Any) -> Any:
    """Return the application of the oldest HTTP transport."""
    return make_app(server, "sse", sse_path, {**options, "message_path": message_path})


async def run_http(server: Any, transport: str, options: dict[str, Any]) -> None:
    """Serve the application of a server with uvicorn until the process is told to stop."""
    import uvicorn

    settings = server.settings
    host = options.pop("host", None) or settings.host
    port = options.pop("port", settings.port)
    path = options.pop("path", None) or options.pop("streamable_http_path", None)
    if host not in _LOOPBACK and not options.get("transport_security"):
        # Both frameworks accept any Host header unless they serve the local machine only.
        options["transport_security"] = settings.transport_security or TransportSecuritySettings(False)
    config: dict[str, Any] = {"timeout_graceful_shutdown": 2, "lifespan": "on", "log_level": "info"}
    config |= dict(options.pop("uvicorn_config", None) or {})
    app = make_app(server, transport, path, options)
    await uvicorn.Server(uvicorn.Config(app, host=host, port=port, **config)).serve()


# --- by hand ---------------------------------------------------------------------------------------------------------


class SessionManager:
    """The official SDK's session manager: an application enters ``run`` and passes requests to ``handle_request``."""

    def __init__(
        self,
        app: Any,
        event_store: Any = None,
        json_response: bool = False,
        stateless: bool = False,
        security_settings: Any = None,
        **_: Any,
    ) -> None:
        """Initialize with the server, and the options of its endpoint."""
        options = {"json_response": json_response, "stateless_http": stateless}
        options |= (
            TransportSecuritySettings(False).options() if security_settings is None else security_settings.options()
        )
        self._endpoint = _WithRequest(app.server.asgi("/", **options))

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Enter the server's lifespan."""
        async with self._endpoint._app.lifespan(None):
            yield

    async def handle_request(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one HTTP request, whatever its path."""
        await self._endpoint({**scope, "path": "/", "raw_path": b"/", "root_path": ""}, receive, send)


class SseServerTransport:
    """The oldest HTTP transport, joined to an application by hand: a stream of events, and a path for messages."""

    def __init__(self, endpoint: str, security_settings: TransportSecuritySettings | None = None) -> None:
        """Initialize with the path that messages are posted to, and which headers are accepted."""
        self._endpoint = endpoint
        self._security = security_settings or TransportSecuritySettings(False)
        self._sessions: dict[str, Any] = {}

    @asynccontextmanager
    async def connect_sse(self, scope: Any, receive: Any, send: Any) -> AsyncIterator[tuple[Any, Any]]:
        """Serve a stream of events, and return the streams to run a server on.

        Raises:
            ValueError: the request has a ``Host`` or ``Origin`` that is not accepted; it is answered.
        """
        import secrets

        if (status := self._security.refusal(Request(scope))) is not None:
            await Response("this host or origin is not accepted", status_code=status)(scope, receive, send)
            raise ValueError("the request has a Host or Origin that is not accepted")
        session = secrets.token_hex(16)
        to_server, from_client = anyio.create_memory_object_stream[Any](100)
        to_client, from_server = anyio.create_memory_object_stream[Any](100)
        self._sessions[session] = to_server
        root = scope.get("root_path", "").rstrip("/")

        async def events() -> None:
            headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            first = f"event: endpoint\ndata: {root}{self._endpoint}?session_id={session}\n\n"
            await send({"type": "http.response.body", "body": first.encode(), "more_body": True})
            async for item in from_server:
                data = msgspec.json.encode(to_plain(getattr(item.message, "root", item.message)))
                body = b"event: message\ndata: " + data + b"\n\n"
                await send({"type": "http.response.body", "body": body, "more_body": True})

        async def disconnect() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            await to_server.aclose()
            group.cancel_scope.cancel()

        try:
            async with anyio.create_task_group() as group:
                group.start_soon(events)
                group.start_soon(disconnect)
                yield from_client, to_client
                group.cancel_scope.cancel()
        finally:
            self._sessions.pop(session, None)

    async def handle_post_message(self, scope: Any, receive: Any, send: Any) -> None:
        """Receive a message of a client."""
        request = Request(scope, receive)
        if (status := self._security.refusal(request)) is not None:
            await Response("this host or origin is not accepted", status_code=status)(scope, receive, send)
            return
        stream = self._sessions.get(request.query_params.get("session_id", ""))
        if stream is None:
            await Response("there is no such session", status_code=404)(scope, receive, send)
            return
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > _BODY_BYTES:
                await Response("the message is too large", status_code=413)(scope, receive, send)
                return
        try:
            message = SessionMessage(to_message(msgspec.json.decode(body)))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValidationError):
            await Response("this is not a message", status_code=400)(scope, receive, send)
            return
        try:
            stream.send_nowait(message)
            status = 202
        except anyio.WouldBlock:
            status = 503
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            status = 404
        await Response("Accepted" if status == 202 else "not accepted", status_code=status)(scope, receive, send)

"""HTTP of foreign servers: Starlette applications with routes of one's own, and running them.

The endpoint is ours; Starlette, which both frameworks bring along, holds it together with the routes that a server
adds. The request that brought a call is kept in a context variable, for functions that look its headers up.
"""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from msgspec.structs import replace

from trunkline.compat.context import CURRENT_REQUEST
from trunkline.compat.keywords import CompatibilityWarning
from trunkline.compat.utilities import settings as process_settings
from trunkline.server.server import Server

__all__ = [
    "HttpMethods",
    "SessionManager",
    "TransportSecuritySettings",
    "create_sse_app",
    "create_streamable_http_app",
    "make_app",
]

#: Options of the two frameworks that are settled otherwise here.
_WITHOUT_EFFECT = ("event_store", "retry_interval")
#: Their limits, and ours.
_LIMITS = (
    ("max_request_body_size", "body_bytes"),
    ("session_idle_timeout", "session_seconds"),
    ("max_sessions", "sessions"),
)
_APP_OPTIONS = frozenset(
    {"json_response", "stateless_http", "sse_path", "message_path", "allowed_hosts", "allowed_origins", "resource"}
)
_TLS = ("ssl_certfile", "ssl_keyfile", "ssl_keyfile_password")


class TransportSecuritySettings:
    """Which ``Host`` and ``Origin`` headers are accepted."""

    def __init__(
        self,
        enable_dns_rebinding_protection: bool = True,
        allowed_hosts: list[str] | None = None,
        allowed_origins: list[str] | None = None,
    ) -> None:
        """Keep the lists; a name with ``:*`` means any port."""
        self.enable_dns_rebinding_protection = enable_dns_rebinding_protection
        self.allowed_hosts = list(allowed_hosts or ())
        self.allowed_origins = list(allowed_origins or ())
        self.automatic = False

    @classmethod
    def for_host(cls, host: str) -> TransportSecuritySettings | None:
        """Return the settings that version 1 of the official SDK makes by itself for an address of this machine."""
        if host not in ("127.0.0.1", "localhost", "::1"):
            return None
        names = ("127.0.0.1", "localhost", "[::1]")
        made = cls(True, [f"{name}:*" for name in names], [f"http://{name}:*" for name in names])
        made.automatic = True
        return made

    def options(self) -> dict[str, Any]:
        """Return the same as options of ours."""
        if self.automatic:
            # Ours are as strict on an address of this machine, and know every port.
            return {}
        if not self.enable_dns_rebinding_protection:
            return {"allowed_hosts": ["*"]}
        hosts = [name.removesuffix(":*") for name in self.allowed_hosts]
        origins = [name.removesuffix(":*") for name in self.allowed_origins]
        return {"allowed_hosts": hosts, "allowed_origins": origins}


class _WithRequest:
    """Keeps the HTTP request in a context variable while it is served."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        from starlette.requests import Request

        token = CURRENT_REQUEST.set(Request(scope))
        try:
            await self._app(scope, receive, send)
        finally:
            CURRENT_REQUEST.reset(token)


class _WithoutOrigin:
    """Hides the page that a request came from: another check has seen it."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = [(name, value) for name, value in scope.get("headers", ()) if name.lower() != b"origin"]
        await self._app({**scope, "headers": headers}, receive, send)


class _FromRoot:
    """Serves the whole path of a mounted application."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        root = scope.get("app_root_path", "")
        # Clients are told the path without a slash at its end.
        path = scope["path"].rstrip("/") or "/"
        await self._app({**scope, "root_path": root, "path": path}, receive, send)


def make_app(server: Any, transport: str, path: str | None, options: Mapping[str, Any]) -> Any:
    """Make a Starlette application of a server: its endpoint, its own routes and the given middleware."""
    from starlette.routing import Mount, Route

    from trunkline.compat.applications import StarletteWithLifespan, WholeMount

    given = _own_options(server, options)
    middleware = list(options.get("middleware") or ())
    endpoint_path = path or server.settings.streamable_http_path
    if transport == "sse":
        given["sse_path"] = path or given.get("sse_path") or server.settings.sse_path
        given.setdefault("message_path", server.settings.message_path.rstrip("/") or "/messages")
        endpoint_path = "/mcp"
    protection = options.get("host_origin_protection")
    if protection is None:
        protection = process_settings.http_host_origin_protection
    if protection is not None:
        from trunkline.compat.features.host_guard import HostOriginGuardMiddleware, guard_options

        checks = guard_options(protection, options)
        # The check that was asked for stands in the place of ours.
        given = {**given, "allowed_hosts": ["*"], "allowed_origins": []}
        if checks is not None:
            from starlette.middleware import Middleware

            middleware.insert(0, Middleware(HostOriginGuardMiddleware, **checks))
    guard = server.protection(options.get("auth"), given["sse_path"] if transport == "sse" else endpoint_path)
    if guard is not None:
        from trunkline.compat.auth.current import current_principal

        given["auth"] = current_principal
        # A page that had a name rebound to this host has no token, so both frameworks accept any Host here.
        given.setdefault("allowed_hosts", ["*"])
    endpoint = Server.asgi(server, endpoint_path, **given)
    serving: Any = _WithRequest(endpoint if protection is None else _WithoutOrigin(endpoint))

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[Any]:
        async with endpoint.lifespan(app) as state:
            yield state

    served = serving if guard is None else guard.around(serving)
    if transport == "sse":
        messages = WholeMount(given["message_path"], app=_FromRoot(served))
        routes: list[Any] = [Route(given["sse_path"], endpoint=served, methods=None), messages]
    else:
        routes = [Route(endpoint_path, endpoint=served, methods=None, name=endpoint_path)]
        # What protects a server has routes of its own, and our endpoint none besides.
        routes += [Mount("/", app=serving)] if guard is None else []
    if guard is not None:
        routes = [*guard.routes, *routes]
        middleware = [*guard.middleware, *middleware]
    routes = [*server._get_additional_http_routes(), *routes]
    routes = [*(options.get("routes") or ()), *routes]
    app = StarletteWithLifespan(routes=routes, middleware=middleware, lifespan=lifespan)
    app.state.fastmcp_server = server
    app.state.path = endpoint_path
    app.state.transport_type = transport
    return app


def create_streamable_http_app(server: Any, streamable_http_path: str, **options: Any) -> Any:
    """Make the application of the newer HTTP transports."""
    return make_app(server, "streamable-http", streamable_http_path, options)


def create_sse_app(server: Any, message_path: str, sse_path: str, **options: Any) -> Any:
    """Make the application of the oldest HTTP transport."""
    return make_app(server, "sse", sse_path, {**options, "message_path": message_path.rstrip("/") or "/messages"})


def _own_options(server: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    settings = server.settings
    given: dict[str, Any] = {
        "json_response": settings.json_response,
        "stateless_http": settings.stateless_http,
        **{name: value for name, value in options.items() if name in _APP_OPTIONS and value is not None},
    }
    security = options.get("transport_security") or settings.transport_security
    if isinstance(security, TransportSecuritySettings):
        given |= security.options()
    for name in _WITHOUT_EFFECT:
        if options.get(name) is not None:
            warnings.warn(
                f"{name}= has no effect: set it with Server(limits=Limits(...))", CompatibilityWarning, stacklevel=4
            )
    limits = {ours: options[theirs] for theirs, ours in _LIMITS if options.get(theirs) is not None}
    if limits:
        server.limits = replace(server.limits, **limits)
    return {name: value for name, value in given.items() if value is not None}


class SessionManager:
    """What a host application enters while it serves."""

    def __init__(self, server: Any = None, **options: Any) -> None:
        """Look at a server."""
        self._server = options.get("app", server)

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Hold the server's lifespan."""
        self._server.acquire_lifespans(self)
        try:
            yield
        finally:
            await self._server.release(self)

    async def handle_request(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one HTTP request."""
        app = self.__dict__.setdefault("_app", None) or self._server.asgi("/")
        self._app = app
        await app({**scope, "path": "/", "raw_path": b"/"}, receive, send)


class HttpMethods:
    """The methods of a server that have to do with HTTP."""

    settings: Any
    custom_routes: list[Any]
    foreign_auth: Any

    def custom_route(
        self, path: str, methods: list[str], name: str | None = None, include_in_schema: bool = True
    ) -> Callable[[Any], Any]:
        """Serve a route of one's own beside the endpoint."""

        def register(function: Any) -> Any:
            from starlette.routing import Route

            self.custom_routes.append(
                Route(path, endpoint=function, methods=methods, name=name, include_in_schema=include_in_schema)
            )
            return function

        return register

    def _get_additional_http_routes(self) -> list[Any]:
        """Return the routes of this server and of those mounted in it."""
        server: Any = self
        return [route for each in server._all() for route in getattr(each, "custom_routes", ())]

    def protection(self, auth: Any, path: str) -> Any:
        """Return what protects the application at a path, or None."""
        auth = auth if auth is not None else self.foreign_auth
        if auth is None:
            return None
        from trunkline.compat.auth.app import protection_of

        return protection_of(self, auth, path)

    # --- applications ------------------------------------------------------------------------------------------------

    def streamable_http_app(self, **options: Any) -> Any:
        """Return the application of the newer HTTP transports."""
        return make_app(self, "http", options.pop("streamable_http_path", None), options)

    def sse_app(self, mount_path: str | None = None, **options: Any) -> Any:
        """Return the application of the oldest HTTP transport; it serves the newer ones too."""
        return make_app(self, "sse", options.pop("sse_path", None), options)

    def http_app(self, path: str | None = None, middleware: Any = None, transport: str = "http", **options: Any) -> Any:
        """Return the application of a transport."""
        kind = "sse" if transport == "sse" else "streamable-http"
        return make_app(self, kind, path, {**options, "middleware": middleware})

    # --- running -----------------------------------------------------------------------------------------------------

    def run(self, transport: str | None = None, mount_path: str | None = None, **options: Any) -> None:
        """Serve until the other side goes away, or over HTTP until told to stop."""
        from trunkline.compat.running import run

        run(self, transport or self._default_transport(), options)

    def _default_transport(self) -> str:
        return "stdio"

    async def run_async(self, transport: str | None = None, show_banner: bool | None = None, **options: Any) -> None:
        """Serve inside a running event loop.

        Raises:
            ValueError: there is no such transport.
        """
        kind = transport or self._default_transport()
        if show_banner is None:
            from trunkline.compat.utilities import settings

            show_banner = settings.show_server_banner is not False
        if kind == "stdio":
            await self.run_stdio_async(show_banner=show_banner, **options)
        elif kind in ("http", "streamable-http", "sse"):
            await self.run_http_async(transport=kind, show_banner=show_banner, **options)
        else:
            raise ValueError(f"Unknown transport: {kind}")

    async def run_stdio_async(self, **options: Any) -> None:
        """Serve over stdio inside a running event loop."""
        from trunkline.compat.running import run_async

        await run_async(self, "stdio", options)

    async def run_http_async(self, transport: str = "http", **options: Any) -> None:
        """Serve over HTTP inside a running event loop."""
        from trunkline.compat.running import run_async

        await run_async(self, transport, options)

    async def run_streamable_http_async(self, **options: Any) -> None:
        """Serve over HTTP inside a running event loop."""
        await self.run_async("streamable-http", **options)

    async def run_sse_async(self, mount_path: str | None = None, **options: Any) -> None:
        """Serve the oldest HTTP transport inside a running event loop."""
        await self.run_async("sse", **options)

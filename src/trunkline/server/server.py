"""The server: the definition of what is offered, and the interface that its author works with.

A server is a definition, not a connection: it serves any number of connections at once, over any transport and in any
revision.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack, get_args
from weakref import WeakSet

import msgspec
from msgspec import Raw, Struct

import trunkline.types as t
from trunkline.connection import Connection, Exchange
from trunkline.errors import ConfigError
from trunkline.protocol.caller import Caller, Origin, ScopeHierarchy, Session, supports
from trunkline.protocol.limits import Limits
from trunkline.protocol.methods import METHODS, notifications_to_client
from trunkline.protocol.peer import NotificationReceived
from trunkline.protocol.request_validation import ServerProfile, make_server_profile
from trunkline.protocol.revisions import NEWEST, REVISION_NAMES, REVISIONS, Feature, Revision
from trunkline.server import handlers
from trunkline.server.components import ComponentRegistry, OnDuplicate
from trunkline.server.dispatch import ServerConnection, root_server
from trunkline.server.handlers import MethodHandler, make_handlers, read_resource
from trunkline.server.listing import Listing, VisibilityFilter
from trunkline.server.options import own_options
from trunkline.server.subscriptions import Subscriber, SubscriptionStream
from trunkline.server.validation_errors import did_you_mean
from trunkline.service import TaskFactory
from trunkline.timers import Clock, TimerHandle, Timers
from trunkline.transports.link import Link

if TYPE_CHECKING:
    from trunkline.auth.verifiers import ServerAuth
    from trunkline.server.dispatch import Middleware
    from trunkline.server.elicitors import Elicitor
    from trunkline.server.http import AsgiOptions, HttpOptions, ServerAcceptor
    from trunkline.server.registry import Definition
    from trunkline.server.request_state import StateSeal
    from trunkline.server.run import Lifespan
    from trunkline.server.worker_pool import WorkerPool
    from trunkline.transports.http.server.endpoint import Endpoint

__all__ = ["Server", "ServerOptions"]

log = logging.getLogger("trunkline")

T = TypeVar("T")
P = TypeVar("P", bound=t.RequestParams)

_HTTP_OPTIONS = (
    "host",
    "port",
    "streamable_http_path",
    "sse_path",
    "message_path",
    "json_response",
    "stateless_http",
    "resource",
)


class ServerOptions(TypedDict, total=False):
    """The less common options of a server; None is the same as leaving an option out."""

    title: str | None
    description: str | None
    website_url: str | None
    icons: Sequence[t.Icon] | None
    tools: Sequence[Callable[..., Any]]
    experimental: Mapping[str, Any] | None
    extensions: Mapping[str, Any] | None
    capabilities: Sequence[str]
    revisions: Sequence[str] | None
    state_keys: Sequence[str | bytes] | None
    visible: VisibilityFilter | None
    on_duplicate: OnDuplicate
    mask_error_details: bool
    wrap_results: bool
    list_page_size: int | None
    cache_ttl_ms: int
    clock: Clock | None
    auth: ServerAuth
    implied_scopes: Mapping[str, Sequence[str]]
    resource: str
    host: str
    port: int
    streamable_http_path: str
    sse_path: str
    message_path: str
    json_response: bool
    stateless_http: bool


class Server(ComponentRegistry):
    """A server that offers tools, prompts and resources to any client, in every revision of the protocol."""

    def __init__(
        self,
        name: str = "trunkline",
        instructions: str | None = None,
        *,
        version: str = "",
        lifespan: Callable[[Server], AbstractAsyncContextManager[object]] | None = None,
        middleware: Sequence[Middleware] = (),
        limits: Limits | None = None,
        **options: Unpack[ServerOptions],
    ) -> None:
        """Define a server; nothing runs until ``run``, ``serve`` or ``accept`` is called."""
        options = _read_options(options)
        super().__init__(on_duplicate=options.get("on_duplicate", "error"))
        self.limits: Limits = _limits(limits or Limits(), options.get("list_page_size"))
        self.info: t.Implementation = _info(name, version, options)
        self.instructions: str | None = instructions
        self.experimental: Mapping[str, Any] | None = options.get("experimental")
        #: The declared extensions by identifier, with their settings; only revisions with extensions see them.
        self.extensions: Mapping[str, Any] | None = _extensions(options.get("extensions"))
        self.announced: frozenset[str] = frozenset(options.get("capabilities", ()))
        self.middleware: tuple[Middleware, ...] = tuple(middleware)
        self.masks_errors: bool = options.get("mask_error_details", True)
        #: Whether tools send a value that is not an object as ``{"result": …}`` in every revision, so that a tool's
        #: results always have the same shape; False sends the bare value where the revision allows it.
        self.wraps_results: bool = options.get("wrap_results", True)
        self.cache_ttl_ms: int = options.get("cache_ttl_ms", 0)
        #: Authenticates requests over HTTP; None accepts all of them.
        self.auth: ServerAuth | None = options.get("auth")
        #: The scopes that imply others.
        self.hierarchy: ScopeHierarchy = ScopeHierarchy(options.get("implied_scopes") or {})
        self.http_options: dict[str, Any] = _http_options(options)
        self._state_keys = options.get("state_keys")
        self._clock = options.get("clock")
        self._revisions = tuple(options.get("revisions") or REVISION_NAMES)
        self._lifespan = None if lifespan is None else _make_lifespan(lambda: lifespan(self))
        self._seal: StateSeal | None = None
        self._timers: Timers | None = None
        #: Notification handlers that are still running: a task without a reference may be garbage-collected.
        self._notification_tasks: set[asyncio.Future[Any]] = set()
        #: The lifespans in use, by holder: a connection, or the acceptor of an HTTP endpoint.
        self._held: dict[object, list[Lifespan]] = {}
        #: The acceptors of this server's HTTP endpoints.
        self.acceptors: WeakSet[ServerAcceptor] = WeakSet()
        #: The server's name and version, encoded once and added to every result.
        self.stamp: Raw = Raw(msgspec.json.encode(self.info))
        self._pool: WorkerPool | None = None
        self._closed = False
        self.listing: Listing = Listing(
            page_size=self.limits.page_size,
            ttl_ms=self.cache_ttl_ms,
            public=options.get("auth") is None,
            visible=options.get("visible"),
            hierarchy=self.hierarchy,
        )
        self._refresh()
        self.handlers: dict[str, MethodHandler] = make_handlers(self)
        self._methods_changed()
        for function in options.get("tools") or ():
            self.add_tool(function)

    @property
    def name(self) -> str:
        """The server's name."""
        return self.info.name

    @property
    def version(self) -> str:
        """The server's version."""
        return self.info.version

    # --- serving -----------------------------------------------------------------------------------------------------

    def accept(self, link: Link, *, create_task: TaskFactory | None = None) -> Connection:
        """Start serving a link and return at once; needs a running event loop."""
        service = ServerConnection(self)
        connection = Connection(link, service, limits=self.limits, timers=self.timers(), create_task=create_task)
        service.connection = connection
        self._held[connection] = []
        self._acquire_lifespans(connection)
        connection.cleanup = self._clean_up
        connection.start()
        return connection

    async def serve(self, link: Link) -> None:
        """Serve a link and wait until it has ended."""
        connection = self.accept(link)
        try:
            await asyncio.shield(connection.closed)
        finally:
            await connection.aclose()
            await connection.ended()

    def timers(self) -> Timers:
        """Return the timers for a connection."""
        if self._timers is None or self._clock is None:
            # Tests run one event loop after another, and timers belong to the loop that they were created in.
            self._timers = Timers(self._clock)
        return self._timers

    def acquire_lifespans(self, holder: object) -> None:
        """Enter the lifespans for a holder that serves several connections, until ``release``."""
        self._held.setdefault(holder, [])
        self._acquire_lifespans(holder)

    async def release(self, holder: object) -> None:
        """Release the lifespans of a holder; each is exited when its last holder releases it."""
        for lifespan in reversed(self._held.pop(holder, [])):
            try:
                await lifespan.release()
            except Exception:
                log.exception("the lifespan of server %r failed on exit", self.name)

    def _acquire_lifespans(self, holder: object) -> list[Lifespan]:
        """Acquire the lifespans of this server and everything mounted by now, if the holder is still registered."""
        held = self._held.get(holder, [])
        for server in self._all() if holder in self._held else ():
            if server._lifespan is not None and server._lifespan not in held:
                server._lifespan.acquire()
                held.append(server._lifespan)
        return held

    async def _clean_up(self, connection: Connection) -> None:
        """Clean up after a connection has ended."""
        assert isinstance(connection.service, ServerConnection)
        self.hub.detach(connection.service)
        await connection.aclose()
        await self.release(connection)

    def run(self, transport: str | None = "stdio", **options: Unpack[HttpOptions]) -> None:
        """Serve until the client disconnects, or over HTTP until the process is signalled to stop."""
        from trunkline.server.run import run

        run(self, transport, **options)

    async def run_async(self, transport: str | None = "stdio", **options: Unpack[HttpOptions]) -> None:
        """Serve inside a running event loop."""
        from trunkline.server.run import run_async

        await run_async(self, transport, **options)

    async def run_stdio_async(self) -> None:
        """Serve over stdio inside a running event loop; the same as ``run_async()``."""
        await self.run_async()

    def asgi(self, path: str | None = None, **options: Unpack[AsgiOptions]) -> Endpoint:
        """Return an ASGI application that serves both eras at a path (``/mcp``), to run or to mount in another."""
        from trunkline.server.http import make_endpoint

        return make_endpoint(self, path or self.http_options.get("streamable_http_path") or "/mcp", options)

    # --- names that users know from elsewhere ------------------------------------------------------------------------

    def http_app(self, path: str | None = None, transport: str = "http", **options: Unpack[AsgiOptions]) -> Endpoint:
        """Return an ASGI application; the same as ``asgi``, or as ``sse_app`` if the transport is ``"sse"``."""
        return self.sse_app(path, **options) if transport == "sse" else self.asgi(path, **options)

    def streamable_http_app(
        self, *, streamable_http_path: str | None = None, **options: Unpack[AsgiOptions]
    ) -> Endpoint:
        """Return an ASGI application; the same as ``asgi``."""
        return self.asgi(streamable_http_path, **options)

    def sse_app(self, path: str | None = None, **options: Unpack[AsgiOptions]) -> Endpoint:
        """Return an ASGI application that serves the oldest transport at ``/sse`` and ``/messages``, and all others."""
        options.setdefault("sse_path", path or "/sse")
        options.setdefault("message_path", "/messages")
        return self.asgi(**options)

    async def run_http_async(self, transport: str = "http", **options: Unpack[HttpOptions]) -> None:
        """Serve over HTTP inside a running event loop."""
        await self.run_async(transport, **options)

    async def run_streamable_http_async(self, **options: Unpack[HttpOptions]) -> None:
        """Serve over HTTP inside a running event loop."""
        await self.run_async("http", **options)

    async def run_sse_async(self, **options: Unpack[HttpOptions]) -> None:
        """Serve over HTTP inside a running event loop, with the oldest transport at ``/sse`` and ``/messages``."""
        await self.run_async("sse", **options)

    def add_middleware(self, middleware: Middleware) -> None:
        """Add a middleware function, inside those added before."""
        self.middleware = (*self.middleware, middleware)
        self._refresh()

    def close(self) -> None:
        """End all subscriptions and stop the worker threads."""
        self.hub.end("the server is shutting down")
        self._closed = True
        if self._pool is not None:
            self._pool.close()

    # --- notifications -----------------------------------------------------------------------------------------------

    def notify(self, method: str, params: Struct | Mapping[str, object] | None = None) -> None:
        """Send a custom notification to every handshake client; ``ctx.notify`` reaches the caller of a handler.

        Raises:
            ValueError: the notification is part of the protocol.
        """
        if any(method in notifications_to_client(revision) for revision in REVISIONS):
            raise ValueError(f"{method} is part of the protocol, and the server sends it itself; use another method")
        for listener in self.hub.listeners():
            if isinstance(listener, ServerConnection):
                listener.notify(method, params)

    def subscribers(self) -> tuple[Subscriber, ...]:
        """Return the clients that are connected now and can be notified of changes."""
        return tuple(each for each in self.hub.listeners() if isinstance(each, ServerConnection | SubscriptionStream))

    def subscriber(self, session: Session) -> Subscriber | None:
        """Return the subscriber of a session, to notify it outside of its requests; None once it has ended."""
        return next((each for each in self.subscribers() if each.session is session), None)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> TimerHandle:
        """Call a function after some seconds by the server's clock, unless cancelled; needs a running event loop."""
        return self.timers().after(seconds, callback)

    # --- internal: used while a request is served --------------------------------------------------------------------

    @property
    def pool(self) -> WorkerPool:
        """The worker threads of sync functions, created when the first is called."""
        if self._pool is None:
            from trunkline.server.worker_pool import WorkerPool

            self._pool = WorkerPool(self.limits.threads)
            if self._closed:
                self._pool.close()
        return self._pool

    async def call_in_middleware(self, exchange: Exchange, params: t.RequestParams, route: MethodHandler) -> Any:
        """Run a handler inside the middleware, once the lifespans have been entered."""
        for lifespan in self._acquire_lifespans(exchange.connection.holder):
            assert lifespan.ready is not None
            await asyncio.shield(lifespan.ready)
        if not self.middleware:
            return await route(exchange, params)
        return await self._run_middleware([self], exchange, params, lambda given: route(exchange, given))

    async def call_mounted(
        self, definition: Definition, exchange: Exchange, params: P, last: Callable[[P], Awaitable[T]]
    ) -> T:
        """Run a mounted definition inside the middleware of the servers it was mounted with."""
        return await self._run_middleware(definition.mounted_by, exchange, params, last)

    async def _run_middleware(
        self, servers: Sequence[Server], exchange: Exchange, params: P, last: Callable[[P], Awaitable[T]]
    ) -> T:
        from trunkline.server.context import Context
        from trunkline.server.dispatch import ServerRequest, wrap_middleware

        async def handle(request: ServerRequest) -> Any:
            return await last(request.params)

        chain = wrap_middleware([each for server in servers for each in server.middleware], handle)
        context = (servers[-1]._context_class or Context)(servers[-1], exchange)
        result: T = await chain(ServerRequest(exchange.method, params, context))
        return result

    def elicitor_for(self, exchange: Exchange) -> Elicitor:
        """Return what sends requests to the caller of an exchange, in the way of its revision."""
        from trunkline.server.elicitors import ReplayElicitor, RequestElicitor

        found = exchange.elicitor
        if isinstance(found, RequestElicitor | ReplayElicitor):
            return found
        # The server of the connection resumes the call, so it seals the state, also for a server mounted in it.
        root = root_server(exchange)
        if Feature.INPUT_REQUIRED in exchange.admitted.caller.revision.features:
            elicitor: RequestElicitor | ReplayElicitor = ReplayElicitor(exchange, root.seal, root.limits)
        else:
            elicitor = RequestElicitor(exchange, root.limits)
        exchange.elicitor = elicitor
        return elicitor

    def resume(self, exchange: Exchange) -> None:
        """Resume a call that ended with requests to its caller in an earlier round."""
        if Feature.INPUT_REQUIRED in exchange.admitted.caller.revision.features:
            from trunkline.server.elicitors import ReplayElicitor

            exchange.elicitor = ReplayElicitor.resume(exchange, self.seal, self.limits)

    @property
    def seal(self) -> StateSeal:
        """Seals and opens request state; the keys are configured, or created on first use."""
        if self._seal is None:
            import os
            import time

            from trunkline.server.request_state import StateSeal, read_keys

            keys = read_keys(self._state_keys, os.environ.get("TRUNKLINE_STATE_KEY"), os.urandom)
            self._seal = StateSeal(keys, server=self.name, limits=self.limits, now=time.time, random=os.urandom)
        return self._seal

    async def read(self, exchange: Exchange, uri: str) -> t.ReadResourceResult:
        """Read a resource on behalf of a handler."""
        return await read_resource(self, exchange, t.ReadResourceRequestParams(uri=uri))

    @property
    def lifespan_value(self) -> Any:
        """The value that the lifespan yielded."""
        return None if self._lifespan is None else self._lifespan.value

    def capabilities(self, revision: Revision) -> dict[str, Any]:
        """Return the server's current capabilities, in the form of a revision."""
        return handlers.capabilities(self, revision)

    def initialized(self, caller: Caller) -> t.InitializeResult:
        """Return the result of ``initialize``."""
        return handlers.initialize_result(self, caller)

    def discovered(self, caller: Caller) -> t.DiscoverResult:
        """Return the result of ``server/discover``."""
        return handlers.discover_result(self, caller)

    def notification_received(self, event: NotificationReceived, origin: Origin, session: Session | None) -> None:
        """Call the handler registered for a notification, if any."""
        function = self.notification_handlers.get(event.method)
        if function is not None and self._notification_allowed(event.method, origin):
            from trunkline.server.handlers import handle_notification

            handle_notification(function, event, self._notification_tasks)

    def _notification_allowed(self, method: str, origin: Origin) -> bool:
        """Return whether the sender of a notification has the scopes for it; without them it is ignored."""
        if not self._scope_policies:
            return True
        from trunkline.server.scopes import notification_allowed

        return notification_allowed(self._scope_policies, method, origin, self.hierarchy)

    def _refresh(self) -> None:
        declared = handlers.capabilities(self, NEWEST)
        #: The capabilities that methods need and this server does not declare now.
        self.undeclared: frozenset[str] = frozenset(
            row.capability
            for row in METHODS
            if row.to_server is not None and row.capability is not None and not supports(declared, row.capability)
        )
        #: Whether anything may be hidden from a caller, by a filter of this server or a mounted one, or by scopes.
        filters = any(server.listing.has_filter for server in self._all())
        self.has_hidden: bool = filters or self.registry.needs_scopes
        self.listing.has_hidden = self.has_hidden
        #: Whether handlers are called directly: there is no middleware, and no lifespan to enter first, here or in a
        #: mounted server. Mounting refreshes every parent, so that a call need not look at what is mounted.
        self.calls_directly: bool = not self.middleware and all(each._lifespan is None for each in self._all())

    def _methods_changed(self) -> None:
        self.profile: ServerProfile = make_server_profile(
            {name: row for name, (row, _) in self.custom_methods.items()}, self._revisions
        )
        if not self.custom_methods:
            return
        from trunkline.server.handlers import make_custom_handler
        from trunkline.server.scopes import write_scopes

        scopes = write_scopes(self._scope_policies)
        for name, (_, function) in self.custom_methods.items():
            self.handlers[name] = make_custom_handler(function, scopes)

    def _all(self) -> list[Server]:
        """Return this server and everything mounted in it."""
        servers: list[Server] = [self]
        for mount in self._mounts:
            servers.extend(mount.server._all())
        return servers


def _make_lifespan(enter: Callable[[], AbstractAsyncContextManager[object]]) -> Lifespan:
    from trunkline.server.run import Lifespan

    return Lifespan(enter)


def _info(name: str, version: str, options: ServerOptions) -> t.Implementation:
    return t.Implementation(
        name=name,
        version=version,
        title=options.get("title"),
        description=options.get("description"),
        website_url=options.get("website_url"),
        icons=list(options.get("icons") or ()) or None,
    )


def _limits(given: Limits, page_size: int | None) -> Limits:
    limits = given if page_size is None else msgspec.structs.replace(given, page_size=page_size)
    if limits.page_size < 1:
        raise ConfigError(f"list_page_size={limits.page_size}: a page must hold at least one item")
    return limits


def _extensions(given: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return the declared extensions.

    Raises:
        TypeError: they are not a mapping, but objects of another framework.
    """
    if given is not None and not isinstance(given, Mapping):
        raise TypeError("extensions= is a mapping from identifiers of extensions to their settings")
    return given


def _http_options(options: Mapping[str, object]) -> dict[str, Any]:
    """Return the HTTP options that were given to the constructor rather than to ``run``."""
    return {name: options[name] for name in _HTTP_OPTIONS if name in options}


#: The named parameters of ``Server``, beside its options.
_PARAMETERS = ("name", "instructions", "version", "lifespan", "middleware", "limits")


def _read_options(given: ServerOptions) -> ServerOptions:
    """Return the options that were given, under our names.

    Raises:
        TypeError: an option is unknown; the message names the closest one.
        ConfigError: an option has an invalid value.
    """
    known = ServerOptions.__annotations__
    options: dict[str, Any] = {}
    for name, value in own_options("server", given, known).items():
        if name not in known:
            raise TypeError(f"Server has no option {name!r}{did_you_mean(name, (*_PARAMETERS, *known))}")
        if value is not None:
            options[name] = value
    _check(options)
    return options  # type: ignore[return-value]


def _check(options: Mapping[str, Any]) -> None:
    if "auth" in options and not (callable(options["auth"]) or hasattr(options["auth"], "verify")):
        raise ConfigError(
            "auth= must be a verifier such as JWTVerifier(issuer=..., audience=...), or a function that takes the "
            "headers of a request and returns a Principal, or None to reject it"
        )
    if options.get("on_duplicate", "error") not in get_args(OnDuplicate):
        allowed = ", ".join(get_args(OnDuplicate))
        raise ConfigError(f"on_duplicate={options['on_duplicate']!r} is not valid; use one of {allowed}")
    unknown = [name for name in options.get("revisions") or () if name not in REVISION_NAMES]
    if unknown:
        raise ConfigError(f"revisions={unknown!r} are unknown; the revisions are {', '.join(REVISION_NAMES)}")

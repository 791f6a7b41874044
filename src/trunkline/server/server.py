"""The server: the definition of what is offered, and the interface that its author works with.

A server is a definition, not a connection: it serves any number of connections at once, over any transport and in any
revision.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, TypeVar, Unpack
from weakref import WeakSet

import msgspec
from msgspec import Raw, Struct

import trunkline.types as t
from trunkline.connection import Connection, Exchange
from trunkline.errors import RequestFailed
from trunkline.protocol.caller import Caller, Origin, ScopeHierarchy, Session, supports
from trunkline.protocol.limits import Limits
from trunkline.protocol.methods import METHODS, capability_needed, notifications_to_client
from trunkline.protocol.peer import NotificationReceived
from trunkline.protocol.request_validation import ServerProfile, make_server_profile
from trunkline.protocol.revisions import NEWEST, NEWEST_HANDSHAKE, REVISION_NAMES, REVISIONS, Revision
from trunkline.server import handlers
from trunkline.server.components import ComponentRegistry
from trunkline.server.dispatch import ServerConnection
from trunkline.server.handlers import MethodHandler, make_handlers, read_resource
from trunkline.server.listing import Listing
from trunkline.server.server_options import (
    ServerOptions,
    http_options,
    read_options,
    server_info,
    server_limits,
)
from trunkline.server.subscriptions import Subscriber, SubscriptionStream
from trunkline.service import TaskFactory
from trunkline.timers import TimerHandle, Timers
from trunkline.transports.link import Link

if TYPE_CHECKING:
    from trunkline.auth.verifiers import ServerAuth
    from trunkline.protocol.extension_definition import Extension
    from trunkline.server.context import Context
    from trunkline.server.dispatch import Middleware
    from trunkline.server.handle_service import HandleService
    from trunkline.server.http import AsgiOptions, HttpOptions
    from trunkline.server.http_acceptor import ServerAcceptor
    from trunkline.server.registry import Definition
    from trunkline.server.request_state import StateSeal
    from trunkline.server.run import Lifespan
    from trunkline.server.tasks.service import Tasks
    from trunkline.server.telemetry import ServerMetrics
    from trunkline.server.worker_pool import WorkerPool
    from trunkline.store.server_store import ServerStore
    from trunkline.telemetry.requests import RequestTelemetry
    from trunkline.transports.http.server.endpoint import Endpoint

__all__ = ["Server"]

log = logging.getLogger("trunkline")

T = TypeVar("T")
P = TypeVar("P", bound=t.RequestParams)


class Server(ComponentRegistry):
    """A server that offers tools, prompts and resources to any client, in every revision of the protocol."""

    #: Created on first use.
    _state: ServerStore | None = None
    _handles: HandleService | None = None
    _seal: StateSeal | None = None
    #: Observes requests: metrics, spans, log lines; None as long as nothing does.
    telemetry: RequestTelemetry | None = None
    #: The metrics, if they are served.
    metrics: ServerMetrics | None = None
    #: Whether the server is stopping: running requests finish, new ones are rejected.
    draining: bool = False
    #: The methods that ``answer`` gave a handler.
    answered: frozenset[str] = frozenset()

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
        options = read_options(options, lifespan, middleware)
        super().__init__(on_duplicate=options.get("on_duplicate", "error"))
        self.limits: Limits = server_limits(limits or Limits(), options.get("list_page_size"))
        self.info: t.Implementation = server_info(name, version, options)
        self.instructions: str | None = instructions
        self.experimental: Mapping[str, Any] | None = options.get("experimental")
        self.announced: frozenset[str] = frozenset(options.get("capabilities", ()))
        self.middleware: tuple[Middleware, ...] = tuple(middleware)
        self.masks_errors: bool = options.get("mask_error_details", True)
        #: Whether tools send a value that is not an object as ``{"result": …}`` in every revision, so that a tool's
        #: results always have the same shape; False sends the bare value where the revision allows it.
        self.wraps_results: bool = options.get("wrap_results", True)
        self.strict_arguments: bool = options.get("strict_arguments", False)
        self.cache_ttl_ms: int = options.get("cache_ttl_ms", 0)
        #: Authenticates requests over HTTP; None accepts all of them.
        self.auth: ServerAuth | None = options.get("auth")
        #: The scopes that imply others.
        self.hierarchy: ScopeHierarchy = ScopeHierarchy(options.get("implied_scopes") or {})
        self.http_options: dict[str, Any] = http_options(options)
        #: The options of the store: where it is, and the keys of what is sealed.
        self._store_options = options.get("store"), options.get("state_keys")
        self._clock = options.get("clock")
        self._revisions = tuple(options.get("revisions") or REVISION_NAMES)
        self._lifespan = None if lifespan is None else _make_lifespan(lambda: lifespan(self))
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
        self.handlers: dict[str, MethodHandler] = make_handlers(self)
        self._extend(options)
        self._refresh()
        self._methods_changed()
        for function in options.get("tools") or ():
            self.add_tool(function)

    def _extend(self, options: ServerOptions) -> None:
        """Register the extensions."""
        #: The declared extensions by identifier, with their settings.
        self.extensions: Mapping[str, Any] = {}
        self.extension_objects: tuple[Extension, ...] = ()
        if options.get("extensions"):
            from trunkline.protocol.extension_definition import read_extensions
            from trunkline.server.extension_methods import register_extension

            self.extensions, self.extension_objects = read_extensions(options["extensions"], "server")
            for extension in self.extension_objects:
                register_extension(self, extension)
        self._task_settings = options.get("tasks")
        #: Runs calls as tasks; created when the first tool with ``task=`` is registered.
        self.tasks: Tasks | None = None
        if (skills := options.get("skills")) is not None:
            from trunkline.server.skill_options import skill_folders

            for folder in skill_folders(skills):
                self.add_skills(folder)

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
        self.check_apps()
        self._find_telemetry()
        return self._accept(link, ServerConnection(self), create_task=create_task)

    def _accept(
        self, link: Link, service: ServerConnection, *, prefix: str = "", create_task: TaskFactory | None = None
    ) -> Connection:
        connection = Connection(
            link, service, limits=self.limits, timers=self.timers(), prefix=prefix, create_task=create_task
        )
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

    def _find_telemetry(self) -> None:
        """Observe requests from now on if the program traces, or its log lines name requests; once for a connection."""
        traces = "opentelemetry.trace" in sys.modules and _program_traces()
        logs = any(getattr(handler, "shows_requests", False) for handler in logging.root.handlers)
        if traces or logs:
            from trunkline.server.telemetry import observe_requests

            observe_requests(self, traces=traces, logs=logs)

    def timers(self) -> Timers:
        """Return the timers for a connection."""
        if self._timers is None or self._clock is None:
            # Tests run one event loop after another, and timers belong to the loop that they were created in.
            self._timers = Timers(self._clock)
        return self._timers

    def acquire_lifespans(self, holder: object) -> list[Any]:
        """Enter the lifespans for a holder that serves several connections, until ``release``; return them."""
        self._held.setdefault(holder, [])
        return self._acquire_lifespans(holder)

    async def release(self, holder: object) -> None:
        """Release the lifespans of a holder; each is exited when its last holder releases it."""
        for lifespan in reversed(self._held.pop(holder, [])):
            try:
                await lifespan.release()
            except Exception:
                log.exception("the lifespan of server %r failed on exit", self.name)

    def _acquire_lifespans(self, holder: object) -> list[Lifespan]:
        """Acquire the lifespans of this server and everything mounted by now, if the holder is still registered."""
        if self.tasks is not None:
            self.tasks.start()
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

    def asgi(self, path: str | None = None, **options: Unpack[AsgiOptions]) -> Endpoint:
        """Return an ASGI application that serves both eras at a path (``/mcp``), to run or to mount in another."""
        from trunkline.server.http import make_endpoint

        return make_endpoint(self, path or self.http_options.get("streamable_http_path") or "/mcp", options)

    def answer(self, method: str, handler: Callable[[Context, Any], Awaitable[Any]]) -> None:
        """Answer a method of the protocol with a handler of your own, instead of from what is registered.

        This is for adapters: a server of another framework, a proxy. The handler takes the context and the params in
        the type of the method, and returns its result, both as in ``trunkline.types``; the capability that the method
        belongs to is declared.

        Raises:
            ValueError: clients do not call such a method.
        """
        from trunkline.server.handlers import answer_method

        answer_method(self, method, handler)

    def add_middleware(self, middleware: Middleware) -> None:
        """Add a middleware function, inside those added before."""
        self.middleware = (*self.middleware, middleware)
        self._refresh()

    def close(self) -> None:
        """End all subscriptions and stop the worker threads."""
        self.hub.end("the server is shutting down")
        self._closed = True
        if self.tasks is not None:
            self.tasks.close()
        if self._pool is not None:
            self._pool.close()

    async def aclose(self) -> None:
        """Close the server, and wait until running tasks are stopped and the store is closed."""
        self.close()
        if self.tasks is not None:
            await self.tasks.aclose()
        if self._state is not None:
            await self._state.aclose()

    # --- notifications -----------------------------------------------------------------------------------------------

    def notify(self, method: str, params: Struct | Mapping[str, object] | None = None) -> None:
        """Send a custom notification to every handshake client; ``ctx.notify`` reaches the caller of a handler.

        Raises:
            ValueError: the notification is part of the protocol.
        """
        if any(method in notifications_to_client(revision) for revision in REVISIONS):
            raise ValueError(f"{method} is part of the protocol, and the server sends it itself; use another method")
        self._notify_here(method, params)
        if self.hub.relay is not None:
            self.hub.relay.notification(method, params)

    def _notify_here(self, method: str, params: Struct | Mapping[str, object] | None) -> None:
        """Send a custom notification to the handshake clients of this process."""
        from trunkline.server.extension_methods import may_notify

        for listener in self.hub.listeners():
            if not isinstance(listener, ServerConnection) or listener.hears_announcements or listener.session is None:
                continue
            if may_notify(self, listener.session.caller, method):
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
        from trunkline.server.dispatch import ServerRequest, check_middleware_result, wrap_middleware

        async def handle(request: ServerRequest) -> Any:
            return await last(request.params)

        chain = wrap_middleware([each for server in servers for each in server.middleware], handle)
        context = Context(servers[-1], exchange)
        result: T = await chain(ServerRequest(exchange.method, params, context))
        if exchange.method not in self.custom_methods:
            check_middleware_result(result, exchange.method)
        return result

    async def _perform_call(self, exchange: Exchange, params: t.CallToolRequestParams) -> t.CallToolResult:
        """Repeat the validated tool call of a task whose process died."""
        from trunkline.server.tools import perform_tool

        tool = self.registry.tools.get(params.name)
        if tool is None:
            raise RequestFailed(f"The server no longer has the tool {params.name!r}")
        return await perform_tool(self, tool, exchange, params)

    def _use_tasks(self) -> Tasks:
        """Return the task service, created on first use."""
        if self.tasks is None:
            from trunkline.server.task_options import task_settings
            from trunkline.server.tasks.service import make_service

            self.tasks = make_service(self, task_settings(self._task_settings))
        return self.tasks

    def _task_tools(self) -> Mapping[str, Definition]:
        return self._use_tasks().tools

    @property
    def state(self) -> ServerStore:
        """The store of everything that outlives a request, and the server's keys; created on first use."""
        if self._state is None:
            from trunkline.store.server_store import ServerStore

            option, keys = self._store_options
            self._state = ServerStore(option, name=self.name, keys=keys)
        return self._state

    @property
    def has_shared_store(self) -> bool:
        """Whether other processes may use the store too: any but the memory of this one."""
        return (self._store_options[0] is not None) if self._state is None else self._state.is_shared

    @property
    def seal(self) -> StateSeal:
        """Seals and opens request state; created on first use."""
        if self._seal is None:
            import time

            from trunkline.server.request_state import StateSeal

            self._seal = StateSeal(self.state, limits=self.limits, now=time.time, random=os.urandom)
        return self._seal

    @property
    def handles(self) -> HandleService:
        """The handle service, also of servers mounted in this one; created on first use."""
        if self._handles is None:
            from trunkline.server.handle_service import HandleService

            self._handles = HandleService(self.state, limits=self.limits)
        return self._handles

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
        if self.skills is None and any(mount.server.skills is not None for mount in self._mounts):
            self._use_skills()
        #: The methods that need a capability which this server declares in no revision now.
        self.undeclared: frozenset[str] = frozenset(_undeclared_methods(self))
        #: Whether definitions may be hidden from a caller: by a filter of this server or a mounted one, by scopes, or
        #: because the caller shows no pages.
        filters = any(server.listing.has_filter for server in self._all())
        self.has_hidden: bool = filters or self.registry.needs_scopes or self.registry.has_apps
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
        for name, (row, function) in self.custom_methods.items():
            self.handlers[name] = make_custom_handler(function, scopes, row.extension)

    def _all(self) -> list[Server]:
        """Return this server and everything mounted in it."""
        servers: list[Server] = [self]
        for mount in self._mounts:
            servers.extend(mount.server._all())
        return servers


def _undeclared_methods(server: Server) -> Iterator[str]:
    """Yield the methods that need a capability which a server declares in no revision."""
    declared = {revision: handlers.capabilities(server, revision) for revision in (NEWEST, NEWEST_HANDSHAKE)}
    for row in METHODS:
        if row.to_server is None or row.name in server.custom_methods:
            continue
        needed = {revision: capability_needed(row, revision) for revision in declared if row.to_server.covers(revision)}
        if needed and not any(path is None or supports(declared[each], path) for each, path in needed.items()):
            yield row.name


def _make_lifespan(enter: Callable[[], AbstractAsyncContextManager[object]]) -> Lifespan:
    from trunkline.server.run import Lifespan

    return Lifespan(enter)


def _program_traces() -> bool:
    """Return whether the program uses the OpenTelemetry that is loaded.

    redis-py loads it where it is installed: with a Redis store it counts only if the program has set it up.
    """
    if "trunkline.store.redis" not in sys.modules:
        return True
    trace = sys.modules["opentelemetry.trace"]
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)

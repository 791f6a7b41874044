"""The server: the definition of what is offered, and the interface that its author works with.

A server is a definition, not a connection: it serves any number of connections at once, over any transport and in any
revision.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import msgspec
from msgspec import Raw, Struct

import trunkline.types as t
from trunkline.connection import Connection, Exchange
from trunkline.errors import RequestFailed
from trunkline.protocol.caller import Origin, Session
from trunkline.protocol.limits import Limits
from trunkline.protocol.methods import notifications_to_client
from trunkline.protocol.peer import NotificationReceived
from trunkline.protocol.revisions import REVISIONS
from trunkline.server.components import ComponentRegistry
from trunkline.server.handlers import make_handlers
from trunkline.server.listing import Listing
from trunkline.server.runtime import ServerRuntime, current_runtime, runtime_for
from trunkline.server.server_options import ServerOptions, ServerSettings, read_options, server_limits
from trunkline.server.subscriptions import ChangeHub, Subscriber
from trunkline.service import TaskFactory
from trunkline.timers import TimerHandle, Timers
from trunkline.transports.link import Link

if TYPE_CHECKING:
    from trunkline.server.context import Context
    from trunkline.server.dispatch import Middleware
    from trunkline.server.http import AsgiOptions, HttpOptions
    from trunkline.server.registry import Definition
    from trunkline.transports.http.server.endpoint import Endpoint

__all__ = ["Server"]

T = TypeVar("T")


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
        options = read_options(options, lifespan, middleware)
        super().__init__(on_duplicate=options.get("on_duplicate", "error"))
        self.limits: Limits = server_limits(limits or Limits(), options.get("list_page_size"))
        self.instructions: str | None = instructions
        self.settings: ServerSettings = ServerSettings(name, version, options)
        #: Returns the context manager of the lifespan.
        self._lifespan = None if lifespan is None else partial(lifespan, self)
        table = self.table
        table.middleware = tuple(middleware)
        table.stamp = Raw(msgspec.json.encode(self.settings.info))
        table.listing = Listing(
            page_size=self.limits.page_size,
            ttl_ms=self.settings.cache_ttl_ms,
            public=self.settings.auth is None,
            visible=options.get("visible"),
            hierarchy=self.settings.hierarchy,
        )
        table.handlers = make_handlers(self)
        self._extend(options)
        self._refresh()
        self._methods_changed()
        for function in options.get("tools") or ():
            self.add_tool(function)

    def _extend(self, options: ServerOptions) -> None:
        """Register the extensions."""
        if options.get("extensions"):
            from trunkline.protocol.extension_definition import read_extensions
            from trunkline.server.extension_methods import register_extension

            self.settings.extensions, self.settings.extension_objects = read_extensions(options["extensions"], "server")
            for extension in self.settings.extension_objects:
                register_extension(self, extension)
        if (skills := options.get("skills")) is not None:
            from trunkline.server.skill_options import skill_folders

            for folder in skill_folders(skills):
                self.add_skills(folder)

    @property
    def name(self) -> str:
        """The server's name."""
        return self.settings.info.name

    @property
    def version(self) -> str:
        """The server's version."""
        return self.settings.info.version

    # --- serving -----------------------------------------------------------------------------------------------------

    def accept(self, link: Link, *, create_task: TaskFactory | None = None) -> Connection:
        """Start serving a link and return at once; needs a running event loop."""
        return runtime_for(self).accept(link, create_task=create_task)

    async def serve(self, link: Link) -> None:
        """Serve a link and wait until it has ended."""
        connection = self.accept(link)
        try:
            await asyncio.shield(connection.closed)
        finally:
            await connection.aclose()
            await connection.ended()

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

        return make_endpoint(self, path or self.settings.http.get("streamable_http_path") or "/mcp", options)

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
        self.table.middleware = (*self.table.middleware, middleware)
        self._refresh()

    def close(self) -> None:
        """Stop serving, in every event loop: end all subscriptions and stop the worker threads."""
        for runtime in self._served_by():
            _in_loop(runtime, runtime.close)

    async def aclose(self) -> None:
        """Stop serving; wait until running tasks of this event loop are stopped and the store is closed."""
        loop, store = asyncio.get_running_loop(), self._process.store
        runtimes = [runtime for runtime in self._served_by() if runtime.loop is loop]
        self.close()
        for runtime in runtimes:
            await runtime.aclose()
        # The runtime that opened it may be gone.
        if store is not None and all(runtime.state is not store for runtime in runtimes):
            await store.aclose()

    # --- notifications -----------------------------------------------------------------------------------------------

    def notify(self, method: str, params: Struct | Mapping[str, object] | None = None) -> None:
        """Send a custom notification to every handshake client; ``ctx.notify`` reaches the caller of a handler.

        Raises:
            ValueError: the notification is part of the protocol.
        """
        if any(method in notifications_to_client(revision) for revision in REVISIONS):
            raise ValueError(f"{method} is part of the protocol, and the server sends it itself; use another method")
        logs: set[object] = set()
        for runtime in self._served_by():
            _in_loop(runtime, partial(runtime.notify, method, params, runtime.hub.relays(logs)))

    def subscribers(self) -> tuple[Subscriber, ...]:
        """Return the clients that are connected now and can be notified of changes."""
        return tuple(subscriber for runtime in self._served_by() for subscriber in runtime.subscribers())

    def subscriber(self, session: Session) -> Subscriber | None:
        """Return the subscriber of a session, to notify it outside of its requests; None once it has ended."""
        return next((each for each in self.subscribers() if each.session is session), None)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> TimerHandle:
        """Call a function after some seconds by the server's clock, unless cancelled; needs a running event loop."""
        return Timers(self.settings.clock).after(seconds, callback)

    def run_in_thread(self, function: Callable[..., T], *args: object) -> asyncio.Future[T]:
        """Call a blocking function in a worker thread of the running event loop, as sync handlers are called.

        Raises:
            RuntimeError: the server is not served in this event loop, by itself or as part of another.
        """
        return current_runtime(self).submit(partial(function, *args), {})

    # --- what a runtime and mounted servers use ----------------------------------------------------------------------

    async def _perform_call(self, exchange: Exchange, params: t.CallToolRequestParams) -> t.CallToolResult:
        """Repeat the validated tool call of a task whose process died."""
        from trunkline.server.tools import perform_tool

        tool = self.registry.tools.get(params.name)
        if tool is None:
            raise RequestFailed(f"The server no longer has the tool {params.name!r}")
        return await perform_tool(tool, exchange, params)

    def _use_tasks(self) -> None:
        """Offer tasks, from the first tool with ``task=`` on."""
        if self.table.task_settings is None:
            from trunkline.server.task_options import task_settings
            from trunkline.server.tasks.methods import offer_tasks

            self.table.task_settings = task_settings(self.settings.tasks)
            offer_tasks(self)

    def _task_tools(self) -> Mapping[str, Definition]:
        self._use_tasks()
        return self.table.job_tools

    def _make_hub(self) -> ChangeHub:
        """Return the hub of a new runtime."""
        return ChangeHub()

    def _connection_ended(self, connection: Connection) -> None:
        """Called when a connection has ended and its lifespans are released."""

    def _notification_received(
        self, event: NotificationReceived, origin: Origin, session: Session | None, running: set[asyncio.Future[Any]]
    ) -> None:
        """Call the handler registered for a notification, if any; it is kept in ``running`` until it is done."""
        function = self.table.notification_handlers.get(event.method)
        if function is not None and self._notification_allowed(event.method, origin):
            from trunkline.server.handlers import handle_notification

            handle_notification(function, event, running)

    def _notification_allowed(self, method: str, origin: Origin) -> bool:
        """Return whether the sender of a notification has the scopes for it; without them it is ignored."""
        if not self._scope_policies:
            return True
        from trunkline.server.scopes import notification_allowed

        return notification_allowed(self._scope_policies, method, origin, self.settings.hierarchy)

    def _refresh(self) -> None:
        if self.table.skills is None and any(mount.server.table.skills is not None for mount in self._mounts):
            self._use_skills()
        self.table.refresh()

    def _methods_changed(self) -> None:
        self.table.methods_changed(self._scope_policies)

    def __reduce__(self) -> tuple[Callable[[str], Server], tuple[str]]:
        """Pickle a reference to the variable of a module that the server is assigned to.

        Raises:
            PicklingError: there is none.
        """
        names = (
            f"{module_name}:{name}"
            for module_name, module in sorted(sys.modules.items(), key=lambda item: item[0] == "__main__")
            for name, value in tuple(getattr(module, "__dict__", {}).items())
            if value is self
        )
        reference = next(names, None)
        if reference is None:
            import pickle

            raise pickle.PicklingError(
                f"the server {self.name!r} is pickled as the name of a variable of a module, and no module has it: "
                "assign it at the top level of a module"
            )
        return _load_server, (reference,)

    def _all(self) -> list[Server]:
        """Return this server and everything mounted in it."""
        servers: list[Server] = [self]
        for mount in self._mounts:
            servers.extend(mount.server._all())
        return servers


def _in_loop(runtime: ServerRuntime, function: Callable[[], None]) -> None:
    """Call a function in the event loop of a runtime: at once if that loop is not running in another thread."""
    if runtime.loop.is_running() and asyncio._get_running_loop() is not runtime.loop:
        with suppress(RuntimeError):  # The loop was closed meanwhile.
            runtime.loop.call_soon_threadsafe(function)
    else:
        function()


def _load_server(reference: str) -> Server:
    """Return the server that was pickled as ``module:name``."""
    import importlib
    import pickle

    module, _, name = reference.partition(":")
    server = getattr(importlib.import_module(module), name, None)
    if not isinstance(server, Server):
        raise pickle.UnpicklingError(f"{reference} is no server")
    return server

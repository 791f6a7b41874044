"""The part of a FastMCP server that registers extensions, and runs them while the server runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import trunkline.types as t
from trunkline.compat.exceptions import McpError
from trunkline.compat.features.server_extensions import ServerExtension
from trunkline.compat.types import to_plain
from trunkline.protocol.methods import Method
from trunkline.protocol.revisions import ALL_REVISIONS
from trunkline.server.handler_functions import HandlerFunction

__all__ = ["ExtensionHost", "RuntimeScope", "check_scopes", "descend", "open_scope"]

log = logging.getLogger("fastmcp.server.mixins.extensions")
_STARTED = "the server's lifespan has already started: register extensions before it runs"


class RuntimeScope:
    """A running server, or a running provider that belongs to none, and what it was opened for."""

    def __init__(self, server: Any = None) -> None:
        """Initialize with the server, or None."""
        self.server = server
        self._nodes: list[Any] = []

    def has(self, identifier: str) -> bool:
        """Return whether the extension is available."""
        return self.server is not None and identifier in self.server._extensions

    def cover(self, node: Any) -> None:
        """Hold a node, and everything below, to what is available."""
        for each in descend(node):
            if self not in each._extension_scopes and each is not self.server:
                each._extension_scopes.append(self)
                self._nodes.append(each)

    def close(self) -> None:
        """Release what was covered."""
        for each in self._nodes:
            each._extension_scopes.remove(self)
        self._nodes.clear()


def open_scope(node: Any) -> RuntimeScope | None:
    """Open a scope for a provider that runs by itself; None if a server runs it."""
    if any(each.server is not None for each in node._extension_scopes):
        return None
    scope = RuntimeScope()
    scope.cover(node)
    return scope


def descend(node: Any) -> Iterator[Any]:
    """Yield a server or provider and everything below it that others can be added to."""
    inner = node
    while hasattr(inner, "provider"):
        inner = inner.provider
    if isinstance(inner, ExtensionHost) or hasattr(inner, "_extension_scopes"):
        yield inner
    below: Any = getattr(inner, "_providers", None) or getattr(inner, "providers", None) or ()
    server = getattr(inner, "server", None)
    if isinstance(server, ExtensionHost):
        below = (server,)
    for each in below:
        if each is not getattr(inner, "local_provider", None):
            yield from descend(each)


def check_scopes(node: Any, extensions: Sequence[ServerExtension]) -> None:
    """Check that every running server that a node belongs to has these extensions.

    Raises:
        RuntimeError: one has not, and it is too late to register it.
    """
    for each in extensions:
        if any(not scope.has(each.identifier) for scope in node._extension_scopes):
            raise RuntimeError(
                f"extension {each.identifier!r} is unavailable in a running server: it was not registered"
            )


class ExtensionHost:
    """Registers extensions."""

    name: str
    extensions: Any
    custom_methods: dict[str, Any]
    handlers: dict[str, Any]
    _providers: list[Any]
    _lifespan: Any
    _held: dict[Any, list[Any]]

    def _start_extensions(self) -> None:
        """Prepare an empty registry."""
        self._extensions: dict[str, ServerExtension] = {}
        #: Those that a provider brought along.
        self._auto_extensions: set[str] = set()
        self._warned_extensions: set[str] = set()
        self._extension_methods: dict[str, list[str]] = {}
        self._extension_scopes: list[RuntimeScope] = []
        #: The scope of this server while it runs.
        self._running: RuntimeScope | None = None
        self._shared: Any = None
        from trunkline.server.run import Lifespan

        self._extension_lifespan = Lifespan(self._run_extensions)

    # --- registration ------------------------------------------------------------------------------------------------

    def add_extension(self, extension: ServerExtension) -> None:
        """Register an extension.

        Raises:
            RuntimeError: the server runs.
            ValueError: it is registered already, belongs to another server, or one of its methods is taken.
        """
        if self._running is not None or self._extension_scopes:
            raise RuntimeError(_STARTED)
        identifier = getattr(extension, "identifier", None)
        bound = extension.bound
        if bound is not None and bound is not self:
            raise ValueError(f"extension {identifier!r} is already bound to another server: register a clone()")
        if identifier in self._extensions and identifier not in self._auto_extensions:
            raise ValueError(f"extension {identifier!r} is already registered")
        self._put_extension(extension)
        self._auto_extensions.discard(extension.identifier)

    def _put_extension(self, extension: ServerExtension) -> None:
        before = extension.bound
        extension.bind(self)
        try:
            bindings = list(extension.methods())
            own = self._extension_methods.get(extension.identifier, [])
            for each in bindings:
                if each.method in self.custom_methods and each.method not in own:
                    raise ValueError(f"method {each.method!r} is already registered by another extension")
            settings = extension.settings()
        except BaseException:
            extension._server_ref = None
            if before is not None:
                extension.bind(before)
            raise
        self._drop_methods(extension.identifier)
        self._extensions[extension.identifier] = extension
        self._extension_methods[extension.identifier] = [each.method for each in bindings]
        for each in bindings:
            _serve(self, each)
        self.extensions = {**(self.extensions or {}), extension.identifier: settings}

    def _drop_methods(self, identifier: str) -> None:
        for name in self._extension_methods.pop(identifier, []):
            self.custom_methods.pop(name, None)
            self.handlers.pop(name, None)
            self._methods_changed()

    def _methods_changed(self) -> None:
        super()._methods_changed()  # type: ignore[misc]

    def required_extensions(self) -> list[ServerExtension]:
        """Return the extensions that a server needs which this one is mounted in."""
        below = [each for provider in self._providers for each in _required(provider)]
        return [*self._extensions.values(), *below]

    def _adopt(self, provider: Any) -> None:
        """Register copies of what a provider brings along; if one is refused, none is registered.

        Raises:
            RuntimeError: the server runs, and an extension is new.
            ValueError: an extension must be registered by hand.
        """
        mounted = _is_mounted(provider)
        needed = [each for each in _required(provider) if each.auto_register or not mounted]
        if self._running is not None and any(each.identifier not in self._extensions for each in needed):
            raise RuntimeError(_STARTED)
        check_scopes(self, needed)
        state = dict(self._extensions), set(self._auto_extensions), set(self._extensions)
        try:
            for each in needed:
                self._adopt_one(each, provider)
        except BaseException:
            for identifier in set(self._extensions) - state[2]:
                self._drop_methods(identifier)
                self.extensions = {key: value for key, value in self.extensions.items() if key != identifier}
            self._extensions, self._auto_extensions = state[0], state[1]
            raise
        scopes = [*self._extension_scopes, *([self._running] if self._running else ())]
        for scope in scopes:
            scope.cover(provider)

    def _adopt_one(self, extension: ServerExtension, provider: Any) -> None:
        identifier = extension.identifier
        known = self._extensions.get(identifier)
        if known is extension:
            return
        if known is not None and identifier not in self._auto_extensions:
            log.debug("Using explicitly registered extension %r of server %r", identifier, self.name)
            return
        if not extension.auto_register:
            raise ValueError(
                f"extension {identifier!r} does not allow automatic registration: register it with add_extension()"
            )
        made = extension.clone()
        if made is extension or made.identifier != identifier:
            raise ValueError(f"clone() of {identifier!r} must return a separate extension with the same identifier")
        if known is not None:
            made.bind(self)
            if made.settings() != known.settings() and identifier not in self._warned_extensions:
                self._warned_extensions.add(identifier)
                log.warning(
                    "Conflicting settings of extension %r from %r: the first stay; choose with add_extension()",
                    identifier,
                    provider,
                )
            return
        self._put_extension(made)
        self._auto_extensions.add(identifier)
        log.debug("extension %r of %r registered automatically with server %r", identifier, provider, self.name)

    def shared_values(self) -> Any:
        """Return the values that are made once for the server."""
        from trunkline.compat.features.injection import SharedValues

        if self._shared is None:
            self._shared = SharedValues()
        return self._shared

    # --- running -----------------------------------------------------------------------------------------------------

    def _freeze(self) -> None:
        """Look for extensions once more, and allow no more."""
        if self._running is None:
            for provider in self._providers:
                self._adopt(provider)
            self._running = RuntimeScope(self)
            for provider in self._providers:
                self._running.cover(provider)

    @asynccontextmanager
    async def _run_extensions(self) -> AsyncIterator[None]:
        if self._lifespan is not None and self._lifespan.ready is not None:
            # What the user's own lifespan adds is still in time.
            await asyncio.shield(self._lifespan.ready)
        try:
            self._freeze()
            async with AsyncExitStack() as stack:
                for extension in self._extensions.values():
                    await stack.enter_async_context(extension.lifespan())
                yield
        finally:
            if self._shared is not None:
                shared, self._shared = self._shared, None
                await shared.aclose()
            if self._running is not None:
                self._running.close()
                self._running = None

    @asynccontextmanager
    async def _lifespan_manager(self) -> AsyncIterator[Any]:
        """Hold the lifespans; a failure to enter one is raised."""
        import anyio

        server: Any = self
        holder = object()
        server.acquire_lifespans(holder)
        try:
            for each in list(self._held[holder]):
                await asyncio.shield(each.ready)
            yield server.lifespan_value
        finally:
            with anyio.CancelScope(shield=True):
                await server.release(holder)


def _required(provider: Any) -> list[ServerExtension]:
    found = getattr(provider, "required_extensions", None)
    return [] if found is None else list(found())


def _is_mounted(provider: Any) -> bool:
    while hasattr(provider, "provider"):
        provider = provider.provider
    return isinstance(getattr(provider, "server", None), ExtensionHost)


def _serve(server: Any, binding: Any) -> None:
    """Serve a method of an extension."""
    from trunkline.server.context import Context

    async def serve(params: dict[str, Any], context: Any) -> Any:
        served = context.request_context
        served.params = params
        versions = binding.protocol_versions
        if versions is not None and str(served.protocol_version) not in versions:
            raise McpError(code=-32601, message=f"Method not found: {binding.method}")
        given = {key: value for key, value in params.items() if key != "_meta"}
        result = await binding.handler(served, binding.params_type.model_validate(given))
        return to_plain(result) if result is not None else {}

    serve.__annotations__ = {"params": dict[str, Any], "context": Context, "return": Any}
    function: Any = serve
    row = Method(
        name=binding.method, kind="request", to_server=ALL_REVISIONS, params=t.RequestParams, result=dict[str, Any]
    )
    # Not by ``server.method``: the methods of tasks are an extension's again since they left the protocol.
    server.custom_methods[binding.method] = (row, HandlerFunction(function, owner=server, what=binding.method))
    server._methods_changed()

"""FastMCP's extensions of a server: a capability, methods, a look at every call of a tool, and a lifespan.

An extension is bound to one server. Providers and mounted servers may bring extensions along; the server that they are
added to registers a copy of each that allows it.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, ClassVar

from trunkline.compat.extensions import check_identifier
from trunkline.protocol.methods import METHODS

__all__ = [
    "ExtensionMethod",
    "ServerExtension",
    "ToolCallContinuation",
    "ToolCallOutcome",
    "delegating",
    "dispatching",
    "intercepted",
    "read_client_extension_settings",
]

# Names of types that code uses in annotations.
ToolCallOutcome = Any
ToolCallContinuation = Callable[[], Awaitable[Any]]

_CLIENT_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
#: The mounted server that a call is handed to, and the extensions that looked at the call already.
_HANDED: ContextVar[tuple[Any, frozenset[str]] | None] = ContextVar("trunkline.compat.handed", default=None)
#: The server that serves a call, and the extensions of the servers above it.
_SERVING: ContextVar[tuple[Any, frozenset[str]] | None] = ContextVar("trunkline.compat.serving", default=None)


@dataclass(frozen=True)
class ExtensionMethod:
    """A request of the extension's own, and its handler ``async (ctx, params)``."""

    method: str
    params_type: Any
    handler: Callable[[Any, Any], Awaitable[Any]]
    protocol_versions: frozenset[str] | None = None

    def __post_init__(self) -> None:
        """Check the method.

        Raises:
            ValueError: the protocol has it, or it would never be served.
        """
        if any(row.name == self.method and row.to_server is not None for row in METHODS) and not (
            self.method.startswith("tasks/")
        ):
            raise ValueError(
                f"{self.method!r} is a spec method: an extension adds methods, and sees calls in intercept_tool_call"
            )
        if self.protocol_versions is not None and not self.protocol_versions:
            raise ValueError(f"{self.method!r} has empty protocol_versions, so it would never be served: use None")


class ServerExtension:
    """The base of extensions: override what the extension adds."""

    identifier: str
    #: Whether a server registers a copy when a provider or a mounted server brings the extension along.
    auto_register: ClassVar[bool] = False
    _server_ref: weakref.ref[Any] | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        """Check the identifier, if the class has one.

        Raises:
            TypeError: it is not ``vendor-prefix/name``.
        """
        super().__init_subclass__(**options)
        if vars(cls).get("identifier") is not None:
            _check(vars(cls)["identifier"])

    def clone(self) -> ServerExtension:
        """Return a copy that is bound to no server."""
        made = copy.copy(self)
        made.__dict__ = {name: copy.deepcopy(value) for name, value in self.__dict__.items() if name != "_server_ref"}
        return made

    def bind(self, server: Any) -> None:
        """Bind the extension to its server, or to none."""
        _check(getattr(self, "identifier", None))
        self._server_ref = None if server is None else weakref.ref(server)

    @property
    def bound(self) -> Any:
        """The server, or None."""
        return None if self._server_ref is None else self._server_ref()

    @property
    def server(self) -> Any:
        """The server that the extension is registered with.

        Raises:
            RuntimeError: there is none.
        """
        found = self.bound
        if found is None:
            name = getattr(self, "identifier", type(self).__name__)
            raise RuntimeError(f"Extension {name!r} is not bound to a server: register it with add_extension()")
        return found

    def settings(self) -> dict[str, Any]:
        """Return the settings that are declared to clients."""
        return {}

    def methods(self) -> Sequence[ExtensionMethod]:
        """Return the methods."""
        return ()

    def lifespan(self) -> AbstractAsyncContextManager[Any]:
        """Return what is entered while the server runs."""
        return nullcontext()

    async def intercept_tool_call(self, params: Any, context: Any, call_next: ToolCallContinuation) -> Any:
        """Answer a call of a tool, or hand it on."""
        return await call_next()

    def client_settings(self, ctx: Any) -> dict[str, Any] | None:
        """Return what the client of a request declared for this extension, or None."""
        return read_client_extension_settings(ctx, self.identifier)

    def _requires_live_resource(self, uri: str) -> bool:
        return False


def _check(identifier: Any) -> None:
    try:
        check_identifier(identifier)
    except TypeError as error:
        raise TypeError(f"{error}: a reverse-DNS prefix, a slash and a name") from error


def read_client_extension_settings(ctx: Any, identifier: str) -> dict[str, Any] | None:
    """Return what the client of a request declared for an extension in ``_meta``, or None."""
    params = getattr(ctx, "params", None)
    meta: Any = params.get("_meta") if isinstance(params, Mapping) else None
    if not isinstance(meta, Mapping):
        given = getattr(ctx, "meta", None)
        meta = given if isinstance(given, Mapping) else getattr(given, "__dict__", None)
    declared: Any = meta
    for name in (_CLIENT_CAPABILITIES, "extensions", identifier):
        if not isinstance(declared, Mapping):
            return None
        declared = declared.get(name)
    return dict(declared) if isinstance(declared, Mapping) else None


# --- calls of tools --------------------------------------------------------------------------------------------------


@contextmanager
def dispatching(server: Any) -> Iterator[frozenset[str]]:
    """Return the extensions that looked at this call in the servers above, while this server serves it."""
    handed = _HANDED.get()
    seen = handed[1] if handed is not None and handed[0] is server else frozenset()
    tokens = _HANDED.set(None), _SERVING.set((server, seen))
    try:
        yield seen
    finally:
        _SERVING.reset(tokens[1])
        _HANDED.reset(tokens[0])


@contextmanager
def delegating(caller: Any, server: Any) -> Iterator[None]:
    """Hand a call on to a mounted server: the extensions of this one are not asked again."""
    seen = frozenset(getattr(caller, "_extensions", ()))
    serving = _SERVING.get()
    if serving is not None and serving[0] is caller:
        seen |= serving[1]
    token = _HANDED.set((server, seen))
    try:
        yield
    finally:
        _HANDED.reset(token)


def intercepted(server: Any, seen: frozenset[str], last: Any) -> Any:
    """Return the end of a call with the server's extensions around it, the first outermost."""
    chain = last
    for extension in reversed(server._extensions.values()):
        if not (extension.auto_register and extension.identifier in seen):
            chain = _around(extension, chain)
    return chain


def _around(extension: ServerExtension, inner: Any) -> Any:
    async def call(context: Any) -> Any:
        async def following() -> Any:
            return await inner(context)

        return await extension.intercept_tool_call(context.message, context.fastmcp_context, following)

    return call

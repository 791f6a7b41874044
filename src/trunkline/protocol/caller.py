"""The caller of a request: its revision, its transport and its principal.

An ``Origin`` comes from the transport, a ``Session`` from ``initialize``, a ``Caller`` from request validation: a
request that has a Caller has been validated. After that no code asks which era it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from trunkline.protocol.revisions import Revision
from trunkline.types import Implementation, LoggingLevel

__all__ = ["MEMORY", "STDIO", "STREAM", "Caller", "Origin", "Principal", "Session", "supports"]


class Principal(Struct, frozen=True, kw_only=True):
    """An authenticated identity: the subject, its issuer, its client and its scopes."""

    subject: str
    issuer: str | None = None
    client: str | None = None
    scopes: frozenset[str] = frozenset()
    claims: Mapping[str, Any] | None = None

    @property
    def identity(self) -> tuple[str | None, str, str | None]:
        """The identity, independent of the token's scopes: issuer, subject and client."""
        return self.issuer, self.subject, self.client


class Origin(Struct, frozen=True):
    """How a message arrived: the transport, the authenticated principal, and its MCP headers."""

    transport: str
    principal: Principal | None = None
    headers: Mapping[str, str] | None = None


_NONE: frozenset[str] = frozenset()

#: Origins of messages on the process's own pipes, inside the process, or on a stream given by the user.
STDIO = Origin("stdio")
MEMORY = Origin("memory")
STREAM = Origin("stream")


class Caller(Struct, frozen=True):
    """The caller of a request: created by request validation, the same for a handler in both eras."""

    revision: Revision
    client_info: Implementation | None
    capabilities: Mapping[str, Any]
    origin: Origin
    session: Session | None = None
    request_log_level: LoggingLevel | None = None

    @property
    def log_level(self) -> LoggingLevel | None:
        """The minimum level of log messages that the caller wants now, or None for no log messages."""
        return self.request_log_level if self.session is None else self.session.log_level

    @property
    def principal(self) -> Principal | None:
        """The principal that was authenticated for this request."""
        return self.origin.principal

    def supports(self, capability: str) -> bool:
        """Return True if the caller declared a capability, given as a dotted path."""
        return supports(self.capabilities, capability)


class Session:
    """What a handshake client declared once; lives as long as its connection or session id."""

    __slots__ = ("_waiting", "caller", "id", "initialized", "log_level", "subscriptions")

    def __init__(
        self,
        revision: Revision,
        client_info: Implementation | None,
        capabilities: Mapping[str, Any],
        *,
        origin: Origin,
        id: str | None = None,
    ) -> None:
        """Start a session that waits for ``notifications/initialized``."""
        self.id = id
        self.initialized = False
        self._waiting: list[Callable[[], None]] = []
        self.log_level: LoggingLevel | None = "info"
        #: The resources whose changes the client subscribed to; most clients subscribe to none.
        self.subscriptions: set[str] | frozenset[str] = _NONE
        self.caller = Caller(revision, client_info, capabilities, origin, self)

    def ready(self) -> None:
        """Called when the client has sent ``notifications/initialized``."""
        self.initialized = True
        waiting, self._waiting = self._waiting, []
        for callback in waiting:
            callback()

    def subscribe(self, uri: str) -> None:
        """Subscribe to changes of a resource."""
        self.subscriptions = {*self.subscriptions, uri}

    def unsubscribe(self, uri: str) -> None:
        """Unsubscribe from a resource."""
        self.subscriptions = self.subscriptions - {uri}

    def when_ready(self, callback: Callable[[], None]) -> None:
        """Register a callback for when the client is ready."""
        self._waiting.append(callback)

    @property
    def revision(self) -> Revision:
        """The negotiated revision."""
        return self.caller.revision


def supports(capabilities: Mapping[str, Any], path: str) -> bool:
    """Return True if a dotted path was declared.

    Two rules of the specification are applied here: ``elicitation: {}`` means the form mode, and a flag such as
    ``tools.listChanged`` counts only when it is true.
    """
    node: Any = capabilities
    for name in path.split("."):
        if not isinstance(node, Mapping):
            return False
        if name == "form" and path == "elicitation.form" and not node:
            return True
        if name not in node:
            return False
        node = node[name]
    return node is not False and node is not None

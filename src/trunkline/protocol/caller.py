"""Who is on the other side of a request, in which revision, and how they reached us.

An ``Origin`` comes from the transport, a ``Session`` from ``initialize``, a ``Caller`` from admission: a request that
has a Caller has been admitted. After admission nobody asks which era it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from trunkline.protocol.revisions import Revision
from trunkline.types import Implementation, LoggingLevel

__all__ = ["MEMORY", "STDIO", "STREAM", "Caller", "Origin", "Principal", "Session", "supports"]


class Principal(Struct, frozen=True, kw_only=True):
    """Who was authenticated, by whom, for what."""

    subject: str
    issuer: str | None = None
    client: str | None = None
    scopes: frozenset[str] = frozenset()
    claims: Mapping[str, Any] | None = None

    @property
    def identity(self) -> tuple[str | None, str, str | None]:
        """Who it is, whatever the token at hand allows: issuer, subject and client."""
        return self.issuer, self.subject, self.client


class Origin(Struct, frozen=True):
    """How a message reached us: the transport, who is authenticated there, and its MCP headers."""

    transport: str
    principal: Principal | None = None
    headers: Mapping[str, str] | None = None


_NONE: frozenset[str] = frozenset()

#: Messages that came over the process's own pipes, inside the process, or over a stream somebody gave.
STDIO = Origin("stdio")
MEMORY = Origin("memory")
STREAM = Origin("stream")


class Caller(Struct, frozen=True):
    """Who asks: made by admission, the same for a handler whatever the era."""

    revision: Revision
    client_info: Implementation | None
    capabilities: Mapping[str, Any]
    origin: Origin
    session: Session | None = None
    request_log_level: LoggingLevel | None = None

    @property
    def log_level(self) -> LoggingLevel | None:
        """The least severe level the caller wants to see now, or None for nothing at all."""
        return self.request_log_level if self.session is None else self.session.log_level

    @property
    def principal(self) -> Principal | None:
        """Who was authenticated for this request."""
        return self.origin.principal

    def supports(self, capability: str) -> bool:
        """Tell whether the caller declared a capability, given as a dotted path."""
        return supports(self.capabilities, capability)


class Session:
    """What a handshake client said once and may rely on afterwards; lives as long as its connection or session id."""

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
        #: The resources whose changes the client wants to hear of; most clients want none.
        self.subscriptions: set[str] | frozenset[str] = _NONE
        self.caller = Caller(revision, client_info, capabilities, origin, self)

    def ready(self) -> None:
        """Learn that the client has said it is ready."""
        self.initialized = True
        waiting, self._waiting = self._waiting, []
        for callback in waiting:
            callback()

    def subscribe(self, uri: str) -> None:
        """Want to hear of a resource's changes."""
        self.subscriptions = {*self.subscriptions, uri}

    def unsubscribe(self, uri: str) -> None:
        """Want to hear of them no more."""
        self.subscriptions = self.subscriptions - {uri}

    def when_ready(self, callback: Callable[[], None]) -> None:
        """Have something called once the client is ready."""
        self._waiting.append(callback)

    @property
    def revision(self) -> Revision:
        """The revision that was agreed on."""
        return self.caller.revision


def supports(capabilities: Mapping[str, Any], path: str) -> bool:
    """Tell whether a dotted path was declared.

    Two rules of the specification are kept here: ``elicitation: {}`` means the form mode, and a flag such as
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

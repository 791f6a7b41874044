"""The caller of a request: its revision, its transport, its principal, and the scopes that the principal holds.

An ``Origin`` comes from the transport, a ``Session`` from ``initialize``, a ``Caller`` from request validation: a
request that has a Caller has been validated, and no code after that asks which era it is. Nothing here knows tokens
or how they are verified: a ``Principal`` has scopes, wherever they come from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Protocol

from msgspec import Struct

from trunkline.protocol.fields import hidden_fields
from trunkline.protocol.revisions import Revision
from trunkline.types import (
    ClientCapabilities,
    ElicitationCapability,
    Implementation,
    LoggingLevel,
    SamplingCapability,
)

__all__ = [
    "EXTENSIONS",
    "MEMORY",
    "STDIO",
    "STREAM",
    "AccessDenied",
    "Caller",
    "Origin",
    "Principal",
    "ScopeHierarchy",
    "Session",
    "SessionStore",
    "has_scopes",
    "origin_has_scopes",
    "owner_name",
    "parse_scopes",
    "required_capabilities",
    "same_principal",
    "supports",
    "usable_capabilities",
]


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


def same_principal(one: Principal | None, other: Principal | None) -> bool:
    """Return True if both are the same principal; anonymous matches only anonymous."""
    if one is None or other is None:
        return one is other
    return one.identity == other.identity


def owner_name(principal: Principal | None, address: str | None) -> str:
    """Return the name under which limits count a caller: of its principal, or of its network if it has none.

    All callers without either are one, on stdio and in memory; so are all clients behind one proxy. It says who fills a
    limit, not who may read what: that is the whole identity of a principal. The client is no part of it: a user who
    registers many clients still has one share.
    """
    if principal is not None:
        return _digest("principal", principal.issuer, principal.subject)
    return "local" if address is None else _network_name(address)


@lru_cache(maxsize=1024)
def _digest(*parts: str | None) -> str:
    """Return a name without special characters, however long the parts are."""
    from hashlib import blake2b

    # The form of a tuple delimits its parts unambiguously.
    return blake2b(repr(parts).encode("utf-8", "replace"), digest_size=16).hexdigest()


@lru_cache(maxsize=1024)
def _network_name(address: str) -> str:
    """Return the name of a client's network: an IPv4 address, or the /64 that one IPv6 customer has at least."""
    from ipaddress import IPv6Address, ip_address

    try:
        parsed = ip_address(address)
    except ValueError:
        return _digest("address", address)
    if isinstance(parsed, IPv6Address):
        return _digest("address", str(parsed.ipv4_mapped or int(parsed) >> 64))
    return _digest("address", address)


class Origin(Struct, frozen=True):
    """How a message arrived: the transport, the authenticated principal, its MCP headers, and the client's address."""

    transport: str
    principal: Principal | None = None
    headers: Mapping[str, str] | None = None
    #: The network address of the client, over HTTP.
    address: str | None = None


#: The prefix of a capability path for an extension.
EXTENSIONS = "extensions/"
_NO_SUBSCRIPTIONS: frozenset[str] = frozenset()

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

    @property
    def owner(self) -> str:
        """The name under which limits count the caller."""
        return owner_name(self.origin.principal, self.origin.address)

    def supports(self, capability: str) -> bool:
        """Return True if the caller declared a capability, given as a dotted path."""
        return supports(self.capabilities, capability)


class SessionStore(Protocol):
    """Where several workers keep what a client changes in its session; each change holds on all of them."""

    async def set_log_level(self, level: LoggingLevel) -> None:
        """Set the minimum level of log messages."""

    async def subscribe(self, uri: str) -> None:
        """Subscribe to changes of a resource."""

    async def unsubscribe(self, uri: str) -> None:
        """Unsubscribe from a resource."""

    def connect(self) -> None:
        """Make the session's connection for messages outside of requests, unless there is one at this worker."""


class Session:
    """What a handshake client declared at initialization; lives as long as its connection or session id.

    It has only capabilities of the negotiated revision: a client declares them before it knows the revision, and some
    clients declare those of all revisions.
    """

    # __weakref__: adapters keep what belongs to a session as long as it lives.
    __slots__ = ("__weakref__", "_waiting", "caller", "id", "initialized", "log_level", "store", "subscriptions")

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
        self.id: str | None = id
        self.initialized: bool = False
        self._waiting: list[Callable[[], None]] = []
        self.log_level: LoggingLevel | None = "info"
        #: The resources whose changes the client subscribed to; most clients subscribe to none.
        self.subscriptions: set[str] | frozenset[str] = _NO_SUBSCRIPTIONS
        #: Set where several workers share the session: changes are made there.
        self.store: SessionStore | None = None
        usable = usable_capabilities(capabilities, revision)
        self.caller: Caller = Caller(revision, client_info, usable, origin, self)

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

    def on_initialized(self, callback: Callable[[], None]) -> None:
        """Register a callback for when the client is ready."""
        self._waiting.append(callback)

    @property
    def revision(self) -> Revision:
        """The negotiated revision."""
        return self.caller.revision


def required_capabilities(path: str) -> dict[str, Any]:
    """Return the error data that names a missing capability, given as for ``supports``."""
    declared: dict[str, Any] = {}
    for name in reversed(_names(path)):
        declared = {name: declared}
    return {"requiredCapabilities": declared}


def supports(capabilities: Mapping[str, Any], path: str) -> bool:
    """Return True if a capability was declared: a dotted path, or ``extensions/`` and the identifier of an extension.

    Two rules of the specification are applied here: ``elicitation: {}`` means the form mode, and a flag such as
    ``tools.listChanged`` counts only when it is true.
    """
    if not capabilities:
        return False
    node: Any = capabilities
    for name in _names(path):
        if type(node) is not dict and (node is None or not isinstance(node, Mapping)):
            return False
        if not node and path == "elicitation.form" and name == "form":
            return True
        node = node.get(name)
    return node is not False and node is not None


# Paths are written in programs, and never come from a peer.
@lru_cache(maxsize=256)
def _names(path: str) -> tuple[str, ...]:
    """Split a path into its members; the identifier of an extension may contain dots."""
    return ("extensions", path[len(EXTENSIONS) :]) if path.startswith(EXTENSIONS) else tuple(path.split("."))


#: The capabilities that allow a server requests which older revisions do not have: the path, and the field whose row
#: has the revisions. Others stay: what no revision defines may be an extension that both sides know.
_REQUESTED: tuple[tuple[tuple[str, ...], type, str], ...] = (
    (("elicitation",), ClientCapabilities, "elicitation"),
    (("elicitation", "url"), ElicitationCapability, "url"),
    (("sampling", "tools"), SamplingCapability, "tools"),
)


def usable_capabilities(declared: Mapping[str, Any], revision: Revision) -> Mapping[str, Any]:
    """Return a client's capabilities without those for requests that the revision does not have.

    2025-11-25, basic/lifecycle, Operation: both parties MUST respect the negotiated protocol version. Such a request
    would lack the members that the revision lacks: a URL elicitation its URL, a sampling request its tools.
    """
    kept = dict(declared)
    for (name, *rest), kind, attribute in _REQUESTED:
        if name not in kept or attribute not in hidden_fields(kind, revision):
            continue
        if not rest:
            del kept[name]
        elif isinstance(kept[name], Mapping):
            kept[name] = {part: value for part, value in kept[name].items() if part not in rest}
    return kept


# RFC 6749, 3.3: printable ASCII without space, quote and backslash.
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
_NO_IMPLIED_SCOPES: Mapping[str, Iterable[str]] = MappingProxyType({})
# The peer on a process's own pipes, or inside the process, has started it: it acts for the owner.
_OWNER_TRANSPORTS = frozenset({STDIO.transport, MEMORY.transport})


class AccessDenied(Struct, frozen=True, kw_only=True):
    """Why access is denied: the HTTP status, a message, and the content of the challenge."""

    status: int
    message: str
    #: An error code of RFC 6750, if credentials were presented but not sufficient.
    error: str | None = None
    #: All required scopes.
    scopes: tuple[str, ...] = ()


class ScopeHierarchy:
    """Which scopes include others: in ``{"files:write": ["files:read"]}``, writing includes reading."""

    __slots__ = ("_includes",)

    def __init__(self, includes: Mapping[str, Iterable[str]] = _NO_IMPLIED_SCOPES) -> None:
        """Parse the table once; an included scope may include more.

        Raises:
            TypeError: a scope is not valid.
        """
        self._includes = {
            broad: parse_scopes(narrow, f"implied_scopes[{broad!r}]") for broad, narrow in dict(includes).items()
        }

    def covers(self, granted: frozenset[str], needed: Iterable[str]) -> bool:
        """Return True if all required scopes were granted, by name or by a broader scope."""
        missing = [scope for scope in needed if scope not in granted]
        if not missing or not self._includes:
            return not missing
        whole, left = set(granted), list(granted)
        while left:
            fresh = [scope for scope in self._includes.get(left.pop(), ()) if scope not in whole]
            whole.update(fresh)
            left.extend(fresh)
        return whole.issuperset(missing)


def has_scopes(caller: Caller, needed: Iterable[str], hierarchy: ScopeHierarchy) -> bool:
    """Return True if the caller has the scopes; an anonymous caller has none, unless it can only be the owner."""
    return origin_has_scopes(caller.origin, needed, hierarchy)


def origin_has_scopes(origin: Origin, needed: Iterable[str], hierarchy: ScopeHierarchy) -> bool:
    """Return True if the sender of a message has the scopes."""
    principal = origin.principal
    if principal is None:
        return origin.transport in _OWNER_TRANSPORTS
    return hierarchy.covers(principal.scopes, needed)


def parse_scopes(given: str | Iterable[str] | None, what: str) -> tuple[str, ...]:
    """Parse a list of scopes, or a string of scopes separated by spaces; duplicates are removed, the order is kept.

    Raises:
        TypeError: a scope is not valid.
    """
    scopes = tuple(dict.fromkeys(given.split() if isinstance(given, str) else given or ()))
    for scope in scopes:
        if not isinstance(scope, str) or not _SCOPE.fullmatch(scope):
            raise TypeError(f"{what}: {scope!r} is not a scope: use ASCII letters, digits and signs, without spaces")
    return scopes

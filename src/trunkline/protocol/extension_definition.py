"""The definition of an extension: its additions to the protocol, as data and handlers.

An extension has an identifier, the settings that each side declares, methods, notifications and kinds of results. Each
method and notification may have an act, which the policy of a host judges and the audit trail records; a method may
name the definitions that it lists or uses, which a host pins. This module runs nothing: a server registers the methods,
a client the notifications and kinds of results, and a gateway forwards what has an act.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeAlias, TypeVar

from msgspec import Struct

from trunkline.protocol.revisions import ALL_REVISIONS, REVISION_NAMES, Span, find_revision

__all__ = [
    "Extension",
    "ExtensionAct",
    "ExtensionMethod",
    "ExtensionNotification",
    "ResultKind",
    "read_extensions",
]

F = TypeVar("F", bound=Callable[..., Any])

#: The kind of act that the policy of a host judges: a tool call, the read of a resource, or the use of a prompt.
ExtensionAct: TypeAlias = Literal["tool", "resource", "prompt"]

# SEP-2133: an identifier is a key of ``_meta`` whose prefix is mandatory: labels separated by dots, a slash, a name.
_LABEL = r"[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_IDENTIFIER = re.compile(rf"{_LABEL}(?:\.{_LABEL})*/[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?\Z")


class ExtensionMethod(Struct, frozen=True, kw_only=True):
    """A method that an extension adds; clients send it to servers."""

    name: str
    #: The handler: its parameters are the members of params, beside the context.
    function: Callable[..., Any] | None = None
    #: The act that the policy of a host judges; a gateway does not forward a method without one.
    act: ExtensionAct | None = None
    #: The member of params that names the target, ``uri`` or ``name``; a gateway finds the server by it.
    target: Literal["uri", "name"] | None = None
    #: Whether the client must have declared the extension.
    needs_client: bool = True
    #: The member of the result that lists definitions; a host pins each of them.
    lists: str | None = None
    #: The member of each listed definition that identifies it.
    key: str = "name"
    #: The member of params that names a listed definition; a use of a changed one needs approval.
    item: str | None = None


class ExtensionNotification(Struct, frozen=True, kw_only=True):
    """A notification that an extension adds, and the side that receives it."""

    name: str
    receiver: Literal["server", "client"]
    function: Callable[..., Any] | None = None
    #: The act that the policy of a host judges; a gateway does not forward a notification without one.
    act: ExtensionAct | None = None
    #: The member of params that a gateway rewrites between the server's own name or URI and the gateway's.
    target: Literal["uri", "name"] | None = None
    #: Which clients of a gateway receive it: the caller of the request during which it is sent, or all.
    audience: Literal["caller", "all"] = "caller"


class ResultKind(Struct, frozen=True, kw_only=True):
    """A kind of result (``resultType``) that an extension adds to a method."""

    name: str
    method: str
    #: Called by a client with itself and the result as JSON; returns the final result as JSON.
    function: Callable[..., Any] | None = None


class Extension:
    """An extension of the protocol: pass it to ``Server(extensions=[...])``, ``Client(extensions=[...])`` or both."""

    __slots__ = (
        "client_settings",
        "id",
        "methods",
        "notifications",
        "pin_settings",
        "result_kinds",
        "server_settings",
        "span",
    )

    def __init__(
        self,
        id: str,
        *,
        server_settings: Mapping[str, Any] | None = None,
        client_settings: Mapping[str, Any] | None = None,
        since: str | None = None,
        pin_settings: bool = True,
    ) -> None:
        """Define an extension; each side declares its settings, and ``since`` is the first revision with the extension.

        ``pin_settings`` is False if the settings of a server may differ from one connection to the next, so that a host
        does not ask about a change.

        Raises:
            ValueError: the identifier has no vendor prefix, or characters that are not allowed; or there is no such
                revision.
        """
        if not _IDENTIFIER.match(id):
            raise ValueError(
                f"{id!r} is not the identifier of an extension: use a domain of yours in reverse and a name, such as "
                "com.example/polls"
            )
        self.id: str = id
        self.server_settings: dict[str, Any] = dict(server_settings or {})
        self.client_settings: dict[str, Any] = dict(client_settings or {})
        #: The revisions that have the extension.
        self.span: Span = _span(id, since)
        #: Whether a host pins the settings that a server declares.
        self.pin_settings: bool = pin_settings
        self.methods: dict[str, ExtensionMethod] = {}
        self.notifications: dict[str, ExtensionNotification] = {}
        self.result_kinds: dict[str, ResultKind] = {}

    def __repr__(self) -> str:
        """Return the identifier."""
        return f"<Extension {self.id}>"

    def method(
        self,
        name: str,
        /,
        *,
        act: ExtensionAct | None = None,
        target: Literal["uri", "name"] | None = None,
        needs_client: bool = True,
        lists: str | None = None,
        key: str = "name",
        item: str | None = None,
    ) -> Callable[[F], F]:
        """Add a method whose handler is the decorated function; for the arguments see ``ExtensionMethod``."""

        def register(function: F) -> F:
            row = ExtensionMethod(
                name=name,
                function=function,
                act=act,
                target=target,
                needs_client=needs_client,
                lists=lists,
                key=key,
                item=item,
            )
            self._add(self.methods, name, row)
            return function

        return register

    def notification(
        self,
        name: str,
        /,
        *,
        receiver: Literal["server", "client"] = "client",
        act: ExtensionAct | None = None,
        target: Literal["uri", "name"] | None = None,
        audience: Literal["caller", "all"] = "caller",
    ) -> Callable[[F], F]:
        """Add a notification; the receiving side calls the decorated function. See ``ExtensionNotification``."""

        def register(function: F) -> F:
            row = ExtensionNotification(
                name=name, receiver=receiver, function=function, act=act, target=target, audience=audience
            )
            self._add(self.notifications, name, row)
            return function

        return register

    def result_kind(self, name: str, /, *, method: str = "tools/call") -> Callable[[F], F]:
        """Add a kind of result; a client calls the decorated function to convert it into the final result."""

        def register(function: F) -> F:
            self._add(self.result_kinds, name, ResultKind(name=name, method=method, function=function))
            return function

        return register

    def _add(self, table: dict[str, Any], name: str, row: Struct) -> None:
        if name in table:
            raise ValueError(f"extension {self.id!r} already has {name!r}")
        table[name] = row


def _span(id: str, since: str | None) -> Span:
    if since is None:
        return ALL_REVISIONS
    first = find_revision(since)
    if first is None:
        raise ValueError(f"extension {id!r}: there is no revision {since!r}; use one of {', '.join(REVISION_NAMES)}")
    return Span(first.index)


def read_extensions(
    given: Mapping[str, Any] | Iterable[Extension] | None, side: Literal["server", "client"]
) -> tuple[dict[str, Any], tuple[Extension, ...]]:
    """Return the declared settings by identifier, and the extensions that were passed as objects.

    ``given`` is a list of extensions, or a mapping from identifiers to settings.

    Raises:
        TypeError: it is neither, or a member of the list is not an extension.
    """
    if given is None:
        return {}, ()
    if isinstance(given, Mapping):
        return dict(given), ()
    extensions = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str | bytes) else (given,)
    for each in extensions:
        if not isinstance(each, Extension):
            raise TypeError(
                "extensions= must be a list of Extension objects, or a mapping from identifiers to settings; "
                f"it contains a {type(each).__name__}"
            )
    settings = "server_settings" if side == "server" else "client_settings"
    return {each.id: getattr(each, settings) for each in extensions}, extensions

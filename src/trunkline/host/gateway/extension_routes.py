"""Forwards extensions of servers through the gateway.

A method or notification is forwarded only if it has an act that the policy can judge. The act is defined by the
extension object passed to the gateway, or by the entry of a server, which lists the extension's identifier, methods and
notifications. Nothing else of an extension is advertised or forwarded. A method is sent to the server that its params
name, or to the only server with the extension; the policy decides about it, the settings of the server and the
definition that it uses are pinned, and the audit trail records it, as for a tool call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

import trunkline.types as t
from trunkline.client.request_handlers import ExtensionResult
from trunkline.connection import Exchange
from trunkline.errors import InvalidParams, RequestFailed
from trunkline.host.config.model import ServerSettings
from trunkline.host.core import HostCore
from trunkline.host.gateway.registry import rewrite_result, without_identity
from trunkline.host.requester import Requester
from trunkline.host.upstreams.catalog.catalog import Catalog
from trunkline.host.upstreams.catalog.names import inner_uri, outer_uri
from trunkline.protocol.extension_definition import (
    Extension,
    ExtensionAct,
    ExtensionMethod,
    ExtensionNotification,
)
from trunkline.protocol.extensions import declared_extension, missing_extension, require_extension
from trunkline.protocol.methods import METHODS, Method
from trunkline.protocol.revisions import ALL_REVISIONS, find_revision

__all__ = [
    "ExtensionRoute",
    "ExtensionRoutes",
    "NotificationRoute",
    "RunFor",
    "extension_handler",
    "outer_target",
    "server_of",
]

#: Runs a function at a server for the caller of a request.
RunFor: TypeAlias = Callable[[Exchange, str, Callable[[Requester], Awaitable[Any]]], Awaitable[Any]]
_OWN = frozenset(row.name for row in METHODS)
_NOTIFICATIONS = "notifications/"  # How the names of all notifications of the protocol begin.


class ExtensionRoute(Struct, frozen=True, kw_only=True):
    """A forwarded method of an extension, and the servers that have it."""

    extension: str
    method: ExtensionMethod
    servers: tuple[str, ...]

    @property
    def act(self) -> ExtensionAct:
        """The kind of act that the policy judges."""
        return self.method.act or "tool"

    @property
    def row(self) -> Method:
        """The row of the method in the gateway's own tables."""
        return Method(
            name=self.method.name,
            kind="request",
            to_server=ALL_REVISIONS,
            params=t.RequestParams,
            result=dict[str, Any],
            extension=self.extension if self.method.needs_client else None,
        )


class NotificationRoute(Struct, frozen=True, kw_only=True):
    """A forwarded notification of an extension, and the servers that have the extension."""

    extension: str
    notification: ExtensionNotification
    servers: tuple[str, ...]


class ExtensionRoutes(Struct, frozen=True):
    """The forwarded extensions: the settings to advertise, and the methods and notifications by name."""

    declared: Mapping[str, Any]
    methods: Mapping[str, ExtensionRoute]
    #: By name and receiver: an entry does not say which side sends a notification.
    notifications: Mapping[tuple[str, str], NotificationRoute] = MappingProxyType({})
    #: The forwarded extensions of each server.
    offered: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    #: The extensions whose definitions are known, with their kinds of results: a method and a kind.
    kinds: Mapping[str, frozenset[tuple[str, str]]] = MappingProxyType({})
    #: The servers that get one declaration for all clients: those of handshake revisions.
    shared: frozenset[str] = frozenset()

    @classmethod
    def build(cls, catalog: Catalog, extensions: Iterable[Extension], servers: Collection[str]) -> ExtensionRoutes:
        """Return the routes for these servers of a catalog."""
        declared: dict[str, Any] = {}
        routes: dict[str, ExtensionRoute] = {}
        notifications: dict[tuple[str, str], NotificationRoute] = {}
        known = {each.id: each for each in extensions}
        offered: dict[str, tuple[str, ...]] = {}
        for name in sorted(servers):
            part = catalog.parts[name]
            given = part.offering.capabilities.get("extensions")
            for id in given if isinstance(given, Mapping) else ():
                methods = _methods(id, known.get(id), part.settings)
                settings = declared_extension(part.offering.capabilities, id)
                if methods is None or settings is None:
                    continue
                declared.setdefault(id, dict(settings))
                offered[name] = (*offered.get(name, ()), id)
                for method in methods:
                    _add(routes, id, method, name)
                for each in _notifications(id, known.get(id), part.settings):
                    _add_notification(notifications, id, each, name)
        kinds = {
            id: frozenset((each.method, each.name) for each in known[id].result_kinds.values())
            for id in declared
            if id in known
        }
        shared = frozenset(name for name in offered if _is_handshake(catalog.parts[name].offering.revision))
        return cls(declared, routes, notifications, offered, kinds, shared)

    def forwarded(self, result: Any, method: str, server: str, capabilities: Mapping[str, Any]) -> Any:
        """Return a server's result as a client with these capabilities gets it.

        Raises:
            MissingClientCapability: it is a kind of an extension that the client did not declare.
            RequestFailed: it is a kind of an extension that is not forwarded.
        """
        if isinstance(result, ExtensionResult):
            self._check_kind(result.kind, method, server, capabilities)
        return rewrite_result(result, server)

    def _check_kind(self, kind: str, method: str, server: str, capabilities: Mapping[str, Any]) -> None:
        """Check that a client may get a kind of result.

        A handshake server gets the declarations of the shared connection, not those of each client, and may answer any
        client with such a result. An extension that only an entry lists may have any kind, so if a handshake server has
        several of them, the client must have declared them all.
        """
        offered = self.offered.get(server, ())
        owners = [id for id in offered if (method, kind) in self.kinds.get(id, ())]
        candidates = owners or [id for id in offered if id not in self.kinds]
        if not candidates:
            raise RequestFailed(f"The server {server!r} returned a result of an extension that is not forwarded")
        missing = [id for id in candidates if declared_extension(capabilities, id) is None]
        needs_all = not owners and server in self.shared
        if missing and (needs_all or len(missing) == len(candidates)):
            raise missing_extension(*missing)


def extension_handler(
    core: HostCore, route: ExtensionRoute, run_for: RunFor
) -> Callable[[Exchange, t.RequestParams], Awaitable[Any]]:
    """Return the handler that forwards a method of an extension to its server.

    ``run_for`` runs a function at a server for the caller of a request.
    """

    async def handle(exchange: Exchange, params: t.RequestParams) -> Any:
        if route.method.needs_client:
            require_extension(exchange.admitted.caller.capabilities, route.extension)
        members = {} if exchange.params is None else msgspec.json.decode(exchange.params, type=dict[str, Any])
        members.pop("_meta", None)
        server, members = server_of(
            route.method.name, route.method.target, route.servers, members, core.catalog, item=route.method.item
        )

        async def call(requester: Requester) -> Any:
            return await core.extension_traffic.call(server, route.extension, route.method, members, requester)

        result: dict[str, Any] = await run_for(exchange, server, call)
        if result.get("resultType") == "complete":
            # A member of the server's revision; where the client's has it, the gateway adds it again.
            result = {name: value for name, value in result.items() if name != "resultType"}
        return without_identity(_with_outer_uris(route, server, result))

    return handle


def server_of(
    method: str,
    target: Literal["uri", "name"] | None,
    servers: tuple[str, ...],
    members: Mapping[str, Any],
    catalog: Catalog,
    *,
    item: str | None = None,
) -> tuple[str, dict[str, Any]]:
    """Return the target server of a request, and its params with the server's own names and URIs.

    ``item`` is the member that names a listed definition, which the only server with the extension must have.

    Raises:
        InvalidParams: the params name no server that has the extension, and there are several.
    """
    named = members.get(target) if target is not None else None
    if target == "uri" and isinstance(named, str):
        pair = inner_uri(named, catalog.parts)
        if pair is not None and pair[0] in servers:
            return pair[0], {**members, "uri": pair[1]}
    if target == "name" and isinstance(named, str):
        for each in (*catalog.tools.values(), *catalog.prompts.values()):
            if each.wire == named and each.server in servers:
                return each.server, {**members, "name": each.name}
    if len(servers) == 1 and (target is None or item == target):
        return servers[0], dict(members)
    raise InvalidParams(
        f"Invalid params: {method} does not name its server; these have the extension: {', '.join(servers)}"
    )


def outer_target(target: str | None, server: str, members: Mapping[str, Any], catalog: Catalog) -> dict[str, Any]:
    """Return the params of a server's notification with the names and URIs of the gateway."""
    named = members.get(target) if target is not None else None
    if target == "uri" and isinstance(named, str):
        return {**members, "uri": outer_uri(server, named)}
    if target == "name" and isinstance(named, str):
        for item in (*catalog.tools.values(), *catalog.prompts.values()):
            if (item.server, item.name) == (server, named):
                return {**members, "name": item.wire}
    return dict(members)


def _with_outer_uris(route: ExtensionRoute, server: str, result: dict[str, Any]) -> dict[str, Any]:
    """Return a result whose listed definitions have the gateway's URIs, which a client passes back."""
    member = route.method.lists
    elements = None if member is None or route.method.key != "uri" else result.get(member)
    if member is None or not isinstance(elements, list):
        return result
    return {**result, member: [_with_outer_uri(each, server) for each in elements]}


def _with_outer_uri(element: Any, server: str) -> Any:
    uri = element.get("uri") if isinstance(element, dict) else None
    return {**element, "uri": outer_uri(server, uri)} if isinstance(uri, str) else element


def _is_handshake(revision: str) -> bool:
    found = find_revision(revision)
    return found is not None and found.handshake


def _methods(id: str, known: Extension | None, settings: ServerSettings) -> list[ExtensionMethod] | None:
    """Return the forwarded methods of an extension; None if it is not forwarded."""
    listed = settings.extensions.get(id)
    if known is None and listed is None:
        return None
    own = [each for each in ({} if known is None else known.methods).values() if each.act is not None]
    names = {each.name for each in own}
    names |= {name for name in listed or () if name.startswith(_NOTIFICATIONS)}
    return [*own, *(ExtensionMethod(name=name, act="tool") for name in listed or () if name not in names)]


def _notifications(id: str, known: Extension | None, settings: ServerSettings) -> list[ExtensionNotification]:
    """Return the forwarded notifications of an extension; one that an entry lists passes in both directions."""
    rows = {} if known is None else known.notifications
    own = [each for each in rows.values() if each.act is not None]
    listed = [name for name in settings.extensions.get(id, ()) if name.startswith(_NOTIFICATIONS) and name not in rows]
    sides: tuple[Literal["server", "client"], ...] = ("server", "client")
    return [*own, *(ExtensionNotification(name=name, receiver=side, act="tool") for name in listed for side in sides)]


def _add(routes: dict[str, ExtensionRoute], id: str, method: ExtensionMethod, server: str) -> None:
    before = routes.get(method.name)
    if method.name in _OWN or (before is not None and before.extension != id):
        return
    servers = (server,) if before is None else (*before.servers, server)
    routes[method.name] = ExtensionRoute(extension=id, method=method, servers=servers)


def _add_notification(
    routes: dict[tuple[str, str], NotificationRoute], id: str, notification: ExtensionNotification, server: str
) -> None:
    key = notification.name, notification.receiver
    before = routes.get(key)
    if notification.name in _OWN or (before is not None and before.extension != id):
        return
    servers = (server,) if before is None else (*before.servers, server)
    routes[key] = NotificationRoute(extension=id, notification=notification, servers=servers)

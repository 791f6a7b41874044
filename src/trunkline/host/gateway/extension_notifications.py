"""Forwards notifications of extensions through the gateway, in both directions.

A notification passes only if its extension says how it is judged (its act), and only between a server and clients that
both declared the extension. From a server, it goes to the client whose request is in progress on the connection, or to
all clients if the extension says so; a stateless client receives it during its own request only. From a client, it is
an act like a call: the policy decides, and the audit trail records it. There is no response that could carry a
question, so what would need approval is not sent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

import trunkline.types as t
from trunkline.errors import InvalidParams, PolicyDenied, TrunklineError
from trunkline.host.extension_traffic import LONGEST_NOTIFICATION, ServerNotification
from trunkline.host.gateway.extension_routes import NotificationRoute, outer_target, server_of
from trunkline.host.requester import Requester
from trunkline.host.session import HostSession
from trunkline.host.upstreams.routing.channels import GatewayChannel, LocalChannel
from trunkline.protocol.caller import Caller, Origin, Session
from trunkline.protocol.extension_definition import ExtensionMethod
from trunkline.protocol.extensions import declared_extension
from trunkline.protocol.peer import NotificationReceived
from trunkline.protocol.revisions import NEWEST
from trunkline.server.dispatch import ServerConnection

if TYPE_CHECKING:
    from trunkline.host.config.model import ServerEntry
    from trunkline.host.gateway.gateway import Gateway

__all__ = ["GatewayNotifications"]

log = logging.getLogger("trunkline.host")

_MOST_SENDING = 64  # Notifications of clients that wait for their servers at one time; the rest is dropped.


class GatewayNotifications:
    """Forwards the notifications of extensions for one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        """Follow the servers of a gateway."""
        self._gateway = gateway
        self._sending: set[asyncio.Task[None]] = set()
        self._unfollow = gateway.core.extension_traffic.follow(self)

    async def aclose(self) -> None:
        """Stop forwarding."""
        self._unfollow()
        for task in self._sending:
            task.cancel()
        if self._sending:
            await asyncio.wait(self._sending)

    # --- from servers to clients --------------------------------------------------------------------------------------

    def forwards(self, server: str, method: str) -> bool:
        """Return True if this notification of this server is forwarded to clients."""
        route = self._route(method, "client")
        return route is not None and server in route.servers

    def notified(self, news: ServerNotification) -> None:
        """Send a notification of a server to the clients that it is for."""
        gateway, route = self._gateway, self._route(news.method, "client")
        targets = [] if route is None else list(self._targets(news, route))
        if route is None or not targets:
            return
        strict = gateway.options.approval == "deny"
        act = route.notification.act or "tool"
        if gateway.core.extension_traffic.admit(news, route.extension, act, gateway.policy, strict=strict):
            params = outer_target(route.notification.target, news.server, news.params, gateway.core.catalog)
            params.pop("_meta", None)
            for target in targets:
                target.notify(news.method, params)

    def _targets(
        self, news: ServerNotification, route: NotificationRoute
    ) -> Iterator[GatewayChannel | ServerConnection]:
        """Return where a notification goes: requests in progress, or connections of handshake clients."""
        channels = [
            (session, channel)
            for session, channel in news.callers
            if isinstance(channel, GatewayChannel) and channel.serves(self._gateway) and channel.open
        ]
        own = {session for session, _ in news.callers} | ({news.session} if news.session is not None else set())
        everyone = route.notification.audience == "all" and news.session is None
        if not everyone and len(own) > 1:
            # It may belong to any of these requests, and no client may read what is for another.
            return
        reached: set[HostSession] = set()
        for session, channel in reversed(channels):
            if session not in reached and declared_extension(channel.capabilities, route.extension) is not None:
                reached.add(session)
                yield channel
        if not everyone and own & reached:
            return
        sinks = [(session, sink) for session, sink in self._sinks(route.extension) if session not in reached]
        if everyone:
            yield from (sink for _, sink in sinks)
        elif own:
            yield from (sink for session, sink in sinks if session in own)
        elif len(self._gateway.core.sessions) == 1:
            # Between requests: there is only one client that it can be for.
            yield from (sink for _, sink in sinks)

    def _sinks(self, extension: str) -> Iterator[tuple[HostSession | None, ServerConnection]]:
        """Return the connections of handshake clients that declared an extension."""
        for sink in self._gateway.hub.listeners():
            session = sink.session if isinstance(sink, ServerConnection) else None
            if session is not None and declared_extension(session.caller.capabilities, extension) is not None:
                yield self._gateway.sessions.find(session.caller), sink  # type: ignore[misc]  # it has a session

    # --- from clients to servers --------------------------------------------------------------------------------------

    def received(self, event: NotificationReceived, origin: Origin, session: Session | None) -> bool:
        """Forward a notification of a client; return False if it is not one of a forwarded extension."""
        route = self._route(event.method, "server")
        if route is None:
            return False
        size = 0 if event.params is None else len(event.params)
        if size > LONGEST_NOTIFICATION or len(self._sending) >= _MOST_SENDING:
            log.warning("a notification %s with %d bytes of a client was dropped", event.method, size)
            return True
        members = _members(event.params)
        caller = _caller(origin, session, members.pop("_meta", None))
        if declared_extension(caller.capabilities, route.extension) is not None:
            task = asyncio.get_running_loop().create_task(self._send(route, members, caller))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)
        return True

    async def _send(self, route: NotificationRoute, members: dict[str, Any], caller: Caller) -> None:
        gateway, name = self._gateway, route.notification.name
        session = gateway.sessions.of_caller(caller)
        try:
            server, members = server_of(name, route.notification.target, route.servers, members, gateway.core.catalog)
            session.budget.enter()
        except TrunklineError as error:
            log.warning("the notification %s of a client was dropped: %s", name, error)
            return
        requester = Requester(
            session=session,
            channel=LocalChannel(_NoAnswers(), session),
            policy=gateway.policy,
            caller="gateway",
            consented_by="client" if gateway.options.approval == "client" else None,
        )
        core = gateway.core
        upstream = core.upstream(server)

        async def work(judged: Mapping[str, Any]) -> tuple[Any, Raw]:
            async with core.router.client_for(core.upstream_request(upstream, name, None, requester)) as client:
                await client.notify(name, judged)
            return {}, Raw(b"{}")

        method = ExtensionMethod(name=name, act=route.notification.act)
        try:
            subject = core.extension_traffic.subject(server, route.extension, method, members)
            await core.authorized(
                method.act or "tool", upstream, name, members, None, requester, work=work, subject=subject
            )
        except (PolicyDenied, InvalidParams) as denial:
            log.info("the notification %s was not sent to %s: %s", name, server, denial)
        except TrunklineError as error:
            log.warning("the notification %s could not be sent to %s: %s", name, server, error)
        finally:
            session.budget.leave()

    def _route(self, method: str, receiver: str) -> NotificationRoute | None:
        return self._gateway.routes.notifications.get((method, receiver))


class _NoAnswers:
    """Rejects every request of a server: a notification has no response to wait for."""

    capabilities: Mapping[str, Any] = {}

    async def answer(self, entry: ServerEntry, method: str, params: Any, session: HostSession) -> Raw:
        raise PolicyDenied(f"{entry.name} asks for {method} about a notification, which is not allowed.")


def _members(params: Raw | None) -> dict[str, Any]:
    try:
        found = {} if params is None else msgspec.json.decode(params)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _caller(origin: Origin, session: Session | None, meta: Any) -> Caller:
    """Return the sender of a notification; a stateless client declares its capabilities in ``_meta``."""
    if session is not None:
        return replace(session.caller, origin=origin)
    declared = meta.get(t.META_CLIENT_CAPABILITIES) if isinstance(meta, dict) else None
    return Caller(NEWEST, None, declared if isinstance(declared, dict) else {}, origin)

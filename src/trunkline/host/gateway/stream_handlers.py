"""The gateway's handlers for subscriptions: of sessions, and of the stream of a stateless client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

import trunkline.types as t
from trunkline.connection import Exchange
from trunkline.errors import InvalidRequest, TooManyRequests
from trunkline.server.dispatch import runtime_of
from trunkline.server.handlers import session_of
from trunkline.server.subscriptions import serve_subscription, supported_filter

if TYPE_CHECKING:
    from trunkline.host.gateway.gateway import Gateway

__all__ = ["subscription_handlers"]


def subscription_handlers(gateway: Gateway) -> dict[str, Callable[[Exchange, Any], Awaitable[Any]]]:
    """Return the handlers of a gateway."""
    limit = gateway.limits.notices

    async def subscribe(exchange: Exchange, params: t.SubscribeRequestParams) -> Any:
        await gateway.wait_for_resource(params.uri)
        gateway.find_resource(exchange, params.uri)
        session = session_of(exchange)
        if len(session.subscriptions) >= limit:
            raise TooManyRequests(
                f"Too many subscriptions: the limit is {limit} for each session; unsubscribe from one",
                data={"limit": "subscriptions", "allowed": limit},
            )
        if session.store is not None:
            await session.store.subscribe(params.uri)
        else:
            session.subscribe(params.uri)
        # The client may change the resource directly after this response, and expects the notification.
        await gateway.subscriptions.subscribe(
            session,
            gateway.sessions.session(exchange),
            exchange.admitted.caller,
            uris=lambda: session.subscriptions,
            added=[params.uri],
        )
        return t.EmptyResult()

    async def unsubscribe(exchange: Exchange, params: t.UnsubscribeRequestParams) -> Any:
        session = session_of(exchange)
        if session.store is not None:
            await session.store.unsubscribe(params.uri)
        else:
            session.unsubscribe(params.uri)
        gateway.subscriptions.follow_soon()
        return t.EmptyResult()

    def listen(exchange: Exchange, params: t.SubscriptionsListenRequestParams) -> Awaitable[Any]:
        if not exchange.connection.link.can_stream:
            raise InvalidRequest(
                "Invalid request: subscriptions/listen answers with a stream; accept text/event-stream"
            )
        wanted = supported_filter(params.notifications, gateway.table.capabilities(exchange.admitted.caller.revision))
        exchange.params = None
        return _listen(gateway, exchange, replace(wanted, task_ids=params.notifications.task_ids))

    return {"resources/subscribe": subscribe, "resources/unsubscribe": unsubscribe, "subscriptions/listen": listen}


async def _listen(gateway: Gateway, exchange: Exchange, wanted: t.SubscriptionFilter) -> Any:
    """Subscribe at the servers first, then acknowledge to the client."""
    notices = gateway.limits.notices
    requested = (wanted.resource_subscriptions or ())[:notices]
    for uri in requested:
        await gateway.wait_for_resource(uri)
    uris = [uri for uri in requested if gateway.knows_resource(exchange, uri)]
    wanted = replace(wanted, resource_subscriptions=uris or None)
    try:
        if uris:
            session = gateway.sessions.session(exchange)
            await gateway.subscriptions.subscribe(
                exchange, session, exchange.admitted.caller, uris=lambda: uris, added=uris
            )
        tasks = runtime_of(exchange).tasks
        return await serve_subscription(exchange, gateway.hub, wanted=wanted, max_pending=notices, tasks=tasks)
    finally:
        gateway.subscriptions.remove(exchange)

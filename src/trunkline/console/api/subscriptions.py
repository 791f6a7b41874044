"""Completion of arguments, and subscriptions to resources, which all pages share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from trunkline.console.console import Console, ConsolePart
from trunkline.console.routing import ApiError, ApiRequest, Route
from trunkline.errors import MissingCapability
from trunkline.host.authorization.authorizer import act_for_item, act_for_unlisted
from trunkline.host.gateway.subscriptions import SubscriptionOwner, UpstreamSubscriptions, WatchedResource
from trunkline.host.upstreams.catalog.names import inner_uri, item_id, split_id
from trunkline.host.upstreams.routing.channels import ConnectionNeeds

__all__ = ["SubscriptionsPart"]

_MOST = 200  # Resources subscribed to at once.
_WAIT_SECONDS = 5.0  # The page waits no longer; a slower subscription continues in the background.


class SubscriptionsPart(ConsolePart):
    """Completes arguments, and reports updates of the resources that a page subscribed to."""

    def __init__(self, console: Console) -> None:
        """Start without subscriptions."""
        super().__init__(console)
        self._ids: dict[str, None] = {}
        self._upstream: UpstreamSubscriptions | None = None
        self._unfollow: Callable[[], None] | None = None

    def routes(self) -> Sequence[Route]:
        """Return the routes of the API."""
        return (
            Route("POST", "/complete", self._complete),
            Route("GET", "/subscriptions", self._list),
            Route("POST", "/subscriptions", self._subscribe),
            Route("DELETE", "/subscriptions/{id...}", self._unsubscribe),
        )

    async def start(self) -> None:
        """Handle updates that arrive without a subscription."""
        core = self.console.core
        self._upstream = UpstreamSubscriptions(core, self._updated_outside)
        self._unfollow = core.follow_resources(self._updated)

    async def aclose(self) -> None:
        """Cancel all subscriptions."""
        if self._unfollow is not None:
            self._unfollow()
        if self._upstream is not None:
            await self._upstream.aclose()

    # --- completion --------------------------------------------------------------------------------------------------

    async def _complete(self, request: ApiRequest) -> Any:
        context = request.member("context", dict, required=False) or {}
        known = {name: value for name, value in context.items() if isinstance(value, str)}
        try:
            found = await self.console.host.complete(
                request.member("id"),
                request.member("argument"),
                request.member("value"),
                context=known or None,
                session=self.console.session,
            )
        except MissingCapability:
            return {"values": [], "total": None, "has_more": False}
        return {"values": found.values, "total": found.total, "has_more": found.has_more is True}

    # --- subscriptions -----------------------------------------------------------------------------------------------

    async def _list(self, request: ApiRequest) -> Any:
        return {"subscriptions": list(self._ids)}

    async def _subscribe(self, request: ApiRequest) -> Any:
        console = self.console
        found = console.host.catalog.find_resource(request.member("id"))
        if found is None:
            raise ApiError(404, "not_found", f"No server has a resource {request.member('id')!r}.")
        server, uri, item = found
        trusted = console.core.upstream(server).entry.settings.trusted
        if item is None:
            act = act_for_unlisted("resource", server, uri, caller="user", trusted=trusted)
        else:
            act = act_for_item(item, caller="user", uri=uri)
        if not console.host.policy.is_visible(act):
            raise ApiError(403, "denied", f"The policy does not allow reading {item_id(server, uri)}.")
        if len(self._ids) >= _MOST:
            raise ApiError(429, "busy", f"At most {_MOST} resources can be subscribed to; unsubscribe from one first.")
        id = item_id(server, uri)
        self._ids[id] = None
        self._follow()
        assert self._upstream is not None
        await self._upstream.wait_until_active(self._watched([id]), _WAIT_SECONDS)
        return await self._list(request)

    async def _unsubscribe(self, request: ApiRequest) -> Any:
        self._ids.pop(request.params["id"], None)
        self._follow()
        return await self._list(request)

    def _follow(self) -> None:
        assert self._upstream is not None
        self._upstream.follow(self._watched(self._ids))

    def _watched(self, ids: Sequence[str] | dict[str, None]) -> Iterator[WatchedResource]:
        """Yield the subscriptions, on the connection that the calls of the console use."""
        assert self._upstream is not None
        needs = ConnectionNeeds.of(self.console.host._request_handler().capabilities, logs=False)
        owner = SubscriptionOwner(self.console.session, needs)
        for server, uri in filter(None, map(split_id, ids)):
            if watched := self._upstream.resolve(server, uri, owner):
                yield watched

    def _updated_outside(self, outer: str) -> None:
        pair = inner_uri(outer, self.console.core.supervisor.upstreams)
        if pair is not None:
            self._updated(*pair)

    def _updated(self, server: str, uri: str) -> None:
        self.console.events.publish("resource_updated", id=item_id(server, uri))

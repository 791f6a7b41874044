"""Who wants to hear of which change, in both eras, and the stream that tells a stateless client.

Changes are gathered for one turn of the loop, so that registering a hundred tools is one notice. Handshake clients hear
on their connection; a stateless one opens a ``subscriptions/listen`` exchange and hears there, with its filter, until
it cancels or the server ends it. Equal notices that wait fall together; a listener that stays too far behind is ended.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

import trunkline.types as t
from trunkline.connection import Exchange
from trunkline.protocol.caller import Session

if TYPE_CHECKING:
    from trunkline.types.json_values import JsonInput

__all__ = [
    "ChangeHub",
    "ChangeListener",
    "ChangeNotice",
    "Subscriber",
    "SubscriptionStream",
    "change_notification",
    "serve_subscription",
    "supported_filter",
]

#: What changed: a kind of list, or ``("resource", uri)``.
ChangeNotice = tuple[str, str | None]

_METHODS: Mapping[str, str] = MappingProxyType(
    {
        "tools": "notifications/tools/list_changed",
        "prompts": "notifications/prompts/list_changed",
        "resources": "notifications/resources/list_changed",
        "resource": "notifications/resources/updated",
    }
)


_NOTHING: frozenset[str] = frozenset()


class ChangeListener(Protocol):
    """Somebody who may want notices."""

    def notify_change(self, notice: ChangeNotice) -> None:
        """Take a notice, or ignore it if it is not wanted."""

    def end(self, reason: str) -> None:
        """Learn that no more will come."""


class Subscriber(Protocol):
    """A connected client that can be told of changes: a session, or the stream of a client without one."""

    @property
    def session(self) -> Session | None:
        """The session, or None where the client has none."""

    @property
    def uris(self) -> Collection[str]:
        """The resources whose changes the client wants to be told of."""

    def resource_updated(self, uri: str) -> None:
        """Tell this client alone that a resource has changed, if it wants to know."""

    def log(self, level: t.LoggingLevel, message: JsonInput, *, logger_name: str | None = None) -> None:
        """Send a log message outside of any request, if the client's session wants that level."""


class ChangeHub:
    """Brings each change to everyone who wants it, once a turn of the loop."""

    __slots__ = ("_listeners", "_lock", "_loop", "_pending")

    def __init__(self) -> None:
        """Start with nobody listening."""
        self._listeners: dict[ChangeListener, None] = {}
        self._pending: dict[ChangeNotice, None] = {}
        # Threads tell of changes while the loop delivers.
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def attach(self, listener: ChangeListener) -> None:
        """Let somebody hear; called in the loop."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            # What another loop did not deliver before its end is nothing to those who hear now.
            self._loop, self._pending = loop, {}
        self._listeners[listener] = None

    def detach(self, listener: ChangeListener) -> None:
        """Let somebody go."""
        self._listeners.pop(listener, None)

    def listeners(self) -> tuple[ChangeListener, ...]:
        """Give everyone who hears now."""
        return tuple(self._listeners)

    def notify_change(self, notice: ChangeNotice) -> None:
        """Note a change; any thread may."""
        with self._lock:
            loop = self._loop
            if not self._listeners or loop is None or loop.is_closed():
                return
            first = not self._pending
            self._pending[notice] = None
            if first:
                loop.call_soon_threadsafe(self._deliver)

    def end(self, reason: str) -> None:
        """End every listener."""
        for listener in tuple(self._listeners):
            listener.end(reason)

    def _deliver(self) -> None:
        with self._lock:
            pending, self._pending = self._pending, {}
        for notice in pending:
            for listener in tuple(self._listeners):
                listener.notify_change(notice)


class SubscriptionStream:
    """One ``subscriptions/listen`` exchange: its filter and the notices that wait."""

    __slots__ = ("_kinds", "_most", "_pending", "_uris", "_waiting", "ended")

    def __init__(self, wanted: t.SubscriptionFilter, max_pending: int) -> None:
        """Keep what is wanted; at most so many notices may wait."""
        kinds = {
            "tools": wanted.tools_list_changed,
            "prompts": wanted.prompts_list_changed,
            "resources": wanted.resources_list_changed,
        }
        self._kinds = tuple(kind for kind, wants in kinds.items() if wants)
        self._uris = frozenset(wanted.resource_subscriptions) if wanted.resource_subscriptions else _NOTHING
        self._most = max_pending
        self._pending: dict[ChangeNotice, None] = {}
        self._waiting: asyncio.Future[None] | None = None
        #: Why the stream ends, once it does.
        self.ended: str | None = None

    def notify_change(self, notice: ChangeNotice) -> None:
        """Queue a notice if the filter wants it."""
        kind, uri = notice
        if not (kind in self._kinds or (kind == "resource" and uri in self._uris)):
            return
        if len(self._pending) >= self._most and notice not in self._pending:
            self.end("too many notices are waiting to be read")
            return
        self._pending[notice] = None
        self._wake()

    @property
    def session(self) -> None:
        """None: a stateless client has no session."""
        return None

    @property
    def uris(self) -> frozenset[str]:
        """The resources whose changes are wanted."""
        return self._uris

    def resource_updated(self, uri: str) -> None:
        """Tell of a resource's change, if it is wanted."""
        self.notify_change(("resource", uri))

    def log(self, level: t.LoggingLevel, message: JsonInput, *, logger_name: str | None = None) -> None:
        """Nothing is sent: log messages of stateless revisions belong to a request."""

    def end(self, reason: str) -> None:
        """End the stream after what is queued."""
        self.ended = self.ended or reason
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def next_change(self) -> asyncio.Future[None] | None:
        """Give what to wait for until there is a notice, or the end; None if there is one already."""
        if self._pending or self.ended is not None:
            return None
        self._waiting = asyncio.get_running_loop().create_future()
        return self._waiting

    def take_pending(self) -> list[ChangeNotice]:
        """Give the notices that wait."""
        pending, self._pending = list(self._pending), {}
        return pending


def supported_filter(wanted: t.SubscriptionFilter, capabilities: Mapping[str, Any]) -> t.SubscriptionFilter:
    """Give the part of a filter that a server with these capabilities will honour."""

    def lists(kind: str) -> bool:
        return bool(capabilities.get(kind, {}).get("listChanged"))

    return t.SubscriptionFilter(
        tools_list_changed=(wanted.tools_list_changed and lists("tools")) or None,
        prompts_list_changed=(wanted.prompts_list_changed and lists("prompts")) or None,
        resources_list_changed=(wanted.resources_list_changed and lists("resources")) or None,
        resource_subscriptions=wanted.resource_subscriptions
        if capabilities.get("resources", {}).get("subscribe")
        else None,
    )


async def serve_subscription(
    exchange: Exchange, hub: ChangeHub, *, wanted: t.SubscriptionFilter, max_pending: int
) -> t.SubscriptionsListenResult:
    """Serve one subscription: acknowledge, then tell, until the client cancels or we end it."""
    listener = SubscriptionStream(wanted, max_pending)
    hub.attach(listener)
    try:
        exchange.notify(
            "notifications/subscriptions/acknowledged",
            t.SubscriptionsAcknowledgedNotificationParams(meta=_stamp(exchange), notifications=wanted),
        )
        while listener.ended is None:
            if (news := listener.next_change()) is not None:
                await news
            for notice in listener.take_pending():
                exchange.notify(*change_notification(notice, _stamp(exchange)))
            await exchange.connection.drain()
        # One page of 2026-07-28 wants this notification, another the result: both are satisfied, in this order.
        params = t.CancelledNotificationParams(request_id=exchange.id, reason=listener.ended)
        exchange.notify("notifications/cancelled", params)
        return t.SubscriptionsListenResult(meta=_stamp(exchange))
    finally:
        hub.detach(listener)


def _stamp(exchange: Exchange) -> dict[str, Any]:
    """Say which subscription a message belongs to; made anew each time, since thousands may wait for one."""
    return {t.META_SUBSCRIPTION_ID: exchange.id}


def change_notification(
    notice: ChangeNotice, meta: dict[str, object] | None
) -> tuple[str, t.NotificationParams | None]:
    """Give the method and params that tell of a change."""
    kind, uri = notice
    if uri is not None:
        return _METHODS[kind], t.ResourceUpdatedNotificationParams(uri=uri, meta=meta)
    return _METHODS[kind], None if meta is None else t.NotificationParams(meta=meta)

"""Change notifications in both eras: the hub that delivers them, and the stream of a stateless client.

Changes are collected for one iteration of the event loop, so that registering a hundred tools is one notification.
Handshake clients are notified on their connection. A stateless client opens a ``subscriptions/listen`` request and is
notified there, according to its filter, until it cancels or the server ends the stream. Equal pending notices are
merged; a listener with too many pending notices is ended.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec.structs import replace

import trunkline.types as t
from trunkline.connection import Exchange
from trunkline.protocol.caller import Session
from trunkline.protocol.jsonrpc import Notification, encode

if TYPE_CHECKING:
    from trunkline.server.tasks.service import Tasks
    from trunkline.types.json_values import JsonInput

__all__ = [
    "ChangeHub",
    "ChangeListener",
    "ChangeNotice",
    "ChangeRelay",
    "Subscriber",
    "SubscriptionStream",
    "change_notification",
    "serve_subscription",
    "supported_filter",
]

#: What changed: a kind of list, ``("resource", uri)`` or ``("task", id)``.
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
#: Stands for the id while a notification is encoded for many streams.
_ID_MARK = "id"


class ChangeListener(Protocol):
    """A receiver of change notices."""

    def notify_change(self, notice: ChangeNotice) -> None:
        """Called with each change; the listener ignores those that its client did not subscribe to."""

    def end(self, reason: str) -> None:
        """Called when no more changes will be delivered."""


class Subscriber(Protocol):
    """A connected client that can be notified of changes: a session, or the stream of a client without one."""

    @property
    def session(self) -> Session | None:
        """The session; None if the client has none."""

    @property
    def uris(self) -> Collection[str]:
        """The resources that the client is subscribed to."""

    def resource_updated(self, uri: str) -> None:
        """Notify only this client of a changed resource, if it is subscribed to it."""

    def log(self, level: t.LoggingLevel, message: JsonInput, *, logger_name: str | None = None) -> None:
        """Send a log message outside of any request, if the log level of the client's session includes it."""


class ChangeRelay(Protocol):
    """Passes changes on to the sessions over HTTP, and to the other workers of a server."""

    @property
    def log(self) -> object:
        """What it writes to: of several relays to one log, one is used."""

    def change(self, notice: ChangeNotice) -> None:
        """Pass a change on; may be called from any thread."""

    def notification(self, method: str, params: object) -> None:
        """Pass a custom notification on; called in the event loop."""

    def flush(self) -> None:
        """Pass the changes of this turn of the event loop on now; called in the event loop."""


class ChangeHub:
    """Delivers changes to the listeners, once per iteration of the event loop."""

    __slots__ = ("_listeners", "_lock", "_loop", "_pending", "_relays")

    def __init__(self) -> None:
        """Create a hub without listeners."""
        self._listeners: dict[ChangeListener, None] = {}
        self._pending: dict[ChangeNotice, None] = {}
        # Worker threads report changes while the event loop delivers them.
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        #: One for each endpoint over HTTP.
        self._relays: tuple[ChangeRelay, ...] = ()

    def add_relay(self, relay: ChangeRelay) -> None:
        """Pass changes on to a relay, too."""
        if relay not in self._relays:
            self._relays = (*self._relays, relay)

    def remove_relay(self, relay: ChangeRelay | None) -> None:
        """Pass no more changes on to a relay."""
        self._relays = tuple(other for other in self._relays if other is not relay)

    def relays(self, logs: set[object] | None = None) -> list[ChangeRelay]:
        """Return a relay for each log, except for those that were written to; they are added to ``logs``."""
        logs = set() if logs is None else logs
        relays = []
        for relay in self._relays:
            if relay.log not in logs:
                logs.add(relay.log)
                relays.append(relay)
        return relays

    def attach(self, listener: ChangeListener) -> None:
        """Add a listener; called in the event loop."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            # Changes that an earlier event loop did not deliver do not concern the listeners of this one.
            self._loop, self._pending = loop, {}
        self._listeners[listener] = None

    def detach(self, listener: ChangeListener) -> None:
        """Remove a listener."""
        self._listeners.pop(listener, None)

    def listeners(self, notice: ChangeNotice | None = None) -> tuple[ChangeListener, ...]:
        """Return the current listeners; with a notice, those that are notified of it."""
        return tuple(self._listeners)

    def hears(self, listener: ChangeListener, notice: ChangeNotice) -> bool:
        """Return whether a listener is notified of a change."""
        return True

    def notify_change(self, notice: ChangeNotice, logs: set[object] | None = None) -> None:
        """Schedule the delivery of a change, at other workers too; may be called from any thread.

        ``logs`` are those in which another hub has announced it already.
        """
        for relay in self.relays(logs):
            relay.change(notice)
        self.deliver_change(notice)

    def deliver_change(self, notice: ChangeNotice) -> None:
        """Schedule the delivery of a change to the listeners of this process; may be called from any thread."""
        with self._lock:
            loop = self._loop
            if not self._listeners or loop is None or loop.is_closed():
                return
            first = not self._pending
            self._pending[notice] = None
            if first:
                # In the loop's own thread without a wake-up, which costs an iteration: requests that arrive after the
                # change may be answered in it, and the notice should not come later than their answers.
                here = asyncio._get_running_loop() is loop
                (loop.call_soon if here else loop.call_soon_threadsafe)(self._deliver)

    def end(self, reason: str) -> None:
        """End every listener."""
        for listener in tuple(self._listeners):
            listener.end(reason)

    def _deliver(self) -> None:
        with self._lock:
            pending, self._pending = self._pending, {}
        for notice in pending:
            for listener in self.listeners(notice):
                listener.notify_change(notice)


class SubscriptionStream:
    """One ``subscriptions/listen`` request: its filter and its pending notices."""

    __slots__ = ("_kinds", "_max_pending", "_pending", "_send_now", "_tasks", "_uris", "_wakeup", "ended")

    def __init__(
        self,
        wanted: t.SubscriptionFilter,
        max_pending: int,
        send_now: Callable[[ChangeNotice], bool] = lambda _: False,
    ) -> None:
        """Create the stream for a filter; it ends when more than ``max_pending`` notices are pending.

        ``send_now`` sends a notice at once if it can, and returns whether it did.
        """
        kinds = {
            "tools": wanted.tools_list_changed,
            "prompts": wanted.prompts_list_changed,
            "resources": wanted.resources_list_changed,
        }
        self._kinds = tuple(kind for kind, wants in kinds.items() if wants)
        self._uris = frozenset(wanted.resource_subscriptions) if wanted.resource_subscriptions else _NOTHING
        self._tasks = frozenset(wanted.task_ids) if wanted.task_ids else _NOTHING
        self._max_pending = max_pending
        self._send_now = send_now
        self._pending: dict[ChangeNotice, None] = {}
        self._wakeup: asyncio.Future[None] | None = None
        #: Why the stream has ended; None while it is open.
        self.ended: str | None = None

    def notify_change(self, notice: ChangeNotice) -> None:
        """Queue a notice if the filter includes it."""
        kind, uri = notice
        if not (
            kind in self._kinds or (kind == "resource" and uri in self._uris) or (kind == "task" and uri in self._tasks)
        ):
            return
        if not self._pending and self.ended is None and self._send_now(notice):
            return
        if len(self._pending) >= self._max_pending and notice not in self._pending:
            self.end("too many notices are waiting to be read")
            return
        self._pending[notice] = None
        self._wake()

    @property
    def session(self) -> None:
        """Always None: a stateless client has no session."""
        return None

    @property
    def uris(self) -> frozenset[str]:
        """The resources that the client is subscribed to."""
        return self._uris

    def resource_updated(self, uri: str) -> None:
        """Notify the client of a changed resource, if it is subscribed to it."""
        self.notify_change(("resource", uri))

    def log(self, level: t.LoggingLevel, message: JsonInput, *, logger_name: str | None = None) -> None:
        """Do nothing: log messages of stateless revisions belong to a request."""

    def end(self, reason: str) -> None:
        """End the stream after the pending notices."""
        self.ended = self.ended or reason
        self._wake()

    def _wake(self) -> None:
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)

    def next_change(self) -> asyncio.Future[None] | None:
        """Return a future that is resolved by the next notice or the end; None if there is one already."""
        if self._pending or self.ended is not None:
            return None
        self._wakeup = asyncio.get_running_loop().create_future()
        return self._wakeup

    def take_pending(self) -> list[ChangeNotice]:
        """Return the pending notices and remove them from the stream."""
        pending, self._pending = list(self._pending), {}
        return pending


def supported_filter(wanted: t.SubscriptionFilter, capabilities: Mapping[str, Any]) -> t.SubscriptionFilter:
    """Return the part of a filter that a server with these capabilities supports."""

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
    exchange: Exchange,
    hub: ChangeHub,
    *,
    wanted: t.SubscriptionFilter,
    max_pending: int,
    tasks: Tasks | None = None,
) -> t.SubscriptionsListenResult:
    """Acknowledge a subscription and send notifications until the client cancels it or the server ends it."""
    if wanted.task_ids is not None:
        ids = None if tasks is None else await tasks.listenable(exchange, wanted.task_ids)
        wanted = replace(wanted, task_ids=ids)
    listener = SubscriptionStream(wanted, max_pending, _direct_sender(exchange))
    unwatch = await tasks.watch(listener, wanted.task_ids) if tasks is not None and wanted.task_ids else None
    hub.attach(listener)
    sent: dict[str, object] = {}
    try:
        exchange.notify(
            "notifications/subscriptions/acknowledged",
            t.SubscriptionsAcknowledgedNotificationParams(meta=_stamp(exchange), notifications=wanted),
        )
        for id in wanted.task_ids or ():
            # A client may rely on notifications only, and its task may have changed before this.
            listener.notify_change(("task", id))
        while listener.ended is None:
            if (change := listener.next_change()) is not None:
                await change
            for notice in listener.take_pending():
                if notice[0] != "task":
                    exchange.notify(*change_notification(notice, _stamp(exchange)))
                elif tasks is not None and (news := await tasks.notification(notice[1] or "", _stamp(exchange), sent)):
                    exchange.notify(*news)
            await exchange.connection.drain()
        # One page of 2026-07-28 requires this notification, another the result: send both, in this order.
        params = t.CancelledNotificationParams(request_id=exchange.id, reason=listener.ended)
        exchange.notify("notifications/cancelled", params)
        return t.SubscriptionsListenResult(meta=_stamp(exchange))
    finally:
        hub.detach(listener)
        if unwatch is not None:
            unwatch()


def _direct_sender(exchange: Exchange) -> Callable[[ChangeNotice], bool]:
    """Return a function that writes a notice to the response at once: thousands of streams may hear of one change.

    It sends nothing if the link cannot, if messages are queued before it, if the traffic is observed, or of tasks.
    """
    connection = exchange.connection
    send_event = connection.link.send_event
    id = msgspec.json.encode(exchange.id)

    def send(notice: ChangeNotice) -> bool:
        if notice[0] == "task" or connection.observer is not None or connection.peer.unsent or not exchange.open:
            return False
        head, tail = _encoded_around_id(notice)
        return send_event(b"%b%b%b" % (head, id, tail))

    return send


@lru_cache(maxsize=64)  # The changes of one moment; each is sent to many streams.
def _encoded_around_id(notice: ChangeNotice) -> tuple[bytes, bytes]:
    """Return the encoded notification of a change: what comes before the id of the subscription, and after it."""
    method, params = change_notification(notice, {t.META_SUBSCRIPTION_ID: _ID_MARK})
    # With its key it cannot be part of a URI, in which quotation marks are escaped.
    key, mark = msgspec.json.encode(t.META_SUBSCRIPTION_ID), msgspec.json.encode(_ID_MARK)
    head, _, tail = encode(Notification(method, params)).partition(b"%b:%b" % (key, mark))
    return b"%b%b:" % (head, key), tail


def _stamp(exchange: Exchange) -> dict[str, Any]:
    """Return the ``_meta`` that names the subscription; created each time, since thousands of streams may be open."""
    return {t.META_SUBSCRIPTION_ID: exchange.id}


def change_notification(
    notice: ChangeNotice, meta: dict[str, object] | None
) -> tuple[str, t.NotificationParams | None]:
    """Return the method and params of the notification for a change."""
    kind, uri = notice
    if uri is not None:
        return _METHODS[kind], t.ResourceUpdatedNotificationParams(uri=uri, meta=meta)
    return _METHODS[kind], None if meta is None else t.NotificationParams(meta=meta)

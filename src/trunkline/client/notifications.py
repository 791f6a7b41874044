"""Handles the notifications of a server: what each kind means to caches, listeners and the user's callbacks.

One row per notification; one that cannot be read is dropped and counted, an unknown one goes to the user's
``on_notification`` callback alone. If it is one of an extension that both sides declared, the function of the
extension is called too, with validated arguments. A callback may be plain or async: a plain one runs at once, an async
one as its own task, started in the order of arrival. The number of unfinished callbacks is bounded: a server that sends
faster than its listener handles loses notifications, which are counted, and never fills our memory. A callback that
fails is logged and affects nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Raw

import trunkline.types as t
from trunkline.client.changes import Change, ListenerRegistry
from trunkline.client.options import ClientSettings
from trunkline.client.request_handlers import UNREADABLE
from trunkline.client.session import ClientSession
from trunkline.client.tool_cache import ResponseCache, ToolCache
from trunkline.errors import InvalidParams
from trunkline.protocol.caller import EXTENSIONS
from trunkline.protocol.extensions import declared_extension
from trunkline.protocol.methods import Method, decode_params, notifications_to_client, read_meta
from trunkline.protocol.revisions import Feature

if TYPE_CHECKING:
    from trunkline.protocol.notification_arguments import NotificationFunction

__all__ = ["CHANGE_KINDS", "CallbackRunner", "NotificationDispatcher"]

log = logging.getLogger("trunkline")


class CallbackRunner:
    """The running callbacks of one client."""

    __slots__ = ("_limit", "_tasks", "dropped")

    def __init__(self, limit: int) -> None:
        """Allow at most ``limit`` unfinished callbacks."""
        self._limit = limit
        self._tasks: set[asyncio.Future[Any]] = set()
        #: Notifications that were dropped because too many callbacks were unfinished.
        self.dropped = 0

    def notify(self, callback: Callable[..., Any] | None, *news: Any) -> None:
        """Call a callback with these arguments, if there is one."""
        if callback is None:
            return
        if len(self._tasks) >= self._limit:
            self.dropped += 1
            return
        try:
            outcome = callback(*news)
        except Exception:
            log.exception("a callback failed")
            return
        # Checked by the method rather than by the type: a future or another awaitable will do as well.
        if hasattr(outcome, "__await__"):
            task = asyncio.ensure_future(outcome)
            self._tasks.add(task)
            task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Future[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a callback failed", exc_info=task.exception())

    async def aclose(self) -> None:
        """Cancel the unfinished callbacks."""
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


#: By notification: the kind of change that it reports.
CHANGE_KINDS: MappingProxyType[str, Literal["tools", "prompts", "resources", "resource"]] = MappingProxyType(
    {
        "notifications/tools/list_changed": "tools",
        "notifications/prompts/list_changed": "prompts",
        "notifications/resources/list_changed": "resources",
        "notifications/resources/updated": "resource",
    }
)


class NotificationDispatcher:
    """Dispatches each notification to the parts of the client that it concerns."""

    def __init__(
        self,
        settings: ClientSettings,
        *,
        cache: ResponseCache,
        tool_cache: ToolCache,
        listeners: ListenerRegistry,
        callbacks: CallbackRunner,
    ) -> None:
        """Store everything that a notification may concern."""
        self._settings = settings
        self._cache = cache
        self._tool_cache = tool_cache
        self._listeners = listeners
        self._callbacks = callbacks
        #: The functions of extensions by notification, each with the identifier of its extension.
        self._functions = _extension_functions(settings) if settings.extension_objects else {}
        #: Notifications that could not be read, or that named an unknown subscription.
        self.dropped = 0

    def dispatch(self, session: ClientSession, method: str, params: Raw | None) -> None:
        """Dispatch one notification."""
        row = notifications_to_client(session.revision).get(method)
        try:
            known = None if row is None else decode_params(row, params)
            if self._settings.on_notification is not None:
                members = {} if params is None else msgspec.json.decode(params, type=dict[str, Any])
                self._callbacks.notify(self._settings.on_notification, method, members)
            if row is not None:
                self._known(session, row, known, params)
            for id, function in self._functions.get(method, ()):
                if session.declared(f"{EXTENSIONS}{id}") and declared_extension(session.capabilities, id) is not None:
                    self._call(function, method, params)
        except UNREADABLE:
            self.dropped += 1

    def _call(self, function: NotificationFunction, method: str, params: Raw | None) -> None:
        """Call the function of an extension; params that do not match its signature are ignored."""
        members = {} if params is None else msgspec.json.decode(params, type=dict[str, Any])
        try:
            call = function.bind(members)
        except InvalidParams as error:
            self.dropped += 1
            log.warning("the notification %s was ignored: %s", method, error.message)
        else:
            self._callbacks.notify(call)

    def _known(self, session: ClientSession, row: Method, params: Any, raw: Raw | None) -> None:
        kind = CHANGE_KINDS.get(row.name)
        if kind is not None:
            self._changed(session, row.name, Change(kind, getattr(params, "uri", None)), raw)
        elif isinstance(params, t.LoggingMessageNotificationParams):
            self._callbacks.notify(self._settings.logging, params)
        elif isinstance(params, t.SubscriptionsAcknowledgedNotificationParams):
            listener = self._listeners.find((params.meta or {}).get(t.META_SUBSCRIPTION_ID))
            if listener is not None:
                listener.acknowledge(params.notifications)
            else:
                self.dropped += 1
        elif isinstance(params, t.CancelledNotificationParams):
            listener = self._listeners.find(params.request_id)
            if listener is not None:
                listener.subscription_ended()

    def _changed(self, session: ClientSession, method: str, change: Change, raw: Raw | None) -> None:
        self._cache.invalidate_for(method, change.uri)
        if change.kind == "tools":
            self._tool_cache.forget()
        if Feature.LISTEN not in session.revision.features:
            self._listeners.notify(change)
            return
        # On stdio all messages share one channel: a notification belongs to the subscription that it names.
        listener = self._listeners.find(read_meta(raw).get(t.META_SUBSCRIPTION_ID))
        if listener is not None:
            listener.notify(change)
        else:
            self.dropped += 1


def _extension_functions(settings: ClientSettings) -> dict[str, list[tuple[str, NotificationFunction]]]:
    """Return the functions that extensions have for notifications to a client, with their identifiers."""
    from trunkline.protocol.notification_arguments import NotificationFunction

    found: dict[str, list[tuple[str, NotificationFunction]]] = {}
    for extension in settings.extension_objects:
        for each in extension.notifications.values():
            if each.receiver == "client" and each.function is not None:
                what = f"the notification {each.name} of {extension.id}"
                found.setdefault(each.name, []).append((extension.id, NotificationFunction(each.function, what=what)))
    return found

"""Handles the notifications of a server: what each kind means to caches, listeners and callbacks.

One row per notification. One that cannot be read is dropped and counted; an unknown one goes to the user's
``on_notification`` callback alone.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Literal

import msgspec
from msgspec import Raw

import trunkline.types as t
from trunkline.client.cache import ResponseCache
from trunkline.client.callbacks import Callbacks
from trunkline.client.contact import Contact
from trunkline.client.listening import Change, Hub
from trunkline.client.options import Settings
from trunkline.client.reading import UNREADABLE
from trunkline.client.tool_facts import ToolFacts
from trunkline.protocol.methods import Method, decode_params, notifications_to_client, read_meta
from trunkline.protocol.revisions import Feature

__all__ = ["KINDS", "Notices"]

#: By notification: the kind of change that it reports.
KINDS: MappingProxyType[str, Literal["tools", "prompts", "resources", "resource"]] = MappingProxyType(
    {
        "notifications/tools/list_changed": "tools",
        "notifications/prompts/list_changed": "prompts",
        "notifications/resources/list_changed": "resources",
        "notifications/resources/updated": "resource",
    }
)


class Notices:
    """Dispatches each notification to the parts of the client that it concerns."""

    def __init__(
        self, settings: Settings, *, cache: ResponseCache, facts: ToolFacts, hub: Hub, callbacks: Callbacks
    ) -> None:
        """Store everything that a notification may concern."""
        self._settings = settings
        self._cache = cache
        self._facts = facts
        self._hub = hub
        self._callbacks = callbacks
        #: Notifications that could not be read, or that named an unknown subscription.
        self.dropped = 0

    def take(self, contact: Contact, method: str, params: Raw | None) -> None:
        """Dispatch one notification."""
        row = notifications_to_client(contact.revision).get(method)
        try:
            known = None if row is None else decode_params(row, params)
            if self._settings.on_notification is not None:
                members = {} if params is None else msgspec.json.decode(params, type=dict[str, Any])
                self._callbacks.tell(self._settings.on_notification, method, members)
            if row is not None:
                self._known(contact, row, known, params)
        except UNREADABLE:
            self.dropped += 1

    def _known(self, contact: Contact, row: Method, params: Any, raw: Raw | None) -> None:
        kind = KINDS.get(row.name)
        if kind is not None:
            self._changed(contact, row.name, Change(kind, getattr(params, "uri", None)), raw)
        elif isinstance(params, t.LoggingMessageNotificationParams):
            self._callbacks.tell(self._settings.logging, params)
        elif isinstance(params, t.SubscriptionsAcknowledgedNotificationParams):
            listener = self._hub.find((params.meta or {}).get(t.META_SUBSCRIPTION_ID))
            if listener is not None:
                listener.acknowledge(params.notifications)
            else:
                self.dropped += 1
        elif isinstance(params, t.CancelledNotificationParams):
            listener = self._hub.find(params.request_id)
            if listener is not None:
                listener.dismiss()

    def _changed(self, contact: Contact, method: str, change: Change, raw: Raw | None) -> None:
        self._cache.notice(method, change.uri)
        if change.kind == "tools":
            self._facts.forget()
        if Feature.LISTEN not in contact.revision.features:
            self._hub.tell(change)
            return
        # On stdio all messages share one channel: a notification belongs to the subscription that it names.
        listener = self._hub.find(read_meta(raw).get(t.META_SUBSCRIPTION_ID))
        if listener is not None:
            listener.tell(change)
        else:
            self.dropped += 1

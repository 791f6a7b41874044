"""Changed definitions that need a review, as items of the inbox.

They come from the pins of the host, not from a prompter: an item stays until the change is accepted or blocked, here or
by ``trunkline pins``, or is reverted by its server. A blocked change is stored with the pins, so that it stays hidden
in every host; ``unblock`` brings its item back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from trunkline.console.routing import ApiError
from trunkline.errors import ConfigError
from trunkline.host.integrity.pins.records import Pin, ServerPins, pin_changes
from trunkline.host.integrity.pins.store import endpoint_identity

if TYPE_CHECKING:
    from trunkline.console.console import Console

__all__ = ["PinReviews"]

_MOST_ITEMS = 200  # More changes of one server are better reviewed with ``trunkline pins diff``.
_MOST_CLOSED = 500  # Closed items whose outcome is remembered, for late answers.


class _PendingChange(Struct, frozen=True):
    """A changed definition and its item."""

    record: ServerPins
    pin: Pin
    members: dict[str, Any]


class PinReviews:
    """The changed definitions of the servers of a console."""

    def __init__(self, console: Console) -> None:
        """Start empty; ``refresh`` finds the changes."""
        self._console = console
        self._pending: dict[str, _PendingChange] = {}
        self._blocked: list[dict[str, Any]] = []
        self._closed: dict[str, str] = {}

    def items(self) -> list[dict[str, Any]]:
        """Return the items."""
        return [change.members for change in self._pending.values()]

    def blocked(self) -> list[dict[str, Any]]:
        """Return the blocked changes of the servers."""
        return self._blocked

    def refresh(self) -> None:
        """Compare the definitions with the pins of the host, and publish added and removed items."""
        before, hidden = self._pending, self._blocked
        self._pending, self._blocked = self._find()
        for id, change in self._pending.items():
            if id not in before:
                self._closed.pop(id, None)
                self._console.events.publish("inbox", item=change.members)
        for id in before:
            if id not in self._pending and id not in self._closed:
                self._close(id, "withdrawn", "The change was accepted or blocked elsewhere, or reverted.", "")
        if self._blocked != hidden:
            self._console.events.publish("blocked", blocked=self._blocked)

    def unblock(self, id: str) -> bool:
        """Undo the blocking of a change, which needs a review again; return False if no such change is blocked.

        Raises:
            ApiError: the definition has changed again.
        """
        for record, pin in self._changed_pins():
            if pin.drift is not None and pin.drift.blocked and _id(record, pin, pin.drift.pin) == id:
                self._store_block(record, pin, blocked=False)
                self._console.core.review_definitions()
                self.refresh()
                return True
        return False

    def answer(self, id: str, body: Any, *, window: str) -> bool:
        """Accept or block a change; return False if there is no such item.

        Raises:
            ApiError: the answer is invalid, or the item is closed.
        """
        change = self._pending.get(id)
        if change is None:
            if id in self._closed:
                raise ApiError(409, "answered", self._closed[id])
            return False
        action = body.get("action") if isinstance(body, Mapping) else None
        if action not in ("accept", "block"):
            raise ApiError(400, "invalid_answer", '"action" must be "accept" or "block".')
        core, pin, server = self._console.core, change.pin, change.record.name
        inspector, drift = core.inspector, change.pin.drift
        assert inspector is not None
        assert inspector.store is not None
        assert drift is not None
        if action == "accept":
            try:
                inspector.store.accept(change.record, pin.kind, pin.name, pin=drift.pin)
            except ConfigError as error:
                # The definition has changed again; the new change is a new item.
                self.refresh()
                raise ApiError(409, "changed", str(error)) from error
            text = f"The change of {server}/{pin.name} was accepted."
        else:
            self._store_block(change.record, pin, blocked=True)
            text = f"{server}/{pin.name} is hidden until you accept the change."
        self._pending.pop(id, None)
        self._close(id, "allowed" if action == "accept" else "denied", text, window)
        core.review_definitions()
        self.refresh()
        return True

    def _store_block(self, record: ServerPins, pin: Pin, *, blocked: bool) -> None:
        inspector = self._console.core.inspector
        assert inspector is not None
        assert inspector.store is not None
        assert pin.drift is not None
        try:
            inspector.store.block(record, pin.kind, pin.name, pin=pin.drift.pin, blocked=blocked)
        except ConfigError as error:
            self.refresh()
            raise ApiError(409, "changed", str(error)) from error

    def _close(self, id: str, outcome: str, text: str, window: str) -> None:
        self._closed[id] = text
        while len(self._closed) > _MOST_CLOSED:
            del self._closed[next(iter(self._closed))]
        self._console.events.publish("inbox_closed", id=id, outcome=outcome, text=text, window=window)

    def _find(self) -> tuple[dict[str, _PendingChange], list[dict[str, Any]]]:
        """Return the changes that need a review, by the ids of their items, and the blocked ones."""
        found: dict[str, _PendingChange] = {}
        blocked: list[dict[str, Any]] = []
        for record, pin in self._changed_pins():
            assert pin.drift is not None
            id = _id(record, pin, pin.drift.pin)
            if pin.drift.blocked and len(blocked) < _MOST_ITEMS:
                blocked.append(_members(id, record, pin))
            elif not pin.drift.blocked and len(found) < _MOST_ITEMS:
                found[id] = _PendingChange(record, pin, _members(id, record, pin))
        return found, blocked

    def _changed_pins(self) -> Iterator[tuple[ServerPins, Pin]]:
        """Yield the changed pins of the servers, each with the record of its server."""
        inspector = self._console.core.inspector
        if inspector is None or inspector.store is None or inspector.problem is not None:
            return
        reached = {
            (name, endpoint_identity(upstream.entry)[0])
            for name, upstream in self._console.core.supervisor.upstreams.items()
            if upstream.entry.target is None
        }
        for record in inspector.store.servers():
            for pin in record.pins if (record.name, record.key) in reached else ():
                if pin.drift is not None and pin.gone_since is None:
                    yield record, pin


def _id(record: ServerPins, pin: Pin, new_pin: str) -> str:
    key = msgspec.json.encode([record.name, record.key, pin.kind, pin.name, new_pin])
    return f"pin-{sha256(key).hexdigest()[:16]}"


def _members(id: str, record: ServerPins, pin: Pin) -> dict[str, Any]:
    assert pin.drift is not None
    return {
        "id": id,
        "kind": "pin",
        "server": record.name,
        "title": f"The definition of {pin.name or 'its instructions'} changed",
        "created": pin.drift.since,
        "deadline": None,
        "caller": None,
        "act": pin.kind,
        "name": pin.name,
        "item": f"{record.name}/{pin.name}" if pin.name else record.name,
        "lines": [line for change in pin_changes(pin) for line in str(change).splitlines()],
        "before": pin.definition,
        "after": pin.drift.definition,
    }

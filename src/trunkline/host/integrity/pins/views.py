"""Views of pins for people: each pin with its server, the scan's findings in it, and its state.

No server is started or asked: a view shows what was last seen and stored. Pure.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from trunkline.host.integrity.pins.definitions import (
    DefinitionChange,
    matches_pin,
    only_order_differs,
    summarize_changes,
)
from trunkline.host.integrity.pins.records import Pin, ServerPins, pin_changes
from trunkline.host.integrity.pins.store import PinLock
from trunkline.host.integrity.scan.scanner import (
    Finding,
    combine_findings,
    foreign_tool_names,
    scan_definition,
    scan_references,
    tool_references,
    worst_severity,
)
from trunkline.host.upstreams.catalog.names import item_id

__all__ = [
    "LockMismatch",
    "PinView",
    "compare_with_lock",
    "describe_change",
    "find_views",
    "pin_target",
    "pin_views",
    "tool_views",
    "views_seen_elsewhere",
]

_MOST_PLACES = 8  # Places named in one line.


class PinView(Struct, frozen=True):
    """One pin with its server, findings and state."""

    server: ServerPins
    pin: Pin
    #: The scan's findings in the current definition, unless they were accepted.
    findings: tuple[Finding, ...] = ()
    #: Only another process saw this definition; what was last seen is the accepted one.
    elsewhere: bool = False

    @property
    def id(self) -> str:
        """Its id: ``server/name``, or the server's name for its instructions."""
        return self.server.name if self.pin.kind == "instructions" else item_id(self.server.name, self.pin.name)

    @property
    def state(self) -> str:
        """Return its state: ``changed``, ``blocked``, ``gone``, ``hidden``, ``flagged``, ``new`` or ``pinned``.

        ``elsewhere`` is a definition that waits to be accepted and that only another process saw.
        """
        if self.elsewhere:
            return "elsewhere"
        if self.pin.state in ("changed", "blocked", "gone"):
            return self.pin.state
        severity = worst_severity(self.findings)
        if severity in ("ask", "hide"):
            withheld = severity == "hide" or self.pin.kind == "instructions"
            return "hidden" if withheld else "flagged"
        return self.pin.state

    @property
    def is_pending(self) -> bool:
        """Whether it needs a person's attention; what a person has blocked does not."""
        return self.state not in ("pinned", "gone", "blocked")

    @property
    def is_usable(self) -> bool:
        """Whether it is served as it is: neither changed, blocked, gone, hidden nor flagged."""
        return self.state in ("pinned", "new")

    @property
    def is_read_only(self) -> bool:
        """Whether the accepted definition marks the tool as read-only (``readOnlyHint``)."""
        hints = self.pin.definition.get("annotations") if isinstance(self.pin.definition, dict) else None
        return isinstance(hints, dict) and hints.get("readOnlyHint") is True

    @property
    def now(self) -> str:
        """The pin of the current definition."""
        return self.pin.pin if self.pin.drift is None else self.pin.drift.pin

    @property
    def definition(self) -> Any:
        """The current definition, as JSON; None if it was too large to store."""
        return self.pin.definition if self.pin.drift is None else self.pin.drift.definition

    @property
    def changes(self) -> tuple[DefinitionChange, ...]:
        """The differences from the accepted definition."""
        return pin_changes(self.pin)

    @property
    def is_reordered(self) -> bool:
        """Whether only the order of words in texts, or of elements in lists, differs."""
        before, after = self.pin.definition, None if self.pin.drift is None else self.pin.drift.definition
        return before is not None and after is not None and only_order_differs(before, after)


class LockMismatch(Struct, frozen=True):
    """A difference between a lock file and the pins on this machine."""

    server: str
    kind: str
    name: str
    what: str


def pin_target(server: str, kind: str, name: str) -> str:
    """Return the target that names a definition in ``trunkline pins``, quoted for a shell."""
    return shlex.quote(server if kind == "instructions" else item_id(server, name))


def describe_change(server: str, pin: Pin, *, hidden: bool) -> str:
    """Return a sentence on how a definition changed, the consequence, and the command that accepts it."""
    changes = pin_changes(pin)
    places = ", ".join(dict.fromkeys(change.pointer or "all of it" for change in changes[:_MOST_PLACES]))
    then = "it is hidden" if hidden else "you are asked before every use"
    if pin.drift is not None and pin.drift.blocked:
        then = "you blocked it, so it is hidden"
    fix = f"run: trunkline pins accept {pin_target(server, pin.kind, pin.name)}"
    return f"it changed since it was pinned ({places}): {summarize_changes(changes)}; {then} until you accept it; {fix}"


def pin_views(records: Iterable[ServerPins]) -> list[PinView]:
    """Return views of all pins; the other servers' tools for the scan are those that are pinned."""
    known = list(records)
    names: dict[str, frozenset[str]] = {}
    for record in known:
        for pin in record.pins:
            if pin.kind == "tool":
                names[pin.name] = names.get(pin.name, frozenset()) | {record.name}
    return [PinView(record, pin, _findings(record, pin, names)) for record in known for pin in record.pins]


def views_seen_elsewhere(views: Iterable[PinView], now: float) -> Iterator[PinView]:
    """Return views of the definitions that other processes saw while the accepted ones were seen here."""
    for view in views:
        other = view.pin.recent_other(now)
        if other is not None and view.pin.drift is None:
            pin = replace(view.pin, drift=other, other=None)
            yield PinView(view.server, pin, _findings(view.server, pin, {}), elsewhere=True)


def tool_views(views: Iterable[PinView], server: str, *, key: str | None = None) -> dict[str, PinView]:
    """Return the tools of a server by name; of several servers with that name, the newest or the one with this key."""
    own = [view for view in views if view.server.name == server and view.pin.kind == "tool"]
    if key is None and own:
        key = max(own, key=lambda view: view.server.since).server.key
    return {view.pin.name: view for view in own if view.server.key == key}


def find_views(views: Iterable[PinView], target: str) -> list[PinView]:
    """Return the views that ``server`` (all of it) or ``server/name`` names."""
    server, slash, name = target.partition("/")
    own = (view for view in views if view.server.name == server)
    return [view for view in own if not slash or (view.pin.name == name and name != "")]


def compare_with_lock(records: Iterable[ServerPins], lock: PinLock) -> Iterator[LockMismatch]:
    """Yield the differences between pins and a lock file; pins that only the file has are not one."""
    for record in records:
        for pin in record.pins:
            wanted = lock.find(record.name, pin.kind, pin.name)
            now = pin if pin.drift is None else pin.drift
            if pin.gone_since is not None or (wanted is not None and matches_pin(wanted.pin, now.pin, now.definition)):
                continue
            yield LockMismatch(record.name, pin.kind, pin.name, "not in the file" if wanted is None else "differs")


def _findings(record: ServerPins, pin: Pin, names: dict[str, frozenset[str]]) -> tuple[Finding, ...]:
    document = pin.definition if pin.drift is None else pin.drift.definition
    if document is None or (pin.vetted and pin.drift is None):
        return ()
    words = tool_references(document)
    others = foreign_tool_names(record.name, words, names)
    return combine_findings((*scan_definition(document, kind=pin.kind), *scan_references(document, words, others)))

"""The definitions that methods of extensions list: each is pinned under the identifier of its extension, and scanned.

A method says which member of its result is a list of definitions, and which member identifies each (``lists`` and
``key`` of ``ExtensionMethod``). A changed definition is still listed and its use needs approval; with
``"pins": "strict"`` it is removed from the list. Pure: the pins are passed in. Lists come from untrusted servers, so
their length is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct

from trunkline.host.integrity.pins.definitions import canonical
from trunkline.host.integrity.pins.records import CurrentDefinition, Pin, ServerPins, pin_changes
from trunkline.host.integrity.pins.store import LockedPin
from trunkline.host.integrity.scan.scanner import Finding, combine_findings, scan_definition, worst_severity

__all__ = ["MOST_ITEMS", "ItemReview", "ListedItem", "item_pin_name", "listed_items"]

#: Definitions of all extensions that are pinned for one server: as many as a grant may hold tools.
MOST_ITEMS = 2000
_LONGEST_NAME = 1024  # The name is part of what is typed after ``trunkline pins accept``.
_MOST_BYTES = 256 * 1024  # As for a tool: a third of the context window of most models.


def item_pin_name(extension: str, name: str) -> str:
    """Return the name under which a listed definition is pinned."""
    return f"{extension}#{name}"


class ListedItem(Struct, frozen=True, kw_only=True):
    """A definition that a method of an extension listed, with the marks for approval."""

    #: Its name within the pins of its server.
    pin_name: str
    pin: str
    definition: Any
    changed: tuple[str, ...] = ()
    flagged: tuple[str, ...] = ()
    #: It must not be listed or used.
    hidden: bool = False

    @property
    def current(self) -> CurrentDefinition:
        """The definition as it is pinned."""
        return CurrentDefinition(self.pin, self.definition)

    @classmethod
    def of_pin(cls, known: Pin, *, strict: bool, scanning: str, hide: Callable[[str], str]) -> ListedItem:
        """Return the definition that was listed last under a pinned name."""
        now = known if known.drift is None else known.drift
        vetted = scanning == "off" or (known.vetted and known.drift is None)
        findings = () if vetted else _findings(now.definition)
        return _marked(
            cls(pin_name=known.name, pin=now.pin, definition=now.definition),
            known,
            findings,
            strict=strict,
            scanning=scanning,
            hide=hide,
        )


class ItemReview(Struct, frozen=True):
    """The result of a review: the elements that are served, and the reasons for those that are not."""

    served: list[Any]
    removed: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        items: Iterable[ListedItem],
        record: ServerPins | None,
        *,
        lock: Mapping[str, LockedPin] | None,
        scanning: str,
        strict: bool,
        hide: Callable[[str], str],
    ) -> ItemReview:
        """Review listed definitions with the pins of their server; None if the server is not pinned."""
        served: list[Any] = []
        removed: list[str] = []
        pins = {} if record is None else {pin.name: pin for pin in record.pins if pin.kind == "item"}
        for item in items:
            known = pins.get(item.pin_name)
            locked = None if lock is None else lock.get(item.pin_name)
            vetted = known is not None and known.vetted and known.pin == item.pin
            findings = () if scanning == "off" or vetted else _findings(item.definition)
            judged = _marked(item, known, findings, strict=strict, scanning=scanning, hide=hide)
            if record is not None and known is None:
                removed.append(f"{item.pin_name}: it cannot be pinned: the server has {MOST_ITEMS} such definitions")
            elif lock is not None and (locked is None or locked.pin != item.pin):
                removed.append(f"{item.pin_name}: not in the lock file")
            elif judged.hidden:
                removed.append(f"{item.pin_name}: changed, or hidden by the scan")
            else:
                served.append(item.definition)
        return cls(served, tuple(map(hide, removed)))


def listed_items(extension: str, key: str, elements: list[Any]) -> list[ListedItem]:
    """Return the elements of a list as definitions; elements without a usable name are left out, as is the excess.

    Two different definitions under one name are both left out: the first might be the wrong one.
    """
    found: dict[str, ListedItem | None] = {}
    for element in elements[:MOST_ITEMS]:
        name = element.get(key) if isinstance(element, dict) else None
        if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME:
            continue
        try:
            written = canonical(element)
        except (ValueError, TypeError, RecursionError):
            continue
        if len(written) > _MOST_BYTES:
            continue
        full = item_pin_name(extension, name)
        item = ListedItem(pin_name=full, pin=sha256(written).hexdigest(), definition=element)
        before = found.setdefault(full, item)
        if before is not None and before.pin != item.pin:
            found[full] = None
    return [each for each in found.values() if each is not None]


def _findings(definition: Any) -> tuple[Finding, ...]:
    if definition is None:
        return ()
    return combine_findings(scan_definition(msgspec.to_builtins(definition), kind="item"))


def _marked(
    item: ListedItem,
    known: Pin | None,
    findings: tuple[Finding, ...],
    *,
    strict: bool,
    scanning: str,
    hide: Callable[[str], str],
) -> ListedItem:
    changed = known is not None and known.drift is not None and known.drift.pin == item.pin
    return msgspec.structs.replace(
        item,
        changed=tuple(hide(str(each)) for each in pin_changes(known)) if changed and known is not None else (),
        flagged=tuple(hide(str(each)) for each in findings if each.severity in ("ask", "hide")),
        hidden=(changed and strict) or (scanning == "hide" and worst_severity(findings) == "hide"),
    )

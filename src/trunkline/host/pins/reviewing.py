"""The review of a catalog: which items are served, and which need approval, by their pins and the scan.

The order is: the lock file, if there is one (only what is in it passes); the pins; the scan (hidden, or flagged so that
the policy asks). A definition that changed since it was accepted is served in its new form, and marked, so that the
policy asks before every use (``CatalogItem.changed``); for a server whose entry says ``"pins": "strict"`` it is
removed. Instructions that changed are always removed: they are read, not called, so there is no use to ask about.

What is removed is in the catalog's ``dropped``, with the reason and the command that accepts it; it cannot be found,
listed or called. Pure: the pins are passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from trunkline.host.catalog.catalog import Catalog, Dropped
from trunkline.host.catalog.items import KINDS, Item, Kind, Part
from trunkline.host.catalog.names import id_of
from trunkline.host.pins.locks import PinLock
from trunkline.host.pins.pin import canonical, is_pin
from trunkline.host.pins.records import PINNED, Key, Pin, PinKind, Seen, ServerPins, Sight, compared
from trunkline.host.pins.views import change_told, target_of
from trunkline.host.scan.scan import Finding, names_of_others, references_in, scan, scan_references, weigh, worst

__all__ = [
    "Quarantined",
    "Reviewed",
    "Scanned",
    "Scanning",
    "closed",
    "flagged_by",
    "instructions_pin",
    "review",
    "scan_tool_names",
    "sight_of",
]

#: What happens to findings: according to their severity, at most asked about, or nothing.
Scanning: TypeAlias = Literal["hide", "ask", "off"]
#: Results of earlier scans, by kind and pin: the definition itself, since one pin may have several orders; the
#: findings; and the words that may be names of tools.
Scanned: TypeAlias = dict[tuple[str, str], tuple[Any, tuple[Finding, ...], frozenset[str]]]

# Bytes of one server's definitions that are scanned at a time, which takes some seconds; the rest waits for the
# next catalog.
_MOST_LOOKED = 4 * 1024 * 1024
_METHODS: Mapping[PinKind, str] = MappingProxyType(
    {"tool": "tools/list", "prompt": "prompts/list", "template": "resources/templates/list"}
)
_NO_RECORDS: Mapping[str, ServerPins] = MappingProxyType({})
# The rule of the finding that ``combine_findings`` adds to several others.
_TOGETHER = "together"


class Quarantined(Struct, frozen=True):
    """An item that was removed from a catalog, and why."""

    server: str
    kind: str
    #: Its own name; empty for instructions.
    name: str
    #: ``changed`` since it was pinned, ``unlocked`` for what the lock file does not have, ``hidden`` by the scan.
    what: Literal["changed", "unlocked", "hidden"]
    reason: str
    findings: tuple[Finding, ...] = ()


class Reviewed(Struct, frozen=True, kw_only=True):
    """A catalog as it may be served, and what was found."""

    catalog: Catalog
    quarantined: tuple[Quarantined, ...] = ()
    #: The findings in items that are still served, by kind and id.
    findings: Mapping[tuple[str, str], tuple[Finding, ...]] = MappingProxyType({})
    #: The items that are flagged or changed, or that use the pin of the accepted definition, by kind and id.
    marked: Mapping[tuple[str, str], Item] = MappingProxyType({})
    #: How changed items differ and the command that accepts them, as a sentence, by kind and id.
    changed: Mapping[tuple[str, str], str] = MappingProxyType({})


def instructions_pin(text: str) -> str:
    """Return the pin of a server's instructions."""
    return sha256(canonical(text)).hexdigest()


def sight_of(part: Part, reach: tuple[str, str], *, hide: Callable[[str], str] = str) -> Sight:
    """Make a snapshot of a server from its part of the catalog and its identity.

    A name with a secret in it cannot be stored, so an item with such a name is not pinned.
    """
    items: dict[Key, Seen] = {
        (item.kind, item.name): Seen(item.pin, item.definition)
        for item in part.items
        if item.kind != "resource" and hide(item.name) == item.name
    }
    said = part.offering.instructions
    if said:
        items["instructions", ""] = Seen(instructions_pin(said), said)
    return Sight(
        server=part.server,
        key=reach[0],
        shown=hide(reach[1]),
        items=items,
        unlisted=frozenset(kind for kind, method in _METHODS.items() if method in part.offering.failures),
        aside=frozenset((each.kind, each.name) for each in (*part.dropped, *part.hidden)),
        revision=part.offering.revision,
        recalled=part.offering.recalled,
    )


def review(
    catalog: Catalog,
    records: Mapping[str, ServerPins] = _NO_RECORDS,
    *,
    lock: PinLock | None = None,
    lock_name: str = "the lock file",
    scanning: Scanning = "hide",
    scanned: Scanned | None = None,
    before: Reviewed | None = None,
    hide: Callable[[str], str] = str,
) -> Reviewed:
    """Remove what must not be served from a catalog, and mark what needs approval.

    ``records`` are the pins of each server, updated with this catalog; a server without any is not pinned.
    ``scanned`` caches findings, so that no definition is scanned twice. Items of ``before`` that are still marked the
    same are reused, and ``hide`` removes secrets from reasons.
    """
    found = {} if scanned is None else scanned
    reviewing = _Review(catalog, records, lock=lock, lock_name=lock_name, scanning=scanning, scanned=found, hide=hide)
    return reviewing.result({} if before is None else before.marked)


class _Review:
    """The review of one catalog."""

    def __init__(
        self,
        catalog: Catalog,
        records: Mapping[str, ServerPins],
        *,
        lock: PinLock | None,
        lock_name: str,
        scanning: Scanning,
        scanned: Scanned,
        hide: Callable[[str], str],
    ) -> None:
        self._catalog = catalog
        self._pins = {server: {pin.key: pin for pin in record.pins} for server, record in records.items()}
        self._lock = lock
        self._lock_name = lock_name
        self._scanning = scanning
        self._scanned = scanned
        self._hide = hide
        self._names: Mapping[str, frozenset[str]] = {} if scanning == "off" else scan_tool_names(catalog)
        self._findings: dict[tuple[str, str], tuple[Finding, ...]] = {}
        self._changed: dict[tuple[str, str], str] = {}
        self._looked: dict[str, int] = {}

    def result(self, before: Mapping[tuple[str, str], Item]) -> Reviewed:
        """Review all items, and build the catalog of what is left."""
        out: dict[tuple[str, str, str], Quarantined] = {}
        marked: dict[tuple[str, str], Item] = {}
        for item in self._items():
            why = self._withheld(item.server, item.kind, item.name, item.pin, item.definition)
            if why is not None:
                out[item.server, item.kind, item.name] = why
                continue
            after = self._marked(item)
            if after is not item:
                key = item.kind, item.id
                marked[key] = _unless_same(after, before.get(key))
        for server, said in self._catalog.instructions.items():
            why = self._withheld(server, "instructions", "", instructions_pin(said), said)
            if why is not None:
                out[server, "instructions", ""] = why
        catalog = _without(self._catalog, out, marked) if out or marked else self._catalog
        return Reviewed(
            catalog=catalog,
            quarantined=tuple(out.values()),
            findings=self._findings,
            marked=marked,
            changed=self._changed,
        )

    def _items(self) -> Iterator[Item]:
        for kind in KINDS:
            yield from self._catalog.of(kind).values()

    def _withheld(self, server: str, kind: str, name: str, pin: str, definition: Any) -> Quarantined | None:
        """Return why an item must not be served; None if it may be. The scan's findings are stored either way."""
        if kind in PINNED:
            unlocked = self._unlocked(server, kind, name, pin, definition)
            if unlocked is not None:
                return Quarantined(server, kind, name, "unlocked", unlocked)
            known = self._known(server, kind, name)
            if known is not None and known.drift is not None and self._hides_changes(server, kind):
                return Quarantined(server, kind, name, "changed", self._hide(change_told(server, known, hidden=True)))
        if self._scanning == "off" or self._is_vetted(server, kind, name, pin, definition):
            return None
        found = self._unvetted(server, kind, name, pin, definition)
        severity = worst(found)
        # Instructions are sent or not: there is no use to ask about.
        hidden = severity == "hide" or (severity == "ask" and kind == "instructions")
        if hidden and (self._scanning == "hide" or kind == "instructions"):
            said = "; ".join(f"{each.pointer}: {each.message}" for each in found if each.severity != "info")
            fix = f"run: trunkline pins diff {target_of(server, kind, name)}"
            reason = f"the scan found something in it ({self._hide(said)[:400]}); {fix}"
            return Quarantined(server, kind, name, "hidden", reason, found)
        if found:
            self._findings[kind, id_of(server, name)] = _capped(found) if severity == "hide" else found
        return None

    def _unlocked(self, server: str, kind: str, name: str, pin: str, definition: Any) -> str | None:
        if self._lock is None:
            return None
        wanted = self._lock.find(server, kind, name)
        if wanted is None:
            return f"it is not in {self._lock_name}"
        return None if is_pin(wanted.pin, pin, definition) else f"{self._lock_name} has another definition of it"

    # --- what changed ------------------------------------------------------------------------------------------------

    def _known(self, server: str, kind: str, name: str) -> Pin | None:
        kept: Any = self._pins.get(server, {})
        known: Pin | None = kept.get((kind, name))
        return known

    def _hides_changes(self, server: str, kind: str) -> bool:
        return kind == "instructions" or self._catalog.parts[server].settings.pins == "strict"

    def _marked(self, item: Item) -> Item:
        """Return an item with its marks for approval, and with the pin of the accepted definition."""
        flagged = tuple(map(self._hide, flagged_by(self._findings.get((item.kind, item.id), ()))))
        known = self._known(item.server, item.kind, item.name)
        changed: tuple[str, ...] = ()
        pin = item.pin
        if known is not None and known.drift is not None:
            changed = tuple(self._hide(str(change)) for change in compared(known))
            self._changed[item.kind, item.id] = self._hide(change_told(item.server, known, hidden=False))
        elif known is not None and pin not in known.standing:
            # It counts as the accepted definition, so grants for that one apply to it.
            pin = known.pin
        if not flagged and not changed and pin == item.pin:
            return item
        return replace(item, flagged=flagged, changed=changed, pin=pin)

    # --- what the scan finds -----------------------------------------------------------------------------------------

    def _is_vetted(self, server: str, kind: str, name: str, pin: str, definition: Any) -> bool:
        known = self._known(server, kind, name)
        locked = None if self._lock is None else self._lock.find(server, kind, name)
        here = known is not None and (known.vetted if known.pin == pin else known.standing.get(pin, False))
        return here or (locked is not None and locked.vetted and is_pin(locked.pin, pin, definition))

    def _unvetted(self, server: str, kind: str, name: str, pin: str, definition: Any) -> tuple[Finding, ...]:
        """Return the findings in a definition, without those that were accepted in another order of it."""
        found = self._found(server, kind, pin, definition)
        known = self._known(server, kind, name)
        if not found or known is None or known.drift is not None or not known.vetted or known.definition is None:
            return found
        accepted = {(each.rule, each.pointer) for each in self._found(server, kind, known.pin, known.definition)}
        left = [each for each in found if (each.rule, each.pointer) not in accepted and each.rule != _TOGETHER]
        return weigh(left)

    def _found(self, server: str, kind: str, pin: str, definition: Any) -> tuple[Finding, ...]:
        scanned = self._scanned.get((kind, pin))
        document = None
        if scanned is None or scanned[0] != definition:
            document = msgspec.to_builtins(definition)
            self._looked[server] = self._looked.get(server, 0) + len(msgspec.json.encode(document))
            if self._looked[server] > _MOST_LOOKED:
                return (Finding("too much", "size", "hide", "", "", "the server offers more text than can be scanned"),)
            scanned = self._scanned[kind, pin] = definition, scan(document, kind=kind), references_in(document)
        _, texts, words = scanned
        others = names_of_others(server, words, self._names)
        if not others:
            return weigh(texts) if texts else ()
        document = msgspec.to_builtins(definition) if document is None else document
        return weigh((*texts, *scan_references(document, words, others)))


def flagged_by(findings: tuple[Finding, ...]) -> tuple[str, ...]:
    """Return the findings that need approval, as texts."""
    return tuple(str(each) for each in findings if each.severity == "ask")


def _unless_same(item: Item, before: Item | None) -> Item:
    """Return the previous item if it has the same marks, so that a comparison finds no change."""
    if before is None or before.definition is not item.definition:
        return item
    now, then = ((each.wire, each.trusted, each.pin, each.flagged, each.changed) for each in (item, before))
    return before if now == then else item


def _capped(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    return tuple(replace(each, severity="ask") if each.severity == "hide" else each for each in findings)


def scan_tool_names(catalog: Catalog) -> dict[str, frozenset[str]]:
    """Return the names of all tools, each with the servers that have such a tool."""
    found: dict[str, frozenset[str]] = {}
    for item in catalog.tools.values():
        for name in (item.name, item.wire, item.id):
            found[name] = found.get(name, frozenset()) | {item.server}
    return found


def _without(
    catalog: Catalog, out: Mapping[tuple[str, str, str], Quarantined], marked: Mapping[tuple[str, str], Item]
) -> Catalog:
    """Return a catalog without the removed items, and with the marked ones replaced."""

    def kept(table: Mapping[str, Item]) -> Mapping[str, Item]:
        return MappingProxyType(
            {
                name: marked.get((item.kind, item.id), item)
                for name, item in table.items()
                if (item.server, item.kind, item.name) not in out
            }
        )

    drops = [Dropped(each.server, each.kind, each.name, each.reason) for each in out.values()]
    by_kind: dict[Kind, Mapping[str, Item]] = {kind: kept(catalog.of(kind)) for kind in KINDS}
    touched = {each.server for each in out.values()} | {item.server for item in marked.values()}
    return replace(
        catalog,
        tools=by_kind["tool"],
        prompts=by_kind["prompt"],
        resources=by_kind["resource"],
        templates=by_kind["template"],
        by_wire=MappingProxyType({kind: kept(table) for kind, table in catalog.by_wire.items()}),
        dropped=(*catalog.dropped, *drops),
        parts=MappingProxyType(
            {
                server: _part_without(part, out, marked, drops=drops) if server in touched else part
                for server, part in catalog.parts.items()
            }
        ),
    )


def _part_without(
    part: Part,
    out: Mapping[tuple[str, str, str], Quarantined],
    marked: Mapping[tuple[str, str], Item],
    *,
    drops: list[Dropped],
) -> Part:
    kept = {
        (item.kind, item.name): marked.get((item.kind, item.id), item)
        for item in part.items
        if (item.server, item.kind, item.name) not in out
    }
    silent = (part.server, "instructions", "") in out
    return replace(
        part,
        offering=replace(part.offering, instructions=None) if silent else part.offering,
        items=tuple(kept.values()),
        templates=tuple(
            (template, kept["template", item.name])
            for template, item in part.templates
            if ("template", item.name) in kept
        ),
        dropped=(*part.dropped, *(drop for drop in drops if drop.server == part.server)),
    )


def closed(catalog: Catalog, servers: Collection[str], reason: str) -> Catalog:
    """Return a catalog without the items of these servers that should be pinned."""
    out: dict[tuple[str, str, str], Quarantined] = {}
    kinds: tuple[Kind, ...] = ("tool", "prompt", "template")
    for kind in kinds:
        for item in catalog.of(kind).values():
            if item.server in servers:
                out[item.server, kind, item.name] = Quarantined(item.server, kind, item.name, "changed", reason)
    for server in catalog.instructions:
        if server in servers:
            out[server, "instructions", ""] = Quarantined(server, "instructions", "", "changed", reason)
    return _without(catalog, out, {}) if out else catalog

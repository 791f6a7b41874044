"""The review of a catalog: which items are served, and which need approval, by their pins and the scan.

The order is: the lock file, if there is one (only what is in it passes); the pins; the scan (hidden, or flagged so that
the policy asks). A definition that changed since it was accepted is served in its new form, and marked, so that the
policy asks before every use (``CatalogItem.changed``); for a server whose entry says ``"pins": "strict"`` it is
removed. Instructions that changed are always removed: they are read, not called, so there is no use to ask about.
The settings that a server declares for a forwarded extension are reviewed like a tool: if they changed, every method of
the extension needs approval.

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

from trunkline.host.integrity.pins.definitions import canonical, matches_pin, pin_without_page
from trunkline.host.integrity.pins.records import (
    PIN_KINDS,
    CurrentDefinition,
    Drift,
    Pin,
    PinKey,
    PinKind,
    ServerPins,
    ServerSnapshot,
    pin_changes,
)
from trunkline.host.integrity.pins.store import PinLock
from trunkline.host.integrity.pins.views import describe_change, pin_target
from trunkline.host.integrity.scan.scanner import (
    Finding,
    combine_findings,
    foreign_tool_names,
    scan_definition,
    scan_references,
    tool_references,
    worst_severity,
)
from trunkline.host.upstreams.catalog.catalog import Catalog, DroppedItem
from trunkline.host.upstreams.catalog.items import ITEM_KINDS, CatalogItem, ItemKind, ServerCatalog
from trunkline.host.upstreams.catalog.names import item_id
from trunkline.protocol.extension_definition import Extension
from trunkline.protocol.extensions import declared_extension

__all__ = [
    "CatalogReview",
    "Quarantined",
    "ReviewedExtension",
    "ScanCache",
    "ScanMode",
    "declared_settings",
    "flag_messages",
    "instructions_pin",
    "review_catalog",
    "settings_pin",
    "take_snapshot",
    "tool_name_owners",
    "withhold_servers",
]

#: What happens to findings: according to their severity, at most asked about, or nothing.
ScanMode: TypeAlias = Literal["hide", "ask", "off"]
#: Results of earlier scans, by kind and pin: the definition itself, since one pin may have several orders; the
#: findings; and the words that may be names of tools.
ScanCache: TypeAlias = dict[tuple[str, str], tuple[Any, tuple[Finding, ...], frozenset[str]]]

# Bytes of one server's definitions that are scanned at a time, which takes some seconds; the rest waits for the
# next catalog.
_MAX_SCANNED_BYTES = 4 * 1024 * 1024
_METHODS: Mapping[PinKind, str] = MappingProxyType(
    {"tool": "tools/list", "prompt": "prompts/list", "template": "resources/templates/list"}
)
_NO_RECORDS: Mapping[str, ServerPins] = MappingProxyType({})
_NO_EXTENSIONS: Mapping[str, Extension] = MappingProxyType({})
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


class ReviewedExtension(Struct, frozen=True, kw_only=True):
    """The settings of an extension at a server, or a definition that it listed, with the marks for approval."""

    pin: str
    definition: Any
    #: How it differs from the accepted one, one line per change.
    changed: tuple[str, ...] = ()
    #: The findings of the scan that need approval.
    flagged: tuple[str, ...] = ()


class CatalogReview(Struct, frozen=True, kw_only=True):
    """A catalog as it may be served, and what was found."""

    catalog: Catalog
    quarantined: tuple[Quarantined, ...] = ()
    #: The findings in items that are still served, by kind and id.
    findings: Mapping[tuple[str, str], tuple[Finding, ...]] = MappingProxyType({})
    #: The items that are flagged or changed, or that use the pin of the accepted definition, by kind and id.
    marked: Mapping[tuple[str, str], CatalogItem] = MappingProxyType({})
    #: How changed items differ and the command that accepts them, as a sentence, by kind and id.
    changed: Mapping[tuple[str, str], str] = MappingProxyType({})
    #: The forwarded extensions, by server and identifier.
    extensions: Mapping[tuple[str, str], ReviewedExtension] = MappingProxyType({})


def declared_settings(part: ServerCatalog, known: Mapping[str, Extension]) -> dict[str, Any]:
    """Return the settings of a server that are pinned, by extension: of those that a host may forward.

    These are the extensions that the entry of the server lists, and those that the host has as objects.
    """
    offered = part.offering.capabilities.get("extensions")
    found: dict[str, Any] = {}
    for id in offered if isinstance(offered, Mapping) else ():
        settings = declared_extension(part.offering.capabilities, id)
        wanted = known[id].pin_settings if id in known else id in part.settings.extensions
        if wanted and settings is not None:
            found[id] = dict(settings)
    return found


def settings_pin(settings: Mapping[str, Any]) -> str:
    """Return the pin of the settings of an extension."""
    return sha256(canonical(settings)).hexdigest()


def instructions_pin(text: str) -> str:
    """Return the pin of a server's instructions."""
    return sha256(canonical(text)).hexdigest()


def take_snapshot(
    part: ServerCatalog,
    reach: tuple[str, str],
    *,
    hide: Callable[[str], str] = str,
    extensions: Mapping[str, Extension] = _NO_EXTENSIONS,
) -> ServerSnapshot:
    """Make a snapshot of a server from its part of the catalog and its identity; ``extensions`` are the host's own.

    A name with a secret in it cannot be stored, so an item with such a name is not pinned.
    """
    items: dict[PinKey, CurrentDefinition] = {
        (item.kind, item.name): CurrentDefinition(item.pin, item.definition)
        for item in part.items
        if item.kind != "resource" and hide(item.name) == item.name
    }
    said = part.offering.instructions
    if said:
        items["instructions", ""] = CurrentDefinition(instructions_pin(said), said)
    for id, settings in declared_settings(part, extensions).items():
        if hide(id) == id:
            items["extension", id] = CurrentDefinition(settings_pin(settings), settings)
    failed: set[str] = {kind for kind, method in _METHODS.items() if method in part.offering.failures}
    return ServerSnapshot(
        server=part.server,
        key=reach[0],
        shown=hide(reach[1]),
        items=items,
        # The definitions of extensions are pinned when a method lists them.
        unlisted=frozenset(failed | {"item"}),
        aside=frozenset((each.kind, each.name) for each in (*part.dropped, *part.hidden)),
        revision=part.offering.revision,
        recalled=part.offering.recalled,
    )


def review_catalog(
    catalog: Catalog,
    records: Mapping[str, ServerPins] = _NO_RECORDS,
    *,
    lock: PinLock | None = None,
    lock_name: str = "the lock file",
    scanning: ScanMode = "hide",
    scanned: ScanCache | None = None,
    before: CatalogReview | None = None,
    hide: Callable[[str], str] = str,
    extensions: Mapping[str, Extension] = _NO_EXTENSIONS,
) -> CatalogReview:
    """Remove what must not be served from a catalog, and mark what needs approval.

    ``records`` are the pins of each server, updated with this catalog; a server without any is not pinned.
    ``scanned`` caches findings, so that no definition is scanned twice. Items of ``before`` that are still marked the
    same are reused, and ``hide`` removes secrets from reasons.
    """
    found = {} if scanned is None else scanned
    reviewing = _Review(
        catalog,
        records,
        lock=lock,
        lock_name=lock_name,
        scanning=scanning,
        scanned=found,
        hide=hide,
        extensions=extensions,
    )
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
        scanning: ScanMode,
        scanned: ScanCache,
        hide: Callable[[str], str],
        extensions: Mapping[str, Extension],
    ) -> None:
        self._extensions = extensions
        self._catalog = catalog
        self._pins = {server: {pin.key: pin for pin in record.pins} for server, record in records.items()}
        self._lock = lock
        self._lock_name = lock_name
        self._scanning = scanning
        self._scanned = scanned
        self._hide = hide
        self._names: Mapping[str, frozenset[str]] = {} if scanning == "off" else tool_name_owners(catalog)
        self._findings: dict[tuple[str, str], tuple[Finding, ...]] = {}
        self._changed: dict[tuple[str, str], str] = {}
        self._looked: dict[str, int] = {}

    def result(self, before: Mapping[tuple[str, str], CatalogItem]) -> CatalogReview:
        """Review all items, and build the catalog of what is left."""
        out: dict[tuple[str, str, str], Quarantined] = {}
        marked: dict[tuple[str, str], CatalogItem] = {}
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
        extensions = self._reviewed_extensions(out)
        catalog = _without(self._catalog, out, marked) if out or marked else self._catalog
        return CatalogReview(
            catalog=catalog,
            quarantined=tuple(out.values()),
            findings=self._findings,
            marked=marked,
            changed=self._changed,
            extensions=extensions,
        )

    def _reviewed_extensions(
        self, out: dict[tuple[str, str, str], Quarantined]
    ) -> dict[tuple[str, str], ReviewedExtension]:
        """Review the settings of the forwarded extensions; those that must not be forwarded are added to ``out``."""
        found: dict[tuple[str, str], ReviewedExtension] = {}
        for server, part in self._catalog.parts.items():
            for id, settings in declared_settings(part, self._extensions).items():
                pin = settings_pin(settings)
                why = self._withheld(server, "extension", id, pin, settings)
                if why is not None:
                    out[server, "extension", id] = why
                    continue
                flagged = flag_messages(self._findings.get(("extension", item_id(server, id)), ()))
                known = self._known(server, "extension", id)
                changed: tuple[str, ...] = ()
                if known is not None and known.drift is not None:
                    changed = tuple(self._hide(str(change)) for change in pin_changes(known))
                    told = self._hide(describe_change(server, known, hidden=False))
                    self._changed["extension", item_id(server, id)] = told
                found[server, id] = ReviewedExtension(
                    pin=pin, definition=settings, changed=changed, flagged=tuple(map(self._hide, flagged))
                )
        return found

    def _items(self) -> Iterator[CatalogItem]:
        for kind in ITEM_KINDS:
            yield from self._catalog.of(kind).values()

    def _withheld(self, server: str, kind: str, name: str, pin: str, definition: Any) -> Quarantined | None:
        """Return why an item must not be served; None if it may be. The scan's findings are stored either way."""
        if kind in PIN_KINDS:
            unlocked = self._unlocked(server, kind, name, pin, definition)
            if unlocked is not None:
                return Quarantined(server, kind, name, "unlocked", unlocked)
            known = self._known(server, kind, name)
            if known is not None and known.drift is not None and self._hides_change(server, known, known.drift):
                return Quarantined(
                    server, kind, name, "changed", self._hide(describe_change(server, known, hidden=True))
                )
        if self._scanning == "off" or self._is_vetted(server, kind, name, pin, definition):
            return None
        found = self._unvetted(server, kind, name, pin, definition)
        severity = worst_severity(found)
        # Instructions are sent or not: there is no use to ask about.
        hidden = severity == "hide" or (severity == "ask" and kind == "instructions")
        if hidden and (self._scanning == "hide" or kind == "instructions"):
            said = "; ".join(f"{each.pointer}: {each.message}" for each in found if each.severity != "info")
            fix = f"run: trunkline pins diff {pin_target(server, kind, name)}"
            reason = f"the scan found something in it ({self._hide(said)[:400]}); {fix}"
            return Quarantined(server, kind, name, "hidden", reason, found)
        if found:
            self._findings[kind, item_id(server, name)] = _capped(found) if severity == "hide" else found
        return None

    def _unlocked(self, server: str, kind: str, name: str, pin: str, definition: Any) -> str | None:
        if self._lock is None:
            return None
        wanted = self._lock.find(server, kind, name)
        if wanted is None:
            return f"it is not in {self._lock_name}"
        # The lock file may come from a host that shows no pages.
        locked = matches_pin(wanted.pin, pin, definition) or wanted.pin == pin_without_page(definition)
        return None if locked else f"{self._lock_name} has another definition of it"

    # --- what changed ------------------------------------------------------------------------------------------------

    def _known(self, server: str, kind: str, name: str) -> Pin | None:
        kept: Any = self._pins.get(server, {})
        known: Pin | None = kept.get((kind, name))
        return known

    def _hides_change(self, server: str, known: Pin, drift: Drift) -> bool:
        strict = self._catalog.parts[server].settings.pins == "strict"
        return strict or drift.blocked or known.kind == "instructions"

    def _marked(self, item: CatalogItem) -> CatalogItem:
        """Return an item with its marks for approval, and with the pin of the accepted definition."""
        flagged = tuple(map(self._hide, flag_messages(self._findings.get((item.kind, item.id), ()))))
        known = self._known(item.server, item.kind, item.name)
        changed: tuple[str, ...] = ()
        pin = item.pin
        if known is not None and known.drift is not None:
            changed = tuple(self._hide(str(change)) for change in pin_changes(known))
            self._changed[item.kind, item.id] = self._hide(describe_change(item.server, known, hidden=False))
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
        return here or (locked is not None and locked.vetted and matches_pin(locked.pin, pin, definition))

    def _unvetted(self, server: str, kind: str, name: str, pin: str, definition: Any) -> tuple[Finding, ...]:
        """Return the findings in a definition, without those that were accepted in another order of it."""
        found = self._found(server, kind, pin, definition)
        known = self._known(server, kind, name)
        if not found or known is None or known.drift is not None or not known.vetted or known.definition is None:
            return found
        accepted = {(each.rule, each.pointer) for each in self._found(server, kind, known.pin, known.definition)}
        left = [each for each in found if (each.rule, each.pointer) not in accepted and each.rule != _TOGETHER]
        return combine_findings(left)

    def _found(self, server: str, kind: str, pin: str, definition: Any) -> tuple[Finding, ...]:
        scanned = self._scanned.get((kind, pin))
        document = None
        if scanned is None or scanned[0] != definition:
            document = msgspec.to_builtins(definition)
            self._looked[server] = self._looked.get(server, 0) + len(msgspec.json.encode(document))
            if self._looked[server] > _MAX_SCANNED_BYTES:
                return (Finding("too much", "size", "hide", "", "", "the server offers more text than can be scanned"),)
            scanned = self._scanned[kind, pin] = (
                definition,
                scan_definition(document, kind=kind),
                tool_references(document),
            )
        _, texts, words = scanned
        others = foreign_tool_names(server, words, self._names)
        if not others:
            return combine_findings(texts) if texts else ()
        document = msgspec.to_builtins(definition) if document is None else document
        return combine_findings((*texts, *scan_references(document, words, others)))


def flag_messages(findings: tuple[Finding, ...]) -> tuple[str, ...]:
    """Return the findings that need approval, as texts."""
    return tuple(str(each) for each in findings if each.severity == "ask")


def _unless_same(item: CatalogItem, before: CatalogItem | None) -> CatalogItem:
    """Return the previous item if it has the same marks, so that a comparison finds no change."""
    if before is None or before.definition is not item.definition:
        return item
    now, then = ((each.wire, each.trusted, each.pin, each.flagged, each.changed) for each in (item, before))
    return before if now == then else item


def _capped(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    return tuple(replace(each, severity="ask") if each.severity == "hide" else each for each in findings)


def tool_name_owners(catalog: Catalog) -> dict[str, frozenset[str]]:
    """Return the names of all tools, each with the servers that have such a tool."""
    found: dict[str, frozenset[str]] = {}
    for item in catalog.tools.values():
        for name in (item.name, item.wire, item.id):
            found[name] = found.get(name, frozenset()) | {item.server}
    return found


def _without(
    catalog: Catalog, out: Mapping[tuple[str, str, str], Quarantined], marked: Mapping[tuple[str, str], CatalogItem]
) -> Catalog:
    """Return a catalog without the removed items, and with the marked ones replaced."""

    def kept(table: Mapping[str, CatalogItem]) -> Mapping[str, CatalogItem]:
        return MappingProxyType(
            {
                name: marked.get((item.kind, item.id), item)
                for name, item in table.items()
                if (item.server, item.kind, item.name) not in out
            }
        )

    drops = [DroppedItem(each.server, each.kind, each.name, each.reason) for each in out.values()]
    by_kind: dict[ItemKind, Mapping[str, CatalogItem]] = {kind: kept(catalog.of(kind)) for kind in ITEM_KINDS}
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
    part: ServerCatalog,
    out: Mapping[tuple[str, str, str], Quarantined],
    marked: Mapping[tuple[str, str], CatalogItem],
    *,
    drops: list[DroppedItem],
) -> ServerCatalog:
    kept = {
        (item.kind, item.name): marked.get((item.kind, item.id), item)
        for item in part.items
        if (item.server, item.kind, item.name) not in out
    }
    offering = part.offering
    if (part.server, "instructions", "") in out:
        offering = replace(offering, instructions=None)
    unused = {name for server, kind, name in out if server == part.server and kind == "extension"}
    if unused:
        declared = {id: each for id, each in offering.capabilities["extensions"].items() if id not in unused}
        offering = replace(offering, capabilities={**offering.capabilities, "extensions": declared})
    return replace(
        part,
        offering=offering,
        items=tuple(kept.values()),
        templates=tuple(
            (template, kept["template", item.name])
            for template, item in part.templates
            if ("template", item.name) in kept
        ),
        dropped=(*part.dropped, *(drop for drop in drops if drop.server == part.server)),
    )


def withhold_servers(
    catalog: Catalog,
    servers: Collection[str],
    reason: str,
    extensions: Mapping[str, Extension] = _NO_EXTENSIONS,
) -> Catalog:
    """Return a catalog without what should be pinned of these servers."""
    out: dict[tuple[str, str, str], Quarantined] = {}
    kinds: tuple[ItemKind, ...] = ("tool", "prompt", "template")
    for kind in kinds:
        for item in catalog.of(kind).values():
            if item.server in servers:
                out[item.server, kind, item.name] = Quarantined(item.server, kind, item.name, "changed", reason)
    for server in catalog.instructions:
        if server in servers:
            out[server, "instructions", ""] = Quarantined(server, "instructions", "", "changed", reason)
    for server, part in catalog.parts.items():
        for id in declared_settings(part, extensions) if server in servers else ():
            out[server, "extension", id] = Quarantined(server, "extension", id, "changed", reason)
    return _without(catalog, out, {}) if out else catalog

"""Reviews each catalog of a host before it is served, and emits events for what it notices.

It keeps the state that a review needs from one catalog to the next: the pin store, the lock file, and cached scans. If
pins cannot be read or written, nothing that should be pinned is served.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from trunkline.errors import ConfigError
from trunkline.host.config.model import ServerEntry
from trunkline.host.events import DefinitionInspected, EventBus
from trunkline.host.integrity.pins.catalog_review import (
    CatalogReview,
    ReviewedExtension,
    ScanCache,
    ScanMode,
    review_catalog,
    take_snapshot,
    withhold_servers,
)
from trunkline.host.integrity.pins.extension_items import (
    MOST_ITEMS,
    ItemReview,
    ListedItem,
    item_pin_name,
    listed_items,
)
from trunkline.host.integrity.pins.records import PIN_KINDS, ServerPins, ServerSnapshot
from trunkline.host.integrity.pins.store import ObservedPins, PinLock, PinStore, endpoint_identity
from trunkline.host.upstreams.catalog.catalog import Catalog
from trunkline.host.upstreams.catalog.items import CatalogItem
from trunkline.host.upstreams.catalog.names import item_id
from trunkline.protocol.extension_definition import Extension, ExtensionMethod

__all__ = ["Inspector"]

log = logging.getLogger("trunkline.host")

_MAX_CACHED_SCANS = 50_000  # Five catalogs of the largest size (10,000 items).
_NO_RECORDS: Mapping[str, ServerPins] = MappingProxyType({})


class Inspector:
    """Reviews each catalog of a host; passed as ``HostCore(inspector=...)``."""

    def __init__(
        self,
        store: PinStore | None,
        *,
        entry_of: Callable[[str], ServerEntry | None],
        events: EventBus | None = None,
        lock: PinLock | None = None,
        lock_name: str = "the lock file",
        scanning: ScanMode = "hide",
        in_process: bool = False,
        hide: Callable[[str], str] = str,
    ) -> None:
        """Use this pin store, or None for no pins; ``entry_of`` returns the entry of a server.

        ``hide`` removes secrets from what is stored and reported.

        Servers that a program passes as objects are its own code, and are pinned only if ``in_process`` is True.
        """
        #: The pins; None if nothing is pinned.
        self.store = store
        self._entry_of = entry_of
        self._events = events
        self._lock = lock
        self._lock_name = lock_name
        #: The treatment of definitions with findings of the scan.
        self.scanning: ScanMode = scanning
        self._in_process = in_process
        self._hide = hide
        self._scanned: ScanCache = {}
        self._reached: dict[str, tuple[ServerEntry, tuple[str, str]]] = {}
        self._reported: set[DefinitionInspected] = set()
        #: The review of the last catalog.
        self.last: CatalogReview | None = None
        #: The host's own extensions, which define what of them is pinned.
        self.extensions: Mapping[str, Extension] = {}
        #: Why nothing is served that should be pinned; None if there is no problem.
        self.problem: str | None = None

    @property
    def outdated(self) -> bool:
        """Whether a review might have another result now, because a change was accepted in the meantime."""
        if self.last is None or self.store is None:
            return False
        return self.problem is not None or self.store.outdated

    def __call__(self, catalog: Catalog) -> Catalog:
        """Review a catalog, and emit events for what is noticed."""
        if len(self._scanned) > _MAX_CACHED_SCANS:
            self._scanned.clear()
        try:
            observed = self._observe(catalog)
            self.problem = None
        except ConfigError as error:
            self._closed(str(error))
            self.last = CatalogReview(catalog=self._withhold(catalog, str(error)))
            return self.last.catalog
        self.last = review_catalog(
            catalog,
            observed.records,
            lock=self._lock,
            lock_name=self._lock_name,
            scanning=self.scanning,
            scanned=self._scanned,
            before=self.last,
            hide=self._hide,
            extensions=self.extensions,
        )
        self._tell(observed, self.last)
        return self.last.catalog

    def _observe(self, catalog: Catalog) -> ObservedPins:
        if self.store is None:
            return ObservedPins(_NO_RECORDS)
        entries = self._pinned(catalog)
        snapshots = [
            take_snapshot(catalog.parts[server], self._reach(entry), hide=self._hide, extensions=self.extensions)
            for server, entry in entries.items()
        ]
        return self.store.observe(snapshots, lock=self._lock, hide=self._hide)

    def _withhold(self, catalog: Catalog, reason: str) -> Catalog:
        return withhold_servers(catalog, self._pinned(catalog), reason, self.extensions)

    # --- extensions --------------------------------------------------------------------------------------------------

    def add_extensions(self, extensions: Iterable[Extension]) -> None:
        """Add extensions that define what of them is pinned."""
        self.extensions = {**self.extensions, **{each.id: each for each in extensions}}

    def extension(self, server: str, id: str) -> ReviewedExtension | None:
        """Return the settings of an extension at a server, with the marks for approval; None if it has none."""
        return None if self.last is None else self.last.extensions.get((server, id))

    def review_list(self, server: str, extension: str, method: ExtensionMethod, elements: list[Any]) -> ItemReview:
        """Pin the definitions that a method of an extension listed; return those that are served.

        Raises:
            ConfigError: the pins cannot be read or written, so nothing can be vouched for.
        """
        items = listed_items(extension, method.key, elements)
        record = self._observe_items(server, items)
        lock = None if self._lock is None else self._lock.servers.get(server, {}).get("item", {})
        return ItemReview.of(
            items,
            record,
            lock=lock,
            scanning=self.scanning,
            strict=self._is_strict(server),
            hide=self._hide,
        )

    def listed_item(self, server: str, extension: str, name: str) -> ListedItem | None:
        """Return a definition that a method of an extension listed before, with its marks; None if it is not known.

        Raises:
            ConfigError: the pins cannot be read.
        """
        entry = self._pinned_entry(server)
        if entry is None or self.store is None:
            return None
        record = self.store.find(server, self._reach(entry)[0])
        known = None if record is None else record.find("item", item_pin_name(extension, name))
        if known is None:
            return None
        return ListedItem.of_pin(known, strict=self._is_strict(server), scanning=self.scanning, hide=self._hide)

    def _observe_items(self, server: str, items: list[ListedItem]) -> ServerPins | None:
        entry = self._pinned_entry(server)
        if entry is None or self.store is None:
            return None
        key, shown = self._reach(entry)
        record = self.store.find(server, key)
        known = {pin.name for pin in (() if record is None else record.pins) if pin.kind == "item"}
        # A list that never ends must not fill the file.
        for each in items:
            if len(known) < MOST_ITEMS and self._hide(each.pin_name) == each.pin_name:
                known.add(each.pin_name)
        snapshot = ServerSnapshot(
            server=server,
            key=key,
            shown=self._hide(shown),
            items={("item", each.pin_name): each.current for each in items if each.pin_name in known},
            unlisted=frozenset(PIN_KINDS),
        )
        return self.store.observe((snapshot,), lock=self._lock, hide=self._hide).records[server]

    def _pinned_entry(self, server: str) -> ServerEntry | None:
        """Return the entry of a server whose definitions are pinned; None if they are not."""
        entry = self._entry_of(server)
        own = entry is not None and (entry.target is None or self._in_process)
        return entry if own and entry is not None and entry.settings.pins != "off" else None

    def _is_strict(self, server: str) -> bool:
        entry = self._entry_of(server)
        return entry is not None and entry.settings.pins == "strict"

    def _reach(self, entry: ServerEntry) -> tuple[str, str]:
        """Return the identity of a server; it is computed once per entry, since that looks for files."""
        known = self._reached.get(entry.name)
        if known is None or known[0] is not entry:
            known = self._reached[entry.name] = entry, endpoint_identity(entry)
        return known[1]

    def _closed(self, problem: str) -> None:
        """Report, once, that nothing is served that should be pinned."""
        if problem != self.problem:
            log.error("%s", problem)
            if self._events is not None:
                self._events.publish(DefinitionInspected("", "pins", "", "closed", problem))
        self.problem = problem

    def _pinned(self, catalog: Catalog) -> dict[str, ServerEntry]:
        """Return the entries of the servers that are pinned."""
        entries = (
            (server, self._entry_of(server)) for server, part in catalog.parts.items() if part.settings.pins != "off"
        )
        return {
            server: entry
            for server, entry in entries
            if entry is not None and (entry.target is None or self._in_process)
        }

    def _tell(self, observed: ObservedPins, reviewed: CatalogReview) -> None:
        if self._events is None:
            return
        for notice in observed.notices:
            before = f", which was called {notice.before}" if notice.before else ""
            event = DefinitionInspected(
                notice.server, notice.kind, notice.name, notice.what, f"it is {notice.what}{before}"
            )
            if notice.what != "changed":
                self._events.publish(event)
        # The rest lasts from one catalog to the next, and is reported once.
        for event in self.lasting:
            if event not in self._reported:
                self._events.publish(event)
        self._reported = set(self.lasting)

    @property
    def lasting(self) -> tuple[DefinitionInspected, ...]:
        """Events for the definitions of the last catalog that changed, were flagged or were removed from it."""
        if self.last is None:
            return ()
        out = [
            DefinitionInspected(each.server, each.kind, self._hide(each.name), each.what, each.reason)
            for each in self.last.quarantined
        ]
        marked = self.last.marked.values()
        changed = [
            self._inspected(item, "changed", self.last.changed[item.kind, item.id]) for item in marked if item.changed
        ]
        flagged = [self._inspected(item, "flagged", "; ".join(item.flagged)) for item in marked if item.flagged]
        settings = [
            DefinitionInspected(server, "extension", id, what, reason)
            for (server, id), each in self.last.extensions.items()
            for what, reason in (
                ("changed", self.last.changed.get(("extension", item_id(server, id)), "")),
                ("flagged", "; ".join(each.flagged)),
            )
            if reason
        ]
        return *out, *changed, *flagged, *settings

    def _inspected(self, item: CatalogItem, what: str, reason: str) -> DefinitionInspected:
        return DefinitionInspected(item.server, item.kind, self._hide(item.name), what, reason)

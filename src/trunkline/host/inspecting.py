"""Looks at a catalog before anybody sees it: what changed since it was pinned is taken out, what the scan finds too.

The order is: the lock file, if one was named (only what is in it passes); the pins (what drifted is quarantined); the
scan (hidden, or flagged so that the policy asks). What is taken out stands in the catalog's ``dropped`` with the reason
and the command that shows more; it cannot be found, listed or called. ``review`` does all of that as a pure function;
``Inspector`` keeps what it needs from one catalog to the next: the book, and what was scanned already.

If pins cannot be read or written, nothing that should be pinned is served.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from trunkline.errors import ConfigError
from trunkline.host.catalog import Catalog, Dropped
from trunkline.host.catalog_items import KINDS, Item, Kind, Part
from trunkline.host.entries import ServerEntry
from trunkline.host.events import Events, Inspected
from trunkline.host.names import id_of
from trunkline.host.pin_book import Observed, PinBook, reach_of
from trunkline.host.pin_locks import PinLock
from trunkline.host.pin_records import PINNED, Key, PinKind, Seen, ServerPins, Sight, compared
from trunkline.host.pins import canonical
from trunkline.host.scan import Finding, references_in, scan, scan_references, weigh, worst

__all__ = ["Inspector", "Quarantined", "Reviewed", "Scanned", "Scanning", "instructions_pin", "review", "sight_of"]

#: What is done about findings: as bad as they are, at most asked about, or nothing.
Scanning: TypeAlias = Literal["hide", "ask", "off"]
#: What was found in a definition before, by kind and pin: the findings, and the words that may be names of tools.
Scanned: TypeAlias = dict[tuple[str, str], tuple[tuple[Finding, ...], frozenset[str]]]

_MOST_SCANNED = 50_000
_MOST_TOLD = 20_000
_METHODS: Mapping[PinKind, str] = MappingProxyType(
    {"tool": "tools/list", "prompt": "prompts/list", "template": "resources/templates/list"}
)
_NO_RECORDS: Mapping[str, ServerPins] = MappingProxyType({})


class Quarantined(Struct, frozen=True):
    """Something that was taken out of a catalog, and why."""

    server: str
    kind: str
    #: Its own name; empty for instructions.
    name: str
    #: ``changed`` since it was pinned, ``unlocked`` for what the lock file does not have, ``hidden`` by the scan.
    what: Literal["changed", "unlocked", "hidden"]
    reason: str
    findings: tuple[Finding, ...] = ()


class Reviewed(Struct, frozen=True, kw_only=True):
    """A catalog as it may be seen, and what was found."""

    catalog: Catalog
    quarantined: tuple[Quarantined, ...] = ()
    #: By kind and id, for what is still there.
    findings: Mapping[tuple[str, str], tuple[Finding, ...]] = MappingProxyType({})


def instructions_pin(text: str) -> str:
    """Give the pin of a server's instructions."""
    from hashlib import sha256

    return sha256(canonical(text)).hexdigest()


def sight_of(part: Part, reach: tuple[str, str]) -> Sight:
    """Make a look at a server of its part of the catalog and of how it is reached."""
    items: dict[Key, Seen] = {
        (item.kind, item.name): Seen(item.pin, item.definition) for item in part.items if item.kind != "resource"
    }
    said = part.offering.instructions
    if said:
        items["instructions", ""] = Seen(instructions_pin(said), said)
    return Sight(
        server=part.server,
        key=reach[0],
        shown=reach[1],
        items=items,
        unlisted=frozenset(kind for kind, method in _METHODS.items() if method in part.offering.failures),
        aside=frozenset((each.kind, each.name) for each in (*part.dropped, *part.hidden)),
    )


def review(
    catalog: Catalog,
    records: Mapping[str, ServerPins] = _NO_RECORDS,
    *,
    lock: PinLock | None = None,
    lock_name: str = "the lock file",
    scanning: Scanning = "hide",
    scanned: Scanned | None = None,
) -> Reviewed:
    """Take out of a catalog what should not be seen, and flag what should be asked about.

    ``records`` are what is pinned of each server; one that has none is not held to anything. ``scanned`` is where
    findings are looked up, and put; it saves looking through the same definition again.
    """
    return _Review(catalog, records, lock, lock_name, scanning, {} if scanned is None else scanned).result()


class _Review:
    """The review of one catalog."""

    def __init__(
        self,
        catalog: Catalog,
        records: Mapping[str, ServerPins],
        lock: PinLock | None,
        lock_name: str,
        scanning: Scanning,
        scanned: Scanned,
    ) -> None:
        self._catalog = catalog
        self._pins = {server: {pin.key: pin for pin in record.pins} for server, record in records.items()}
        self._lock = lock
        self._lock_name = lock_name
        self._scanning = scanning
        self._scanned = scanned
        self._names: Mapping[str, frozenset[str]] = {} if scanning == "off" else _tool_names(catalog)
        self._findings: dict[tuple[str, str], tuple[Finding, ...]] = {}

    def result(self) -> Reviewed:
        """Judge everything, and make the catalog of what is left."""
        out: dict[tuple[str, str, str], Quarantined] = {}
        flagged: dict[tuple[str, str], Item] = {}
        for item in self._items():
            why = self._withheld(item.server, item.kind, item.name, item.pin, item.definition)
            if why is not None:
                out[item.server, item.kind, item.name] = why
            elif worst(found := self._findings.get((item.kind, item.id), ())) == "ask":
                texts = tuple(str(each) for each in found if each.severity == "ask")
                flagged[item.kind, item.id] = replace(item, flagged=texts)
        for server, said in self._catalog.instructions.items():
            why = self._withheld(server, "instructions", "", instructions_pin(said), said)
            if why is not None:
                out[server, "instructions", ""] = why
        catalog = _without(self._catalog, out, flagged) if out or flagged else self._catalog
        return Reviewed(catalog=catalog, quarantined=tuple(out.values()), findings=self._findings)

    def _items(self) -> Iterator[Item]:
        for kind in KINDS:
            yield from self._catalog.of(kind).values()

    def _withheld(self, server: str, kind: str, name: str, pin: str, definition: Any) -> Quarantined | None:
        """Say why something is not to be seen; None if it is. What the scan found is noted either way."""
        if kind in PINNED:
            unlocked = self._unlocked(server, kind, name, pin)
            if unlocked is not None:
                return Quarantined(server, kind, name, "unlocked", unlocked)
            drifted = self._drifted(server, kind, name, pin)
            if drifted is not None:
                return Quarantined(server, kind, name, "changed", drifted)
        if self._scanning == "off" or self._is_vetted(server, kind, name, pin):
            return None
        found = self._found(server, kind, name, pin, definition)
        severity = worst(found)
        # Instructions are given or not: there is nothing that one could be asked before.
        hidden = severity == "hide" or (severity == "ask" and kind == "instructions")
        if hidden and (self._scanning == "hide" or kind == "instructions"):
            said = "; ".join(f"{each.pointer}: {each.message}" for each in found if each.severity != "info")
            fix = f"run: trunkline pins diff {_target(server, kind, name)}"
            return Quarantined(
                server, kind, name, "hidden", f"the scan found something in it ({said[:400]}); {fix}", found
            )
        if found:
            self._findings[kind, id_of(server, name)] = _capped(found) if severity == "hide" else found
        return None

    def _unlocked(self, server: str, kind: str, name: str, pin: str) -> str | None:
        if self._lock is None:
            return None
        wanted = self._lock.find(server, kind, name)
        if wanted is None:
            return f"it is not in {self._lock_name}"
        return None if wanted.pin == pin else f"{self._lock_name} has another definition of it"

    def _drifted(self, server: str, kind: str, name: str, pin: str) -> str | None:
        kept: Any = self._pins.get(server, {})
        known = kept.get((kind, name))
        if known is None or known.pin == pin:
            return None
        places = ", ".join(dict.fromkeys(change.pointer or "all of it" for change in compared(known)[:8]))
        fix = f"run: trunkline pins diff {_target(server, kind, name)}"
        return f"it changed since it was pinned ({places or 'its pin is another'}); {fix}"

    def _is_vetted(self, server: str, kind: str, name: str, pin: str) -> bool:
        kept: Any = self._pins.get(server, {})
        known = kept.get((kind, name))
        locked = None if self._lock is None else self._lock.find(server, kind, name)
        here = known is not None and known.pin == pin and known.vetted
        return here or (locked is not None and locked.pin == pin and locked.vetted)

    def _found(self, server: str, kind: str, name: str, pin: str, definition: Any) -> tuple[Finding, ...]:
        known = self._scanned.get((kind, pin))
        document = None
        if known is None:
            document = msgspec.to_builtins(definition)
            known = self._scanned[kind, pin] = scan(document, kind=kind), references_in(document)
        texts, words = known
        others = {name: self._names[name] for name in words & self._names.keys() if server not in self._names[name]}
        if not others:
            return weigh(texts) if texts else ()
        document = msgspec.to_builtins(definition) if document is None else document
        return weigh((*texts, *scan_references(document, words, others)))


def _capped(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    return tuple(replace(each, severity="ask") if each.severity == "hide" else each for each in findings)


def _target(server: str, kind: str, name: str) -> str:
    return shlex.quote(server if kind == "instructions" else id_of(server, name))


def _tool_names(catalog: Catalog) -> dict[str, frozenset[str]]:
    """Give what tools are called, each name with the servers that have such a tool."""
    found: dict[str, frozenset[str]] = {}
    for item in catalog.tools.values():
        for name in (item.name, item.wire, item.id):
            found[name] = found.get(name, frozenset()) | {item.server}
    return found


def _without(
    catalog: Catalog, out: Mapping[tuple[str, str, str], Quarantined], flagged: Mapping[tuple[str, str], Item]
) -> Catalog:
    """Make a catalog without some of another's items, and with flags on others."""

    def kept(table: Mapping[str, Item]) -> Mapping[str, Item]:
        return MappingProxyType(
            {
                name: flagged.get((item.kind, item.id), item)
                for name, item in table.items()
                if (item.server, item.kind, item.name) not in out
            }
        )

    drops = [Dropped(each.server, each.kind, each.name, each.reason) for each in out.values()]
    by_kind: dict[Kind, Mapping[str, Item]] = {kind: kept(catalog.of(kind)) for kind in KINDS}
    touched = {each.server for each in out.values()}
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
                server: _part_without(part, out, drops) if server in touched else part
                for server, part in catalog.parts.items()
            }
        ),
    )


def _part_without(part: Part, out: Mapping[tuple[str, str, str], Quarantined], drops: list[Dropped]) -> Part:
    silent = (part.server, "instructions", "") in out
    return replace(
        part,
        offering=replace(part.offering, instructions=None) if silent else part.offering,
        items=tuple(item for item in part.items if (item.server, item.kind, item.name) not in out),
        templates=tuple(pair for pair in part.templates if (part.server, "template", pair[1].name) not in out),
        dropped=(*part.dropped, *(drop for drop in drops if drop.server == part.server)),
    )


class Inspector:
    """Reviews each catalog of a host: give it as ``HostCore(inspector=...)``."""

    def __init__(
        self,
        book: PinBook | None,
        *,
        entry_of: Callable[[str], ServerEntry | None],
        events: Events | None = None,
        lock: PinLock | None = None,
        lock_name: str = "the lock file",
        scanning: Scanning = "hide",
        in_process: bool = False,
    ) -> None:
        """Take the book of pins, or None to hold nobody to any, and what finds a server's entry.

        Servers that a program gives as objects are its own code, and are held to pins only if ``in_process`` says so.
        """
        self._book = book
        self._entry_of = entry_of
        self._events = events
        self._lock = lock
        self._lock_name = lock_name
        self._scanning: Scanning = scanning
        self._in_process = in_process
        self._scanned: Scanned = {}
        self._told: set[Inspected] = set()
        #: What came of the last catalog.
        self.last: Reviewed | None = None
        #: Why nothing is served that should be pinned; None if all is well.
        self.problem: str | None = None

    @property
    def outdated(self) -> bool:
        """Tell whether a catalog would be reviewed otherwise now: somebody accepted something in the meantime."""
        return self.last is not None and self._book is not None and self._book.outdated

    def __call__(self, catalog: Catalog) -> Catalog:
        """Review a catalog; what is noticed is told as events."""
        if len(self._scanned) > _MOST_SCANNED:
            self._scanned.clear()
        try:
            observed = self._observe(catalog)
            self.problem = None
        except ConfigError as error:
            self.problem = str(error)
            self.last = Reviewed(catalog=_closed(catalog, self._pinned(catalog), str(error)))
            return self.last.catalog
        self.last = review(
            catalog,
            observed.records,
            lock=self._lock,
            lock_name=self._lock_name,
            scanning=self._scanning,
            scanned=self._scanned,
        )
        self._tell(observed, self.last)
        return self.last.catalog

    def _observe(self, catalog: Catalog) -> Observed:
        if self._book is None:
            return Observed(_NO_RECORDS)
        entries = self._pinned(catalog)
        sights = [sight_of(catalog.parts[server], reach_of(entry)) for server, entry in entries.items()]
        return self._book.observe(sights, lock=self._lock)

    def _pinned(self, catalog: Catalog) -> dict[str, ServerEntry]:
        """Give the servers that are held to their pins."""
        entries = ((server, self._entry_of(server)) for server in catalog.parts)
        return {
            server: entry
            for server, entry in entries
            if entry is not None and (entry.target is None or self._in_process)
        }

    def _tell(self, observed: Observed, reviewed: Reviewed) -> None:
        if self._events is None:
            return
        for notice in observed.notices:
            before = f", which was called {notice.before}" if notice.before else ""
            told = Inspected(notice.server, notice.kind, notice.name, notice.what, f"it is {notice.what}{before}")
            if notice.what != "changed":
                self._events.tell(told)
        # The rest holds from one catalog to the next, and is told once.
        lasting = [
            Inspected(each.server, each.kind, each.name, each.what, each.reason) for each in reviewed.quarantined
        ]
        for (kind, id), found in reviewed.findings.items():
            if worst(found) == "ask":
                server, _, name = id.partition("/")
                reason = "; ".join(str(each) for each in found if each.severity == "ask")
                lasting.append(Inspected(server, kind, name, "flagged", reason))
        for told in lasting:
            if told not in self._told:
                self._events.tell(told)
        self._told = set(lasting[:_MOST_TOLD])


def _closed(catalog: Catalog, servers: Mapping[str, ServerEntry], reason: str) -> Catalog:
    """Make a catalog without anything that should be pinned."""
    out = {
        (item.server, item.kind, item.name): Quarantined(item.server, item.kind, item.name, "changed", reason)
        for kind in KINDS
        if kind != "resource"
        for item in catalog.of(kind).values()
        if item.server in servers
    }
    for server in catalog.instructions:
        if server in servers:
            out[server, "instructions", ""] = Quarantined(server, "instructions", "", "changed", reason)  # type: ignore[index]
    return _without(catalog, out, {}) if out else catalog

"""The catalog: what all servers offer together; immutable, replaced as a whole when anything changes.

``build_catalog`` combines the catalogs of the servers (``items.py``), in the order of the servers and by name within
each. Those of unchanged servers are reused, so a change of one server costs only its own items. Names are unique by
construction; should two items have the same wire name nevertheless, both are dropped. Knows neither connections nor
policy, and does no I/O; may be built in any thread.

A requested URI is resolved in a fixed order, so that no server can capture what belongs to another: as a listed outer
URI, as a listed id, as an outer URI or id of a known server, and only then as a server's own URI, which must belong to
one server alone.

``CatalogCache`` stores what servers offered in their last run, so that a server can be listed before it is started. The
era is cached as well: a server that needed the handshake is not probed in the next run, and one that answers
``server/discover`` gets as long to answer as a start may take. One file per server, in a folder of the user, written
whole or not at all. An entry is valid only for the exact launch it was written for. A file that cannot be read, is too
large, or belongs to another launch is ignored. Calls block for as long as a small file takes: use a thread from an
event loop.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from trunkline.host.config.model import ServerEntry, ServerSettings
from trunkline.host.state_files import write_private
from trunkline.host.upstreams.catalog.items import (
    ITEM_KINDS,
    CatalogItem,
    DroppedItem,
    ItemKind,
    Offering,
    ServerCatalog,
    build_server_catalog,
    denied_reason,
    estimate_tokens,
    filters_of,
    unlisted_hidden_reason,
)
from trunkline.host.upstreams.catalog.names import (
    DEFAULT_NAMING,
    NamingScheme,
    inner_uri,
    item_id,
    server_name_problem,
    split_ambiguous,
    split_id,
)
from trunkline.protocol.revisions import find_revision

__all__ = [
    "Catalog",
    "CatalogCache",
    "CatalogItem",
    "DroppedItem",
    "FoundResource",
    "ItemKind",
    "build_catalog",
    "changed_lists",
    "estimate_tokens",
    "extensions_changed",
    "launch_key",
]

#: A server, its own URI, and the item that lists it: a resource, or the template that it matches.
FoundResource: TypeAlias = tuple[str, str, CatalogItem | None]
_Items: TypeAlias = Mapping[str, CatalogItem]
_NONE: _Items = MappingProxyType({})
_NO_PARTS: Mapping[str, ServerCatalog] = MappingProxyType({})
_NO_WIRES: Mapping[ItemKind, _Items] = MappingProxyType(dict.fromkeys(ITEM_KINDS, _NONE))
_USUAL = ServerSettings()


class Catalog(Struct, frozen=True, kw_only=True, eq=False):
    """What all servers offer together; each mapping is by id, ``server/name``."""

    #: Numbers the catalogs of a host, so that what was derived from one is not mistaken for the next.
    counter: int = 0
    tools: _Items = _NONE
    prompts: _Items = _NONE
    resources: _Items = _NONE
    templates: _Items = _NONE
    #: The items of each kind by wire name or outer URI.
    by_wire: Mapping[ItemKind, _Items] = _NO_WIRES
    #: Items that cannot be served, with reasons.
    dropped: tuple[DroppedItem, ...] = ()
    #: Items hidden by filters.
    hidden: tuple[DroppedItem, ...] = ()
    #: The catalog of each server, in the order of the servers.
    parts: Mapping[str, ServerCatalog] = _NO_PARTS

    def __repr__(self) -> str:
        """Show the number of items of each kind."""
        counts = ", ".join(f"{len(self.of(kind))} {kind}s" for kind in ITEM_KINDS)
        return f"Catalog({counts} of {len(self.parts)} servers)"

    @property
    def servers(self) -> tuple[str, ...]:
        """The servers, in order."""
        return tuple(self.parts)

    @property
    def instructions(self) -> dict[str, str]:
        """The instructions of each server that has any."""
        return {server: part.offering.instructions for server, part in self.parts.items() if part.offering.instructions}

    def of(self, kind: ItemKind) -> _Items:
        """Return the items of one kind, by id."""
        table: _Items = getattr(self, f"{kind}s")
        return table

    def find_tool(self, name: str) -> CatalogItem | None:
        """Find a tool by its id or wire name; an id contains ``/``, a wire name does not."""
        return self.tools.get(name) or self.by_wire["tool"].get(name)

    def find_prompt(self, name: str) -> CatalogItem | None:
        """Find a prompt by its id or wire name."""
        return self.prompts.get(name) or self.by_wire["prompt"].get(name)

    def find_resource(self, uri: str) -> FoundResource | None:
        """Find a resource by its outer URI, its id, or a URI that only one server has.

        A server may have resources that it does not list; the item is then None. What a filter hides, or the catalog
        dropped, is not found.
        """
        for table in (self.by_wire["resource"], self.resources):
            if uri in table:
                item = table[uri]
                return item.server, item.name, item
        pair = inner_uri(uri, self.parts) or split_id(uri)
        if pair is not None and pair[0] in self.parts:
            return self._within(*pair)
        return self._own(uri)

    def find_template(self, uri: str) -> CatalogItem | None:
        """Find a resource template by its outer URI template or id."""
        return self.templates.get(uri) or self.by_wire["template"].get(uri)

    def _within(self, server: str, uri: str) -> FoundResource | None:
        """Find a URI of a given server."""
        part = self.parts[server]
        item = self.resources.get(item_id(server, uri))
        if item is not None:
            return server, uri, item
        filters = filters_of(part.settings, "resource")
        template = next(_made_from(part, uri), None)
        # A visible template vouches for the URIs that match it; what a glob denies is denied however it is requested.
        refused = unlisted_hidden_reason(filters, uri) if template is None else denied_reason(filters, uri)
        gone = any(each.kind == "resource" and each.name == uri for each in (*part.dropped, *part.hidden))
        return None if refused or gone else (server, uri, template)

    def _own(self, uri: str) -> FoundResource | None:
        """Find the only server that lists this URI, or else the only one with a matching template."""
        listing = [server for server in self.parts if item_id(server, uri) in self.resources]
        made = listing or [server for server, part in self.parts.items() if any(_made_from(part, uri))]
        return self._within(made[0], uri) if len(made) == 1 else None


def build_catalog(
    offerings: Mapping[str, Offering],
    settings: Mapping[str, ServerSettings],
    *,
    counter: int,
    naming: NamingScheme = DEFAULT_NAMING,
    before: Catalog | None = None,
) -> Catalog:
    """Build the catalog of these servers; unchanged parts of ``before`` are reused."""
    old = _NO_PARTS if before is None else before.parts
    refused = [
        DroppedItem(server, "server", "", problem)
        for server in offerings
        if (problem := server_name_problem(server)) is not None
    ]
    unnamed = {drop.server for drop in refused}
    parts = {
        server: _part(server, offering, settings=settings.get(server, _USUAL), naming=naming, before=old.get(server))
        for server, offering in offerings.items()
        if server not in unnamed
    }
    by_wire, clashes = _by_wire(parts.values())
    by_id = {kind: MappingProxyType({item.id: item for item in table.values()}) for kind, table in by_wire.items()}
    return Catalog(
        counter=counter,
        tools=by_id["tool"],
        prompts=by_id["prompt"],
        resources=by_id["resource"],
        templates=by_id["template"],
        by_wire=MappingProxyType(by_wire),
        dropped=(*refused, *(drop for part in parts.values() for drop in part.dropped), *clashes),
        hidden=tuple(drop for part in parts.values() for drop in part.hidden),
        parts=MappingProxyType(parts),
    )


def changed_lists(before: Catalog | None, after: Catalog) -> tuple[str, ...]:
    """Return the lists that differ: ``tools``, ``prompts``, ``resources`` (which includes templates).

    Order does not count, nor does anything a client cannot see; a changed definition under the same name does.
    """
    before = before or Catalog()
    differing = [kind for kind in ITEM_KINDS if _pins(before.of(kind)) != _pins(after.of(kind))]
    lists = ("resources" if kind == "template" else f"{kind}s" for kind in differing)
    return tuple(dict.fromkeys(lists))


def extensions_changed(before: Catalog, after: Catalog) -> bool:
    """Return True if a server declares other extensions, or other settings of one."""
    one, other = (
        {name: part.offering.capabilities.get("extensions") for name, part in each.parts.items()}
        for each in (before, after)
    )
    return one != other


def _part(
    server: str, offering: Offering, *, settings: ServerSettings, naming: NamingScheme, before: ServerCatalog | None
) -> ServerCatalog:
    if before is not None and before.is_current(offering, settings, naming):
        return before
    return build_server_catalog(server, offering, settings=settings, naming=naming, before=before)


def _by_wire(parts: Iterable[ServerCatalog]) -> tuple[dict[ItemKind, _Items], list[DroppedItem]]:
    """Build the table of each kind; items that share a wire name are all dropped."""
    named: dict[ItemKind, list[tuple[str, CatalogItem]]] = {kind: [] for kind in ITEM_KINDS}
    for part in parts:
        for item in part.items:
            named[item.kind].append((item.wire, item))
    tables: dict[ItemKind, _Items] = {}
    clashes: list[DroppedItem] = []
    for kind, pairs in named.items():
        table, clashing = split_ambiguous(pairs)
        tables[kind] = MappingProxyType(table)
        clashes += [
            DroppedItem(item.server, kind, item.name, f'its wire name "{wire}" would be that of another {kind} too')
            for wire, item in clashing
        ]
    return tables, clashes


def _made_from(part: ServerCatalog, uri: str) -> Iterator[CatalogItem]:
    """Return the templates that a URI matches; whether it is safe is up to the server."""
    return (item for template, item in part.templates if template.match(uri, safe=False) is not None)


def _pins(items: _Items) -> dict[str, str]:
    return {item.wire: item.pin for item in items.values()}


_FORMAT = 1  # A file of another format is not read.
_MOST_BYTES = 16 * 1024 * 1024  # The largest catalogs have some megabytes.
_MOST_FILES = 256  # More servers than a user has; the oldest files are removed.
_ERA_SECONDS = 7 * 86_400.0  # A server that was upgraded to the stateless era is noticed within a week.
T = TypeVar("T", "_File", "_Era")


class _File(Struct, frozen=True):
    format: int
    name: str
    key: str
    offering: Offering
    #: Seconds since the epoch at which its era was last probed.
    probed_at: float = 0.0
    #: Whether it answered ``server/discover``, if only after the handshake had been tried.
    discovers: bool = False


class _Spoken(Struct, frozen=True):
    revision: str


class _Era(Struct, frozen=True):
    """The part of a file with the era of the server; the lists are skipped."""

    format: int
    name: str
    key: str
    offering: _Spoken
    probed_at: float = 0.0
    discovers: bool = False


# Made here and not at the first use: files are read in threads, and msgspec crashes the process if one thread decodes a
# type that another is still preparing.
_file_decoder = msgspec.json.Decoder(_File)
_era_decoder = msgspec.json.Decoder(_Era)


def launch_key(entry: ServerEntry) -> str:
    """Return a digest of everything that determines what a server offers: how it is reached, with what, in which era.

    Values of variables are included, since credentials determine what a server shows; a digest does not reveal them.
    """
    launch = [
        entry.command,
        sorted(entry.env.items()),
        entry.cwd,
        entry.url,
        sorted(entry.headers.items()),
        entry.type,
        repr(entry.auth),
        entry.settings.era,
    ]
    return hashlib.sha256(msgspec.json.encode(launch)).hexdigest()


class CatalogCache:
    """The cached offerings of servers, in a folder."""

    def __init__(self, folder: Path, *, most_bytes: int = _MOST_BYTES, most_files: int = _MOST_FILES) -> None:
        """Set the folder, which is created on first use; an offering over the size limit is not cached."""
        self._folder = folder
        self._most_bytes = most_bytes
        self._most_files = most_files

    def get(self, entry: ServerEntry) -> Offering | None:
        """Return what a server offered in its last run with this launch; None if unknown."""
        kept = self._read(entry, _file_decoder)
        return None if kept is None else kept.offering

    def handshake_probed_at(self, entry: ServerEntry, now: float) -> float | None:
        """Return when the era of a server was last probed, if it used the handshake and that was recent; else None.

        A newer version under the same command may support more, so it is probed again from time to time.
        """
        kept = self._read(entry, _era_decoder)
        revision = None if kept is None else find_revision(kept.offering.revision)
        if kept is None or kept.discovers or revision is None or not revision.handshake:
            return None
        return kept.probed_at if 0 <= now - kept.probed_at < _ERA_SECONDS else None

    def discovers(self, entry: ServerEntry) -> bool:
        """Return True if the server answered ``server/discover`` in an earlier run."""
        kept = self._read(entry, _era_decoder)
        return kept is not None and kept.discovers

    def forget_era(self, entry: ServerEntry) -> None:
        """Forget the era of a server, so that the next start probes it; its offering stays cached.

        Raises:
            OSError: the file cannot be written.
        """
        self._rewrite(entry, probed_at=0.0, discovers=False)

    def _rewrite(self, entry: ServerEntry, **changes: Any) -> None:
        kept = self._read(entry, _file_decoder)
        if kept is not None:
            write_private(str(self._path(entry.name)), msgspec.json.encode(replace(kept, **changes)))

    def _read(self, entry: ServerEntry, decoder: msgspec.json.Decoder[T]) -> T | None:
        try:
            with open(self._path(entry.name), "rb") as file:
                content = file.read(self._most_bytes + 1)
            kept = decoder.decode(content)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        fits = kept.format == _FORMAT and kept.name == entry.name and kept.key == launch_key(entry)
        return kept if fits and len(content) <= self._most_bytes else None

    def put(
        self,
        entry: ServerEntry,
        offering: Offering,
        *,
        probed_at: float = 0.0,
        discovers: bool = False,
        holds_secret: Callable[[str], bool] | None = None,
    ) -> bool:
        """Cache what a server offers; return True if it was cached. Incomplete offerings, or with secrets, never are.

        ``probed_at`` is when its era was last probed, ``discovers`` whether it answered the probe.

        Raises:
            OSError: the file cannot be written.
        """
        if offering.failures:
            return False
        content = msgspec.json.encode(_File(_FORMAT, entry.name, launch_key(entry), offering, probed_at, discovers))
        if len(content) > self._most_bytes or (holds_secret is not None and holds_secret(content.decode())):
            self.forget(entry.name)
            return False
        write_private(str(self._path(entry.name)), content)
        self._evict_oldest()
        return True

    def forget(self, name: str) -> None:
        """Remove what is cached of a server."""
        with suppress(OSError):
            self._path(name).unlink()

    def _path(self, name: str) -> Path:
        # A digest: names may differ in case alone, or contain characters that some file systems reject.
        return self._folder / f"{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}.json"

    def _evict_oldest(self) -> None:
        """Remove the least recently started servers when there are too many."""
        files: list[tuple[float, str]] = []
        with os.scandir(self._folder) as entries:
            for entry in entries:
                # Another host may remove files at the same time.
                with suppress(OSError):
                    files += [(entry.stat().st_mtime, entry.path)] if entry.name[0] != "." else ()
        for _, path in sorted(files)[: -self._most_files or None] if len(files) > self._most_files else ():
            with suppress(OSError):
                os.unlink(path)

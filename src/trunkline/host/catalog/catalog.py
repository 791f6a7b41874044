"""The catalog: what all servers offer together; immutable, replaced as a whole when anything changes.

``build_catalog`` combines the catalogs of the servers (``items.py``), in the order of the servers and by name within
each. Those of unchanged servers are reused, so a change of one server costs only its own items. Names are unique by
construction; should two items have the same wire name nevertheless, both are dropped. Knows neither connections nor
policy, and does no I/O; may be built in any thread.

A requested URI is resolved in a fixed order, so that no server can capture what belongs to another: as a listed outer
URI, as a listed id, as an outer URI or id of a known server, and only then as a server's own URI, which must belong to
one server alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TypeAlias

from msgspec import Struct

from trunkline.host.catalog.filters import denies, keeps_unlisted
from trunkline.host.catalog.items import KINDS, Dropped, Item, Kind, Part, estimate_tokens, filters_of, make_part
from trunkline.host.catalog.names import (
    DEFAULT_NAMING,
    Naming,
    id_of,
    inner_uri,
    server_name_problem,
    split_id,
    unambiguous,
)
from trunkline.host.catalog.offerings import Offering
from trunkline.host.entries import ServerSettings

__all__ = ["Catalog", "Dropped", "Found", "Item", "Kind", "build", "differences", "estimate_tokens"]

#: A server, its own URI, and the item that lists it: a resource, or the template that it matches.
Found: TypeAlias = tuple[str, str, Item | None]
_Items: TypeAlias = Mapping[str, Item]
_NONE: _Items = MappingProxyType({})
_NO_PARTS: Mapping[str, Part] = MappingProxyType({})
_NO_WIRES: Mapping[Kind, _Items] = MappingProxyType(dict.fromkeys(KINDS, _NONE))
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
    by_wire: Mapping[Kind, _Items] = _NO_WIRES
    #: Items that cannot be served, with reasons.
    dropped: tuple[Dropped, ...] = ()
    #: Items hidden by filters.
    hidden: tuple[Dropped, ...] = ()
    #: The catalog of each server, in the order of the servers.
    parts: Mapping[str, Part] = _NO_PARTS

    def __repr__(self) -> str:
        """Show the number of items of each kind."""
        counts = ", ".join(f"{len(self.of(kind))} {kind}s" for kind in KINDS)
        return f"Catalog({counts} of {len(self.parts)} servers)"

    @property
    def servers(self) -> tuple[str, ...]:
        """The servers, in order."""
        return tuple(self.parts)

    @property
    def instructions(self) -> dict[str, str]:
        """The instructions of each server that has any."""
        return {server: part.offering.instructions for server, part in self.parts.items() if part.offering.instructions}

    def of(self, kind: Kind) -> _Items:
        """Return the items of one kind, by id."""
        table: _Items = getattr(self, f"{kind}s")
        return table

    def find_tool(self, name: str) -> Item | None:
        """Find a tool by its id or wire name; an id contains ``/``, a wire name does not."""
        return self.tools.get(name) or self.by_wire["tool"].get(name)

    def find_prompt(self, name: str) -> Item | None:
        """Find a prompt by its id or wire name."""
        return self.prompts.get(name) or self.by_wire["prompt"].get(name)

    def find_resource(self, uri: str) -> Found | None:
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

    def find_template(self, uri: str) -> Item | None:
        """Find a resource template by its outer URI template or id."""
        return self.templates.get(uri) or self.by_wire["template"].get(uri)

    def _within(self, server: str, uri: str) -> Found | None:
        """Find a URI of a given server."""
        part = self.parts[server]
        item = self.resources.get(id_of(server, uri))
        if item is not None:
            return server, uri, item
        filters = filters_of(part.settings, "resource")
        template = next(_made_from(part, uri), None)
        # A visible template vouches for the URIs that match it; what a glob denies is denied however it is requested.
        refused = keeps_unlisted(filters, uri) if template is None else denies(filters, uri)
        gone = any(each.kind == "resource" and each.name == uri for each in (*part.dropped, *part.hidden))
        return None if refused or gone else (server, uri, template)

    def _own(self, uri: str) -> Found | None:
        """Find the only server that lists this URI, or else the only one with a matching template."""
        listing = [server for server in self.parts if id_of(server, uri) in self.resources]
        made = listing or [server for server, part in self.parts.items() if any(_made_from(part, uri))]
        return self._within(made[0], uri) if len(made) == 1 else None


def build(
    offerings: Mapping[str, Offering],
    settings: Mapping[str, ServerSettings],
    *,
    counter: int,
    naming: Naming = DEFAULT_NAMING,
    before: Catalog | None = None,
) -> Catalog:
    """Build the catalog of these servers; unchanged parts of ``before`` are reused."""
    old = _NO_PARTS if before is None else before.parts
    refused = [
        Dropped(server, "server", "", problem)
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


def differences(before: Catalog | None, after: Catalog) -> tuple[str, ...]:
    """Return the lists that differ: ``tools``, ``prompts``, ``resources`` (which includes templates).

    Order does not count, nor does anything a client cannot see; a changed definition under the same name does.
    """
    before = before or Catalog()
    differing = [kind for kind in KINDS if _pins(before.of(kind)) != _pins(after.of(kind))]
    lists = ("resources" if kind == "template" else f"{kind}s" for kind in differing)
    return tuple(dict.fromkeys(lists))


def _part(server: str, offering: Offering, *, settings: ServerSettings, naming: Naming, before: Part | None) -> Part:
    if before is not None and before.is_current(offering, settings, naming):
        return before
    return make_part(server, offering, settings=settings, naming=naming, before=before)


def _by_wire(parts: Iterable[Part]) -> tuple[dict[Kind, _Items], list[Dropped]]:
    """Build the table of each kind; items that share a wire name are all dropped."""
    named: dict[Kind, list[tuple[str, Item]]] = {kind: [] for kind in KINDS}
    for part in parts:
        for item in part.items:
            named[item.kind].append((item.wire, item))
    tables: dict[Kind, _Items] = {}
    clashes: list[Dropped] = []
    for kind, pairs in named.items():
        table, clashing = unambiguous(pairs)
        tables[kind] = MappingProxyType(table)
        clashes += [
            Dropped(item.server, kind, item.name, f'its wire name "{wire}" would be that of another {kind} too')
            for wire, item in clashing
        ]
    return tables, clashes


def _made_from(part: Part, uri: str) -> Iterator[Item]:
    """Return the templates that a URI matches; whether it is safe is up to the server."""
    return (item for template, item in part.templates if template.match(uri, safe=False) is not None)


def _pins(items: _Items) -> dict[str, str]:
    return {item.wire: item.pin for item in items.values()}

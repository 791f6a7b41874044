"""The catalog in the form of a server's registry, under the names and URIs that clients of the gateway use.

A definition here is only listed; a call goes to the upstream server under the item's own name. URIs in results are
rewritten to the gateway's, so that a link that a tool returns can be read through the gateway.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

import trunkline.types as t
from trunkline.host.catalog.items import KINDS, Item, Kind
from trunkline.host.catalog.names import outer_uri
from trunkline.protocol.headers import HeaderParameter, header_parameters
from trunkline.protocol.uri_template import UriTemplate
from trunkline.server.registry import Registry

__all__ = ["Shelved", "Shelves", "outward"]


class Shelved:
    """One item of the catalog as the gateway lists it."""

    __slots__ = ("_headers", "_listed", "_template", "function", "item", "name")

    #: Attributes of a registry definition that these entries do not use.
    scopes: tuple[str, ...] = ()
    owners: tuple[Any, ...] = ()
    source: Any = None

    def __init__(self, item: Item) -> None:
        """Wrap an item of the catalog."""
        self.item = item
        self.name = item.wire
        self.function = item
        self._listed: Any = None
        self._template: UriTemplate | None = None
        self._headers: tuple[HeaderParameter, ...] | None = None

    def listed(self) -> Any:
        """Return the definition under its gateway name."""
        if self._listed is None:
            self._listed = self.item.outer
        return self._listed

    @property
    def headers(self) -> tuple[HeaderParameter, ...]:
        """The arguments that HTTP mirrors in headers."""
        if self._headers is None:
            try:
                tool = self.item.definition
                self._headers = header_parameters(tool.input_schema) if isinstance(tool, t.Tool) else ()
            except ValueError:
                self._headers = ()
        return self._headers


class Shelves(Struct, frozen=True):
    """What the gateway lists, by kind and by gateway name or URI."""

    of: Mapping[Kind, Mapping[str, Shelved]]

    @classmethod
    def filled(cls, items: Iterable[Item], before: Shelves | None) -> Shelves:
        """Build the entries of a catalog's items; entries of unchanged items are reused."""
        kept = {} if before is None else {each.item: each for shelf in before.of.values() for each in shelf.values()}
        shelves: dict[Kind, dict[str, Shelved]] = {kind: {} for kind in KINDS}
        for item in items:
            shelves[item.kind][item.wire] = kept.get(item) or Shelved(item)
        return cls(shelves)

    def find(self, kind: Kind, name: str) -> Shelved | None:
        """Return the entry with this gateway name or URI; None if there is none."""
        return self.of[kind].get(name)

    def registry(self, counter: int, more_tools: Mapping[str, Any]) -> Registry:
        """Return the entries as a server registry."""
        tools: Any = {**more_tools, **self.of["tool"]}
        others: Any = self.of
        return Registry(
            counter,
            tools=tools,
            prompts=others["prompt"],
            resources=others["resource"],
            templates=others["template"],
        )


# --- results ---------------------------------------------------------------------------------------------------------


def outward(result: Any, server: str) -> Any:
    """Return a server's result as the gateway sends it: with gateway URIs, and without the server's identity.

    How long a result may be cached depends on the caller, which the upstream does not know, so caching is disabled.
    """
    changes: dict[str, Any] = {}
    meta = result.meta
    if meta is not None and t.META_SERVER_INFO in meta:
        changes["meta"] = {name: value for name, value in meta.items() if name != t.META_SERVER_INFO} or None
    if result.result_type not in (None, "complete"):
        # A handshake server, whose era has no result types, may send anything here; the client always gets a result.
        changes["result_type"] = None
    if isinstance(result, t.CallToolResult):
        if any(type(block) is not t.TextContent for block in result.content):
            changes["content"] = [_block(block, server) for block in result.content]
    elif isinstance(result, t.GetPromptResult):
        changes["messages"] = [replace(each, content=_block(each.content, server)) for each in result.messages]
    elif isinstance(result, t.ReadResourceResult):
        changes["contents"] = [replace(each, uri=outer_uri(server, each.uri)) for each in result.contents]
        changes["ttl_ms"], changes["cache_scope"] = 0, "private"
    return replace(result, **changes) if changes else result


def _block(block: Any, server: str) -> Any:
    if isinstance(block, t.ResourceLink):
        return replace(block, uri=outer_uri(server, block.uri))
    if isinstance(block, t.EmbeddedResource):
        return replace(block, resource=replace(block.resource, uri=outer_uri(server, block.resource.uri)))
    return block

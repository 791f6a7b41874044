"""Tool search in the gateway: a large catalog is listed as two tools, one that searches and one that calls.

A search finds only tools that the caller may see; a call made this way is authorized, asked about and recorded as if it
had been made by name.

In approval mode ``client`` the client's user approves by the name of the tool, and ``call_tool`` does not say which
tool is meant. So the tools that a search found are listed to that session from then on, to be called by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, cast

import msgspec

import trunkline.types as t
from trunkline.errors import InvalidParams
from trunkline.host.catalog.items import Item
from trunkline.host.catalog.search import CALL_TOOL, SEARCH_TOOL, Mode, SearchIndex, choose, meta_tools, render_hits
from trunkline.host.core import HostCore
from trunkline.host.gateway.options import GatewayOptions
from trunkline.host.session import HostSession
from trunkline.server.tools import failed

__all__ = ["Found", "MetaTool", "Searching"]

# Per session: more would fill the very window that the search is meant to spare.
_MOST_LISTED = 64


class Found(NamedTuple):
    """What a search found, and its result."""

    items: tuple[Item, ...]
    result: t.CallToolResult


class MetaTool:
    """A tool of the gateway itself, in the form of a registry entry."""

    __slots__ = ("_tool", "function", "name")

    scopes: tuple[str, ...] = ()
    owners: tuple[Any, ...] = ()
    source: Any = None

    def __init__(self, tool: t.Tool) -> None:
        """Wrap this definition."""
        self.name = tool.name
        self.function = tool
        self._tool = tool

    def listed(self) -> t.Tool:
        """Return the definition."""
        return self._tool


class Searching:
    """Decides whether tools are listed or searched, and serves the two search tools."""

    def __init__(self, core: HostCore, options: GatewayOptions) -> None:
        """List everything until the catalog is known."""
        self._core = core
        self._options = options
        self._hidden: dict[str, Item] = {}
        self._all: list[Item] = []
        self._index: SearchIndex | None = None
        self._searched = False

    def choose(self, items: Iterable[Item]) -> list[Item]:
        """Return the items of a catalog that are listed directly."""
        everything = list(items)
        tools = [item for item in everything if item.kind == "tool"]
        upstreams = self._core.supervisor.upstreams
        exposure = choose(
            tools,
            mode=cast("Mode", self._options.search),
            window_tokens=self._options.window_tokens,
            share=self._options.share,
            always=frozenset(name for name, each in upstreams.items() if each.entry.settings.always_load),
        )
        self._searched, self._index, self._all = exposure.searched, None, tools
        self._hidden = {item.wire: item for item in tools} if exposure.searched else {}
        return [*exposure.listed, *(item for item in everything if item.kind != "tool")]

    def meta_tools(self) -> dict[str, MetaTool]:
        """Return the two search tools, if the catalog is searched, with generic descriptions."""
        return {tool.name: MetaTool(tool) for tool in meta_tools(())} if self._searched else {}

    def described(self, sees: Callable[[Item], bool]) -> list[t.Tool]:
        """Return the two search tools, described with the names of the tools that a caller may see."""
        seen = [item for item in self._all if sees(item)]
        servers = {item.server for item in seen}
        instructions = {name: text for name, text in self._core.catalog.instructions.items() if name in servers}
        by_name = self._options.approval == "client"
        return meta_tools(seen, instructions=instructions, notes=self._notes(), by_name=by_name)

    def hidden(self, name: str) -> Item | None:
        """Return a tool that is not listed but may be called by name: a model may know it from a search."""
        return self._hidden.get(name)

    def search(self, arguments: dict[str, Any], sees: Callable[[Item], bool]) -> Found:
        """Search the catalog.

        Raises:
            InvalidParams: an argument is missing or wrong.
        """
        query, limit = arguments.get("query"), arguments.get("limit", 10)
        if not isinstance(query, str) or not isinstance(limit, int):
            raise InvalidParams(f"Invalid params: {SEARCH_TOOL} takes query (a string) and limit (an integer)")
        if self._index is None:
            self._index = SearchIndex(self._all, instructions=self._core.catalog.instructions)
        hits = [hit for hit in self._index.search(query, 50) if sees(hit.item)][: max(1, min(limit, 50))]
        return Found(tuple(hit.item for hit in hits), render_hits(hits))

    def inner_call(
        self, arguments: dict[str, Any], sees: Callable[[Item], bool]
    ) -> tuple[Item, dict[str, Any]] | t.CallToolResult:
        """Return the tool that is to be called and its arguments, or the answer if there is no such tool.

        Raises:
            InvalidParams: an argument is missing or wrong.
        """
        name, inner = arguments.get("name"), arguments.get("arguments", {})
        if isinstance(inner, str):
            # Some models write the arguments as a JSON string.
            try:
                inner = msgspec.json.decode(inner)
            except (msgspec.DecodeError, RecursionError):
                inner = None
        if not isinstance(name, str) or not isinstance(inner, dict):
            raise InvalidParams(f"Invalid params: {CALL_TOOL} takes name (a string) and arguments (an object)")
        item = self._hidden.get(name)
        if item is None or not sees(item):
            return failed(f"Unknown tool: {name[:200]}. Find its name with {SEARCH_TOOL}.")
        return item, inner

    def remember(self, session: HostSession, items: Iterable[Item]) -> bool:
        """Remember the tools that a session found, the latest last; return True if the session's list changes."""
        found, news = session.found, False
        for item in items:
            news |= item.wire not in found
            found.pop(item.wire, None)
            found[item.wire] = None
        for wire in list(found)[:-_MOST_LISTED]:
            del found[wire]
        return news

    def found(self, session: HostSession) -> list[Item]:
        """Return the tools that a session found by searching and that still exist."""
        return [self._hidden[wire] for wire in session.found if wire in self._hidden]

    def _notes(self) -> dict[str, str]:
        """Return notes on servers that cannot be used now, so that the model knows why their tools are missing."""
        notes = {}
        for name, upstream in self._core.supervisor.upstreams.items():
            status = upstream.status
            if status.state not in ("ready", "known", "disabled") and self._belongs(name):
                notes[name] = f"now {status.state}"
        return notes

    def _belongs(self, server: str) -> bool:
        return self._options.servers is None or server in self._options.servers

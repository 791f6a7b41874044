"""The catalog as the gateway serves it.

Items under the names and URIs that clients of the gateway use, and the results and errors that go back to a client.
Items are only listed here; a call goes to the upstream server under the item's own name. URIs in results are
rewritten to the gateway's, so that a client can read a link that a tool returns. Errors carry no internals of the
gateway.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

import trunkline.types as t
from trunkline.client.request_handlers import ExtensionResult
from trunkline.errors import (
    InvalidParams,
    LinkError,
    MissingCapability,
    PolicyDenied,
    RemoteProtocolError,
    RequestFailed,
    ResourceNotFound,
    UrlElicitationRequired,
    VerificationError,
)
from trunkline.host.audit.trail import AuditFailed
from trunkline.host.core import HostCore
from trunkline.host.gateway.sessions import GatewayOptions
from trunkline.host.session import HostSession
from trunkline.host.upstreams.catalog.catalog import Catalog
from trunkline.host.upstreams.catalog.items import ITEM_KINDS, CatalogItem, ItemKind
from trunkline.host.upstreams.catalog.names import outer_uri
from trunkline.host.upstreams.catalog.search import (
    CALL_TOOL,
    SEARCH_TOOL,
    CatalogExposure,
    SearchIndex,
    SearchMode,
    choose_exposure,
    meta_tools,
    render_hits,
)
from trunkline.host.upstreams.routing.channels import label_pages
from trunkline.protocol.apps import has_ui, with_app_uris, without_ui
from trunkline.protocol.caller import Caller
from trunkline.protocol.headers import HeaderParameter, header_parameters
from trunkline.protocol.revisions import Feature
from trunkline.protocol.uri_template import UriTemplate
from trunkline.server.registry import RegistrySnapshot
from trunkline.server.tools import error_result
from trunkline.service import public_message

__all__ = [
    "GatewayRegistry",
    "MetaTool",
    "RegistryEntry",
    "ToolSearch",
    "ToolSearchResult",
    "error_for_client",
    "joined_instructions",
    "not_found",
    "rewrite_result",
    "tool_of_page",
    "without_identity",
    "without_pages",
]


def error_for_client(error: Exception, server: str) -> RequestFailed | None:
    """Return the error for the client when a request to a server failed; None for an error of our own."""
    if isinstance(error, RequestFailed):
        # A new error: the transport's details (a challenge, a status) are not for the client.
        return type(error)(public_message(error), code=error.code, data=_outer_data(error, server))
    if isinstance(error, PolicyDenied):
        return RequestFailed(error.public_message)
    if isinstance(error, AuditFailed):
        return RequestFailed("The gateway cannot write its audit trail, so the request was not carried out")
    if isinstance(error, LinkError | RemoteProtocolError | MissingCapability | VerificationError):
        return RequestFailed(f"Server {server!r}: {_reason(error)}")
    return None


def not_found(caller: Caller, outer: str) -> RequestFailed:
    """Return the error for an unknown resource; it is the same for one that the caller may not see."""
    kind = InvalidParams if Feature.NOT_FOUND_IS_INVALID_PARAMS in caller.revision.features else ResourceNotFound
    return kind(f"Resource not found: {outer}", data={"uri": outer})


def _outer_data(error: RequestFailed, server: str) -> Any:
    return label_pages(error.data, server) if isinstance(error, UrlElicitationRequired) else error.data


def _reason(error: Exception) -> str:
    """Return the first line of an error: what follows is the server's own stderr."""
    text = str(error).partition("\n")[0]
    return text[:300] or type(error).__name__


class RegistryEntry:
    """One item of the catalog as the gateway lists it."""

    __slots__ = ("_headers", "_listed", "_template", "app", "function", "item", "name", "page")

    #: Attributes of a registry definition that these entries do not use.
    scopes: tuple[str, ...] = ()
    owners: tuple[Any, ...] = ()
    source: Any = None

    def __init__(self, item: CatalogItem) -> None:
        """Wrap an item of the catalog."""
        self.item: CatalogItem = item
        self.name: str = item.wire
        self.function: CatalogItem = item
        self._listed: Any = None
        self._template: UriTemplate | None = None
        self._headers: tuple[HeaderParameter, ...] | None = None
        #: The MCP Apps data of the definition: who may call it, and whether it is a page.
        self.app: CatalogItem | None = None if item.for_model else item
        self.page: CatalogItem | None = item if item.is_page else None

    def listed(self) -> Any:
        """Return the definition under its gateway name."""
        if self._listed is None:
            self._listed = _as_listed(self.item.outer)
        return self._listed

    @property
    def task(self) -> bool | None:
        """Whether a call may return a job instead of its result, which does not match the output schema."""
        return True if self.item.kind == "tool" else None

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


def _as_listed(definition: Any) -> Any:
    """Return a definition as the gateway serves it: every tool may be called as a task, and none must be."""
    if not isinstance(definition, t.Tool):
        return definition
    return replace(definition, execution=t.ToolExecution(task_support="optional"))


class GatewayRegistry(Struct, frozen=True):
    """What the gateway lists, by kind and by gateway name or URI."""

    of: Mapping[ItemKind, Mapping[str, RegistryEntry]]

    @classmethod
    def build(cls, items: Iterable[CatalogItem], before: GatewayRegistry | None) -> GatewayRegistry:
        """Build the entries of a catalog's items; entries of unchanged items are reused."""
        previous = (
            {} if before is None else {each.item: each for entries in before.of.values() for each in entries.values()}
        )
        entries_by_kind: dict[ItemKind, dict[str, RegistryEntry]] = {kind: {} for kind in ITEM_KINDS}
        for item in items:
            entries_by_kind[item.kind][item.wire] = previous.get(item) or RegistryEntry(item)
        return cls(entries_by_kind)

    def find(self, kind: ItemKind, name: str) -> RegistryEntry | None:
        """Return the entry with this gateway name or URI; None if there is none."""
        return self.of[kind].get(name)

    def registry(self, counter: int, more_tools: Mapping[str, Any], *, has_apps: bool) -> RegistrySnapshot:
        """Return the entries as a server registry; ``has_apps``: a server behind it has pages."""
        tools: Any = {**more_tools, **self.of["tool"]}
        others: Any = self.of
        return RegistrySnapshot(
            counter,
            tools=tools,
            prompts=others["prompt"],
            resources=others["resource"],
            templates=others["template"],
            has_apps=has_apps,
        )


def joined_instructions(by_server: Mapping[str, str], servers: frozenset[str] | None) -> str | None:
    """Return the instructions of these servers as one text, each under its name; None if there are none."""
    parts = [
        f"## {server}\n{text.strip()[:2048]}"
        for server, text in by_server.items()
        if servers is None or server in servers
    ]
    return "\n\n".join(parts) or None


def tool_of_page(catalog: Catalog, name: str, belongs: Callable[[CatalogItem], bool]) -> CatalogItem | None:
    """Return the tool that a page calls by its server's own name; None unless there is exactly one.

    The page of a server does not know the gateway's names, and a request does not name the page that made it. So the
    name must be unique among the tools visible to apps, of the servers that have pages.
    """
    found = [
        item
        for item in catalog.tools.values()
        if item.name == name and "app" in item.visibility and belongs(item)
        if catalog.parts[item.server].offering.has_apps
    ]
    return found[0] if len(found) == 1 else None


# --- results ---------------------------------------------------------------------------------------------------------


def rewrite_result(result: Any, server: str) -> Any:
    """Return a server's result as the gateway sends it: with gateway URIs, and without the server's identity.

    How long a result may be cached depends on the caller, which the upstream does not know, so caching is disabled.
    """
    if isinstance(result, ExtensionResult):
        return without_identity(msgspec.json.decode(result.raw, type=dict[str, Any]))
    changes: dict[str, Any] = {}
    meta = result.meta
    if meta:
        own = {name: value for name, value in meta.items() if name != t.META_SERVER_INFO}
        own = with_app_uris(own, lambda uri: outer_uri(server, uri))
        if own != meta:
            changes["meta"] = own or None
    if result.result_type not in (None, "complete"):
        # A handshake server, whose era has no result types, may send anything here; the client always gets a result.
        changes["result_type"] = None
    if isinstance(result, t.CallToolResult):
        if any(type(block) is not t.TextContent for block in result.content):
            changes["content"] = [_rewrite_block(block, server) for block in result.content]
    elif isinstance(result, t.GetPromptResult):
        changes["messages"] = [replace(each, content=_rewrite_block(each.content, server)) for each in result.messages]
    elif isinstance(result, t.ReadResourceResult):
        changes["contents"] = [replace(each, uri=outer_uri(server, each.uri)) for each in result.contents]
        changes["ttl_ms"], changes["cache_scope"] = 0, "private"
    return replace(result, **changes) if changes else result


def without_identity(result: dict[str, Any]) -> dict[str, Any]:
    """Return the result of an extension without its server's identity; everything else is passed on as it is."""
    meta = result.get("_meta")
    if not isinstance(meta, dict) or t.META_SERVER_INFO not in meta:
        return result
    own = {name: value for name, value in meta.items() if name != t.META_SERVER_INFO}
    rest = {name: value for name, value in result.items() if name != "_meta"}
    return {**rest, "_meta": own} if own else rest


def without_pages(result: t.ReadResourceResult) -> t.ReadResourceResult:
    """Return the contents without the MCP Apps metadata, for a caller that shows no pages."""
    if not any(has_ui(each.meta) for each in result.contents):
        return result
    return replace(result, contents=[replace(each, meta=without_ui(each.meta)) for each in result.contents])


def _rewrite_block(block: Any, server: str) -> Any:
    if isinstance(block, t.ResourceLink):
        return replace(block, uri=outer_uri(server, block.uri))
    if isinstance(block, t.EmbeddedResource):
        return replace(block, resource=replace(block.resource, uri=outer_uri(server, block.resource.uri)))
    return block


log = logging.getLogger("trunkline.host")

# Per session: more would fill the very window that the search is meant to spare.
_MOST_LISTED = 64


class ToolSearchResult(NamedTuple):
    """What a search found, and its result."""

    items: tuple[CatalogItem, ...]
    result: t.CallToolResult


class MetaTool:
    """A tool of the gateway itself, in the form of a registry entry."""

    __slots__ = ("_tool", "function", "name")

    scopes: tuple[str, ...] = ()
    owners: tuple[Any, ...] = ()
    source: Any = None

    def __init__(self, tool: t.Tool) -> None:
        """Wrap this definition."""
        self.name: str = tool.name
        self.function: t.Tool = tool
        self._tool = tool

    def listed(self) -> t.Tool:
        """Return the definition."""
        return self._tool


class ToolSearch:
    """Decides whether tools are listed or searched, and serves the two search tools."""

    def __init__(self, core: HostCore, options: GatewayOptions) -> None:
        """List everything until the catalog is known."""
        self._core = core
        self._options = options
        self._hidden: dict[str, CatalogItem] = {}
        self._all: list[CatalogItem] = []
        self._index: SearchIndex | None = None
        self._searched = False

    def choose(self, items: Iterable[CatalogItem]) -> list[CatalogItem]:
        """Return the items of a catalog that are listed directly."""
        everything = list(items)
        # Tools that only pages may call are not searchable: the search is for models.
        tools = [item for item in everything if item.kind == "tool" and item.for_model]
        upstreams = self._core.supervisor.upstreams
        exposure = choose_exposure(
            tools,
            mode=cast("SearchMode", self._options.search),
            window_tokens=self._options.window_tokens,
            share=self._options.share,
            always=frozenset(name for name, each in upstreams.items() if each.entry.settings.always_load),
        )
        self._log_choice(exposure, len(tools))
        self._searched, self._index, self._all = exposure.searched, None, tools
        self._hidden = {item.wire: item for item in tools} if exposure.searched else {}
        return [*exposure.listed, *(item for item in everything if item.kind != "tool" or not item.for_model)]

    def _log_choice(self, exposure: CatalogExposure, count: int) -> None:
        """Log what was chosen when it changes; a client that lists once sees two tools instead of all."""
        if exposure.searched == self._searched:
            return
        where = f" in profile {self._options.profile}" if self._options.profile else ""
        size = f"{count} tools{where} (about {exposure.tokens:,} tokens)"
        if not exposure.searched:
            log.info("%s: all are listed again", size)
        elif self._options.search == "auto":
            log.warning(
                "%s: two search tools are listed in their place, because there are %s; --search off lists all",
                size,
                exposure.reason,
            )

    def meta_tools(self) -> dict[str, MetaTool]:
        """Return the two search tools, if the catalog is searched, with generic descriptions."""
        return {tool.name: MetaTool(tool) for tool in meta_tools(())} if self._searched else {}

    def described(self, is_visible: Callable[[CatalogItem], bool]) -> list[t.Tool]:
        """Return the two search tools, described with the names of the tools that a caller may see."""
        seen = [item for item in self._all if is_visible(item)]
        servers = {item.server for item in seen}
        instructions = {name: text for name, text in self._core.catalog.instructions.items() if name in servers}
        by_name = self._options.approval == "client"
        return meta_tools(seen, instructions=instructions, notes=self._notes(), by_name=by_name)

    def hidden(self, name: str) -> CatalogItem | None:
        """Return a tool that is not listed but may be called by name: a model may know it from a search."""
        return self._hidden.get(name)

    def search(self, arguments: dict[str, Any], is_visible: Callable[[CatalogItem], bool]) -> ToolSearchResult:
        """Search the catalog.

        Raises:
            InvalidParams: an argument is missing or wrong.
        """
        query, limit = arguments.get("query"), arguments.get("limit", 10)
        if not isinstance(query, str) or not isinstance(limit, int):
            raise InvalidParams(f"Invalid params: {SEARCH_TOOL} takes query (a string) and limit (an integer)")
        if self._index is None:
            self._index = SearchIndex(self._all, instructions=self._core.catalog.instructions)
        hits = [hit for hit in self._index.search(query, 50) if is_visible(hit.item)][: max(1, min(limit, 50))]
        return ToolSearchResult(tuple(hit.item for hit in hits), render_hits(hits))

    def inner_call(
        self, arguments: dict[str, Any], is_visible: Callable[[CatalogItem], bool]
    ) -> tuple[CatalogItem, dict[str, Any]] | t.CallToolResult:
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
        if item is None or not is_visible(item):
            return error_result(f"Unknown tool: {name[:200]}. Find its name with {SEARCH_TOOL}.")
        return item, inner

    def remember(self, session: HostSession, items: Iterable[CatalogItem]) -> bool:
        """Remember the tools that a session found, the latest last; return True if the session's list changes."""
        found, news = session.found, False
        for item in items:
            news |= item.wire not in found
            found.pop(item.wire, None)
            found[item.wire] = None
        for wire in list(found)[:-_MOST_LISTED]:
            del found[wire]
        return news

    def found(self, session: HostSession) -> list[CatalogItem]:
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

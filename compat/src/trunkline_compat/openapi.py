"""FastMCP's servers of an OpenAPI document, with our own OpenAPI server behind them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec

from trunkline.errors import ConfigError
from trunkline_compat.components import Tool
from trunkline_compat.contents import ToolResult
from trunkline_compat.context import current_context
from trunkline_compat.types import to_model, to_plain

__all__ = ["MCPType", "RouteMap", "server_from_openapi"]


class MCPType(Enum):
    """What an operation becomes: here a tool, or nothing."""

    TOOL = "TOOL"
    RESOURCE = "RESOURCE"
    RESOURCE_TEMPLATE = "RESOURCE_TEMPLATE"
    EXCLUDE = "EXCLUDE"


class RouteMap(NamedTuple):
    """Which operations become what."""

    methods: Any = "*"
    pattern: Any = ".*"
    mcp_type: MCPType = MCPType.TOOL
    tags: Any = frozenset()
    mcp_tags: Any = frozenset()

    def matches(self, route: Any) -> bool:
        """Return whether the map is about an operation."""
        methods = self.methods if self.methods == "*" else {str(name).upper() for name in self.methods}
        is_tagged = not self.tags or set(self.tags) <= set(route.tags)
        return (methods == "*" or route.method in methods) and bool(re.search(self.pattern, route.path)) and is_tagged


class _OperationTool(Tool):
    """A tool of our OpenAPI server."""

    definition: Any = None

    def listed_title(self) -> str | None:
        """Return the summary of the operation."""
        return self.title

    async def result_of(self, arguments: dict[str, Any]) -> ToolResult:
        """Call the operation."""
        if current_context() is None:
            raise RuntimeError("an operation is called only while a request is served")
        result = await self.definition.call(current_context().own.exchange, msgspec.Raw(msgspec.json.encode(arguments)))
        return ToolResult.of(to_model(result))


def server_from_openapi(
    cls: Any, document: Mapping[str, Any], client: Any, name: str | None, options: dict[str, Any]
) -> Any:
    """Return a server with a tool for each operation of a document.

    Raises:
        ConfigError: the document cannot be used, or our OpenAPI server is not installed.
    """
    try:
        from trunkline_servers.openapi.document import read_document
        from trunkline_servers.openapi.operations import list_operations
        from trunkline_servers.openapi.server import make_server
    except ImportError as error:
        raise ConfigError("from_openapi needs our OpenAPI server: pip install 'trunkline-compat[openapi]'") from error
    known = read_document(document)
    routes = {entry.name: _route(entry) for entry in list_operations(known)}
    choose = _chooser(options.pop("route_maps", None) or (), options.pop("route_map_fn", None))
    names: Mapping[str, str] = options.pop("mcp_names", None) or {}
    customize: Callable[[Any, Any], Any] | None = options.pop("mcp_component_fn", None)
    for key in ("tags", "timeout", "validate_output"):
        options.pop(key, None)
    inner = make_server(
        known,
        base_url=None if client is None else str(client.base_url).rstrip("/") or None,
        headers=_headers(client),
        exclude=[f"{route.method} {route.path}" for route in routes.values() if not choose(route)],
        name=name,
    )
    server = cls(name or inner.name, **options)
    for definition in inner.registry.tools.values():
        listed = definition.listed()
        route = routes[definition.name]
        tool = _OperationTool(
            definition=definition,
            name=names.get(route.operation_id, listed.name),
            title=listed.title,
            description=listed.description,
            parameters=to_plain(listed.input_schema),
            output_schema=listed.output_schema,
            tags=set(route.tags),
        )
        if customize is not None:
            customize(route, tool)
        server.add_component(tool)
    return server


def _route(entry: Any) -> Any:
    node = entry.node
    return SimpleNamespace(
        method=entry.method.upper(),
        path=entry.path,
        operation_id=node.get("operationId") or entry.name,
        summary=node.get("summary"),
        description=node.get("description"),
        tags=list(node.get("tags") or ()),
    )


def _chooser(maps: Any, function: Callable[..., Any] | None) -> Callable[[Any], bool]:
    """Return whether an operation is offered: by the first map that matches it, then by the function."""

    def is_offered(route: Any) -> bool:
        kind = next((each.mcp_type for each in maps if each.matches(route)), MCPType.TOOL)
        if function is not None:
            kind = function(route, kind) or kind
        return kind is not MCPType.EXCLUDE

    return is_offered


def _headers(client: Any) -> dict[str, str]:
    """Return the headers that a client of the program sends with every request, but those of its library."""
    of_library = ("accept", "accept-encoding", "connection", "user-agent")
    if client is None:
        return {}
    if getattr(client, "auth", None) is not None:
        raise ConfigError("from_openapi: auth= of the client is not used; pass the credentials as its headers=")
    return {name: value for name, value in client.headers.items() if name.lower() not in of_library}

"""FastMCP's OpenAPI provider: which operations are tools, resources or templates, and what they are called."""

from __future__ import annotations

import logging
import re
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from re import Pattern
from typing import Any

from trunkline.compat.openapi.components import (
    OpenAPIResource,
    OpenAPIResourceTemplate,
    OpenAPITool,
    _extract_mime_type_from_route,
    _slugify,
    _variable,
)
from trunkline.compat.openapi.director import RequestDirector, http_module
from trunkline.compat.openapi.parser import parse_openapi_to_http_routes
from trunkline.compat.openapi.schemas import extract_output_schema_from_responses
from trunkline.compat.providers.base import Provider
from trunkline.compat.wire import FastMCPDeprecationWarning

__all__ = [
    "DEFAULT_ROUTE_MAPPINGS",
    "DEFAULT_TIMEOUT",
    "MCPType",
    "OpenAPIProvider",
    "RouteMap",
    "server_from_fastapi",
    "server_from_openapi",
]

log = logging.getLogger("fastmcp")

DEFAULT_TIMEOUT = 30.0  # Seconds; FastMCP's own.
_LONGEST_NAME = 56  # FastMCP's own limit for names made of operation ids.


class MCPType(Enum):
    """What an operation is offered as."""

    TOOL = "TOOL"
    RESOURCE = "RESOURCE"
    RESOURCE_TEMPLATE = "RESOURCE_TEMPLATE"
    EXCLUDE = "EXCLUDE"


@dataclass(kw_only=True)
class RouteMap:
    """What operations are offered as that have a method, match a pattern and have all tags."""

    methods: Sequence[str] | str = "*"
    pattern: Pattern[str] | str = r".*"
    tags: set[str] = field(default_factory=set)
    mcp_type: MCPType
    mcp_tags: set[str] = field(default_factory=set)

    def matches(self, route: Any) -> bool:
        """Return whether an operation is meant."""
        if self.methods != "*" and route.method not in [each.upper() for each in self.methods]:
            return False
        return re.search(self.pattern, route.path) is not None and self.tags <= set(route.tags)


#: Every operation is a tool, unless it is mapped otherwise.
DEFAULT_ROUTE_MAPPINGS = (RouteMap(mcp_type=MCPType.TOOL),)


class OpenAPIProvider(Provider):
    """The operations of an OpenAPI document."""

    def __init__(
        self,
        openapi_spec: Mapping[str, Any],
        client: Any = None,
        *,
        route_maps: Sequence[RouteMap] | None = None,
        route_map_fn: Callable[..., Any] | None = None,
        mcp_component_fn: Callable[..., Any] | None = None,
        mcp_names: Mapping[str, str] | None = None,
        tags: set[str] | None = None,
        validate_output: bool = True,
    ) -> None:
        """Read the document; without a client, one for its first server is made."""
        super().__init__()
        self._owns_client = client is None
        self._client = self._create_default_client(openapi_spec) if client is None else client
        if type(self._client).__module__.partition(".")[0] == "httpx":
            warnings.warn(
                "Passing an httpx.AsyncClient is deprecated; pass an httpx2.AsyncClient",
                FastMCPDeprecationWarning,
                stacklevel=3,
            )
        self._spec = openapi_spec
        self._director = RequestDirector(openapi_spec)
        self._names = dict(mcp_names or {})
        self._component_fn = mcp_component_fn
        self._validate_output = validate_output
        self._used: dict[str, Counter[str]] = {}
        self._tools: dict[str, OpenAPITool] = {}
        self._resources: dict[str, OpenAPIResource] = {}
        self._templates: dict[str, OpenAPIResourceTemplate] = {}
        routes = parse_openapi_to_http_routes(openapi_spec)
        self._wanted = Counter(self._base_name(each) for each in routes)
        for route in routes:
            self._add(route, [*(route_maps or ()), *DEFAULT_ROUTE_MAPPINGS], route_map_fn, set(tags or ()))

    @classmethod
    def _create_default_client(cls, openapi_spec: Mapping[str, Any]) -> Any:
        """Make a client for the document's first server.

        Raises:
            ValueError: it names none.
        """
        servers = openapi_spec.get("servers") or [{}]
        url = str(servers[0].get("url") or "")
        for name, about in (servers[0].get("variables") or {}).items():
            url = url.replace(f"{{{name}}}", str(about.get("default", "")))
        if not url:
            raise ValueError("No server URL found in the OpenAPI document: pass a client with a base_url")
        return http_module().AsyncClient(base_url=url, timeout=DEFAULT_TIMEOUT)

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Close the client in the end, if it was made here."""
        try:
            yield
        finally:
            if self._owns_client:
                await self._client.aclose()

    # --- making components -------------------------------------------------------------------------------------------

    def _add(self, route: Any, maps: Sequence[RouteMap], choose: Any, tags: set[str]) -> None:
        found = next(each for each in maps if each.matches(route))
        kind = found.mcp_type
        if choose is not None:
            try:
                kind = choose(route, kind) or kind
            except Exception as error:
                log.warning("route_map_fn failed for %s %s: %s", route.method, route.path, error, exc_info=True)
        if kind is MCPType.EXCLUDE:
            return
        every = {*route.tags, *tags, *found.mcp_tags}
        name = self._unique_name(route, kind)
        if kind is MCPType.TOOL:
            self._tools[name] = self._made(route, self._tool(route, name, every))
        elif kind is MCPType.RESOURCE:
            resource = self._made(route, self._resource(route, name, every))
            self._resources[str(resource.uri)] = resource
        else:
            template = self._made(route, self._template(route, name, every))
            self._templates[template.uri_template] = template

    def _made(self, route: Any, component: Any) -> Any:
        if self._component_fn is None:
            return component
        try:
            return self._component_fn(route, component) or component
        except Exception as error:
            log.warning("mcp_component_fn failed for %s: %s", component.name, error, exc_info=True)
            return component

    def _base_name(self, route: Any) -> str:
        ident = route.operation_id
        if ident and ident in self._names:
            name = self._names[ident]
        elif ident:
            name = ident.partition("__")[0]
        else:
            name = route.summary or f"{route.method.lower()}_{route.path}"
        return _slugify(name)[:_LONGEST_NAME].rstrip("_")

    def _unique_name(self, route: Any, kind: MCPType) -> str:
        """Return a name that nothing else has; another operation's own name is left for it."""
        used = self._used.setdefault(kind.value, Counter())
        base = name = self._base_name(route)
        number = 1
        while used[name] or (name != base and self._wanted[name]):
            number += 1
            name = f"{base}_{number}"
        used[name] += 1
        return name

    def _common(self, route: Any, tags: set[str]) -> dict[str, Any]:
        return {
            "description": route.description or route.summary or f"Executes {route.method} {route.path}",
            "tags": tags,
            "client": self._client,
            "route": route,
            "director": self._director,
        }

    def _tool(self, route: Any, name: str, tags: set[str]) -> OpenAPITool:
        output = extract_output_schema_from_responses(route.responses, route.response_schemas, route.openapi_version)
        if output is not None and not self._validate_output:
            wraps = {"x-fastmcp-wrap-result": True} if output.get("x-fastmcp-wrap-result") else {}
            output = {"type": "object", "additionalProperties": True, **wraps}
        return OpenAPITool(
            name=name, parameters=route.flat_param_schema, output_schema=output, **self._common(route, tags)
        )

    def _resource(self, route: Any, name: str, tags: set[str]) -> OpenAPIResource:
        kind = _extract_mime_type_from_route(route)
        return OpenAPIResource(uri=f"resource://{name}", name=name, mime_type=kind, **self._common(route, tags))

    def _template(self, route: Any, name: str, tags: set[str]) -> OpenAPIResourceTemplate:
        inside = [each for each in route.parameters if each.location == "path"]
        properties = {}
        for each in inside:
            about = dict(each.schema_)
            if each.description:
                about["description"] = each.description
            properties[_variable(each.name)] = about
        variables = "".join(f"/{{{_variable(each.name)}}}" for each in inside)
        return OpenAPIResourceTemplate(
            uri_template=f"resource://{name}{variables}",
            name=name,
            mime_type=_extract_mime_type_from_route(route),
            parameters={"type": "object", "properties": properties, "required": list(properties)},
            **self._common(route, tags),
        )

    # --- the provider ------------------------------------------------------------------------------------------------

    async def _list_tools(self) -> Sequence[Any]:
        return list(self._tools.values())

    async def _list_resources(self) -> Sequence[Any]:
        return list(self._resources.values())

    async def _list_resource_templates(self) -> Sequence[Any]:
        return list(self._templates.values())


_OF_THE_PROVIDER = (
    "route_maps",
    "route_map_fn",
    "mcp_component_fn",
    "mcp_names",
    "tags",
    "validate_output",
)


def server_from_openapi(server_class: Any, spec: Mapping[str, Any], client: Any, options: dict[str, Any]) -> Any:
    """Make a server with the operations of a document."""
    given = {name: options.pop(name) for name in _OF_THE_PROVIDER if options.get(name) is not None}
    for name in ("timeout", "all_routes_as_tools", "httpx_client_kwargs", *_OF_THE_PROVIDER):
        options.pop(name, None)
    provider = OpenAPIProvider(spec, client, **given)
    title = str((spec.get("info") or {}).get("title") or "OpenAPI FastMCP")
    server = server_class(options.pop("name", None) or title, **options)
    server.add_provider(provider)
    return server


def server_from_fastapi(server_class: Any, app: Any, options: dict[str, Any]) -> Any:
    """Make a server with the routes of a FastAPI application, called without a network."""
    httpx = http_module()
    kwargs = {"base_url": "http://fastapi", **(options.get("httpx_client_kwargs") or {})}
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app=app), **kwargs)
    if not options.get("name"):
        options["name"] = app.title
    return server_from_openapi(server_class, app.openapi(), client, options)

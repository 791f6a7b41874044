"""FastMCP's transforms: what changes tools, prompts and resources between a provider and a client."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from trunkline.compat.components import Tool
from trunkline.compat.context import current_context
from trunkline.compat.results import ToolResult
from trunkline.compat.types import to_plain
from trunkline.server.registry import namespaced, namespaced_uri

__all__ = [
    "GetPromptNext",
    "GetResourceNext",
    "GetResourceTemplateNext",
    "GetToolNext",
    "Namespace",
    "PromptsAsTools",
    "ResourcesAsTools",
    "ToolTransform",
    "Transform",
    "Visibility",
    "is_enabled",
]


# Names of types that code uses in annotations.
GetToolNext = GetResourceNext = GetResourceTemplateNext = GetPromptNext = Any


class Transform:
    """Changes nothing; subclasses override the lists and the lookups they change."""

    async def list_tools(self, tools: Sequence[Any]) -> Sequence[Any]:
        """Change the list of tools."""
        return tools

    async def get_tool(self, name: str, call_next: Any, **options: Any) -> Any:
        """Change the lookup of a tool."""
        return await call_next(name, **options)

    async def list_resources(self, resources: Sequence[Any]) -> Sequence[Any]:
        """Change the list of resources."""
        return resources

    async def get_resource(self, uri: str, call_next: Any, **options: Any) -> Any:
        """Change the lookup of a resource."""
        return await call_next(uri, **options)

    async def list_resource_templates(self, templates: Sequence[Any]) -> Sequence[Any]:
        """Change the list of templates."""
        return templates

    async def get_resource_template(self, uri: str, call_next: Any, **options: Any) -> Any:
        """Change the lookup of a template."""
        return await call_next(uri, **options)

    async def list_prompts(self, prompts: Sequence[Any]) -> Sequence[Any]:
        """Change the list of prompts."""
        return prompts

    async def get_prompt(self, name: str, call_next: Any, **options: Any) -> Any:
        """Change the lookup of a prompt."""
        return await call_next(name, **options)


class Namespace(Transform):
    """Puts names and URIs under a namespace."""

    def __init__(self, prefix: str) -> None:
        """Initialize with the namespace."""
        self._prefix = prefix

    def __repr__(self) -> str:
        """Show the namespace."""
        return f"Namespace({self._prefix!r})"

    def _inner(self, name: str) -> str | None:
        start = f"{self._prefix}_"
        return name[len(start) :] if name.startswith(start) else None

    def _inner_uri(self, uri: str) -> str | None:
        scheme, separator, rest = uri.partition("://")
        start = f"{self._prefix}/"
        return f"{scheme}{separator}{rest[len(start) :]}" if rest.startswith(start) else None

    async def list_tools(self, tools: Sequence[Any]) -> Sequence[Any]:
        """Rename the tools."""
        return [each.model_copy(update={"name": namespaced(self._prefix, each.name)}) for each in tools]

    async def get_tool(self, name: str, call_next: Any, **options: Any) -> Any:
        """Look up under the inner name."""
        return await self._found("name", name, self._inner(name), call_next, options)

    async def list_prompts(self, prompts: Sequence[Any]) -> Sequence[Any]:
        """Rename the prompts."""
        return [each.model_copy(update={"name": namespaced(self._prefix, each.name)}) for each in prompts]

    async def get_prompt(self, name: str, call_next: Any, **options: Any) -> Any:
        """Look up under the inner name."""
        return await self._found("name", name, self._inner(name), call_next, options)

    async def list_resources(self, resources: Sequence[Any]) -> Sequence[Any]:
        """Move the resources."""
        return [each.model_copy(update={"uri": namespaced_uri(self._prefix, str(each.uri))}) for each in resources]

    async def get_resource(self, uri: str, call_next: Any, **options: Any) -> Any:
        """Look up under the inner URI."""
        return await self._found("uri", uri, self._inner_uri(uri), call_next, options)

    async def list_resource_templates(self, templates: Sequence[Any]) -> Sequence[Any]:
        """Move the templates."""
        return [
            each.model_copy(update={"uri_template": namespaced_uri(self._prefix, each.uri_template)})
            for each in templates
        ]

    async def get_resource_template(self, uri: str, call_next: Any, **options: Any) -> Any:
        """Look up under the inner URI."""
        inner = self._inner_uri(uri)
        found = None if inner is None else await call_next(inner, **options)
        if found is None:
            return None
        return found.model_copy(update={"uri_template": namespaced_uri(self._prefix, found.uri_template)})

    @staticmethod
    async def _found(member: str, outer: str, inner: str | None, call_next: Any, options: Mapping[str, Any]) -> Any:
        found = None if inner is None else await call_next(inner, **options)
        return None if found is None else found.model_copy(update={member: outer})


class Visibility(Transform):
    """Shows or hides what matches."""

    def __init__(self, enabled: bool, **criteria: Any) -> None:
        """Initialize with the criteria; without any, everything matches."""
        self._enabled = enabled
        self.names = set(criteria.get("names") or ())
        self.keys = {str(key) for key in criteria.get("keys") or ()}
        self.tags = set(criteria.get("tags") or ())
        self.components = set(criteria.get("components") or ())
        self.match_all = criteria.get("match_all", False)

    def _is_meant(self, component: Any) -> bool:
        if self.match_all:
            return True
        if self.components and component.KEY_PREFIX not in self.components:
            return False
        checks = []
        if self.names:
            checks.append(component.name in self.names or component.identifier in self.names)
        if self.keys:
            checks.append(component.key in self.keys or component.make_key(component.identifier) in self.keys)
        if self.tags:
            checks.append(bool(self.tags & component.tags))
        return all(checks) and bool(checks or self.components)

    def _shown(self, components: Sequence[Any]) -> Sequence[Any]:
        return [each for each in components if self._enabled or not self._is_meant(each)]

    async def _one(self, key: str, call_next: Any, options: Mapping[str, Any]) -> Any:
        found = await call_next(key, **options)
        return None if found is None or (self._is_meant(found) and not self._enabled) else found

    async def list_tools(self, tools: Sequence[Any]) -> Sequence[Any]:
        """Leave out what is hidden."""
        return self._shown(tools)

    async def get_tool(self, name: str, call_next: Any, **options: Any) -> Any:
        """Find nothing that is hidden."""
        return await self._one(name, call_next, options)

    list_resources = list_resource_templates = list_prompts = list_tools  # type: ignore[assignment]
    get_resource = get_resource_template = get_prompt = get_tool  # type: ignore[assignment]


def is_enabled(component: Any) -> bool:
    """Return True if an object is switched on."""
    return bool(component.enabled)


class ToolTransform(Transform):
    """Renames and changes tools by their name."""

    def __init__(self, transforms: Mapping[str, Any]) -> None:
        """Initialize with the transformation of each tool."""
        self._transforms = dict(transforms)
        self._names = {_new_name(name, how): name for name, how in self._transforms.items()}
        if len(self._names) < len(self._transforms):
            raise ValueError("ToolTransform has duplicate target name: two tools would have one name")

    def __repr__(self) -> str:
        """Show the names."""
        return f"ToolTransform({', '.join(self._transforms)})"

    async def list_tools(self, tools: Sequence[Any]) -> Sequence[Any]:
        """Change the tools that are named."""
        return [self._transforms[each.name].apply(each) if each.name in self._transforms else each for each in tools]

    async def get_tool(self, name: str, call_next: Any, **options: Any) -> Any:
        """Look up a tool under its new name."""
        inner = self._names.get(name)
        if inner is None:
            return None if name in self._transforms else await call_next(name, **options)
        found = await call_next(inner, **options)
        return None if found is None else self._transforms[inner].apply(found)


def _new_name(name: str, how: Any) -> str:
    given = getattr(how, "name", None)
    return str(given) if given else name


class _ServerTool(Tool):
    """A tool of a transform: calls a function with the server."""

    function: Any = None

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        """Call the function."""
        value = await self.function(**arguments)
        text = value if isinstance(value, str) else json.dumps(to_plain(value))
        return ToolResult(text, {"result": text} if self.output_schema else None)


class _AsTools(Transform):
    """Offers something else as two tools."""

    def __init__(self, provider: Any = None) -> None:
        """Initialize with the server whose components are offered."""
        self._provider = provider

    def _server(self) -> Any:
        return self._provider or current_context().server

    def _tools(self) -> list[Tool]:
        return []

    async def list_tools(self, tools: Sequence[Any]) -> Sequence[Any]:
        """Add the tools."""
        return [*tools, *self._tools()]

    async def get_tool(self, name: str, call_next: Any, **options: Any) -> Any:
        """Find one of the tools, or another."""
        own = next((each for each in self._tools() if each.name == name), None)
        return own or await call_next(name, **options)


class ResourcesAsTools(_AsTools):
    """Offers resources as the tools ``list_resources`` and ``read_resource``."""

    def _tools(self) -> list[Tool]:
        async def list_resources() -> Any:
            server = self._server()
            found = [to_plain(each.to_mcp_resource()) for each in await server.list_resources()]
            return found + [to_plain(each.to_mcp_template()) for each in await server.list_resource_templates()]

        async def read_resource(uri: str) -> Any:
            result = await self._server().read_resource(uri)
            return result.contents[0].content

        takes = {"type": "object", "properties": {"uri": {"type": "string"}}, "required": ["uri"]}
        return [
            _ServerTool(name="list_resources", description="List all resources.", function=list_resources),
            _ServerTool(name="read_resource", description="Read a resource.", parameters=takes, function=read_resource),
        ]


class PromptsAsTools(_AsTools):
    """Offers prompts as the tools ``list_prompts`` and ``get_prompt``."""

    def _tools(self) -> list[Tool]:
        async def list_prompts() -> Any:
            return [to_plain(each.to_mcp_prompt()) for each in await self._server().list_prompts()]

        async def get_prompt(name: str, arguments: Any = None) -> Any:
            result = await self._server().render_prompt(name, arguments)
            return to_plain(result.to_mcp_prompt_result())

        takes = {
            "type": "object",
            "properties": {"name": {"type": "string"}, "arguments": {"type": "object"}},
            "required": ["name"],
        }
        return [
            _ServerTool(name="list_prompts", description="List all prompts.", function=list_prompts),
            _ServerTool(name="get_prompt", description="Render a prompt.", parameters=takes, function=get_prompt),
        ]

"""FastMCP's transforms that offer something else as tools: the catalog, resources, prompts.

A catalog transform replaces what is listed and reads the real lists while one of its own tools runs: those lists pass
through the same transform, which then changes nothing.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import Annotated, Any

from pydantic import Field

from trunkline.compat.component_versions import VersionSpec, dedupe_with_versions
from trunkline.compat.components import Tool
from trunkline.compat.input_required import is_input_required
from trunkline.compat.transforms.base import Transform
from trunkline.compat.types import to_plain

__all__ = ["CatalogTransform", "PromptsAsTools", "ResourcesAsTools"]


class CatalogTransform(Transform):
    """Replaces lists: subclasses override ``transform_tools`` and its kin; ``get_tool_catalog`` reads the real ones."""

    def __init__(self) -> None:
        """Start as a transform that is not bypassed."""
        self._instance_id = id(self)
        self._bypass: ContextVar[bool] = ContextVar(f"trunkline.compat.catalog.{self._instance_id}", default=False)

    async def list_tools(self, tools: Sequence[Any]) -> Sequence[Any]:
        """Replace the list, unless the catalog is being read."""
        return tools if self._bypass.get() else await self.transform_tools(tools)

    async def list_resources(self, resources: Sequence[Any]) -> Sequence[Any]:
        """Replace the list, unless the catalog is being read."""
        return resources if self._bypass.get() else await self.transform_resources(resources)

    async def list_resource_templates(self, templates: Sequence[Any]) -> Sequence[Any]:
        """Replace the list, unless the catalog is being read."""
        return templates if self._bypass.get() else await self.transform_resource_templates(templates)

    async def list_prompts(self, prompts: Sequence[Any]) -> Sequence[Any]:
        """Replace the list, unless the catalog is being read."""
        return prompts if self._bypass.get() else await self.transform_prompts(prompts)

    async def transform_tools(self, tools: Sequence[Any]) -> Sequence[Any]:
        """Return what is listed instead."""
        return tools

    async def transform_resources(self, resources: Sequence[Any]) -> Sequence[Any]:
        """Return what is listed instead."""
        return resources

    async def transform_resource_templates(self, templates: Sequence[Any]) -> Sequence[Any]:
        """Return what is listed instead."""
        return templates

    async def transform_prompts(self, prompts: Sequence[Any]) -> Sequence[Any]:
        """Return what is listed instead."""
        return prompts

    async def get_tool_catalog(self, ctx: Any, *, run_middleware: bool = True) -> Sequence[Any]:
        """Return the real tools, the newest version of each, without those that only an app's own page may call."""
        found = await self._read(lambda: ctx.fastmcp.list_tools(run_middleware=run_middleware))
        return [each for each in found if _is_for_model(each)]

    async def get_resource_catalog(self, ctx: Any, *, run_middleware: bool = True) -> Sequence[Any]:
        """Return the real resources, the newest version of each."""
        return await self._read(lambda: ctx.fastmcp.list_resources(run_middleware=run_middleware))

    async def get_resource_template_catalog(self, ctx: Any, *, run_middleware: bool = True) -> Sequence[Any]:
        """Return the real templates, the newest version of each."""
        return await self._read(lambda: ctx.fastmcp.list_resource_templates(run_middleware=run_middleware))

    async def get_prompt_catalog(self, ctx: Any, *, run_middleware: bool = True) -> Sequence[Any]:
        """Return the real prompts, the newest version of each."""
        return await self._read(lambda: ctx.fastmcp.list_prompts(run_middleware=run_middleware))

    async def _read(self, listing: Callable[[], Awaitable[Sequence[Any]]]) -> Sequence[Any]:
        token = self._bypass.set(True)
        try:
            found = await listing()
        finally:
            self._bypass.reset(token)
        return dedupe_with_versions(list(found), lambda each: each.identifier)


def _is_for_model(tool: Any) -> bool:
    ui = (tool.meta or {}).get("ui")
    audience = ui.get("visibility") if isinstance(ui, dict) else None
    return audience is None or "model" in audience


class _AsTools(Transform):
    """Offers something else as two tools."""

    def __init__(self, provider: Any) -> None:
        """Initialize with the server or provider whose components are offered."""
        self._provider = provider
        self._own: tuple[Any, ...] | None = None

    def __repr__(self) -> str:
        """Show the provider."""
        return f"{type(self).__name__}({self._provider!r})"

    def _make(self) -> tuple[Any, ...]:
        return ()

    def _tools(self) -> tuple[Any, ...]:
        if self._own is None:
            self._own = self._make()
        return self._own

    async def list_tools(self, tools: Sequence[Any]) -> Sequence[Any]:
        """Add the tools."""
        return [*tools, *self._tools()]

    async def get_tool(self, name: str, call_next: Any, *, version: VersionSpec | None = None) -> Any:
        """Find one of the tools, or another."""
        own = next((each for each in self._tools() if each.name == name), None)
        return own or await call_next(name, version=version)

    async def _newest(self, verb: str) -> list[Any]:
        return dedupe_with_versions(list(await getattr(self._provider, verb)()), lambda each: each.identifier)


def _tool(function: Any) -> Any:
    return Tool.from_function(function, annotations={"readOnlyHint": True})


def _without_none(**members: Any) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


class ResourcesAsTools(_AsTools):
    """Offers resources as the tools ``list_resources`` and ``read_resource``."""

    def _make(self) -> tuple[Any, ...]:
        async def list_resources() -> str:
            """List the resources, and the templates of resources, as JSON."""
            found = [
                _without_none(uri=str(each.uri), name=each.name, description=each.description, mime_type=each.mime_type)
                for each in await self._newest("list_resources")
            ]
            found += [
                _without_none(uri_template=each.uri_template, name=each.name, description=each.description)
                for each in await self._newest("list_resource_templates")
            ]
            return json.dumps(found, indent=2)

        async def read_resource(uri: Annotated[str, Field(description="The URI of the resource")]) -> str:
            """Read a resource by its URI; bytes are returned as base64."""
            result = await _read(self._provider, uri)
            # A question of the resource's is the tool's question, too.
            return result if is_input_required(result) else _content(result)

        return _tool(list_resources), _tool(read_resource)


async def _read(provider: Any, uri: str) -> Any:
    """Read a resource of a server, or of a provider that belongs to none."""
    if hasattr(provider, "read_resource"):
        return _asked(await provider.read_resource(uri))
    from trunkline.compat.exceptions import NotFoundError

    found = await provider.get_resource(uri)
    if found is None:
        template = await provider.get_resource_template(uri)
        values = None if template is None else template.matches(uri)
        if values is None:
            raise NotFoundError(f"Unknown resource: {uri!r}")
        found = await template.create_resource(uri, values)
    value = await found.read()
    return value if is_input_required(value) else found.convert_result(value)


def _asked(result: Any) -> Any:
    """Return the questions of a result that asks, or else the result."""
    return getattr(result, "input_required", result)


def _content(result: Any) -> str:
    """Return the only content as text, or all of them as JSON."""
    contents = [
        each.content if isinstance(each.content, str) else b64encode(each.content).decode() for each in result.contents
    ]
    if len(contents) == 1:
        return str(contents[0])
    return json.dumps(
        [
            {"content": content, "mime_type": each.mime_type}
            for content, each in zip(contents, result.contents, strict=True)
        ]
    )


class PromptsAsTools(_AsTools):
    """Offers prompts as the tools ``list_prompts`` and ``get_prompt``."""

    def _make(self) -> tuple[Any, ...]:
        async def list_prompts() -> str:
            """List the prompts and their arguments as JSON."""
            found = [
                {
                    "name": each.name,
                    "description": each.description,
                    "arguments": [argument.model_dump() for argument in each.arguments or ()],
                }
                for each in await self._newest("list_prompts")
            ]
            return json.dumps(found, indent=2)

        async def get_prompt(
            name: Annotated[str, Field(description="The name of the prompt")],
            arguments: Annotated[dict[str, Any] | None, Field(description="The arguments of the prompt")] = None,
        ) -> str:
            """Render a prompt; the messages are returned as JSON."""
            result = await _render(self._provider, name, arguments)
            if is_input_required(result):
                return result  # type: ignore[no-any-return]
            messages = [{"role": each.role, "content": _text(each.content)} for each in result.messages]
            return json.dumps({"messages": messages}, indent=2)

        return _tool(list_prompts), _tool(get_prompt)


async def _render(provider: Any, name: str, arguments: dict[str, Any] | None) -> Any:
    """Render a prompt of a server, or of a provider that belongs to none."""
    if hasattr(provider, "render_prompt"):
        return _asked(await provider.render_prompt(name, arguments))
    from trunkline.compat.exceptions import NotFoundError

    found = await provider.get_prompt(name)
    if found is None:
        raise NotFoundError(f"Unknown prompt: {name!r}")
    value = await found.render(arguments)
    return value if is_input_required(value) else found.convert_result(value)


def _text(content: Any) -> Any:
    return content.text if hasattr(content, "text") else to_plain(content)

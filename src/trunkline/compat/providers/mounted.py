"""FastMCP's provider around a server: what is mounted runs through its own server, with its middleware."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trunkline.compat.component_versions import VersionSpec
from trunkline.compat.components import Prompt, Resource, ResourceTemplate, Tool
from trunkline.compat.context import current_context
from trunkline.compat.fast_templates import expand_uri_template
from trunkline.compat.features.server_extensions import delegating
from trunkline.compat.features.telemetry import delegate_span
from trunkline.compat.providers.base import Provider

__all__ = [
    "FastMCPProvider",
    "FastMCPProviderPrompt",
    "FastMCPProviderResource",
    "FastMCPProviderResourceTemplate",
    "FastMCPProviderTool",
]

#: What a stand-in does not copy: it never runs the function itself.
_NOT_COPIED = ("definition", "fn", "server", "inner_name", "inner_uri", "inner_template")


def _members(kind: type[Any], component: Any) -> dict[str, Any]:
    """Return what a stand-in of a class says about a component."""
    return {
        name: value
        for name, value in component.__dict__.items()
        if name in kind.model_fields and name not in _NOT_COPIED
    }


def _exact(version: str | None) -> VersionSpec | None:
    return None if version is None else VersionSpec(eq=version)


class FastMCPProviderTool(Tool):
    """A tool of another server."""

    server: Any = None
    inner_name: str = ""

    @classmethod
    def wrap(cls, server: Any, tool: Any) -> FastMCPProviderTool:
        """Return a stand-in that calls the tool through its server."""
        return cls.model_construct(**_members(cls, tool), server=server, inner_name=tool.name)

    async def run(self, arguments: dict[str, Any]) -> Any:
        """Call the tool through its server."""
        current = current_context()
        caller = None if current is None else current.server
        with delegate_span(self.inner_name, "tools/call"), delegating(caller, self.server):
            return await self.server.call_tool(self.inner_name, arguments, version=_exact(self.version))


class FastMCPProviderResource(Resource):
    """A resource of another server."""

    server: Any = None
    inner_uri: str = ""

    @classmethod
    def wrap(cls, server: Any, resource: Any) -> FastMCPProviderResource:
        """Return a stand-in that reads the resource through its server."""
        return cls.model_construct(**_members(cls, resource), server=server, inner_uri=str(resource.uri))

    async def read(self) -> Any:
        """Read the resource through its server."""
        with delegate_span(self.inner_uri, "resources/read"):
            return await self.server.read_resource(self.inner_uri, version=_exact(self.version))


class FastMCPProviderResourceTemplate(ResourceTemplate):
    """A template of another server."""

    server: Any = None
    inner_template: str = ""

    @classmethod
    def wrap(cls, server: Any, template: Any) -> FastMCPProviderResourceTemplate:
        """Return a stand-in that reads resources through their server."""
        made = cls.model_construct(**_members(cls, template), server=server, inner_template=template.uri_template)
        # Lists are made often, and a pattern is compiled once.
        made._pattern, made._list_query_params = template._pattern, template._list_query_params
        return made

    async def create_resource(self, uri: str, params: dict[str, Any], context: Any = None) -> Resource:
        """Return one resource of the family."""
        inner = expand_uri_template(self.inner_template, params)
        return FastMCPProviderResource.model_construct(
            **_members(Resource, self),
            uri=uri,
            server=self.server,
            inner_uri=inner,
        )

    async def read(self, arguments: dict[str, Any]) -> Any:
        """Read one resource of the family through its server."""
        inner = expand_uri_template(self.inner_template, arguments)
        return await self.server.read_resource(inner, version=_exact(self.version))


class FastMCPProviderPrompt(Prompt):
    """A prompt of another server."""

    server: Any = None
    inner_name: str = ""

    @classmethod
    def wrap(cls, server: Any, prompt: Any) -> FastMCPProviderPrompt:
        """Return a stand-in that renders the prompt through its server."""
        return cls.model_construct(**_members(cls, prompt), server=server, inner_name=prompt.name)

    async def render(self, arguments: dict[str, Any] | None = None) -> Any:
        """Render the prompt through its server."""
        with delegate_span(self.inner_name, "prompts/get"):
            return await self.server.render_prompt(self.inner_name, arguments, version=_exact(self.version))


class FastMCPProvider(Provider):
    """Everything that a server in this process offers."""

    def __init__(self, server: Any) -> None:
        """Initialize with the server."""
        super().__init__()
        self.server = server

    def __repr__(self) -> str:
        """Show the server."""
        return f"{type(self).__name__}({self.server!r})"

    def required_extensions(self) -> Sequence[Any]:
        """Return those of the server that others may register."""
        found = getattr(self.server, "required_extensions", None)
        return [] if found is None else [each for each in found() if each.auto_register]

    async def _list_tools(self) -> Sequence[Any]:
        return [FastMCPProviderTool.wrap(self.server, each) for each in await self.server.list_tools()]

    async def _list_resources(self) -> Sequence[Any]:
        return [FastMCPProviderResource.wrap(self.server, each) for each in await self.server.list_resources()]

    async def _list_resource_templates(self) -> Sequence[Any]:
        found = await self.server.list_resource_templates()
        return [FastMCPProviderResourceTemplate.wrap(self.server, each) for each in found]

    async def _list_prompts(self) -> Sequence[Any]:
        return [FastMCPProviderPrompt.wrap(self.server, each) for each in await self.server.list_prompts()]

    async def _get_tool(self, name: str, version: VersionSpec | None = None) -> Any:
        found = await self.server.get_tool(name, version)
        return None if found is None else FastMCPProviderTool.wrap(self.server, found)

    async def _get_resource(self, uri: str, version: VersionSpec | None = None) -> Any:
        found = await self.server.get_resource(uri, version)
        return None if found is None else FastMCPProviderResource.wrap(self.server, found)

    async def _get_resource_template(self, uri: str, version: VersionSpec | None = None) -> Any:
        found = await self.server.get_resource_template(uri, version)
        return None if found is None else FastMCPProviderResourceTemplate.wrap(self.server, found)

    async def _get_prompt(self, name: str, version: VersionSpec | None = None) -> Any:
        found = await self.server.get_prompt(name, version)
        return None if found is None else FastMCPProviderPrompt.wrap(self.server, found)

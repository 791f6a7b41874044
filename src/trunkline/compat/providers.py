"""FastMCP's providers: sources of tools, prompts and resources beside what a server registers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trunkline.compat.fast_server import FastMCP

__all__ = ["FastMCPProvider", "LocalProvider", "Provider"]


class Provider:
    """Offers nothing; subclasses override ``_list_tools`` and its kin."""

    def __init__(self) -> None:
        """Start without transforms."""
        self._transforms: list[Any] = []

    @property
    def transforms(self) -> list[Any]:
        """The transforms of this provider."""
        return list(self._transforms)

    def add_transform(self, transform: Any) -> None:
        """Change what this provider offers."""
        self._transforms.append(transform)

    async def _list_tools(self) -> Sequence[Any]:
        return ()

    async def _list_resources(self) -> Sequence[Any]:
        return ()

    async def _list_resource_templates(self) -> Sequence[Any]:
        return ()

    async def _list_prompts(self) -> Sequence[Any]:
        return ()

    async def _get_tool(self, name: str, version: Any = None) -> Any:
        return next((each for each in await self._list_tools() if each.name == name), None)

    async def _get_resource(self, uri: str, version: Any = None) -> Any:
        return next((each for each in await self._list_resources() if str(each.uri) == uri), None)

    async def _get_resource_template(self, uri: str, version: Any = None) -> Any:
        found = await self._list_resource_templates()
        return next((each for each in found if each.matches(uri) is not None), None)

    async def _get_prompt(self, name: str, version: Any = None) -> Any:
        return next((each for each in await self._list_prompts() if each.name == name), None)

    async def _listed(self, kind: str) -> Sequence[Any]:
        items: Sequence[Any] = await getattr(self, f"_list_{kind}")()
        for transform in self._transforms:
            items = await getattr(transform, f"list_{kind}")(items)
        return items

    async def _found(self, kind: str, key: str, options: dict[str, Any]) -> Any:
        inner = getattr(self, f"_get_{kind}")

        async def own(name: str, **_: Any) -> Any:
            return await inner(name, **options)

        chain: Any = own
        for transform in self._transforms:
            chain = _step(getattr(transform, f"get_{kind}"), chain)
        return await chain(key)

    async def list_tools(self) -> Sequence[Any]:
        """List the tools."""
        return await self._listed("tools")

    async def list_resources(self) -> Sequence[Any]:
        """List the resources."""
        return await self._listed("resources")

    async def list_resource_templates(self) -> Sequence[Any]:
        """List the templates."""
        return await self._listed("resource_templates")

    async def list_prompts(self) -> Sequence[Any]:
        """List the prompts."""
        return await self._listed("prompts")

    async def get_tool(self, name: str, **options: Any) -> Any:
        """Return a tool, or None."""
        return await self._found("tool", name, options)

    async def get_resource(self, uri: str, **options: Any) -> Any:
        """Return a resource, or None."""
        return await self._found("resource", uri, options)

    async def get_resource_template(self, uri: str, **options: Any) -> Any:
        """Return the template of a URI, or None."""
        return await self._found("resource_template", uri, options)

    async def get_prompt(self, name: str, **options: Any) -> Any:
        """Return a prompt, or None."""
        return await self._found("prompt", name, options)


def _step(find: Any, inner: Any) -> Any:
    async def step(name: str, **options: Any) -> Any:
        return await find(name, inner, **options)

    return step


class FastMCPProvider(Provider):
    """Everything that a server in this process offers."""

    def __init__(self, server: Any) -> None:
        """Initialize with the server."""
        super().__init__()
        self.server = server

    async def _list_tools(self) -> Sequence[Any]:
        found: Sequence[Any] = await self.server.list_tools()
        return found

    async def _list_resources(self) -> Sequence[Any]:
        found: Sequence[Any] = await self.server.list_resources()
        return found

    async def _list_resource_templates(self) -> Sequence[Any]:
        found: Sequence[Any] = await self.server.list_resource_templates()
        return found

    async def _list_prompts(self) -> Sequence[Any]:
        found: Sequence[Any] = await self.server.list_prompts()
        return found


class LocalProvider(FastMCP):
    """A server's own things, apart from a server."""

    def __init__(self, on_duplicate: str = "error", **options: Any) -> None:
        """Start empty."""
        super().__init__("local", on_duplicate=on_duplicate, **options)

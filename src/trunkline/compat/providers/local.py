"""FastMCP's local provider: components that are registered with decorators, in a server or apart from one.

The components are kept by a server of ours: the one that the provider belongs to, or one of the provider's own that
only stores them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trunkline.compat.component_versions import VersionSpec
from trunkline.compat.context import serving_context
from trunkline.compat.fast_server import FastMCP
from trunkline.compat.providers.base import Provider

__all__ = ["LocalProvider"]


class _Storage(FastMCP):
    """The server that keeps the components of a provider that belongs to none."""

    _context_class: Any = staticmethod(serving_context)

    def _make_local_provider(self) -> Any:
        return None


class LocalProvider(Provider):
    """Components registered in this process."""

    def __init__(self, on_duplicate: str = "error", *, storage: Any = None) -> None:
        """Start empty; ``storage`` is the server whose own components these are."""
        super().__init__()
        self._storage: Any = storage
        if storage is None:
            self._storage = _Storage("local", on_duplicate=on_duplicate)
            self._storage.local_provider = self

    @property
    def _components(self) -> dict[str, Any]:
        kinds = ("tools", "resources", "templates", "prompts")
        return {each.key: each for kind in kinds for each in self._storage.own_objects(kind)}

    def add_transform(self, transform: Any) -> None:
        """Change what this provider offers."""
        super().add_transform(transform)
        self._storage.use_pipeline()

    # --- registration ------------------------------------------------------------------------------------------------

    def tool(self, name_or_fn: Any = None, **options: Any) -> Any:
        """Register a function as a tool."""
        return self._storage.tool(name_or_fn, **options)

    def resource(self, uri: Any, **options: Any) -> Any:
        """Register a function as a resource or a template."""
        return self._storage.resource(uri, **options)

    def prompt(self, name_or_fn: Any = None, **options: Any) -> Any:
        """Register a function as a prompt."""
        return self._storage.prompt(name_or_fn, **options)

    def add_tool(self, tool: Any, **options: Any) -> Any:
        """Register a tool made as an object, or a function."""
        return self._storage.add_tool(tool, **options)

    def add_resource(self, resource: Any) -> Any:
        """Register a resource made as an object, or a marked function."""
        return self._storage.add_resource(resource)

    def add_template(self, template: Any) -> Any:
        """Register a template made as an object."""
        return self._storage.add_template(template)

    def add_prompt(self, prompt: Any) -> Any:
        """Register a prompt made as an object, or a function."""
        return self._storage.add_prompt(prompt)

    def remove_tool(self, name: str, version: str | None = None) -> None:
        """Remove a tool, or one version of it.

        Raises:
            KeyError: there is none.
        """
        self._storage.remove_versions("tools", name, version)

    def remove_resource(self, uri: Any, version: str | None = None) -> None:
        """Remove a resource, or one version of it."""
        self._storage.remove_versions("resources", str(uri), version)

    def remove_template(self, uri_template: str, version: str | None = None) -> None:
        """Remove a template, or one version of it."""
        self._storage.remove_versions("templates", uri_template, version)

    def remove_prompt(self, name: str, version: str | None = None) -> None:
        """Remove a prompt, or one version of it."""
        self._storage.remove_versions("prompts", name, version)

    # --- the provider ------------------------------------------------------------------------------------------------

    async def _list_tools(self) -> Sequence[Any]:
        return list(self._storage.own_objects("tools"))

    async def _list_resources(self) -> Sequence[Any]:
        return list(self._storage.own_objects("resources"))

    async def _list_resource_templates(self) -> Sequence[Any]:
        return list(self._storage.own_objects("templates"))

    async def _list_prompts(self) -> Sequence[Any]:
        return list(self._storage.own_objects("prompts"))

    async def _get_tool(self, name: str, version: VersionSpec | None = None) -> Any:
        return self._storage.own_object("tools", name, version)

    async def _get_resource(self, uri: str, version: VersionSpec | None = None) -> Any:
        return self._storage.own_object("resources", uri, version)

    async def _get_prompt(self, name: str, version: VersionSpec | None = None) -> Any:
        return self._storage.own_object("prompts", name, version)

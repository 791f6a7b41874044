"""FastMCP's apps: tools for a page of an app's own, and tools that show it.

The tools of the page are marked so that a host does not show them to a model, and have an identity by which the page
calls them under any namespace. Pages made of Prefab components are not supported.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trunkline.compat.addressing import hash_tool
from trunkline.compat.component_versions import VersionSpec
from trunkline.compat.providers.base import Provider
from trunkline.compat.providers.local import LocalProvider

__all__ = ["FastMCPApp"]


class FastMCPApp(Provider):
    """The tools of one app."""

    def __init__(self, name: str) -> None:
        """Start without tools."""
        super().__init__()
        self.name = name
        self._local = LocalProvider(on_duplicate="error")

    def __repr__(self) -> str:
        """Show the name."""
        return f"FastMCPApp({self.name!r})"

    def tool(self, name_or_fn: Any = None, *, name: str | None = None, model: bool = False, **options: Any) -> Any:
        """Register a function that the app's page calls, and with ``model=True`` a model, too."""
        return self._register(name_or_fn, name, ["app", "model"] if model else ["app"], options)

    def ui(self, name_or_fn: Any = None, *, name: str | None = None, **options: Any) -> Any:
        """Register a function that a model calls to show the app."""
        return self._register(name_or_fn, name, ["model"], options)

    def _register(self, given: Any, name: str | None, audience: list[str], options: dict[str, Any]) -> Any:
        if isinstance(given, str):
            given, name = None, given

        def register(function: Any) -> Any:
            own = str(name or getattr(function, "__name__", type(function).__name__))
            meta = self._marked(options.pop("meta", None), own, audience)
            self._local.tool(function, name=own, meta=meta, **options)
            return function

        return register if given is None else register(given)

    def add_tool(self, tool: Any, **_: Any) -> Any:
        """Add a tool made as an object; without a mark of its own it is for the page only."""
        from trunkline.compat.components import FunctionTool

        made = tool if hasattr(tool, "model_copy") else FunctionTool.from_function(tool)
        audience = ((made.meta or {}).get("ui") or {}).get("visibility") or ["app"]
        meta = self._marked(made.meta, made.name, list(audience))
        return self._local.add_tool(made.model_copy(update={"meta": meta}))

    def _marked(self, meta: Any, name: str, audience: list[str]) -> dict[str, Any]:
        given = dict(meta or {})
        given["ui"] = {**(given.get("ui") or {}), "visibility": audience}
        given["fastmcp"] = {**(given.get("fastmcp") or {}), "tool_hash": hash_tool(self.name, name)}
        return given

    async def _list_tools(self) -> Sequence[Any]:
        return await self._local.list_tools()

    async def _get_tool(self, name: str, version: VersionSpec | None = None) -> Any:
        return await self._local.get_tool(name, version)

    def run(self, transport: str | None = None, **options: Any) -> None:
        """Serve the app alone."""
        from trunkline.compat.fast_server import FastMCP

        server: Any = FastMCP(self.name, providers=[self])
        server.run(transport, **options)

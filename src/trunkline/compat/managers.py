"""The managers that servers of the official SDK keep their tools, prompts and resources in.

Code reaches for them under private names (``mcp._tool_manager.list_tools()``); here they are views of the server.
"""

from __future__ import annotations

import logging
from typing import Any

from trunkline.compat.components import Component
from trunkline.compat.exceptions import NotFoundError, ResourceNotFoundError, ToolError
from trunkline.compat.versions import STATE

__all__ = ["PromptManager", "ResourceManager", "ToolManager"]


class _Manager:
    """A view of one kind of thing that a server offers; without a server it has one of its own."""

    _kind = ""

    def __init__(self, server: Any = None, **options: Any) -> None:
        """Look at a server; without one, at one of its own, and the first argument is whether duplicates warn."""
        from trunkline.compat.official import MCPServer

        flag = server if isinstance(server, bool) else True
        self._warns = next((value for name, value in options.items() if name.startswith("warn_on_duplicate")), flag)
        own = server is None or isinstance(server, bool)
        flags: dict[str, Any] = {f"warn_on_duplicate_{self._kind}": self._warns}
        self._server: Any = MCPServer("manager", **flags) if own else server
        for each in options.get(self._kind) or ():
            self._add(each)

    def _add(self, component: Any) -> Any:
        """Register an object; the first of a name stays."""
        known = self._one(component.identifier)
        if known is None:
            return self._server.add_object(component)
        if self._warns:
            logging.getLogger("mcp").warning("%s already exists: %s", self._kind[:-1].title(), component.identifier)
        return known

    def _all(self) -> list[Any]:
        found: list[Any] = self._server.objects(self._kind)
        return found

    def _one(self, key: str) -> Any:
        definition = getattr(self._server.registry, self._kind).get(key)
        return None if definition is None else self._server.object_of(self._kind, key, definition)


class ToolManager(_Manager):
    """The tools of a server."""

    _kind = "tools"

    @property
    def _tools(self) -> dict[str, Any]:
        return {each.name: each for each in self._all()}

    def list_tools(self) -> list[Any]:
        """Return the tools as objects."""
        return self._all()

    def get_tool(self, name: str) -> Any:
        """Return a tool, or None."""
        return self._one(name)

    @property
    def warn_on_duplicate_tools(self) -> bool:
        """Whether a second tool of a name is worth a warning."""
        return bool(self._server.settings.warn_on_duplicate_tools)

    @warn_on_duplicate_tools.setter
    def warn_on_duplicate_tools(self, value: bool) -> None:
        self._server.settings.warn_on_duplicate_tools = value

    def add_tool(self, fn: Any, name: str | None = None, **options: Any) -> Any:
        """Register a function; the first of a name stays."""
        return self._server.put_tool(fn, {"name": name, **options})

    def remove_tool(self, name: str) -> None:
        """Remove a tool."""
        self._server.remove_tool(name)

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Any = None, convert_result: bool = False
    ) -> Any:
        """Call a tool."""
        try:
            tool = self._one(name)
            if tool is None:
                raise NotFoundError(name)
            return await tool.run(arguments, context, convert_result)
        except NotFoundError as error:
            raise ToolError(f"Unknown tool: {name}") from error


class PromptManager(_Manager):
    """The prompts of a server."""

    _kind = "prompts"

    @property
    def _prompts(self) -> dict[str, Any]:
        return {each.name: each for each in self._all()}

    def list_prompts(self) -> list[Any]:
        """Return the prompts as objects."""
        return self._all()

    def get_prompt(self, name: str) -> Any:
        """Return a prompt, or None."""
        return self._one(name)

    def add_prompt(self, prompt: Any) -> Any:
        """Register a prompt; the first of a name stays."""
        return self._add(prompt)

    async def render_prompt(self, name: str, arguments: Any = None, context: Any = None) -> Any:
        """Render a prompt."""
        prompt = self._one(name)
        if prompt is None:
            raise ValueError(f"Unknown prompt: {name}")
        return await prompt.render(arguments, context)


class ResourceManager(_Manager):
    """The resources and templates of a server."""

    _kind = "resources"

    @property
    def _resources(self) -> dict[str, Any]:
        return {str(each.uri): each for each in self._all()}

    @property
    def _templates(self) -> Any:
        return _Templates(self._server, {each.uri_template: each for each in self.list_templates()})

    def list_resources(self) -> list[Any]:
        """Return the resources as objects."""
        return self._all()

    def list_templates(self) -> list[Any]:
        """Return the templates as objects."""
        found: list[Any] = self._server.objects("templates")
        return found

    def add_resource(self, resource: Any) -> Any:
        """Register a resource; the first of a URI stays."""
        return self._add(resource)

    def add_template(self, fn: Any, uri_template: str, **options: Any) -> Any:
        """Register a template."""
        self._server.resource(str(uri_template), **options)(fn)
        return next(each for each in self.list_templates() if each.uri_template == uri_template)

    async def get_resource(self, uri: Any, context: Any = None) -> Component:
        """Return a resource, or the one that a template makes.

        Raises:
            ResourceNotFoundError: there is none; in version 1 a ValueError.
        """
        known = self._one(str(uri))
        if known is not None:
            return known  # type: ignore[no-any-return]
        for template in self.list_templates():
            values = template.matches(str(uri))
            if values is not None:
                return await template.create_resource(str(uri), values)  # type: ignore[no-any-return]
        kind: Any = ValueError if STATE.camel_case else ResourceNotFoundError
        raise kind(f"Unknown resource: {uri}")


class _Templates(dict[str, Any]):
    """The templates of a server by their text; setting one registers it."""

    def __init__(self, server: Any, known: dict[str, Any]) -> None:
        super().__init__(known)
        self._server = server

    def __setitem__(self, key: str, template: Any) -> None:
        super().__setitem__(key, template)
        self._server.add_object(template)

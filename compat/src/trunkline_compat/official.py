"""The official SDK's high-level server: ``FastMCP`` of version 1, ``MCPServer`` of version 2."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from trunkline.errors import MissingCapability, RequestFailed, UrlElicitationRequired
from trunkline.protocol.uri_template import UriTemplate
from trunkline_compat.components import (
    Component,
    OfficialPrompt,
    OfficialResource,
    OfficialTemplate,
    OfficialTool,
    Prompt,
    Tool,
)
from trunkline_compat.contents import ToolResult, to_prompt_result
from trunkline_compat.context import OfficialContext, current_context
from trunkline_compat.errors import FastMCPError, ToolError
from trunkline_compat.middleware import MiddlewareList
from trunkline_compat.overrides import serve_overrides
from trunkline_compat.serving import ForeignServer, returning
from trunkline_compat.types import to_model
from trunkline_compat.versions import STATE

__all__ = ["FastMCP", "MCPServer"]

log = logging.getLogger("mcp")


class _OfficialServer(ForeignServer):
    """What both versions have in common."""

    context_class = OfficialContext

    def __init__(self, name: str, instructions: str | None, options: dict[str, Any]) -> None:
        """Define a server."""
        given = {key: value for key, value in options.items() if value is not None}
        super().__init__(name, instructions, given)
        self.masks_errors = not STATE.is_sdk_1
        self.token_verifier = given.get("token_verifier")
        self.auth_server_provider = given.get("auth_server_provider")
        self.middleware = MiddlewareList(self, given.get("middleware", ()))
        for component in (*given.get("tools", ()), *given.get("resources", ())):
            self.add_component(component)
        for extension in given.get("extensions", ()):
            extension.apply(self)
        serve_overrides(self, _OfficialServer)

    def get_context(self) -> Any:
        """Return the context of the request being served, or one without a request."""
        return current_context() or OfficialContext(self)

    # --- registration ------------------------------------------------------------------------------------------------

    def _register(self, component: Component, table: dict[str, Any]) -> None:
        """Register a component; the first of a name stays."""
        if component.key in table:
            log.warning("%s already exists: %s", type(component).__name__.removeprefix("Official"), component.key)
        else:
            self.add_component(component)

    def tool(
        self, name: str | None = None, title: str | None = None, description: str | None = None, **options: Any
    ) -> Any:
        """Register a function as a tool: ``@mcp.tool()``."""
        _check_called(name, "tool")
        return returning(lambda function: self.add_tool(function, name, title, description, **options))

    def add_tool(
        self, fn: Any, name: str | None = None, title: str | None = None, description: str | None = None, **options: Any
    ) -> None:
        """Register a function, or a tool made as an object."""
        if not isinstance(fn, Tool):
            fn = OfficialTool.from_function(fn, name, title=title, description=description, **options)
        self._register(fn, self.tools)

    def remove_tool(self, name: str) -> None:
        """Remove a tool."""
        if name not in self.tools:
            raise ToolError(f"Unknown tool: {name}")
        self.remove_component("tools", name)

    def prompt(
        self, name: str | None = None, title: str | None = None, description: str | None = None, **options: Any
    ) -> Any:
        """Register a function as a prompt: ``@mcp.prompt()``."""
        _check_called(name, "prompt")
        given = {"title": title, "description": description, **options}
        return returning(lambda function: self.add_prompt(OfficialPrompt.from_function(function, name, **given)))

    def add_prompt(self, prompt: Prompt) -> None:
        """Register a prompt made as an object."""
        self._register(prompt, self.prompts)

    def resource(self, uri: str, *, name: str | None = None, **options: Any) -> Any:
        """Register a function as a resource, or as a template if the URI has variables."""
        if callable(uri):
            raise TypeError("write @mcp.resource('scheme://path'): the URI is missing")

        def register(function: Callable[..., Any]) -> Any:
            if UriTemplate.parse(uri).names:
                self._register(OfficialTemplate.from_function(function, uri, name, **options), self.templates)
            else:
                self._register(OfficialResource.of(function, uri, name, **options), self.resources)
            return function

        return register

    def add_resource(self, resource: Any) -> None:
        """Register a resource made as an object."""
        self._register(resource, self.resources)

    def completion(self) -> Any:
        """Register what completes arguments: ``@mcp.completion()`` on ``(ref, argument, context)``."""
        return returning(self.set_completion)

    # --- running -----------------------------------------------------------------------------------------------------

    async def run_tool(self, tool: Tool, arguments: dict[str, Any]) -> ToolResult:
        """Run a tool; version 2 keeps the text of an unexpected failure to itself."""
        label = f"Error executing tool {tool.name}"
        try:
            return await tool.result_of(arguments)
        except UrlElicitationRequired:
            raise
        except RequestFailed as error:
            if not STATE.is_sdk_1:
                raise
            raise ToolError(f"{label}: {error.message}") from error
        except (FastMCPError, MissingCapability, ValidationError) as error:
            raise ToolError(f"{label}: {error}") from error
        except Exception as error:
            log.exception("tool %r failed", tool.name)
            raise ToolError(self._failure_text(label, error)) from error

    async def list_tools(self) -> list[Any]:
        """List the tools, as the protocol has them."""
        return [tool.to_mcp_tool() for tool in self.tools.values()]

    async def list_prompts(self) -> list[Any]:
        """List the prompts, as the protocol has them."""
        return _listed(self.server.registry.prompts.values())

    async def list_resources(self) -> list[Any]:
        """List the resources, as the protocol has them."""
        return _listed(self.server.registry.resources.values())

    async def list_resource_templates(self) -> list[Any]:
        """List the templates, as the protocol has them."""
        return _listed(self.server.registry.templates.values())

    async def call_tool(self, name: str, arguments: Any = None, context: Any = None) -> Any:
        """Call a tool: its content, with the structured value if it has one; in version 2 the whole result."""
        if name not in self.tools:
            raise ToolError(f"Unknown tool: {name}")
        result = await self.run_tool(self.tools[name], dict(arguments or {}))
        if not STATE.is_sdk_1:
            return result.to_mcp_result()
        return result.content if result.structured_content is None else (result.content, result.structured_content)

    async def read_resource(self, uri: Any, context: Any = None) -> Any:
        """Read a resource."""
        return (await self.read_resource_result(str(uri))).contents

    async def get_prompt(self, name: str, arguments: Any = None, context: Any = None) -> Any:
        """Render a prompt."""
        if name not in self.prompts:
            raise ValueError(f"Unknown prompt: {name}")
        prompt = self.prompts[name]
        return to_model(to_prompt_result(await prompt.render(arguments), prompt.description))


def _check_called(name: Any, decorator: str) -> None:
    if callable(name):
        raise TypeError(f"write @mcp.{decorator}(): the parentheses are missing")


def _listed(definitions: Any) -> list[Any]:
    return [to_model(each.listed()) for each in definitions]


class FastMCP(_OfficialServer):
    """The server class of the official SDK's version 1."""

    def __init__(
        self,
        name: str | None = None,
        instructions: str | None = None,
        website_url: str | None = None,
        icons: Any = None,
        auth_server_provider: Any = None,
        token_verifier: Any = None,
        event_store: Any = None,
        retry_interval: int | None = None,
        **options: Any,
    ) -> None:
        """Define a server."""
        provided = {"auth_server_provider": auth_server_provider, "token_verifier": token_verifier}
        super().__init__(
            name or "FastMCP", instructions, {"website_url": website_url, "icons": icons, **provided, **options}
        )


class MCPServer(_OfficialServer):
    """The server class of the official SDK's version 2."""

    def __init__(
        self,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        instructions: str | None = None,
        website_url: str | None = None,
        icons: Any = None,
        version: str | None = None,
        auth_server_provider: Any = None,
        token_verifier: Any = None,
        **options: Any,
    ) -> None:
        """Define a server."""
        provided = {"auth_server_provider": auth_server_provider, "token_verifier": token_verifier}
        described = {"title": title, "description": description, "website_url": website_url, "icons": icons}
        super().__init__(name or "mcp-server", instructions, {**described, "version": version, **provided, **options})

    def default_version(self) -> str:
        """Return nothing: version 2 tells no version by itself."""
        return ""

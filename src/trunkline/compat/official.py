"""``FastMCP`` of the official SDK's version 1 and ``MCPServer`` of its version 2."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import trunkline.types as t
from trunkline.compat import calls, prompt_definitions, resource_definitions
from trunkline.compat.callables import name_of, named_parameters
from trunkline.compat.components import Component
from trunkline.compat.context import OfficialContext, current_context
from trunkline.compat.definitions import OfficialTool as OfficialToolDefinition
from trunkline.compat.exceptions import InvalidSignature, NotFoundError, ToolError
from trunkline.compat.http_apps import HttpMethods, TransportSecuritySettings
from trunkline.compat.input_required import marked_seal
from trunkline.compat.keywords import CompatibilityWarning
from trunkline.compat.managers import PromptManager, ResourceManager, ToolManager
from trunkline.compat.official_completions import official_completions
from trunkline.compat.official_components import OfficialPrompt, OfficialTool
from trunkline.compat.official_middleware import MiddlewareList
from trunkline.compat.official_resources import OfficialFunctionResource, OfficialResourceTemplate
from trunkline.compat.servers import ForeignServer, Settings
from trunkline.compat.types import to_model, to_struct
from trunkline.compat.versions import STATE
from trunkline.compat.wire import InvalidUriTemplate
from trunkline.protocol.uri_template import UriTemplate
from trunkline.server.options import tool_options

__all__ = ["FastMCP", "MCPServer"]

#: Keywords of the constructor that are settings of the server's own.
_SETTINGS = frozenset(Settings.model_fields) | {"event_store", "retry_interval", "transport_security"}


class _OfficialServer(HttpMethods, ForeignServer):  # type: ignore[misc]
    """What both versions have."""

    _context_class = OfficialContext
    tool_class = OfficialToolDefinition
    #: The function that completes arguments.
    completion_handler: Any = None
    prompt_class = prompt_definitions.OfficialPrompt
    resource_class = resource_definitions.OfficialResource
    template_class = resource_definitions.OfficialTemplate
    object_kinds = MappingProxyType(
        {
            "tools": OfficialTool,
            "prompts": OfficialPrompt,
            "resources": OfficialFunctionResource,
            "templates": OfficialResourceTemplate,
        }
    )

    def __init__(self, name: str | None, instructions: str | None, options: dict[str, Any]) -> None:
        settings = {key: options.pop(key) for key in tuple(options) if key in _SETTINGS}
        self.settings = Settings(**{key: value for key, value in settings.items() if value is not None})
        if STATE.camel_case and self.settings.transport_security is None:
            self.settings.transport_security = TransportSecuritySettings.for_host(self.settings.host)
        lifespan = settings.get("lifespan")
        tools, resources = options.pop("tools", None), options.pop("resources", None)
        middleware = options.pop("middleware", None) or ()
        self._token_verifier = options.pop("token_verifier", None)
        self._auth_server_provider = options.pop("auth_server_provider", None)
        self._ignore(options, "request_state_security", "cache_hints")
        extensions = options.pop("extensions", None) or ()
        #: Where changes that handlers announce are published, too.
        self.subscription_bus = options.pop("subscriptions", None) or None
        if options.get("resource_security", ...) is None:
            del options["resource_security"]
        own = {key: value for key, value in options.items() if value is not None}
        if own.get("icons"):
            own["icons"] = [to_struct(icon, t.Icon) for icon in own["icons"]]
        # Duplicates: the first stays, with a warning, as there.
        super().__init__(name, instructions, lifespan=lifespan, on_duplicate="ignore", mask_error_details=False, **own)
        self.middleware = MiddlewareList(self._bind_context, middleware)  # type: ignore[assignment]
        # Announced there whether there are any or not.
        self.announced = self.announced | {"tools", "resources", "prompts"}
        self._refresh()
        self.foreign_auth = self._token_verifier or self._auth_server_provider
        self.handlers["completion/complete"] = official_completions(self)
        self._tool_manager = ToolManager(self)
        self._prompt_manager = PromptManager(self)
        self._resource_manager = ResourceManager(self)
        for tool in tools or ():
            self.add_object(tool)
        for resource in resources or ():
            self.add_object(resource)
        if extensions:
            from trunkline.compat.extensions import apply_extensions

            apply_extensions(self, extensions)

    @staticmethod
    def _ignore(options: dict[str, Any], *names: str) -> None:
        for name in names:
            if options.pop(name, None):
                warnings.warn(f"{name}= has no effect", CompatibilityWarning, stacklevel=5)

    def make_tool(self, function: Callable[..., Any], options: Mapping[str, Any]) -> Any:
        """Make the definition of a tool.

        Raises:
            InvalidSignature: a parameter cannot be sent, or a structured result has no schema.
        """
        given = self._own_options("tool", function, options)
        structured = given.pop("structured_output", None)
        if "input_schema" not in given:
            function = named_parameters(function)
        try:
            return self.tool_class(function, tool_options(given), owner=self, structured_output=structured)
        except TypeError as error:
            raise InvalidSignature(str(error)) from error

    def check_prompt_function(self, function: Callable[..., Any]) -> None:
        """Accept any function: what cannot be called by name fails when it is called."""

    def template_function(self, uri: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function of a template with a parameter for each of its variables."""
        return named_parameters(function, UriTemplate.parse(uri).names)

    def unknown_tool(self, name: str) -> str:
        """Return what is said of a tool that is not there, and log it."""
        text = f"Unknown tool: {name}"
        logging.getLogger("mcp.server.mcpserver.server").info("Tool %r failed: %r", name, text)
        return text

    def unknown_resource(self, exchange: Any, uri: str, error: Exception) -> Exception:
        """Return the answer to a URI that names nothing, or nothing that may be read."""
        return resource_definitions.official_unknown(exchange, uri)

    def failed_resource(self, exchange: Any, uri: str, error: Exception) -> Exception:
        """Return the answer to a failed read."""
        return resource_definitions.official_failure(exchange, uri, error)

    @property
    def threads(self) -> bool:  # type: ignore[override]
        """Whether sync functions run in worker threads: version 1 calls them in the event loop."""
        return not STATE.camel_case

    @property
    def _mcp_server(self) -> Any:
        from trunkline.compat.lowlevel import ServerView

        return ServerView(self)

    @property
    def _lowlevel_server(self) -> Any:
        return self._mcp_server

    # --- information -------------------------------------------------------------------------------------------------

    @property
    def website_url(self) -> str | None:
        """The server's page."""
        return self.info.website_url

    @property
    def icons(self) -> Any:
        """The server's icons."""
        return to_model(self.info.icons)

    @property
    def title(self) -> str | None:
        """The server's title."""
        return self.info.title

    @property
    def description(self) -> str | None:
        """The server's description."""
        return self.info.description

    @property
    def dependencies(self) -> list[str]:
        """The packages that the server's author listed."""
        return list(self.settings.dependencies)

    @property
    def seal(self) -> Any:
        """Seals and opens request state, under the SDK's mark."""
        return marked_seal(self)

    def get_context(self) -> Any:
        """Return the context of the request being served, or one without a request."""
        return current_context() or OfficialContext(self, None)

    # --- registration ------------------------------------------------------------------------------------------------

    def tool(self, name: Any = None, title: str | None = None, description: str | None = None, **options: Any) -> Any:  # type: ignore[override]
        """Register a function as a tool: ``@mcp.tool()``."""
        if callable(name):
            raise TypeError(
                "The @tool decorator was used incorrectly. Did you forget to call it? Use @tool() instead of @tool"
            )

        def register(function: Callable[..., Any]) -> Any:
            self.add_tool(function, name, title, description, **options)
            return function

        return register

    def add_tool(  # type: ignore[override]
        self,
        fn: Any,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: Any = None,
        icons: Any = None,
        meta: Any = None,
        structured_output: bool | None = None,
    ) -> None:
        """Register a function as a tool."""
        self.put_tool(
            fn,
            {
                "name": name,
                "title": title,
                "description": description,
                "annotations": annotations,
                "icons": icons,
                "meta": meta,
                "structured_output": structured_output,
            },
        )

    def put_tool(self, fn: Any, options: dict[str, Any]) -> Any:
        """Register a function, or a tool made as an object; the first of a name stays."""
        if isinstance(fn, Component):
            return self.add_object(fn)
        if not callable(fn):
            raise AttributeError(f"{fn!r} has no function to call")
        name = str(options.get("name") or name_of(fn))
        if name == "<lambda>":
            raise ValueError("You must provide a name for lambda functions")
        if name in self._own.tools and getattr(self.settings, "warn_on_duplicate_tools", True):
            logging.getLogger("mcp").warning("Tool already exists: %s", name)
        self._add_tool(fn, options)
        return self.object_of("tools", name, self._own.tools[name])

    def remove_prompt(self, name: str) -> None:
        """Remove a prompt."""
        if name not in self._own.prompts:
            raise ValueError(f"Unknown prompt: {name}")
        super().remove_prompt(name)

    def remove_tool(self, name: str) -> None:
        """Remove a tool."""
        if name not in self._own.tools:
            raise ToolError(f"Unknown tool: {name}")
        super().remove_tool(name)

    def prompt(self, name: Any = None, title: str | None = None, description: str | None = None, **options: Any) -> Any:  # type: ignore[override]
        """Register a function as a prompt: ``@mcp.prompt()``."""
        if callable(name):
            raise TypeError("The @prompt decorator was used incorrectly. Did you forget to call it? Use @prompt()")

        def register(function: Callable[..., Any]) -> Any:
            self._add_prompt(function, {"name": name, "title": title, "description": description, **options})
            return function

        return register

    def add_prompt(self, prompt: Any, **options: Any) -> None:  # type: ignore[override]
        """Register a prompt made as an object, or a function."""
        if isinstance(prompt, Component):
            self.add_object(prompt)
        else:
            self._add_prompt(prompt, options)

    def resource(self, uri: Any, **options: Any) -> Any:
        """Register a function as a resource: ``@mcp.resource("scheme://path")``."""
        if callable(uri):
            raise TypeError(
                "The @resource decorator was used incorrectly. Did you forget to call it? Use @resource('uri')"
            )

        if "{" in str(uri):
            InvalidUriTemplate.check(str(uri))

        def register(function: Callable[..., Any]) -> Any:
            problem = None if "{" in str(uri) else resource_definitions.static_problem(function, str(uri))
            if problem is not None:
                raise ValueError(problem)
            self._add_resource(str(uri), function, options)
            return function

        return register

    def add_resource(self, resource: Any, *rest: Any, **options: Any) -> None:  # type: ignore[override]
        """Register a resource made as an object."""
        if isinstance(resource, Component):
            self.add_object(resource)
        else:
            super().add_resource(str(resource), *rest, **options)

    def completion(self, *given: Any) -> Any:
        """Register what completes arguments: ``@mcp.completion()`` on ``(ref, argument, context)``."""
        from trunkline.compat.lowlevel import completion_function

        def register(function: Any) -> Any:
            self._set_fallback_completion(completion_function(function))
            self.completion_handler = function
            return function

        return register(given[0]) if given and callable(given[0]) else register

    # --- from code ---------------------------------------------------------------------------------------------------

    async def list_tools(self) -> list[Any]:
        """List the tools, as the protocol has them."""
        return to_model([each.listed() for each in self.registry.tools.values()])  # type: ignore[no-any-return]

    async def call_tool(self, name: str, arguments: Any = None, context: Any = None) -> Any:
        """Call a tool: its content, with the structured value if it has one; in version 2 the whole result."""
        try:
            result = await calls.call_tool(self, name, arguments or {})
        except NotFoundError as error:
            raise ToolError(f"Unknown tool: {name}") from error
        if not STATE.camel_case:
            return to_model(result)
        given = calls.tool_result(result)
        return given.content if given.structured_content is None else (given.content, given.structured_content)

    async def list_resources(self) -> list[Any]:
        """List the resources."""
        return to_model([each.listed() for each in self.registry.resources.values()])  # type: ignore[no-any-return]

    async def list_resource_templates(self) -> list[Any]:
        """List the templates."""
        return to_model([each.listed() for each in self.registry.templates.values()])  # type: ignore[no-any-return]

    async def read_resource(self, uri: Any, context: Any = None) -> Any:
        """Read a resource."""
        result = await calls.read_resource(self, str(uri))
        return result.contents if hasattr(result, "contents") else result

    async def list_prompts(self) -> list[Any]:
        """List the prompts."""
        return to_model([each.listed() for each in self.registry.prompts.values()])  # type: ignore[no-any-return]

    async def get_prompt(self, name: str, arguments: Any = None, context: Any = None) -> Any:
        """Render a prompt."""
        try:
            return to_model(await calls.get_prompt(self, name, arguments))
        except NotFoundError as error:
            raise ValueError(f"Unknown prompt: {name}") from error

    @property
    def session_manager(self) -> Any:
        """What a host application enters while it serves."""
        from trunkline.compat.http_apps import SessionManager

        return SessionManager(self)


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
        given = {
            "website_url": website_url,
            "icons": icons,
            "auth_server_provider": auth_server_provider,
            "token_verifier": token_verifier,
            **options,
        }
        super().__init__(name or "FastMCP", instructions, given)


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
        given = {
            "title": title,
            "description": description,
            "website_url": website_url,
            "icons": icons,
            "version": version,
            "auth_server_provider": auth_server_provider,
            "token_verifier": token_verifier,
            **options,
        }
        super().__init__(name or "mcp-server", instructions, given)

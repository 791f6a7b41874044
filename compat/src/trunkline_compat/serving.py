"""A server of another framework: an object that registers what it offers with a server of ours, and runs that one."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from types import MappingProxyType, SimpleNamespace
from typing import Annotated, Any, ClassVar

import msgspec

import trunkline.types as t
from trunkline.errors import HandlerError, MissingCapability, RequestFailed, ResourceNotFound
from trunkline.protocol.uri_template import UriTemplate
from trunkline.server.context import Context as OwnContext
from trunkline.server.run import run_loop
from trunkline.server.server import Server
from trunkline_compat.apps import Apps
from trunkline_compat.components import (
    Component,
    Prompt,
    Resource,
    ResourceTemplate,
    Tool,
    annotations_struct,
    icons_struct,
)
from trunkline_compat.contents import ToolResult, to_prompt_result
from trunkline_compat.context import Context, serve_in
from trunkline_compat.errors import NotFoundError, ResourceError
from trunkline_compat.settings import settings as process_settings
from trunkline_compat.types import model_class, to_struct
from trunkline_compat.versions import STATE

__all__ = ["SETTINGS", "ForeignServer", "returning", "unwrap"]

log = logging.getLogger("trunkline")

#: The settings of a server, where neither it nor the environment sets them.
SETTINGS: Mapping[str, Any] = MappingProxyType(
    {
        "host": "127.0.0.1",
        "port": 8000,
        "streamable_http_path": "/mcp",
        "sse_path": "/sse",
        "message_path": "/messages/",
        "mount_path": "/",
        "json_response": False,
        "stateless_http": False,
        "debug": False,
        "log_level": "INFO",
        "dependencies": (),
        "transport_security": None,
        "auth": None,
    }
)


class ForeignServer:
    """What the servers of both frameworks have in common."""

    context_class: ClassVar[type[Context]] = Context
    #: Whether the text of unexpected failures is hidden from callers.
    masks_errors: bool = False

    def __init__(self, name: str, instructions: str | None, options: Mapping[str, Any]) -> None:
        """Define a server of ours; the options are those of both frameworks, without what is None."""
        chosen = {key: options[key] for key in SETTINGS if key in options}
        self.settings = SimpleNamespace(**{**SETTINGS, **process_settings.of_server(), **chosen})
        lifespan = options.get("lifespan")
        self.server = Server(
            name,
            instructions,
            version=options.get("version") or self.default_version(),
            lifespan=None if lifespan is None else lambda _: lifespan(self),
            title=options.get("title"),
            description=options.get("description"),
            website_url=options.get("website_url"),
            icons=icons_struct(options.get("icons")),
            capabilities=("tools", "prompts", "resources"),
            visible=self._is_visible,
            on_duplicate="replace",
            mask_error_details=False,
            list_page_size=options.get("list_page_size"),
        )
        #: What was registered, by its name or URI.
        self.tools: dict[str, Tool] = {}
        self.prompts: dict[str, Prompt] = {}
        self.resources: dict[str, Resource] = {}
        self.templates: dict[str, ResourceTemplate] = {}
        #: Routes of Starlette that are served beside the endpoint.
        self.custom_routes: list[Any] = []
        self.auth: Any = options.get("auth")

    @classmethod
    def __class_getitem__(cls, _: object) -> Any:
        """Ignore type parameters."""
        return cls

    def default_version(self) -> str:
        """Return the version that a server tells without one of its own."""
        return STATE.version("mcp") or ""

    @property
    def name(self) -> str:
        """The server's name."""
        return self.server.name

    @property
    def version(self) -> str:
        """The server's version."""
        return self.server.version

    @property
    def instructions(self) -> str | None:
        """The server's instructions."""
        return self.server.instructions

    @instructions.setter
    def instructions(self, value: str | None) -> None:
        self.server.instructions = value

    # --- registration ------------------------------------------------------------------------------------------------

    def add_component(self, component: Component) -> None:
        """Register a tool, prompt, resource or template with our server."""
        component._owner = self
        options: dict[str, Any] = {
            "name": component.name,
            "title": component.title,
            "description": component.description,
            "icons": icons_struct(component.icons),
            "tags": component.tags,
            "meta": component.listed_meta(),
            "scopes": component.scopes or None,
        }
        if "ui" in (component.meta or {}) or component.key.startswith("ui://"):
            self.server.settings.extensions = {**self.server.settings.extensions, Apps.identifier: {}}
        if isinstance(component, Tool):
            self.tools[component.name] = component
            self._add_tool(component, options)
        elif isinstance(component, Prompt):
            self.prompts[component.name] = component
            self.server.add_prompt(self._prompt_function(component), **options)
        elif isinstance(component, Resource | ResourceTemplate):
            options["mime_type"] = component.mime_type
            options["annotations"] = annotations_struct(component.annotations, t.Annotations)
            if isinstance(component, Resource):
                self.resources[component.key] = component
                self.server.add_resource(component.key, self._resource_function(component), **options)
            else:
                self.templates[component.key] = component
                self.server.add_resource(component.key, self._template_function(component), **options)

    def _add_tool(self, tool: Tool, shared: dict[str, Any]) -> None:
        async def call(trunkline_context: OwnContext, **arguments: Any) -> t.CallToolResult:
            with serve_in(self.context_class(self, trunkline_context)):
                return (await self.run_tool(tool, arguments)).to_struct()

        self.server.add_tool(
            call,
            **{**shared, "title": tool.listed_title()},
            # The same object: a program may change it before the first list.
            input_schema=tool.parameters if "type" in tool.parameters else {"type": "object", **tool.parameters},
            output_schema=tool.output_schema,
            annotations=annotations_struct(tool.annotations, t.ToolAnnotations),
            timeout=tool.timeout,
            task=True if tool.task else None,
            checked=False,
        )

    def _prompt_function(self, prompt: Prompt) -> Callable[..., Any]:
        async def get(trunkline_context: OwnContext, **arguments: Any) -> t.GetPromptResult:
            sent = {name: value for name, value in arguments.items() if value is not None}
            with serve_in(self.context_class(self, trunkline_context)):
                return to_prompt_result(await self.run_prompt(prompt, sent), prompt.description)

        described = {
            each.name: Annotated[str, msgspec.Meta(description=each.description)] if each.description else str
            for each in prompt.arguments or ()
        }
        optional = {each.name for each in prompt.arguments or () if not each.required}
        return _with_parameters(get, described, optional)

    def _resource_function(self, resource: Resource) -> Callable[..., Any]:
        async def read(trunkline_context: OwnContext) -> t.ReadResourceResult:
            with serve_in(self.context_class(self, trunkline_context)), self._naming(resource.key):
                return (await resource.result_of()).to_struct(resource.key)

        return read

    def _template_function(self, template: ResourceTemplate) -> Callable[..., Any]:
        async def read(trunkline_context: OwnContext, **values: Any) -> t.ReadResourceResult:
            uri = getattr(trunkline_context.params, "uri", template.key)
            sent = {name: value for name, value in values.items() if value is not None}
            with serve_in(self.context_class(self, trunkline_context)), self._naming(uri):
                return (await template.result_of(sent)).to_struct(uri)

        names = UriTemplate.parse(template.key).names
        return _with_parameters(read, dict.fromkeys(names, str), set(names))

    def remove_component(self, kind: str, key: str) -> None:
        """Remove what is registered under a name or URI.

        Raises:
            NotFoundError: there is nothing.
        """
        table: dict[str, Any] = getattr(self, kind)
        if key not in table:
            raise NotFoundError(f"Unknown {kind[:-1]}: {key!r}")
        del table[key]
        remove = {"tools": self.server.remove_tool, "prompts": self.server.remove_prompt}
        remove.get(kind, self.server.remove_resource)(key)

    def _is_visible(self, caller: Any, definition: Any) -> bool:
        tables: Sequence[Mapping[str, Any]] = (self.resources, self.templates)
        key = getattr(definition, "uri", None)
        if key is None:
            # Of the two kinds that have a name, only tools have headers.
            tables, key = ((self.tools if hasattr(definition, "headers") else self.prompts),), definition.name
        return all(key not in table or self.is_offered(table[key]) for table in tables)

    def all_components(self, kind: str) -> Mapping[str, Any]:
        """Return what is registered by name or URI."""
        table: Mapping[str, Any] = getattr(self, kind)
        return table

    def is_offered(self, component: Component) -> bool:
        """Return whether a component is listed and may be called."""
        return component.enabled

    # --- running what is registered ----------------------------------------------------------------------------------

    async def run_tool(self, tool: Tool, arguments: dict[str, Any]) -> ToolResult:
        """Run a tool; an error that the model should read is raised as a ``ToolError``."""
        raise NotImplementedError

    async def run_prompt(self, prompt: Prompt, arguments: dict[str, Any]) -> Any:
        """Render a prompt."""
        try:
            return await prompt.render(arguments)
        except (HandlerError, RequestFailed, MissingCapability):
            raise
        except Exception as error:
            log.exception("prompt %r failed", prompt.name)
            raise RequestFailed(self._failure_text(f"Error rendering prompt {prompt.name}", error)) from error

    def _failure_text(self, label: str, error: Exception) -> str:
        """Return what callers are told about an unexpected failure."""
        return label if self.masks_errors else f"{label}: {error}"

    @contextmanager
    def _naming(self, uri: str) -> Any:
        """Turn a failed read into an error that names the resource."""
        try:
            yield
        except NotFoundError as error:
            raise ResourceNotFound(str(error)) from error
        except (HandlerError, RequestFailed, MissingCapability):
            raise
        except Exception as error:
            log.exception("resource %s failed", uri)
            raise ResourceError(self._failure_text(f"Error reading resource {uri}", error)) from error

    # --- from code ---------------------------------------------------------------------------------------------------

    async def read_resource_result(self, uri: str) -> Any:
        """Read a resource by its URI, from code.

        Raises:
            ResourceError: there is none.
        """
        if uri in self.resources:
            return await self.resources[uri].result_of()
        for template in self.templates.values():
            values = template.matches(uri)
            if values is not None:
                return await template.result_of(values)
        raise ResourceError(f"Unknown resource: {uri}")

    # Published servers reach through to these two, although their names say that they should not.

    @property
    def _mcp_server(self) -> Any:
        """The low-level server."""
        from trunkline_compat.lowlevel import Server as LowLevelServer

        return LowLevelServer.around(self.server)

    _lowlevel_server = _mcp_server

    @property
    def _tool_manager(self) -> Any:
        """The tools, as an object of their own."""
        return _ToolManager(self)

    # --- completion --------------------------------------------------------------------------------------------------

    def set_completion(self, function: Callable[..., Any]) -> None:
        """Complete arguments with a function of ``(ref, argument, context)``."""

        async def complete(own: OwnContext, params: t.CompleteRequestParams) -> t.CompleteResult:
            kind = "PromptReference" if isinstance(params.ref, t.PromptReference) else "ResourceTemplateReference"
            ref = model_class(kind).model_validate(msgspec.to_builtins(params.ref))
            argument = SimpleNamespace(name=params.argument.name, value=params.argument.value)
            given = params.context and params.context.arguments
            with serve_in(self.context_class(self, own)):
                found = await function(ref, argument, SimpleNamespace(arguments=given) if given else None)
            if found is None:
                return t.CompleteResult(completion=t.Completion(values=[]))
            return t.CompleteResult(completion=to_struct(getattr(found, "completion", found), t.Completion))

        self.server.answer("completion/complete", complete)

    # --- HTTP --------------------------------------------------------------------------------------------------------

    def custom_route(
        self, path: str, methods: list[str], name: str | None = None, include_in_schema: bool = True
    ) -> Callable[[Any], Any]:
        """Serve a route of one's own beside the endpoint."""
        from starlette.routing import Route

        options: dict[str, Any] = {"methods": methods, "name": name, "include_in_schema": include_in_schema}
        return returning(lambda function: self.custom_routes.append(Route(path, function, **options)))

    def streamable_http_app(self, **options: Any) -> Any:
        """Return the application of the newer HTTP transports."""
        from trunkline_compat.http_apps import make_app

        return make_app(self, "http", options.pop("streamable_http_path", None), options)

    def sse_app(self, mount_path: str | None = None, **options: Any) -> Any:
        """Return the application of the oldest HTTP transport."""
        from trunkline_compat.http_apps import make_app

        return make_app(self, "sse", options.pop("sse_path", None), options)

    def http_app(self, path: str | None = None, middleware: Any = None, transport: str = "http", **options: Any) -> Any:
        """Return the application of a transport."""
        from trunkline_compat.http_apps import make_app

        return make_app(self, transport, path, {**options, "middleware": middleware})

    @cached_property
    def session_manager(self) -> Any:
        """What a host application enters while it serves."""
        from trunkline_compat.http_apps import SessionManager

        return SessionManager(self)

    # --- running -----------------------------------------------------------------------------------------------------

    def run(self, transport: str | None = None, mount_path: str | None = None, **options: Any) -> None:
        """Serve until the other side goes away, or over HTTP until told to stop."""
        run_loop(self.run_async(transport, **options))

    async def run_async(self, transport: str | None = None, **options: Any) -> None:
        """Serve inside a running event loop.

        Raises:
            ValueError: there is no such transport.
        """
        STATE.started = True
        transport = transport or self.default_transport()
        options = {name: value for name, value in options.items() if value is not None and name != "show_banner"}
        level = options.pop("log_level", None)
        if level is not None:
            logging.getLogger("trunkline").setLevel(str(level).upper())
        if transport == "stdio":
            await self.server.run_async("stdio")
        elif transport in ("http", "streamable-http", "sse"):
            from trunkline_compat.http_apps import run_http

            await run_http(self, transport, options)
        else:
            raise ValueError(f"Unknown transport: {transport}")

    def default_transport(self) -> str:
        """Return the transport of ``run()``."""
        return "stdio"

    async def run_stdio_async(self, **_: Any) -> None:
        """Serve over stdio inside a running event loop."""
        await self.run_async("stdio")

    async def run_http_async(self, transport: str = "http", **options: Any) -> None:
        """Serve over HTTP inside a running event loop."""
        await self.run_async(transport, **options)

    async def run_streamable_http_async(self, **options: Any) -> None:
        """Serve over HTTP inside a running event loop."""
        await self.run_async("streamable-http", **options)

    async def run_sse_async(self, mount_path: str | None = None, **options: Any) -> None:
        """Serve the oldest HTTP transport inside a running event loop."""
        await self.run_async("sse", **options)


class _ToolManager:
    """The tools of a server."""

    def __init__(self, server: ForeignServer) -> None:
        self._server = server
        self._tools = server.tools

    def get_tool(self, name: str) -> Tool | None:
        """Return a tool by its name."""
        return self._tools.get(name)

    def list_tools(self) -> list[Tool]:
        """Return all tools."""
        return list(self._tools.values())

    def add_tool(self, *args: Any, **options: Any) -> Any:
        """Register a tool."""
        return self._server.add_tool(*args, **options)  # type: ignore[attr-defined]

    def remove_tool(self, name: str) -> None:
        """Remove a tool."""
        self._server.remove_component("tools", name)

    async def call_tool(self, name: str, arguments: dict[str, Any], **_: Any) -> Any:
        """Call a tool."""
        return await self._server.call_tool(name, arguments)  # type: ignore[attr-defined]


def returning(add: Callable[[Any], object]) -> Callable[[Any], Any]:
    """Return a decorator that registers a function and leaves it as it is."""

    def register(function: Any) -> Any:
        add(function)
        return function

    return register


def unwrap(target: Any) -> Any:
    """Return our server behind a foreign one, high-level or low-level; anything else is returned as it is."""
    server = getattr(target, "server", None)
    return server if isinstance(server, Server) else target


def _with_parameters(function: Any, annotations: Mapping[str, Any], optional: set[str]) -> Callable[..., Any]:
    """Return a function of ``**values`` with a signature that names them, as our server reads it."""
    kind = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter("trunkline_context", kind, annotation=OwnContext)]
    for name, annotation in annotations.items():
        given = (annotation | None) if name in optional and annotation is str else annotation
        default = None if name in optional else inspect.Parameter.empty
        parameters.append(inspect.Parameter(name, kind, annotation=given, default=default))
    function.__signature__ = inspect.Signature(parameters)
    function.__annotations__ = {each.name: each.annotation for each in parameters}
    return function  # type: ignore[no-any-return]

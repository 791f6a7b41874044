"""The official SDK's low-level server: one handler for each method, and streams to run on.

Version 1 registers handlers with decorators (``@server.list_tools()``), version 2 with keywords
(``Server("x", on_list_tools=...)``). Both become handlers of a server of ours, which speaks every revision.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any

import msgspec
from pydantic import BaseModel, ConfigDict

import trunkline.types as t
from trunkline.compat.context import CURRENT_CONTEXT, OfficialContext
from trunkline.compat.http_apps import HttpMethods
from trunkline.compat.results import ResourceContent, to_blocks
from trunkline.compat.servers import ForeignServer, Settings
from trunkline.compat.streams import ProcessStream, StreamLink
from trunkline.compat.types import model_class, to_model, to_plain, to_struct
from trunkline.errors import RequestFailed
from trunkline.protocol.methods import METHODS
from trunkline.protocol.revisions import NEWEST_HANDSHAKE

__all__ = [
    "InitializationOptions",
    "NotificationOptions",
    "RequestHandlers",
    "Server",
    "ServerView",
    "completion_function",
    "method_params",
    "stdio_server",
]

log = logging.getLogger("trunkline")


class NotificationOptions:
    """Which changes of lists a server announces; ours announces all."""

    def __init__(
        self, prompts_changed: bool = False, resources_changed: bool = False, tools_changed: bool = False
    ) -> None:
        """Keep the flags."""
        self.prompts_changed = prompts_changed
        self.resources_changed = resources_changed
        self.tools_changed = tools_changed


class InitializationOptions(BaseModel):
    """What a server says about itself in the handshake."""

    model_config = ConfigDict(extra="allow")

    server_name: str
    server_version: str = ""
    capabilities: Any = None
    instructions: str | None = None
    website_url: str | None = None
    icons: Any = None
    title: str | None = None
    description: str | None = None


@asynccontextmanager
async def stdio_server(stdin: Any = None, stdout: Any = None) -> AsyncIterator[tuple[Any, Any]]:
    """Return the two streams of the process, to run a server on."""
    stream = ProcessStream()
    yield stream, stream


#: By method: the name of the keyword in version 2, and the capability that the handler adds.
_KEYWORDS = MappingProxyType(
    {
        "on_list_tools": ("tools/list", "tools"),
        "on_call_tool": ("tools/call", "tools"),
        "on_list_resources": ("resources/list", "resources"),
        "on_list_resource_templates": ("resources/templates/list", "resources"),
        "on_read_resource": ("resources/read", "resources"),
        "on_subscribe_resource": ("resources/subscribe", "resources"),
        "on_unsubscribe_resource": ("resources/unsubscribe", "resources"),
        "on_list_prompts": ("prompts/list", "prompts"),
        "on_get_prompt": ("prompts/get", "prompts"),
        "on_completion": ("completion/complete", "completions"),
        "on_set_logging_level": ("logging/setLevel", None),
        "on_ping": ("ping", None),
        "on_roots_list_changed": ("notifications/roots/list_changed", None),
        "on_progress": ("notifications/progress", None),
    }
)
_ROWS = MappingProxyType({row.name: row for row in METHODS})


class RequestHandlers(dict[Any, Any]):
    """The handlers by request type, as version 1 shows them; setting one registers it."""

    def __init__(self, server: Any) -> None:
        """Look at a server."""
        super().__init__()
        self._server = server

    def __setitem__(self, kind: Any, function: Any) -> None:
        """Register a function that takes the whole request and returns a ``ServerResult``."""
        super().__setitem__(kind, function)
        method = kind.model_fields["method"].default

        async def handle(exchange: Any, params: Any) -> Any:
            request = kind.model_validate({"method": method, "params": to_plain(method_params(params, method))})
            result = await function(request)
            return to_struct(getattr(result, "root", result), _ROWS[method].result)

        self._server.serve_method(method, handle)


class LowLevelMethods:
    """The decorators of version 1, and what they need: a server's handlers."""

    handlers: dict[str, Any]
    announced: frozenset[str]
    request_handlers: Any
    _tool_cache: dict[str, Any]

    def serve_method(self, method: str, handler: Callable[..., Any]) -> None:
        """Serve a method of the protocol with a handler, and announce it."""
        self.handlers[method] = handler
        capability = next((row[1] for row in _KEYWORDS.values() if row[0] == method), None)
        if capability is not None:
            self.announced = self.announced | {capability}
            self._refresh()  # type: ignore[attr-defined]

    # --- version 1 ---------------------------------------------------------------------------------------------------

    @property
    def request_context(self) -> Any:
        """The record of the request being served.

        Raises:
            LookupError: none is.
        """
        context = CURRENT_CONTEXT.get()
        if context is None:
            raise LookupError("there is no request")
        return context.request_context

    def _decorate_method(self, method: str, convert: Callable[[Any], Any], *names: str) -> Callable[[Any], Any]:
        """Return a decorator for a function that takes some members of the params."""

        def register(function: Any) -> Any:
            takes_request = _takes_request(function)

            async def handle(exchange: Any, params: Any) -> Any:
                if names:
                    result = await function(*(_member(params, name) for name in names))
                elif takes_request:
                    request = _REQUEST(method).model_validate({"method": method, "params": to_plain(params)})
                    result = await function(request)
                else:
                    result = await function()
                return convert(result)

            self.serve_method(method, handle)
            dict.__setitem__(self.request_handlers, _REQUEST(method), function)
            return function

        return register

    def list_tools(self) -> Any:
        """Register the function that lists the tools."""

        def convert(result: Any) -> t.ListToolsResult:
            if not isinstance(result, list | tuple):
                return to_struct(result, t.ListToolsResult)
            return t.ListToolsResult(tools=[to_struct(tool, t.Tool) for tool in result])

        return self._decorate_method("tools/list", convert)

    def call_tool(self, *, validate_input: bool = True) -> Any:
        """Register the function that calls tools: ``(name, arguments)`` to content."""

        def register(function: Any) -> Any:
            async def handle(exchange: Any, params: t.CallToolRequestParams) -> Any:
                arguments = {} if params.arguments is None else msgspec.json.decode(params.arguments)
                try:
                    problem = await self._problem(exchange, params.name, arguments) if validate_input else None
                    if problem is not None:
                        return _failed(f"Input validation error: {problem}")
                    return _tool_answer(await function(params.name, arguments or {}))
                except RequestFailed as error:
                    if error.code == -32042:
                        raise
                    return _failed(error.message)
                except Exception as error:
                    log.debug("tool %r failed", params.name, exc_info=error)
                    return _failed(str(error))

            self.serve_method("tools/call", handle)
            dict.__setitem__(self.request_handlers, _REQUEST("tools/call"), function)
            return function

        return register

    async def _problem(self, exchange: Any, name: str, arguments: Any) -> str | None:
        """Return what is wrong with the arguments by the schema that the server lists."""
        if name not in self._tool_cache and self.handlers.get("tools/list") is not None:
            page = await self.handlers["tools/list"](exchange, t.PaginatedRequestParams())
            if isinstance(page, t.ListToolsResult):
                self._tool_cache = {tool.name: tool.input_schema for tool in page.tools}
        schema = self._tool_cache.get(name)
        if schema is None:
            return None
        from trunkline.protocol.json_schema import SchemaError, compile_schema

        try:
            found = compile_schema(schema).first_violation(arguments)
        except SchemaError:
            return None
        return None if found is None else f"{found.path + ': ' if found.path else ''}{found.message}"

    def list_prompts(self) -> Any:
        """Register the function that lists the prompts."""

        def convert(result: Any) -> t.ListPromptsResult:
            if not isinstance(result, list | tuple):
                return to_struct(result, t.ListPromptsResult)
            return t.ListPromptsResult(prompts=[to_struct(each, t.Prompt) for each in result])

        return self._decorate_method("prompts/list", convert)

    def get_prompt(self) -> Any:
        """Register the function that renders prompts: ``(name, arguments)``."""
        return self._decorate_method(
            "prompts/get", lambda result: to_struct(result, t.GetPromptResult), "name", "arguments"
        )

    def list_resources(self) -> Any:
        """Register the function that lists the resources."""

        def convert(result: Any) -> t.ListResourcesResult:
            if not isinstance(result, list | tuple):
                return to_struct(result, t.ListResourcesResult)
            return t.ListResourcesResult(resources=[to_struct(each, t.Resource) for each in result])

        return self._decorate_method("resources/list", convert)

    def list_resource_templates(self) -> Any:
        """Register the function that lists the templates."""

        def convert(result: Any) -> t.ListResourceTemplatesResult:
            return t.ListResourceTemplatesResult(
                resource_templates=[to_struct(each, t.ResourceTemplate) for each in result]
            )

        return self._decorate_method("resources/templates/list", convert)

    def read_resource(self) -> Any:
        """Register the function that reads resources: a URI to text, bytes, or several contents."""

        def register(function: Any) -> Any:
            async def handle(exchange: Any, params: t.ReadResourceRequestParams) -> Any:
                from pydantic import AnyUrl

                result = await function(AnyUrl(params.uri))
                if hasattr(result, "contents"):
                    return to_struct(result, t.ReadResourceResult)
                items = [result] if isinstance(result, str | bytes) else list(result)
                contents = [
                    item if hasattr(item, "to_mcp_resource_contents") else ResourceContent(item) for item in items
                ]
                return t.ReadResourceResult(
                    contents=[
                        to_struct(each.to_mcp_resource_contents(params.uri), t.ResourceContents) for each in contents
                    ]
                )

            self.serve_method("resources/read", handle)
            dict.__setitem__(self.request_handlers, _REQUEST("resources/read"), function)
            return function

        return register

    def subscribe_resource(self) -> Any:
        """Register what is called when a client subscribes."""
        return self._decorate_method("resources/subscribe", lambda _: t.EmptyResult(), "uri")

    def unsubscribe_resource(self) -> Any:
        """Register what is called when a client unsubscribes."""
        return self._decorate_method("resources/unsubscribe", lambda _: t.EmptyResult(), "uri")

    def set_logging_level(self) -> Any:
        """Register what is called when a client sets its level."""
        return self._decorate_method("logging/setLevel", lambda _: t.EmptyResult(), "level")

    def completion(self, *given: Any) -> Any:
        """Register what completes arguments: ``(ref, argument, context)``."""

        def register(function: Any) -> Any:
            self._set_fallback_completion(completion_function(function))  # type: ignore[attr-defined]
            return function

        return register(given[0]) if given and callable(given[0]) else register

    def progress_notification(self) -> Any:
        """Register what hears progress of the client."""

        def register(function: Any) -> Any:
            self.notification("notifications/progress")(function)  # type: ignore[attr-defined]
            return function

        return register


class Server(LowLevelMethods, HttpMethods, ForeignServer):  # type: ignore[misc]
    """A server that answers each method with one handler."""

    _context_class = OfficialContext

    def __init__(
        self,
        name: str,
        version: str | None = None,
        instructions: str | None = None,
        website_url: str | None = None,
        icons: Any = None,
        lifespan: Any = None,
        **options: Any,
    ) -> None:
        """Define a server; version 2 gives the handlers as keywords."""
        handlers = {key: options.pop(key) for key in tuple(options) if key.startswith("on_")}
        self.settings = Settings()
        super().__init__(
            name,
            instructions,
            version=version or "",
            website_url=website_url,
            icons=[to_struct(icon, t.Icon) for icon in icons or ()] or None,
            lifespan=lifespan,
            title=options.get("title"),
            description=options.get("description"),
            mask_error_details=False,
        )
        self.request_handlers = RequestHandlers(self)
        self.notification_handlers: dict[Any, Any] = {}
        self._tool_cache: dict[str, Any] = {}
        for key, function in handlers.items():
            if function is not None:
                self._add_keyword(key, function)

    # --- version 2 ---------------------------------------------------------------------------------------------------

    def _add_keyword(self, key: str, function: Callable[..., Any]) -> None:
        if key not in _KEYWORDS:
            raise TypeError(f"Server has no option {key!r}")
        self.add_request_handler(_KEYWORDS[key][0], None, function)

    def add_request_handler(self, method: str, params_type: Any, handler: Callable[..., Any]) -> None:
        """Serve a method with ``handler(context, params)``."""
        if method.startswith("notifications/"):
            self.notification(method)(handler)
            return

        async def handle(exchange: Any, params: Any) -> Any:
            context = OfficialContext(self, exchange)
            model = method_params(params, method)
            result = await handler(context.request_context, model)
            return to_struct(result if result is not None else {}, _ROWS[method].result)

        self.serve_method(method, handle)

    def add_notification_handler(self, method: str, params_type: Any, handler: Callable[..., Any]) -> None:
        """Call a function with each notification of a method."""
        self.notification(method)(handler)

    def get_request_handler(self, method: str) -> Any:
        """Return the handler of a method."""
        return self.handlers.get(method)

    # --- running -----------------------------------------------------------------------------------------------------

    def create_initialization_options(
        self, notification_options: Any = None, experimental_capabilities: Any = None, *_: Any
    ) -> InitializationOptions:
        """Return what the server says about itself."""
        return InitializationOptions(
            server_name=self.name,
            server_version=self.version,
            capabilities=self.get_capabilities(notification_options, experimental_capabilities or {}),
            instructions=self.instructions,
            website_url=self.info.website_url,
            icons=to_model(self.info.icons),
        )

    def get_capabilities(
        self, notification_options: Any = None, experimental_capabilities: Any = None, *_: Any, **__: Any
    ) -> Any:
        """Return what the server can do."""
        declared = self.capabilities(NEWEST_HANDSHAKE)
        if experimental_capabilities:
            declared["experimental"] = dict(experimental_capabilities)
        return model_class("ServerCapabilities").model_validate(declared)

    async def run(  # type: ignore[override]
        self,
        read_stream: Any = None,
        write_stream: Any = None,
        initialization_options: Any = None,
        raise_exceptions: bool = False,
        stateless: bool = False,
    ) -> None:
        """Serve two streams until they end."""
        await run_on_streams(self, read_stream, write_stream, initialization_options)


async def run_on_streams(server: Any, read_stream: Any, write_stream: Any, options: Any) -> None:
    """Serve the process's own streams, or two that carry messages."""
    if options is not None:
        server.introduce(options)
    if isinstance(read_stream, ProcessStream) or read_stream is None:
        from trunkline.compat.running import run_async

        await run_async(server, "stdio", {})
        return
    await server.serve(StreamLink(read_stream, write_stream))


class ServerView(LowLevelMethods):
    """The low-level server behind a high-level one, as code reaches for it: ``mcp._mcp_server``."""

    def __init__(self, server: Any) -> None:
        """Look at a server."""
        object.__setattr__(self, "_server", server)
        object.__setattr__(self, "request_handlers", RequestHandlers(self))
        object.__setattr__(self, "_tool_cache", {})

    def __getattr__(self, name: str) -> Any:
        """Read from the server behind."""
        return getattr(self._server, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set on the server behind."""
        if name == "_tool_cache":
            object.__setattr__(self, name, value)
        elif name in ("name", "version", "website_url", "icons"):
            self._server.rename(**{name: value})
        else:
            setattr(self._server, name, value)

    @property
    def _request_handlers(self) -> Mapping[str, Any]:
        return self._server.handlers  # type: ignore[no-any-return]

    def get_request_handler(self, method: str) -> Any:
        """Return the handler of a method, or None."""
        return self._server.handlers.get(method)

    def create_initialization_options(self, *args: Any, **options: Any) -> InitializationOptions:
        """Return what the server says about itself."""
        return InitializationOptions(
            server_name=self._server.name,
            server_version=self._server.version,
            capabilities=self.get_capabilities(),
            instructions=self._server.instructions,
        )

    def get_capabilities(self, *args: Any, **options: Any) -> Any:
        """Return what the server can do."""
        return model_class("ServerCapabilities").model_validate(self._server.capabilities(NEWEST_HANDSHAKE))

    def add_request_handler(self, method: str, params_type: Any, handler: Callable[..., Any]) -> None:
        """Serve a method with ``handler(context, params)``."""

        async def handle(exchange: Any, params: Any) -> Any:
            context = self._server._context_class(self._server, exchange)
            result = await handler(context.request_context, method_params(params, method))
            return to_struct(result if result is not None else {}, _ROWS[method].result)

        self._server.handlers[method] = handle

    def add_notification_handler(self, method: str, params_type: Any, handler: Callable[..., Any]) -> None:
        """Call ``handler(context, params)`` with each notification of a method."""

        async def received(params: Any) -> None:
            await handler(None, None if params is None else params_type.model_validate(to_plain(params)))

        self._server.notification(method)(received)

    async def run(self, read_stream: Any, write_stream: Any, options: Any = None, **_: Any) -> None:
        """Serve two streams until they end."""
        await run_on_streams(self._server, read_stream, write_stream, options)


# --- small conversions -----------------------------------------------------------------------------------------------


def _REQUEST(method: str) -> Any:
    from trunkline.compat.types import _REQUESTS

    return model_class(_REQUESTS[method])


def method_params(params: Any, method: str) -> Any:
    """Return params of ours as a model, with the arguments of a call decoded."""
    if isinstance(params, t.CallToolRequestParams):
        arguments = {} if params.arguments is None else msgspec.json.decode(params.arguments)
        meta = None if params.meta is None else msgspec.to_builtins(params.meta)
        return model_class("CallToolRequestParams").model_validate(
            {"name": params.name, "arguments": arguments, "_meta": meta}
        )
    return to_model(params)


def _member(params: Any, name: str) -> Any:
    value = getattr(params, name)
    if name == "uri":
        from pydantic import AnyUrl

        return AnyUrl(value)
    return value


def _takes_request(function: Any) -> bool:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return False
    return bool(parameters) and parameters[0].default is inspect.Parameter.empty


def _failed(message: str) -> t.CallToolResult:
    return t.CallToolResult(content=[t.TextContent(text=message)], is_error=True)


def _tool_answer(result: Any) -> t.CallToolResult:
    """Return what a low-level handler returned: content, a structured value, both, or a whole result."""
    if isinstance(result, BaseModel) and type(result).__name__ == "CallToolResult":
        return to_struct(result, t.CallToolResult)
    structured: Any = msgspec.UNSET
    content: Any = result
    if isinstance(result, Mapping):
        structured, content = to_plain(result), None
    elif isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], Mapping | type(None)):
        content, structured = result[0], msgspec.UNSET if result[1] is None else to_plain(result[1])
    if content is None and structured is not msgspec.UNSET:
        blocks = [t.TextContent(text=msgspec.json.format(msgspec.json.encode(structured)).decode())]
        return t.CallToolResult(content=list(blocks), structured_content=structured)
    blocks_given = to_blocks(list(content) if not isinstance(content, str | bytes) else content)
    return t.CallToolResult(
        content=[msgspec.convert(to_plain(block), t.ContentBlock) for block in blocks_given],
        structured_content=structured,
    )


def completion_function(function: Any) -> Any:
    """Return a completion for all arguments that gives the function models."""

    async def complete(ref: Any, argument: Any, context: Any) -> Any:
        value = function(to_model(ref), to_model(argument), to_model(context))
        found = await value if inspect.isawaitable(value) else value
        if found is None or isinstance(found, list | tuple):
            return found
        return to_struct(getattr(found, "completion", found), t.Completion)

    return complete

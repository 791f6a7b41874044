"""The official SDK's low-level server: one handler for each method, and streams to run on.

Version 1 registers handlers with decorators (``@server.list_tools()``), version 2 with keywords
(``Server("x", on_list_tools=…)``). Both become handlers of a server of ours, which speaks every revision.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any

import msgspec
from pydantic import AnyUrl, BaseModel, ConfigDict

import trunkline.types as t
from trunkline.errors import MissingCapability, UrlElicitationRequired
from trunkline.protocol.json_schema import SchemaError, compile_schema
from trunkline.protocol.revisions import NEWEST_HANDSHAKE
from trunkline.server.context import Context as OwnContext
from trunkline.server.server import Server as OwnServer
from trunkline_compat.components import icons_struct
from trunkline_compat.contents import ResourceContent, failed_call
from trunkline_compat.context import OfficialContext, current_context, serve_in
from trunkline_compat.middleware import METHOD_ROWS, MiddlewareList
from trunkline_compat.overrides import tool_answer
from trunkline_compat.streams import ProcessStream, StreamLink
from trunkline_compat.types import REQUEST_MODELS, model_class, to_model, to_plain, to_struct
from trunkline_compat.versions import STATE

__all__ = ["InitializationOptions", "NotificationOptions", "Server", "stdio_server"]

log = logging.getLogger("mcp")

#: The keywords of version 2, and the method that each serves.
_KEYWORDS = MappingProxyType(
    {
        "on_list_tools": "tools/list",
        "on_call_tool": "tools/call",
        "on_list_resources": "resources/list",
        "on_list_resource_templates": "resources/templates/list",
        "on_read_resource": "resources/read",
        "on_subscribe_resource": "resources/subscribe",
        "on_unsubscribe_resource": "resources/unsubscribe",
        "on_list_prompts": "prompts/list",
        "on_get_prompt": "prompts/get",
        "on_completion": "completion/complete",
        "on_set_logging_level": "logging/setLevel",
        "on_ping": "ping",
        "on_roots_list_changed": "notifications/roots/list_changed",
        "on_progress": "notifications/progress",
    }
)


class NotificationOptions:
    """Which changes of lists a server announces; ours announces all."""

    def __init__(
        self, prompts_changed: bool = False, resources_changed: bool = False, tools_changed: bool = False
    ) -> None:
        """Initialize with the flags."""
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


@asynccontextmanager
async def stdio_server(stdin: Any = None, stdout: Any = None) -> AsyncIterator[tuple[Any, Any]]:
    """Return the two streams of the process, to run a server on."""
    stream = ProcessStream()
    yield stream, stream


class _RequestHandlers(dict[Any, Any]):
    """The handlers by request type, as version 1 shows them; setting one registers it."""

    def __init__(self, server: Server) -> None:
        """Register with a server."""
        super().__init__()
        self._server = server

    def __setitem__(self, kind: Any, function: Any) -> None:
        """Register a function that takes the whole request and returns a ``ServerResult``."""
        super().__setitem__(kind, function)
        method = kind.model_fields["method"].default

        async def handle(params: Any) -> Any:
            result = await function(_request(method, params))
            return getattr(result, "root", result)

        self._server.serve_method(method, handle)


class Server:
    """A server that answers each method with one handler."""

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
        """Define a server; version 2 passes the handlers as keywords."""
        self.server = OwnServer(
            name,
            instructions,
            version=version or (STATE.version("mcp") or "" if STATE.is_sdk_1 else ""),
            lifespan=None if lifespan is None else lambda _: lifespan(self),
            website_url=website_url,
            icons=icons_struct(icons),
            title=options.get("title"),
            description=options.get("description"),
            mask_error_details=False,
        )
        self._begin(options.get("middleware") or ())
        for keyword, function in options.items():
            if keyword.startswith("on_") and keyword not in _KEYWORDS:
                raise TypeError(f"Server has no option {keyword!r}")
            if keyword.startswith("on_") and function is not None:
                self.add_request_handler(_KEYWORDS[keyword], None, function)

    def _begin(self, middleware: Iterable[Any]) -> None:
        self.request_handlers = _RequestHandlers(self)
        self.notification_handlers: dict[Any, Any] = {}
        #: The schemas of the tools for arguments and results, as listed.
        self._schemas: dict[str, Any] = {}
        self.middleware = MiddlewareList(self, middleware)

    @classmethod
    def around(cls, server: OwnServer) -> Server:
        """Return the low-level view of a server: programs reach through to it to replace a handler."""
        view = cls.__new__(cls)
        view.server = server
        view._begin(())
        return view

    @classmethod
    def __class_getitem__(cls, _: object) -> type[Server]:
        """Ignore type parameters."""
        return cls

    @property
    def name(self) -> str:
        """The server's name."""
        return self.server.name

    @property
    def version(self) -> str:
        """The server's version."""
        return self.server.version

    @version.setter
    def version(self, value: str | None) -> None:
        self._rename(version=value or "")

    def _rename(self, **changes: str) -> None:
        info = msgspec.structs.replace(self.server.settings.info, **changes)
        self.server.settings.info, self.server.table.stamp = info, msgspec.Raw(msgspec.json.encode(info))

    @property
    def instructions(self) -> str | None:
        """The server's instructions."""
        return self.server.instructions

    @property
    def request_context(self) -> Any:
        """The record of the request being served.

        Raises:
            LookupError: none is.
        """
        context = current_context()
        if context is None:
            raise LookupError("no request is being served")
        return context.request_context

    # --- registration ------------------------------------------------------------------------------------------------

    def serve_method(self, method: str, handler: Callable[[Any], Awaitable[Any]]) -> None:
        """Answer a method with a handler that takes its params and returns its result, as models or as ours."""

        async def answer(own: OwnContext, params: Any) -> Any:
            with serve_in(OfficialContext(self, own)):
                result = await handler(params)
            if method in ("resources/subscribe", "resources/unsubscribe") and own.session is not None:
                getattr(own.session, method.partition("/")[2])(params.uri)
            return to_struct(result, METHOD_ROWS[method].result)

        self.server.answer(method, answer)

    def add_request_handler(self, method: str, params_type: Any, handler: Callable[..., Any]) -> None:
        """Answer a method with ``handler(context, params)``, as version 2 does."""
        if method.startswith("notifications/"):
            self.server.notification(method)(lambda params: handler(None, params))
            return
        if method not in METHOD_ROWS:
            self._add_custom_method(method, params_type, handler)
            return

        async def handle(params: Any) -> Any:
            return await handler(self.request_context, to_model(params))

        self.serve_method(method, handle)

    def _add_custom_method(self, method: str, params_type: Any, handler: Callable[..., Any]) -> None:
        async def serve(ctx: OwnContext, params: dict[str, Any]) -> Any:
            with serve_in(OfficialContext(self, ctx)) as context:
                given = params_type.model_validate(params) if params_type is not None else params
                return to_plain(await handler(context.request_context, given))

        self.server.method(method)(serve)

    def _decorate(self, method: str, call: Callable[[Any, Any], Awaitable[Any]]) -> Callable[[], Any]:
        """Return a decorator that registers a function; ``call`` calls it with params and returns the result."""

        def register(function: Any) -> Any:
            async def handle(params: Any) -> Any:
                return await call(function, params)

            self.serve_method(method, handle)
            dict.__setitem__(self.request_handlers, model_class(REQUEST_MODELS[method]), function)
            return function

        return register  # type: ignore[return-value]

    def list_tools(self) -> Any:
        """Register the function that lists the tools."""
        return self._decorate("tools/list", _lister("tools/list", "ListToolsResult", "tools"))

    def list_prompts(self) -> Any:
        """Register the function that lists the prompts."""
        return self._decorate("prompts/list", _lister("prompts/list", "ListPromptsResult", "prompts"))

    def list_resources(self) -> Any:
        """Register the function that lists the resources."""
        return self._decorate("resources/list", _lister("resources/list", "ListResourcesResult", "resources"))

    def list_resource_templates(self) -> Any:
        """Register the function that lists the templates."""
        method = "resources/templates/list"
        return self._decorate(method, _lister(method, "ListResourceTemplatesResult", "resource_templates"))

    def get_prompt(self) -> Any:
        """Register the function that renders prompts: ``(name, arguments)``."""

        async def call(function: Any, params: Any) -> Any:
            return await function(params.name, params.arguments)

        return self._decorate("prompts/get", call)

    def read_resource(self) -> Any:
        """Register the function that reads resources: a URI to text, bytes, or several contents."""

        async def call(function: Any, params: Any) -> Any:
            value = await function(AnyUrl(params.uri))
            if hasattr(value, "contents"):
                return value
            items = [value] if isinstance(value, str | bytes) else list(value)
            contents = [item if isinstance(item, ResourceContent) else ResourceContent(item) for item in items]
            return t.ReadResourceResult(contents=[each.to_struct(params.uri) for each in contents])

        return self._decorate("resources/read", call)

    def call_tool(self, *, validate_input: bool = True) -> Any:
        """Register the function that calls tools: ``(name, arguments)`` to content."""

        async def call(function: Any, params: t.CallToolRequestParams) -> Any:
            arguments = {} if params.arguments is None else msgspec.json.decode(params.arguments)
            try:
                problem = await self._problem(params.name, arguments) if validate_input else None
                if problem is not None:
                    return failed_call(f"Input validation error: {problem}")
                result = tool_answer(await function(params.name, arguments or {}))
                if result.structured_content is not msgspec.UNSET and not result.is_error:
                    problem = await self._problem(params.name, result.structured_content, of_result=True)
                return result if problem is None else failed_call(f"Output validation error: {problem}")
            except (UrlElicitationRequired, MissingCapability):
                raise
            except Exception as error:
                log.debug("tool %r failed", params.name, exc_info=error)
                return failed_call(str(error))

        return self._decorate("tools/call", call)

    async def _problem(self, name: str, value: Any, *, of_result: bool = False) -> str | None:
        """Return what is wrong with arguments, or a result, by the schema that the server lists; None if nothing is."""
        lists = self.request_handlers.get(model_class("ListToolsRequest"))
        if name not in self._schemas and lists is not None:
            listed = await _lister("tools/list", "ListToolsResult", "tools")(lists, t.PaginatedRequestParams())
            self._schemas = {tool.name: (tool.input_schema, tool.output_schema) for tool in listed.tools}
        try:
            schema = self._schemas.get(name, (None, None))[of_result]
            violation = None if schema is None else compile_schema(schema).first_violation(value)
        except SchemaError:
            return None
        return None if violation is None else violation.message

    def _notified(self, method: str, *members: str) -> Any:
        async def call(function: Any, params: Any) -> Any:
            await function(*(getattr(params, name) for name in members))
            return t.EmptyResult()

        return self._decorate(method, call)

    def subscribe_resource(self) -> Any:
        """Register what is called when a client subscribes."""
        return self._notified("resources/subscribe", "uri")

    def unsubscribe_resource(self) -> Any:
        """Register what is called when a client unsubscribes."""
        return self._notified("resources/unsubscribe", "uri")

    def set_logging_level(self) -> Any:
        """Register what is called when a client sets its level."""
        return self._notified("logging/setLevel", "level")

    def completion(self) -> Any:
        """Register what completes arguments: ``(ref, argument, context)``."""

        async def call(function: Any, params: Any) -> Any:
            found = await function(to_model(params.ref), to_model(params.argument), to_model(params.context))
            values = found or model_class("Completion")(values=[])
            return model_class("CompleteResult")(completion=values)

        return self._decorate("completion/complete", call)

    def progress_notification(self) -> Any:
        """Register what hears progress of the client."""

        def register(function: Any) -> Any:
            self.server.notification("notifications/progress")(function)
            return function

        return register

    # --- serving -----------------------------------------------------------------------------------------------------

    def get_capabilities(self, notification_options: Any = None, experimental_capabilities: Any = None) -> Any:
        """Return what the server declares."""
        declared = self.server.table.capabilities(NEWEST_HANDSHAKE)
        return model_class("ServerCapabilities").model_validate(
            {**declared, **({"experimental": experimental_capabilities} if experimental_capabilities else {})}
        )

    def create_initialization_options(
        self, notification_options: Any = None, experimental_capabilities: Any = None, **_: Any
    ) -> InitializationOptions:
        """Return what the server says about itself in the handshake."""
        info = self.server.settings.info
        declared = self.get_capabilities(experimental_capabilities=experimental_capabilities)
        return InitializationOptions(
            server_name=info.name, server_version=info.version, capabilities=declared, instructions=self.instructions
        )

    async def run(
        self, read_stream: Any, write_stream: Any, initialization_options: Any = None, *_: Any, **__: Any
    ) -> None:
        """Serve two streams until they end."""
        STATE.started = True
        if initialization_options is not None:
            self._introduce(initialization_options)
        if isinstance(read_stream, ProcessStream):
            await self.server.run_async("stdio")
        else:
            await self.server.serve(StreamLink(read_stream, write_stream))

    def _introduce(self, options: InitializationOptions) -> None:
        self._rename(name=options.server_name, version=options.server_version or self.version)
        self.server.instructions = options.instructions or self.server.instructions
        experimental = to_plain(options.capabilities or {}).get("experimental")
        self.server.settings.experimental = experimental or self.server.settings.experimental

    def streamable_http_app(self, **options: Any) -> Any:
        """Return the application of the newer HTTP transports."""
        from trunkline_compat.http_apps import make_app

        return make_app(self, "http", options.pop("streamable_http_path", None), options)


def _request(method: str, params: Any) -> Any:
    return model_class(REQUEST_MODELS[method]).model_validate({"method": method, "params": to_plain(params)})


def _lister(method: str, result: str, member: str) -> Callable[[Any, Any], Awaitable[Any]]:
    """Return what calls the function of a list, which may take the request and may return the whole result."""

    async def call(function: Any, params: Any) -> Any:
        takes_request = bool(inspect.signature(function).parameters)
        items = await (function(_request(method, params)) if takes_request else function())
        return (
            model_class(result)(**{member: list(items)})
            if isinstance(items, Iterable | list) and not isinstance(items, BaseModel)
            else items
        )

    return call

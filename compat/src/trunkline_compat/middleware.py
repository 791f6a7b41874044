"""FastMCP's middleware: objects with a method for each kind of request, run as middleware functions of ours."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import msgspec

import trunkline.types as t
from trunkline.errors import MissingCapability, RequestFailed
from trunkline.protocol.methods import METHODS
from trunkline_compat.contents import PromptResult, ResourceContent, ResourceResult, ToolResult, failed_call
from trunkline_compat.context import OfficialContext, current_context, serve_in
from trunkline_compat.types import model_class, to_model, to_plain, to_struct

__all__ = [
    "Middleware",
    "MiddlewareContext",
    "MiddlewareList",
    "as_function",
    "changes_lists",
    "list_result",
    "remember_failure",
]

CallNext = Callable[["MiddlewareContext"], Awaitable[Any]]
#: Under this key our context keeps the exception of a tool.
_FAILURE = "trunkline_compat.failure"
METHOD_ROWS = MappingProxyType({row.name: row for row in METHODS})
#: The hook of each method.
_HOOKS: Mapping[str, str] = MappingProxyType(
    {
        "initialize": "on_initialize",
        "tools/call": "on_call_tool",
        "tools/list": "on_list_tools",
        "resources/read": "on_read_resource",
        "resources/list": "on_list_resources",
        "resources/templates/list": "on_list_resource_templates",
        "prompts/get": "on_get_prompt",
        "prompts/list": "on_list_prompts",
    }
)
#: The member of a list result that has the items, the table of the server with their objects, and their type.
_LISTS: Mapping[str, tuple[str, str, Any]] = MappingProxyType(
    {
        "tools/list": ("tools", "tools", t.Tool),
        "resources/list": ("resources", "resources", t.Resource),
        "resources/templates/list": ("resource_templates", "templates", t.ResourceTemplate),
        "prompts/list": ("prompts", "prompts", t.Prompt),
    }
)


@dataclass(frozen=True)
class MiddlewareContext:
    """A request on its way to its handler."""

    message: Any
    method: str | None = None
    fastmcp_context: Any = None
    source: str = "client"
    type: str = "request"
    timestamp: float = 0.0

    @classmethod
    def __class_getitem__(cls, _: object) -> Any:
        """Ignore type parameters."""
        return cls

    def copy(self, **changes: Any) -> MiddlewareContext:
        """Return a copy with other members."""
        return replace(self, **changes)


class Middleware:
    """The base of middleware: every hook passes the request on."""

    async def __call__(self, context: MiddlewareContext, call_next: CallNext) -> Any:
        """Run the hooks of a request: that of its method inside the general ones."""
        chain = call_next
        for hook in reversed(("on_message", f"on_{context.type}", _HOOKS.get(context.method or "", ""))):
            if hook:
                chain = _bound(getattr(self, hook), chain)
        return await chain(context)

    async def on_message(self, context: MiddlewareContext, call_next: CallNext) -> Any:
        """Handle any message."""
        return await call_next(context)

    on_request = on_notification = on_message
    on_initialize = on_message
    on_call_tool = on_list_tools = on_message
    on_read_resource = on_list_resources = on_list_resource_templates = on_message
    on_get_prompt = on_list_prompts = on_message


def changes_lists(middleware: Any) -> bool:
    """Return whether a middleware may change what is listed."""
    hooks = ("on_list_tools", "on_list_resources", "on_list_resource_templates", "on_list_prompts")
    return any(getattr(type(middleware), name, None) is not getattr(Middleware, name) for name in hooks)


def _bound(hook: Any, call_next: CallNext) -> CallNext:
    async def call(context: MiddlewareContext) -> Any:
        return await hook(context, call_next)

    return call


def as_function(server: Any, middleware: Any) -> Callable[..., Awaitable[Any]]:
    """Return a middleware function of ours that runs a middleware object of a foreign server."""

    async def run(request: Any, call_next: Any) -> Any:
        if request.method not in METHOD_ROWS:
            return await call_next(request)

        async def last(context: MiddlewareContext) -> Any:
            params = to_struct(context.message, type(request.params))
            result = await call_next(request.with_params(params))
            return _to_theirs(server, request.method, result)

        with serve_in(server.context_class(server, request.context)) as foreign:
            message = model_class(type(request.params).__name__).model_validate(to_plain(request.params))
            context = MiddlewareContext(message, request.method, foreign, timestamp=time.time())
            try:
                result = await middleware(context, last)
            except (RequestFailed, MissingCapability):
                raise
            except Exception as error:
                # There a failed tool is an exception until it is answered.
                if request.method != "tools/call":
                    raise
                remember_failure(error)
                return failed_call(str(error))
            return _to_ours(request.method, result, getattr(request.params, "uri", ""))

    return run


def _to_theirs(server: Any, method: str, result: Any) -> Any:
    """Return a result as middleware of FastMCP sees it: lists are lists of objects."""
    if isinstance(result, msgspec.Raw):
        result = msgspec.json.decode(result, type=METHOD_ROWS[method].result)
    if method in _LISTS:
        member, table, _ = _LISTS[method]
        known = server.all_components(table)
        return [known.get(_key(item)) or to_model(item) for item in getattr(result, member)]
    if isinstance(result, t.CallToolResult):
        own = current_context().own
        failure = own.get_state(_FAILURE)
        if failure is not None:
            # What this middleware makes of it, a result or another failure, is what the one around it sees.
            own.set_state(_FAILURE, None)
            raise failure
        return ToolResult.of(to_model(result))
    if isinstance(result, t.GetPromptResult):
        model = to_model(result)
        return PromptResult(model.messages, model.description, model.meta)
    if isinstance(result, t.ReadResourceResult):
        return ResourceResult([ResourceContent.of(each) for each in result.contents], result.meta)
    return to_model(result)


def remember_failure(error: Exception) -> None:
    """Keep the exception of a tool for the middleware around it, which would see only its text."""
    context = current_context()
    if context is not None and context._own is not None:
        context.own.set_state(_FAILURE, error)


def _key(item: Any) -> str:
    return str(getattr(item, "uri_template", None) or getattr(item, "uri", None) or item.name)


def _to_ours(method: str, result: Any, uri: str) -> Any:
    """Return what middleware returned as our server sends it."""
    if method in _LISTS:
        return list_result(method, result)
    if isinstance(result, ToolResult | PromptResult):
        return result.to_struct()
    if isinstance(result, ResourceResult):
        return result.to_struct(uri)
    return to_struct(result, METHOD_ROWS[method].result)


def list_result(method: str, items: Iterable[Any]) -> Any:
    """Return the result of a list, from objects or models."""
    member, table, kind = _LISTS[method]
    return METHOD_ROWS[method].result(**{member: [to_struct(_listed(item, table), kind) for item in items]})


def _listed(item: Any, table: str) -> Any:
    """Return an object of FastMCP as it is listed; what is a model already stays."""
    if hasattr(item, "to_mcp_tool"):
        return item.to_mcp_tool()
    if not hasattr(item, "listed_meta"):
        return item
    shared = {"name": item.name, "title": item.title, "description": item.description, "_meta": item.listed_meta()}
    if table == "prompts":
        return {**shared, "arguments": [each.model_dump(exclude_none=True) for each in item.arguments or ()]}
    member = "uriTemplate" if table == "templates" else "uri"
    return {**shared, member: item.key, "mimeType": item.mime_type}


class MiddlewareList(list[Any]):
    """The official SDK's middleware: functions that are run around every request, the first outermost."""

    def __init__(self, server: Any, functions: Any = ()) -> None:
        """Run the functions around the requests of a server."""
        super().__init__()
        self._server = server
        self._registered = False
        self.extend(functions)

    def append(self, function: Any) -> None:
        """Run a function around every request, inside the others."""
        self.insert(len(self), function)

    def extend(self, functions: Any) -> None:
        """Run several functions around every request, inside the others."""
        for function in functions:
            self.append(function)

    def insert(self, index: Any, function: Any) -> None:
        """Run a function around every request, outside the one at the index."""
        super().insert(index, function)
        if not self._registered:
            self._registered = True
            self._server.server.add_middleware(self._run)

    async def _run(self, request: Any, call_next: Any) -> Any:
        with serve_in(OfficialContext(self._server, request.context)) as foreign:
            context = foreign.request_context
            context.method, context.params = request.method, to_plain(request.params)

            async def run_from(index: int, _: Any) -> Any:
                if index == len(self):
                    return await call_next(request)
                return await self[index](context, partial(run_from, index + 1))

            result = await run_from(0, context)
        if isinstance(result, msgspec.Struct | msgspec.Raw):
            return result
        return to_struct(result, METHOD_ROWS[request.method].result)

"""The pipeline of objects behind FastMCP's middleware, transforms and providers.

Lists: what the server and its providers offer, through the transforms, inside the middleware. Calls: the middleware
around finding the object, which the transforms may rename or replace, and running it.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import msgspec

import trunkline.types as t
from trunkline.compat.middleware import MiddlewareContext, run_middleware
from trunkline.compat.results import PromptResult, ResourceResult, ToolResult
from trunkline.compat.types import model_class, to_struct
from trunkline.errors import HandlerError, InvalidParams, ResourceNotFound
from trunkline.server.tools import error_result

__all__ = ["find_object", "list_objects", "use_pipeline"]

_LISTS = (
    ("tools/list", "tools", "on_list_tools", "ListToolsRequest", t.ListToolsResult, "tools", "to_mcp_tool", t.Tool),
    (
        "resources/list",
        "resources",
        "on_list_resources",
        "ListResourcesRequest",
        t.ListResourcesResult,
        "resources",
        "to_mcp_resource",
        t.Resource,
    ),
    (
        "resources/templates/list",
        "templates",
        "on_list_resource_templates",
        "ListResourceTemplatesRequest",
        t.ListResourceTemplatesResult,
        "resource_templates",
        "to_mcp_template",
        t.ResourceTemplate,
    ),
    (
        "prompts/list",
        "prompts",
        "on_list_prompts",
        "ListPromptsRequest",
        t.ListPromptsResult,
        "prompts",
        "to_mcp_prompt",
        t.Prompt,
    ),
)
#: By the name of a shelf: the methods of transforms and providers for the list and for one.
_VERBS = MappingProxyType(
    {
        "tools": ("list_tools", "get_tool"),
        "resources": ("list_resources", "get_resource"),
        "templates": ("list_resource_templates", "get_resource_template"),
        "prompts": ("list_prompts", "get_prompt"),
    }
)


async def list_objects(server: Any, kind: str, *, run_middleware: bool = True) -> Sequence[Any]:
    """List the objects of a kind, through transforms and middleware."""

    async def last(_: Any) -> Sequence[Any]:
        return await _transformed(server, kind)

    if not run_middleware:
        return await last(None)
    row = next(row for row in _LISTS if row[1] == kind)
    context = MiddlewareContext.of(server, model_class(row[3])(), row[0])
    found: Sequence[Any] = await _around(server, context, row[2], last)
    return found


async def _transformed(server: Any, kind: str) -> Sequence[Any]:
    verb = _VERBS[kind][0]
    items: Sequence[Any] = server.objects(kind)
    for provider in getattr(server, "_providers", ()):
        items = [*items, *await getattr(provider, verb)()]
    for transform in getattr(server, "_transforms", ()):
        items = await getattr(transform, verb)(items)
    return items


async def find_object(server: Any, kind: str, key: str) -> Any:
    """Find one object by its name or URI, through the transforms."""
    verb = _VERBS[kind][1]

    async def own(name: str, **_: Any) -> Any:
        for each in server.objects(kind):
            if each.identifier == name or (kind == "templates" and each.matches(name) is not None):
                return each
        for provider in getattr(server, "_providers", ()):
            found = await getattr(provider, verb)(name)
            if found is not None:
                return found
        return None

    chain: Any = own
    for transform in getattr(server, "_transforms", ()):
        chain = _step(transform, verb, chain)
    return await chain(key)


def _step(transform: Any, verb: str, inner: Any) -> Any:
    async def find(name: str, **options: Any) -> Any:
        return await getattr(transform, verb)(name, inner, **options)

    return find


async def _around(server: Any, context: Any, hook: str, last: Any) -> Any:
    return await run_middleware(server.foreign_middleware, context, hook, last)


def use_pipeline(server: Any) -> None:
    """Put the pipeline's handlers in the place of ours."""
    for method, kind, hook, _, result, member, listed, struct in _LISTS:
        server.handlers[method] = _list_handler(server, kind, method, (hook, result, member, listed, struct))
    server.handlers["tools/call"] = _tool_handler(server)
    server.handlers["resources/read"] = _resource_handler(server)
    server.handlers["prompts/get"] = _prompt_handler(server)
    server.announced = server.announced | _offered(server)
    server._refresh()


def _offered(server: Any) -> set[str]:
    """Return the capabilities that providers and transforms may add; which ones is known only when they list."""
    more = bool(getattr(server, "_providers", ()) or getattr(server, "_transforms", ()) or server.foreign_middleware)
    return {"tools", "resources", "prompts"} if more else set()


def _list_handler(server: Any, kind: str, method: str, row: tuple[Any, ...]) -> Any:
    _, result, member, listed, struct = row

    async def handle(exchange: Any, params: Any) -> Any:
        items = await list_objects(server, kind)
        return result(**{member: [to_struct(getattr(item, listed)(), struct) for item in items]})

    return handle


def _tool_handler(server: Any) -> Any:
    async def handle(exchange: Any, params: t.CallToolRequestParams) -> Any:
        arguments = msgspec.json.decode(params.arguments) if params.arguments is not None else {}

        async def last(context: Any) -> ToolResult:
            message = context.message
            tool = await find_object(server, "tools", message.name)
            if tool is None:
                raise InvalidParams(f"Unknown tool: {message.name}", data={"name": message.name})
            result = await tool.run(dict(message.arguments or {}))
            return result if isinstance(result, ToolResult) else tool.convert_result(result)

        message = model_class("CallToolRequestParams")(name=params.name, arguments=arguments)
        context = MiddlewareContext.of(server, message, "tools/call")
        try:
            result = await _around(server, context, "on_call_tool", last)
        except HandlerError as error:
            return error_result(str(error))
        if isinstance(result, ToolResult):
            return result.to_struct()
        return to_struct(result, t.CallToolResult)

    return handle


def _resource_handler(server: Any) -> Any:
    async def handle(exchange: Any, params: t.ReadResourceRequestParams) -> Any:
        async def last(context: Any) -> Any:
            return await _read(server, str(context.message.uri))

        message = model_class("ReadResourceRequestParams")(uri=params.uri)
        context = MiddlewareContext.of(server, message, "resources/read")
        result = await _around(server, context, "on_read_resource", last)
        if isinstance(result, ResourceResult):
            return result.to_struct(params.uri)
        if isinstance(result, list):
            return ResourceResult(result).to_struct(params.uri)
        return to_struct(result, t.ReadResourceResult)

    return handle


async def _read(server: Any, uri: str) -> ResourceResult:
    resource = await find_object(server, "resources", uri)
    if resource is not None:
        return resource.convert_result(await resource.read())  # type: ignore[no-any-return]
    template = await find_object(server, "templates", uri)
    if template is None:
        raise ResourceNotFound(f"Unknown resource: {uri}", data={"uri": uri})
    found = await template.create_resource(uri, template.matches(uri) or {})
    return found.convert_result(await found.read())  # type: ignore[no-any-return]


def _prompt_handler(server: Any) -> Any:
    async def handle(exchange: Any, params: t.GetPromptRequestParams) -> Any:
        async def last(context: Any) -> Any:
            prompt = await find_object(server, "prompts", context.message.name)
            if prompt is None:
                raise InvalidParams(f"Unknown prompt: {context.message.name}", data={"name": context.message.name})
            return prompt.convert_result(await prompt.render(context.message.arguments or {}))

        message = model_class("GetPromptRequestParams")(name=params.name, arguments=params.arguments)
        context = MiddlewareContext.of(server, message, "prompts/get")
        result = await _around(server, context, "on_get_prompt", last)
        return result.to_struct() if isinstance(result, PromptResult) else to_struct(result, t.GetPromptResult)

    return handle

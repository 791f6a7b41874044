"""The pipeline of objects behind FastMCP's middleware, transforms, providers and versions.

Lists: what the server and its providers offer, through the transforms, inside the middleware; what is switched off or
not allowed for the caller is left out at the end. Calls: the middleware around finding the object, which the
transforms may rename or replace, and running it.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Raw
from pydantic import BaseModel

import trunkline.types as t
from trunkline.compat.addressing import is_app_tool_with_identity, parse_hashed_backend_name
from trunkline.compat.authorization import is_allowed
from trunkline.compat.calls import exchange_for
from trunkline.compat.component_versions import VersionSpec, calling, dedupe_with_versions, newest, requested_version
from trunkline.compat.context import current_context, serving
from trunkline.compat.exceptions import (
    AuthorizationError,
    DisabledError,
    FastMCPError,
    McpError,
    NotFoundError,
    PromptError,
    ResourceError,
    ToolError,
)
from trunkline.compat.features.asks import (
    InputRequiredPromptResult,
    InputRequiredResourceResult,
    InputRequiredToolResult,
    answer,
    as_ask,
    continued,
)
from trunkline.compat.features.cache_hints import hinted
from trunkline.compat.features.pagination import paginate_sequence
from trunkline.compat.features.request_methods import use_overrides
from trunkline.compat.features.server_extensions import dispatching, intercepted
from trunkline.compat.features.telemetry import note_component, server_span
from trunkline.compat.middleware.base import MiddlewareContext, run_middleware
from trunkline.compat.middleware.dereference import dereferenced
from trunkline.compat.middleware.messages import wrap_handlers
from trunkline.compat.providers.base import find_in, list_from
from trunkline.compat.resource_definitions import screen
from trunkline.compat.resource_security import ResourceSecurityError
from trunkline.compat.results import PromptResult, ResourceResult, ToolResult
from trunkline.compat.transforms.base import is_enabled
from trunkline.compat.types import model_class, to_plain, to_struct
from trunkline.errors import HandlerError, InvalidParams, MissingCapability, RequestFailed, ResourceNotFound
from trunkline.protocol.methods import read_meta
from trunkline.server.tools import error_result

__all__ = ["call_tool", "find_object", "list_objects", "read_resource", "render_prompt", "use_pipeline"]

log = logging.getLogger("fastmcp")


class _Kind(msgspec.Struct, frozen=True):
    """One kind of component: its list on the wire, and the methods of providers, transforms and objects."""

    shelf: str
    method: str
    verb: str
    getter: str
    request: str
    result: Any
    member: str
    listed: str
    struct: Any


_KINDS: Mapping[str, _Kind] = MappingProxyType(
    {
        row.shelf: row
        for row in (
            _Kind(
                "tools",
                "tools/list",
                "list_tools",
                "get_tool",
                "ListToolsRequest",
                t.ListToolsResult,
                "tools",
                "to_mcp_tool",
                t.Tool,
            ),
            _Kind(
                "resources",
                "resources/list",
                "list_resources",
                "get_resource",
                "ListResourcesRequest",
                t.ListResourcesResult,
                "resources",
                "to_mcp_resource",
                t.Resource,
            ),
            _Kind(
                "templates",
                "resources/templates/list",
                "list_resource_templates",
                "get_resource_template",
                "ListResourceTemplatesRequest",
                t.ListResourceTemplatesResult,
                "resource_templates",
                "to_mcp_template",
                t.ResourceTemplate,
            ),
            _Kind(
                "prompts",
                "prompts/list",
                "list_prompts",
                "get_prompt",
                "ListPromptsRequest",
                t.ListPromptsResult,
                "prompts",
                "to_mcp_prompt",
                t.Prompt,
            ),
        )
    }
)


@asynccontextmanager
async def _entered(server: Any, method: str, params: Any) -> AsyncIterator[Any]:
    """Make a context of this server the current one: within a request, for that request's caller."""
    async with exchange_for(server, method, params) as exchange:
        current = current_context()
        if current is not None and current.server is server:
            yield current
            return
        with serving(server._context_class(server, exchange)) as context:
            yield context


# --- lists and lookups -----------------------------------------------------------------------------------------------


async def list_objects(server: Any, kind: str, *, run_middleware: bool = True) -> Sequence[Any]:
    """List the objects of a kind that the caller may see, all versions."""
    row = _KINDS[kind]
    async with _entered(server, row.method, t.PaginatedRequestParams()):
        with server_span(server, row.method):
            return await _list_objects(server, row, run_middleware)


async def _list_objects(server: Any, row: _Kind, run_middleware: bool) -> Sequence[Any]:
    async def last(_: Any) -> Sequence[Any]:
        found = [each for each in await _transformed(server, row) if is_enabled(each) and await is_allowed(each)]
        injected = _injected(server) if row.shelf == "tools" else {}
        own = [each for each in injected.values() if await is_allowed(each)]
        return [*own, *(each for each in found if each.name not in injected)] if injected else found

    if not run_middleware:
        return await last(None)
    context = MiddlewareContext.of(server, model_class(row.request)(), row.method)
    return await _around(server, context, last)  # type: ignore[no-any-return]


async def _transformed(server: Any, row: _Kind) -> Sequence[Any]:
    providers = [server.local_provider, *server._providers]
    items: Sequence[Any] = await list_from(providers, row.verb, server.provider_error_strategy)
    for transform in server._transforms:
        items = await getattr(transform, row.verb)(items)
    return [server.marked_for_session(each) for each in items]


def _injected(server: Any) -> dict[str, Any]:
    """Return the tools that middleware adds: they are the server's own, so that all its middleware sees them."""
    return {
        name: tool
        for middleware in server.foreign_middleware
        for name, tool in getattr(middleware, "injected_tools", {}).items()
    }


async def _any_object(server: Any, row: _Kind, key: str, version: VersionSpec | None) -> Any:
    """Find one object, switched off or not."""
    providers = [server.local_provider, *server._providers]

    async def own(name: str, version: VersionSpec | None = None) -> Any:
        return await find_in(providers, row.getter, name, version, server.provider_error_strategy)

    chain: Any = own
    for transform in server._transforms:
        chain = _step(transform, row.getter, chain)
    try:
        return await chain(key, version=version)
    except AuthorizationError:
        return None


async def _exists(server: Any, uri: str) -> bool:
    """Return whether there is a resource of this URI, for the caller or not."""
    return await _any_object(server, _KINDS["resources"], uri, None) is not None


async def find_object(server: Any, kind: str, key: str, version: VersionSpec | None = None) -> Any:
    """Find one object by its name or URI; if its newest version may not be seen, the newest that may."""
    row = _KINDS[kind]
    injected = _injected(server).get(key) if kind == "tools" else None
    if injected is not None:
        return injected if await is_allowed(injected) else None
    found = await _any_object(server, row, key, version)
    if found is None:
        return None
    found = server.marked_for_session(found)
    if is_enabled(found) and await is_allowed(found):
        return found
    if version is not None:
        return None
    others = [
        each
        for each in await _transformed(server, row)
        if each.identifier == found.identifier and is_enabled(each) and await is_allowed(each)
    ]
    return newest(others)


def _step(transform: Any, verb: str, inner: Any) -> Any:
    async def find(name: str, version: VersionSpec | None = None) -> Any:
        return await getattr(transform, verb)(name, inner, version=version)

    return find


async def _around(server: Any, context: Any, last: Any) -> Any:
    return await run_middleware(server.foreign_middleware, context, last)


# --- calls -----------------------------------------------------------------------------------------------------------


def _meta_of(version: VersionSpec | None) -> dict[str, Any]:
    """Return the ``_meta`` that middleware sees: the version that is called."""
    return {} if version is None or version.eq is None else {"_meta": {"fastmcp": {"version": version.eq}}}


async def call_tool(
    server: Any,
    name: str,
    arguments: Mapping[str, Any] | None,
    *,
    version: VersionSpec | None = None,
    run_middleware: bool = True,
) -> Any:
    """Call a tool by name.

    Raises:
        NotFoundError: there is none.
        ToolError: it failed.
    """
    given = dict(arguments or {})
    params = t.CallToolRequestParams(name=name, arguments=Raw(msgspec.json.encode(to_plain(given))))
    async with _entered(server, "tools/call", params):

        async def run(context: Any) -> Any:
            message = context.message
            return await _run_tool(server, message.name, dict(message.arguments or {}), version)

        message = model_class("CallToolRequestParams")(name=name, arguments=given, **_meta_of(version))
        context = MiddlewareContext.of(server, continued(message), "tools/call")
        with server_span(server, "tools/call", name), calling(version), dispatching(server) as seen:
            last = intercepted(server, seen, run)
            return await (_around(server, context, last) if run_middleware else last(context))


async def _run_tool(server: Any, name: str, arguments: dict[str, Any], version: VersionSpec | None) -> Any:
    tool = await find_object(server, "tools", name, version) or await _by_identity(server, name)
    if tool is None:
        raise NotFoundError(f"Unknown tool: {name!r}")
    note_component(tool)
    try:
        result = await tool.run(arguments)
        asked = as_ask(InputRequiredToolResult, result)
        return asked or (result if isinstance(result, ToolResult) else tool.convert_result(result))
    except (NotFoundError, DisabledError) as error:
        # Something that the tool looked for: the tool itself is there.
        raise ToolError(server.error_text(f"Error calling tool {name!r}", error)) from error
    except (HandlerError, RequestFailed, MissingCapability) as error:
        if isinstance(error, FastMCPError):
            log.log(error.log_level or logging.ERROR, "Error calling tool %r", name)
        raise
    except Exception as error:
        what = f"Error calling tool {name!r}"
        raise ToolError(_failure(server, what, error)) from error


async def _by_identity(server: Any, name: str) -> Any:
    """Find the tool that an app's page calls by its identity; what a transform only leaves out of lists is found."""
    parsed = parse_hashed_backend_name(name)
    if parsed is None:
        return None
    digest = parsed[0]
    providers = [server.local_provider, *server._providers]
    items: list[Any] = list(await list_from(providers, "list_tools", server.provider_error_strategy))
    for transform in server._transforms:
        changed = list(await transform.list_tools(items))
        if not any(is_app_tool_with_identity(each, digest) for each in changed):
            changed += [each for each in items if is_app_tool_with_identity(each, digest)]
        items = changed
    items = [each for each in items if is_app_tool_with_identity(each, digest)]
    marked = [server.marked_for_session(each) for each in items]
    found = newest([each for each in marked if is_enabled(each) and await is_allowed(each)])
    # Through its name, so that a provider or a transform may decline it.
    return None if found is None else await _any_object(server, _KINDS["tools"], found.name, _exactly(found))


def _exactly(component: Any) -> VersionSpec | None:
    return None if component.version is None else VersionSpec(eq=component.version)


async def read_resource(
    server: Any, uri: str, *, version: VersionSpec | None = None, run_middleware: bool = True
) -> Any:
    """Read a resource by its URI.

    Raises:
        NotFoundError: there is none.
        ResourceError: it cannot be read.
    """
    async with _entered(server, "resources/read", t.ReadResourceRequestParams(uri=uri)):

        async def last(context: Any) -> Any:
            return await _read(server, str(context.message.uri), version)

        message = model_class("ReadResourceRequestParams")(uri=uri, **_meta_of(version))
        context = MiddlewareContext.of(server, continued(message), "resources/read")
        with server_span(server, "resources/read", uri), calling(version):
            return await (_around(server, context, last) if run_middleware else last(context))


async def _read(server: Any, uri: str, version: VersionSpec | None) -> Any:
    found = await find_object(server, "resources", uri, version)
    if found is None:
        if await _exists(server, uri):
            # It is hidden from the caller, and a template that matches its URI must not show it.
            raise NotFoundError(f"Unknown resource: {uri!r}")
        template = await find_object(server, "templates", uri, version)
        values = None if template is None else template.matches(uri)
        if values is None:
            raise NotFoundError(f"Unknown resource: {uri!r}")
        screen(server, template, values)
        note_component(template)
    else:
        note_component(found)
    try:
        if found is None:
            found = await template.create_resource(uri, values)
        value = await found.read()
        return as_ask(InputRequiredResourceResult, value) or found.convert_result(value)
    except ResourceSecurityError:
        raise
    except (NotFoundError, DisabledError) as error:
        raise ResourceError(server.error_text(f"Error reading resource {uri!r}", error)) from error
    except (HandlerError, RequestFailed, MissingCapability):
        raise
    except Exception as error:
        what = f"Error reading resource {uri!r}"
        raise ResourceError(_failure(server, what, error)) from error


async def render_prompt(
    server: Any,
    name: str,
    arguments: Mapping[str, Any] | None,
    *,
    version: VersionSpec | None = None,
    run_middleware: bool = True,
) -> Any:
    """Render a prompt by name.

    Raises:
        NotFoundError: there is none.
        PromptError: it cannot be rendered.
    """
    async with _entered(server, "prompts/get", t.GetPromptRequestParams(name=name)):

        async def last(context: Any) -> Any:
            message = context.message
            return await _render(server, message.name, message.arguments, version)

        message = model_class("GetPromptRequestParams").model_construct(
            name=name, arguments=None if arguments is None else dict(arguments), **_plain_meta(version)
        )
        context = MiddlewareContext.of(server, continued(message), "prompts/get")
        with server_span(server, "prompts/get", name), calling(version):
            return await (_around(server, context, last) if run_middleware else last(context))


def _plain_meta(version: VersionSpec | None) -> dict[str, Any]:
    return {"meta": _meta_of(version).get("_meta")}


async def _render(server: Any, name: str, arguments: Any, version: VersionSpec | None) -> Any:
    prompt = await find_object(server, "prompts", name, version)
    if prompt is None:
        raise NotFoundError(f"Unknown prompt: {name!r}")
    note_component(prompt)
    try:
        value = await prompt.render(dict(arguments or {}))
        return as_ask(InputRequiredPromptResult, value) or prompt.convert_result(value)
    except (NotFoundError, DisabledError) as error:
        raise PromptError(server.error_text(f"Error rendering prompt {name!r}", error)) from error
    except (HandlerError, RequestFailed, MissingCapability):
        raise
    except Exception as error:
        what = f"Error rendering prompt {name!r}"
        raise PromptError(_failure(server, what, error)) from error


def _failure(server: Any, what: str, error: Exception) -> str:
    """Log an unexpected failure and return what the caller is told; what an API answered is no crash of ours."""
    status = getattr(error, "status_code", None) or getattr(getattr(error, "response", None), "status_code", None)
    log.error(what, exc_info=error if status is None else None)
    if status == 429:
        return "Rate limited by upstream API, please retry later"
    if any(each.__name__ == "TimeoutException" for each in type(error).__mro__):
        return "Upstream request timed out, please retry"
    return str(server.error_text(what, error))


# --- requests --------------------------------------------------------------------------------------------------------


def use_pipeline(server: Any) -> None:
    """Replace the server's handlers with those of the pipeline."""
    for row in _KINDS.values():
        server.handlers[row.method] = _list_handler(server, row)
    server.handlers["tools/call"] = _tool_handler(server)
    server.handlers["resources/read"] = _resource_handler(server)
    server.handlers["prompts/get"] = _prompt_handler(server)
    use_overrides(server)
    wrap_handlers(server)
    # Which ones there are is known only when providers and transforms list them.
    server.announced = server.announced | {"tools", "resources", "prompts"}
    server._refresh()


def _list_handler(server: Any, row: _Kind) -> Any:
    verb = row.verb

    async def handle(exchange: Any, params: Any) -> Any:
        items = dedupe_with_versions(list(await getattr(server, verb)()), lambda each: each.identifier)
        page, following = _page(items, params.cursor, server)
        if server.dereferences:
            page = [dereferenced(each) for each in page]
        listed = [to_struct(getattr(item, row.listed)(), row.struct) for item in page]
        return hinted(server, row.method, row.result(**{row.member: listed}, next_cursor=following))

    return handle


def _page(items: list[Any], cursor: str | None, server: Any) -> tuple[list[Any], str | None]:
    """Return one page, and the cursor of the next one.

    Raises:
        InvalidParams: the cursor is not one of ours.
    """
    size = getattr(server, "list_page_size", None)
    if size is None:
        return items, None
    try:
        return paginate_sequence(items, cursor, size)
    except ValueError as error:
        raise InvalidParams(str(error)) from error


def _tool_handler(server: Any) -> Any:
    async def handle(exchange: Any, params: t.CallToolRequestParams) -> Any:
        arguments = msgspec.json.decode(params.arguments) if params.arguments is not None else {}
        try:
            result = await server.call_tool(
                params.name, arguments, version=requested_version(read_meta(exchange.params))
            )
        except (NotFoundError, DisabledError):
            return error_result(f"Unknown tool: {params.name!r}")
        except HandlerError as error:
            return error_result(str(error))
        if (asked := await answer(server, exchange, result)) is not None:
            return asked
        if isinstance(result, BaseModel) and not isinstance(result, model_class("CallToolResult")):
            # A result of an extension's own.
            return to_plain(result)
        return result.to_struct() if isinstance(result, ToolResult) else to_struct(result, t.CallToolResult)

    return handle


def _resource_handler(server: Any) -> Any:
    async def handle(exchange: Any, params: t.ReadResourceRequestParams) -> Any:
        try:
            result = await server.read_resource(params.uri, version=requested_version(read_meta(exchange.params)))
        except (NotFoundError, DisabledError) as error:
            raise ResourceNotFound(f"Resource not found: {params.uri!r}", data={"uri": params.uri}) from error
        except HandlerError as error:
            raise McpError(code=-32603, message=str(error)) from error
        if (asked := await answer(server, exchange, result)) is not None:
            return asked
        if isinstance(result, list):
            result = ResourceResult(result)
        found = (
            result.to_struct(params.uri)
            if isinstance(result, ResourceResult)
            else to_struct(result, t.ReadResourceResult)
        )
        return hinted(server, "resources/read", found)

    return handle


def _prompt_handler(server: Any) -> Any:
    async def handle(exchange: Any, params: t.GetPromptRequestParams) -> Any:
        try:
            result = await server.render_prompt(
                params.name, params.arguments, version=requested_version(read_meta(exchange.params))
            )
        except (NotFoundError, DisabledError) as error:
            raise InvalidParams(f"Unknown prompt: {params.name!r}", data={"name": params.name}) from error
        except HandlerError as error:
            raise McpError(code=-32603, message=str(error)) from error
        if (asked := await answer(server, exchange, result)) is not None:
            return asked
        return result.to_struct() if isinstance(result, PromptResult) else to_struct(result, t.GetPromptResult)

    return handle

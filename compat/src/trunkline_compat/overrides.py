"""Subclasses of a framework's server that override how it lists and calls, often to filter: the overrides take effect.

Where a subclass overrides a method, our server answers with it; everything else is answered from what is registered.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec
from pydantic import BaseModel

import trunkline.types as t
from trunkline.errors import MissingCapability, RequestFailed, ResourceNotFound
from trunkline.protocol.uri_template import UriTemplate
from trunkline.server.context import Context as OwnContext
from trunkline_compat.contents import ResourceResult, ToolResult, failed_call, to_prompt_result
from trunkline_compat.context import serve_in
from trunkline_compat.errors import NotFoundError
from trunkline_compat.middleware import list_result
from trunkline_compat.types import to_struct

__all__ = ["serve_overrides", "tool_answer"]

#: Inner methods of FastMCP's server that a subclass might override to filter, and that are not called here.
_NOT_CALLED = (
    "_call_tool",
    "_get_prompt_mcp",
    "_list_prompts_mcp",
    "_list_resource_templates_mcp",
    "_list_resources_mcp",
    "_list_tools",
    "_mcp_call_tool",
    "_mcp_list_tools",
    "_read_resource_mcp",
)
#: By method of the protocol: the names of the methods that answer it, the outermost first.
_METHODS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "tools/list": ("_list_tools_mcp", "list_tools"),
        "tools/call": ("_call_tool_mcp", "call_tool"),
        "prompts/list": ("list_prompts",),
        "prompts/get": ("render_prompt", "get_prompt"),
        "resources/list": ("list_resources",),
        "resources/templates/list": ("list_resource_templates",),
        "resources/read": ("read_resource",),
    }
)


def serve_overrides(server: Any, base: type) -> None:
    """Answer with the methods that the class of a server overrides.

    Raises:
        TypeError: it overrides an inner method that is not called here.
    """
    kind = type(server)
    for name in _NOT_CALLED:
        if hasattr(kind, name):
            raise TypeError(
                f"{kind.__name__} overrides FastMCP.{name}, which trunkline-compat does not call: "
                "filter with middleware, enable() and disable()"
            )
    for method, names in _METHODS.items():
        overridden = any(getattr(kind, name, None) is not getattr(base, name, None) for name in names)
        if overridden:
            outermost = next(name for name in names if hasattr(kind, name))
            server.server.answer(method, _answer(server, method, getattr(server, outermost)))


def _answer(
    server: Any, method: str, function: Callable[..., Awaitable[Any]]
) -> Callable[[OwnContext, Any], Awaitable[Any]]:
    async def answer(own: OwnContext, params: Any) -> Any:
        _check_scopes(server, own, method, params)
        with serve_in(server.context_class(server, own)):
            if method.endswith("/list"):
                return list_result(method, await function())
            if method == "tools/call":
                return await _call(function, params)
            if method == "prompts/get":
                return to_prompt_result(await function(params.name, params.arguments), None)
            try:
                return _resource(await function(params.uri), params.uri)
            except NotFoundError as error:
                raise ResourceNotFound(str(error)) from error

    return answer


def _check_scopes(server: Any, own: OwnContext, method: str, params: Any) -> None:
    """Check the scopes of what is called, which our server does where nothing is overridden."""
    tables = {"tools/call": ("tools",), "prompts/get": ("prompts",), "resources/read": ("resources", "templates")}
    key = str(getattr(params, "uri", None) or getattr(params, "name", None))
    for table in tables.get(method, ()):
        for name, component in server.all_components(table).items():
            if name == key or (table == "templates" and UriTemplate.parse(name).match(key) is not None):
                own.require_scopes(*component.scopes)


async def _call(function: Callable[..., Awaitable[Any]], params: t.CallToolRequestParams) -> t.CallToolResult:
    arguments = {} if params.arguments is None else msgspec.json.decode(params.arguments)
    try:
        return tool_answer(await function(params.name, arguments))
    except (RequestFailed, MissingCapability):
        raise
    except Exception as error:  # noqa: BLE001 - whatever a tool raises is its answer
        return failed_call(str(error))


def tool_answer(value: Any) -> t.CallToolResult:
    """Return what a tool function returned: the whole result, content, an object, or content and an object."""
    if isinstance(value, ToolResult):
        return value.to_struct()
    if isinstance(value, BaseModel) and hasattr(value, "content"):
        return to_struct(value, t.CallToolResult)
    if isinstance(value, dict):
        return ToolResult(json.dumps(value, indent=2), value).to_struct()
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], dict):
        return ToolResult(list(value[0]), value[1]).to_struct()
    return ToolResult(list(value)).to_struct()


def _resource(value: Any, uri: str) -> t.ReadResourceResult:
    result = value if isinstance(value, ResourceResult) else ResourceResult(list(value))
    return result.to_struct(uri)

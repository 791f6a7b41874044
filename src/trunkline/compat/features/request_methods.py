"""The methods of FastMCP that answer requests of the protocol, as code calls them and subclasses override them."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Raw

import trunkline.types as t
from trunkline.compat.types import model_class, to_model, to_plain, to_struct

__all__ = ["RequestMethods", "use_overrides"]

_METHODS = MappingProxyType(
    {
        "_on_list_tools": ("tools/list", t.PaginatedRequestParams, t.ListToolsResult),
        "_on_list_resources": ("resources/list", t.PaginatedRequestParams, t.ListResourcesResult),
        "_on_list_resource_templates": (
            "resources/templates/list",
            t.PaginatedRequestParams,
            t.ListResourceTemplatesResult,
        ),
        "_on_list_prompts": ("prompts/list", t.PaginatedRequestParams, t.ListPromptsResult),
        "_on_call_tool": ("tools/call", t.CallToolRequestParams, t.CallToolResult),
        "_on_read_resource": ("resources/read", t.ReadResourceRequestParams, t.ReadResourceResult),
        "_on_get_prompt": ("prompts/get", t.GetPromptRequestParams, t.GetPromptResult),
    }
)


class RequestMethods:
    """Answers requests from code."""

    async def _answer(self, name: str, params: Any) -> Any:
        from trunkline.compat.calls import request

        method, kind, _ = _METHODS[name]
        made: Any = kind
        if made is t.CallToolRequestParams:
            raw = Raw(msgspec.json.encode(to_plain(params.arguments or {})))
            given = made(name=params.name, arguments=raw)
        else:
            given = made() if params is None else to_struct(params, made)
        result = await request(self, method, given)
        return to_model(result) if not isinstance(result, dict) else result

    async def _on_list_tools(self, ctx: Any, params: Any = None) -> Any:
        return await self._answer("_on_list_tools", params)

    async def _on_list_resources(self, ctx: Any, params: Any = None) -> Any:
        return await self._answer("_on_list_resources", params)

    async def _on_list_resource_templates(self, ctx: Any, params: Any = None) -> Any:
        return await self._answer("_on_list_resource_templates", params)

    async def _on_list_prompts(self, ctx: Any, params: Any = None) -> Any:
        return await self._answer("_on_list_prompts", params)

    async def _on_call_tool(self, ctx: Any, params: Any) -> Any:
        return await self._answer("_on_call_tool", params)

    async def _on_read_resource(self, ctx: Any, params: Any) -> Any:
        return await self._answer("_on_read_resource", params)

    async def _on_get_prompt(self, ctx: Any, params: Any) -> Any:
        return await self._answer("_on_get_prompt", params)


def use_overrides(server: Any) -> None:
    """Serve requests by the methods that a subclass overrides."""
    for name, (method, _, result) in _METHODS.items():
        if getattr(type(server), name) is not getattr(RequestMethods, name):
            server.handlers[method] = _handler(server, name, method, result)


def _handler(server: Any, name: str, method: str, result: Any) -> Any:
    async def handle(exchange: Any, params: Any) -> Any:
        from trunkline.compat.lowlevel import method_params

        context = server._context_class(server, exchange)
        found = await getattr(server, name)(context.request_context, method_params(params, method))
        return to_struct(found, result) if isinstance(found, model_class(result.__name__)) else found

    return handle

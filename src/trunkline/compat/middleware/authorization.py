"""FastMCP's authorization middleware: one check for all components of a server."""

from __future__ import annotations

from typing import Any

from trunkline.compat.authorization import AuthContext, current_token, run_auth_checks
from trunkline.compat.context import current_context
from trunkline.compat.exceptions import AuthorizationError
from trunkline.compat.middleware.base import CallNext, Middleware, MiddlewareContext

__all__ = ["AuthMiddleware"]


class AuthMiddleware(Middleware):
    """Lists only what the caller may use, and rejects the rest; over stdio, without tokens, nothing is checked."""

    def __init__(self, auth: Any) -> None:
        """Initialize with a check, or several that must all allow access."""
        self.auth = auth

    async def _allows(self, component: Any) -> bool:
        context = current_context()
        if context is not None and context._exchange is not None and context.transport == "stdio":
            return True
        return await run_auth_checks(self.auth, AuthContext(current_token(), component))

    async def _listed(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        kept = []
        for each in await call_next(context):
            try:
                if await self._allows(each):
                    kept.append(each)
            except AuthorizationError:
                continue
        return kept

    on_list_tools = on_list_resources = on_list_resource_templates = on_list_prompts = _listed

    async def _checked(self, kind: str, key: str, component: Any) -> None:
        if component is None or not await self._allows(component):
            raise AuthorizationError(f"Authorization failed for {kind} {key!r}: insufficient permissions")

    async def on_call_tool(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Reject a call of a tool that the caller may not use."""
        name, server = context.message.name, context.fastmcp_context.fastmcp
        await self._checked("tool", name, await server.get_tool(name))
        return await call_next(context)

    async def on_read_resource(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Reject the reading of a resource that the caller may not use."""
        uri, server = str(context.message.uri), context.fastmcp_context.fastmcp
        found = await server.get_resource(uri) or await server.get_resource_template(uri)
        await self._checked("resource", uri, found)
        return await call_next(context)

    async def on_get_prompt(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Reject the rendering of a prompt that the caller may not use."""
        name = context.message.name
        await self._checked("prompt", name, await context.fastmcp_context.fastmcp.get_prompt(name))
        return await call_next(context)

"""FastMCP's authorization middleware: one check for all components of a server."""

from __future__ import annotations

from typing import Any

from trunkline.compat.auth.checks import AuthContext, run_auth_checks, scope_requirements, shortfall
from trunkline.compat.authorization import current_token, skips_checks
from trunkline.compat.component_versions import CALLED_VERSION
from trunkline.compat.exceptions import AuthorizationError, InsufficientScopeError
from trunkline.compat.middleware.base import CallNext, Middleware, MiddlewareContext

__all__ = ["AuthMiddleware"]


class AuthMiddleware(Middleware):
    """Lists only what the caller may use, and rejects the rest; over stdio, without tokens, nothing is checked."""

    def __init__(self, auth: Any) -> None:
        """Initialize with a check, or several that must all allow access."""
        self.auth = auth

    async def _allows(self, component: Any) -> bool:
        return skips_checks() or await run_auth_checks(self.auth, AuthContext(current_token(), component))

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

    async def _checked(self, server: Any, kind: str, key: str, component: Any) -> None:
        if component is None:
            raise AuthorizationError(f"Authorization failed for {kind} {key!r}: not found or not authorized")
        if await self._allows(component):
            return
        context = AuthContext(current_token(), component)
        missing = await shortfall(self.auth, context) if context.token is not None else None
        if missing:
            scopes = self._with_later(missing, context, server)
            raise InsufficientScopeError(
                scopes, message=f"Authorization failed for {kind} {key!r}: insufficient scope, needs {' '.join(scopes)}"
            )
        raise AuthorizationError(f"Authorization failed for {kind} {key!r}: insufficient permissions")

    def _with_later(self, missing: list[str], context: AuthContext, server: Any) -> list[str]:
        """Return all scopes that a caller lacks, up to the first later check that is not about scopes.

        A client that requests them one by one would send its user to a page each time.
        """
        layers = [each for each in server.foreign_middleware if isinstance(each, AuthMiddleware)]
        later = layers[layers.index(self) + 1 :] if self in layers else []
        found = set(missing)
        for layer in later:
            more = scope_requirements(layer.auth, context)
            if more is None:
                break
            found.update(more)
        return sorted(found)

    async def on_call_tool(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Reject a call of a tool that the caller may not use."""
        name, server = context.message.name, context.fastmcp_context.fastmcp
        await self._checked(server, "tool", name, await server.get_tool(name, CALLED_VERSION.get()))
        return await call_next(context)

    async def on_read_resource(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Reject the reading of a resource that the caller may not use."""
        uri, server, version = str(context.message.uri), context.fastmcp_context.fastmcp, CALLED_VERSION.get()
        found = await server.get_resource(uri, version) or await server.get_resource_template(uri, version)
        await self._checked(server, "resource", uri, found)
        return await call_next(context)

    async def on_get_prompt(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Reject the rendering of a prompt that the caller may not use."""
        name, server = context.message.name, context.fastmcp_context.fastmcp
        await self._checked(server, "prompt", name, await server.get_prompt(name, CALLED_VERSION.get()))
        return await call_next(context)

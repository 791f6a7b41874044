"""Checks of single components, as FastMCP has them: ``auth=`` of a tool, prompt, resource or template."""

from __future__ import annotations

import inspect
import logging
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from trunkline.compat.context import current_context
from trunkline.compat.exceptions import AuthorizationError

__all__ = ["AuthContext", "auth_context_var", "current_token", "is_allowed", "run_auth_checks"]

log = logging.getLogger("fastmcp")

#: The caller that Starlette's authentication found; tests set it.
auth_context_var: ContextVar[Any] = ContextVar("trunkline.compat.auth_context", default=None)


@dataclass
class AuthContext:
    """What a check is called with: the caller's token, and the component that is asked for."""

    token: Any
    component: Any

    @property
    def tool(self) -> Any:
        """The component, if it is a tool."""
        from trunkline.compat.components import Tool

        return self.component if isinstance(self.component, Tool) else None


async def run_auth_checks(checks: Any, context: Any) -> bool:
    """Return whether all checks allow access; a check that fails unexpectedly denies it.

    Raises:
        AuthorizationError: a check raised it.
    """
    for check in checks if isinstance(checks, list | tuple) else [checks]:
        try:
            answer = check(context)
            answer = await answer if inspect.isawaitable(answer) else answer
        except AuthorizationError:
            raise
        except Exception:
            log.warning("an auth check of %r failed; access is denied", context.component.name, exc_info=True)
            return False
        if not answer:
            return False
    return True


def current_token() -> Any:
    """Return the caller's token, or None."""
    user = auth_context_var.get()
    if user is not None:
        return user.access_token
    from trunkline.compat.dependencies import get_access_token

    return get_access_token()


async def is_allowed(component: Any) -> bool:
    """Return whether the caller may use a component; over stdio everybody may, since there are no tokens."""
    if component.auth is None:
        return True
    context = current_context()
    if context is not None and context._exchange is not None and context.transport == "stdio":
        return True
    try:
        return await run_auth_checks(component.auth, AuthContext(current_token(), component))
    except AuthorizationError:
        return False

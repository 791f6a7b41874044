"""Checks of single components, as FastMCP has them: ``auth=`` of a tool, prompt, resource or template."""

from __future__ import annotations

from typing import Any

from trunkline.compat.auth.checks import AuthContext, run_auth_checks
from trunkline.compat.context import current_context
from trunkline.compat.exceptions import AuthorizationError

__all__ = ["current_token", "is_allowed", "skips_checks"]


def current_token() -> Any:
    """Return the caller's token, or None."""
    from trunkline.compat.dependencies import get_access_token

    return get_access_token()


def skips_checks() -> bool:
    """Return whether nothing is checked: over stdio there are no tokens."""
    context = current_context()
    return context is not None and context._exchange is not None and context.transport == "stdio"


async def is_allowed(component: Any) -> bool:
    """Return whether the caller may use a component."""
    if component.auth is None or skips_checks():
        return True
    try:
        return await run_auth_checks(component.auth, AuthContext(current_token(), component))
    except AuthorizationError:
        return False

"""Authorization: checks that decide whether a caller may see and use a component."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from trunkline.compat.auth.records import AccessToken
from trunkline.compat.exceptions import AuthorizationError

__all__ = [
    "AuthCheck",
    "AuthContext",
    "require_roles",
    "require_scopes",
    "restrict_tag",
    "run_auth_checks",
    "scope_requirements",
    "shortfall",
]

log = logging.getLogger("fastmcp.server.auth.authorization")


@dataclass
class AuthContext:
    """What a check decides on: the caller's token, and the component."""

    token: AccessToken | None
    component: Any

    @property
    def tool(self) -> Any:
        """The component, if it is a tool."""
        from trunkline.compat.components import Tool

        return self.component if isinstance(self.component, Tool) else None


AuthCheck = Callable[[AuthContext], bool] | Callable[[AuthContext], Awaitable[bool]]


class _ScopeCheck:
    """A check of scopes: the only kind whose reason can be told to the caller."""

    def __init__(self, scopes: Sequence[str], tag: str | None = None) -> None:
        self.scopes = tuple(scopes)
        self.tag = tag

    def __call__(self, context: AuthContext) -> bool:
        """Return whether the caller's token has all scopes."""
        if not self.applies(context):
            return True
        return context.token is not None and set(self.scopes) <= set(context.token.scopes)

    def applies(self, context: AuthContext) -> bool:
        """Return whether the component is meant."""
        return self.tag is None or self.tag in context.component.tags

    def missing(self, context: AuthContext) -> list[str]:
        """Return the scopes that the caller's token lacks."""
        if not self.applies(context):
            return []
        held = set(context.token.scopes) if context.token is not None else set()
        return [scope for scope in self.scopes if scope not in held]


def require_scopes(*scopes: str) -> AuthCheck:
    """Return a check that a caller's token has all of these scopes."""
    return _ScopeCheck(scopes)


def restrict_tag(tag: str, *, scopes: Sequence[str]) -> AuthCheck:
    """Return a check that only callers with these scopes use what has a tag."""
    return _ScopeCheck(scopes, tag)


def require_roles(*roles: str, extract: Callable[[dict[str, Any]], Any]) -> AuthCheck:
    """Return a check that a caller has all of these roles; ``extract`` reads them from the token's claims.

    Raises:
        ValueError: no role is given.
    """
    if not roles:
        raise ValueError("require_roles needs at least one role")

    def check(context: AuthContext) -> bool:
        if context.token is None:
            return False
        try:
            found = extract(context.token.claims or {})
        except (KeyError, TypeError, AttributeError, IndexError):
            return False
        held = {found} if isinstance(found, str) else set(found or ())
        return set(roles) <= held

    return check


def _listed(checks: Any) -> list[Any]:
    return list(checks) if isinstance(checks, list | tuple) else [checks]


async def run_auth_checks(checks: Any, ctx: AuthContext) -> bool:
    """Return whether all checks pass; one that fails unexpectedly counts as a refusal.

    Raises:
        AuthorizationError: a check refuses with a reason.
    """
    for check in _listed(checks):
        if not await _passes(check, ctx):
            return False
    return True


async def _passes(check: Any, context: AuthContext) -> bool:
    try:
        found = check(context)
        return bool(await found if inspect.isawaitable(found) else found)
    except AuthorizationError:
        raise
    except Exception:
        log.warning("An authorization check failed unexpectedly: access is refused", exc_info=True)
        return False


def scope_requirements(checks: Any, ctx: AuthContext) -> list[str] | None:
    """Return the scopes that a caller lacks; None if a check is not about scopes, and nothing may be told."""
    found: set[str] = set()
    for check in _listed(checks):
        if not isinstance(check, _ScopeCheck):
            return None
        found.update(check.missing(ctx))
    return sorted(found)


async def shortfall(checks: Any, context: AuthContext) -> list[str] | None:
    """Return the scopes that a caller lacks, if nothing else stands against it; None otherwise."""
    found: set[str] = set()
    for check in _listed(checks):
        if isinstance(check, _ScopeCheck):
            found.update(check.missing(context))
        elif not await _passes(check, context):
            return None
    return sorted(found)

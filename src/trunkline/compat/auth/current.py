"""The caller of the request that is being served: the context variable, and what is made of it.

No HTTP library is imported here: a server over stdio asks for the caller's token too, and there is none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from trunkline.compat.auth.records import AccessToken, FastAccessToken, principal_components
from trunkline.compat.versions import STATE
from trunkline.protocol.caller import Principal

__all__ = [
    "access_token_of",
    "auth_context_var",
    "authenticated_principal",
    "current_principal",
    "get_context_token",
]

#: The owner of the token of the request that is being served: an ``AuthenticatedUser``.
auth_context_var: ContextVar[Any] = ContextVar("auth_context", default=None)


def get_context_token() -> AccessToken | None:
    """Return the token of the request that is being served, or None."""
    user = auth_context_var.get()
    return user.access_token if user is not None else None


def authenticated_principal(_: Any = None) -> str | None:
    """Return the identity of the caller as text, or None for an anonymous caller."""
    token = get_context_token()
    return None if token is None else json.dumps(principal_components(token), separators=(",", ":"))


def current_principal(_: Mapping[str, str]) -> Principal | None:
    """Return the caller whom the middleware has authenticated."""
    token = get_context_token()
    if token is None:
        return None
    client, issuer, subject = principal_components(token)
    claims = {**(token.claims or {}), "_token": token}
    return Principal(
        subject=subject or client, issuer=issuer, client=client, scopes=frozenset(token.scopes or ()), claims=claims
    )


def access_token_of(principal: Principal | None) -> AccessToken | None:
    """Return the token of a caller; without a caller, that of the HTTP request that is being served."""
    if principal is None:
        found = get_context_token()
        return None if found is None else _fast(found)
    kept = (principal.claims or {}).get("_token")
    if isinstance(kept, AccessToken):
        return _fast(kept)
    return FastAccessToken(token="", client_id=principal.client or principal.subject, scopes=sorted(principal.scopes))


def _fast(token: AccessToken) -> AccessToken:
    """Return a token as FastMCP has it, also if a verifier made one of the official SDK."""
    if isinstance(token, FastAccessToken) or STATE.camel_case:
        return token
    return FastAccessToken(**{name: value for name, value in token.model_dump().items() if value is not None})

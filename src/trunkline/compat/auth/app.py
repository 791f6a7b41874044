"""The application of a protected server: our endpoint behind the middleware of the two frameworks.

The middleware authenticates a request and answers what it lacks; our endpoint gets the caller's principal from the
context variable that the middleware sets, so that sessions, logs and limits belong to the caller as they do elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pydantic import AnyHttpUrl

from trunkline.compat.auth.base import AuthProvider
from trunkline.compat.auth.middleware import (
    AuthContextMiddleware,
    BearerAuthBackend,
    FastRequireAuthMiddleware,
    RequireAuthMiddleware,
)
from trunkline.compat.auth.records import ProviderTokenVerifier

__all__ = ["Protection", "protection_of"]


@dataclass
class Protection:
    """What protects an application: routes, middleware, and what stands in front of the endpoint."""

    routes: list[Any]
    middleware: list[Any]
    required_scopes: list[str]
    metadata_url: AnyHttpUrl | None
    challenge_scopes: list[str] | None = None
    kind: type[RequireAuthMiddleware] = field(default=FastRequireAuthMiddleware)

    def around(self, endpoint: Any) -> Any:
        """Return an endpoint that only authenticated requests reach."""
        if self.kind is FastRequireAuthMiddleware:
            return FastRequireAuthMiddleware(endpoint, self.required_scopes, self.metadata_url, self.challenge_scopes)
        return self.kind(endpoint, self.required_scopes, self.metadata_url)


def protection_of(server: Any, auth: Any, path: str) -> Protection | None:
    """Return what protects the application of a server at a path; None if nothing does."""
    if auth is None:
        return None
    if isinstance(auth, AuthProvider):
        return _of_provider(auth, path)
    settings = getattr(server.settings, "auth", None)
    return _of_settings(auth, settings)


def _of_provider(auth: AuthProvider, path: str) -> Protection:
    from trunkline.compat.auth.routes import build_resource_metadata_url

    auth.set_mcp_path(path)
    routes = auth.get_routes(mcp_path=path)
    resource = auth._get_resource_url(path)
    return Protection(
        routes=routes,
        middleware=auth.get_middleware(),
        required_scopes=auth.required_scopes,
        metadata_url=build_resource_metadata_url(resource) if resource is not None else None,
        challenge_scopes=auth.challenge_scopes,
    )


def _of_settings(auth: Any, settings: Any) -> Protection:
    """Return the protection of a server of the official SDK: a verifier or a provider, and ``AuthSettings``."""
    from starlette.middleware import Middleware
    from starlette.middleware.authentication import AuthenticationMiddleware

    from trunkline.compat.auth import routes as made

    routes: list[Any] = []
    provider = auth if hasattr(auth, "exchange_authorization_code") else None
    verifier = auth if hasattr(auth, "verify_token") else ProviderTokenVerifier(auth)
    resource = getattr(settings, "resource_server_url", None)
    if provider is not None and settings is not None:
        routes += made.create_auth_routes(
            provider=provider,
            issuer_url=settings.issuer_url,
            service_documentation_url=settings.service_documentation_url,
            client_registration_options=settings.client_registration_options,
            revocation_options=settings.revocation_options,
            identity_assertion_enabled=settings.identity_assertion_enabled,
        )
    if resource is not None:
        routes += made.create_protected_resource_routes(
            resource_url=resource,
            authorization_servers=[settings.issuer_url],
            scopes_supported=settings.required_scopes,
        )
    checked = resource if getattr(settings, "validate_token_resource", None) else None
    backend = BearerAuthBackend(verifier, resource_server_url=checked)
    return Protection(
        routes=routes,
        middleware=[Middleware(AuthenticationMiddleware, backend=backend), Middleware(AuthContextMiddleware)],
        required_scopes=list(getattr(settings, "required_scopes", None) or ()),
        metadata_url=made.build_resource_metadata_url(resource) if resource is not None else None,
        kind=RequireAuthMiddleware,
    )

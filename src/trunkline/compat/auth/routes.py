"""The routes of an authorization server and of a protected resource."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from pydantic import AnyHttpUrl, AnyUrl, HttpUrl
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, request_response

from trunkline.compat.auth.handlers import (
    AuthorizationHandler,
    MetadataHandler,
    ProtectedResourceMetadataHandler,
    RegistrationHandler,
    RevocationHandler,
    TokenHandler,
)
from trunkline.compat.auth.middleware import ClientAuthenticator
from trunkline.compat.auth.records import (
    JWT_BEARER_GRANT_TYPE,
    ClientRegistrationOptions,
    OAuthMetadata,
    ProtectedResourceMetadata,
    RevocationOptions,
)
from trunkline.net.addresses import is_loopback

__all__ = [
    "AUTHORIZATION_PATH",
    "DEFAULT_MAX_REQUEST_BODY_SIZE",
    "ID_JAG_GRANT_PROFILE",
    "REGISTRATION_PATH",
    "REVOCATION_PATH",
    "TOKEN_PATH",
    "build_metadata",
    "build_resource_metadata_url",
    "calculate_token_expiry",
    "check_resource_allowed",
    "cors_middleware",
    "create_auth_routes",
    "create_protected_resource_routes",
    "resource_url_from_server_url",
    "validate_issuer_url",
]

DEFAULT_MAX_REQUEST_BODY_SIZE = 4 * 1024 * 1024  # As the official SDK has it.
AUTHORIZATION_PATH = "/authorize"
TOKEN_PATH = "/token"
REGISTRATION_PATH = "/register"
REVOCATION_PATH = "/revoke"
ID_JAG_GRANT_PROFILE = "urn:ietf:params:oauth:grant-profile:id-jag"

_Handler = Callable[[Request], Awaitable[Response] | Response]


def validate_issuer_url(url: AnyHttpUrl) -> None:
    """Check that a URL can name an issuer (RFC 8414, 2).

    Raises:
        ValueError: it is not https, except on this machine, or it has a query or a fragment.
    """
    if url.scheme != "https" and not is_loopback((url.host or "").strip("[]")):
        raise ValueError("Issuer URL must be HTTPS")
    if url.fragment:
        raise ValueError("Issuer URL must not have a fragment")
    if url.query:
        raise ValueError("Issuer URL must not have a query string")


class _BodyLimit:
    """Refuses bodies that no request to an endpoint of OAuth has."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Read the body up to the limit, then serve the request."""
        body = bytearray()
        while True:
            message = await receive()
            body += message.get("body", b"")
            if len(body) > DEFAULT_MAX_REQUEST_BODY_SIZE:
                await Response("Request body too large", status_code=413)(scope, receive, send)
                return
            if not message.get("more_body"):
                break
        given: list[Any] = [{"type": "http.request", "body": bytes(body), "more_body": False}]

        async def replay() -> Any:
            return given.pop() if given else await receive()

        await self._app(scope, replay, send)


def cors_middleware(handler: _Handler, allow_methods: Sequence[str]) -> Any:
    """Return an application that lets browsers of any origin call a handler."""
    return CORSMiddleware(
        app=_BodyLimit(request_response(handler)),
        allow_origins="*",
        allow_methods=list(allow_methods),
        allow_headers=["mcp-protocol-version", "authorization", "content-type"],
    )


def create_auth_routes(
    provider: Any,
    issuer_url: AnyHttpUrl,
    service_documentation_url: AnyHttpUrl | None = None,
    client_registration_options: ClientRegistrationOptions | None = None,
    revocation_options: RevocationOptions | None = None,
    identity_assertion_enabled: bool = False,
) -> list[Route]:
    """Return the routes of an authorization server.

    Raises:
        ValueError: the issuer's URL is not valid.
    """
    validate_issuer_url(issuer_url)
    registration = client_registration_options or ClientRegistrationOptions()
    revocation = revocation_options or RevocationOptions()
    metadata = build_metadata(
        issuer_url, service_documentation_url, registration, revocation, identity_assertion_enabled
    )
    authenticator = ClientAuthenticator(provider)
    tokens = TokenHandler(provider, authenticator, identity_assertion_enabled)
    routes = [
        Route(
            "/.well-known/oauth-authorization-server",
            endpoint=cors_middleware(MetadataHandler(metadata).handle, ["GET", "OPTIONS"]),
            methods=["GET", "OPTIONS"],
        ),
        # No CORS: a page must not read what a browser is redirected to.
        Route(
            AUTHORIZATION_PATH,
            endpoint=_BodyLimit(request_response(AuthorizationHandler(provider).handle)),
            methods=["GET", "POST"],
        ),
        Route(TOKEN_PATH, endpoint=cors_middleware(tokens.handle, ["POST", "OPTIONS"]), methods=["POST", "OPTIONS"]),
    ]
    if registration.enabled:
        register = RegistrationHandler(provider, registration).handle
        routes.append(
            Route(
                REGISTRATION_PATH, endpoint=cors_middleware(register, ["POST", "OPTIONS"]), methods=["POST", "OPTIONS"]
            )
        )
    if revocation.enabled:
        revoke = RevocationHandler(provider, authenticator).handle
        routes.append(
            Route(REVOCATION_PATH, endpoint=cors_middleware(revoke, ["POST", "OPTIONS"]), methods=["POST", "OPTIONS"])
        )
    return routes


def build_metadata(
    issuer_url: AnyHttpUrl,
    service_documentation_url: AnyHttpUrl | None,
    client_registration_options: ClientRegistrationOptions,
    revocation_options: RevocationOptions,
    supports_identity_assertion: bool = False,
) -> OAuthMetadata:
    """Return the metadata of an authorization server."""
    base = str(issuer_url).rstrip("/")
    methods = ["client_secret_post", "client_secret_basic"]
    assertion: dict[str, Any] = {}
    if supports_identity_assertion:
        assertion["authorization_grant_profiles_supported"] = [ID_JAG_GRANT_PROFILE]
    return OAuthMetadata(
        issuer=issuer_url,
        authorization_endpoint=AnyHttpUrl(base + AUTHORIZATION_PATH),
        token_endpoint=AnyHttpUrl(base + TOKEN_PATH),
        registration_endpoint=AnyHttpUrl(base + REGISTRATION_PATH) if client_registration_options.enabled else None,
        scopes_supported=client_registration_options.valid_scopes,
        response_types_supported=["code"],
        grant_types_supported=[
            "authorization_code",
            "refresh_token",
            *([JWT_BEARER_GRANT_TYPE] if supports_identity_assertion else []),
        ],
        token_endpoint_auth_methods_supported=methods,
        service_documentation=service_documentation_url,
        revocation_endpoint=AnyHttpUrl(base + REVOCATION_PATH) if revocation_options.enabled else None,
        revocation_endpoint_auth_methods_supported=methods if revocation_options.enabled else None,
        code_challenge_methods_supported=["S256"],
        **assertion,
    )


def build_resource_metadata_url(resource_server_url: AnyHttpUrl) -> AnyHttpUrl:
    """Return the URL of a resource's metadata: the well-known part comes before the path (RFC 9728, 3.1)."""
    parsed = urlsplit(str(resource_server_url))
    path = parsed.path if parsed.path != "/" else ""
    return AnyHttpUrl(f"{parsed.scheme}://{parsed.netloc}/.well-known/oauth-protected-resource{path}")


def create_protected_resource_routes(
    resource_url: AnyHttpUrl,
    authorization_servers: list[AnyHttpUrl],
    scopes_supported: list[str] | None = None,
    resource_name: str | None = None,
    resource_documentation: AnyHttpUrl | None = None,
) -> list[Route]:
    """Return the route of a protected resource's metadata."""
    metadata = ProtectedResourceMetadata(
        resource=resource_url,
        authorization_servers=authorization_servers,
        scopes_supported=scopes_supported,
        resource_name=resource_name,
        resource_documentation=resource_documentation,
    )
    path = urlsplit(str(build_resource_metadata_url(resource_url))).path
    handler = ProtectedResourceMetadataHandler(metadata).handle
    return [Route(path, endpoint=cors_middleware(handler, ["GET", "OPTIONS"]), methods=["GET", "OPTIONS"])]


# --- resources -------------------------------------------------------------------------------------------------------


def resource_url_from_server_url(url: str | HttpUrl | AnyUrl) -> str:
    """Return the resource identifier of a server's URL: without fragment, scheme and host in lower case (RFC 8707)."""
    parsed = urlsplit(str(url))
    return urlunsplit((parsed.scheme.lower(), parsed.netloc.lower(), parsed.path, parsed.query, ""))


def check_resource_allowed(requested_resource: str, configured_resource: str) -> bool:
    """Return whether a requested resource is the configured one or lies below it."""
    requested, configured = urlsplit(requested_resource), urlsplit(configured_resource)
    if (requested.scheme.lower(), requested.netloc.lower()) != (configured.scheme.lower(), configured.netloc.lower()):
        return False
    below, base = requested.path.rstrip("/") + "/", configured.path.rstrip("/") + "/"
    return below.startswith(base)


def calculate_token_expiry(expires_in: int | str | None) -> float | None:
    """Return when a token expires, in seconds of the epoch."""
    import time

    return None if expires_in is None else time.time() + int(expires_in)

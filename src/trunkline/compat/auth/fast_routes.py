"""The routes of FastMCP's authorization servers, and where its endpoints answer differently from the official SDK's.

An answer to a client names the issuer (RFC 9207); an unknown client gets a page that says what to do; a grant that is
not valid is a 401; a client may authenticate by a signed assertion.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

from pydantic import AnyHttpUrl
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from trunkline.compat.auth import handlers
from trunkline.compat.auth.handlers import MetadataHandler, RegistrationHandler, RevocationHandler
from trunkline.compat.auth.jwt_verifier import decode_part
from trunkline.compat.auth.middleware import AuthenticationError, ClientAuthenticator
from trunkline.compat.auth.pages import create_unregistered_client_html, server_branding
from trunkline.compat.auth.records import (
    ClientRegistrationOptions,
    IdentityAssertionParams,
    OAuthMetadata,
    OAuthToken,
    RevocationOptions,
    TokenError,
)
from trunkline.compat.auth.redirects import build_client_redirect
from trunkline.compat.auth.routes import build_metadata, cors_middleware, create_protected_resource_routes

__all__ = [
    "JWT_BEARER_ASSERTION_TYPE",
    "AuthorizationHandler",
    "PrivateKeyJWTClientAuthenticator",
    "TokenHandler",
    "at_issuer_path",
    "oauth_routes",
]

JWT_BEARER_ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_AUTHORIZATION_SERVER = "/.well-known/oauth-authorization-server"
_OPENID = "/.well-known/openid-configuration"


class TokenHandler(handlers.TokenHandler):
    """The token endpoint with FastMCP's statuses."""

    async def handle(self, request: Any) -> Any:
        """Answer a token request: a client that fails is ``invalid_client``, a grant that fails is a 401."""
        response = await super().handle(request)
        if response.status_code not in (400, 401):
            return response
        body = json.loads(bytes(response.body))
        if response.status_code == 401 and body.get("error") == "unauthorized_client":
            return _token_error(401, body | {"error": "invalid_client"})
        if response.status_code == 400 and body.get("error") == "invalid_grant":
            return _token_error(401, body)
        return response

    async def _exchange_assertion(self, client: Any, asked: Any) -> OAuthToken:
        # Clients of the proxy are public; the assertion itself is bound to the client.
        if not self.identity_assertion_enabled:
            raise TokenError("unsupported_grant_type", "The jwt-bearer grant is not enabled on this server")
        params = IdentityAssertionParams(
            assertion=asked.assertion, scopes=asked.scope.split() if asked.scope else None, resource=asked.resource
        )
        return await self.provider.exchange_identity_assertion(client, params)  # type: ignore[no-any-return]


def _token_error(status: int, body: dict[str, Any]) -> Response:
    text = json.dumps({name: value for name, value in body.items() if value is not None}, separators=(",", ":"))
    headers = {"Cache-Control": "no-store", "Pragma": "no-cache"}
    return Response(text, status_code=status, media_type="application/json", headers=headers)


class PrivateKeyJWTClientAuthenticator(ClientAuthenticator):
    """Clients that authenticate by an assertion signed with a key from their metadata document (RFC 7523)."""

    def __init__(self, provider: Any, cimd_manager: Any, token_endpoint_url: str) -> None:
        """Initialize with the provider, what fetches documents, and our URL in assertions."""
        super().__init__(provider)
        self._cimd_manager = cimd_manager
        self._token_endpoint_url = token_endpoint_url

    async def authenticate_request(self, request: Any) -> Any:
        """Return the client that sent a request.

        Raises:
            AuthenticationError: it is unknown, or its credentials are wrong.
        """
        form = await request.form()
        assertion = form.get("client_assertion")
        if form.get("client_assertion_type") != JWT_BEARER_ASSERTION_TYPE or not isinstance(assertion, str):
            return await super().authenticate_request(request)
        try:
            client_id = form.get("client_id") or decode_part(assertion, 1).get("sub")
            client = await self.provider.get_client(client_id) if isinstance(client_id, str) else None
            if client is None:
                raise AuthenticationError("Invalid client_id")
            await self._cimd_manager.validate_private_key_jwt(assertion, client, self._token_endpoint_url)
        except ValueError as error:
            raise AuthenticationError(f"Invalid client assertion: {error}") from error
        return client


class AuthorizationHandler(handlers.AuthorizationHandler):
    """The authorization endpoint with a page for unknown clients, and the issuer in answers."""

    def __init__(
        self,
        *,
        provider: Any,
        base_url: Any,
        issuer_url: Any = None,
        server_name: str | None = None,
        server_icon_url: str | None = None,
    ) -> None:
        """Initialize with the provider and the URLs of the server."""
        super().__init__(provider)
        self._base_url = str(base_url).rstrip("/")
        self._issuer = str(issuer_url if issuer_url is not None else base_url)
        self._branding = (server_name, server_icon_url)

    async def handle(self, request: Request) -> Response:
        """Answer an authorization request."""
        params: Any = request.query_params if request.method == "GET" else await request.form()
        client_id = params.get("client_id")
        client = await self.provider.get_client(client_id) if client_id else None
        if client_id and client is None:
            return self._unknown_client(request, str(client_id), params.get("state"))
        response = await super().handle(request)
        location = response.headers.get("location")
        if location is not None and _answers_client(location):
            response.headers["location"] = build_client_redirect(location, {}, iss=self._issuer)
        return response

    def _unknown_client(self, request: Request, client_id: str, state: str | None) -> Response:
        register, discovery = f"{self._base_url}/register", f"{self._base_url}{_AUTHORIZATION_SERVER}"
        headers = {"Cache-Control": "no-store", "Link": f'<{register}>; rel="http://oauth.net/core/2.1/#registration"'}
        if "text/html" in request.headers.get("accept", ""):
            name, icon, _ = server_branding(request)
            page = create_unregistered_client_html(
                client_id, register, discovery, self._branding[0] or name, self._branding[1] or icon
            )
            return HTMLResponse(page, status_code=400, headers=headers)
        body = {
            "error": "invalid_request",
            "error_description": f"Client ID '{client_id}' is not registered with this server. Clear the stored "
            "authentication tokens of this server and connect again, so that the client registers anew.",
            "registration_endpoint": register,
            "authorization_server_metadata": discovery,
            **({"state": state} if state else {}),
        }
        return JSONResponse(body, status_code=400, headers=headers)


def _answers_client(location: str) -> bool:
    """Return whether a redirect carries the answer to a client, and does not lead to a page or to another server."""
    names = parse_qs(urlsplit(location).query, keep_blank_values=True)
    return "code" in names or "error" in names


# --- routes ----------------------------------------------------------------------------------------------------------


def _metadata(provider: Any) -> OAuthMetadata:
    metadata = build_metadata(
        provider.base_url,
        provider.service_documentation_url,
        provider.client_registration_options or ClientRegistrationOptions(),
        provider.revocation_options or RevocationOptions(),
        getattr(provider, "identity_assertion_enabled", False),
    )
    metadata.issuer = provider.issuer_url
    metadata.authorization_response_iss_parameter_supported = True
    adjust = getattr(provider, "adjust_metadata", None)
    if adjust is not None:
        adjust(metadata)
    return metadata


def oauth_routes(provider: Any, mcp_path: str | None) -> list[Route]:
    """Return the routes of a provider: metadata, authorization, tokens, and what its options enable."""
    document = cors_middleware(MetadataHandler(_metadata(provider)).handle, ["GET", "OPTIONS"])
    make = getattr(provider, "client_authenticator", None)
    authenticator = ClientAuthenticator(provider) if make is None else make()
    tokens = TokenHandler(provider, authenticator, getattr(provider, "identity_assertion_enabled", False))
    authorize = AuthorizationHandler(
        provider=provider, base_url=provider.base_url, issuer_url=provider.issuer_url
    ).handle
    routes = [Route(path, endpoint=document, methods=["GET", "OPTIONS"]) for path in (_AUTHORIZATION_SERVER, _OPENID)]
    routes.append(Route("/authorize", endpoint=authorize, methods=["GET", "POST"]))
    posts: list[tuple[str, Any]] = [("/token", tokens.handle)]
    registration, revocation = provider.client_registration_options, provider.revocation_options
    if registration is not None and registration.enabled:
        posts.append(("/register", RegistrationHandler(provider, registration).handle))
    if revocation is not None and revocation.enabled:
        posts.append(("/revoke", RevocationHandler(provider, authenticator).handle))
    for path, handler in posts:
        endpoint = cors_middleware(handler, ["POST", "OPTIONS"])
        routes.append(Route(path, endpoint=endpoint, methods=["POST", "OPTIONS"]))
    resource = provider._get_resource_url(mcp_path) if mcp_path else None
    if resource is not None:
        routes += create_protected_resource_routes(
            resource_url=resource,
            authorization_servers=[AnyHttpUrl(str(provider.issuer_url))],
            scopes_supported=provider.scopes_supported,
        )
    return routes


def at_issuer_path(provider: Any, routes: list[Any]) -> list[Any]:
    """Return well-known routes with the metadata where clients of an issuer with a path look for it."""
    path = (urlsplit(str(provider.issuer_url)).path or "").rstrip("/")
    if not path:
        return routes
    found: list[Any] = []
    for route in routes:
        if route.path == _OPENID:
            found.append(route)
        if route.path in (_AUTHORIZATION_SERVER, _OPENID):
            route = Route(f"{route.path}{path}", endpoint=route.endpoint, methods=["GET", "OPTIONS"])
        found.append(route)
    return found

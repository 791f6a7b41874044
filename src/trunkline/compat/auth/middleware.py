"""ASGI middleware of protected servers: bearer tokens, the context variable, challenges.

``BearerAuthBackend`` verifies the token, ``AuthContextMiddleware`` keeps its owner in a context variable while the
request is served, ``RequireAuthMiddleware`` answers 401 and 403 with a challenge (RFC 6750, RFC 9728).
"""

from __future__ import annotations

import hmac
import json
import time
from collections.abc import Sequence
from typing import Any, TypedDict

from pydantic import AnyHttpUrl
from starlette.authentication import AuthCredentials, AuthenticationBackend, SimpleUser
from starlette.requests import HTTPConnection

from trunkline.compat.auth.current import auth_context_var
from trunkline.compat.auth.records import AccessToken, principal_components

__all__ = [
    "AuthContextMiddleware",
    "AuthenticatedUser",
    "AuthenticationError",
    "AuthorizationContext",
    "BearerAuthBackend",
    "ClientAuthenticator",
    "FastRequireAuthMiddleware",
    "RequireAuthMiddleware",
    "authorization_context",
]

_NO_TOKEN = (
    "Authentication failed. The provided bearer token is invalid, expired, or no longer recognized by the server. "
    "To resolve: clear authentication tokens in your MCP client and reconnect. Your client should automatically "
    "re-register and obtain new tokens."
)


class AuthenticatedUser(SimpleUser):
    """The owner of a verified token."""

    def __init__(self, auth_info: AccessToken) -> None:
        """Keep the token."""
        super().__init__(auth_info.client_id)
        self.access_token = auth_info
        self.scopes = auth_info.scopes


class AuthorizationContext(TypedDict):
    """The identity that owns what a request creates."""

    client_id: str
    issuer: str | None
    subject: str | None


def authorization_context(user: AuthenticatedUser) -> AuthorizationContext:
    """Return the identity of an authenticated user."""
    client_id, issuer, subject = principal_components(user.access_token)
    return AuthorizationContext(client_id=client_id, issuer=issuer, subject=subject)


class BearerAuthBackend(AuthenticationBackend):
    """Starlette's authentication by anything that verifies tokens."""

    def __init__(self, token_verifier: Any, *, resource_server_url: AnyHttpUrl | None = None) -> None:
        """Initialize with the verifier, and the resource that tokens must have been issued for, if that is checked."""
        self.token_verifier = token_verifier
        self.resource_server_url = resource_server_url

    async def authenticate(self, conn: HTTPConnection) -> Any:
        """Return the credentials and the user of a request, or None."""
        header = next((value for name, value in conn.headers.items() if name.lower() == "authorization"), None)
        if not header or not header.lower().startswith("bearer "):
            return None
        found = await self.token_verifier.verify_token(header[7:])
        if found is None or (found.expires_at and found.expires_at < int(time.time())):
            return None
        if self.resource_server_url is not None and not self._is_meant_for_us(found.resource):
            return None
        return AuthCredentials(found.scopes), AuthenticatedUser(found)

    def _is_meant_for_us(self, resource: str | None) -> bool:
        try:
            # The two are the same URL, however they are written: the class knows case and default ports.
            given = AnyHttpUrl(resource or "")
        except ValueError:
            return False
        return str(given).rstrip("/") == str(AnyHttpUrl(str(self.resource_server_url))).rstrip("/")


class AuthContextMiddleware:
    """Keeps the authenticated user in the context variable while a request is served."""

    def __init__(self, app: Any) -> None:
        """Initialize with the application."""
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve a request."""
        user = scope.get("user")
        if not isinstance(user, AuthenticatedUser):
            await self.app(scope, receive, send)
            return
        marker = auth_context_var.set(user)
        try:
            await self.app(scope, receive, send)
        finally:
            auth_context_var.reset(marker)


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')


class RequireAuthMiddleware:
    """Refuses requests without a valid token, or with too few scopes."""

    def __init__(
        self, app: Any, required_scopes: Sequence[str], resource_metadata_url: AnyHttpUrl | None = None
    ) -> None:
        """Initialize with the application and what its callers need."""
        self.app = app
        self.required_scopes = list(required_scopes)
        self.resource_metadata_url = resource_metadata_url

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve a request, or refuse it."""
        user = scope.get("user")
        if not isinstance(user, AuthenticatedUser):
            await self._send_auth_error(send, 401, "invalid_token", "Authentication required")
            return
        credentials = scope.get("auth")
        for required in self.required_scopes:
            if credentials is None or required not in credentials.scopes:
                await self._send_auth_error(send, 403, "insufficient_scope", f"Required scope: {required}")
                return
        await self.app(scope, receive, send)

    def _challenge(self, *parts: tuple[str, str]) -> str:
        written = [f'{name}="{_quoted(value)}"' for name, value in parts]
        if self.resource_metadata_url:
            written.append(f'resource_metadata="{self.resource_metadata_url}"')
        return f"Bearer {', '.join(written)}".strip()

    async def _send_auth_error(self, send: Any, status_code: int, error: str, description: str) -> None:
        challenge = self._challenge(("error", error), ("error_description", description))
        body = {"error": error, "error_description": description}
        await _respond(send, status_code, challenge, json.dumps(body).encode())


class FastRequireAuthMiddleware(RequireAuthMiddleware):
    """The same with FastMCP's words: a request without any token gets a challenge without an error (RFC 6750, 3.1)."""

    def __init__(
        self,
        app: Any,
        required_scopes: Sequence[str],
        resource_metadata_url: AnyHttpUrl | None = None,
        challenge_scopes: Sequence[str] | None = None,
    ) -> None:
        """Initialize with the application, what its callers need, and the scopes that they should request."""
        super().__init__(app, required_scopes, resource_metadata_url)
        self.challenge_scopes = list(required_scopes if challenge_scopes is None else challenge_scopes)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve a request, or refuse it."""
        if not isinstance(scope.get("user"), AuthenticatedUser) and not _shows_bearer(scope):
            await _respond(send, 401, self._challenge(*self._scope()), b"")
            return
        await super().__call__(scope, receive, send)

    def _scope(self) -> list[tuple[str, str]]:
        return [("scope", " ".join(self.challenge_scopes))] if self.challenge_scopes else []

    async def _send_auth_error(self, send: Any, status_code: int, error: str, description: str) -> None:
        if error == "invalid_token":
            description = _NO_TOKEN
        parts = [("error", error), ("error_description", description), *self._scope()]
        body = {"error": error, "error_description": description}
        await _respond(send, status_code, self._challenge(*parts), json.dumps(body).encode())


def _shows_bearer(scope: Any) -> bool:
    for name, value in scope.get("headers", ()):
        if name.lower() == b"authorization":
            return bool(value.lower().startswith(b"bearer "))
    return False


async def _respond(send: Any, status: int, challenge: str, body: bytes) -> None:
    headers = [(b"content-length", b"%d" % len(body)), (b"www-authenticate", challenge.encode())]
    if body:
        headers.insert(0, (b"content-type", b"application/json"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


# --- clients at the token endpoint -----------------------------------------------------------------------------------


class AuthenticationError(Exception):
    """A client could not be authenticated."""

    def __init__(self, message: str) -> None:
        """Keep the message."""
        super().__init__(message)
        self.message = message


class ClientAuthenticator:
    """Authenticates the clients of an authorization server by the method that each registered."""

    def __init__(self, provider: Any) -> None:
        """Initialize with the provider that knows the clients."""
        self.provider = provider

    async def authenticate_request(self, request: Any) -> Any:
        """Return the client that sent a request.

        Raises:
            AuthenticationError: it is unknown, or its credentials are wrong.
        """
        form = await request.form()
        client_id = form.get("client_id")
        if not client_id:
            raise AuthenticationError("Missing client_id")
        client = await self.provider.get_client(str(client_id))
        if not client:
            raise AuthenticationError("Invalid client_id")
        method = client.token_endpoint_auth_method
        if method == "client_secret_basic":
            given: str | None = _basic_secret(request.headers.get("authorization", ""), str(client_id))
        elif method == "client_secret_post":
            raw = form.get("client_secret")
            given = str(raw) if raw is not None else None
        elif method in ("none", None):
            raw = form.get("client_secret") if method is None else None
            given = str(raw) if raw is not None else None
        else:
            raise AuthenticationError(f"Unsupported auth method: {method}")
        self._check_secret(client, given)
        return client

    @staticmethod
    def _check_secret(client: Any, given: str | None) -> None:
        if not client.client_secret:
            if client.token_endpoint_auth_method in ("client_secret_basic", "client_secret_post"):
                raise AuthenticationError("Client has no stored secret to authenticate with")
            return
        if not given:
            raise AuthenticationError("Client secret is required")
        if not hmac.compare_digest(client.client_secret.encode(), given.encode()):
            raise AuthenticationError("Invalid client_secret")
        if client.client_secret_expires_at and client.client_secret_expires_at < int(time.time()):
            raise AuthenticationError("Client secret has expired")


def _basic_secret(header: str, client_id: str) -> str:
    import base64
    import binascii
    from urllib.parse import unquote

    if not header.startswith("Basic "):
        raise AuthenticationError("Missing or invalid Basic authentication in Authorization header")
    try:
        name, found, secret = base64.b64decode(header[6:], validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError) as error:
        raise AuthenticationError("Invalid Basic authentication header") from error
    if not found:
        raise AuthenticationError("Invalid Basic authentication header")
    # RFC 6749, 2.3.1: both are form-encoded first.
    if unquote(name) != client_id:
        raise AuthenticationError("Client ID mismatch in Basic auth")
    return unquote(secret)

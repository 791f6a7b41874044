"""The records of OAuth that the official SDK and FastMCP define, and a key pair for tests."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import parse_qs, urlencode, urlparse, urlunparse

from pydantic import AnyHttpUrl, AnyUrl, BaseModel, ConfigDict

from trunkline.compat.auth import AccessToken

__all__ = [
    "AuthContextMiddleware",
    "AuthenticatedUser",
    "AuthorizationCode",
    "AuthorizationParams",
    "AuthorizeError",
    "BearerAuthBackend",
    "InvalidRedirectUriError",
    "InvalidScopeError",
    "OAuthAuthorizationServerProvider",
    "OAuthClientInformation",
    "OAuthClientInformationFull",
    "OAuthClientMetadata",
    "OAuthMetadata",
    "OAuthToken",
    "ProtectedResourceMetadata",
    "ProviderTokenVerifier",
    "RSAKeyPair",
    "RefreshToken",
    "RegistrationError",
    "RequireAuthMiddleware",
    "TokenError",
    "construct_redirect_uri",
]


class _Record(BaseModel):
    model_config = ConfigDict(extra="allow")


class OAuthToken(_Record):
    """What a token endpoint answers."""

    access_token: str
    token_type: str = "Bearer"
    expires_in: int | None = None
    scope: str | None = None
    refresh_token: str | None = None


class InvalidScopeError(Exception):
    """A client asks for a scope it may not have."""

    def __init__(self, message: str) -> None:
        """Keep the message."""
        super().__init__(message)
        self.message = message


class InvalidRedirectUriError(InvalidScopeError):
    """A client names a page it did not register."""


class OAuthClientMetadata(_Record):
    """What a client says when it registers."""

    redirect_uris: list[AnyUrl] | None = None
    token_endpoint_auth_method: str | None = None
    grant_types: list[str] = ["authorization_code", "refresh_token"]
    response_types: list[str] = ["code"]
    scope: str | None = None
    client_name: str | None = None
    client_uri: AnyHttpUrl | None = None
    logo_uri: AnyHttpUrl | None = None
    contacts: list[str] | None = None
    tos_uri: AnyHttpUrl | None = None
    policy_uri: AnyHttpUrl | None = None
    jwks_uri: AnyHttpUrl | None = None
    jwks: Any = None
    software_id: str | None = None
    software_version: str | None = None

    def validate_scope(self, requested_scope: str | None) -> list[str] | None:
        """Return the scopes that are asked for.

        Raises:
            InvalidScopeError: one of them is not registered.
        """
        if requested_scope is None:
            return None
        allowed = (self.scope or "").split()
        for scope in requested_scope.split():
            if scope not in allowed:
                raise InvalidScopeError(f"Client was not registered with scope {scope}")
        return requested_scope.split()

    def validate_redirect_uri(self, redirect_uri: AnyUrl | None) -> AnyUrl:
        """Return the page to come back to.

        Raises:
            InvalidRedirectUriError: it is not registered, or not clear.
        """
        known = self.redirect_uris or []
        if redirect_uri is not None:
            if redirect_uri not in known:
                raise InvalidRedirectUriError(f"Redirect URI '{redirect_uri}' not registered for client")
            return redirect_uri
        if len(known) != 1:
            raise InvalidRedirectUriError("redirect_uri must be specified when client has multiple registered URIs")
        return known[0]


class OAuthClientInformation(_Record):
    """What a client is given when it registers."""

    client_id: str | None = None
    client_secret: str | None = None
    client_id_issued_at: int | None = None
    client_secret_expires_at: int | None = None


class OAuthClientInformationFull(OAuthClientMetadata, OAuthClientInformation):
    """Both."""


class OAuthMetadata(_Record):
    """What an authorization server says about itself (RFC 8414)."""

    issuer: AnyHttpUrl
    authorization_endpoint: AnyHttpUrl
    token_endpoint: AnyHttpUrl
    registration_endpoint: AnyHttpUrl | None = None
    scopes_supported: list[str] | None = None
    response_types_supported: list[str] = ["code"]


class ProtectedResourceMetadata(_Record):
    """What a protected server says about itself (RFC 9728)."""

    resource: AnyHttpUrl
    authorization_servers: list[AnyHttpUrl]
    scopes_supported: list[str] | None = None
    bearer_methods_supported: list[str] | None = ["header"]


class AuthorizationParams(_Record):
    """What an authorization is asked for with."""

    state: str | None = None
    scopes: list[str] | None = None
    code_challenge: str
    redirect_uri: AnyUrl
    redirect_uri_provided_explicitly: bool
    resource: str | None = None


class AuthorizationCode(_Record):
    """A code that can be exchanged for a token."""

    code: str
    scopes: list[str]
    expires_at: float
    client_id: str
    code_challenge: str
    redirect_uri: AnyUrl
    redirect_uri_provided_explicitly: bool
    resource: str | None = None


class RefreshToken(_Record):
    """A token that can be exchanged for another."""

    token: str
    client_id: str
    scopes: list[str]
    expires_at: int | None = None


class _Refused(Exception):
    """An answer of an endpoint that is an error."""

    def __init__(self, error: str, error_description: str | None = None) -> None:
        """Keep the code and the text."""
        super().__init__(error)
        self.error = error
        self.error_description = error_description


class AuthorizeError(_Refused):
    """An authorization is refused."""


class TokenError(_Refused):
    """A token is refused."""


class RegistrationError(_Refused):
    """A registration is refused."""


class OAuthAuthorizationServerProvider(Protocol):
    """What an authorization server inside a server must have; for annotations and as a base."""

    @classmethod
    def __class_getitem__(cls, _: object) -> Any:
        """Ignore type parameters."""
        return cls


class ProviderTokenVerifier:
    """Verifies the tokens that a provider issued."""

    def __init__(self, provider: Any) -> None:
        """Initialize with the provider."""
        self.provider = provider

    async def verify_token(self, token: str) -> Any:
        """Ask the provider."""
        return await self.provider.load_access_token(token)


def construct_redirect_uri(redirect_uri_base: str, **params: str | None) -> str:
    """Return a page with parameters added."""
    parsed = urlparse(redirect_uri_base)
    query = [(name, value) for name, values in parse_qs(parsed.query).items() for value in values]
    query += [(name, value) for name, value in params.items() if value is not None]
    return urlunparse(parsed._replace(query=urlencode(query)))


class AuthenticatedUser:
    """A caller whose token was verified."""

    def __init__(self, auth_info: AccessToken) -> None:
        """Keep the token."""
        self.access_token = auth_info
        self.scopes = auth_info.scopes
        self.username = auth_info.client_id


class BearerAuthBackend:
    """Starlette's authentication by a verifier."""

    def __init__(self, token_verifier: Any) -> None:
        """Initialize with the verifier."""
        self.token_verifier = token_verifier

    async def authenticate(self, conn: Any) -> Any:
        """Return who sends a request, or None."""
        header = next((conn.headers.get(key) for key in conn.headers if key.lower() == "authorization"), None)
        if not header or not header.lower().startswith("bearer "):
            return None
        found = await self.token_verifier.verify_token(header[7:])
        if found is None or (found.expires_at and found.expires_at < int(time.time())):
            return None
        from starlette.authentication import AuthCredentials

        return AuthCredentials(found.scopes), AuthenticatedUser(found)


class _PassThrough:
    """ASGI middleware that changes nothing: our endpoint asks for tokens itself."""

    def __init__(self, app: Any, *_: Any, **__: Any) -> None:
        """Initialize with the application."""
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Call the application."""
        await self.app(scope, receive, send)


class AuthContextMiddleware(_PassThrough):
    """Not needed here."""


class RequireAuthMiddleware(_PassThrough):
    """Not needed here."""


@dataclass(frozen=True)
class RSAKeyPair:
    """A key pair that signs tokens for tests."""

    private_key: Any
    public_key: str

    @classmethod
    def generate(cls) -> RSAKeyPair:
        """Make a pair."""
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import rsa
        from pydantic import SecretStr

        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return cls(SecretStr(private.decode()), public.decode())

    def create_token(
        self,
        subject: str = "fastmcp-user",
        issuer: str = "https://fastmcp.example.com",
        audience: Any = None,
        scopes: list[str] | None = None,
        expires_in_seconds: int = 3600,
        additional_claims: dict[str, Any] | None = None,
        kid: str | None = None,
    ) -> str:
        """Sign a token."""
        import jwt

        now = int(time.time())
        claims: dict[str, Any] = {"sub": subject, "iss": issuer, "iat": now, "exp": now + expires_in_seconds}
        claims |= {"aud": audience} if audience else {}
        claims |= {"scope": " ".join(scopes)} if scopes else {}
        claims |= additional_claims or {}
        return jwt.encode(
            claims, self.private_key.get_secret_value(), algorithm="RS256", headers={"kid": kid} if kid else None
        )

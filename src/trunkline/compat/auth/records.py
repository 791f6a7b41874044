"""The records of OAuth that both frameworks define: tokens, clients, codes, metadata, errors, settings."""

from __future__ import annotations

import warnings
from typing import Any, Generic, Literal, Protocol, TypeVar
from urllib.parse import parse_qsl, urlencode, urlparse, urlunparse

from pydantic import AnyHttpUrl, AnyUrl, BaseModel, ConfigDict, Field, field_validator, model_validator

from trunkline.compat.exceptions import MCPDeprecationWarning
from trunkline.compat.versions import STATE

__all__ = [
    "DEFAULT_GRANT_TYPES",
    "JWT_BEARER_GRANT_TYPE",
    "AccessToken",
    "AuthSettings",
    "AuthorizationCode",
    "AuthorizationCodeResult",
    "AuthorizationErrorCode",
    "AuthorizationParams",
    "AuthorizeError",
    "ClientRegistrationOptions",
    "FastAccessToken",
    "IdentityAssertionParams",
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
    "RefreshToken",
    "RegistrationError",
    "RegistrationErrorCode",
    "RevocationOptions",
    "TokenError",
    "TokenErrorCode",
    "TokenVerifierProtocol",
    "construct_redirect_uri",
    "parse_scopes",
    "principal_components",
]

JWT_BEARER_GRANT_TYPE = "urn:ietf:params:oauth:grant-type:jwt-bearer"


def _default_grants() -> list[str]:
    return ["authorization_code", "refresh_token"]


DEFAULT_GRANT_TYPES = _default_grants()


RegistrationErrorCode = Literal[
    "invalid_redirect_uri", "invalid_client_metadata", "invalid_software_statement", "unapproved_software_statement"
]
AuthorizationErrorCode = Literal[
    "invalid_request",
    "unauthorized_client",
    "access_denied",
    "unsupported_response_type",
    "invalid_scope",
    "server_error",
    "temporarily_unavailable",
    "invalid_target",
]
TokenErrorCode = Literal[
    "invalid_request",
    "invalid_client",
    "invalid_grant",
    "unauthorized_client",
    "unsupported_grant_type",
    "invalid_scope",
    "invalid_target",
]

#: An empty path stays empty, since RFC 8414 compares issuers as strings; version 1 of the SDK adds a slash.
_AS_WRITTEN = ConfigDict(url_preserve_empty_path=not STATE.camel_case)


# --- tokens ----------------------------------------------------------------------------------------------------------


class AccessToken(BaseModel):
    """A token that was verified, as the official SDK has it."""

    token: str
    client_id: str
    scopes: list[str]
    expires_at: int | None = None
    resource: str | None = None
    subject: str | None = None
    claims: dict[str, Any] | None = None


class FastAccessToken(AccessToken):
    """A token that was verified, as FastMCP has it: always with claims."""

    claims: dict[str, Any] = Field(default_factory=dict)
    #: The client's name before it was made unique among several sources of tokens.
    original_client_id: str | None = None


class OAuthToken(BaseModel):
    """The answer of a token endpoint."""

    access_token: str
    token_type: Literal["Bearer"] = "Bearer"
    expires_in: int | None = None
    scope: str | None = None
    refresh_token: str | None = None

    @field_validator("token_type", mode="before")
    @classmethod
    def normalize_token_type(cls, value: str | None) -> str | None:
        """Accept any case: RFC 6750 compares the type without it."""
        return value.title() if isinstance(value, str) else value


def principal_components(token: AccessToken) -> tuple[str, str | None, str | None]:
    """Return the client, the issuer and the subject of a token."""
    claims = token.claims or {}
    issuer = claims.get("iss")
    subject = token.subject if token.subject is not None else claims.get("sub")
    return (
        token.client_id,
        issuer if isinstance(issuer, str) else None,
        subject if isinstance(subject, str) else None,
    )


# --- clients ---------------------------------------------------------------------------------------------------------


class InvalidScopeError(Exception):
    """A client requests a scope that it may not have."""

    def __init__(self, message: str) -> None:
        """Keep the message."""
        super().__init__(message)
        self.message = message


class InvalidRedirectUriError(Exception):
    """A client names a redirect URI that it did not register."""

    def __init__(self, message: str) -> None:
        """Keep the message."""
        super().__init__(message)
        self.message = message


class _ClientMetadata(BaseModel):
    """What is common to a registration and its answer."""

    model_config = _AS_WRITTEN

    response_types: list[str] = ["code"]
    scope: str | None = None
    client_name: str | None = None
    client_uri: AnyHttpUrl | None = None
    logo_uri: AnyHttpUrl | None = None
    contacts: list[str] | None = None
    tos_uri: AnyHttpUrl | None = None
    policy_uri: AnyHttpUrl | None = None
    jwks_uri: AnyHttpUrl | None = None
    jwks: Any | None = None
    software_id: str | None = None
    software_version: str | None = None

    @field_validator("client_uri", "logo_uri", "tos_uri", "policy_uri", "jwks_uri", mode="before")
    @classmethod
    def _empty_is_absent(cls, value: object) -> object:
        return None if value == "" else value

    def validate_scope(self, requested_scope: str | None) -> list[str] | None:
        """Return the requested scopes as a list.

        Raises:
            InvalidScopeError: one of them is not registered.
        """
        if requested_scope is None:
            return None
        allowed = set((self.scope or "").split())
        requested = requested_scope.split(" ")
        for scope in requested:
            if scope not in allowed:
                raise InvalidScopeError(f"Client was not registered with scope {scope}")
        return requested

    def validate_redirect_uri(self, redirect_uri: AnyUrl | None) -> AnyUrl:
        """Return the redirect URI to use.

        Raises:
            InvalidRedirectUriError: it is not registered, or several are and none is named.
        """
        known: list[AnyUrl] = getattr(self, "redirect_uris", None) or []
        if redirect_uri is not None:
            if redirect_uri not in known:
                raise InvalidRedirectUriError(f"Redirect URI '{redirect_uri}' not registered for client")
            return redirect_uri
        if len(known) != 1:
            raise InvalidRedirectUriError("redirect_uri must be specified when client has multiple registered URIs")
        return known[0]


class OAuthClientMetadata(_ClientMetadata):
    """What a client sends when it registers (RFC 7591)."""

    redirect_uris: list[AnyUrl] | None = Field(..., min_length=1)
    token_endpoint_auth_method: (
        Literal["none", "client_secret_post", "client_secret_basic", "private_key_jwt"] | None
    ) = None
    grant_types: list[str] = list(DEFAULT_GRANT_TYPES)
    application_type: Literal["web", "native"] | None = None


class OAuthClientInformation(_ClientMetadata):
    """A registered client."""

    redirect_uris: list[AnyUrl] | None = None
    token_endpoint_auth_method: str | None = None
    grant_types: list[str] = list(DEFAULT_GRANT_TYPES)
    application_type: str | None = None
    client_id: str | None = None
    client_secret: str | None = None
    client_id_issued_at: int | None = None
    client_secret_expires_at: int | None = None
    issuer: str | None = None


class OAuthClientInformationFull(OAuthClientInformation):
    """A registered client with everything that is known about it."""


# --- metadata --------------------------------------------------------------------------------------------------------


class OAuthMetadata(BaseModel):
    """The metadata of an authorization server (RFC 8414)."""

    model_config = _AS_WRITTEN

    issuer: AnyHttpUrl
    authorization_endpoint: AnyHttpUrl
    token_endpoint: AnyHttpUrl
    registration_endpoint: AnyHttpUrl | None = None
    scopes_supported: list[str] | None = None
    response_types_supported: list[str] = ["code"]
    response_modes_supported: list[str] | None = None
    grant_types_supported: list[str] | None = None
    token_endpoint_auth_methods_supported: list[str] | None = None
    token_endpoint_auth_signing_alg_values_supported: list[str] | None = None
    service_documentation: AnyHttpUrl | None = None
    ui_locales_supported: list[str] | None = None
    op_policy_uri: AnyHttpUrl | None = None
    op_tos_uri: AnyHttpUrl | None = None
    revocation_endpoint: AnyHttpUrl | None = None
    revocation_endpoint_auth_methods_supported: list[str] | None = None
    revocation_endpoint_auth_signing_alg_values_supported: list[str] | None = None
    introspection_endpoint: AnyHttpUrl | None = None
    introspection_endpoint_auth_methods_supported: list[str] | None = None
    introspection_endpoint_auth_signing_alg_values_supported: list[str] | None = None
    code_challenge_methods_supported: list[str] | None = None
    client_id_metadata_document_supported: bool | None = None
    authorization_response_iss_parameter_supported: bool | None = None
    authorization_grant_profiles_supported: list[str] | None = None


class ProtectedResourceMetadata(BaseModel):
    """The metadata of a protected resource (RFC 9728)."""

    model_config = _AS_WRITTEN

    resource: AnyHttpUrl
    authorization_servers: list[AnyHttpUrl] = Field(..., min_length=1)
    jwks_uri: AnyHttpUrl | None = None
    scopes_supported: list[str] | None = None
    bearer_methods_supported: list[str] | None = Field(default=["header"])
    resource_signing_alg_values_supported: list[str] | None = None
    resource_name: str | None = None
    resource_documentation: AnyHttpUrl | None = None
    resource_policy_uri: AnyHttpUrl | None = None
    resource_tos_uri: AnyHttpUrl | None = None
    tls_client_certificate_bound_access_tokens: bool | None = None
    authorization_details_types_supported: list[str] | None = None
    dpop_signing_alg_values_supported: list[str] | None = None
    dpop_bound_access_tokens_required: bool | None = None


# --- settings --------------------------------------------------------------------------------------------------------


class ClientRegistrationOptions(BaseModel):
    """How clients register."""

    enabled: bool = False
    client_secret_expiry_seconds: int | None = None
    valid_scopes: list[str] | None = None
    default_scopes: list[str] | None = None


class RevocationOptions(BaseModel):
    """Whether tokens can be revoked."""

    enabled: bool = False


class AuthSettings(BaseModel):
    """The issuer of a protected server's tokens, and what its tokens must have."""

    model_config = _AS_WRITTEN

    issuer_url: AnyHttpUrl
    service_documentation_url: AnyHttpUrl | None = None
    client_registration_options: ClientRegistrationOptions | None = None
    revocation_options: RevocationOptions | None = None
    required_scopes: list[str] | None = None
    identity_assertion_enabled: bool = False
    resource_server_url: AnyHttpUrl | None = None
    validate_token_resource: bool | None = None

    @model_validator(mode="after")
    def _check_resource(self) -> AuthSettings:
        if self.validate_token_resource and self.resource_server_url is None:
            raise ValueError("validate_token_resource requires resource_server_url to be set")
        return self

    def __init__(self, **given: Any) -> None:
        """Check the settings; a server that does not say whether tokens must be meant for it is warned."""
        super().__init__(**given)
        unsaid = self.validate_token_resource is None and self.resource_server_url is not None
        if unsaid and not STATE.camel_case:
            warnings.warn(
                "validate_token_resource is not set: tokens that were issued for other servers are accepted. Set it "
                "to True, or to False if the verifier checks that itself",
                MCPDeprecationWarning,
                stacklevel=2,
            )


# --- the authorization server's provider -----------------------------------------------------------------------------


class AuthorizationParams(BaseModel):
    """An authorization request that was validated."""

    state: str | None
    scopes: list[str] | None
    code_challenge: str
    redirect_uri: AnyUrl
    redirect_uri_provided_explicitly: bool
    resource: str | None = None


class AuthorizationCodeResult(BaseModel):
    """The parameters that a redirect brought back to a client."""

    code: str
    state: str | None = None
    iss: str | None = None


class IdentityAssertionParams(BaseModel):
    """A token request with an identity assertion."""

    assertion: str
    scopes: list[str] | None = None
    resource: str | None = None


class AuthorizationCode(BaseModel):
    """A code that can be exchanged for a token."""

    code: str
    scopes: list[str]
    expires_at: float
    client_id: str
    code_challenge: str
    redirect_uri: AnyUrl
    redirect_uri_provided_explicitly: bool
    resource: str | None = None
    subject: str | None = None


class RefreshToken(BaseModel):
    """A token that can be exchanged for another."""

    token: str
    client_id: str
    scopes: list[str]
    expires_at: int | None = None
    resource: str | None = None
    subject: str | None = None


_E = TypeVar("_E")


class _Refused(Exception, Generic[_E]):
    """An endpoint refuses a request, with a code of the standard."""

    def __init__(self, error: _E, error_description: str | None = None) -> None:
        """Keep the code and the text."""
        super().__init__(error, error_description)
        self.error = error
        self.error_description = error_description


class RegistrationError(_Refused[RegistrationErrorCode]):
    """A registration is refused."""


class AuthorizeError(_Refused[AuthorizationErrorCode]):
    """An authorization is refused."""


class TokenError(_Refused[TokenErrorCode]):
    """A token is refused."""


class TokenVerifierProtocol(Protocol):
    """What protects a server: anything that verifies tokens."""

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return what a token stands for, or None."""
        ...


_C = TypeVar("_C")
_R = TypeVar("_R")
_A = TypeVar("_A")


class OAuthAuthorizationServerProvider(Generic[_C, _R, _A]):
    """The base of an authorization server inside a server: users implement what they serve."""

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        """Return a registered client, or None."""
        raise NotImplementedError("get_client() is not implemented")

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        """Register a client."""
        raise NotImplementedError("register_client() is not implemented")

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        """Return the URL to send the browser to."""
        raise NotImplementedError("authorize() is not implemented")

    async def load_authorization_code(self, client: OAuthClientInformationFull, authorization_code: str) -> _C | None:
        """Return a code, or None."""
        raise NotImplementedError("load_authorization_code() is not implemented")

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: _C
    ) -> OAuthToken:
        """Return the tokens for a code."""
        raise NotImplementedError("exchange_authorization_code() is not implemented")

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> _R | None:
        """Return a refresh token, or None."""
        raise NotImplementedError("load_refresh_token() is not implemented")

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: _R, scopes: list[str]
    ) -> OAuthToken:
        """Return new tokens for a refresh token."""
        raise NotImplementedError("exchange_refresh_token() is not implemented")

    async def load_access_token(self, token: str) -> _A | None:
        """Return what an access token stands for, or None."""
        raise NotImplementedError("load_access_token() is not implemented")

    async def revoke_token(self, token: _A | _R) -> None:
        """Revoke a token."""
        raise NotImplementedError("revoke_token() is not implemented")

    async def exchange_identity_assertion(
        self, client: OAuthClientInformationFull, params: IdentityAssertionParams
    ) -> OAuthToken:
        """Return a token for an identity assertion; refused unless a provider implements it."""
        raise TokenError(
            error="unsupported_grant_type", error_description="This server does not accept identity assertions"
        )


class ProviderTokenVerifier:
    """Verifies the tokens that a provider issued."""

    def __init__(self, provider: Any) -> None:
        """Initialize with the provider."""
        self.provider = provider

    async def verify_token(self, token: str) -> Any:
        """Ask the provider."""
        return await self.provider.load_access_token(token)


def construct_redirect_uri(redirect_uri_base: str, **params: str | None) -> str:
    """Return a redirect URI with parameters added."""
    parsed = urlparse(redirect_uri_base)
    query = parse_qsl(parsed.query, keep_blank_values=True)
    query += [(name, value) for name, value in params.items() if value is not None]
    return urlunparse(parsed._replace(query=urlencode(query)))


def parse_scopes(value: Any) -> list[str] | None:
    """Return scopes that were written as a list, as JSON, or with commas or spaces between them."""
    if value is None or value == "":
        return None if value is None else []
    if isinstance(value, list):
        return [str(each).strip() for each in value]
    text = str(value).strip()
    if text.startswith("["):
        import json

        return [str(each).strip() for each in json.loads(text)]
    return [each for each in text.replace(",", " ").split() if each]

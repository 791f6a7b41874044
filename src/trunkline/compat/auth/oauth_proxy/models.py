"""The records of the OAuth proxy, and its clients."""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Final
from urllib.parse import urlsplit

from pydantic import AnyUrl, BaseModel, Field

from trunkline.compat.auth.cimd import CIMDDocument
from trunkline.compat.auth.records import InvalidRedirectUriError, OAuthClientInformationFull
from trunkline.compat.auth.redirects import (
    is_loopback_host,
    is_redirect_uri_allowed_for_application_type,
    is_unsafe,
    matches_allowed_pattern,
    validate_redirect_uri,
)

__all__ = [
    "DEFAULT_ACCESS_TOKEN_EXPIRY_NO_REFRESH_SECONDS",
    "DEFAULT_ACCESS_TOKEN_EXPIRY_SECONDS",
    "DEFAULT_AUTH_CODE_EXPIRY_SECONDS",
    "DEFAULT_REFRESH_TOKEN_EXPIRY_SECONDS",
    "HTTP_TIMEOUT_SECONDS",
    "TRANSACTION_SECONDS",
    "ClientCode",
    "JTIMapping",
    "OAuthTransaction",
    "ProxyDCRClient",
    "RefreshTokenMetadata",
    "UpstreamTokenSet",
    "hash_token",
]

DEFAULT_ACCESS_TOKEN_EXPIRY_SECONDS: Final[int] = 60 * 60  # What most providers issue.
#: A provider that issues no refresh token and names no expiry, such as GitHub, issues tokens that do not expire.
DEFAULT_ACCESS_TOKEN_EXPIRY_NO_REFRESH_SECONDS: Final[int] = 60 * 60 * 24 * 365
#: Most providers do not say when a refresh token expires; they refuse it when it has.
DEFAULT_REFRESH_TOKEN_EXPIRY_SECONDS: Final[int] = 60 * 60 * 24 * 365
DEFAULT_AUTH_CODE_EXPIRY_SECONDS: Final[int] = 5 * 60  # RFC 6749, 4.1.2: ten minutes at most.
HTTP_TIMEOUT_SECONDS: Final[int] = 30  # A user waits for it.
#: How long a user may take to consent and to sign in.
TRANSACTION_SECONDS: Final[int] = 15 * 60


class OAuthTransaction(BaseModel):
    """An authorization that a user has begun."""

    txn_id: str
    client_id: str
    client_redirect_uri: str
    client_state: str
    code_challenge: str | None
    code_challenge_method: str
    scopes: list[str]
    created_at: float
    resource: str | None = None
    proxy_code_verifier: str | None = None
    csrf_token: str | None = None
    csrf_expires_at: float | None = None
    consent_token: str | None = None


class ClientCode(BaseModel):
    """A code that was given to a client, and the provider's tokens behind it."""

    code: str
    client_id: str
    redirect_uri: str
    code_challenge: str | None
    code_challenge_method: str
    scopes: list[str]
    idp_tokens: dict[str, Any]
    expires_at: float
    created_at: float


class UpstreamTokenSet(BaseModel):
    """The identity provider's tokens; clients never see them."""

    upstream_token_id: str
    access_token: str
    refresh_token: str | None
    refresh_token_expires_at: float | None
    expires_at: float
    token_type: str
    scope: str
    client_id: str
    created_at: float
    raw_token_data: dict[str, Any] = Field(default_factory=dict)


class JTIMapping(BaseModel):
    """Which tokens of the provider stand behind a token of ours."""

    jti: str
    upstream_token_id: str
    created_at: float


class RefreshTokenMetadata(BaseModel):
    """What is kept of a refresh token, under its digest."""

    client_id: str
    scopes: list[str]
    expires_at: int | None = None
    created_at: float


def hash_token(token: str) -> str:
    """Return the digest that a token is stored under."""
    return sha256(token.encode()).hexdigest()


def _is_registered(given: AnyUrl, registered: AnyUrl) -> bool:
    """Return whether a redirect URI is a registered one; the port of a loopback URI is free (RFC 8252, 7.3)."""
    if str(given) == str(registered):
        return True
    one, other = urlsplit(str(given)), urlsplit(str(registered))
    return (
        is_loopback_host(one.hostname)
        and (one.scheme, one.hostname, one.path or "/", one.query)
        == (other.scheme, other.hostname, other.path or "/", other.query)
        and "@" not in one.netloc
    )


class ProxyDCRClient(OAuthClientInformationFull):
    """A client of the proxy: registered, or described by a document."""

    allowed_redirect_uri_patterns: list[str] | None = Field(default=None)
    client_name: str | None = Field(default=None)
    cimd_document: CIMDDocument | None = Field(default=None)
    cimd_fetched_at: float | None = Field(default=None)
    #: For the client that stands for the provider's own client ID, whose redirect URIs are not known here.
    allow_unregistered_redirect_uris: bool = Field(default=False, exclude=True)

    def validate_redirect_uri(self, redirect_uri: AnyUrl | None) -> AnyUrl:
        """Return the redirect URI to use.

        Raises:
            InvalidRedirectUriError: it is not allowed for this client.
        """
        if redirect_uri is None:
            found = self._only_redirect_uri()
            self._check_patterns(found)
            return found
        if is_unsafe(str(redirect_uri)):
            raise InvalidRedirectUriError(f"Redirect URI '{redirect_uri}' has a scheme that is not allowed")
        if self.application_type == "web" and not is_redirect_uri_allowed_for_application_type(redirect_uri, "web"):
            raise InvalidRedirectUriError(f"Redirect URI '{redirect_uri}' is not allowed for application_type 'web'")
        if self.cimd_document is not None:
            if not any(matches_allowed_pattern(str(redirect_uri), each) for each in self.cimd_document.redirect_uris):
                raise InvalidRedirectUriError(f"Redirect URI '{redirect_uri}' is not in the client's document")
            self._check_patterns(redirect_uri)
            return redirect_uri
        if self.allowed_redirect_uri_patterns is not None:
            self._check_patterns(redirect_uri)
            return redirect_uri
        if self.allow_unregistered_redirect_uris or any(
            _is_registered(redirect_uri, each) for each in self.redirect_uris or ()
        ):
            return redirect_uri
        raise InvalidRedirectUriError(f"Redirect URI '{redirect_uri}' not registered for client")

    def _only_redirect_uri(self) -> AnyUrl:
        if self.cimd_document is None:
            return super().validate_redirect_uri(None)
        listed = self.cimd_document.redirect_uris
        if len(listed) != 1 or "*" in listed[0]:
            raise InvalidRedirectUriError("redirect_uri must be specified: the client's document does not name one")
        return AnyUrl(listed[0])

    def _check_patterns(self, uri: AnyUrl) -> None:
        if not validate_redirect_uri(uri, self.allowed_redirect_uri_patterns):
            raise InvalidRedirectUriError(f"Redirect URI '{uri}' does not match the allowed patterns")

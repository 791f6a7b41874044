"""The records of an authorization server: what is stored of clients, sign-ins and tokens.

Frozen structs. Secrets are not stored: a code, refresh token, cookie or client secret is stored under its digest. How
records are stored is in ``storage``.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from typing import Any

from msgspec import Struct

__all__ = [
    "AuthorizationCode",
    "AuthorizationRequest",
    "BrowserSession",
    "OAuthClient",
    "RefreshToken",
    "StoredConsent",
    "TokenGrant",
    "constant_time_equal",
    "digest",
    "new_secret",
]


class OAuthClient(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A client of the authorization server: configured, registered dynamically, or described by a document."""

    client_id: str
    client_name: str = ""
    #: Allowed redirect URIs: https, or loopback with any port.
    redirect_uris: tuple[str, ...] = ()
    #: Only configured clients may also have ``client_credentials``.
    grant_types: tuple[str, ...] = ("authorization_code", "refresh_token")
    #: For configuration only; never stored.
    client_secret: str | None = None
    #: Public keys of a client that authenticates with signed assertions.
    jwks: dict[str, Any] | None = None
    jwks_uri: str | None = None
    #: The scopes that a configured client may request; None: all.
    scopes: tuple[str, ...] | None = None
    client_uri: str | None = None
    #: Where it comes from: ``configured``, ``registered`` or ``document``.
    source: str = "configured"
    #: The digest of its secret.
    secret_digest: str | None = None

    @property
    def is_public(self) -> bool:
        """Whether it has no credentials."""
        return self.secret_digest is None and self.jwks is None and self.jwks_uri is None


class AuthorizationRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A validated authorization request that waits for the user's decision."""

    client_id: str
    redirect_uri: str
    challenge: str
    resource: str
    scopes: tuple[str, ...]
    state: str | None = None
    #: The digest of the cookie of the browser that was shown the page.
    browser: str = ""
    #: Makes each request unique, so that it can be decided only once.
    nonce: str = ""
    #: The generation of the store, which knows whether the request was decided.
    generation: str = ""
    until: float = 0.0


class AuthorizationCode(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The record of an authorization code; a used one is kept, since a second use is how a theft is noticed."""

    grant_id: str
    subject: str
    client_id: str
    redirect_uri: str
    challenge: str
    resource: str
    scopes: tuple[str, ...]
    until: float
    #: The generation of the store, which knows whether the code was used.
    generation: str
    used: bool = False


class TokenGrant(Struct, frozen=True, kw_only=True):
    """What a user allowed a client: a family of tokens. It is valid for as long as it is stored."""

    subject: str
    client_id: str
    resource: str
    scopes: tuple[str, ...]


class RefreshToken(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The record of a refresh token; a used one is kept, since a second use is how a theft is noticed."""

    grant_id: str
    #: The generation of the store, which knows whether the token was used.
    generation: str
    used: bool = False


class BrowserSession(Struct, frozen=True):
    """The user who signed in with a browser."""

    subject: str


class StoredConsent(Struct, frozen=True):
    """What was allowed before to the same client, in the same browser."""

    scopes: tuple[str, ...]


def digest(secret: str) -> str:
    """Return the digest under which a secret is stored; secrets have 256 bits, so a plain hash is enough."""
    return base64.urlsafe_b64encode(hashlib.sha256(secret.encode()).digest()).rstrip(b"=").decode()


def new_secret() -> str:
    """Generate an unguessable string of 256 bits for URLs and cookies."""
    return secrets.token_urlsafe(32)


def constant_time_equal(one: str, other: str) -> bool:
    """Compare two strings in constant time."""
    return hmac.compare_digest(one.encode(), other.encode())

"""The records that an authorization server keeps.

Secrets are not among them: a code, a refresh token, a cookie or a client secret is stored as its digest, which is also
the name by which it is found.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from typing import Any

from msgspec import Struct

__all__ = [
    "AuthorizationRequest",
    "Code",
    "Consent",
    "Grant",
    "OAuthClient",
    "Refresh",
    "Session",
    "digest",
    "new_secret",
    "same",
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
    until: float = 0.0


class Code(Struct, frozen=True, kw_only=True):
    """The record of an authorization code."""

    grant_id: str
    subject: str
    client_id: str
    redirect_uri: str
    challenge: str
    resource: str
    scopes: tuple[str, ...]
    until: float


class Grant(Struct, frozen=True, kw_only=True):
    """What a user allowed a client: a family of tokens. It is valid for as long as it is stored."""

    subject: str
    client_id: str
    resource: str
    scopes: tuple[str, ...]


class Refresh(Struct, frozen=True):
    """The record of a refresh token."""

    grant_id: str


class Session(Struct, frozen=True):
    """The user who signed in with a browser."""

    subject: str


class Consent(Struct, frozen=True):
    """What was allowed before to the same client, in the same browser."""

    scopes: tuple[str, ...]


def digest(secret: str) -> str:
    """Return the digest under which a secret is stored; secrets have 256 bits, so a plain hash is enough."""
    return base64.urlsafe_b64encode(hashlib.sha256(secret.encode()).digest()).rstrip(b"=").decode()


def new_secret() -> str:
    """Generate an unguessable string of 256 bits for URLs and cookies."""
    return secrets.token_urlsafe(32)


def same(one: str, other: str) -> bool:
    """Compare two strings in constant time."""
    return hmac.compare_digest(one.encode(), other.encode())

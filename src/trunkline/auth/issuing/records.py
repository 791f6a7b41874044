"""What an authorization server knows and keeps, as frozen records.

Secrets are never among them: a code, a refresh token, a cookie or a client's secret is kept as its digest, which is
also the name it is found by.
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
    """A client of the authorization server: one you configure, or one that made itself known."""

    client_id: str
    client_name: str = ""
    #: Where users may be sent back to: https, or a loopback address, whose port may then be any.
    redirect_uris: tuple[str, ...] = ()
    #: Configured clients may have ``client_credentials`` too; nobody gets that by registering.
    grant_types: tuple[str, ...] = ("authorization_code", "refresh_token")
    #: Given in a configuration only; kept nowhere.
    client_secret: str | None = None
    #: Public keys of a client that proves itself by a signed assertion.
    jwks: dict[str, Any] | None = None
    jwks_uri: str | None = None
    #: What it may ask for, if it was configured; None: every scope there is.
    scopes: tuple[str, ...] | None = None
    client_uri: str | None = None
    #: How it became known: ``configured``, ``registered`` or ``document``.
    source: str = "configured"
    #: The digest of its secret.
    secret_digest: str | None = None

    @property
    def is_public(self) -> bool:
        """Whether it has nothing to prove itself with."""
        return self.secret_digest is None and self.jwks is None and self.jwks_uri is None


class AuthorizationRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A checked request for authorization, while the user makes up their mind."""

    client_id: str
    redirect_uri: str
    challenge: str
    resource: str
    scopes: tuple[str, ...]
    state: str | None = None
    #: The digest of the cookie of the browser that was asked.
    browser: str = ""
    #: Makes each request another one, so that it can be decided once.
    nonce: str = ""
    until: float = 0.0


class Code(Struct, frozen=True, kw_only=True):
    """What an authorization code stands for."""

    grant_id: str
    subject: str
    client_id: str
    redirect_uri: str
    challenge: str
    resource: str
    scopes: tuple[str, ...]
    until: float


class Grant(Struct, frozen=True, kw_only=True):
    """What a user allowed a client: a family of tokens. It is valid for as long as it is kept."""

    subject: str
    client_id: str
    resource: str
    scopes: tuple[str, ...]


class Refresh(Struct, frozen=True):
    """What a refresh token stands for."""

    grant_id: str


class Session(Struct, frozen=True):
    """Who signed in with a browser."""

    subject: str


class Consent(Struct, frozen=True):
    """What was allowed before, in the same browser, to the same client."""

    scopes: tuple[str, ...]


def digest(secret: str) -> str:
    """Give the name under which something secret is kept; the secret has 256 bits, so a plain hash will do."""
    return base64.urlsafe_b64encode(hashlib.sha256(secret.encode()).digest()).rstrip(b"=").decode()


def new_secret() -> str:
    """Make 256 bits that nobody can guess, as text for URLs and cookies."""
    return secrets.token_urlsafe(32)


def same(one: str, other: str) -> bool:
    """Compare without telling by the time it takes where two texts differ."""
    return hmac.compare_digest(one.encode(), other.encode())

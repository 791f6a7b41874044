"""The result of a login: the tokens, the client they belong to, and everything needed to refresh them.

``Login`` is the record that is stored. No ``repr`` here shows a secret.
"""

from __future__ import annotations

import re
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from trunkline.auth.metadata import ServerMetadata
from trunkline.auth.steps import shown
from trunkline.errors import AuthError
from trunkline.net import Fetched

__all__ = ["Login", "Method", "Registered", "TokenAnswer", "TokenRefused", "TokenSet", "read_token_answer"]

#: How a client authenticates at the token endpoint.
Method: TypeAlias = Literal["none", "client_secret_basic", "client_secret_post", "private_key_jwt"]

_VISIBLE = re.compile(r"[\x21-\x7e]+")
# A token is not used in its last seconds: it could expire in transit.
_MARGIN = 30.0


class Registered(Struct, frozen=True, kw_only=True):
    """A client as registered at one authorization server; never used at another."""

    issuer: str
    client_id: str
    client_secret: str | None = None
    method: Method = "none"
    #: Whether it was registered dynamically.
    dynamic: bool = False
    redirect_uri: str | None = None
    #: The scopes it was registered for; None if unknown.
    scopes: tuple[str, ...] | None = None

    def __repr__(self) -> str:
        """Show no secret."""
        return f"RegisteredClient({self.client_id!r} at {self.issuer!r})"


class TokenSet(Struct, frozen=True, kw_only=True):
    """An access token, its resource and its expiry."""

    access_token: str
    #: ``Bearer`` or ``DPoP``.
    token_type: str = "Bearer"
    #: In seconds since 1970; None if unknown.
    expires_at: float | None = None
    refresh_token: str | None = None
    #: The granted scopes, if the server named them.
    scope: str | None = None
    #: The scopes requested in this and all earlier logins.
    requested: tuple[str, ...] = ()
    issuer: str
    resource: str
    client_id: str

    def __repr__(self) -> str:
        """Show no token."""
        return f"TokenSet({self.token_type} of {self.issuer!r} for {self.resource!r}, …)"

    def ends(self, now: float) -> bool:
        """Return True if it has expired or is about to."""
        return self.expires_at is not None and self.expires_at - _MARGIN <= now


class Login(Struct, frozen=True, kw_only=True):
    """A login as stored: tokens, the client they were issued to, the authorization server, and the DPoP key."""

    tokens: TokenSet
    client: Registered
    server: ServerMetadata
    #: The private key (JWK) that the token is bound to.
    key: dict[str, Any] | None = None

    def __repr__(self) -> str:
        """Show neither token nor key."""
        return f"Login({self.tokens!r})"


class TokenRefused(AuthError):
    """A token endpoint answered with an error; ``code`` is the OAuth error code."""

    def __init__(self, message: str, *, code: str) -> None:
        """Keep the error code."""
        super().__init__(message)
        self.code = code


class TokenAnswer(Struct, frozen=True):
    """The response of a token endpoint."""

    access_token: str
    token_type: str = "Bearer"
    expires_in: float | None = None
    refresh_token: str | None = None
    scope: str | None = None
    issued_token_type: str | None = None

    def __repr__(self) -> str:
        """Show no token."""
        return f"TokenResponse({self.token_type}, …)"


class _Error(Struct, frozen=True):
    error: str
    error_description: str | None = None


def read_token_answer(answer: Fetched, who: str) -> TokenAnswer:
    """Parse the response of a token endpoint; ``who`` names the party in messages.

    Raises:
        TokenEndpointError: the response is an OAuth error.
        AuthError: the response is malformed.
    """
    if answer.status != 200:
        raise _refused(answer, who)
    try:
        said = msgspec.json.decode(answer.body, type=TokenAnswer, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # The decoder's message could quote a token.
        raise AuthError(
            f"{who} answered the token request with a malformed response; its operator must look into it."
        ) from None
    refresh = said.refresh_token
    if not _VISIBLE.fullmatch(said.access_token) or (refresh is not None and not _VISIBLE.fullmatch(refresh)):
        raise AuthError(f"{who} issued a token that cannot be sent in a header.")
    return said


def _refused(answer: Fetched, who: str) -> AuthError:
    try:
        said = msgspec.json.decode(answer.body, type=_Error)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return AuthError(f"{who} answered the token request with status {answer.status} and no reason.")
    text = shown(said.error_description or "")
    message = f"{who} refused to issue a token: {said.error[:80]!a}" + (f' ("{text}")' if text else "")
    return TokenRefused(f"{message}.", code=said.error)

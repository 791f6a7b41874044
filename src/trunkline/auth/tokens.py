"""What a login yields: the tokens, whose they are, and everything needed to renew them.

``Login`` is the record that is kept. Nothing here shows a secret when printed.
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

#: How a client shows at the token endpoint who it is.
Method: TypeAlias = Literal["none", "client_secret_basic", "client_secret_post", "private_key_jwt"]

_VISIBLE = re.compile(r"[\x21-\x7e]+")
# A token is not used in the last seconds of its life: it could end on the way.
_MARGIN = 30.0


class Registered(Struct, frozen=True, kw_only=True):
    """A client as one authorization server knows it; never used at another."""

    issuer: str
    client_id: str
    client_secret: str | None = None
    method: Method = "none"
    #: Whether we registered it ourselves.
    dynamic: bool = False
    redirect_uri: str | None = None
    #: What it was registered for; None if that was not said.
    scopes: tuple[str, ...] | None = None

    def __repr__(self) -> str:
        """Show no secret."""
        return f"Registered({self.client_id!r} at {self.issuer!r})"


class TokenSet(Struct, frozen=True, kw_only=True):
    """An access token, what it is for, and how long it lasts."""

    access_token: str
    #: ``Bearer`` or ``DPoP``.
    token_type: str = "Bearer"
    #: In seconds since 1970; None if that was not said.
    expires_at: float | None = None
    refresh_token: str | None = None
    #: What was granted, if that was said.
    scope: str | None = None
    #: What was asked for, over all logins that led here.
    requested: tuple[str, ...] = ()
    issuer: str
    resource: str
    client_id: str

    def __repr__(self) -> str:
        """Show no token."""
        return f"TokenSet({self.token_type} of {self.issuer!r} for {self.resource!r}, …)"

    def ends(self, now: float) -> bool:
        """Tell whether it is over, or as good as."""
        return self.expires_at is not None and self.expires_at - _MARGIN <= now


class Login(Struct, frozen=True, kw_only=True):
    """A login as it is kept: tokens, the client they were given to, the server that gave them, our key."""

    tokens: TokenSet
    client: Registered
    server: ServerMetadata
    #: The private key (JWK) that the token is bound to.
    key: dict[str, Any] | None = None

    def __repr__(self) -> str:
        """Show neither token nor key."""
        return f"Login({self.tokens!r})"


class TokenRefused(AuthError):
    """A token endpoint answered with an error; ``code`` is its name."""

    def __init__(self, message: str, *, code: str) -> None:
        """Keep the error's name."""
        super().__init__(message)
        self.code = code


class TokenAnswer(Struct, frozen=True):
    """What a token endpoint gives."""

    access_token: str
    token_type: str = "Bearer"
    expires_in: float | None = None
    refresh_token: str | None = None
    scope: str | None = None
    issued_token_type: str | None = None

    def __repr__(self) -> str:
        """Show no token."""
        return f"TokenAnswer({self.token_type}, …)"


class _Error(Struct, frozen=True):
    error: str
    error_description: str | None = None


def read_token_answer(answer: Fetched, who: str) -> TokenAnswer:
    """Read what a token endpoint answered; ``who`` is how the party is called in messages.

    Raises:
        TokenRefused: it answered with an error.
        AuthError: it answered with something else.
    """
    if answer.status != 200:
        raise _refused(answer, who)
    try:
        said = msgspec.json.decode(answer.body, type=TokenAnswer, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # What the reader says of it could quote a token.
        raise AuthError(
            f"{who} answered with something that is no token; whoever runs it has to look into it."
        ) from None
    refresh = said.refresh_token
    if not _VISIBLE.fullmatch(said.access_token) or (refresh is not None and not _VISIBLE.fullmatch(refresh)):
        raise AuthError(f"{who} answered with a token that cannot be sent in a header.")
    return said


def _refused(answer: Fetched, who: str) -> AuthError:
    try:
        said = msgspec.json.decode(answer.body, type=_Error)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return AuthError(f"{who} answered the token request with status {answer.status} and no reason.")
    text = shown(said.error_description or "")
    message = f"{who} refused to give a token: {said.error[:80]!a}" + (f' ("{text}")' if text else "")
    return TokenRefused(f"{message}.", code=said.error)

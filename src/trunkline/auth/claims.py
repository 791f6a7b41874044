"""From the claims about a token to a principal: the checks that do not depend on how the claims were come by.

Whoever signed or answered them is trusted to say who somebody is, not that the token is for us and for now: that is
checked here, by exact comparison. No clock is read; the time is given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trunkline.auth.verifiers import InvalidToken
from trunkline.errors import ConfigError
from trunkline.protocol.caller import Principal

__all__ = ["check_audience", "check_times", "first_url", "make_principal", "read_audience"]

#: Where providers put the name of the client: RFC 9068, OpenID Connect, and two large ones of their own.
_CLIENT = ("client_id", "azp", "cid", "appid")

# Seconds past which no date lies that anybody means.
_FAR = 1e12


def read_audience(given: str | Sequence[str]) -> tuple[str, ...]:
    """Read what a verifier was told it is called in tokens.

    Raises:
        ConfigError: nothing; a token for anybody is a token for nobody.
    """
    names = (given,) if isinstance(given, str) else tuple(given)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise ConfigError("audience= is what this server is called in tokens, mostly its own URL; it cannot be empty")
    return names


def first_url(names: Sequence[str]) -> str | None:
    """Give the name by which clients can ask for tokens: some providers have others that are no URLs."""
    return next((name for name in names if name.startswith(("https://", "http://"))), None)


def check_audience(claims: Mapping[str, Any], ours: Sequence[str]) -> None:
    """See that a token is for us: one of its audiences is one of our names, letter for letter.

    Raises:
        InvalidToken: it is for others, or for nobody in particular.
    """
    given = claims.get("aud")
    theirs = given if isinstance(given, list) else [given]
    if not any(isinstance(name, str) and name in ours for name in theirs):
        raise InvalidToken("The token was issued for another audience")


def check_times(claims: Mapping[str, Any], now: float, *, leeway: float, expires: bool) -> float | None:
    """See that a token holds now; give when it ends.

    Raises:
        InvalidToken: it has ended or not begun, or its times cannot be read.
    """
    until, since, made = (_time(claims, name) for name in ("exp", "nbf", "iat"))
    if until is None:
        if expires:
            raise InvalidToken("The token does not say when it expires")
    elif now >= until + leeway:
        raise InvalidToken("The token has expired")
    if (since is not None and now < since - leeway) or (made is not None and now < made - leeway):
        raise InvalidToken("The token is not valid yet")
    return None if until is None else until + leeway


def make_principal(claims: Mapping[str, Any], *, issuer: str, bound: bool = False) -> Principal:
    """Say whom a token is of; one that is bound to a key only if whoever asks looks at the proof (``bound``).

    Raises:
        InvalidToken: it names nobody, or is bound to something that only its owner can show.
    """
    confirms = claims.get("cnf")
    if confirms is not None and not bound:
        # Taken without a look at the proof, a token that was made to be useless to thieves would be of use to them.
        raise InvalidToken("The token is bound to a key, and this server takes only tokens that are not")
    if confirms is not None and not _is_thumbprint(confirms):
        raise InvalidToken("The token is bound to something else than a key that a proof shows (jkt)")
    client = next((claims[name] for name in _CLIENT if isinstance(claims.get(name), str) and claims[name]), None)
    subject = claims.get("sub", client)
    if not isinstance(subject, str) or not subject:
        raise InvalidToken("The token does not say whose it is")
    return Principal(subject=subject, issuer=issuer, client=client, scopes=_scopes(claims), claims=dict(claims))


def _is_thumbprint(confirms: Any) -> bool:
    """Tell whether a token is bound to the key of a proof, and to nothing else that would have to be looked at."""
    return isinstance(confirms, dict) and set(confirms) == {"jkt"} and isinstance(confirms["jkt"], str)


def _scopes(claims: Mapping[str, Any]) -> frozenset[str]:
    """Read the scopes: a text by the standards, a list or a text under another name by some providers."""
    given = claims.get("scope", claims.get("scp"))
    found = given.split(" ") if isinstance(given, str) else given if isinstance(given, list) else []
    return frozenset(scope for scope in found if isinstance(scope, str) and scope)


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _FAR:
        raise InvalidToken(f"The token's {name} is not a time")
    return float(value)

"""Checks on the claims about a token, whether signed or from introspection, and the principal that is made of them.

The issuer is trusted to say who the subject is, not that the token is meant for this server and valid now: that is
checked here, by exact comparison. No clock is read; the time is an argument.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trunkline.auth.verifiers import InvalidToken
from trunkline.errors import ConfigError
from trunkline.protocol.caller import Principal

__all__ = ["check_audience", "check_times", "first_url", "make_principal", "read_audience"]

#: The claims in which providers name the client: RFC 9068, OpenID Connect, and those of two large providers.
_CLIENT = ("client_id", "azp", "cid", "appid")

# Timestamps beyond this many seconds are not dates.
_FAR = 1e12


def read_audience(given: str | Sequence[str]) -> tuple[str, ...]:
    """Return the audience that a verifier was configured with, as a tuple.

    Raises:
        ConfigError: it is empty; a verifier without an audience would accept tokens that are meant for other servers.
    """
    names = (given,) if isinstance(given, str) else tuple(given)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise ConfigError("audience= cannot be empty: it is this server's name in tokens, usually its URL")
    return names


def first_url(names: Sequence[str]) -> str | None:
    """Return the first audience that is a URL, which clients can request tokens for; providers also use other names."""
    return next((name for name in names if name.startswith(("https://", "http://"))), None)


def check_audience(claims: Mapping[str, Any], ours: Sequence[str]) -> None:
    """Check that a token is meant for this server: one of its audiences is exactly one of ours.

    Raises:
        InvalidToken: it is meant for another audience, or for none.
    """
    given = claims.get("aud")
    theirs = given if isinstance(given, list) else [given]
    if not any(isinstance(name, str) and name in ours for name in theirs):
        raise InvalidToken("The token was issued for another audience")


def check_times(claims: Mapping[str, Any], now: float, *, leeway: float, expires: bool) -> float | None:
    """Check that a token is valid now; return when it expires.

    Raises:
        InvalidToken: it has expired or is not valid yet, or its times are malformed.
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
    """Return the principal of a token; ``bound`` says that the caller checks the proof of key-bound tokens.

    Raises:
        InvalidToken: it names no subject, or is bound to a key whose proof would not be checked.
    """
    confirms = claims.get("cnf")
    if confirms is not None and not bound:
        # Accepted without its proof, a token that is meant to be useless to a thief would be useful to one.
        raise InvalidToken("The token is bound to a key, and this server accepts only unbound tokens")
    if confirms is not None and not _is_thumbprint(confirms):
        raise InvalidToken("The token is not bound by a key thumbprint (jkt), which is the only binding supported")
    client = next((claims[name] for name in _CLIENT if isinstance(claims.get(name), str) and claims[name]), None)
    subject = claims.get("sub", client)
    if not isinstance(subject, str) or not subject:
        raise InvalidToken("The token has no subject")
    return Principal(subject=subject, issuer=issuer, client=client, scopes=_scopes(claims), claims=dict(claims))


def _is_thumbprint(confirms: Any) -> bool:
    """Return True if a token is bound to the key of a proof, and to nothing else that would have to be checked."""
    return isinstance(confirms, dict) and set(confirms) == {"jkt"} and isinstance(confirms["jkt"], str)


def _scopes(claims: Mapping[str, Any]) -> frozenset[str]:
    """Return the scopes: a string by the standards; some providers send a list, or use another claim name."""
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

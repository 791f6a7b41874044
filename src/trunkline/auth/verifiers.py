"""The verifier interface, and what all verifiers share.

Reading the bearer token of a request, checking the claims about a token, and caching principals. A request whose
credentials cannot be checked is rejected. Tokens are read from the ``Authorization`` header only, are never stored
(only their digests are), and never leave this package: handlers see the claims. No clock is read; the time is an
argument.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple, Protocol, runtime_checkable

from trunkline.errors import AuthError, ConfigError
from trunkline.protocol.caller import Principal

__all__ = [
    "INVALID_PROOF",
    "NONCE_REQUIRED",
    "PROOF_ALGORITHMS",
    "PROOF_ERRORS",
    "Authenticate",
    "InvalidToken",
    "PresentedToken",
    "PrincipalCache",
    "RequestTarget",
    "ServerAuth",
    "TargetedHeaders",
    "Verifier",
    "bearer_token",
    "check_audience",
    "check_times",
    "check_token_syntax",
    "first_url_audience",
    "make_principal",
    "presented_token",
    "read_audience",
]

#: Returns the principal of a request with these headers (names in lower case), or None if it may not call.
Authenticate = Callable[[Mapping[str, str]], Awaitable[Principal | None] | Principal | None]

# Real tokens are shorter: the largest of common providers, with all groups in them, have about 8 KiB.
_TOKEN_BYTES = 16 * 1024
# RFC 6750, 2.1.
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_REMEMBERED = 4096  # Verified tokens kept: more than the active clients of one server.


#: The signature algorithms accepted in DPoP proofs (RFC 9449).
PROOF_ALGORITHMS = ("ES256", "ES384", "ES512", "RS256", "PS256", "EdDSA", "Ed25519")
#: The error codes about proofs in challenges; the second asks for a retry with the nonce that is sent with it.
INVALID_PROOF, NONCE_REQUIRED = "invalid_dpop_proof", "use_dpop_nonce"
PROOF_ERRORS = frozenset({INVALID_PROOF, NONCE_REQUIRED})


class InvalidToken(AuthError):
    """A token is not valid here; the message tells its sender why, and never contains the token."""

    #: The error code in a challenge.
    code = "invalid_token"


class RequestTarget(NamedTuple):
    """The method and URLs of a request, which its proof must name."""

    method: str
    #: The URLs by which the sender may know the endpoint.
    urls: tuple[str, ...]


class TargetedHeaders(Mapping[str, str]):
    """The headers of a request with a proof, together with the target the proof must name.

    It is passed in place of the headers, so that a wrapper around a verifier (a function, a class) need not know about
    proofs; if a wrapper loses it, bound tokens are rejected.
    """

    __slots__ = ("_given", "target")

    def __init__(self, given: Mapping[str, str], target: RequestTarget) -> None:
        """Combine the headers with the target of the request."""
        self._given = given
        self.target: RequestTarget = target

    def __getitem__(self, name: str) -> str:
        return self._given[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)


class PresentedToken(NamedTuple):
    """A token of a request, with its scheme in lower case."""

    scheme: str
    token: str


@runtime_checkable
class Verifier(Protocol):
    """Checks the credentials of requests.

    It may also have: ``resource``, the URI that tokens are requested for; ``required_scopes``, needed by every request;
    ``header``, the header it reads if not ``authorization``; ``scheme``, its name in challenges if not ``Bearer``;
    ``routes()``, ASGI applications by the paths at which they are served beside the endpoint; and ``binding``, how it
    treats tokens that are bound to a key.
    """

    @property
    def authorization_servers(self) -> Sequence[str]:
        """The issuers of accepted tokens; empty if no authorization server issues them."""

    @property
    def scopes_supported(self) -> Sequence[str]:
        """The scopes that clients should request; empty: those that any part of the server needs."""

    async def verify(self, headers: Mapping[str, str]) -> Principal | None:
        """Return the principal of a request with these headers (names in lower case); None without credentials.

        Raises:
            InvalidToken: the credentials are not valid.
        """


#: The accepted values of ``auth=``.
ServerAuth = Verifier | Authenticate


class PrincipalCache:
    """The principals of recently verified tokens, so that further requests with them are cheap; bounded."""

    __slots__ = ("_found",)

    def __init__(self) -> None:
        """Start empty."""
        self._found: dict[bytes, tuple[Principal, float]] = {}

    def find(self, token: str, now: float) -> Principal | None:
        """Return the cached principal of a token, unless it has expired."""
        found = self._found.get(sha256(token.encode()).digest())
        return found[0] if found is not None and now < found[1] else None

    def keep(self, token: str, principal: Principal, *, until: float) -> None:
        """Cache the principal of a token until a time; the oldest entry is dropped if the cache is full."""
        digest = sha256(token.encode()).digest()
        self._found.pop(digest, None)
        if len(self._found) >= _REMEMBERED:
            del self._found[next(iter(self._found))]
        self._found[digest] = (principal, until)


def presented_token(headers: Mapping[str, str], schemes: Sequence[str] = ("bearer",)) -> PresentedToken | None:
    """Return the unchecked token of a request; None if it has none with one of these schemes.

    Raises:
        InvalidToken: it is too long.
    """
    given = headers.get("authorization")
    if given is None:
        return None
    scheme, _, token = given.strip(" \t").partition(" ")
    if scheme.lower() not in schemes:
        return None
    token = token.lstrip(" ")
    if len(token) > _TOKEN_BYTES:
        raise InvalidToken("The token is too long")
    return PresentedToken(scheme.lower(), token)


def bearer_token(headers: Mapping[str, str]) -> str | None:
    """Return the bearer token of a request; None if it has none.

    Raises:
        InvalidToken: it is malformed.
    """
    shown = presented_token(headers)
    if shown is None:
        return None
    check_token_syntax(shown.token)
    return shown.token


def check_token_syntax(token: str) -> None:
    """Check the syntax of a token; not needed for one that is cached.

    Raises:
        InvalidToken: it is malformed.
    """
    if not _TOKEN.fullmatch(token):
        raise InvalidToken("The Authorization header does not contain a valid bearer token")


#: The claims in which providers name the client: RFC 9068, OpenID Connect, and those of two large providers.
_CLIENT = ("client_id", "azp", "cid", "appid")

# Timestamps beyond this many seconds are not dates.
_MAX_TIMESTAMP = 1e12


def read_audience(given: str | Sequence[str]) -> tuple[str, ...]:
    """Return the audience that a verifier was configured with, as a tuple.

    Raises:
        ConfigError: it is empty; a verifier without an audience would accept tokens that are meant for other servers.
    """
    names = (given,) if isinstance(given, str) else tuple(given)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise ConfigError("audience= cannot be empty: it is this server's name in tokens, usually its URL")
    return names


def first_url_audience(names: Sequence[str]) -> str | None:
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
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _MAX_TIMESTAMP:
        raise InvalidToken(f"The token's {name} is not a time")
    return float(value)

"""The verifier interface, and what verifiers share: reading a bearer token from a request, and caching principals.

A verifier authenticates a request by its headers alone. A request whose credentials cannot be checked is rejected; no
failure turns an unauthenticated caller into a principal. Tokens are read from the ``Authorization`` header only, are
never stored (only their digests are), and never leave this package: handlers see the claims.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple, Protocol, runtime_checkable

from trunkline.errors import AuthError
from trunkline.protocol.caller import Principal

__all__ = [
    "INVALID_PROOF",
    "NONCE_WANTED",
    "PROOF_ALGORITHMS",
    "PROOF_ERRORS",
    "Addressed",
    "Asked",
    "Auth",
    "Authenticate",
    "InvalidToken",
    "Remembered",
    "Shown",
    "Verifier",
    "bearer_token",
    "check_token",
    "presented_token",
]

#: Returns the principal of a request with these headers (names in lower case), or None if it may not call.
Authenticate = Callable[[Mapping[str, str]], Awaitable[Principal | None] | Principal | None]

# Real tokens are shorter: the largest of common providers, with all groups in them, have about 8 KiB.
_TOKEN_BYTES = 16 * 1024
# RFC 6750, 2.1.
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_REMEMBERED = 4096


#: The signature algorithms accepted in DPoP proofs (RFC 9449).
PROOF_ALGORITHMS = ("ES256", "ES384", "ES512", "RS256", "PS256", "EdDSA", "Ed25519")
#: The error codes about proofs in challenges; the second asks for a retry with the nonce that is sent with it.
INVALID_PROOF, NONCE_WANTED = "invalid_dpop_proof", "use_dpop_nonce"
PROOF_ERRORS = frozenset({INVALID_PROOF, NONCE_WANTED})


class InvalidToken(AuthError):
    """A token is not valid here; the message tells its sender why, and never contains the token."""

    #: The error code in a challenge.
    code = "invalid_token"


class Asked(NamedTuple):
    """The method and URLs of a request, which its proof must name."""

    method: str
    #: The URLs by which the sender may know the endpoint.
    urls: tuple[str, ...]


class Addressed(Mapping[str, str]):
    """The headers of a request with a proof, together with the target the proof must name.

    It is passed in place of the headers, so that a wrapper around a verifier (a function, a class) need not know about
    proofs; if a wrapper loses it, bound tokens are rejected.
    """

    __slots__ = ("_given", "asked")

    def __init__(self, given: Mapping[str, str], asked: Asked) -> None:
        """Combine the headers with the target of the request."""
        self._given = given
        self.asked = asked

    def __getitem__(self, name: str) -> str:
        return self._given[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)


class Shown(NamedTuple):
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
Auth = Verifier | Authenticate


class Remembered:
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


def presented_token(headers: Mapping[str, str], schemes: Sequence[str] = ("bearer",)) -> Shown | None:
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
    return Shown(scheme.lower(), token)


def bearer_token(headers: Mapping[str, str]) -> str | None:
    """Return the bearer token of a request; None if it has none.

    Raises:
        InvalidToken: it is malformed.
    """
    shown = presented_token(headers)
    if shown is None:
        return None
    check_token(shown.token)
    return shown.token


def check_token(token: str) -> None:
    """Check the syntax of a token; not needed for one that is cached.

    Raises:
        InvalidToken: it is malformed.
    """
    if not _TOKEN.fullmatch(token):
        raise InvalidToken("The Authorization header does not contain a valid bearer token")

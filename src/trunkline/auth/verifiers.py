"""What every way of checking credentials has in common: the interface, reading a bearer token, and remembering.

A verifier says who sends a request, by its headers alone. What cannot be checked is refused: no failure of any kind
makes somebody of nobody. Tokens are looked for in the ``Authorization`` header and nowhere else, are never kept (only
their digests are), and never leave this package: a handler sees the claims.
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

#: Says who sends a request with these headers (names in lower case), or None if nobody who may.
Authenticate = Callable[[Mapping[str, str]], Awaitable[Principal | None] | Principal | None]

# Longer ones are made by nobody honest: the largest tokens of real providers, with all groups in them, have some 8 KiB.
_TOKEN_BYTES = 16 * 1024
# RFC 6750, 2.1.
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_REMEMBERED = 4096


#: How the proofs of tokens that are bound to a key may be signed (RFC 9449).
PROOF_ALGORITHMS = ("ES256", "ES384", "ES512", "RS256", "PS256", "EdDSA", "Ed25519")
#: What is wrong with a proof, in challenges; the latter is mended by the nonce that comes with it.
INVALID_PROOF, NONCE_WANTED = "invalid_dpop_proof", "use_dpop_nonce"
PROOF_ERRORS = frozenset({INVALID_PROOF, NONCE_WANTED})


class InvalidToken(AuthError):
    """A token is not good here; the message tells its sender why, and never repeats it."""

    #: What this is called in a challenge.
    code = "invalid_token"


class Asked(NamedTuple):
    """What a request is for: what a proof that comes with it has to name."""

    method: str
    #: The addresses under which the request may be known to its sender.
    urls: tuple[str, ...]


class Addressed(Mapping[str, str]):
    """The headers of a request that brings a proof, with what the proof has to be for.

    It goes the way of the headers, so that whoever stands before a verifier (a function, a class of its own) need not
    know of proofs; where it gets lost a bound token is refused.
    """

    __slots__ = ("_given", "asked")

    def __init__(self, given: Mapping[str, str], asked: Asked) -> None:
        """Take the headers, and what the request is for."""
        self._given = given
        self.asked = asked

    def __getitem__(self, name: str) -> str:
        return self._given[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)


class Shown(NamedTuple):
    """A token as a request brings it: under which scheme, in lower case."""

    scheme: str
    token: str


@runtime_checkable
class Verifier(Protocol):
    """Checks the credentials of requests.

    It may also have: ``resource``, the URI under which tokens are asked for; ``required_scopes``, which everybody
    needs; ``header``, the one it reads if not ``authorization``; ``scheme``, its name in challenges if not ``Bearer``;
    ``routes()``, ASGI applications by the paths at which they are served beside the endpoint; and ``binding``, what it
    does about tokens that are bound to a key.
    """

    @property
    def authorization_servers(self) -> Sequence[str]:
        """The issuers of the tokens it takes; none if its tokens are not to be had from anybody."""

    @property
    def scopes_supported(self) -> Sequence[str]:
        """The scopes that clients are told to ask for; none: those that are needed somewhere."""

    async def verify(self, headers: Mapping[str, str]) -> Principal | None:
        """Say who sends a request with these headers (names in lower case), or None if they name nobody.

        Raises:
            InvalidToken: they name somebody, but not so that it could be believed.
        """


#: What can be given as ``auth=``.
Auth = Verifier | Authenticate


class Remembered:
    """Who was found behind tokens a moment ago, so that the next request with one costs little; bounded."""

    __slots__ = ("_found",)

    def __init__(self) -> None:
        """Start with none."""
        self._found: dict[bytes, tuple[Principal, float]] = {}

    def find(self, token: str, now: float) -> Principal | None:
        """Give whom a token was found to be of, unless that is too long ago."""
        found = self._found.get(sha256(token.encode()).digest())
        return found[0] if found is not None and now < found[1] else None

    def keep(self, token: str, principal: Principal, *, until: float) -> None:
        """Remember whom a token is of until some time; the oldest is forgotten for it if there are many."""
        digest = sha256(token.encode()).digest()
        self._found.pop(digest, None)
        if len(self._found) >= _REMEMBERED:
            del self._found[next(iter(self._found))]
        self._found[digest] = (principal, until)


def presented_token(headers: Mapping[str, str], schemes: Sequence[str] = ("bearer",)) -> Shown | None:
    """Give what stands in the place of a request's token, unlooked at, or None if nothing does under these schemes.

    Raises:
        InvalidToken: it is too long to be one.
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
    """Give the token of a request, or None if it has none.

    Raises:
        InvalidToken: there is something in its place that cannot be one.
    """
    shown = presented_token(headers)
    if shown is None:
        return None
    check_token(shown.token)
    return shown.token


def check_token(token: str) -> None:
    """See that a text can be a token at all; whoever was found behind it before need not.

    Raises:
        InvalidToken: it cannot.
    """
    if not _TOKEN.fullmatch(token):
        raise InvalidToken("What stands behind Bearer is not a token")

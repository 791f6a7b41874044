"""A verifier for signed JWTs, as most authorization servers issue them: RFC 9068 and its predecessors.

The signature must be of a pinned algorithm, by a key of the issuer; issuer, audience and times must match. What a token
says about its own key is ignored, except for the key's name. A valid token is cached for a minute, so that not every
request verifies a signature. No transport is known here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from trunkline.auth.dpop import DPoPMode, DPoPPolicy
from trunkline.auth.jose import (
    ALGORITHMS,
    IssuerKeys,
    KeySource,
    StaticKeys,
    document_fetcher,
    read_header,
    verified_payload,
)
from trunkline.auth.verifiers import (
    InvalidToken,
    PrincipalCache,
    check_audience,
    check_times,
    check_token_syntax,
    first_url_audience,
    make_principal,
    presented_token,
    read_audience,
)
from trunkline.errors import ConfigError
from trunkline.net.addresses import is_loopback
from trunkline.protocol.caller import Principal, parse_scopes

if TYPE_CHECKING:
    from trunkline.net import Fetcher

__all__ = ["JWTVerifier"]

#: The accepted ``typ`` values: that of RFC 9068, and the one used before it. A token that declares itself an ID token,
#: a logout token or a proof of possession is not an access token.
_TYPES = frozenset({"at+jwt", "jwt"})
_MOST_LEEWAY = 60.0  # More would keep expired tokens valid noticeably longer.
#: A valid token is verified again after this time, so that a withdrawn key is of no use for longer.
_REMEMBERED_SECONDS = 60.0


class _TokenHeader(Struct):
    alg: str
    kid: str | None = None
    typ: str | None = None
    crit: Any = None


class JWTVerifier:
    """Accepts tokens that an issuer has signed for this server.

    ``issuer`` and ``audience`` are compared exactly. ``audience`` is the URI of this server for which clients request
    tokens, or another name that the issuer puts there. The keys are ``keys``, or those at ``jwks_uri``, or those that
    the issuer's metadata names. ``dpop`` says whether tokens may or must be bound to a key of the client.
    """

    def __init__(
        self,
        *,
        issuer: str,
        audience: str | Sequence[str],
        jwks_uri: str | None = None,
        keys: Any = None,
        algorithms: Sequence[str] = ("RS256", "PS256", "ES256", "ES384", "EdDSA", "Ed25519"),
        required_scopes: str | Sequence[str] = (),
        scopes_supported: str | Sequence[str] = (),
        resource: str | None = None,
        leeway: float = 30.0,
        dpop: DPoPMode = "off",
        dpop_nonces: bool | str = False,
        fetcher: Fetcher | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Prepare without any I/O.

        Raises:
            ConfigError: an option is not safe or not valid.
        """
        self.issuer: str = _issuer(issuer)
        self.required_scopes: tuple[str, ...] = parse_scopes(required_scopes, "required_scopes")
        self.scopes_supported: Sequence[str] = parse_scopes(scopes_supported, "scopes_supported")
        self.authorization_servers: Sequence[str] = (issuer,)
        self._audience = read_audience(audience)
        #: The resource URI that clients request tokens for, if it is known.
        self.resource: str | None = resource or first_url_audience(self._audience)
        self._algorithms = _pinned(algorithms)
        self._leeway = _bounded(leeway)
        self._now = now
        #: How tokens that are bound to a key are treated.
        self.binding: DPoPPolicy = DPoPPolicy(dpop, nonces=dpop_nonces, now=now)
        self._remembered = PrincipalCache()
        self._keys: KeySource = (
            IssuerKeys(
                issuer, jwks_uri, fetch=document_fetcher(fetcher or _fetcher(issuer, jwks_uri)), now=time.monotonic
            )
            if keys is None
            else StaticKeys(keys)
        )

    async def verify(self, headers: Mapping[str, str]) -> Principal | None:
        """Return the principal of a request, from its ``Authorization`` header and, for a bound token, the DPoP proof.

        Raises:
            InvalidToken: the token is not valid here; the message says why.
        """
        shown = presented_token(headers, self.binding.schemes)
        if shown is None:
            return None
        principal = await self._owner(shown.token)
        await self.binding.check(principal, shown, headers)
        return principal

    async def _owner(self, token: str) -> Principal:
        now = self._now()
        known = self._remembered.find(token, now)
        if known is not None:
            return known
        check_token_syntax(token)
        claims = await self._signed(token)
        if claims.get("iss") != self.issuer:
            raise InvalidToken("The token is from another issuer")
        check_audience(claims, self._audience)
        until = check_times(claims, now, leeway=self._leeway, expires=True)
        principal = make_principal(claims, issuer=self.issuer, bound=self.binding.accepts_bound_tokens)
        self._remembered.keep(token, principal, until=min(until or now, now + _REMEMBERED_SECONDS))
        return principal

    async def _signed(self, token: str) -> Mapping[str, Any]:
        """Verify the signature before anything else in a token is trusted; return its claims."""
        header = read_header(token, _TokenHeader)
        if header is None:
            raise InvalidToken("The token is not a JWT")
        if header.alg not in self._algorithms:
            raise InvalidToken("The token's signature algorithm is not accepted here")
        if header.crit is not None:
            raise InvalidToken("The token has critical header parameters that are not supported here")
        if header.typ is not None and header.typ.lower().removeprefix("application/") not in _TYPES:
            raise InvalidToken("The token is not an access token")
        for key in await self._keys.find(header.kid, header.alg):
            payload = verified_payload(token, header.alg, key)
            if payload is not None:
                return _read_claims(payload)
        raise InvalidToken("The signature of the token is not valid")


def _read_claims(payload: bytes) -> Mapping[str, Any]:
    try:
        claims = msgspec.json.decode(payload)
    except (ValueError, RecursionError) as error:
        raise InvalidToken("The claims of the token are malformed") from error
    if not isinstance(claims, dict):
        raise InvalidToken("The claims of the token are malformed")
    return claims


# --- settings --------------------------------------------------------------------------------------------------------


def _issuer(issuer: str) -> str:
    if not isinstance(issuer, str) or not issuer.startswith(("https://", "http://")):
        raise ConfigError(f"issuer={issuer!r}: must be the URL of the authorization server, as its tokens name it")
    return issuer


def _pinned(algorithms: Sequence[str]) -> frozenset[str]:
    names = (algorithms,) if isinstance(algorithms, str) else tuple(algorithms)
    unknown = [name for name in names if name not in ALGORITHMS]
    if unknown or not names:
        raise ConfigError(
            f"algorithms={list(names)!r}: each must be one of {', '.join(ALGORITHMS)}; unsigned tokens and symmetric "
            "algorithms are not accepted"
        )
    return frozenset(names)


def _bounded(leeway: float) -> float:
    if not 0 <= leeway <= _MOST_LEEWAY:
        raise ConfigError(f"leeway={leeway!r}: must be 0 to {_MOST_LEEWAY:g} seconds")
    return leeway


def _fetcher(issuer: str, jwks_uri: str | None) -> Fetcher:
    from trunkline.net import Fetcher

    # An issuer on this machine means development.
    return Fetcher(allow_loopback=is_loopback(urlsplit(jwks_uri or issuer).hostname))

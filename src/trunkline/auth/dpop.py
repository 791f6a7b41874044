"""Tokens that are bound to a key: the proof that whoever sends one holds it (RFC 9449), as a server looks at it.

A thief of such a token has nothing: each request brings a proof of its own, signed for this very request, token and
moment, and good once. Nothing a proof says is believed before its signature holds; that its key is the one that the
token names decides last. What was seen is kept in memory, bounded, in one process.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Callable, Mapping
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from trunkline.auth.jwks import key_of
from trunkline.auth.jws import payload_of, read_header
from trunkline.auth.signing import digest
from trunkline.auth.verifiers import (
    INVALID_PROOF,
    NONCE_WANTED,
    PROOF_ALGORITHMS,
    Addressed,
    Asked,
    InvalidToken,
    Shown,
)
from trunkline.errors import ConfigError
from trunkline.protocol.caller import Principal

__all__ = ["Binding", "DPoP", "InvalidProof", "NonceWanted", "Proofs", "bound_key"]

#: Whether tokens are taken that are bound to a key: none, too, or no others.
DPoP: TypeAlias = Literal["off", "allowed", "required"]

_TYPE = "dpop+jwt"
_LONGEST = 8 * 1024
#: Members of a JWK that only its owner may know.
_PRIVATE = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})
_MOST_SEEN = 100_000
_MOST_OF_ONE = 10_000
_NONCE_SECONDS = 300.0
_PORTS: Mapping[str, int] = MappingProxyType({"http": 80, "https": 443})


class InvalidProof(InvalidToken):
    """A proof is missing or does not fit; the message tells its sender why."""

    code = INVALID_PROOF


class NonceWanted(InvalidProof):
    """A proof has to have a nonce of ours in it, which goes with the refusal."""

    code = NONCE_WANTED


class _Header(Struct):
    alg: str
    typ: str
    jwk: dict[str, Any]
    crit: Any = None


class _Claims(Struct):
    jti: str
    htm: str
    htu: str
    iat: int | float
    ath: str | None = None
    nonce: str | None = None


def bound_key(principal: Principal) -> str | None:
    """Give the thumbprint of the key that a token is bound to; None if it is to none."""
    bound = (principal.claims or {}).get("cnf")
    return None if bound is None else str(bound["jkt"])


class Binding:
    """What a verifier does about tokens that are bound to a key."""

    def __init__(self, mode: DPoP, *, nonces: bool | str, now: Callable[[], float]) -> None:
        """Take the mode, and whether proofs need a nonce; a text is a secret that several processes share.

        Raises:
            ConfigError: it makes no sense.
        """
        if mode not in ("off", "allowed", "required"):
            raise ConfigError(f'dpop={mode!r}: it is "off", "allowed" or "required"')
        if mode == "off" and nonces:
            raise ConfigError('dpop_nonces= is for proofs: give dpop="allowed" or "required" as well')
        self.mode: DPoP = mode
        self.proofs = Proofs(nonces=nonces, now=now)

    @property
    def schemes(self) -> tuple[str, ...]:
        """The schemes under which tokens are looked for."""
        return ("bearer",) if self.mode == "off" else ("bearer", "dpop")

    @property
    def takes_bound(self) -> bool:
        """Whether tokens may be bound to a key."""
        return self.mode != "off"

    def check(self, principal: Principal, shown: Shown, headers: Mapping[str, str]) -> None:
        """See that whoever sends a token may.

        Raises:
            InvalidToken: a bound token came without proof, or one that is not where only such are taken.
        """
        key = bound_key(principal)
        if key is None:
            if self.mode == "required":
                raise InvalidToken("This server takes only tokens that are bound to a key (DPoP)")
            if shown.scheme == "dpop":
                raise InvalidToken("The token is not bound to a key: it is no DPoP token")
            return
        if shown.scheme != "dpop":
            # RFC 9449, 7.2: else whoever stole it would only have to say Bearer.
            raise InvalidToken("The token is bound to a key: send it as DPoP, with a proof")
        proof = headers.get("dpop")
        if proof is None:
            raise InvalidProof("The token is bound to a key, and the DPoP header with the proof is missing")
        if not isinstance(headers, Addressed):
            raise InvalidProof("The token is bound to a key, and it is not known here what its proof is for")
        self.proofs.check(proof, headers.asked, token=shown.token, key=key)


class Proofs:
    """Looks at proofs, each of which is good once."""

    def __init__(self, *, now: Callable[[], float], nonces: bool | str = False, seconds: float = 60.0) -> None:
        """Take proofs that are up to so many seconds old, by a clock; ``nonces`` wants one of ours in each."""
        self._now = now
        self._seconds = seconds
        self._seen = _Seen()
        given = nonces.encode() if isinstance(nonces, str) else os.urandom(32)
        self._secret = given if nonces else None

    def check(self, proof: str, asked: Asked, *, token: str, key: str) -> None:
        """See that a proof is for this request and token, by the key that the token is bound to (RFC 9449, 4.3).

        Raises:
            InvalidProof: it is not; the message says why.
        """
        signer, payload = _signed(proof)
        claims = _claims(payload)
        now = self._now()
        if claims.htm != asked.method:
            raise InvalidProof("The proof is for another method")
        if _normal(claims.htu) not in {_normal(url) for url in asked.urls}:
            raise InvalidProof("The proof is for another address")
        self._check_nonce(claims.nonce, now)
        if not now - self._seconds <= claims.iat <= now + self._seconds / 2:
            raise InvalidProof("The proof is too old, or from the future: compare the clocks")
        if claims.ath is None or not hmac.compare_digest(claims.ath.encode(), digest(token).encode()):
            raise InvalidProof("The proof is for another token")
        if not hmac.compare_digest(signer.encode(), key.encode()):
            raise InvalidProof("The proof is by another key than the token is bound to")
        # Last: only whoever holds a key that a good token names can have us remember anything.
        if not self._seen.take(key, claims.jti, now=now, until=now + 2 * self._seconds):
            raise InvalidProof("The proof was used before: each request needs its own")

    @property
    def wants_nonces(self) -> bool:
        """Whether each proof needs a nonce of ours."""
        return self._secret is not None

    def nonce(self, back: int = 0) -> str:
        """Give the nonce of now; it holds for five to ten minutes."""
        assert self._secret is not None
        span = int(self._now() // _NONCE_SECONDS) - back
        return digest(hmac.digest(self._secret, b"%d" % span, "sha256").hex())

    def _check_nonce(self, given: str | None, now: float) -> None:
        if self._secret is None:
            return
        known = (self.nonce(), self.nonce(1))
        if given is None or not any(hmac.compare_digest(given.encode(), each.encode()) for each in known):
            raise NonceWanted("The proof needs the nonce that comes with this answer")


class _Seen:
    """The proofs that were used, until nobody could use them again; bounded for all and for each key."""

    def __init__(self) -> None:
        self._until: dict[bytes, tuple[float, str]] = {}
        self._counts: dict[str, int] = {}

    def take(self, key: str, jti: str, *, now: float, until: float) -> bool:
        """Remember a proof; tell whether it is new. Where there is no more room it is not taken for new."""
        self._forget(now)
        name = sha256(f"{key} {jti}".encode("utf-8", "replace")).digest()
        if name in self._until or len(self._until) >= _MOST_SEEN or self._counts.get(key, 0) >= _MOST_OF_ONE:
            return False
        self._until[name] = (until, key)
        self._counts[key] = self._counts.get(key, 0) + 1
        return True

    def _forget(self, now: float) -> None:
        # They are kept equally long, so the oldest stand first.
        while self._until:
            name = next(iter(self._until))
            until, key = self._until[name]
            if until > now:
                return
            del self._until[name]
            self._counts[key] -= 1
            if not self._counts[key]:
                del self._counts[key]


# --- reading ----------------------------------------------------------------------------------------------------------


def _signed(proof: str) -> tuple[str, bytes]:
    """Give the thumbprint of the key that signed a proof, and what it says."""
    header = read_header(proof, _Header) if len(proof) <= _LONGEST else None
    if header is None:
        raise InvalidProof("The DPoP header is not one signed JWT with alg, typ and jwk")
    if header.typ.lower().removeprefix("application/") != _TYPE:
        raise InvalidProof("The DPoP header has a JWT of another type than dpop+jwt")
    if header.alg not in PROOF_ALGORITHMS:
        raise InvalidProof("The proof is signed in a way that is not taken here")
    if header.crit is not None:
        raise InvalidProof("The proof demands what is not known here")
    if not _PRIVATE.isdisjoint(header.jwk):
        raise InvalidProof("The proof has a private key in it, which nobody should trust any more")
    key = key_of(header.jwk, header.alg)
    if key is None:
        raise InvalidProof("The key in the proof does not fit its signature")
    payload = payload_of(proof, header.alg, key)
    if payload is None:
        raise InvalidProof("The signature of the proof does not hold")
    thumbprint: str = key.thumbprint()
    return thumbprint, payload


def _claims(payload: bytes) -> _Claims:
    try:
        claims = msgspec.json.decode(payload, type=_Claims)
    except (ValueError, RecursionError):
        raise InvalidProof("The proof lacks jti, htm, htu or iat, or they are no texts and a time") from None
    if not claims.jti:
        raise InvalidProof("The jti of the proof is empty")
    return claims


def _normal(url: str) -> str:
    """Write an address so that two ways of writing one are equal: without query, fragment and usual port."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return ""
    scheme = parts.scheme.lower()
    where = (parts.hostname or "") + ("" if port in (None, _PORTS.get(scheme)) else f":{port}")
    user = "" if parts.username is None and parts.password is None else "@"
    return f"{scheme}://{user}{where}{parts.path or '/'}"

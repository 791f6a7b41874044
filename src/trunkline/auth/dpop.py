"""Tokens that are bound to a key (DPoP, RFC 9449), on the resource server's side.

A stolen bound token is useless: each request carries its own proof, signed for that request, token and time, and valid
once. Nothing in a proof is trusted before its signature is verified; whether its key is the one the token names is
checked last. Used proofs are remembered in the store of the server, bounded, so that its workers know those of each
other; while it cannot be reached no proof is accepted.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from trunkline.auth.jose import digest, public_key_from_jwk, read_header, verified_payload
from trunkline.auth.verifiers import (
    INVALID_PROOF,
    NONCE_REQUIRED,
    PROOF_ALGORITHMS,
    InvalidToken,
    PresentedToken,
    RequestTarget,
    TargetedHeaders,
)
from trunkline.errors import ConfigError
from trunkline.protocol.caller import Principal
from trunkline.store.interface import Index, IndexLimits, Put
from trunkline.store.server_store import ServerStore

__all__ = ["DPoPMode", "DPoPPolicy", "InvalidProof", "NonceRequired", "ProofVerifier", "bound_thumbprint"]

#: DPoP-bound tokens: rejected, accepted or required.
DPoPMode: TypeAlias = Literal["off", "allowed", "required"]

_TYPE = "dpop+jwt"
_LONGEST = 8 * 1024  # Proofs have about 1 KiB.
#: The private members of a JWK.
_PRIVATE = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})
_MOST_PROOFS = 100_000  # Proofs remembered against replay: about 10 MB.
_MOST_OF_ONE = 10_000  # Proofs of one key, so that one client cannot use up the memory for all.
_NONCE_SECONDS = 300.0  # A nonce is accepted for one to two such spans, as RFC 9449, 8 recommends short lifetimes.
_PORTS: Mapping[str, int] = MappingProxyType({"http": 80, "https": 443})


class InvalidProof(InvalidToken):
    """A proof is missing or not valid; the message tells the sender why."""

    code = INVALID_PROOF


class NonceRequired(InvalidProof):
    """A proof must contain our nonce, which is sent with the response."""

    code = NONCE_REQUIRED


class _ProofHeader(Struct):
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


def bound_thumbprint(principal: Principal) -> str | None:
    """Return the thumbprint of the key that a token is bound to; None if it is not bound."""
    bound = (principal.claims or {}).get("cnf")
    return None if bound is None else str(bound["jkt"])


class DPoPPolicy:
    """How a verifier treats tokens that are bound to a key."""

    def __init__(self, mode: DPoPMode, *, nonces: bool | str, now: Callable[[], float]) -> None:
        """Set the mode, and whether proofs need a nonce; a string is a secret that several processes share.

        Raises:
            ConfigError: the mode is unknown, or nonces are set without DPoP.
        """
        if mode not in ("off", "allowed", "required"):
            raise ConfigError(f'dpop={mode!r}: must be "off", "allowed" or "required"')
        if mode == "off" and nonces:
            raise ConfigError('dpop_nonces= needs dpop="allowed" or dpop="required"')
        self.mode: DPoPMode = mode
        self.proofs: ProofVerifier = ProofVerifier(nonces=nonces, now=now)

    @property
    def schemes(self) -> tuple[str, ...]:
        """The accepted authorization schemes."""
        return ("bearer",) if self.mode == "off" else ("bearer", "dpop")

    @property
    def accepts_bound_tokens(self) -> bool:
        """Whether bound tokens are accepted."""
        return self.mode != "off"

    def _share(self, state: ServerStore) -> None:
        """Remember used proofs for all workers of a server, and use the same nonces on each."""
        self.proofs.share(state)

    async def check(self, principal: Principal, shown: PresentedToken, headers: Mapping[str, str]) -> None:
        """Check that a token was presented as its binding demands.

        Raises:
            InvalidToken: a bound token came without a valid proof, or an unbound one where bound ones are required.
            StoreUnavailable: it is unknown now whether the proof was used before.
        """
        key = bound_thumbprint(principal)
        if key is None:
            if self.mode == "required":
                raise InvalidToken("This server accepts only tokens that are bound to a key (DPoP)")
            if shown.scheme == "dpop":
                raise InvalidToken("The token is not bound to a key, so it is not a DPoP token")
            return
        if shown.scheme != "dpop":
            # RFC 9449, 7.2: otherwise a thief would only have to send it as Bearer.
            raise InvalidToken("The token is bound to a key: send it as DPoP, with a proof")
        proof = headers.get("dpop")
        if proof is None:
            raise InvalidProof("The token is bound to a key, and the DPoP header with the proof is missing")
        if not isinstance(headers, TargetedHeaders):
            raise InvalidProof(
                "The token is bound to a key, and its proof cannot be checked here: method and URL are not known"
            )
        await self.proofs.check(proof, headers.target, token=shown.token, key=key)


class ProofVerifier:
    """Verifies proofs, each of which is valid once."""

    def __init__(self, *, now: Callable[[], float], nonces: bool | str = False, seconds: float = 60.0) -> None:
        """Accept proofs that are at most ``seconds`` old; ``nonces`` requires our nonce in each."""
        self._now = now
        self._seconds = seconds
        self._state = ServerStore(None, name="dpop")
        #: Whether each proof must contain our nonce.
        self.requires_nonce: bool = bool(nonces)
        self._configured_secret = nonces.encode() if isinstance(nonces, str) else None
        #: Since when it is known which proofs were used.
        self._known_since = 0.0

    def share(self, state: ServerStore) -> None:
        """Remember used proofs in the store of a server, and use nonces that all its workers make and accept."""
        if state is not self._state:
            self._state = state
            state.on_lost_writes(self._lost_writes)

    def _lost_writes(self) -> None:
        """Called when the store no longer knows all proofs that were used: those made until now count as used."""
        self._known_since = self._now()

    async def check(self, proof: str, target: RequestTarget, *, token: str, key: str) -> None:
        """Check that a proof is for this request and token, by the key that the token is bound to (RFC 9449, 4.3).

        Raises:
            InvalidProof: the proof is not valid; the message says why.
            StoreUnavailable: it is unknown now whether the proof was used before.
        """
        signer, payload = _verify_signature(proof)
        claims = _decode_claims(payload)
        now = self._now()
        if claims.htm != target.method:
            raise InvalidProof("The proof is for another method")
        if _normalized_url(claims.htu) not in {_normalized_url(url) for url in target.urls}:
            raise InvalidProof("The proof is for another URL")
        await self._check_nonce(claims.nonce)
        if not max(now - self._seconds, self._known_since) <= claims.iat <= now + self._seconds / 2:
            raise InvalidProof("The proof is too old or from the future: check the clock")
        if claims.ath is None or not hmac.compare_digest(claims.ath.encode(), digest(token).encode()):
            raise InvalidProof("The proof is for another token")
        if not hmac.compare_digest(signer.encode(), key.encode()):
            raise InvalidProof("The proof is signed with another key than the token is bound to")
        # Last: only the holder of a valid token's key can make us store anything.
        if not await self._spend(key, claims.jti):
            raise InvalidProof("The proof was used before: each request needs its own")

    async def _spend(self, key: str, jti: str) -> bool:
        """Remember a proof; return True if it is new. While too many are remembered, none counts as new."""
        store = await self._state.ready()
        name, ttl = sha256(f"{key} {jti}".encode("utf-8", "replace")).hexdigest(), 2 * self._seconds
        rooms = {"proofs": IndexLimits(members=_MOST_PROOFS), f"proofs:{key}": IndexLimits(members=_MOST_OF_ONE)}
        spent = await store.commit(Put(f"proof:{name}", b"", ttl, only_if_absent=True), Index(name, rooms, ttl=ttl))
        return spent.done

    def nonce(self, back: int = 0) -> str:
        """Return the current nonce; it is valid for five to ten minutes."""
        return self._nonce(self._secrets()[0], back)

    def _secrets(self) -> Sequence[bytes]:
        """Return the secrets of nonces: the first makes them, and those of all are accepted."""
        if self._configured_secret is not None:
            return (self._configured_secret,)
        return self._state.keys.derived_keys(b"dpop-nonces")

    def _nonce(self, secret: bytes, back: int) -> str:
        span = int(self._now() // _NONCE_SECONDS) - back
        return digest(hmac.digest(secret, b"%d" % span, "sha256").hex())

    async def _check_nonce(self, given: str | None) -> None:
        if not self.requires_nonce:
            return
        await self._state.load_keys()
        known = [self._nonce(secret, back) for secret in self._secrets() for back in (0, 1)]
        if given is None or not any(hmac.compare_digest(given.encode(), each.encode()) for each in known):
            raise NonceRequired("The proof needs the nonce of this response's DPoP-Nonce header")


# --- reading ----------------------------------------------------------------------------------------------------------


def _verify_signature(proof: str) -> tuple[str, bytes]:
    """Verify the signature of a proof; return the thumbprint of its key, and its payload."""
    header = read_header(proof, _ProofHeader) if len(proof) <= _LONGEST else None
    if header is None:
        raise InvalidProof("The DPoP header is not a signed JWT with alg, typ and jwk")
    if header.typ.lower().removeprefix("application/") != _TYPE:
        raise InvalidProof("The JWT in the DPoP header is not of type dpop+jwt")
    if header.alg not in PROOF_ALGORITHMS:
        raise InvalidProof("The proof's signature algorithm is not accepted here")
    if header.crit is not None:
        raise InvalidProof("The proof has critical header parameters that are not supported here")
    if not _PRIVATE.isdisjoint(header.jwk):
        raise InvalidProof("The proof contains a private key, which is now compromised")
    key = public_key_from_jwk(header.jwk, header.alg)
    if key is None:
        raise InvalidProof("The key in the proof does not fit its signature algorithm")
    payload = verified_payload(proof, header.alg, key)
    if payload is None:
        raise InvalidProof("The signature of the proof is not valid")
    thumbprint: str = key.thumbprint()
    return thumbprint, payload


def _decode_claims(payload: bytes) -> _Claims:
    try:
        claims = msgspec.json.decode(payload, type=_Claims)
    except (ValueError, RecursionError):
        raise InvalidProof("The proof lacks jti, htm, htu or iat, or one of them has the wrong type") from None
    if not claims.jti:
        raise InvalidProof("The jti of the proof is empty")
    return claims


def _normalized_url(url: str) -> str:
    """Normalize a URL for comparison: without query, fragment and default port."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return ""
    scheme = parts.scheme.lower()
    where = (parts.hostname or "") + ("" if port in (None, _PORTS.get(scheme)) else f":{port}")
    user = "" if parts.username is None and parts.password is None else "@"
    return f"{scheme}://{user}{where}{parts.path or '/'}"

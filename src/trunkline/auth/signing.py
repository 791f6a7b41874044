"""Signatures of a client: assertions that authenticate it, and proofs of possession of a token's key (DPoP).

The cryptography is joserfc's, which is loaded when first needed. Time and randomness come from ``ClockAndRandom``.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import Any

from trunkline.auth.steps import Sources
from trunkline.errors import ConfigError

__all__ = ["ProofKey", "client_assertion", "digest"]

_ASSERTION_SECONDS = 60
_ALGORITHMS = ("ES256", "ES384", "ES512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "EdDSA", "Ed25519")
#: The only kind of key we generate: every DPoP implementation supports it.
_PROOF_ALGORITHM = "ES256"


def digest(text: str) -> str:
    """Return the SHA-256 of a text in unpadded base64url, as PKCE and DPoP use it."""
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def client_assertion(client_id: str, audience: str, *, key: str, algorithm: str, sources: Sources) -> str:
    """Sign a client assertion for one authorization server, valid for one minute (RFC 7523).

    Raises:
        ConfigError: the key or the algorithm cannot be used.
    """
    _check_installed()
    from joserfc import jwk, jwt
    from joserfc.errors import JoseError

    if algorithm not in _ALGORITHMS:
        raise ConfigError(f"signing_algorithm={algorithm!r} must be one of {', '.join(_ALGORITHMS)}.")
    now = int(sources.now())
    claims = {
        "iss": client_id,
        "sub": client_id,
        "aud": audience,
        "iat": now,
        "exp": now + _ASSERTION_SECONDS,
        "jti": sources.token(),
    }
    kinds: tuple[Any, ...] = (jwk.ECKey, jwk.OKPKey, jwk.RSAKey)
    kind = kinds[("ES", "Ed").index(algorithm[:2])] if algorithm[0] == "E" else kinds[2]
    try:
        private = kind.import_key(key)
        return jwt.encode({"alg": algorithm, "typ": "JWT"}, claims, private, algorithms=[algorithm])
    except (JoseError, ValueError, TypeError) as error:
        # The library's message may quote the key.
        raise ConfigError(
            f"private_key= cannot sign with {algorithm}: it must be a PEM private key for that algorithm "
            f"({type(error).__name__})."
        ) from None


def _check_installed() -> None:
    from importlib.util import find_spec

    if find_spec("joserfc") is None:
        raise ConfigError("Signing needs an extra: pip install 'trunkline[auth]'")


class ProofKey:
    """A key that tokens are bound to, and the nonces that servers require in its proofs (RFC 9449)."""

    def __init__(self, stored: Mapping[str, Any] | None = None, *, sources: Sources) -> None:
        """Load a stored key, or generate one."""
        _check_installed()
        from joserfc.jwk import ECKey

        self._sources = sources
        self._key = ECKey.import_key(dict(stored)) if stored is not None else ECKey.generate_key("P-256")
        #: The last nonce of each server, by URL.
        self.nonces: dict[str, str] = {}

    def __repr__(self) -> str:
        """Show no key."""
        return "ProofKey(…)"

    @property
    def stored(self) -> dict[str, Any]:
        """The private key as a JWK, for the store."""
        return dict(self._key.as_dict(private=True))

    @property
    def thumbprint(self) -> str:
        """The thumbprint by which bound tokens name this key."""
        return self._key.thumbprint()

    def proof(self, method: str, url: str, *, nonce: str | None = None, token: str | None = None) -> str:
        """Sign a proof for one request."""
        from joserfc import jwt

        header = {
            "typ": "dpop+jwt",
            "alg": _PROOF_ALGORITHM,
            "jwk": {name: self._key.as_dict(private=False)[name] for name in ("kty", "crv", "x", "y")},
        }
        claims: dict[str, Any] = {
            "jti": self._sources.token(),
            "htm": method,
            "htu": url.partition("#")[0].partition("?")[0],
            "iat": int(self._sources.now()),
        }
        if nonce is not None:
            claims["nonce"] = nonce
        if token is not None:
            claims["ath"] = digest(token)
        return jwt.encode(header, claims, self._key, algorithms=[_PROOF_ALGORITHM])

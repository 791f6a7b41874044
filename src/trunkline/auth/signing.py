"""Signs what has to be signed: assertions that show which client asks, and proofs that we hold a token's key (DPoP).

The key work is joserfc's, which is loaded when first needed. Time and chance come in with ``Sources``.
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
#: The only kind of key we make: every implementation of DPoP has it.
_PROOF_ALGORITHM = "ES256"


def digest(text: str) -> str:
    """Give the SHA-256 of a text in base64url without padding, as PKCE and DPoP write it."""
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def client_assertion(client_id: str, audience: str, *, key: str, algorithm: str, sources: Sources) -> str:
    """Sign a statement that this client asks, for one authorization server and one minute (RFC 7523).

    Raises:
        ConfigError: the key or the algorithm cannot be used.
    """
    _check_installed()
    from joserfc import jwk, jwt
    from joserfc.errors import JoseError

    if algorithm not in _ALGORITHMS:
        raise ConfigError(f"signing_algorithm={algorithm!r} is none of {', '.join(_ALGORITHMS)}.")
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
        # What the library says may quote the key.
        raise ConfigError(
            f"private_key= cannot sign with {algorithm}: give a private key of that kind as PEM "
            f"({type(error).__name__})."
        ) from None


def _check_installed() -> None:
    from importlib.util import find_spec

    if find_spec("joserfc") is None:
        raise ConfigError("Signing needs an extra: pip install 'trunkline[auth]'")


class ProofKey:
    """A key that tokens are bound to, and the nonces that servers want to see in its proofs (RFC 9449)."""

    def __init__(self, stored: Mapping[str, Any] | None = None, *, sources: Sources) -> None:
        """Take a key up again, or make one."""
        _check_installed()
        from joserfc.jwk import ECKey

        self._sources = sources
        self._key = ECKey.import_key(dict(stored)) if stored is not None else ECKey.generate_key("P-256")
        #: The last nonce of each server, by origin: theirs differ.
        self.nonces: dict[str, str] = {}

    def __repr__(self) -> str:
        """Show no key."""
        return "ProofKey(…)"

    @property
    def stored(self) -> dict[str, Any]:
        """The private key as it is kept."""
        return dict(self._key.as_dict(private=True))

    @property
    def thumbprint(self) -> str:
        """What tokens bound to this key say of it."""
        return self._key.thumbprint()

    def proof(self, method: str, url: str, *, nonce: str | None = None, token: str | None = None) -> str:
        """Sign that this very request is ours."""
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

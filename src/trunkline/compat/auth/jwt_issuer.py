"""The tokens that a proxy issues: JSON Web Tokens, signed with a key that is derived from a secret."""

from __future__ import annotations

import base64
import hashlib
import time
from typing import Any

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import OctKey

__all__ = ["JWTIssuer", "derive_jwt_key"]

_ALGORITHM = "HS256"


def derive_jwt_key(
    *, high_entropy_material: str | None = None, low_entropy_material: str | None = None, salt: str
) -> bytes:
    """Return a key made of a secret: by HKDF if it is random, by scrypt if a person may have chosen it.

    Raises:
        ValueError: not exactly one secret is given.
    """
    if (high_entropy_material is None) == (low_entropy_material is None):
        raise ValueError("Either high_entropy_material or low_entropy_material must be provided, but not both")
    if high_entropy_material is not None:
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        hkdf = HKDF(algorithm=SHA256(), length=32, salt=salt.encode(), info=b"Fernet")
        derived = hkdf.derive(high_entropy_material.encode())
    else:
        # Memory-hard, so that guessing a short secret is expensive on any hardware.
        derived = hashlib.scrypt((low_entropy_material or "").encode(), salt=salt.encode(), n=2**14, r=8, p=1, dklen=32)
    return base64.urlsafe_b64encode(derived)


class JWTIssuer:
    """Issues and verifies the tokens of one server."""

    def __init__(self, issuer: str, audience: str, signing_key: bytes) -> None:
        """Initialize with the two names and the key."""
        self.issuer = issuer
        self.audience = audience
        self._signing_key = signing_key

    def issue_access_token(
        self,
        client_id: str,
        scopes: list[str],
        jti: str,
        expires_in: int = 3600,
        upstream_claims: dict[str, Any] | None = None,
        subject: str | None = None,
        extra_claims: dict[str, Any] | None = None,
    ) -> str:
        """Return an access token."""
        claims = {**(extra_claims or {}), **self._claims(client_id, scopes, jti, expires_in, upstream_claims)}
        return self._sign(claims | ({} if subject is None else {"sub": subject}))

    def issue_refresh_token(
        self,
        client_id: str,
        scopes: list[str],
        jti: str,
        expires_in: int,
        upstream_claims: dict[str, Any] | None = None,
    ) -> str:
        """Return a refresh token."""
        claims = self._claims(client_id, scopes, jti, expires_in, upstream_claims)
        return self._sign(claims | {"token_use": "refresh"})

    def verify_token(self, token: str, expected_token_use: str = "access") -> dict[str, Any]:
        """Return the claims of a token that was issued here.

        Raises:
            JoseError: it is malformed, not ours, expired, or of the other kind.
        """
        try:
            decoded = jwt.decode(token, OctKey.import_key(self._signing_key), algorithms=[_ALGORITHM])
        except ValueError as error:
            raise JoseError(f"Malformed token: {error}") from error
        claims = dict(decoded.claims)
        use = claims.get("token_use", "access")
        if use != expected_token_use:
            raise JoseError(f"Token type mismatch: expected {expected_token_use}, got {use}")
        expires = claims.get("exp")
        if not isinstance(expires, int | float) or expires < time.time():
            raise JoseError("Token has expired")
        if claims.get("iss") != self.issuer:
            raise JoseError("Invalid token issuer")
        if claims.get("aud") != self.audience:
            raise JoseError("Invalid token audience")
        return claims

    def _claims(
        self, client_id: str, scopes: list[str], jti: str, expires_in: int, upstream: dict[str, Any] | None
    ) -> dict[str, Any]:
        now = int(time.time())
        claims: dict[str, Any] = {
            "iss": self.issuer,
            "aud": self.audience,
            "client_id": client_id,
            "scope": " ".join(scopes),
            "exp": now + expires_in,
            "iat": now,
            "jti": jti,
        }
        return claims | ({"upstream_claims": upstream} if upstream else {})

    def _sign(self, claims: dict[str, Any]) -> str:
        header = {"alg": _ALGORITHM, "typ": "JWT"}
        return jwt.encode(header, claims, OctKey.import_key(self._signing_key), algorithms=[_ALGORITHM])

"""``JWTVerifier``: JSON Web Tokens by a public key, a shared secret, or the keys at a URL; and keys for tests."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from dataclasses import dataclass
from typing import Any, TypedDict

from pydantic import SecretStr

from trunkline.compat.auth import ssrf
from trunkline.compat.auth.base import TokenVerifier
from trunkline.compat.auth.http_client import http_client, httpx2
from trunkline.compat.auth.records import FastAccessToken

__all__ = ["JWKData", "JWKSData", "JWTVerifier", "RSAKeyPair", "decode_part", "import_key", "jwk_to_pem"]

log = logging.getLogger("fastmcp.server.auth.providers.jwt")

_KEYS_SECONDS = 3600  # Providers announce new keys days before they use them.
_JWKS_BYTES = 256 * 1024  # Key sets with certificate chains have up to 100 KiB.
_SYMMETRIC = ("HS256", "HS384", "HS512")
_ALGORITHMS = frozenset(
    {
        *_SYMMETRIC,
        *(f"{family}{size}" for family in ("RS", "PS", "ES") for size in (256, 384, 512)),
        *("EdDSA", "Ed25519", "Ed448"),
    }
)


class JWKData(TypedDict, total=False):
    """A public key as JSON."""

    kty: str
    kid: str
    use: str
    alg: str
    n: str
    e: str
    crv: str
    x: str
    y: str
    x5c: list[str]
    x5t: str


class JWKSData(TypedDict):
    """A set of public keys as JSON."""

    keys: list[JWKData]


@dataclass(frozen=True, kw_only=True, repr=False)
class RSAKeyPair:
    """A key pair that signs tokens for tests."""

    private_key: SecretStr
    public_key: str

    @classmethod
    def generate(cls) -> RSAKeyPair:
        """Generate a pair."""
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import rsa

        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return cls(private_key=SecretStr(private.decode()), public_key=public.decode())

    def create_token(
        self,
        subject: str = "fastmcp-user",
        issuer: str = "https://fastmcp.example.com",
        audience: str | list[str] | None = None,
        scopes: list[str] | None = None,
        expires_in_seconds: int = 3600,
        additional_claims: dict[str, Any] | None = None,
        kid: str | None = None,
    ) -> str:
        """Sign a token."""
        from joserfc import jwt
        from joserfc.jwk import RSAKey

        now = int(time.time())
        claims: dict[str, Any] = {"sub": subject, "iss": issuer, "iat": now, "exp": now + expires_in_seconds}
        claims |= {"aud": audience} if audience else {}
        claims |= {"scope": " ".join(scopes)} if scopes else {}
        claims |= additional_claims or {}
        header = {"alg": "RS256", **({"kid": kid} if kid else {})}
        return jwt.encode(header, claims, RSAKey.import_key(self.private_key.get_secret_value()), algorithms=["RS256"])


# --- keys ------------------------------------------------------------------------------------------------------------


def _kind(algorithm: str) -> Any:
    from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey

    kinds: dict[str, Any] = {"H": OctKey, "R": RSAKey, "P": RSAKey}
    if algorithm in ("EdDSA", "Ed25519", "Ed448"):
        return OKPKey
    return ECKey if algorithm.startswith("ES") else kinds[algorithm[0]]


def import_key(key: Any, algorithm: str) -> Any:
    """Return a key of the signature library: of a PEM, a secret or a JWK, for an algorithm."""
    return _kind(algorithm).import_key(key)


def jwk_to_pem(document: dict[str, Any], algorithm: str) -> str:
    """Return a JWK as PEM.

    Raises:
        ValueError: it is malformed, or not for the algorithm.
    """
    from joserfc.errors import JoseError

    kind = _kind(algorithm)
    if document.get("kty") != kind.key_type:
        raise ValueError(f"the key is not for {algorithm}")
    try:
        return str(kind.import_key(dict(document)).as_pem(private=False).decode())
    except (JoseError, KeyError, TypeError) as error:
        raise ValueError(f"the key is malformed: {error}") from error


def decode_part(token: str, index: int) -> dict[str, Any]:
    """Return the header (0) or the claims (1) of a token, unverified.

    Raises:
        ValueError: the token is malformed.
    """
    import json
    from base64 import urlsafe_b64decode

    parts = token.split(".")
    if len(parts) != 3:
        raise ValueError("a token has three parts")
    part = parts[index]
    found = json.loads(urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    if not isinstance(found, dict):
        raise ValueError("a part of the token is not an object")
    return found


def _is_public_pem(key: str | bytes) -> bool:
    text = key.decode(errors="replace") if isinstance(key, bytes) else key
    return "-----BEGIN" in text and ("PUBLIC KEY" in text or "CERTIFICATE" in text)


# --- the verifier ----------------------------------------------------------------------------------------------------


class JWTVerifier(TokenVerifier):
    """Accepts tokens that were signed by a key and name the expected issuer and audience."""

    _identity_fields = ("jwks_uri", "public_key", "issuer", "audience", "algorithm")

    def __init__(
        self,
        *,
        public_key: str | bytes | None = None,
        jwks_uri: str | None = None,
        issuer: str | list[str] | None = None,
        audience: str | list[str] | None = None,
        algorithm: str | None = None,
        required_scopes: list[str] | None = None,
        base_url: Any = None,
        ssrf_safe: bool = False,
        http_client: Any = None,
        jwks_refresh_interval: float = 30.0,
        resource_base_url: Any = None,
    ) -> None:
        """Initialize with the key and the claims that a token must have.

        Raises:
            ValueError: the options contradict each other.
        """
        algorithm = algorithm or "RS256"
        _check_options(public_key, jwks_uri, algorithm)
        if ssrf_safe and http_client is not None and jwks_uri:
            raise ValueError("http_client cannot be used with ssrf_safe=True: the guarded fetch has its own client")
        if not math.isfinite(jwks_refresh_interval) or jwks_refresh_interval < 0:
            raise ValueError("jwks_refresh_interval must be finite and not negative")
        super().__init__(base_url=base_url, required_scopes=required_scopes, resource_base_url=resource_base_url)
        self.algorithm = algorithm
        self.issuer = issuer
        self.audience = audience
        self.public_key = public_key
        self.jwks_uri = jwks_uri
        self.ssrf_safe = ssrf_safe
        self._http_client = http_client
        self._refresh_interval = jwks_refresh_interval
        self._keys: list[tuple[str | None, str]] = []
        self._keys_fetched = -math.inf
        self._keys_tried = -math.inf
        self.__fetching = asyncio.Lock()

    # --- keys --------------------------------------------------------------------------------------------------------

    async def _get_verification_key(self, token: str) -> str | bytes:
        if self.public_key is not None:
            return self.public_key
        kid = decode_part(token, 0).get("kid")
        return await self._get_jwks_key(kid if isinstance(kid, str) else None)

    async def _get_jwks_key(self, kid: str | None) -> str:
        """Return a key of the set as PEM; an unknown one is looked for in a new set, but not more often than allowed.

        Raises:
            ValueError: there is none, or the set cannot be fetched.
        """
        found = self._cached(kid)
        if found is not None:
            return found
        async with self.__fetching:
            found = self._cached(kid)
            if found is not None:
                return found
            now = time.monotonic()
            if now - self._keys_tried < self._refresh_interval:
                raise ValueError(self._not_found(kid))
            self._keys_tried = now
            await self._refresh_keys()
        found = self._cached(kid)
        if found is None:
            raise ValueError(self._not_found(kid))
        return found

    def _cached(self, kid: str | None) -> str | None:
        if time.time() - self._keys_fetched >= _KEYS_SECONDS:
            return None
        if kid is None:
            return self._keys[0][1] if len(self._keys) == 1 else None
        return next((pem for name, pem in self._keys if name == kid), None)

    def _not_found(self, kid: str | None) -> str:
        if kid is not None:
            return f"Key ID '{kid}' not found in JWKS"
        return "Multiple keys in JWKS but no key ID (kid) in token" if self._keys else "No keys found in JWKS"

    async def _refresh_keys(self) -> None:
        document = await self._fetch_jwks()
        listed = document.get("keys") if isinstance(document, dict) else None
        keys = []
        for each in listed if isinstance(listed, list) else ():
            try:
                keys.append((each.get("kid"), jwk_to_pem(each, self.algorithm)))
            except (ValueError, AttributeError):
                log.debug("A key of %s cannot be used for %s", self.jwks_uri, self.algorithm)
        self._keys, self._keys_fetched = keys, time.time()

    async def _fetch_jwks(self) -> dict[str, Any]:
        import json

        uri = str(self.jwks_uri)
        try:
            if self.ssrf_safe:
                found = json.loads(await ssrf.ssrf_safe_fetch(uri, max_size=_JWKS_BYTES))
            else:
                async with http_client(self._http_client) as client:
                    response = await client.get(uri)
                    response.raise_for_status()
                    found = response.json()
        except (ssrf.SSRFError, ssrf.SSRFFetchError, httpx2.HTTPError, ValueError) as error:
            raise ValueError(f"Failed to fetch JWKS: {error}") from error
        return found  # type: ignore[no-any-return]

    # --- tokens ------------------------------------------------------------------------------------------------------

    def _validate_issuer(self, issuer: Any) -> bool:
        if self.issuer is None:
            return True
        return issuer in self.issuer if isinstance(self.issuer, list) else bool(issuer == self.issuer)

    def _validate_audience(self, audience: Any) -> bool:
        if self.audience is None:
            return True
        expected = self.audience if isinstance(self.audience, list) else [self.audience]
        given = audience if isinstance(audience, list) else [audience]
        return any(each in expected for each in given)

    def _extract_scopes(self, claims: dict[str, Any]) -> list[str]:
        for name in ("scope", "scp"):
            given = claims.get(name)
            if isinstance(given, str):
                return given.split()
            if isinstance(given, list):
                return [str(each) for each in given]
        return []

    async def load_access_token(self, token: str) -> FastAccessToken | None:
        """Return what a token stands for, or None if it is not valid here."""
        from joserfc.errors import JoseError

        try:
            claims = await self._verified_claims(token)
        except (JoseError, ValueError, TypeError, KeyError) as error:
            log.debug("Token validation failed: %s", error)
            return None
        if not self._accepts(claims):
            return None
        scopes = self._extract_scopes(claims)
        if not set(self.required_scopes) <= set(scopes):
            log.debug("Token lacks required scopes: has %s, needs %s", scopes, self.required_scopes)
            return None
        subject = claims.get("sub")
        expires = claims.get("exp")
        return FastAccessToken(
            token=token,
            client_id=str(claims.get("client_id") or claims.get("azp") or subject or "unknown"),
            scopes=scopes,
            expires_at=int(expires) if expires is not None else None,
            subject=subject if isinstance(subject, str) else None,
            claims=claims,
        )

    async def _verified_claims(self, token: str) -> dict[str, Any]:
        from joserfc import jwt
        from joserfc.jws import JWSRegistry

        header = decode_part(token, 0)
        if "crit" in header:
            raise ValueError("the token has critical header parameters that are not supported")
        key = import_key(await self._get_verification_key(token), self.algorithm)
        # Identity providers add header parameters of their own.
        registry = JWSRegistry(algorithms=[self.algorithm], strict_check_header=False)
        return dict(jwt.decode(token, key, algorithms=[self.algorithm], registry=registry).claims)

    def _accepts(self, claims: dict[str, Any]) -> bool:
        now = time.time()
        expires, since = claims.get("exp"), claims.get("nbf")
        if expires is not None and (not isinstance(expires, int | float) or expires < now):
            log.debug("Token has expired")
            return False
        if since is not None and (not isinstance(since, int | float) or since > now + 60):
            log.debug("Token is not valid yet")
            return False
        if not self._validate_issuer(claims.get("iss")):
            log.debug("Token has another issuer")
            return False
        if not self._validate_audience(claims.get("aud")):
            log.debug("Token has another audience")
            return False
        return True

    async def verify_token(self, token: str) -> FastAccessToken | None:
        """Return what a token stands for, or None if it is not valid here."""
        return await self.load_access_token(token)


def _check_options(public_key: str | bytes | None, jwks_uri: str | None, algorithm: str) -> None:
    if not public_key and not jwks_uri:
        raise ValueError("Either public_key or jwks_uri must be provided")
    if public_key and jwks_uri:
        raise ValueError("Provide either public_key or jwks_uri, not both")
    if algorithm not in _ALGORITHMS:
        raise ValueError(f"Unsupported algorithm: {algorithm}")
    if algorithm in _SYMMETRIC:
        if jwks_uri:
            raise ValueError(f"{algorithm} is symmetric and cannot be used with jwks_uri")
        if public_key and _is_public_pem(public_key):
            raise ValueError(f"Symmetric algorithms like {algorithm} require a shared secret, not a public key")

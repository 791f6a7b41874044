"""Identity assertions: tokens for a user whom an enterprise's identity provider vouches for (ID-JAG, RFC 7523)."""

from __future__ import annotations

import logging
import time
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from pydantic import BaseModel, Field, field_validator

from trunkline.compat.auth.http_client import http_client, httpx2
from trunkline.compat.auth.jwt_verifier import JWTVerifier, decode_part
from trunkline.compat.auth.records import JWT_BEARER_GRANT_TYPE
from trunkline.compat.auth.replay import ReplayCache
from trunkline.compat.auth.routes import ID_JAG_GRANT_PROFILE

__all__ = [
    "ID_JAG_GRANT_PROFILE",
    "ID_JAG_TYP",
    "JWT_BEARER_GRANT_TYPE",
    "SUPPORTED_ASSERTION_ALGORITHMS",
    "IdentityAssertion",
    "IdentityAssertionError",
    "IdentityAssertionValidator",
    "normalize_resource_url",
    "server_url_has_query",
]

log = logging.getLogger("fastmcp.server.auth.identity_assertion")

ID_JAG_TYP = "oauth-id-jag+jwt"
#: Asymmetric ones only: a party that verifies an assertion must not be able to make one.
SUPPORTED_ASSERTION_ALGORITHMS = frozenset(
    f"{family}{size}" for family in ("RS", "PS", "ES") for size in (256, 384, 512)
)
_DISCOVERY_PAUSE_SECONDS = 30.0  # An issuer that is down is not asked for each assertion.


class IdentityAssertion(BaseModel):
    """Which identity providers may vouch for users, and what tokens their assertions are exchanged for."""

    trusted_issuers: list[str]
    jwks_uris: dict[str, str] | None = None
    audience: str | None = None
    required_scopes: list[str] | None = None
    algorithm: str | None = None
    algorithms: dict[str, str] | None = None
    access_token_expiry_seconds: int = Field(default=300, gt=0)

    @field_validator("trusted_issuers")
    @classmethod
    def _check_issuers(cls, value: list[str]) -> list[str]:
        if not value or not all(each.strip() for each in value):
            raise ValueError("trusted_issuers must name at least one issuer, and none may be blank")
        return value

    @field_validator("algorithm")
    @classmethod
    def _check_algorithm(cls, value: str | None) -> str | None:
        if value is not None and value not in SUPPORTED_ASSERTION_ALGORITHMS:
            raise ValueError(f"algorithm must be one of {sorted(SUPPORTED_ASSERTION_ALGORITHMS)}, not {value!r}")
        return value

    @field_validator("algorithms")
    @classmethod
    def _check_algorithms(cls, value: dict[str, str] | None) -> dict[str, str] | None:
        for each in (value or {}).values():
            cls._check_algorithm(each)
        return value


class IdentityAssertionError(Exception):
    """An assertion is not accepted."""


def normalize_resource_url(url: str) -> str:
    """Return a resource's URL without query, fragment and final slash."""
    parsed = urlsplit(url)
    return urlunsplit((parsed.scheme, parsed.netloc, parsed.path.rstrip("/"), "", ""))


def server_url_has_query(url: str) -> bool:
    """Return whether a URL has a query."""
    return bool(urlsplit(url).query)


class IdentityAssertionValidator:
    """Validates assertions; each is accepted once."""

    MAX_ASSERTION_LIFETIME = 300
    CLOCK_SKEW_SECONDS = 30

    def __init__(self, config: IdentityAssertion, audience: str) -> None:
        """Initialize with the configuration and our own name in assertions."""
        self.config = config
        name = (config.audience or audience).rstrip("/")
        #: With and without a final slash: providers differ in how they write an issuer.
        self.audience = [name, f"{name}/"]
        self._seen = ReplayCache()
        self._verifiers: dict[str, JWTVerifier] = {}
        self._failed: dict[str, float] = {}

    @property
    def _jti_cache(self) -> dict[str, float]:
        return self._seen.entries

    @_jti_cache.setter
    def _jti_cache(self, entries: dict[str, float]) -> None:
        self._seen.entries = entries

    @property
    def _jti_cache_max_size(self) -> int:
        return self._seen.max_size

    @_jti_cache_max_size.setter
    def _jti_cache_max_size(self, size: int) -> None:
        self._seen.max_size = size

    async def validate(self, assertion: str, *, client_id: str, resource_url: str | None) -> dict[str, Any]:
        """Return the claims of an assertion.

        Raises:
            IdentityAssertionError: it is not for this server, this client or this time, or it was used before.
        """
        try:
            header, unverified = decode_part(assertion, 0), decode_part(assertion, 1)
        except ValueError as error:
            raise IdentityAssertionError(f"The assertion is malformed: {error}") from error
        if header.get("typ") != ID_JAG_TYP:
            raise IdentityAssertionError(f"The assertion must have the type {ID_JAG_TYP}")
        issuer = unverified.get("iss")
        if not isinstance(issuer, str) or issuer not in self.config.trusted_issuers:
            raise IdentityAssertionError("The issuer of the assertion is not trusted")
        for name in ("exp", "iat", "nbf"):
            _number(unverified, name)
        verified = await (await self._verifier(issuer)).load_access_token(assertion)
        if verified is None:
            raise IdentityAssertionError("The signature, audience or expiry of the assertion is not valid")
        claims = verified.claims
        self._check_times(claims)
        self._check_binding(claims, client_id, resource_url)
        missing = set(self.config.required_scopes or ()) - set(verified.scopes)
        if missing:
            raise IdentityAssertionError(f"The assertion lacks required scopes: {' '.join(sorted(missing))}")
        jti = claims.get("jti")
        if not isinstance(jti, str) or not jti:
            raise IdentityAssertionError("The assertion must have a jti claim")
        try:
            # Last, so that an assertion that fails for another reason is not used up.
            self._seen.use(f"{issuer}|{jti}", claims["exp"] + self.CLOCK_SKEW_SECONDS, time.time())
        except ValueError as error:
            raise IdentityAssertionError(str(error)) from error
        return claims

    def _check_times(self, claims: dict[str, Any]) -> None:
        now, skew = time.time(), self.CLOCK_SKEW_SECONDS
        expires, issued, since = (_number(claims, name) for name in ("exp", "iat", "nbf"))
        if expires is None:
            raise IdentityAssertionError("The assertion must say when it expires")
        if issued is not None and issued > now + skew:
            raise IdentityAssertionError("The assertion was issued in the future")
        if since is not None and since > now + skew:
            raise IdentityAssertionError("The assertion is not valid yet")
        if expires - (issued if issued is not None else now) > self.MAX_ASSERTION_LIFETIME + skew:
            raise IdentityAssertionError("The assertion is valid for too long")

    @staticmethod
    def _check_binding(claims: dict[str, Any], client_id: str, resource_url: str | None) -> None:
        if claims.get("client_id") != client_id:
            raise IdentityAssertionError("The assertion was issued for another client")
        subject = claims.get("sub")
        if not isinstance(subject, str) or not subject:
            raise IdentityAssertionError("The assertion must name a subject")
        given = claims.get("resource")
        resources = given if isinstance(given, list) else [given]
        ours = normalize_resource_url(resource_url or "")
        if not any(isinstance(each, str) and normalize_resource_url(each) == ours for each in resources):
            raise IdentityAssertionError("The assertion was issued for another resource")

    async def _verifier(self, issuer: str) -> JWTVerifier:
        known = self._verifiers.get(issuer)
        if known is None:
            uri = (self.config.jwks_uris or {}).get(issuer) or await self._discover(issuer)
            known = self._verifiers[issuer] = JWTVerifier(
                jwks_uri=uri,
                issuer=issuer,
                audience=self.audience,
                algorithm=(self.config.algorithms or {}).get(issuer) or self.config.algorithm,
            )
        return known

    async def _discover(self, issuer: str) -> str:
        if time.monotonic() - self._failed.get(issuer, float("-inf")) < _DISCOVERY_PAUSE_SECONDS:
            raise IdentityAssertionError("The keys of the issuer are not available; try again later")
        try:
            async with http_client(None) as client:
                response = await client.get(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
                response.raise_for_status()
                uri = response.json()["jwks_uri"]
            if not isinstance(uri, str):
                raise TypeError("jwks_uri is not a string")
        except (httpx2.HTTPError, ValueError, TypeError, KeyError) as error:
            self._failed[issuer] = time.monotonic()
            log.warning("Cannot discover the keys of %s: %s", issuer, error)
            raise IdentityAssertionError("The keys of the issuer are not available") from error
        return uri


def _number(claims: dict[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise IdentityAssertionError(f"The {name} of the assertion is not a time")
    return float(value)

"""Clients that are described by a document at their URL: Client ID Metadata Documents.

The document is fetched with the guarded fetch, cached as its headers say, and must name the URL it is at. A client may
authenticate with an assertion that is signed with a key from its document.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import AnyHttpUrl, BaseModel, Field, ValidationError, field_validator

from trunkline.compat.auth.jwt_verifier import JWTVerifier, decode_part, jwk_to_pem
from trunkline.compat.auth.redirects import matches_allowed_pattern
from trunkline.compat.auth.replay import ReplayCache
from trunkline.compat.auth.ssrf import SSRFError, SSRFFetchError, ssrf_safe_fetch_response

__all__ = [
    "CIMDAssertionValidator",
    "CIMDClientManager",
    "CIMDDocument",
    "CIMDFetchError",
    "CIMDFetcher",
    "CIMDValidationError",
]

log = logging.getLogger("fastmcp.server.auth.cimd")

_ALGORITHMS = frozenset(f"{family}{size}" for family in ("RS", "PS", "ES") for size in (256, 384, 512))


class CIMDDocument(BaseModel):
    """The document that describes a client."""

    client_id: AnyHttpUrl
    client_name: str | None = None
    client_uri: AnyHttpUrl | None = None
    logo_uri: AnyHttpUrl | None = None
    redirect_uris: list[str]
    #: A document is public, so no shared secret can be used.
    token_endpoint_auth_method: Literal["none", "private_key_jwt"] = "none"
    grant_types: list[str] = Field(default_factory=lambda: ["authorization_code"])
    response_types: list[str] = Field(default_factory=lambda: ["code"])
    scope: str | None = None
    contacts: list[str] | None = None
    tos_uri: AnyHttpUrl | None = None
    policy_uri: AnyHttpUrl | None = None
    jwks_uri: AnyHttpUrl | None = None
    jwks: dict[str, Any] | None = None
    software_id: str | None = None
    software_version: str | None = None

    @field_validator("redirect_uris")
    @classmethod
    def validate_redirect_uris(cls, value: list[str]) -> list[str]:
        """Check that there are redirect URIs, each with a scheme and a host."""
        if not value:
            raise ValueError("redirect_uris must have at least one entry")
        for uri in value:
            if not uri or not uri.strip():
                raise ValueError("redirect_uris must be non-empty strings")
            scheme, _, rest = uri.partition(":")
            if not rest or "/" in scheme:
                raise ValueError(f"redirect_uri must have a scheme: {uri!r}")
            if scheme in ("http", "https") and not rest.lstrip("/"):
                raise ValueError(f"redirect_uri must have a host: {uri!r}")
        return value


class CIMDValidationError(Exception):
    """A document is not valid."""


class CIMDFetchError(Exception):
    """A document cannot be fetched."""


# --- fetching --------------------------------------------------------------------------------------------------------


@dataclass
class _Policy:
    """What the headers of a response say about caching."""

    etag: str | None
    last_modified: str | None
    expires_at: float
    lifetime: float
    no_store: bool
    must_revalidate: bool


@dataclass
class _Cached:
    doc: CIMDDocument
    etag: str | None
    last_modified: str | None
    expires_at: float
    lifetime: float
    must_revalidate: bool

    @classmethod
    def of(cls, doc: CIMDDocument, policy: _Policy) -> _Cached:
        return cls(doc, policy.etag, policy.last_modified, policy.expires_at, policy.lifetime, policy.must_revalidate)


def _header(headers: Mapping[str, str], name: str) -> str | None:
    return next((value for key, value in headers.items() if key.lower() == name), None)


class CIMDFetcher:
    """Fetches documents, and caches them as their headers say."""

    MAX_RESPONSE_SIZE = 5120
    MAX_CACHE_SIZE = 1000
    DEFAULT_CACHE_TTL_SECONDS = 3600

    def __init__(self, timeout: float = 10.0) -> None:
        """Initialize with the time that a fetch may take."""
        self.timeout = timeout
        self._cache: dict[str, _Cached] = {}

    def is_cimd_client_id(self, client_id: str) -> bool:
        """Return whether a client ID is the URL of a document: https, with a path."""
        try:
            parsed = urlsplit(client_id)
        except ValueError:
            return False
        return parsed.scheme == "https" and bool(parsed.netloc) and parsed.path not in ("", "/")

    async def fetch(self, client_id_url: str) -> CIMDDocument:
        """Return the document at a URL.

        Raises:
            CIMDFetchError: it cannot be fetched.
            CIMDValidationError: it is not valid.
        """
        cached = self._cache.get(client_id_url)
        now = time.time()
        if cached is not None and not cached.must_revalidate and cached.expires_at > now:
            return cached.doc
        headers = _conditions(cached)
        try:
            response = await ssrf_safe_fetch_response(
                client_id_url,
                require_path=True,
                max_size=self.MAX_RESPONSE_SIZE,
                timeout=self.timeout,
                overall_timeout=30.0,
                request_headers=headers,
                allowed_status_codes={200, 304} if headers else {200},
            )
        except (SSRFError, SSRFFetchError) as error:
            raise CIMDFetchError(f"Failed to fetch CIMD document: {error}") from error
        if response.status_code == 304 and cached is not None:
            self._revalidated(client_id_url, cached, response.headers, now)
            return cached.doc
        document = _read(client_id_url, response.content)
        policy = self._policy(response.headers, now)
        if policy.no_store:
            self._cache.pop(client_id_url, None)
        else:
            self._store(client_id_url, _Cached.of(document, policy))
        return document

    def _store(self, url: str, entry: _Cached) -> None:
        self._cache.pop(url, None)
        while len(self._cache) >= self.MAX_CACHE_SIZE:
            del self._cache[next(iter(self._cache))]
        self._cache[url] = entry

    def _revalidated(self, url: str, cached: _Cached, headers: Mapping[str, str], now: float) -> None:
        policy = self._policy(headers, now)
        if _header(headers, "cache-control") is None and _header(headers, "expires") is None:
            # RFC 9111, 4.3.4: what a 304 leaves out stays as it was.
            cached.expires_at = now + cached.lifetime
        elif policy.no_store:
            self._cache.pop(url, None)
            return
        else:
            cached.expires_at, cached.lifetime = policy.expires_at, policy.lifetime
            cached.must_revalidate = policy.must_revalidate
        cached.etag = policy.etag or cached.etag
        cached.last_modified = policy.last_modified or cached.last_modified

    def _policy(self, headers: Mapping[str, str], now: float) -> _Policy:
        directives = [each.strip().lower() for each in (_header(headers, "cache-control") or "").split(",")]
        lifetime = float(self.DEFAULT_CACHE_TTL_SECONDS)
        expires = _header(headers, "expires")
        if expires is not None:
            lifetime = max(0.0, _date(expires) - now)
        for each in directives:
            name, _, value = each.partition("=")
            if name == "max-age" and value.strip('"').isdigit():
                lifetime = float(value.strip('"'))
        return _Policy(
            etag=_header(headers, "etag"),
            last_modified=_header(headers, "last-modified"),
            expires_at=now + lifetime,
            lifetime=lifetime,
            no_store="no-store" in directives,
            must_revalidate="no-cache" in directives,
        )

    def validate_redirect_uri(self, doc: CIMDDocument, redirect_uri: str) -> bool:
        """Return whether a document lists a redirect URI."""
        return any(matches_allowed_pattern(str(redirect_uri), pattern) for pattern in doc.redirect_uris)


def _conditions(cached: _Cached | None) -> dict[str, str]:
    headers: dict[str, str] = {}
    if cached is not None and cached.etag:
        headers["If-None-Match"] = cached.etag
    if cached is not None and cached.last_modified:
        headers["If-Modified-Since"] = cached.last_modified
    return headers


def _date(text: str) -> float:
    from email.utils import parsedate_to_datetime

    try:
        return parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError):
        return 0.0


def _read(url: str, content: bytes) -> CIMDDocument:
    try:
        data = json.loads(content)
    except ValueError as error:
        raise CIMDValidationError(f"CIMD document is not valid JSON: {error}") from error
    try:
        document = CIMDDocument.model_validate(data)
    except ValidationError as error:
        raise CIMDValidationError(f"Invalid CIMD document: {error}") from error
    # The name is compared as it is written: a document speaks only for its own URL.
    if not isinstance(data, dict) or data.get("client_id") != url:
        raise CIMDValidationError(f"CIMD client_id mismatch: the document at {url} names another client")
    return document


# --- assertions ------------------------------------------------------------------------------------------------------


class CIMDAssertionValidator:
    """Validates the assertions by which clients authenticate (RFC 7523); each is accepted once."""

    MAX_ASSERTION_LIFETIME = 300

    def __init__(self) -> None:
        """Start with nothing seen."""
        self._seen = ReplayCache()
        self._verifiers: dict[tuple[str, str, str], JWTVerifier] = {}

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

    async def validate_assertion(
        self, assertion: str, client_id: str, token_endpoint: str, cimd_doc: CIMDDocument
    ) -> bool:
        """Return True if an assertion authenticates a client.

        Raises:
            ValueError: it does not.
        """
        algorithm = decode_part(assertion, 0).get("alg")
        if not isinstance(algorithm, str) or algorithm not in _ALGORITHMS:
            raise ValueError(f"Unsupported assertion algorithm: {algorithm!r}")
        verifier = self._verifier(assertion, client_id, token_endpoint, cimd_doc, algorithm)
        token = await verifier.load_access_token(assertion)
        if token is None:
            raise ValueError("Invalid JWT assertion: signature, issuer, audience or expiry is wrong")
        claims = token.claims
        if claims.get("sub") != client_id:
            raise ValueError(f"Assertion sub claim must be {client_id}")
        jti, expires = claims.get("jti"), claims.get("exp")
        if not isinstance(jti, str) or not jti:
            raise ValueError("Assertion must have a jti claim")
        if not isinstance(expires, int | float):
            raise ValueError("Assertion must have an exp claim")
        now = time.time()
        issued = claims.get("iat", now)
        if not isinstance(issued, int | float) or expires - min(issued, now) > self.MAX_ASSERTION_LIFETIME:
            raise ValueError(f"Assertion lifetime exceeds {self.MAX_ASSERTION_LIFETIME} seconds")
        self._seen.use(f"{client_id}|{jti}", expires, now)
        return True

    def _verifier(self, assertion: str, client_id: str, endpoint: str, doc: CIMDDocument, algorithm: str) -> Any:
        if doc.jwks_uri is not None:
            key = (str(doc.jwks_uri), client_id, algorithm)
            if key not in self._verifiers:
                self._verifiers[key] = JWTVerifier(
                    jwks_uri=str(doc.jwks_uri),
                    issuer=client_id,
                    audience=endpoint,
                    algorithm=algorithm,
                    ssrf_safe=True,
                )
            return self._verifiers[key]
        if doc.jwks is None:
            raise ValueError("CIMD document must have jwks_uri or jwks for private_key_jwt")
        pem = _inline_key(assertion, doc.jwks, algorithm)
        return JWTVerifier(public_key=pem, issuer=client_id, audience=endpoint, algorithm=algorithm)


def _inline_key(assertion: str, jwks: Mapping[str, Any], algorithm: str) -> str:
    kid = decode_part(assertion, 0).get("kid")
    keys = []
    for each in jwks.get("keys") or ():
        if kid is None or each.get("kid") in (kid, None):
            try:
                keys.append(jwk_to_pem(each, algorithm))
            except ValueError:
                continue
    if len(keys) != 1:
        raise ValueError("No single key in the JWKS matches the assertion")
    return keys[0]


# --- clients ---------------------------------------------------------------------------------------------------------


class CIMDClientManager:
    """The clients that are described by documents."""

    def __init__(
        self,
        enable_cimd: bool = True,
        default_scope: str = "",
        allowed_redirect_uri_patterns: list[str] | None = None,
    ) -> None:
        """Initialize with what applies to every such client."""
        self.enabled = enable_cimd
        self.default_scope = default_scope
        self.allowed_redirect_uri_patterns = allowed_redirect_uri_patterns
        self._fetcher = CIMDFetcher()
        self._assertion_validator = CIMDAssertionValidator()

    def is_cimd_client_id(self, client_id: str) -> bool:
        """Return whether a client ID is the URL of a document, and documents are accepted."""
        return self.enabled and self._fetcher.is_cimd_client_id(client_id)

    async def get_client(self, client_id_url: str) -> Any:
        """Return the client that a document describes, or None if it cannot be fetched or is not valid."""
        from trunkline.compat.auth.oauth_proxy.models import ProxyDCRClient

        if not self.is_cimd_client_id(client_id_url):
            return None
        try:
            document = await self._fetcher.fetch(client_id_url)
        except (CIMDFetchError, CIMDValidationError) as error:
            log.warning("CIMD document of %s cannot be used: %s", client_id_url, error)
            return None
        return ProxyDCRClient(
            client_id=client_id_url,
            client_secret=None,
            redirect_uris=None,
            grant_types=document.grant_types,
            scope=document.scope or self.default_scope,
            token_endpoint_auth_method=document.token_endpoint_auth_method,
            client_name=document.client_name,
            client_uri=document.client_uri,
            allowed_redirect_uri_patterns=self.allowed_redirect_uri_patterns,
            cimd_document=document,
            cimd_fetched_at=time.time(),
        )

    async def validate_private_key_jwt(self, assertion: str, client: Any, token_endpoint: str) -> bool:
        """Return True if an assertion authenticates a client.

        Raises:
            ValueError: it does not, or the client does not authenticate in this way.
        """
        document = getattr(client, "cimd_document", None)
        if document is None:
            raise ValueError("Client must have CIMD document for private_key_jwt")
        if document.token_endpoint_auth_method != "private_key_jwt":
            raise ValueError("The client's document does not use private_key_jwt")
        found: bool = await self._assertion_validator.validate_assertion(
            assertion, client.client_id, token_endpoint, document
        )
        return found

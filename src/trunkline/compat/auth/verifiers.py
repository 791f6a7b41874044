"""Token verifiers that ask a table, a function or an introspection endpoint; and their cache."""

from __future__ import annotations

import base64
import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal
from urllib.parse import quote

from pydantic import SecretStr

from trunkline.compat.auth.base import TokenVerifier
from trunkline.compat.auth.http_client import http_client as client_for
from trunkline.compat.auth.http_client import httpx2
from trunkline.compat.auth.records import FastAccessToken

__all__ = ["DebugTokenVerifier", "IntrospectionTokenVerifier", "StaticTokenVerifier", "TokenCache"]

log = logging.getLogger("fastmcp.server.auth")

_CACHED_TOKENS = 10_000  # About 20 MB of tokens with claims.


class StaticTokenVerifier(TokenVerifier):
    """Tokens that are written down, for development."""

    def __init__(self, tokens: Mapping[str, Mapping[str, Any]], required_scopes: list[str] | None = None) -> None:
        """Initialize with the tokens and their claims."""
        super().__init__(required_scopes=required_scopes)
        self.tokens = {key: dict(value) for key, value in tokens.items()}

    async def verify_token(self, token: str) -> FastAccessToken | None:
        """Look the token up."""
        found = self.tokens.get(token)
        if found is None:
            return None
        expires = found.get("expires_at")
        if expires is not None and expires < time.time():
            return None
        scopes = list(found.get("scopes", []))
        if not set(self.required_scopes) <= set(scopes):
            return None
        return FastAccessToken(
            token=token,
            client_id=found["client_id"],
            scopes=scopes,
            expires_at=expires,
            subject=found.get("sub"),
            claims=found,
        )


class DebugTokenVerifier(TokenVerifier):
    """Accepts every token, or those that a function accepts; for development."""

    def __init__(
        self,
        validate: Callable[[str], bool] | Callable[[str], Awaitable[bool]] = lambda token: True,
        client_id: str = "debug-client",
        scopes: list[str] | None = None,
        required_scopes: list[str] | None = None,
    ) -> None:
        """Initialize with the function."""
        super().__init__(required_scopes=required_scopes)
        self.validate = validate
        self.client_id = client_id
        self.scopes = list(scopes or ())

    async def verify_token(self, token: str) -> FastAccessToken | None:
        """Ask the function."""
        if not token or not token.strip():
            return None
        try:
            accepted = self.validate(token)
            if inspect.isawaitable(accepted):
                accepted = await accepted
        except Exception:
            log.debug("The validation function failed", exc_info=True)
            return None
        if not accepted:
            return None
        return FastAccessToken(token=token, client_id=self.client_id, scopes=list(self.scopes), claims={"token": token})


# --- the cache -------------------------------------------------------------------------------------------------------


@dataclass
class _CachedToken:
    token: FastAccessToken
    expires_at: float


class TokenCache:
    """Tokens that were found valid lately, by their digest; bounded."""

    def __init__(self, ttl_seconds: int | None = None, max_size: int | None = None) -> None:
        """Initialize; without a time, or without room, nothing is cached.

        Raises:
            ValueError: the size is negative.
        """
        if max_size is not None and max_size < 0:
            raise ValueError("max_cache_size must be non-negative")
        self._ttl = ttl_seconds or 0
        self._max_size = _CACHED_TOKENS if max_size is None else max_size
        self._entries: dict[str, _CachedToken] = {}

    @property
    def enabled(self) -> bool:
        """Whether anything is cached."""
        return self._ttl > 0 and self._max_size > 0

    @staticmethod
    def _hash_token(token: str) -> str:
        return sha256(token.encode()).hexdigest()

    def get(self, token: str) -> FastAccessToken | None:
        """Return a copy of what is cached for a token."""
        if not self.enabled:
            return None
        key = self._hash_token(token)
        found = self._entries.get(key)
        if found is None:
            return None
        if found.expires_at <= time.time():
            del self._entries[key]
            return None
        return found.token.model_copy(deep=True)

    def set(self, token: str, found: FastAccessToken) -> None:
        """Cache a token until it expires, or for the configured time."""
        if not self.enabled:
            return
        key = self._hash_token(token)
        self._entries.pop(key, None)
        while len(self._entries) >= self._max_size:
            del self._entries[next(iter(self._entries))]
        until = time.time() + self._ttl
        if found.expires_at is not None:
            until = min(until, found.expires_at)
        self._entries[key] = _CachedToken(found.model_copy(deep=True), until)


# --- introspection ---------------------------------------------------------------------------------------------------

_METHODS = ("client_secret_basic", "client_secret_post")


class IntrospectionTokenVerifier(TokenVerifier):
    """Tokens that an endpoint is asked about (RFC 7662)."""

    _identity_fields = ("introspection_url", "client_id", "audience")

    def __init__(
        self,
        *,
        introspection_url: str,
        client_id: str,
        client_secret: str | SecretStr,
        client_auth_method: Literal["client_secret_basic", "client_secret_post"] = "client_secret_basic",
        timeout_seconds: int = 10,
        required_scopes: list[str] | None = None,
        audience: str | list[str] | None = None,
        base_url: Any = None,
        cache_ttl_seconds: int | None = None,
        max_cache_size: int | None = None,
        http_client: Any = None,
    ) -> None:
        """Initialize with the endpoint and our credentials there.

        Raises:
            ValueError: an option is not valid.
        """
        super().__init__(base_url=base_url, required_scopes=required_scopes)
        if client_auth_method not in _METHODS:
            raise ValueError(f"Invalid client_auth_method: {client_auth_method!r}; must be one of {list(_METHODS)}")
        if audience is not None and (not audience or not all([audience] if isinstance(audience, str) else audience)):
            raise ValueError("audience cannot be empty")
        self.introspection_url = introspection_url
        self.client_id = client_id
        self.client_secret = client_secret.get_secret_value() if isinstance(client_secret, SecretStr) else client_secret
        self.client_auth_method = client_auth_method
        self.timeout_seconds = timeout_seconds
        self.audience = audience
        self._http_client = http_client
        self._cache = TokenCache(cache_ttl_seconds, max_cache_size)

    def _create_basic_auth_header(self) -> str:
        # RFC 6749, 2.3.1: both are form-encoded first.
        given = f"{quote(self.client_id, safe='')}:{quote(self.client_secret, safe='')}"
        return f"Basic {base64.b64encode(given.encode()).decode()}"

    def _extract_scopes(self, introspection_response: Mapping[str, Any]) -> list[str]:
        given = introspection_response.get("scope")
        if isinstance(given, str):
            return given.split()
        return [str(each) for each in given] if isinstance(given, list) else []

    def _audience_matches(self, given: Any) -> bool:
        if self.audience is None:
            return True
        names = given if isinstance(given, list) else [given]
        if not names or not all(isinstance(each, str) and each for each in names):
            return False
        expected = [self.audience] if isinstance(self.audience, str) else self.audience
        return bool(set(names) & set(expected))

    async def verify_token(self, token: str) -> FastAccessToken | None:
        """Ask the endpoint, or the cache."""
        cached = self._cache.get(token)
        if cached is not None:
            return cached
        try:
            answer = await self._introspect(token)
        except (httpx2.HTTPError, ValueError) as error:
            log.debug("Introspection failed: %s", error)
            return None
        found = None if answer is None else self._accepted(token, answer)
        if found is not None:
            self._cache.set(token, found)
        return found

    async def _introspect(self, token: str) -> Mapping[str, Any] | None:
        form = {"token": token, "token_type_hint": "access_token"}
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        if self.client_auth_method == "client_secret_post":
            form |= {"client_id": self.client_id, "client_secret": self.client_secret}
        else:
            headers["Authorization"] = self._create_basic_auth_header()
        async with client_for(self._http_client, self.timeout_seconds) as client:
            response = await client.post(self.introspection_url, data=form, headers=headers)
            if response.status_code != 200:
                log.debug("Introspection answered %s", response.status_code)
                return None
            found = response.json()
        return found if isinstance(found, dict) else None

    def _accepted(self, token: str, answer: Mapping[str, Any]) -> FastAccessToken | None:
        expires = answer.get("exp")
        if not answer.get("active") or (expires and expires < time.time()):
            return None
        scopes = self._extract_scopes(answer)
        if not set(self.required_scopes) <= set(scopes) or not self._audience_matches(answer.get("aud")):
            return None
        return FastAccessToken(
            token=token,
            client_id=str(answer.get("client_id") or answer.get("sub") or "unknown"),
            scopes=scopes,
            expires_at=int(expires) if expires else None,
            subject=answer.get("sub"),
            claims=dict(answer),
        )

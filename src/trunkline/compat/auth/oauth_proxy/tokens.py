"""The tokens of the OAuth proxy: codes exchanged, refreshed, loaded and revoked.

A token of ours is a signed reference: its identifier leads to the provider's tokens, which are verified on each request
and renewed at the provider when they expire.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from joserfc.errors import JoseError

from trunkline.compat.auth.http_client import http_client
from trunkline.compat.auth.identity_assertion import IdentityAssertionError
from trunkline.compat.auth.oauth_proxy.models import (
    DEFAULT_ACCESS_TOKEN_EXPIRY_NO_REFRESH_SECONDS,
    DEFAULT_ACCESS_TOKEN_EXPIRY_SECONDS,
    HTTP_TIMEOUT_SECONDS,
    JTIMapping,
    RefreshTokenMetadata,
    UpstreamTokenSet,
    hash_token,
)
from trunkline.compat.auth.oauth_proxy.upstream import AsyncOAuth2Client, OAuthError
from trunkline.compat.auth.records import (
    AccessToken,
    AuthorizationCode,
    FastAccessToken,
    IdentityAssertionParams,
    OAuthClientInformationFull,
    OAuthToken,
    RefreshToken,
    TokenError,
)

__all__ = ["TokenExchange"]

log = logging.getLogger("fastmcp.server.auth.oauth_proxy.proxy")

#: Refreshes of one token are made one after the other; this many locks are kept.
_REFRESH_LOCK_CACHE_SIZE = 10_000
_ASSERTED = "id_jag"


class TokenExchange:
    """The part of the proxy that has to do with tokens."""

    _identity_assertion_validator: Any
    _refresh_locks: dict[str, Any]

    # --- hooks for providers -----------------------------------------------------------------------------------------

    def _prepare_scopes_for_token_exchange(self, scopes: list[str]) -> list[str]:
        """Return the scopes to send with a code; most providers take those of the authorization."""
        return []

    def _prepare_scopes_for_upstream_refresh(self, scopes: list[str]) -> list[str]:
        """Return the scopes to send with a refresh token."""
        return scopes

    def _translate_scopes_from_idp(self, scopes: list[str]) -> list[str]:
        """Return scopes of the provider as clients know them."""
        return scopes

    async def _extract_upstream_claims(self, idp_tokens: dict[str, Any]) -> dict[str, Any] | None:
        """Return claims of the provider to put into our token."""
        return None

    def _get_verification_token(self, upstream_token_set: UpstreamTokenSet) -> str | None:
        """Return the provider's token that is verified."""
        return upstream_token_set.access_token

    def _uses_alternate_verification(self) -> bool:
        """Return whether another token than the access token is verified, so that its scopes do not count."""
        return False

    # --- the provider's endpoint -------------------------------------------------------------------------------------

    def _create_upstream_oauth_client(self: Any) -> AsyncOAuth2Client:
        secret = self._upstream_client_secret
        return AsyncOAuth2Client(
            client_id=self._upstream_client_id,
            client_secret=secret.get_secret_value() if secret is not None else None,
            token_endpoint_auth_method=self._token_endpoint_auth_method,
            timeout=HTTP_TIMEOUT_SECONDS,
        )

    @asynccontextmanager
    async def _upstream_oauth_client(self) -> AsyncIterator[AsyncOAuth2Client]:
        client = self._create_upstream_oauth_client()
        try:
            yield client
        finally:
            await client.aclose()

    def _get_refresh_lock(self, token_id: str) -> Any:
        lock = self._refresh_locks.pop(token_id, None) or anyio.Lock()
        self._refresh_locks[token_id] = lock
        while len(self._refresh_locks) > _REFRESH_LOCK_CACHE_SIZE:
            del self._refresh_locks[next(iter(self._refresh_locks))]
        return lock

    # --- codes -------------------------------------------------------------------------------------------------------

    async def load_authorization_code(
        self: Any, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        """Return a code that was given to a client, or None."""
        found = await self._code_store.get(key=authorization_code)
        if found is None or found.client_id != client.client_id:
            return None
        if found.expires_at < time.time():
            await self._code_store.delete(key=authorization_code)
            return None
        return AuthorizationCode(
            code=authorization_code,
            client_id=found.client_id,
            redirect_uri=found.redirect_uri,
            redirect_uri_provided_explicitly=True,
            scopes=found.scopes,
            expires_at=found.expires_at,
            code_challenge=found.code_challenge or "",
        )

    async def exchange_authorization_code(
        self: Any, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        """Exchange a code for tokens of ours; the provider's stay here.

        Raises:
            TokenError: the code is unknown, or the provider's token is not usable.
        """
        code = await self._code_store.get(key=authorization_code.code)
        if code is None:
            raise TokenError("invalid_grant", "Authorization code not found")
        tokens = code.idp_tokens
        lifetime = self._upstream_lifetime(tokens)
        await self._code_store.delete(key=authorization_code.code)
        scopes = self._granted(tokens, authorization_code.scopes)
        refresh = tokens.get("refresh_token")
        refresh_lifetime = self._refresh_lifetime(tokens) if refresh else None
        now = time.time()
        upstream = UpstreamTokenSet(
            upstream_token_id=secrets.token_urlsafe(32),
            access_token=tokens["access_token"],
            refresh_token=refresh,
            refresh_token_expires_at=now + refresh_lifetime if refresh_lifetime else None,
            expires_at=now + lifetime,
            token_type=tokens.get("token_type", "Bearer"),
            scope=" ".join(scopes),
            client_id=str(client.client_id),
            created_at=now,
            raw_token_data=tokens,
        )
        claims = await self._extract_upstream_claims(tokens)
        return await self._issue(upstream, scopes, (lifetime, refresh_lifetime), claims)  # type: ignore[no-any-return]

    def _granted(self, tokens: dict[str, Any], asked: list[str]) -> list[str]:
        """Return the scopes that the provider granted, or those that were asked for if it does not say."""
        given = tokens.get("scope")
        if isinstance(given, str) and given.strip():
            return self._translate_scopes_from_idp(given.replace(",", " ").split())
        return list(asked)

    def _upstream_lifetime(self: Any, tokens: dict[str, Any]) -> int:
        """Return for how long the provider's token is valid."""
        given = tokens.get("expires_in")
        if given is not None:
            if int(given) <= 0:
                raise TokenError("invalid_grant", "The identity provider issued a token that has expired already")
            return int(given)
        if self._fallback_access_token_expiry_seconds is not None:
            return int(self._fallback_access_token_expiry_seconds)
        if tokens.get("refresh_token"):
            return DEFAULT_ACCESS_TOKEN_EXPIRY_SECONDS
        return DEFAULT_ACCESS_TOKEN_EXPIRY_NO_REFRESH_SECONDS

    def _refresh_lifetime(self: Any, tokens: dict[str, Any]) -> int:
        given = tokens.get("refresh_expires_in")
        # Keycloak sends 0 for tokens that do not expire.
        return int(given) if given and int(given) > 0 else int(self._fallback_refresh_token_expiry_seconds)

    async def _issue(
        self: Any,
        upstream: UpstreamTokenSet,
        scopes: list[str],
        lifetimes: tuple[int, int | None],
        claims: dict[str, Any] | None,
    ) -> OAuthToken:
        """Store the provider's tokens and return ours."""
        lifetime, refresh_lifetime = lifetimes
        configured = self._fastmcp_access_token_expiry_seconds
        ours = lifetime
        if configured is not None:
            # Without a refresh token the provider's cannot be renewed, so ours must not outlive it.
            ours = configured if upstream.refresh_token else min(configured, lifetime)
        now = time.time()
        ttl = max(lifetime, ours, refresh_lifetime or 0, 1)
        await self._upstream_token_store.put(key=upstream.upstream_token_id, value=upstream, ttl=ttl)
        access_jti, refresh_jti = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        access = self.jwt_issuer.issue_access_token(
            client_id=upstream.client_id, scopes=scopes, jti=access_jti, expires_in=ours, upstream_claims=claims
        )
        await self._map(access_jti, upstream.upstream_token_id, ours)
        refresh: str | None = None
        if upstream.refresh_token and refresh_lifetime:
            refresh = self.jwt_issuer.issue_refresh_token(
                client_id=upstream.client_id,
                scopes=scopes,
                jti=refresh_jti,
                expires_in=refresh_lifetime,
                upstream_claims=claims,
            )
            await self._map(refresh_jti, upstream.upstream_token_id, refresh_lifetime)
            record = RefreshTokenMetadata(
                client_id=upstream.client_id, scopes=scopes, expires_at=int(now) + refresh_lifetime, created_at=now
            )
            await self._refresh_token_store.put(key=hash_token(refresh), value=record, ttl=refresh_lifetime)
        return OAuthToken(
            access_token=access, token_type="Bearer", expires_in=ours, refresh_token=refresh, scope=" ".join(scopes)
        )

    async def _map(self: Any, jti: str, upstream_token_id: str, seconds: int) -> None:
        mapping = JTIMapping(jti=jti, upstream_token_id=upstream_token_id, created_at=time.time())
        await self._jti_mapping_store.put(key=jti, value=mapping, ttl=seconds)

    # --- refreshing --------------------------------------------------------------------------------------------------

    async def load_refresh_token(
        self: Any, client: OAuthClientInformationFull, refresh_token: str
    ) -> RefreshToken | None:
        """Return a refresh token of a client, or None."""
        found = await self._refresh_token_store.get(key=hash_token(refresh_token))
        if found is None:
            log.warning("Refresh token not found for client %s: it was used, revoked or has expired", client.client_id)
            return None
        if found.client_id != client.client_id:
            return None
        return RefreshToken(
            token=refresh_token, client_id=found.client_id, scopes=found.scopes, expires_at=found.expires_at
        )

    async def exchange_refresh_token(
        self: Any, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        """Exchange a refresh token of ours, after renewing the provider's token.

        Raises:
            TokenError: the token is not valid, or the provider refuses.
        """
        try:
            claims = self.jwt_issuer.verify_token(refresh_token.token, expected_token_use="refresh")
        except JoseError as error:
            raise TokenError("invalid_grant", "Invalid refresh token") from error
        mapping = await self._jti_mapping_store.get(key=claims["jti"])
        upstream = await self._upstream_token_store.get(key=mapping.upstream_token_id) if mapping else None
        if upstream is None or not upstream.refresh_token:
            raise TokenError("invalid_grant", "Refresh token is not known any more")
        try:
            tokens = await self._refresh_upstream(upstream, scopes)
        except OAuthError as error:
            if error.error == "invalid_grant":
                raise TokenError("invalid_grant", "Upstream refresh token was rejected") from error
            raise
        lifetime = self._upstream_lifetime({**tokens, "refresh_token": upstream.refresh_token})
        refresh_lifetime = self._renew(upstream, tokens, lifetime, scopes)
        found = await self._extract_upstream_claims(tokens)
        granted = self._granted(tokens, scopes)
        issued = await self._issue(upstream, granted, (lifetime, refresh_lifetime), found)
        # Last, so that a failure leaves the client with a token that works.
        await self._jti_mapping_store.delete(key=claims["jti"])
        await self._refresh_token_store.delete(key=hash_token(refresh_token.token))
        return issued  # type: ignore[no-any-return]

    async def _refresh_upstream(self: Any, upstream: UpstreamTokenSet, scopes: list[str]) -> dict[str, Any]:
        wanted = self._prepare_scopes_for_upstream_refresh(scopes)
        async with self._upstream_oauth_client() as client:
            found: dict[str, Any] = await client.refresh_token(
                url=self._upstream_token_endpoint,
                refresh_token=upstream.refresh_token,
                scope=" ".join(wanted) if wanted else None,
                **self._extra_token_params,
            )
        return found

    def _renew(self: Any, upstream: UpstreamTokenSet, tokens: dict[str, Any], lifetime: int, scopes: list[str]) -> int:
        """Put a provider's answer into a token set; return for how long its refresh token is valid."""
        now = time.time()
        rotated = tokens.get("refresh_token")
        upstream.access_token = tokens["access_token"]
        upstream.expires_at = now + lifetime
        upstream.token_type = tokens.get("token_type", upstream.token_type)
        upstream.scope = " ".join(self._granted(tokens, scopes))
        # What an answer leaves out, such as the ID token, stays.
        upstream.raw_token_data = {**upstream.raw_token_data, **tokens}
        if tokens.get("refresh_expires_in") or (rotated and rotated != upstream.refresh_token):
            upstream.refresh_token_expires_at = now + self._refresh_lifetime(tokens)
        elif upstream.refresh_token_expires_at is None:
            upstream.refresh_token_expires_at = now + self._fallback_refresh_token_expiry_seconds
        upstream.refresh_token = rotated or upstream.refresh_token
        return max(1, int((upstream.refresh_token_expires_at or now) - now))

    async def _try_transparent_refresh(self: Any, upstream_token_set: UpstreamTokenSet) -> UpstreamTokenSet:
        """Return a token set whose access token was renewed; the same if that failed."""
        key = upstream_token_set.upstream_token_id
        async with self._get_refresh_lock(key):
            current: UpstreamTokenSet = await self._upstream_token_store.get(key=key) or upstream_token_set
            if not self._is_due(current):
                return current
            try:
                tokens = await self._refresh_upstream(current, current.scope.split())
                lifetime = self._upstream_lifetime({**tokens, "refresh_token": current.refresh_token})
                refresh_lifetime = self._renew(current, tokens, lifetime, current.scope.split())
            except Exception:
                log.warning("The identity provider's token could not be renewed", exc_info=True)
                # Another process may have renewed it meanwhile.
                stored: UpstreamTokenSet | None = await self._upstream_token_store.get(key=key)
                return stored or current
            await self._upstream_token_store.put(key=key, value=current, ttl=max(lifetime, refresh_lifetime))
            return current

    def _is_due(self: Any, upstream: UpstreamTokenSet) -> bool:
        threshold = self._token_expiry_threshold_seconds
        return bool(upstream.refresh_token) and upstream.expires_at - time.time() <= threshold

    # --- access tokens -----------------------------------------------------------------------------------------------

    async def load_access_token(self: Any, token: str) -> AccessToken | None:
        """Return what a token of ours stands for, or None: the provider's token behind it must be valid too."""
        try:
            claims = self.jwt_issuer.verify_token(token)
        except JoseError as error:
            log.debug("A token is not one of ours: %s", error)
            return None
        mapping = await self._jti_mapping_store.get(key=claims["jti"])
        if mapping is None:
            return None
        if claims.get("fastmcp_grant") == _ASSERTED:
            return self._asserted(token, claims)  # type: ignore[no-any-return]
        upstream = await self._upstream_token_store.get(key=mapping.upstream_token_id)
        if upstream is None:
            return None
        if self._is_due(upstream):
            upstream = await self._try_transparent_refresh(upstream)
        verifiable = self._get_verification_token(upstream)
        found = await self._token_validator.verify_token(verifiable) if verifiable else None
        if found is None:
            return None
        return self._completed(found, upstream, claims)  # type: ignore[no-any-return]

    def _completed(
        self: Any, found: AccessToken, upstream: UpstreamTokenSet, claims: dict[str, Any]
    ) -> AccessToken | None:
        changes: dict[str, Any] = {}
        if self._uses_alternate_verification():
            scopes = upstream.scope.split()
            if not set(self.required_scopes) <= set(scopes):
                return None
            changes = {
                "token": upstream.access_token,
                "scopes": scopes,
                "expires_at": int(upstream.expires_at),
            }
        if claims.get("upstream_claims"):
            # A copy: the verifier may have cached the object.
            changes["claims"] = {**(found.claims or {}), "upstream_claims": claims["upstream_claims"]}
        return found.model_copy(update=changes) if changes else found

    def _asserted(self: Any, token: str, claims: dict[str, Any]) -> AccessToken | None:
        if self._identity_assertion_validator is None:
            return None
        return FastAccessToken(
            token=token,
            client_id=claims["client_id"],
            scopes=claims.get("scope", "").split(),
            expires_at=claims["exp"],
            subject=claims.get("sub"),
            claims=claims,
        )

    async def exchange_identity_assertion(
        self: Any, client: OAuthClientInformationFull, params: IdentityAssertionParams
    ) -> OAuthToken:
        """Exchange an identity assertion for a short-lived token.

        Raises:
            TokenError: the assertion is not valid, or the token is wanted for another resource.
        """
        from trunkline.compat.auth.oauth_proxy.proxy import resource_matches

        if params.resource and not resource_matches(params.resource, self._resource_url):
            raise TokenError("invalid_target", "Resource does not match this server")
        config = self._identity_assertion
        try:
            claims = await self._identity_assertion_validator.validate(
                params.assertion, client_id=str(client.client_id), resource_url=str(self._resource_url)
            )
        except IdentityAssertionError as error:
            raise TokenError("invalid_grant", str(error)) from error
        given = claims.get("scope")
        scopes = given.split() if isinstance(given, str) else [str(each) for each in given or ()]
        if params.scopes:
            wanted = {*params.scopes, *(config.required_scopes or ())}
            scopes = [each for each in scopes if each in wanted]
        jti, lifetime = secrets.token_urlsafe(32), config.access_token_expiry_seconds
        issued = self.jwt_issuer.issue_access_token(
            client_id=str(client.client_id),
            scopes=scopes,
            jti=jti,
            expires_in=lifetime,
            subject=claims["sub"],
            extra_claims={"fastmcp_grant": _ASSERTED, "asserted_by": claims["iss"]},
        )
        # The token is valid for as long as this is stored.
        await self._map(jti, "", lifetime)
        return OAuthToken(access_token=issued, expires_in=lifetime, scope=" ".join(scopes) or None)

    # --- revocation --------------------------------------------------------------------------------------------------

    async def revoke_token(self: Any, token: AccessToken | RefreshToken) -> None:
        """Revoke a token here, and at the provider if it has an endpoint for that."""
        if isinstance(token, RefreshToken):
            await self._refresh_token_store.delete(key=hash_token(token.token))
        upstream = await self._upstream_to_revoke(token)
        if upstream is None or not self._upstream_revocation_endpoint:
            return
        secret = self._upstream_client_secret
        auth = (self._upstream_client_id, secret.get_secret_value()) if secret is not None else None
        try:
            async with http_client(None, HTTP_TIMEOUT_SECONDS) as client:
                await client.post(self._upstream_revocation_endpoint, data={"token": upstream}, auth=auth)
        except Exception:
            log.warning("Failed to revoke token with upstream server", exc_info=True)

    async def _upstream_to_revoke(self: Any, token: AccessToken | RefreshToken) -> str | None:
        """Forget the token's identifier; return the provider's token behind it."""
        refresh = isinstance(token, RefreshToken)
        try:
            claims = self.jwt_issuer.verify_token(token.token, expected_token_use="refresh" if refresh else "access")
        except JoseError as error:
            if refresh:
                log.warning("Failed to revoke token with upstream server: %s", error)
                return None
            # What a verifier returned is the provider's token itself.
            return token.token
        mapping = await self._jti_mapping_store.get(key=claims["jti"])
        await self._jti_mapping_store.delete(key=claims["jti"])
        if mapping is None:
            log.warning("No JTI mapping found for %s token", "refresh" if refresh else "access")
            return None
        found = await self._upstream_token_store.get(key=mapping.upstream_token_id)
        upstream = None if found is None else found.refresh_token if refresh else found.access_token
        if not upstream and refresh:
            log.warning("No upstream refresh token found: it is revoked here only")
        return upstream or None

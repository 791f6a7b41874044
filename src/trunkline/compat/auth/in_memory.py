"""``InMemoryOAuthProvider``: an authorization server in memory that asks no user; for tests."""

from __future__ import annotations

import secrets
import time
from typing import Any

from trunkline.compat.auth.base import OAuthProvider
from trunkline.compat.auth.records import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    AuthorizeError,
    ClientRegistrationOptions,
    FastAccessToken,
    OAuthClientInformationFull,
    OAuthToken,
    RefreshToken,
    RegistrationError,
    RevocationOptions,
    TokenError,
    construct_redirect_uri,
)

__all__ = ["InMemoryOAuthProvider"]

DEFAULT_AUTH_CODE_EXPIRY_SECONDS = 5 * 60  # As FastMCP has it, like the next two.
DEFAULT_ACCESS_TOKEN_EXPIRY_SECONDS = 60 * 60  # An hour is what most providers issue.
DEFAULT_REFRESH_TOKEN_EXPIRY_SECONDS = None


class InMemoryOAuthProvider(OAuthProvider):
    """An authorization server in memory: every registered client is authorized at once."""

    def __init__(
        self,
        *,
        base_url: Any = None,
        resource_base_url: Any = None,
        issuer_url: Any = None,
        service_documentation_url: Any = None,
        client_registration_options: ClientRegistrationOptions | None = None,
        revocation_options: RevocationOptions | None = None,
        required_scopes: list[str] | None = None,
    ) -> None:
        """Start without clients and tokens."""
        super().__init__(
            base_url=base_url or "http://fastmcp.example.com",
            resource_base_url=resource_base_url,
            issuer_url=issuer_url,
            service_documentation_url=service_documentation_url,
            client_registration_options=client_registration_options,
            revocation_options=revocation_options,
            required_scopes=required_scopes,
        )
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.auth_codes: dict[str, AuthorizationCode] = {}
        self.access_tokens: dict[str, AccessToken] = {}
        self.refresh_tokens: dict[str, RefreshToken] = {}
        self._access_to_refresh_map: dict[str, str] = {}
        self._refresh_to_access_map: dict[str, str] = {}

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        """Return a registered client, or None."""
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        """Register a client.

        Raises:
            RegistrationError: it asks for scopes that are not offered.
        """
        options = self.client_registration_options
        if client_info.client_id is None:
            raise RegistrationError("invalid_client_metadata", "client_id is required")
        if client_info.scope is not None and options is not None and options.valid_scopes is not None:
            extra = sorted(set(client_info.scope.split()) - set(options.valid_scopes))
            if extra:
                raise RegistrationError("invalid_client_metadata", f"Requested scopes are not valid: {extra}")
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        """Return the client's own address with a code.

        Raises:
            AuthorizeError: the client is not registered.
        """
        if client.client_id not in self.clients:
            raise AuthorizeError("unauthorized_client", f"Client '{client.client_id}' not registered.")
        scopes = params.scopes or []
        if client.scope is not None:
            allowed = client.scope.split()
            scopes = [each for each in scopes if each in allowed] or allowed
        code = AuthorizationCode(
            code=f"test_auth_code_{secrets.token_hex(16)}",
            client_id=client.client_id,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            scopes=scopes,
            expires_at=time.time() + DEFAULT_AUTH_CODE_EXPIRY_SECONDS,
            code_challenge=params.code_challenge,
            resource=params.resource,
        )
        self.auth_codes[code.code] = code
        return construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        """Return a code of a client, or None."""
        found = self.auth_codes.get(authorization_code)
        if found is None or found.client_id != client.client_id:
            return None
        if found.expires_at < time.time():
            del self.auth_codes[authorization_code]
            return None
        return found

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        """Return the tokens for a code, which is used up.

        Raises:
            TokenError: the code is unknown or used.
        """
        if self.auth_codes.pop(authorization_code.code, None) is None:
            raise TokenError("invalid_grant", "Authorization code not found or already used.")
        return self._issue(str(client.client_id), authorization_code.scopes)

    def _issue(self, client_id: str, scopes: list[str]) -> OAuthToken:
        access, refresh = f"test_access_token_{secrets.token_hex(32)}", f"test_refresh_token_{secrets.token_hex(32)}"
        until = int(time.time()) + DEFAULT_ACCESS_TOKEN_EXPIRY_SECONDS
        self.access_tokens[access] = FastAccessToken(token=access, client_id=client_id, scopes=scopes, expires_at=until)
        self.refresh_tokens[refresh] = RefreshToken(token=refresh, client_id=client_id, scopes=scopes)
        self._access_to_refresh_map[access] = refresh
        self._refresh_to_access_map[refresh] = access
        return OAuthToken(
            access_token=access,
            expires_in=DEFAULT_ACCESS_TOKEN_EXPIRY_SECONDS,
            refresh_token=refresh,
            scope=" ".join(scopes),
        )

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        """Return a refresh token of a client, or None."""
        found = self.refresh_tokens.get(refresh_token)
        if found is None or found.client_id != client.client_id:
            return None
        if found.expires_at is not None and found.expires_at < time.time():
            self._revoke_internal(refresh_token_str=refresh_token)
            return None
        return found

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        """Return new tokens for a refresh token, which is used up.

        Raises:
            TokenError: it does not have the scopes.
        """
        if not set(scopes) <= set(refresh_token.scopes):
            raise TokenError("invalid_scope", "Requested scopes exceed those authorized by the refresh token.")
        self._revoke_internal(refresh_token_str=refresh_token.token)
        return self._issue(str(client.client_id), scopes)

    async def load_access_token(self, token: str) -> AccessToken | None:
        """Return what an access token stands for, or None."""
        found = self.access_tokens.get(token)
        if found is not None and found.expires_at is not None and found.expires_at < time.time():
            self._revoke_internal(access_token_str=token)
            return None
        return found

    def _revoke_internal(self, access_token_str: str | None = None, refresh_token_str: str | None = None) -> None:
        """Forget a token and the one that was issued with it."""
        access = access_token_str or self._refresh_to_access_map.get(refresh_token_str or "")
        refresh = refresh_token_str or self._access_to_refresh_map.get(access_token_str or "")
        if access is not None:
            self.access_tokens.pop(access, None)
            self._access_to_refresh_map.pop(access, None)
        if refresh is not None:
            self.refresh_tokens.pop(refresh, None)
            self._refresh_to_access_map.pop(refresh, None)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        """Revoke a token and the one that was issued with it."""
        if isinstance(token, RefreshToken):
            self._revoke_internal(refresh_token_str=token.token)
        else:
            self._revoke_internal(access_token_str=token.token)

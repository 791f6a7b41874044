"""Microsoft Entra ID: scopes have the application's URI in front of them at the service, and not here."""

from __future__ import annotations

import logging
from hashlib import sha256
from typing import Any

from trunkline.compat.auth.base import AuthProvider, MultiAuth
from trunkline.compat.auth.jwt_verifier import JWTVerifier, decode_part
from trunkline.compat.auth.oauth_proxy.proxy import OAuthProxy
from trunkline.compat.auth.records import AuthorizationParams, OAuthClientInformationFull
from trunkline.compat.dependencies import Dependency

__all__ = [
    "OIDC_SCOPES",
    "AzureJWTVerifier",
    "AzureProvider",
    "EntraOBOToken",
    "OnBehalfOfToken",
    "find_azure_provider",
]

log = logging.getLogger("fastmcp.server.auth.providers.azure")

OIDC_SCOPES = frozenset({"openid", "profile", "email", "offline_access"})
#: Tenants that stand for many: tokens name the user's own tenant as the issuer.
_SHARED_TENANTS = ("organizations", "consumers", "common")
_CLAIMS = ("sub", "oid", "tid", "azp", "name", "given_name", "family_name", "preferred_username", "upn", "email")
_CREDENTIALS = 128  # One for each user of the last minutes; each holds connections.


def _prefixed(scopes: list[str], identifier_uri: str) -> list[str]:
    return [
        scope if scope in OIDC_SCOPES or "://" in scope or "/" in scope else f"{identifier_uri}/{scope}"
        for scope in scopes
    ]


def _once(scopes: list[str]) -> list[str]:
    return list(dict.fromkeys(scopes))


class AzureProvider(OAuthProxy):
    """Sign-in with Microsoft Entra ID."""

    def __init__(
        self,
        *,
        client_id: str,
        client_secret: str | None = None,
        tenant_id: str,
        required_scopes: list[str],
        base_url: Any,
        identifier_uri: str | None = None,
        additional_authorize_scopes: list[str] | None = None,
        base_authority: str = "login.microsoftonline.com",
        token_issuer: str | None = None,
        extra_authorize_params: dict[str, str] | None = None,
        http_client: Any = None,
        **options: Any,
    ) -> None:
        """Initialize with the application and its tenant; further options are those of the OAuth proxy.

        Raises:
            ValueError: no scope of the application itself is required.
        """
        own = [scope for scope in required_scopes or () if scope not in OIDC_SCOPES]
        if not own:
            # A token with OpenID scopes only is issued for Microsoft Graph and cannot be verified here.
            raise ValueError("required_scopes must include at least one non-OIDC scope of your API")
        self.identifier_uri = identifier_uri or f"api://{client_id}"
        self.additional_authorize_scopes = _once([*(additional_authorize_scopes or ()), "offline_access"])
        self._tenant_id, self._base_authority = tenant_id, base_authority
        self._is_b2c = False
        self._obo_max_credentials = _CREDENTIALS
        self._obo_credentials: dict[str, Any] = {}
        root = f"https://{base_authority}/{tenant_id}"
        issuer = token_issuer or (None if tenant_id in _SHARED_TENANTS else f"{root}/v2.0")
        super().__init__(
            upstream_authorization_endpoint=f"{root}/oauth2/v2.0/authorize",
            upstream_token_endpoint=f"{root}/oauth2/v2.0/token",
            upstream_client_id=client_id,
            upstream_client_secret=client_secret,
            token_verifier=JWTVerifier(
                jwks_uri=f"{root}/discovery/v2.0/keys",
                issuer=issuer,
                audience=[client_id, self.identifier_uri],
                algorithm="RS256",
                required_scopes=own,
                http_client=http_client,
            ),
            base_url=base_url,
            valid_scopes=list(required_scopes),
            extra_authorize_params={"prompt": "select_account", **(extra_authorize_params or {})},
            **options,
        )

    @classmethod
    def from_b2c(
        cls,
        *,
        tenant_name: str,
        policy_name: str,
        client_id: str,
        client_secret: str | None = None,
        required_scopes: list[str],
        base_url: str,
        custom_domain: str | None = None,
        identifier_uri: str | None = None,
        token_issuer: str | None = None,
        **kwargs: Any,
    ) -> AzureProvider:
        """Make a provider for a user flow of Azure AD B2C.

        Raises:
            ValueError: the tenant is not a short name.
        """
        if "onmicrosoft.com" in tenant_name:
            raise ValueError("tenant_name must be the short name, without .onmicrosoft.com")
        domain = (custom_domain or f"{tenant_name}.b2clogin.com").removeprefix("https://").removeprefix("http://")
        prompt = (kwargs.get("extra_authorize_params") or {}).get("prompt")
        provider = cls(
            client_id=client_id,
            client_secret=client_secret,
            tenant_id=f"{tenant_name}.onmicrosoft.com/{policy_name}",
            required_scopes=required_scopes,
            base_url=base_url,
            identifier_uri=identifier_uri or f"https://{tenant_name}.onmicrosoft.com/{client_id}",
            base_authority=domain.rstrip("/"),
            token_issuer=token_issuer,
            **kwargs,
        )
        provider._is_b2c = True
        # The issuer of B2C contains the tenant's GUID, which is not known here.
        provider._token_validator.issuer = token_issuer
        if prompt is None:
            # User flows do not know this prompt and fail.
            provider._extra_authorize_params.pop("prompt", None)
        return provider

    # --- scopes ------------------------------------------------------------------------------------------------------

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        """Begin an authorization; the second version of Entra's endpoints has scopes instead of resources."""
        return await super().authorize(client, params.model_copy(update={"resource": None}))

    def _prefix_scopes_for_azure(self, scopes: list[str]) -> list[str]:
        return _prefixed(scopes, self.identifier_uri)

    def _translate_scopes_from_idp(self, scopes: list[str]) -> list[str]:
        return [scope.removeprefix(f"{self.identifier_uri}/") for scope in scopes]

    def _build_upstream_authorize_url(self, txn_id: str, transaction: dict[str, Any]) -> str:
        asked = self._prefix_scopes_for_azure(transaction.get("scopes") or self.required_scopes)
        scopes = _once([*asked, *self.additional_authorize_scopes])
        return super()._build_upstream_authorize_url(txn_id, {**transaction, "scopes": scopes})

    def _for_one_resource(self, scopes: list[str]) -> list[str]:
        # A token is for one resource: scopes of others may be consented to, and not requested with it.
        asked = self._prefix_scopes_for_azure(scopes or self.required_scopes)
        return _once([*asked, *(scope for scope in self.additional_authorize_scopes if scope in OIDC_SCOPES)])

    def _prepare_scopes_for_token_exchange(self, scopes: list[str]) -> list[str]:
        return self._for_one_resource(scopes)

    def _prepare_scopes_for_upstream_refresh(self, scopes: list[str]) -> list[str]:
        return self._for_one_resource([scope for scope in scopes if scope not in self.additional_authorize_scopes])

    async def _extract_upstream_claims(self, idp_tokens: dict[str, Any]) -> dict[str, Any] | None:
        try:
            # Unverified: it came from the provider itself, over TLS.
            claims = decode_part(str(idp_tokens.get("access_token")), 1)
        except ValueError:
            return None
        found = {name: claims[name] for name in (*_CLAIMS, "roles", "groups") if claims.get(name) is not None}
        return found or None

    # --- on behalf of ------------------------------------------------------------------------------------------------

    async def get_obo_credential(self, user_assertion: str) -> Any:
        """Return a credential that acts for the user of a token.

        Raises:
            NotImplementedError: B2C does not support it.
            ImportError: the library is not installed.
        """
        if self._is_b2c:
            raise NotImplementedError("OBO (on-behalf-of) is not supported by Azure AD B2C")
        _require_azure_identity()
        from azure.identity import aio  # type: ignore[import-not-found, unused-ignore]

        key = sha256(user_assertion.encode()).hexdigest()
        known = self._obo_credentials.pop(key, None)
        if known is None:
            secret = self._upstream_client_secret
            if secret is None:
                raise ValueError("OBO (on-behalf-of) requires client_secret")
            known = aio.OnBehalfOfCredential(
                tenant_id=self._tenant_id,
                client_id=self._upstream_client_id,
                client_secret=secret.get_secret_value(),
                user_assertion=user_assertion,
                authority=f"https://{self._base_authority}",
            )
        self._obo_credentials[key] = known
        while len(self._obo_credentials) > self._obo_max_credentials:
            await self._obo_credentials.pop(next(iter(self._obo_credentials))).close()
        return known

    async def close_obo_credentials(self) -> None:
        """Close all credentials."""
        credentials, self._obo_credentials = list(self._obo_credentials.values()), {}
        for each in credentials:
            await each.close()


class AzureJWTVerifier(JWTVerifier):
    """Tokens of an application in Entra ID, for a server that clients of that tenant reach directly."""

    def __init__(
        self,
        *,
        client_id: str,
        tenant_id: str,
        required_scopes: list[str] | None = None,
        identifier_uri: str | None = None,
        base_authority: str = "login.microsoftonline.com",
    ) -> None:
        """Initialize with the application and its tenant."""
        self._identifier_uri = identifier_uri or f"api://{client_id}"
        root = f"https://{base_authority}/{tenant_id}"
        super().__init__(
            jwks_uri=f"{root}/discovery/v2.0/keys",
            issuer=None if tenant_id in _SHARED_TENANTS else f"{root}/v2.0",
            audience=_once([client_id, f"api://{client_id}", self._identifier_uri])
            if identifier_uri is None
            else _once([client_id, identifier_uri]),
            algorithm="RS256",
            required_scopes=required_scopes,
        )

    @property
    def scopes_supported(self) -> list[str]:
        """The required scopes as clients request them."""
        return _prefixed(self.required_scopes, self._identifier_uri)

    def get_challenge_scopes(self, required_scopes: list[str] | None = None) -> list[str]:
        """Return required scopes as clients request them."""
        return _prefixed(self.required_scopes if required_scopes is None else required_scopes, self._identifier_uri)


def _require_azure_identity() -> None:
    from importlib.util import find_spec

    if find_spec("azure") is None or find_spec("azure.identity") is None:
        raise ImportError("On-behalf-of tokens need the azure-identity package: pip install 'fastmcp[azure]'")


def find_azure_provider(auth: AuthProvider | None) -> AzureProvider | None:
    """Return the Azure provider among a server's sources of tokens."""
    if isinstance(auth, MultiAuth):
        auth = auth.server
    return auth if isinstance(auth, AzureProvider) else None


class OnBehalfOfToken(Dependency):
    """A token for another service, on behalf of the caller."""

    def __init__(self, scopes: list[str]) -> None:
        """Initialize with the scopes at the other service."""
        self.scopes = scopes

    async def __aenter__(self) -> str:
        """Exchange the caller's token.

        Raises:
            RuntimeError: the request has no token, or the server no Azure provider.
        """
        from trunkline.compat.dependencies import get_access_token, get_server

        _require_azure_identity()
        token = get_access_token()
        if token is None:
            raise RuntimeError("No access token available: the request is not authenticated")
        provider = find_azure_provider(get_server().auth)
        if provider is None:
            raise RuntimeError("EntraOBOToken requires an AzureProvider as the server's auth")
        credential = await provider.get_obo_credential(user_assertion=token.token)
        return str((await credential.get_token(*self.scopes)).token)


def EntraOBOToken(scopes: list[str]) -> Any:
    """Ask for a token for another service, on behalf of the caller."""
    return OnBehalfOfToken(scopes)

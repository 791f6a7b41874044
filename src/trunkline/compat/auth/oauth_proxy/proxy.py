"""``OAuthProxy``: clients register here, users sign in at an identity provider with one client ID of ours.

A client gets tokens of ours, never the provider's. An authorization is: a transaction, consent, the provider's sign-in,
the callback with the provider's code, and a code of ours for the client.
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from typing import Any, Literal
from urllib.parse import urlencode

from pydantic import AnyHttpUrl, AnyUrl, SecretStr
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from trunkline.compat.auth.base import OAuthProvider
from trunkline.compat.auth.cimd import CIMDClientManager
from trunkline.compat.auth.identity_assertion import (
    IdentityAssertion,
    IdentityAssertionValidator,
    normalize_resource_url,
    server_url_has_query,
)
from trunkline.compat.auth.jwt_issuer import JWTIssuer, derive_jwt_key
from trunkline.compat.auth.oauth_proxy.consent import ConsentPages, error_page
from trunkline.compat.auth.oauth_proxy.models import (
    DEFAULT_AUTH_CODE_EXPIRY_SECONDS,
    DEFAULT_REFRESH_TOKEN_EXPIRY_SECONDS,
    TRANSACTION_SECONDS,
    ClientCode,
    JTIMapping,
    OAuthTransaction,
    ProxyDCRClient,
    RefreshTokenMetadata,
    UpstreamTokenSet,
)
from trunkline.compat.auth.oauth_proxy.tokens import TokenExchange
from trunkline.compat.auth.records import (
    JWT_BEARER_GRANT_TYPE,
    AuthorizationParams,
    AuthorizeError,
    ClientRegistrationOptions,
    OAuthClientInformationFull,
    OAuthMetadata,
    RegistrationError,
    RevocationOptions,
)
from trunkline.compat.auth.redirects import is_redirect_uri_allowed_for_application_type, validate_redirect_uri
from trunkline.compat.auth.stores import FileStore, ModelStore

__all__ = ["OAuthProxy", "resource_matches"]

log = logging.getLogger("fastmcp.server.auth.oauth_proxy.proxy")

_CALLBACK = "/auth/callback"
_REFRESH_SECONDS = DEFAULT_REFRESH_TOKEN_EXPIRY_SECONDS
#: Registration requires a redirect URI; this one is stored for a client that named none.
_NO_REDIRECT = AnyUrl("http://localhost")


class OAuthProxy(ConsentPages, TokenExchange, OAuthProvider):
    """An authorization server in front of an identity provider that has no dynamic registration."""

    _identity_fields = ("_upstream_authorization_endpoint", "_upstream_token_endpoint", "_upstream_client_id")

    def __init__(
        self,
        *,
        upstream_authorization_endpoint: str,
        upstream_token_endpoint: str,
        upstream_client_id: str,
        upstream_client_secret: str | None = None,
        upstream_revocation_endpoint: str | None = None,
        token_verifier: Any,
        base_url: Any,
        resource_base_url: Any = None,
        redirect_path: str | None = None,
        issuer_url: Any = None,
        service_documentation_url: Any = None,
        allowed_client_redirect_uris: list[str] | None = None,
        valid_scopes: list[str] | None = None,
        forward_pkce: bool = True,
        forward_resource: bool = True,
        token_endpoint_auth_method: str | None = None,
        extra_authorize_params: dict[str, str] | None = None,
        extra_token_params: dict[str, str] | None = None,
        client_storage: Any = None,
        jwt_signing_key: str | bytes | None = None,
        require_authorization_consent: bool | Literal["remember", "external"] = True,
        consent_csp_policy: str | None = None,
        fallback_access_token_expiry_seconds: int | None = None,
        fallback_refresh_token_expiry_seconds: int | None = None,
        fastmcp_access_token_expiry_seconds: int | None = None,
        token_expiry_threshold_seconds: int = 0,
        enable_cimd: bool = True,
        identity_assertion: IdentityAssertion | None = None,
    ) -> None:
        """Initialize with the provider's endpoints and our credentials there.

        Raises:
            ValueError: there is nothing to derive a signing key from.
        """
        super().__init__(
            base_url=base_url,
            resource_base_url=resource_base_url,
            issuer_url=issuer_url,
            service_documentation_url=service_documentation_url,
            client_registration_options=_registration(list(valid_scopes or token_verifier.required_scopes or ())),
            revocation_options=RevocationOptions(enabled=True) if upstream_revocation_endpoint else None,
            required_scopes=token_verifier.required_scopes,
        )
        self._upstream_authorization_endpoint = upstream_authorization_endpoint
        self._upstream_token_endpoint = upstream_token_endpoint
        self._upstream_client_id = upstream_client_id
        self._upstream_client_secret = SecretStr(upstream_client_secret) if upstream_client_secret else None
        self._upstream_revocation_endpoint = upstream_revocation_endpoint
        self._token_endpoint_auth_method = token_endpoint_auth_method
        self._extra_authorize_params = dict(extra_authorize_params or {})
        self._extra_token_params = dict(extra_token_params or {})
        self._token_validator = token_verifier
        self._redirect_path = f"/{(redirect_path or _CALLBACK).lstrip('/')}"
        self._allowed_client_redirect_uris = allowed_client_redirect_uris
        self._forward_pkce, self._forward_resource = forward_pkce, forward_resource
        self._require_authorization_consent = require_authorization_consent
        self._consent_csp_policy = consent_csp_policy
        self._fallback_access_token_expiry_seconds = fallback_access_token_expiry_seconds
        self._fallback_refresh_token_expiry_seconds = fallback_refresh_token_expiry_seconds or _REFRESH_SECONDS
        self._fastmcp_access_token_expiry_seconds = fastmcp_access_token_expiry_seconds
        self._token_expiry_threshold_seconds = token_expiry_threshold_seconds
        self._prepare((client_storage, jwt_signing_key), enable_cimd, identity_assertion)

    def _prepare(self, kept: tuple[Any, Any], enable_cimd: bool, identity_assertion: IdentityAssertion | None) -> None:
        """Make what the proxy works with: the signing key, the stores, and what knows clients and assertions."""
        storage, key = kept
        self._jwt_signing_key = self._signing_key(key)
        options = self.client_registration_options
        self._default_scope_str = " ".join((options.valid_scopes if options else None) or ())
        self._jwt_issuer: JWTIssuer | None = None
        self._is_https = str(self.base_url).startswith("https://")
        self._refresh_locks: dict[str, Any] = {}
        self._open_stores(storage)
        patterns = self._allowed_client_redirect_uris
        self._cimd_manager: CIMDClientManager | None = (
            CIMDClientManager(True, self._default_scope_str, patterns) if enable_cimd else None
        )
        self._identity_assertion = identity_assertion
        self._identity_assertion_validator: IdentityAssertionValidator | None = (
            IdentityAssertionValidator(identity_assertion, str(self.issuer_url)) if identity_assertion else None
        )

    def _signing_key(self, given: str | bytes | None) -> bytes:
        if isinstance(given, bytes):
            return given
        if given is not None:
            return derive_jwt_key(low_entropy_material=given, salt="fastmcp-jwt-signing-key")
        if self._upstream_client_secret is None:
            raise ValueError("jwt_signing_key is required when upstream_client_secret is not given")
        secret = self._upstream_client_secret.get_secret_value()
        return derive_jwt_key(high_entropy_material=secret, salt="fastmcp-jwt-signing-key")

    def _open_stores(self, storage: Any) -> None:
        if storage is None:
            from trunkline.compat.utilities import settings

            key = derive_jwt_key(high_entropy_material=self._jwt_signing_key.hex(), salt="oauth-proxy-storage")
            # One file for each key, so that a server with another key does not meet records it cannot read.
            name = derive_jwt_key(high_entropy_material=key.decode(), salt="name").decode()[:16]
            storage = FileStore(os.path.join(str(settings.home), "oauth-proxy", f"{name}.db"), key)
        self._client_storage = storage
        self._client_store = ModelStore(storage, ProxyDCRClient, "mcp-oauth-proxy-clients")
        self._transaction_store = ModelStore(storage, OAuthTransaction, "mcp-oauth-transactions")
        self._code_store = ModelStore(storage, ClientCode, "mcp-authorization-codes")
        self._upstream_token_store = ModelStore(storage, UpstreamTokenSet, "mcp-upstream-tokens")
        self._jti_mapping_store = ModelStore(storage, JTIMapping, "mcp-jti-mappings")
        self._refresh_token_store = ModelStore(storage, RefreshTokenMetadata, "mcp-refresh-tokens")

    # --- configuration -----------------------------------------------------------------------------------------------

    def update_default_scopes(self, scopes: list[str]) -> None:
        """Set the scopes that clients may register and get by default."""
        self._default_scope_str = " ".join(scopes)
        if self.client_registration_options is not None:
            self.client_registration_options.valid_scopes = list(scopes)
            self.client_registration_options.default_scopes = list(scopes)
        if self._cimd_manager is not None:
            self._cimd_manager.default_scope = self._default_scope_str

    def set_mcp_path(self, mcp_path: str | None) -> None:
        """Set the path of the endpoint, which is the audience of our tokens."""
        super().set_mcp_path(mcp_path)
        self._jwt_issuer = JWTIssuer(
            issuer=str(self.issuer_url), audience=str(self._resource_url), signing_key=self._jwt_signing_key
        )

    @property
    def jwt_issuer(self) -> JWTIssuer:
        """What signs our tokens.

        Raises:
            RuntimeError: the path of the endpoint is not set yet.
        """
        if self._jwt_issuer is None:
            raise RuntimeError("JWT issuer not initialized: call get_routes() or set_mcp_path() first")
        return self._jwt_issuer

    @property
    def token_endpoint_url(self) -> str:
        """The URL of our token endpoint."""
        return f"{str(self.base_url).rstrip('/')}/token"

    @property
    def identity_assertion_enabled(self) -> bool:
        """Whether identity assertions are accepted."""
        return self._identity_assertion_validator is not None

    # --- clients -----------------------------------------------------------------------------------------------------

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        """Return a client: described by a document, registered, or the one that stands for our own client ID."""
        stored = await self._client_store.get(key=client_id)
        if self._cimd_manager is not None and self._cimd_manager.is_cimd_client_id(client_id):
            described: OAuthClientInformationFull | None = await self._cimd_manager.get_client(client_id)
            if described is None:
                return stored
            if stored is not None:
                await self._client_store.delete(key=client_id)
            return described
        if stored is not None:
            stored.allowed_redirect_uri_patterns = self._allowed_client_redirect_uris
            return stored
        if client_id != self._upstream_client_id:
            return None
        return ProxyDCRClient(
            client_id=client_id,
            client_secret=None,
            redirect_uris=[_NO_REDIRECT],
            scope=self._default_scope_str,
            token_endpoint_auth_method="none",
            allowed_redirect_uri_patterns=self._allowed_client_redirect_uris,
            allow_unregistered_redirect_uris=True,
        )

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        """Register a client; it becomes a public one, since the proxy has no use for its secret.

        Raises:
            RegistrationError: a redirect URI is not allowed.
        """
        if client_info.client_id is None:
            raise RegistrationError("invalid_client_metadata", "client_id is required")
        self._check_redirects(client_info)
        grants = list(client_info.grant_types)
        if self.identity_assertion_enabled and JWT_BEARER_GRANT_TYPE not in grants:
            grants.append(JWT_BEARER_GRANT_TYPE)
        # The handler answers with this object.
        client_info.client_secret = None
        client_info.client_secret_expires_at = None
        client_info.token_endpoint_auth_method = "none"
        client_info.application_type = client_info.application_type or "native"
        client_info.grant_types = grants
        client = ProxyDCRClient(
            client_id=client_info.client_id,
            client_secret=None,
            redirect_uris=client_info.redirect_uris or [_NO_REDIRECT],
            grant_types=grants,
            scope=client_info.scope or self._default_scope_str,
            token_endpoint_auth_method="none",
            application_type=client_info.application_type,
            client_name=client_info.client_name,
            client_uri=client_info.client_uri,
            allowed_redirect_uri_patterns=self._allowed_client_redirect_uris,
        )
        await self._client_store.put(key=client_info.client_id, value=client)

    def _check_redirects(self, client: OAuthClientInformationFull) -> None:
        kind = client.application_type
        if kind == "web" and not client.redirect_uris:
            raise RegistrationError("invalid_redirect_uri", "redirect_uris are required for application_type 'web'")
        for uri in client.redirect_uris or ():
            if not validate_redirect_uri(uri, self._allowed_client_redirect_uris):
                raise RegistrationError("invalid_redirect_uri", f"Redirect URI '{uri}' is not allowed")
            if not is_redirect_uri_allowed_for_application_type(uri, kind):
                raise RegistrationError(
                    "invalid_redirect_uri", f"Redirect URI '{uri}' is not allowed for application_type '{kind}'"
                )

    # --- authorization -----------------------------------------------------------------------------------------------

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        """Begin an authorization; return the URL of the consent page, or of the provider.

        Raises:
            AuthorizeError: the token is wanted for another resource.
        """
        if params.resource and not resource_matches(params.resource, self._resource_url):
            raise AuthorizeError("invalid_target", "Resource does not match this server")
        transaction = OAuthTransaction(
            txn_id=secrets.token_urlsafe(32),
            client_id=str(client.client_id),
            client_redirect_uri=str(params.redirect_uri),
            client_state=params.state or "",
            code_challenge=params.code_challenge,
            code_challenge_method="S256",
            scopes=params.scopes or self.required_scopes,
            created_at=time.time(),
            resource=params.resource,
            proxy_code_verifier=secrets.token_urlsafe(48) if self._forward_pkce else None,
        )
        await self._transaction_store.put(key=transaction.txn_id, value=transaction, ttl=TRANSACTION_SECONDS)
        if self._require_authorization_consent in (True, "remember"):
            query = urlencode({"txn_id": transaction.txn_id})
            return f"{str(self.base_url).rstrip('/')}/consent?{query}"
        return self._build_upstream_authorize_url(transaction.txn_id, transaction.model_dump())

    def _build_upstream_authorize_url(self, txn_id: str, transaction: dict[str, Any]) -> str:
        from trunkline.auth.jose import digest

        query: dict[str, str] = {
            "response_type": "code",
            "client_id": self._upstream_client_id,
            "redirect_uri": self._callback_url,
            "state": txn_id,
        }
        scopes = transaction.get("scopes") or self.required_scopes
        if scopes:
            query["scope"] = " ".join(scopes)
        verifier = transaction.get("proxy_code_verifier")
        if verifier:
            query |= {"code_challenge": digest(verifier), "code_challenge_method": "S256"}
        if self._forward_resource and transaction.get("resource"):
            query["resource"] = transaction["resource"]
        query |= self._extra_authorize_params
        separator = "&" if "?" in self._upstream_authorization_endpoint else "?"
        return f"{self._upstream_authorization_endpoint}{separator}{urlencode(query)}"

    @property
    def _callback_url(self) -> str:
        return f"{str(self.base_url).rstrip('/')}{self._redirect_path}"

    async def _handle_idp_callback(self, request: Request) -> Response:
        """Answer the browser that comes back from the provider."""
        params = request.query_params
        code, state, error = params.get("code"), params.get("state"), params.get("error")
        transaction = await self._transaction_store.get(key=state) if state else None
        if error:
            return self._forward_error(request, transaction, error, params.get("error_description"))
        if not code or not state:
            return error_page(request, "OAuth Error", "The identity provider sent no code or no state.", 400)
        if transaction is None:
            return error_page(request, "OAuth Error", "The request is unknown or has expired; start again.", 400)
        if not validate_redirect_uri(transaction.client_redirect_uri, self._allowed_client_redirect_uris):
            return error_page(request, "OAuth Error", "Invalid redirect URI", 400)
        asks = self._require_authorization_consent in (True, "remember")
        if asks and not self._is_bound(request, state, transaction.consent_token):
            return error_page(
                request, "Authorization Error", "Session mismatch: another browser consented; start again.", 403
            )
        try:
            tokens = await self._fetch_tokens(code, transaction)
        except Exception:
            log.exception("The exchange of a code at the identity provider failed")
            return error_page(request, "OAuth Error", "The identity provider did not accept the code.", 500)
        return await self._issue_code(request, transaction, tokens)

    def _forward_error(
        self, request: Request, transaction: OAuthTransaction | None, error: str, description: str | None
    ) -> Response:
        if transaction is not None:
            params = {"error": error} | ({"error_description": description} if description else {})
            answer: Response = self._answer_client(request, transaction, params)
            return answer
        details = {"Error": error} | ({"Description": description} if description else {})
        return error_page(request, "OAuth Error", "The identity provider refused the sign-in.", 400, details)

    async def _fetch_tokens(self, code: str, transaction: OAuthTransaction) -> dict[str, Any]:
        given: dict[str, Any] = {"url": self._upstream_token_endpoint, "code": code, "redirect_uri": self._callback_url}
        if transaction.proxy_code_verifier:
            given["code_verifier"] = transaction.proxy_code_verifier
        scopes = self._prepare_scopes_for_token_exchange(transaction.scopes)
        if scopes:
            given["scope"] = " ".join(scopes)
        async with self._upstream_oauth_client() as client:
            found: dict[str, Any] = await client.fetch_token(**given, **self._extra_token_params)
        return found

    async def _issue_code(self, request: Request, transaction: OAuthTransaction, tokens: dict[str, Any]) -> Response:
        now = time.time()
        code = ClientCode(
            code=secrets.token_urlsafe(32),
            client_id=transaction.client_id,
            redirect_uri=transaction.client_redirect_uri,
            code_challenge=transaction.code_challenge,
            code_challenge_method=transaction.code_challenge_method,
            scopes=transaction.scopes,
            idp_tokens=tokens,
            expires_at=now + DEFAULT_AUTH_CODE_EXPIRY_SECONDS,
            created_at=now,
        )
        await self._code_store.put(key=code.code, value=code, ttl=DEFAULT_AUTH_CODE_EXPIRY_SECONDS)
        await self._transaction_store.delete(key=transaction.txn_id)
        response: Response = self._answer_client(request, transaction, {"code": code.code})
        if transaction.consent_token:
            self._bind(request, response, transaction.txn_id, None)
        return response

    # --- routes ------------------------------------------------------------------------------------------------------

    def adjust_metadata(self, metadata: OAuthMetadata) -> None:
        """Set in the metadata how clients of the proxy authenticate."""
        documents = self._cimd_manager is not None
        metadata.token_endpoint_auth_methods_supported = [*(["private_key_jwt"] if documents else []), "none"]
        if metadata.revocation_endpoint is not None:
            metadata.revocation_endpoint_auth_methods_supported = metadata.token_endpoint_auth_methods_supported
        metadata.client_id_metadata_document_supported = True if documents else None

    def client_authenticator(self) -> Any:
        """Return what authenticates clients at the token endpoint."""
        from trunkline.compat.auth.fast_routes import PrivateKeyJWTClientAuthenticator
        from trunkline.compat.auth.middleware import ClientAuthenticator

        if self._cimd_manager is None:
            return ClientAuthenticator(self)
        return PrivateKeyJWTClientAuthenticator(self, self._cimd_manager, self.token_endpoint_url)

    def get_routes(self, mcp_path: str | None = None) -> list[Any]:
        """Return the routes of the authorization server, the consent page and the callback."""
        return [
            *super().get_routes(mcp_path),
            Route(self._redirect_path, endpoint=self._handle_idp_callback, methods=["GET"]),
            Route("/consent", endpoint=self._handle_consent, methods=["GET", "POST"]),
        ]


def _registration(scopes: list[str]) -> ClientRegistrationOptions:
    return ClientRegistrationOptions(enabled=True, valid_scopes=scopes or None, default_scopes=scopes or None)


def resource_matches(requested: str, ours: AnyHttpUrl | None) -> bool:
    """Return whether a requested resource is ours; a query counts only if ours has one."""
    if ours is None:
        return True
    if server_url_has_query(str(ours)):
        return requested == str(ours)
    return normalize_resource_url(requested) == normalize_resource_url(str(ours))

"""The auth modules of ``mcp`` and ``fastmcp`` that are replaced, in the form of ``trunkline.compat.names``."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["AUTH_MODULES"]

_SDK_RECORDS = (
    "auth.records: AccessToken TokenVerifier=TokenVerifierProtocol AuthorizationCode AuthorizationParams "
    "AuthorizationErrorCode AuthorizeError IdentityAssertionParams OAuthAuthorizationServerProvider "
    "ProviderTokenVerifier RefreshToken RegistrationError RegistrationErrorCode TokenError TokenErrorCode "
    "construct_redirect_uri principal_components"
)
_SETTINGS = "auth.records: AuthSettings ClientRegistrationOptions RevocationOptions"
_BASE = "auth.base: AuthProvider MultiAuth OAuthProvider RemoteAuthProvider TokenVerifier"
_VERIFIERS = (
    "auth.jwt_verifier: JWKData JWKSData JWTVerifier RSAKeyPair BearerAuthProvider=JWTVerifier time",
    "auth.verifiers: StaticTokenVerifier DebugTokenVerifier IntrospectionTokenVerifier",
)
_CHECKS = "auth.checks: AuthCheck AuthContext require_roles require_scopes restrict_tag run_auth_checks"
_FAST = (
    "auth.records: AccessToken=FastAccessToken AuthorizationCode RefreshToken ClientRegistrationOptions "
    "RevocationOptions AuthSettings",
    _BASE,
    "auth.fast_routes: JWT_BEARER_ASSERTION_TYPE PrivateKeyJWTClientAuthenticator TokenHandler",
)
_PROXY = (
    "auth.oauth_proxy.proxy: OAuthProxy",
    "auth.oauth_proxy.tokens: AsyncOAuth2Client OAuthError _REFRESH_LOCK_CACHE_SIZE",
)
_OIDC = (
    "auth.oidc: OIDCConfiguration OIDCProxy DEFAULT_OIDC_DISCOVERY_TIMEOUT_SECONDS "
    "_OIDC_DISCOVERY_CACHE_TTL_SECONDS=OIDC_DISCOVERY_CACHE_TTL_SECONDS "
    "_clear_oidc_configuration_cache=clear_oidc_configuration_cache monotonic httpx2"
)

_OFFICIAL: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "mcp.server.auth.provider": (_SDK_RECORDS,),
        "mcp.server.auth.settings": (_SETTINGS,),
        "mcp.server.auth.routes": (
            _SETTINGS,
            "auth.routes: AUTHORIZATION_PATH ID_JAG_GRANT_PROFILE REGISTRATION_PATH REVOCATION_PATH TOKEN_PATH "
            "build_metadata build_resource_metadata_url cors_middleware create_auth_routes "
            "create_protected_resource_routes validate_issuer_url",
        ),
        "mcp.server.auth.errors": ("auth.handlers: stringify_pydantic_error",),
        "mcp.server.auth.json_response": ("auth.handlers: PydanticJSONResponse",),
        "mcp.server.auth.handlers.authorize": (
            "auth.handlers: AuthorizationHandler AuthorizationRequest AuthorizationErrorResponse",
        ),
        "mcp.server.auth.handlers.token": ("auth.handlers: TokenHandler TokenErrorResponse TokenSuccessResponse",),
        "mcp.server.auth.handlers.register": (
            "auth.handlers: RegistrationHandler RegistrationRequest RegistrationErrorResponse",
        ),
        "mcp.server.auth.handlers.revoke": (
            "auth.handlers: RevocationHandler RevocationRequest RevocationErrorResponse",
        ),
        "mcp.server.auth.handlers.metadata": ("auth.handlers: MetadataHandler ProtectedResourceMetadataHandler",),
        "mcp.server.auth.middleware.auth_context": (
            "auth.middleware: AuthContextMiddleware",
            "auth.current: auth_context_var get_access_token=get_context_token",
        ),
        "mcp.server.auth.middleware.bearer_auth": (
            "auth.records: AccessToken",
            "auth.middleware: AuthenticatedUser AuthorizationContext BearerAuthBackend RequireAuthMiddleware "
            "authorization_context",
        ),
        "mcp.server.auth.middleware.client_auth": ("auth.middleware: AuthenticationError ClientAuthenticator",),
        "mcp.server.transport_security": ("auth.routes: DEFAULT_MAX_REQUEST_BODY_SIZE",),
        "mcp.server.request_state": ("auth.current: authenticated_principal",),
        "mcp.shared.auth": (
            "auth.records: AuthorizationCodeResult DEFAULT_GRANT_TYPES InvalidRedirectUriError InvalidScopeError "
            "JWT_BEARER_GRANT_TYPE OAuthClientInformation OAuthClientInformationFull OAuthClientMetadata "
            "OAuthMetadata OAuthToken ProtectedResourceMetadata",
        ),
        "mcp.shared.auth_utils": (
            "auth.routes: calculate_token_expiry check_resource_allowed resource_url_from_server_url",
        ),
    }
)

_FASTMCP: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "fastmcp.server.auth": (
            *_FAST,
            *_VERIFIERS,
            *_PROXY,
            _CHECKS,
            "auth.oidc: OIDCProxy",
            "auth.identity_assertion: IdentityAssertion",
        ),
        "fastmcp.server.auth.auth": (*_FAST,),
        "fastmcp.server.auth.authorization": (_CHECKS,),
        "fastmcp.utilities.authorization": (_CHECKS, "auth.checks: scope_requirements"),
        "fastmcp.utilities.auth": ("auth.records: parse_scopes",),
        "fastmcp.utilities.token_cache": ("auth.verifiers: TokenCache",),
        "fastmcp.server.auth.middleware": ("auth.middleware: RequireAuthMiddleware=FastRequireAuthMiddleware",),
        "fastmcp.server.auth.handlers.authorize": (
            "auth.fast_routes: AuthorizationHandler",
            "auth.pages: create_unregistered_client_html",
        ),
        "fastmcp.server.http": ("applications: StarletteWithLifespan",),
        "fastmcp.server.auth.redirect_validation": (
            "auth.redirects: DEFAULT_LOCALHOST_PATTERNS UNSAFE_REDIRECT_URI_SCHEMES add_query_params "
            "build_client_redirect is_loopback_host is_redirect_uri_allowed_for_application_type "
            "matches_allowed_pattern replace_query_param validate_redirect_uri",
        ),
        "fastmcp.server.auth.ssrf": (
            "auth.ssrf: SSRFError SSRFFetchError SSRFFetchResponse ValidatedURL format_ip_for_url is_ip_allowed "
            "resolve_hostname ssrf_safe_fetch ssrf_safe_fetch_response validate_url",
        ),
        "fastmcp.server.auth.jwt_issuer": ("auth.jwt_issuer: JWTIssuer derive_jwt_key",),
        "fastmcp.server.auth.cimd": (
            "auth.cimd: CIMDAssertionValidator CIMDClientManager CIMDDocument CIMDFetchError CIMDFetcher "
            "CIMDValidationError ssrf_safe_fetch_response",
        ),
        "fastmcp.server.auth.identity_assertion": (
            "auth.identity_assertion: ID_JAG_GRANT_PROFILE ID_JAG_TYP IdentityAssertion IdentityAssertionError "
            "IdentityAssertionValidator JWT_BEARER_GRANT_TYPE SUPPORTED_ASSERTION_ALGORITHMS normalize_resource_url "
            "server_url_has_query",
        ),
        "fastmcp.server.auth.oauth_proxy": (*_PROXY,),
        "fastmcp.server.auth.oauth_proxy.proxy": (*_PROXY,),
        "fastmcp.server.auth.oauth_proxy.consent": (
            "auth.oauth_proxy.consent: ConsentMixin=ConsentPages _CONSENT_STATE_COOKIE_BASE=CONSENT_STATE_COOKIE "
            "_MAX_CSRF_TOKENS=MAX_CSRF_TOKENS",
        ),
        "fastmcp.server.auth.oauth_proxy.models": (
            "auth.oauth_proxy.models: ClientCode DEFAULT_ACCESS_TOKEN_EXPIRY_NO_REFRESH_SECONDS "
            "DEFAULT_ACCESS_TOKEN_EXPIRY_SECONDS DEFAULT_AUTH_CODE_EXPIRY_SECONDS "
            "DEFAULT_REFRESH_TOKEN_EXPIRY_SECONDS HTTP_TIMEOUT_SECONDS JTIMapping OAuthTransaction ProxyDCRClient "
            "RefreshTokenMetadata UpstreamTokenSet _hash_token=hash_token",
            "auth.records: InvalidRedirectUriError",
        ),
        "fastmcp.server.auth.oauth_proxy.ui": ("auth.pages: create_consent_html create_error_html",),
        "fastmcp.server.auth.oauth_proxy.upstream": ("auth.oauth_proxy.upstream: AsyncOAuth2Client OAuthError",),
        "fastmcp.server.auth.oidc_proxy": (_OIDC,),
        "fastmcp.server.auth.providers.jwt": (*_VERIFIERS, *_FAST),
        "fastmcp.server.auth.providers.bearer": (*_VERIFIERS, *_FAST),
        "fastmcp.server.auth.providers.debug": (*_VERIFIERS,),
        "fastmcp.server.auth.providers.introspection": (*_VERIFIERS,),
        "fastmcp.dependencies": ("dependencies: Dependency",),
        "fastmcp.client.auth.bearer": ("wire: BearerAuth",),
        "fastmcp.client.auth.oauth": ("wire: OAuth",),
        "fastmcp.utilities.tests": ("auth.testing: HeadlessOAuth run_server_in_process",),
        "fastmcp.server.dependencies": (
            "request_context: FastMCPRequestContext fastmcp_request_ctx",
            "dependencies: Dependency",
        ),
        "fastmcp.server.sessions": ("auth.current: current_principal=authenticated_principal",),
        "fastmcp.server.auth.providers.in_memory": (
            "auth.in_memory: InMemoryOAuthProvider DEFAULT_ACCESS_TOKEN_EXPIRY_SECONDS "
            "DEFAULT_AUTH_CODE_EXPIRY_SECONDS DEFAULT_REFRESH_TOKEN_EXPIRY_SECONDS",
        ),
    }
)

#: By module below ``fastmcp.server.auth.providers``: our module of services, and its names.
_SERVICES = (
    ("github", "userinfo", "GitHubProvider GitHubTokenVerifier"),
    (
        "google",
        "userinfo",
        "GoogleProvider GoogleTokenVerifier GOOGLE_SCOPE_ALIASES _normalize_google_scope=normalize_google_scope",
    ),
    ("discord", "userinfo", "DiscordProvider DiscordTokenVerifier"),
    ("clerk", "userinfo", "ClerkProvider ClerkTokenVerifier"),
    (
        "huggingface",
        "userinfo",
        "DEFAULT_HUGGINGFACE_SCOPES HUGGINGFACE_AUTHORIZATION_ENDPOINT HUGGINGFACE_TOKEN_ENDPOINT "
        "HUGGINGFACE_USERINFO_ENDPOINT HUGGINGFACE_WHOAMI_ENDPOINT HuggingFaceProvider HuggingFaceTokenVerifier",
    ),
    ("keycloak", "remote", "KeycloakAuthProvider"),
    ("supabase", "remote", "SupabaseProvider"),
    ("scalekit", "remote", "ScalekitProvider"),
    ("propelauth", "remote", "PropelAuthProvider PropelAuthTokenIntrospectionOverrides"),
    (
        "descope",
        "remote",
        "DescopeProvider _DescopeJWTVerifier=DescopeJWTVerifier _discover_scopes=discover_scopes",
    ),
    ("auth0", "oidc_services", "Auth0JWTVerifier Auth0MCPProvider Auth0Provider OIDCConfiguration"),
    ("aws", "oidc_services", "AWSCognitoProvider AWSCognitoTokenVerifier"),
    ("oci", "oidc_services", "OCIProvider"),
    (
        "azure",
        "azure",
        "AzureJWTVerifier AzureProvider EntraOBOToken OIDC_SCOPES _EntraOBOToken=OnBehalfOfToken "
        "_find_azure_provider=find_azure_provider",
    ),
)


def _services() -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for module, home, names in _SERVICES:
        found[f"fastmcp.server.auth.providers.{module}"] = (
            f"auth.services.{home}: {names}",
            "auth.http_client: httpx2",
        )
    found["fastmcp.server.auth.providers.workos"] = (
        "auth.services.userinfo: WorkOSProvider WorkOSTokenVerifier",
        "auth.services.remote: AuthKitProvider",
        "auth.http_client: httpx2",
    )
    return found


AUTH_MODULES: Mapping[str, tuple[str, ...]] = MappingProxyType({**_OFFICIAL, **_FASTMCP, **_services()})

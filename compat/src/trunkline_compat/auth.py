"""The frameworks' authorization classes, mapped onto ours: verifiers, a resource server, and the OAuth proxy.

Tokens are checked by our verifiers, or by the ``verify_token`` of a program's own class; the OAuth proxy, its consent
pages and its checks of redirect URIs are ours. Nothing here parses a token or a redirect.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

from pydantic import AnyHttpUrl, BaseModel, ConfigDict, Field

from trunkline.auth.verifiers import InvalidToken, bearer_token
from trunkline.errors import ConfigError
from trunkline.protocol.caller import Principal
from trunkline_compat.context import current_context

__all__ = [
    "AccessToken",
    "AuthProvider",
    "AuthSettings",
    "AzureProvider",
    "BearerAuth",
    "ClientRegistrationOptions",
    "GitHubProvider",
    "GoogleProvider",
    "JWTVerifier",
    "OAuth",
    "OAuthProxy",
    "RemoteAuthProvider",
    "RevocationOptions",
    "StaticTokenVerifier",
    "TokenVerifier",
    "current_access_token",
    "own_auth",
]

#: The token of the request being served, as the program's own verifier returned it.
_TOKEN: ContextVar[AccessToken | None] = ContextVar("trunkline_compat.token", default=None)


class AccessToken(BaseModel):
    """A verified token."""

    model_config = ConfigDict(extra="allow")

    token: str = Field(repr=False)
    client_id: str
    scopes: list[str] = []
    expires_at: int | None = None
    resource: str | None = None
    subject: str | None = None
    claims: dict[str, Any] = {}


def current_access_token() -> AccessToken | None:
    """Return the token of the caller; None without authentication."""
    token = _TOKEN.get()
    context = current_context()
    principal = None if context is None or context._own is None else context.own.auth
    if token is not None or principal is None:
        return token
    return _access_token(principal, "")


def _access_token(principal: Principal, token: str) -> AccessToken:
    claims = dict(principal.claims or {})
    return AccessToken(
        token=token,
        client_id=principal.client or principal.subject,
        scopes=sorted(principal.scopes),
        subject=principal.subject,
        expires_at=claims.get("exp"),
        claims=claims,
    )


class ClientRegistrationOptions(BaseModel):
    """Whether clients may register themselves; an authorization server of its own decides that."""

    enabled: bool = False
    client_secret_expiry_seconds: int | None = None
    valid_scopes: list[str] | None = None
    default_scopes: list[str] | None = None


class RevocationOptions(BaseModel):
    """Whether tokens may be revoked; an authorization server of its own decides that."""

    enabled: bool = False


class AuthSettings(BaseModel):
    """The official SDK's settings of a protected server."""

    issuer_url: AnyHttpUrl
    resource_server_url: AnyHttpUrl | None = None
    service_documentation_url: AnyHttpUrl | None = None
    client_registration_options: ClientRegistrationOptions | None = None
    revocation_options: RevocationOptions | None = None
    required_scopes: list[str] | None = None


class AuthProvider:
    """The base of FastMCP's providers."""

    def __init__(self, base_url: Any = None, required_scopes: Sequence[str] | None = None, **_: Any) -> None:
        """Initialize with the URL of this server and the scopes that every request needs."""
        self.base_url = None if base_url is None else str(base_url).rstrip("/")
        self.required_scopes = list(required_scopes or ())

    def own(self, path: str) -> Any:
        """Return our verifier for the endpoint at a path."""
        raise NotImplementedError(f"{type(self).__name__} must define how tokens are verified")


class TokenVerifier(AuthProvider):
    """Verifies tokens; a program's own class overrides ``verify_token``."""

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return the token, or None if it is not valid."""
        raise NotImplementedError(f"{type(self).__name__} must override verify_token()")

    def own(self, path: str) -> Any:
        """Return our verifier around this one."""
        return _ForeignVerifier(self, self.required_scopes)


class _ForeignVerifier:
    """A verifier of ours that asks a ``verify_token`` of the program."""

    def __init__(
        self, verifier: Any, required_scopes: Sequence[str], issuers: Sequence[str] = (), resource: str | None = None
    ) -> None:
        self._verifier = verifier
        self.required_scopes = tuple(required_scopes)
        self.scopes_supported: Sequence[str] = tuple(required_scopes)
        self.authorization_servers = tuple(issuers)
        self.resource = resource

    async def verify(self, headers: Mapping[str, str]) -> Principal | None:
        """Return the principal of a request, by the program's own verifier."""
        token = bearer_token(headers)
        if token is None:
            return None
        access = await self._verifier.verify_token(token)
        if access is None or (access.expires_at is not None and access.expires_at < time.time()):
            raise InvalidToken("The token is not valid or has expired")
        _TOKEN.set(access)
        claims = {**(getattr(access, "claims", None) or {}), "client_id": access.client_id}
        subject = getattr(access, "subject", None) or claims.get("sub") or access.client_id
        return Principal(
            subject=str(subject), client=access.client_id, scopes=frozenset(access.scopes or ()), claims=claims
        )


class StaticTokenVerifier(TokenVerifier):
    """Accepts tokens from a table."""

    def __init__(self, tokens: Mapping[str, Mapping[str, Any]], required_scopes: Sequence[str] | None = None) -> None:
        """Initialize with the tokens with their claims."""
        super().__init__(required_scopes=required_scopes)
        self.tokens = dict(tokens)

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return the claims of a listed token."""
        claims = self.tokens.get(token)
        if claims is None:
            return None
        return AccessToken(
            token=token,
            client_id=claims.get("client_id") or claims.get("sub") or "static",
            scopes=list(claims.get("scopes", ())),
            expires_at=claims.get("expires_at"),
            subject=claims.get("sub"),
            claims=dict(claims),
        )


class JWTVerifier(TokenVerifier):
    """Verifies signed tokens with our own verifier, which needs an issuer and an audience."""

    def __init__(
        self,
        *,
        public_key: str | bytes | None = None,
        jwks_uri: str | None = None,
        issuer: Any = None,
        audience: Any = None,
        algorithm: str | None = None,
        required_scopes: Sequence[str] | None = None,
        base_url: Any = None,
        **_: Any,
    ) -> None:
        """Initialize with what a token must match.

        Raises:
            ConfigError: the issuer or the audience is missing.
        """
        super().__init__(base_url=base_url, required_scopes=required_scopes)
        if not isinstance(issuer, str) or not audience:
            raise ConfigError(
                "JWTVerifier needs one issuer= and an audience= under trunkline-compat: without them it would accept "
                "tokens that were issued for other servers"
            )
        key = public_key.decode() if isinstance(public_key, bytes) else public_key
        from trunkline.auth import JWTVerifier as OwnJWTVerifier

        algorithms: dict[str, Any] = {"algorithms": [algorithm]} if algorithm else {}
        self._verifier = OwnJWTVerifier(
            issuer=issuer,
            audience=audience,
            jwks_uri=jwks_uri,
            keys=key,
            required_scopes=self.required_scopes,
            **algorithms,
        )

    def own(self, path: str) -> Any:
        """Return our verifier."""
        return self._verifier

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return the token if it is valid."""
        try:
            principal = await self._verifier.verify({"authorization": f"Bearer {token}"})
        except InvalidToken:
            return None
        return None if principal is None else _access_token(principal, token)


class RemoteAuthProvider(AuthProvider):
    """Protects a server with the tokens of authorization servers elsewhere."""

    def __init__(
        self, token_verifier: Any, authorization_servers: Sequence[Any], base_url: Any, **options: Any
    ) -> None:
        """Initialize with the verifier, the issuers and the URL of this server."""
        super().__init__(base_url=base_url, required_scopes=getattr(token_verifier, "required_scopes", None))
        self.token_verifier = token_verifier
        self.authorization_servers = [str(each).rstrip("/") for each in authorization_servers]

    async def verify_token(self, token: str) -> AccessToken | None:
        """Ask the verifier."""
        return await self.token_verifier.verify_token(token)  # type: ignore[no-any-return]

    def own(self, path: str) -> Any:
        """Return our verifier, which names the issuers and the resource in its challenges."""
        resource = None if self.base_url is None else f"{self.base_url}{path}"
        return _ForeignVerifier(self.token_verifier, self.required_scopes, self.authorization_servers, resource)


#: Options of an OAuth proxy that restrict who may use it, and are not adapted.
_RESTRICTIONS = ("allowed_client_redirect_uris", "valid_client_ids")


class OAuthProxy(AuthProvider):
    """Signs users in at a provider that knows this server as one client, with our own OAuth proxy."""

    def __init__(
        self,
        *,
        upstream_authorization_endpoint: str,
        upstream_token_endpoint: str,
        upstream_client_id: str,
        upstream_client_secret: str | None = None,
        base_url: Any,
        redirect_path: str | None = None,
        valid_scopes: Sequence[str] | None = None,
        extra_authorize_params: Mapping[str, str] | None = None,
        userinfo: str | None = None,
        token_verifier: Any = None,
        **options: Any,
    ) -> None:
        """Initialize with the provider's endpoints and this server's credentials there."""
        for name in _RESTRICTIONS:
            if options.get(name) is not None:
                raise ConfigError(f"{name}= is not supported by trunkline-compat, and leaving it out would allow more")
        required = options.get("required_scopes") or getattr(token_verifier, "required_scopes", None)
        super().__init__(base_url=base_url, required_scopes=required)
        self._token_verifier = token_verifier
        # The provider knows the callback by its path: ours is ``<issuer>/callback``.
        path = redirect_path or "/auth/callback"
        if not path.endswith("/callback"):
            raise ConfigError(f"redirect_path={path!r} must end with /callback under trunkline-compat")
        from trunkline.auth import OAuthProxy as OwnProxy

        self._proxy = OwnProxy(
            issuer=f"{self.base_url}{path.removesuffix('/callback')}",
            upstream_authorize=upstream_authorization_endpoint,
            upstream_token=upstream_token_endpoint,
            client_id=upstream_client_id,
            client_secret=upstream_client_secret,
            scopes=list(valid_scopes or self.required_scopes),
            upstream_scopes=list(valid_scopes or self.required_scopes),
            upstream_parameters=dict(extra_authorize_params or {}),
            identify=None if token_verifier is None else self._identify,
            upstream_userinfo=userinfo,
            resource=options.get("resource"),
        )

    async def _identify(self, answer: Mapping[str, Any]) -> str:
        """Return who signed in, by the program's own verifier."""
        access = await self._token_verifier.verify_token(str(answer.get("access_token", "")))
        return "" if access is None else str(getattr(access, "subject", None) or access.client_id)

    def own(self, path: str) -> Any:
        """Return our proxy."""
        return self._proxy

    async def upstream_token(self) -> str | None:
        """Return the provider's token of the caller, to call the provider's API."""
        context = current_context()
        principal = None if context is None else context.own.auth
        return None if principal is None else await self._proxy.upstream_token(principal)


#: The endpoints of providers: authorization, token, who signed in, and the scopes that are asked for by default.
_PROVIDERS: Mapping[str, tuple[str, str, str, tuple[str, ...]]] = MappingProxyType(
    {
        "github": (
            "https://github.com/login/oauth/authorize",
            "https://github.com/login/oauth/access_token",
            "https://api.github.com/user",
            ("user",),
        ),
        "google": (
            "https://accounts.google.com/o/oauth2/v2/auth",
            "https://oauth2.googleapis.com/token",
            "https://openidconnect.googleapis.com/v1/userinfo",
            ("openid",),
        ),
        "azure": (
            "https://login.microsoftonline.com/{tenant_id}/oauth2/v2.0/authorize",
            "https://login.microsoftonline.com/{tenant_id}/oauth2/v2.0/token",
            "https://graph.microsoft.com/oidc/userinfo",
            ("openid",),
        ),
    }
)


class _Provider(OAuthProxy):
    """A provider of the table."""

    vendor = ""

    def __init__(
        self,
        *,
        client_id: str,
        client_secret: str | None = None,
        base_url: Any,
        required_scopes: Sequence[str] | None = None,
        redirect_path: str | None = None,
        extra_authorize_params: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        """Initialize with this server's credentials at the provider."""
        authorize, token, userinfo, scopes = _PROVIDERS[self.vendor]
        values = {name: str(value).rstrip("/") for name, value in options.items() if isinstance(value, str)}
        if self.vendor == "azure" and "tenant_id" not in values:
            raise ConfigError("AzureProvider needs tenant_id=")
        super().__init__(
            upstream_authorization_endpoint=authorize.format(**values),
            upstream_token_endpoint=token.format(**values),
            userinfo=userinfo.format(**values),
            upstream_client_id=client_id,
            upstream_client_secret=client_secret,
            base_url=base_url,
            redirect_path=redirect_path,
            required_scopes=list(required_scopes or scopes),
            extra_authorize_params=extra_authorize_params,
            **{name: options.get(name) for name in _RESTRICTIONS},
        )


class GitHubProvider(_Provider):
    """Signs users in at GitHub."""

    vendor = "github"


class GoogleProvider(_Provider):
    """Signs users in at Google."""

    vendor = "google"


class AzureProvider(_Provider):
    """Signs users in at Microsoft; needs ``tenant_id``."""

    vendor = "azure"


def own_auth(server: Any, options: Mapping[str, Any], path: str) -> Any:
    """Return our verifier for a server, from what its author passed; None if it is not protected.

    Raises:
        ConfigError: the server would not be protected as its author meant.
    """
    if options.get("auth_server_provider") or getattr(server, "auth_server_provider", None):
        raise ConfigError(
            "auth_server_provider= is not supported by trunkline-compat: use token_verifier= with an authorization "
            "server elsewhere, or trunkline.auth.AuthorizationServer on a Trunkline server"
        )
    provider = options.get("auth") or getattr(server, "auth", None)
    verifier = options.get("token_verifier") or getattr(server, "token_verifier", None)
    if isinstance(provider, AuthSettings):
        if verifier is None:
            raise ConfigError("auth=AuthSettings(…) needs token_verifier=: without it every request would be accepted")
        issuer, resource = str(provider.issuer_url).rstrip("/"), provider.resource_server_url
        return _ForeignVerifier(
            verifier,
            provider.required_scopes or (),
            [issuer],
            None if resource is None else str(resource).rstrip("/"),
        )
    if isinstance(provider, AuthProvider):
        return provider.own(path)
    verifier = provider or verifier
    return None if verifier is None else _ForeignVerifier(verifier, getattr(verifier, "required_scopes", None) or ())


# --- clients ---------------------------------------------------------------------------------------------------------


class BearerAuth:
    """A token for a server at a URL."""

    def __init__(self, token: str) -> None:
        """Initialize with the token."""
        self.token = token

    def own(self) -> Any:
        """Return what our client takes."""
        return self.token


class OAuth:
    """A login for a server at a URL."""

    def __init__(self, mcp_url: str | None = None, **options: Any) -> None:
        """Initialize with the options of the login."""
        self._options = options

    def own(self) -> Any:
        """Return what our client takes."""
        from trunkline.auth import OAuth as OwnOAuth

        scopes = self._options.get("scopes")
        return OwnOAuth(
            scopes=scopes.split() if isinstance(scopes, str) else scopes,
            client_name=self._options.get("client_name") or "FastMCP Client",
            client_id=self._options.get("client_id"),
            client_secret=self._options.get("client_secret"),
            redirect_port=self._options.get("callback_port") or 0,
        )

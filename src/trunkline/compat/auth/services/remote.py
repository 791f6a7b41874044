"""Services with dynamic registration of their own: clients talk to them directly, the server verifies tokens.

Clients of older revisions look for the authorization server's metadata at the protected server, so it is forwarded.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypedDict
from urllib.parse import urlsplit

from pydantic import AnyHttpUrl, SecretStr, TypeAdapter, UrlConstraints
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from trunkline.compat.auth.base import RemoteAuthProvider
from trunkline.compat.auth.handlers import PydanticJSONResponse
from trunkline.compat.auth.http_client import httpx2
from trunkline.compat.auth.jwt_verifier import JWTVerifier
from trunkline.compat.auth.records import AccessToken, ProtectedResourceMetadata, parse_scopes
from trunkline.compat.auth.routes import build_resource_metadata_url, cors_middleware
from trunkline.compat.auth.verifiers import IntrospectionTokenVerifier

__all__ = [
    "AuthKitProvider",
    "DescopeJWTVerifier",
    "DescopeProvider",
    "ForwardingProvider",
    "KeycloakAuthProvider",
    "PropelAuthProvider",
    "PropelAuthTokenIntrospectionOverrides",
    "ScalekitProvider",
    "SupabaseProvider",
    "as_written",
    "discover_scopes",
    "httpx2",
]

log = logging.getLogger("fastmcp.server.auth.providers")

_WELL_KNOWN = "/.well-known/oauth-authorization-server"
_AS_WRITTEN: TypeAdapter[AnyHttpUrl] = TypeAdapter(Annotated[AnyHttpUrl, UrlConstraints(preserve_empty_path=True)])


def as_written(url: str) -> AnyHttpUrl:
    """Return a URL without a slash added to it: clients compare issuers as strings."""
    return _AS_WRITTEN.validate_python(url)


class ForwardingProvider(RemoteAuthProvider):
    """A remote provider that also forwards the authorization server's metadata."""

    #: Where the metadata is.
    _metadata_url: str | None = None

    def get_routes(self, mcp_path: str | None = None) -> list[Any]:
        """Return the resource's metadata and the forwarded metadata of the authorization server."""
        routes = super().get_routes(mcp_path)
        if self._metadata_url is not None:
            routes.append(Route(_WELL_KNOWN, endpoint=self._forward, methods=["GET"]))
        return routes

    async def _forward(self, request: Request) -> Response:
        try:
            async with httpx2.AsyncClient() as client:
                response = await client.get(str(self._metadata_url))
                response.raise_for_status()
                return JSONResponse(response.json())
        except (httpx2.HTTPError, ValueError) as error:
            log.warning("The metadata at %s could not be fetched: %s", self._metadata_url, error)
            body = {"error": "server_error", "error_description": "The metadata could not be fetched"}
            return JSONResponse(body, status_code=500)


class KeycloakAuthProvider(RemoteAuthProvider):
    """Tokens of a Keycloak realm."""

    def __init__(
        self,
        *,
        realm_url: Any,
        base_url: Any,
        required_scopes: list[str] | str | None = None,
        audience: str | list[str] | None = None,
        token_verifier: Any = None,
    ) -> None:
        """Initialize with the realm."""
        self.realm_url = str(realm_url).rstrip("/")
        verifier = token_verifier or JWTVerifier(
            jwks_uri=f"{self.realm_url}/protocol/openid-connect/certs",
            issuer=self.realm_url,
            audience=audience,
            required_scopes=parse_scopes(required_scopes),
        )
        super().__init__(verifier, [as_written(self.realm_url)], base_url)


class SupabaseProvider(ForwardingProvider):
    """Tokens of a Supabase project."""

    def __init__(
        self,
        *,
        project_url: Any,
        base_url: Any,
        auth_route: str = "/auth/v1",
        algorithm: Literal["RS256", "ES256"] = "ES256",
        required_scopes: list[str] | None = None,
        token_verifier: Any = None,
        **options: Any,
    ) -> None:
        """Initialize with the project; further options are those of the remote provider."""
        self.project_url = str(project_url).rstrip("/")
        self.auth_route = auth_route.strip("/")
        issuer = f"{self.project_url}/{self.auth_route}"
        self._metadata_url = f"{issuer}{_WELL_KNOWN}"
        verifier = token_verifier or JWTVerifier(
            jwks_uri=f"{issuer}/.well-known/jwks.json",
            issuer=issuer,
            audience="authenticated",
            algorithm=algorithm,
            required_scopes=required_scopes,
        )
        super().__init__(verifier, [as_written(issuer)], base_url, **options)


class ScalekitProvider(ForwardingProvider):
    """Tokens of a Scalekit environment for one resource."""

    def __init__(
        self,
        *,
        environment_url: Any,
        resource_id: str,
        base_url: Any = None,
        mcp_url: Any = None,
        client_id: str | None = None,
        required_scopes: list[str] | None = None,
        token_verifier: Any = None,
        **options: Any,
    ) -> None:
        """Initialize with the environment and the resource; further options are those of the remote provider.

        Raises:
            ValueError: the server's own URL is missing.
        """
        server = base_url if base_url is not None else mcp_url
        if server is None:
            raise ValueError("Either base_url or mcp_url must be provided for ScalekitProvider")
        self.environment_url = str(environment_url).rstrip("/")
        self.resource_id = resource_id
        issuer = f"{self.environment_url}/resources/{resource_id}"
        self._metadata_url = f"{self.environment_url}{_WELL_KNOWN}/resources/{resource_id}"
        verifier = token_verifier or JWTVerifier(
            jwks_uri=f"{self.environment_url}/keys",
            # Tokens that were issued before the resource became the issuer name the environment.
            issuer=[self.environment_url, issuer],
            audience=resource_id,
            algorithm="RS256",
            required_scopes=required_scopes,
        )
        super().__init__(verifier, [as_written(issuer)], server, **options)


class _BoundToResource(ForwardingProvider):
    """A provider whose tokens name the resource's URL, which is known when the server is."""

    def __init__(self, verifier: Any, servers: list[Any], base_url: Any, *, bind: bool, **options: Any) -> None:
        self._auto_bind_audience = bind
        super().__init__(verifier, servers, base_url, **options)

    def set_mcp_path(self, mcp_path: str | None) -> None:
        """Set the path of the endpoint, which is the audience of tokens."""
        super().set_mcp_path(mcp_path)
        if self._auto_bind_audience:
            self.token_verifier.audience = str(self._resource_url)


class AuthKitProvider(_BoundToResource):
    """Tokens of a WorkOS AuthKit domain."""

    def __init__(
        self,
        *,
        authkit_domain: Any,
        base_url: Any,
        required_scopes: list[str] | None = None,
        token_verifier: Any = None,
        **options: Any,
    ) -> None:
        """Initialize with the domain; further options are those of the remote provider."""
        self.authkit_domain = str(authkit_domain).rstrip("/")
        self._metadata_url = f"{self.authkit_domain}{_WELL_KNOWN}"
        verifier = token_verifier or JWTVerifier(
            jwks_uri=f"{self.authkit_domain}/oauth2/jwks",
            issuer=self.authkit_domain,
            algorithm="RS256",
            required_scopes=required_scopes,
        )
        servers = [as_written(self.authkit_domain)]
        super().__init__(verifier, servers, base_url, bind=token_verifier is None, **options)


# --- PropelAuth ------------------------------------------------------------------------------------------------------


class PropelAuthTokenIntrospectionOverrides(TypedDict, total=False):
    """Options of the introspection that may be changed."""

    timeout_seconds: int
    cache_ttl_seconds: int | None
    max_cache_size: int | None
    http_client: Any


class PropelAuthProvider(ForwardingProvider):
    """Tokens of a PropelAuth environment, which is asked about them."""

    def __init__(
        self,
        *,
        auth_url: Any,
        introspection_client_id: str,
        introspection_client_secret: str | SecretStr,
        base_url: Any,
        required_scopes: list[str] | None = None,
        resource: Any = None,
        token_introspection_overrides: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        """Initialize with the environment and our credentials there."""
        auth = str(auth_url).rstrip("/")
        self._resource = str(resource) if resource is not None else None
        self._metadata_url = f"{auth}{_WELL_KNOWN}/oauth/2.1"
        allowed = PropelAuthTokenIntrospectionOverrides.__annotations__
        changes = {name: value for name, value in (token_introspection_overrides or {}).items() if name in allowed}
        verifier = IntrospectionTokenVerifier(
            introspection_url=f"{auth}/oauth/2.1/introspect",
            client_id=introspection_client_id,
            client_secret=introspection_client_secret,
            required_scopes=required_scopes,
            **changes,
        )
        super().__init__(verifier, [as_written(f"{auth}/oauth/2.1")], base_url, **options)

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return what the environment says about a token, if it is meant for this resource."""
        found = await super().verify_token(token)
        if found is None or self._resource is None:
            return found
        audience = (found.claims or {}).get("aud")
        return found if self._resource in (audience if isinstance(audience, list) else [audience]) else None


# --- Descope ---------------------------------------------------------------------------------------------------------


class DescopeJWTVerifier(JWTVerifier):
    """Tokens of a Descope project: of the project, of one of its tenants, or of one of its MCP servers."""

    def __init__(self, *, descope_base_url: str, project_id: str, **options: Any) -> None:
        """Initialize with the project."""
        self.project_issuer = f"{descope_base_url}/v1/apps/{project_id}"
        self.agentic_issuer = f"{descope_base_url}/v1/apps/agentic/{project_id}"
        super().__init__(issuer=self.project_issuer, **options)

    def _validate_issuer(self, issuer: Any) -> bool:
        if not isinstance(issuer, str):
            return False
        parent, _, last = issuer.rpartition("/")
        return issuer == self.project_issuer or (parent in (self.project_issuer, self.agentic_issuer) and bool(last))


async def discover_scopes(openid_configuration_url: str) -> list[str] | None:
    """Return the scopes in a discovery document; None if it cannot be fetched."""
    try:
        async with httpx2.AsyncClient(timeout=10) as client:
            response = await client.get(openid_configuration_url)
            response.raise_for_status()
            found = response.json().get("scopes_supported")
    except (httpx2.HTTPError, ValueError, AttributeError) as error:
        log.warning("The scopes at %s could not be fetched: %s", openid_configuration_url, error)
        return None
    return [str(each) for each in found] if isinstance(found, list) else []


class DescopeProvider(ForwardingProvider):
    """Tokens of a Descope project or MCP server."""

    def __init__(
        self,
        *,
        base_url: Any,
        config_url: Any = None,
        project_id: str | None = None,
        descope_base_url: Any = None,
        required_scopes: list[str] | None = None,
        scopes_supported: list[str] | None = None,
        token_verifier: Any = None,
        **options: Any,
    ) -> None:
        """Initialize with the discovery URL, or a project and its host; nothing is fetched yet.

        Raises:
            ValueError: neither is given.
        """
        if config_url is not None:
            base, project, issuer = _parse_descope(str(config_url))
        elif project_id and descope_base_url:
            host = str(descope_base_url).rstrip("/")
            base = host if host.startswith(("https://", "http://")) else f"https://{host}"
            project, issuer = project_id, f"{base}/v1/apps/{project_id}"
        else:
            raise ValueError("Either config_url, or project_id and descope_base_url, must be provided")
        self.descope_base_url, self.project_id = base, project
        self.openid_configuration_url = f"{issuer}/.well-known/openid-configuration"
        self.oauth_authorization_server_metadata_url = self._metadata_url = f"{issuer}{_WELL_KNOWN}"
        self._scopes_discovery_enabled = required_scopes is None and scopes_supported is None and token_verifier is None
        self._scopes_discovered = False
        self._discovered_scopes: list[str] | None = None
        verifier = token_verifier or DescopeJWTVerifier(
            descope_base_url=base,
            project_id=project,
            jwks_uri=f"{base}/{project}/.well-known/jwks.json",
            audience=project,
            required_scopes=required_scopes,
        )
        super().__init__(verifier, [as_written(issuer)], base_url, scopes_supported, **options)

    async def _get_scopes_supported(self) -> list[str] | None:
        """Return the scopes for the metadata: those given, else those of the service, fetched once."""
        if not self._scopes_discovery_enabled:
            return self.scopes_supported
        if not self._scopes_discovered:
            found = await discover_scopes(self.openid_configuration_url)
            if found is None:
                return None
            self._discovered_scopes, self._scopes_discovered = found, True
        return self._discovered_scopes

    def get_routes(self, mcp_path: str | None = None) -> list[Any]:
        """Return the routes; the scopes in the resource's metadata are fetched when it is asked for."""
        routes = super().get_routes(mcp_path)
        resource = self._get_resource_url(mcp_path)
        if not self._scopes_discovery_enabled or resource is None:
            return routes
        path = urlsplit(str(build_resource_metadata_url(resource))).path

        async def metadata(request: Request) -> Response:
            scopes = await self._get_scopes_supported()
            document = ProtectedResourceMetadata(
                resource=resource,
                authorization_servers=self.authorization_servers,
                scopes_supported=scopes,
                resource_name=self.resource_name,
                resource_documentation=self.resource_documentation,
            )
            kept = "no-store" if scopes is None else "public, max-age=3600"
            return PydanticJSONResponse(content=document, headers={"Cache-Control": kept})

        served = Route(path, endpoint=cors_middleware(metadata, ["GET", "OPTIONS"]), methods=["GET", "OPTIONS"])
        return [served if route.path == path else route for route in routes]


def _parse_descope(config_url: str) -> tuple[str, str, str]:
    """Return the host, the project and the issuer that a discovery URL names."""
    issuer = config_url.rstrip("/")
    for suffix in ("/.well-known/openid-configuration", _WELL_KNOWN):
        issuer = issuer.removesuffix(suffix)
    parsed = urlsplit(issuer)
    parts = [part for part in parsed.path.split("/") if part]
    if parts[:2] != ["v1", "apps"] or len(parts) < 3:
        raise ValueError(f"config_url {config_url!r} does not name a Descope project: expected .../v1/apps/...")
    project = parts[3] if parts[2] == "agentic" and len(parts) > 3 else parts[2]
    return f"{parsed.scheme}://{parsed.netloc}", project, issuer

"""The classes that FastMCP's auth providers derive from.

A provider verifies tokens, names the scopes that clients should request, and adds routes: the metadata of the
protected resource, or a whole authorization server.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from pydantic import AnyHttpUrl

from trunkline.compat.auth.records import (
    AccessToken,
    AuthorizationCode,
    ClientRegistrationOptions,
    FastAccessToken,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    RevocationOptions,
    principal_components,
)

__all__ = ["AuthProvider", "MultiAuth", "OAuthProvider", "RemoteAuthProvider", "TokenVerifier"]

log = logging.getLogger("fastmcp.server.auth.auth")


def _url(value: Any) -> AnyHttpUrl | None:
    return AnyHttpUrl(str(value)) if value is not None else None


class AuthProvider:
    """Protects a server: verifies tokens and adds routes."""

    #: The members that tell two providers of one class apart; secrets are not among them.
    _identity_fields: tuple[str, ...] = ()

    base_url: Any = None
    resource_base_url: Any = None
    _mcp_path: str | None = None
    _resource_url: AnyHttpUrl | None = None

    def __init__(
        self, base_url: Any = None, required_scopes: list[str] | None = None, resource_base_url: Any = None
    ) -> None:
        """Initialize with the server's URL and the scopes that every request needs."""
        self.base_url = _url(base_url)
        self.resource_base_url = _url(resource_base_url)
        self.required_scopes: list[str] = list(required_scopes or ())

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return what a token stands for, or None."""
        raise NotImplementedError("Subclasses must implement verify_token()")

    @property
    def scopes_supported(self) -> list[str]:
        """The scopes in the metadata."""
        return self.required_scopes

    @property
    def challenge_scopes(self) -> list[str]:
        """The scopes in a challenge."""
        return self.get_challenge_scopes()

    def get_challenge_scopes(self, required_scopes: list[str] | None = None) -> list[str]:
        """Return the scopes that a client should request to get the required ones."""
        return self.required_scopes if required_scopes is None else required_scopes

    def set_mcp_path(self, mcp_path: str | None) -> None:
        """Set the path of the endpoint."""
        self._mcp_path = mcp_path
        self._resource_url = self._get_resource_url(mcp_path)

    def get_routes(self, mcp_path: str | None = None) -> list[Any]:
        """Return the routes that the provider adds to the application."""
        return []

    def get_well_known_routes(self, mcp_path: str | None = None) -> list[Any]:
        """Return the routes that belong at the root of a host when the application is mounted below it."""
        return [route for route in self.get_routes(mcp_path) if getattr(route, "path", "").startswith("/.well-known/")]

    def get_middleware(self) -> list[Any]:
        """Return the middleware that authenticates requests."""
        from starlette.middleware import Middleware
        from starlette.middleware.authentication import AuthenticationMiddleware

        from trunkline.compat.auth.middleware import AuthContextMiddleware, BearerAuthBackend

        return [
            Middleware(AuthenticationMiddleware, backend=BearerAuthBackend(self)),
            Middleware(AuthContextMiddleware),
        ]

    def _get_resource_url(self, path: str | None = None) -> AnyHttpUrl | None:
        base = self.resource_base_url or self.base_url
        if base is None:
            return None
        if not path:
            return AnyHttpUrl(str(base))
        return AnyHttpUrl(f"{str(base).rstrip('/')}/{path.lstrip('/')}")

    def _source_key(self) -> list[Any]:
        """Return what tells this provider apart from others of its class."""
        key: list[Any] = [f"{type(self).__module__}.{type(self).__qualname__}"]
        for name in self._identity_fields:
            value = getattr(self, name, None)
            key.append(value._source_key() if isinstance(value, AuthProvider) else _plain(value))
        return key


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value if value is None or isinstance(value, str | int) else str(value)


class TokenVerifier(AuthProvider):
    """A provider that only verifies tokens."""


class RemoteAuthProvider(AuthProvider):
    """Tokens of authorization servers elsewhere, which the metadata of the resource names."""

    _identity_fields = ("token_verifier", "authorization_servers")

    def __init__(
        self,
        token_verifier: Any,
        authorization_servers: Sequence[Any],
        base_url: Any,
        scopes_supported: list[str] | None = None,
        resource_base_url: Any = None,
        resource_name: str | None = None,
        resource_documentation: Any = None,
        challenge_scopes: list[str] | None = None,
    ) -> None:
        """Initialize with the verifier and the issuers."""
        super().__init__(base_url, getattr(token_verifier, "required_scopes", None), resource_base_url)
        self.token_verifier = token_verifier
        self.authorization_servers = list(authorization_servers)
        self._scopes_supported = scopes_supported
        self._challenge_scopes = challenge_scopes
        self.resource_name = resource_name
        self.resource_documentation = resource_documentation

    @property
    def scopes_supported(self) -> list[str]:
        """The scopes in the metadata: those given, else the verifier's."""
        if self._scopes_supported is not None:
            return self._scopes_supported
        return list(getattr(self.token_verifier, "scopes_supported", self.required_scopes))

    def get_challenge_scopes(self, required_scopes: list[str] | None = None) -> list[str]:
        """Return the scopes that a client should request."""
        if self._challenge_scopes is not None and required_scopes in (None, self.required_scopes):
            return self._challenge_scopes
        translate = getattr(self.token_verifier, "get_challenge_scopes", None)
        if translate is not None:
            return list(translate(required_scopes))
        return self.required_scopes if required_scopes is None else required_scopes

    async def verify_token(self, token: str) -> AccessToken | None:
        """Ask the verifier."""
        found: AccessToken | None = await self.token_verifier.verify_token(token)
        return found

    def set_mcp_path(self, mcp_path: str | None) -> None:
        """Set the path of the endpoint, for the verifier too."""
        super().set_mcp_path(mcp_path)
        if isinstance(self.token_verifier, AuthProvider):
            self.token_verifier.set_mcp_path(mcp_path)

    def get_routes(self, mcp_path: str | None = None) -> list[Any]:
        """Return the route of the resource's metadata."""
        from trunkline.compat.auth.routes import create_protected_resource_routes

        resource = self._get_resource_url(mcp_path)
        if resource is None or not self.authorization_servers:
            return []
        return create_protected_resource_routes(
            resource_url=resource,
            authorization_servers=self.authorization_servers,
            scopes_supported=self.scopes_supported,
            resource_name=self.resource_name,
            resource_documentation=self.resource_documentation,
        )


class MultiAuth(AuthProvider):
    """Several sources of tokens, tried in order; the identity of a caller says which one knew the token."""

    _identity_fields = ("_source_ids",)

    def __init__(
        self,
        *,
        server: AuthProvider | None = None,
        verifiers: Mapping[str, Any] | Sequence[Any] | Any = None,
        server_source_id: str | None = None,
        base_url: Any = None,
        resource_base_url: Any = None,
        required_scopes: list[str] | None = None,
    ) -> None:
        """Initialize with a provider that has routes, and verifiers.

        Raises:
            ValueError: there is no source, or two cannot be told apart.
        """
        named = dict(verifiers) if isinstance(verifiers, Mapping) else None
        if named is not None:
            self.verifiers = list(named.values())
        elif verifiers is None:
            self.verifiers = []
        else:
            self.verifiers = list(verifiers) if isinstance(verifiers, Sequence) else [verifiers]
        if server is None and not self.verifiers:
            raise ValueError("MultiAuth requires at least a server or one verifier")
        if server is not None and resource_base_url is not None:
            server.resource_base_url = _url(resource_base_url)
        self._explicit_scopes = required_scopes
        scopes = required_scopes if required_scopes is not None else list(getattr(server, "required_scopes", ()))
        super().__init__(
            base_url if base_url is not None else getattr(server, "base_url", None),
            scopes,
            resource_base_url if resource_base_url is not None else getattr(server, "resource_base_url", None),
        )
        self.server = server
        self._sources = [*([server] if server is not None else []), *self.verifiers]
        self._source_ids = self._identify(server_source_id, named)

    def _identify(self, server_source_id: str | None, named: dict[str, Any] | None) -> list[str]:
        ids = [self._configured_source_id(each) for each in self._sources]
        if server_source_id is not None and self.server is not None:
            ids[0] = server_source_id
        if named is not None:
            ids[len(ids) - len(named) :] = list(named)
        for each in ids:
            if not each or each != each.strip():
                raise ValueError("source IDs must not be empty or have spaces around them")
        if len(set(ids)) != len(ids):
            raise ValueError("source IDs must be unique: pass verifiers as a mapping from names")
        return ids

    @staticmethod
    def _configured_source_id(source: Any) -> str:
        key = source._source_key() if isinstance(source, AuthProvider) else [type(source).__qualname__]
        digest = sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:32]
        return f"{type(source).__name__}:{digest}"

    @property
    def scopes_supported(self) -> list[str]:
        """The scopes in the metadata."""
        return self.server.scopes_supported if self.server is not None else self.required_scopes

    def get_challenge_scopes(self, required_scopes: list[str] | None = None) -> list[str]:
        """Return the scopes that a client should request; several verifiers do not choose any."""
        asked = self._explicit_scopes if required_scopes is None else required_scopes
        if self.server is not None:
            return self.server.get_challenge_scopes(asked)
        if len(self.verifiers) == 1 and hasattr(self.verifiers[0], "get_challenge_scopes"):
            return list(self.verifiers[0].get_challenge_scopes(asked))
        return list(asked or ())

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return what the first source that knows a token says about it."""
        for source, name in zip(self._sources, self._source_ids, strict=True):
            try:
                found = await source.verify_token(token)
            except Exception:
                log.warning("A source of tokens failed; the next one is asked", exc_info=True)
                continue
            if found is not None:
                return self._qualified(found, source, name)
        return None

    @staticmethod
    def _qualified(found: AccessToken, source: Any, name: str) -> AccessToken:
        client_id = json.dumps([name, *principal_components(found)])
        original = getattr(found, "original_client_id", None) if isinstance(source, MultiAuth) else found.client_id
        if isinstance(found, FastAccessToken):
            return found.model_copy(update={"client_id": client_id, "original_client_id": original})
        given = found.model_dump(exclude_none=True)
        return FastAccessToken(**given | {"client_id": client_id, "original_client_id": original})

    def set_mcp_path(self, mcp_path: str | None) -> None:
        """Set the path of the endpoint for all sources."""
        super().set_mcp_path(mcp_path)
        for source in self._sources:
            if isinstance(source, AuthProvider):
                source.set_mcp_path(mcp_path)

    def get_routes(self, mcp_path: str | None = None) -> list[Any]:
        """Return the routes of the server among the sources."""
        return self.server.get_routes(mcp_path) if self.server is not None else []

    def get_well_known_routes(self, mcp_path: str | None = None) -> list[Any]:
        """Return the well-known routes of the server among the sources."""
        return self.server.get_well_known_routes(mcp_path) if self.server is not None else []


class OAuthProvider(AuthProvider, OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """An authorization server inside the server; the methods of the provider are the user's."""

    def __init__(
        self,
        *,
        base_url: Any,
        resource_base_url: Any = None,
        issuer_url: Any = None,
        service_documentation_url: Any = None,
        client_registration_options: ClientRegistrationOptions | None = None,
        revocation_options: RevocationOptions | None = None,
        required_scopes: list[str] | None = None,
    ) -> None:
        """Initialize with the server's URL and what the authorization server offers."""
        super().__init__(base_url, required_scopes, resource_base_url)
        #: The identity in metadata, tokens and answers: one and the same everywhere.
        self.issuer_url: Any = self.base_url if issuer_url is None else _url(issuer_url)
        self.service_documentation_url = _url(service_documentation_url)
        self.client_registration_options = client_registration_options
        self.revocation_options = revocation_options

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return what a token that was issued here stands for, or None."""
        return await self.load_access_token(token)

    @property
    def scopes_supported(self) -> list[str]:
        """The scopes in the metadata: those that clients may register."""
        options = self.client_registration_options
        return options.valid_scopes if options and options.valid_scopes else self.required_scopes

    def get_routes(self, mcp_path: str | None = None) -> list[Any]:
        """Return the routes of the authorization server and of the resource's metadata."""
        from trunkline.compat.auth.fast_routes import oauth_routes

        self.set_mcp_path(mcp_path)
        return oauth_routes(self, mcp_path)

    def get_well_known_routes(self, mcp_path: str | None = None) -> list[Any]:
        """Return the metadata at the paths where a client of the issuer looks (RFC 8414, 3.1)."""
        from trunkline.compat.auth.fast_routes import at_issuer_path

        return at_issuer_path(self, super().get_well_known_routes(mcp_path))

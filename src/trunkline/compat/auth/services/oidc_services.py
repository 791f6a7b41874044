"""Services that are configured from their discovery document: Auth0, AWS Cognito, Oracle Cloud."""

from __future__ import annotations

from typing import Any

from pydantic import AnyHttpUrl

from trunkline.compat.auth.http_client import httpx2
from trunkline.compat.auth.jwt_verifier import JWTVerifier
from trunkline.compat.auth.oidc import DEFAULT_OIDC_DISCOVERY_TIMEOUT_SECONDS, OIDCConfiguration, OIDCProxy
from trunkline.compat.auth.records import FastAccessToken
from trunkline.compat.auth.services.remote import _BoundToResource, as_written

__all__ = [
    "AWSCognitoProvider",
    "AWSCognitoTokenVerifier",
    "Auth0JWTVerifier",
    "Auth0MCPProvider",
    "Auth0Provider",
    "OCIProvider",
    "OIDCConfiguration",
    "httpx2",
]


class Auth0Provider(OIDCProxy):
    """Sign-in with Auth0."""

    def __init__(self, *, audience: str, required_scopes: list[str] | None = None, **options: Any) -> None:
        """Initialize with the API's identifier; further options are those of the OIDC proxy."""
        scopes = required_scopes if required_scopes is not None else ["openid"]
        super().__init__(audience=audience, required_scopes=scopes, **options)


class Auth0JWTVerifier(JWTVerifier):
    """Tokens of Auth0, whose permissions count as scopes."""

    def _extract_scopes(self, claims: dict[str, Any]) -> list[str]:
        given = claims.get("permissions")
        permissions = given.split() if isinstance(given, str) else [str(each) for each in given or ()]
        return list(dict.fromkeys([*super()._extract_scopes(claims), *permissions]))


class Auth0MCPProvider(_BoundToResource):
    """Tokens of an Auth0 tenant that clients register with themselves."""

    def __init__(
        self,
        *,
        config_url: Any,
        base_url: Any,
        required_scopes: list[str] | None = None,
        token_verifier: Any = None,
        timeout_seconds: int | None = DEFAULT_OIDC_DISCOVERY_TIMEOUT_SECONDS,
        **options: Any,
    ) -> None:
        """Fetch the tenant's discovery document; further options are those of the remote provider."""
        config = OIDCConfiguration.get_oidc_configuration(
            AnyHttpUrl(str(config_url)), strict=True, timeout_seconds=timeout_seconds
        )
        issuer = str(config.issuer)
        self.issuer = issuer.rstrip("/")
        self._metadata_url = f"{self.issuer}/.well-known/oauth-authorization-server"
        verifier = token_verifier or Auth0JWTVerifier(
            jwks_uri=str(config.jwks_uri), issuer=issuer, algorithm="RS256", required_scopes=required_scopes
        )
        super().__init__(verifier, [as_written(issuer)], base_url, bind=token_verifier is None, **options)


class AWSCognitoTokenVerifier(JWTVerifier):
    """Access tokens of Cognito, which name the client in a claim of their own instead of an audience."""

    def __init__(self, *, audience: str | list[str] | None = None, **options: Any) -> None:
        """Initialize with the client that tokens must have been issued to."""
        super().__init__(**options)
        self._expected_client_id = audience

    async def verify_token(self, token: str) -> FastAccessToken | None:
        """Return what a token stands for, or None."""
        found = await super().verify_token(token)
        if found is None:
            return None
        expected = self._expected_client_id
        names = expected if isinstance(expected, list) else [expected]
        if expected is not None and found.claims.get("client_id") not in names:
            return None
        kept = {name: found.claims.get(name) for name in ("sub", "username", "cognito:groups")}
        return found.model_copy(update={"claims": {**kept, "cognito:groups": kept["cognito:groups"] or []}})


class AWSCognitoProvider(OIDCProxy):
    """Sign-in with a Cognito user pool."""

    def __init__(
        self,
        *,
        user_pool_id: str,
        client_id: str,
        client_secret: str,
        base_url: Any,
        aws_region: str = "eu-central-1",
        required_scopes: list[str] | None = None,
        **options: Any,
    ) -> None:
        """Initialize with the user pool; further options are those of the OIDC proxy."""
        self.user_pool_id = user_pool_id
        self.aws_region = aws_region
        self.client_id = client_id
        super().__init__(
            config_url=(
                f"https://cognito-idp.{aws_region}.amazonaws.com/{user_pool_id}/.well-known/openid-configuration"
            ),
            client_id=client_id,
            client_secret=client_secret,
            algorithm="RS256",
            required_scopes=required_scopes if required_scopes is not None else ["openid"],
            base_url=base_url,
            **options,
        )

    def get_token_verifier(
        self,
        *,
        algorithm: str | None = None,
        audience: str | None = None,
        required_scopes: list[str] | None = None,
        timeout_seconds: int | None = None,
    ) -> AWSCognitoTokenVerifier:
        """Return what verifies the pool's tokens."""
        return AWSCognitoTokenVerifier(
            issuer=str(self.oidc_config.issuer),
            audience=audience or self.client_id,
            algorithm=algorithm,
            jwks_uri=str(self.oidc_config.jwks_uri),
            required_scopes=required_scopes,
        )


class OCIProvider(OIDCProxy):
    """Sign-in with an identity domain of Oracle Cloud."""

    def __init__(self, *, required_scopes: list[str] | None = None, **options: Any) -> None:
        """Initialize; the options are those of the OIDC proxy."""
        super().__init__(required_scopes=required_scopes if required_scopes is not None else ["openid"], **options)

    def _prepare_scopes_for_token_exchange(self, scopes: list[str]) -> list[str]:
        # Oracle's token endpoint needs the scopes again.
        return scopes

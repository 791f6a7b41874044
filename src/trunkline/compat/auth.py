"""The auth classes of both frameworks around ours: verifiers, settings, and providers that log in elsewhere.

Whatever has ``verify_token(token)`` protects a server. What issues tokens itself is either one of ours
(``AuthorizationServer``, ``OAuthProxy``) or refused with a sentence that names it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import AnyHttpUrl, BaseModel, ConfigDict

from trunkline.protocol.caller import Principal

__all__ = [
    "AccessToken",
    "AuthProvider",
    "AuthSettings",
    "BearerAuthProvider",
    "ClientRegistrationOptions",
    "DebugTokenVerifier",
    "IntrospectionTokenVerifier",
    "JWTVerifier",
    "OAuthProvider",
    "RemoteAuthProvider",
    "RevocationOptions",
    "StaticTokenVerifier",
    "TokenVerifier",
    "access_token_of",
    "as_own_auth",
    "parse_scopes",
    "require_scopes",
    "restrict_tag",
]


class AccessToken(BaseModel):
    """A token that was verified."""

    model_config = ConfigDict(extra="allow")

    token: str
    client_id: str
    scopes: list[str] = []
    expires_at: int | None = None
    resource: str | None = None
    subject: str | None = None
    claims: dict[str, Any] = {}


class ClientRegistrationOptions(BaseModel):
    """How clients register."""

    enabled: bool = False
    client_secret_expiry_seconds: int | None = None
    valid_scopes: list[str] | None = None
    default_scopes: list[str] | None = None


class RevocationOptions(BaseModel):
    """Whether tokens can be revoked."""

    enabled: bool = False


class AuthSettings(BaseModel):
    """Who issues the tokens of a protected server."""

    model_config = ConfigDict(extra="allow")

    issuer_url: AnyHttpUrl
    resource_server_url: AnyHttpUrl | None = None
    required_scopes: list[str] | None = None
    service_documentation_url: AnyHttpUrl | None = None
    client_registration_options: ClientRegistrationOptions | None = None
    revocation_options: RevocationOptions | None = None


class TokenVerifier:
    """Something that verifies tokens: subclasses say how in ``verify_token``."""

    def __init__(
        self,
        base_url: Any = None,
        required_scopes: Sequence[str] | None = None,
        *,
        resource_base_url: Any = None,
        **_: Any,
    ) -> None:
        """Keep the URL of the server and the scopes that every request needs."""
        self.base_url = AnyHttpUrl(str(base_url)) if base_url else None
        self.required_scopes = list(required_scopes or ())
        self.resource_base_url = resource_base_url

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return what a token stands for, or None."""
        raise NotImplementedError("Subclasses must implement verify_token()")


AuthProvider = TokenVerifier


class StaticTokenVerifier(TokenVerifier):
    """Tokens that are written down, for development."""

    def __init__(self, tokens: Mapping[str, Mapping[str, Any]], required_scopes: Any = None, **options: Any) -> None:
        """Initialize with the tokens and their claims."""
        super().__init__(required_scopes=required_scopes, **options)
        self.tokens = {key: dict(value) for key, value in tokens.items()}

    async def verify_token(self, token: str) -> AccessToken | None:
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
        return AccessToken(token=token, client_id=found["client_id"], scopes=scopes, expires_at=expires, claims=found)


class DebugTokenVerifier(TokenVerifier):
    """Accepts every token, or those that a function accepts."""

    def __init__(
        self, validate: Any = None, client_id: str = "debug-client", scopes: Any = None, **options: Any
    ) -> None:
        """Initialize with the function."""
        super().__init__(**options)
        self._validate = validate
        self._client_id = client_id
        self._scopes = list(scopes or ())

    async def verify_token(self, token: str) -> AccessToken | None:
        """Ask the function."""
        if not token.strip():
            return None
        if self._validate is not None:
            accepted = self._validate(token)
            if hasattr(accepted, "__await__"):
                accepted = await accepted
            if not accepted:
                return None
        return AccessToken(token=token, client_id=self._client_id, scopes=self._scopes, claims={"token": token})


class JWTVerifier(TokenVerifier):
    """JSON Web Tokens, by a public key or by the keys at a URL."""

    def __init__(
        self,
        *,
        public_key: str | None = None,
        jwks_uri: str | None = None,
        issuer: Any = None,
        audience: Any = None,
        algorithm: str | None = None,
        required_scopes: Any = None,
        **options: Any,
    ) -> None:
        """Initialize with the key and the claims that a token must have."""
        super().__init__(required_scopes=required_scopes, **options)
        if (public_key is None) == (jwks_uri is None):
            raise ValueError("Either public_key or jwks_uri must be provided, and not both")
        self.public_key, self.jwks_uri = public_key, jwks_uri
        self.issuer, self.audience, self.algorithm = issuer, audience, algorithm or "RS256"

    async def verify_token(self, token: str) -> AccessToken | None:
        """Check the signature, the times, the issuer and the audience."""
        import asyncio

        import jwt

        def decode() -> dict[str, Any]:
            key: Any = self.public_key
            if key is None:
                key = jwt.PyJWKClient(str(self.jwks_uri)).get_signing_key_from_jwt(token).key
            issuers = [self.issuer] if isinstance(self.issuer, str) else self.issuer
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[self.algorithm],
                audience=self.audience,
                issuer=issuers,
                options={"verify_aud": self.audience is not None, "verify_iss": issuers is not None},
            )
            return claims

        try:
            claims = await asyncio.to_thread(decode)
        except jwt.PyJWTError:
            return None
        scopes = _scopes_in(claims)
        if not set(self.required_scopes) <= set(scopes):
            return None
        client = claims.get("client_id") or claims.get("azp") or claims.get("sub") or "unknown"
        return AccessToken(
            token=token,
            client_id=str(client),
            scopes=scopes,
            expires_at=claims.get("exp"),
            subject=claims.get("sub"),
            claims=claims,
        )

    load_access_token = verify_token


BearerAuthProvider = JWTVerifier


def _scopes_in(claims: Mapping[str, Any]) -> list[str]:
    for name in ("scope", "scp"):
        given = claims.get(name)
        if isinstance(given, str):
            return given.split()
        if isinstance(given, list):
            return [str(each) for each in given]
    return []


class IntrospectionTokenVerifier(TokenVerifier):
    """Tokens that an endpoint is asked about (RFC 7662)."""

    def __init__(
        self, *, introspection_url: str, client_id: str, client_secret: str, required_scopes: Any = None, **options: Any
    ) -> None:
        """Initialize with the endpoint and our credentials there."""
        super().__init__(required_scopes=required_scopes, **options)
        self.introspection_url, self.client_id, self.client_secret = introspection_url, client_id, client_secret

    async def verify_token(self, token: str) -> AccessToken | None:
        """Ask the endpoint."""
        import httpx  # type: ignore[import-not-found, unused-ignore]

        async with httpx.AsyncClient(timeout=10) as client:
            response = await client.post(
                self.introspection_url, data={"token": token}, auth=(self.client_id, self.client_secret)
            )
        claims = response.json() if response.status_code == 200 else {}
        scopes = _scopes_in(claims)
        if not claims.get("active") or not set(self.required_scopes) <= set(scopes):
            return None
        name = str(claims.get("client_id") or claims.get("sub") or "unknown")
        return AccessToken(
            token=token, client_id=name, scopes=scopes, expires_at=claims.get("exp"), claims=dict(claims)
        )


class RemoteAuthProvider(TokenVerifier):
    """Tokens of authorization servers elsewhere."""

    def __init__(
        self, token_verifier: Any, authorization_servers: Sequence[Any], base_url: Any, **options: Any
    ) -> None:
        """Initialize with the verifier and the issuers."""
        super().__init__(base_url=base_url, required_scopes=getattr(token_verifier, "required_scopes", None), **options)
        self.token_verifier = token_verifier
        self.authorization_servers = [AnyHttpUrl(str(each)) for each in authorization_servers]

    async def verify_token(self, token: str) -> AccessToken | None:
        """Ask the verifier."""
        found: AccessToken | None = await self.token_verifier.verify_token(token)
        return found


class OAuthProvider(TokenVerifier):
    """An authorization server inside the server; the methods of the provider are the user's."""

    async def verify_token(self, token: str) -> AccessToken | None:
        """Ask the provider for a token it issued."""
        load = getattr(self, "load_access_token", None)
        found: AccessToken | None = None if load is None else await load(token)
        return found


class _OwnVerifier:
    """A foreign verifier, as ours is asked."""

    def __init__(self, verifier: Any, settings: Any) -> None:
        self._verifier = verifier
        issuers = getattr(verifier, "authorization_servers", None) or [getattr(settings, "issuer_url", None)]
        self.authorization_servers: Sequence[str] = [str(each).rstrip("/") for each in issuers if each]
        scopes = getattr(settings, "required_scopes", None) or getattr(verifier, "required_scopes", None)
        self.required_scopes = tuple(scopes or ())
        self.scopes_supported: Sequence[str] = ()

    async def verify(self, headers: Mapping[str, str]) -> Principal | None:
        """Return who sent a request."""
        from trunkline.auth.verifiers import InvalidToken, bearer_token

        token = bearer_token(headers)
        if token is None:
            return None
        verify = getattr(self._verifier, "verify_token", None) or self._verifier.load_access_token
        found = await verify(token)
        if found is None:
            raise InvalidToken("the token is not valid")
        claims = {**(getattr(found, "claims", None) or {}), "_token": found}
        subject = getattr(found, "subject", None) or claims.get("sub") or found.client_id
        return Principal(
            subject=str(subject), client=found.client_id, scopes=frozenset(found.scopes or ()), claims=claims
        )


def as_own_auth(verifier: Any, settings: Any) -> Any:
    """Return a foreign verifier as one of ours."""
    return _OwnVerifier(verifier, settings)


def access_token_of(principal: Principal | None) -> AccessToken | None:
    """Return the token of a caller."""
    if principal is None:
        return None
    found = (principal.claims or {}).get("_token")
    return found or AccessToken(
        token="", client_id=principal.client or principal.subject, scopes=sorted(principal.scopes)
    )


def parse_scopes(value: Any) -> list[str] | None:
    """Return scopes that were written as a list, as JSON, or with commas or spaces between them."""
    if value is None or value == "":
        return None if value is None else []
    if isinstance(value, list):
        return [str(each).strip() for each in value]
    text = str(value).strip()
    if text.startswith("["):
        import json

        return [str(each).strip() for each in json.loads(text)]
    return [each for each in text.replace(",", " ").split() if each]


def require_scopes(*scopes: str) -> Any:
    """Return a check that a caller's token has all of these scopes."""

    def check(context: Any) -> bool:
        token = getattr(context, "token", None)
        return token is not None and set(scopes) <= set(token.scopes)

    return check


def restrict_tag(tag: str, *, scopes: Sequence[str]) -> Any:
    """Return a check that what has a tag needs scopes."""
    inner = require_scopes(*scopes)

    def check(context: Any) -> bool:
        return tag not in context.component.tags or bool(inner(context))

    return check

"""Services whose access tokens are opaque: a token is verified by asking the service who it belongs to."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any

from trunkline.compat.auth.base import TokenVerifier
from trunkline.compat.auth.http_client import http_client as client_for
from trunkline.compat.auth.http_client import httpx2
from trunkline.compat.auth.oauth_proxy.proxy import OAuthProxy
from trunkline.compat.auth.oidc import set_expected_scopes
from trunkline.compat.auth.records import FastAccessToken
from trunkline.compat.auth.verifiers import TokenCache

__all__ = [
    "DEFAULT_HUGGINGFACE_SCOPES",
    "GOOGLE_SCOPE_ALIASES",
    "HUGGINGFACE_AUTHORIZATION_ENDPOINT",
    "HUGGINGFACE_TOKEN_ENDPOINT",
    "HUGGINGFACE_USERINFO_ENDPOINT",
    "HUGGINGFACE_WHOAMI_ENDPOINT",
    "ClerkProvider",
    "ClerkTokenVerifier",
    "DiscordProvider",
    "DiscordTokenVerifier",
    "GitHubProvider",
    "GitHubTokenVerifier",
    "GoogleProvider",
    "GoogleTokenVerifier",
    "HuggingFaceProvider",
    "HuggingFaceTokenVerifier",
    "WorkOSProvider",
    "WorkOSTokenVerifier",
    "httpx2",
    "normalize_google_scope",
]

log = logging.getLogger("fastmcp.server.auth.providers")


class _UserInfoVerifier(TokenVerifier):
    """Asks a service about a token."""

    def __init__(
        self,
        *,
        required_scopes: list[str] | None = None,
        timeout_seconds: int = 10,
        cache_ttl_seconds: int | None = None,
        max_cache_size: int | None = None,
        http_client: Any = None,
    ) -> None:
        """Initialize with the scopes that a token must have."""
        super().__init__(required_scopes=required_scopes)
        self.timeout_seconds = timeout_seconds
        self._http_client = http_client
        self._cache = TokenCache(cache_ttl_seconds, max_cache_size)

    async def verify_token(self, token: str) -> FastAccessToken | None:
        """Return what the service says about a token, or None."""
        cached = self._cache.get(token)
        if cached is not None:
            return cached
        try:
            async with client_for(self._http_client, self.timeout_seconds) as client:
                found, cacheable = await self._ask(client, token)
        except Exception:
            # Whatever goes wrong with a service, the token is not verified.
            log.debug("The token could not be verified", exc_info=True)
            return None
        if found is not None and cacheable:
            self._cache.set(token, found)
        return found

    async def _ask(self, client: Any, token: str) -> tuple[FastAccessToken | None, bool]:
        """Return the token, and whether the answer may be cached."""
        raise NotImplementedError

    def _has(self, scopes: list[str]) -> bool:
        return set(self.required_scopes) <= set(scopes)


async def _get(client: Any, url: str, token: str, **headers: str) -> dict[str, Any] | None:
    response = await client.get(url, headers={"Authorization": f"Bearer {token}", **headers})
    found = response.json() if response.status_code == 200 else None
    return found if isinstance(found, dict) else None


def _picked(found: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: found.get(name) for name in names}


def _split(scopes: Any) -> list[str]:
    if isinstance(scopes, str):
        return scopes.replace(",", " ").split()
    return [str(each) for each in scopes] if isinstance(scopes, list) else []


# --- GitHub ----------------------------------------------------------------------------------------------------------


class GitHubTokenVerifier(_UserInfoVerifier):
    """Tokens of GitHub."""

    async def _ask(self, client: Any, token: str) -> tuple[FastAccessToken | None, bool]:
        headers = {"Accept": "application/vnd.github.v3+json", "User-Agent": "FastMCP-GitHub-OAuth"}
        user = await _get(client, "https://api.github.com/user", token, **headers)
        if user is None:
            return None, False
        # The scopes of a token are in a header of any answer to a request that needs some.
        answer = await client.get(
            "https://api.github.com/user/repos", headers={"Authorization": f"Bearer {token}", **headers}
        )
        scopes = _split(answer.headers.get("x-oauth-scopes", "")) or ["user"]
        if not self._has(scopes):
            return None, False
        found = FastAccessToken(
            token=token,
            client_id=str(user.get("id", "unknown")),
            scopes=scopes,
            claims={
                "sub": str(user["id"]),
                **_picked(user, "login", "name", "email", "avatar_url"),
                "github_user_data": user,
            },
        )
        return found, answer.status_code == 200


class GitHubProvider(OAuthProxy):
    """Sign-in with GitHub."""

    def __init__(
        self,
        *,
        client_id: str,
        client_secret: str,
        base_url: Any,
        required_scopes: list[str] | None = None,
        timeout_seconds: int = 10,
        cache_ttl_seconds: int | None = None,
        max_cache_size: int | None = None,
        http_client: Any = None,
        **options: Any,
    ) -> None:
        """Initialize with the credentials of the OAuth app; further options are those of the OAuth proxy."""
        super().__init__(
            upstream_authorization_endpoint="https://github.com/login/oauth/authorize",
            upstream_token_endpoint="https://github.com/login/oauth/access_token",
            upstream_client_id=client_id,
            upstream_client_secret=client_secret,
            token_verifier=GitHubTokenVerifier(
                required_scopes=required_scopes if required_scopes is not None else ["user"],
                timeout_seconds=timeout_seconds,
                cache_ttl_seconds=cache_ttl_seconds,
                max_cache_size=max_cache_size,
                http_client=http_client,
            ),
            base_url=base_url,
            **options,
        )


# --- Google ----------------------------------------------------------------------------------------------------------

#: Google accepts the short names and answers with the long ones.
GOOGLE_SCOPE_ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "email": "https://www.googleapis.com/auth/userinfo.email",
        "profile": "https://www.googleapis.com/auth/userinfo.profile",
    }
)


def normalize_google_scope(scope: str) -> str:
    """Return the long name of a scope."""
    return GOOGLE_SCOPE_ALIASES.get(scope, scope)


class GoogleTokenVerifier(_UserInfoVerifier):
    """Tokens of Google, for one application or several."""

    def __init__(
        self, *, required_scopes: list[str] | None = None, audience: str | list[str] | None = None, **options: Any
    ) -> None:
        """Initialize with the scopes and the client IDs that tokens must have been issued to."""
        super().__init__(required_scopes=[normalize_google_scope(each) for each in required_scopes or ()], **options)
        self.audience = audience

    async def _ask(self, client: Any, token: str) -> tuple[FastAccessToken | None, bool]:
        info = await _get(client, "https://oauth2.googleapis.com/tokeninfo", token)
        if info is None or not info.get("aud") or not info.get("sub"):
            return None, False
        expected = [self.audience] if isinstance(self.audience, str) else self.audience
        scopes = [normalize_google_scope(each) for each in _split(info.get("scope"))]
        if (expected is not None and info["aud"] not in expected) or not self._has(scopes):
            return None, False
        user = await _get(client, "https://www.googleapis.com/oauth2/v2/userinfo", token) or {}
        seconds = info.get("expires_in")
        found = FastAccessToken(
            token=token,
            client_id=str(info["sub"]),
            scopes=scopes,
            expires_at=int(time.time()) + int(seconds) if seconds else None,
            claims={
                **_picked(info, "sub", "aud"),
                "email": user.get("email") or info.get("email"),
                **_picked(user, "name", "picture", "given_name", "family_name", "locale"),
                "google_token_info": info,
                "google_user_data": user,
            },
        )
        return found, True


class GoogleProvider(OAuthProxy):
    """Sign-in with Google."""

    def __init__(
        self,
        *,
        client_id: str,
        client_secret: str | None = None,
        base_url: Any,
        required_scopes: list[str] | None = None,
        valid_scopes: list[str] | None = None,
        timeout_seconds: int = 10,
        cache_ttl_seconds: int | None = None,
        max_cache_size: int | None = None,
        extra_authorize_params: dict[str, str] | None = None,
        http_client: Any = None,
        **options: Any,
    ) -> None:
        """Initialize with the credentials of the OAuth client; further options are those of the OAuth proxy."""
        valid = None if valid_scopes is None else [normalize_google_scope(each) for each in valid_scopes]
        super().__init__(
            upstream_authorization_endpoint="https://accounts.google.com/o/oauth2/v2/auth",
            upstream_token_endpoint="https://oauth2.googleapis.com/token",
            upstream_client_id=client_id,
            upstream_client_secret=client_secret,
            token_verifier=GoogleTokenVerifier(
                required_scopes=required_scopes if required_scopes is not None else ["openid"],
                audience=client_id,
                timeout_seconds=timeout_seconds,
                cache_ttl_seconds=cache_ttl_seconds,
                max_cache_size=max_cache_size,
                http_client=http_client,
            ),
            base_url=base_url,
            valid_scopes=valid,
            # Without these two Google issues no refresh token.
            extra_authorize_params={
                "access_type": "offline",
                "prompt": "consent",
                **(extra_authorize_params or {}),
            },
            **options,
        )


# --- Discord ---------------------------------------------------------------------------------------------------------


class DiscordTokenVerifier(_UserInfoVerifier):
    """Tokens of Discord for one application."""

    def __init__(self, *, expected_client_id: str, **options: Any) -> None:
        """Initialize with the application that tokens must have been issued to."""
        super().__init__(**options)
        self.expected_client_id = expected_client_id

    async def _ask(self, client: Any, token: str) -> tuple[FastAccessToken | None, bool]:
        info = await _get(client, "https://discord.com/api/oauth2/@me", token)
        application = (info or {}).get("application") or {}
        if info is None or str(application.get("id")) != self.expected_client_id:
            return None, False
        scopes = _split(info.get("scopes"))
        expires = int(datetime.fromisoformat(info["expires"]).timestamp()) if info.get("expires") else None
        if not self._has(scopes) or (expires is not None and expires < time.time()):
            return None, False
        user = info.get("user") or await _get(client, "https://discord.com/api/users/@me", token) or {}
        found = FastAccessToken(
            token=token,
            client_id=self.expected_client_id,
            scopes=scopes,
            expires_at=expires,
            claims={
                "sub": user.get("id"),
                **_picked(user, "username", "discriminator", "avatar", "email", "verified", "locale"),
                "discord_user": user,
                "discord_token_info": info,
            },
        )
        return found, True


class DiscordProvider(OAuthProxy):
    """Sign-in with Discord."""

    def __init__(
        self,
        *,
        client_id: str,
        client_secret: str,
        base_url: Any,
        required_scopes: list[str] | None = None,
        timeout_seconds: int = 10,
        http_client: Any = None,
        **options: Any,
    ) -> None:
        """Initialize with the credentials of the application; further options are those of the OAuth proxy."""
        super().__init__(
            upstream_authorization_endpoint="https://discord.com/oauth2/authorize",
            upstream_token_endpoint="https://discord.com/api/oauth2/token",
            upstream_client_id=client_id,
            upstream_client_secret=client_secret,
            token_verifier=DiscordTokenVerifier(
                expected_client_id=client_id,
                required_scopes=required_scopes if required_scopes is not None else ["identify"],
                timeout_seconds=timeout_seconds,
                http_client=http_client,
            ),
            base_url=base_url,
            **options,
        )


# --- WorkOS ----------------------------------------------------------------------------------------------------------


def _with_scheme(domain: str) -> str:
    return (domain if domain.startswith(("https://", "http://")) else f"https://{domain}").rstrip("/")


class WorkOSTokenVerifier(_UserInfoVerifier):
    """Tokens of a WorkOS AuthKit domain."""

    def __init__(self, *, authkit_domain: str, **options: Any) -> None:
        """Initialize with the domain."""
        super().__init__(**options)
        self.authkit_domain = authkit_domain.rstrip("/")

    async def _ask(self, client: Any, token: str) -> tuple[FastAccessToken | None, bool]:
        user = await _get(client, f"{self.authkit_domain}/oauth2/userinfo", token)
        if user is None:
            return None, False
        scopes = _split(user.get("scope"))
        if not self._has(scopes):
            return None, False
        claims = _picked(user, "sub", "email", "email_verified", "name", "given_name", "family_name")
        found = FastAccessToken(
            token=token,
            client_id=str(user.get("sub", "unknown")),
            scopes=scopes,
            subject=user.get("sub"),
            claims=claims,
        )
        return found, True


class WorkOSProvider(OAuthProxy):
    """Sign-in with WorkOS."""

    def __init__(
        self,
        *,
        client_id: str,
        client_secret: str,
        authkit_domain: str,
        base_url: Any,
        required_scopes: list[str] | None = None,
        timeout_seconds: int = 10,
        http_client: Any = None,
        **options: Any,
    ) -> None:
        """Initialize with the credentials and the domain; further options are those of the OAuth proxy."""
        domain = _with_scheme(authkit_domain)
        super().__init__(
            upstream_authorization_endpoint=f"{domain}/oauth2/authorize",
            upstream_token_endpoint=f"{domain}/oauth2/token",
            upstream_client_id=client_id,
            upstream_client_secret=client_secret,
            token_verifier=WorkOSTokenVerifier(
                authkit_domain=domain,
                required_scopes=required_scopes,
                timeout_seconds=timeout_seconds,
                http_client=http_client,
            ),
            base_url=base_url,
            **options,
        )


# --- Clerk -----------------------------------------------------------------------------------------------------------


class ClerkTokenVerifier(_UserInfoVerifier):
    """Tokens of a Clerk instance: introspected first, then the user is looked up."""

    def __init__(
        self, *, domain: str, client_id: str | None = None, client_secret: str | None = None, **options: Any
    ) -> None:
        """Initialize with the domain, and the application that tokens must have been issued to."""
        super().__init__(**options)
        self.domain = domain.removeprefix("https://").rstrip("/")
        self.client_id = client_id
        self.client_secret = client_secret

    async def _ask(self, client: Any, token: str) -> tuple[FastAccessToken | None, bool]:
        credentials = (self.client_id, self.client_secret) if self.client_id and self.client_secret else None
        options = {"auth": credentials} if credentials else {}
        response = await client.post(f"https://{self.domain}/oauth/token_info", data={"token": token}, **options)
        info = response.json() if response.status_code == 200 else {}
        scopes = _split(info.get("scope"))
        audience = info.get("aud") or info.get("client_id")
        if info.get("active") is not True or not self._has(scopes):
            return None, False
        if self.client_id and self.client_id not in (audience if isinstance(audience, list) else [audience]):
            return None, False
        user = await _get(client, f"https://{self.domain}/oauth/userinfo", token)
        if user is None or not user.get("sub"):
            return None, False
        names = ("email", "email_verified", "name", "picture", "given_name", "family_name", "preferred_username", "iss")
        expires = info.get("exp")
        found = FastAccessToken(
            token=token,
            client_id=str(audience or user["sub"]),
            scopes=scopes,
            expires_at=int(expires) if expires else None,
            subject=user["sub"],
            claims={"sub": user["sub"], "aud": audience, **_picked(user, *names), "clerk_user_data": user},
        )
        return found, True


class ClerkProvider(OAuthProxy):
    """Sign-in with Clerk."""

    def __init__(
        self,
        *,
        domain: str,
        client_id: str,
        client_secret: str | None = None,
        base_url: Any,
        required_scopes: list[str] | None = None,
        timeout_seconds: int = 10,
        http_client: Any = None,
        **options: Any,
    ) -> None:
        """Initialize with the domain and the credentials; further options are those of the OAuth proxy."""
        verifier = ClerkTokenVerifier(
            domain=domain,
            client_id=client_id,
            client_secret=client_secret,
            required_scopes=required_scopes if required_scopes is not None else ["openid", "email", "profile"],
            timeout_seconds=timeout_seconds,
            http_client=http_client,
        )
        super().__init__(
            upstream_authorization_endpoint=f"https://{verifier.domain}/oauth/authorize",
            upstream_token_endpoint=f"https://{verifier.domain}/oauth/token",
            upstream_client_id=client_id,
            upstream_client_secret=client_secret,
            token_verifier=verifier,
            base_url=base_url,
            **options,
        )


# --- Hugging Face ----------------------------------------------------------------------------------------------------

HUGGINGFACE_AUTHORIZATION_ENDPOINT = "https://huggingface.co/oauth/authorize"
HUGGINGFACE_TOKEN_ENDPOINT = "https://huggingface.co/oauth/token"
HUGGINGFACE_USERINFO_ENDPOINT = "https://huggingface.co/oauth/userinfo"
HUGGINGFACE_WHOAMI_ENDPOINT = "https://huggingface.co/api/whoami-v2"


def _default_scopes() -> list[str]:
    return ["openid", "profile"]


DEFAULT_HUGGINGFACE_SCOPES = _default_scopes()


class HuggingFaceTokenVerifier(_UserInfoVerifier):
    """Tokens of Hugging Face."""

    async def _ask(self, client: Any, token: str) -> tuple[FastAccessToken | None, bool]:
        user = await _get(client, HUGGINGFACE_USERINFO_ENDPOINT, token)
        if user is None or not user.get("sub"):
            return None, False
        scopes, whoami = _split(user.get("scope")), None
        if not scopes or not self._has(scopes):
            # The user's page lists the scopes of OpenID Connect only.
            whoami = await _get(client, HUGGINGFACE_WHOAMI_ENDPOINT, token)
            listed = ((whoami or {}).get("auth") or {}).get("accessToken") or {}
            scopes = _split(listed.get("scopes")) or scopes or list(DEFAULT_HUGGINGFACE_SCOPES)
        if not self._has(scopes):
            return None, False
        names = ("sub", "preferred_username", "name", "email", "email_verified", "picture", "profile", "website")
        found = FastAccessToken(
            token=token,
            client_id=str(user["sub"]),
            scopes=scopes,
            subject=user["sub"],
            claims={**_picked(user, *names), "huggingface_userinfo": user, "huggingface_whoami": whoami},
        )
        return found, True


class HuggingFaceProvider(OAuthProxy):
    """Sign-in with Hugging Face."""

    def __init__(
        self,
        *,
        client_id: str,
        client_secret: str | None = None,
        base_url: Any,
        required_scopes: list[str] | None = None,
        valid_scopes: list[str] | None = None,
        timeout_seconds: int = 10,
        http_client: Any = None,
        **options: Any,
    ) -> None:
        """Initialize with the credentials of the app; further options are those of the OAuth proxy."""
        super().__init__(
            upstream_authorization_endpoint=HUGGINGFACE_AUTHORIZATION_ENDPOINT,
            upstream_token_endpoint=HUGGINGFACE_TOKEN_ENDPOINT,
            upstream_client_id=client_id,
            upstream_client_secret=client_secret,
            token_verifier=HuggingFaceTokenVerifier(timeout_seconds=timeout_seconds, http_client=http_client),
            base_url=base_url,
            token_endpoint_auth_method=None if client_secret else "none",
            **options,
        )
        required = DEFAULT_HUGGINGFACE_SCOPES if required_scopes is None else required_scopes
        set_expected_scopes(self, required, valid_scopes)

    def _uses_alternate_verification(self) -> bool:
        # The scopes are those of the token response: the user's page does not list all.
        return True

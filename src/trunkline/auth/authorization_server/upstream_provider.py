"""The identity provider behind an OAuth proxy: the login URL, the code exchange, the user's identity, refreshing.

How its tokens are stored is in ``upstream_tokens``.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import quote_plus, urlencode

import msgspec
from msgspec import Struct

from trunkline.auth.authorization_server.clients import add_query_parameters
from trunkline.auth.authorization_server.upstream_tokens import UpstreamTokens
from trunkline.errors import AuthError, LinkError

__all__ = ["IdentifyUser", "UpstreamDenied", "UpstreamProvider", "UpstreamSettings"]

#: Returns the subject of our tokens, given the provider's token response.
IdentifyUser = Callable[[Mapping[str, Any]], Awaitable[str] | str]

_ANSWER_BYTES = 256 * 1024  # Token and userinfo responses have a few KiB, or tens with all groups of a user.
_EARLY = 30.0  # A token is refreshed before its last seconds: it could expire in transit.


class UpstreamDenied(AuthError):
    """The provider denied the request: retrying is of no use."""


class UpstreamSettings(Struct, frozen=True, kw_only=True):
    """The provider's endpoints, and our client credentials there."""

    authorize: str
    token: str
    client_id: str
    client_secret: str | None
    callback: str
    scopes: tuple[str, ...] = ()
    parameters: Mapping[str, str] = {}
    userinfo: str | None = None
    issuer: str | None = None
    basic: bool = False


class UpstreamProvider:
    """A client of the provider."""

    def __init__(
        self,
        settings: UpstreamSettings,
        *,
        identify: IdentifyUser | None,
        fetcher: Any,
        clock: Callable[[], float],
    ) -> None:
        """Prepare; nothing is connected yet."""
        self.settings = settings
        self._identify = identify
        self._fetcher = fetcher
        self._clock = clock

    # --- signing in --------------------------------------------------------------------------------------------------

    def login_url(self, *, state: str, verifier: str) -> str:
        """Return the URL at which the user signs in."""
        hashed = hashlib.sha256(verifier.encode()).digest()
        parameters = {
            **self.settings.parameters,
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": self.settings.callback,
            "scope": " ".join(self.settings.scopes) or None,
            "state": state,
            "code_challenge": base64.urlsafe_b64encode(hashed).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
        }
        return add_query_parameters(self.settings.authorize, parameters)

    async def exchange(self, code: str, verifier: str) -> tuple[str, UpstreamTokens]:
        """Exchange a code for the user's identity and the provider's tokens.

        Raises:
            AuthError: the provider cannot be reached, refuses, or does not identify the user.
        """
        form = {"grant_type": "authorization_code", "code": code, "code_verifier": verifier}
        answer = await self._ask({**form, "redirect_uri": self.settings.callback})
        subject = await self._subject(answer)
        if not isinstance(subject, str) or not subject or subject.startswith("client:"):
            raise AuthError("the provider did not identify the user: set upstream_userinfo= or identify=")
        return subject, self._tokens(answer)

    def is_fresh(self, tokens: UpstreamTokens) -> bool:
        """Return whether tokens need not be refreshed yet."""
        return tokens.until > self._clock() + _EARLY

    async def refreshed(self, tokens: UpstreamTokens) -> UpstreamTokens:
        """Return tokens that are valid for a while: these, or refreshed ones.

        Raises:
            UpstreamDenied: they cannot be refreshed; the user must sign in again.
            AuthError: the provider cannot be reached.
        """
        if self.is_fresh(tokens):
            return tokens
        if tokens.refresh_token is None:
            raise UpstreamDenied("the provider's token has expired, and there is no refresh token")
        answer = await self._ask({"grant_type": "refresh_token", "refresh_token": tokens.refresh_token})
        # Without a new refresh token in the response, the old one stays valid.
        return self._tokens({"refresh_token": tokens.refresh_token, **answer})

    async def _ask(self, form: dict[str, str]) -> dict[str, Any]:
        settings = self.settings
        headers = {"content-type": "application/x-www-form-urlencoded", "accept": "application/json"}
        if settings.basic and settings.client_secret is not None:
            pair = f"{quote_plus(settings.client_id)}:{quote_plus(settings.client_secret)}"
            headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        else:
            form = {**form, "client_id": settings.client_id}
            if settings.client_secret is not None:
                form["client_secret"] = settings.client_secret
        answer = await self._fetch("POST", settings.token, headers, urlencode(form).encode())
        if not isinstance(answer.get("access_token"), str):
            # Some providers send errors with status 200.
            raise (UpstreamDenied if "error" in answer else AuthError)("the provider's response has no access token")
        return answer

    async def _subject(self, answer: Mapping[str, Any]) -> object:
        if self._identify is not None:
            found = self._identify(answer)
            return await found if isinstance(found, Awaitable) else found
        if self.settings.userinfo is not None:
            headers = {"authorization": f"Bearer {answer['access_token']}", "accept": "application/json"}
            info = await self._fetch("GET", self.settings.userinfo, headers)
            subject = info.get("sub", info.get("id"))
            return str(subject) if isinstance(subject, int) and not isinstance(subject, bool) else subject
        return self._from_id_token(answer.get("id_token"))

    def _from_id_token(self, token: object) -> object:
        """Return the subject of an ID token that came from the provider over TLS (OpenID Connect Core, 3.1.3.7, 6)."""
        if not isinstance(token, str) or token.count(".") != 2:
            return None
        payload = token.split(".")[1]
        try:
            claims = msgspec.json.decode(
                base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)), type=dict[str, Any]
            )
        except ValueError:
            return None
        audience = claims.get("aud")
        meant = audience if isinstance(audience, list) else [audience]
        expires = claims.get("exp")
        good = self.settings.client_id in meant and isinstance(expires, int | float) and expires > self._clock()
        ours = self.settings.issuer is None or claims.get("iss") == self.settings.issuer
        return claims.get("sub") if good and ours else None

    def _tokens(self, answer: Mapping[str, Any]) -> UpstreamTokens:
        life, refresh = answer.get("expires_in"), answer.get("refresh_token")
        until = self._clock() + life if isinstance(life, int | float) else float(2**53)
        return UpstreamTokens(answer["access_token"], until, refresh if isinstance(refresh, str) else None)

    async def _fetch(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> dict[str, Any]:
        if self._fetcher is None:
            from trunkline.net import Fetcher

            # The operator configures the provider, which may have a private address.
            self._fetcher = Fetcher(allow_private=True)
        try:
            answer = await self._fetcher.fetch(
                method, url, headers=headers, body=body, max_bytes=_ANSWER_BYTES, redirects=0
            )
            if answer.status != 200:
                kind = UpstreamDenied if answer.status in (400, 401, 403) else AuthError
                raise kind(f"the provider answered with HTTP status {answer.status}")
            return msgspec.json.decode(answer.body, type=dict[str, Any])
        except LinkError as problem:
            raise AuthError(f"the provider cannot be reached: {problem}") from problem
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise AuthError("the provider's response is not a JSON object") from None

    async def aclose(self) -> None:
        """Close the HTTP client."""
        if self._fetcher is not None:
            await self._fetcher.aclose()

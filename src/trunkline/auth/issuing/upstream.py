"""The identity provider behind a proxy: the login URL, the code exchange, and the identity of the user.

Its tokens belong to the server only: they are stored encrypted, under a key that is not in the store, and no client
ever sees one.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote_plus, urlencode

import msgspec
from msgspec import Struct

from trunkline.auth.issuing.redirects import with_parameters
from trunkline.errors import AuthError, LinkError

__all__ = ["Identify", "Sealed", "Upstream", "UpstreamRefused", "UpstreamSettings", "UpstreamTokens"]

#: Returns the subject of our tokens, given the provider's token response.
Identify = Callable[[Mapping[str, Any]], Awaitable[str] | str]

_ANSWER_BYTES = 256 * 1024
_EARLY = 30.0


class UpstreamRefused(AuthError):
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


class UpstreamTokens(Struct, frozen=True, omit_defaults=True):
    """The provider's tokens and their expiry."""

    access_token: str
    until: float
    refresh_token: str | None = None


class Sealed(Struct, frozen=True):
    """Encrypted tokens, as stored."""

    data: bytes


class Upstream:
    """A client of the provider."""

    def __init__(
        self,
        settings: UpstreamSettings,
        *,
        identify: Identify | None,
        fetcher: Any,
        clock: Callable[[], float],
        salt: str,
        storage_secrets: Sequence[str],
    ) -> None:
        """Prepare; the keys for its tokens are derived from ``storage_secrets`` and the store's salt."""
        self.settings = settings
        self._identify = identify
        self._fetcher = fetcher
        self._clock = clock
        self._salt = salt
        self._keys = [self._derived(each) for each in storage_secrets]

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
        return with_parameters(self.settings.authorize, parameters)

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

    async def refreshed(self, tokens: UpstreamTokens) -> UpstreamTokens:
        """Return tokens that are valid for a while: these, or refreshed ones.

        Raises:
            UpstreamDenied: they cannot be refreshed; the user must sign in again.
            AuthError: the provider cannot be reached.
        """
        if tokens.until > self._clock() + _EARLY:
            return tokens
        if tokens.refresh_token is None:
            raise UpstreamRefused("the provider's token has expired, and there is no refresh token")
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
            raise (UpstreamRefused if "error" in answer else AuthError)("the provider's response has no access token")
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
                kind = UpstreamRefused if answer.status in (400, 401, 403) else AuthError
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

    # --- encryption --------------------------------------------------------------------------------------------------

    def _derived(self, secret: str) -> bytes:
        return hashlib.scrypt(secret.encode(), salt=self._salt.encode(), n=2**10, r=8, p=1, dklen=32)

    def seal(self, grant_id: str, tokens: UpstreamTokens) -> Sealed:
        """Encrypt tokens, bound to their grant."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = secrets.token_bytes(12)
        return Sealed(nonce + AESGCM(self._keys[0]).encrypt(nonce, msgspec.json.encode(tokens), grant_id.encode()))

    def unseal(self, grant_id: str, sealed: Sealed) -> UpstreamTokens | None:
        """Decrypt tokens; return None if they were encrypted with another key or for another grant."""
        found = (self._opened(key, grant_id, sealed) for key in self._keys)
        return next((tokens for tokens in found if tokens is not None), None)

    def resealed(self, grant_id: str, sealed: Sealed, *, without_secret: bool) -> Sealed | None:
        """Encrypt tokens again that were encrypted with an older key; return None if there is nothing to do.

        ``without_secret`` tries the key of versions that derived it from the store alone for a public client.
        """
        older = [*self._keys[1:], *([self._derived("")] if without_secret else [])]
        if not older or self._opened(self._keys[0], grant_id, sealed) is not None:
            return None
        found = (self._opened(key, grant_id, sealed) for key in older)
        tokens = next((tokens for tokens in found if tokens is not None), None)
        return None if tokens is None else self.seal(grant_id, tokens)

    @staticmethod
    def _opened(key: bytes, grant_id: str, sealed: Sealed) -> UpstreamTokens | None:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        try:
            data = AESGCM(key).decrypt(sealed.data[:12], sealed.data[12:], grant_id.encode())
        except InvalidTag:
            return None
        return msgspec.json.decode(data, type=UpstreamTokens)

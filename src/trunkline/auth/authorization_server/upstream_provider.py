"""The identity provider behind an OAuth proxy.

The login URL, the code exchange, the user's identity, and the encryption of its tokens. The tokens are stored
encrypted and no client ever sees one. The key comes from outside the store (``storage_key=``, else
``client_secret=``, else a private key file beside the store), since a store that held its own key would reveal the
tokens with the first copy of its file: a backup, a volume, a support ticket.
"""

from __future__ import annotations

import base64
import hashlib
import os
import secrets
import stat
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote_plus, urlencode

import msgspec
from msgspec import Struct

from trunkline.auth.authorization_server.clients import add_query_parameters
from trunkline.auth.authorization_server.storage import new_secret
from trunkline.errors import AuthError, ConfigError, LinkError

__all__ = [
    "EncryptedTokens",
    "IdentifyUser",
    "StorageSecrets",
    "UpstreamDenied",
    "UpstreamProvider",
    "UpstreamSettings",
    "UpstreamTokens",
    "check_storage_key",
    "find_storage_secrets",
]

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


class UpstreamTokens(Struct, frozen=True, omit_defaults=True):
    """The provider's tokens and their expiry."""

    access_token: str
    until: float
    refresh_token: str | None = None


class EncryptedTokens(Struct, frozen=True):
    """Encrypted tokens, as stored."""

    data: bytes


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
        """Prepare; before tokens are stored, `use_keys` must be called."""
        self.settings = settings
        self._identify = identify
        self._fetcher = fetcher
        self._clock = clock
        self._salt = ""
        self._keys: list[bytes] = []

    @property
    def has_keys(self) -> bool:
        """Whether tokens can be encrypted."""
        return bool(self._keys)

    def use_keys(self, storage_secrets: Sequence[str], *, salt: str) -> None:
        """Encrypt tokens with keys that are derived from secrets and a salt: the first, while all of them decrypt."""
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

    # --- encryption --------------------------------------------------------------------------------------------------

    def _derived(self, secret: str) -> bytes:
        return hashlib.scrypt(secret.encode(), salt=self._salt.encode(), n=2**10, r=8, p=1, dklen=32)

    def seal(self, grant_id: str, tokens: UpstreamTokens) -> EncryptedTokens:
        """Encrypt tokens, bound to their grant."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = secrets.token_bytes(12)
        return EncryptedTokens(
            nonce + AESGCM(self._keys[0]).encrypt(nonce, msgspec.json.encode(tokens), grant_id.encode())
        )

    def unseal(self, grant_id: str, sealed: EncryptedTokens) -> UpstreamTokens | None:
        """Decrypt tokens; return None if they were encrypted with another key or for another grant."""
        found = (self._opened(key, grant_id, sealed) for key in self._keys)
        return next((tokens for tokens in found if tokens is not None), None)

    def resealed(self, grant_id: str, sealed: EncryptedTokens, *, without_secret: bool) -> EncryptedTokens | None:
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
    def _opened(key: bytes, grant_id: str, sealed: EncryptedTokens) -> UpstreamTokens | None:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        try:
            data = AESGCM(key).decrypt(sealed.data[:12], sealed.data[12:], grant_id.encode())
        except InvalidTag:
            return None
        return msgspec.json.decode(data, type=UpstreamTokens)


_SHORTEST = 32  # As many characters as 128 bits of hexadecimal digits.
_LONGEST = 4096  # A key file has one line; what follows is not read.
_NEW_KEY = "python -c 'import secrets; print(secrets.token_urlsafe(32))'"


class StorageSecrets(Struct, frozen=True):
    """The secrets that encrypt provider tokens."""

    #: The first one encrypts; all are tried for decryption.
    secrets: tuple[str, ...]
    #: The key file was just created, so tokens in the store were encrypted by a version without key files.
    new_file: bool = False


def find_storage_secrets(given: str | Sequence[str] | None, *, client_secret: str | None, store: str) -> StorageSecrets:
    """Return the secrets for a store: the configured ones, the client's, or that of the key file, created if missing.

    Raises:
        ConfigError: a given key is too short, or the key file cannot be used; the message says what to do.
    """
    if given is not None:
        return StorageSecrets(check_storage_key(given))
    if client_secret:
        return StorageSecrets((client_secret,))
    if store == ":memory:":
        return StorageSecrets((new_secret(),))
    path = f"{store}.key"
    try:
        made = _make(path)
        return StorageSecrets((_read(path),), new_file=made)
    except OSError as problem:
        raise ConfigError(
            f"cannot use the key file {path!r} ({problem.strerror}), which encrypts the provider's tokens if there is "
            f"no client_secret=. Make its folder writable, or set storage_key= (generate one with: {_NEW_KEY})"
        ) from problem


def check_storage_key(given: str | Sequence[str]) -> tuple[str, ...]:
    """Return the configured keys.

    Raises:
        ConfigError: there is none, or the first one is too short.
    """
    keys = (given,) if isinstance(given, str) else tuple(given)
    if not keys or any(not isinstance(key, str) or len(key) < _SHORTEST for key in keys[:1]):
        raise ConfigError(f"storage_key= needs at least {_SHORTEST} characters; generate one with: {_NEW_KEY}")
    return keys


def _make(path: str) -> bool:
    """Create the key file if there is none; return True if this process created it.

    It is written under another name and then linked, so that no process sees a partial file, and of two processes
    one wins.
    """
    if os.path.lexists(path):
        return False
    draft = f"{path}.{new_secret()[:8]}"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600)
    try:
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(f"{new_secret()}\n")
            file.flush()
            os.fsync(descriptor)
        os.link(draft, path)
    except FileExistsError:
        return False
    finally:
        os.unlink(draft)
    return True


def _read(path: str) -> str:
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0))
    try:
        mode = os.fstat(descriptor).st_mode
        if os.name == "posix" and stat.S_IMODE(mode) & 0o077:
            raise ConfigError(
                f"the key file {path!r} can be read by other users: run chmod 600 {path}. If it may have been read, "
                f"delete it instead: a new key is generated, and users must sign in again"
            )
        text = os.read(descriptor, _LONGEST).decode("utf-8", "replace").strip()
    finally:
        os.close(descriptor)
    if len(text) < _SHORTEST:
        raise ConfigError(
            f"the key file {path!r} contains no key: restore it from a backup, or delete it: a new key is generated, "
            f"and users must sign in again"
        )
    return text

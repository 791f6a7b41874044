"""The provider's tokens in the store of an OAuth proxy: encrypted, and never seen by a client.

The key comes from outside of the store (``storage_key=``, else ``client_secret=``, else a private key file beside the
store), since a store that held its own key would reveal the tokens with the first copy of its file: a backup, a volume,
a support ticket. In a store that others can read too, the keys of the server take the place of the secret and the file.
"""

from __future__ import annotations

import hashlib
import logging
import os
import stat
from collections.abc import Callable, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from trunkline.auth.authorization_server.records import new_secret
from trunkline.auth.authorization_server.storage import Records
from trunkline.errors import ConfigError, StoreUnavailable
from trunkline.protocol.seal import InvalidSeal, Seal
from trunkline.store.interface import Step
from trunkline.store.server_store import ServerStore

__all__ = ["UpstreamTokenStore", "UpstreamTokens", "check_storage_key"]

log = logging.getLogger("trunkline.auth")

#: The purpose of the seal.
_PURPOSE = b"\x07"
_KIND = "upstream"
#: How often tokens are stored again if they were changed meanwhile: few ever do.
_ATTEMPTS = 16


class UpstreamTokens(Struct, frozen=True, omit_defaults=True):
    """The provider's tokens and their expiry."""

    access_token: str
    until: float
    refresh_token: str | None = None


class _StoredTokens(Struct, frozen=True):
    #: Bound to the grant.
    sealed: str
    #: When the record expires.
    until: float


class _KeyCheck(Struct, frozen=True):
    """A text that the first key sealed: shows whether the key is still the same."""

    sealed: str


class UpstreamTokenStore:
    """Stores the provider's tokens by grant."""

    def __init__(
        self,
        records: Records,
        *,
        issuer: str,
        storage_key: str | Sequence[str] | None,
        client_secret: str | None,
        seconds: float,
        clock: Callable[[], float],
    ) -> None:
        """Store tokens for so many seconds after each use of their grant.

        Raises:
            ConfigError: the key is too short, or the key file of the chosen store cannot be used.
        """
        self._records = records
        self._issuer = issuer
        self._storage_key = None if storage_key is None else check_storage_key(storage_key)
        self._client_secret = client_secret
        self._seconds = seconds
        self._clock = clock
        self._seal: Seal | None = None
        #: The store that the seal is for.
        self._state: ServerStore | None = None
        if records.path is not None and self._configured_secrets() is None:
            # Now, so that a file that cannot be used is an error of the configuration.
            _read_key_file(records.path)

    async def get(self, grant_id: str) -> UpstreamTokens | None:
        """Return the tokens of a grant; None if there are none, or they were encrypted with another key."""
        seal = await self.prepare()
        stored = await self._records.get(_KIND, grant_id, _StoredTokens)
        return None if stored is None else _opened(seal, grant_id, stored.record)

    async def new(self, grant_id: str, tokens: UpstreamTokens) -> tuple[Step, ...]:
        """Return the steps that store the tokens of a new grant."""
        record = self._sealed(await self.prepare(), grant_id, tokens)
        return (
            self._records.put(_KIND, grant_id, record, seconds=self._seconds),
            self._records.listed(_KIND, grant_id, seconds=self._seconds),
        )

    async def replace(self, grant_id: str, tokens: UpstreamTokens) -> None:
        """Store refreshed tokens, unless the grant was revoked meanwhile."""
        seal = await self.prepare()
        for _ in range(_ATTEMPTS):
            stored = await self._records.get(_KIND, grant_id, _StoredTokens)
            if stored is None:
                return
            record = self._sealed(seal, grant_id, tokens)
            if (await self._records.commit(*self._renewed(grant_id, record, stored.value))).done:
                return
        raise StoreUnavailable("a grant is being changed by too many requests at once")

    async def renewal(self, grant_id: str) -> Sequence[Step]:
        """Return the steps that keep the tokens for as long as a grant that is renewed."""
        stored = await self._records.get(_KIND, grant_id, _StoredTokens)
        if stored is None:
            return ()
        record = replace(stored.record, until=self._clock() + self._seconds)
        return self._renewed(grant_id, record, stored.value)

    def _renewed(self, grant_id: str, record: _StoredTokens, old: bytes) -> tuple[Step, ...]:
        return (
            self._records.put(_KIND, grant_id, record, seconds=self._seconds, old=old),
            self._records.listed(_KIND, grant_id, seconds=self._seconds),
        )

    def _sealed(self, seal: Seal, grant_id: str, tokens: UpstreamTokens) -> _StoredTokens:
        text = seal.seal(msgspec.json.encode(tokens), binding=grant_id.encode())
        return _StoredTokens(text, self._clock() + self._seconds)

    # --- keys --------------------------------------------------------------------------------------------------------

    async def prepare(self) -> Seal:
        """Return the seal; the first time, encrypt tokens again that an older key encrypted.

        Raises:
            ConfigError: the key file cannot be used.
            StoreUnavailable: the store cannot be reached now.
        """
        state = self._records.state
        if self._seal is None or self._state is not state:
            keys = await self._keys(state)
            seal, first = self._seal_of(keys), self._seal_of(keys[:1])
            check = await self._records.get("upstream-key", "check", _KeyCheck)
            if check is None or not first.is_own(check.record.sealed):
                await self._reseal(seal, first)
                renewed = self._records.put("upstream-key", "check", _KeyCheck(first.seal(b"")), seconds=_FOREVER)
                await self._records.commit(renewed)
            self._seal, self._state = seal, state
        return self._seal

    def _seal_of(self, keys: Sequence[bytes]) -> Seal:
        return Seal(keys, purpose=_PURPOSE, server=self._issuer, random=os.urandom)

    async def _keys(self, state: ServerStore) -> Sequence[bytes]:
        """Return the keys: the first one encrypts, all are tried for decryption."""
        store = await state.ready()
        secrets = self._configured_secrets() if store.private else self._storage_key
        if secrets is None and store.private and store.path is not None:
            secrets = (_read_key_file(store.path),)
        if secrets is None:
            # The keys of the server: those of a store that others can read are not in it, memory needs no better ones.
            return state.keys.derived_keys(b"oauth upstream")
        salt = self._issuer.encode()
        return [hashlib.scrypt(secret.encode(), salt=salt, n=2**10, r=8, p=1, dklen=32) for secret in secrets]

    def _configured_secrets(self) -> tuple[str, ...] | None:
        return self._storage_key or ((self._client_secret,) if self._client_secret else None)

    async def _reseal(self, seal: Seal, first: Seal) -> None:
        """Encrypt tokens again that an older key encrypted, so that the older key can be dropped."""
        lost = 0
        async for grant_id, stored in self._records.all(_KIND, _StoredTokens):
            if first.is_own(stored.record.sealed, binding=grant_id.encode()):
                continue
            tokens = _opened(seal, grant_id, stored.record)
            if tokens is None:
                lost += 1
                continue
            left = stored.record.until - self._clock()
            record = replace(self._sealed(first, grant_id, tokens), until=stored.record.until)
            # If they were changed meanwhile, they were encrypted again too.
            await self._records.commit(self._records.put(_KIND, grant_id, record, seconds=left, old=stored.value))
        if lost:
            log.warning(
                "%d users must sign in again: their provider tokens in the store were encrypted with another key "
                "(storage_key=, client_secret= or the key file changed)",
                lost,
            )


def _opened(seal: Seal, grant_id: str, stored: _StoredTokens) -> UpstreamTokens | None:
    try:
        plain = seal.open(stored.sealed, binding=grant_id.encode())
    except InvalidSeal:
        return None
    return msgspec.json.decode(plain, type=UpstreamTokens)


_FOREVER = float(2**53)
_SHORTEST = 32  # As many characters as 128 bits of hexadecimal digits.
_LONGEST = 4096  # A key file has one line; what follows is not read.
_NEW_KEY = "python -c 'import secrets; print(secrets.token_urlsafe(32))'"


def check_storage_key(given: str | Sequence[str]) -> tuple[str, ...]:
    """Return the configured keys.

    Raises:
        ConfigError: there is none, or the first one is too short.
    """
    keys = (given,) if isinstance(given, str) else tuple(given)
    if not keys or any(not isinstance(key, str) or len(key) < _SHORTEST for key in keys[:1]):
        raise ConfigError(f"storage_key= needs at least {_SHORTEST} characters; generate one with: {_NEW_KEY}")
    return keys


def _read_key_file(store: str) -> str:
    """Return the key in the file beside a store, which is created if it is missing.

    Raises:
        ConfigError: it cannot be used; the message says what to do.
    """
    path = f"{store}.key"
    try:
        _make(path)
        return _read(path)
    except OSError as problem:
        raise ConfigError(
            f"cannot use the key file {path!r} ({problem.strerror}), which encrypts the provider's tokens if there is "
            f"no client_secret=. Make its folder writable, or set storage_key= (generate one with: {_NEW_KEY})"
        ) from problem


def _make(path: str) -> None:
    """Create the key file if there is none.

    It is written under another name and then linked, so that no process sees a partial file, and of two processes
    one wins.
    """
    if os.path.lexists(path):
        return
    draft = f"{path}.{new_secret()[:8]}"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600)
    try:
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(f"{new_secret()}\n")
            file.flush()
            os.fsync(descriptor)
        os.link(draft, path)
    except FileExistsError:
        return
    finally:
        os.unlink(draft)


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

"""Logins in a store: the hosts and gateways on several machines use one login, and one of them refreshes it.

Everything is encrypted with the keys that all machines share. Each operation has its own connection: logins are loaded
when a server is first called and written when a token is refreshed, which is rare, and a store may be used from several
event loops.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from hashlib import sha256

import msgspec
from msgspec import Struct

from trunkline.auth.credential_store import CredentialStore, find_store
from trunkline.errors import AuthError, ConfigError, StoreUnavailable
from trunkline.protocol.seal import InvalidSeal, Seal, read_keys
from trunkline.store.interface import Delete, Index, IndexLimits, Put, Store
from trunkline.store.lock import StoreLock
from trunkline.store.open import open_store

__all__ = ["SharedLogins", "find_logins"]

#: The variable with the URL of the store that has the logins.
VARIABLE = "TRUNKLINE_LOGINS"
_KEY_VARIABLE = "TRUNKLINE_STATE_KEY"
#: The purpose of the seal; a server's own values have others.
_PURPOSE = b"\x05"
_NAME = "trunkline-logins"
_INDEX = "logins"
#: A login that no machine has refreshed for so long is deleted: providers forget theirs earlier.
_KEPT_SECONDS = 400 * 86400.0


def find_logins() -> CredentialStore:
    """Return the store of the user's logins: the store that ``TRUNKLINE_LOGINS`` names, else the user's own.

    Raises:
        ConfigError: the variable has no URL of a store, or there is no key.
    """
    url = os.environ.get(VARIABLE, "").strip()
    return SharedLogins(url) if url else find_store(None)


class _StoredLogin(Struct, frozen=True, array_like=True):
    key: str
    value: str


class SharedLogins:
    """Stores logins in a store, for programs on several machines."""

    def __init__(self, url: str, *, keys: Sequence[str | bytes] | None = None) -> None:
        """Use the store at a URL; the keys are those given, or those of ``TRUNKLINE_STATE_KEY``.

        Raises:
            ConfigError: the URL is not valid, or there is no key.
        """
        env = os.environ.get(_KEY_VARIABLE)
        if keys is None and not (env or "").strip():
            raise ConfigError(
                f"logins in a store need a key that all machines share: set {_KEY_VARIABLE}, or pass keys=. "
                'Make one with: python -c "import secrets; print(secrets.token_hex(32))"'
            )
        self._seal = Seal(read_keys(keys, env, os.urandom), purpose=_PURPOSE, server=_NAME, random=os.urandom)
        self._url = url
        # Checked now, so that a wrong URL is an error of the configuration and not of the first login.
        open_store(url, name=_NAME)

    def __repr__(self) -> str:
        """Show neither a login nor the password of the URL."""
        return "SharedLogins()"

    async def get(self, key: str) -> str | None:
        """Return the value of a key; None if there is none.

        Raises:
            AuthError: the store cannot be reached.
        """
        async with self._opened() as store:
            login = self._unsealed(_name(key), await store.get(_name(key)))
        return None if login is None else login.value

    async def put(self, key: str, value: str) -> None:
        """Store a value under a key.

        Raises:
            AuthError: the store cannot be reached.
        """
        name = _name(key)
        sealed = self._sealed(name, _StoredLogin(key, value))
        async with self._opened() as store:
            await store.commit(
                Put(name, sealed, _KEPT_SECONDS), Index(name, {_INDEX: IndexLimits()}, ttl=_KEPT_SECONDS)
            )

    async def delete(self, key: str) -> None:
        """Delete a key, whether it exists or not.

        Raises:
            AuthError: the store cannot be reached.
        """
        name = _name(key)
        async with self._opened() as store:
            await store.commit(Delete(name), Index(name, {}, (_INDEX,)))

    async def keys(self) -> list[str]:
        """List the keys.

        Raises:
            AuthError: the store cannot be reached.
        """
        async with self._opened() as store:
            names = await store.members(_INDEX)
            logins = [self._unsealed(name, await store.get(name)) for name in names]
        return sorted(login.key for login in logins if login is not None)

    def lock(self, name: str) -> AbstractAsyncContextManager[object]:
        """Return a lock between all programs that use these logins."""
        return self._locked(name)

    @asynccontextmanager
    async def _locked(self, name: str) -> AsyncIterator[None]:
        async with self._opened() as store, StoreLock(store, name):
            yield

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[Store]:
        store = open_store(self._url, name=_NAME)
        try:
            yield store
        except StoreUnavailable as error:
            raise AuthError(f"The shared logins cannot be reached: {error.message}. Try again.") from error
        finally:
            await store.aclose()

    # --- values ------------------------------------------------------------------------------------------------------

    def _sealed(self, name: str, login: _StoredLogin) -> bytes:
        return self._seal.seal(msgspec.json.encode(login), binding=name.encode()).encode()

    def _unsealed(self, name: str, stored: bytes | None) -> _StoredLogin | None:
        if stored is None:
            return None
        try:
            plain = self._seal.open(stored.decode(), binding=name.encode())
        except InvalidSeal:
            raise AuthError(
                f"A shared login was stored with another key: set the same {_KEY_VARIABLE} on all machines."
            ) from None
        return msgspec.json.decode(plain, type=_StoredLogin)


def _name(key: str) -> str:
    return f"login:{sha256(key.encode()).hexdigest()}"

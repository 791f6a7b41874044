"""Logins in a credential store, keyed by the issuer, the resource and the client they belong to, and never by less.

A second record maps a server's URL to its last login, so that the next program need not ask the user. A record that
cannot be decoded counts as missing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from trunkline.auth.credential_store import CredentialStore
from trunkline.auth.oauth import OAuth, canonical_url, covers, may_carry_secrets
from trunkline.auth.tokens import Login

__all__ = [
    "LoginReference",
    "LoginStore",
    "StoredLogin",
    "delete_logins",
    "find_login",
    "login_references",
    "stored_logins",
    "stored_logins_for",
]

T = TypeVar("T", bound=Struct)
_SERVER = "server"
_LOGIN = "login"


class _Pointer(Struct, frozen=True):
    url: str
    key: str


class StoredLogin(Struct, frozen=True):
    """The public part of a stored login."""

    url: str
    issuer: str
    resource: str
    client_id: str
    scope: str | None
    expires_at: float | None
    renewable: bool


class LoginStore:
    """The login for one server, in a store."""

    def __init__(self, store: CredentialStore, url: str, options: OAuth) -> None:
        """Select the server and the client: two clients of one user have two logins."""
        self._store = store
        self._options = options
        self._url = canonical_url(url)
        who = msgspec.json.encode(
            [options.grant, options.client_id, options.client_metadata_url, options.idp_client_id]
        )
        self._pointer = f"{_SERVER}|{self._url}|{hashlib.sha256(who).hexdigest()[:16]}"

    def lock(self) -> AbstractAsyncContextManager[object]:
        """Return a lock under which only one process refreshes this login at a time."""
        return self._store.lock(self._pointer)

    async def load(self) -> Login | None:
        """Return the login for this server; None if there is none that fits."""
        pointer = _read(await self._store.get(self._pointer), _Pointer)
        login = None if pointer is None else _read(await self._store.get(pointer.key), Login)
        if login is None or pointer is None or _key(login) != pointer.key:
            return None
        fits = covers(login.tokens.resource, self._url) and self._options.trusts(login.tokens.issuer)
        return login if fits else None

    async def save(self, login: Login) -> None:
        """Store a login."""
        key = _key(login)
        await self._store.put(key, msgspec.json.encode(login).decode())
        pointer = _Pointer(self._url, key)
        await self._store.put(self._pointer, msgspec.json.encode(pointer).decode())

    async def forget(self) -> None:
        """Delete the login."""
        pointer = _read(await self._store.get(self._pointer), _Pointer)
        if pointer is not None:
            await self._store.delete(pointer.key)
        await self._store.delete(self._pointer)


def _key(login: Login) -> str:
    tokens = login.tokens
    return f"{_LOGIN}|{tokens.issuer}|{tokens.resource}|{tokens.client_id}"


def _read(text: str | None, kind: type[T]) -> T | None:
    try:
        return None if text is None else msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


class LoginReference(Struct, frozen=True):
    """A store's record of which login belongs to a server's URL."""

    name: str
    url: str
    key: str

    async def load(self, store: CredentialStore) -> Login | None:
        """Load the current login."""
        pointer = _read(await store.get(self.name), _Pointer)
        return None if pointer is None else _read(await store.get(pointer.key), Login)

    async def forget(self, store: CredentialStore) -> None:
        """Delete the login and this record."""
        pointer = _read(await store.get(self.name), _Pointer)
        await store.delete(self.key if pointer is None else pointer.key)
        await store.delete(self.name)


async def login_references(store: CredentialStore) -> list[LoginReference]:
    """List the servers that a store has logins for."""
    found = []
    for name in await store.keys():
        pointer = _read(await store.get(name), _Pointer) if name.startswith(f"{_SERVER}|") else None
        if pointer is not None:
            found.append(LoginReference(name, pointer.url, pointer.key))
    return found


async def stored_logins(store: CredentialStore) -> list[StoredLogin]:
    """List the logins of a store, without their secrets."""
    found = []
    for place in await login_references(store):
        login = await place.load(store)
        if login is not None:
            tokens = login.tokens
            found.append(
                StoredLogin(
                    url=place.url,
                    issuer=tokens.issuer,
                    resource=tokens.resource,
                    client_id=tokens.client_id,
                    scope=tokens.scope or " ".join(tokens.requested) or None,
                    expires_at=tokens.expires_at,
                    renewable=tokens.refresh_token is not None,
                )
            )
    return found


async def stored_logins_for(store: CredentialStore, url: str) -> list[StoredLogin]:
    """List the stored logins for a server."""
    return [kept for kept in await stored_logins(store) if kept.url == canonical_url(url)]


async def find_login(store: CredentialStore, url: str, configured: Mapping[str, Any] | None = None) -> OAuth | None:
    """Return the options to use a server's stored login without asking the user; None if there is no login.

    ``configured`` are members of ``OAuth`` from the configuration.

    Raises:
        AuthError: the store cannot be read.
        ConfigError: the configured members are not valid.
    """
    if not may_carry_secrets(url):
        return None
    options = {**(configured or {}), "store": store, "open_browser": False}
    known = [kept.client_id for kept in await stored_logins_for(store, url)]
    # The key of a stored login contains a configured client_id; that of a dynamically registered client it does not.
    for client_id in (options.get("client_id"), *known) if known else ():
        login = OAuth(**{**options, "client_id": client_id})
        if await LoginStore(store, url, login).load() is not None:
            return login
    return None


async def delete_logins(store: CredentialStore, url: str) -> int:
    """Delete all logins for a server; return how many there were."""
    count = 0
    for name in await store.keys():
        if name.startswith(f"{_SERVER}|{canonical_url(url)}|"):
            pointer = _read(await store.get(name), _Pointer)
            if pointer is not None:
                await store.delete(pointer.key)
            await store.delete(name)
            count += 1
    return count

"""The records of an authorization server in a store, so that several workers and machines serve it together.

A record is sealed with the keys that all workers share and bound to its name: what the store holds can neither be
read nor moved there. That something is used once is one step of the store. While it cannot be reached, nothing is
issued and nothing is accepted. Loaded only if there is a store.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

import msgspec
from msgspec import Raw, Struct

from trunkline.auth.sharing import StoreLock
from trunkline.errors import StoreUnavailable
from trunkline.protocol.seal import InvalidSeal, Seal
from trunkline.store.interface import IndexLimits, Store

__all__ = ["StoreRecords"]

T = TypeVar("T", bound=Struct)

_REVOKED = b""
#: The channel on which workers announce revoked grants.
_CHANNEL = "oauth-revoked"
#: For how long a worker trusts that a grant is valid without asking; a revocation is announced to it at once.
_GRANT_SECONDS = 60.0
_MOST_GRANTS = 10_000  # Grants remembered as valid, about 2 MB.
#: How often a value is read again if another worker changed it between reading and writing: few ever do.
_ATTEMPTS = 16
#: Redis counts milliseconds in 63 bits; a hundred years are as good as forever.
_MOST_SECONDS = 100 * 365 * 86400.0
#: The kinds of which all records can be listed: few, and changed rarely.
_LISTED = frozenset({"key"})


class _Stored(Struct, frozen=True, array_like=True):
    until: float
    used: bool
    data: Raw


class StoreRecords:
    """Stores records in a store."""

    def __init__(self, store: Store, seal: Seal, *, issuer: str, clock: Callable[[], float] = time.time) -> None:
        """Store the records of one issuer; ``clock`` returns wall time."""
        self._store = store
        self._seal = seal
        self._prefix = f"oauth:{issuer}"
        self._clock = clock
        #: Since when all that was stored is known.
        self.known_since: float = 0.0
        self._grants: dict[str, float] = {}
        self._listening = False
        #: How many revocations were announced, or may have been missed.
        self._heard = 0
        store.on_new_generation(self._lost_writes)

    # --- records -----------------------------------------------------------------------------------------------------

    async def put(self, kind: str, name: str, record: Struct, *, until: float) -> None:
        """Store a record."""
        key, stored = self._key(kind, name), _Stored(until, False, Raw(msgspec.json.encode(record)))
        await self._store.put(key, self._sealed(key, stored), ttl=self._ttl(until))
        if kind in _LISTED:
            await self._index(kind, name, self._ttl(until), 0)

    async def add(
        self, kind: str, name: str, record: Struct, *, until: float, now: float, most: int | None = None
    ) -> bool:
        """Store a record unless one of the same name exists, or too many of its kind."""
        key, ttl = self._key(kind, name), self._ttl(until)
        if most is not None and not await self._index(kind, name, ttl, most):
            return False
        stored = _Stored(until, False, Raw(msgspec.json.encode(record)))
        return await self._store.put(key, self._sealed(key, stored), ttl=ttl, only_if_absent=True)

    async def get(self, kind: str, name: str, of: type[T], *, now: float) -> T | None:
        """Return a record."""
        _, stored = await self._read(self._key(kind, name))
        if stored is None or stored.until <= now:
            return None
        return msgspec.json.decode(stored.data, type=of)

    async def has(self, kind: str, name: str, *, now: float) -> bool:
        """Return True if there is such a record; for a grant, the result may be up to a minute old."""
        if self._listening and now < self._grants.get(f"{kind}\n{name}", 0.0):
            return True
        await self._listen()
        heard = self._heard
        _, stored = await self._read(self._key(kind, name))
        found = stored is not None and stored.until > now
        # A revocation that was announced meanwhile may be newer than what was read.
        if stored is not None and found and self._listening and heard == self._heard:
            if len(self._grants) >= _MOST_GRANTS:
                self._grants.clear()
            self._grants[f"{kind}\n{name}"] = min(now + _GRANT_SECONDS, stored.until)
        return found

    async def use(self, kind: str, name: str) -> bool:
        """Mark a record as used."""

        def used(stored: _Stored) -> _Stored | None:
            return None if stored.used else msgspec.structs.replace(stored, used=True)

        return await self._change(self._key(kind, name), used)

    async def extend(self, kind: str, name: str, until: float) -> None:
        """Extend the expiry of a record."""

        def extended(stored: _Stored) -> _Stored | None:
            return msgspec.structs.replace(stored, until=until) if until > stored.until else None

        if await self._change(self._key(kind, name), extended) and kind == "client":
            # Its place in the index of clients lasts as long.
            await self._index(kind, name, self._ttl(until), 0)

    async def drop(self, kind: str, name: str) -> bool:
        """Delete a record."""
        key = self._key(kind, name)
        before, stored = await self._read(key)
        # Replaced, not deleted: of two workers only one replaces what it has read.
        dropped = stored is not None and await self._store.replace(key, before, _REVOKED, ttl=1.0)
        await self._store.index(name, into={}, out_of=[self._all(kind)], ttl=1.0)
        return dropped

    async def revoke(self, kind: str, name: str, *, until: float) -> None:
        """Delete a record, let no record of this name be added before ``until``, and notify all workers."""
        self._grants.pop(f"{kind}\n{name}", None)
        await self._store.put(self._key(kind, name), _REVOKED, ttl=self._ttl(until))
        await self._store.publish(_CHANNEL, f"{kind}\n{name}".encode())

    async def all(self, kind: str, of: type[T], *, now: float) -> list[tuple[str, T, float]]:
        """Return all records of a kind that can be listed."""
        assert kind in _LISTED
        found: list[tuple[str, T, float]] = []
        for name in await self._store.members(self._all(kind)):
            _, stored = await self._read(self._key(kind, name))
            if stored is not None and stored.until > now:
                found.append((name, msgspec.json.decode(stored.data, type=of), stored.until))
        return sorted(found, key=lambda each: -each[2])

    async def secrets(self, name: str, *, now: float) -> tuple[bytes, ...]:
        """Return the secrets for a purpose, derived from the keys."""
        return self._seal.derived_keys(f"oauth {name}".encode())

    def lock(self, name: str) -> AbstractAsyncContextManager[object]:
        """Return a lock between all workers."""
        return StoreLock(self._store, f"{self._prefix}:{name}")

    def close(self) -> None:
        """Do nothing: the store is not ours."""

    # --- values ------------------------------------------------------------------------------------------------------

    def _key(self, kind: str, name: str) -> str:
        return f"{self._prefix}:{kind}:{name}"

    def _all(self, kind: str) -> str:
        return f"{self._prefix}:{kind}"

    def _ttl(self, until: float) -> float:
        return min(max(until - self._clock(), 0.001), _MOST_SECONDS)

    async def _index(self, kind: str, name: str, ttl: float, most: int) -> bool:
        """Add a record to the index of its kind, or renew it there; return False if there are too many."""
        into = {self._all(kind): IndexLimits(members=most)}
        return await self._store.index(name, into=into, ttl=ttl) is None

    def _sealed(self, key: str, stored: Struct) -> bytes:
        return self._seal.seal(msgspec.json.encode(stored), binding=key.encode()).encode()

    async def _read(self, key: str) -> tuple[bytes, _Stored | None]:
        found = await self._store.get(key)
        if not found:
            return b"", None
        try:
            plain = self._seal.open(found.decode(), binding=key.encode())
        except InvalidSeal:
            return found, None
        return found, msgspec.json.decode(plain, type=_Stored)

    async def _change(self, key: str, change: Callable[[_Stored], _Stored | None]) -> bool:
        """Change a record in one step; return False if there is none, or nothing to change."""
        for _ in range(_ATTEMPTS):
            before, stored = await self._read(key)
            after = None if stored is None else change(stored)
            if after is None:
                return False
            if await self._store.replace(key, before, self._sealed(key, after), ttl=self._ttl(after.until)):
                return True
        raise StoreUnavailable("a record is being changed by too many requests at once")

    # --- what other workers announce ---------------------------------------------------------------------------------

    async def _listen(self) -> None:
        """Subscribe to revocations of grants; without the subscription no grant is cached."""
        if not self._listening:
            try:
                await self._store.subscribe(_CHANNEL, self._revoked, missed=self._forget)
            except StoreUnavailable:
                return
            self._listening = True

    def _forget(self) -> None:
        self._heard += 1
        self._grants.clear()

    def _revoked(self, message: bytes) -> None:
        self._heard += 1
        self._grants.pop(message.decode("utf-8", "replace"), None)

    def _lost_writes(self, _: str) -> None:
        """Called when the store no longer knows all that was used or revoked."""
        self._forget()
        self.known_since = self._clock()

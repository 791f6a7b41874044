"""What the workers of one server share besides sessions: large request states, used nonces, handles, tasks.

All of it is kept in the store. Whether something was used before can be known only there, so a nonce is refused
while the store cannot be reached. Loaded only if there is a store.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from trunkline.errors import StoreUnavailable
from trunkline.protocol.limits import Limits
from trunkline.protocol.seal import InvalidSeal, Seal
from trunkline.server.handle_stores import StoredHandle, full_store
from trunkline.store.interface import IndexLimits, Store
from trunkline.store.server_store import ServerStore

if TYPE_CHECKING:
    from trunkline.server.server import Server
    from trunkline.transports.http.server.shared.worker import SharedWorker

__all__ = ["SharedStateKeeper", "StoreHandles", "share_state"]

#: The purpose of the seal of stored values; request states, handles and session ids have others.
_PURPOSE = b"\x04"
#: The most large states that are stored at once, and how many bytes they have: as many as one process keeps in memory.
_STATES = 1024


def share_state(server: Server, worker: SharedWorker, auth: object) -> None:
    """Let a server keep what several workers need in their store, and let its authentication do so."""
    store = worker.store
    seal = server.seal.texts.for_purpose(_PURPOSE)
    server.seal.keeper = SharedStateKeeper(worker, seal, limits=server.limits, random=os.urandom)
    if server.handle_option is None or isinstance(server.handle_option, StoreHandles):
        server.handle_option = StoreHandles(store, limits=server.limits, ready=worker.started)
        server._handles = None
    server._share_tasks(store, seal)
    for part in (auth, getattr(auth, "binding", None)):
        share: Callable[[ServerStore], None] | None = getattr(part, "_share", None)
        if share is not None:
            share(ServerStore(store, name=server.name, keys=server._state_keys))


class SharedStateKeeper:
    """Keeps large states and used nonces in a store."""

    def __init__(self, worker: SharedWorker, seal: Seal, *, limits: Limits, random: Callable[[int], bytes]) -> None:
        """Use the store of a worker; what is stored there is sealed."""
        self._worker = worker
        self._store = worker.store
        self._seal = seal
        self._limits = limits
        self._random = random

    async def new_nonce(self) -> str:
        """Return a nonce; it names the generation, since whether it was used is known only there."""
        if not self._store.generation:
            await self._worker.started()
        return f"{self._store.generation}.{self._random(16).hex()}"

    async def put(self, contents: bytes) -> str | None:
        """Store contents; None if all stored states together would be too large."""
        name, seconds = self._random(16).hex(), self._limits.state_seconds
        sealed = self._seal.seal(contents, binding=name.encode()).encode()
        room = {"states": IndexLimits(members=_STATES, weight=self._limits.message_bytes)}
        if await self._store.index(name, into=room, weight=len(sealed), ttl=seconds) is not None:
            return None
        await self._store.put(f"state:{name}", sealed, ttl=seconds)
        return name

    async def get(self, name: str) -> bytes | None:
        """Return stored contents."""
        found = await self._store.get(f"state:{name}")
        if found is None:
            return None
        try:
            return self._seal.open(found.decode(), binding=name.encode())
        except InvalidSeal:
            return None

    async def spend(self, nonce: str) -> bool:
        """Mark a nonce as used on all workers.

        Raises:
            StoreUnavailable: it is unknown now whether the nonce was used.
        """
        # A store that lost writes no longer knows which earlier nonces were used.
        if nonce.partition(".")[0] != await _generation(self._store, self._worker.started):
            return False
        return await self._store.put(f"nonce:{nonce}", b"", ttl=self._limits.state_seconds, only_if_absent=True)


class _Record(Struct, frozen=True, array_like=True):
    """The stored value of a handle."""

    generation: str
    version: int
    owner: str | None
    data: bytes


class StoreHandles:
    """Stores the values of handles in a store, for all workers of a server."""

    __slots__ = ("_limits", "_ready", "_store")

    def __init__(
        self, store: Store, *, limits: Limits | None = None, ready: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Use a store; the limits apply to all workers together. ``ready`` waits for the first connection."""
        self._store = store
        self._limits = limits or Limits()
        self._ready = ready

    async def create(self, key: str, data: bytes, *, owner: str | None, ttl: float) -> None:
        """Store new data.

        Raises:
            HandleStoreFull: a limit is reached.
            StoreUnavailable: nothing can be stored now.
        """
        record = _Record(await _generation(self._store, self._ready), 1, owner, data)
        await self._reserve(key, owner, len(data), ttl)
        try:
            await self._store.put(_name(key), msgspec.msgpack.encode(record), ttl=ttl)
        except StoreUnavailable:
            # If this fails too, it counts until its time is over.
            with suppress(StoreUnavailable):
                await self._release(key, owner)
            raise

    async def load(self, key: str) -> StoredHandle | None:
        """Return the data of a key.

        Raises:
            StoreUnavailable: it cannot be read now.
        """
        _, record = await self._read(key)
        return None if record is None else StoredHandle(record.data, record.version)

    async def save(self, key: str, data: bytes, *, version: int, ttl: float) -> bool:
        """Replace the data of a version.

        Raises:
            HandleStoreFull: a limit is reached.
            StoreUnavailable: nothing can be stored now.
        """
        before, record = await self._read(key)
        if record is None or record.version != version:
            return False
        # The larger of the two counts until it is certain which one is stored.
        await self._reserve(key, record.owner, max(len(data), len(record.data)), ttl)
        after = msgspec.structs.replace(record, version=version + 1, data=data)
        saved = False
        try:
            saved = await self._store.replace(_name(key), before, msgspec.msgpack.encode(after), ttl=ttl)
        finally:
            if not saved or len(data) < len(record.data):
                await self._correct(key, record.owner, ttl)
        return saved

    async def delete(self, key: str) -> None:
        """Remove the data of a key.

        Raises:
            StoreUnavailable: nothing can be removed now.
        """
        _, record = await self._read(key)
        await self._store.delete(_name(key))
        await self._release(key, None if record is None else record.owner)

    async def _read(self, key: str) -> tuple[bytes, _Record | None]:
        found = await self._store.get(_name(key))
        if found is None:
            return b"", None
        record = msgspec.msgpack.decode(found, type=_Record)
        # A store that lost writes may have an older value than the one that was acknowledged.
        current = await _generation(self._store, self._ready)
        return found, record if record.generation == current else None

    async def _correct(self, key: str, owner: str | None, ttl: float) -> None:
        """Count the size of the value that is stored, if that can be read now."""
        with suppress(StoreUnavailable):
            _, record = await self._read(key)
            if record is None:
                await self._release(key, owner)
            else:
                into = {name: IndexLimits() for name in _indexes(record.owner)}
                await self._store.index(key, into=into, weight=len(record.data), ttl=ttl)

    async def _reserve(self, key: str, owner: str | None, size: int, ttl: float) -> None:
        limits = self._limits
        into = {_ALL: IndexLimits(limits.handles, limits.handle_bytes)}
        if owner is not None:
            # Callers without a principal cannot be distinguished, so only the totals apply to them.
            into[_owned(owner)] = IndexLimits(limits.principal_handles, limits.principal_handle_bytes)
        full = await self._store.index(key, into=into, weight=size, ttl=ttl)
        if full is not None:
            raise full_store(limits, ("" if full.name == _ALL else "principal_") + _FIELDS[full.limit])

    async def _release(self, key: str, owner: str | None) -> None:
        await self._store.index(key, into={}, out_of=_indexes(owner), ttl=1.0)


#: The index of all handles, and the fields of `Limits` by the limits of an index.
_ALL = "handles"
_FIELDS = MappingProxyType({"members": "handles", "weight": "handle_bytes"})


def _owned(owner: str) -> str:
    return f"handles:{owner}"


def _indexes(owner: str | None) -> list[str]:
    return [_ALL] if owner is None else [_ALL, _owned(owner)]


def _name(key: str) -> str:
    return f"handle:{key}"


async def _generation(store: Store, ready: Callable[[], Awaitable[None]] | None) -> str:
    if not store.generation and ready is not None:
        await ready()
    if not store.generation:
        raise StoreUnavailable("the store has not been reached yet; the server keeps trying")
    return store.generation

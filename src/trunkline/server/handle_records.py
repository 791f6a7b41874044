"""The values of handles in the store of a server: records, and changes that are never overwritten.

Keys are digests of handle, type and principal, so a store contains no usable handle, and the handle of another
principal is not found. A record and its place in the indexes of `StoreBudget` are written in one commit. Records are
sealed unless only this user can read the store. This module knows neither handles nor the types of their values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from msgspec import Struct

from trunkline.errors import HandleStoreFull
from trunkline.protocol.limits import Limits
from trunkline.protocol.seal import InvalidSeal
from trunkline.server.store_budget import HANDLES, StoreBudget, weight_of
from trunkline.store.interface import Commit, Delete, Index, Put, Step, Store
from trunkline.store.server_store import ServerStore

__all__ = ["HandleRecord", "HandleRecords", "StoredHandle"]


class HandleRecord(Struct, frozen=True, array_like=True):
    """The stored value of a handle."""

    #: The value as JSON.
    value: bytes
    #: The owner by whose share it counts (`owner_name`).
    owner: str
    #: Seconds from the last change until it expires.
    ttl: float
    #: Whether the value was immutable when it was created.
    fixed: bool = False
    #: Counts the changes, so that two records of one value are never equal.
    version: int = 1
    #: The generation of the store. One that lost writes may have an older value than the one that was acknowledged.
    generation: str = ""


class StoredHandle(NamedTuple):
    """A record, and the bytes that are stored for it: they must still be there when it is changed."""

    key: str
    record: HandleRecord
    stored: bytes


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(HandleRecord)


class HandleRecords:
    """Stores the records of handles until they expire."""

    __slots__ = ("_budget", "_state")

    def __init__(self, state: ServerStore, *, limits: Limits) -> None:
        """Use the store of a server; the limits hold for all of its workers together."""
        self._state = state
        self._budget = StoreBudget(limits)

    async def create(self, key: str, record: HandleRecord) -> StoredHandle:
        """Store a new record.

        Raises:
            HandleStoreFull: a limit is reached; the message names it.
            StoreUnavailable: nothing can be stored now.
        """
        store = await self._state.ready()
        handle = self._encode(
            key, HandleRecord(record.value, record.owner, record.ttl, record.fixed, 1, store.generation)
        )
        steps = Put(_name(key), handle.stored, record.ttl), self._indexed(handle)
        commit = await store.commit(*steps)
        if commit.full is not None:
            await self._make_room(store, handle, commit, steps)
        return handle

    async def load(self, key: str) -> StoredHandle | None:
        """Return the record of a key; None if there is none, or it has expired.

        Raises:
            StoreUnavailable: it cannot be read now.
        """
        store = await self._state.ready()
        stored = await store.get(_name(key))
        if stored is None:
            return None
        seal = self._state.seal
        try:
            record = _DECODER.decode(stored if seal is None else seal.open(stored.decode(), binding=key.encode()))
        except (InvalidSeal, msgspec.DecodeError, UnicodeDecodeError):
            return None
        return StoredHandle(key, record, stored) if record.generation == store.generation else None

    async def save(self, handle: StoredHandle, value: bytes) -> StoredHandle | None:
        """Replace the value of a record; return None if it was changed or deleted since, or has expired.

        Raises:
            HandleStoreFull: a limit is reached; the message names it.
            StoreUnavailable: nothing can be stored now.
        """
        store = await self._state.ready()
        before = handle.record
        if before.generation != store.generation:
            return None
        record = msgspec.structs.replace(before, value=value, version=before.version + 1)
        changed = self._encode(handle.key, record)
        written = Put(_name(handle.key), changed.stored, record.ttl, handle.stored)
        steps = written, self._indexed(changed)
        commit = await store.commit(*steps)
        if commit.full is not None:
            commit = await self._make_room(store, changed, commit, steps)
        return changed if commit.done else None

    async def delete(self, handle: StoredHandle) -> None:
        """Remove a record, if it is there.

        Raises:
            StoreUnavailable: nothing can be removed now.
        """
        store = await self._state.ready()
        indexes = tuple(self._budget.indexes(handle.record.owner).unlimited)
        await store.commit(Delete(_name(handle.key)), Index(HANDLES + handle.key, {}, indexes))

    def _encode(self, key: str, record: HandleRecord) -> StoredHandle:
        data, seal = _ENCODER.encode(record), self._state.seal
        return StoredHandle(key, record, data if seal is None else seal.seal(data, binding=key.encode()).encode())

    def _indexed(self, handle: StoredHandle) -> Index:
        record = handle.record
        into = self._budget.indexes(record.owner).limited
        return Index(HANDLES + handle.key, into, (), weight_of(len(handle.stored)), record.ttl)

    async def _make_room(self, store: Store, handle: StoredHandle, commit: Commit, steps: Sequence[Step]) -> Commit:
        """Repeat a commit for which there was no room, after dropping what can be dropped of the same owner."""
        commit = await self._budget.make_room(store, handle.record.owner, commit, steps)
        if commit.full is not None:
            raise HandleStoreFull(self._budget.refusal(commit.full).message)
        return commit


def _name(key: str) -> str:
    return f"handle:{key}"

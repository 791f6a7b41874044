"""Where a proxy keeps clients, codes and tokens: any asynchronous key-value store, or a file of our own.

The store that a user passes in has ``get``, ``put`` and ``delete`` with a ``collection``, as those of ``key_value``.
Without one, records are kept in the SQLite file that ``trunkline.auth`` uses, encrypted with a key that is derived from
the signing key.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct
from pydantic import BaseModel

from trunkline.auth.authorization_server.storage import SqliteRecords

__all__ = ["FileStore", "ModelStore"]

_M = TypeVar("_M", bound=BaseModel)
_SWEEP_SECONDS = 60.0  # Transactions, which need no login, expire after minutes and must not pile up.
_NEVER = 60 * 60 * 24 * 365 * 10.0  # Records without a time: registered clients.


class ModelStore(Generic[_M]):
    """A collection of models of one class."""

    def __init__(self, storage: Any, model: type[_M], collection: str) -> None:
        """Initialize with the store and the name of the collection."""
        self._storage, self._model, self._collection = storage, model, collection

    async def get(self, key: str) -> _M | None:
        """Return a model, or None; one that cannot be read any more counts as none."""
        found = await self._storage.get(key=key, collection=self._collection)
        if found is None:
            return None
        try:
            return self._model.model_validate(found)
        except ValueError:
            return None

    async def put(self, key: str, value: _M, ttl: float | None = None) -> None:
        """Store a model, for a time in seconds."""
        await self._storage.put(key=key, value=value.model_dump(mode="json"), collection=self._collection, ttl=ttl)

    async def delete(self, key: str) -> bool:
        """Remove a model; return whether it was there."""
        return bool(await self._storage.delete(key=key, collection=self._collection))


class _Sealed(Struct, frozen=True):
    data: bytes


class FileStore:
    """A key-value store in one encrypted file, opened when it is first used."""

    def __init__(self, path: str, encryption_key: bytes) -> None:
        """Initialize with the file and the key."""
        from cryptography.fernet import Fernet

        self._path = path
        self._seal = Fernet(encryption_key)
        self._opened: SqliteRecords | None = None
        self._swept = 0.0

    @property
    def _records(self) -> SqliteRecords:
        if self._opened is None:
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            self._opened = SqliteRecords(self._path)
        return self._opened

    async def get(self, key: str, *, collection: str | None = None) -> dict[str, Any] | None:
        """Return a record, or None."""
        from cryptography.fernet import InvalidToken

        found = self._records.get(collection or "", key, _Sealed, now=time.time())
        if found is None:
            return None
        try:
            record: dict[str, Any] = msgspec.json.decode(self._seal.decrypt(found.data))
        except InvalidToken:
            return None
        return record

    async def put(
        self, key: str, value: Mapping[str, Any], *, collection: str | None = None, ttl: float | None = None
    ) -> None:
        """Store a record, for a time in seconds."""
        now = time.time()
        if now - self._swept > _SWEEP_SECONDS:
            self._swept = now
            self._records.sweep(now)
        sealed = _Sealed(self._seal.encrypt(msgspec.json.encode(value)))
        until = now + (_NEVER if ttl is None else float(ttl))
        self._records.put(collection or "", key, sealed, until=until)

    async def delete(self, key: str, *, collection: str | None = None) -> bool:
        """Remove a record; return whether it was there."""
        return self._records.drop(collection or "", key)

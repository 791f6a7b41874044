"""Locks between workers and machines that share a store."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from hashlib import sha256
from types import TracebackType

from trunkline.errors import StoreUnavailable
from trunkline.store.interface import Store

__all__ = ["StoreLock"]


#: A lease that its holder does not renew runs out after this: a crashed worker holds up the others no longer.
_LEASE_SECONDS = 10.0
#: Pause before a lock is tried again; it doubles each time, up to the second number.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 0.25
#: The value of a lock that was released.
_FREE = b""
#: How long to wait for a lock: longer than a token endpoint takes to answer.
_LONGEST_WAIT = 60.0


class StoreLock:
    """A lock between workers and machines: a value with a lease in a store.

    The lease is renewed while the lock is held. A holder that could not renew it, because the store was gone for
    longer than the lease, has lost the lock without knowing: what is done under it must stay correct then, if only
    with more work.
    """

    __slots__ = ("_key", "_lease", "_renewing", "_store", "_token", "_wait")

    def __init__(self, store: Store, name: str, *, lease: float = _LEASE_SECONDS, wait: float = _LONGEST_WAIT) -> None:
        """Name the lock; the name is not stored, only its digest."""
        self._store = store
        self._lease = lease
        self._wait = wait
        self._key = f"lock:{sha256(name.encode()).hexdigest()[:32]}"
        self._token = b""
        self._renewing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        """Acquire the lock.

        Raises:
            StoreUnavailable: the store cannot be reached, or another worker holds the lock for too long.
        """
        token, pause = secrets.token_bytes(16), _FIRST_PAUSE
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._wait
        while not await self._acquire(token):
            if loop.time() >= deadline:
                raise StoreUnavailable(f"another worker has held a lock for over {self._wait:g} s")
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        self._token = token
        self._renewing = loop.create_task(self._renew(token), name="trunkline-lease")

    async def _acquire(self, token: bytes) -> bool:
        put, replace = self._store.put, self._store.replace
        return await put(self._key, token, ttl=self._lease, only_if_absent=True) or await replace(
            self._key, _FREE, token, ttl=self._lease
        )

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        """Release the lock; without the store, its lease runs out."""
        token, self._token = self._token, b""
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait([self._renewing])
        with suppress(StoreUnavailable):
            # Only if it is still ours: another worker may have it since a lease ran out.
            await self._store.replace(self._key, token, _FREE, ttl=self._lease)

    async def _renew(self, token: bytes) -> None:
        while True:
            await asyncio.sleep(self._lease / 3)
            with suppress(StoreUnavailable):
                if not await self._store.replace(self._key, token, token, ttl=self._lease):
                    return

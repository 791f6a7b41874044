"""Where an authorization server stores its records: over the verbs of a store, whatever its engine.

A record is a value that expires. Changes are steps of one commit, so that a code, its grant and the first refresh token
never differ, and what may be used once is marked as used in the step that uses it. In a store that others can read,
values are sealed with the keys of the server and bound to their names: they can neither be read nor moved there.

While the store cannot be reached nothing is issued and nothing is accepted. After it lost writes, it no longer knows
what was used: codes, refresh tokens and pages carry the generation of the store, and those of an earlier one are
rejected.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Generic, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from trunkline.auth.authorization_server.records import TokenGrant
from trunkline.errors import StoreUnavailable
from trunkline.protocol.seal import InvalidSeal, Seal
from trunkline.store.interface import Commit, Delete, Index, IndexLimits, Publish, Put, Step, Store
from trunkline.store.lock import StoreLock
from trunkline.store.server_store import ServerStore, StoreOption

__all__ = ["Records", "Stored"]

log = logging.getLogger("trunkline.auth")

T = TypeVar("T", bound=Struct)

#: The value of what was used and has no other content.
_USED = b""
#: The purpose of the seal of requests that travel in a page.
_PAGES = b"\x06"
#: Redis counts milliseconds in 63 bits; a hundred years are as good as forever.
_MOST_SECONDS = 100 * 365 * 86400.0
_PAGE_OF_NAMES = 1000  # Names read at once when all records of a kind are read.


class Stored(NamedTuple, Generic[T]):
    """A record, and the value that it was read from: a change may depend on it."""

    record: T
    value: bytes


class Records:
    """The records of one authorization server."""

    def __init__(
        self,
        option: StoreOption,
        *,
        issuer: str,
        keys: Sequence[str | bytes] | None,
        clock: Callable[[], float],
    ) -> None:
        """Use what was passed as ``store=`` and ``state_keys=``; nothing is connected yet.

        Raises:
            ConfigError: the store cannot be used, or others can read it and there is no key.
        """
        self._prefix = f"oauth:{issuer}"
        self._clock = clock
        #: The store that was chosen, or the memory of this process.
        self._own = ServerStore(option, name=f"oauth {issuer}", keys=keys)
        # Now, so that a wrong option is an error of the configuration and not of the first sign-in.
        self._own.check()
        self._own.on_lost_writes(self._lost_writes)
        #: The store of the server that uses this authorization server.
        self._shared: ServerStore | None = None
        #: Since when all that was stored is known: what is older may have been used.
        self.known_since: float = 0.0
        self._grants: WeakKeyDictionary[Store, _ValidGrants] = WeakKeyDictionary()
        self._callbacks: list[Callable[[], None]] = []

    @property
    def path(self) -> str | None:
        """The file that was chosen, if it is one."""
        return self._own.store.path if self._own.is_shared else None

    def share(self, state: ServerStore) -> None:
        """Use the store of a server, which its workers share, unless another was chosen."""
        if not self._own.is_shared:
            if state is not self._shared:
                self._shared = state
                state.on_lost_writes(self._lost_writes)
        elif self._own.store.private and not state.store.private:
            log.warning(
                "store= of the authorization server is a file of this machine: leave it out if other machines serve "
                "too, so that everything is stored in the store of the server"
            )

    @property
    def state(self) -> ServerStore:
        """The store in use."""
        return self._shared or self._own

    async def ready(self) -> Store:
        """Return the store once its generation is known.

        Raises:
            StoreUnavailable: it cannot be reached now.
        """
        return await self.state.ready()

    def on_lost_writes(self, callback: Callable[[], None]) -> None:
        """Register a callback for each loss of acknowledged writes."""
        self._callbacks.append(callback)

    async def aclose(self) -> None:
        """Close the store of the running event loop, if it was opened here."""
        await self._own.aclose()

    def _lost_writes(self) -> None:
        """Called when the store lost writes."""
        self.known_since = self._clock()
        for callback in self._callbacks:
            callback()

    # --- records -----------------------------------------------------------------------------------------------------

    async def get(self, kind: str, name: str, of: type[T]) -> Stored[T] | None:
        """Return a record; None if there is none.

        Raises:
            StoreUnavailable: the store cannot be reached now.
        """
        key = self._key(kind, name)
        value = await (await self.ready()).get(key)
        plain = self._opened(key, value) if value else None
        return None if value is None or plain is None else Stored(msgspec.json.decode(plain, type=of), value)

    async def all(self, kind: str, of: type[T]) -> AsyncIterator[tuple[str, Stored[T]]]:
        """Yield the listed records of a kind with their names."""
        store, last = await self.ready(), ""
        while names := await store.members(self._index(kind), after=last, limit=_PAGE_OF_NAMES):
            last = names[-1]
            for name in names:
                stored = await self.get(kind, name, of)
                if stored is not None:
                    yield name, stored

    async def commit(self, *steps: Step) -> Commit:
        """Do steps at once, or none if the condition of one does not hold.

        Raises:
            StoreUnavailable: the store cannot be reached now; the steps may have been done all the same.
        """
        return await (await self.ready()).commit(*steps)

    async def forget(self, kind: str, name: str) -> None:
        """Delete a record.

        Raises:
            StoreUnavailable: the store cannot be reached now.
        """
        await (await self.ready()).delete(self._key(kind, name))

    def put(self, kind: str, name: str, record: Struct, *, seconds: float, old: bytes | None = None) -> Put:
        """Return the step that stores a record; with ``old``, only if that is its value now."""
        key = self._key(kind, name)
        return Put(key, self._sealed(key, msgspec.json.encode(record)), _ttl(seconds), old)

    def add(self, kind: str, name: str, record: Struct, *, seconds: float) -> Put:
        """Return the step that stores a record, if there is none of this name."""
        return replace(self.put(kind, name, record, seconds=seconds), only_if_absent=True)

    def spend(self, kind: str, name: str, *, seconds: float) -> Put:
        """Return the step that marks a name as used, if it was not."""
        return Put(self._key(kind, name), _USED, _ttl(seconds), only_if_absent=True)

    def drop(self, kind: str, name: str, old: bytes) -> Put:
        """Return the step that removes a record, if ``old`` is its value now."""
        # Replaced, not deleted: of two that have read it, only one replaces it.
        return Put(self._key(kind, name), _USED, 1.0, old)

    def revoke(self, grant_id: str) -> tuple[Step, ...]:
        """Return the steps that revoke a grant, and announce it to all workers."""
        for grants in tuple(self._grants.values()):
            grants.forget(grant_id)
        # The grant cannot come back: it is stored in the commit that uses its code, and renewed only if it is there.
        return (
            Delete(self._key("grant", grant_id)),
            Delete(self._key("upstream", grant_id)),
            self.unlisted("upstream", grant_id),
            Publish(self._index("revoked"), grant_id.encode()),
        )

    def listed(self, kind: str, name: str, *, seconds: float, most: int = 0) -> Index:
        """Return the step that lists a record among those of its kind, if there are less than ``most``."""
        return Index(name, {self._index(kind): IndexLimits(members=most)}, ttl=_ttl(seconds))

    def unlisted(self, kind: str, name: str) -> Index:
        """Return the step that removes a record from the list of its kind."""
        return Index(name, {}, (self._index(kind),))

    async def has_grant(self, grant_id: str) -> bool:
        """Return whether a grant is valid; the result may be up to a minute old, but a revocation is announced.

        Raises:
            StoreUnavailable: the store cannot be reached now.
        """
        store = await self.ready()
        grants = self._grants.get(store)
        if grants is None:
            grants = self._grants[store] = _ValidGrants(self._index("revoked"), self._clock)
            store.on_new_generation(grants.forget_all)
        return await grants.check(store, grant_id, read=lambda: self.get("grant", grant_id, TokenGrant))

    async def admit(self, name: str, *, most: int, seconds: float) -> float:
        """Count an event of a name; return 0, or for how many seconds it must wait.

        Raises:
            StoreUnavailable: the store cannot be reached now.
        """
        return await (await self.ready()).admit(f"{self._prefix}:{name}", rate=most / seconds, burst=most)

    async def forgive(self, name: str) -> None:
        """Forget how often a name was counted."""
        await (await self.ready()).delete(f"{self._prefix}:{name}")

    async def lock(self, name: str) -> StoreLock:
        """Return a lock between all that use these records."""
        return StoreLock(await self.ready(), f"{self._prefix}:{name}")

    # --- values ------------------------------------------------------------------------------------------------------

    def _key(self, kind: str, name: str) -> str:
        return f"{self._prefix}:{kind}:{name}"

    def _index(self, kind: str) -> str:
        return f"{self._prefix}:{kind}"

    def _sealed(self, key: str, plain: bytes) -> bytes:
        seal = self.state.seal
        return plain if seal is None else seal.seal(plain, binding=key.encode()).encode()

    def _opened(self, key: str, value: bytes) -> bytes | None:
        seal = self.state.seal
        if seal is None:
            return value
        try:
            return seal.open(value.decode("ascii", "replace"), binding=key.encode())
        except InvalidSeal:
            return None

    async def page_seal(self) -> Seal:
        """Return the seal of requests that travel in a page, which all processes have."""
        await self.state.load_keys()
        return self.state.seal_for(_PAGES)


def _ttl(seconds: float) -> float:
    return min(max(seconds, 0.001), _MOST_SECONDS)


#: For how long a worker trusts that a grant is valid without asking; a revocation is announced to it at once.
_GRANT_SECONDS = 60.0
_MOST_GRANTS = 10_000  # Grants remembered as valid, about 2 MB.


class _ValidGrants:
    """The grants that one engine has lately seen to be valid; revocations are announced on a channel."""

    def __init__(self, channel: str, clock: Callable[[], float]) -> None:
        self._channel = channel
        self._clock = clock
        self._until: dict[str, float] = {}
        self._listening = False
        #: How many revocations were announced, or may have been missed.
        self._announced = 0

    async def check(self, store: Store, grant_id: str, *, read: Callable[[], Awaitable[object]]) -> bool:
        """Return whether a grant is valid; ``read`` returns it from the store, or None."""
        now = self._clock()
        if self._listening and now < self._until.get(grant_id, 0.0):
            return True
        await self._listen(store)
        before = self._announced
        is_valid = await read() is not None
        # A revocation that was announced meanwhile may be newer than what was read.
        if is_valid and self._listening and before == self._announced:
            if len(self._until) >= _MOST_GRANTS:
                self._until.clear()
            self._until[grant_id] = now + _GRANT_SECONDS
        return is_valid

    async def _listen(self, store: Store) -> None:
        """Subscribe to revocations; without the subscription no grant is cached."""
        if not self._listening:
            try:
                await store.subscribe(self._channel, self._revoked, missed=self.forget_all)
            except StoreUnavailable:
                return
            self._listening = True

    def _revoked(self, message: bytes) -> None:
        self.forget(message.decode("utf-8", "replace"))

    def forget(self, grant_id: str) -> None:
        """Ask for a grant again."""
        self._announced += 1
        self._until.pop(grant_id, None)

    def forget_all(self, _: str = "") -> None:
        """Ask for all grants again: revocations may have been missed."""
        self._announced += 1
        self._until.clear()

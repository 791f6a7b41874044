"""The store of a server: opened when something has to outlive a request, and the keys of what is sealed.

A server always has one. Each event loop has an engine of its own, since connections belong to a loop; the memory of
this process, and an engine that was passed as an object, are one for all loops. Opening does no I/O, so that a server
which stores nothing pays nothing: `ServerStore.ready` connects, at the first contact.

The keys are configured, or made here. A store that only this user can read has a key of its own in it, so that a
restart and every worker open what was sealed before; in memory the key ends with the process. A store that others can
reach needs a configured key, since reading the store must not be enough to decrypt its contents.

Servers and authorization servers have one each; a server passes its own to its authentication.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakKeyDictionary

from trunkline.errors import ConfigError, StoreUnavailable

if TYPE_CHECKING:
    from trunkline.protocol.seal import Seal
    from trunkline.store.interface import Store

__all__ = ["ServerStore", "StoreOption"]

#: What ``store=`` accepts: a path or a URL (``sqlite:///…``, ``redis://…``), an engine, or None for memory.
StoreOption: TypeAlias = "str | os.PathLike[str] | Store | None"
_ENVIRONMENT = "TRUNKLINE_STATE_KEY"
#: The purpose of the seal of stored values; request states, handles and session ids have others.
_STORED_VALUES = b"\x04"
_KEY_BYTES = 32  # AES-256.
#: A key that was made for a store stays there: for a hundred years, since every value has a time to live.
_KEY_SECONDS = 100 * 365 * 24 * 3600.0
#: For how long after the last start of a worker others must have its keys: a month.
_CHECK_SECONDS = 30 * 24 * 3600.0


class ServerStore:
    """The store of one server in this process, and the server's keys."""

    def __init__(self, option: StoreOption = None, *, name: str, keys: Sequence[str | bytes] | None = None) -> None:
        """Use what was passed as ``store=`` and ``state_keys=``; nothing is opened yet."""
        self._name = name
        self._configured_keys = keys
        self._lost_writes: list[Callable[[], None]] = []
        self._option = option
        #: The engine of each event loop, or the one of all loops.
        self._engines: WeakKeyDictionary[asyncio.AbstractEventLoop, Store] = WeakKeyDictionary()
        self._common: Store | None = None
        #: Opened outside of an event loop, for the first loop that needs one.
        self._unbound: Store | None = None
        self._key_ring: Sequence[bytes] | None = None
        self._stored_seal: Seal | None = None
        #: Whether the keys were loaded from the store, or compared with those of other workers.
        self._checked = False

    # --- what is used ------------------------------------------------------------------------------------------------

    @property
    def option(self) -> StoreOption:
        """What the store was opened from."""
        return self._option

    @property
    def is_shared(self) -> bool:
        """Whether other processes may use the store too: any but the memory of this one."""
        return self._option is not None

    @property
    def is_object(self) -> bool:
        """Whether an engine was passed, which other processes cannot open."""
        return self.is_shared and not isinstance(self._option, str | os.PathLike)

    @property
    def store(self) -> Store:
        """The engine of the running event loop; nothing is connected by asking for it.

        Raises:
            ConfigError: the option is not valid, or its engine is not installed.
        """
        if self._common is not None:
            return self._common
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            if self._unbound is None:
                self._unbound = self._open()
            return self._unbound
        engine = self._engines.get(loop)
        if engine is None:
            engine, self._unbound = self._unbound or self._open(), None
            if engine is not self._common:
                self._engines[loop] = engine
        return engine

    def _open(self) -> Store:
        from trunkline.store.open import open_store

        engine = open_store(self._option, name=self._name)
        engine.on_new_generation(self._announce_lost_writes)
        if engine is self._option or not self.is_shared:
            self._common = engine
        return engine

    def on_lost_writes(self, callback: Callable[[], None]) -> None:
        """Register a callback for each loss of acknowledged writes, whatever the event loop that notices it."""
        self._lost_writes.append(callback)

    def _announce_lost_writes(self, _: str) -> None:
        for callback in self._lost_writes:
            callback()

    @property
    def opened(self) -> Store | None:
        """The engine of the running event loop, if there is one already."""
        return self._common or self._engines.get(asyncio.get_running_loop())

    # --- contact -----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Check the option and the keys, without I/O; needs no event loop.

        Raises:
            ConfigError: the option is not valid, or the store needs a key that is not configured.
        """
        if self.is_shared and not self.store.private and not self.has_keys:
            raise ConfigError(
                f"a store that others can reach needs a key that all workers share: set {_ENVIRONMENT}, or pass "
                'state_keys=. Make one with: python -c "import secrets; print(secrets.token_hex(32))"'
            )

    async def start(self) -> None:
        """Connect before anything is served, so that a mistake in the options is an error at the start.

        A store that cannot be reached now is none: what needs it is answered with an error until it can be.

        Raises:
            ConfigError: the option is not valid, or other workers have other keys.
        """
        try:
            await self.ready()
        except StoreUnavailable:
            # The engine has logged it, and tries again.
            return

    async def ready(self) -> Store:
        """Return the engine of the running event loop, connected, once the keys are known.

        Raises:
            StoreUnavailable: it cannot be reached now.
            ConfigError: the option is not valid, or other workers have other keys.
        """
        store = self.store
        if not (self._checked and store.generation):
            await self.connect(store)
        return store

    async def connect(self, store: Store) -> None:
        """Connect an engine; at the first contact, load the key, or compare it with that of other workers.

        Raises:
            StoreUnavailable: it cannot be reached now.
            ConfigError: other workers have other keys.
        """
        await store.connect()
        if not self._checked:
            await self._settle_keys(store)
            self._checked = True

    async def close(self, engine: Store) -> None:
        """Close an engine; the next one that asks gets another."""
        for loop in [loop for loop, opened in self._engines.items() if opened is engine]:
            del self._engines[loop]
        await engine.aclose()

    async def aclose(self) -> None:
        """Close the engine of the running event loop; memory has nothing to close."""
        engine = self.opened
        if engine is not None and self.is_shared:
            await self.close(engine)

    # --- keys --------------------------------------------------------------------------------------------------------

    @property
    def has_keys(self) -> bool:
        """Whether the keys are configured; otherwise they are made here."""
        return self._configured_keys is not None or bool(os.environ.get(_ENVIRONMENT, "").strip())

    def _read_keys(self) -> Sequence[bytes]:
        """Return the keys: the first seals, and all of them open.

        Raises:
            StoreUnavailable: they are in the store, which was not reached yet.
            ConfigError: a configured key is not valid.
        """
        if self._key_ring is None:
            from trunkline.protocol.seal import read_keys

            if self.is_shared and not self.has_keys:
                raise StoreUnavailable("the key of the server is in its store, which was not reached yet")
            self._key_ring = read_keys(self._configured_keys, os.environ.get(_ENVIRONMENT), os.urandom)
        return self._key_ring

    async def load_keys(self) -> None:
        """Connect if the keys are in the store; if they are not, a seal works without it.

        Raises:
            StoreUnavailable: they are in the store, which cannot be reached now.
        """
        if self._key_ring is None and self.is_shared and not self.has_keys:
            await self.ready()

    def seal_for(self, purpose: bytes) -> Seal:
        """Return a seal for a purpose of one byte; the keys must be known only when it is first used."""
        from trunkline.protocol.seal import Seal

        return Seal(self._read_keys, purpose=purpose, server=self._name, random=os.urandom)

    @property
    def keys(self) -> Seal:
        """The seal of stored values: for deriving further keys, whether or not values are encrypted."""
        if self._stored_seal is None:
            self._stored_seal = self.seal_for(_STORED_VALUES)
        return self._stored_seal

    @property
    def seal(self) -> Seal | None:
        """Encrypts stored values; None if only this user can read them in the store."""
        return None if self.store.private else self.keys

    async def _settle_keys(self, store: Store) -> None:
        self.check()
        if not self.is_shared:
            return
        if not self.has_keys:
            self._key_ring = [await _stored_key(store)]
            return
        seal = self.seal
        if seal is None:
            return
        sealed = await store.get("keys")
        if sealed is not None and not seal.is_own(sealed.decode()):
            raise ConfigError(
                f"another worker of the server {self._name!r} uses this store with other keys: set the same "
                f"{_ENVIRONMENT} (or state_keys=) on every machine"
            )
        # Sealed anew with the first key at each start: after a rotation the old key can be removed.
        await store.put("keys", seal.seal(b"keys").encode(), ttl=_CHECK_SECONDS)


async def _stored_key(store: Store) -> bytes:
    """Return the key that is in a store; the first worker makes it."""
    key = await store.get("key")
    if key is None:
        await store.put("key", os.urandom(_KEY_BYTES), ttl=_KEY_SECONDS, only_if_absent=True)
        key = await store.get("key")
    if key is None:
        raise StoreUnavailable("the store does not keep what is written")
    return key

"""The store of a server: opened when something has to outlive a request, and the seal of what is stored there.

A definition has one of these, and each event loop its own engine of it, since connections belong to a loop; what is in
memory is one for all loops of the process. Opening does no I/O, so that a server which stores nothing pays nothing.
Servers and authorization servers have one each; a server passes its own to its authentication.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from trunkline.protocol.seal import Seal
    from trunkline.store.interface import Store

__all__ = ["ServerStore", "StoreOption"]

#: What ``store=`` accepts: a path or a URL (``sqlite:///…``, ``redis://…``), an engine, or None for memory.
StoreOption: TypeAlias = "str | os.PathLike[str] | Store | None"
#: The purpose of the seal of stored values; request states, handles and session ids have others.
_PURPOSE = b"\x04"


class ServerStore:
    """The store of one server in this process."""

    def __init__(self, option: StoreOption, *, name: str, seal: Callable[[], Seal] | None = None) -> None:
        """Use what was passed as ``store=``.

        ``seal`` returns the seal of the server's keys, for any purpose; a store in memory needs none.
        """
        self._option = option
        self._name = name
        self._make_seal = seal
        self._engines: WeakKeyDictionary[asyncio.AbstractEventLoop, Store] = WeakKeyDictionary()
        self._shared: Store | None = None
        self._lost_writes: list[Callable[[], None]] = []

    @property
    def store(self) -> Store:
        """The engine of the running event loop; nothing is connected by asking for it."""
        from trunkline.store.open import open_store

        if self._shared is not None:
            return self._shared
        loop = asyncio.get_running_loop()
        engine = self._engines.get(loop)
        if engine is None:
            engine = open_store(self._option, name=self._name)
            engine.on_new_generation(self._announce_lost_writes)
            if not engine.durable or engine is self._option:
                self._shared = engine
            else:
                self._engines[loop] = engine
        return engine

    @property
    def keys(self) -> Seal:
        """The seal of the server's keys: for deriving further keys, whether or not values are encrypted."""
        assert self._make_seal is not None
        return self._make_seal().for_purpose(_PURPOSE)

    @property
    def seal(self) -> Seal | None:
        """Encrypts values; None if only this user can read them in the store."""
        return None if self.store.private else self.keys

    async def ready(self) -> Store:
        """Return the engine once its generation is known.

        Raises:
            StoreUnavailable: it cannot be reached now.
        """
        store = self.store
        if not store.generation:
            await store.connect()
        return store

    def on_lost_writes(self, callback: Callable[[], None]) -> None:
        """Register a callback for each loss of acknowledged writes, whatever the event loop that notices it."""
        self._lost_writes.append(callback)

    def _announce_lost_writes(self, _: str) -> None:
        for callback in self._lost_writes:
            callback()

    async def aclose(self) -> None:
        """Close the engine of the running event loop."""
        engine = self._engines.pop(asyncio.get_running_loop(), None)
        if engine is not None:
            await engine.aclose()

"""HTTP connections of the soak that know when they were last heard, so that their end can be held against a kill."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any
from weakref import WeakKeyDictionary

import aiohttp

__all__ = ["Wire", "count_turns", "current_wire", "new_http", "repeated"]


#: The turns of the event loop before what arrived is read: it was received in one, and buffered in another.
_TURNS = 4
_turns: deque[float] = deque(maxlen=_TURNS)


async def count_turns() -> None:
    """Note when the event loop turns: on a busy machine it reads late what arrived early."""
    while True:
        _turns.append(time.monotonic())
        await asyncio.sleep(0.005)


class Wire:
    """One connection: when it was made, or something last arrived on it, at the earliest."""

    __slots__ = ("__weakref__", "heard")

    def __init__(self) -> None:
        """Start with the time of its making."""
        self.heard: float = time.monotonic()

    def hear(self) -> None:
        """Called when something is read: its worker lived when it was sent."""
        self.heard = max(self.heard, _turns[0] if _turns else 0.0)


_connects: ContextVar[int] = ContextVar("how often this task took a connection", default=0)
_wire: ContextVar[Wire | None] = ContextVar("the connection that this task used last", default=None)


def current_wire() -> Wire:
    """Return the connection that the running task used last; one made just now if it could not connect."""
    return _wire.get() or Wire()


def repeated() -> Callable[[], bool]:
    """Return a function that tells whether a request from now on was sent again by aiohttp, on another connection."""
    before = _connects.get()
    return lambda: _connects.get() > before + 1


class _Connector(aiohttp.TCPConnector):
    """Makes and reuses connections, and tells the task that uses one which it is."""

    def __init__(self, *, limit: int) -> None:
        super().__init__(limit=limit)
        self._wires: WeakKeyDictionary[object, Wire] = WeakKeyDictionary()

    async def connect(self, req: Any, traces: Any, timeout: Any) -> Any:
        _wire.set(None)
        _connects.set(_connects.get() + 1)
        begun = Wire()
        connection = await super().connect(req, traces, timeout)
        _wire.set(self._wires.setdefault(connection.protocol, begun))
        return connection


def new_http(limit: int = 0) -> aiohttp.ClientSession:
    """Return an HTTP client that opens at most so many connections, 0 for any number, and bounds every wait."""
    timeout = aiohttp.ClientTimeout(total=None, sock_read=120)
    return aiohttp.ClientSession(connector=_Connector(limit=limit), timeout=timeout)

"""A server's lifespan: entered once before the first request is served, left when the last connection has gone.

It runs in a task of its own, because a context manager must be left by the task that entered it, and connections come
and go in any order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

__all__ = ["Lifespan"]


class Lifespan:
    """Holds what the user's lifespan gave while somebody needs it."""

    __slots__ = ("_enter", "_stop", "_task", "_users", "ready", "value")

    def __init__(self, enter: Callable[[], AbstractAsyncContextManager[object]]) -> None:
        """Take what makes the context manager."""
        self._enter = enter
        self._users = 0
        self._task: asyncio.Task[None] | None = None
        self._stop: asyncio.Event | None = None
        #: Set once entered; its exception is why it could not be.
        self.ready: asyncio.Future[None] | None = None
        self.value: Any = None

    @property
    def entered(self) -> bool:
        """Whether it has been entered and not left."""
        return self.ready is not None and self.ready.done() and self._task is not None

    def acquire(self) -> None:
        """Need the lifespan from now on; called in the loop."""
        self._users += 1
        if self._task is None:
            loop = asyncio.get_running_loop()
            self.ready = loop.create_future()
            self._stop = asyncio.Event()
            self._task = loop.create_task(self._run(self.ready, self._stop))

    async def release(self) -> None:
        """Need it no more; the last one waits until it is left."""
        self._users -= 1
        if self._users or self._task is None or self._stop is None:
            return
        task, self._task = self._task, None
        self._stop.set()
        await task

    async def _run(self, ready: asyncio.Future[None], stop: asyncio.Event) -> None:
        try:
            async with self._enter() as value:
                self.value = value
                ready.set_result(None)
                await stop.wait()
        except Exception as error:
            if ready.done():
                raise
            ready.set_exception(error)
            # Whoever waits hears of it; if nobody does, it must not be reported as forgotten.
            ready.exception()
        finally:
            self.value = None

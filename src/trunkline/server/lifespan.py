"""The lifespans of a definition and of everything mounted in it: entered for their first user, exited after the last.

A lifespan runs in its own task, because a context manager must be exited by the task that entered it, and connections
come and go in any order.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trunkline.server.server import Server

__all__ = ["HeldLifespans", "Lifespan"]

log = logging.getLogger("trunkline")


class Lifespan:
    """Enters the user's lifespan for its first user and exits it after its last."""

    __slots__ = ("_enter", "_stop", "_task", "_users", "ready", "value")

    def __init__(self, enter: Callable[[], AbstractAsyncContextManager[object]]) -> None:
        """Create the lifespan; ``enter`` returns the context manager."""
        self._enter = enter
        self._users = 0
        self._task: asyncio.Task[None] | None = None
        self._stop: asyncio.Event | None = None
        #: Resolved once the lifespan is entered, or with the exception that prevented it.
        self.ready: asyncio.Future[None] | None = None
        self.value: Any = None

    @property
    def entered(self) -> bool:
        """Whether the lifespan has been entered and not exited."""
        return self.ready is not None and self.ready.done() and self._task is not None

    def acquire(self) -> None:
        """Add a user; the first one starts entering the lifespan. Called in the event loop."""
        self._users += 1
        if self._task is None:
            loop = asyncio.get_running_loop()
            self.ready = loop.create_future()
            self._stop = asyncio.Event()
            self._task = loop.create_task(self._run(self.ready, self._stop))

    async def release(self) -> None:
        """Remove a user; the last one waits until the lifespan is exited, or cancels it if it is not entered yet."""
        self._users -= 1
        if self._users or self._task is None or self._stop is None:
            return
        task, self._task = self._task, None
        self._stop.set()
        if self.ready is not None and not self.ready.done():
            # It may wait for something that never comes, such as a database that does not answer.
            task.cancel()
            await asyncio.wait([task])
            return
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
            # Retrieved here, so that asyncio does not report it as never retrieved if nothing awaits ``ready``.
            ready.exception()
        finally:
            # It may have been entered again while this exit took its time.
            if self.ready is ready:
                self.value = None


class HeldLifespans:
    """The lifespans of one definition that are in use, by holder: a connection, or the acceptor of an endpoint."""

    __slots__ = ("_definition", "_find", "_held")

    def __init__(self, definition: Server, find: Callable[[Server], Lifespan | None]) -> None:
        """Start without holders; ``find`` returns the lifespan of a definition in this event loop."""
        self._definition = definition
        self._find = find
        self._held: dict[object, list[Lifespan]] = {}

    @property
    def holders(self) -> tuple[object, ...]:
        """The current holders."""
        return tuple(self._held)

    def add(self, holder: object) -> list[Lifespan]:
        """Enter the lifespans for a holder, until ``release``; return them."""
        self._held.setdefault(holder, [])
        return self.acquire(holder)

    def acquire(self, holder: object) -> list[Lifespan]:
        """Enter the lifespans of everything mounted by now for a holder, if it is still one; return its lifespans."""
        held = self._held.get(holder)
        if held is None:
            return []
        for server in self._definition._all():
            if server._lifespan is not None and (lifespan := self._find(server)) is not None and lifespan not in held:
                lifespan.acquire()
                held.append(lifespan)
        return held

    async def entered(self, holder: object) -> None:
        """Wait until the lifespans of a holder are entered; raise the exception of one that failed."""
        for lifespan in self._held.get(holder, ()):
            assert lifespan.ready is not None
            await asyncio.shield(lifespan.ready)

    async def release(self, holder: object) -> None:
        """Release the lifespans of a holder; each is exited when its last holder releases it."""
        for lifespan in reversed(self._held.pop(holder, [])):
            try:
                await lifespan.release()
            except Exception:
                log.exception("the lifespan of server %r failed on exit", self._definition.name)

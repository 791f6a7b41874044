"""Runs the user's callbacks for log messages, notifications, progress and changes.

A callback may be plain or async. A plain one runs at once; an async one as its own task, started in the order of
arrival. The number of unfinished callbacks is bounded: a server that sends faster than its listener handles loses
notifications, which are counted, and never fills our memory. A callback that fails is logged and affects nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

__all__ = ["Callbacks"]

log = logging.getLogger("trunkline")


class Callbacks:
    """The running callbacks of one client."""

    __slots__ = ("_limit", "_tasks", "dropped")

    def __init__(self, limit: int) -> None:
        """Allow at most ``limit`` unfinished callbacks."""
        self._limit = limit
        self._tasks: set[asyncio.Future[Any]] = set()
        #: Notifications that were dropped because too many callbacks were unfinished.
        self.dropped = 0

    def tell(self, callback: Callable[..., Any] | None, *news: Any) -> None:
        """Call a callback with these arguments, if there is one."""
        if callback is None:
            return
        if len(self._tasks) >= self._limit:
            self.dropped += 1
            return
        try:
            outcome = callback(*news)
        except Exception:
            log.exception("a callback failed")
            return
        # Checked by the method rather than by the type: a future or another awaitable will do as well.
        if hasattr(outcome, "__await__"):
            task = asyncio.ensure_future(outcome)
            self._tasks.add(task)
            task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Future[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a callback failed", exc_info=task.exception())

    async def aclose(self) -> None:
        """Cancel the unfinished callbacks."""
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

"""Waits for a backend that cannot be reached now."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from trunkline.errors import BackplaneUnavailable

__all__ = ["when_reachable"]

T = TypeVar("T")
#: Seconds between two attempts; doubled after each, up to the second.
_PAUSE, _LONGEST_PAUSE = 0.1, 2.0


async def when_reachable(work: Callable[[], Awaitable[T]], *, seconds: float | None = None) -> T:
    """Do work with a backend, again and again while it cannot be reached; with ``seconds`` only for so long.

    Raises:
        BackplaneUnavailable: the time is up.
    """
    loop, pause = asyncio.get_running_loop(), _PAUSE
    until = None if seconds is None else loop.time() + seconds
    while True:
        try:
            return await work()
        except BackplaneUnavailable:
            if until is not None and loop.time() + pause > until:
                raise
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)

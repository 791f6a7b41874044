"""Waits for a backend that cannot be reached now."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from trunkline.errors import StoreUnavailable

__all__ = ["when_reachable"]

log = logging.getLogger("trunkline")

T = TypeVar("T")
#: Seconds between two attempts; doubled after each, up to the second.
_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
#: How long a change of a task waits to be stored: longer than outages that are repaired, but not for ever.
_PATIENCE_SECONDS = 24 * 3600.0


async def when_reachable(work: Callable[[], Awaitable[T]], *, seconds: float | None = None) -> T:
    """Call ``work``; retry while the backend cannot be reached, for up to ``seconds``, by default for a day.

    Raises:
        StoreUnavailable: the time is up.
    """
    loop, pause = asyncio.get_running_loop(), _PAUSE
    patience = _PATIENCE_SECONDS if seconds is None else seconds
    until = loop.time() + patience
    while True:
        try:
            return await work()
        except StoreUnavailable as error:
            if loop.time() + pause > until:
                if seconds is None:
                    log.error(
                        "a change of a task could not be stored for %g s and is dropped: %s", patience, error.message
                    )
                raise
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)

"""Bounded waiting, by a clock that tests can replace."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from trunkline.errors import RequestTimeout
from trunkline.timekeeper import Timekeeper

__all__ = ["within"]

T = TypeVar("T")


async def within(timekeeper: Timekeeper, seconds: float | None, work: Awaitable[T]) -> T:
    """Await something for at most ``seconds``; on timeout or cancellation, cancel it and wait for it to end first.

    Raises:
        RequestTimeout: the time is up.
    """
    if seconds is None:
        return await work
    task = asyncio.ensure_future(work)

    def expire() -> None:
        task.cancel()

    row = timekeeper.after(seconds, expire)
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait([task])
        raise
    finally:
        row.cancel()
    if task.cancelled():
        raise RequestTimeout(f"not done after {seconds:g} s", clock="start", seconds=seconds)
    return task.result()

"""Helpers of many tests: running a coroutine with a timeout."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["BOUND", "case_id", "run_async"]

#: How many seconds a test waits for something immediate: longer than a busy machine stands still, short enough to fail.
BOUND = 180.0

T = TypeVar("T")


def run_async(work: Coroutine[Any, Any, T], *, seconds: float = BOUND) -> T:
    """Run a coroutine in a new event loop; raise TimeoutError rather than wait without limit."""

    async def bounded() -> T:
        async with asyncio.timeout(seconds):
            return await work

    return asyncio.run(bounded())


def case_id(value: object) -> str:
    """Return an id for a test case without memory addresses, which differ between workers."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))

"""What many tests need: running a coroutine with a bound."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["run_async"]

T = TypeVar("T")


def run_async(work: Coroutine[Any, Any, T], *, seconds: float = 10.0) -> T:
    """Run a coroutine in a fresh event loop; fail rather than wait for ever."""

    async def bounded() -> T:
        async with asyncio.timeout(seconds):
            return await work

    return asyncio.run(bounded())

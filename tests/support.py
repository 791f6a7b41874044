"""What many tests need: running a coroutine with a bound."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["BOUND", "case_id", "run_async"]

#: So long a test waits for what should come at once: what never comes fails, a busy machine does not.
BOUND = 45.0

T = TypeVar("T")


def run_async(work: Coroutine[Any, Any, T], *, seconds: float = BOUND) -> T:
    """Run a coroutine in a fresh event loop; fail rather than wait for ever."""

    async def bounded() -> T:
        async with asyncio.timeout(seconds):
            return await work

    return asyncio.run(bounded())


def case_id(value: object) -> str:
    """Name a case after its value, without addresses: two workers would not agree on them."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))

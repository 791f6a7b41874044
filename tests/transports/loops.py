"""Runs a test's coroutine on asyncio's own event loop or on uvloop, bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from importlib.util import find_spec
from typing import Any, TypeVar

from tests.support import BOUND

__all__ = ["LOOPS", "run_on"]

T = TypeVar("T")

#: The event loops that are installed.
LOOPS = ["asyncio", "uvloop"] if find_spec("uvloop") else ["asyncio"]


def run_on(loop: str, work: Coroutine[Any, Any, T], *, seconds: float = BOUND) -> T:
    """Run a coroutine on a fresh event loop of this kind; fail rather than wait for ever."""

    async def bounded() -> T:
        async with asyncio.timeout(seconds):
            return await work

    if loop == "asyncio":
        return asyncio.run(bounded())
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(bounded())

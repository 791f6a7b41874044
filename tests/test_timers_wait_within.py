"""Waiting with a bound."""

from __future__ import annotations

import asyncio

import pytest

from tests.client.scripted_server import settle
from tests.support import run_async
from trunkline.errors import RequestTimeout
from trunkline.testing.clock import FakeClock
from trunkline.timers import Timers, wait_within


def test_wait_within_returns_the_result() -> None:
    async def main() -> str:
        return await wait_within(Timers(FakeClock()), 1.0, asyncio.sleep(0, "done"))

    assert run_async(main()) == "done"


async def test_wait_within_cancels_on_timeout() -> None:
    clock = FakeClock()
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(wait_within(Timers(clock), 2.0, never))
    await settle()
    clock.advance(2.0)
    with pytest.raises(RequestTimeout, match="2 s"):
        await waiting
    assert never.cancelled()


async def test_cancelling_wait_within_cancels_the_awaited_task() -> None:
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(wait_within(Timers(FakeClock()), 2.0, never))
    await settle()
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    assert never.cancelled()


def test_wait_within_without_a_timeout_waits() -> None:
    async def main() -> int:
        return await wait_within(Timers(FakeClock()), None, asyncio.sleep(0, 3))

    assert run_async(main()) == 3

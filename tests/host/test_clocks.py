"""Waiting with a bound."""

from __future__ import annotations

import asyncio

import pytest

from tests.client.scripted import settle
from tests.support import run_async
from trunkline.errors import RequestTimeout
from trunkline.host.clocks import within
from trunkline.testing.clock import FakeClock
from trunkline.timekeeper import Timekeeper


def test_what_is_done_in_time_is_given() -> None:
    async def main() -> str:
        return await within(Timekeeper(FakeClock()), 1.0, asyncio.sleep(0, "done"))

    assert run_async(main()) == "done"


def test_what_is_late_is_cancelled() -> None:
    async def main() -> None:
        clock = FakeClock()
        never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = asyncio.ensure_future(within(Timekeeper(clock), 2.0, never))
        await settle()
        clock.advance(2.0)
        with pytest.raises(RequestTimeout, match="2 s"):
            await waiting
        assert never.cancelled()

    run_async(main())


def test_whoever_stops_waiting_cancels_it_too() -> None:
    async def main() -> None:
        never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = asyncio.ensure_future(within(Timekeeper(FakeClock()), 2.0, never))
        await settle()
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        assert never.cancelled()

    run_async(main())


def test_without_a_bound_it_simply_waits() -> None:
    async def main() -> int:
        return await within(Timekeeper(FakeClock()), None, asyncio.sleep(0, 3))

    assert run_async(main()) == 3

"""The queue of appends to Redis: what bounds it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from trunkline.errors import StoreUnavailable
from trunkline.store import redis_appends
from trunkline.store.redis_appends import Appends


class SlowPipelines:
    """Answers one group for each permit."""

    def __init__(self) -> None:
        self.permits = asyncio.Semaphore(0)
        self.groups: list[int] = []
        self.sent = asyncio.Event()

    async def run_group(self, calls: list[tuple[list[str], list[Any]]]) -> list[Any]:
        self.groups.append(len(calls))
        self.sent.set()
        await self.permits.acquire()
        return [[b"%d-0" % call[1][4], 0] for call in calls]


def add(appends: Appends, data: bytes, patience: float | None = 60) -> asyncio.Future[Any]:
    return appends.add(["log"], [data, 10, 10, 10, ""], patience=patience)


async def test_the_deadlines_of_a_long_queue_hold_while_redis_answers_slowly() -> None:
    pipelines = SlowPipelines()
    appends = Appends(pipelines, timeout=60, lost=lambda: None)
    first = add(appends, b"first")
    await pipelines.sent.wait()
    # The second group is on its way when their time is over, and those behind it are not sent at all.
    late = [add(appends, b"late", patience=-1) for _ in range(redis_appends.GROUP * 3)]
    pipelines.permits.release()
    assert (await asyncio.wait_for(first, 120)).id == "1-0"
    outcomes = await asyncio.wait_for(asyncio.gather(*late, return_exceptions=True), 120)
    assert all(isinstance(each, StoreUnavailable) for each in outcomes)
    assert pipelines.groups == [1]
    await appends.aclose()


async def test_the_time_in_a_long_queue_is_no_failure_while_redis_stores() -> None:
    pipelines = SlowPipelines()
    appends = Appends(pipelines, timeout=0.05, lost=lambda: None)
    futures = [add(appends, b"x", patience=None) for _ in range(redis_appends.GROUP * 4)]
    for _ in range(4):
        await asyncio.wait_for(pipelines.sent.wait(), 120)
        pipelines.sent.clear()
        # Each group takes longer than the timeout.
        asyncio.get_running_loop().call_later(0.1, pipelines.permits.release)
    assert len(await asyncio.wait_for(asyncio.gather(*futures), 120)) == redis_appends.GROUP * 4
    await appends.aclose()


async def test_an_append_without_patience_fails_if_nothing_is_stored() -> None:
    class Failing:
        async def run_group(self, calls: list[tuple[list[str], list[Any]]]) -> list[Any]:
            raise StoreUnavailable("gone")

    appends = Appends(Failing(), timeout=0.05, lost=lambda: None)
    with pytest.raises(StoreUnavailable, match="store an event"):
        await asyncio.wait_for(add(appends, b"x", patience=None), 120)
    await appends.aclose()


async def test_the_deadline_of_an_append_holds_although_a_reply_is_none_of_the_script() -> None:
    class Garbled:
        async def run_group(self, calls: list[tuple[list[str], list[Any]]]) -> list[Any]:
            return [b"?" for _ in calls]

    appends = Appends(Garbled(), timeout=0.05, lost=lambda: None)
    with pytest.raises(StoreUnavailable, match="store an event"):
        await asyncio.wait_for(add(appends, b"x", patience=0.1), 30)
    await appends.aclose()


async def test_a_group_and_the_queue_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_appends, "GROUP_BYTES", 100)
    monkeypatch.setattr(redis_appends, "WAITING_BYTES", 300)
    pipelines = SlowPipelines()
    appends = Appends(pipelines, timeout=60, lost=lambda: None)
    futures = [add(appends, b"x" * 60) for _ in range(5)]
    with pytest.raises(StoreUnavailable, match="too slow"):
        add(appends, b"")
    for _ in range(3):
        pipelines.permits.release()
    await asyncio.wait_for(asyncio.gather(*futures), 120)
    assert pipelines.groups == [2, 2, 1]
    assert add(appends, b"x" * 400) is not None
    await appends.aclose()

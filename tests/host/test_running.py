"""A call under way: its questions one by one, withdrawn ones, and the parking of it between rounds."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from msgspec import Raw

from tests.host.gateway.support import in_loop, until
from trunkline.errors import InvalidParams, RequestFailed
from trunkline.host.passing.running import Parking, Running

FRONT: Any = object()
OTHER: Any = object()


async def waiting(running: Running) -> tuple[Any, Raw]:
    """Work that never ends."""
    await asyncio.Event().wait()
    return None, Raw(b"null")


async def asking(running: Running) -> tuple[Any, Raw]:
    """Work that asks one question."""
    raw = await running.ask("elicitation/create", "Name?")
    return bytes(raw), raw


async def answer(text: bytes) -> Raw:
    """Answer at once."""
    return Raw(text)


async def never() -> Raw:
    """Do not answer."""
    await asyncio.Event().wait()
    return Raw(b"")


async def failing() -> Raw:
    """Fail to answer."""
    raise RequestFailed("no")


@in_loop
async def test_a_question_is_news_and_its_answer_goes_back() -> None:
    running = Running(asking, FRONT)
    pending = await running.news()
    assert pending is not None
    assert (pending.method, pending.params, pending.key) == ("elicitation/create", "Name?", "elicitation-1")
    await running.settle(pending, answer(b'"Ada"'))
    assert await running.news() is None
    assert (await running.task)[0] == b'"Ada"'


@in_loop
async def test_a_question_that_cannot_be_answered_fails_where_it_was_asked() -> None:
    running = Running(asking, FRONT)
    pending = await running.news()
    assert pending is not None
    await running.settle(pending, failing())
    with pytest.raises(RequestFailed, match="no"):
        await running.task


@in_loop
async def test_a_question_that_is_withdrawn_is_not_waited_for() -> None:
    async def patient_for_a_moment(running: Running) -> tuple[Any, Raw]:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await running.ask("elicitation/create", "Name?")
        return "gave up", Raw(b"")

    running = Running(patient_for_a_moment, FRONT)
    pending = await running.news()
    assert pending is not None
    await running.settle(pending, never())
    assert await running.news() is None
    assert not running.pending
    assert (await running.task)[0] == "gave up"


@in_loop
async def test_work_that_ends_by_itself_has_no_more_news() -> None:
    async def quick(running: Running) -> tuple[Any, Raw]:
        return 1, Raw(b"1")

    assert await Running(quick, FRONT).news() is None


@in_loop
async def test_a_parked_call_is_given_to_whoever_has_its_name_once() -> None:
    parking, running = Parking(most=2, seconds=60), Running(waiting, FRONT)
    name = parking.admit(running)
    with pytest.raises(InvalidParams):
        parking.take_up(name, OTHER)
    parking.park(running)
    assert parking.take_up(name, OTHER) is running
    assert running.front is OTHER
    with pytest.raises(InvalidParams):
        parking.take_up(name, FRONT)
    parking.leave(running)
    with pytest.raises(InvalidParams):
        parking.take_up(name, FRONT)
    running.cancel()


@in_loop
async def test_what_waits_too_long_is_cancelled_and_forgotten() -> None:
    parking, running = Parking(most=1, seconds=0.01), Running(waiting, FRONT)
    parking.admit(running)
    parking.park(running)
    await until(running.task.done)
    assert (running.task.cancelled(), len(parking)) == (True, 0)


@in_loop
async def test_time_does_not_run_while_the_client_is_there() -> None:
    parking, running = Parking(most=1, seconds=0.02), Running(waiting, FRONT)
    name = parking.admit(running)
    parking.park(running)
    parking.take_up(name, OTHER)
    await asyncio.wait([running.task], timeout=0.06)
    assert not running.task.done()
    parking.close()
    await asyncio.wait([running.task])


@in_loop
async def test_there_is_room_for_so_many_and_no_more() -> None:
    parking = Parking(most=1, seconds=60)
    first, second = Running(waiting, FRONT), Running(waiting, FRONT)
    assert parking.admit(first) == parking.admit(first)
    with pytest.raises(RequestFailed, match="Too many"):
        parking.admit(second)
    parking.leave(first)
    parking.admit(second)
    parking.close()
    first.cancel()
    await asyncio.wait([first.task, second.task])
    assert second.task.cancelled()


@in_loop
async def test_an_asking_that_fails_after_its_question_was_withdrawn_is_no_failure_that_nobody_saw() -> None:
    unseen: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: unseen.append(context))
    running = Running(asking, FRONT)
    pending = await running.news()
    assert pending is not None

    async def fails_at_the_last_moment() -> Raw:
        pending.answer.cancel()
        raise RequestFailed("no")

    await running.settle(pending, fails_at_the_last_moment())
    running.cancel()
    await asyncio.wait([running.task])
    gc.collect()
    assert unseen == []

"""A call under way: its questions one by one, withdrawn ones, and the parking of it between rounds."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from msgspec import Raw

from tests.host.gateway.support import until
from trunkline.errors import InvalidParams, RequestFailed
from trunkline.host.upstreams.routing.active_calls import ActiveCall, Parking

FRONT: Any = object()
OTHER: Any = object()


async def waiting(call: ActiveCall) -> tuple[Any, Raw]:
    """Work that never ends."""
    await asyncio.Event().wait()
    return None, Raw(b"null")


async def asking(call: ActiveCall) -> tuple[Any, Raw]:
    """Work that asks one question."""
    raw = await call.ask("elicitation/create", "Name?")
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


async def test_a_question_is_news_and_its_answer_goes_back() -> None:
    call = ActiveCall(asking, FRONT)
    pending = await call.next_question()
    assert pending is not None
    assert (pending.method, pending.params, pending.key) == ("elicitation/create", "Name?", "elicitation-1")
    await call.settle(pending, answer(b'"Ada"'))
    assert await call.next_question() is None
    assert (await call.task)[0] == b'"Ada"'


async def test_a_question_that_cannot_be_answered_fails_where_it_was_asked() -> None:
    call = ActiveCall(asking, FRONT)
    pending = await call.next_question()
    assert pending is not None
    await call.settle(pending, failing())
    with pytest.raises(RequestFailed, match="no"):
        await call.task


async def test_a_question_that_is_withdrawn_is_not_waited_for() -> None:
    async def patient_for_a_moment(call: ActiveCall) -> tuple[Any, Raw]:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await call.ask("elicitation/create", "Name?")
        return "gave up", Raw(b"")

    call = ActiveCall(patient_for_a_moment, FRONT)
    pending = await call.next_question()
    assert pending is not None
    await call.settle(pending, never())
    assert await call.next_question() is None
    assert not call.pending
    assert (await call.task)[0] == "gave up"


async def test_a_parked_call_is_resumed_once_by_its_name() -> None:
    parking, call = Parking(most=2, seconds=60), ActiveCall(waiting, FRONT)
    name = parking.admit(call)
    with pytest.raises(InvalidParams):
        parking.resume(name, OTHER)
    parking.park(call)
    assert parking.resume(name, OTHER) is call
    assert call.channel is OTHER
    with pytest.raises(InvalidParams):
        parking.resume(name, FRONT)
    parking.leave(call)
    with pytest.raises(InvalidParams):
        parking.resume(name, FRONT)
    call.cancel()


async def test_what_waits_too_long_is_cancelled_and_forgotten() -> None:
    parking, call = Parking(most=1, seconds=0.01), ActiveCall(waiting, FRONT)
    parking.admit(call)
    parking.park(call)
    await until(call.task.done)
    assert (call.task.cancelled(), len(parking)) == (True, 0)


async def test_time_does_not_run_while_the_client_is_there() -> None:
    parking, call = Parking(most=1, seconds=0.02), ActiveCall(waiting, FRONT)
    name = parking.admit(call)
    parking.park(call)
    parking.resume(name, OTHER)
    await asyncio.wait([call.task], timeout=0.06)
    assert not call.task.done()
    parking.close()
    await asyncio.wait([call.task])


async def test_there_is_room_for_so_many_and_no_more() -> None:
    parking = Parking(most=1, seconds=60)
    first, second = ActiveCall(waiting, FRONT), ActiveCall(waiting, FRONT)
    assert parking.admit(first) == parking.admit(first)
    with pytest.raises(RequestFailed, match="Too many"):
        parking.admit(second)
    parking.leave(first)
    parking.admit(second)
    parking.close()
    first.cancel()
    await asyncio.wait([first.task, second.task])
    assert second.task.cancelled()


async def test_a_prompter_that_fails_after_the_question_was_withdrawn_leaves_no_unretrieved_exception() -> None:
    unseen: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: unseen.append(context))
    call = ActiveCall(asking, FRONT)
    pending = await call.next_question()
    assert pending is not None

    async def fails_at_the_last_moment() -> Raw:
        pending.answer.cancel()
        raise RequestFailed("no")

    await call.settle(pending, fails_at_the_last_moment())
    call.cancel()
    await asyncio.wait([call.task])
    gc.collect()
    assert unseen == []

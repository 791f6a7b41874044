"""What a connection asks: answers, cancellation from our side, progress, and how long it is patient."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from tests.scenes import NO_TIMEOUTS, Scene, failure, progress, result
from tests.support import run_async
from trunkline.connection import Timeouts
from trunkline.errors import (
    ConnectionLost,
    LocalProtocolError,
    RequestTimeout,
)
from trunkline.protocol.caller import STREAM
from trunkline.protocol.jsonrpc import InvalidMessage


async def asked(method: str = "m", timeouts: Timeouts = NO_TIMEOUTS, **more: Any) -> tuple[Scene, asyncio.Task[Any]]:
    """Return a scene whose peer has been asked something."""
    scene = Scene()
    task = scene.ask(method, timeouts, **more)
    await scene.turn()
    return scene, task


# --- asking ----------------------------------------------------------------------------------------------------------


async def test_an_invalid_response_fails_the_request() -> None:
    scene, task = await asked(timeouts=Timeouts(10, None))
    scene.wire.bring('{"jsonrpc":"2.0","id":1,"result":1,"error":{"code":1,"message":""}}')
    assert "both result and error" in str(await failure(task))
    assert len(scene.wire.sent) == 1


TOO_LONG = InvalidMessage(-32600, "longer than 10 bytes", response=True, too_long=True)


@pytest.mark.parametrize("id", [1, 9, "2"], ids=["of one withdrawn", "never used", "of another kind"])
async def test_an_oversized_response_to_no_pending_request_fails_none(id: int | str) -> None:
    scene = Scene()
    withdrawn, task = scene.ask(), scene.ask()
    await scene.turn()
    withdrawn.cancel()
    await scene.turn()
    scene.connection.message_received(replace(TOO_LONG, id=id), STREAM)
    scene.wire.bring(result(2))
    await task


def test_the_late_response_to_a_withdrawn_request_is_not_used_for_another(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        scene = Scene()
        given_up = scene.ask()
        await scene.turn()
        given_up.cancel()
        await scene.turn()
        task = scene.ask()
        await scene.turn()
        scene.connection.message_received(TOO_LONG, STREAM)
        scene.wire.bring(result(2, "mine"))
        assert bytes(await task) == b'"mine"'

    run_async(main())
    assert "a response to an unknown request was dropped" in caplog.text


async def test_the_first_request_is_sent_at_once_and_later_ones_together() -> None:
    scene = Scene()
    tasks = [scene.ask(), scene.ask(), scene.ask()]
    await scene.turn()
    assert [[message["id"] for message in write] for write in scene.wire.writes] == [[1], [2, 3]]
    scene.wire.bring(result(3), result(2), result(1))
    await asyncio.gather(*tasks)


async def test_an_id_of_the_callers_choice_cannot_be_used_twice_at_once() -> None:
    scene = Scene()
    first = scene.ask(id="mine")
    await scene.turn()
    assert isinstance(await failure(scene.ask(id="mine")), LocalProtocolError)
    scene.wire.bring('{"jsonrpc":"2.0","id":"mine","result":1}')
    assert bytes(await first) == b"1"


@pytest.mark.parametrize("timeouts", [Timeouts(10, 20), NO_TIMEOUTS], ids=["patient", "endless"])
@pytest.mark.parametrize(("method", "told"), [("tools/call", 1), ("initialize", 0)])
async def test_cancelling_the_await_cancels_on_the_wire_but_never_initialize(
    method: str, told: int, timeouts: Timeouts
) -> None:
    scene, task = await asked(method, timeouts)
    task.cancel()
    await scene.turn()
    assert task.cancelled()
    cancels = [message["params"]["requestId"] for message in scene.wire.sent[1:]]
    assert cancels == [1] * told
    scene.wire.bring(result(1))
    assert scene.connection.peer.dropped == 1


async def test_a_request_withdrawn_silently_is_not_cancelled_on_the_wire() -> None:
    scene, task = await asked(timeouts=Timeouts(10, None))
    scene.connection.peer.send_cancel(1, notify=False)
    task.cancel()
    await scene.turn()
    scene.wire.bring(result(1))
    assert (task.cancelled(), len(scene.wire.sent), scene.connection.peer.dropped) == (True, 1, 1)


async def test_a_caller_cancelled_as_the_response_arrives_cancels_nothing() -> None:
    scene = Scene()
    answered_first, cancelled_first = scene.ask(), scene.ask()
    await scene.turn()
    scene.wire.bring(result(1))
    answered_first.cancel()
    cancelled_first.cancel()
    scene.wire.bring(result(2))
    await scene.turn()
    assert (answered_first.cancelled(), cancelled_first.cancelled()) == (True, True)
    assert [message["id"] for message in scene.wire.sent] == [1, 2]


def test_progress_calls_the_callback_and_its_errors_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[float] = []

    async def main() -> None:
        scene = Scene()
        task = scene.ask(on_progress=lambda params: seen.append(1 / params.progress))
        await scene.turn()
        scene.wire.bring(progress(1, -1), progress(1, 0), progress(1, 2), progress(1, 2), result(1), progress(1, 3))
        await task

    run_async(main())
    assert seen == [-1.0, 0.5]
    assert "a progress callback failed (request 1)" in caplog.text


# --- timeouts --------------------------------------------------------------------------------------------------------


async def test_an_idle_timeout_fails_the_request_and_cancels_it_on_the_wire() -> None:
    scene, task = await asked(timeouts=Timeouts(10, 100))
    scene.clock.advance(9.9)
    await scene.turn()
    assert not task.done()
    scene.clock.advance(0.1)
    error = await failure(task)
    assert isinstance(error, RequestTimeout)
    assert (error.clock, error.seconds, str(error)) == ("idle", 10, "no answer after 10 s, and no progress")
    assert scene.wire.sent[1]["params"] == {"requestId": 1, "reason": "timed out after 10 s"}
    scene.wire.bring(result(1))
    assert scene.connection.peer.dropped == 1


async def test_progress_that_does_not_increase_does_not_keep_a_request_alive() -> None:
    scene, task = await asked(timeouts=Timeouts(10, None))
    scene.wire.bring(progress(1, 1))
    scene.clock.advance(9)
    scene.wire.bring(progress(1, 1))
    scene.clock.advance(1)
    assert isinstance(await failure(task), RequestTimeout)


@pytest.mark.parametrize(
    ("timeouts", "clock"),
    [
        pytest.param(Timeouts(10, None), "idle", id="idle alone"),
        pytest.param(Timeouts(None, 10), "total", id="total alone"),
        pytest.param(Timeouts(10, 10), "total", id="equal"),
        pytest.param(Timeouts(20, 10), "total", id="total sooner"),
    ],
)
@pytest.mark.parametrize(("method", "told"), [("tools/call", 1), ("initialize", 0)])
async def test_the_error_names_the_timeout_that_expired(timeouts: Timeouts, clock: str, method: str, told: int) -> None:
    scene, task = await asked(method, timeouts)
    scene.clock.advance(10)
    error = await failure(task)
    assert isinstance(error, RequestTimeout)
    assert (error.clock, len(scene.wire.sent[1:])) == (clock, told)


async def test_an_answered_request_does_not_time_out() -> None:
    scene, task = await asked(timeouts=Timeouts(10, 20))
    scene.wire.bring(result(1))
    await task
    scene.clock.advance(100)
    await scene.turn()
    assert len(scene.wire.sent) == 1


@pytest.mark.parametrize("ending", ["timeout", "eof"])
async def test_a_caller_that_gave_up_gets_no_other_error(ending: str) -> None:
    scene, task = await asked(timeouts=Timeouts(10, None))
    task.cancel()
    {"timeout": lambda: scene.clock.advance(10), "eof": scene.connection.eof_received}[ending]()
    await scene.turn()
    assert task.cancelled()


async def test_the_timeouts_are_paused_while_a_user_is_asked() -> None:
    scene, task = await asked(timeouts=Timeouts(10, 15))
    scene.clock.advance(4)
    scene.connection.pause_clocks()
    scene.connection.pause_clocks()
    scene.clock.advance(500)
    scene.connection.resume_clocks()
    scene.clock.advance(500)
    scene.connection.resume_clocks()
    scene.clock.advance(9.9)
    await scene.turn()
    assert not task.done()
    scene.wire.bring(progress(1, 1))
    scene.clock.advance(1.1)
    error = await failure(task)
    assert isinstance(error, RequestTimeout)
    assert error.clock == "total"


async def test_a_request_made_during_a_pause_has_exactly_its_full_time_afterwards() -> None:
    scene = Scene()
    scene.connection.pause_clocks()
    scene.clock.advance(500)
    task, endless = scene.ask(timeouts=Timeouts(None, 20)), scene.ask()
    await scene.turn()
    scene.clock.advance(30)
    scene.connection.resume_clocks()
    scene.clock.advance(19.9)
    await scene.turn()
    assert not task.done()
    scene.clock.advance(0.1)
    assert isinstance(await failure(task), RequestTimeout)
    assert not endless.done()
    await scene.connection.aclose()
    assert isinstance(await failure(endless), ConnectionLost)

"""How a connection ends: the input, the link, the owner; and what becomes of all that was under way."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from tests.scenes import Scene, answer, echo, failure, request, result
from trunkline.connection import Connection, Exchange, Timeouts
from trunkline.errors import (
    ConnectionLost,
    RemoteProtocolError,
    RequestFailed,
    ServerExited,
)
from trunkline.protocol.limits import Limits
from trunkline.timers import Timers
from trunkline.transports.memory import memory_pair


async def scene_with_a_request(*, turns: int = 10, **options: Any) -> Scene:
    """Return a scene with one request under way, which waits for the gate."""
    scene = Scene(**options)
    scene.served.handlers["wait"] = scene.wait
    scene.wire.bring(request(1, "wait"))
    await scene.turn(turns)
    return scene


# --- eof -------------------------------------------------------------------------------------------------------------


async def test_after_a_clean_end_of_input_running_requests_are_still_answered() -> None:
    scene = Scene()
    scene.served.handlers["wait"] = scene.wait
    scene.wire.bring(request(1, "wait"), request(2, "wait"))
    scene.connection.eof_received()
    await scene.turn()
    assert not scene.connection.closed.done()
    scene.gate.set()
    await scene.connection.closed
    assert scene.wire.sent == [answer(1, "waited"), answer(2, "waited")]
    scene.clock.advance(60)
    assert (scene.served.ended, scene.log) == (1, [])


async def test_the_grace_after_the_end_of_input_is_bounded() -> None:
    scene = await scene_with_a_request(limits=Limits(eof_seconds=5))
    scene.connection.eof_received()
    scene.clock.advance(4.9)
    await scene.turn()
    assert not scene.connection.closed.done()
    scene.clock.advance(0.1)
    await scene.turn()
    assert (scene.connection.closed.done(), scene.log, scene.wire.sent) == (True, ["cancelled"], [])


@pytest.mark.parametrize("clean_first", [False, True], ids=["at once", "while it waits for answers"])
async def test_a_broken_link_cancels_running_requests_at_once(clean_first: bool) -> None:
    scene = await scene_with_a_request()
    scene.connection.eof_received(None if clean_first else ConnectionLost("broken pipe"))
    scene.connection.eof_received(ConnectionLost("broken pipe"))
    assert scene.connection.closed.done()
    await scene.turn()
    assert (scene.log, scene.wire.sent, scene.served.ended) == (["cancelled"], [], 1)


@pytest.mark.parametrize("turns", [0, 5], ids=["before its first step", "while it runs"])
async def test_a_stream_that_the_service_ends_with_the_input_does_not_use_up_the_grace(turns: int) -> None:
    scene = await scene_with_a_request(turns=turns)
    task = scene.connection.exchanges[1].task
    assert task is not None
    scene.served.at_end = task.cancel
    scene.connection.eof_received()
    await scene.turn()
    assert (scene.connection.closed.done(), scene.wire.sent) == (True, [])


async def test_a_request_whose_task_is_cancelled_is_dropped_and_its_id_is_free() -> None:
    scene = await scene_with_a_request(echo=echo)
    task = scene.connection.exchanges[1].task
    assert task is not None
    task.cancel()
    await scene.turn()
    scene.wire.bring(request(1, "echo"))
    await scene.turn()
    assert scene.wire.sent == [answer(1, None)]


@pytest.mark.parametrize("turns", [0, 5], ids=["as the input ends", "before"])
async def test_a_service_may_drop_a_request_without_a_response(turns: int) -> None:
    async def nothing() -> None:
        raise asyncio.CancelledError

    scene = Scene(echo=echo)

    def drop(exchange: Exchange) -> Coroutine[Any, Any, None]:
        scene.connection.peer.receive_hangup(exchange.id)
        return nothing()

    scene.served.handlers["drop"] = drop
    scene.wire.bring(request(1, "drop"))
    await scene.turn(turns)
    scene.connection.eof_received()
    await scene.turn()
    assert (scene.wire.sent, scene.connection.exchanges, scene.connection.closed.done()) == ([], {}, True)


async def test_the_end_fails_every_pending_request_with_its_own_error_object() -> None:
    scene = Scene()
    first, second = scene.ask(timeouts=Timeouts(10, 20)), scene.ask()
    await scene.turn()
    why = ServerExited("the server exited with status 3", status=3, stderr="last words")
    why.__cause__ = OSError("broken")
    scene.connection.eof_received(why)
    errors = [await failure(first), await failure(second), await failure(scene.ask())]
    assert len(set(map(id, [why, *errors]))) == 4
    assert [(type(error), str(error), vars(error), error.__cause__) for error in errors] == [
        (ServerExited, str(why), {"status": 3, "stderr": "last words", "sandbox": ""}, why.__cause__)
    ] * 3


async def test_an_error_of_another_kind_reaches_the_caller_as_it_is() -> None:
    scene = Scene()
    task = scene.ask()
    await scene.turn()
    why = RemoteProtocolError("no sense at all")
    scene.connection.eof_received(why)
    assert await failure(task) is why


async def test_an_end_about_one_request_loses_that_one_only() -> None:
    scene = Scene(echo=echo)
    lost, kept = scene.ask(), scene.ask()
    await scene.turn()
    scene.connection.eof_received(about=1)
    scene.connection.eof_received(about=9)
    assert isinstance(await failure(lost), ConnectionLost)
    scene.wire.bring(result(2, "kept"))
    assert bytes(await kept) == b'"kept"'
    assert (scene.connection.closed.done(), scene.served.ended) == (False, 0)


# --- closing ---------------------------------------------------------------------------------------------------------


async def test_closing_cancels_running_requests_fails_pending_ones_and_closes_the_link() -> None:
    scene = await scene_with_a_request()
    task = scene.ask()
    await scene.turn()
    await asyncio.gather(scene.connection.aclose(), scene.connection.aclose())
    await asyncio.create_task(scene.connection.aclose())
    assert (scene.log, scene.connection.closed.done()) == (["cancelled"], True)
    assert str(await failure(task)) == "the connection was closed"
    assert not scene.connection.notify("late")


async def test_closing_with_an_error_raises_it_in_pending_and_later_requests() -> None:
    scene = Scene()
    task = scene.ask()
    await scene.turn()
    await scene.connection.aclose(ConnectionLost("no common revision"))
    assert str(await failure(task)) == str(await failure(scene.ask())) == "no common revision"


async def test_a_handler_may_close_its_own_connection() -> None:
    async def leave(exchange: Exchange) -> None:
        await exchange.connection.aclose()

    scene = Scene(leave=leave)
    scene.wire.bring(request(1, "leave"))
    await scene.connection.closed
    await scene.turn()
    assert (scene.wire.closed, scene.wire.sent) == (1, [])


async def held_scene(**options: Any) -> tuple[Scene, asyncio.Event]:
    """Return a scene with one request that goes on when it is cancelled, until the event is set."""
    free = asyncio.Event()

    async def hold(exchange: Exchange) -> None:
        await scene.stubborn(exchange)
        await free.wait()

    scene = Scene(**options)
    scene.served.handlers["hold"] = hold
    scene.wire.bring(request(1, "hold"))
    await scene.turn()
    return scene, free


async def test_a_handler_that_does_not_end_cannot_hold_up_the_close() -> None:
    scene, free = await held_scene(limits=Limits(exit_seconds=0.01))
    await scene.connection.aclose()
    assert (scene.log, scene.wire.closed) == (["swallowed"], 1)
    free.set()
    await scene.turn()
    assert scene.wire.sent == []


async def test_messages_during_the_close_are_not_served() -> None:
    scene, free = await held_scene(echo=echo)
    closing = asyncio.create_task(scene.connection.aclose())
    await scene.turn()
    scene.wire.bring(request(2, "echo"))
    free.set()
    await closing
    assert scene.wire.sent == []


async def test_ended_waits_for_the_cleanup() -> None:
    scene, done = Scene(), []

    async def clean_up(connection: Connection) -> None:
        await scene.turn()
        done.append("cleaned up")

    await scene.connection.ended()
    scene.connection.cleanup = clean_up
    await scene.connection.aclose()
    await scene.connection.ended()
    assert done == ["cleaned up"]


# --- draining --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("queued", "writes"), [(63, 0), (64, 1)])
async def test_a_sender_of_many_messages_yields_after_a_burst(queued: int, writes: int) -> None:
    scene = Scene()
    [scene.connection.notify("n") for _ in range(queued)]
    await scene.connection.drain()
    assert (len(scene.wire.writes), scene.wire.drained) == (writes, 1)


# --- over a real link ------------------------------------------------------------------------------------------------


async def test_a_result_that_cannot_be_written_becomes_an_error() -> None:
    async def odd(_: Exchange) -> object:
        return object()

    ours, theirs = memory_pair()
    served = Scene(odd=odd).served
    left = Connection(ours, served, limits=Limits(), timers=Timers())
    right = Connection(theirs, served, limits=Limits(), timers=Timers())
    left.start()
    right.start()
    with pytest.raises(RequestFailed, match="cannot be encoded"):
        await left.request("odd", {}, timeouts=Timeouts(5, 5))
    await left.aclose()
    await right.aclose()

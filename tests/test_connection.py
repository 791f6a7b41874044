"""What a connection serves: side by side, cancelled or not, alone or in batches; and what a failure may say."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.scenes import Scene, answer, cancel, codes, echo, failure, request, result
from tests.support import run_async
from trunkline.connection import Exchange
from trunkline.errors import (
    InvalidParams,
    MissingCapability,
    RemoteProtocolError,
    RequestFailed,
)
from trunkline.protocol.limits import Limits

# --- serving ---------------------------------------------------------------------------------------------------------


async def test_notifications_leave_in_the_order_made_and_before_the_result() -> None:
    async def tell(exchange: Exchange) -> str:
        exchange.notify("a", {})
        exchange.connection.notify("b")
        exchange.notify("c", {})
        return "done"

    scene = Scene(tell=tell)
    scene.wire.bring(request(1, "tell"))
    await scene.turn()
    assert [message.get("method", "answer") for message in scene.wire.sent] == ["a", "b", "c", "answer"]


async def test_a_notification_about_a_request_that_is_over_is_dropped() -> None:
    kept: list[Exchange] = []

    async def keep(exchange: Exchange) -> None:
        kept.append(exchange)

    scene = Scene(keep=keep)
    scene.wire.bring(request(1, "keep"))
    await scene.turn()
    assert not kept[0].notify("late", {})
    assert not scene.connection.notify("late", about=1)
    await scene.turn()
    assert scene.wire.sent == [answer(1, None)]


@pytest.mark.parametrize(
    ("raised", "error"),
    [
        (InvalidParams("no such tool"), {"code": -32602, "message": "no such tool"}),
        (RequestFailed("no", code=-5, data=[1]), {"code": -5, "message": "no", "data": [1]}),
        (
            MissingCapability("needs pages", capability="elicitation.url"),
            {"code": -32021, "message": "needs pages", "data": {"requiredCapabilities": {"elicitation": {"url": {}}}}},
        ),
        (ValueError("password=hunter2"), {"code": -32603, "message": "Internal error"}),
        (ExceptionGroup("hunter2", [ValueError("hunter2")]), {"code": -32603, "message": "Internal error"}),
        (asyncio.CancelledError("hunter2"), {"code": -32603, "message": "Internal error"}),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_an_exception_becomes_an_error_without_internal_details(
    raised: BaseException, error: dict[str, Any]
) -> None:
    async def fail(_: Exchange) -> None:
        raise raised

    scene = Scene(fail=fail, echo=echo)
    scene.wire.bring(request(1, "fail"))
    await scene.turn()
    scene.wire.bring(request(1, "echo"))
    await scene.turn()
    assert scene.wire.sent == [{"jsonrpc": "2.0", "id": 1, "error": error}, answer(1, None)]


def test_an_unexpected_exception_is_logged_whole(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(_: Exchange) -> None:
        raise ValueError("the reason")

    async def main() -> None:
        scene = Scene(fail=fail)
        scene.wire.bring(request(1, "fail"))
        await scene.turn()

    run_async(main())
    assert "fail failed (request 1)" in caplog.text
    assert "the reason" in caplog.text


def test_a_service_that_fails_does_not_end_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        scene = Scene(echo=echo)
        scene.wire.bring(request(1, "unknown"), '{"jsonrpc":"2.0","method":"broken"}', request(2, "echo"))
        await scene.turn()
        assert codes(scene.wire.sent[:1]) == [(1, -32603)]
        assert scene.wire.sent[1:] == [answer(2, None)]

    run_async(main())
    assert [record.getMessage() for record in caplog.records] == ["unknown failed (request 1)", "broken failed"]


async def test_a_task_factory_of_the_loop_is_respected() -> None:
    made: list[str] = []

    def factory(loop: asyncio.AbstractEventLoop, coro: Any, **more: Any) -> asyncio.Task[Any]:
        made.append(coro.__name__)
        return asyncio.Task(coro, loop=loop, **more)

    asyncio.get_running_loop().set_task_factory(factory)
    scene = Scene(echo=echo)
    scene.wire.bring(request(1, "echo"))
    await scene.turn()
    assert made == ["_run"]


# --- being cancelled -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "ended"), [("wait", "cancelled"), ("stubborn", "swallowed")])
async def test_a_cancelled_request_is_never_answered(name: str, ended: str) -> None:
    scene = Scene()
    scene.served.handlers[name] = getattr(scene, name)
    scene.wire.bring(request(1, name))
    await scene.turn()
    scene.wire.bring(cancel(1), cancel(1))
    await scene.turn()
    assert (scene.log, scene.wire.sent, scene.connection.exchanges) == ([ended], [], {})


@pytest.mark.parametrize("raises", [False, True], ids=["result", "error"])
async def test_a_cancelled_handler_that_runs_on_does_not_answer_the_next_request_with_its_id(raises: bool) -> None:
    scene = Scene()

    async def late(exchange: Exchange) -> str:
        text = await scene.stubborn(exchange)
        return text if not raises else str(1 // 0)

    scene.served.handlers.update(late=late, wait=scene.wait)
    scene.wire.bring(request(1, "late"))
    await scene.turn()
    scene.wire.bring(cancel(1), request(1, "wait"))
    await scene.turn()
    assert (scene.log, scene.wire.sent) == (["swallowed"], [])
    scene.gate.set()
    await scene.turn()
    assert scene.wire.sent == [answer(1, "waited")]


# --- batches ---------------------------------------------------------------------------------------------------------


def array(*texts: str) -> str:
    """Write a batch."""
    return f"[{','.join(texts)}]"


async def test_a_batch_of_responses_resolves_the_pending_requests() -> None:
    scene = Scene(batches=True)
    first, second = scene.ask(), scene.ask()
    await scene.turn()
    scene.wire.bring(array(result(1, "one"), '{"jsonrpc":"2.0","id":2,"result":1,"error":null}'))
    assert bytes(await first) == b'"one"'
    assert isinstance(await failure(second), RemoteProtocolError)


@pytest.mark.parametrize(
    ("limit", "id", "code"),
    [pytest.param(9, 1, -32600, id="id in flight"), pytest.param(1, 2, -32603, id="too many in flight")],
)
async def test_requests_of_a_batch_that_the_peer_rejects_are_answered_in_the_array(
    limit: int, id: int, code: int
) -> None:
    scene = Scene(batches=True, limits=Limits(in_flight=limit))
    scene.served.handlers["wait"] = scene.wait
    scene.wire.bring(request(1, "wait"), array("5", request(id, "wait")))
    await scene.turn()
    assert [codes(message) for message in scene.wire.sent] == [[(None, -32600), (id, code)]]
    scene.gate.set()
    await scene.turn()
    assert scene.wire.sent[1:] == [answer(1, "waited")]


@pytest.mark.parametrize("name", ["wait", "stubborn"])
@pytest.mark.parametrize("turns", [0, 5], ids=["before its first step", "while it runs"])
async def test_a_batch_does_not_wait_for_a_request_that_was_cancelled(turns: int, name: str) -> None:
    scene = Scene(batches=True, echo=echo)
    scene.served.handlers[name] = getattr(scene, name)
    scene.wire.bring(array(request(1, name), request(2, "echo")))
    await scene.turn(turns)
    scene.wire.bring(cancel(1))
    await scene.turn()
    assert scene.wire.sent == [[answer(2, None)]]

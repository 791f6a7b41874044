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
from trunkline.service import ErrorReply

# --- serving ---------------------------------------------------------------------------------------------------------


async def test_a_request_is_answered_with_the_result_of_its_coroutine() -> None:
    scene = Scene(echo=echo)
    scene.wire.bring('{"jsonrpc":"2.0","id":"a","method":"echo","params":{"x":[1]}}')
    await scene.turn()
    assert scene.wire.sent == [answer("a", {"x": [1]})]


async def test_requests_run_side_by_side_and_answers_leave_as_they_are_ready() -> None:
    scene = Scene(echo=echo)
    scene.served.handlers["wait"] = scene.wait
    scene.wire.bring(request(1, "wait"), request(2, "echo"))
    await scene.turn()
    scene.gate.set()
    await scene.turn()
    assert scene.wire.sent == [answer(2, None), answer(1, "waited")]


async def test_answers_that_are_ready_together_are_written_together() -> None:
    scene = Scene(echo=echo)
    scene.wire.bring(request(1, "echo"), request(2, "echo"), request(3, "echo"))
    await scene.turn()
    assert scene.wire.writes == [[answer(1, None), answer(2, None), answer(3, None)]]


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


async def test_a_rejected_request_is_answered_with_its_error() -> None:
    scene = Scene(no=ErrorReply(-32601, "Method not found: no", {"method": "no"}))
    scene.wire.bring(request(1, "no"))
    await scene.turn()
    error = {"code": -32601, "message": "Method not found: no", "data": {"method": "no"}}
    assert scene.wire.sent == [{"jsonrpc": "2.0", "id": 1, "error": error}]


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


async def test_malformed_input_is_answered_and_the_connection_lives() -> None:
    scene = Scene(echo=echo)
    scene.wire.bring("nonsense", request(1, "echo"))
    await scene.turn()
    assert codes(scene.wire.sent[:1]) == [(None, -32700)]
    assert scene.wire.sent[1:] == [answer(1, None)]


async def test_requests_beyond_the_limit_are_rejected() -> None:
    scene = Scene(limits=Limits(in_flight=1))
    scene.served.handlers["wait"] = scene.wait
    scene.wire.bring(request(1, "wait"), request(2, "wait"))
    await scene.turn()
    assert codes(scene.wire.sent) == [(2, -32603)]
    await scene.connection.aclose()


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


async def test_a_request_cancelled_before_its_first_step_does_not_run() -> None:
    scene = Scene()
    scene.served.handlers["wait"] = scene.wait
    scene.wire.bring(request(1, "wait"), cancel(1))
    await scene.turn()
    assert (scene.log, scene.wire.sent, scene.connection.exchanges) == ([], [], {})


async def test_a_cancellation_after_the_answer_changes_nothing() -> None:
    scene = Scene(echo=echo)
    scene.wire.bring(request(1, "echo"))
    await scene.turn()
    scene.wire.bring(cancel(1), cancel("1"), cancel(2), request(2, "echo"))
    await scene.turn()
    assert scene.wire.sent == [answer(1, None), answer(2, None)]


async def test_initialize_is_answered_even_if_cancelled() -> None:
    scene = Scene(initialize=echo)
    scene.wire.bring(request(1, "initialize"), cancel(1))
    await scene.turn()
    assert scene.wire.sent == [answer(1, None)]


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


async def test_a_batch_is_answered_as_one_array_when_the_last_answer_is_ready() -> None:
    scene = Scene(batches=True, echo=echo, no=ErrorReply(-32601, "no"))
    scene.served.handlers["wait"] = scene.wait
    scene.wire.bring(array(request(1, "wait"), request(2, "echo"), request(3, "no"), "5"))
    scene.connection.notify("meanwhile")
    await scene.turn()
    assert [message["method"] for message in scene.wire.sent] == ["meanwhile"]
    scene.gate.set()
    await scene.turn()
    (replies,) = scene.wire.sent[1:]
    assert codes(replies[:2]) == [(None, -32600), (3, -32601)]
    assert replies[2:] == [answer(2, None), answer(1, "waited")]


@pytest.mark.parametrize(
    ("batches", "text"),
    [
        pytest.param(False, array(request(1, "echo")), id="not in this revision"),
        pytest.param(True, array(request(1, "echo"), request(1, "echo")), id="an id twice"),
        pytest.param(True, array(request(1, "initialize")), id="initialize"),
        pytest.param(True, array(request(1, "echo"), result(1)), id="mixed"),
        pytest.param(True, "[]", id="empty"),
    ],
)
async def test_a_batch_that_is_not_allowed_is_answered_with_one_error(batches: bool, text: str) -> None:
    scene = Scene(batches=batches, echo=echo)
    scene.wire.bring(text)
    await scene.turn()
    assert codes(scene.wire.sent) == [(None, -32600)]


async def test_a_batch_of_notifications_is_not_answered() -> None:
    scene = Scene(batches=True)
    scene.wire.bring(array('{"jsonrpc":"2.0","method":"a"}', '{"jsonrpc":"2.0","method":"b"}'))
    await scene.turn()
    assert (scene.served.notices, scene.wire.sent) == (["a", "b"], [])


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

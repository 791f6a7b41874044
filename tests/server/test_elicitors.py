"""How a question leaves a handler: one at a time, several at once, in loops, in both eras."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs

from tests.server.talk import ERAS, FORMS, HANDSHAKE, STATELESS, accept, again, asked, reach, text
from trunkline import Client, Context, Server
from trunkline.protocol.caller import MEMORY, Principal
from trunkline.protocol.jsonrpc import decode
from trunkline.protocol.limits import Limits

CALL: dict[str, Any] = {"name": "f", "arguments": {}}
ELICIT = "elicitation/create"


def serving(function: Callable[..., Any], **options: Any) -> Server:
    server = Server("s", **options)
    server.add_tool(function, name="f")
    return server


def by_message(params: Any) -> Any:
    return accept(f"<{params['message']}>")


# --- several ---------------------------------------------------------------------------------------------------------


@ERAS
async def test_sequential_requests_of_a_handler_are_sent_one_after_the_other(revision: str) -> None:
    async def f(ctx: Context) -> str:
        first = await ctx.elicit("first", str)
        second = await ctx.elicit("second", str)
        return f"{first.data} {second.data}"

    async with reach(serving(f), revision, FORMS) as peer:
        talk = await peer.converse_tool("f", {ELICIT: by_message})
    assert (talk.text, [each["params"]["message"] for each in talk.questions]) == (
        "<first> <second>",
        ["first", "second"],
    )


@ERAS
async def test_the_same_request_can_be_sent_in_a_loop(revision: str) -> None:
    async def f(ctx: Context) -> str:
        return ",".join([str((await ctx.elicit("next", str)).data) for _ in range(3)])

    answers = iter("abc")
    async with reach(serving(f), revision, FORMS) as peer:
        talk = await peer.converse_tool("f", {ELICIT: lambda params: accept(next(answers))})
    assert (talk.text, len(talk.questions)) == ("a,b,c", 3)


async def _gathered(ctx: Context) -> str:
    found = await asyncio.gather(ctx.elicit("a", str), ctx.elicit("b", str))
    return " ".join(str(each.data) for each in found)


async def _grouped(ctx: Context) -> str:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(ctx.elicit(message, str)) for message in "ab"]
    return " ".join(str(task.result().data) for task in tasks)


@ERAS
@pytest.mark.parametrize("function", [_gathered, _grouped], ids=["gather", "task-group"])
async def test_requests_can_be_sent_concurrently(function: Callable[..., Any], revision: str) -> None:
    async with reach(serving(function), revision, FORMS) as peer:
        talk = await peer.converse_tool("f", {ELICIT: by_message})
    assert talk.text == "<a> <b>"


@pytest.mark.parametrize("function", [_gathered, _grouped], ids=["gather", "task-group"])
async def test_questions_asked_at_once_leave_in_one_round(function: Callable[..., Any]) -> None:
    async with reach(serving(function), STATELESS, FORMS) as peer:
        assert asked(await peer.result("tools/call", CALL)) == ["a", "b"]


async def test_a_request_can_be_sent_with_a_timeout() -> None:
    async def f(ctx: Context) -> str:
        async with asyncio.timeout(20):
            return str((await ctx.elicit("a", str)).data)

    async with reach(serving(f), STATELESS, FORMS) as peer:
        assert (await peer.converse_tool("f", {ELICIT: by_message})).text == "<a>"


# --- names -----------------------------------------------------------------------------------------------------------


async def test_a_request_has_the_key_given_by_the_handler() -> None:
    async def f(ctx: Context) -> str:
        await asyncio.gather(ctx.elicit("a", str, key="who"), ctx.elicit("b", str, key="who"))
        return "done"

    async with reach(serving(f), STATELESS, FORMS) as peer:
        assert list((await peer.result("tools/call", CALL))["inputRequests"]) == ["who", "who-2"]


async def test_an_old_response_is_not_used_for_a_changed_request() -> None:
    prices = iter([10, 20, 20])

    async def f(ctx: Context) -> str:
        price = next(prices)
        answer = await ctx.elicit(f"Pay {price}?", str, key="pay")
        return f"{price} {answer.data}"

    async with reach(serving(f), STATELESS, FORMS) as peer:
        first = await peer.result("tools/call", CALL)
        second = await peer.result("tools/call", again(CALL, first, accept("yes")))
        last = await peer.result("tools/call", again(CALL, second, accept("all right")))
    assert (asked(first), asked(second), text(last)) == (["Pay 10?"], ["Pay 20?"], "20 all right")


async def test_responses_without_a_request_state_are_ignored() -> None:
    async def f(ctx: Context) -> str:
        return str((await ctx.elicit("a", str, key="k")).data)

    async with reach(serving(f), STATELESS, FORMS) as peer:
        result = await peer.result("tools/call", {**CALL, "inputResponses": {"k": accept("forged")}})
        assert asked(result) == ["a"]


async def test_an_unanswered_request_is_sent_again() -> None:
    async with reach(serving(_gathered), STATELESS, FORMS) as peer:
        first = await peer.result("tools/call", CALL)
        key = next(iter(first["inputRequests"]))
        retry = {**CALL, "inputResponses": {key: accept("x")}, "requestState": first["requestState"]}
        assert asked(await peer.result("tools/call", retry)) == ["b"]


# --- answers that do not fit -----------------------------------------------------------------------------------------


@ERAS
async def test_a_response_that_does_not_match_the_form_is_requested_again(revision: str) -> None:
    async def f(ctx: Context) -> str:
        return str((await ctx.elicit("How many?", int)).data)

    answers = iter([{"action": "accept", "content": {"value": "many"}}, {"action": "accept"}, accept(3)])
    async with reach(serving(f), revision, FORMS) as peer:
        talk = await peer.converse_tool("f", {ELICIT: lambda params: next(answers)})
    assert (talk.text, len(talk.questions)) == ("3", 3)


@ERAS
async def test_a_response_of_the_wrong_type_is_rejected(revision: str) -> None:
    async def f(ctx: Context) -> str:
        return str((await ctx.elicit("How many?", int)).data)

    async with reach(serving(f), revision, FORMS) as peer:
        talk = await peer.converse_tool("f", {ELICIT: {"roots": []}})
    assert talk.answer["error"]["code"] == -32602


@ERAS
async def test_a_request_that_is_never_settled_fails_the_call(revision: str) -> None:
    async def f(ctx: Context) -> str:
        return str((await ctx.elicit("How many?", int, key="count")).data)

    async with reach(serving(f, limits=Limits(rounds=3)), revision, FORMS) as peer:
        talk = await peer.converse_tool("f", {ELICIT: accept("many")})
    error = talk.answer["error"]
    assert (len(talk.questions), error["code"]) == (3, -32603)
    assert ("count" in error["message"]) or ("How many?" in error["message"])


async def test_the_error_of_the_round_limit_names_the_request() -> None:
    async def f(ctx: Context) -> str:
        return str((await ctx.elicit("How many?", int, key="count")).data)

    async with reach(serving(f, limits=Limits(rounds=3)), STATELESS, FORMS) as peer:
        talk = await peer.converse_tool("f", {ELICIT: accept("many")})
    assert talk.answer["error"]["message"] == "The request 'count' was not settled in 3 rounds"


# --- once ------------------------------------------------------------------------------------------------------------


@ERAS
async def test_once_does_not_repeat_a_call_in_later_rounds(revision: str) -> None:
    charged: list[int] = []

    def charge(amount: int) -> dict[str, int]:
        charged.append(amount)
        return {"receipt": len(charged)}

    async def f(ctx: Context) -> str:
        receipt = await ctx.once("charge", charge, 5)
        await ctx.elicit("a", str)
        return f"{receipt} {await ctx.once('charge', charge, 5)}"

    async with reach(serving(f), revision, FORMS) as peer:
        talk = await peer.converse_tool("f", {ELICIT: by_message})
    assert (talk.text, charged) == ("{'receipt': 1} {'receipt': 1}", [5])


@ERAS
async def test_concurrent_calls_of_once_run_the_function_once(revision: str) -> None:
    done: list[str] = []

    async def work() -> int:
        done.append("work")
        await asyncio.sleep(0)
        return len(done)

    async def f(ctx: Context) -> str:
        return str(await asyncio.gather(ctx.once("work", work), ctx.once("work", work)))

    async with reach(serving(f), revision) as peer:
        assert (text(await peer.call("f")), done) == ("[1, 1]", ["work"])


@ERAS
async def test_a_running_once_call_finishes_before_requests_are_sent(revision: str) -> None:
    log: list[str] = []

    async def work() -> str:
        log.append("begun")
        await asyncio.sleep(0.01)
        log.append("finished")
        return "result"

    async def f(ctx: Context) -> str:
        made, answer = await asyncio.gather(ctx.once("work", work), ctx.elicit("a", str))
        return f"{made} {answer.data}"

    async with reach(serving(f), revision, FORMS) as peer:
        talk = await peer.converse_tool("f", {ELICIT: by_message})
    assert (talk.text, log) == ("result <a>", ["begun", "finished"])


@ERAS
async def test_a_function_in_once_may_send_requests(revision: str) -> None:
    async def f(ctx: Context) -> str:
        async def inner() -> str:
            return str((await ctx.elicit("a", str)).data)

        async def outer() -> str:
            return f"[{await ctx.once('inner', inner)}]"

        return str(await ctx.once("outer", outer))

    async with reach(serving(f), revision, FORMS) as peer:
        talk = await peer.converse_tool("f", {ELICIT: by_message})
    assert (talk.text, len(talk.questions)) == ("[<a>]", 1)


@ERAS
async def test_a_failed_once_call_is_retried(revision: str) -> None:
    tries: list[int] = []

    def work() -> int:
        tries.append(1)
        return 10 // (len(tries) - 1)

    async def f(ctx: Context) -> str:
        failed = await asyncio.gather(ctx.once("work", work), return_exceptions=True)
        return f"{type(failed[0]).__name__} {await ctx.once('work', work)}"

    async with reach(serving(f), revision) as peer:
        assert text(await peer.call("f")) == "ZeroDivisionError 10"


@ERAS
async def test_once_of_a_sync_function_runs_in_its_thread(revision: str) -> None:
    threads: list[int] = []

    def f(ctx: Context) -> str:
        def work() -> int:
            threads.append(threading.get_ident())
            return 1

        ctx.once("work", work)  # type: ignore[unused-coroutine]
        ctx.elicit("a", str)  # type: ignore[unused-coroutine]
        return f"{ctx.once('work', work)}"

    async with reach(serving(f), revision, FORMS) as peer:
        talk = await peer.converse_tool("f", {ELICIT: by_message})
    assert (talk.text, len(threads), threading.get_ident() in threads) == ("1", 1, False)


# --- running again ---------------------------------------------------------------------------------------------------


async def test_notifications_of_earlier_rounds_are_not_repeated() -> None:
    async def f(ctx: Context) -> str:
        await ctx.report_progress(1, 2, "early")
        await ctx.info("early")
        await ctx.elicit("a", str)
        await ctx.report_progress(2, 2, "late")
        await ctx.info("late")
        return "done"

    meta = {"progressToken": 7, "io.modelcontextprotocol/logLevel": "info"}
    async with reach(serving(f), STATELESS, FORMS) as peer:
        first = (await peer.request("tools/call", CALL, meta=meta))["result"]
        await peer.request("tools/call", again(CALL, first, accept("x")), meta=meta)
    assert [each["message"] for each in peer.notices("notifications/progress")] == ["early", "late"]
    assert [each["data"] for each in peer.notices("notifications/message")] == ["early", "late"]


async def test_finally_blocks_run_before_requests_are_sent() -> None:
    log: list[str] = []

    async def f(ctx: Context) -> str:
        try:
            return str((await ctx.elicit("a", str)).data)
        finally:
            await asyncio.sleep(0)
            log.append("cleaned")

    async with reach(serving(f), STATELESS, FORMS) as peer:
        assert (asked(await peer.result("tools/call", CALL)), log) == (["a"], ["cleaned"])


async def test_a_handler_that_suppresses_its_cancellation_still_sends_its_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def f(ctx: Context) -> str:
        try:
            await ctx.elicit("a", str)
        except asyncio.CancelledError:
            return "swallowed"
        return "answered"

    async with reach(serving(f), STATELESS, FORMS) as peer:
        first = await peer.result("tools/call", CALL)
        last = await peer.result("tools/call", again(CALL, first, accept("x")))
    assert (asked(first), text(last)) == (["a"], "answered")
    assert "suppressed its cancellation; its result is dropped" in caplog.text


@ERAS
async def test_a_handler_that_returns_before_its_response_is_complete(revision: str) -> None:
    async def f(ctx: Context) -> str:
        asking = asyncio.ensure_future(ctx.elicit("a", str))
        await asyncio.sleep(0)
        asking.cancel()
        return "never mind"

    async with reach(serving(f), revision, FORMS) as peer:
        assert text(await peer.call("f")) == "never mind"


async def test_a_handler_that_fails_while_a_request_is_queued_fails_the_call() -> None:
    async def f(ctx: Context) -> str:
        asking = asyncio.ensure_future(ctx.elicit("a", str))
        await asyncio.sleep(0)
        asking.cancel()
        raise ValueError("beside")

    async with reach(serving(f), STATELESS, FORMS) as peer:
        assert text(await peer.call("f")) == "Tool 'f' failed unexpectedly."


async def test_a_call_cancelled_while_waiting_for_input_is_never_answered() -> None:
    asking = asyncio.Event()
    log: list[str] = []

    async def f(ctx: Context) -> str:
        asking.set()
        try:
            return str((await ctx.elicit("a", str)).data)
        finally:
            log.append("left")

    async with reach(serving(f), HANDSHAKE, FORMS) as peer:
        id = await peer.send("tools/call", CALL)
        await asking.wait()
        await peer.tell("notifications/cancelled", {"requestId": id})
        await peer.settle()
    assert (log, [each for each in peer.heard if each.get("id") == id and "method" not in each]) == (["left"], [])


# --- states that are refused -----------------------------------------------------------------------------------------


async def _asks(ctx: Context, n: int = 0) -> str:
    return f"{n} {(await ctx.elicit('a', str)).data}"


def _reversed(state: str) -> str:
    return state[:-4] + state[-4:][::-1]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda p: {**p, "requestState": _reversed(p["requestState"])}, id="changed"),
        pytest.param(lambda p: {**p, "requestState": "nonsense"}, id="nonsense"),
        pytest.param(lambda p: {**p, "arguments": {"n": 5}}, id="other-arguments"),
        pytest.param(lambda p: {**p, "name": "g"}, id="other-tool"),
    ],
)
async def test_a_state_of_another_call_is_rejected(
    change: Callable[[dict[str, Any]], dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    server = serving(_asks)
    server.add_tool(_asks, name="g")
    with caplog.at_level(logging.INFO, "trunkline"):
        async with reach(server, STATELESS, FORMS) as peer:
            retry = again(CALL, await peer.result("tools/call", CALL), accept("x"))
            error = await peer.error("tools/call", change(retry))
    assert (error["code"], error["message"]) == (-32602, "The request state is not valid here; start the call again.")
    assert "requestState of tools/call rejected" in caplog.text


async def test_an_expired_state_is_rejected() -> None:
    async with reach(serving(_asks, limits=Limits(state_seconds=0.0)), STATELESS, FORMS) as peer:
        retry = again(CALL, await peer.result("tools/call", CALL), accept("x"))
        assert (await peer.error("tools/call", retry))["code"] == -32602


async def test_a_state_of_another_server_is_rejected() -> None:
    async with reach(serving(_asks), STATELESS, FORMS) as peer:
        retry = again(CALL, await peer.result("tools/call", CALL), accept("x"))
    async with reach(serving(_asks), STATELESS, FORMS) as peer:
        assert (await peer.error("tools/call", retry))["code"] == -32602


async def test_a_state_is_opened_by_a_server_with_the_same_key() -> None:
    keys = ["11" * 32]
    async with reach(serving(_asks, state_keys=keys), STATELESS, FORMS) as peer:
        retry = again(CALL, await peer.result("tools/call", CALL), accept("x"))
    async with reach(serving(_asks, state_keys=["22" * 32, *keys]), STATELESS, FORMS) as peer:
        assert text(await peer.result("tools/call", retry)) == "0 x"


async def test_the_state_key_can_come_from_the_environment() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRUNKLINE_STATE_KEY", "33" * 32)
        async with reach(serving(_asks), STATELESS, FORMS) as peer:
            retry = again(CALL, await peer.result("tools/call", CALL), accept("x"))
        async with reach(serving(_asks), STATELESS, FORMS) as peer:
            assert text(await peer.result("tools/call", retry)) == "0 x"


async def test_a_state_of_another_round_does_not_matter_in_the_handshake_era() -> None:
    async def f() -> str:
        return "plain"

    async with reach(serving(f), HANDSHAKE) as peer:
        assert text(await peer.result("tools/call", {**CALL, "requestState": "x"})) == "plain"


# --- sync functions --------------------------------------------------------------------------------------------------


@ERAS
async def test_a_sync_function_sends_requests_with_the_same_methods(revision: str) -> None:
    def f(ctx: Context) -> str:
        first: Any = ctx.elicit("first", str)
        second: Any = ctx.elicit("second", str)
        return f"{first.data} {second.data}"

    async with reach(serving(f), revision, FORMS) as peer:
        assert (await peer.converse_tool("f", {ELICIT: by_message})).text == "<first> <second>"


async def test_a_sync_function_that_sends_a_request_is_aborted_by_an_exception() -> None:
    left = threading.Event()

    def f(ctx: Context) -> str:
        try:
            ctx.elicit("a", str)  # type: ignore[unused-coroutine]
        except Exception:  # noqa: BLE001 - this is what must not catch it
            return "caught"
        finally:
            left.set()
        return "answered"

    async with reach(serving(f), STATELESS, FORMS) as peer:
        first = await peer.result("tools/call", CALL)
        assert await asyncio.to_thread(left.wait, 5)
        assert text(await peer.result("tools/call", again(CALL, first, accept("x")))) == "answered"


# --- prompts and resources -------------------------------------------------------------------------------------------


@ERAS
async def test_prompts_and_resources_send_requests_like_tools(revision: str) -> None:
    server = Server("s")

    @server.prompt
    async def p(ctx: Context) -> str:
        return str((await ctx.elicit("p", str)).data)

    @server.resource("x://{y}")
    async def r(y: str, ctx: Context) -> str:
        return str((await ctx.elicit(y, str)).data)

    async with reach(server, revision, FORMS) as peer:
        prompt = await peer.converse("prompts/get", {"name": "p"}, {ELICIT: by_message})
        resource = await peer.converse("resources/read", {"uri": "x://z"}, {ELICIT: by_message})
    assert prompt.result["messages"][0]["content"]["text"] == "<p>"
    assert resource.result["contents"][0]["text"] == "<z>"


async def test_the_time_for_a_response_is_bounded() -> None:
    async with reach(serving(_asks, limits=Limits(ask_seconds=0.01)), HANDSHAKE, FORMS) as peer:
        assert (await peer.call("f"))["isError"] is True


async def test_a_request_waits_until_the_client_is_initialized() -> None:
    async with reach(serving(_asks), HANDSHAKE, FORMS, greet=False) as peer:
        await peer.result("initialize", peer.hello())
        await peer.send("tools/call", CALL)
        early = await peer.settle()
        await peer.tell("notifications/initialized")
        question = await peer.hear()
    assert (early, question["method"]) == ([], ELICIT)


async def test_a_state_of_another_principal_is_rejected() -> None:
    ada, bob = (MEMORY, structs.replace(MEMORY, principal=Principal(subject="bob")))
    server = serving(_asks)
    async with reach(server, STATELESS, FORMS) as peer:
        carrier: Any = peer.carrier
        retry = again(CALL, await peer.result("tools/call", CALL), accept("x"))
        request = peer.request_of("tools/call", retry, id="foreign")
        carrier.connection.message_received(decode(json.dumps(request).encode()), bob)
        foreign = await peer.answer("foreign")
        carrier.connection.message_received(decode(json.dumps({**request, "id": "own"}).encode()), ada)
        own = await peer.answer("own")
    assert (foreign["error"]["code"], text(own["result"])) == (-32602, "0 x")


@ERAS
async def test_a_function_in_once_may_call_another_server_that_sends_requests(revision: str) -> None:
    other = serving(_asks)

    async def work() -> str:
        async with Client(other, revision=revision, elicitation=lambda params: {"value": "inner"}) as client:
            return str((await client.call_tool("f")).data)

    async def f(ctx: Context) -> str:
        return str(await ctx.once("work", work))

    async with reach(serving(f), revision) as peer:
        assert text(await peer.call("f")) == "0 inner"


async def test_notifications_after_a_request_are_sent_in_the_handshake_era() -> None:
    async def f(ctx: Context) -> str:
        await ctx.elicit("a", str)
        await ctx.notify("acme/after")
        return "done"

    async with reach(serving(f), HANDSHAKE, FORMS) as peer:
        await peer.converse_tool("f", {ELICIT: by_message})
    assert peer.notices("acme/after") == [None]

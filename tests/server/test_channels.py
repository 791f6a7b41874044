"""How a question leaves a handler: one at a time, several at once, in loops, in both eras."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest
from msgspec import structs

from tests.server.talk import ERAS, FORMS, HANDSHAKE, STATELESS, accept, again, asked, reach, serving, text
from trunkline import Client, Context
from trunkline.protocol.caller import MEMORY, Principal
from trunkline.protocol.jsonrpc import decode
from trunkline.protocol.limits import Limits

CALL: dict[str, Any] = {"name": "f", "arguments": {}}
ELICIT = "elicitation/create"


def by_message(params: Any) -> Any:
    return accept(f"<{params['message']}>")


# --- names -----------------------------------------------------------------------------------------------------------


async def test_a_request_has_the_key_given_by_the_handler() -> None:
    async def f(ctx: Context) -> str:
        await asyncio.gather(ctx.elicit("a", str, key="who"), ctx.elicit("b", str, key="who"))
        return "done"

    async with reach(serving(f), STATELESS, FORMS) as peer:
        assert list((await peer.result("tools/call", CALL))["inputRequests"]) == ["who", "who-2"]


# --- answers that do not fit -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("revision", "named"),
    [
        (STATELESS, "The request 'count' was not settled in 3 rounds"),
        (HANDSHAKE, "No response to 'How many?' had the requested form"),
    ],
)
async def test_a_request_that_is_never_settled_fails_the_call(revision: str, named: str) -> None:
    async def f(ctx: Context) -> str:
        return str((await ctx.elicit("How many?", int, key="count")).data)

    async with reach(serving(f, limits=Limits(rounds=3)), revision, FORMS) as peer:
        talk = await peer.converse_tool("f", {ELICIT: accept("many")})
    error = talk.answer["error"]
    assert (len(talk.questions), error["code"]) == (3, -32603)
    assert error["message"] == named


# --- once ------------------------------------------------------------------------------------------------------------


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


# --- states that are refused -----------------------------------------------------------------------------------------


async def _asks(ctx: Context, n: int = 0) -> str:
    return f"{n} {(await ctx.elicit('a', str)).data}"


async def test_the_state_key_can_come_from_the_environment() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRUNKLINE_STATE_KEY", "33" * 32)
        async with reach(serving(_asks), STATELESS, FORMS) as peer:
            retry = again(CALL, await peer.result("tools/call", CALL), accept("x"))
        async with reach(serving(_asks), STATELESS, FORMS) as peer:
            assert text(await peer.result("tools/call", retry)) == "0 x"


# --- sync functions --------------------------------------------------------------------------------------------------


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

"""Requests of the server and input rounds of a call, on the wire."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.client.scripted_server import ManualClock, Scripted, handshake_server, stateless
from trunkline.client.client import Client
from trunkline.errors import RemoteProtocolError, RequestFailed, RequestTimeout
from trunkline.protocol.limits import Limits

DONE = {"resultType": "complete", "content": [{"type": "text", "text": "done"}]}
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
ASK = {"method": "elicitation/create", "params": {"mode": "form", "message": "Who?", "requestedSchema": FORM}}
SAMPLE = {
    "method": "sampling/createMessage",
    "params": {"messages": [{"role": "user", "content": {"type": "text", "text": "Hi"}}], "maxTokens": 9},
}


def asking(state: str | None = "opaque", **questions: Any) -> dict[str, Any]:
    result: dict[str, Any] = {"resultType": "input_required"}
    result.update({"inputRequests": questions} if questions else {})
    result.update({} if state is None else {"requestState": state})
    return result


def script(*results: Any) -> Any:
    """Return one result after the other."""
    left = list(results)
    return lambda _: left.pop(0)


# --- stateless: rounds


@pytest.mark.parametrize("method", ["prompts/get", "resources/read"])
async def test_prompts_and_resources_may_ask_too(method: str) -> None:
    results = {"prompts/get": {"messages": []}, "resources/read": {"contents": [], "ttlMs": 9000}}
    server = stateless({method: script(asking(who=ASK), results[method], asking(who=ASK), results[method])})
    async with Client(server, elicitation=lambda _: {"name": "Ada"}) as client:
        calls: dict[str, Callable[[str], Awaitable[Any]]] = {
            "prompts/get": client.get_prompt,
            "resources/read": client.read_resource,
        }
        await calls[method]("x")
        # A result that depends on answers is never cached.
        await calls[method]("x")
    assert server.methods.count(method) == 4


async def test_each_round_has_a_progress_token_of_its_own() -> None:
    server = stateless({"tools/call": script(asking(who=ASK), DONE)})
    async with Client(server, elicitation=lambda _: {"name": "Ada"}) as client:
        await client.call_tool("x", on_progress=lambda *_: None)
    tokens = [params["_meta"]["progressToken"] for params in server.params_of("tools/call")]
    assert tokens == server.ids[-2:]


async def test_a_round_without_questions_waits_a_little_longer_each_time() -> None:
    clock = ManualClock()
    server = stateless({"tools/call": script(asking("a"), asking("b"), DONE)})
    async with Client(server, clock=clock) as client:
        call = asyncio.ensure_future(client.call_tool("x"))
        await clock.advance(0.11)
        assert server.methods.count("tools/call") == 2
        await clock.advance(0.11)
        assert server.methods.count("tools/call") == 2
        await clock.advance(0.11)
        assert (await call).text == "done"
    assert [params.get("requestState") for params in server.params_of("tools/call")] == [None, "a", "b"]


@pytest.mark.parametrize(
    "question",
    [{"method": "acme/ask"}, {"method": "elicitation/create", "params": {"message": 3}}],
    ids=["unknown", "unreadable"],
)
async def test_a_question_that_cannot_be_answered_fails_the_call(question: Any) -> None:
    server = stateless({"tools/call": asking(who=question)})
    async with Client(server, elicitation=lambda _: None) as client:
        with pytest.raises(RemoteProtocolError, match="invalid input request"):
            await client.call_tool("x")


async def test_a_callback_that_fails_raises_where_the_call_was_made() -> None:
    def broken(params: Any) -> Any:
        raise ZeroDivisionError("private")

    server = stateless({"tools/call": asking(who=ASK)})
    async with Client(server, elicitation=broken) as client:
        with pytest.raises(ZeroDivisionError, match="private"):
            await client.call_tool("x")
    assert server.methods.count("tools/call") == 1


async def test_the_total_timeout_covers_all_rounds_except_while_a_user_is_asked() -> None:
    clock = ManualClock()
    wanted: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
    server = stateless({"tools/call": script(asking(who=ASK), None)})
    async with Client(server, clock=clock, elicitation=lambda _: wanted) as client:
        call = asyncio.ensure_future(client.call_tool("x", timeout=50, total_timeout=10))
        await clock.advance(1000)
        wanted.set_result({"name": "Ada"})
        await clock.advance(9.9)
        assert not call.done()
        await clock.advance(0.2)
        with pytest.raises(RequestTimeout) as caught:
            await call
    assert caught.value.clock == "total"


async def test_a_total_clock_that_ran_out_between_rounds_ends_the_call() -> None:
    clock = ManualClock()
    server = stateless({"tools/call": asking("again")})
    async with Client(server, clock=clock) as client:
        call = asyncio.ensure_future(client.call_tool("x", total_timeout=2))
        await clock.advance(4)
        with pytest.raises(RequestTimeout, match="2 s") as caught:
            await call
    assert (caught.value.clock, caught.value.seconds) == ("total", 2)


async def test_a_call_without_a_total_clock_goes_on() -> None:
    clock = ManualClock()
    server = stateless({"tools/call": script(asking("again"), DONE)})
    client = Client(server, clock=clock, limits=Limits(total_seconds=float("inf")))
    async with client:
        call = asyncio.ensure_future(client.call_tool("x"))
        await clock.advance(1)
        assert (await call).text == "done"


# --- handshake: requests of the server


async def asked(server: Scripted, method: str, params: Any = None, id: str = "q1") -> Any:
    server.stage.ask(id, method, params)
    await server.until(lambda: id in server.stage.answers)
    return server.stage.answers[id]


@pytest.mark.parametrize(
    ("method", "params", "code", "word"),
    [
        ("acme/ask", None, -32601, "acme/ask"),
        ("elicitation/request", None, -32601, "elicitation/create"),
        ("sampling/createMessage", SAMPLE["params"], -32601, "sampling"),
        ("elicitation/create", {"message": 3}, -32602, "message"),
        ("elicitation/create", {"message": "m", "mode": "url", "url": "https://x"}, -32602, "elicitation.url"),
    ],
    ids=["unknown", "loose name", "not declared", "unreadable", "mode not declared"],
)
async def test_a_question_that_is_not_ours_is_rejected(method: str, params: Any, code: int, word: str) -> None:
    server = handshake_server()
    async with Client(server, elicitation=lambda _: None):
        error = await asked(server, method, params)
    assert error.code == code
    assert word in error.message


async def test_a_callback_can_refuse_with_a_code_of_its_own() -> None:
    def refuse(params: Any) -> Any:
        raise RequestFailed("the user said no", code=-1)

    server = handshake_server()
    async with Client(server, sampling=refuse):
        error = await asked(server, "sampling/createMessage", SAMPLE["params"])
    assert (error.code, error.message) == (-1, "the user said no")

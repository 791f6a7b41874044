"""Requests of the server and input rounds of a call, on the wire."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import trunkline.types as t
from tests.client.scripted_server import Fail, ManualClock, Scripted, handshake_server, settle, stateless
from trunkline.client.client import Client
from trunkline.errors import LocalProtocolError, RemoteProtocolError, RequestFailed, RequestTimeout
from trunkline.protocol.jsonrpc import Request
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


async def test_a_question_in_a_result_is_answered_in_the_next_round() -> None:
    server = stateless({"tools/call": script(asking(who=ASK, what=SAMPLE, where={"method": "roots/list"}), DONE)})
    client = Client(
        server,
        elicitation=lambda params: {"name": params.message},
        sampling=lambda params: "hello",
        roots=["file:///work"],
    )
    async with client:
        assert (await client.call_tool("book", {"n": 1})).text == "done"
    first, second = server.params_of("tools/call")
    assert first["arguments"] == second["arguments"] == {"n": 1}
    assert second["requestState"] == "opaque"
    assert second["inputResponses"] == {
        "who": {"action": "accept", "content": {"name": "Who?"}},
        "what": {
            "role": "assistant",
            "content": {"type": "text", "text": "hello"},
            "model": "trunkline",
            "stopReason": "endTurn",
        },
        "where": {"roots": [{"uri": "file:///work"}]},
    }
    assert first["_meta"] == second["_meta"]
    assert len(set(server.ids)) == len(server.ids)


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


async def test_rounds_without_end_are_ended() -> None:
    server = stateless({"tools/call": asking(who=ASK)})
    limits = Limits(rounds=3)
    async with Client(server, elicitation=lambda _: {"name": "Ada"}, limits=limits) as client:
        with pytest.raises(RemoteProtocolError, match="3 consecutive rounds"):
            await client.call_tool("x")


async def test_a_question_that_was_not_declared_fails_the_call_and_names_the_capability() -> None:
    server = stateless({"tools/call": asking(who=ASK)})
    async with Client(server) as client:
        with pytest.raises(RemoteProtocolError, match="elicitation"):
            await client.call_tool("x")
    assert server.methods.count("tools/call") == 1


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


@pytest.mark.parametrize(
    "result",
    [{"resultType": "input_required"}, {"resultType": "partial", "content": []}],
    ids=["asks nothing", "unknown kind"],
)
async def test_a_result_of_no_known_kind_is_the_servers_fault(result: Any) -> None:
    async with Client(stateless({"tools/call": result})) as client:
        with pytest.raises(RemoteProtocolError):
            await client.call_tool("x")


async def test_a_handshake_revision_has_no_result_that_asks() -> None:
    async with Client(handshake_server({"tools/call": asking(who=ASK)})) as client:
        with pytest.raises(RemoteProtocolError, match="asked for input"):
            await client.call_tool("x")


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


async def test_a_stateless_server_that_sends_requests_gets_no_answer() -> None:
    server = stateless()
    async with Client(server, roots=[]) as client:
        server.stage.ask("q1", "roots/list")
        server.stage.ask("q1", "roots/list")
        await client.ping()
        await settle()
        assert server.stage.answers == {}


# --- handshake: requests of the server


async def asked(server: Scripted, method: str, params: Any = None, id: str = "q1") -> Any:
    server.stage.ask(id, method, params)
    await server.until(lambda: id in server.stage.answers)
    return server.stage.answers[id]


async def test_a_request_of_a_handshake_server_is_answered_by_the_same_callbacks() -> None:
    server = handshake_server()
    client = Client(server, elicitation=lambda _: {"name": "Ada"}, sampling=lambda _: "hello", roots=["file:///w"])
    async with client:
        assert await asked(server, "elicitation/create", ASK["params"], "a") == {
            "action": "accept",
            "content": {"name": "Ada"},
        }
        assert (await asked(server, "sampling/createMessage", SAMPLE["params"], "b"))["content"]["text"] == "hello"
        assert await asked(server, "roots/list", None, "c") == {"roots": [{"uri": "file:///w"}]}
        assert await asked(server, "ping", None, "d") == {}


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


async def test_an_unknown_method_is_named_in_the_refusal() -> None:
    server = handshake_server()
    async with Client(server):
        assert (await asked(server, "acme/ask")).data == {"method": "acme/ask"}


async def test_a_callback_that_fails_never_leaks_its_text() -> None:
    def broken(params: Any) -> Any:
        raise ZeroDivisionError("private")

    server = handshake_server()
    async with Client(server, elicitation=broken):
        error = await asked(server, "elicitation/create", ASK["params"])
    assert (error.code, error.message) == (-32603, "Internal error")


async def test_a_callback_can_refuse_with_a_code_of_its_own() -> None:
    def refuse(params: Any) -> Any:
        raise RequestFailed("the user said no", code=-1)

    server = handshake_server()
    async with Client(server, sampling=refuse):
        error = await asked(server, "sampling/createMessage", SAMPLE["params"])
    assert (error.code, error.message) == (-1, "the user said no")


async def test_the_clocks_of_a_call_stand_still_while_its_question_is_answered() -> None:
    clock = ManualClock()
    wanted: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    server = handshake_server({"tools/call": None})
    async with Client(server, clock=clock, elicitation=lambda _: wanted) as client:
        call = asyncio.ensure_future(client.call_tool("x", timeout=5, total_timeout=8))
        await server.until(lambda: "tools/call" in server.methods)
        server.stage.ask("q1", "elicitation/create", ASK["params"])
        await clock.advance(100)
        assert not call.done()
        wanted.set_result(None)
        await clock.advance(4)
        assert not call.done()
        await clock.advance(2)
        with pytest.raises(RequestTimeout):
            await call


async def test_tools_in_sampling_are_rejected_unless_declared() -> None:
    params = {**SAMPLE["params"], "tools": [{"name": "t", "inputSchema": {"type": "object"}}]}  # type: ignore[dict-item]
    plain, able = handshake_server(), handshake_server()
    async with Client(plain, sampling=lambda _: "x"):
        assert (await asked(plain, "sampling/createMessage", params)).code == -32602
    async with Client(able, sampling=lambda p: p.tools[0].name if p.tools else "none", sampling_tools=True):
        assert (await asked(able, "sampling/createMessage", params))["content"]["text"] == "t"
    assert able.params_of("initialize")[0]["capabilities"]["sampling"] == {"tools": {}}


async def test_batches_are_taken_only_where_the_revision_has_them() -> None:
    with_batches, without = handshake_server(revision="2025-03-26"), handshake_server()
    pings = (Request("a", "ping"), Request("b", "ping"))
    async with Client(with_batches):
        with_batches.stage.put(pings)  # type: ignore[arg-type]
        await settle()
    async with Client(without):
        without.stage.put(pings)  # type: ignore[arg-type]
        await without.until(lambda: without.stage.answers)
        assert without.stage.answers[None].code == -32600


async def test_a_method_that_needs_an_undeclared_capability_is_not_sent_by_request_either() -> None:
    server = handshake_server({"tools/call": Fail(-1)})
    async with Client(server) as client:
        with pytest.raises(LocalProtocolError, match="server/discover"):
            await client.request("server/discover")


async def test_a_question_about_a_page_reaches_a_callback_that_takes_pages() -> None:
    class Asker:
        takes_urls = True

        def __call__(self, params: t.ElicitRequestParams) -> bool:
            return params.url == "https://x"

    page = {"message": "m", "mode": "url", "url": "https://x"}
    server = handshake_server()
    async with Client(server, elicitation=Asker()):
        assert await asked(server, "elicitation/create", page) == {"action": "accept"}
    capabilities = server.params_of("initialize")[0]["capabilities"]
    assert capabilities["elicitation"] == {"form": {}, "url": {}}

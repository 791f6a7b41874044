"""Middleware: functions around every request."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import trunkline.types as t
from tests.server.talk import ERAS, FORMS, STATELESS, accept, again, reach, text
from trunkline import Client, Context, Server, ToolError
from trunkline.errors import InvalidParams


def making(*middleware: Any) -> Server:
    server = Server("s", middleware=middleware)

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def ask(ctx: Context) -> str:
        return str((await ctx.elicit("a", str)).data)

    return server


@ERAS
async def test_middleware_runs_in_the_order_given(revision: str) -> None:
    log: list[str] = []

    def noting(name: str) -> Any:
        async def middleware(request: Any, call_next: Any) -> Any:
            log.append(f"{name} in")
            result = await call_next(request)
            log.append(f"{name} out")
            return result

        return middleware

    server = making(noting("a"), noting("b"))
    server.add_middleware(noting("c"))
    async with reach(server, revision) as peer:
        log.clear()
        assert text(await peer.call("add", {"a": 1, "b": 2})) == "3"
    assert log == ["a in", "b in", "c in", "c out", "b out", "a out"]


@ERAS
async def test_middleware_may_change_the_params(revision: str) -> None:
    async def doubling(request: Any, call_next: Any) -> Any:
        if request.method != "tools/call":
            return await call_next(request)
        arguments = {name: 2 * value for name, value in msgspec.json.decode(request.params.arguments).items()}
        assert request.arguments == msgspec.json.decode(request.params.arguments)
        return await call_next(request.with_arguments(arguments))

    async with reach(making(doubling), revision) as peer:
        assert text(await peer.call("add", {"a": 1, "b": 2})) == "6"


@ERAS
async def test_middleware_may_answer_itself(revision: str) -> None:
    async def closing(request: Any, call_next: Any) -> Any:
        if request.method == "tools/call":
            raise InvalidParams("closed today", data={"until": "Monday"})
        return await call_next(request)

    async with reach(making(closing), revision) as peer:
        error = await peer.error("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
    assert (error["code"], error["message"], error["data"]) == (-32602, "closed today", {"until": "Monday"})


@ERAS
async def test_middleware_sees_results_and_failures(revision: str) -> None:
    log: list[Any] = []

    async def watching(request: Any, call_next: Any) -> Any:
        try:
            result = await call_next(request)
        except Exception as error:
            log.append(type(error).__name__)
            raise
        log.append(type(result).__name__)
        return result

    async with reach(making(watching), revision) as peer:
        log.clear()
        await peer.call("add", {"a": 1, "b": 2})
        await peer.error("tools/call", {"name": "nope"})
    assert log == ["CallToolResult", "InvalidParams"]


@pytest.mark.parametrize(
    ("raised", "told"),
    [(ValueError("secret"), "Internal error"), (ToolError("not for you"), "not for you")],
    ids=["unexpected", "for the caller"],
)
@ERAS
async def test_the_caller_is_told_of_an_error_in_middleware_what_it_may_know(
    raised: Exception, told: str, revision: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(request: Any, call_next: Any) -> Any:
        if request.method == "tools/list":
            raise raised
        return await call_next(request)

    async with reach(making(broken), revision) as peer:
        error = await peer.error("tools/list")
    assert (error["code"], error["message"]) == (-32603, told)
    assert ("secret" in caplog.text) is (told == "Internal error")


async def test_middleware_runs_in_every_round_and_sees_which() -> None:
    rounds: list[int] = []

    async def counting(request: Any, call_next: Any) -> Any:
        rounds.append(request.round)
        return await call_next(request)

    params = {"name": "ask", "arguments": {}}
    async with reach(making(counting), STATELESS, FORMS) as peer:
        first = await peer.result("tools/call", params)
        last = await peer.result("tools/call", again(params, first, accept("x")))
    assert (rounds, text(last)) == ([0, 1], "x")


@ERAS
async def test_a_tool_error_of_middleware_is_a_result_that_the_model_reads(revision: str) -> None:
    async def closing(request: Any, call_next: Any) -> Any:
        if request.method == "tools/call":
            raise ToolError("Closed today.")
        return await call_next(request)

    async with reach(making(closing), revision) as peer:
        result = await peer.result("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
    assert (text(result), result["isError"]) == ("Closed today.", True)


async def _no_return(request: Any, call_next: Any) -> Any:
    result = await call_next(request)
    return None if request.method == "tools/list" else result


async def _no_await(request: Any, call_next: Any) -> Any:
    result = await call_next(request)

    async def late() -> Any:
        return result

    return late() if request.method == "tools/list" else result


@pytest.mark.parametrize(("middleware", "kind"), [(_no_return, "None"), (_no_await, "a coroutine")])
@ERAS
async def test_a_missing_return_or_await_in_middleware_is_named_in_the_log(
    middleware: Any, kind: str, revision: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with reach(making(middleware), revision) as peer:
        error = await peer.error("tools/list")
    assert (error["code"], error["message"]) == (-32603, "Internal error")
    assert f"middleware returned {kind} for tools/list: return the result of `await call_next(request)`" in caplog.text


def test_one_function_as_middleware_is_rejected_with_the_list_to_write() -> None:
    with pytest.raises(TypeError, match=r"takes a list of functions: write \[_no_return\]"):
        Server("s", middleware=_no_return)  # type: ignore[arg-type]


@ERAS
async def test_a_list_has_the_type_of_its_method_and_may_be_changed(revision: str) -> None:
    async def hide(request: Any, call_next: Any) -> Any:
        result = await call_next(request)
        if request.method != "tools/list":
            return result
        return t.ListToolsResult(tools=[tool for tool in result.tools if tool.name != "hidden"])

    server = Server("s", middleware=[hide])
    server.add_tool(lambda: 1, name="hidden")
    server.add_tool(lambda: 1, name="listed")
    async with Client(server, revision=revision) as client:
        assert [tool.name for tool in await client.list_tools()] == ["listed"]


def test_an_object_that_cannot_be_called_is_no_middleware() -> None:
    with pytest.raises(TypeError, match=r"functions `async \(request, call_next\)`; an object of dict is none"):
        Server("s", middleware=[{}])  # type: ignore[list-item]

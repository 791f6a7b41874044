"""Middleware: functions around every request."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import structs

from tests.server.talk import ERAS, FORMS, STATELESS, accept, again, reach, text
from trunkline import Context, Server, ToolError
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
        changed = structs.replace(request.params, arguments=msgspec.Raw(msgspec.json.encode(arguments)))
        return await call_next(request.with_params(changed))

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


@ERAS
async def test_an_unexpected_error_in_middleware_is_masked(revision: str, caplog: pytest.LogCaptureFixture) -> None:
    async def broken(request: Any, call_next: Any) -> Any:
        if request.method == "tools/list":
            raise ValueError("secret")
        return await call_next(request)

    async with reach(making(broken), revision) as peer:
        error = await peer.error("tools/list")
    assert (error["code"], error["message"], "secret" in caplog.text) == (-32603, "Internal error", True)


@ERAS
async def test_an_error_of_middleware_for_the_caller_is_shown(revision: str) -> None:
    async def refusing(request: Any, call_next: Any) -> Any:
        if request.method == "tools/list":
            raise ToolError("not for you")
        return await call_next(request)

    async with reach(making(refusing), revision) as peer:
        assert (await peer.error("tools/list"))["message"] == "not for you"


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

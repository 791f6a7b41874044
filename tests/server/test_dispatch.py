"""One connection of a server: cancelling, failing, ending."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.server.talk import ERAS, FORMS, HANDSHAKE, STATELESS, reach, text
from trunkline import Client, Context, Server
from trunkline.errors import PromptError


def serving(function: Callable[..., Any], **options: Any) -> Server:
    server = Server("s", **options)
    server.add_tool(function, name="f")
    return server


class Slow:
    """A tool that waits, and notes how it ended."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.log: list[str] = []

    async def wait(self) -> str:
        self.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.log.append("ended")
        return "never"


@ERAS
async def test_a_cancelled_request_is_never_answered(revision: str) -> None:
    slow = Slow()
    async with reach(serving(slow.wait), revision) as peer:
        id = await peer.send("tools/call", {"name": "f"}, id="slow")
        await slow.started.wait()
        await peer.tell("notifications/cancelled", {"requestId": id})
        await peer.settle()
    assert (slow.log, [each for each in peer.heard if each.get("id") == id]) == (["ended"], [])


@ERAS
async def test_cancelling_the_call_of_a_client_cancels_the_handler(revision: str) -> None:
    slow = Slow()
    async with Client(serving(slow.wait), revision=revision) as client:
        calling = asyncio.ensure_future(client.call_tool("f"))
        await slow.started.wait()
        calling.cancel()
        await asyncio.wait([calling])
        await client.list_tools()
    assert slow.log == ["ended"]


@ERAS
async def test_the_end_of_the_connection_cancels_its_requests(revision: str) -> None:
    slow = Slow()
    async with reach(serving(slow.wait), revision) as peer:
        await peer.send("tools/call", {"name": "f"})
        await slow.started.wait()
    assert slow.log == ["ended"]


@ERAS
async def test_requests_are_served_at_the_same_time(revision: str) -> None:
    slow = Slow()
    server = serving(slow.wait)
    server.add_tool(lambda: "quick", name="quick")
    async with reach(server, revision) as peer:
        await peer.send("tools/call", {"name": "f"})
        await slow.started.wait()
        assert text(await peer.call("quick")) == "quick"


# --- failures of prompts and resources -------------------------------------------------------------------------------


async def _grouped(ctx: Context) -> str:
    async with asyncio.TaskGroup() as group:
        group.create_task(ctx.elicit("a", str))
    return "asked"


async def _grouped_refusal() -> str:
    async def refuses() -> None:
        raise PromptError("not today")

    async with asyncio.TaskGroup() as group:
        group.create_task(refuses())
    return "never"


async def _grouped_fault() -> str:
    async def fails() -> None:
        raise ValueError("secret")

    async with asyncio.TaskGroup() as group:
        group.create_task(fails())
    return "never"


@pytest.mark.parametrize(
    ("function", "revision", "code", "words"),
    [
        pytest.param(_grouped, STATELESS, -32021, "elicitation", id="capability-stateless"),
        pytest.param(_grouped, HANDSHAKE, -32603, "elicitation", id="capability-handshake"),
        pytest.param(_grouped_refusal, STATELESS, -32603, "not today", id="on-purpose"),
        pytest.param(_grouped_fault, STATELESS, -32603, "Internal error", id="unexpected"),
    ],
)
async def test_an_exception_group_is_answered_with_the_error_meant_for_the_caller(
    function: Callable[..., Any], revision: str, code: int, words: str
) -> None:
    server = Server("s")
    server.add_prompt(function, name="p")
    async with reach(server, revision) as peer:
        error = await peer.error("prompts/get", {"name": "p"})
    assert (error["code"], words in error["message"]) == (code, True)


async def test_a_missing_capability_of_a_resource_is_named() -> None:
    server = Server("s")

    @server.resource("x://y")
    async def r(ctx: Context) -> str:
        return str((await ctx.elicit("a", str)).data)

    async with reach(server, STATELESS) as peer:
        assert (await peer.error("resources/read", {"uri": "x://y"}))["code"] == -32021


async def test_a_prompt_that_suppresses_its_cancellation_still_sends_its_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Server("s")

    @server.prompt
    async def p(ctx: Context) -> str:
        try:
            await ctx.elicit("a", str)
        except asyncio.CancelledError:
            return "swallowed"
        return "answered"

    async with reach(server, STATELESS, FORMS) as peer:
        assert (await peer.result("prompts/get", {"name": "p"}))["resultType"] == "input_required"
    assert "a handler of prompts/get suppressed its cancellation" in caplog.text


# --- what is not declared --------------------------------------------------------------------------------------------


@ERAS
@pytest.mark.parametrize("method", ["tools/list", "tools/call", "prompts/get", "resources/read", "completion/complete"])
async def test_a_method_of_an_undeclared_capability_is_not_found(revision: str, method: str) -> None:
    params: dict[str, dict[str, Any]] = {
        "tools/call": {"name": "x"},
        "prompts/get": {"name": "x"},
        "resources/read": {"uri": "x://y"},
        "completion/complete": {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": ""}},
    }
    async with reach(Server("s"), revision) as peer:
        error = await peer.error(method, params.get(method))
    assert (error["code"], error["data"]) == (-32601, {"method": method})


@ERAS
async def test_definitions_registered_later_are_found(revision: str) -> None:
    server = Server("s")
    async with reach(server, revision) as peer:
        await peer.error("tools/list")
        server.add_tool(lambda: "x", name="f")
        assert text(await peer.call("f")) == "x"


# --- sessions --------------------------------------------------------------------------------------------------------


async def test_both_eras_are_served_on_one_connection() -> None:
    server = serving(lambda: "x")
    async with reach(server, HANDSHAKE) as peer:
        session = await peer.call("f")
        peer.revision = STATELESS
        stateless = await peer.call("f")
    assert ("resultType" in session, "resultType" in stateless) == (False, True)


async def test_an_initialized_notification_without_a_session_is_ignored() -> None:
    async with reach(serving(lambda: "x"), HANDSHAKE, greet=False) as peer:
        await peer.tell("notifications/initialized")
        await peer.shake_hands()
        assert text(await peer.call("f")) == "x"


@pytest.mark.parametrize(("revision", "answered"), [("2025-03-26", True), (HANDSHAKE, False)])
async def test_batches_are_answered_where_the_revision_has_them(revision: str, answered: bool) -> None:
    async with reach(serving(lambda: "x"), revision) as peer:
        await peer.say([{"jsonrpc": "2.0", "id": 50, "method": "ping"}])
        heard = await peer.hear()
    assert isinstance(heard, list) is answered


@ERAS
async def test_a_request_in_flight_is_answered_after_the_input_has_ended(revision: str) -> None:
    gate, started = asyncio.Event(), asyncio.Event()

    async def f() -> str:
        started.set()
        await gate.wait()
        return "late"

    async with reach(serving(f), revision) as peer:
        id = await peer.send("tools/call", {"name": "f"}, id="late")
        await started.wait()
        await peer.carrier.end()
        gate.set()
        assert text((await peer.answer(id))["result"]) == "late"

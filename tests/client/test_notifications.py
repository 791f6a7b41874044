"""The effects of notifications."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.client.scripted_server import handshake_server, settle, stateless
from trunkline.client.client import Client
from trunkline.client.notifications import CallbackRunner


async def test_a_log_callback_requests_log_messages_from_a_stateless_server() -> None:
    server = stateless()
    async with Client(server, logging=print):
        pass
    assert server.params_of("server/discover")[0]["_meta"]["io.modelcontextprotocol/logLevel"] == "info"


async def test_a_known_notice_reaches_the_general_callback_too() -> None:
    heard: list[str] = []
    server = handshake_server()
    async with Client(server, on_notification=lambda method, _: heard.append(method)):
        server.stage.say("notifications/tools/list_changed")
        await settle()
    assert heard == ["notifications/tools/list_changed"]


@pytest.mark.parametrize(
    ("method", "params"),
    [("notifications/message", {"level": 3}), ("notifications/resources/updated", {}), ("acme/x", [1])],
    ids=["log", "update", "own"],
)
async def test_a_notification_that_cannot_be_read_is_dropped_and_counted(method: str, params: Any) -> None:
    heard: list[Any] = []
    server = handshake_server()
    async with Client(server, on_notification=lambda *news: heard.append(news)) as client:
        server.stage.say(method, params)
        await client.ping()
        assert client.dropped == 1
    assert heard == []


async def test_a_notification_without_a_callback_is_ignored() -> None:
    server = handshake_server()
    async with Client(server) as client:
        server.stage.say("acme/x")
        server.stage.say("notifications/message", {"level": "info", "data": 1})
        server.stage.say("notifications/elicitation/complete", {"elicitationId": "e"})
        await client.ping()
        assert client.dropped == 0


async def test_a_change_of_the_tools_forgets_their_output_schemas() -> None:
    schema = {"type": "object", "properties": {"result": {"type": "integer"}}, "required": ["result"]}
    tool = {"name": "n", "inputSchema": {"type": "object"}, "outputSchema": schema}
    server = stateless({"tools/list": {"tools": [tool]}, "tools/call": {"structuredContent": {"n": 1}}})
    async with Client(server) as client:
        await client.list_tools()
        server.stage.say("notifications/tools/list_changed")
        await settle()
        assert (await client.call_tool("n")).data == {"n": 1}


# --- the user's callbacks --------------------------------------------------------------------------------------------


async def test_an_error_in_a_callback_is_contained_and_others_start_in_the_order_of_the_news() -> None:
    async def broken() -> None:
        raise ZeroDivisionError

    callbacks = CallbackRunner(5)
    heard: list[int] = []

    async def hear(news: int) -> None:
        heard.append(news)

    callbacks.notify(broken)
    callbacks.notify(lambda: 1 / 0)
    callbacks.notify(hear, 1)
    callbacks.notify(None, 2)
    callbacks.notify(hear, 3)
    await asyncio.sleep(0)
    assert heard == [1, 3]
    await callbacks.aclose()


async def test_news_that_come_too_fast_are_dropped_and_counted() -> None:
    async def slow(news: int) -> None:
        await asyncio.Event().wait()

    callbacks = CallbackRunner(2)
    callbacks.notify(slow, 1)
    callbacks.notify(slow, 2)
    callbacks.notify(slow, 3)
    assert callbacks.dropped == 1
    await callbacks.aclose()

"""The effects of notifications."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.scripted_server import handshake_server, settle, stateless
from trunkline.client.client import Client
from trunkline.types import LoggingMessageNotificationParams

BOTH = pytest.mark.parametrize("make", [stateless, handshake_server], ids=["stateless", "handshake"])


@BOTH
async def test_log_messages_are_received(make: Any) -> None:
    heard: list[LoggingMessageNotificationParams] = []
    server = make()
    async with Client(server, logging=heard.append):
        server.stage.say("notifications/message", {"level": "error", "data": {"n": 1}, "logger": "db"})
        await settle()
    assert heard == [LoggingMessageNotificationParams(level="error", data={"n": 1}, logger="db")]


async def test_a_log_callback_requests_log_messages_from_a_stateless_server() -> None:
    server = stateless()
    async with Client(server, logging=print):
        pass
    assert server.params_of("server/discover")[0]["_meta"]["io.modelcontextprotocol/logLevel"] == "info"


@BOTH
async def test_custom_notifications_reach_the_callback(make: Any) -> None:
    heard: list[Any] = []
    server = make()
    async with Client(server, on_notification=lambda *news: heard.append(news)):
        server.stage.say("acme/a", {"n": 1})
        server.stage.say("acme/b")
        await settle()
    assert heard == [("acme/a", {"n": 1}), ("acme/b", {})]


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

"""The handlers of the protocol's own small methods."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.talk import ERAS, HANDSHAKE, STATELESS, reach
from trunkline import Context, Server


def making() -> Server:
    server = Server("s")

    @server.tool
    async def loud(ctx: Context) -> None:
        await ctx.info("i")
        await ctx.error("e")

    return server


async def test_a_ping_is_answered() -> None:
    async with reach(making(), HANDSHAKE) as peer:
        assert await peer.result("ping") == {}


async def test_the_log_level_of_a_session_persists() -> None:
    async with reach(making(), HANDSHAKE) as peer:
        assert await peer.result("logging/setLevel", {"level": "error"}) == {}
        await peer.call("loud")
        await peer.call("loud")
    assert [each["data"] for each in peer.notices("notifications/message")] == ["e", "e"]


@pytest.mark.parametrize("method", ["ping", "logging/setLevel", "resources/subscribe", "initialize"])
async def test_removed_methods_are_not_found(method: str) -> None:
    async with reach(making(), STATELESS) as peer:
        assert (await peer.error(method, {"uri": "x://y", "level": "info"}))["code"] in (-32601, -32602)


@ERAS
async def test_an_unknown_tool_is_rejected_by_name(revision: str) -> None:
    async with reach(making(), revision) as peer:
        error: Any = await peer.error("tools/call", {"name": "nope"})
    assert (error["code"], error["message"], error["data"]) == (-32602, "Unknown tool: nope", {"name": "nope"})


async def test_a_subscription_without_a_filter_stays_open_without_notifications() -> None:
    server = making()
    async with reach(server, STATELESS) as peer:
        await peer.send("subscriptions/listen", {"notifications": {}})
        told = await peer.notice("notifications/subscriptions/acknowledged")
        server.changed("tools")
        unheard = await peer.settle()
    assert (told["notifications"], unheard) == ({}, [])

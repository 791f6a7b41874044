"""Methods and notifications of one's own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Struct

from tests.server.talk import ERAS, HANDSHAKE, STATELESS, reach
from trunkline import Client, Server
from trunkline.errors import InvalidParams


class Point(Struct):
    x: int


def serving(function: Callable[..., Any]) -> Server:
    server = Server("s")
    server.method("acme/x")(function)
    return server


@ERAS
@pytest.mark.parametrize(
    ("value", "members"),
    [
        pytest.param({"a": 1}, {"a": 1}, id="object"),
        pytest.param(Point(2), {"x": 2}, id="struct"),
        pytest.param(None, {}, id="nothing"),
        pytest.param([1], {"result": [1]}, id="list"),
    ],
)
async def test_the_result_of_a_custom_method_is_sent_as_an_object(
    revision: str, value: Any, members: dict[str, Any]
) -> None:
    async with reach(serving(lambda: value), revision) as peer:
        result = await peer.result("acme/x")
    assert {name: each for name, each in result.items() if name not in ("_meta", "resultType")} == members


@ERAS
async def test_a_single_parameter_named_params_gets_all_members(revision: str) -> None:
    async with Client(serving(lambda params: params), revision=revision) as client:
        result = await client.request("acme/x", {"a": 1, "b": [2]})
    assert (result["a"], result["b"]) == (1, [2])


@ERAS
async def test_params_that_do_not_fit_are_rejected(revision: str) -> None:
    def f(n: int) -> dict[str, int]:
        return {"n": n}

    async with Client(serving(f), revision=revision) as client:
        with pytest.raises(InvalidParams, match="n"):
            await client.request("acme/x", {"n": "many"})


# --- notifications ---------------------------------------------------------------------------------------------------


@ERAS
async def test_a_notification_handler_is_called(revision: str) -> None:
    server, heard = Server("s"), asyncio.Queue[Any]()

    @server.notification("acme/sync")
    def sync(a: int, b: int = 0) -> None:
        heard.put_nowait(("sync", a, b))

    @server.notification("acme/async")
    async def hear() -> None:
        await asyncio.sleep(0)
        heard.put_nowait("async")

    @server.notification("acme/all")
    def all_of_it(params: dict[str, Any]) -> None:
        heard.put_nowait(params)

    async with reach(server, revision) as peer:
        await peer.tell("acme/sync", {"a": 1, "_meta": {"x": 1}})
        await peer.tell("acme/all", {"a": 1, "b": 2})
        await peer.tell("acme/unknown", {"a": 1})
        await peer.tell("acme/async")
        assert [await heard.get() for _ in range(3)] == [("sync", 1, 0), {"a": 1, "b": 2}, "async"]


# --- telling ---------------------------------------------------------------------------------------------------------


@ERAS
@pytest.mark.parametrize("params", [None, {"b": 1}, {"a": 1}], ids=["missing", "wrong", "failing"])
async def test_a_notification_that_cannot_be_handled_is_logged(
    revision: str, params: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("s")

    @server.notification("acme/x")
    async def hear(a: int) -> None:
        raise ValueError("deaf")

    async with reach(server, revision) as peer:
        await peer.tell("acme/x", params)
        await peer.settle()
    assert "the handler of acme/x failed" in caplog.text
    assert ("deaf" in caplog.text) is (params == {"a": 1})


async def test_server_notify_reaches_every_handshake_client() -> None:
    server = Server("s")
    async with reach(server, HANDSHAKE) as first, reach(server, "2024-11-05") as second:
        server.notify("acme/news", {"n": 1})
        await first.settle()
        await second.settle()
    assert (first.notices("acme/news"), second.notices("acme/news")) == ([{"n": 1}], [{"n": 1}])


def test_server_notify_rejects_notifications_of_the_protocol() -> None:
    with pytest.raises(ValueError, match="is part of the protocol"):
        Server("s").notify("notifications/tools/list_changed")


async def test_server_notify_does_not_reach_stateless_subscriptions() -> None:
    server = Server("s", capabilities=["tools"])
    async with reach(server, STATELESS) as peer:
        await peer.send("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        await peer.notice("notifications/subscriptions/acknowledged")
        server.notify("acme/news")
        assert await peer.settle() == []

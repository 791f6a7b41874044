"""Changes as an async iterator, in both eras."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.client.scripted_server import Fail, ManualClock, Scripted, handshake_server, settle, stateless
from trunkline.client.changes import Change, ChangeStream
from trunkline.client.client import Client
from trunkline.errors import ConnectionLost, InternalError, MissingCapability, RequestTimeout
from trunkline.protocol.jsonrpc import ErrorResponse, Response
from trunkline.protocol.limits import Limits
from trunkline.types import ErrorObject

SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
TOOLS = "notifications/tools/list_changed"
UPDATED = "notifications/resources/updated"
BOTH = pytest.mark.parametrize("kind", ["stateless", "handshake"])


def listening(kind: str = "stateless", more: Mapping[str, Any] | None = None) -> Scripted:
    """Create a server that supports listening; a stateless one acknowledges each subscription."""
    if kind == "handshake":
        return handshake_server({"resources/subscribe": {}, "resources/unsubscribe": {}, **(more or {})})

    def acknowledge(params: Any) -> None:
        told = {"notifications": params["notifications"], "_meta": {SUBSCRIPTION: server.ids[-1]}}
        server.stage.say("notifications/subscriptions/acknowledged", told)

    server = stateless({"subscriptions/listen": acknowledge, **(more or {})})
    return server


def tell(server: Scripted, method: str, **params: Any) -> None:
    """Send a notification on the newest subscription; those of a handshake server name none."""
    server.stage.say(method, {**params, "_meta": {SUBSCRIPTION: server.ids[-1]}})


@BOTH
async def test_equal_changes_fall_together(kind: str) -> None:
    server = listening(kind)
    async with Client(server) as client, client.listen() as changes:
        tell(server, TOOLS)
        tell(server, TOOLS)
        tell(server, "notifications/prompts/list_changed")
        await settle()
        assert [await anext(changes), await anext(changes)] == [Change("tools"), Change("prompts")]


async def test_without_a_filter_only_declared_changes_are_requested() -> None:
    server = listening()
    server.table["server/discover"]["capabilities"] = {"tools": {"listChanged": True}, "prompts": {}}
    async with Client(server) as client, client.listen():
        (params,) = server.params_of("subscriptions/listen")
        assert params["notifications"] == {"toolsListChanged": True}


@BOTH
@pytest.mark.parametrize(
    "wish",
    [{"resources": ["a:1"]}, {"resources": "a:1"}, {"uris": "a:1"}],
    ids=["resources", "one resource", "one URI"],
)
async def test_resources_may_be_named_in_every_obvious_way(kind: str, wish: Any) -> None:
    server = listening(kind)
    async with Client(server) as client, client.listen(**wish) as changes:
        tell(server, UPDATED, uri="a:1")
        assert await anext(changes) == Change("resource", "a:1")


@BOTH
@pytest.mark.parametrize(
    ("wish", "capability"),
    [({}, "prompts.listChanged"), ({"tools": True}, "tools.listChanged"), ({"uris": ["a:1"]}, "resources.subscribe")],
    ids=["all", "tools", "a resource"],
)
async def test_changes_that_cannot_occur_are_not_awaited(kind: str, wish: Any, capability: str) -> None:
    server = stateless({}, tools={}) if kind == "stateless" else handshake_server({}, tools={})
    async with Client(server) as client:
        with pytest.raises(MissingCapability) as caught:
            await client.listen(**wish).__aenter__()
    assert caught.value.capability == capability


async def test_subscriptions_of_a_handshake_server_are_made_and_ended() -> None:
    server = listening("handshake")
    async with Client(server) as client:
        async with client.listen(uris=["a:1"]), client.listen(uris=["a:1"]):
            assert server.params_of("resources/subscribe") == [{"uri": "a:1"}]
        assert server.params_of("resources/unsubscribe") == [{"uri": "a:1"}]


async def test_a_server_that_cannot_unsubscribe_does_not_hold_up_a_cancelled_listener() -> None:
    server = listening("handshake", {"resources/unsubscribe": Fail(-32601)})
    async with Client(server) as client:

        async def listen() -> None:
            async with client.listen(uris=["a:1"]) as changes:
                await anext(changes)

        task = asyncio.create_task(listen())
        while not server.params_of("resources/subscribe"):
            await settle()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_handshake_listener_gets_only_what_it_subscribed_to() -> None:
    server = listening("handshake")
    async with Client(server) as client, client.listen(uris=["a:1"]) as changes:
        tell(server, TOOLS)
        tell(server, UPDATED, uri="a:2")
        tell(server, UPDATED, uri="a:1/part")
        assert await anext(changes) == Change("resource", "a:1/part")


@pytest.mark.parametrize(
    ("kind", "method"), [("handshake", "resources/subscribe"), ("stateless", "subscriptions/listen")]
)
async def test_a_subscription_that_is_rejected_raises(kind: str, method: str) -> None:
    server = listening(kind, {method: Fail(-32603)})
    async with Client(server) as client:
        with pytest.raises(InternalError):
            await client.listen(uris=["a:1"]).__aenter__()
        await client.ping()
    assert {"resources/unsubscribe", "notifications/cancelled"} & set(server.methods) == set()


async def test_a_long_request_that_ends_before_its_acknowledgement_raises() -> None:
    server = listening(more={"subscriptions/listen": {"resultType": "complete"}})
    async with Client(server) as client:
        with pytest.raises(ConnectionLost, match="before it began"):
            await client.listen().__aenter__()


async def test_an_acknowledgement_that_never_comes_is_not_waited_for() -> None:
    clock = ManualClock()
    server = listening(more={"subscriptions/listen": None})
    async with Client(server, clock=clock, limits=Limits(idle_seconds=3)) as client:
        opening = asyncio.ensure_future(client.listen().__aenter__())
        await clock.advance(3.1)
        with pytest.raises(RequestTimeout, match="acknowledgement"):
            await opening
        await settle()
    assert server.methods[-1] == "notifications/cancelled"


def _by_result(server: Scripted, id: Any) -> None:
    server.stage.put(Response(id, {"resultType": "complete"}))


def _by_cancel(server: Scripted, id: Any) -> None:
    server.stage.say("notifications/cancelled", {"requestId": id})


def _by_both(server: Scripted, id: Any) -> None:
    _by_cancel(server, id)
    _by_result(server, id)


@pytest.mark.parametrize("end", [_by_result, _by_cancel, _by_both], ids=["result", "cancelled", "both"])
async def test_a_subscription_that_the_server_ends_ends_the_iterator(end: Callable[[Scripted, Any], None]) -> None:
    server = listening()
    async with Client(server) as client, client.listen() as changes:
        tell(server, TOOLS)
        end(server, server.ids[-1])
        await settle()
        assert [change async for change in changes] == [Change("tools")]
        await client.ping()
    assert "notifications/cancelled" not in server.methods


async def test_an_error_as_the_end_of_a_subscription_is_raised() -> None:
    server = listening()
    async with Client(server) as client, client.listen() as changes:
        server.stage.say("notifications/cancelled", {"requestId": 999})
        server.stage.put(_error(server.ids[-1]))
        with pytest.raises(InternalError):
            await anext(changes)
        with pytest.raises(StopAsyncIteration):
            await anext(changes)


def _error(id: Any) -> Any:
    return ErrorResponse(id, ErrorObject(code=-32603, message="no"))


async def test_an_unexpected_acknowledgement_changes_nothing() -> None:
    server = listening()
    async with Client(server) as client, client.listen() as changes:
        for id in (77, server.ids[-1]):
            told = {"notifications": {}, "_meta": {SUBSCRIPTION: id}}
            server.stage.say("notifications/subscriptions/acknowledged", told)
        tell(server, TOOLS)
        assert (await anext(changes), client.dropped) == (Change("tools"), 1)


@BOTH
async def test_a_plain_loop_opens_by_itself(kind: str) -> None:
    server = listening(kind)

    async def loop(client: Client) -> list[Change]:
        return [change async for change in client.listen(uris=["a:1"])]

    async with Client(server) as client:
        task = asyncio.ensure_future(loop(client))
        await server.until(lambda: {"resources/subscribe", "subscriptions/listen"} & set(server.methods))
        await settle()
        tell(server, UPDATED, uri="a:1")
        await settle()
    assert await task == [Change("resource", "a:1")]


@BOTH
async def test_a_lost_connection_is_opened_again_with_a_mark(kind: str) -> None:
    server = listening(kind)
    async with Client(server) as client, client.listen(uris=["a:1"]) as changes:
        server.stage.die()
        assert await anext(changes) == Change("missed")
        tell(server, UPDATED, uri="a:1")
        assert await anext(changes) == Change("resource", "a:1")
    assert len(server.stages) == 2
    assert server.methods.count("resources/subscribe") + server.methods.count("subscriptions/listen") == 2


@BOTH
async def test_a_server_that_dies_again_and_again_is_given_time(kind: str) -> None:
    clock = ManualClock()
    server = listening(kind)
    async with Client(server, clock=clock) as client, client.listen() as changes:
        server.stage.die()
        assert await anext(changes) == Change("missed")
        server.stage.die()
        again = asyncio.ensure_future(_next(changes))
        await settle()
        assert len(server.stages) == 2
        await clock.advance(0.2)
        assert await again == Change("missed")
        assert len(server.stages) == 3


async def _next(changes: ChangeStream) -> Change:
    return await anext(changes)


@BOTH
async def test_a_listener_whose_server_may_not_come_back_raises_why(kind: str) -> None:
    server = listening(kind)
    async with Client(server, restart=False) as client, client.listen() as changes:
        server.stage.die()
        with pytest.raises(ConnectionLost):
            await anext(changes)


async def test_a_connection_lost_before_the_acknowledgement_raises() -> None:
    server = listening()
    server.table["subscriptions/listen"] = lambda _: server.stage.die()
    async with Client(server) as client:
        with pytest.raises(ConnectionLost):
            await client.listen().__aenter__()


@BOTH
async def test_closing_the_client_ends_the_iterator(kind: str) -> None:
    server = listening(kind)
    client = Client(server)
    async with client:
        changes = await client.listen().__aenter__()
        waiting = asyncio.ensure_future(_next(changes))
        await settle()
    with pytest.raises(StopAsyncIteration):
        await waiting
    await changes.aclose()
    await changes.aclose()


async def test_closing_the_client_ends_an_iterator_that_opens_again() -> None:
    server = listening()
    async with Client(server) as client, client.listen() as changes:
        server.table["server/discover"] = None
        server.stage.die()
        waiting = asyncio.ensure_future(_next(changes))
        await server.until(lambda: server.methods.count("server/discover") == 2)
        await client.aclose()
        with pytest.raises(StopAsyncIteration):
            await waiting


async def test_a_reader_that_stays_behind_gets_a_mark_instead() -> None:
    server = listening()
    async with Client(server, limits=Limits(notices=2)) as client, client.listen(uris=["a:"]) as changes:
        tell(server, UPDATED, uri="a:0")
        tell(server, UPDATED, uri="a:1")
        tell(server, UPDATED, uri="a:2")
        tell(server, UPDATED, uri="a:2")
        await settle()
        assert [await anext(changes), await anext(changes)] == [Change("missed"), Change("resource", "a:2")]


@BOTH
async def test_a_change_callback_is_notified_of_the_lists(kind: str) -> None:
    server = listening(kind)
    heard: list[Change] = []
    async with Client(server, on_change=heard.append):
        await settle()
        tell(server, TOOLS)
        await settle()
        server.stage.die()
        await settle()
    assert heard == [Change("tools"), Change("missed")]


async def test_a_change_callback_of_a_server_without_changes_is_never_called() -> None:
    heard: list[Change] = []
    async with Client(stateless({}, tools={}), on_change=heard.append) as client:
        await client.ping()
    assert heard == []


async def test_the_plain_subscription_of_handshake_revisions_works_and_survives_a_loss() -> None:
    server = listening("handshake")
    told: list[Any] = []
    client = Client(server, on_notification=lambda method, params: told.append((method, params)))
    async with client:
        await client.subscribe("a:1")
        tell(server, UPDATED, uri="a:1")
        await client.ping()
        server.stage.die()
        await settle()
        await client.ping()
        assert server.params_of("resources/subscribe") == [{"uri": "a:1"}, {"uri": "a:1"}]
        await client.unsubscribe("a:1")
    assert [method for method, _ in told] == [UPDATED]
    assert server.params_of("resources/unsubscribe") == [{"uri": "a:1"}]


@pytest.mark.parametrize("ending", ["rejected", "cancelled"])
async def test_a_subscriber_beside_one_that_failed_sends_its_own_request(ending: str) -> None:
    server = listening("handshake", {"resources/subscribe": None})
    async with Client(server) as client:
        await client.ping()
        first = asyncio.create_task(client.subscribe("a:1"))
        await server.until(lambda: "resources/subscribe" in server.methods)
        second = asyncio.create_task(client.subscribe("a:1"))
        await settle()
        assert not second.done(), "subscribed before the server has answered"
        server.table["resources/subscribe"] = {}
        if ending == "rejected":
            server.stage.put(_error(server.ids[-1]))
        else:
            first.cancel()
        await asyncio.wait([first])
        await second
        assert first.cancelled() or isinstance(first.exception(), InternalError)
        assert server.params_of("resources/subscribe") == [{"uri": "a:1"}, {"uri": "a:1"}]
        await client.unsubscribe("a:1")
    assert server.params_of("resources/unsubscribe") == [{"uri": "a:1"}]


async def test_unsubscribing_from_a_server_that_is_gone_is_no_error() -> None:
    server = listening("handshake")
    server.table["resources/unsubscribe"] = lambda _: server.stage.die()
    async with Client(server) as client:
        await client.subscribe("a:1")
        await client.unsubscribe("a:1")
        await client.subscribe("a:1")
        server.stage.die()
        await settle()
        await client.unsubscribe("a:1")

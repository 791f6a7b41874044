"""Who hears of which change, in both eras."""

from __future__ import annotations

import asyncio
from typing import Any

import trunkline.types as t
from tests.server.talk import ERAS, HANDSHAKE, STATELESS, reach
from tests.support import run_async
from trunkline import Client, Server
from trunkline.protocol.limits import Limits
from trunkline.server.runtime import runtime_for
from trunkline.server.subscriptions import ChangeHub, SubscriptionStream

TOOLS = "notifications/tools/list_changed"
UPDATED = "notifications/resources/updated"
ID = "io.modelcontextprotocol/subscriptionId"


def making(**options: Any) -> Server:
    server = Server("s", **options)
    server.add_tool(lambda: "x", name="t")
    server.add_prompt(lambda: "x", name="p")
    server.add_resource("x://y", "text")
    return server


def add(server: Server, *names: str) -> None:
    for name in names:
        server.add_tool(lambda: "x", name=name)


# --- handshake -------------------------------------------------------------------------------------------------------


async def test_a_new_template_changes_the_list_of_resources() -> None:
    server = making()
    async with reach(server, HANDSHAKE) as peer:
        server.add_resource("x://{a}", lambda a: a)
        await peer.notice("notifications/resources/list_changed")


async def test_an_uninitialized_client_is_not_notified() -> None:
    server = making()
    async with reach(server, HANDSHAKE, greet=False) as peer:
        await peer.result("initialize", peer.hello())
        add(server, "a")
        await peer.settle()
        server.notify("acme/news")
        await peer.settle()
        await peer.tell("notifications/initialized")
        add(server, "b")
        await peer.settle()
    assert [each["method"] for each in peer.heard if "method" in each] == [TOOLS]


async def test_changes_of_undeclared_kinds_are_not_notified() -> None:
    server = Server("s")
    async with reach(server, HANDSHAKE) as early:
        add(server, "first")
        async with reach(server, HANDSHAKE) as late:
            add(server, "second")
            await early.settle()
            await late.settle()
    assert (early.notices(TOOLS), late.notices(TOOLS)) == ([], [None])


@ERAS
async def test_a_thread_may_register_tools(revision: str) -> None:
    server = making()

    @server.tool
    def grow() -> str:
        add(server, "a", "b")
        return "grown"

    async with Client(server, revision=revision) as client:
        async with client.listen(tools=True) as changes:
            await client.call_tool("grow")
            change = await anext(aiter(changes))
        names = [tool.name for tool in await client.list_tools()]
    assert (change.kind, names) == ("tools", ["t", "grow", "a", "b"])


# --- stateless -------------------------------------------------------------------------------------------------------


def listening(**wanted: Any) -> dict[str, Any]:
    return {"notifications": wanted}


async def test_updates_of_hidden_resources_are_not_sent() -> None:
    server = making(visible=lambda caller, definition: definition.name != "secret")
    server.add_resource("x://secret", "text", name="secret")
    async with reach(server, STATELESS) as peer:
        await peer.send("subscriptions/listen", listening(resourceSubscriptions=["x://secret", "x://y"]))
        acknowledged = await peer.notice("notifications/subscriptions/acknowledged")
        server.changed("x://secret")
        await peer.settle()
    assert acknowledged["notifications"] == {"resourceSubscriptions": ["x://y"]}
    assert peer.notices(UPDATED) == []


async def test_closing_the_server_ends_its_listeners() -> None:
    server = making()
    async with reach(server, STATELESS) as peer:
        id = await peer.send("subscriptions/listen", listening(toolsListChanged=True))
        await peer.notice("notifications/subscriptions/acknowledged")
        server.close()
        answer = await peer.answer(id)
    told = peer.notices("notifications/cancelled")
    assert told == [{"requestId": id, "reason": "the server is shutting down"}]
    assert answer["result"]["_meta"][ID] == id


async def test_a_subscription_with_too_many_pending_notifications_is_ended() -> None:
    server = making(limits=Limits(notices=2))
    uris = ["x://1", "x://2", "x://3"]
    async with reach(server, STATELESS) as peer:
        id = await peer.send("subscriptions/listen", listening(resourceSubscriptions=uris))
        await peer.notice("notifications/subscriptions/acknowledged")
        list(map(server.changed, uris))
        answer = await peer.answer(id)
    assert ([each["uri"] for each in peer.notices(UPDATED)], "result" in answer) == (["x://1", "x://2"], True)
    assert peer.notices("notifications/cancelled")[0]["reason"] == "too many notices are waiting to be read"


async def test_a_connection_that_ends_leaves_no_listener() -> None:
    server = making()
    async with reach(server, STATELESS) as peer, reach(server, HANDSHAKE) as other:
        await peer.send("subscriptions/listen", listening(toolsListChanged=True))
        hub = runtime_for(server).hub
        await peer.notice("notifications/subscriptions/acknowledged")
        await peer.carrier.end()
        await other.carrier.end()
        await other.ended.wait()
        await peer.ended.wait()
    assert hub.listeners() == ()


# --- the hub itself --------------------------------------------------------------------------------------------------


class Ear:
    def __init__(self) -> None:
        self.heard: list[Any] = []

    def notify_change(self, notice: Any) -> None:
        self.heard.append(notice)

    def end(self, reason: str) -> None:
        self.heard.append(reason)


def test_changes_undelivered_by_one_event_loop_do_not_block_the_next() -> None:
    hub, ear = ChangeHub(), Ear()
    dead = asyncio.new_event_loop()

    async def attach() -> None:
        hub.attach(ear)

    dead.run_until_complete(attach())
    hub.notify_change(("tools", None))
    dead.close()

    async def later() -> None:
        hub.attach(ear)
        hub.notify_change(("prompts", None))
        await asyncio.sleep(0)

    run_async(later())
    assert ear.heard == [("prompts", None)]


async def test_changes_reported_by_many_threads_are_delivered() -> None:
    hub, ear = ChangeHub(), Ear()
    hub.attach(ear)
    told = [("resource", f"x://{n}") for n in range(200)]
    await asyncio.gather(*(asyncio.to_thread(hub.notify_change, notice) for notice in told))
    await asyncio.sleep(0)
    assert sorted(ear.heard) == sorted(told)


async def test_equal_pending_notifications_are_merged() -> None:
    listener = SubscriptionStream(t.SubscriptionFilter(resource_subscriptions=["x://y"]), 1)
    listener.notify_change(("resource", "x://y"))
    listener.notify_change(("resource", "x://y"))
    listener.notify_change(("tools", None))
    assert (listener.take_pending(), listener.ended) == ([("resource", "x://y")], None)

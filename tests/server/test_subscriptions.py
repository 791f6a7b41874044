"""Who hears of which change, in both eras."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import trunkline.types as t
from tests.server.talk import ERAS, HANDSHAKE, STATELESS, reach
from tests.support import run_async
from trunkline import Client, Server
from trunkline.protocol.limits import Limits
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


async def test_several_changes_in_one_iteration_are_one_notification() -> None:
    server = making()
    async with reach(server, HANDSHAKE) as peer:
        add(server, "a", "b", "c")
        server.remove_tool("a")
        await peer.settle()
    assert peer.notices(TOOLS) == [None]


@pytest.mark.parametrize("what", ["tools", "prompts", "resources"])
async def test_each_kind_of_list_has_its_notification(what: Any) -> None:
    server = making()
    async with reach(server, HANDSHAKE) as peer:
        server.changed(what)
        await peer.settle()
    assert [each["method"] for each in peer.heard if "method" in each] == [f"notifications/{what}/list_changed"]


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


async def test_changes_of_announced_kinds_are_notified() -> None:
    server = Server("s", capabilities=["tools"])
    async with reach(server, HANDSHAKE) as peer:
        add(server, "first")
        await peer.notice(TOOLS)


async def test_updates_reach_only_subscribers() -> None:
    server = making()
    async with reach(server, HANDSHAKE) as peer, reach(server, HANDSHAKE) as other:
        await peer.result("resources/subscribe", {"uri": "x://y"})
        server.changed("x://y")
        server.changed("x://other")
        await peer.settle()
        await other.settle()
    assert (peer.notices(UPDATED), other.notices(UPDATED)) == ([{"uri": "x://y"}], [])


async def test_a_client_may_unsubscribe() -> None:
    server = making()
    async with reach(server, HANDSHAKE) as peer:
        await peer.result("resources/subscribe", {"uri": "x://y"})
        await peer.result("resources/unsubscribe", {"uri": "x://y"})
        await peer.result("resources/unsubscribe", {"uri": "x://y"})
        server.changed("x://y")
        await peer.settle()
    assert peer.notices(UPDATED) == []


async def test_an_unknown_resource_cannot_be_subscribed_to() -> None:
    async with reach(making(), HANDSHAKE) as peer:
        assert (await peer.error("resources/subscribe", {"uri": "x://nope"}))["code"] == -32002


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


async def test_a_subscription_gets_the_changes_of_its_filter() -> None:
    server = making()
    async with reach(server, STATELESS) as peer:
        wanted = {"toolsListChanged": True, "resourceSubscriptions": ["x://y"]}
        await peer.send("subscriptions/listen", listening(**wanted), id="s1")
        acknowledged = await peer.notice("notifications/subscriptions/acknowledged")
        add(server, "a", "b")
        server.changed("prompts")
        server.changed("x://y")
        server.changed("x://z")
        await peer.settle()
    assert acknowledged == {"_meta": {ID: "s1"}, "notifications": wanted}
    assert peer.notices(TOOLS) == [{"_meta": {ID: "s1"}}]
    assert peer.notices(UPDATED) == [{"_meta": {ID: "s1"}, "uri": "x://y"}]
    assert peer.notices("notifications/prompts/list_changed") == []


async def test_only_what_the_server_declares_is_acknowledged() -> None:
    server = Server("s")
    server.add_tool(lambda: "x", name="t")
    wanted = listening(
        toolsListChanged=True, promptsListChanged=True, resourcesListChanged=True, resourceSubscriptions=["x://y"]
    )
    async with reach(server, STATELESS) as peer:
        await peer.send("subscriptions/listen", wanted)
        acknowledged = await peer.notice("notifications/subscriptions/acknowledged")
    assert acknowledged["notifications"] == {"toolsListChanged": True}


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


async def test_a_cancelled_subscription_gets_no_more_notifications() -> None:
    server = making()
    async with reach(server, STATELESS) as peer:
        id = await peer.send("subscriptions/listen", listening(toolsListChanged=True))
        await peer.notice("notifications/subscriptions/acknowledged")
        await peer.tell("notifications/cancelled", {"requestId": id})
        await peer.settle()
        add(server, "a")
        await peer.settle()
    assert (peer.notices(TOOLS), server.hub.listeners()) == ([], ())


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
        await peer.notice("notifications/subscriptions/acknowledged")
        await peer.carrier.end()
        await other.carrier.end()
        await other.ended.wait()
        await peer.ended.wait()
    assert server.hub.listeners() == ()


# --- the hub itself --------------------------------------------------------------------------------------------------


class Ear:
    def __init__(self) -> None:
        self.heard: list[Any] = []

    def notify_change(self, notice: Any) -> None:
        self.heard.append(notice)

    def end(self, reason: str) -> None:
        self.heard.append(reason)


def test_a_change_without_listeners_is_dropped() -> None:
    hub, ear = ChangeHub(), Ear()
    hub.notify_change(("tools", None))

    async def main() -> None:
        hub.attach(ear)
        await asyncio.sleep(0)

    run_async(main())
    assert ear.heard == []


def test_a_hub_serves_one_loop_after_another() -> None:
    hub, ear = ChangeHub(), Ear()

    async def first() -> None:
        hub.attach(ear)

    async def second() -> None:
        hub.attach(ear)
        hub.notify_change(("prompts", None))
        await asyncio.sleep(0)

    run_async(first())
    hub.notify_change(("tools", None))
    run_async(second())
    assert ear.heard == [("prompts", None)]


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

"""Hearing of changes: on an open request where there is one, else simply on the connection."""

from __future__ import annotations

from typing import Any

import pytest

from tests.interaction.rows import ANYWHERE, EVERYWHERE, HANDSHAKE, STATELESS, behaviour
from tests.interaction.wire import META, Peer, Wire

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
TOOLS = "notifications/tools/list_changed"
UPDATED = "notifications/resources/updated"
CHANGES: dict[str, tuple[str, dict[str, Any]]] = {
    TOOLS: ("add_tools", {"names": ["fresh"]}),
    "notifications/prompts/list_changed": ("add_prompt", {"name": "fresh"}),
    "notifications/resources/list_changed": ("add_resource", {"uri": "note://fresh"}),
}
FILTERS = {
    TOOLS: "toolsListChanged",
    "notifications/prompts/list_changed": "promptsListChanged",
    "notifications/resources/list_changed": "resourcesListChanged",
}


async def listen(peer: Peer, id: Any = "sub", **wanted: Any) -> Any:
    """Open a subscription and give the acknowledgement."""
    await peer.send("subscriptions/listen", {"notifications": wanted}, id=id)
    return await peer.notice(ACKNOWLEDGED)


def stamp(id: Any = "sub") -> dict[str, Any]:
    return {f"{META}subscriptionId": id}


# --- on an open request ----------------------------------------------------------------------------------------------


@behaviour(
    "subscriptions.acknowledged", "2026-07-28 basic/patterns/subscriptions#acknowledgment", STATELESS, EVERYWHERE
)
@pytest.mark.parametrize("id", ["sub", 31])
async def test_the_acknowledgement_comes_first_and_names_the_subscription(wire: Wire, id: Any) -> None:
    async with wire.open("changing") as peer:
        await listen(peer, id, toolsListChanged=True, resourceSubscriptions=["note://one"])
        accepted = {"toolsListChanged": True, "resourceSubscriptions": ["note://one"]}
        assert peer.heard[0]["params"] == {"_meta": stamp(id), "notifications": accepted}


@behaviour("subscriptions.acknowledged-offered", "2026-07-28 basic/patterns/subscriptions#acknowledgment", STATELESS)
async def test_only_what_the_server_can_tell_is_acknowledged(wire: Wire) -> None:
    async with wire.open("bare") as peer:
        told = await listen(peer, toolsListChanged=True, promptsListChanged=True, resourceSubscriptions=["note://one"])
        assert told["notifications"] == {}


@behaviour(
    "subscriptions.notified", "2026-07-28 basic/patterns/subscriptions#receiving-notifications", STATELESS, ANYWHERE
)
@pytest.mark.parametrize("notice", CHANGES)
async def test_a_listener_is_notified_of_a_changed_list_under_the_id_of_its_subscription(
    wire: Wire, notice: str
) -> None:
    async with wire.open("changing") as peer:
        await listen(peer, **{FILTERS[notice]: True})
        await peer.call(*CHANGES[notice])
        await peer.settle()
        assert peer.notices(notice) == [{"_meta": stamp()}]


@behaviour("subscriptions.resource", "2026-07-28 server/resources#subscriptions", STATELESS, ANYWHERE)
async def test_a_listener_is_notified_of_a_changed_resource(wire: Wire) -> None:
    async with wire.open("changing") as peer:
        await listen(peer, resourceSubscriptions=["note://one"])
        await peer.call("touch", {"uri": "note://two"})
        await peer.call("touch", {"uri": "note://one"})
        await peer.settle()
        assert peer.notices(UPDATED) == [{"_meta": stamp(), "uri": "note://one"}]


@behaviour("subscriptions.unwanted", "2026-07-28 basic/patterns/subscriptions#opening-a-stream", STATELESS)
async def test_a_subscription_gets_no_changes_outside_its_filter(wire: Wire) -> None:
    async with wire.open("changing") as peer:
        await listen(peer, promptsListChanged=True, toolsListChanged=False)
        await peer.call(*CHANGES[TOOLS])
        await peer.settle()
        assert peer.notices(TOOLS) == []


@behaviour("subscriptions.unasked", "2026-07-28 basic/patterns/subscriptions#opening-a-stream", STATELESS)
async def test_a_client_without_a_subscription_is_not_notified(wire: Wire) -> None:
    async with wire.open("changing") as peer:
        await peer.call(*CHANGES[TOOLS])
        assert await peer.settle() == []


@behaviour(
    "subscriptions.several",
    "2026-07-28 basic/patterns/subscriptions#multiple-concurrent-subscriptions",
    STATELESS,
    ANYWHERE,
)
async def test_each_subscription_gets_its_own_notifications(wire: Wire) -> None:
    async with wire.open("changing") as peer:
        await listen(peer, 31, toolsListChanged=True)
        await listen(peer, "31", toolsListChanged=True)
        await peer.call(*CHANGES[TOOLS])
        await peer.settle()
        assert peer.notices(TOOLS) == [{"_meta": stamp(31)}, {"_meta": stamp("31")}]


@behaviour("subscriptions.once", "2026-07-28 server/tools#list-changed-notification", STATELESS)
async def test_many_changes_at_once_are_one_notice(wire: Wire) -> None:
    async with wire.open("changing") as peer:
        await listen(peer, toolsListChanged=True)
        await peer.call("add_tools", {"names": [f"tool{number}" for number in range(50)]})
        await peer.settle()
        assert len(peer.notices(TOOLS)) == 1


@behaviour("subscriptions.removal", "2026-07-28 server/tools#list-changed-notification", STATELESS, ANYWHERE)
async def test_removing_a_tool_is_a_change(wire: Wire) -> None:
    async with wire.open("changing") as peer:
        await listen(peer, toolsListChanged=True)
        await peer.call("remove_tool", {"name": "add_prompt"})
        await peer.settle()
        assert len(peer.notices(TOOLS)) == 1


@behaviour("subscriptions.cancelled", "2026-07-28 basic/patterns/subscriptions#cancellation", STATELESS, ANYWHERE)
async def test_a_listener_that_cancels_gets_no_more_notifications_and_is_not_answered(wire: Wire) -> None:
    async with wire.open("changing") as peer:
        await listen(peer, toolsListChanged=True)
        await peer.tell("notifications/cancelled", {"requestId": "sub"})
        await peer.call(*CHANGES[TOOLS])
        await peer.settle()
        assert (peer.notices(TOOLS), [each for each in peer.heard if each.get("id") == "sub"]) == ([], [])


@behaviour("subscriptions.ended", "2026-07-28 basic/patterns/subscriptions#graceful-closure", STATELESS, EVERYWHERE)
async def test_a_server_that_ends_a_subscription_sends_a_cancellation_and_a_result(wire: Wire) -> None:
    async with wire.open("changing") as peer:
        await listen(peer, toolsListChanged=True)
        await peer.send("tools/call", {"name": "end_listening"})
        assert (await peer.notice("notifications/cancelled"))["requestId"] == "sub"
        result = (await peer.answer("sub"))["result"]
        assert (result["resultType"], result["_meta"][f"{META}subscriptionId"]) == ("complete", "sub")


@behaviour("subscriptions.params", "2026-07-28 basic/patterns/subscriptions#notification-filter", STATELESS)
async def test_a_subscription_needs_a_filter(wire: Wire) -> None:
    async with wire.open("changing") as peer:
        assert (await peer.error("subscriptions/listen"))["code"] == -32602


# --- on the connection -----------------------------------------------------------------------------------------------


@behaviour("notices.list-changed", "2025-11-25 server/tools#list-changed-notification", HANDSHAKE, ANYWHERE)
@pytest.mark.parametrize("notice", CHANGES)
async def test_a_client_is_notified_of_a_changed_list(wire: Wire, notice: str) -> None:
    async with wire.open("changing") as peer:
        await peer.call(*CHANGES[notice])
        await peer.settle()
        assert peer.notices(notice) == [None]


@behaviour("notices.once", "2025-11-25 server/tools#list-changed-notification", HANDSHAKE, ANYWHERE)
async def test_many_changes_at_once_are_one_notice_on_the_connection(wire: Wire) -> None:
    async with wire.open("changing") as peer:
        await peer.call("add_tools", {"names": [f"tool{number}" for number in range(50)]})
        await peer.settle()
        assert len(peer.notices(TOOLS)) == 1


@behaviour("notices.list-fresh", "2025-11-25 server/tools#capabilities")
async def test_after_a_change_the_list_and_calls_are_of_the_new_state(wire: Wire) -> None:
    async with wire.open("changing") as peer:
        await peer.call("add_tools", {"names": ["fresh"]})
        assert "fresh" in [tool["name"] for tool in (await peer.result("tools/list"))["tools"]]
        assert (await peer.call("fresh"))["content"][0]["text"] == "nothing"
        await peer.call("remove_tool", {"name": "fresh"})
        assert (await peer.error("tools/call", {"name": "fresh"}))["code"] == -32602

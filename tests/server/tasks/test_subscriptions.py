"""Notifications of tasks on ``subscriptions/listen``: who may watch what, and that each carries the whole state."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.talk import accept
from tests.server.tasks.talk import (
    DECLARES_NOTHING,
    EXTENSION,
    FINISHED,
    Gate,
    TaskPeer,
    at_workshop,
    opened,
    serving,
)
from trunkline import Context
from trunkline.protocol.limits import Limits

SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


async def listen(peer: TaskPeer, *ids: str, **wanted: Any) -> tuple[Any, Any]:
    """Subscribe to tasks; return the id of the subscription and what was acknowledged."""
    id = await peer.peer.send("subscriptions/listen", {"notifications": {"taskIds": list(ids), **wanted}})
    return id, await peer.peer.notice("notifications/subscriptions/acknowledged")


async def told(peer: TaskPeer, *statuses: str) -> Any:
    """Wait for a notification of one of these statuses."""
    while (notice := await peer.peer.notice("notifications/tasks"))["status"] not in statuses:
        pass
    return notice


async def test_a_notification_carries_what_tasks_get_would_return(stored: dict[str, Any]) -> None:
    async with at_workshop(EXTENSION, **stored) as (peer, gate):
        task = await peer.start("work", n=4)
        subscription, acknowledged = await listen(peer, task)
        gate.open.set()
        notice = await told(peer, *FINISHED)
        state = await peer.get(task)
    assert acknowledged["notifications"] == {"taskIds": [task]}
    assert notice.pop("_meta") == {SUBSCRIPTION: subscription}
    for member in ("_meta", "resultType"):
        state.pop(member)
    assert notice == state
    assert notice["result"]["content"][0]["text"] == "4"


async def test_questions_and_errors_come_with_the_notification() -> None:
    async def work(ctx: Context) -> str:
        await ctx.elicit("Which?", str, key="which")
        raise ValueError

    async with opened(serving(work), EXTENSION, {"elicitation": {}}) as peer:
        task = await peer.start("work")
        await listen(peer, task)
        asked = await told(peer, "input_required")
        await peer.answer(task, "which", accept("x"))
        ended = await told(peer, *FINISHED)
    assert asked["inputRequests"]["which"]["params"]["message"] == "Which?"
    assert ended["result"]["isError"]


async def test_progress_is_notified_as_the_status_and_in_no_other_way() -> None:
    gate = Gate()

    async def work(ctx: Context) -> str:
        await gate.wait()
        await ctx.report_progress(1, 2, "half")
        await ctx.info("nearly")
        return "done"

    async with opened(serving(work), EXTENSION) as peer:
        task = (await peer.create("work", meta={"progressToken": 1}))["taskId"]
        await listen(peer, task)
        gate.open.set()
        ended = await told(peer, *FINISHED)
        await peer.peer.settle()
        others = peer.peer.notices("notifications/progress") + peer.peer.notices("notifications/message")
    assert (ended["statusMessage"], others) == ("nearly", [])


@pytest.mark.parametrize("status", ["completed", "input_required"])
async def test_who_listens_late_is_told_the_state_at_once(status: str) -> None:
    async def work(ctx: Context) -> str:
        if status == "input_required":
            await ctx.elicit("Which?", str)
        return "done"

    async with opened(serving(work), EXTENSION, {"elicitation": {}}) as peer:
        task = await peer.start("work")
        await peer.until(task, status)
        await listen(peer, task)
        assert (await peer.peer.notice("notifications/tasks"))["status"] == status


async def test_unknown_tasks_are_left_out_of_the_acknowledgement() -> None:
    async with at_workshop(EXTENSION) as (peer, _):
        task = await peer.start()
        _, acknowledged = await listen(peer, "unknown", task, task)
    assert acknowledged["notifications"] == {"taskIds": [task]}


async def test_a_subscription_to_unknown_tasks_alone_is_open_and_silent() -> None:
    async with at_workshop(EXTENSION) as (peer, _):
        _, acknowledged = await listen(peer, "unknown")
        await peer.peer.settle()
        assert (acknowledged["notifications"], peer.peer.notices("notifications/tasks")) == ({"taskIds": []}, [])


async def test_a_client_without_the_extension_is_refused() -> None:
    async with at_workshop(EXTENSION) as (peer, _):
        task = await peer.start()
        params = {"notifications": {"taskIds": [task]}}
        error = await peer.peer.error("subscriptions/listen", params, meta=DECLARES_NOTHING)
    assert error["code"] == -32021
    assert error["data"] == {"requiredCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}


async def test_a_server_without_tasks_acknowledges_none() -> None:
    async with at_workshop(EXTENSION, task=False) as (peer, _):
        _, acknowledged = await listen(peer, "one", toolsListChanged=True)
    assert acknowledged["notifications"] == {"toolsListChanged": True}


async def test_only_what_was_asked_for_is_notified() -> None:
    async with at_workshop(EXTENSION) as (peer, gate):
        first, second = await peer.start("work", n=1), await peer.start("work", n=2)
        await listen(peer, second)
        gate.open.set()
        await told(peer, *FINISHED)
        await peer.until(first)
        await peer.peer.settle()
        notices = peer.peer.notices("notifications/tasks")
    assert {each["taskId"] for each in notices} == {second}


async def test_a_subscription_that_was_cancelled_is_notified_no_more() -> None:
    async with at_workshop(EXTENSION) as (peer, gate):
        task = await peer.start()
        subscription, _ = await listen(peer, task)
        await told(peer, "working")
        await peer.peer.tell("notifications/cancelled", {"requestId": subscription})
        await peer.peer.settle()
        gate.open.set()
        await peer.until(task)
        await peer.peer.settle()
        assert [each["status"] for each in peer.peer.notices("notifications/tasks")] == ["working"]


async def test_two_subscriptions_to_one_task_are_both_notified() -> None:
    async with at_workshop(EXTENSION) as (peer, gate):
        task = await peer.start()
        first, _ = await listen(peer, task)
        second, _ = await listen(peer, task)
        gate.open.set()
        await peer.until(task)
        await peer.peer.settle()
        ends = [each for each in peer.peer.notices("notifications/tasks") if each["status"] == "completed"]
    assert {each["_meta"][SUBSCRIPTION] for each in ends} == {first, second}


async def test_the_tasks_of_one_subscription_are_bounded() -> None:
    async with at_workshop(EXTENSION, limits=Limits(notices=4)) as (peer, _):
        ids = [await peer.start() for _ in range(5)]
        _, acknowledged = await listen(peer, *ids)
    assert acknowledged["notifications"] == {"taskIds": ids[:2]}

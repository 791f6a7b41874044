"""Calls that are withdrawn, and every race around that."""

from __future__ import annotations

from typing import Any

import pytest

from tests.interaction.rows import ANYWHERE, ELICITING, EVERYWHERE, HANDSHAKE, behaviour
from tests.interaction.wire import Peer, Wire

CANCELLED = "notifications/cancelled"


async def hold(peer: Peer, name: str, *, tool: str = "hold", id: Any = None) -> Any:
    """Start a call that waits, and be sure that it runs."""
    held = await peer.send("tools/call", {"name": tool, "arguments": {"name": name}}, id=id)
    await peer.call("happened", {"event": f"{name} started"})
    return held


@behaviour("cancellation.stops", "2025-11-25 basic/utilities/cancellation#behavior-requirements", transports=EVERYWHERE)
async def test_a_cancelled_call_is_stopped_and_never_answered(wire: Wire) -> None:
    async with wire.open("slow") as peer:
        id = await hold(peer, "a")
        await peer.tell(CANCELLED, {"requestId": id, "reason": "enough"})
        await peer.call("happened", {"event": "a cancelled"})
        await peer.settle()
        assert [message for message in peer.heard if message.get("id") == id] == []


@behaviour("cancellation.swallowed", "2025-11-25 basic/utilities/cancellation#behavior-requirements")
async def test_the_result_of_a_cancelled_handler_is_not_sent(wire: Wire) -> None:
    async with wire.open("slow") as peer:
        id = await hold(peer, "a", tool="stubborn")
        await peer.tell(CANCELLED, {"requestId": id})
        await peer.call("happened", {"event": "a cancelled"})
        await peer.settle()
        assert [message for message in peer.heard if message.get("id") == id] == []


@behaviour("cancellation.thread", "2025-11-25 basic/utilities/cancellation#behavior-requirements", transports=ANYWHERE)
async def test_a_cancelled_call_in_a_thread_is_never_answered(wire: Wire) -> None:
    async with wire.open("slow") as peer:
        id = await peer.send("tools/call", {"name": "block", "arguments": {"name": "a"}})
        await peer.tell(CANCELLED, {"requestId": id})
        await peer.call("release", {"name": "a"})
        await peer.settle()
        assert [message for message in peer.heard if message.get("id") == id] == []


@behaviour("cancellation.others", "2025-11-25 basic/utilities/cancellation#behavior-requirements", transports=ANYWHERE)
async def test_other_calls_go_on(wire: Wire) -> None:
    async with wire.open("slow") as peer:
        first, second = await hold(peer, "a"), await hold(peer, "b")
        await peer.tell(CANCELLED, {"requestId": first})
        await peer.call("release", {"name": "b"})
        assert (await peer.answer(second))["result"]["content"][0]["text"] == "b"


@behaviour("cancellation.id-types", "2025-11-25 basic/utilities/cancellation#behavior-requirements")
async def test_a_text_does_not_cancel_a_number_that_looks_like_it(wire: Wire) -> None:
    async with wire.open("slow") as peer:
        await hold(peer, "a", id=51)
        await peer.tell(CANCELLED, {"requestId": "51"})
        await peer.call("release", {"name": "a"})
        assert (await peer.answer(51))["result"]["content"][0]["text"] == "a"


@behaviour("cancellation.invalid", "2025-11-25 basic/utilities/cancellation#error-handling")
@pytest.mark.parametrize("params", [None, {}, {"requestId": "unknown"}, {"requestId": 1.5}, {"requestId": None}, []])
async def test_a_cancellation_that_fits_nothing_is_ignored(wire: Wire, params: Any) -> None:
    async with wire.open("slow") as peer:
        await peer.tell(CANCELLED, params)
        assert await peer.settle() == []


@behaviour("cancellation.late", "2025-11-25 basic/utilities/cancellation#timing-considerations", transports=ANYWHERE)
async def test_a_cancellation_after_the_answer_is_ignored(wire: Wire) -> None:
    async with wire.open("slow") as peer:
        id = await peer.send("tools/list")
        await peer.answer(id)
        await peer.tell(CANCELLED, {"requestId": id})
        assert await peer.settle() == []


@behaviour("cancellation.twice", "2025-11-25 basic/utilities/cancellation#timing-considerations")
async def test_a_call_can_be_cancelled_twice(wire: Wire) -> None:
    async with wire.open("slow") as peer:
        id = await hold(peer, "a")
        await peer.tell(CANCELLED, {"requestId": id})
        await peer.tell(CANCELLED, {"requestId": id})
        assert await peer.settle() == []


@behaviour("cancellation.at-once", "2025-11-25 basic/utilities/cancellation#timing-considerations", transports=ANYWHERE)
async def test_a_cancellation_right_behind_its_request_leaves_at_most_one_answer(wire: Wire) -> None:
    async with wire.open("slow") as peer:
        id = await peer.send("tools/call", {"name": "hold", "arguments": {"name": "a"}})
        await peer.tell(CANCELLED, {"requestId": id})
        await peer.settle()
        assert [message for message in peer.heard if message.get("id") == id] == []


@behaviour("cancellation.id-free", "2026-07-28 basic/index#requests")
async def test_the_id_of_a_cancelled_request_can_be_used_again(wire: Wire) -> None:
    async with wire.open("slow") as peer:
        await hold(peer, "a", id="again")
        await peer.tell(CANCELLED, {"requestId": "again"})
        assert "tools" in (await peer.request("tools/list", id="again"))["result"]


@behaviour(
    "cancellation.initialize", "2025-11-25 basic/utilities/cancellation#behavior-requirements", HANDSHAKE, ANYWHERE
)
async def test_initialize_cannot_be_cancelled(wire: Wire) -> None:
    async with wire.open("slow", greet=False) as peer:
        id = await peer.send("initialize", peer.hello())
        await peer.tell(CANCELLED, {"requestId": id})
        assert "result" in await peer.answer(id)


@behaviour("cancellation.question", "2025-11-25 basic/utilities/cancellation#cancellation-flow", ELICITING, EVERYWHERE)
async def test_a_question_of_a_cancelled_call_is_withdrawn(wire: Wire) -> None:
    async with wire.open("asking", capabilities={"elicitation": {}}) as peer:
        id = await peer.send("tools/call", {"name": "order"})
        question = await peer.hear()
        await peer.tell(CANCELLED, {"requestId": id})
        assert (await peer.notice(CANCELLED))["requestId"] == question["id"]

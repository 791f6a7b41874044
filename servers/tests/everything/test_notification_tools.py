"""Timers, lists that change, subscriptions, cancellation and custom notifications: messages outside of a response."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from servers.tests.everything.support import HANDSHAKE, STATELESS, Heard, call, connected, settle
from trunkline import Client, Server, ToolError
from trunkline.client.changes import Change
from trunkline.server.runtime import runtime_for
from trunkline.testing import FakeClock
from trunkline_servers.everything import make_server
from trunkline_servers.everything.notification_tools import CUSTOM_METHOD, CUSTOM_NOTIFICATION, NOTE_URI

BOTH = (HANDSHAKE, STATELESS)
UPDATED = "notifications/resources/updated"


def ticking(level: Any = "error") -> tuple[Server, FakeClock]:
    clock = FakeClock()
    return make_server(clock=clock, choose=lambda levels: level, numbered=0), clock


# --- simulated logging -----------------------------------------------------------------------------------------------


async def test_simulated_logging_comes_at_once_and_with_every_interval_until_it_is_stopped() -> None:
    server, clock = ticking()
    heard = Heard()
    async with connected(HANDSHAKE, server, heard=heard) as client:
        await call(client, "toggle-simulated-logging")
        counts = [len(heard.logs)]
        clock.advance(10)
        await settle()
        counts.append(len(heard.logs))
        await call(client, "toggle-simulated-logging")
        clock.advance(10)
        await settle()
        assert [*counts, len(heard.logs)] == [1, 3, 3]
    assert heard.logs[0] == ("error", "Error-level message")


async def test_the_level_that_was_set_is_respected() -> None:
    server, clock = ticking("info")
    heard = Heard()
    async with connected(HANDSHAKE, server, heard=heard) as client:
        await client.set_logging_level("warning")
        await call(client, "toggle-simulated-logging")
        clock.advance(5)
        await settle()
        await client.set_logging_level("debug")
        clock.advance(5)
        await settle()
    assert [level for level, _ in heard.logs] == ["info"]


async def test_only_the_session_that_asked_is_logged_to() -> None:
    server, clock = ticking()
    mine, theirs = Heard(), Heard()
    async with connected(HANDSHAKE, server, heard=mine) as one, connected(HANDSHAKE, server, heard=theirs):
        await call(one, "toggle-simulated-logging")
        clock.advance(5)
        await settle()
    assert (len(mine.logs), len(theirs.logs)) == (2, 0)


@pytest.mark.parametrize("tool", ["toggle-simulated-logging", "toggle-subscriber-updates"])
async def test_a_timer_ends_with_its_session(tool: str) -> None:
    server, clock = ticking()
    async with connected(HANDSHAKE, server) as other:
        async with connected(HANDSHAKE, server) as client:
            await call(client, tool)
            state = runtime_for(server).lifespan_value()
            running = len(state.logging) + len(state.updates)
        await other.ping()
        clock.advance(5)
        assert (running, len(state.logging) + len(state.updates)) == (1, 0)


async def test_timers_end_with_the_last_connection() -> None:
    server, _ = ticking()
    async with connected(HANDSHAKE, server) as client:
        await call(client, "toggle-simulated-logging")
        await call(client, "toggle-subscriber-updates")
        state = runtime_for(server).lifespan_value()
    await settle(lambda: not state.logging and not state.updates)
    assert (len(state.logging) + len(state.updates)) == 0


async def test_without_a_session_log_messages_come_with_the_call() -> None:
    heard = Heard()
    async with connected(STATELESS, heard=heard, log_level="warning") as client:
        assert "without a session" in (await call(client, "toggle-simulated-logging")).text
    assert [level for level, _ in heard.logs] == ["warning", "error", "critical", "alert", "emergency"]


async def test_without_a_session_updates_without_listeners_do_not_start() -> None:
    async with connected(STATELESS) as client:
        assert (
            await call(client, "toggle-subscriber-updates")
        ).text == "There are no listeners for updates: listen to a resource first, then call this again."


# --- subscriptions ---------------------------------------------------------------------------------------------------


async def test_a_session_gets_simulated_updates_of_its_subscriptions() -> None:
    server, clock = ticking()
    heard = Heard()
    counts = []
    async with connected(HANDSHAKE, server, heard=heard) as client:
        await client.subscribe("demo://resource/dynamic/text/1")
        await call(client, "toggle-subscriber-updates")
        clock.advance(5)
        await settle()
        counts.append(len(heard.of(UPDATED)))
        await client.unsubscribe("demo://resource/dynamic/text/1")
        clock.advance(5)
        await settle()
        counts.append(len(heard.of(UPDATED)))
    assert counts == [2, 2]


async def test_subscribing_is_logged_for_the_caller() -> None:
    heard = Heard()
    async with connected(HANDSHAKE, heard=heard) as client:
        await client.subscribe(NOTE_URI)
        await client.unsubscribe(NOTE_URI)
    assert heard.logs == [("info", f"resources/subscribe: {NOTE_URI}"), ("info", f"resources/unsubscribe: {NOTE_URI}")]


async def test_listeners_without_a_session_get_simulated_updates_until_the_last_one_leaves() -> None:
    server, clock = ticking()
    async with connected(STATELESS, server) as client:
        async with client.listen(uris=["demo://resource/dynamic/text/1"]) as changes:
            await call(client, "toggle-subscriber-updates")
            first = await anext(changes)
            clock.advance(5)
            second = await anext(changes)
        await client.list_prompts()
        clock.advance(5)
        running = len(runtime_for(server).lifespan_value().updates)
    assert first == second == Change("resource", "demo://resource/dynamic/text/1")
    assert running == 0


@pytest.mark.parametrize("revision", BOTH)
async def test_listeners_are_notified_that_the_note_was_written(revision: str) -> None:
    async with connected(revision) as client, client.listen(uris=[NOTE_URI]) as changes:
        await call(client, "write-note", text="mind the gap")
        change = await anext(changes)
        assert (change, (await client.read_resource(NOTE_URI))[0].text) == (
            Change("resource", NOTE_URI),
            "mind the gap",
        )


# --- lists that change -----------------------------------------------------------------------------------------------


async def _listed(client: Client, what: str) -> list[str]:
    lists: dict[str, Any] = {
        "tool": client.list_tools,
        "prompt": client.list_prompts,
        "resource": client.list_resources,
    }
    return [each.name for each in await lists[what]()]


@pytest.mark.parametrize("revision", BOTH)
@pytest.mark.parametrize("what", ["tool", "prompt", "resource"])
async def test_additions_and_removals_are_announced_to_all_clients(what: str, revision: str) -> None:
    server = make_server(numbered=0)
    async with (
        connected(revision, server) as one,
        connected(revision, server) as other,
        other.listen(tools=True, prompts=True, resources=True) as changes,
    ):

        async def change(action: str) -> tuple[str, bool]:
            await call(one, "change-lists", what=what, action=action, name="night-train")
            return (await anext(changes)).kind, "added-night-train" in await _listed(other, what)

        assert [await change("add"), await change("remove")] == [(f"{what}s", True), (f"{what}s", False)]


@pytest.mark.parametrize(
    ("action", "name", "why"),
    [("remove", "echo", "No tool added-echo was added"), ("add", "../x", "lower-case"), ("add", "", "lower-case")],
)
async def test_only_what_was_added_can_be_removed_and_names_are_checked(action: str, name: str, why: str) -> None:
    async with connected(HANDSHAKE) as client:
        with pytest.raises(ToolError, match=why):
            await call(client, "change-lists", what="tool", action=action, name=name)


async def test_the_number_of_added_items_is_bounded() -> None:
    async with connected(HANDSHAKE, make_server(numbered=0)) as client:
        work = (call(client, "change-lists", what="prompt", action="add", name=f"p{n}") for n in range(21))
        with pytest.raises(ToolError, match="remove one first"):
            await asyncio.gather(*work)


# --- cancelling and notices ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", BOTH)
async def test_a_cancelled_call_is_observed(revision: str) -> None:
    waiting = asyncio.Event()
    async with connected(revision, make_server(numbered=0), on_progress=lambda *_: waiting.set()) as client:
        work = asyncio.ensure_future(call(client, "observe-cancellation", label="night"))
        await waiting.wait()
        work.cancel()
        await asyncio.wait([work])
        assert (await client.read_resource("demo://resource/cancellations"))[0].text == '["night"]'


async def test_a_call_that_is_not_cancelled_says_so() -> None:
    async with connected(HANDSHAKE, make_server(numbered=0)) as client:
        text = (await call(client, "observe-cancellation", seconds=0)).text
        assert (text, (await client.read_resource("demo://resource/cancellations"))[0].text) == (
            "This call was not cancelled.",
            "[]",
        )


@pytest.mark.parametrize("revision", BOTH)
async def test_a_custom_notification_and_method_are_announced_and_work(revision: str) -> None:
    heard = Heard()
    async with connected(revision, heard=heard) as client:
        await call(client, "send-notice", text="hear")
        capabilities = client.server_capabilities or {}
        assert (capabilities["experimental"], (await client.request(CUSTOM_METHOD, {"text": "liar"}))["text"]) == (
            {"trunkline.everything": {}},
            "rail",
        )
    assert heard.of(CUSTOM_NOTIFICATION) == [{"text": "hear"}]


async def test_added_items_can_be_used() -> None:
    async with connected(STATELESS, make_server(numbered=0)) as client:
        await call(client, "change-lists", what="tool", action="add", name="x")
        assert (await call(client, "added-x")).text == "This is added-x."

"""Connecting: which era is detected, what is sent on the way, and what happens on failures."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.client.scripted_server import DIE, Fail, ManualClock, Scripted, handshake_server, settle, state_of, stateless
from trunkline.client.client import Client
from trunkline.client.options import ClientState
from trunkline.errors import (
    ConfigError,
    ConnectionLost,
    MethodNotFound,
    RequestTimeout,
    RevisionMismatch,
)
from trunkline.protocol.jsonrpc import ErrorResponse, Response
from trunkline.protocol.limits import Limits
from trunkline.protocol.revisions import NEWEST, NEWEST_HANDSHAKE, REVISIONS
from trunkline.types import Implementation

OLDEST = REVISIONS[0].name


NO_EXTENSIONS = {"io.modelcontextprotocol/tasks": None, "io.modelcontextprotocol/skills": None}


async def test_the_handshake_names_no_member_that_its_revision_lacks() -> None:
    server = handshake_server(revision=OLDEST)
    info = Implementation(name="me", version="7", title="Me", website_url="https://example.com")
    client = Client(
        server, revision=OLDEST, client_info=info, roots=[], elicitation=lambda _: None, extensions=NO_EXTENSIONS
    )
    async with client:
        pass
    assert server.params_of("initialize") == [
        {
            "protocolVersion": OLDEST,
            "capabilities": {"roots": {"listChanged": True}},
            "clientInfo": {"name": "me", "version": "7"},
        }
    ]


async def entering(client: Client) -> asyncio.Task[Client]:
    """Let a client connect in a task of its own, as far as it comes without time passing."""
    task = asyncio.create_task(client.__aenter__())
    await settle()
    return task


async def test_a_silent_server_gets_the_handshake_and_no_cancellation() -> None:
    clock = ManualClock()
    server = handshake_server({"server/discover": None})
    client = Client(server, clock=clock)
    connecting = await entering(client)
    await clock.advance(9.9)
    assert server.methods == ["server/discover"]
    await clock.advance(0.2)
    await connecting
    assert server.methods == ["server/discover", "initialize", "notifications/initialized"]
    await client.aclose()


async def test_a_probe_and_a_handshake_fit_into_a_short_time_to_connect() -> None:
    clock = ManualClock()
    server = handshake_server({"server/discover": None})
    client = Client(server, clock=clock, limits=Limits(connect_seconds=4.0))
    connecting = await entering(client)
    await clock.advance(2.1)
    await connecting
    assert server.methods == ["server/discover", "initialize", "notifications/initialized"]
    await client.aclose()


async def _silent_at_first(server: Scripted, memory: dict[str, str]) -> Client:
    """Connect to a server that does not answer the probe in time."""
    clock = ManualClock()
    client = Client(server, clock=clock, era_memory=memory, restart=True)
    connecting = await entering(client)
    await clock.advance(10.1)
    return await connecting


async def _lose(server: Scripted, client: Client) -> None:
    """End the connection of a client."""
    server.stage.die()
    await server.dying[-1]
    await settle()
    assert state_of(client) is ClientState.FAILED


DISCOVERED = {"resultType": "complete", "supportedVersions": [NEWEST.name], "capabilities": {}}


async def test_a_late_answer_to_the_probe_decides_the_next_connection() -> None:
    server = handshake_server({"server/discover": None})
    client = await _silent_at_first(server, {})
    server.stage.put(Response(server.ids[0], DISCOVERED))
    await client.ping()
    assert (client.revision, client.dropped) == (NEWEST_HANDSHAKE.name, 0)
    server.table["server/discover"] = DISCOVERED
    await _lose(server, client)
    await client.ping()
    assert client.revision == NEWEST.name
    assert server.methods.count("initialize") == 1
    await client.aclose()


async def test_a_server_that_answered_late_has_the_whole_time_to_connect_the_next_time() -> None:
    clock = ManualClock()
    server = stateless({"server/discover": None})
    client = Client(server, clock=clock)
    client._core.known = NEWEST
    connecting = await entering(client)
    await clock.advance(29.0)
    assert server.methods == ["server/discover"]
    server.stage.put(Response(server.ids[0], DISCOVERED))
    await connecting
    assert client.revision == NEWEST.name
    await client.aclose()


async def test_a_late_refusal_of_the_probe_changes_nothing() -> None:
    server = handshake_server({"server/discover": None})
    client = await _silent_at_first(server, {})
    server.stage.put(ErrorResponse(server.ids[0], Fail(-32601).error))
    await client.ping()
    await _lose(server, client)
    await client.ping()
    assert server.methods.count("initialize") == 2
    assert server.methods.count("server/discover") == 1
    await client.aclose()


async def test_a_server_that_dies_of_the_probe_is_started_again_for_the_handshake() -> None:
    server = handshake_server({"server/discover": DIE})
    async with Client(server) as client:
        assert client.revision == NEWEST_HANDSHAKE.name
    assert len(server.stages) == 2
    assert server.methods == ["server/discover", "initialize", "notifications/initialized"]


async def test_connecting_to_a_server_that_always_dies_fails() -> None:
    server = handshake_server({"server/discover": DIE, "initialize": DIE})
    client = Client(server)
    with pytest.raises(ConnectionLost):
        await client.__aenter__()
    assert len(server.stages) == 2
    assert state_of(client) is ClientState.FAILED


async def test_a_server_that_dies_of_a_pinned_handshake_is_not_started_again() -> None:
    server = handshake_server({"initialize": DIE})
    with pytest.raises(ConnectionLost):
        await Client(server, revision=OLDEST).__aenter__()
    assert len(server.stages) == 1


async def test_a_pinned_stateless_revision_does_not_fall_back() -> None:
    server = handshake_server()
    with pytest.raises(RevisionMismatch):
        await Client(server, revision=NEWEST.name).__aenter__()
    assert server.methods == ["server/discover"]


async def test_a_refused_handshake_raises_what_the_server_said() -> None:
    with pytest.raises(MethodNotFound, match="Method not found"):
        await Client(Scripted({}), revision=OLDEST).__aenter__()


def test_a_revision_that_does_not_exist_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="2023"):
        Client(Scripted({}), revision="2023-01-01")


async def test_the_states_are_walked_in_order_and_told() -> None:
    told: list[tuple[str, Exception | None]] = []

    def hear(state: str, reason: Exception | None) -> None:
        told.append((state, reason))
        raise ZeroDivisionError("a callback that fails stops nothing")

    client = Client(handshake_server(), on_state=hear)
    assert state_of(client) is ClientState.CREATED
    async with client:
        assert state_of(client) == "active"
    assert state_of(client) == "terminated"
    assert told == [("connecting", None), ("initialized", None), ("active", None), ("terminated", None)]


@pytest.mark.parametrize("ending", ["time", "cancelled"])
async def test_a_connect_that_is_given_up_leaves_nothing_open(ending: str) -> None:
    clock = ManualClock()
    server = Scripted({"server/discover": None, "initialize": None})
    client = Client(server, clock=clock, limits=Limits(connect_seconds=7))
    connecting = await entering(client)
    await clock.advance(6.9)
    assert not connecting.done()
    if ending == "cancelled":
        connecting.cancel()
    await clock.advance(0.2)
    with pytest.raises((RequestTimeout, asyncio.CancelledError), match={"time": "7 s"}.get(ending)):
        await connecting
    assert connecting.cancelled() is (ending == "cancelled")
    await server.until(lambda: server.stage.ended)


async def test_a_call_made_while_connecting_waits_until_active() -> None:
    clock = ManualClock()
    server = handshake_server({"server/discover": None})
    client = Client(server, clock=clock)
    connecting = await entering(client)
    ping = asyncio.ensure_future(client.ping())
    await clock.advance(10.1)
    await connecting
    await ping
    assert server.methods[-2:] == ["notifications/initialized", "ping"]
    await client.aclose()


async def test_a_client_can_be_entered_again() -> None:
    server = handshake_server()
    client = Client(server)
    async with client:
        pass
    async with client:
        assert state_of(client) is ClientState.ACTIVE
    # The era is remembered: the second time there is no probe.
    assert server.methods[3:] == ["initialize", "notifications/initialized"]


async def test_a_client_can_be_entered_inside_itself() -> None:
    server = stateless()
    client = Client(server)
    async with client:
        async with client:
            pass
        assert state_of(client) is ClientState.ACTIVE
    assert (state_of(client), client.revision) == (ClientState.TERMINATED, NEWEST.name)
    assert len(server.stages) == 1


@pytest.mark.parametrize("answer", [{}, Fail(-32603)], ids=["set", "refused"])
async def test_the_log_level_is_set_while_connecting_if_the_server_will(answer: Any) -> None:
    server = handshake_server({"logging/setLevel": answer})
    async with Client(server, log_level="warning") as client:
        assert state_of(client) is ClientState.ACTIVE
    assert server.received[-1] == ("logging/setLevel", {"level": "warning"})


async def test_a_server_whose_last_word_is_its_greeting_is_a_failed_connect() -> None:
    last = "server/discover"

    server = stateless()
    answer = server.table[last]

    def last_word(params: Any) -> Any:
        server.stage.die()
        return answer

    server.table[last] = last_word
    with pytest.raises(ConnectionLost):
        await Client(server, revision=NEWEST.name).__aenter__()


async def test_a_server_that_goes_while_its_log_level_is_set_is_a_failed_connect() -> None:
    server = handshake_server({"logging/setLevel": DIE})
    client = Client(server, log_level="warning")
    with pytest.raises(ConnectionLost):
        await client.__aenter__()
    assert state_of(client) is ClientState.FAILED

"""Connections of single sessions, as processes: they end with their clients, when idle, and when there are too many."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.host.gateway.support import (
    NEW,
    OLD,
    Stage,
    Web,
    gone,
    on_stage,
    served,
    until,
)
from tests.host.gateway.workers.gateway_process import PROGRAM
from trunkline import Client
from trunkline.errors import TooManyRequests
from trunkline.host.host import Host
from trunkline.protocol.limits import Limits

_ROOT = str(Path(__file__).parents[3])


def program(**settings: Any) -> dict[str, Any]:
    """Give the entry of a handshake server that is a process."""
    return {
        "command": sys.executable,
        "args": ["-S", str(PROGRAM), "p", "handshake"],
        "env": {"PYTHONPATH": ":".join([_ROOT, *sys.path])},
        **settings,
    }


def _answer(question: object) -> str:
    return "x"


async def _pid(client: Client) -> int:
    pid: int = (await client.call_tool("p__pid")).data
    return pid


def _dedicated(host: Host) -> int:
    return host.status()[0].dedicated


async def test_an_idle_process_ends_and_the_next_call_starts_another(tmp_path: Path) -> None:
    async with (
        on_stage({"p": program(dedicatedIdle=0.1)}, tmp_path) as stage,
        stage.client(OLD, elicitation=_answer) as client,
    ):
        first = await _pid(client)
        assert first != stage.host.status()[0].pid
        await until(lambda: gone(first))
        assert _dedicated(stage.host) == 0
        assert await _pid(client) != first


async def test_a_process_ends_with_the_client_it_was_for(tmp_path: Path) -> None:
    async with on_stage({"p": program()}, tmp_path) as stage:
        async with stage.client(NEW, elicitation=_answer) as client:
            pid = await _pid(client)
            assert _dedicated(stage.host) == 1
        await until(lambda: gone(pid))
        assert _dedicated(stage.host) == 0


@pytest.mark.parametrize(
    ("settings", "session_seconds"),
    [pytest.param({}, 0.2, id="the session expires"), pytest.param({"dedicatedIdle": 0.1}, 1800.0, id="it is idle")],
)
async def test_a_process_ends_after_an_http_client_that_left_without_a_word(
    settings: dict[str, Any], session_seconds: float, tmp_path: Path
) -> None:
    limits = Limits(session_seconds=session_seconds)
    async with served({"p": program(**settings)}, tmp_path, limits=limits) as web:
        pid = await _call_and_leave(web)
        assert not gone(web.host.status()[0].pid or 0)
        await until(lambda: gone(pid))
        assert _dedicated(web.host) == 0


async def _call_and_leave(web: Web) -> int:
    """Call a tool as a handshake client that can be asked, and go away without ending the session."""
    headers = {"Authorization": f"Bearer {web.token}", "Accept": "application/json, text/event-stream"}
    hello = {
        "protocolVersion": OLD,
        "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "x", "version": "1"},
    }
    call = {"name": "p__pid", "arguments": {}}
    async with aiohttp.ClientSession(headers=headers) as http:
        begun = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
        async with http.post(web.url, json=begun) as opened:
            http.headers["mcp-session-id"] = opened.headers["mcp-session-id"]
        async with http.post(web.url, json={"jsonrpc": "2.0", "method": "notifications/initialized"}):
            pass
        asked = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}
        async with http.post(web.url, json=asked) as answered:
            text = (await answered.text()).rpartition("data: ")[2]
    pid: int = json.loads(json.loads(text)["result"]["content"][0]["text"])
    return pid


async def test_a_process_of_a_stateless_principal_ends_when_it_is_idle(tmp_path: Path) -> None:
    async with served({"p": program(dedicatedIdle=0.1)}, tmp_path) as web:
        async with web.client(NEW, elicitation=_answer) as client:
            pid = await _pid(client)
        await until(lambda: gone(pid))


async def test_the_connection_that_was_idle_for_the_longest_time_makes_room(tmp_path: Path) -> None:
    async with on_stage({"p": program(dedicatedMost=2)}, tmp_path) as stage, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(stage.client(OLD, elicitation=_answer)) for _ in range(3)]
        first, second = await _pid(clients[0]), await _pid(clients[1])
        assert await _pid(clients[0]) == first
        third = await _pid(clients[2])
        await until(lambda: gone(second))
        assert not gone(first)
        assert not gone(third)
        assert _dedicated(stage.host) == 2


async def test_a_connection_in_use_makes_no_room(tmp_path: Path) -> None:
    async with on_stage({"p": program(dedicatedMost=1)}, tmp_path) as stage, AsyncExitStack() as stack:
        busy, other = [await stack.enter_async_context(stage.client(OLD, elicitation=_answer)) for _ in range(2)]
        pid = await _pid(busy)
        call = asyncio.create_task(busy.call_tool("p__wait"))
        await until(lambda: _under_way(stage))
        with pytest.raises(
            TooManyRequests, match="p has 1 connections for single sessions, all of them in use"
        ) as told:
            await other.call_tool("p__pid")
        assert told.value.data["limit"] == "dedicatedMost"
        assert not gone(pid)
        call.cancel()
        await asyncio.wait([call])
        await until(lambda: not _under_way(stage))
        assert await _pid(other) != pid


def _under_way(stage: Stage) -> bool:
    return any(
        connection.busy for session in stage.gateway.core.sessions for connection in session.connections._connections
    )

"""Many servers side by side: none waits for another, a new configuration touches what changed, nothing is left over."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.client.scripted_server import handshake_server, settle
from tests.host.supervised import ROOT, Stage, program, scripted, supervising
from tests.support import BOUND, run_async
from tests.transports.processes import alive, descriptors, gone_within
from trunkline.errors import ServerUnavailable
from trunkline.host.config.model import Filters, ServerEntry, Source
from trunkline.host.upstreams.supervision.supervisor import ServerChanges

TOOLS = {"tools": [{"name": "add", "inputSchema": {"type": "object"}}]}


def good(name: str = "a", **settings: Any) -> ServerEntry:
    return scripted(name, handshake_server({"tools/list": TOOLS}, tools={}), era="handshake", **settings)


def silent(name: str = "a", **settings: Any) -> ServerEntry:
    return scripted(name, handshake_server({"initialize": None}), era="handshake", **settings)


# --- starting


async def test_servers_start_at_the_same_time(tmp_path: Path) -> None:
    go = tmp_path / "go"
    entries = {f"s{n}": program(f"s{n}", "slow_start", str(go)) for n in range(6)}
    async with supervising(entries) as stage:
        await stage.until(lambda: all("starting" in stage.states(name) for name in entries))
        assert not any("ready" in stage.states(name) for name in entries)
        go.touch()
        assert await stage.supervisor.settled() is True
        assert {stage.upstream(name).state for name in entries} == {"ready"}


async def test_a_slow_a_dead_and_a_hostile_server_delay_no_other_server(tmp_path: Path) -> None:
    entries = {
        "slow": program("slow", "slow_start", str(tmp_path / "never")),
        "silent": program("silent", "misbehaving", "hang_at_initialize"),
        "dead": program("dead", "misbehaving", "crash_at_start"),
        "loud": program("loud", "misbehaving", "flood_stdout"),
        "a": program("a", "plain"),
    }
    async with supervising(entries) as stage:
        client = await stage.upstream().connected_client()
        assert (await client.call_tool("pid")).text
        assert stage.upstream("slow").state == stage.upstream("silent").state == "starting"


async def test_it_is_settled_when_nothing_starts_any_more() -> None:
    entries = {"a": good(), "b": replace(good("b"), disabled=True), "c": replace(good("c"), problem="no")}
    async with supervising(entries) as stage:
        assert await stage.supervisor.settled() is True
        assert [stage.upstream(name).state for name in "abc"] == ["ready", "disabled", "misconfigured"]


async def test_it_is_settled_when_all_that_are_required_are_ready() -> None:
    async with supervising({"a": good(required=True), "b": silent("b")}) as stage:
        assert await stage.supervisor.settled() is True
        assert [stage.upstream(name).state for name in "ab"] == ["ready", "starting"]


async def test_waiting_for_it_to_settle_has_a_bound() -> None:
    async with supervising({"a": silent(), "b": good("b")}) as stage:
        waiting = asyncio.ensure_future(stage.supervisor.settled(timeout=5.0))
        await settle()
        stage.clock.advance(5.0)
        assert await waiting is False


# --- a new configuration


async def test_what_did_not_change_keeps_its_process() -> None:
    entry = program("a", "plain")
    async with supervising({"a": entry}) as stage:
        client = await stage.upstream().connected_client()
        changes = await stage.supervisor.apply({"b": good("b"), "a": entry})
        assert changes == ServerChanges(added=("b",), kept=("a",))
        assert await stage.upstream().connected_client() is client
        assert list(stage.supervisor.upstreams) == ["b", "a"]


async def test_what_moved_in_its_file_or_is_shown_otherwise_keeps_its_process() -> None:
    entry = program("a", "plain", source=Source("user", "mcp.json", 3))
    settings = replace(entry.settings, tools=Filters(allow=("x",)), trusted=True, required=True, concurrency=3)
    changed = replace(entry, source=Source("user", "mcp.json", 9), settings=settings)
    async with supervising({"a": entry}) as stage:
        client = await stage.upstream().connected_client()
        assert await stage.supervisor.apply({"a": changed}) == ServerChanges(changed=("a",))
        assert await stage.upstream().connected_client() is client
        assert stage.upstream().entry == changed
        assert stage.offered == ["a", "a"]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"env": {"PYTHONPATH": str(ROOT), "X": "1"}}, id="env"),
        pytest.param({"source": Source("project", "x/.mcp.json")}, id="whose-word-it-is"),
    ],
)
async def test_a_changed_server_is_ended_before_the_new_one_starts(change: dict[str, Any]) -> None:
    entry = program("a", "plain")
    async with supervising({"a": entry}) as stage:
        await stage.upstream().connected_client()
        old = stage.upstream().status.pid or 0
        assert await stage.supervisor.apply({"a": replace(entry, **change)}) == ServerChanges(changed=("a",))
        await stage.upstream().connected_client()
        assert not alive(old)
        assert stage.upstream().status.pid not in (None, old)


async def test_a_server_that_is_taken_out_is_ended() -> None:
    async with supervising({"a": program("a", "plain"), "b": good("b")}) as stage:
        await stage.upstream().connected_client()
        pid = stage.upstream().status.pid or 0
        upstream = stage.upstream()
        assert await stage.supervisor.apply({"b": stage.upstream("b").entry}) == ServerChanges(
            removed=("a",), kept=("b",)
        )
        assert "a" not in stage.supervisor.upstreams
        await stage.until(lambda: stage.states()[-1] == "stopped")
        assert gone_within([pid], 5.0) == []
        with pytest.raises(ServerUnavailable, match="The server a is stopped: removed from the configuration"):
            await upstream.connected_client()


async def test_a_new_configuration_gives_broken_and_unapproved_servers_another_try() -> None:
    answers = iter([False])

    async def trust(entry: ServerEntry) -> tuple[bool, str | None]:
        return next(answers, True), "new"

    entry = good()
    async with supervising({"a": entry}, trust=trust) as stage:
        await stage.until_state("unapproved")
        await stage.supervisor.apply({"a": entry})
        await stage.until_state("ready")


async def test_a_stopped_server_is_not_started_by_a_new_configuration() -> None:
    entry = good()
    async with supervising({"a": entry}) as stage:
        await stage.upstream().stop()
        await stage.supervisor.apply({"a": entry})
        await settle()
        assert stage.upstream().state == "stopped"


async def test_a_disabled_server_starts_once_it_is_enabled() -> None:
    entry = good()
    async with supervising({"a": replace(entry, disabled=True)}) as stage:
        await stage.supervisor.apply({"a": entry})
        await stage.until_state("ready")


# --- the end


async def test_closing_leaves_no_process_task_or_descriptor() -> None:
    before, open_before = asyncio.all_tasks(), len(descriptors())
    entries = {f"s{n}": program(f"s{n}", "forks") for n in range(4)}
    pids: list[int] = []
    async with supervising({**entries, "silent": program("silent", "misbehaving", "hang_at_initialize")}) as stage:
        for name in entries:
            client = await stage.upstream(name).connected_client()
            pids += map(int, (await client.call_tool("pid")).text.split())
    assert gone_within(pids, 0.0) == []
    await settle()
    assert asyncio.all_tasks() == before
    assert len(descriptors()) <= open_before


def test_servers_that_cling_to_life_are_ended_at_the_same_time() -> None:
    async def main() -> None:
        entries = {f"s{n}": program(f"s{n}", "slow_start", "/never") for n in range(5)}
        stage = Stage()
        await stage.supervisor.apply(entries)
        await stage.until(lambda: all("starting" in stage.states(name) for name in entries))
        async with asyncio.timeout(20):
            await stage.supervisor.aclose()

    run_async(main(), seconds=BOUND)


async def test_a_callback_that_never_ends_does_not_keep_the_host_from_closing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.host.upstreams.supervision.supervisor._CLOSING_SECONDS", 0.01)

    async def trust(entry: ServerEntry) -> tuple[bool, str | None]:
        never = asyncio.get_running_loop().create_future()
        with contextlib.suppress(asyncio.CancelledError):
            await never
        await asyncio.get_running_loop().create_future()
        return True, None

    async with supervising({"a": good(), "b": good("b")}, trust=trust):
        await settle()


def test_a_host_that_is_killed_leaves_no_server_and_no_child_of_one() -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    command = [sys.executable, "-m", "tests.host.servers.supervising"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=env, cwd=ROOT) as host:
        assert host.stdout is not None
        pids: list[int] = json.loads(host.stdout.readline())
        assert len(pids) == 10
        assert all(map(alive, pids))
        host.send_signal(signal.SIGKILL)
    assert gone_within(pids, 10.0) == []

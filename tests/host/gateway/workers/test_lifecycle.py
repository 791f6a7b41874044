"""Workers, servers, the broker and the supervisor of a gateway: killed, replaced, stopped; nothing is left behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from tests.cli.support import Cli
from tests.host.gateway.support import NEW
from tests.host.gateway.workers.gateway_process import PROGRAM, GatewayProcess, gateway_process, process_name, until
from tests.host.gateway.workers.test_workers import ELICITS, handshake_session
from tests.transports.http.serving_support import tool


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway with three workers."""
    with gateway_process(tmp_path_factory.mktemp("gateway")) as started:
        yield started


async def test_a_killed_worker_is_replaced_and_the_servers_do_not_notice(gateway: GatewayProcess) -> None:
    servers = {name: gateway.servers(name) for name in ("one", "two", "new")}
    calls = await gateway.seen("one", "calls")
    before = gateway.workers()
    os.kill(before[0], signal.SIGKILL)
    await until(lambda: before[0] not in gateway.workers())
    for _ in range(4):
        await gateway.call("one__pid")
    await until(lambda: len(gateway.workers()) == 3)
    assert {name: gateway.servers(name) for name in ("one", "two", "new")} == servers
    assert await gateway.seen("one", "calls") == calls + 4


async def test_calls_of_a_killed_worker_are_cancelled_at_the_server(gateway: GatewayProcess) -> None:
    waiting, cancelled = await gateway.seen("one", "waiting"), await gateway.seen("one", "cancelled")
    async with gateway.client(NEW) as client:
        call = asyncio.create_task(client.call_tool("one__wait"))
        await gateway.until_seen("one", "waiting", waiting + 1)
        for pid in gateway.workers():
            os.kill(pid, signal.SIGKILL)
        await gateway.until_seen("one", "cancelled", cancelled + 1)
        call.cancel()


async def test_a_killed_server_is_restarted_once_for_all_workers(gateway: GatewayProcess) -> None:
    (before,) = gateway.servers("two")
    os.kill(before, signal.SIGKILL)
    await until(lambda: gateway.servers("two") and before not in gateway.servers("two"))
    pids = {await gateway.call("two__pid") for _ in range(6)}
    assert pids == {str(pid) for pid in gateway.servers("two")}
    assert len(pids) == 1


@pytest.mark.slow
async def test_sighup_replaces_the_workers_while_the_servers_and_sessions_go_on(gateway: GatewayProcess) -> None:
    config = gateway.folder / "project" / "mcp.json"
    entries = json.loads(config.read_text())
    entries["mcpServers"]["extra"] = {"command": sys.executable, "args": [str(PROGRAM), "extra", "handshake"]}
    policy = gateway.folder / "project" / "policy.toml"
    servers = {name: gateway.servers(name) for name in ("one", "two", "new")}
    async with handshake_session(gateway, ELICITS) as (client, machine):
        own = (await client.post(machine, tool("one__pid")))[1]["result"]["content"][0]["text"]
        servers["one"] = gateway.servers("one")
        config.write_text(json.dumps(entries))
        policy.write_text(policy.read_text() + '[[rule]]\neffect = "allow"\nserver = "extra"\ntool = "*"\n')
        before = set(gateway.workers())
        gateway.process.send_signal(signal.SIGHUP)
        await until(lambda: len(gateway.workers()) == 3 and not before & set(gateway.workers()))
        # The session, its process and the state of that process are the same as before.
        for id in range(2, 5):
            assert (await client.post(machine, tool("one__pid", id=id)))[1]["result"]["content"][0]["text"] == own
    assert {name: gateway.servers(name) for name in ("one", "two", "new")} == servers
    pids = {await gateway.call("extra__pid") for _ in range(3)}
    assert pids == {str(pid) for pid in gateway.servers("extra")}


async def test_sigterm_lets_calls_finish_and_leaves_nothing(tmp_path: Path) -> None:
    with gateway_process(tmp_path, workers=2) as gateway:
        processes = gateway.descendants()
        async with gateway.client(NEW) as client:
            running = asyncio.create_task(client.call_tool("one__nap", {"seconds": 1.0}))
            await gateway.until_seen("one", "waiting", 1)
            gateway.process.send_signal(signal.SIGTERM)
            assert not (await running).is_error
        await until(lambda: gateway.process.poll() is not None)
        assert gateway.process.returncode == 0
        await until(lambda: not _alive(processes))


async def test_when_the_supervisor_is_killed_everything_ends(tmp_path: Path) -> None:
    with gateway_process(tmp_path, workers=2) as gateway:
        processes = gateway.descendants()
        assert len(processes) >= 6
        os.kill(gateway.process.pid, signal.SIGKILL)
        await until(lambda: gateway.process.poll() is not None)
        await until(lambda: not _alive(processes))


async def test_a_killed_broker_is_started_again_with_servers_and_workers(tmp_path: Path) -> None:
    with gateway_process(tmp_path, workers=2) as gateway:
        assert process_name(gateway.broker()) == "tl-broker"
        processes = gateway.descendants()
        (server,) = gateway.servers("one")
        os.kill(gateway.broker().pid, signal.SIGKILL)
        # Neither the old servers nor the old workers are left.
        await until(lambda: not _alive(processes))
        await until(lambda: len(gateway.servers("one")) == 1)
        assert await gateway.seen("one", "calls") >= 0
        assert await gateway.call("one__pid") != str(server)
        assert len({await gateway.call("two__pid") for _ in range(4)}) == 1
        assert "the broker, which runs the stdio servers, was ended by signal 9" in " ".join(gateway.log.split())


@pytest.mark.slow
async def test_a_broken_file_is_not_reloaded_and_a_crashed_worker_has_the_last_good_one(tmp_path: Path) -> None:
    with gateway_process(tmp_path, workers=2) as gateway:
        config, policy = (tmp_path / "project" / name for name in ("mcp.json", "policy.toml"))
        good, rules = config.read_text(), policy.read_text()
        before = gateway.workers()
        config.write_text("{")
        gateway.process.send_signal(signal.SIGHUP)
        await until(lambda: gateway.log.count("not reloaded") == 1)
        config.write_text(good)
        policy.write_text("[[rule]")
        gateway.process.send_signal(signal.SIGHUP)
        await until(lambda: gateway.log.count("not reloaded") == 2)
        assert gateway.workers() == before
        config.write_text("{")
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        await until(lambda: len(gateway.workers()) == 2 and not set(before) & set(gateway.workers()))
        assert await gateway.seen("one", "calls") >= 0
        # A broker is started with the last good configuration too.
        os.kill(gateway.broker().pid, signal.SIGKILL)
        assert await gateway.seen("one", "calls") >= 0
        config.write_text(good)
        policy.write_text(rules)


def test_options_that_cannot_be_combined_are_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRUNKLINE_STATE_KEY", raising=False)
    file = tmp_path / "mcp.json"
    file.write_text('{"mcpServers": {}}')

    def refused(*more: str) -> str:
        outcome = Cli(capsys, monkeypatch)("serve", "-c", str(file), "--workers", "2", *more)
        assert outcome.code != 0
        return outcome.err

    assert "--workers needs --http" in refused()
    no_console = refused("--http", "0", "--console")
    assert "--console cannot be combined with --workers" in no_console
    assert f"trunkline console -c {file}" in " ".join(no_console.split())
    assert "TRUNKLINE_STATE_KEY" in refused("--http", "0", "--store", "redis://127.0.0.1:1/0")


def _alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [each for each in processes if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]

"""The broker and a worker's host over a real socket: the same states and errors as in a host with its own servers."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import stat
import struct
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import psutil  # type: ignore[import-untyped]
import pytest
from msgspec.structs import replace

from tests.host.gateway.support import allow, until
from tests.host.gateway.workers.gateway_process import KEY, PROGRAM
from trunkline import Client
from trunkline.errors import ServerUnavailable, TooManyRequests
from trunkline.host.gateway.app import GatewayApp, _application
from trunkline.host.gateway.worker_links import WorkerLinks
from trunkline.host.host import Host
from trunkline.host.upstreams.broker.broker import Broker, OwnedProcesses
from trunkline.host.upstreams.broker.messages import Hello
from trunkline.host.upstreams.broker.worker import BrokerConnection, BrokeredProcesses
from trunkline.host.upstreams.supervision.clients import make_client
from trunkline.host.upstreams.supervision.sharing import ProcessSharing
from trunkline.store.runtime_folder import RuntimeFolder
from trunkline.transports.http.server.worker_process import Scoreboard, WorkerProcess

Entries = dict[str, dict[str, Any]]
SECONDS = 120.0


class Stage(NamedTuple):
    """The host of the broker, and those of two workers."""

    owner: Host
    workers: list[Host]
    socket: Path
    broker: Broker

    async def agreed(self, name: str, state: str) -> None:
        """Wait until all say that a server is in a state."""
        async with asyncio.timeout(SECONDS):
            for host in (self.owner, *self.workers):
                await until(partial(_is_in, host, name, state))


def _is_in(host: Host, name: str, state: str) -> bool:
    return bool(_status(host, name).state == state)


def _status(host: Host, name: str) -> Any:
    return next(each for each in host.status() if each.name == name)


def entry(name: str = "one", era: str = "handshake", **settings: Any) -> dict[str, Any]:
    """Return the entry of a server."""
    return {"command": sys.executable, "args": [str(PROGRAM), name, era], **settings}


def opened(sharing: ProcessSharing, entries: Entries, **options: Any) -> Host:
    """Return the host of one of the processes."""
    host = Host.open(entries, **options)
    host._sharing = sharing
    return host


@asynccontextmanager
async def stage(entries: Entries, folder: Path, count: int = 2) -> AsyncIterator[Stage]:
    """Open a broker and workers over the same servers."""
    processes, path = OwnedProcesses(), folder / "broker"
    common: dict[str, Any] = {"policy": allow(*entries), "audit": False, "wait_seconds": SECONDS}
    async with opened(processes, entries, folder=folder / "owner", **common) as owner:
        bound = asyncio.Event()
        broker = Broker(owner._open.core, processes)
        serving = asyncio.create_task(broker.serve(path, bound.set))
        await bound.wait()
        connections = [BrokerConnection(path) for _ in range(count)]
        hosts: list[Host] = []
        try:
            for number, connection in enumerate(connections):
                await connection.connect()
                own = folder / f"worker-{number}"
                hosts.append(await opened(BrokeredProcesses(connection), entries, folder=own, **common).__aenter__())
            yield Stage(owner, hosts, path, broker)
        finally:
            for host in hosts:
                await host.aclose()
            for connection in connections:
                await connection.aclose()
            serving.cancel()
            await asyncio.wait([serving])


async def _pid(host: Host, name: str = "one") -> str:
    return str((await host.call_tool(f"{name}/pid")).content[0].text)  # type: ignore[union-attr]


async def test_workers_show_the_states_of_the_broker(tmp_path: Path) -> None:
    async with stage({"one": entry(), "new": entry("new", "stateless")}, tmp_path) as found:
        for name in ("one", "new"):
            await found.agreed(name, "ready")
            own = _status(found.owner, name)
            for host in found.workers:
                shown = _status(host, name)
                assert (shown.pid, shown.era, shown.tools, shown.restarts) == (own.pid, own.era, own.tools, 0)
                assert await _pid(host, name) == str(own.pid)
        assert stat.S_IMODE(os.stat(found.socket).st_mode) == 0o600


async def test_a_worker_restarts_stops_and_starts_a_server_for_all(tmp_path: Path) -> None:
    async with stage({"one": entry()}, tmp_path) as found:
        first, second = found.workers
        await found.agreed("one", "ready")
        before = await _pid(second)
        await first.restart("one")
        await found.agreed("one", "ready")
        async with asyncio.timeout(SECONDS):
            await until(lambda: _status(second, "one").restarts == 1)
        assert await _pid(second) != before
        await second.stop("one")
        await found.agreed("one", "stopped")
        with pytest.raises(ServerUnavailable, match="is stopped"):
            await first._open.core.upstream("one").connected_client()
        await first.start("one")
        await found.agreed("one", "ready")
        assert await _pid(first) == await _pid(second)


async def test_a_lazy_server_is_started_by_the_first_call_of_any_worker(tmp_path: Path) -> None:
    lazy = {"one": entry(start="lazy")}
    async with stage(lazy, tmp_path):
        pass
    async with stage(lazy, tmp_path) as found:
        await found.agreed("one", "known")
        assert _status(found.owner, "one").pid is None
        assert await _pid(found.workers[1]) == await _pid(found.workers[0])


async def test_a_server_that_cannot_start_is_reported_as_by_a_host_of_its_own(tmp_path: Path) -> None:
    broken = {"one": {"command": sys.executable, "args": ["-c", "import sys; sys.exit('no database')"], "crashes": 1}}
    async with Host.open(broken, folder=tmp_path / "alone", wait="none") as alone, stage(broken, tmp_path) as found:
        await found.agreed("one", "broken")
        async with asyncio.timeout(SECONDS):
            await until(lambda: _status(alone, "one").state == "broken")
        expected = _status(alone, "one")
        for host in found.workers:
            assert _status(host, "one").reason == expected.reason
            assert "no database" in _status(host, "one").reason


async def test_a_call_under_way_says_how_the_server_ended(tmp_path: Path) -> None:
    async with stage({"one": entry()}, tmp_path) as found:
        await found.agreed("one", "ready")
        with pytest.raises(Exception, match="exit"):
            await found.workers[0].call_tool("one/crash")
        await found.agreed("one", "ready")
        assert await _pid(found.workers[0]) == await _pid(found.workers[1])


class _Listener:
    """A client that listens for changes."""

    def __init__(self) -> None:
        self.notices: list[Any] = []

    def notify_change(self, notice: Any) -> None:
        self.notices.append(notice)

    def end(self, reason: str) -> None:
        """Called when the gateway is closed."""


@asynccontextmanager
async def served(host: Host, folder: RuntimeFolder) -> AsyncIterator[GatewayApp]:
    """Make the gateway of a worker, which has no request yet."""
    broker = host._sharing._broker  # type: ignore[union-attr]
    scoreboard = Scoreboard(1)
    with socket.socket() as lifeline:
        process = WorkerProcess(0, [], lifeline, scoreboard, scoreboard.rows[0])
        app = _application(host._open, {"no_auth": True}, None, WorkerLinks(process, broker, None, folder))
        yield app
        await app.aclose()


@pytest.fixture
def folder() -> Iterator[RuntimeFolder]:
    """The folder of a run."""
    made = RuntimeFolder()
    yield made
    made.remove()


async def test_a_worker_without_requests_announces_changed_lists_to_the_clients_of_others(
    tmp_path: Path, folder: RuntimeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRUNKLINE_STATE_KEY", KEY)
    async with stage({"new": entry("new", "stateless")}, tmp_path) as found, asyncio.timeout(SECONDS):
        await found.agreed("new", "ready")
        # The broker has the first worker announce; the client of the second is notified.
        async with served(found.workers[0], folder), served(found.workers[1], folder) as app:
            (endpoint,), (gateway,), listener = app.endpoints, app.gateways, _Listener()
            await endpoint._session_endpoint._ready()
            gateway.hub.attach(listener)
            await found.workers[1].call_tool("new/grow")
            await until(lambda: ("tools", None) in listener.notices)


@asynccontextmanager
async def dedicated(host: Host, key: str | None, **options: Any) -> AsyncIterator[Client]:
    """Open a dedicated connection, as the pool of a session does."""
    upstream = host._open.core.upstream("one")
    await upstream.verify_trust()
    async with upstream.make_client(key=key, **options) as client:
        yield client


async def _process(client: Client) -> int:
    return int((await client.call_tool("pid")).content[0].text)  # type: ignore[union-attr]


async def test_one_key_is_one_process_at_every_worker_and_outlives_a_worker(tmp_path: Path) -> None:
    async with stage({"one": entry(dedicatedIdle=60)}, tmp_path) as found:
        await found.agreed("one", "ready")
        first, second = found.workers
        async with dedicated(first, "session") as one, dedicated(second, "session") as two:
            pid = await _process(one)
            assert await _process(two) == pid
            async with dedicated(first, "other") as other, dedicated(first, None) as unnamed:
                alone = await _process(unnamed)
                assert len({pid, await _process(other), alone}) == 3
        # Both left; a process without a key has no other user.
        async with asyncio.timeout(SECONDS):
            await until(lambda: not psutil.pid_exists(alone))
        async with dedicated(second, "session") as again:
            assert await _process(again) == pid
        await first.restart("one")
        async with asyncio.timeout(SECONDS):
            await until(lambda: not psutil.pid_exists(pid))


#: A server that answers the handshake when a file appears: ``python -c SLOW GO``.
SLOW = """
import json, os, sys, time
go = sys.argv[1]
for line in sys.stdin:
    message = json.loads(line)
    method, id = message.get("method"), message.get("id")
    if id is None:
        continue
    if method == "initialize":
        while not os.path.exists(go):
            time.sleep(0.01)
        agreed, info = message["params"]["protocolVersion"], {"name": "slow", "version": "1"}
        result = {"protocolVersion": agreed, "capabilities": {"tools": {}}, "serverInfo": info}
    elif method == "tools/call":
        result = {"content": [{"type": "text", "text": str(os.getpid())}]}
    elif method == "tools/list":
        result = {"tools": [{"name": "pid", "inputSchema": {"type": "object"}}]}
    elif method == "ping":
        result = {}
    else:
        result = None
    error = {"code": -32601, "message": "unknown method"}
    answer = {"error": error} if result is None else {"result": result}
    print(json.dumps({"jsonrpc": "2.0", "id": id, **answer}), flush=True)
"""


async def test_a_worker_that_leaves_during_the_handshake_leaves_it_to_the_others(tmp_path: Path) -> None:
    go = tmp_path / "go"
    slow = {
        "command": sys.executable,
        "args": ["-c", SLOW, str(go)],
        "start": "lazy",
        "dedicatedIdle": 60,
        "era": "handshake",
    }
    # A first run lists it, so that the second does not start it to do so.
    go.touch()
    async with stage({"one": slow}, tmp_path):
        pass
    go.unlink()
    async with stage({"one": slow}, tmp_path) as found, asyncio.timeout(SECONDS):
        left = asyncio.create_task(dedicated(found.workers[0], "session").__aenter__())
        await until(lambda: any(each.multiplexer.busy for each in found.broker._dedicated.values()))
        (process,) = found.broker._dedicated.values()
        left.cancel()
        await asyncio.wait([left])
        await until(lambda: not process.multiplexer.participants)
        go.touch()
        async with dedicated(found.workers[1], "session") as client:
            assert await _process(client) == process.multiplexer.pid


async def test_a_worker_that_dies_before_it_is_welcome_leaves_the_process_to_the_next(tmp_path: Path) -> None:
    async with stage({"one": entry(dedicatedIdle=60)}, tmp_path) as found, asyncio.timeout(SECONDS):
        await found.agreed("one", "ready")
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(str(found.socket))
        body = msgspec.msgpack.encode(Hello(open="dedicated", server="one", key="session"))
        connection.sendall(struct.pack(">I", len(body)) + body)
        connection.close()
        await until(lambda: any(each.timer is not None for each in found.broker._dedicated.values()))
        async with dedicated(found.workers[0], "session") as client:
            (process,) = found.broker._dedicated.values()
            assert await _process(client) == process.multiplexer.pid


async def test_the_limit_of_dedicated_processes_holds_for_those_that_are_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(*given: Any, **options: Any) -> Client:
        client = make_client(*given, **options)
        target = client._core.target

        async def open() -> Any:
            await asyncio.sleep(0)
            return await target.open()

        client._core.target = replace(target, open=open)
        return client

    # Others start meanwhile.
    monkeypatch.setattr("trunkline.host.upstreams.broker.broker.make_client", make)
    async with stage({"one": entry(dedicatedMost=2)}, tmp_path) as found, asyncio.timeout(SECONDS):
        await found.agreed("one", "ready")
        # Directly, since connections of workers could arrive one after the other.
        hellos = [Hello(open="dedicated", server="one", key=str(number)) for number in range(10)]
        started = await asyncio.gather(*map(found.broker._process, hellos), return_exceptions=True)
        assert len(found.broker._dedicated) == 2
        assert sum(isinstance(each, TooManyRequests) for each in started) == 8


async def test_the_limit_of_dedicated_processes_holds_for_all_workers(tmp_path: Path) -> None:
    async with stage({"one": entry(dedicatedMost=1)}, tmp_path) as found:
        await found.agreed("one", "ready")
        async with dedicated(found.workers[0], "a") as busy:
            waiting = asyncio.create_task(busy.call_tool("wait"))
            async with asyncio.timeout(SECONDS):
                while '"waiting":1' not in str((await busy.call_tool("seen")).content[0]).replace(" ", ""):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            with pytest.raises(TooManyRequests, match="dedicatedMost"):
                async with dedicated(found.workers[1], "b"):
                    pass
            waiting.cancel()
            await asyncio.wait([waiting])
            async with asyncio.timeout(SECONDS):
                await _opened(lambda: dedicated(found.workers[1], "b"))


async def _opened(open: Callable[[], Any]) -> None:
    """Open a connection as soon as there is room."""
    while True:
        try:
            async with open() as client:
                await _process(client)
            return
        except TooManyRequests:
            await asyncio.sleep(0.01)


@pytest.mark.slow
async def test_a_hanging_server_is_found_and_restarted_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with stage({"one": entry(timeout=1, healthSeconds=0)}, tmp_path) as found:
        await found.agreed("one", "ready")
        pid = int(await _pid(found.workers[0]))
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(Exception, match="1 s"):
            await _pid(found.workers[0])
        async with asyncio.timeout(SECONDS):
            await until(lambda: not psutil.pid_exists(pid))
        await found.agreed("one", "ready")
        assert int(await _pid(found.workers[1])) != pid

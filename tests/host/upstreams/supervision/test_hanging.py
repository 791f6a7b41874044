"""A server that stops working under calls is replaced; one that is only slow, or busy with a call, is not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.client.scripted_server import handshake_server, settle, stateless
from tests.host.gateway.support import OLD, allow, gone, on_stage, until
from tests.host.supervised import program, scripted, supervising
from trunkline.errors import RequestFailed, RequestTimeout
from trunkline.host.host import Host
from trunkline.protocol.jsonrpc import Response

TOOLS = {"tools": [{"name": "add", "inputSchema": {"type": "object"}}]}
DONE = {"content": [{"type": "text", "text": "done"}]}


@asynccontextmanager
async def hosted(folder: Path, module: str, *arguments: str, **settings: Any) -> AsyncIterator[Host]:
    """Host one of the programs under the name ``a``, all of whose tools are allowed."""
    entry = program("a", module, *arguments, **settings)
    async with Host.open({"a": entry}, folder=folder, policy=allow("a"), audit=False) as host:
        yield host


async def _call(host: Host, **arguments: Any) -> str:
    name = "a/work" if arguments else "a/pid"
    return (await host.call_tool(name, arguments, on_progress=lambda *news: None)).text


@pytest.fixture
def short_pings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a server less time to answer the pings after a call that timed out."""
    monkeypatch.setattr("trunkline.host.upstreams.supervision.monitor._PING_SECONDS", 0.3)
    monkeypatch.setattr("trunkline.host.upstreams.supervision.monitor._AGAIN_SECONDS", 0.05)


@pytest.mark.usefixtures("short_pings")
async def test_calls_that_time_out_together_end_in_one_restart(tmp_path: Path) -> None:
    hang = tmp_path / "hang"
    async with hosted(tmp_path, "stops_answering", str(hang), timeout=1.0) as host:
        pid = int(await _call(host))
        hang.write_text(str(pid))
        outcomes = await asyncio.gather(*(_call(host) for _ in range(4)), return_exceptions=True)
        assert [type(each) for each in outcomes] == [RequestTimeout] * 4
        # It waits while the server is asked whether it lives, and is sent to the one that takes its place.
        assert int(await _call(host)) != pid
        assert host.status()[0].restarts == 1


async def test_a_server_that_is_only_slow_is_not_replaced(tmp_path: Path) -> None:
    async with hosted(tmp_path, "works", timeout=1.0) as host:
        pid = await _call(host)
        with pytest.raises(RequestTimeout):
            await _call(host, seconds=1.5)
        assert await _call(host) == pid
        assert host.status()[0].restarts == 0


@pytest.mark.usefixtures("short_pings")
async def test_a_server_that_reports_progress_of_another_call_is_not_replaced(tmp_path: Path) -> None:
    async with hosted(tmp_path, "works", timeout=1.0) as host:
        pid = await _call(host)
        # Longer than a call may be silent and two pings together; it answers nothing else meanwhile.
        long = asyncio.ensure_future(_call(host, seconds=2.5, progress=True))
        await asyncio.wait([long], timeout=0.01)
        with pytest.raises(RequestTimeout):
            await _call(host)
        assert await long == pid
        assert await _call(host) == pid
        assert host.status()[0].restarts == 0


@pytest.mark.usefixtures("short_pings")
async def test_a_connection_of_one_client_whose_process_hangs_is_replaced(tmp_path: Path) -> None:
    hang = tmp_path / "hang"
    servers = {"a": program("a", "stops_answering", str(hang), timeout=1.0)}
    async with (
        on_stage(servers, tmp_path) as stage,
        stage.client(OLD, elicitation=lambda params: None) as client,
    ):
        pid = int((await client.call_tool("a__pid")).text)
        assert pid != stage.host.status()[0].pid
        hang.write_text(str(pid))
        with pytest.raises(RequestFailed, match="no answer after 1 s"):
            await client.call_tool("a__pid")
        assert int((await client.call_tool("a__pid")).text) != pid
        await until(lambda: gone(pid))
        assert stage.host.status()[0].restarts == 0


# --- with a clock moved by hand


def _handshake() -> Any:
    return handshake_server({"tools/list": TOOLS, "tools/call": None, "ping": None}, tools={})


async def test_another_call_within_its_deadline_is_waited_for() -> None:
    server = _handshake()
    async with supervising({"a": scripted("a", server, era="handshake")}) as stage:
        client, upstream = await stage.upstream().connected_client(), stage.upstream()

        async def call() -> Any:
            with upstream.track_call():
                return await client.call_tool("add")

        first = asyncio.ensure_future(call())
        await stage.pass_time(50.0, steps=50)
        second = asyncio.ensure_future(call())
        await stage.pass_time(45.0, steps=45)
        assert isinstance(first.exception(), RequestTimeout)
        assert server.methods.count("ping") == 2
        assert upstream.state == "ready"
        assert not upstream.running
        requests = [method for method in server.methods if not method.startswith("notifications/")]
        calls = [id for id, method in zip(server.ids, requests, strict=True) if method == "tools/call"]
        server.stage.put(Response(calls[1], DONE))
        assert (await second).text == "done"
        await stage.pass_time(2.0)
        assert upstream.running
        assert "waiting" not in stage.states()


async def test_a_server_is_ended_when_the_last_call_on_it_timed_out() -> None:
    server = _handshake()
    async with supervising({"a": scripted("a", server, era="handshake")}) as stage:
        client, upstream = await stage.upstream().connected_client(), stage.upstream()

        async def call() -> None:
            with upstream.track_call():
                await client.call_tool("add")

        first = asyncio.ensure_future(call())
        await stage.pass_time(50.0, steps=50)
        second = asyncio.ensure_future(call())
        await stage.pass_time(59.0, steps=59)
        assert "waiting" not in stage.states()
        await stage.pass_time(3.0, steps=3)
        await stage.until_count("waiting", 1)
        assert isinstance(first.exception(), RequestTimeout)
        assert isinstance(second.exception(), RequestTimeout)
        assert "did not answer 2 pings" in (upstream.status.last_error or "")


async def test_a_stateless_server_is_asked_by_discover() -> None:
    server = stateless({"tools/list": TOOLS, "tools/call": None}, tools={})
    async with supervising({"a": scripted("a", server)}) as stage:
        client, upstream = await stage.upstream().connected_client(), stage.upstream()

        async def call() -> None:
            with upstream.track_call():
                await client.call_tool("add")

        calling = asyncio.ensure_future(call())
        await stage.pass_time(61.0, steps=61)
        assert isinstance(calling.exception(), RequestTimeout)
        await settle()
        assert server.methods.count("server/discover") == 2
        assert upstream.running
        assert "waiting" not in stage.states()

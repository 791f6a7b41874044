"""The metrics of a gateway: each server behind it, and when the gateway is ready."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from tests.host.gateway.support import NEW, Web, allow, over_http, until
from tests.telemetry.support import free_port, get, samples, shop
from trunkline import Server
from trunkline.errors import RequestFailed
from trunkline.host.config.model import ServerEntry, ServerSettings, Source
from trunkline.host.host import Host


@asynccontextmanager
async def gateway(folder: Path, servers: Any) -> AsyncIterator[tuple[Web, Host, str]]:
    port = free_port()
    async with (
        Host.open(servers, folder=folder, policy=allow("s"), audit=False) as host,
        over_http(host, metrics=port) as web,
    ):
        yield web, host, f"http://127.0.0.1:{port}"


async def test_calls_are_counted_by_server(tmp_path: Path) -> None:
    async with (
        gateway(tmp_path, {"s": shop(name="what the server calls itself")}) as (web, _, metrics),
        web.client(NEW) as client,
    ):
        await client.call_tool("s__add", {"a": 1, "b": 2})
        with suppress(RequestFailed):
            await client.call_tool("s__explode")
        answer = await get(metrics)
        ready = await get(metrics, "/readyz")
    found = samples(answer.text)
    assert found.value("trunkline_tool_calls_total", tool="s__add", outcome="ok") == 1
    assert found.value("trunkline_upstream_calls_total", server="s", outcome="ok") == 1
    assert found.value("trunkline_upstream_calls_total", server="s", outcome="error") == 1
    assert found.value("trunkline_upstream_call_duration_seconds_count", server="s") == 2
    assert found.value("trunkline_upstream_state", server="s", state="ready") == 1
    assert found.value("trunkline_upstream_restarts_total", server="s") == 0
    assert found.value("trunkline_upstream_calls_in_flight", server="s") == 0
    assert found.value("trunkline_upstream_queue", server="s") == 0
    assert found.value("trunkline_upstream_tools", server="s") == 4
    assert found.value("trunkline_errors_total", code="-31999") == 1
    assert (found.value("trunkline_sent_bytes_total") or 0) > 0
    assert "what the server calls itself" not in answer.text
    assert ready.status == 200


async def test_calls_that_wait_for_a_slot_are_a_queue(tmp_path: Path) -> None:
    server, go, began = Server("slow"), asyncio.Event(), asyncio.Event()

    @server.tool
    async def wait() -> str:
        """Wait."""
        began.set()
        await go.wait()
        return "done"

    entry = ServerEntry(name="s", source=Source("given"), target=server, settings=ServerSettings(concurrency=1))
    async with gateway(tmp_path, {"s": entry}) as (web, host, metrics), web.client(NEW) as client:
        calls = [asyncio.ensure_future(client.call_tool("s__wait")) for _ in range(3)]
        await began.wait()
        router, upstream = host._open.core.router, host._open.core.supervisor.upstreams["s"]
        await until(lambda: router.queued(upstream) == 2)
        found = samples((await get(metrics)).text)
        go.set()
        await asyncio.gather(*calls)
    assert found.value("trunkline_upstream_queue", server="s") == 2
    assert found.value("trunkline_upstream_calls_in_flight", server="s") == 3


async def test_restarts_are_counted(tmp_path: Path) -> None:
    async with gateway(tmp_path, {"s": shop()}) as (_, host, metrics):
        await host._open.core.supervisor.upstreams["s"].restart()
        await host._open.core.supervisor.settled(10, everything=True)
        found = samples((await get(metrics)).text)
    assert found.value("trunkline_upstream_restarts_total", server="s") == 1


async def test_nothing_is_measured_after_the_gateway_has_ended(tmp_path: Path) -> None:
    async with Host.open({"s": shop()}, folder=tmp_path, policy=allow("s"), audit=False) as host:
        async with over_http(host, metrics=free_port()):
            assert host._open.core.supervisor.upstreams["s"].call_metrics is not None
        assert host._open.core.supervisor.upstreams["s"].call_metrics is None

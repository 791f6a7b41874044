"""The metrics and the health of a server, over HTTP and stdio, read as Prometheus reads them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.telemetry.support import free_port, get, over_http, samples, shop
from trunkline import Client, ConfigError, Server
from trunkline.errors import RequestFailed
from trunkline.protocol.revisions import NEWEST, NEWEST_HANDSHAKE
from trunkline.server.replacement import Reloader
from trunkline.server.runtime import runtime_for

OLD, NEW = NEWEST_HANDSHAKE.name, NEWEST.name
ERAS = pytest.mark.parametrize("era", [OLD, NEW], ids=["handshake", "stateless"])


@ERAS
async def test_requests_are_counted_by_method_outcome_and_era(era: str) -> None:
    word = "handshake" if era == OLD else "stateless"
    async with over_http(shop()) as (url, metrics), Client(url, revision=era) as client:
        await client.call_tool("add", {"a": 1, "b": 2})
        await client.call_tool("fail", raise_on_error=False)
        with suppress(RequestFailed):
            await client.call_tool("made-up-by-a-caller")
        answer = await get(metrics)
    found = samples(answer.text)
    assert answer.kind == "text/plain; version=0.0.4; charset=utf-8"
    assert found.value("trunkline_requests_total", method="tools/call", outcome="ok", era=word) == 1
    assert found.value("trunkline_requests_total", method="tools/call", outcome="tool_error", era=word) == 1
    assert found.value("trunkline_tool_calls_total", tool="add", outcome="ok") == 1
    assert found.value("trunkline_tool_call_duration_seconds_count", tool="add") == 1
    assert found.value("trunkline_requests_in_flight") == 0
    assert found.value("trunkline_errors_total", code="-32602") == 1
    assert found.label_values("trunkline_tool_calls_total", "tool") == {"add", "fail", "other"}
    assert (found.value("trunkline_received_bytes_total") or 0) > 100
    assert (found.value("trunkline_sent_bytes_total") or 0) > 100
    assert "secret-argument" not in answer.text
    assert "made-up" not in answer.text


async def test_a_method_that_a_caller_made_up_is_no_label() -> None:
    async with over_http(shop()) as (url, metrics), Client(url, revision=NEW) as client:
        with suppress(RequestFailed):
            await client.request("made/up")
        answer = await get(metrics)
    assert "made/up" not in answer.text
    found = samples(answer.text)
    assert found.value("trunkline_requests_total", method="other", outcome="rejected", era="unknown") == 1


@ERAS
async def test_questions_to_clients_are_counted(era: str) -> None:
    pending: list[float | None] = []

    async with over_http(shop()) as (url, metrics):

        async def answer(question: Any) -> str:
            found = samples((await get(metrics)).text)
            pending.append(found.value("trunkline_client_requests_pending", method="elicitation/create"))
            return "Ada"

        async with Client(url, revision=era, elicitation=answer) as client:
            assert (await client.call_tool("ask")).data == "Ada"
        found = samples((await get(metrics)).text)
    # In the stateless era the question is a result: the server waits for nothing.
    assert pending == [1 if era == OLD else None]
    assert found.value("trunkline_client_requests_total", method="elicitation/create") == 1
    asked = found.value("trunkline_requests_total", method="tools/call", outcome="input_required", era="stateless")
    assert asked == (None if era == OLD else 1)


async def test_sessions_are_counted_while_they_are_open() -> None:
    async with over_http(shop()) as (url, metrics):
        async with Client(url, revision=OLD):
            inside = samples((await get(metrics)).text).value("trunkline_sessions")
        outside = samples((await get(metrics)).text).value("trunkline_sessions")
    assert (inside, outside) == (1, 0)


async def test_a_listen_stream_is_a_stream_and_not_a_request_in_flight() -> None:
    async with over_http(shop()) as (url, metrics), Client(url, revision=NEW) as client, client.listen(tools=True):
        found = samples((await get(metrics)).text)
    assert found.value("trunkline_open_streams", kind="listen") == 1
    assert found.value("trunkline_open_streams", kind="sse") == 1
    assert found.value("trunkline_requests_in_flight") == 0


async def test_a_running_task_has_a_state() -> None:
    server, go = Server("slow"), asyncio.Event()

    @server.tool(task="required")
    async def slow() -> str:
        """Wait."""
        await go.wait()
        return "done"

    async with over_http(server) as (url, metrics), Client(url, revision=NEW) as client:
        task = await client.start_task("slow")
        found = samples((await get(metrics)).text)
        go.set()
        await task.result()
    assert found.value("trunkline_tasks", state="working") == 1


async def test_a_server_that_takes_over_is_counted_in_the_same_metrics() -> None:
    server, new = shop(), shop()
    replaceable = Reloader(server)
    async with over_http(server) as (url, metrics), Client(url, revision=OLD) as client:
        await client.call_tool("add", {"a": 1, "b": 2})
        await replaceable.replace(new, seconds=10)
        await client.call_tool("add", {"a": 1, "b": 2})
        found = samples((await get(metrics)).text)
    await replaceable.aclose()
    assert found.value("trunkline_tool_calls_total", tool="add", outcome="ok") == 2
    assert found.value("trunkline_sessions") == 1


# --- health ----------------------------------------------------------------------------------------------------------


async def test_a_server_is_ready_once_its_lifespan_is_entered_and_no_longer_while_it_stops() -> None:
    entered, working, finish = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        await entered.wait()
        yield

    server = Server("s", lifespan=lifespan)

    @server.tool
    async def work() -> str:
        """Work."""
        working.set()
        await finish.wait()
        return "done"

    async with over_http(server) as (url, metrics):
        before = await get(metrics, "/readyz")
        alive = await get(metrics, "/healthz")
        entered.set()
        async with Client(url, revision=NEW) as client:
            call = asyncio.ensure_future(client.call_tool("work"))
            await working.wait()
            ready = await get(metrics, "/readyz")
            served = runtime_for(server).metrics
            assert served is not None
            draining = asyncio.ensure_future(served.endpoints[0].drain(10))
            await asyncio.sleep(0)
            stopping = await get(metrics, "/readyz")
            finish.set()
            assert (await call).data == "done"
            await draining
    assert (before.status, before.text) == (503, "not ready: the lifespan is not entered yet\n")
    assert (alive.status, ready.status) == (200, 200)
    assert (stopping.status, stopping.text) == (503, "not ready: the server is stopping\n")


async def test_a_failed_lifespan_is_not_ready() -> None:
    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        raise OSError("no database")
        yield

    async with over_http(Server("s", lifespan=lifespan)) as (_, metrics):
        await asyncio.sleep(0)
        assert (await get(metrics, "/readyz")).text == "not ready: the lifespan failed\n"


# --- the listener ----------------------------------------------------------------------------------------------------


async def test_a_page_under_another_name_or_path_reads_nothing() -> None:
    async with over_http(shop()) as (_, metrics):
        assert (await get(metrics, Host="attacker.example")).status == 403
        assert (await get(metrics, Host="localhost:1")).status == 200
        assert (await get(metrics, "/")).status == 404


async def _raw(metrics: str, data: bytes) -> bytes:
    host, port = metrics.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(data)
    try:
        return await reader.read()
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"HTTP/1.1 405"),
        (b"\x16\x03\x01\r\n\r\n", b"HTTP/1.1 405"),
        (b"HEAD /healthz HTTP/1.1\r\n\r\n", b"HTTP/1.1 200"),
        (b"GET /healthz?a=b HTTP/1.0\r\n\r\n", b"HTTP/1.1 200"),
        (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n\r\n", b""),
    ],
    ids=["post", "noise", "head", "query", "too-long"],
)
async def test_only_get_and_head_are_answered(data: bytes, status: bytes) -> None:
    async with over_http(shop()) as (_, metrics):
        answer = b""
        with suppress(ConnectionError):
            answer = await _raw(metrics, data)
        assert answer[:12] == status


@pytest.mark.parametrize("address", ["", "x", "host:", "1:2:3"])
async def test_an_address_is_a_port_or_host_and_port(address: str) -> None:
    with pytest.raises(ConfigError, match="not an address"):
        await shop().run_async("http", port=0, metrics=address)


async def test_an_address_in_use_is_one_sentence() -> None:
    async with over_http(shop()) as (_, metrics):
        with pytest.raises(ConfigError, match=r"cannot listen on .* for metrics"):
            await shop().run_async("http", port=0, metrics=metrics.removeprefix("http://"))


# --- stdio and the command line --------------------------------------------------------------------------------------

PROGRAM = """
from trunkline import Server
server = Server("tiny")

@server.tool
def add(a: int, b: int) -> int:
    return a + b
"""


async def test_a_stdio_server_run_by_the_command_line_serves_metrics(tmp_path: Path) -> None:
    (tmp_path / "tiny.py").write_text(PROGRAM, encoding="utf-8")
    port = free_port()
    command = [sys.executable, "-m", "trunkline", "run", str(tmp_path / "tiny.py"), "--metrics", str(port)]
    async with Client(command) as client:
        assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
        found = samples((await get(f"http://127.0.0.1:{port}")).text)
        ready = await get(f"http://127.0.0.1:{port}", "/readyz")
    assert found.value("trunkline_tool_calls_total", tool="add", outcome="ok") == 1
    assert (found.value("trunkline_received_bytes_total") or 0) > 100
    assert (found.value("trunkline_sent_bytes_total") or 0) > 100
    assert (ready.status, ready.text) == (200, "ready\n")


def test_a_server_without_telemetry_loads_none() -> None:
    import subprocess

    source = "import sys, asyncio\nfrom trunkline import Server, Client\n" + (
        "async def main():\n s = Server('s')\n s.tool(lambda: 1, name='t')\n"
        " async with Client(s) as c: await c.call_tool('t')\n"
        "asyncio.run(main())\nprint([m for m in sys.modules if 'telemetry' in m])"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"

"""Workers that are replaced or stopped while clients call: no call is lost, and none is left waiting."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress

import psutil  # type: ignore[import-untyped]
import pytest

from tests.server.keep_alive_load import KeepAliveClient, Load, Lost, run_load
from tests.server.test_workers import children, two_workers, until, workers
from tests.transports.http.serving_support import tool
from tests.transports.http.shared.machines import Machine, Stream, web_client


async def test_no_call_is_lost_while_workers_are_replaced() -> None:
    with two_workers() as server:
        load = await run_load(server, lambda: workers(server), calls=3000, restarts=3, steps=5)
    assert load.lost == []
    # Each client was moved to another worker, and has lost nothing by that.
    assert load.connections > 16


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_call_of_a_hundred_thousand_is_lost_while_workers_are_replaced() -> None:
    # In a loop of its own: it takes longer than a test may that is a coroutine.
    with two_workers() as server:
        load = asyncio.run(run_load(server, lambda: workers(server), calls=100_000, restarts=3, steps=3))
    assert load.lost == []


async def serving(client: KeepAliveClient) -> int:
    """Return the worker that has the connection of a client."""
    return int(await client.call(1, "pid", {}))


async def test_an_idle_connection_of_a_worker_that_stops_gets_one_more_response() -> None:
    load = Load()
    with two_workers() as server:
        client = KeepAliveClient(server.url, load)
        pid = await serving(client)
        os.kill(pid, signal.SIGTERM)
        await until(lambda: not listens(server, pid))
        assert await serving(client) == pid
        # That response was the last one of its connection.
        assert load.connections == 1
        assert await serving(client) != pid
        assert load.connections == 2
        client.close()


async def test_a_connection_that_stays_silent_is_closed() -> None:
    with two_workers(limits={"retire_seconds": 0.5}) as server:
        client = KeepAliveClient(server.url, Load())
        pid = await serving(client)
        os.kill(pid, signal.SIGTERM)
        async with asyncio.timeout(120):
            assert await client.closed_by_server()
        await until(lambda: pid not in workers(server))
        client.close()


async def test_a_call_that_runs_is_finished_and_its_connection_kept_for_one_more() -> None:
    """The headers of a stream are sent long before its end, and could not say that the connection closes."""
    load = Load()
    with two_workers() as server:
        client = KeepAliveClient(server.url, load)
        pid = await serving(client)
        call = asyncio.create_task(client.call(2, "walk", {"n": 200}))
        await until(lambda: load.streams == 1)
        os.kill(pid, signal.SIGTERM)
        assert await call == "walked"
        assert await serving(client) == pid
        assert await serving(client) != pid
        assert load.connections == 2
        client.close()


@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_a_call_that_outlasts_its_worker_gets_an_error_and_is_not_left_waiting(era: str) -> None:
    load = Load()
    with two_workers(limits={"drain_seconds": 0.5}) as server:
        client = KeepAliveClient(server.url, load)
        if era == "handshake":
            await client.open_session()
        pid = await serving(client)
        call = asyncio.create_task(client.call(2, "wait", {}))
        await until(lambda: load.streams == 1)
        os.kill(pid, signal.SIGTERM)
        # The stream of a session is resumed at another worker, which knows that the first one is gone.
        with pytest.raises(Lost, match="has ended" if era == "handshake" else "without a response"):
            await asyncio.wait_for(call, 120)
        assert load.resumed == (1 if era == "handshake" else 0)
        client.close()


async def test_a_get_stream_ends_with_its_worker_and_is_resumed_at_another() -> None:
    with two_workers() as server:
        async with web_client() as client:
            await client.open(server)
            stream = await client.get(server)
            assert (await client.post(server, tool("tick", number=1)))[0] == 200
            assert (await stream.message())["params"]["number"] == 1
            before = workers(server)
            server.process.send_signal(signal.SIGHUP)
            # It ends as a complete response does, long before its client would notice a lost connection.
            assert await read_to_end(stream) == []
            last = stream.last
            stream = await client.get(server, last=last)
            await until(lambda: not before & workers(server))
            async with asyncio.timeout(120):
                assert (await client.post(server, tool("tick", number=2)))[0] == 200
                while (message := await stream.message()) is None:
                    # The worker that it was opened at was replaced too, perhaps before it sent an event.
                    last = stream.last or last
                    stream = await client.get(server, last=last)
                assert message["params"]["number"] == 2


async def read_to_end(stream: Stream) -> list[bytes]:
    """Read the rest of a stream; a connection that breaks raises an error. Return what was not a comment or an id."""
    rest: list[bytes] = []
    async with asyncio.timeout(120):
        while chunk := await stream.response.content.readany():
            rest += [line for line in chunk.splitlines() if line.startswith(b"data: {")]
    return rest


async def test_two_signals_end_the_workers_at_once() -> None:
    with two_workers(limits={"drain_seconds": 3600}) as server:
        client = KeepAliveClient(server.url, Load())
        await serving(client)
        call = asyncio.create_task(client.call(2, "nap", {"seconds": 3600}))
        server.process.send_signal(signal.SIGTERM)
        await until(lambda: not any(listens(server, pid) for pid in workers(server)))
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(120) == 0
        call.cancel()
        client.close()


def listens(server: Machine, pid: int) -> bool:
    """Return whether a worker has a listening socket."""
    process = next((child for child in children(server) if child.pid == pid), None)
    with suppress(psutil.NoSuchProcess):
        return process is not None and any(each.status == "LISTEN" for each in process.net_connections("tcp"))
    return False

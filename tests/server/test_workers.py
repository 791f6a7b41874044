"""``run("http", workers=N)``: real processes that share the load, are restarted, replaced and stopped."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest

from tests.backplane.conftest import own_redis, shared_redis
from tests.backplane.redis_server import RedisServer, needs_redis
from tests.host.gateway.workers.gateway_process import process_name
from tests.support import run_async
from tests.transports.http.serving_support import BOTH, META, modern_headers, notification, request, tool
from tests.transports.http.shared.machines import Machine, machine, web_client
from trunkline import Client, Server
from trunkline.errors import ConfigError
from trunkline.types import META_CLIENT_CAPABILITIES as META_CAPABILITIES

__all__ = ["own_redis", "shared_redis"]

STATELESS = "2026-07-28"
#: A server with handles and tasks.
KEEPING = Path(__file__).parent / "programs" / "keeping.py"


@pytest.fixture
def two() -> Iterator[Machine]:
    """A server with two workers, without a backplane and without a key."""
    with machine(workers=2, key=None) as started:
        yield started


async def served_by(server: Machine, calls: int = 20, revision: str = STATELESS) -> Counter[int]:
    """Make calls, each on a connection of its own; return the processes that served them."""
    served: Counter[int] = Counter()
    for _ in range(calls):
        async with Client(server.url, revision=revision) as client:
            served[int((await client.call_tool("pid")).content[0].text)] += 1  # type: ignore[union-attr]
    return served


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds, for a bounded time."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110  what is observed has no event
            await asyncio.sleep(0.01)


def workers(server: Machine) -> set[int]:
    return {child.pid for child in children(server) if process_name(child).startswith("tl-worker-")}


def children(server: Machine) -> list[psutil.Process]:
    return list(psutil.Process(server.process.pid).children())


def store(server: Machine) -> int:
    """Return the process that holds what the workers share."""
    return int(next(child.pid for child in children(server) if process_name(child) == "tl-store"))


async def test_the_workers_share_the_load(two: Machine) -> None:
    served = await served_by(two, 20)
    assert sorted(served.values()) == [10, 10]
    assert set(served) == workers(two)


async def test_a_worker_that_dies_is_restarted_and_the_others_serve_meanwhile(two: Machine) -> None:
    before = workers(two)
    os.kill(min(before), signal.SIGKILL)
    await until(lambda: not _alive(min(before)))
    assert sum((await served_by(two, 6)).values()) == 6
    await until(lambda: len(workers(two)) == 2 and min(before) not in workers(two))
    async with asyncio.timeout(30):
        while len(await served_by(two, 4)) < 2:
            pass


async def test_a_signal_stops_the_workers_after_their_requests(two: Machine) -> None:
    async with Client(two.url, revision=STATELESS) as client:
        running = asyncio.create_task(client.call_tool("nap", {"seconds": 0.5}))
        await until(lambda: two.process.poll() is None and bool(psutil.Process(two.process.pid).children()))
        await asyncio.sleep(0.2)
        two.process.send_signal(signal.SIGTERM)
        assert not (await running).is_error
    assert two.process.wait(20) == 0


async def test_sighup_replaces_the_workers_one_after_another(two: Machine) -> None:
    before = workers(two)
    two.process.send_signal(signal.SIGHUP)
    served = 0
    async with asyncio.timeout(60):
        while workers(two) & before or len(workers(two)) != 2:
            served += sum((await served_by(two, 2)).values())
    assert served > 0
    assert set(await served_by(two, 4)) == workers(two)


async def test_one_listener_serves_the_metrics_of_all_workers() -> None:
    port = _free_port()
    with machine(workers=2, key=None, metrics=port) as server:
        assert sum((await served_by(server, 6)).values()) == 6
        pages = await _pages(port, "metrics", "healthz", "readyz")
        assert [status for status, _ in pages] == [200, 200, 200]
        assert _calls(pages[0][1]) == 6
        assert _value(pages[0][1], "trunkline_workers") == 2
        assert _value(pages[0][1], "trunkline_ready") == 1
        # A histogram has the calls of both workers.
        assert 'trunkline_request_duration_seconds_count{method="tools/call"} 6' in pages[0][1]


async def test_counts_never_go_back_when_workers_are_killed_or_replaced() -> None:
    port = _free_port()
    with machine(workers=2, key=None, metrics=port) as server:
        await served_by(server, 4)
        assert _calls((await _pages(port, "metrics"))[0][1]) == 4
        before = workers(server)
        os.kill(min(before), signal.SIGKILL)
        await until(lambda: not _alive(min(before)))
        await until(lambda: len(workers(server)) == 2)
        assert _calls((await _pages(port, "metrics"))[0][1]) == 4
        before = workers(server)
        server.process.send_signal(signal.SIGHUP)
        served = 4
        async with asyncio.timeout(60):
            while workers(server) & before or len(workers(server)) != 2:
                served += sum((await served_by(server, 2)).values())
                status, text = (await _pages(port, "metrics"))[0]
                # No worker is stopped before its successor serves, and a replaced one reports its last counts.
                assert (status, _calls(text)) == (200, served)
                assert (await _pages(port, "readyz"))[0][0] == 200


@pytest.mark.parametrize("form", ["text", "json"])
async def test_a_log_line_names_its_worker(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "server.py"
    program.write_text(LOGGING)
    monkeypatch.setenv("TRUNKLINE_LOG_FORMAT", form)
    log = tmp_path / "log"
    with log.open("w") as written, machine(workers=2, key=None, program=program, stderr=written) as server:
        served = await served_by(server, 4)
        lines = [line for line in log.read_text().splitlines() if "asked for its pid" in line]
        names = {
            child.pid: int(process_name(child).rpartition("-")[2]) for child in children(server) if child.pid in served
        }
    assert len(lines) == 4
    if form == "json":
        assert {(line["pid"], line["worker"]) for line in map(json.loads, lines)} == set(names.items())
    else:
        said = {f"worker {number} (process {pid}): asked for its pid" for pid, number in names.items()}
        assert set(lines) == said


LOGGING = """
import json, logging, os, sys
from trunkline import Server

options = json.loads(sys.argv[1])
server = Server("logging")

@server.tool
async def pid() -> int:
    logging.getLogger("shop").warning("asked for its pid")
    return os.getpid()

def say(url):
    print(f"{url}/mcp", flush=True)

server.run("http", port=0, started=say, **options)
"""


async def test_the_metrics_of_what_the_workers_share() -> None:
    port = _free_port()
    with machine(workers=2, key=None, metrics=port) as server:
        async with web_client() as client:
            await client.open(server)
            stream = await client.get(server)
            await client.post(server, tool("tick", number=1))
            assert (await stream.message())["params"] == {"number": 1}
            text = (await _pages(port, "metrics"))[0][1]
            assert _value(text, "trunkline_backplane_reachable") == 1
            assert _value(text, "trunkline_backplane_reconnects_total") == 0
            assert _value(text, 'trunkline_backplane_operations_total{outcome="ok"}') > 4
            assert _value(text, 'trunkline_backplane_operations_total{outcome="error"}') == 0
            assert _value(text, "trunkline_backplane_operation_seconds_total") > 0
            assert _value(text, "trunkline_backplane_last_success_time_seconds") > 1e9
        os.kill(store(server), signal.SIGKILL)
        async with asyncio.timeout(30):
            while _value((await _pages(port, "metrics"))[0][1], "trunkline_backplane_reconnects_total") < 2:
                pass


async def test_a_stateless_call_does_not_touch_what_the_workers_share() -> None:
    port = _free_port()
    name = 'trunkline_backplane_operations_total{outcome="ok"}'
    with machine(workers=2, key=None, metrics=port) as server:
        await served_by(server, 4)
        before = _value((await _pages(port, "metrics"))[0][1], name)
        assert sum((await served_by(server, 20)).values()) == 20
        assert _value((await _pages(port, "metrics"))[0][1], name) == before


@needs_redis
async def test_the_metrics_say_whether_redis_can_be_reached(own_redis: RedisServer) -> None:
    port = _free_port()
    with machine(workers=2, backplane=own_redis.url, metrics=port) as server:
        await served_by(server, 2)
        assert _value((await _pages(port, "metrics"))[0][1], "trunkline_backplane_reachable") == 1
        own_redis.stop()
        async with asyncio.timeout(30):
            while _value((await _pages(port, "metrics"))[0][1], "trunkline_backplane_reachable") == 1:
                pass
        own_redis.start()
        async with asyncio.timeout(30):
            while _value((await _pages(port, "metrics"))[0][1], "trunkline_backplane_reachable") == 0:
                pass
        text = (await _pages(port, "metrics"))[0][1]
        assert _value(text, "trunkline_backplane_reconnects_total") >= 2


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


async def _pages(port: int, *paths: str) -> list[tuple[int, str]]:
    found = []
    async with web_client() as client:
        for path in paths:
            async with client.http.get(f"http://127.0.0.1:{port}/{path}") as response:
                found.append((response.status, await response.text()))
    return found


def _value(text: str, name: str) -> float:
    return float(next(line.rpartition(" ")[2] for line in text.splitlines() if line.startswith(f"{name} ")))


def _calls(text: str) -> float:
    lines = [line for line in text.splitlines() if line.startswith("trunkline_tool_calls_total{")]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


async def test_workers_stop_when_their_supervisor_is_killed(two: Machine) -> None:
    left = [child.pid for child in children(two)]
    assert len(left) == 3
    two.process.kill()
    two.process.wait(10)
    await until(lambda: not any(_alive(pid) for pid in left))


def _alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


async def test_a_call_goes_on_at_another_worker_without_a_configured_key(two: Machine) -> None:
    async with web_client() as client:

        async def call(**more: object) -> dict[str, Any]:
            params = {
                "name": "greet",
                "arguments": {},
                "_meta": {**META, META_CAPABILITIES: {"elicitation": {}}},
                **more,
            }
            headers = {**modern_headers("tools/call", "greet"), "accept": BOTH}
            async with client.http.post(two.url, json=request("tools/call", params), headers=headers) as response:
                found: dict[str, Any] = (await response.json())["result"]
                return found

        asked = await call()
        answers = {key: {"action": "accept", "content": {"value": "Ada"}} for key in asked["inputRequests"]}
        result = await call(requestState=asked["requestState"], inputResponses=answers)
        assert result["content"][0]["text"] == "hello Ada"


async def test_without_a_backplane_a_session_is_served_by_all_workers(two: Machine) -> None:
    async with web_client() as client:
        await client.open(two)
        served = {(await client.post(two, tool("pid")))[1]["result"]["content"][0]["text"] for _ in range(4)}
        assert served == {str(pid) for pid in workers(two)}
        assert await client.delete(two) in (200, 204)
        assert {(await client.post(two, tool("pid")))[0] for _ in range(4)} == {404}


async def test_without_a_backplane_a_question_is_answered_at_another_worker(two: Machine) -> None:
    async with web_client() as client:
        await client.open(two, {"elicitation": {}})
        stream = await client.stream(two, tool("greet"))
        asked = await stream.message()
        answer = {"action": "accept", "content": {"value": "Ada"}}
        # Each request is on a connection of its own, which reaches the next worker: one of two is another one.
        assert (await client.post(two, notification("notifications/roots/list_changed")))[0] == 202
        status, _ = await client.post(two, {"jsonrpc": "2.0", "id": asked["id"], "result": answer})
        assert status == 202
        assert (await stream.message())["result"]["content"][0]["text"] == "hello Ada"


async def test_without_a_backplane_a_change_reaches_the_streams_of_all_workers(two: Machine) -> None:
    async with web_client() as client:
        await client.open(two)
        stream = await client.get(two)
        for number in range(4):
            await client.post(two, tool("tick", number=number))
        heard = [(await stream.message())["params"]["number"] for _ in range(4)]
        assert sorted(heard) == [0, 1, 2, 3]


async def test_without_a_backplane_all_workers_have_the_same_handles() -> None:
    with machine(workers=2, key=None, program=KEEPING) as server:
        served: set[str] = set()
        async with Client(server.url, revision=STATELESS) as client:
            draft = await _text(client, "start")
        for number in range(1, 7):
            async with Client(server.url, revision=STATELESS) as client:
                found, pid = (await _text(client, "add", {"draft": draft})).split()
                assert int(found) == number
                served.add(pid)
        assert served == {str(pid) for pid in workers(server)}


async def test_without_a_backplane_all_workers_have_the_same_tasks() -> None:
    with machine(workers=2, key=None, program=KEEPING) as server:
        async with Client(server.url, revision=STATELESS) as client:
            id = (await client.start_task("work")).id
        asked: set[int] = set()
        async with asyncio.timeout(30):
            while len(asked) < 2:
                async with Client(server.url, revision=STATELESS) as client:
                    # The same connection, so the same worker.
                    asked.add(int(await _text(client, "pid")))
                    found = client.task(id)
                    await found.refresh()
                    assert found.status in ("working", "completed")
        async with Client(server.url, revision=STATELESS) as client:
            result = await client.task(id).result(timeout=30)
            assert str(result.content[0].text).startswith("done by")  # type: ignore[union-attr]


async def test_what_the_workers_share_is_lost_with_its_process_and_they_go_on(two: Machine) -> None:
    async with web_client() as client:
        await client.open(two)
        before, old = workers(two), store(two)
        os.kill(old, signal.SIGKILL)
        await until(lambda: any(process_name(child) == "tl-store" and child.pid != old for child in children(two)))
        assert sum((await served_by(two, 4)).values()) == 4
        async with asyncio.timeout(30):
            while (status := (await client.post(two, tool("pid")))[0]) != 404:
                assert status in (200, 503)
        client.session = ""
        await client.open(two)
        assert {(await client.post(two, tool("pid")))[0] for _ in range(4)} == {200}
        assert workers(two) == before


async def test_what_the_workers_share_outlives_their_replacement(two: Machine) -> None:
    async with web_client() as client:
        await client.open(two)
        before = workers(two)
        two.process.send_signal(signal.SIGHUP)
        async with asyncio.timeout(60):
            while workers(two) & before or len(workers(two)) != 2:
                assert (await client.post(two, tool("pid")))[0] == 200
        assert {(await client.post(two, tool("pid")))[0] for _ in range(4)} == {200}


async def _text(client: Client, name: str, arguments: dict[str, Any] | None = None) -> str:
    return str((await client.call_tool(name, arguments or {})).content[0].text)  # type: ignore[union-attr]


@needs_redis
async def test_with_a_backplane_a_session_is_served_by_all_workers(shared_redis: RedisServer) -> None:
    with machine(workers=2, backplane=shared_redis.url) as server:
        async with web_client() as client:
            await client.open(server)
            served = {(await client.post(server, tool("pid")))[1]["result"]["content"][0]["text"] for _ in range(4)}
            assert served == {str(pid) for pid in workers(server)}


def test_a_worker_that_cannot_start_ends_the_supervisor() -> None:
    with machine(workers=2, key=None, path="nowhere", expect=False) as refused:
        _, said = refused.process.communicate(timeout=30)
    assert (refused.process.returncode, 'must start with "/"' in said) == (2, True)


@pytest.mark.parametrize("given", [0, -1, True, "4", 100_000], ids=repr)
def test_a_number_of_workers_must_be_one(given: object) -> None:
    from trunkline.server.workers import worker_count

    with pytest.raises(ConfigError, match="workers="):
        worker_count(given)


def test_an_unknown_option_is_reported_before_anything_starts() -> None:
    with pytest.raises(TypeError, match="did you mean 'port'"):
        Server("test").run("http", workers=2, prot=1)  # type: ignore[call-arg]


def test_several_workers_need_processes_of_their_own() -> None:
    with pytest.raises(ConfigError, match=r"server.run\(\)"):
        run_async(Server("test").run_async("http", workers=2))

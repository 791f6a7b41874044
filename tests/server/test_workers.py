"""``run("http", workers=N)``: real processes that share the load, are restarted, replaced and stopped."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest

from tests.host.gateway.workers.gateway_process import process_name
from tests.store.conftest import own_redis
from tests.store.redis_server import RedisServer, needs_redis
from tests.support import run_async
from tests.telemetry.support import Samples, free_port, get, samples
from tests.transports.http.serving_support import BOTH, META, modern_headers, notification, request, tool
from tests.transports.http.shared.machines import Machine, machine, web_client
from trunkline import Client, Server
from trunkline.errors import ConfigError, TrunklineError
from trunkline.types import META_CLIENT_CAPABILITIES as META_CAPABILITIES

__all__ = ["own_redis"]

STATELESS = "2026-07-28"
#: A server with handles and tasks.
KEEPING = Path(__file__).parent / "programs" / "keeping.py"


@contextmanager
def two_workers(**options: Any) -> Iterator[Machine]:
    """Run a server with two workers, without a store and without a key."""
    with machine(workers=2, key=None, **options) as started:
        yield started


@pytest.fixture(scope="module")
def metrics() -> str:
    """The address of the metrics of the server that tests share."""
    return f"http://127.0.0.1:{free_port()}"


@pytest.fixture(scope="module")
def two(metrics: str) -> Iterator[Machine]:
    """A server with two workers for tests that leave its processes as they are."""
    with two_workers(metrics=metrics.removeprefix("http://")) as started:
        yield started


@pytest.fixture(scope="module")
def keeping() -> Iterator[Machine]:
    """A server with handles and tasks, for tests that leave its processes as they are."""
    with two_workers(program=KEEPING) as started:
        yield started


async def served_by(server: Machine, calls: int = 20) -> Counter[int]:
    """Make calls, each on a connection of its own; return the processes that served them."""
    served: Counter[int] = Counter()
    for _ in range(calls):
        async with Client(server.url, revision=STATELESS) as client:
            served[int(await _text(client, "pid"))] += 1
    return served


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds, for a bounded time."""
    async with asyncio.timeout(120):
        while not condition():  # noqa: ASYNC110  what is observed has no event
            await asyncio.sleep(0.01)


def workers(server: Machine) -> set[int]:
    """Return the processes that serve."""
    return {child.pid for child in children(server) if process_name(child).startswith("tl-worker-")}


def children(server: Machine) -> list[psutil.Process]:
    """Return all processes of a server but the first."""
    return list(psutil.Process(server.process.pid).children())


async def values(metrics: str) -> Samples:
    """Return the metrics of a server."""
    answer = await get(metrics)
    assert answer.status == 200
    return samples(answer.text)


def tool_calls(found: Samples) -> float:
    """Return how many calls of tools the workers have counted together."""
    return sum(value for (name, _), value in found.items() if name == "trunkline_tool_calls_total")


async def _text(client: Client, name: str, arguments: dict[str, Any] | None = None) -> str:
    return str((await client.call_tool(name, arguments or {})).content[0].text)  # type: ignore[union-attr]


def _alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


# --- workers share what one process would have ------------------------------------------------------------------------


async def test_the_workers_share_the_load(two: Machine) -> None:
    async with AsyncExitStack() as stack, asyncio.timeout(120):
        served: set[int] = set()
        # Each keeps its connection: a worker that has more of them leaves the next ones to the other.
        while served != workers(two):
            client = await stack.enter_async_context(Client(two.url, revision=STATELESS))
            served.add(int(await _text(client, "pid")))


async def test_one_listener_serves_the_metrics_of_all_workers(two: Machine, metrics: str) -> None:
    before = await values(metrics)
    assert sum((await served_by(two, 6)).values()) == 6
    after = await values(metrics)
    assert [(await get(metrics, path)).status for path in ("/healthz", "/readyz")] == [200, 200]
    assert tool_calls(after) - tool_calls(before) == 6
    assert (after.value("trunkline_workers"), after.value("trunkline_ready")) == (2, 1)
    # A histogram has the calls of both workers.
    assert after.value("trunkline_request_duration_seconds_count", method="tools/call") == tool_calls(after)


async def test_a_stateless_call_does_not_touch_what_the_workers_share() -> None:
    # A server of its own: the sessions of other tests do touch it.
    metrics = f"http://127.0.0.1:{free_port()}"
    with two_workers(metrics=metrics.removeprefix("http://")) as server:
        await served_by(server, 4)
        before = await values(metrics)
        assert sum((await served_by(server, 20)).values()) == 20
        after = await values(metrics)
    name = "trunkline_store_operations_total"
    assert after.value(name, outcome="ok") == before.value(name, outcome="ok")


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
                result: dict[str, Any] = (await response.json())["result"]
                return result

        asked = await call()
        answers = {key: {"action": "accept", "content": {"value": "Ada"}} for key in asked["inputRequests"]}
        result = await call(requestState=asked["requestState"], inputResponses=answers)
        assert result["content"][0]["text"] == "hello Ada"


async def test_without_a_store_a_session_is_served_by_all_workers(two: Machine) -> None:
    async with web_client() as client:
        await client.open(two)
        served: set[str] = set()
        async with asyncio.timeout(120):
            while served != {str(pid) for pid in workers(two)}:
                served.add((await client.post(two, tool("pid")))[1]["result"]["content"][0]["text"])
        assert await client.delete(two) in (200, 204)
        assert {(await client.post(two, tool("pid")))[0] for _ in range(4)} == {404}


async def test_without_a_store_a_question_is_answered_at_another_worker(two: Machine) -> None:
    async with web_client() as client:
        await client.open(two, {"elicitation": {}})
        stream = await client.stream(two, tool("greet"))
        asked = await stream.message()
        answer = {"action": "accept", "content": {"value": "Ada"}}
        # Each request is on a connection of its own, which reaches any worker.
        assert (await client.post(two, notification("notifications/roots/list_changed")))[0] == 202
        status, _ = await client.post(two, {"jsonrpc": "2.0", "id": asked["id"], "result": answer})
        assert status == 202
        assert (await stream.message())["result"]["content"][0]["text"] == "hello Ada"


async def test_without_a_store_a_change_reaches_the_streams_of_all_workers(two: Machine) -> None:
    async with web_client() as client:
        await client.open(two)
        stream = await client.get(two)
        for number in range(4):
            await client.post(two, tool("tick", number=number))
        heard = [(await stream.message())["params"]["number"] for _ in range(4)]
        assert sorted(heard) == [0, 1, 2, 3]


async def test_without_a_store_all_workers_have_the_same_handles(keeping: Machine) -> None:
    served: set[str] = set()
    async with Client(keeping.url, revision=STATELESS) as client:
        draft = await _text(client, "start")
    number = 0
    async with asyncio.timeout(120):
        while served != {str(pid) for pid in workers(keeping)}:
            number += 1
            async with Client(keeping.url, revision=STATELESS) as client:
                count, pid = (await _text(client, "add", {"draft": draft})).split()
                assert int(count) == number
                served.add(pid)


async def test_without_a_store_all_workers_have_the_same_tasks(keeping: Machine) -> None:
    async with Client(keeping.url, revision=STATELESS) as client:
        id = (await client.start_task("work")).id
    asked: set[int] = set()
    async with asyncio.timeout(120):
        while len(asked) < 2:
            async with Client(keeping.url, revision=STATELESS) as client:
                # The same connection, so the same worker.
                asked.add(int(await _text(client, "pid")))
                task = client.task(id)
                await task.refresh()
                assert task.status in ("working", "completed")
    async with Client(keeping.url, revision=STATELESS) as client:
        result = await client.task(id).result(timeout=30)
        assert str(result.content[0].text).startswith("done by")  # type: ignore[union-attr]


# --- processes come and go --------------------------------------------------------------------------------------------


async def test_a_worker_that_dies_is_restarted_and_the_others_serve_meanwhile() -> None:
    with two_workers() as server:
        before = workers(server)
        os.kill(min(before), signal.SIGKILL)
        await until(lambda: not _alive(min(before)))
        assert sum((await served_by(server, 6)).values()) == 6
        await until(lambda: len(workers(server)) == 2 and min(before) not in workers(server))
        async with asyncio.timeout(120):
            while len(await served_by(server, 4)) < 2:
                pass


async def test_a_worker_that_stands_still_gets_no_connections_and_is_replaced(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("w") as written, two_workers(limits={"heartbeat_seconds": 3.0}, stderr=written) as server:
        stopped, other = workers(server)
        os.kill(stopped, signal.SIGSTOP)
        assert set(await served_by(server, 20)) == {other}
        await until(lambda: len(workers(server) - {stopped}) == 2)
        assert other in workers(server)
    lines = [line for line in log.read_text().splitlines() if str(stopped) in line]
    assert len(lines) == 1
    assert f"(process {stopped}) has not responded for 3 s and is replaced" in lines[0]


async def test_a_worker_is_replaced_if_a_function_blocks_it_for_ever_and_not_for_a_while() -> None:
    with two_workers(limits={"heartbeat_seconds": 5.0}) as server:
        before = workers(server)
        async with Client(server.url, revision=STATELESS) as client:
            assert int(await _text(client, "block", {"seconds": 1.5})) in before
            assert workers(server) == before
            with pytest.raises(TrunklineError):
                await client.call_tool("block", {"seconds": 3600})
        await until(lambda: len(workers(server)) == 2 and len(workers(server) & before) == 1)


async def test_sighup_replaces_the_workers_and_loses_neither_calls_nor_counts_nor_sessions() -> None:
    metrics = f"http://127.0.0.1:{free_port()}"
    with two_workers(metrics=metrics.removeprefix("http://")) as server:
        async with web_client() as client:
            await client.open(server)
            before = workers(server)
            server.process.send_signal(signal.SIGHUP)
            served = 0
            async with asyncio.timeout(120):
                while workers(server) & before or len(workers(server)) != 2:
                    served += sum((await served_by(server, 1)).values())
                    assert (await client.post(server, tool("pid")))[0] == 200
                    served += 1
                    # No worker is stopped before its successor serves, and a replaced one reports its last counts.
                    assert tool_calls(await values(metrics)) == served
                    assert (await get(metrics, "/readyz")).status == 200
            assert served > 0
            assert {(await client.post(server, tool("pid")))[0] for _ in range(4)} == {200}
        assert set(await served_by(server, 4)) <= workers(server)


def folders_of_runs() -> set[Path]:
    """Return the folders that supervisors share with their workers."""
    return {folder for place in ("/dev/shm", gettempdir()) for folder in Path(place).glob("trunkline-run-*")}


async def test_the_store_of_the_workers_is_measured_and_a_lost_file_ends_the_sessions() -> None:
    metrics = f"http://127.0.0.1:{free_port()}"
    before = folders_of_runs()
    with two_workers(metrics=metrics.removeprefix("http://")) as server:
        (folder,) = (folder for folder in folders_of_runs() - before if open_files(server) & {folder / "lock"})
        async with web_client() as client:
            await client.open(server)
            found = await values(metrics)
            assert found.value("trunkline_store_reachable") == 1
            assert found.value("trunkline_store_reconnects_total") == 0
            assert (found.value("trunkline_store_operations_total", outcome="ok") or 0) > 2
            assert found.value("trunkline_store_operations_total", outcome="error") == 0
            assert (found.value("trunkline_store_operation_seconds_total") or 0) > 0
            assert (found.value("trunkline_store_last_success_time_seconds") or 0) > 1e9
            running = workers(server)
            (folder / "store.db").unlink()
            assert sum((await served_by(server, 4)).values()) == 4
            async with asyncio.timeout(120):
                while (status := (await client.post(server, tool("pid")))[0]) != 404:
                    assert status in (200, 503)
            async with asyncio.timeout(120):
                # Each worker notices it by its next operation, which fails.
                while True:
                    client.session = ""
                    with suppress(AssertionError, KeyError):
                        await client.open(server)
                        assert {(await client.post(server, tool("pid")))[0] for _ in range(4)} == {200}
                        break
            assert workers(server) == running
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(120) == 0
        assert not folder.exists()


async def test_the_folder_of_a_supervisor_that_was_killed_is_removed_by_the_next_start() -> None:
    before = folders_of_runs()
    with two_workers() as server:
        (folder,) = (folder for folder in folders_of_runs() - before if open_files(server) & {folder / "lock"})
        left = [child.pid for child in children(server)]
        server.process.kill()
        server.process.wait(120)
        await until(lambda: not any(_alive(pid) for pid in left))
    assert folder.exists()
    with two_workers():
        assert not folder.exists()


def open_files(server: Machine) -> set[Path]:
    """Return the files that the supervisor has open."""
    return {Path(file.path) for file in psutil.Process(server.process.pid).open_files()}


async def test_a_signal_stops_the_workers_after_their_requests() -> None:
    walking = asyncio.Event()
    with two_workers() as server:
        async with Client(server.url, revision=STATELESS, logging=lambda _: walking.set()) as client:
            running = asyncio.create_task(client.call_tool("walk", {"n": 30}))
            await walking.wait()
            server.process.send_signal(signal.SIGTERM)
            assert (await running).text == "walked"
        assert server.process.wait(120) == 0


async def test_workers_stop_when_their_supervisor_is_killed() -> None:
    with two_workers() as server:
        left = [child.pid for child in children(server)]
        assert len(left) == 2
        server.process.kill()
        server.process.wait(120)
        await until(lambda: not any(_alive(pid) for pid in left))


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


@needs_redis
async def test_the_metrics_say_whether_redis_can_be_reached(own_redis: RedisServer) -> None:
    metrics = f"http://127.0.0.1:{free_port()}"

    async def reachable() -> bool:
        return (await values(metrics)).value("trunkline_store_reachable") == 1

    with machine(workers=2, store=own_redis.url, metrics=metrics.removeprefix("http://")) as server:
        await served_by(server, 2)
        assert await reachable()
        own_redis.stop()
        async with asyncio.timeout(120):
            while await reachable():
                pass
        own_redis.start()
        async with asyncio.timeout(120):
            while not await reachable():
                pass
        assert ((await values(metrics)).value("trunkline_store_reconnects_total") or 0) >= 2


def test_a_worker_that_cannot_start_ends_the_supervisor() -> None:
    with machine(workers=2, key=None, path="nowhere", expect=False) as refused:
        _, said = refused.process.communicate(timeout=120)
    assert (refused.process.returncode, 'must start with "/"' in said) == (2, True)


@pytest.mark.parametrize("given", [0, -1, True, "4", 100_000], ids=repr)
def test_a_number_of_workers_must_be_one(given: object) -> None:
    from trunkline.server.workers import worker_count

    with pytest.raises(ConfigError, match="workers="):
        worker_count(given)


def test_several_workers_need_processes_of_their_own() -> None:
    with pytest.raises(ConfigError, match=r"server.run\(\)"):
        run_async(Server("test").run_async("http", workers=2))

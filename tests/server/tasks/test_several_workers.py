"""Tasks of several server processes on one Redis: each answers for any task, and takes over those of the dead."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from tests.cli.support import serving
from tests.server.tasks.fleet import Fleet, eventually, fleet, task_client, text
from tests.store.redis_server import RedisServer, needs_redis
from tests.transports.http.shared.machines import KEY
from trunkline import Client

pytestmark = needs_redis


@pytest.fixture(scope="module")
def pair(shared_redis: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Two machines for tests that leave them running."""
    with fleet(tmp_path_factory.mktemp("pair"), shared_redis.url) as machines:
        yield machines


# --- limits -----------------------------------------------------------------------------------------------------------


async def test_a_result_is_there_until_its_time_is_over_and_then_nothing_of_it(
    own_redis: RedisServer, tmp_path: Path
) -> None:
    with fleet(tmp_path, own_redis.url, count=1) as machines:
        machines.open("brief")
        async with task_client() as client:
            id = await client.start(machines[0], "short", "brief")
            assert (await client.until(machines[0], id))["status"] == "completed"

            async def gone() -> bool:
                answered = await client.request(machines[0], "tasks/get", {"taskId": id})
                return "error" in answered[1] and not keys(own_redis, "*task*") and not keys(own_redis, "*kept*")

            await eventually(gone)


async def test_nothing_of_a_call_can_be_read_in_redis(pair: Fleet, shared_redis: RedisServer) -> None:
    async with task_client() as client:
        id = await client.start(pair[0], "once", "confidential")

        async def described() -> bool:
            return "confidential has begun" in (await client.get(pair[1], id)).get("statusMessage", "")

        await eventually(described)
        running = dump(shared_redis)
        pair.open("confidential")
        assert text(await client.until(pair[1], id)) == "confidential done"
        ended = dump(shared_redis)
    assert any(key.endswith(f"task-message:{id}") for key in running)
    assert any(key.endswith(f"task:{id}") for key in ended)
    assert not [key for key, value in (*running.items(), *ended.items()) if "confidential" in value]


def dump(redis: RedisServer) -> dict[str, str]:
    """Return the values of all keys that hold text, by key."""
    with Redis(port=redis.port) as client:
        found = {key.decode(): client.get(key) for key in client.keys("*") if client.type(key) == b"string"}
        return {key: value.decode("latin-1") for key, value in found.items() if isinstance(value, bytes)}


def keys(redis: RedisServer, pattern: str) -> list[str]:
    """Return the keys of a Redis that still hold something of a task."""
    with Redis(port=redis.port) as client:
        found = [key.decode() for key in client.keys(pattern)]
        # The stream of the queue stays, without entries.
        return [key for key in found if not (key.endswith("queue:tasks") and client.xlen(key) == 0)]


# --- workers that die -------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_the_tasks_of_a_killed_worker_run_again_only_if_they_may(own_redis: RedisServer, tmp_path: Path) -> None:
    with fleet(tmp_path, own_redis.url, lease=3.0) as machines:
        async with task_client() as client:
            ids = [await client.start(machines[0], tool, tool) for tool in ("once", "again", "pay")]
            asked = await client.start(machines[0], "ask", "ask")
            await client.until(machines[1], asked, "input_required")
            await machines.until("run", "once")
            await machines.until("run", "again")
            await machines.until("paid", "pay")
            machines[0].process.send_signal(signal.SIGKILL)
            failed = await client.until(machines[1], ids[0])
            await machines.until("run", "again", 2)
            for tool in ("again", "pay"):
                machines.open(tool)
            ended = [await client.until(machines[1], id) for id in ids[1:]]
            # The question is asked again, under another key.
            await machines.until("run", "ask", 2)
            state = await client.until(machines[1], asked, "input_required")
            await client.answer(machines[1], asked, next(iter(state["inputRequests"])), "red")
            answered = await client.until(machines[1], asked)
    assert (failed["status"], "may run again" in failed["error"]["message"]) == ("failed", True)
    assert machines.done("once") == {"run": 1}
    assert [text(each) for each in ended] == ["again done", "receipt of pay"]
    assert machines.done("again") == {"run": 2, "end": 1}
    assert machines.done("pay") == {"run": 2, "pay": 1, "paid": 2, "end": 1}
    assert text(answered) == "accept red"


@pytest.mark.slow
async def test_a_worker_that_stalls_and_loses_its_lease_changes_nothing(own_redis: RedisServer, tmp_path: Path) -> None:
    with fleet(tmp_path, own_redis.url, lease=3.0) as machines:
        async with task_client() as client:
            once = await client.start(machines[0], "once", "once")
            again = await client.start(machines[0], "again", "again")
            await machines.until("run", "once")
            await machines.until("run", "again")
            machines[0].process.send_signal(signal.SIGSTOP)
            try:
                failed = await client.until(machines[1], once)
                await machines.until("run", "again", 2)
            finally:
                machines[0].process.send_signal(signal.SIGCONT)
            # It learns that both are no longer its own.
            await machines.until("cancelled", "once")
            await machines.until("cancelled", "again")
            machines.open("again")
            ended = await client.until(machines[0], again)
            states = [await client.get(each, once) for each in machines.machines]
    assert failed["status"] == "failed"
    assert [each["status"] for each in states] == ["failed", "failed"]
    assert text(ended) == "again done"
    assert (machines.done("again")["run"], machines.done("again")["end"]) == (2, 1)


async def test_a_worker_that_is_stopped_leaves_its_tasks_to_another_at_once(
    own_redis: RedisServer, tmp_path: Path
) -> None:
    # With a lease of an hour: the test does not wait for it to expire.
    with fleet(tmp_path, own_redis.url, lease=3600.0) as machines:
        async with task_client() as client:
            id = await client.start(machines[0], "again", "left")
            await machines.until("run", "left")
            machines[0].process.send_signal(signal.SIGTERM)
            await machines.until("run", "left", 2)
            machines.open("left")
            assert text(await client.until(machines[1], id)) == "left done"


# --- Redis ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_a_restart_of_redis_loses_no_task(own_redis: RedisServer, tmp_path: Path) -> None:
    with fleet(tmp_path, own_redis.url, lease=2.0) as machines:
        async with task_client() as client:
            ends = await client.start(machines[0], "once", "meanwhile")
            later = await client.start(machines[1], "once", "later")
            asks = await client.start(machines[0], "ask", "asks")
            state = await client.until(machines[1], asks, "input_required")
            for name in ("meanwhile", "later"):
                await machines.until("run", name)
            own_redis.stop()
            refused = [await client.request(each, "tasks/get", {"taskId": ends}) for each in machines.machines]
            params = {"name": "once", "arguments": {"name": "new"}}
            created = await client.request(machines[0], "tools/call", params)
            machines.open("meanwhile")
            await machines.until("end", "meanwhile")
            # Longer than a lease: that it ran out is no reason to take the tasks of workers that are there.
            await asyncio.sleep(2.5)
            own_redis.start()

            async def back() -> bool:
                return (await client.request(machines[1], "tasks/get", {"taskId": ends}))[0] == 200

            await eventually(back)
            first = await client.until(machines[1], ends)
            await client.answer(machines[1], asks, next(iter(state["inputRequests"])), "red")
            answered = await client.until(machines[1], asks)
            machines.open("later")
            second = await client.until(machines[0], later)
    assert [status for status, _ in (*refused, created)] == [503] * 3
    assert (text(first), text(second), text(answered)) == ("meanwhile done", "later done", "accept red")
    assert [machines.done(name)["run"] for name in ("meanwhile", "later", "asks")] == [1, 1, 1]


# --- the workers of one machine ---------------------------------------------------------------------------------------


COMMAND = """
from trunkline import Server

server = Server("command")


@server.tool(task=True)
async def double(number: int) -> int:
    return 2 * number
"""


async def test_the_tasks_of_a_server_started_by_the_command_are_in_redis(
    own_redis: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "server.py").write_text(COMMAND)
    monkeypatch.setenv("TRUNKLINE_STATE_KEY", KEY)
    arguments = ("server.py", "--http", "0", "--workers", "2", "--store", own_redis.url)
    with serving(*arguments, cwd=tmp_path) as served:
        async with Client(served.url) as client:
            started = [await client.start_task("double", {"number": number}) for number in range(4)]
        async with Client(served.url) as client:
            results = [(await client.task(task.id, tool="double").result()).text for task in started]
        assert len(keys(own_redis, "*value:task:*")) == 4
    assert results == ["0", "2", "4", "6"]

"""Tasks of several server processes on one Redis: each answers for any task, and takes over those of the dead."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from tests.backplane.redis_server import RedisServer, needs_redis
from tests.cli.support import serving
from tests.extensions.tasks.fleet import Fleet, eventually, fleet, session_client, task_client, text
from tests.extensions.tasks.talk import FINISHED
from tests.transports.http.serving_support import request
from tests.transports.http.shared.machines import KEY, Stream
from trunkline import Client
from trunkline.extensions.tasks.wire import FIRST_POLL

pytestmark = needs_redis


@pytest.fixture(scope="module")
def pair(shared_redis: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Two machines for tests that leave them running."""
    with fleet(tmp_path_factory.mktemp("pair"), shared_redis.url) as machines:
        yield machines


# --- any worker -------------------------------------------------------------------------------------------------------


async def test_a_task_of_one_worker_is_polled_at_another(pair: Fleet) -> None:
    async with task_client() as client:
        id = await client.start(pair[0], "once", "polled")
        working = [(await client.get(each, id))["status"] for each in pair.machines]
        pair.open("polled")
        ended = [await client.until(each, id) for each in pair.machines]
    assert working == ["working", "working"]
    assert [text(each) for each in ended] == ["polled done"] * 2
    assert pair.done("polled") == {"run": 1, "end": 1}


async def test_the_status_message_of_a_task_is_seen_at_another_worker(pair: Fleet) -> None:
    async with task_client() as client:
        id = await client.start(pair[0], "once", "status")

        async def seen() -> bool:
            return "status has begun" in (await client.get(pair[1], id)).get("statusMessage", "")

        await eventually(seen)
        pair.open("status")
        await client.until(pair[1], id)


async def test_a_task_is_cancelled_at_another_worker(pair: Fleet) -> None:
    async with task_client() as client:
        id = await client.start(pair[0], "once", "unwanted")
        await pair.until("run", "unwanted")
        await client.result(pair[1], "tasks/cancel", {"taskId": id})
        await pair.until("cancelled", "unwanted")
        assert [(await client.get(each, id))["status"] for each in pair.machines] == ["cancelled"] * 2


async def test_a_question_is_answered_at_another_worker(pair: Fleet) -> None:
    async with task_client() as client:
        id = await client.start(pair[0], "ask", "asks")
        state = await client.until(pair[1], id, "input_required")
        await client.answer(pair[1], id, next(iter(state["inputRequests"])), "red")
        assert text(await client.until(pair[1], id)) == "accept red"
    assert pair.done("asks") == {"run": 1, "end": 1}


async def test_the_listen_stream_of_another_worker_hears_of_each_change_once(pair: Fleet) -> None:
    async with task_client() as client:
        id, other = [await client.start(pair[0], "ask", name) for name in ("heard", "heard2")]
        await client.until(pair[0], other, "input_required")
        key = next(iter((await client.until(pair[0], id, "input_required"))["inputRequests"]))
        streams = [await client.listen(each, id, other) for each in pair.machines]
        first = [sorted([await notice(stream), await notice(stream)]) for stream in streams]
        await client.answer(pair[1], id, key, "red")
        heard = [await until_finished(stream, id) for stream in streams]
        await client.result(pair[1], "tasks/cancel", {"taskId": other})
        # Nothing more is said of the first task.
        last = [await notice(stream) for stream in streams]
        for stream in streams:
            stream.close()
    assert first == [sorted([(id, "input_required"), (other, "input_required")])] * 2
    # The task may end before a stream has read that it works again.
    assert [each for each in heard if each not in (["completed"], ["working", "completed"])] == []
    assert last == [(other, "cancelled")] * 2


async def notice(stream: Stream) -> tuple[str, str]:
    """Return the task and the status of the next notification."""
    params = (await stream.message())["params"]
    return params["taskId"], params["status"]


async def until_finished(stream: Stream, id: str) -> list[str]:
    """Return the statuses of a task that a stream hears of until the last."""
    heard: list[str] = []
    while not heard or heard[-1] not in FINISHED:
        about, status = await notice(stream)
        assert about == id
        heard.append(status)
    return heard


# --- the form of the handshake era ------------------------------------------------------------------------------------


def call(tool: str, name: str) -> dict[str, Any]:
    return request("tools/call", {"name": tool, "arguments": {"name": name}, "task": {}})


async def test_the_result_is_waited_for_and_the_question_asked_at_another_worker(pair: Fleet) -> None:
    async with session_client(pair[0]) as client:
        id = (await client.post(pair[0], call("ask", "sessions")))[1]["result"]["task"]["taskId"]
        waiting = await client.stream(pair[1], request("tasks/result", {"taskId": id}, id=2))
        question = await waiting.message()
        answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {"value": "red"}}}
        # The answer reaches a third party: the worker that neither asked nor runs the task would do as well.
        assert (await client.post(pair[0], answer))[0] == 202
        ended = await waiting.message()
    assert question["params"]["message"] == "Colour?"
    assert question["params"]["_meta"]["io.modelcontextprotocol/related-task"] == {"taskId": id}
    assert (ended["id"], text(ended)) == (2, "accept red")
    assert pair.done("sessions") == {"run": 1, "end": 1}


async def test_status_notifications_reach_the_stream_of_another_worker_once(pair: Fleet) -> None:
    async with session_client(pair[0]) as client:
        stream = await client.get(pair[1])
        id = (await client.post(pair[0], call("ask", "noticed")))[1]["result"]["task"]["taskId"]
        assert await next_status(stream, id) == "input_required"
        # A task that ends before a client would poll it is not notified of.
        begun = asyncio.get_running_loop().time()
        while asyncio.get_running_loop().time() - begun < 2 * FIRST_POLL:
            await client.post(pair[1], request("tasks/get", {"taskId": id}, id=5))
        cancelled = await client.post(pair[1], request("tasks/cancel", {"taskId": id}, id=3))
        assert cancelled[1]["result"]["status"] == "cancelled"
        assert await next_status(stream, id) == "cancelled"
        # Nothing more is said of it: the next notification is of the next task.
        other = (await client.post(pair[0], call("ask", "noticed2")))[1]["result"]["task"]["taskId"]
        assert await next_status(stream, other) == "input_required"
        await client.post(pair[1], request("tasks/cancel", {"taskId": other}, id=4))
        stream.close()


async def next_status(stream: Stream, id: str) -> str:
    """Return the status of the next notification, which must be of this task."""
    while (message := await stream.message())["method"] != "notifications/tasks/status":
        pass
    assert message["params"]["taskId"] == id
    return str(message["params"]["status"])


# --- limits -----------------------------------------------------------------------------------------------------------


async def test_the_limit_of_a_caller_holds_across_workers(own_redis: RedisServer, tmp_path: Path) -> None:
    with fleet(tmp_path, own_redis.url, limits={"per_caller": 3}) as machines:
        async with task_client() as client:
            for number in range(3):
                await client.start(machines[number % 2], "once", f"n{number}")
            params = {"name": "once", "arguments": {"name": "more"}}
            refused = [await client.request(each, "tools/call", params) for each in machines.machines]
            machines.open("n0")

            async def admitted() -> bool:
                return "error" not in (await client.request(machines[1], "tools/call", params))[1]

            await eventually(admitted)
    assert [(body["error"]["code"], body["error"]["data"]["limit"]) for _, body in refused] == [(429, "per_caller")] * 2


async def test_a_result_is_there_until_its_time_is_over_and_then_nothing_of_it(
    own_redis: RedisServer, tmp_path: Path
) -> None:
    with fleet(tmp_path, own_redis.url) as machines:
        machines.open("brief")
        async with task_client() as client:
            id = await client.start(machines[0], "short", "brief")
            assert (await client.until(machines[1], id))["status"] == "completed"

            async def gone() -> bool:
                answered = await client.request(machines[1], "tasks/get", {"taskId": id})
                return "error" in answered[1] and not keys(own_redis, "*task*")

            await eventually(gone)


async def test_nothing_of_a_call_can_be_read_in_redis(own_redis: RedisServer, tmp_path: Path) -> None:
    with fleet(tmp_path, own_redis.url) as machines:
        async with task_client() as client:
            id = await client.start(machines[0], "once", "confidential")

            async def described() -> bool:
                return "confidential has begun" in (await client.get(machines[1], id)).get("statusMessage", "")

            await eventually(described)
            running = dump(own_redis)
            machines.open("confidential")
            assert text(await client.until(machines[1], id)) == "confidential done"
            ended = dump(own_redis)
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
    assert machines.done("pay") == {"run": 2, "pay": 1, "paid": 2}
    assert text(answered) == "accept red"


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


async def test_tasks_survive_the_end_of_all_workers(own_redis: RedisServer, tmp_path: Path) -> None:
    async with task_client() as client:
        with fleet(tmp_path, own_redis.url, count=1, lease=2.0) as machines:
            again = await client.start(machines[0], "again", "again")
            once = await client.start(machines[0], "once", "once")
            machines.open("done")
            done = await client.start(machines[0], "once", "done")
            await client.until(machines[0], done)
            await machines.until("run", "again")
            await machines.until("run", "once")
        machines.open("again")
        with fleet(tmp_path, own_redis.url, count=1, lease=2.0) as machines:
            states = [await client.until(machines[0], id) for id in (again, once, done)]
    assert [each["status"] for each in states] == ["completed", "failed", "completed"]


# --- Redis ------------------------------------------------------------------------------------------------------------


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


async def test_a_redis_that_does_not_answer_is_reported_and_hinders_no_task(
    own_redis: RedisServer, tmp_path: Path
) -> None:
    with fleet(tmp_path, own_redis.url, count=1) as machines:
        async with task_client() as client:
            id = await client.start(machines[0], "once", "paused")
            await machines.until("run", "paused")
            own_redis.pause()
            try:
                methods = ("tasks/get", "tasks/cancel")
                refused = [await client.request(machines[0], method, {"taskId": id}) for method in methods]
                machines.open("paused")
                await machines.until("end", "paused")
            finally:
                own_redis.resume()

            async def back() -> bool:
                return (await client.request(machines[0], "tasks/get", {"taskId": id}))[0] == 200

            await eventually(back)
            state = await client.until(machines[0], id)
    assert [(status, body["error"]["code"]) for status, body in refused] == [(503, 503)] * 2
    assert text(state) == "paused done"


# --- the workers of one machine ---------------------------------------------------------------------------------------


async def test_four_workers_of_one_server_share_their_tasks(own_redis: RedisServer, tmp_path: Path) -> None:
    with fleet(tmp_path, own_redis.url, count=1, workers=4) as machines:
        async with task_client() as client:
            ids = [await client.start(machines[0], "once", f"n{number}") for number in range(8)]
            for number in range(8):
                machines.open(f"n{number}")
            states = [await client.until(machines[0], id) for id in ids]
    assert [text(each) for each in states] == [f"n{number} done" for number in range(8)]
    ran = {line.split()[2] for line in (tmp_path / "log").read_text().splitlines()}
    assert len(ran) > 1


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
    arguments = ("server.py", "--http", "0", "--workers", "2", "--backplane", own_redis.url)
    with serving(*arguments, cwd=tmp_path) as served:
        async with Client(served.url) as client:
            started = [await client.start_task("double", {"number": number}) for number in range(4)]
        async with Client(served.url) as client:
            results = [(await client.task(task.id, tool="double").result()).text for task in started]
        assert len(keys(own_redis, "*value:task:*")) == 4
    assert results == ["0", "2", "4", "6"]

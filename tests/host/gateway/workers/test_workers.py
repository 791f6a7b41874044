"""Several workers, each server once: calls, progress, cancellation, changes and questions through whichever worker.

Each request has a connection of its own, which any of the three workers accepts.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import trunkline.types as t
from tests.host.gateway.support import NEW, OLD, again, asked
from tests.host.gateway.workers.gateway_process import KEY, GatewayProcess, free_port, gateway_process, until
from tests.store.conftest import own_redis, shared_redis
from tests.store.redis_server import RedisServer, needs_redis
from tests.transports.http.serving_support import META, modern_headers, request, tool
from tests.transports.http.shared.machines import Machine, Stream, WebClient, web_client
from trunkline.errors import RequestFailed
from trunkline.protocol.extensions import TASKS

__all__ = ["own_redis", "shared_redis"]

ELICITS: dict[str, Any] = {"elicitation": {}}
BOTH_ERAS = pytest.mark.parametrize("server", ["one", "new"], ids=["handshake-server", "stateless-server"])


@pytest.fixture(scope="module", params=["local", pytest.param("redis", marks=needs_redis)])
def gateway(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway with three workers, with and without Redis."""
    folder = tmp_path_factory.mktemp("gateway")
    if request.param == "local":
        with gateway_process(folder) as started:
            yield started
    else:
        redis: RedisServer = request.getfixturevalue("shared_redis")
        with gateway_process(folder, "--store", redis.url, key=KEY) as started:
            yield started


@asynccontextmanager
async def handshake_session(
    gateway: GatewayProcess, capabilities: Mapping[str, Any] = ELICITS
) -> AsyncIterator[tuple[WebClient, Machine]]:
    """Open a handshake session; each of its requests reaches any worker."""
    machine = Machine(gateway.process, gateway.url)
    async with web_client() as client:
        await client.open(machine, capabilities)
        yield client, machine


async def test_each_server_runs_once_whichever_worker_serves(gateway: GatewayProcess) -> None:
    for name in ("one", "two", "new"):
        pids = {await gateway.call(f"{name}__pid") for _ in range(6)}
        assert len(pids) == 1
        # Sessions of other tests may still have processes of their own.
        assert pids <= {str(pid) for pid in gateway.servers(name)}
    assert len(gateway.workers()) == 3


@BOTH_ERAS
@pytest.mark.parametrize("revision", [OLD, NEW], ids=["handshake-client", "stateless-client"])
async def test_progress_reaches_the_caller_at_every_worker(gateway: GatewayProcess, server: str, revision: str) -> None:
    async def count(steps: int) -> list[float]:
        seen: list[float] = []
        async with gateway.client(revision) as client:
            await client.call_tool(
                f"{server}__count", {"steps": steps}, on_progress=lambda progress, *_: seen.append(progress)
            )
        return seen

    # At the same time on one shared connection: each caller gets its own.
    for steps, seen in zip((2, 3, 4), await asyncio.gather(count(2), count(3), count(4)), strict=True):
        assert seen[-1] == steps
        assert seen == sorted(seen)


@BOTH_ERAS
async def test_a_cancelled_call_is_cancelled_at_the_server_and_others_go_on(
    gateway: GatewayProcess, server: str
) -> None:
    waiting, cancelled = await gateway.seen(server, "waiting"), await gateway.seen(server, "cancelled")
    async with gateway.client() as other, gateway.client() as client:
        staying = asyncio.create_task(other.call_tool(f"{server}__wait"))
        leaving = asyncio.create_task(client.call_tool(f"{server}__wait"))
        await gateway.until_seen(server, "waiting", waiting + 2)
        leaving.cancel()
        await gateway.until_seen(server, "cancelled", cancelled + 1)
        assert await gateway.seen(server, "cancelled") == cancelled + 1
        assert not staying.done()
        staying.cancel()


@BOTH_ERAS
async def test_a_stateless_client_answers_at_another_worker(gateway: GatewayProcess, server: str) -> None:
    # Of four answers hardly all reach the worker with the call.
    for _ in range(4):
        async with gateway.client(NEW, elicitation=_never) as first:
            params, question = await asked(first, f"{server}__ask")
            async with gateway.client(NEW, elicitation=_never) as second:
                result, _ = await second.forward("tools/call", again(params, question, "Ada"))
        assert result.content[0].text == "hello Ada"


async def test_a_parked_call_asks_again_and_reports_progress_through_other_workers(gateway: GatewayProcess) -> None:
    async with gateway.client(NEW, elicitation=_never) as client:
        params, first = await asked(client, "one__ask_twice")
    async with gateway.client(NEW, elicitation=_never) as client:
        second, _ = await client.forward("tools/call", again(params, first, "Ada"))
        assert isinstance(second, t.InputRequiredResult)
    async with gateway.client(NEW, elicitation=_never) as client:
        result, _ = await client.forward("tools/call", again(params, second, "Byron"))
    assert result.content[0].text == "Ada Byron"


@needs_redis
async def test_a_gateway_starts_while_redis_is_away_and_shares_parked_calls_once_it_is_back(
    own_redis: RedisServer, tmp_path: Path
) -> None:
    own_redis.stop()
    with gateway_process(tmp_path, "--store", own_redis.url, key=KEY, servers={"one": "handshake"}) as gateway:
        assert "the store cannot be reached" in gateway.log
        # What needs no store is served.
        assert int(await gateway.call("one__pid")) > 0
        own_redis.start()
        answered = 0
        async with asyncio.timeout(150):
            # Of four answers in a row hardly all reach the worker with the call; workers connect one after another.
            while answered < 4:
                async with gateway.client(NEW, elicitation=_never) as first, gateway.client(NEW) as second:
                    params, question = await asked(first, "one__ask")
                    try:
                        result, _ = await second.forward("tools/call", again(params, question, "Ada"))
                    except RequestFailed:
                        answered = 0
                        continue
                if not isinstance(result, t.CallToolResult):
                    # While workers connect an answer may take so long that the call becomes a task.
                    answered = 0
                    continue
                assert getattr(result.content[0], "text", None) == "hello Ada"
                answered += 1


async def test_a_parked_call_of_a_worker_that_died_fails_at_once(gateway: GatewayProcess) -> None:
    async with gateway.client(NEW, elicitation=_never) as client:
        params, question = await asked(client, "one__ask")
    before = gateway.workers()
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    await until(lambda: len(gateway.workers()) == 3 and not set(gateway.workers()) & set(before))
    async with gateway.client(NEW, elicitation=_never) as client:
        with pytest.raises(RequestFailed, match="ended, and with it the call"):
            await client.forward("tools/call", again(params, question, "Ada"))


@BOTH_ERAS
async def test_a_handshake_client_is_asked_and_answers_at_another_worker(gateway: GatewayProcess, server: str) -> None:
    async with handshake_session(gateway) as (client, machine):
        stream = await client.stream(machine, tool(f"{server}__ask", id=7))
        question = await _message(stream, method="elicitation/create")
        answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {"value": "Ada"}}}
        assert (await client.post(machine, answer))[0] == 202
        final = await _message(stream, id=7)
    assert final["result"]["content"][0]["text"] == "hello Ada"


async def test_a_session_has_one_process_of_its_own_whichever_worker_serves(
    gateway: GatewayProcess,
) -> None:
    async with handshake_session(gateway) as (client, machine):
        pids = {_text(await client.post(machine, tool("two__pid", id=id))) for id in range(1, 7)}
    assert len(pids) == 1
    # It can be asked, so the process is its own.
    assert pids.isdisjoint({await gateway.call("two__pid")})


async def test_changed_lists_are_announced_once_when_every_worker_has_them(gateway: GatewayProcess) -> None:
    async with handshake_session(gateway, {}) as (client, machine), gateway.client(NEW) as listener:
        events = await client.get(machine)
        async with listener.listen() as changes:
            await gateway.call("new__grow")
            async with asyncio.timeout(120):
                async for change in changes:
                    # A test before this one may have changed a list as well.
                    if change.kind == "tools" and "new__grown" in {each.name for each in await listener.list_tools()}:
                        break
            # Whichever worker is asked from now on has the new list.
            for _ in range(3):
                async with gateway.client(NEW) as other:
                    assert "new__grown" in {each.name for each in await other.list_tools()}
        await gateway.call("two__grow")
        listed: set[str] = set()
        async with asyncio.timeout(120):
            while "two__grown" not in listed:
                # Servers that have just started announce their lists, too.
                await _message(events, method="notifications/tools/list_changed")
                _, answer = await client.post(machine, request("tools/list"))
                listed = {each["name"] for each in answer["result"]["tools"]}


@BOTH_ERAS
async def test_a_changed_resource_is_announced_to_its_subscribers_at_every_worker(
    gateway: GatewayProcess, server: str
) -> None:
    async with handshake_session(gateway, {}) as (client, machine), gateway.client(NEW) as listener:
        uri = next(each.uri for each in await listener.list_resources() if server in each.uri)
        assert (await client.post(machine, request("resources/subscribe", {"uri": uri}, id=2)))[0] == 200
        events = await client.get(machine)
        async with listener.listen(uris=[uri]) as changes:
            await gateway.call(f"{server}__write")
            async with asyncio.timeout(120):
                async for change in changes:
                    if change.uri == uri:
                        break
        assert (await _message(events, method="notifications/resources/updated"))["params"]["uri"] == uri
        # Once: the next event is that of the next change.
        await gateway.call(f"{server}__write")
        second = await events.message()
        assert second["method"] == "notifications/resources/updated"


async def test_untrusted_text_taints_a_session_at_every_worker(gateway: GatewayProcess) -> None:
    async with handshake_session(gateway, {}) as (client, machine):
        assert _text(await client.post(machine, tool("two__write", id=1)))
    async with handshake_session(gateway, {}) as (client, machine):
        # What this server returns may make the model do something at another one.
        assert _text(await client.post(machine, tool("one__pid", id=1)))
        for id in range(2, 5):
            status, body = await client.post(machine, tool("two__write", id=id))
            assert status == 200
            assert body["result"]["isError"], body
            assert "tainted" in body["result"]["content"][0]["text"]


async def test_tasks_limits_and_metrics_are_those_of_all_workers_together(tmp_path: Path) -> None:
    options = ("--task-after", "0.2", "--rate", "20", "--metrics", str(port := free_port()))
    servers = {"one": "handshake", "new": "stateless"}
    with gateway_process(tmp_path, *options, workers=2, servers=servers, settings={"concurrency": 2}) as gateway:
        for server in servers:
            await _poll_a_task(gateway, server)
        await asyncio.gather(*(gateway.call("one__nap", {"seconds": 0.1}) for _ in range(9)))
        assert await gateway.seen("one", "most") == 2
        # More within seconds than a minute allows: twenty, and those that the seconds have brought.
        with pytest.raises(RequestFailed, match="20 a minute"):
            await _repeat(20, lambda: gateway.call("one__pid"))
        async with web_client() as client, client.http.get(f"http://127.0.0.1:{port}/metrics") as response:
            text = await response.text()
        assert 'trunkline_upstream_state{server="one",state="ready"} 1' in text
        assert "trunkline_workers 2" in text


async def _poll_a_task(gateway: GatewayProcess, server: str) -> None:
    """Start a slow call, which becomes a task of the gateway, and poll it at any worker."""
    machine = Machine(gateway.process, gateway.url)
    meta = {**META, t.META_CLIENT_CAPABILITIES: {"extensions": {TASKS: {}}}}

    async def post(client: WebClient, method: str, name: str, params: dict[str, Any]) -> dict[str, Any]:
        headers = {**modern_headers(method, name), "accept": "application/json, text/event-stream"}
        body = request(method, {**params, "_meta": meta})
        async with client.http.post(machine.url, json=body, headers=headers) as response:
            text = await response.text()
        found: dict[str, Any] = json.loads(text if text.startswith("{") else text.rpartition("data: ")[2])
        assert "result" in found, found
        return dict(found["result"])

    async with web_client() as client, asyncio.timeout(120):
        name = f"{server}__nap"
        created = await post(client, "tools/call", name, {"name": name, "arguments": {"seconds": 0.5}})
        id = created["taskId"]
        states: list[str] = []
        while len(states) < 3 or states[-1] == "working":
            polled = await post(client, "tasks/get", id, {"taskId": id})
            states.append(polled["status"])
            await asyncio.sleep(0.05)
        assert states[-1] == "completed"
        assert polled["result"]["content"][0]["text"] == "rested"


async def test_the_audit_trail_of_concurrent_workers_is_one_chain(gateway: GatewayProcess) -> None:
    before = gateway.verify_trail()
    await asyncio.gather(*(gateway.call(f"{name}__pid") for name in ("one", "two", "new") for _ in range(8)))
    # Each call is recorded when it begins and when it ends.
    assert gateway.verify_trail() >= before + 48


async def _repeat(times: int, call: Callable[[], Awaitable[object]]) -> None:
    for _ in range(times):
        await call()


async def _message(stream: Stream, **members: Any) -> Any:
    """Return the next message with these members."""
    while (message := await stream.message()) is not None:
        if all(message.get(name) == value for name, value in members.items()):
            return message
    raise AssertionError(f"the stream ended before {members}")


def _text(answer: tuple[int, Any]) -> str:
    status, body = answer
    assert status == 200, answer
    assert not body["result"].get("isError"), answer
    return str(body["result"]["content"][0]["text"])


async def _never(params: t.ElicitRequestParams) -> Any:
    raise AssertionError("asked by the client itself")

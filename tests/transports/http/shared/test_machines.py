"""Two server processes on one Redis, as two machines: one session, whichever of them gets a request."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.backplane.redis_server import RedisServer, needs_redis
from tests.transports.http.serving_support import notification, request, tool
from tests.transports.http.shared.machines import KEY, Machine, machine, web_client
from trunkline import Client

pytestmark = needs_redis

ASKED: dict[str, Any] = {"elicitation": {}}
Pair = tuple[Machine, Machine]


@pytest.fixture(scope="module")
def pair(shared_redis: RedisServer) -> Iterator[Pair]:
    """Two machines for tests that leave them running."""
    with machine(backplane=shared_redis.url) as one, machine(backplane=shared_redis.url) as other:
        yield one, other


@pytest.fixture
def own_pair(own_redis: RedisServer) -> Iterator[Pair]:
    """Two machines, and a Redis, for a test that ends one of them."""
    with machine(backplane=own_redis.url) as one, machine(backplane=own_redis.url) as other:
        yield one, other


def answer(question: Any, name: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {"value": name}}}


def text(message: Any) -> str:
    return str(message["result"]["content"][0]["text"])


async def test_a_session_of_one_machine_is_served_by_the_other(pair: Pair) -> None:
    async with web_client() as client:
        await client.open(pair[0])
        served = [text((await client.post(each, tool("pid")))[1]) for each in pair]
        assert served == [str(each.process.pid) for each in pair]


async def test_an_elicitation_of_one_machine_is_answered_at_the_other(pair: Pair) -> None:
    async with web_client() as client:
        await client.open(pair[0], ASKED)
        call = await client.stream(pair[0], tool("greet"))
        question = await call.message()
        assert (await client.post(pair[1], answer(question, "Ada")))[0] == 202
        assert text(await call.message()) == "hello Ada"


async def test_a_call_at_one_machine_is_cancelled_at_the_other(pair: Pair) -> None:
    async with web_client() as client:
        await client.open(pair[0])
        call = await client.stream(pair[0], tool("wait", id=7))
        await call.message()
        await client.post(pair[1], notification("notifications/cancelled", {"requestId": 7}))
        assert await call.message() is None


async def test_the_get_stream_of_one_machine_has_the_notifications_of_the_other(pair: Pair) -> None:
    async with web_client() as client:
        await client.open(pair[0])
        stream = await client.get(pair[0])
        await client.post(pair[1], tool("tick", number=1))
        await client.post(pair[0], tool("tick", number=2))
        assert [(await stream.message())["params"]["number"] for _ in range(2)] == [1, 2]
        stream.close()


async def test_a_deleted_session_is_gone_on_both_machines(pair: Pair) -> None:
    async with web_client() as client:
        await client.open(pair[0])
        await client.post(pair[1], tool("pid"))
        assert await client.delete(pair[1]) == 204
        assert [(await client.post(each, tool("pid")))[0] for each in (pair[1], pair[0])] == [404, 404]


async def test_a_stream_is_resumed_at_the_other_machine_without_a_gap(pair: Pair) -> None:
    async with web_client() as client:
        await client.open(pair[0])
        call = await client.stream(pair[0], tool("walk", n=30))
        said = [(await call.message())["params"]["data"] for _ in range(5)]
        call.close()
        resumed = await client.get(pair[1], last=call.last)
        while (message := await resumed.message()) is not None and "params" in message:
            said.append(message["params"]["data"])
        assert (said, text(message)) == ([f"step {n}" for n in range(30)], "walked")


async def test_a_change_on_one_machine_is_told_once_to_a_listen_stream_of_the_other(pair: Pair) -> None:
    async with (
        Client(pair[0].url, revision="2026-07-28") as listener,
        Client(pair[1].url, revision="2026-07-28") as other,
        listener.listen(tools=True) as changes,
        asyncio.timeout(20),
    ):
        heard = []
        for _ in range(3):
            await other.call_tool("grow")
            heard.append((await anext(changes)).kind)
        assert (heard, changes._pending) == (["tools"] * 3, {})


# --- keys -------------------------------------------------------------------------------------------------------------


async def test_keys_are_rotated_without_losing_a_session(own_redis: RedisServer) -> None:
    fresh = "77" * 32
    async with web_client() as client:
        with machine(backplane=own_redis.url) as first:
            await client.open(first)
        with machine(backplane=own_redis.url, key=f"{fresh},{KEY}") as second:
            assert (await client.post(second, tool("pid")))[0] == 200
            async with web_client() as later:
                await later.open(second)
                with machine(backplane=own_redis.url, key=fresh) as third:
                    assert (await later.post(third, tool("pid")))[0] == 200
                    assert (await client.post(third, tool("pid")))[0] == 404


def test_a_machine_without_a_key_refuses_to_start(shared_redis: RedisServer) -> None:
    with machine(backplane=shared_redis.url, key=None, expect=False) as refused:
        _, said = refused.process.communicate(timeout=30)
        assert (refused.process.returncode, "TRUNKLINE_STATE_KEY" in said) == (2, True)


def test_a_machine_with_another_key_refuses_to_start(own_redis: RedisServer) -> None:
    with machine(backplane=own_redis.url), machine(backplane=own_redis.url, key="66" * 32, expect=False) as refused:
        _, said = refused.process.communicate(timeout=30)
        assert (refused.process.returncode, "other keys" in said) == (2, True)


def test_a_machine_without_its_redis_refuses_to_start() -> None:
    with machine(backplane="redis://127.0.0.1:1/0", expect=False) as refused:
        _, said = refused.process.communicate(timeout=30)
        assert (refused.process.returncode, "cannot be reached" in said) == (2, True)


# --- outages ----------------------------------------------------------------------------------------------------------


async def test_redis_is_stopped_and_started_again(own_pair: Pair, own_redis: RedisServer) -> None:
    async with web_client() as client:
        await client.open(own_pair[0])
        await client.post(own_pair[1], tool("pid"))
        own_redis.stop()
        plain = [(await client.post(each, tool("pid")))[0] for each in own_pair]
        level = await client.post(own_pair[0], request("logging/setLevel", {"level": "info"}))
        assert (plain, level[0]) == ([200, 200], 503)
        own_redis.start()
        async with asyncio.timeout(20):
            while (await client.post(own_pair[0], request("logging/setLevel", {"level": "info"})))[0] != 200:
                pass
            while (await client.get(own_pair[1])).response.status != 200:
                pass
        assert await client.delete(own_pair[0]) == 204
        assert (await client.post(own_pair[1], tool("pid")))[0] == 404


async def test_a_machine_killed_in_the_middle_of_an_elicitation_is_reported_at_once(own_pair: Pair) -> None:
    one, other = own_pair
    async with web_client() as client:
        await client.open(one, ASKED)
        call = await client.stream(one, tool("greet", id=9))
        question = await call.message()
        one.process.send_signal(signal.SIGKILL)
        one.process.wait(10)
        status, refused = await client.post(other, answer(question, "Ada"))
        assert (status, "has ended" in refused["error"]["message"]) == (410, True)
        assert await call.message() is None
        resumed = await client.get(other, last=call.last)
        error = await resumed.message()
        assert (error["id"], "has ended" in error["error"]["message"]) == (9, True)
        assert await resumed.message() is None
        assert (await client.post(other, tool("pid")))[0] == 200

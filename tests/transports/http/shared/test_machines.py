"""Two server processes on one Redis, as two machines: one session, whichever of them gets a request."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.store.redis_server import RedisServer, needs_redis
from tests.transports.http.serving_support import initialize, tool
from tests.transports.http.shared.machines import Machine, machine, web_client
from tests.transports.http.shared.workers import ASKED, accepted, text
from trunkline import Client
from trunkline.errors import StoreUnavailable
from trunkline.protocol.revisions import NEWEST, NEWEST_HANDSHAKE

pytestmark = needs_redis

Pair = tuple[Machine, Machine]


@pytest.fixture
def pair(own_redis: RedisServer) -> Iterator[Pair]:
    """Two machines on one Redis."""
    with machine(store=own_redis.url) as one, machine(store=own_redis.url) as other:
        yield one, other


async def test_a_session_of_one_machine_is_served_by_the_other(pair: Pair) -> None:
    async with web_client() as client:
        await client.open(pair[0], ASKED)
        served = [text((await client.post(each, tool("pid")))[1]) for each in pair]
        assert served == [str(each.process.pid) for each in pair]
        asking = await client.stream(pair[0], tool("greet"))
        assert (await client.post(pair[1], accepted(await asking.message(), "Ada")))[0] == 202
        assert text(await asking.message()) == "hello Ada"
        call = await client.stream(pair[0], tool("walk", n=30))
        said = [(await call.message())["params"]["data"] for _ in range(5)]
        call.close()
        resumed = await client.get(pair[1], last=call.last)
        while (message := await resumed.message()) is not None and "params" in message:
            said.append(message["params"]["data"])
        assert (said, text(message)) == ([f"step {n}" for n in range(30)], "walked")
        assert await client.delete(pair[1]) == 204
        assert [(await client.post(each, tool("pid")))[0] for each in (pair[1], pair[0])] == [404, 404]


def test_a_machine_without_a_key_refuses_to_start() -> None:
    with machine(store="redis://127.0.0.1:1/0", key=None, expect=False) as refused:
        _, said = refused.process.communicate(timeout=120)
        assert (refused.process.returncode, "TRUNKLINE_STATE_KEY" in said) == (2, True)


async def open_session(url: str) -> bool:
    """Open a session and call a tool in it; return False if the store is not there."""
    try:
        async with Client(url, revision=NEWEST_HANDSHAKE.name) as client:
            return bool((await client.call_tool("pid")).data)
    except StoreUnavailable:
        return False


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something holds, for a bounded time."""
    async with asyncio.timeout(120):
        while not await condition():  # noqa: ASYNC110  what is observed has no event
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_machine_starts_without_its_redis_and_serves_sessions_once_it_is_there(
    own_redis: RedisServer, workers: int
) -> None:
    own_redis.stop()
    with machine(store=own_redis.url, workers=workers) as one:
        async with web_client() as web, web.http.post(one.url, json=initialize(), headers=web.headers()) as response:
            assert (response.status, response.headers.get("retry-after")) == (503, "1")
        async with Client(one.url, revision=NEWEST.name) as client:
            # What needs no store is served.
            assert (await client.call_tool("pid")).data
            own_redis.start()
            await until(partial(open_session, one.url))


async def test_a_machine_with_other_keys_says_so_once_redis_is_there(own_redis: RedisServer, tmp_path: Path) -> None:
    log = tmp_path / "log"

    async def is_logged() -> bool:
        return "uses this store with other keys" in log.read_text()

    with machine(store=own_redis.url):
        own_redis.pause()
        with log.open("w") as stderr, machine(store=own_redis.url, key="66" * 32, stderr=stderr) as other:
            own_redis.resume()
            await until(is_logged)
            assert not await open_session(other.url)


def test_a_machine_with_another_key_refuses_to_start(own_redis: RedisServer) -> None:
    with machine(store=own_redis.url), machine(store=own_redis.url, key="66" * 32, expect=False) as refused:
        _, said = refused.process.communicate(timeout=120)
        assert (refused.process.returncode, "other keys" in said) == (2, True)


async def test_a_machine_killed_in_the_middle_of_an_elicitation_is_reported_at_once(pair: Pair) -> None:
    one, other = pair
    async with web_client() as client:
        await client.open(one, ASKED)
        call = await client.stream(one, tool("greet", id=9))
        question = await call.message()
        one.process.send_signal(signal.SIGKILL)
        one.process.wait(120)
        status, refused = await client.post(other, accepted(question, "Ada"))
        assert (status, "has ended" in refused["error"]["message"]) == (410, True)
        assert await call.message() is None
        assert (await client.post(other, tool("pid")))[0] == 200

"""What touches Redis, counted at Redis: the rows of the documentation that say never, and what a change costs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from redis.asyncio import Redis

from tests.store.redis_server import RedisServer, needs_redis
from tests.transports.http.serving_support import SessionClient, modern, request, tool
from tests.transports.http.shared.test_shared_state import ELICITS, answered
from tests.transports.http.shared.workers import Worker, at, connected_pair
from trunkline.store.redis import RedisEngine

pytestmark = needs_redis

CALLS = 20
LISTENS = request("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["note://one"]}})


@asynccontextmanager
async def quiet_pair(redis: RedisServer) -> AsyncIterator[tuple[Worker, Worker]]:
    """Run two workers that do not check Redis regularly, so that only what they serve is counted."""
    async with connected_pair(redis) as pair:
        for worker in pair:
            assert isinstance(worker.store, RedisEngine)
            assert worker.store._task is not None
            worker.store._task.cancel()
        yield pair


async def counted(redis: RedisServer, work: Callable[[], Awaitable[None]]) -> int:
    """Return how many commands Redis ran meanwhile, besides those that count."""
    async with Redis.from_url(redis.url) as client:
        await client.config_resetstat()
        await work()
        found = await client.info("commandstats")
    own = {"cmdstat_config|resetstat", "cmdstat_info", "cmdstat_client|setinfo"}
    return sum(each["calls"] for name, each in found.items() if name not in own)


async def stateless_calls(one: Worker, other: Worker) -> None:
    for _ in range(CALLS):
        for worker in (one, other):
            assert (await modern(worker.app, tool("add")).whole()).status == 200
            assert (await modern(worker.app, tool("steps")).whole()).status == 200


async def stateless_elicitations(one: Worker, other: Worker) -> None:
    for _ in range(CALLS):
        first = (await modern(one.app, tool("ask_name"), meta=ELICITS).whole()).json["result"]
        last = await modern(other.app, answered(first, "ask_name", "Ada"), meta=ELICITS).whole()
        assert last.json["result"]["content"][0]["text"] == "Ada"


async def listen_streams(one: Worker, other: Worker) -> None:
    calls = [modern(worker.app, LISTENS) for worker in (one, other) for _ in range(CALLS)]
    for call in calls:
        await call.message()
        call.hang_up()
        await call.ended()


async def handshakes(one: Worker, other: Worker) -> None:
    for _ in range(CALLS):
        for worker in (one, other):
            await SessionClient.open(worker.app)


@pytest.mark.parametrize("work", [stateless_calls, stateless_elicitations, listen_streams, handshakes])
async def test_it_never_touches_redis(
    own_redis: RedisServer, work: Callable[[Worker, Worker], Awaitable[None]]
) -> None:
    async with quiet_pair(own_redis) as (one, other):
        assert await counted(own_redis, lambda: work(one, other)) == 0


async def test_a_call_of_a_session_touches_redis_once_at_each_worker_and_then_never(own_redis: RedisServer) -> None:
    async with quiet_pair(own_redis) as (one, other):
        client = await SessionClient.open(one.app)

        async def calls() -> None:
            for worker in (one, other):
                assert (await at(client, worker).post(tool("add")).whole()).status == 200

        # The worker that did not open it reads its log level and subscriptions.
        assert await counted(own_redis, calls) == 1
        assert await counted(own_redis, calls) == 0


async def test_a_change_is_one_append_whatever_the_number_of_streams(own_redis: RedisServer) -> None:
    async with quiet_pair(own_redis) as (one, other):
        streams = [modern(worker.app, LISTENS) for worker in (one, other) for _ in range(CALLS)]
        for stream in streams:
            await stream.message()

        async with Redis.from_url(own_redis.url) as client:
            await client.config_resetstat()
            one.workshop.server.changed("note://one")
            for stream in streams:
                assert (await stream.message())["params"]["uri"] == "note://one"
            assert (await client.info("commandstats"))["cmdstat_evalsha"]["calls"] == 1
        for stream in streams:
            stream.hang_up()
            await stream.ended()

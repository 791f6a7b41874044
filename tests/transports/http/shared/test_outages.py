"""Shared sessions while Redis is gone, slow, restarted, or has lost writes: never a hang, never a silent gap."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.store.redis_server import RedisServer, needs_redis
from tests.transports.http.serving_support import POLLING, Call, SessionClient, initialize, modern, post, request, tool
from tests.transports.http.shared.workers import (
    ASKED,
    Worker,
    at,
    back,
    connected_pair,
    gone,
    refusal,
    text,
    until,
)
from trunkline import Context
from trunkline.store.redis import RedisEngine

pytestmark = [needs_redis, pytest.mark.usefixtures("hurried")]


async def test_calls_that_need_nothing_shared_go_on(own_redis: RedisServer) -> None:
    async with connected_pair(own_redis) as (one, other):
        client = await SessionClient.open(one.app)
        await gone(own_redis, one, other)
        fresh = await SessionClient.open(one.app)
        calls = [
            client.post(tool("add")),
            at(client, other).post(tool("add")),
            fresh.post(tool("add")),
            modern(one.app, tool("add")),
            modern(one.app, tool("steps")),
        ]
        assert [(await call.whole()).status for call in calls] == [200] * 5
        # An answer whose events cannot be stored is sent without them.
        answered = await client.post(tool("steps")).whole()
        assert (answered.status, answered.headers["content-type"]) == (200, "application/json")
        assert text(answered.json) == "walked"


async def test_what_needs_the_store_is_refused_with_a_time_to_retry(own_redis: RedisServer) -> None:
    async with connected_pair(own_redis, timeout=1.0) as (one, other):
        client = await SessionClient.open(one.app, capabilities=ASKED)
        call = client.post(tool("ask_name"))
        await call.message()
        await gone(own_redis, one, other)
        refused = [
            client.get(),
            client.get(last="1-1"),
            client.delete(),
            client.post(request("logging/setLevel", {"level": "error"})),
            client.post(request("resources/subscribe", {"uri": "note://one"})),
            client.post(tool("wait", say="hello")),
        ]
        assert [refusal(await each.whole()) for each in refused] == [(503, "1")] * len(refused)
        assert one.workshop.cancelled.is_set()
        call.hang_up()


async def test_a_redis_that_does_not_answer_delays_for_a_bounded_time(own_redis: RedisServer) -> None:
    async with connected_pair(own_redis, timeout=1.0) as (one, _):
        client = await SessionClient.open(one.app)
        own_redis.pause()
        calls = [client.post(tool("wait", say="hello")), client.get()]
        assert [refusal(await call.whole()) for call in calls] == [(503, "1")] * 2
        # Not sent: a write that was sent may be done once Redis goes on.
        assert refusal(await client.delete().whole()) == (503, "1")
        own_redis.resume()
        await until(lambda: one.store.available)
        assert (await client.post(tool("steps")).whole()).status == 200


async def test_everything_works_again_without_a_restart(own_redis: RedisServer) -> None:
    async with connected_pair(own_redis) as (one, other):
        client = await SessionClient.open(one.app)
        await gone(own_redis, one, other)
        await back(own_redis, one, other)
        listening = await at(client, other).listening()
        one.workshop.server.notify("acme/tick", {"number": 1})
        assert (await listening.message())["params"] == {"number": 1}
        assert (await client.delete().whole()).status == 204
        await listening.whole()
        assert (await at(client, other).post(tool("add")).whole()).status == 404


async def test_a_get_stream_goes_on_after_an_outage_and_misses_nothing(own_redis: RedisServer) -> None:
    async with connected_pair(own_redis) as (one, other):
        client = await SessionClient.open(one.app)
        listening = await client.listening()
        other.workshop.server.notify("acme/tick", {"number": 1})
        await listening.message()
        await gone(own_redis, one, other)
        other.workshop.server.notify("acme/tick", {"number": 2})
        await back(own_redis, one, other)
        other.workshop.server.notify("acme/tick", {"number": 3})
        assert [(await listening.message())["params"]["number"] for _ in range(2)] == [2, 3]
        listening.hang_up()
        await listening.ended()


async def test_a_worker_that_starts_without_redis_serves_and_joins_later(own_redis: RedisServer) -> None:
    own_redis.stop()
    worker = Worker(RedisEngine(own_redis.url, name="outages", timeout=1))
    worker.app.start()
    assert (await modern(worker.app, tool("add")).whole()).status == 200
    assert refusal(await post(worker.app, initialize()).whole()) == (503, "1")
    own_redis.start()
    async with asyncio.timeout(120):
        while (await post(worker.app, initialize()).whole()).status != 200:
            pass
    await worker.app.aclose()


# --- no event lost or doubled -----------------------------------------------------------------------------------------


class Follower:
    """Follows a call to its answer, resuming at any worker whenever the response ends early."""

    def __init__(self, client: SessionClient, *workers: Worker) -> None:
        self.client = client
        self.workers = workers
        self.said: list[str] = []
        self.ids: list[str] = []
        self.answers: list[Any] = []

    async def follow(self, call: Call) -> None:
        turn = 0
        while not self.answers:
            await call.ended()
            self.take(call)
            if not self.answers:
                turn += 1
                worker = self.workers[turn % len(self.workers)]
                call = at(self.client, worker).get(last=self.ids[-1])
                await asyncio.sleep(0.01)

    def take(self, call: Call) -> None:
        for event in call.taken():
            assert event.id is not None
            self.ids.append(event.id)
            if event.data:
                message = json.loads(event.data)
                if "result" in message or "error" in message:
                    self.answers.append(message)
                else:
                    self.said.append(message["params"]["data"])


async def test_a_restart_of_redis_loses_and_doubles_no_event(own_redis: RedisServer) -> None:
    async with connected_pair(own_redis) as (one, other):

        async def walk(ctx: Context, n: int) -> str:
            for step in range(n):
                await ctx.info(f"step {step}")
                await asyncio.sleep(0.002)
            return "walked"

        for worker in (one, other):
            worker.workshop.server.tool(walk)
        client = await SessionClient.open(one.app, POLLING)
        follower = Follower(client, one, other)
        call = client.post(tool("walk", n=600))
        follower.ids.append((await call.event()).id or "")
        follower.said.append("step 0")
        following = asyncio.create_task(follower.follow(call))
        for _ in range(3):
            own_redis.stop()
            own_redis.start()
            await until(lambda: one.store.available and other.store.available)
        await following
        assert follower.said == [f"step {step}" for step in range(600)]
        assert len(set(follower.ids)) == len(follower.ids)
        assert len(follower.answers) == 1


async def test_a_response_whose_events_wait_too_long_ends_and_is_resumed_later(own_redis: RedisServer) -> None:
    async with connected_pair(own_redis) as (one, other):
        client = await SessionClient.open(one.app, POLLING)
        call = client.post(tool("wait", say="hello"))
        opening, hello = await call.opening(), await call.event()
        await gone(own_redis, one, other)
        one.workshop.proceed.set()
        await call.whole()
        assert call.messages == []
        assert refusal(await at(client, other).get(last=hello.id).whole()) == (503, "1")
        await back(own_redis, one, other)
        resumed = at(client, other).get(last=opening.id)
        heard = [await resumed.message() for _ in range(2)]
        assert (heard[0]["params"]["data"], heard[1]["result"]["content"][0]["text"]) == ("hello", "done hello")
        await resumed.whole()


async def test_a_client_is_not_told_again_what_it_read_at_a_worker_that_died(own_redis: RedisServer) -> None:
    async with connected_pair(own_redis) as (one, other):
        client = await SessionClient.open(one.app)
        listening = await client.listening()
        other.workshop.server.notify("acme/tick", {"number": 1})
        await listening.message()
        one.app.open_responses._round()
        key = next(iter(one.app.sessions.by_key))
        async with asyncio.timeout(120):
            while await other.store.get(f"got:{key}") is None:
                pass
        await one.store.aclose()
        second = await at(client, other).listening()
        other.workshop.server.notify("acme/tick", {"number": 2})
        assert (await second.message())["params"] == {"number": 2}
        second.hang_up()
        await second.ended()
        listening.hang_up()


# --- lost writes ------------------------------------------------------------------------------------------------------


async def test_a_failover_that_lost_writes_ends_the_sessions(own_redis: RedisServer) -> None:
    from redis.asyncio import Redis

    async with connected_pair(own_redis) as (one, other):
        client = await SessionClient.open(one.app)
        listening = await at(client, other).listening()
        await client.post(tool("steps")).whole()
        assert isinstance(one.store, RedisEngine)
        generation = one.store.generation
        async with Redis.from_url(own_redis.url) as raw:
            # What a replica has that did not receive the last appends of this worker.
            await raw.hincrby(one.store._process_key, "last", -1)
        await listening.whole()
        await until(lambda: generation not in (one.store.generation, other.store.generation))
        statuses = [(await at(client, worker).post(tool("add")).whole()).status for worker in (one, other)]
        assert statuses == [404, 404]
        again = await SessionClient.open(other.app)
        assert (await at(again, one).post(tool("steps")).whole()).status == 200


async def test_an_empty_redis_ends_the_sessions(own_redis: RedisServer) -> None:
    async with connected_pair(own_redis) as (one, other):
        client = await SessionClient.open(one.app)
        generation = one.store.generation
        own_redis.stop()
        own_redis.forget()
        await back(own_redis, one, other)
        await until(lambda: generation not in (one.store.generation, other.store.generation))
        assert (await at(client, other).post(tool("add")).whole()).status == 404


@pytest.mark.parametrize("dead", ["at the resume", "while it is read"])
async def test_the_stream_of_a_worker_that_died_ends_with_an_error(own_redis: RedisServer, dead: str) -> None:
    async with connected_pair(own_redis) as (one, other):
        client = await SessionClient.open(one.app, POLLING)
        call = client.post(tool("wait", say="hello", id=5))
        hello = [await call.opening(), await call.event()][1]
        late = dead == "while it is read"
        resumed = at(client, other).get(last=hello.id) if late else None
        if resumed is not None:
            assert await resumed.head() == 200
        # As a KILL: its connections to Redis are gone, and nothing else happened.
        await one.store.aclose()
        resumed = resumed or at(client, other).get(last=hello.id)
        error = await resumed.message()
        assert (error["id"], "has ended" in error["error"]["message"]) == (5, True)
        await resumed.whole()
        one.workshop.proceed.set()

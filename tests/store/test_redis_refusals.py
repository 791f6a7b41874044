"""The Redis store when Redis answers, but refuses: a full memory, a replica."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from redis.asyncio import Redis

from tests.store.redis_server import RedisServer, needs_redis
from tests.store.test_redis import append, connected, entry, until
from trunkline.errors import StoreUnavailable

pytestmark = needs_redis


@asynccontextmanager
async def full(server: RedisServer) -> AsyncIterator[Redis]:
    """Let a Redis refuse every write that needs memory."""
    async with Redis.from_url(server.url) as raw:
        await raw.config_set("maxmemory-policy", "noeviction")
        await raw.config_set("maxmemory", "1mb")
        try:
            yield raw
        finally:
            await raw.config_set("maxmemory", "0")


async def test_a_refused_write_fails_alone(own_redis: RedisServer) -> None:
    async with connected(own_redis) as store:
        await store.put("key", b"1", ttl=60)
        async with full(own_redis):
            for _ in range(3):
                with pytest.raises(StoreUnavailable, match="refused"):
                    await store.put("key", b"2", ttl=60)
                assert (await store.get("key"), store.available) == (b"1", True)
        assert await store.put("key", b"3", ttl=60)


async def test_a_replica_is_no_redis_to_write_to(own_redis: RedisServer) -> None:
    async with connected(own_redis) as store, Redis.from_url(own_redis.url) as raw:
        await raw.config_set("replica-serve-stale-data", "yes")
        await raw.execute_command("REPLICAOF", "127.0.0.1", "1")  # type: ignore[no-untyped-call]
        waiting = asyncio.create_task(append(store, 1, patience=60))
        await until(lambda: not store.available)
        with pytest.raises(StoreUnavailable):
            await store.put("key", b"1", ttl=60)
        await raw.execute_command("REPLICAOF", "NO", "ONE")  # type: ignore[no-untyped-call]
        assert await asyncio.wait_for(waiting, 120)
        await until(lambda: store.available)


async def test_appends_wait_for_memory_and_keep_their_order(own_redis: RedisServer) -> None:
    async with connected(own_redis) as store:
        generation = store.generation
        first = await append(store, 0)
        async with full(own_redis) as raw:
            refused = (await raw.info("errorstats")).get("errorstat_OOM", {}).get("count", 0)
            waiting = [asyncio.create_task(append(store, n, patience=60)) for n in range(1, 600)]
            async with asyncio.timeout(120):
                while (await raw.info("errorstats")).get("errorstat_OOM", {}).get("count", 0) <= refused + 2:
                    pass
            assert store.available
        ids = [first, *await asyncio.gather(*waiting)]
        found = await store.read("log", limit=10_000)
        assert [(each.id, each.data) for each in found or ()] == [(id, entry(n)) for n, id in enumerate(ids)]
        await append(store, 600)
        await store._check()
        assert store.generation == generation


async def test_the_patience_of_a_refused_append_ends(own_redis: RedisServer) -> None:
    async with connected(own_redis) as store:
        async with full(own_redis):
            with pytest.raises(StoreUnavailable, match="store an event"):
                await asyncio.wait_for(append(store, 1, patience=0.3), 120)
        assert await append(store, 2)


async def test_an_append_that_can_never_be_done_fails_alone(own_redis: RedisServer) -> None:
    async with connected(own_redis) as store, Redis.from_url(own_redis.url) as raw:
        await raw.set(store._names.log("other")[0], "not a stream")
        limits: dict[str, Any] = {"ttl": 60, "max_entries": 10, "max_bytes": 1000}
        calls = [append(store, 1), store.append("other", b"", **limits), append(store, 2)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert [isinstance(each, StoreUnavailable) for each in outcomes] == [False, True, False]
        assert [each.data for each in await store.read("log") or ()] == [b"1", b"2"]

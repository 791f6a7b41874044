"""The Redis backplane when Redis answers, but refuses: a full memory, a replica."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from redis.asyncio import Redis

from tests.backplane.redis_server import RedisServer, needs_redis
from tests.backplane.test_redis import append, connected, entry, until
from trunkline.errors import BackplaneUnavailable

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
    async with connected(own_redis) as backplane:
        await backplane.put("key", b"1", ttl=60)
        async with full(own_redis):
            for _ in range(3):
                with pytest.raises(BackplaneUnavailable, match="refused"):
                    await backplane.put("key", b"2", ttl=60)
                assert (await backplane.get("key"), backplane.available) == (b"1", True)
        assert await backplane.put("key", b"3", ttl=60)


async def test_a_replica_is_no_redis_to_write_to(own_redis: RedisServer) -> None:
    async with connected(own_redis) as backplane, Redis.from_url(own_redis.url) as raw:
        await raw.config_set("replica-serve-stale-data", "yes")
        await raw.execute_command("REPLICAOF", "127.0.0.1", "1")  # type: ignore[no-untyped-call]
        waiting = asyncio.create_task(append(backplane, 1, patience=60))
        await until(lambda: not backplane.available)
        with pytest.raises(BackplaneUnavailable):
            await backplane.put("key", b"1", ttl=60)
        await raw.execute_command("REPLICAOF", "NO", "ONE")  # type: ignore[no-untyped-call]
        assert await asyncio.wait_for(waiting, 60)
        await until(lambda: backplane.available)


async def test_appends_wait_for_memory_and_keep_their_order(own_redis: RedisServer) -> None:
    async with connected(own_redis) as backplane:
        generation = backplane.generation
        first = await append(backplane, 0)
        async with full(own_redis) as raw:
            refused = (await raw.info("errorstats")).get("errorstat_OOM", {}).get("count", 0)
            waiting = [asyncio.create_task(append(backplane, n, patience=60)) for n in range(1, 600)]
            async with asyncio.timeout(60):
                while (await raw.info("errorstats")).get("errorstat_OOM", {}).get("count", 0) <= refused + 2:
                    pass
            assert backplane.available
        ids = [first, *await asyncio.gather(*waiting)]
        found = await backplane.read("log", limit=10_000)
        assert [(each.id, each.data) for each in found or ()] == [(id, entry(n)) for n, id in enumerate(ids)]
        await append(backplane, 600)
        await backplane._check()
        assert backplane.generation == generation


async def test_the_patience_of_a_refused_append_ends(own_redis: RedisServer) -> None:
    async with connected(own_redis) as backplane:
        async with full(own_redis):
            with pytest.raises(BackplaneUnavailable, match="store an event"):
                await asyncio.wait_for(append(backplane, 1, patience=0.3), 30)
        assert await append(backplane, 2)


async def test_an_append_that_can_never_be_done_fails_alone(own_redis: RedisServer) -> None:
    async with connected(own_redis) as backplane, Redis.from_url(own_redis.url) as raw:
        await raw.set(backplane._log("other"), "not a stream")
        limits: dict[str, Any] = {"ttl": 60, "max_entries": 10, "max_bytes": 1000}
        calls = [append(backplane, 1), backplane.append("other", b"", **limits), append(backplane, 2)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert [isinstance(each, BackplaneUnavailable) for each in outcomes] == [False, True, False]
        assert [each.data for each in await backplane.read("log") or ()] == [b"1", b"2"]

"""Locks between workers: one holder at a time, a lease that is renewed, and one that runs out with its holder."""

from __future__ import annotations

import asyncio

import pytest

from tests.store.conftest import Workers, own_redis, shared_redis, workers
from tests.store.redis_server import RedisServer, needs_redis
from trunkline.errors import StoreUnavailable
from trunkline.store.lock import StoreLock
from trunkline.store.redis import RedisEngine

__all__ = ["own_redis", "shared_redis", "workers"]


async def test_one_worker_holds_a_lock_at_a_time(workers: Workers) -> None:
    async with workers(2) as stores:
        inside, most, done = 0, 0, 0

        async def work(number: int) -> None:
            nonlocal inside, most, done
            async with StoreLock(stores[number % 2], "login"):
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(0)
                inside -= 1
                done += 1

        async with asyncio.timeout(120):
            await asyncio.gather(*(work(number) for number in range(12)))
        assert (most, done) == (1, 12)


async def test_locks_of_different_names_do_not_wait_for_each_other(workers: Workers) -> None:
    async with workers(2) as (one, other), asyncio.timeout(120), StoreLock(one, "a"), StoreLock(other, "b"):
        pass


async def test_a_lock_is_renewed_while_it_is_held(workers: Workers) -> None:
    async with workers(2) as (one, other), StoreLock(one, "login", lease=0.6):
        with pytest.raises(StoreUnavailable, match="has held a lock"):
            await StoreLock(other, "login", lease=0.6, wait=2.0).__aenter__()


async def test_the_lock_of_a_worker_that_died_runs_out(workers: Workers) -> None:
    async with workers(2) as (one, other), asyncio.timeout(120):
        dead = StoreLock(one, "login", lease=0.2)
        await dead.__aenter__()
        assert dead._renewing is not None
        dead._renewing.cancel()
        async with StoreLock(other, "login"):
            # It is no longer theirs to release.
            await dead.__aexit__(None, None, None)
            with pytest.raises(StoreUnavailable, match="has held a lock"):
                await StoreLock(one, "login", wait=0.0).__aenter__()


@needs_redis
async def test_no_lock_is_acquired_while_redis_is_gone(own_redis: RedisServer) -> None:
    store = RedisEngine(own_redis.url, name="locks", timeout=1.0)
    try:
        async with StoreLock(store, "login"):
            own_redis.stop()
        with pytest.raises(StoreUnavailable):
            await StoreLock(store, "login").__aenter__()
    finally:
        await store.aclose()

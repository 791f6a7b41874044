"""The one connection of the Redis store: thousands of verbs at once, connections that are cut, a Redis that is away."""

from __future__ import annotations

import asyncio
import logging

import pytest
from redis.asyncio import Redis

from tests.store.redis_server import RedisServer, needs_redis
from tests.store.test_redis import append, connected, until
from trunkline.errors import StoreUnavailable
from trunkline.store import redis_connection
from trunkline.store.open import open_store
from trunkline.store.redis import RedisEngine
from trunkline.store.redis_connection import RedisAddress

pytestmark = needs_redis

MANY = 6000


async def test_thousands_of_verbs_after_a_cut_channel_all_succeed(
    own_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """What a worker with thousands of streams does: each reads its log again, and new ones subscribe meanwhile."""
    async with connected(own_redis, timeout=1.0) as store, Redis.from_url(own_redis.url) as raw:
        heard: list[bytes] = []
        reads: list[asyncio.Task[object]] = []
        seen_available: list[bool] = []

        def read_again() -> None:
            seen_available.append(store.available)
            reads.append(asyncio.create_task(store.read("log")))
            reads.append(asyncio.create_task(store.put(f"key {len(reads)}", b"1", ttl=60)))

        for n in range(0, MANY, 500):
            await asyncio.gather(
                *(store.subscribe(f"c{m}", heard.append, missed=read_again) for m in range(n, n + 500))
            )
        caplog.set_level(logging.WARNING, "trunkline.store")
        await raw.execute_command("CLIENT", "KILL", "TYPE", "pubsub")  # type: ignore[no-untyped-call]
        opened = await asyncio.gather(*(store.subscribe(f"new {n}", heard.append) for n in range(1000)))
        await until(lambda: len(reads) == 2 * MANY)
        await asyncio.gather(*reads)
        assert (len(opened), set(seen_available), store.available, store.stats.failed) == (1000, {True}, True, 0)
        assert "cannot be reached" not in caplog.text


async def test_commands_of_one_turn_leave_in_one_write(own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async with connected(own_redis) as store:
        connection = store._commands._connection
        writes: list[int] = []
        send = connection.send_packed_command

        async def counting(chunks: list[bytes], **options: object) -> None:
            writes.append(len(chunks))
            await send(chunks, **options)

        monkeypatch.setattr(connection, "send_packed_command", counting)
        await asyncio.gather(*(store.get(f"{n}") for n in range(100)))
        assert max(writes) >= 100


async def test_a_call_that_is_cancelled_takes_no_reply_of_another(own_redis: RedisServer) -> None:
    async with connected(own_redis) as store:
        await asyncio.gather(*(store.put(f"{n}", b"%d" % n, ttl=60) for n in range(100)))
        calls = [asyncio.create_task(store.get(f"{n}")) for n in range(100)]
        calls[0].add_done_callback(lambda _: [call.cancel() for call in calls[1::2]])
        for call in calls[20:40]:
            call.cancel()
        await asyncio.wait(calls)
        replies = {n: call.result() for n, call in enumerate(calls) if not call.cancelled()}
        assert len(replies) >= 40
        assert replies == {n: b"%d" % n for n in replies}
        assert await store.get("7") == b"7"


async def test_a_cut_connection_is_made_again_and_reads_are_repeated(own_redis: RedisServer) -> None:
    async with connected(own_redis) as store, Redis.from_url(own_redis.url) as raw:
        await store.put("key", b"1", ttl=60)
        generation = store.generation
        for _ in range(3):
            calls = [asyncio.create_task(store.get("key")) for _ in range(2000)]
            await raw.execute_command("CLIENT", "KILL", "TYPE", "normal")  # type: ignore[no-untyped-call]
            assert set(await asyncio.gather(*calls)) == {b"1"}
            assert store.available
        assert (store.generation, store.stats.failed) == (generation, 0)


async def test_a_connection_that_is_cut_during_a_check_is_made_again(own_redis: RedisServer) -> None:
    """The check waits for the connection, and nothing else may wait for the check."""
    async with connected(own_redis) as store:
        own_redis.pause()
        store._check_now.set()
        await until(lambda: bool(store._commands._under_way))
        store._commands._lose(OSError("cut"), repeat=True)
        own_redis.resume()
        assert await asyncio.wait_for(store.get("key"), 120) is None
        assert store.available


async def test_a_slow_redis_is_not_a_lost_one(own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command takes long, and all of them far longer than the timeout: the time in the queue does not count."""
    monkeypatch.setattr(redis_connection, "_WINDOW", 2)
    busy = """local function now() local time = redis.call('TIME') return time[1] * 1000000 + time[2] end
    local start = now() while now() - start < 100000 do end return 1"""
    async with connected(own_redis, timeout=0.8) as store:
        replies = [store._commands.call("EVAL", busy, 0) for _ in range(20)]
        assert await asyncio.gather(store.put("key", b"1", ttl=60), *replies) == [True] + [1] * 20
        assert (store.available, store.stats.failed) == (True, 0)


async def test_the_queue_is_bounded_in_commands_and_bytes(
    own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(own_redis) as store:
        # Its checks would wait in the queue too.
        assert store._task is not None
        store._task.cancel()
        monkeypatch.setattr(redis_connection, "_WAITING", 50)
        outcomes = await asyncio.gather(*(store.get(f"{n}") for n in range(80)), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [type(None)] * 50 + [StoreUnavailable] * 30
        monkeypatch.setattr(redis_connection, "_WAITING_BYTES", 100_000)
        stored = await asyncio.gather(
            *(store.put(f"{n}", bytes(60_000), ttl=60) for n in range(4)), return_exceptions=True
        )
        assert [isinstance(outcome, StoreUnavailable) for outcome in stored] == [False, False, True, True]
        assert store.available


async def test_large_commands_leave_one_after_another(own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_connection, "_WINDOW_BYTES", 50_000)
    monkeypatch.setattr(redis_connection, "_WINDOW", 3)
    async with connected(own_redis) as store:
        await asyncio.gather(*(store.put(f"{n}", bytes(60_000 + n), ttl=60) for n in range(10)))
        values = await asyncio.gather(*(store.get(f"{n}") for n in range(10)))
        assert [len(value or b"") for value in values] == [60_000 + n for n in range(10)]


async def test_an_engine_that_opened_while_redis_was_away_needs_no_second_connect(own_redis: RedisServer) -> None:
    own_redis.stop()
    store = RedisEngine(own_redis.url, name="test", timeout=1.0)
    try:
        with pytest.raises(StoreUnavailable):
            await store.connect()
        assert (store.available, store.generation) == (False, "")
        own_redis.start()
        await until(lambda: store.available)
        assert store.generation
        heard: list[bytes] = []
        await store.subscribe("news", heard.append)
        assert await store.put("key", b"1", ttl=60)
        await append(store, 1)
        await until(lambda: len(heard) == 1)
    finally:
        await store.aclose()


async def test_an_engine_is_connected_by_its_first_use_or_a_second_attempt(own_redis: RedisServer) -> None:
    for connect in (False, True):
        store = RedisEngine(own_redis.url, name="test")
        try:
            if connect:
                own_redis.stop()
                with pytest.raises(StoreUnavailable):
                    await store.connect()
                own_redis.start()
                await store.connect()
                assert store.available
            assert await store.get("key") is None
        finally:
            await store.aclose()


async def test_a_valkey_url_is_one_of_redis(own_redis: RedisServer) -> None:
    store = open_store(own_redis.url.replace("redis://", "valkey://"), name="test")
    await store.connect()
    try:
        assert await store.put("key", b"1", ttl=60)
        assert await store.get("key") == b"1"
    finally:
        await store.aclose()


@pytest.mark.parametrize(
    ("url", "hosts", "service", "settings"),
    [
        ("redis+sentinel://one:1,two:2/main/3", [("one", 1), ("two", 2)], "main", {"db": 3}),
        ("redis+sentinel://one/main", [("one", 26379)], "main", {"db": 0}),
        ("redis+sentinel://ada:p%2Fq@[::1]:7/main", [("::1", 7)], "main", {"username": "ada", "password": "p/q"}),
        ("rediss+sentinel://:pass@one/main/0", [("one", 26379)], "main", {"username": None, "password": "pass"}),
    ],
)
def test_a_sentinel_url_names_hosts_service_and_database(
    url: str, hosts: list[tuple[str, int]], service: str, settings: dict[str, object]
) -> None:
    address = RedisAddress(url, timeout=1)
    assert address._sentinel is not None
    pools = [client.connection_pool.connection_kwargs for client in address._sentinel.sentinels]
    assert [(pool["host"], pool["port"]) for pool in pools] == hosts
    pool = address._pool
    assert pool.service_name == service  # type: ignore[attr-defined]
    assert pool.connection_kwargs.items() >= settings.items()
    assert ("SSL" in pool.connection_class.__name__) == url.startswith("rediss")


@pytest.mark.parametrize("url", ["redis+sentinel://one", "redis+sentinel:///main", "redis+sentinel://one:x/main"])
def test_a_sentinel_url_without_a_part_is_refused(url: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  what it says is of urllib
        RedisAddress(url, timeout=1)

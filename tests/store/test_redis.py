"""The Redis store when Redis is slow, gone, back, or has lost writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.store.redis_server import RedisServer, needs_redis
from trunkline.errors import StoreUnavailable
from trunkline.store.interface import IndexLimits
from trunkline.store.open import open_store
from trunkline.store.redis import RedisEngine

pytestmark = needs_redis


@asynccontextmanager
async def connected(server: RedisServer, timeout: float = 3.0) -> AsyncIterator[RedisEngine]:
    store = RedisEngine(server.url, name="test", timeout=timeout)
    await store.connect()
    try:
        yield store
    finally:
        await store.aclose()


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds, for a bounded time."""
    async with asyncio.timeout(120):
        while not condition():  # noqa: ASYNC110  what is observed has no event
            await asyncio.sleep(0.005)


def entry(n: int) -> bytes:
    return b"%d" % n


async def append(store: RedisEngine, n: int, patience: float | None = None) -> str:
    added = await store.append(
        "log", entry(n), ttl=60, max_entries=10_000, max_bytes=10**7, announce="news", patience=patience
    )
    return added.id


async def test_a_redis_that_is_gone_is_reported_at_once(own_redis: RedisServer) -> None:
    async with connected(own_redis) as store:
        own_redis.stop()
        with pytest.raises(StoreUnavailable):
            await store.get("key")
        assert not store.available
        with pytest.raises(StoreUnavailable):
            await append(store, 1, patience=0.1)
        with pytest.raises(StoreUnavailable):
            await open_store(own_redis.url, name="test").connect()


async def test_a_closed_store_opens_no_connection_again(own_redis: RedisServer) -> None:
    async with connected(own_redis) as store:
        pass
    for call in (store.get("a"), store.publish("b", b""), store.put("c", b"", ttl=1)):
        with pytest.raises(StoreUnavailable, match="closed"):
            await call
    with pytest.raises(StoreUnavailable, match="closed"):
        await append(store, 1)


async def test_a_redis_that_does_not_answer_costs_one_timeout(own_redis: RedisServer) -> None:
    async with connected(own_redis, timeout=0.5) as store:
        own_redis.pause()
        with pytest.raises(StoreUnavailable, match="did not answer"):
            await store.get("a")
        for call in (store.get("a"), store.publish("b", b""), store.put("c", b"", ttl=1)):
            # Not sent at all: one probe finds out when Redis is back.
            with pytest.raises(StoreUnavailable, match="keeps trying"):
                await call
        own_redis.resume()
        await until(lambda: store.available)


async def test_it_recovers_without_a_restart_and_subscribers_learn_that_they_missed_something(
    own_redis: RedisServer,
) -> None:
    async with connected(own_redis) as store:
        heard: list[bytes] = []
        missed: list[bool] = []
        await store.subscribe("news", heard.append, missed=lambda: missed.append(True))
        generation = store.generation
        own_redis.stop()
        await until(lambda: not store.available)
        own_redis.start()
        await until(lambda: store.available)
        await until(lambda: missed == [True])
        await store.publish("news", b"1")
        await until(lambda: heard == [b"1"])
        assert store.generation == generation


async def test_appends_survive_a_restart_each_once_and_in_order(own_redis: RedisServer) -> None:
    async with connected(own_redis) as store:
        running = [asyncio.create_task(append(store, n, patience=30)) for n in range(2000)]
        await until(lambda: any(task.done() for task in running))
        own_redis.stop()
        own_redis.start()
        ids = await asyncio.gather(*running)
        found = await store.read("log", limit=10_000)
        assert [(each.id, each.data) for each in found or ()] == [(id, entry(n)) for n, id in enumerate(ids)]


async def test_lost_writes_are_noticed_and_start_a_new_generation(own_redis: RedisServer) -> None:
    async with connected(own_redis) as store, connected(own_redis) as other:
        seen: list[str] = []
        other.on_new_generation(seen.append)
        await append(store, 1)
        before = store.generation
        await _lose(own_redis, store)
        await until(lambda: seen == [store.generation])
        assert store.generation != before
        await append(store, 2)
        assert [each.data for each in await other.read("log") or ()] == [b"1", b"2"]


@pytest.mark.parametrize(
    "write",
    [
        lambda store: store.put("nonce", b"", ttl=60, only_if_absent=True),
        lambda store: store.replace("key", b"1", b"2", ttl=60),
        lambda store: store.delete("key"),
        lambda store: store.index("member", into={"index": IndexLimits()}, ttl=60),
    ],
    ids=["put", "replace", "delete", "index"],
)
async def test_a_write_after_lost_ones_neither_succeeds_nor_hides_them(
    own_redis: RedisServer, write: Callable[[RedisEngine], Awaitable[object]]
) -> None:
    from redis.asyncio import Redis

    async with connected(own_redis) as store, Redis.from_url(own_redis.url) as client:
        await store.put("key", b"1", ttl=60)
        await write(store)
        before = store.generation
        # Redis goes back to the time before the last write.
        await client.hincrby(store._process_key, "writes", -1)
        await client.delete(store._names.value("nonce"))
        outcomes = await asyncio.gather(*(write(store) for _ in range(3)), return_exceptions=True)
        assert [type(each) for each in outcomes] == [StoreUnavailable] * 3
        await until(lambda: store.generation != before)
        await write(store)


async def test_an_append_without_an_answer_is_done_once_although_another_write_is_lost(
    own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from redis.asyncio import Redis

    run_group, done, go_on = RedisEngine.run_group, asyncio.Event(), asyncio.Event()

    async def run_without_answer(self: RedisEngine, calls: Any) -> list[Any]:
        replies = await run_group(self, calls)
        if not done.is_set():
            done.set()
            await go_on.wait()
            raise StoreUnavailable("the answer is lost")
        return replies

    monkeypatch.setattr(RedisEngine, "run_group", run_without_answer)
    async with connected(own_redis) as store, Redis.from_url(own_redis.url) as client:
        appending = asyncio.create_task(append(store, 1, patience=30))
        await done.wait()
        await store.put("key", b"1", ttl=60)
        before = store.generation
        # A failover to a replica that has the append, and not the write after it.
        await client.hincrby(store._process_key, "writes", -1)
        await until(lambda: store.generation != before)
        go_on.set()
        id = await appending
        assert [(each.id, each.data) for each in await store.read("log") or ()] == [(id, b"1")]
        await append(store, 2)
        assert [each.data for each in await store.read("log") or ()] == [b"1", b"2"]


async def test_an_empty_redis_begins_one_generation_for_all_processes_that_lost_writes(own_redis: RedisServer) -> None:
    async with connected(own_redis) as one, connected(own_redis) as other:
        seen: list[tuple[str, str]] = []
        for name, store in (("one", one), ("other", other)):
            store.on_new_generation(lambda generation, name=name: seen.append((name, generation)))  # type: ignore[misc]
            await append(store, 1)
        before = one.generation
        own_redis.stop()
        own_redis.forget()
        own_redis.start()
        await until(lambda: before not in (one.generation, other.generation))
        for store in (one, other, one):
            # As the task of each process does it once a second.
            await store._check()
        assert sorted(seen) == [("one", one.generation), ("other", one.generation)]
        assert other.generation == one.generation
        await append(one, 2)
        await append(other, 3)
        assert [each.data for each in await other.read("log") or ()] == [b"2", b"3"]


async def test_a_generation_that_had_ended_does_not_come_back(own_redis: RedisServer) -> None:
    from redis.asyncio import Redis

    async with connected(own_redis) as store:
        await append(store, 1)
        first = store.generation
        await _lose(own_redis, store)
        await until(lambda: store.generation != first)
        second = store.generation
        async with Redis.from_url(own_redis.url) as client:
            # A second failover, to a replica that has not heard of the first.
            await client.set(store._names.generation, first)
        await until(lambda: store.generation not in (first, second))


async def _lose(server: RedisServer, store: RedisEngine) -> None:
    """Delete the last write of a process, as if a replica had lagged behind."""
    from redis.asyncio import Redis

    async with Redis.from_url(server.url) as client:
        await client.delete(store._process_key)


async def test_a_process_that_was_cut_off_for_a_day_has_lost_no_writes(own_redis: RedisServer) -> None:
    async with connected(own_redis) as store:
        await store.put("key", b"1", ttl=60)
        await append(store, 1)
        before = store.generation
        process_key = store._process_key
        store._checked_at -= 86400
        from redis.asyncio import Redis

        async with Redis.from_url(own_redis.url) as client:
            await client.delete(process_key)
        await store._check()
        await append(store, 2)
        assert await store.put("key", b"2", ttl=60)
        await store._check()
        assert store.generation == before


async def test_a_subscription_ends_without_an_error_whatever_its_connection_does(
    own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(own_redis, timeout=0.3) as store:
        subscriptions = [await store.subscribe(name, lambda _: None) for name in ("one", "two")]

        async def dropped(*_: object) -> None:
            raise RuntimeError("the connection was dropped")

        async def stuck(*_: object) -> None:
            await asyncio.Event().wait()

        for subscription, fault in zip(subscriptions, (dropped, stuck), strict=True):
            monkeypatch.setattr(store._channels._connection, "send_command", fault)
            async with asyncio.timeout(120):
                await subscription.close()
        async with asyncio.timeout(120):
            with pytest.raises(StoreUnavailable, match="TimeoutError"):
                await store.subscribe("three", lambda _: None)


async def test_channels_outlive_an_error_that_nothing_expects(
    own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(own_redis) as store:
        heard: list[bytes] = []
        missed: list[bool] = []
        await store.subscribe("news", heard.append, missed=lambda: missed.append(True))
        failing = iter([ValueError("a reply that is none of Redis")])

        async def fail_once() -> None:
            for error in failing:
                raise error

        monkeypatch.setattr(store._channels, "_before_missed", fail_once)
        await store._channels.drop()
        await until(lambda: missed == [True])
        await store.publish("news", b"1")
        await until(lambda: heard == [b"1"])


async def test_the_connection_for_channels_is_kept(own_redis: RedisServer) -> None:
    async with connected(own_redis) as store:
        missed: list[bool] = []
        await store.subscribe("news", lambda _: None, missed=lambda: missed.append(True))
        for _ in range(3):
            await store._check()
        await _lose(own_redis, store)
        await append(store, 1)
        for _ in range(3):
            await store._check()
        assert (missed, store.available) == ([], True)


async def test_channels_that_were_subscribed_after_the_message_of_a_check_are_kept(
    own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(own_redis) as store:
        channels, connect, call = store._channels, store._channels._connect, store._call
        go_on = asyncio.Event()

        async def connect_later() -> None:
            await go_on.wait()
            await connect()

        async def call_slowly(*command: Any, **options: Any) -> Any:
            reply = await call(*command, **options)
            if command[0] == "INFO":
                go_on.set()
                await until(lambda: channels.connected)
            return reply

        monkeypatch.setattr(channels, "_connect", connect_later)
        await channels.drop()
        await until(lambda: not channels.connected)
        drops: list[bool] = []

        async def drop() -> None:
            drops.append(True)

        monkeypatch.setattr(channels, "drop", drop)
        monkeypatch.setattr(store, "_call", call_slowly)
        await store._check()
        assert drops == []
        monkeypatch.undo()


async def test_scripts_are_loaded_again(own_redis: RedisServer) -> None:
    from redis.asyncio import Redis

    async with connected(own_redis) as store, Redis.from_url(own_redis.url) as client:
        await client.script_flush()
        await append(store, 1)
        await client.script_flush()
        assert await store.put("key", b"1", ttl=1)

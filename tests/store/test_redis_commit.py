"""The commit of the Redis store: one script, all or nothing, the same work with few and with many stored."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from redis.asyncio import Redis

from tests.store.redis_server import RedisServer, needs_redis
from tests.store.test_redis import connected, until
from trunkline.store.interface import (
    Commit,
    Delete,
    Delivery,
    Enqueue,
    Finish,
    FullIndex,
    Index,
    IndexLimits,
    Publish,
    Put,
    Step,
)
from trunkline.store.redis import RedisEngine

pytestmark = needs_redis

ANY = IndexLimits()


async def commands(raw: Redis, work: Awaitable[object]) -> dict[str, int]:
    """Return how often Redis ran each command meanwhile, those of scripts too."""
    await raw.config_resetstat()
    await work
    counted = await raw.info("commandstats")
    return {
        name.removeprefix("cmdstat_"): counts["calls"]
        for name, counts in counted.items()
        if not name.startswith(("cmdstat_config", "cmdstat_info"))
    }


async def test_all_steps_are_done_by_one_command_and_counted_once(own_redis: RedisServer) -> None:
    async with connected(own_redis) as store, Redis.from_url(own_redis.url) as raw:
        heard: list[bytes] = []
        await store.subscribe("news", heard.append)
        await store.put("old", b"1", ttl=60)
        await store.enqueue("jobs", "first", b"", holder="ada")
        writes = store._writes
        assert store._task is not None
        store._task.cancel()
        steps: list[Step] = [
            Put("key", b"1", 60, only_if_absent=True),
            Put("other", b"2", 60),
            Delete("old"),
            Index("member", {"index": ANY, "few": IndexLimits(1, 9)}, ["gone"], 5, 60),
            Enqueue("jobs", "second", b"data"),
            Finish("jobs", "ada", "first"),
            Publish("news", b"done"),
        ]
        counts = await commands(raw, store.commit(*steps))
        assert (counts["evalsha"], store._writes) == (1, writes + 1)
        assert [await store.get(key) for key in ("key", "other", "old")] == [b"1", b"2", None]
        assert await store.members("few") == ["member"]
        assert await store.take("jobs", "bob", lease=60, limit=9) == [Delivery("second", b"data", 1)]
        assert await store.renew("jobs", "ada", ["first"]) == []
        await until(lambda: heard == [b"done"])


@pytest.mark.parametrize(
    ("failing", "outcome"),
    [
        (Put("there", b"2", 60, only_if_absent=True), Commit(False)),
        (Put("there", b"2", 60, b"other"), Commit(False)),
        (Put("absent", b"2", 60, b""), Commit(False)),
        (Index("b", {"any": ANY, "few": IndexLimits(1)}), Commit(False, FullIndex("few", "members"))),
        (Index("a", {"heavy": IndexLimits(0, 5)}, weight=6), Commit(False, FullIndex("heavy", "weight"))),
    ],
    ids=["present", "another value", "no value", "members", "weight"],
)
async def test_nothing_is_done_if_one_condition_does_not_hold(
    own_redis: RedisServer, failing: Put | Index, outcome: Commit
) -> None:
    async with connected(own_redis) as store:
        await store.commit(Put("there", b"1", 60), Index("a", {"few": ANY}, ttl=60))
        others: list[Step] = [
            Put("key", b"1", 60),
            Enqueue("jobs", "id", b""),
            Index("c", {"any": ANY}, ttl=60),
            Delete("there"),
        ]
        assert await store.commit(*others[:2], failing, *others[2:]) == outcome
        assert [await store.get(key) for key in ("there", "key")] == [b"1", None]
        assert (await store.take("jobs", "ada", lease=60), await store.members("any")) == ([], [])
        assert (await store.commit(*others)).done


async def test_an_entry_that_is_enqueued_again_is_replaced(own_redis: RedisServer) -> None:
    async with connected(own_redis) as store:
        await store.enqueue("jobs", "id", b"1", holder="ada")
        await store.enqueue("jobs", "id", b"2")
        assert await store.renew("jobs", "ada", ["id"]) == []
        assert await store.take("jobs", "bob", lease=60, limit=9) == [Delivery("id", b"2", 1)]
        await store.enqueue("jobs", "id", b"3", holder="ada")
        assert await store.take("jobs", "bob", lease=60) == []
        await store.finish("jobs", "ada", ["id"])
        await store.enqueue("jobs", "id", b"4")
        assert await store.take("jobs", "bob", lease=60) == [Delivery("id", b"4", 1)]


async def test_no_verb_does_more_if_more_is_stored(own_redis: RedisServer) -> None:
    verbs: list[Callable[[RedisEngine], Awaitable[object]]] = [
        lambda store: store.commit(Enqueue("jobs", "next", b""), Index("m", {"all": IndexLimits(10**6)}, ttl=600)),
        lambda store: store.take("jobs", "ada", lease=60),
        lambda store: store.renew("jobs", "ada", ["0"]),
        lambda store: store.release("jobs", "ada", ["0"]),
        lambda store: store.take("jobs", "bob", lease=60),
        lambda store: store.finish("jobs", "bob", ["0"]),
        lambda store: store.members("all", limit=5),
        lambda store: store.index("m", into={}, out_of=["all"], ttl=600),
    ]
    seen: list[list[dict[str, int]]] = []
    async with connected(own_redis) as store, Redis.from_url(own_redis.url) as raw:
        assert store._task is not None
        store._task.cancel()
        for size in (10, 2000):
            await raw.flushdb()
            # They are gone with the hash that counted them.
            store._writes = 0
            for n in range(0, size, 10):
                names = [f"{number}" for number in range(n, n + 10)]
                await store.commit(
                    *(Enqueue("jobs", name, b"") for name in names),
                    *(Index(name, {"all": ANY}, ttl=600) for name in names),
                )
            seen.append([await commands(raw, verb(store)) for verb in verbs])
    assert seen[0] == seen[1]

"""The engine in memory: what it keeps is counted exactly, removed in time, and shared by event loops."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
import tracemalloc
from itertools import pairwise
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.errors import StoreUnavailable
from trunkline.store.interface import Delete, Enqueue, Finish, Index, IndexLimits, Publish, Put
from trunkline.store.memory import MemoryContents, MemoryEngine
from trunkline.store.sorted_names import SortedNames

ANY = IndexLimits()
#: What an item counts for beside its bytes.
ITEM = 200


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def new_store(clock: Clock | None = None, max_bytes: int | None = None) -> tuple[MemoryContents, MemoryEngine]:
    """Return new contents, and an engine of them."""
    contents = MemoryContents(now=clock or time.time, random=os.urandom, max_bytes=max_bytes)
    return contents, MemoryEngine(contents)


def stored_bytes(contents: MemoryContents) -> int:
    """Return how many bytes are stored, counted item by item."""
    tables = contents.tables
    sizes = [len(key) + len(value) for key, (_, _, value) in tables.values.items()]
    for name, (_, _, log) in tables.logs.items():
        sizes += [len(name), *(len(entry.data) for entry in log.read("", 10_000, inclusive=False) or ())]
    sizes += map(len, tables.counts)
    for queue in tables.queues.values():
        sizes += [len(id) + (queue.size(id) or 0) for id in queue]
    for index in tables.indexes.values():
        sizes += map(len, index.members)
    return sum(sizes) + len(sizes) * ITEM


# --- room -------------------------------------------------------------------------------------------------------------


async def test_a_store_that_is_full_takes_no_more_until_something_has_expired() -> None:
    clock = Clock()
    _, store = new_store(clock, 100_000)
    limits: dict[str, Any] = {"ttl": 60.0}
    await store.put("value", bytes(40_000), **limits)
    await store.append("log", bytes(40_000), max_entries=10, max_bytes=1_000_000, **limits)
    for refused in (
        store.put("more", bytes(40_000), **limits),
        store.enqueue("queue", "id", bytes(40_000)),
        store.append("log", bytes(40_000), max_entries=10, max_bytes=1_000_000, **limits),
        store.index("m" * 40_000, into={"all": ANY}, **limits),
        store.admit("n" * 40_000, rate=1.0, burst=1),
    ):
        with pytest.raises(StoreUnavailable, match="full"):
            await refused
    # What is there can be read and replaced by as much, and an append that drops as much has room.
    assert await store.get("value") == bytes(40_000)
    assert await store.replace("value", bytes(40_000), b"1" * 40_000, **limits)
    await store.append("log", bytes(40_000), max_entries=1, max_bytes=1_000_000, **limits)
    # What a commit removes makes room for what it adds.
    await store.commit(Delete("log"), Put("more", bytes(40_000), 60.0))
    clock.now += 61
    for number in range(20):
        await store.put(f"again {number}", bytes(40_000), ttl=1.0)
        clock.now += 2


async def test_the_size_is_exact_whatever_is_stored_replaced_and_removed() -> None:
    contents, store = new_store()
    await store.commit(
        Put("key", b"value", 60),
        Index("member", {"one": ANY, "other": ANY}, ttl=60),
        Enqueue("jobs", "id", b"job", "a"),
        Enqueue("jobs", "other", b"job"),
    )
    await store.append("log", b"entry", ttl=60, max_entries=2, max_bytes=99)
    await store.admit("caller", rate=0.01, burst=1)
    assert contents.tables.size == stored_bytes(contents) > 6 * ITEM
    await store.commit(Put("key", b"more than before", 60), Enqueue("jobs", "id", b"", "b"))
    for data in (b"1", b"22", b"333"):
        await store.append("log", data, ttl=60, max_entries=2, max_bytes=99)
    assert contents.tables.size == stored_bytes(contents)
    await store.commit(Index("member", {}, ("one", "other")), Finish("jobs", "b", "id"), Finish("jobs", "b", "id"))
    await store.take("jobs", "c", lease=60)
    await store.finish("jobs", "c", ["other"])
    await store.delete("key", "key", "log", "caller")
    assert (contents.tables.size, contents.tables.queues, contents.tables.indexes) == (0, {}, {})


# --- expiry -----------------------------------------------------------------------------------------------------------


async def test_writes_remove_what_has_expired_a_few_at_a_time() -> None:
    clock = Clock()
    contents, store = new_store(clock)
    for number in range(1000):
        await store.commit(Put(f"{number}", b"", 10), Index(f"{number}", {"all": ANY}, ttl=10))
    clock.now += 11
    sizes = []
    for _ in range(130):
        await store.put("other", b"", ttl=1000)
        sizes.append(len(contents.tables.values))
    assert max(before - after for before, after in pairwise(sizes)) < 50
    assert (sizes[-1], contents.tables.indexes) == (1, {})


async def test_what_is_deleted_and_renewed_leaves_nothing_behind() -> None:
    clock = Clock()
    contents, store = new_store(clock)
    await store.put("renewed", b"", ttl=10)
    for number in range(5000):
        clock.now += 0.01
        await store.put("renewed", b"%d" % number, ttl=10)
        await store.commit(Put("key", b"", 1e6), Index("member", {"all": ANY}, ttl=1e6))
        await store.commit(Delete("key"), Index("member", {}, ("all",)))
    assert await store.get("renewed") == b"4999"
    assert len(contents.tables._expiring) < 200


async def test_entries_of_items_that_are_gone_are_counted_exactly() -> None:
    clock, choose = Clock(), random.Random(1)
    contents, store = new_store(clock)
    tables = contents.tables
    for _ in range(5000):
        clock.now += choose.random()
        name, ttl = f"{choose.randrange(40)}", choose.choice((1.0, 5.0, 50.0, inf))
        match choose.randrange(6):
            case 0 | 1:
                await store.put(name, b"", ttl=ttl)
            case 2:
                await store.commit(Index(name, {"one": ANY, "other": ANY}, ttl=ttl))
            case 3:
                await store.commit(Index(name, {"one": ANY}, ("other",), ttl=ttl))
            case 4:
                await store.commit(Delete(name), Index(f"{choose.randrange(40)}", {}, ("one", "other")))
            case _:
                await store.append(name, b"", ttl=ttl, max_entries=9, max_bytes=99)
        items = [*tables.values.values(), *tables.logs.values(), *tables.counts.values()]
        items += [member for index in tables.indexes.values() for member in index.members.values()]
        assert tables._stale == len(tables._expiring) - sum(queued != inf for _, queued, _ in items)
    assert len(tables._expiring) < 400


async def test_a_value_whose_time_is_made_shorter_expires_earlier() -> None:
    clock = Clock()
    contents, store = new_store(clock)
    await store.put("key", b"1", ttl=1000)
    await store.put("key", b"2", ttl=1)
    clock.now += 2
    await store.put("other", b"", ttl=1)
    assert (await store.get("key"), list(contents.tables.values)) == (None, ["other"])


# --- subscribers ------------------------------------------------------------------------------------------------------


async def test_a_subscriber_that_fails_hinders_no_other(caplog: pytest.LogCaptureFixture) -> None:
    _, store = new_store()
    messages: list[bytes] = []

    def fail(_: bytes) -> None:
        raise ValueError("no")

    await store.subscribe("news", fail)
    await store.subscribe("news", messages.append)
    assert (await store.commit(Publish("news", b"1"), Put("key", b"1", 60))).done
    assert (messages, await store.get("key")) == ([b"1"], b"1")
    assert "a subscriber of the store failed" in caplog.text


async def test_event_loops_of_several_threads_share_the_contents() -> None:
    contents, store = new_store()
    loop, messages = asyncio.get_running_loop(), asyncio.Queue[tuple[bytes, bool]]()
    here = threading.current_thread()

    def receive(data: bytes) -> None:
        messages.put_nowait((data, threading.current_thread() is here))

    async def increment() -> None:
        engine = MemoryEngine(contents)
        for _ in range(500):
            while True:
                value = await engine.get("count") or b"0"
                if await engine.replace("count", value, b"%d" % (int(value) + 1), ttl=60):
                    break
            await engine.append("log", b"", ttl=60, max_entries=10, max_bytes=100)
        await engine.publish("news", b"done")

    await store.put("count", b"0", ttl=60)
    await store.subscribe("news", receive)
    await asyncio.gather(*(loop.run_in_executor(None, lambda: asyncio.run(increment())) for _ in range(3)))
    async with asyncio.timeout(120):
        assert [await messages.get() for _ in range(3)] == [(b"done", True)] * 3
    assert await store.get("count") == b"1500"
    assert contents.tables.size == stored_bytes(contents)


# --- indexes ----------------------------------------------------------------------------------------------------------


async def test_a_call_copies_no_index() -> None:
    _, store = new_store()
    for n in range(5000):
        await store.index(f"m{n:04}", into={"all": ANY}, weight=1, ttl=60)
    assert await store.members("all", limit=1) == ["m0000"]
    tracemalloc.start()
    try:
        assert await store.index("next", into={"all": IndexLimits(6000, 6000)}, weight=1, ttl=60) is None
        assert await store.members("all", after="m0009", limit=2) == ["m0010", "m0011"]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # A copy of its members would take some hundred kilobytes.
    assert peak < 100_000


@given(st.lists(st.integers(0, 3000), max_size=60), st.integers(0, 3000))
def test_names_are_in_order_however_they_are_added_and_removed(changes: list[int], after: int) -> None:
    expected = {f"{number:05}" for number in range(0, 3000, 2)}
    names = SortedNames(expected)
    for start in changes:
        # Runs of names, so that blocks are split and merged.
        for name in (f"{number:05}" for number in range(start, start + 90)):
            if name in expected:
                names.remove(name)
                expected.remove(name)
            else:
                names.add(name)
                expected.add(name)
    assert list(names.after("")) == sorted(expected)
    assert list(names.after(f"{after:05}")) == sorted(name for name in expected if name > f"{after:05}")

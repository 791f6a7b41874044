"""The records of handles in a store: their versions, times and limits, and what a store without them does."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

import pytest

from tests.server.shop import one, shop
from trunkline import Client
from trunkline.errors import HandleStoreFull, StoreUnavailable
from trunkline.protocol.limits import Limits
from trunkline.server.handle_records import HandleRecord, HandleRecords
from trunkline.server.store_budget import weight_of
from trunkline.store.interface import Commit, Step
from trunkline.store.memory import MemoryContents, MemoryEngine
from trunkline.store.server_store import ServerStore

KEY = "11" * 32
#: The weight of a handle with a small value.
SMALL = weight_of(1)


class Time:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class ReadableEngine(MemoryEngine):
    """A store whose contents others can read, so that values are sealed."""

    private = False

    @property
    def values(self) -> dict[str, bytes]:
        return {key: value for key, (_, _, value) in self._contents.tables.values.items()}


Make = Callable[[Limits], HandleRecords]


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def contents(time: Time) -> MemoryContents:
    return MemoryContents(now=time, random=os.urandom)


@pytest.fixture(params=[MemoryEngine, ReadableEngine], ids=["plain", "sealed"])
def make(request: pytest.FixtureRequest, contents: MemoryContents) -> Make:
    """Make records in one store, as they are or sealed."""
    engine = request.param(contents)
    return lambda limits: HandleRecords(ServerStore(engine, name="shop", keys=[KEY]), limits=limits)


def record(value: bytes = b"1", owner: str = "local", ttl: float = 10) -> HandleRecord:
    return HandleRecord(value, owner, ttl)


async def weight(make: Make, *sizes: int) -> int:
    """Return the weight of handles with values of these sizes, which are sealed or not."""
    records, total = make(Limits()), 0
    for size in sizes:
        probe = await records.create("probe", record(b"x" * size))
        await records.delete(probe)
        total += weight_of(len(probe.stored))
    return total


async def value_of(records: HandleRecords, key: str) -> bytes | None:
    handle = await records.load(key)
    return None if handle is None else handle.record.value


async def test_what_was_created_can_be_loaded(make: Make) -> None:
    records = make(Limits())
    created = await records.create("k", record(b"data", "ada"))
    assert [await records.load("k"), await records.load("other")] == [created, None]


async def test_only_the_record_that_was_read_can_be_replaced(make: Make) -> None:
    records = make(Limits())
    first = await records.create("k", record(b"1"))
    second = await records.save(first, b"2")
    assert second is not None
    assert await records.save(first, b"lost") is None
    # The same value again is another version.
    third = await records.save(second, b"1")
    assert third is not None
    assert await records.save(first, b"lost") is None
    assert (await value_of(records, "k"), third.record.version) == (b"1", 3)


async def test_what_was_deleted_is_gone(make: Make) -> None:
    records = make(Limits(owner_store_bytes=SMALL))
    handle = await records.create("k", record(owner="ada"))
    await records.delete(handle)
    await records.delete(handle)
    assert (await records.load("k"), await records.save(handle, b"2")) == (None, None)
    await records.create("other", record(owner="ada"))


async def test_a_record_ends_with_its_time(make: Make, time: Time) -> None:
    records = make(Limits())
    handle = await records.create("k", record())
    time.now += 9.9
    assert await records.load("k") is not None
    time.now += 0.1
    assert (await records.load("k"), await records.save(handle, b"2")) == (None, None)


async def test_saving_a_record_starts_its_time_again(make: Make, time: Time) -> None:
    records = make(Limits())
    handle = await records.create("k", record())
    time.now += 9
    await records.save(handle, b"2")
    time.now += 9
    assert await value_of(records, "k") == b"2"
    time.now += 1
    assert await records.load("k") is None


async def test_expired_records_make_room_in_any_order(make: Make, time: Time) -> None:
    records = make(Limits(owner_store_bytes=3 * SMALL))
    for key, ttl in (("long", 30), ("short", 10), ("middle", 20)):
        await records.create(key, record(owner="ada", ttl=ttl))
    with pytest.raises(HandleStoreFull, match=f"owner_store_bytes={3 * SMALL}"):
        await records.create("more", record(owner="ada"))
    time.now += 15
    await records.create("more", record(owner="ada"))
    stored = [await records.load(key) is not None for key in ("long", "short", "middle", "more")]
    assert stored == [True, False, True, True]


@pytest.mark.parametrize("limit", ["store_bytes", "owner_store_bytes"])
async def test_bytes_are_counted_through_every_change(make: Make, limit: str) -> None:
    most = await weight(make, 6000, 4000)
    records = make(Limits(**{limit: most}))
    a = await records.create("a", record(b"x" * 6000))
    with pytest.raises(HandleStoreFull, match=f" {limit}={most} "):
        await records.create("b", record(b"x" * 5000))
    b = await records.create("b", record(b"x" * 4000))
    with pytest.raises(HandleStoreFull, match=f" {limit}={most} "):
        await records.save(b, b"x" * 5000)
    assert await records.save(a, b"x")
    b = await records.save(b, b"x" * 9000) or b
    await records.delete(b)
    await records.create("c", record(b"x" * 9000))
    assert await value_of(records, "a") == b"x"


async def test_the_share_of_an_owner_is_its_own(make: Make) -> None:
    records = make(Limits(owner_store_bytes=2 * SMALL, store_bytes=5 * SMALL))
    for owner in ("ada", "bea"):
        for number in range(2):
            await records.create(f"{owner}{number}", record(b"", owner))
        with pytest.raises(HandleStoreFull, match=r"for this caller: the limit owner_store_bytes=\d+ is reached"):
            await records.create("more", record(b"", owner))
    await records.create("c0", record(b"", "cid"))
    with pytest.raises(HandleStoreFull, match=r"on this server: the limit store_bytes=\d+ is reached"):
        await records.create("c1", record(b"", "cid"))


@pytest.mark.parametrize("limit", ["store_bytes", "owner_store_bytes"])
async def test_a_limit_of_zero_admits_nothing(make: Make, limit: str) -> None:
    with pytest.raises(HandleStoreFull, match=f" {limit}=0 "):
        await make(Limits(**{limit: 0})).create("k", record())


async def test_what_could_not_be_written_does_not_count(contents: MemoryContents) -> None:
    class Interrupted(MemoryEngine):
        """A store where something happens just before it is written."""

        before_write: Callable[[], Awaitable[object]] | None = None

        async def commit(self, *steps: Step) -> Commit:
            before, self.before_write = self.before_write, None
            if before is not None:
                await before()
            return await super().commit(*steps)

    store = Interrupted(contents)
    limits = Limits(owner_store_bytes=weight_of(2000) + weight_of(8000))
    records = HandleRecords(ServerStore(store, name="shop", keys=[KEY]), limits=limits)

    async def fail() -> None:
        raise StoreUnavailable("gone")

    store.before_write = fail
    with pytest.raises(StoreUnavailable):
        await records.create("lost", record(b"x" * 10_000, "ada"))
    handle = await records.create("k", record(b"x" * 1000, "ada"))
    store.before_write = lambda: records.save(handle, b"y" * 1900)
    assert await records.save(handle, b"x" * 9000) is None
    other = await records.create("other", record(b"x" * 7900, "ada"))
    store.before_write = fail
    with pytest.raises(StoreUnavailable):
        await records.save(other, b"x")
    with pytest.raises(HandleStoreFull):
        await records.create("more", record(b"x", "ada"))
    assert await records.save(other, b"x")
    await records.create("more", record(b"x" * 6500, "ada"))


async def test_a_record_of_an_earlier_generation_is_gone(make: Make, contents: MemoryContents) -> None:
    """A store that lost writes may have an older value than the one that was acknowledged."""
    records = make(Limits())
    handle = await records.create("k", record())
    contents.lose_writes()
    assert (await records.load("k"), await records.save(handle, b"2")) == (None, None)


async def test_what_others_can_read_is_sealed_and_bound_to_its_name(contents: MemoryContents) -> None:
    engine = ReadableEngine(contents)
    records = HandleRecords(ServerStore(engine, name="shop", keys=[KEY]), limits=Limits())
    handle = await records.create("k", record(b"a secret"))
    await records.create("other", record(b"another"))
    values = engine.values
    assert b"secret" not in b"".join(values.values())
    await engine.put("handle:other", handle.stored, ttl=10)
    assert (await value_of(records, "k"), await records.load("other")) == (b"a secret", None)
    await engine.put("handle:other", b"\xff", ttl=10)
    assert await records.load("other") is None


async def test_a_store_has_no_usable_handle_in_it(contents: MemoryContents) -> None:
    engine = ReadableEngine(contents)
    server = shop(store=engine, state_keys=[KEY])
    async with Client(server) as client:
        cart = await one(client, "create")
    await server.aclose()
    assert [key for key in engine.values if key.startswith("handle:")]
    assert cart.partition(".")[2] not in repr((engine.values, contents.tables.indexes))

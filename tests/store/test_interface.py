"""The interface of a store: each claim holds for every implementation."""

from __future__ import annotations

import asyncio

import pytest

from tests.store.conftest import Workers
from trunkline.store.interface import Delivery, Entry, FullIndex, IndexLimits, Store, entry_position


async def add(store: Store, data: bytes, *, entries: int = 100, announce: str | None = None) -> str:
    """Append to the log that the tests use."""
    added = await store.append("log", data, ttl=60, max_entries=entries, max_bytes=1000, announce=announce)
    return added.id


class Inbox:
    """Collects what a subscriber hears."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[bytes] = asyncio.Queue()

    def __call__(self, data: bytes) -> None:
        self.messages.put_nowait(data)

    async def get(self, count: int) -> list[bytes]:
        """Wait for so many messages."""
        async with asyncio.timeout(120):
            return [await self.messages.get() for _ in range(count)]


# --- values -----------------------------------------------------------------------------------------------------------


async def test_a_value_is_seen_by_every_worker(workers: Workers) -> None:
    async with workers(2) as (one, other):
        assert one.generation == other.generation != ""
        assert one.available
        assert await one.get("key") is None
        assert await one.put("key", b"value", ttl=60)
        assert await other.get("key") == b"value"


async def test_a_value_that_must_be_absent_is_set_once(workers: Workers) -> None:
    async with workers(2) as (one, other):
        first = await one.put("nonce", b"1", ttl=60, only_if_absent=True)
        second = await other.put("nonce", b"2", ttl=60, only_if_absent=True)
        assert (first, second, await one.get("nonce")) == (True, False, b"1")


async def test_a_value_expires(workers: Workers) -> None:
    async with workers(1) as (one,):
        await one.put("key", b"value", ttl=0.001)
        async with asyncio.timeout(120):
            while await one.get("key") is not None:
                pass
        assert await one.put("key", b"again", ttl=60, only_if_absent=True)


async def test_a_value_is_replaced_only_if_it_is_the_old_one(workers: Workers) -> None:
    async with workers(3) as several:
        await several[0].put("key", b"0", ttl=60)
        assert not await several[1].replace("key", b"1", b"2", ttl=60)
        done = await asyncio.gather(
            *(each.replace("key", b"0", b"%d" % n, ttl=60) for n, each in enumerate(several, 1))
        )
        assert sum(done) == 1
        assert await several[0].get("key") == b"%d" % (done.index(True) + 1)


async def test_deleting_removes_values_and_logs(workers: Workers) -> None:
    async with workers(1) as (one,):
        await one.put("key", b"1", ttl=60)
        await add(one, b"entry")
        await one.delete("key", "log", "unknown")
        assert (await one.get("key"), await one.read("log")) == (None, [])


# --- logs -------------------------------------------------------------------------------------------------------------


async def test_entries_are_read_in_order_by_every_worker(workers: Workers) -> None:
    async with workers(2) as (one, other):
        ids = [await add(one, b"a"), await add(other, b"b"), await add(one, b"c")]
        found = await other.read("log")
        assert found == [Entry(id, data) for id, data in zip(ids, (b"a", b"b", b"c"), strict=True)]
        positions = [entry_position(id) for id in ids]
        assert None not in positions
        assert sorted(set(positions)) == positions  # type: ignore[type-var]


async def test_reading_goes_on_after_an_entry_or_begins_with_it(workers: Workers) -> None:
    async with workers(1) as (one,):
        ids = [await add(one, b"%d" % n) for n in range(5)]
        after = await one.read("log", after=ids[1], limit=2)
        inclusive = await one.read("log", after=ids[1], limit=2, inclusive=True)
        assert [[each.data for each in found or ()] for found in (after, inclusive)] == [[b"2", b"3"], [b"1", b"2"]]
        assert await one.read("log", after=ids[-1]) == []


async def test_an_entry_that_was_dropped_cannot_be_read_after(workers: Workers) -> None:
    async with workers(1) as (one,):
        ids = [await add(one, b"%d" % n, entries=3) for n in range(5)]
        assert await one.read("log", after=ids[0]) is None
        assert [each.data for each in await one.read("log") or ()] == [b"2", b"3", b"4"]


async def test_a_log_is_bounded_in_bytes_and_keeps_its_last_entry(workers: Workers) -> None:
    async with workers(1) as (one,):
        for size in (400, 400, 400, 5000):
            await add(one, b"x" * size)
        assert [len(each.data) for each in await one.read("log") or ()] == [5000]
        await add(one, b"small")
        assert [len(each.data) for each in await one.read("log") or ()] == [5]


async def test_an_id_of_no_entry_cannot_be_read_after(workers: Workers) -> None:
    absurd = "99999999999999999999-0"
    others = ["", "x", "1", "1-", "-1", "1-2-3", "9" * 50, "1-x", "nonsense", absurd, f"1-{1 << 64}"]
    assert [entry_position(id) for id in others] == [None] * len(others)
    async with workers(1) as (one,):
        await add(one, b"a")
        assert [await one.read("log", after=id) for id in ("nonsense", "1-1", absurd)] == [None] * 3


async def test_the_appends_of_one_worker_at_once_keep_their_order(workers: Workers) -> None:
    async with workers(1) as (one,):
        limits = {"ttl": 60, "max_entries": 1000, "max_bytes": 10_000}
        await asyncio.gather(*(one.append("log", b"%d" % n, **limits) for n in range(600)))  # type: ignore[arg-type]
        assert [each.data for each in await one.read("log") or ()] == [b"%d" % n for n in range(600)]


async def test_an_append_is_announced_with_its_id(workers: Workers) -> None:
    async with workers(2) as (one, other):
        inbox = Inbox()
        await other.subscribe("news", inbox)
        added = await one.append("log", b"a b", ttl=60, max_entries=9, max_bytes=99, announce="news")
        assert (await inbox.get(1), added.heard) == ([f"{added.id} a b".encode()], 1)


# --- channels ---------------------------------------------------------------------------------------------------------


async def test_a_message_reaches_every_subscriber_once(workers: Workers) -> None:
    async with workers(2) as (one, other):
        inboxes = [Inbox(), Inbox(), Inbox()]
        for store, inbox in zip((one, one, other), inboxes, strict=True):
            await store.subscribe("news", inbox)
        await one.publish("news", b"1")
        await one.publish("news", b"2")
        assert [await inbox.get(2) for inbox in inboxes] == [[b"1", b"2"]] * 3


async def test_publishing_tells_whether_a_worker_heard_it(workers: Workers) -> None:
    async with workers(2) as (one, other):
        before = await one.publish("news", b"1")
        subscription = await other.subscribe("news", Inbox())
        during = await one.publish("news", b"2")
        await subscription.close()
        await subscription.close()
        after = await other.publish("news", b"3")
        assert (before, during, after) == (0, 1, 0)


async def test_closing_one_of_two_subscriptions_leaves_the_other(workers: Workers) -> None:
    async with workers(1) as (one,):
        first, second = Inbox(), Inbox()
        subscription = await one.subscribe("news", first)
        await one.subscribe("news", second)
        await subscription.close()
        await one.publish("news", b"1")
        assert (await second.get(1), first.messages.empty()) == ([b"1"], True)


async def test_channels_and_names_are_apart(workers: Workers) -> None:
    async with workers(1) as (one,):
        await one.put("same", b"value", ttl=60)
        await one.append("same", b"entry", ttl=60, max_entries=9, max_bytes=99)
        await one.enqueue("same", "same", b"job")
        assert await one.get("same") == b"value"
        assert [each.data for each in await one.read("same") or ()] == [b"entry"]


# --- limits -----------------------------------------------------------------------------------------------------------


async def test_a_burst_is_admitted_and_the_next_must_wait(workers: Workers) -> None:
    async with workers(2) as (one, other):
        waits = [await each.admit("caller", rate=0.01, burst=3) for each in (one, other, one)]
        assert waits == [0, 0, 0]
        # What must wait is not counted, and each caller has its own limit.
        refused = [await each.admit("caller", rate=0.01, burst=3) for each in (other, one, other)]
        assert (min(refused) > 90, max(refused) <= 100) == (True, True)
        assert await one.admit("another", rate=0.01, burst=1) == 0


async def test_events_are_admitted_again_after_a_while(workers: Workers) -> None:
    async with workers(1) as (one,):
        await one.admit("caller", rate=200, burst=1)
        async with asyncio.timeout(120):
            while await one.admit("caller", rate=200, burst=1):
                pass


async def test_several_events_are_counted_in_one_step(workers: Workers) -> None:
    async with workers(2) as (one, other):
        assert await one.admit("batch", rate=0.01, burst=5, cost=4) == 0
        assert await other.admit("batch", rate=0.01, burst=5, cost=2) > 0
        assert await other.admit("batch", rate=0.01, burst=5) == 0


async def test_a_deleted_count_starts_again(workers: Workers) -> None:
    async with workers(2) as (one, other):
        assert await one.admit("ada", rate=0.01, burst=1) == 0
        assert await one.admit("ada", rate=0.01, burst=1) > 0
        await other.delete("ada")
        assert await one.admit("ada", rate=0.01, burst=1) == 0


# --- queues -----------------------------------------------------------------------------------------------------------


async def test_each_entry_of_a_queue_is_leased_to_one_worker(workers: Workers) -> None:
    async with workers(2) as (one, other):
        for n in range(4):
            await one.enqueue("jobs", f"job {n}", b"%d" % n)
        taken = await one.take("jobs", "a", lease=60, limit=3), await other.take("jobs", "b", lease=60, limit=3)
        assert [[(each.data, each.attempt) for each in some] for some in taken] == [
            [(b"0", 1), (b"1", 1), (b"2", 1)],
            [(b"3", 1)],
        ]


@pytest.mark.parametrize("holder", ["", "a"], ids=["taken", "held from the start"])
async def test_an_entry_whose_lease_ran_out_is_leased_again(workers: Workers, holder: str) -> None:
    async with workers(2) as (one, other):
        id = "one"
        await one.enqueue("jobs", id, b"job", holder=holder)
        if not holder:
            assert await one.take("jobs", "a", lease=60) == [Delivery(id, b"job", 1)]
        assert await one.renew("jobs", "a", [id]) == [id]
        assert await other.take("jobs", "b", lease=30) == []
        second: list[Delivery] = []
        async with asyncio.timeout(120):
            while not second:
                second = await other.take("jobs", "b", lease=0.01)
        assert second == [Delivery(id, b"job", 2)]
        assert await one.renew("jobs", "a", [id]) == []
        # It is no longer that of the first holder, which cannot remove it.
        await one.finish("jobs", "a", [id])
        assert await other.renew("jobs", "b", [id]) == [id]
        await other.finish("jobs", "b", [id])
        assert await other.renew("jobs", "b", [id]) == []


async def test_a_finished_entry_is_gone(workers: Workers) -> None:
    async with workers(1) as (one,):
        await one.enqueue("jobs", "one", b"job")
        (job,) = await one.take("jobs", "a", lease=60)
        await one.finish("jobs", "a", [job.id])
        assert await one.take("jobs", "a", lease=0.0) == []
        await one.finish("jobs", "a", [job.id, job.id, "unknown"])


async def test_a_new_entry_is_announced_on_the_channel_of_its_queue(workers: Workers) -> None:
    async with workers(2) as (one, other):
        inbox = Inbox()
        await other.subscribe("jobs", inbox)
        await one.enqueue("jobs", "one", b"job")
        assert await inbox.get(1) == [b"one"]


async def test_an_entry_with_a_holder_is_leased_from_the_start(workers: Workers) -> None:
    async with workers(2) as (one, other):
        held = "held"
        await one.enqueue("jobs", "1", b"free 1")
        await one.enqueue("jobs", held, b"held", holder="a")
        await one.enqueue("jobs", "2", b"free 2")
        taken = await other.take("jobs", "b", lease=60, limit=9)
        assert [each.data for each in taken] == [b"free 1", b"free 2"]
        assert await other.take("jobs", "b", lease=60) == []
        assert (await other.renew("jobs", "b", [held]), await one.renew("jobs", "a", [held])) == ([], [held])


async def test_an_entry_that_is_released_can_be_taken_at_once(workers: Workers) -> None:
    async with workers(2) as (one, other):
        held = "held"
        await one.enqueue("jobs", held, b"held", holder="a")
        assert await other.release("jobs", "b", [held]) == []
        assert await one.release("jobs", "a", [held]) == [held]
        assert await other.take("jobs", "b", lease=1e8) == [Delivery(held, b"held", 2)]
        assert await one.renew("jobs", "a", [held]) == []


async def test_a_lease_that_ran_out_is_found_behind_many_that_did_not(workers: Workers) -> None:
    async with workers(2) as (one, other):
        for n in range(50):
            await one.enqueue("jobs", f"job {n}", b"held", holder="a")
        await one.enqueue("jobs", "last", b"left", holder="c")
        await one.release("jobs", "c", ["last"])
        assert [delivery.id for delivery in await other.take("jobs", "b", lease=60)] == ["last"]


# --- indexes ----------------------------------------------------------------------------------------------------------

ANY = IndexLimits()


async def test_the_members_of_an_index_come_in_their_order_and_in_pages(workers: Workers) -> None:
    async with workers(2) as (one, other):
        for member in ("c", "a", "d", "b"):
            assert await one.index(member, into={"all": ANY, "some": ANY}, ttl=60) is None
        first = await other.members("all", limit=3)
        assert (first, await other.members("all", after=first[-1])) == (["a", "b", "c"], ["d"])
        assert await other.members("unknown") == []


async def test_an_index_with_as_many_members_as_it_may_have_takes_no_more(workers: Workers) -> None:
    limits = IndexLimits(members=2)
    async with workers(2) as (one, other):
        added = [
            await each.index(f"m{n}", into={"all": ANY, "few": limits}, ttl=60)
            for n, each in enumerate((one, other, one))
        ]
        assert added == [None, None, FullIndex("few", "members")]
        assert await one.members("all") == ["m0", "m1"]
        assert await one.index("m1", into={"few": limits}, ttl=60) is None


async def test_an_index_has_a_greatest_weight(workers: Workers) -> None:
    heavy = {"all": IndexLimits(weight=10)}
    async with workers(1) as (one,):
        assert await one.index("a", into=heavy, weight=6, ttl=60) is None
        assert await one.index("b", into=heavy, weight=5, ttl=60) == FullIndex("all", "weight")
        assert await one.index("a", into=heavy, weight=5, ttl=60) is None
        assert await one.index("b", into=heavy, weight=5, ttl=60) is None
        assert await one.index("a", into={}, out_of=["all"], ttl=60) is None
        assert await one.index("c", into=heavy, weight=5, ttl=60) is None
        assert await one.index("d", into=heavy, weight=1, ttl=60) == FullIndex("all", "weight")


async def test_a_member_that_grows_needs_room(workers: Workers) -> None:
    heavy = {"all": IndexLimits(weight=10)}
    async with workers(2) as (one, other):
        for member in ("a", "b"):
            assert await one.index(member, into=heavy, weight=4, ttl=60) is None
        assert await other.index("a", into=heavy, weight=7, ttl=60) == FullIndex("all", "weight")
        assert await other.index("a", into=heavy, weight=6, ttl=60) is None
        assert await one.index("b", into=heavy, weight=4, ttl=60) is None


async def test_a_member_moves_between_indexes_in_one_step(workers: Workers) -> None:
    async with workers(1) as (one,):
        await one.index("a", into={"open": IndexLimits(members=1)}, ttl=60)
        await one.index("a", into={"done": ANY}, out_of=["open"], ttl=60)
        assert (await one.members("open"), await one.members("done")) == ([], ["a"])
        assert await one.index("b", into={"open": IndexLimits(members=1)}, ttl=60) is None


async def test_a_member_whose_time_is_over_makes_room(workers: Workers) -> None:
    limits = {"all": IndexLimits(members=2, weight=10)}
    async with workers(1) as (one,):
        await one.index("short", into=limits, weight=9, ttl=0.001)
        await one.index("long", into={"all": ANY}, weight=1, ttl=60)
        async with asyncio.timeout(120):
            while await one.index("next", into=limits, weight=9, ttl=60) is not None:
                pass
        assert await one.members("all") == ["long", "next"]

"""Commits of every engine: all steps or none, conditions before the first step, messages only when all was done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import permutations

import pytest

from tests.store.conftest import Workers
from tests.store.test_interface import ANY, Inbox
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
    Store,
)

FULL = {"full": IndexLimits(members=1)}
#: Steps whose conditions do not hold in the store of `prepare`, and the outcome of a commit with them.
REFUSED: dict[str, tuple[Step, Commit]] = {
    "present": (Put("present", b"new", 60, only_if_absent=True), Commit(False)),
    "another value": (Put("present", b"new", 60, old=b"other"), Commit(False)),
    "no value": (Put("absent", b"new", 60, old=b"value"), Commit(False)),
    "full": (Index("more", FULL, ttl=60), Commit(False, FullIndex("full", "members"))),
    "heavy": (
        Index("more", {"heavy": IndexLimits(weight=10)}, weight=5, ttl=60),
        Commit(False, FullIndex("heavy", "weight")),
    ),
}
#: Steps whose conditions hold there, one of each kind.
DONE: tuple[Step, ...] = (
    Put("other", b"set", 60),
    Delete("deleted"),
    Index("member", {"some": IndexLimits(members=5)}, ("left",), ttl=60),
    Enqueue("jobs", "new", b"job"),
    Finish("jobs", "a", "finished"),
    Publish("news", b"message"),
)


async def prepare(store: Store) -> None:
    """Store what the steps above need."""
    await store.put("present", b"value", ttl=60)
    await store.put("deleted", b"value", ttl=60)
    await store.index("first", into=FULL, ttl=60)
    await store.index("first", into={"heavy": ANY}, weight=6, ttl=60)
    await store.index("member", into={"left": ANY}, ttl=60)
    await store.enqueue("jobs", "finished", b"job", holder="a")


async def contents(store: Store) -> dict[str, object]:
    """Return what the steps above can change; leases change by this, but not what they are seen by."""
    return {
        "values": [await store.get(key) for key in ("present", "absent", "other", "deleted")],
        "indexes": [await store.members(index) for index in ("full", "heavy", "some", "left")],
        "held": await store.renew("jobs", "a", ["finished"]),
        "free": await store.renew("jobs", "b", ["new"]),
    }


@pytest.mark.parametrize("position", range(len(DONE) + 1))
@pytest.mark.parametrize("condition", REFUSED)
async def test_nothing_is_done_if_one_condition_does_not_hold(workers: Workers, condition: str, position: int) -> None:
    refused, outcome = REFUSED[condition]
    async with workers(2) as (one, other):
        await prepare(one)
        before = await contents(one)
        inbox = Inbox()
        await other.subscribe("news", inbox)
        await other.subscribe("jobs", inbox)
        assert await one.commit(*DONE[:position], refused, *DONE[position:]) == outcome
        assert await contents(other) == before
        assert await other.take("jobs", "b", lease=60) == []
        # The first message is the one that follows: none was sent.
        await one.publish("news", b"next")
        assert await inbox.get(1) == [b"next"]


async def test_all_steps_are_done_if_all_conditions_hold(workers: Workers) -> None:
    async with workers(2) as (one, other):
        await prepare(one)
        inbox = Inbox()
        await other.subscribe("news", inbox)
        conditions = Put("present", b"new", 60, old=b"value"), Put("absent", b"new", 60, only_if_absent=True)
        assert await one.commit(*conditions, *DONE) == Commit(True)
        assert await contents(other) == {
            "values": [b"new", b"new", b"set", None],
            "indexes": [["first"], ["first"], ["member"], []],
            "held": [],
            "free": [],
        }
        assert await other.take("jobs", "b", lease=60, limit=9) == [Delivery("new", b"job", 1)]
        assert await inbox.get(1) == [b"message"]


@pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
async def test_the_messages_of_a_commit_keep_the_order_of_its_steps(workers: Workers, order: tuple[int, ...]) -> None:
    async with workers(2) as (one, other):
        inbox = Inbox()
        for channel in ("a", "b", "c"):
            await other.subscribe(channel, inbox)
        steps = (Publish("a", b"0"), Publish("b", b"1"), Publish("c", b"2"))
        await one.commit(*(steps[number] for number in order))
        assert await inbox.get(3) == [b"%d" % number for number in order]


async def test_a_subscriber_that_hears_of_a_commit_finds_all_of_it(workers: Workers) -> None:
    async with workers(2) as (one, other):
        inbox = Inbox()
        await other.subscribe("news", inbox)
        await one.commit(Publish("news", b"look"), Put("key", b"value", 60), Index("member", {"all": ANY}, ttl=60))
        assert await inbox.get(1) == [b"look"]
        assert (await other.get("key"), await other.members("all")) == (b"value", ["member"])


async def test_conditions_are_those_before_the_first_step(workers: Workers) -> None:
    async with workers(1) as (one,):
        await one.index("old", into=FULL, ttl=60)
        # The first step would make room for the second.
        steps = Index("old", {}, ("full",), ttl=60), Index("new", FULL, ttl=60)
        assert await one.commit(*steps) == Commit(False, FullIndex("full", "members"))
        assert await one.members("full") == ["old"]


async def test_the_full_index_is_named_among_several(workers: Workers) -> None:
    async with workers(1) as (one,):
        await one.index("old", into=FULL, ttl=60)
        wide = {"wide": IndexLimits(members=9, weight=9)}
        outcome = await one.commit(Index("new", {**wide, **FULL}, ttl=60), Index("other", wide, ttl=60))
        assert outcome == Commit(False, FullIndex("full", "members"))
        outcome = await one.commit(Index("new", {"wide": IndexLimits(weight=1)}, weight=2, ttl=60))
        assert outcome == Commit(False, FullIndex("wide", "weight"))
        assert await one.members("wide") == []


async def test_a_commit_of_no_steps_is_done(workers: Workers) -> None:
    async with workers(1) as (one,):
        assert await one.commit() == Commit(True)
        await one.delete()
        await one.finish("jobs", "a", [])


# --- queues -----------------------------------------------------------------------------------------------------------


async def test_an_entry_of_an_id_that_is_there_is_replaced_and_leased_again(workers: Workers) -> None:
    async with workers(2) as (one, other):
        await one.enqueue("jobs", "id", b"first", holder="a")
        await other.commit(Enqueue("jobs", "id", b"second", "b"))
        assert await one.renew("jobs", "a", ["id"]) == []
        assert await other.renew("jobs", "b", ["id"]) == ["id"]
        assert await other.release("jobs", "b", ["id"]) == ["id"]
        # It has been leased once since it was replaced, and there is one of it.
        assert await one.take("jobs", "a", lease=1e8, limit=9) == [Delivery("id", b"second", 2)]


async def test_an_entry_that_is_replaced_without_a_holder_is_free(workers: Workers) -> None:
    async with workers(2) as (one, other):
        await one.enqueue("jobs", "id", b"first", holder="a")
        await one.enqueue("jobs", "id", b"second")
        assert await one.renew("jobs", "a", ["id"]) == []
        assert await other.take("jobs", "b", lease=60, limit=9) == [Delivery("id", b"second", 1)]


async def test_an_entry_that_was_finished_can_be_added_again(workers: Workers) -> None:
    async with workers(1) as (one,):
        for data in (b"first", b"second"):
            await one.enqueue("jobs", "id", data, holder="a")
            await one.finish("jobs", "a", ["id"])
        await one.enqueue("jobs", "id", b"third")
        assert await one.take("jobs", "a", lease=60, limit=9) == [Delivery("id", b"third", 1)]


async def test_finishing_the_entry_of_another_holder_does_nothing_and_is_no_condition(workers: Workers) -> None:
    async with workers(2) as (one, other):
        await one.enqueue("jobs", "held", b"job", holder="a")
        await one.enqueue("jobs", "free", b"job")
        steps = Finish("jobs", "b", "held"), Finish("jobs", "b", "free"), Finish("jobs", "b", "unknown")
        assert await other.commit(*steps, Finish("none", "b", "id"), Put("key", b"set", 60)) == Commit(True)
        assert (await one.renew("jobs", "a", ["held"]), await one.get("key")) == (["held"], b"set")
        assert [delivery.id for delivery in await one.take("jobs", "a", lease=60, limit=9)] == ["free"]


async def test_ids_are_those_of_one_queue(workers: Workers) -> None:
    async with workers(1) as (one,):
        await one.commit(Enqueue("left", "id", b"left", "a"), Enqueue("right", "id", b"right", "a"))
        await one.finish("left", "a", ["id"])
        assert await one.renew("right", "a", ["id"]) == ["id"]


# --- many at once -----------------------------------------------------------------------------------------------------


async def test_every_increment_of_many_workers_counts_once(workers: Workers) -> None:
    async def increment(store: Store) -> None:
        for _ in range(10):
            while True:
                value = await store.get("count")
                assert value is not None
                if await store.replace("count", value, b"%d" % (int(value) + 1), ttl=60):
                    break

    async with workers(3) as several, asyncio.timeout(120):
        await several[0].put("count", b"0", ttl=60)
        await asyncio.gather(*(increment(store) for store in several for _ in range(4)))
        assert await several[0].get("count") == b"120"


async def test_a_limited_index_is_never_overfilled_by_many_workers(workers: Workers) -> None:
    limits = {"few": IndexLimits(members=7)}
    async with workers(3) as several, asyncio.timeout(120):
        outcomes = await asyncio.gather(
            *(
                store.commit(Index(f"{number} {name}", limits, ttl=60), Put(f"{number} {name}", b"", 60))
                for name, store in enumerate(several)
                for number in range(10)
            )
        )
        members = await several[0].members("few")
        assert (sum(outcome.done for outcome in outcomes), len(members)) == (7, 7)
        # Whatever was refused left nothing.
        values = [await several[1].get(f"{number} {name}") for name in range(3) for number in range(10)]
        assert sum(value is not None for value in values) == 7


# --- times, names and bytes -------------------------------------------------------------------------------------------


async def until_gone(look: Callable[[], object]) -> None:
    """Wait until something that expires in a moment is not there any more."""
    async with asyncio.timeout(120):
        while await look():  # type: ignore[misc]
            pass


async def test_whatever_has_expired_is_no_condition(workers: Workers) -> None:
    async with workers(1) as (one,):
        await one.commit(Put("key", b"old", 0.001), Index("short", FULL, ttl=0.001))
        await until_gone(lambda: one.get("key"))
        await until_gone(lambda: one.members("full"))
        assert await one.commit(Put("key", b"new", 60, old=b"old")) == Commit(False)
        steps = Put("key", b"new", 60, only_if_absent=True), Index("next", FULL, ttl=60)
        assert await one.commit(*steps) == Commit(True)
        assert (await one.get("key"), await one.members("full")) == (b"new", ["next"])


async def test_a_value_and_a_member_that_are_renewed_live_on(workers: Workers) -> None:
    async with workers(1) as (one,):
        await one.commit(Put("key", b"1", 0.05), Put("witness", b"", 0.06), Index("member", {"all": ANY}, ttl=0.05))
        await one.commit(Put("key", b"2", 60), Index("member", {"all": ANY}, ttl=60))
        await until_gone(lambda: one.get("witness"))
        assert (await one.get("key"), await one.members("all")) == (b"2", ["member"])


async def test_a_log_expires_and_begins_anew(workers: Workers) -> None:
    async with workers(1) as (one,):
        first = await one.append("log", b"1", ttl=0.001, max_entries=9, max_bytes=99)
        await until_gone(lambda: one.read("log"))
        assert await one.read("log", after=first.id) is None
        await one.append("log", b"2", ttl=60, max_entries=9, max_bytes=99)
        assert [entry.data for entry in await one.read("log") or ()] == [b"2"]


BINARY = bytes(range(256)) * 4 + b"\x00\r\n\xff"


async def test_every_byte_is_stored_as_it_is(workers: Workers) -> None:
    async with workers(2) as (one, other):
        inbox = Inbox()
        await other.subscribe("news", inbox)
        await one.commit(Put("key", BINARY, 60), Enqueue("jobs", "id", BINARY), Publish("news", BINARY))
        assert await other.commit(Put("key", BINARY + b"!", 60, old=BINARY)) == Commit(True)
        assert await one.get("key") == BINARY + b"!"
        assert await inbox.get(1) == [BINARY]
        assert await other.take("jobs", "a", lease=60) == [Delivery("id", BINARY, 1)]
        added = await one.append("log", BINARY, ttl=60, max_entries=9, max_bytes=9999)
        assert await other.read("log") == [(added.id, BINARY)]
        assert await one.put("empty", b"", ttl=60)
        assert await other.get("empty") == b""
        assert await other.replace("empty", b"", b"more", ttl=60)


@pytest.mark.parametrize(
    "name", ["n" * 8192, "ünïcödé 漢字 \x00\n:{}*?%_'\"", " "], ids=["long", "characters", "space"]
)
async def test_any_text_is_a_name(workers: Workers, name: str) -> None:
    async with workers(2) as (one, other):
        inbox = Inbox()
        await other.subscribe(name, inbox)
        steps = Put(name, b"value", 60), Index(name, {name: ANY}, ttl=60), Publish(name, b"message")
        assert await one.commit(*steps) == Commit(True)
        assert (await other.get(name), await other.members(name)) == (b"value", [name])
        assert await inbox.get(1) == [b"message"]
        await one.enqueue(name, name, b"job", holder=name)
        assert await inbox.get(1) == [name.encode()]
        assert await other.renew(name, name, [name]) == [name]
        await other.finish(name, name, [name])
        assert await one.renew(name, name, [name]) == []
        await one.append(name, b"entry", ttl=60, max_entries=9, max_bytes=99)
        assert [entry.data for entry in await other.read(name) or ()] == [b"entry"]
        assert await one.admit(name, rate=0.01, burst=1) == 0
        await other.delete(name)
        assert (await one.get(name), await one.read(name)) == (None, [])
        assert await one.admit(name, rate=0.01, burst=1) == 0

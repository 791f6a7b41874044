"""Leases on tasks that several workers share, and the service while the store cannot be reached."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from msgspec import Raw
from msgspec.json import encode
from msgspec.structs import replace

from tests.server.tasks.fleet import eventually
from tests.server.tasks.records import RESULT, make_record
from tests.server.tasks.talk import EXTENSION, FINISHED, opened, workshop
from tests.store.conftest import Workers
from trunkline import Context, Server
from trunkline.errors import StoreUnavailable, TooManyRequests
from trunkline.extensions import TaskLimits, TaskOptions
from trunkline.protocol.limits import Limits
from trunkline.server.journal import Journal
from trunkline.server.runtime import runtime_for
from trunkline.server.tasks.leases import Leases
from trunkline.server.tasks.record import Change, TaskRecord, finish, keep_once
from trunkline.server.tasks.records import TaskRecords
from trunkline.store.interface import Commit, Step, Store
from trunkline.store.memory import MemoryContents, MemoryEngine

LEASE = 0.5


class Runner:
    """One worker: its records and its leases."""

    def __init__(self, store: Store, name: str, lease: float = LEASE, limits: TaskLimits | None = None) -> None:
        self.records = TaskRecords(store, runner=name, now=time.time, limits=limits)
        self.leases = Leases(self.records, lease)

    async def turn(self) -> list[TaskRecord]:
        """Renew the leases and take over what others left, as a server does regularly."""
        await self.leases.renew()
        return await self.leases.claim()


class AnswerLost(MemoryEngine):
    """A store whose next commit is done, and its answer lost."""

    def __init__(self) -> None:
        super().__init__(MemoryContents(now=time.time, random=os.urandom))
        self.loses = False

    async def commit(self, *steps: Step) -> Commit:
        commit = await super().commit(*steps)
        if self.loses:
            self.loses = False
            raise StoreUnavailable("gone")
        return commit


@asynccontextmanager
async def runners(workers: Workers, count: int = 2, **options: Any) -> AsyncIterator[list[Runner]]:
    """Return so many runners, each of a worker of its own; they are called a, b, c and d."""
    async with workers(count) as connected:
        yield [Runner(store, name, **options) for store, name in zip(connected, "abcd", strict=False)]


def record(id: str = "one", **members: Any) -> TaskRecord:
    """Return a task that was created now."""
    now = time.time()
    return make_record(id, **{"created": now, "updated": now, "runner": "a", **members})


def ended(each: TaskRecord) -> TaskRecord:
    """Finish a task."""
    return finish(each, "completed", time.time(), result=RESULT)


async def claimed(runner: Runner) -> list[TaskRecord]:
    """Let a runner take its turns until something is taken over."""
    taken: list[TaskRecord] = []

    async def holds() -> bool:
        taken.extend(await runner.turn())
        return bool(taken)

    await eventually(holds)
    return taken


async def until_finished(runner: Runner, id: str) -> TaskRecord:
    """Let a runner take its turns until a task is finished, and return it."""
    state: TaskRecord | None = None

    async def holds() -> bool:
        nonlocal state
        await runner.turn()
        state = await runner.records.get(id)
        return state is not None and state.finished

    await eventually(holds)
    assert state is not None
    return state


# --- leases -----------------------------------------------------------------------------------------------------------


async def test_the_tasks_of_a_runner_that_died_are_taken_over(workers: Workers) -> None:
    async with runners(workers) as (one, other):
        await one.records.create(record("again", retry=1))
        await one.records.create(record("once"))
        # It ends without a word.
        (taken,) = await claimed(other)
        failed = await until_finished(other, "once")
    assert (taken.id, taken.runner, taken.attempts) == ("again", "b", 2)
    assert (failed.status, failed.attempts) == ("failed", 1)
    assert failed.error is not None
    assert "does not declare that it may run again" in failed.error.message


async def test_each_task_is_taken_over_by_one_worker(workers: Workers) -> None:
    async with runners(workers, 3) as (one, *others):
        for number in range(20):
            await one.records.create(record(f"t{number}", retry=1))
        taken: list[TaskRecord] = []

        async def holds() -> bool:
            for some in await asyncio.gather(*(runner.turn() for runner in others)):
                taken.extend(some)
            return len(taken) >= 20

        await eventually(holds)
    assert sorted(each.id for each in taken) == sorted(f"t{number}" for number in range(20))
    assert {each.attempts for each in taken} == {2}


async def test_a_task_runs_no_more_often_than_it_may(workers: Workers) -> None:
    async with runners(workers, 4) as (one, two, three, four):
        await one.records.create(record(retry=2))
        (second,) = await claimed(two)
        (third,) = await claimed(three)
        last = await until_finished(four, "one")
    assert (second.attempts, third.attempts) == (2, 3)
    assert (last.status, last.attempts) == ("failed", 3)


async def test_a_runner_that_stalled_learns_that_it_lost_its_task(workers: Workers) -> None:
    async with runners(workers) as (one, other):
        await one.records.create(record(retry=1))
        await claimed(other)
        lost = await one.leases.renew()
        state = await other.records.get("one")
    assert lost == ["one"]
    assert state is not None
    assert (state.runner, state.status) == ("b", "working")


async def test_a_runner_that_lost_its_task_changes_nothing(workers: Workers) -> None:
    async with runners(workers) as (one, other):
        await one.records.create(record(retry=1))
        await claimed(other)
        after = await one.records.update("one", lambda each: ended(each) if each.runner == "a" else each)
    assert after is not None
    assert (after.runner, after.status) == ("b", "working")


async def test_the_tasks_of_a_runner_that_ended_are_there_at_once(workers: Workers) -> None:
    async with runners(workers, lease=3600.0) as (one, other):
        left = asyncio.Event()
        subscription = await other.records.store.subscribe("tasks:left", lambda _: left.set())
        await one.records.create(record(retry=1))
        assert await other.turn() == []
        await one.leases.release("a", ["one"])
        async with asyncio.timeout(120):
            await left.wait()
        (taken,) = await other.turn()
        await subscription.close()
    assert (taken.runner, taken.attempts) == ("b", 2)


async def test_a_lease_that_ran_out_is_taken_back_if_no_other_worker_took_it(workers: Workers) -> None:
    async with runners(workers) as (one, other):
        await one.records.create(record(retry=1))
        # Another worker takes the entry, and dies before it changes the record.
        await eventually(lambda: _takes(other.records.store))

        async def again_its_own() -> bool:
            await one.turn()
            return one.records.held["one"].lost_at is None

        await eventually(again_its_own)
        state = await one.records.get("one")
    assert state is not None
    assert (state.runner, state.attempts) == ("a", 1)


async def _takes(store: Store) -> bool:
    return bool(await store.take("tasks", "dead", lease=0.1))


async def test_an_outage_is_no_reason_to_take_over_tasks() -> None:
    contents = MemoryContents(now=time.time, random=os.urandom)
    one, other = Runner(MemoryEngine(contents), "a"), Runner(MemoryEngine(contents), "b")
    await one.records.create(record(retry=1))

    async def is_steady() -> bool:
        await one.leases.renew()
        assert await other.turn() == []
        return other.leases._is_steady()

    await eventually(is_steady)
    contents.set_available(False)
    begun = time.monotonic()
    while time.monotonic() - begun < 2 * LEASE:
        with suppress(StoreUnavailable):
            await other.leases.claim()
        await asyncio.sleep(0.02)
    contents.set_available(True)
    assert await other.turn() == []
    await eventually(is_steady)
    state = await other.records.get("one")
    assert state is not None
    assert (state.runner, state.attempts) == ("a", 1)


# --- answers of the store that are lost -------------------------------------------------------------------------------


async def test_an_outcome_whose_answer_was_lost_is_stored_once() -> None:
    store = AnswerLost()
    one = Runner(store, "a", limits=TaskLimits(per_caller=1))
    await one.records.create(record())
    store.loses = True
    with pytest.raises(StoreUnavailable):
        await one.records.update("one", ended)
    again = await one.records.update("one", lambda each: finish(each, "failed", time.time()))
    await one.records.create(record("two"))
    assert again is not None
    assert (again.status, list(one.records.held)) == ("completed", ["two"])
    assert await store.take("tasks", "b", lease=0.0, limit=9) != []


async def test_a_task_whose_entry_another_worker_had_leaves_the_queue_later(workers: Workers) -> None:
    async with runners(workers, limits=TaskLimits(per_caller=1)) as (one, other):
        await one.records.create(record(retry=1))
        await eventually(lambda: _takes(other.records.store))
        await one.records.update("one", ended)
        # There is room at once, whoever has the entry.
        await one.records.create(record("two"))

        async def only_the_other() -> bool:
            await one.leases.renew()
            assert await other.turn() == []
            return await other.records.store.release("tasks", "dead", ["one"]) == []

        await eventually(only_the_other)
        state = await other.records.get("one")
    assert state is not None
    assert (state.status, state.result, state.attempts) == ("completed", RESULT, 1)


# --- limits and changes -----------------------------------------------------------------------------------------------


async def test_limits_hold_however_many_workers_create_at_once(workers: Workers) -> None:
    async with runners(workers, limits=TaskLimits(per_caller=5)) as pair:
        outcomes = await asyncio.gather(
            *(pair[n % 2].records.create(record(f"t{n}")) for n in range(20)), return_exceptions=True
        )
        listed = await pair[0].records.page(None, after=None, limit=99)
    assert [type(each) for each in outcomes].count(TooManyRequests) == 15
    assert len(listed) == 5


async def test_workers_that_change_one_task_at_once_keep_every_change(workers: Workers) -> None:
    async with runners(workers) as pair:
        await pair[0].records.create(record())

        def keep(number: int) -> Change:
            return lambda each: keep_once(each, str(number), Raw(b"%d" % number))

        await asyncio.gather(*(pair[n % 2].records.update("one", keep(n)) for n in range(20)))
        state = await pair[1].records.get("one")
    assert state is not None
    assert state.journal.once == {str(n): Raw(b"%d" % n) for n in range(20)}


async def test_a_change_at_another_worker_is_told_to_the_runner_and_to_watchers(workers: Workers) -> None:
    async with runners(workers) as (one, other):
        told, heard = asyncio.Queue[bytes](), asyncio.Event()
        await one.records.create(record())
        subscription = await one.records.store.subscribe("tasks:runner:a", told.put_nowait)
        unwatch = await one.records.watch("one", heard.set)
        async with asyncio.timeout(120):
            await other.records.update("one", ended)
            assert await told.get() == b"one"
            await heard.wait()
        await unwatch()
        await subscription.close()


async def test_an_id_that_is_too_long_is_unknown(workers: Workers) -> None:
    async with runners(workers, 1) as (one,):
        assert await one.records.get("x" * 100_000) is None


# --- the service while the store cannot be reached ----------------------------------------------------------------


def make_store() -> tuple[MemoryContents, MemoryEngine, TaskRecords]:
    """Return a store, the engine of a server, and the records as another worker sees them."""
    contents = MemoryContents(now=time.time, random=os.urandom)
    return contents, MemoryEngine(contents), TaskRecords(MemoryEngine(contents), runner="other", now=time.time)


async def have_ended(server: Server, *ids: str) -> bool:
    """Return whether the handlers of tasks have returned."""
    return all(runtime_for(server).tasks.runs[id].ended for id in ids)  # type: ignore[union-attr]


async def test_an_outcome_waits_until_the_store_is_back() -> None:
    contents, store, _ = make_store()
    server, gate = workshop(task=TaskOptions(), store=store)
    async with opened(server, EXTENSION) as peer:
        id = await peer.start("work", n=7)
        await gate.entered.wait()
        contents.set_available(False)
        refused = await peer.peer.request("tasks/get", {"taskId": id})
        gate.open.set()
        await eventually(lambda: have_ended(server, id))
        contents.set_available(True)
        state = await peer.until(id)
    assert refused["error"]["code"] == 503
    assert state["result"]["content"][0]["text"] == "7"


async def test_changes_missed_in_an_outage_are_applied_once_for_each_task() -> None:
    contents, store, records = make_store()
    server, gate = workshop(task=TaskOptions(retry=1), store=store)
    async with opened(server, EXTENSION) as peer:
        id = await peer.start("work", n=7)
        await gate.entered.wait()
        tasks: Any = runtime_for(server).tasks
        contents.set_available(False)
        for _ in range(5):
            tasks._others._changes_missed()
            await asyncio.sleep(0)
        waiting = [each for each in tasks._chores if "OtherWorkers._apply" in repr(each.get_coro())]
        contents.set_available(True)
        # Another worker cancels it, and the message about that is missed.
        await records.update(id, lambda each: finish(each, "cancelled", time.time()))
        tasks._others._changes_missed()
        await eventually(lambda: _is_gone(tasks, id))
    assert len(waiting) == 1


async def _is_gone(tasks: Any, id: str) -> bool:
    return id not in tasks.runs


async def test_a_handler_whose_task_another_worker_took_over_is_stopped() -> None:
    _, store, records = make_store()
    server, gate = workshop(task=TaskOptions(retry=1), store=store)
    async with opened(server, EXTENSION) as peer:
        id = await peer.start()
        await gate.entered.wait()
        await records.update(id, lambda each: replace(each, runner="other"))
        tasks: Any = runtime_for(server).tasks
        tasks._others._lease_lost(id)
        await gate.cancelled.wait()
        state = await peer.get(id)
    assert state["status"] == "working"


async def test_outcomes_that_wait_are_bounded() -> None:
    contents, store, _ = make_store()
    server, gate = workshop(limits=Limits(owner_store_bytes=10_000), store=store)

    @server.tool(task=True)
    async def write() -> str:
        await gate.wait()
        return "x" * 20_000

    async with opened(server, EXTENSION) as peer:
        ids = [await peer.start("write"), await peer.start("work")]

        async def both() -> bool:
            return gate.count == 2

        await eventually(both)
        contents.set_available(False)
        gate.open.set()
        await eventually(lambda: have_ended(server, *ids))
        contents.set_available(True)
        large, small = [await peer.until(id, *FINISHED) for id in ids]
    assert (large["status"], large["error"]["message"]) == ("failed", "The result of the task could not be stored")
    assert small["status"] == "completed"


async def test_a_question_that_the_store_lost_is_asked_again() -> None:
    _, store, records = make_store()
    server = Server("asking", store=store)

    @server.tool(task=True)
    async def greet(ctx: Context) -> str:
        return f"Hello {(await ctx.elicit('Who?', str)).data}"

    async with opened(server, EXTENSION, {"elicitation": {"form": {}}}) as peer:
        id = await peer.start("greet")
        before = await peer.until(id, "input_required")
        # A failover to a replica that has the task, but not its question.
        stored = await records.get(id)
        assert stored is not None
        await store.put(
            f"task:{id}", encode(replace(stored, status="working", requests={}, journal=Journal())), ttl=60.0
        )
        assert (await peer.get(id))["status"] == "working"
        tasks: Any = runtime_for(server).tasks
        tasks._others._changes_missed()
        after = await peer.until(id, "input_required")
    assert after["inputRequests"] == before["inputRequests"]

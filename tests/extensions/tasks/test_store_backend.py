"""Tasks on a store: leases, limits, and what a process that dies leaves half done."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from msgspec.structs import replace

from tests.extensions.tasks.fleet import eventually
from tests.extensions.tasks.records import RESULT, make_record
from tests.extensions.tasks.talk import EXTENSION, FINISHED, opened, workshop
from tests.store.conftest import Workers
from trunkline import Context, Server
from trunkline.errors import StoreUnavailable, TooManyRequests
from trunkline.extensions import TaskLimits, TaskOptions, TaskRecord, TaskSettings
from trunkline.extensions.tasks.record import finish, keep_once
from trunkline.extensions.tasks.store_backend import StoreTaskBackend
from trunkline.store.interface import Store
from trunkline.store.memory import MemoryContents, MemoryEngine

LEASE = 0.5
NO_LIMITS = TaskLimits()


class Listener:
    """Collects what a backend tells a runner."""

    def __init__(self) -> None:
        self.changed: asyncio.Queue[str] = asyncio.Queue()
        self.lost: asyncio.Queue[str] = asyncio.Queue()
        self.left = asyncio.Event()
        #: Set once it is subscribed: what came before was missed.
        self.joined = asyncio.Event()

    def task_changed(self, id: str) -> None:
        self.changed.put_nowait(id)

    def lease_lost(self, id: str) -> None:
        self.lost.put_nowait(id)

    def changes_missed(self) -> None:
        self.joined.set()

    def tasks_left(self) -> None:
        self.left.set()


class Failing:
    """A store, one of whose verbs fails as often as a test wants."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.fail: dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        if self.fail.get(name, 0):
            self.fail[name] -= 1
            return self._broken
        return getattr(self._store, name)

    @staticmethod
    async def _broken(*args: Any, **options: Any) -> Any:
        raise StoreUnavailable("gone")


@asynccontextmanager
async def backends(workers: Workers, count: int = 2, *, lease: float = LEASE) -> AsyncIterator[list[Any]]:
    """Return so many backends, each of a worker of its own."""
    async with workers(count) as connected:
        made = [StoreTaskBackend(each, now=time.time, lease=lease) for each in connected]
        try:
            yield made
        finally:
            for each in made:
                await each.aclose()


def record(id: str = "one", **members: Any) -> TaskRecord:
    """Return a task that was created now."""
    now = time.time()
    return make_record(id, **{"created": now, "updated": now, "runner": "a", **members})


def ended(each: TaskRecord) -> TaskRecord:
    """Finish a task."""
    return finish(each, "completed", time.time(), result=RESULT)


async def claimed(backend: StoreTaskBackend, runner: str = "b") -> list[TaskRecord]:
    """Claim until something is taken over."""
    taken: list[TaskRecord] = []

    async def holds() -> bool:
        taken.extend(await backend.claim(runner))
        return bool(taken)

    await eventually(holds)
    return taken


async def until_finished(backend: StoreTaskBackend, id: str) -> TaskRecord:
    """Claim until a task is finished, and return it."""
    found: TaskRecord | None = None

    async def holds() -> bool:
        nonlocal found
        await backend.claim("b")
        found = await backend.get(id)
        return found is not None and found.finished

    await eventually(holds)
    assert found is not None
    return found


# --- leases -----------------------------------------------------------------------------------------------------------


async def test_the_tasks_of_a_runner_that_died_are_taken_over(workers: Workers) -> None:
    async with backends(workers) as (one, other):
        await one.create(record("again", retry=1), NO_LIMITS)
        await one.create(record("once"), NO_LIMITS)
        # It ends without a word.
        await one.aclose()
        (taken,) = await claimed(other)
        failed = await until_finished(other, "once")
    assert (taken.id, taken.runner, taken.attempts) == ("again", "b", 2)
    assert (failed.status, failed.attempts) == ("failed", 1)
    assert failed.error is not None
    assert "does not declare that it may run again" in failed.error.message


async def test_each_task_is_taken_over_by_one_worker(workers: Workers) -> None:
    async with backends(workers, 3) as (one, *others):
        for number in range(20):
            await one.create(record(f"t{number}", retry=1), NO_LIMITS)
        await one.aclose()
        taken: list[TaskRecord] = []
        async with asyncio.timeout(30):
            while len(taken) < 20:
                found = await asyncio.gather(*(each.claim(f"b{n}") for n, each in enumerate(others)))
                taken += [task for some in found for task in some]
    assert sorted(each.id for each in taken) == sorted(f"t{number}" for number in range(20))
    assert {each.attempts for each in taken} == {2}


async def test_a_task_runs_no_more_often_than_it_may(workers: Workers) -> None:
    async with backends(workers, 4) as (one, two, three, four):
        await one.create(record(retry=2), NO_LIMITS)
        await one.aclose()
        (second,) = await claimed(two, "b")
        await two.aclose()
        (third,) = await claimed(three, "c")
        await three.aclose()
        last = await until_finished(four, "one")
    assert (second.attempts, third.attempts) == (2, 3)
    assert (last.status, last.attempts) == ("failed", 3)


async def test_a_runner_that_stalled_learns_that_it_lost_its_task(workers: Workers) -> None:
    async with backends(workers) as (one, other):
        await one.create(record(retry=1), NO_LIMITS)
        await one.aclose()
        await claimed(other)
        listener = Listener()
        one.join("a", listener)
        async with asyncio.timeout(30):
            assert await listener.lost.get() == "one"
        found = await other.get("one")
    assert found is not None
    assert (found.runner, found.status) == ("b", "working")


async def test_the_tasks_of_a_runner_that_ended_are_there_at_once(workers: Workers) -> None:
    async with backends(workers, lease=3600.0) as (one, other):
        listener = Listener()
        other.join("b", listener)
        await listener.joined.wait()
        listener.left.clear()
        await one.create(record(retry=1), NO_LIMITS)
        assert await other.claim("b") == []
        one.release("a")
        async with asyncio.timeout(30):
            await listener.left.wait()
        (taken,) = await other.claim("b")
    assert (taken.runner, taken.attempts) == ("b", 2)


async def test_an_outage_is_no_reason_to_take_over_tasks() -> None:
    contents = MemoryContents(now=time.time, random=os.urandom)
    one, other = (StoreTaskBackend(MemoryEngine(contents), now=time.time, lease=LEASE) for _ in range(2))
    await one.create(record(retry=1), NO_LIMITS)
    while not other._is_steady():
        await other.claim("b")
        await asyncio.sleep(0.02)
    contents.set_available(False)
    begun = time.monotonic()
    while time.monotonic() - begun < 2 * LEASE:
        with suppress(StoreUnavailable):
            await other.claim("b")
        await asyncio.sleep(0.02)
    contents.set_available(True)
    assert await other.claim("b") == []
    while not other._is_steady():
        assert await other.claim("b") == []
        await asyncio.sleep(0.02)
    found = await other.get("one")
    await one.aclose()
    await other.aclose()
    assert found is not None
    assert (found.runner, found.attempts) == ("a", 1)


async def test_an_entry_that_the_queue_lost_is_added_again(workers: Workers) -> None:
    async with backends(workers) as (one, other):
        one.join("a", Listener())
        await one.create(record(retry=1), NO_LIMITS)
        (entry,) = [held.entry for held in one._runners["a"].held.values()]
        assert await one.store.finish("tasks", "a", [entry]) == [entry]

        async def added() -> bool:
            return bool(one._runners["a"].held["one"].entry != entry)

        await eventually(added)
        await one.aclose()
        (taken,) = await claimed(other)
    assert taken.attempts == 2


async def admits(backend: StoreTaskBackend, limits: TaskLimits, runner: str = "b") -> bool:
    """Return whether a task can be created; none may be taken over meanwhile."""
    assert await backend.claim(runner) == []
    with suppress(TooManyRequests):
        await backend.create(record("two", runner=runner), limits)
        return True
    return False


# --- what is half done ------------------------------------------------------------------------------------------------


async def test_a_task_that_was_not_stored_is_cleaned_up(workers: Workers) -> None:
    limits = TaskLimits(per_caller=1)
    async with workers(2) as (store, second):
        failing = Failing(store)
        one = StoreTaskBackend(failing, now=time.time, lease=LEASE)
        other = StoreTaskBackend(second, now=time.time, lease=LEASE)
        failing.fail["put"] = 1
        with pytest.raises(StoreUnavailable):
            await one.create(record(), limits)
        await eventually(lambda: admits(other, limits))
        page = await other.page(None, after=None, limit=9)
        await one.aclose()
        await other.aclose()
    assert [each.id for each in page] == ["two"]


async def test_a_task_that_finished_while_the_indexes_could_not_follow_makes_room_later(workers: Workers) -> None:
    limits = TaskLimits(per_caller=1)
    async with workers(1) as (store,):
        failing = Failing(store)
        one = StoreTaskBackend(failing, now=time.time, lease=LEASE)
        await one.create(record(), limits)
        failing.fail["index"] = 1
        done = await one.update("one", ended)
        await eventually(lambda: admits(one, limits, "a"))
        await one.aclose()
    assert done is not None
    assert done.status == "completed"


async def test_an_outcome_that_was_lost_before_the_queue_followed_is_stored_again() -> None:
    contents = MemoryContents(now=time.time, random=os.urandom)
    store = Failing(MemoryEngine(contents))
    backend = StoreTaskBackend(store, now=time.time, lease=LEASE)
    await backend.create(record(), NO_LIMITS)
    kept = dict(contents.tables.values)
    store.fail["finish"] = 1
    await backend.update("one", ended)
    # A failover to a replica that has not received the outcome.
    contents.tables.values["task:one"] = kept["task:one"]
    await backend._renew()
    found = await backend.get("one")
    assert found is not None
    assert found.finished
    await backend.aclose()


async def test_a_task_whose_worker_died_before_the_indexes_followed_is_finished_by_another(workers: Workers) -> None:
    limits = TaskLimits(per_caller=1)
    async with workers(2) as (store, second):
        failing = Failing(store)
        one = StoreTaskBackend(failing, now=time.time, lease=LEASE)
        other = StoreTaskBackend(second, now=time.time, lease=LEASE)
        await one.create(record(retry=1), limits)
        failing.fail["index"] = 1000
        await one.update("one", ended)
        await one.aclose()
        await eventually(lambda: admits(other, limits))
        found = await other.get("one")
        await other.aclose()
    assert found is not None
    assert (found.status, found.result, found.attempts) == ("completed", RESULT, 1)


# --- limits and changes -----------------------------------------------------------------------------------------------


async def test_limits_hold_however_many_workers_create_at_once(workers: Workers) -> None:
    limits = TaskLimits(per_caller=5)
    async with backends(workers) as pair:
        outcomes = await asyncio.gather(
            *(pair[n % 2].create(record(f"t{n}"), limits) for n in range(20)), return_exceptions=True
        )
        listed = await pair[0].page(None, after=None, limit=99)
    assert [type(each) for each in outcomes].count(TooManyRequests) == 15
    assert len(listed) == 5


async def test_workers_that_change_one_task_at_once_keep_every_change(workers: Workers) -> None:
    async with backends(workers) as pair:
        await pair[0].create(record(), NO_LIMITS)
        await asyncio.gather(
            *(pair[n % 2].update("one", lambda each, n=n: keep_once(each, str(n), n)) for n in range(20))
        )
        found = await pair[1].get("one")
    assert found is not None
    assert found.once == {str(n): n for n in range(20)}


async def test_a_change_at_another_worker_is_told_to_the_runner_and_to_watchers(workers: Workers) -> None:
    async with backends(workers) as (one, other):
        listener, heard = Listener(), asyncio.Event()
        one.join("a", listener)
        await one.create(record(), NO_LIMITS)
        close = await one.watch("one", heard.set)
        async with asyncio.timeout(30):
            await listener.joined.wait()
            await other.update("one", ended)
            while await listener.changed.get() != "one":
                pass
            await heard.wait()
        await close()


async def test_an_id_that_is_too_long_is_unknown(workers: Workers) -> None:
    async with backends(workers, 1) as (one,):
        assert await one.get("x" * 100_000) is None


# --- the service while the store cannot be reached ----------------------------------------------------------------


def make_store() -> tuple[MemoryContents, StoreTaskBackend]:
    contents = MemoryContents(now=time.time, random=os.urandom)
    return contents, StoreTaskBackend(MemoryEngine(contents), now=time.time)


async def have_ended(server: Server, *ids: str) -> bool:
    """Return whether the handlers of tasks have returned."""
    return all(server.tasks.runs[id].ended for id in ids)  # type: ignore[union-attr]


async def test_an_outcome_waits_until_the_store_is_back() -> None:
    contents, backend = make_store()
    server, gate = workshop(task=TaskOptions(), tasks=backend)
    async with opened(server, EXTENSION) as peer:
        id = await peer.start("work", n=7)
        await gate.entered.wait()
        contents.set_available(False)
        refused = await peer.peer.request("tasks/get", {"taskId": id})
        gate.open.set()
        await eventually(lambda: have_ended(server, id))
        contents.set_available(True)
        state = await peer.until(id)
    await backend.aclose()
    assert refused["error"]["code"] == 503
    assert state["result"]["content"][0]["text"] == "7"


async def test_changes_missed_in_an_outage_are_applied_once_for_each_task() -> None:
    contents, backend = make_store()
    server, gate = workshop(task=TaskOptions(retry=1), tasks=backend)
    async with opened(server, EXTENSION) as peer:
        id = await peer.start("work", n=7)
        await gate.entered.wait()
        tasks: Any = server.tasks
        contents.set_available(False)
        for _ in range(5):
            tasks._others.changes_missed()
            await asyncio.sleep(0)
        waiting = [each for each in tasks._chores if "OtherWorkers._apply" in repr(each.get_coro())]
        contents.set_available(True)
        # Another worker cancels it, and the message about that is missed.
        await backend.update(id, lambda each: finish(each, "cancelled", time.time()))
        tasks._others.changes_missed()
        await eventually(lambda: _is_gone(tasks, id))
    await backend.aclose()
    assert len(waiting) == 1


async def _is_gone(tasks: Any, id: str) -> bool:
    return id not in tasks.runs


async def test_a_handler_whose_task_another_worker_took_over_is_stopped() -> None:
    _, backend = make_store()
    server, gate = workshop(task=TaskOptions(retry=1), tasks=backend)
    async with opened(server, EXTENSION) as peer:
        id = await peer.start()
        await gate.entered.wait()
        await backend.update(id, lambda each: replace(each, runner="other"))
        tasks: Any = server.tasks
        tasks._others.lease_lost(id)
        await gate.cancelled.wait()
        state = await peer.get(id)
    await backend.aclose()
    assert state["status"] == "working"


async def test_outcomes_that_wait_are_bounded() -> None:
    contents, backend = make_store()
    limits = TaskLimits(memory_bytes=10_000)
    server, gate = workshop(tasks=TaskSettings(backend=backend, limits=limits))

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
    await backend.aclose()
    assert (large["status"], large["error"]["message"]) == ("failed", "The result of the task could not be stored")
    assert small["status"] == "completed"


async def test_a_question_that_the_store_lost_is_asked_again() -> None:
    _, backend = make_store()
    server = Server("asking", tasks=backend)

    @server.tool(task=True)
    async def greet(ctx: Context) -> str:
        return f"Hello {(await ctx.elicit('Who?', str)).data}"

    async with opened(server, EXTENSION, {"elicitation": {"form": {}}}) as peer:
        id = await peer.start("greet")
        before = await peer.until(id, "input_required")
        # A failover to a replica that has the task, but not its question.
        await backend.update(id, lambda each: replace(each, status="working", questions={}))
        assert (await peer.get(id))["status"] == "working"
        tasks: Any = server.tasks
        tasks._others.changes_missed()
        after = await peer.until(id, "input_required")
    await backend.aclose()
    assert after["inputRequests"] == before["inputRequests"]

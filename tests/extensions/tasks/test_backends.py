"""All backends beside a model: the same sequence of operations gives the same answers everywhere."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Raw, Struct

from tests.extensions.tasks.records import RESULT, make_question, make_record
from tests.store.redis_server import RedisServer, needs_redis
from trunkline.errors import TooManyRequests
from trunkline.extensions import MemoryTaskBackend, SqliteTaskBackend, TaskBackend, TaskLimits, TaskRecord
from trunkline.extensions.tasks.record import add_question, answer_questions, finish, keep_once, start_again
from trunkline.extensions.tasks.store_backend import StoreTaskBackend
from trunkline.store.interface import Store
from trunkline.store.memory import MemoryContents, MemoryEngine
from trunkline.testing.clock import FakeClock

LIMITS = TaskLimits(per_caller=3, total=6)
NO_LIMITS = TaskLimits()
#: The backends whose clock can be moved on; that of a Redis cannot.
WITH_CLOCK = pytest.mark.parametrize("kind", ["memory", "sqlite", "store"])


@pytest.fixture(params=["memory", "sqlite", "store", pytest.param("redis", marks=needs_redis)])
def kind(request: pytest.FixtureRequest) -> str:
    """Return the kind of a backend: for one on Redis, its URL."""
    return str(request.getfixturevalue("shared_redis").url) if request.param == "redis" else str(request.param)


@asynccontextmanager
async def opened(kind: str, clock: FakeClock) -> AsyncIterator[TaskBackend]:
    """Return a backend that is closed at the end."""
    with tempfile.TemporaryDirectory() as folder:
        backend: TaskBackend = MemoryTaskBackend(clock.now)
        if kind == "sqlite":
            backend = SqliteTaskBackend(Path(folder) / "tasks.sqlite", now=clock.now)
        store: Store | None = None
        if kind == "store":
            store = MemoryEngine(MemoryContents(now=clock.now, random=os.urandom))
        elif kind.startswith("redis:"):
            from trunkline.store.redis import RedisEngine

            store = RedisEngine(kind, name=os.urandom(8).hex())
        if store is not None:
            await store.connect()
            backend = StoreTaskBackend(store, now=clock.now)
        try:
            yield backend
        finally:
            await backend.aclose()
            if store is not None:
                await store.aclose()


# --- the model --------------------------------------------------------------------------------------------------------


class Model:
    """What a backend promises, in the plainest form: a list of records."""

    durable = False

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.records: dict[str, TaskRecord] = {}
        self.gone: set[str] = set()

    def _alive(self) -> dict[str, TaskRecord]:
        return {id: each for id, each in self.records.items() if each.expires is None or each.expires > self._now()}

    async def create(self, record: TaskRecord, limits: TaskLimits) -> None:
        self.records = self._alive()
        unfinished = [each for each in self.records.values() if each.owner == record.owner and not each.finished]
        if len(unfinished) >= limits.per_caller or len(self.records) >= limits.total:
            raise TooManyRequests("full")
        self.records[record.id] = record

    async def get(self, id: str) -> TaskRecord | None:
        return self._alive().get(id)

    async def update(self, id: str, change: Callable[[TaskRecord], TaskRecord]) -> TaskRecord | None:
        before = self._alive().get(id)
        if before is not None:
            self.records[id] = change(before)
        return self._alive().get(id, self.records[id]) if before is not None else None

    async def page(self, owner: str | None, *, after: tuple[float, str] | None, limit: int) -> list[TaskRecord]:
        own = sorted(
            (each for each in self._alive().values() if each.owner == owner), key=lambda each: (each.created, each.id)
        )
        return [each for each in own if after is None or (each.created, each.id) > after][:limit]

    async def claim(self, runner: str) -> list[TaskRecord]:
        left = [each for each in self._alive().values() if not each.finished and each.runner in self.gone]
        for each in left:
            self.records[each.id] = start_again(each, runner, self._now())
        return [self.records[each.id] for each in left if not self.records[each.id].finished]

    def release(self, runner: str) -> None:
        self.gone.add(runner)

    async def aclose(self) -> None:
        return


class Operation(Struct, frozen=True):
    """One call of a backend, or a step of the clock."""

    name: str
    number: int = 0
    owner: str | None = None
    value: float = 0.0


ids = st.integers(0, 9)
owners = st.sampled_from([None, "ann", "bob"])
operations = st.one_of(
    st.builds(Operation, st.just("create"), ids, owners, st.sampled_from([5.0, 50.0, -1.0])),
    st.builds(Operation, st.sampled_from(["get", "finish", "ask", "answer", "once", "nothing"]), ids),
    st.builds(Operation, st.just("page"), st.integers(1, 4), owners, st.sampled_from([0.0, 1003.0])),
    st.builds(Operation, st.just("wait"), value=st.sampled_from([1.0, 5.0, 60.0])),
    st.builds(Operation, st.just("restart"), ids),
)


class Walk:
    """The same operations at one backend; its answers are compared with those of others."""

    def __init__(self, backend: TaskBackend, clock: FakeClock) -> None:
        self.backend = backend
        self.clock = clock
        self.runner = 0

    async def step(self, number: int, operation: Operation) -> Any:
        """Perform an operation and return what can be seen of it."""
        if operation.name == "create":
            return await self._create(number, operation)
        if operation.name == "page":
            after = (operation.value, "") if operation.value else None
            return list(await self.backend.page(operation.owner, after=after, limit=operation.number))
        if operation.name == "restart":
            self.backend.release(f"runner-{self.runner}")
            self.runner += 1
            taken = await self.backend.claim(f"runner-{self.runner}")
            return sorted(taken, key=lambda each: each.id)
        if operation.name == "get":
            return await self.backend.get(f"task-{operation.number}")
        return await self._update(operation)

    async def _create(self, number: int, operation: Operation) -> Any:
        now = self.clock.now()
        if await self.backend.get(f"task-{operation.number}") is not None:
            return "there is one"
        record = make_record(
            f"task-{operation.number}",
            owner=operation.owner,
            created=now,
            updated=now,
            ttl=None if operation.value < 0 else operation.value,
            retry=number % 3,
            runner=f"runner-{self.runner}",
        )
        try:
            await self.backend.create(record, LIMITS)
        except TooManyRequests:
            return "full"
        return "created"

    async def _update(self, operation: Operation) -> Any:
        now = self.clock.now()
        changes: dict[str, Callable[[TaskRecord], TaskRecord]] = {
            "finish": lambda record: finish(record, "completed", now, result=RESULT),
            "ask": lambda record: add_question(record, f"q{now}", make_question(), now),
            "answer": lambda record: answer_questions(record, dict.fromkeys(record.questions, Raw(b"1")), now),
            "once": lambda record: keep_once(record, "k", [1]),
            "nothing": lambda record: record,
        }
        return await self.backend.update(f"task-{operation.number}", changes[operation.name])


@given(st.lists(operations, max_size=25))
@settings(max_examples=60)
async def test_memory_file_and_store_answer_as_the_model_does(walk: list[Operation]) -> None:
    clock = FakeClock()
    async with (
        opened("memory", clock) as memory,
        opened("sqlite", clock) as file,
        opened("store", clock) as store,
    ):
        await compare(walk, clock, [memory, file, store])


@needs_redis
@given(st.lists(operations.filter(lambda each: each.name != "wait"), max_size=25))
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_redis_answers_as_the_model_does(shared_redis: RedisServer, walk: list[Operation]) -> None:
    clock = FakeClock()
    async with opened(shared_redis.url, clock) as backend:
        await compare(walk, clock, [backend])


async def compare(walk: list[Operation], clock: FakeClock, backends: list[TaskBackend]) -> None:
    """Perform the same operations at the model and at each backend."""
    walks = [Walk(backend, clock) for backend in (Model(clock.now), *backends)]
    for number, operation in enumerate(walk):
        if operation.name == "wait":
            clock.advance(operation.value)
            continue
        expected, *found = [await each.step(number, operation) for each in walks]
        assert found == [expected] * len(backends)


# --- single promises --------------------------------------------------------------------------------------------------


@WITH_CLOCK
@pytest.mark.parametrize(("seconds", "there"), [(59.0, True), (60.0, False)], ids=["before", "after"])
async def test_a_result_is_there_until_its_time_is_over(kind: str, seconds: float, there: bool) -> None:
    clock = FakeClock()
    async with opened(kind, clock) as backend:
        await backend.create(make_record(ttl=60.0), NO_LIMITS)
        await backend.update("one", lambda record: finish(record, "completed", clock.now(), result=RESULT))
        clock.advance(seconds)
        found = await backend.get("one")
        listed = await backend.page(None, after=None, limit=9)
        changed = await backend.update("one", lambda record: record)
    assert (found is not None, len(listed), changed is not None) == (there, int(there), there)


@WITH_CLOCK
async def test_a_task_that_runs_is_kept_however_long_it_takes(kind: str) -> None:
    clock = FakeClock()
    async with opened(kind, clock) as backend:
        await backend.create(make_record(ttl=1.0), NO_LIMITS)
        clock.advance(1e6)
        assert await backend.get("one") is not None


async def test_the_limit_of_one_caller_is_not_that_of_another(kind: str) -> None:
    limits = TaskLimits(per_caller=1)
    async with opened(kind, FakeClock()) as backend:
        await backend.create(make_record("one", owner="ann"), limits)
        await backend.create(make_record("two", owner="bob"), limits)
        with pytest.raises(TooManyRequests, match="per_caller") as caught:
            await backend.create(make_record("three", owner="ann"), limits)
    assert caught.value.data == {"limit": "per_caller", "allowed": 1}


@WITH_CLOCK
async def test_the_limit_of_all_tasks_counts_finished_ones_until_their_time_is_over(kind: str) -> None:
    clock, limits = FakeClock(), TaskLimits(total=2)
    async with opened(kind, clock) as backend:
        for name in ("one", "two"):
            await backend.create(make_record(name, ttl=60.0), limits)
            await backend.update(name, lambda record: finish(record, "completed", clock.now(), result=RESULT))
        with pytest.raises(TooManyRequests, match="total"):
            await backend.create(make_record("three"), limits)
        clock.advance(60.0)
        await backend.create(make_record("three"), limits)
        assert await backend.get("three") is not None


@pytest.mark.parametrize("kind", ["memory", "store"])
async def test_memory_is_bounded_in_bytes(kind: str) -> None:
    clock, limits = FakeClock(), TaskLimits(memory_bytes=100)
    async with opened(kind, clock) as backend:
        await backend.create(make_record("one", params=Raw(b'"' + b"x" * 98 + b'"')), limits)
        with pytest.raises(TooManyRequests, match="memory_bytes"):
            await backend.create(make_record("two"), limits)
        await backend.update("one", lambda record: finish(record, "cancelled", clock.now()))
        with pytest.raises(TooManyRequests, match="memory_bytes"):
            await backend.create(make_record("two"), limits)
        clock.advance(60.0)
        await backend.create(make_record("two"), limits)


async def test_a_change_that_fails_changes_nothing(kind: str) -> None:
    def broken(record: TaskRecord) -> TaskRecord:
        raise ZeroDivisionError

    async with opened(kind, FakeClock()) as backend:
        await backend.create(make_record(), NO_LIMITS)
        before = await backend.get("one")
        with pytest.raises(ZeroDivisionError):
            await backend.update("one", broken)
        assert await backend.get("one") == before


async def test_changes_made_at_the_same_time_are_all_kept(kind: str) -> None:
    async with opened(kind, FakeClock()) as backend:
        await backend.create(make_record(), NO_LIMITS)

        def keeping(number: int) -> Awaitable[TaskRecord | None]:
            return backend.update("one", lambda record: keep_once(record, str(number), number))

        await asyncio.gather(*(keeping(number) for number in range(50)))
        found = await backend.get("one")
    assert found is not None
    assert found.once == {str(number): number for number in range(50)}


async def test_a_finished_task_makes_room_for_another_of_its_caller(kind: str) -> None:
    limits = TaskLimits(per_caller=1)
    async with opened(kind, FakeClock()) as backend:
        await backend.create(make_record("one"), limits)
        await backend.update("one", lambda record: finish(record, "completed", 101.0, result=RESULT))
        await backend.create(make_record("two"), limits)
        assert await backend.get("two") is not None


async def test_only_the_tasks_of_runners_that_ended_are_taken_over(kind: str) -> None:
    async with opened(kind, FakeClock()) as backend:
        await backend.create(make_record("mine", runner="old", retry=1), NO_LIMITS)
        await backend.create(make_record("other", runner="living", retry=1), NO_LIMITS)
        before = await backend.claim("new")
        backend.release("old")
        after = await backend.claim("new")
    assert ([each.id for each in before], [each.id for each in after]) == ([], ["mine"])


async def test_pages_go_on_where_the_one_before_ended(kind: str) -> None:
    async with opened(kind, FakeClock()) as backend:
        for number in range(5):
            await backend.create(make_record(f"t{number}", created=100.0 + number // 2), NO_LIMITS)
        first = await backend.page(None, after=None, limit=3)
        second = await backend.page(None, after=(first[-1].created, first[-1].id), limit=3)
    assert [each.id for each in (*first, *second)] == ["t0", "t1", "t2", "t3", "t4"]

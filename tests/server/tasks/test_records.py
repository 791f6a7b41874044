"""Stored tasks beside a model: the same sequence of operations gives the same answers on every engine."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Raw, Struct
from msgspec.json import encode
from msgspec.structs import replace

from tests.server.tasks.conftest import CLOCKED
from tests.server.tasks.records import RESULT, make_question, make_record, user
from tests.store.redis_server import RedisServer, needs_redis
from trunkline.errors import TooManyRequests
from trunkline.extensions import TaskLimits
from trunkline.protocol.caller import Principal
from trunkline.protocol.limits import Limits
from trunkline.server.store_budget import StoreBudget, weight_of
from trunkline.server.tasks.leases import Leases
from trunkline.server.tasks.record import (
    TaskRecord,
    add_question,
    answer_questions,
    finish,
    keep_once,
    owner_of,
    start_again,
)
from trunkline.server.tasks.records import TaskRecords
from trunkline.store.interface import Store
from trunkline.store.memory import MemoryContents, MemoryEngine
from trunkline.testing.clock import FakeClock

LIMITS = TaskLimits(per_caller=3)
#: Room for three to five tasks of one user, and for five to eight in all.
BYTES = Limits(owner_store_bytes=5 * 1024, store_bytes=8 * 1024)
#: The engines whose clock can be moved on; that of a Redis cannot.
WITH_CLOCK = pytest.mark.parametrize("kind", CLOCKED)


@pytest.fixture(params=[*CLOCKED, pytest.param("redis", marks=needs_redis)])
def kind(request: pytest.FixtureRequest) -> str:
    """Return the kind of an engine: for one on Redis, its URL."""
    return str(request.getfixturevalue("shared_redis").url) if request.param == "redis" else str(request.param)


def clock_of_today() -> FakeClock:
    """Return a clock: engines may store a released lease as one of the year 1970."""
    clock = FakeClock()
    clock.advance(2e9)
    return clock


@asynccontextmanager
async def engine(kind: str, clock: FakeClock) -> AsyncIterator[Store]:
    """Return an engine that is closed at the end."""
    with tempfile.TemporaryDirectory() as folder:
        store = make_engine(kind, clock, Path(folder) / "state.db")
        await store.connect()
        try:
            yield store
        finally:
            await store.aclose()


def make_engine(kind: str, clock: FakeClock, path: Path) -> Store:
    """Return an engine that is not connected."""
    if kind == "sqlite":
        from trunkline.store.sqlite import SqliteEngine

        return SqliteEngine(path, now=clock.now)
    if kind.startswith("redis:"):
        from trunkline.store.redis import RedisEngine

        return RedisEngine(kind, name=os.urandom(8).hex())
    return MemoryEngine(MemoryContents(now=clock.now, random=os.urandom))


@asynccontextmanager
async def opened(
    kind: str, clock: FakeClock, limits: TaskLimits | None = None, **sizes: int
) -> AsyncIterator[TaskRecords]:
    """Return the records of a runner; in memory, as of a server without other processes."""
    budget = StoreBudget(Limits(**sizes))
    async with engine(kind, clock) as store:
        yield TaskRecords(store, runner="here", now=clock.now, limits=limits, budget=budget, shared=kind != "memory")


def weight(record: TaskRecord) -> int:
    """Return what a task weighs in a store that is not sealed."""
    return weight_of(len(encode(record)))


# --- the model --------------------------------------------------------------------------------------------------------


class Model:
    """What stored tasks promise, in the plainest form: a list of records."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.records: dict[str, TaskRecord] = {}

    def _alive(self) -> dict[str, TaskRecord]:
        return {id: each for id, each in self.records.items() if each.expires is None or each.expires > self._now()}

    async def create(self, record: TaskRecord) -> None:
        self.records = self._alive()
        unfinished = [each for each in self.records.values() if each.owner == record.owner and not each.finished]
        if len(unfinished) >= LIMITS.per_caller:
            raise TooManyRequests("full")
        self._make_room(record)
        self.records[record.id] = record

    def _make_room(self, record: TaskRecord) -> None:
        """Drop finished tasks of the same owner, the oldest first."""
        finished = sorted(
            (each for each in self._alive().values() if each.owner == record.owner and each.finished),
            key=lambda each: (each.created, each.id),
        )
        for count in (1, 2, 4, 8, 16, 32):
            if self._has_room(record) or not finished:
                break
            for dropped in finished[:count]:
                del self.records[dropped.id]
            del finished[:count]
        if not self._has_room(record):
            raise TooManyRequests("full")

    def _has_room(self, record: TaskRecord) -> bool:
        before = self._alive().get(record.id)
        if before is not None and weight(record) <= weight(before):
            return True
        others = [each for each in self._alive().values() if each.id != record.id]
        share = sum(weight(each) for each in others if each.owner == record.owner)
        total = sum(weight(each) for each in others)
        return share + weight(record) <= BYTES.owner_store_bytes and total + weight(record) <= BYTES.store_bytes

    async def get(self, id: str) -> TaskRecord | None:
        return self._alive().get(id)

    async def update(self, id: str, change: Callable[[TaskRecord], TaskRecord]) -> TaskRecord | None:
        before = self._alive().get(id)
        if before is not None:
            after = change(before)
            if not after.finished:
                self._make_room(after)
            self.records[id] = after
        return self._alive().get(id, self.records[id]) if before is not None else None

    async def page(
        self, principal: Principal | None, *, after: tuple[float, str] | None, limit: int
    ) -> list[TaskRecord]:
        own = sorted(
            (each for each in self._alive().values() if each.owner == owner_of(principal)),
            key=lambda each: (each.created, each.id),
        )
        return [each for each in own if after is None or (each.created, each.id) > after][:limit]

    async def restart(self, runner: str) -> list[TaskRecord]:
        left = [each for each in self._alive().values() if not each.finished]
        for each in left:
            self.records[each.id] = start_again(each, runner, self._now())
        return [self.records[each.id] for each in left if not self.records[each.id].finished]


class Stored:
    """The tasks in a store, as one runner after another sees them."""

    def __init__(self, store: Store, clock: FakeClock) -> None:
        self._store = store
        self._clock = clock
        self._records = self._runner("runner-0")
        self.create, self.get = self._records.create, self._records.get
        self.update, self.page = self._records.update, self._records.page

    def _runner(self, name: str) -> TaskRecords:
        return TaskRecords(self._store, runner=name, now=self._clock.now, limits=LIMITS, budget=StoreBudget(BYTES))

    async def restart(self, runner: str) -> list[TaskRecord]:
        ended, self._records = self._records, self._runner(runner)
        self.create, self.get = self._records.create, self._records.get
        self.update, self.page = self._records.update, self._records.page
        leases = Leases(self._records, 30.0)
        await leases.release(ended.runner, list(ended.held))
        return await leases.claim()


class Operation(Struct, frozen=True):
    """One call, or a step of the clock."""

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
    """The same operations in one store; its answers are compared with those of others."""

    def __init__(self, tasks: Model | Stored, clock: FakeClock) -> None:
        self.tasks = tasks
        self.clock = clock
        self.runner = 0

    async def step(self, number: int, operation: Operation) -> Any:
        """Perform an operation and return what can be seen of it."""
        if operation.name == "create":
            return await self._create(number, operation)
        if operation.name == "page":
            after = (operation.value, "") if operation.value else None
            return list(await self.tasks.page(user(operation.owner), after=after, limit=operation.number))
        if operation.name == "restart":
            self.runner += 1
            taken = await self.tasks.restart(f"runner-{self.runner}")
            return sorted(taken, key=lambda each: each.id)
        if operation.name == "get":
            return await self.tasks.get(f"task-{operation.number}")
        return await self._update(operation)

    async def _create(self, number: int, operation: Operation) -> Any:
        now = self.clock.now()
        if await self.tasks.get(f"task-{operation.number}") is not None:
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
            await self.tasks.create(record)
        except TooManyRequests:
            return "full"
        return "created"

    async def _update(self, operation: Operation) -> Any:
        now = self.clock.now()
        changes: dict[str, Callable[[TaskRecord], TaskRecord]] = {
            "finish": lambda record: finish(record, "completed", now, result=RESULT),
            "ask": lambda record: add_question(record, f"q{now}", make_question(), now),
            "answer": lambda record: answer_questions(record, dict.fromkeys(record.requests, Raw(b"1")), now),
            "once": lambda record: keep_once(record, "k", Raw(b"[1]")),
            "nothing": lambda record: record,
        }
        try:
            return await self.tasks.update(f"task-{operation.number}", changes[operation.name])
        except TooManyRequests:
            return "full"


@given(st.lists(operations, max_size=25))
@settings(max_examples=60)
async def test_each_engine_with_a_clock_answers_as_the_model_does(walk: list[Operation]) -> None:
    clock = clock_of_today()
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(engine(kind, clock)) for kind in CLOCKED]
        await compare(walk, clock, stores)


@needs_redis
@given(st.lists(operations.filter(lambda each: each.name != "wait"), max_size=25))
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_redis_answers_as_the_model_does(shared_redis: RedisServer, walk: list[Operation]) -> None:
    clock = clock_of_today()
    async with engine(shared_redis.url, clock) as store:
        await compare(walk, clock, [store])


async def compare(walk: list[Operation], clock: FakeClock, stores: list[Store]) -> None:
    """Perform the same operations at the model and in each store."""
    walks = [Walk(Model(clock.now), clock), *(Walk(Stored(store, clock), clock) for store in stores)]
    for number, operation in enumerate(walk):
        if operation.name == "wait":
            clock.advance(operation.value)
            continue
        expected, *answers = [await each.step(number, operation) for each in walks]
        assert answers == [expected] * len(stores)


# --- single promises --------------------------------------------------------------------------------------------------


@WITH_CLOCK
@pytest.mark.parametrize(("seconds", "there"), [(59.0, True), (60.0, False)], ids=["before", "after"])
async def test_a_result_is_there_until_its_time_is_over(kind: str, seconds: float, there: bool) -> None:
    clock = FakeClock()
    async with opened(kind, clock) as records:
        await records.create(make_record(ttl=60.0))
        await records.update("one", lambda record: finish(record, "completed", clock.now(), result=RESULT))
        clock.advance(seconds)
        found = await records.get("one")
        listed = await records.page(None, after=None, limit=9)
        changed = await records.update("one", lambda record: record)
    assert (found is not None, len(listed), changed is not None) == (there, int(there), there)


@WITH_CLOCK
async def test_a_task_that_runs_is_kept_however_long_it_takes(kind: str) -> None:
    clock = FakeClock()
    async with opened(kind, clock) as records:
        await records.create(make_record(ttl=1.0))
        clock.advance(1e6)
        assert await records.get("one") is not None


async def test_the_limit_of_one_caller_is_not_that_of_another(kind: str) -> None:
    async with opened(kind, FakeClock(), TaskLimits(per_caller=1)) as records:
        await records.create(make_record("one", owner="ann"))
        await records.create(make_record("two", owner="bob"))
        with pytest.raises(TooManyRequests, match="per_caller") as caught:
            await records.create(make_record("three", owner="ann"))
    assert caught.value.data == {"limit": "per_caller", "allowed": 1}


@WITH_CLOCK
async def test_the_limit_of_all_tasks_counts_finished_ones_until_their_time_is_over(kind: str) -> None:
    clock = FakeClock()
    async with opened(kind, clock, store_bytes=2048) as records:
        for name in ("one", "two"):
            await records.create(make_record(name, ttl=60.0))
            await records.update(name, lambda record: finish(record, "completed", clock.now(), result=RESULT))
        with pytest.raises(TooManyRequests, match="store_bytes=2048") as caught:
            await records.create(make_record("three", owner="ann"))
        clock.advance(60.0)
        await records.create(make_record("three", owner="ann"))
        assert await records.get("three") is not None
    assert (caught.value.code, caught.value.data["limit"], caught.value.retry_after) == (503, "store_bytes", 30)


def bulky(id: str, size: int = 5000, **members: Any) -> TaskRecord:
    """Return a task with large arguments."""
    return make_record(id, params=Raw(b'"' + b"x" * size + b'"'), **members)


async def test_the_oldest_finished_tasks_of_the_same_owner_make_room(kind: str) -> None:
    clock = FakeClock()
    async with opened(kind, clock, owner_store_bytes=5 * 6144, store_bytes=10 * 6144) as records:
        await records.create(bulky("others", owner="ann"))
        await records.update("others", lambda record: finish(record, "completed", clock.now(), result=RESULT))
        for number, name in enumerate(("runs", "first", "second", "third")):
            await records.create(bulky(name, created=100.0 + number))
            if number:
                await records.update(name, lambda record: finish(record, "completed", clock.now(), result=RESULT))
        await records.create(bulky("large", 10_000, created=200.0))
        names = ("others", "runs", "first", "second", "third", "large")
        stored = [name for name in names if await records.get(name) is not None]
        listed = [record.id for record in await records.page(None, after=None, limit=9)]
        with pytest.raises(TooManyRequests, match="owner_store_bytes") as caught:
            await records.create(bulky("larger", 20_000, created=300.0))
        left = [record.id for record in await records.page(None, after=None, limit=9)]
    assert stored == ["others", "runs", "second", "third", "large"]
    assert listed == ["runs", "second", "third", "large"]
    assert (caught.value.code, left) == (429, ["runs", "large"])


async def test_a_result_counts_for_its_owner_alone(kind: str) -> None:
    clock, large = FakeClock(), Raw(b'"' + b"x" * 20_000 + b'"')
    async with opened(kind, clock, owner_store_bytes=25_000, store_bytes=25_000) as records:
        for name, owner in (("one", "ann"), ("two", "bob"), ("three", "bob")):
            await records.create(make_record(name, owner=owner))
        await records.update("one", lambda record: finish(record, "completed", clock.now(), result=large))
        # The store is full, but what was accepted is done.
        await records.update("two", lambda record: finish(record, "completed", clock.now(), result=large))
        with pytest.raises(TooManyRequests, match=" store_bytes="):
            await records.create(make_record("four", owner="cid"))
        # The older result of the same owner makes room.
        await records.update("three", lambda record: finish(record, "completed", clock.now(), result=large))
        stored = [name for name in ("one", "two", "three") if await records.get(name) is not None]
    assert stored == ["one", "three"]


async def test_a_result_larger_than_the_share_is_refused_and_its_task_can_end(kind: str) -> None:
    clock, large = FakeClock(), Raw(b'"' + b"x" * 20_000 + b'"')
    async with opened(kind, clock, owner_store_bytes=1024) as records:
        await records.create(make_record())
        with pytest.raises(TooManyRequests, match="owner_store_bytes"):
            await records.update("one", lambda record: finish(record, "completed", clock.now(), result=large))
        ended = await records.update("one", lambda record: finish(record, "cancelled", clock.now(), message="x" * 600))
        assert ended is not None
        assert (await records.get("one"), ended.status) == (ended, "cancelled")


@WITH_CLOCK
async def test_the_bytes_of_a_task_count_until_its_time_is_over(kind: str) -> None:
    clock = FakeClock()
    async with opened(kind, clock, store_bytes=6144) as records:
        await records.create(bulky("one"))
        with pytest.raises(TooManyRequests, match="store_bytes"):
            await records.create(make_record("two", owner="ann"))
        await records.update("one", lambda record: finish(record, "cancelled", clock.now()))
        with pytest.raises(TooManyRequests, match="store_bytes"):
            await records.create(make_record("two", owner="ann"))
        clock.advance(60.0)
        await records.create(make_record("two", owner="ann"))


async def test_the_clients_of_one_user_share_its_limits_and_see_their_own_tasks(kind: str) -> None:
    async with opened(kind, FakeClock(), TaskLimits(per_caller=3)) as records:
        clients = [Principal(subject="ann", client=name) for name in ("a", "b")]
        for number in range(3):
            principal = clients[number % 2]
            record = make_record(str(number), created=100.0 + number)
            facts = replace(record.caller, principal=principal)
            await records.create(replace(record, owner=owner_of(principal), caller=facts))
        with pytest.raises(TooManyRequests, match="per_caller"):
            await records.create(make_record("more", owner="ann"))
        listed = [[record.id for record in await records.page(each, after=None, limit=2)] for each in clients]
    assert listed == [["0", "2"], ["1"]]


async def test_a_change_that_fails_changes_nothing(kind: str) -> None:
    def broken(record: TaskRecord) -> TaskRecord:
        raise ZeroDivisionError

    async with opened(kind, FakeClock()) as records:
        await records.create(make_record())
        before = await records.get("one")
        with pytest.raises(ZeroDivisionError):
            await records.update("one", broken)
        assert await records.get("one") == before


async def test_changes_made_at_the_same_time_are_all_kept(kind: str) -> None:
    async with opened(kind, FakeClock()) as records:
        await records.create(make_record())

        def keeping(number: int) -> Awaitable[TaskRecord | None]:
            return records.update("one", lambda record: keep_once(record, str(number), Raw(b"%d" % number)))

        await asyncio.gather(*(keeping(number) for number in range(50)))
        found = await records.get("one")
    assert found is not None
    assert found.journal.once == {str(number): Raw(b"%d" % number) for number in range(50)}


async def test_a_finished_task_makes_room_for_another_of_its_caller(kind: str) -> None:
    async with opened(kind, FakeClock(), TaskLimits(per_caller=1)) as records:
        await records.create(make_record("one"))
        await records.update("one", lambda record: finish(record, "completed", 101.0, result=RESULT))
        await records.create(make_record("two"))
        assert await records.get("two") is not None


async def test_only_the_tasks_of_runners_that_ended_are_taken_over(kind: str) -> None:
    clock = clock_of_today()
    async with engine(kind, clock) as store:
        old, living, new = (TaskRecords(store, runner=name, now=clock.now) for name in ("old", "living", "new"))
        await old.create(make_record("mine", runner="old", retry=1))
        await living.create(make_record("other", runner="living", retry=1))
        leases = Leases(new, 30.0)
        before = await leases.claim()
        await leases.release("old", list(old.held))
        after = await leases.claim()
    assert ([each.id for each in before], [each.id for each in after]) == ([], ["mine"])


async def test_pages_go_on_where_the_one_before_ended(kind: str) -> None:
    async with opened(kind, FakeClock()) as records:
        for number in range(5):
            await records.create(make_record(f"t{number}", created=100.0 + number // 2))
        first = await records.page(None, after=None, limit=3)
        second = await records.page(None, after=(first[-1].created, first[-1].id), limit=3)
    assert [each.id for each in (*first, *second)] == ["t0", "t1", "t2", "t3", "t4"]

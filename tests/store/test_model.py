"""Every engine against a plain model: whatever is done in whatever order, both answer the same."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from typing import Any, TypeAlias

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.store.conftest import Workers
from tests.store.test_memory import stored_bytes
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
from trunkline.store.memory import MemoryContents, MemoryEngine

#: A verb and its arguments.
Operation: TypeAlias = tuple[Any, ...]


class Model:
    """What a store answers, in the plainest way: everything is searched and counted each time."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.values: dict[str, tuple[bytes, float]] = {}
        self.logs: dict[str, tuple[list[bytes], float]] = {}
        #: Of each entry: its data, the holder ("" for none), since when, and how often it was leased.
        self.queues: dict[tuple[str, str], tuple[bytes, str, float, int]] = {}
        #: Of each member of an index: its weight, and when it expires.
        self.members: dict[tuple[str, str], tuple[int, float]] = {}

    def expire(self) -> None:
        """Forget whatever has expired."""
        self.values = {key: record for key, record in self.values.items() if record[1] > self.now}
        self.logs = {key: record for key, record in self.logs.items() if record[1] > self.now}
        self.members = {key: record for key, record in self.members.items() if record[1] > self.now}

    def do(self, operation: Operation) -> object:
        """Return what a store answers to an operation."""
        self.expire()
        verb, *arguments = operation
        return getattr(self, verb)(*arguments)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    def get(self, key: str) -> bytes | None:
        return self.values.get(key, (None, 0.0))[0]

    def commit(self, *steps: Step) -> Commit:
        for step in steps:
            if isinstance(step, Put) and (step.old is not None or step.only_if_absent):
                if self.get(step.key) != step.old:
                    return Commit(False)
            elif isinstance(step, Index):
                for name, limits in step.into.items():
                    if (limit := self._reached_limit(name, limits, step)) is not None:
                        return Commit(False, FullIndex(name, limit))
        for step in steps:
            self._do_step(step)
        return Commit(True)

    def _reached_limit(self, index: str, limits: IndexLimits, step: Index) -> str | None:
        weights = {member: weight for (name, member), (weight, _) in self.members.items() if name == index}
        before = weights.pop(step.member, None)
        if before is None and limits.members and len(weights) >= limits.members:
            return "members"
        grows = before is None or step.weight > before
        return "weight" if grows and limits.weight and sum(weights.values()) + step.weight > limits.weight else None

    def _do_step(self, step: Step) -> None:
        match step:
            case Put(key, value, ttl):
                self.values[key] = value, self.now + ttl
            case Delete(key):
                self.values.pop(key, None)
                self.logs.pop(key, None)
            case Index(member, into, out_of, weight, ttl):
                self.members |= {(name, member): (weight, self.now + ttl) for name in into}
                for name in out_of:
                    self.members.pop((name, member), None)
            case Enqueue(queue, id, data, holder):
                self.queues[queue, id] = data, holder, self.now, 1 if holder else 0
            case Finish(queue, holder, id):
                if self._is_held(queue, holder, id):
                    del self.queues[queue, id]
            case Publish():
                pass

    def _is_held(self, queue: str, holder: str, id: str) -> bool:
        entry = self.queues.get((queue, id))
        return entry is not None and entry[1] == holder

    def take(self, queue: str, holder: str, lease: float) -> set[Delivery]:
        deliveries = set()
        for (name, id), (data, current, since, attempt) in list(self.queues.items()):
            if name == queue and (not current or self.now - since >= lease):
                self.queues[name, id] = data, holder, self.now, attempt + 1
                deliveries.add(Delivery(id, data, attempt + 1))
        return deliveries

    def renew(self, queue: str, holder: str, ids: list[str]) -> list[str]:
        renewed = [id for id in ids if self._is_held(queue, holder, id)]
        for id in renewed:
            data, _, _, attempt = self.queues[queue, id]
            self.queues[queue, id] = data, holder, self.now, attempt
        return renewed

    def release(self, queue: str, holder: str, ids: list[str]) -> list[str]:
        released = [id for id in ids if self._is_held(queue, holder, id)]
        for id in released:
            data, _, since, attempt = self.queues[queue, id]
            self.queues[queue, id] = data, "", since, attempt
        return released

    def list_members(self, index: str, after: str, limit: int) -> list[str]:
        return sorted(member for name, member in self.members if name == index and member > after)[:limit]

    def append(self, log: str, data: bytes, ttl: float, max_entries: int) -> None:
        entries, _ = self.logs.get(log, ([], 0.0))
        self.logs[log] = [*entries, data][-max_entries:], self.now + ttl

    def read(self, log: str, skip: int, limit: int) -> list[bytes]:
        return self.logs.get(log, ([], 0.0))[0][skip : skip + limit]


async def answer(store: Store, operation: Operation) -> object:
    """Do an operation in a store; return its answer in the terms of the model."""
    match operation:
        case ("take", queue, holder, lease):
            return set(await store.take(queue, holder, lease=lease, limit=99))
        case ("list_members", index, after, limit):
            return await store.members(index, after=after, limit=limit)
        case ("append", log, data, ttl, max_entries):
            await store.append(log, data, ttl=ttl, max_entries=max_entries, max_bytes=10_000)
            return None
        case ("read", log, skip, limit):
            if skip:
                before = await store.read(log, limit=skip) or []
                if len(before) < skip:
                    return []
                return [entry.data for entry in await store.read(log, after=before[-1].id, limit=limit) or ()]
            return [entry.data for entry in await store.read(log, limit=limit) or ()]
        case (verb, *arguments):
            return await getattr(store, verb)(*arguments)
    raise AssertionError(operation)


# --- operations -------------------------------------------------------------------------------------------------------

keys = st.sampled_from(["a", "b", "c"])
data = st.sampled_from([b"", b"1", b"22"])
indexes = st.sampled_from(["x", "y"])
members = st.sampled_from(["m", "n", "o", "p"])
limits = st.builds(IndexLimits, st.integers(0, 3), st.integers(0, 6))
queues = st.sampled_from(["q", "r"])
ids = st.sampled_from(["i", "j", "k"])
holders = st.sampled_from(["h", "k"])


def _subject(step: Step) -> tuple[str, ...]:
    """Return what a step is about: no two steps of a commit are about the same."""
    match step:
        case Put(key) | Delete(key):
            return "key", key
        case Index(member):
            return "member", member
        case Enqueue(queue, id) | Finish(queue, _, id):
            return "entry", queue, id
    return ("message",)


def operations(ttls: st.SearchStrategy[float], leases: st.SearchStrategy[float]) -> st.SearchStrategy[Operation]:
    """Return operations, with these times."""
    steps: st.SearchStrategy[Step] = st.one_of(
        # Every field is passed: what is left out would be made up.
        st.builds(Put, keys, data, ttls, st.one_of(st.none(), data), st.just(False)),
        st.builds(Put, keys, data, ttls, st.none(), st.just(True)),
        st.builds(Delete, keys),
        st.builds(Index, members, st.dictionaries(indexes, limits), st.just(()), st.integers(0, 4), ttls),
        st.builds(Index, members, st.just({}), st.lists(indexes, unique=True).map(tuple), st.just(0), ttls),
        st.builds(Enqueue, queues, ids, data, st.one_of(st.just(""), holders)),
        st.builds(Finish, queues, holders, ids),
        st.builds(Publish, st.just("news"), data),
    )
    commits = st.lists(steps, max_size=5, unique_by=_subject).map(lambda several: ("commit", *several))
    some_ids = st.lists(ids, unique=True)
    return st.one_of(
        commits,
        commits,
        st.tuples(st.just("get"), keys),
        st.tuples(st.just("take"), queues, holders, leases),
        st.tuples(st.just("renew"), queues, holders, some_ids),
        st.tuples(st.just("release"), queues, holders, some_ids),
        st.tuples(st.just("list_members"), indexes, st.one_of(st.just(""), members), st.integers(1, 3)),
        st.tuples(st.just("append"), keys, data, ttls, st.integers(1, 4)),
        st.tuples(st.just("read"), keys, st.integers(0, 4), st.integers(1, 3)),
    )


FIXED = st.lists(operations(st.just(600.0), st.just(1e6)), max_size=40)
TIMED = st.lists(
    st.one_of(
        operations(st.sampled_from([1.0, 10.0, 100.0]), st.sampled_from([0.0, 5.0, 50.0])),
        st.tuples(st.just("pass_time"), st.sampled_from([0.5, 1.0, 9.0, 30.0, 100.0])),
    ),
    max_size=80,
)


async def check(stores: list[Store], work: Iterable[Operation]) -> None:
    """Do the same in the model and in the workers of a store, in turn."""
    model = Model()
    for number, operation in enumerate(work):
        expected = model.do(operation)
        assert await answer(stores[number % len(stores)], operation) == expected, operation


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(FIXED)
def test_every_engine_answers_as_the_model_does(workers: Workers, work: list[Operation]) -> None:
    async def run() -> None:
        async with workers(2) as stores:
            await check(stores, work)

    asyncio.run(run())


@settings(max_examples=200, deadline=None)
@given(TIMED)
def test_the_memory_engine_answers_as_the_model_does_while_time_passes(work: list[Operation]) -> None:
    async def run() -> None:
        model = Model()
        contents = MemoryContents(now=lambda: model.now, random=os.urandom, max_bytes=1 << 20)
        store = MemoryEngine(contents)
        for operation in work:
            expected = model.do(operation)
            if operation[0] != "pass_time":
                assert await answer(store, operation) == expected, operation
            assert contents.tables.size == stored_bytes(contents)
        contents.tables.remove_expired(model.now + 1000)
        assert (contents.tables.values, contents.tables.logs, contents.tables.indexes) == ({}, {}, {})
        assert contents.tables.size == stored_bytes(contents)

    asyncio.run(run())

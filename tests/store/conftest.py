"""The engines that the tests of the interface run on: in memory, in an SQLite file, on a real redis-server."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias
from uuid import uuid4

import pytest

from tests.store.redis_server import RedisServer, needs_redis, redis_server
from trunkline.store.interface import Store
from trunkline.store.memory import MemoryContents, MemoryEngine

#: Connects so many workers to one new store.
Workers: TypeAlias = Callable[[int], AbstractAsyncContextManager[list[Store]]]
#: Makes one worker's engine of a new store, for a name.
MakeEngine: TypeAlias = Callable[[str], Store]


@pytest.fixture(scope="session")
def shared_redis() -> Iterator[RedisServer]:
    """A redis-server for tests that leave it running."""
    with redis_server() as server:
        yield server


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    """A redis-server for a test that stops it."""
    with redis_server() as server:
        yield server


def memory_engine(request: pytest.FixtureRequest) -> MakeEngine:
    """Return what makes engines in memory."""
    stores: defaultdict[str, MemoryContents] = defaultdict(lambda: MemoryContents(now=time.time, random=os.urandom))
    return lambda name: MemoryEngine(stores[name])


def sqlite_engine(request: pytest.FixtureRequest) -> MakeEngine:
    """Return what makes engines on a file."""
    from trunkline.store.sqlite import SqliteEngine

    path: Path = request.getfixturevalue("tmp_path") / "store.db"
    return lambda name: SqliteEngine(path, name=name)


def redis_engine(request: pytest.FixtureRequest) -> MakeEngine:
    """Return what makes engines on a redis-server."""
    from trunkline.store.redis import RedisEngine

    url = request.getfixturevalue("shared_redis").url
    return lambda name: RedisEngine(url, name=name)


#: Every engine passes every test that uses ``workers``.
ENGINES: Mapping[str, tuple[Callable[[pytest.FixtureRequest], MakeEngine], tuple[pytest.MarkDecorator, ...]]] = (
    MappingProxyType(
        {
            "memory": (memory_engine, ()),
            **({"sqlite": (sqlite_engine, ())} if find_spec("trunkline.store.sqlite") else {}),
            "redis": (redis_engine, (needs_redis,)),
        }
    )
)


@pytest.fixture(params=[pytest.param(name, marks=marks) for name, (_, marks) in ENGINES.items()])
def workers(request: pytest.FixtureRequest) -> Workers:
    """Connect so many workers to one new store."""
    make = ENGINES[request.param][0](request)

    @asynccontextmanager
    async def connect(count: int) -> AsyncIterator[list[Store]]:
        name = f"test {{{uuid4().hex}}}"
        engines = [make(name) for _ in range(count)]
        for engine in engines:
            await engine.connect()
        try:
            yield engines
        finally:
            for engine in engines:
                await engine.aclose()

    return connect

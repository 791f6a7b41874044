"""The stores that the tests of the interface run on: in memory, in an SQLite file, on a real redis-server."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from tests.store.redis_server import RedisServer, needs_redis, redis_server
from trunkline.store.interface import Store
from trunkline.store.memory import MemoryContents, MemoryEngine
from trunkline.store.sqlite import SqliteEngine

#: Connects so many workers to one new store.
Workers = Callable[[int], AbstractAsyncContextManager[list[Store]]]


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


@pytest.fixture(params=["memory", "sqlite", pytest.param("redis", marks=needs_redis)])
def workers(request: pytest.FixtureRequest, tmp_path: Path) -> Workers:
    """Connect so many workers to one new store."""
    if request.param == "memory":
        contents = MemoryContents(now=time.time, random=os.urandom)

        def make(name: str) -> Store:
            return MemoryEngine(contents)
    elif request.param == "sqlite":

        def make(name: str) -> Store:
            return SqliteEngine(tmp_path / "store.db", name=name)
    else:
        from trunkline.store.redis import RedisEngine

        url = request.getfixturevalue("shared_redis").url

        def make(name: str) -> Store:
            return RedisEngine(url, name=name)

    @asynccontextmanager
    async def connect(count: int) -> AsyncIterator[list[Store]]:
        name = f"test {{{uuid4().hex}}}"
        connected = [make(name) for _ in range(count)]
        for each in connected:
            await each.connect()
        try:
            yield connected
        finally:
            for each in connected:
                await each.aclose()

    return connect

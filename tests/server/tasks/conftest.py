"""Where the tests of tasks store them: each engine, and Redis servers for several workers."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.store.conftest import own_redis, shared_redis, workers
from tests.store.redis_server import needs_redis
from trunkline.store.memory import MemoryContents, MemoryEngine

__all__ = ["durable", "own_redis", "shared_redis", "stored", "workers"]

#: The memory of a server, an engine that is passed as an object, a file, and Redis.
ENGINES: list[Any] = ["memory", "object", "sqlite", pytest.param("redis", marks=needs_redis)]
#: The engines of records alone, in memory with and without other workers: with a clock of ours, and with its own.
CLOCKED: list[str] = ["memory", "object", "sqlite"]


@pytest.fixture(params=ENGINES)
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """Return the options of a server that say where its tasks are stored; servers with the same ones share them."""
    return store_options(request, tmp_path)


@pytest.fixture(params=ENGINES[1:])
def durable(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """Return the options of a server whose tasks outlive it."""
    return store_options(request, tmp_path)


def store_options(request: pytest.FixtureRequest, folder: Path) -> dict[str, Any]:
    """Return the options for an engine."""
    if request.param == "memory":
        return {}
    if request.param == "object":
        return {"store": MemoryEngine(MemoryContents(now=time.time, random=os.urandom))}
    if request.param == "sqlite":
        return {"store": folder / "state.db"}
    database = request.getfixturevalue("own_redis")
    return {"store": database.url, "state_keys": ["5a" * 32]}

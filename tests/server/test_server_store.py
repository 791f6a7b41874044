"""The store of a server: engines of event loops, the keys, and what happens while it cannot be reached."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

import pytest

from tests.store.conftest import shared_redis
from tests.store.redis_server import RedisServer, needs_redis
from trunkline import Server
from trunkline.errors import ConfigError, StoreUnavailable
from trunkline.server.runtime import has_shared_store, runtime_for
from trunkline.store.interface import Store
from trunkline.store.memory import MemoryContents, MemoryEngine
from trunkline.store.server_store import ServerStore

__all__ = ["shared_redis"]

OLD, NEW, OTHER = "0a" * 32, "0b" * 32, "0c" * 32
PURPOSE = b"\x07"


class ReadableEngine(MemoryEngine):
    """A store that others can read too."""

    private = False


@pytest.fixture(autouse=True)
def without_configured_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRUNKLINE_STATE_KEY", raising=False)


@pytest.fixture
def contents() -> MemoryContents:
    return MemoryContents(now=time.time, random=os.urandom)


async def checked(engine: Store, *keys: str) -> None:
    """Start a server with these keys."""
    await ServerStore(engine, name="checked", keys=keys).start()


# --- engines ---------------------------------------------------------------------------------------------------------


def test_memory_is_one_for_all_event_loops() -> None:
    server = Server("s")

    async def write() -> None:
        await (await runtime_for(server).state.ready()).put("k", b"v", ttl=60)

    async def read() -> bytes | None:
        value = await (await runtime_for(server).state.ready()).get("k")
        await server.aclose()
        return value

    asyncio.run(write())
    assert asyncio.run(read()) == b"v"
    assert asyncio.run(read()) == b"v"


@needs_redis
def test_each_event_loop_has_an_engine_of_its_own(shared_redis: RedisServer) -> None:
    state = ServerStore(shared_redis.url, name="loops", keys=[OLD])
    # An endpoint is created before there is a loop, and used in the first one.
    early = state.store

    async def use() -> Store:
        engine = await state.ready()
        assert (await state.ready(), state.opened) == (engine, engine)
        await engine.put("k", b"v", ttl=60)
        await state.aclose()
        assert state.opened is None
        return engine

    engines = [asyncio.run(use()) for _ in range(2)]
    assert engines[0] is early
    assert engines[1] is not early


@needs_redis
async def test_a_store_that_was_closed_is_opened_again(shared_redis: RedisServer) -> None:
    state = ServerStore(shared_redis.url, name="again", keys=[OLD])
    await (await state.ready()).put("k", b"v", ttl=60)
    await state.aclose()
    assert await (await state.ready()).get("k") == b"v"
    await state.aclose()


def test_a_server_without_anything_to_store_opens_nothing() -> None:
    server = Server("s", store="redis://127.0.0.1:1/0")
    assert (has_shared_store(server), has_shared_store(Server("s")), server._process.store) == (True, False, None)


async def test_a_run_may_use_another_store_than_the_definition(contents: MemoryContents) -> None:
    server = Server("s", store="redis://127.0.0.1:1/0", state_keys=[OLD])
    engine = MemoryEngine(contents)
    server.asgi(store=engine)
    assert await runtime_for(server).state.ready() is engine


async def test_an_option_that_is_no_store_is_an_error_at_the_start() -> None:
    with pytest.raises(ConfigError, match="store="):
        await runtime_for(Server("s", store="http://example.com")).state.start()


# --- keys ------------------------------------------------------------------------------------------------------------


async def test_all_workers_of_a_store_for_one_user_have_the_key_that_is_in_it(contents: MemoryContents) -> None:
    one, other = (ServerStore(MemoryEngine(contents), name="s") for _ in range(2))
    with pytest.raises(StoreUnavailable, match="not reached yet"):
        one.seal_for(PURPOSE).seal(b"early")
    await asyncio.gather(one.load_keys(), other.load_keys())
    text = one.seal_for(PURPOSE).seal(b"plain")
    assert other.seal_for(PURPOSE).open(text) == b"plain"
    assert (one.seal, other.seal) == (None, None)


async def test_a_seal_that_was_made_before_the_key_was_known_works_afterwards(contents: MemoryContents) -> None:
    state = ServerStore(MemoryEngine(contents), name="s")
    seal = state.seal_for(PURPOSE)
    await state.start()
    assert seal.open(seal.seal(b"plain")) == b"plain"


async def test_a_configured_key_needs_no_store(contents: MemoryContents) -> None:
    contents.set_available(False)
    state = ServerStore(MemoryEngine(contents), name="s", keys=[OLD])
    await state.load_keys()
    seal = state.seal_for(PURPOSE)
    assert seal.open(seal.seal(b"plain")) == b"plain"


@pytest.mark.parametrize("store", ["redis://127.0.0.1:1/0", "engine"])
async def test_a_store_that_others_can_read_needs_a_configured_key(store: str, contents: MemoryContents) -> None:
    option: Any = ReadableEngine(contents) if store == "engine" else store
    server = Server("s", store=option)
    with pytest.raises(ConfigError, match="set TRUNKLINE_STATE_KEY"):
        server.asgi()
    with pytest.raises(ConfigError, match="set TRUNKLINE_STATE_KEY"):
        await server.run_async("http", port=0)


async def test_all_workers_must_have_the_same_keys(contents: MemoryContents) -> None:
    engine = ReadableEngine(contents)
    await checked(engine, OLD)
    await checked(engine, OLD, NEW)
    await checked(engine, NEW, OLD)
    with pytest.raises(ConfigError, match="with other keys: set the same TRUNKLINE_STATE_KEY"):
        await checked(engine, OTHER)
    await checked(engine, NEW)


# --- a store that is away --------------------------------------------------------------------------------------------


async def test_a_server_starts_without_its_store(contents: MemoryContents) -> None:
    contents.set_available(False)
    state = ServerStore(ReadableEngine(contents), name="s", keys=[OLD])
    await state.start()
    with pytest.raises(StoreUnavailable):
        await state.ready()
    contents.set_available(True)
    assert (await state.ready()).available


async def test_keys_are_compared_at_the_first_contact(contents: MemoryContents) -> None:
    engine = ReadableEngine(contents)
    await checked(engine, OLD)
    contents.set_available(False)
    late = ServerStore(ReadableEngine(contents), name="checked", keys=[OTHER])
    await late.start()
    contents.set_available(True)
    for _ in range(2):
        with pytest.raises(ConfigError, match="with other keys"):
            await late.ready()


async def test_lost_writes_are_announced(contents: MemoryContents) -> None:
    state, losses = ServerStore(MemoryEngine(contents), name="s"), []
    state.on_lost_writes(lambda: losses.append("lost"))
    await state.ready()
    contents.lose_writes()
    assert losses == ["lost"]

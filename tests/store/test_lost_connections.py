"""Connections of a store that deliver nothing any more, or are cut: subscribers learn of it."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from tests.store.redis_server import RedisServer, needs_redis
from tests.store.test_redis import until
from trunkline.errors import StoreUnavailable
from trunkline.store.memory import MemoryContents, MemoryEngine
from trunkline.store.redis import RedisEngine


class Forwarder:
    """Forwards connections to a Redis; connections for channels can lose what comes back."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.silent: set[asyncio.StreamWriter] = set()
        self.channels: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._port)
        back = asyncio.create_task(self._back(up_reader, writer))
        self._tasks.add(back)
        while data := await reader.read(65536):
            if b"SUBSCRIBE" in data:
                self.channels.add(writer)
            up_writer.write(data)
        up_writer.close()
        self.channels.discard(writer)
        writer.close()

    async def _back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if writer not in self.silent:
                writer.write(data)
        writer.close()


@needs_redis
async def test_a_connection_for_channels_that_delivers_nothing_is_made_again(own_redis: RedisServer) -> None:
    path = Forwarder(own_redis.port)
    server = await asyncio.start_server(path.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    store = RedisEngine(f"redis://127.0.0.1:{port}/0", name="test", timeout=1.0)
    await store.connect()
    heard: list[bytes] = []
    missed: list[bool] = []
    await store.subscribe("news", heard.append, missed=lambda: missed.append(True))
    path.silent |= path.channels
    # Redis counts it as heard: it wrote it.
    assert await store.publish("news", b"1") == 1
    await until(lambda: bool(missed))
    await until(lambda: store.available)
    await store.publish("news", b"2")
    await until(lambda: heard == [b"2"])
    await store.aclose()
    server.close()


async def test_a_store_that_is_full_takes_no_more_until_something_has_expired() -> None:
    now = [1000.0]
    contents = MemoryContents(now=lambda: now[0], random=os.urandom, max_bytes=100_000)
    store = MemoryEngine(contents)
    limits: dict[str, Any] = {"ttl": 60.0}
    await store.put("value", bytes(40_000), **limits)
    await store.append("log", bytes(40_000), max_entries=10, max_bytes=1_000_000, **limits)
    with pytest.raises(StoreUnavailable, match="full"):
        await store.put("more", bytes(40_000), **limits)
    with pytest.raises(StoreUnavailable, match="full"):
        await store.enqueue("queue", bytes(40_000))
    # What is there can be read and replaced by something small, and what is deleted makes room.
    assert await store.get("value") == bytes(40_000)
    await store.delete("log")
    now[0] += 2
    await store.put("more", bytes(40_000), **limits)
    now[0] += 61
    for number in range(20):
        await store.put(f"again {number}", bytes(4000), ttl=1.0)
        now[0] += 2

"""Connections of a store that deliver nothing any more, or are cut: subscribers learn of it."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from pathlib import Path

import pytest

from tests.store.redis_server import RedisServer, needs_redis
from tests.store.test_redis import until
from trunkline.errors import StoreUnavailable
from trunkline.store.local import LocalEngine, serve_store, serve_stores
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


async def test_a_worker_that_was_disconnected_from_the_store_subscribes_again(tmp_path: Path) -> None:
    contents = MemoryContents(now=time.time, random=os.urandom)
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await serve_store(contents, reader, writer)

    server = await asyncio.start_unix_server(serve, tmp_path / "store")
    store = LocalEngine(lambda: asyncio.open_unix_connection(tmp_path / "store"), name="test")
    await store.connect()
    heard: list[bytes] = []
    missed: list[bool] = []
    subscription = await store.subscribe("news", heard.append, missed=lambda: missed.append(True))
    writers[0].transport.abort()
    await until(lambda: missed == [True])
    assert await store.publish("news", b"1") == 1
    await until(lambda: heard == [b"1"])
    await subscription.close()
    assert await store.publish("news", b"2") == 0
    server.close()
    writers[1].transport.abort()
    (tmp_path / "store").unlink(missing_ok=True)
    await until(lambda: not store.available)
    with pytest.raises(StoreUnavailable):
        await store.get("key")
    await store.aclose()
    await MemoryEngine(contents).aclose()


async def test_a_store_that_is_started_again_has_another_generation(tmp_path: Path) -> None:
    """Subscribers learn that they missed something, and what was derived from the old store must end."""
    path = tmp_path / "store"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen(16)

    def start() -> asyncio.Task[None]:
        return asyncio.create_task(serve_stores(MemoryContents(now=time.time, random=os.urandom), listener))

    serving = start()
    store = LocalEngine(lambda: asyncio.open_unix_connection(path), name="test")
    heard: list[bytes] = []
    missed: list[bool] = []
    generations: list[str] = []
    await store.connect()
    store.on_new_generation(generations.append)
    await store.subscribe("news", heard.append, missed=lambda: missed.append(True))
    await store.put("key", b"value", ttl=60)
    first = store.generation
    serving.cancel()
    await asyncio.wait([serving])
    serving = start()
    await until(lambda: bool(generations))
    assert (generations == [store.generation], store.generation != first) == (True, True)
    assert missed == [True]
    assert await store.get("key") is None
    await store.publish("news", b"1")
    await until(lambda: heard == [b"1"])
    await store.aclose()
    serving.cancel()
    await asyncio.wait([serving])
    listener.close()


async def test_calls_do_not_wait_for_each_other_when_the_store_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trunkline.store.local._TIMEOUT", 1.0)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(tmp_path / "store"))
    # It accepts connections, and nothing answers.
    listener.listen(64)
    store = LocalEngine(lambda: asyncio.open_unix_connection(tmp_path / "store"), name="test")
    calls = [asyncio.create_task(store.get(f"{number}")) for number in range(20)]
    # One after another would take twenty times as long as one, which is more than this.
    done, waiting = await asyncio.wait(calls, timeout=15.0)
    for each in waiting:
        each.cancel()
    assert (len(done), len(waiting)) == (20, 0)
    assert {type(each.exception()) for each in done} == {StoreUnavailable}
    await store.aclose()
    listener.close()

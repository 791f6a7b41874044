"""Connections of a store that deliver nothing any more, or are cut: subscribers learn of it."""

from __future__ import annotations

import asyncio

from tests.store.redis_server import RedisServer, needs_redis
from tests.store.test_redis import until
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

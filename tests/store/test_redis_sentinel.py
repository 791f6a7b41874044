"""The Redis store through Sentinel: one master, one replica, one sentinel, and a failover."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from redis.asyncio import Redis

from tests.store.redis_server import RedisServer, needs_redis, redis_server
from tests.store.test_redis import append, until
from tests.store.test_redis_history import up_to_date
from trunkline.store.open import open_store
from trunkline.store.redis import RedisEngine

pytestmark = needs_redis


class Watched:
    """A master, its replica, and the port of a sentinel that watches them."""

    def __init__(self, master: RedisServer, replica: RedisServer, port: int) -> None:
        self.master = master
        self.replica = replica
        self.port = port
        self.url = f"redis+sentinel://127.0.0.1:1,127.0.0.1:{port}/main/0"


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    """Run a master, a replica and a sentinel."""
    with ExitStack() as stack:
        master, replica = (stack.enter_context(redis_server()) for _ in range(2))
        replica.stop()
        replica.start("--replicaof", f"127.0.0.1 {master.port}")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        settings = [
            f"port {port}",
            "bind 127.0.0.1",
            f"dir {tmp_path}",
            f"sentinel monitor main 127.0.0.1 {master.port} 1",
        ]
        settings += ["sentinel down-after-milliseconds main 500", "sentinel failover-timeout main 5000"]
        file = tmp_path / "sentinel.conf"
        file.write_text("\n".join(settings))
        process = subprocess.Popen(
            ["redis-server", str(file), "--sentinel"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            _wait_for(port)
            yield Watched(master, replica, port)
        finally:
            process.kill()
            process.wait(120)


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + 120
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), 1):
                return
        except OSError:
            assert time.monotonic() < deadline, "the sentinel did not start in time"


async def test_the_store_follows_a_failover(watched: Watched) -> None:
    store = open_store(watched.url, name="test", timeout=2.0)
    assert isinstance(store, RedisEngine)
    async with asyncio.timeout(120), Redis(host="127.0.0.1", port=watched.port) as sentinel:
        await up_to_date(watched.master, watched.replica)
        while len(await sentinel.sentinel_slaves("main")) != 1:
            pass
        await store.connect()
        heard: list[bytes] = []
        missed: list[bool] = []
        try:
            await store.subscribe("news", heard.append, missed=lambda: missed.append(True))
            await store.put("key", b"1", ttl=600)
            await store._check()
            before = store.generation
            await up_to_date(watched.master, watched.replica)
            watched.master.stop()
            # An append with patience outlives the failover.
            await append(store, 1, patience=45)
            await until(lambda: bool(missed))
            await append(store, 2)
            await until(lambda: len(heard) >= 1)
            assert (await store.get("key"), store.generation) == (b"1", before)
            assert heard[-1].endswith(b" 2")
        finally:
            await store.aclose()

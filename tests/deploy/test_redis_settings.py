"""The settings for Redis: a real server starts with them and has them, and a machine works over it."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.deploy.nginx_front import free_port
from tests.store.redis_server import needs_redis
from tests.transports.http.serving_support import tool
from tests.transports.http.shared.machines import machine, web_client

FILE = Path(__file__).parents[2] / "deploy" / "redis.conf"

pytestmark = needs_redis


@pytest.fixture(scope="module")
def configured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, str]]:
    """Run redis-server with the file, its commented user included; return its port and the user's URL."""
    text = FILE.read_text(encoding="utf-8")
    users = [line.removeprefix("#   ") for line in text.splitlines() if line.startswith("#   user trunkline")]
    assert len(users) == 1
    port, folder = free_port(), tmp_path_factory.mktemp("redis")
    written = folder / "redis.conf"
    written.write_text(f"{text}\nport {port}\ndir {folder}\n{users[0]}\n", encoding="utf-8")
    program = shutil.which("redis-server")
    assert program is not None
    process = subprocess.Popen([program, str(written)], stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 120
        while True:
            assert process.poll() is None, "redis-server ended"
            assert time.monotonic() < deadline, "redis-server did not start in time"
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.01)
        yield port, f"redis://trunkline:PASSWORD@127.0.0.1:{port}/0"
    finally:
        process.kill()
        process.wait(120)


def test_redis_has_these_settings(configured: tuple[int, str]) -> None:
    with redis.Redis(port=configured[0]) as client:
        wanted = {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction", "save": ""}
        assert {name: client.config_get(name)[name] for name in wanted} == wanted


async def test_the_restricted_user_is_enough(configured: tuple[int, str]) -> None:
    url = configured[1]
    with machine(store=url) as one, machine(store=url) as other:
        async with web_client() as client:
            await client.open(one)
            stream = await client.get(one)
            await client.post(other, tool("tick", number=1))
            assert (await stream.message())["params"]["number"] == 1
            call = await client.stream(one, tool("walk", n=3))
            first = await call.message()
            call.close()
            resumed = await client.get(other, last=call.last)
            assert first["params"]["data"] == "step 0"
            assert (await resumed.message())["params"]["data"] == "step 1"
            assert await client.delete(other) == 204

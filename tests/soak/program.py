"""The server of the soak: options as JSON, the URL on stdout; what its tasks do is appended to a file."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from trunkline import Context, Server
from trunkline.extensions import TaskOptions, TaskSettings

__all__ = ["make"]


#: A fifth of the time that the store gives a command, which may be five round trips if its connection is new.
SLOW_SECONDS = 0.4


async def watch_redis(url: str, number: int) -> None:
    """Append to a file when Redis, or this process itself, was slow; knows nothing of the code under test."""
    client = Redis.from_url(url, socket_timeout=None)
    while True:
        begun = time.monotonic()
        with contextlib.suppress(RedisError, OSError):
            await client.ping()
        await asyncio.sleep(SLOW_SECONDS / 10)
        if (ended := time.monotonic()) - begun > SLOW_SECONDS:
            os.write(number, f"slow {begun} {ended}\n".encode())


def make(notes: str, redis: str = "") -> Server:
    """Return the server; ``notes`` is the file to which tasks append, and how slow the Redis at a URL is."""
    # One write in append mode is whole or not there, also when the process is killed in the next moment.
    number = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    @asynccontextmanager
    async def watching(_: Server) -> AsyncIterator[None]:
        watch = asyncio.create_task(watch_redis(redis, number)) if redis else None
        yield
        if watch is not None:
            watch.cancel()

    # A short lease, so that the tasks of a worker that was killed are taken over within the time of a soak.
    server = Server("soak", version="1", tasks=TaskSettings(lease=5.0), lifespan=watching)

    @server.tool
    async def pid() -> int:
        """Return the process that serves the call."""
        return os.getpid()

    @server.tool
    async def objects() -> int:
        """Return how many objects this process has."""
        gc.collect()
        return len(gc.get_objects())

    @server.tool
    async def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    @server.tool
    async def walk(ctx: Context, n: int) -> str:
        """Log each step, and the process that does."""
        for step in range(n):
            await ctx.info(f"step {step} pid {os.getpid()}")
            await asyncio.sleep(0.02)
        return f"walked {n}"

    @server.tool
    async def ask(ctx: Context, key: str) -> str:
        """Ask for a value; a session hears which process asks, stateless calls are the same at each."""
        where = f" pid {os.getpid()}" if ctx.session_id else ""
        return f"{key} {(await ctx.elicit(f'Value of {key}{where}', str)).data}"

    @server.tool
    async def tick(n: int) -> int:
        """Notify every client; return the process that does."""
        server.notify("soak/tick", {"number": n})
        return os.getpid()

    @server.tool
    async def touch() -> int:
        """Change a resource; return the process that does."""
        server.changed("note://one")
        return os.getpid()

    server.resource("note://one", name="one")(lambda: "first")

    async def work(name: str, seconds: float) -> str:
        """Work for a while."""
        os.write(number, f"run {name} {os.getpid()}\n".encode())
        await asyncio.sleep(seconds)
        os.write(number, f"end {name} {os.getpid()}\n".encode())
        return f"{name} done"

    # Once only; and again if its worker died.
    server.add_tool(work, name="work_once", task=TaskOptions(retry=0, poll=1))
    server.add_tool(work, name="work_again", task=TaskOptions(retry=8, poll=1))
    return server


def say(url: str) -> None:
    """Write the URL for the test."""
    sys.stdout.write(f"{url}/mcp\n")
    sys.stdout.flush()


if __name__ == "__main__":
    options: dict[str, Any] = json.loads(sys.argv[1])
    make(options.pop("notes"), options["store"]).run("http", port=0, started=say, **options)

"""Several workers of one server in one process, over one store; a client that talks to any of them."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from tests.store.redis_server import RedisServer
from tests.transports.http.serving_support import Call, SessionClient, Workshop, until
from trunkline.store.interface import Store
from trunkline.store.memory import MemoryContents, MemoryEngine
from trunkline.transports.http.server.endpoint import Endpoint

__all__ = [
    "ASKED",
    "KEY",
    "Fleet",
    "Fleets",
    "Worker",
    "accepted",
    "at",
    "back",
    "connected_pair",
    "fleet",
    "gone",
    "joined",
    "over",
    "refusal",
    "settled",
    "text",
    "until",
]

KEY = "00" * 32
#: The capabilities of a client that can be asked.
ASKED: dict[str, Any] = {"elicitation": {}}


class Worker:
    """One worker: its server, its endpoint, its store."""

    def __init__(self, store: Store, **options: Any) -> None:
        asgi = {name: options.pop(name) for name in ("auth", "rate_limit") if name in options}
        self.workshop = Workshop(**{"state_keys": [KEY], **options})
        self.store = store
        self.app: Endpoint = self.workshop.asgi(store=store, **asgi)


class Fleet:
    """All workers, and the store if it is in memory."""

    def __init__(self, workers: list[Worker], contents: MemoryContents | None) -> None:
        self.workers = workers
        self.contents = contents

    def __iter__(self) -> Any:
        return iter(self.workers)


Fleets = Callable[..., AbstractAsyncContextManager[Fleet]]


@asynccontextmanager
async def fleet(
    count: int = 2,
    *,
    url: str | None = None,
    name: str = "",
    timeout: float = 20.0,
    each: Callable[[], dict[str, Any]] = dict,
    **options: Any,
) -> AsyncIterator[Fleet]:
    """Start so many workers: on a store in memory, or on the Redis at a URL; ``each`` makes options for one of them."""
    contents = MemoryContents(now=time.time, random=os.urandom) if url is None else None

    def open_engine() -> Store:
        if contents is not None:
            return MemoryEngine(contents)
        from trunkline.store.redis import RedisEngine

        assert url is not None
        return RedisEngine(url, name=name, timeout=timeout)

    workers = [Worker(open_engine(), **options, **each()) for _ in range(count)]
    for worker in workers:
        worker.app.start()
    try:
        yield Fleet(workers, contents)
    finally:
        for worker in workers:
            await worker.app.aclose()


def at(client: SessionClient, worker: Worker) -> SessionClient:
    """Return the same client, whose requests reach another worker."""
    return SessionClient(worker.app, client.id, client.revision, client.token)


# --- messages ---------------------------------------------------------------------------------------------------------


def accepted(question: Any, name: str) -> dict[str, Any]:
    """Return the answer to an elicitation."""
    return {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {"value": name}}}


def text(message: Any) -> str:
    """Return the text of a tool's result."""
    return str(message["result"]["content"][0]["text"])


def refusal(call: Call) -> tuple[int | None, str | None]:
    """Return the status of a response, and the time after which to try again."""
    return call.status, call.headers.get("retry-after")


# --- waiting ----------------------------------------------------------------------------------------------------------


async def over(*calls: Call) -> None:
    """Disconnect, and wait until the responses have ended."""
    for call in calls:
        call.hang_up()
        await call.ended()


async def settled(*workers: Worker) -> None:
    """Wait until nothing is on its way between the workers."""
    for worker in workers:
        shared = worker.app._session_endpoint._worker
        while tasks := [task for task in shared._tasks if not task.done()]:
            await asyncio.wait(tasks)
    for worker in workers:
        await worker.store.publish("nobody", b"")
    for _ in range(50):
        await asyncio.sleep(0.001)


# --- a Redis that fails -----------------------------------------------------------------------------------------------


def joined(worker: Worker) -> bool:
    """Return whether a worker has joined the others: before that it has no sessions."""
    shared: Any = worker.app._session_endpoint
    return bool(shared._worker._joined) and worker.store.available


@asynccontextmanager
async def connected_pair(redis: RedisServer, **options: Any) -> AsyncIterator[tuple[Worker, Worker]]:
    """Start two workers on a Redis, and wait until both have joined."""
    async with fleet(2, url=redis.url, name="outages", **options) as workers:
        one, other = workers
        await until(lambda: joined(one) and joined(other))
        yield one, other


async def gone(redis: RedisServer, *workers: Worker) -> None:
    """Stop a Redis, and wait until the workers know it."""
    redis.stop()
    await until(lambda: not any(worker.store.available for worker in workers))


async def back(redis: RedisServer, *workers: Worker) -> None:
    """Start a Redis again, and wait until the workers are connected."""
    redis.start()
    await until(lambda: all(worker.store.available for worker in workers))

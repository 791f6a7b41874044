"""Several workers of one server in one process, over one backplane; a client that talks to any of them."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from tests.transports.http.serving_support import SessionClient, Workshop
from trunkline.backplane.interface import Backplane
from trunkline.backplane.memory import MemoryBackplane, MemoryStore
from trunkline.transports.http.server.endpoint import Endpoint

__all__ = ["KEY", "Fleet", "Worker", "at", "fleet"]

KEY = "00" * 32


class Worker:
    """One worker: its server, its endpoint, its backplane."""

    def __init__(self, backplane: Backplane, **options: Any) -> None:
        asgi = {name: options.pop(name) for name in ("auth", "rate_limit") if name in options}
        self.workshop = Workshop(**{"state_keys": [KEY], **options})
        self.backplane = backplane
        self.app: Endpoint = self.workshop.asgi(backplane=backplane, **asgi)


class Fleet:
    """All workers, and the store if it is in memory."""

    def __init__(self, workers: list[Worker], store: MemoryStore | None) -> None:
        self.workers = workers
        self.store = store

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
    store = MemoryStore(now=time.time, random=os.urandom) if url is None else None

    def backplane() -> Backplane:
        if store is not None:
            return MemoryBackplane(store)
        from trunkline.backplane.redis import RedisBackplane

        assert url is not None
        return RedisBackplane(url, name=name, timeout=timeout)

    workers = [Worker(backplane(), **options, **each()) for _ in range(count)]
    for worker in workers:
        worker.app.start()
    try:
        yield Fleet(workers, store)
    finally:
        for worker in workers:
            await worker.app.aclose()


def at(client: SessionClient, worker: Worker) -> SessionClient:
    """Return the same client, whose requests reach another worker."""
    return SessionClient(worker.app, client.id, client.revision, client.token)

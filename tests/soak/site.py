"""The processes of a soak: a supervisor with its workers, and their Redis."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import psutil  # type: ignore[import-untyped]

from tests.store.redis_server import RedisServer

__all__ = ["Measured", "Site", "site"]

PROGRAM = Path(__file__).parent / "program.py"
_STOP_SECONDS = 60.0


class Measured(NamedTuple):
    """Memory that only this process has, in bytes, and descriptors, without those to Redis."""

    memory: int
    descriptors: int


class Site:
    """The server and its Redis."""

    def __init__(self, process: subprocess.Popen[str], url: str, redis: RedisServer, count: int, notes: Path) -> None:
        """Observe a server that has started."""
        self.process = process
        self.url = url
        self.redis = redis
        self.count = count
        self.notes = notes
        #: Every process that was seen.
        self.seen: set[int] = {process.pid}

    def workers(self) -> list[int]:
        """Return the process ids of the workers, in order."""
        found = sorted(each.pid for each in psutil.Process(self.process.pid).children())
        self.seen.update(found)
        return found

    def choose(self, index: int) -> int | None:
        """Return the process id of a worker, None if there is none."""
        alive = self.workers()
        return alive[index % len(alive)] if alive else None

    async def kill(self, pid: int) -> None:
        """Kill a worker, and wait until it holds no connection any more."""
        process = psutil.Process(pid)
        os.kill(pid, signal.SIGKILL)
        with suppress(psutil.NoSuchProcess):
            async with asyncio.timeout(_STOP_SECONDS):
                while process.status() != psutil.STATUS_ZOMBIE:  # noqa: ASYNC110  no event tells
                    await asyncio.sleep(0.005)

    async def restart_redis(self, seconds: float) -> None:
        """Kill Redis, and start it after a while with its file."""
        await asyncio.to_thread(self.redis.stop)
        await asyncio.sleep(seconds)
        await asyncio.to_thread(self.redis.start)

    async def pause_redis(self, seconds: float) -> None:
        """Let Redis answer nothing for a while: its connections stay open."""
        self.redis.pause()
        await asyncio.sleep(seconds)
        self.redis.resume()

    def measure(self, pid: int) -> Measured:
        """Return the memory and descriptors of a process."""
        process = psutil.Process(pid)
        to_redis = sum(bool(each.raddr) and each.raddr.port == self.redis.port for each in process.net_connections())
        return Measured(process.memory_full_info().uss, process.num_fds() - to_redis)

    def stop(self) -> int:
        """Stop the server as systemd would; return its exit code."""
        self.workers()
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(_STOP_SECONDS)

    def left(self) -> list[int]:
        """Return the processes that still exist."""
        return sorted(pid for pid in self.seen if psutil.pid_exists(pid))


@contextmanager
def site(folder: Path, *, workers: int) -> Iterator[Site]:
    """Run everything, and end it."""
    redis = RedisServer(folder)
    redis.start()
    notes = folder / "notes.txt"
    options = {"workers": workers, "store": redis.url, "notes": str(notes)}
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TRUNKLINE_STATE_KEY": "5a" * 32}
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM), json.dumps(options)], stdout=subprocess.PIPE, text=True, env=environment
    )
    found: Site | None = None
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        if not url:
            raise RuntimeError("the server of the soak did not start")
        found = Site(process, url, redis, workers, notes)
        yield found
    finally:
        if process.poll() is None:
            for child in psutil.Process(process.pid).children():
                child.kill()
            process.kill()
            process.wait(_STOP_SECONDS)
        if process.stdout is not None:
            process.stdout.close()
        redis.stop()

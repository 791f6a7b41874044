"""Kills workers that share a Redis in the middle of their tasks, again and again, while others go on; then counts.

Every fifth time Redis is restarted too, with its file. The client sends each request to a random worker.
"""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import aiohttp

from tests.server.tasks.fleet import PROGRAM, TaskClient
from tests.server.tasks.kill import ANSWER_SECONDS, Killer, Report, Requester
from tests.server.tasks.talk import FINISHED
from tests.store.redis_server import RedisServer, redis_server
from tests.transports.http.shared.machines import KEY, Machine, machine

__all__ = ["kill_workers"]

WORKERS = 3
#: Short, so that nothing waits for long.
LEASE_SECONDS = 2.0
#: Redis is restarted once for so many kills of workers.
RESTART_EVERY = 5


class Refused(ConnectionError):
    """A request that a worker could not answer now: it was killed, or Redis was."""


class WorkerKiller(Killer):
    """A client that kills workers."""

    # Each kill ends one worker of several: with longer tasks it meets as many.
    longest = 2.0
    address = "127.0.0.1"

    def __init__(self, folder: Path, seed: int, redis: RedisServer, stack: ExitStack) -> None:
        super().__init__(folder, seed)
        self.stored = {"store": redis.url, "state_keys": [KEY]}
        self._redis = redis
        self._stack = stack
        self.machines = [self._machine() for _ in range(WORKERS)]

    def _machine(self) -> Machine:
        options: dict[str, Any] = {
            "folder": str(self.folder),
            "store": self._redis.url,
            "lease": LEASE_SECONDS,
            "forever": True,
        }
        return self._stack.enter_context(machine(program=PROGRAM, **options))

    async def one_kill(self, http: aiohttp.ClientSession, count: int) -> None:
        """Do this and that for a moment, kill a worker, and start another."""
        peer = RandomWorker(self, http)
        work = asyncio.ensure_future(self.be_busy(peer, count))
        await asyncio.wait([work], timeout=self.random.uniform(0.1, 0.6))
        victim = self.machines.pop(self.random.randrange(WORKERS))
        victim.process.kill()
        self.report.kills += 1
        if self.report.kills % RESTART_EVERY == 0:
            self._redis.stop()
            await asyncio.wait([work], timeout=self.random.uniform(0.0, LEASE_SECONDS))
            self._redis.start()
            self.report.restarts += 1
        self.machines.append(await asyncio.to_thread(self._machine))
        work.cancel()
        await asyncio.wait([work])
        with suppress(asyncio.CancelledError):
            work.result()

    async def be_busy(self, peer: Requester, count: int) -> None:
        """Start tasks and look at all that are unfinished."""
        life = self.report.kills
        for number in range(count):
            with suppress(Refused):
                await self.start(peer, f"{life}-{number}")
        while True:
            await self.look_at_all(peer)
            await asyncio.sleep(0.01)

    async def look_at_all(self, peer: Requester) -> None:
        """Look at all unfinished tasks."""
        for task in self.known:
            if task.state.get("status") not in FINISHED:
                with suppress(Refused):
                    await self.look(peer, task)

    async def end_all(self, peer: Requester) -> None:
        """Wait until every task has ended, and count."""
        while any(task.state.get("status") not in FINISHED for task in self.known):
            await self.look_at_all(peer)
        await self.count(peer)


class RandomWorker:
    """Sends each request to a random worker."""

    def __init__(self, killer: WorkerKiller, http: aiohttp.ClientSession) -> None:
        self._killer = killer
        self._client = TaskClient(http)

    async def request(self, method: str, params: Any = None) -> Any:
        """Send a request and return the answer."""
        try:
            status, body = await self._client.request(
                self._killer.random.choice(self._killer.machines), method, params or {}
            )
        except (aiohttp.ClientError, OSError) as error:
            raise Refused from error
        if status == 503:
            raise Refused
        return body

    async def result(self, method: str, params: Any = None) -> Any:
        """Send a request and return its result."""
        answer = await self.request(method, params)
        assert "result" in answer, answer
        return answer["result"]


async def kill_workers(times: int, *, count: int, seed: int) -> Report:
    """Kill a worker so many times, each time with some more tasks, and report."""
    with tempfile.TemporaryDirectory() as folder, redis_server() as redis, ExitStack() as stack:
        killer = WorkerKiller(Path(folder), seed, redis, stack)
        connector = aiohttp.TCPConnector(force_close=True)
        async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=20)) as http:
            for _ in range(times):
                await killer.one_kill(http, count)
            try:
                async with asyncio.timeout(ANSWER_SECONDS + 2 * times):
                    await killer.end_all(RandomWorker(killer, http))
            except TimeoutError:
                open_ones = [task.name for task in killer.known if task.state.get("status") not in FINISHED]
                killer.report.faults.append(f"these tasks do not end: {', '.join(open_ones)}")
        return killer.report

"""What sessions, streams, notices and tasks cost: ``python -m benchmarks.sizing``.

Prints the figures of ``docs/explanation/sizing.md``: memory in a worker and in Redis, processor time, each at two
sizes, and the arithmetic up to a million sessions. Memory is what the processes grew by, divided by their number.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from benchmarks.driver import ServerFailed, cpu_ns
from benchmarks.http_streams import Stream, raise_descriptor_limit
from benchmarks.http_work import HttpRequests
from benchmarks.scaled_server import Redis, Scaled, redis_server, scaled
from benchmarks.work import HANDSHAKE

STATELESS = "2026-07-28"
SIZES = (250, 1_000)
#: Requests under way at a time; fewer of those that wait for the disk of Redis, again and again.
AT_ONCE, STORED_AT_ONCE = 32, 4
#: What allocators and the other side do after the last request is over by then.
REST_SECONDS = 1.0
EVENTS = 100


@dataclass(frozen=True, slots=True)
class Cost:
    """What one more of something costs: bytes in the worker and in Redis, microseconds of both."""

    worker_bytes: float
    redis_bytes: float
    worker_us: float
    redis_us: float


async def measure(
    server: Scaled, redis: Redis, count: int, work: Callable[[int], Awaitable[object]], *, at_once: int = AT_ONCE
) -> Cost:
    """Do something so many times, a few at a time, and return the cost of one."""
    await asyncio.sleep(REST_SECONDS)
    before = server.resident(), redis.used_bytes(), sum(server.cpu().values()), cpu_ns(redis.pid)
    waiting = list(range(count))

    async def some() -> None:
        while waiting:
            await work(waiting.pop())

    await asyncio.gather(*(some() for _ in range(at_once)))
    await asyncio.sleep(REST_SECONDS)
    after = server.resident(), redis.used_bytes(), sum(server.cpu().values()), cpu_ns(redis.pid)
    grown = [(now - then) / count for then, now in zip(before, after, strict=True)]
    return Cost(grown[0], grown[1], grown[2] / 1000, grown[3] / 1000)


class Loader:
    """A client over raw connections."""

    def __init__(self, server: Scaled) -> None:
        """Talk to a server."""
        self._server = server
        self._handshake = HttpRequests(HANDSHAKE, port=server.port)
        self._stateless = HttpRequests(STATELESS, port=server.port)
        self.held: list[Stream] = []
        self._idle: list[Stream] = []
        self.sessions: list[str] = []

    async def _connect(self) -> Stream:
        loop = asyncio.get_running_loop()
        return (await loop.create_connection(Stream, "127.0.0.1", self._server.port))[1]

    async def ask(self, request: bytes) -> bytes:
        """Send a request on a connection that is free."""
        wire = self._idle.pop() if self._idle else await self._connect()
        answer = await wire.ask(request)
        if b" 200 " not in answer[:16] and b" 202 " not in answer[:16]:
            raise ServerFailed(f"the server answered {answer[:300]!r}")
        self._idle.append(wire)
        return answer

    async def session(self, _: int) -> None:
        """Open a session."""
        answer = await self.ask(self._handshake.initialize())
        found = next(line for line in answer.split(b"\r\n") if line.lower().startswith(b"mcp-session-id:"))
        self.sessions.append(found[15:].strip().decode())
        await self.ask(self._handshake.initialized(self.sessions[-1]))

    async def get_stream(self, number: int) -> None:
        """Open the GET stream of a session."""
        wire = await self._connect()
        await wire.open(self._handshake.stream(self.sessions[number]), b"\r\n\r\n")
        self.held.append(wire)

    async def listen_stream(self, _: int) -> None:
        """Open a listen stream."""
        wire = await self._connect()
        await wire.open(self._stateless.stream(None), b"subscriptions/acknowledged")
        self.held.append(wire)

    async def change(self, _: int) -> None:
        """Change the list of tools, and wait until every stream has heard of it."""
        heard = [stream.notices for stream in self.held]
        await self.ask(self._stateless.call_tool("change", {}, session=None))
        async with asyncio.timeout(60):
            # Looking now and then costs less than an event that each of thousands would have to think of.
            while any(stream.notices == before for stream, before in zip(self.held, heard, strict=True)):
                await asyncio.sleep(0.02)
                if ended := sum(stream.lost for stream in self.held):
                    # Redis took longer than two seconds to store the events of all.
                    raise ServerFailed(f"{ended} of {len(self.held)} streams ended, to be resumed later")

    async def events(self, number: int) -> None:
        """Make a call that sends events."""
        request = self._handshake.call_tool("report", {"count": EVENTS}, session=self.sessions[number])
        await self.ask(request)

    async def task(self, _: int) -> None:
        """Create a task that goes on."""
        await self.ask(_task(self._stateless, "long_job", {}))

    async def finished_task(self, number: int) -> None:
        """Create a task that ends at once."""
        await self.ask(_task(self._stateless, "job", {"text": f"{number:064}"}))

    def close(self) -> None:
        """Disconnect."""
        for stream in (*self.held, *self._idle):
            stream.transport.abort()
        self.held, self._idle = [], []


def _task(requests: HttpRequests, tool: str, arguments: dict[str, str]) -> bytes:
    """Return a call of a client that declares tasks."""
    plain, declared = (
        b'clientCapabilities":{}',
        b'clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}',
    )
    head, _, body = requests.call_tool(tool, dict(arguments), session=None).partition(b"\r\n\r\n")
    longer = body.replace(plain, declared)
    if longer == body:
        raise ServerFailed("the capabilities of the client were not found in the request")
    length = f"Content-Length: {len(body)}".encode()
    return head.replace(length, f"Content-Length: {len(longer)}".encode()) + b"\r\n\r\n" + longer


def _row(what: str, count: int, cost: Cost) -> None:
    sys.stdout.write(
        f"{what:<44}{count:>8,}{cost.worker_bytes / 1000:>12.2f} kB{cost.redis_bytes / 1000:>10.2f} kB"
        f"{cost.worker_us:>10.0f} us{cost.redis_us:>9.0f} us\n"
    )
    sys.stdout.flush()


async def rows(redis: Redis, count: int) -> dict[str, Cost]:
    """Measure everything at one size, at a fresh server."""
    found: dict[str, Cost] = {}

    async def row(what: str, times: int, work: Callable[[int], Awaitable[object]], at_once: int = AT_ONCE) -> None:
        found[what] = await measure(server, redis, times, work, at_once=at_once)
        _row(what, times, found[what])

    with scaled(store=redis.url) as server:
        loader = Loader(server)
        await measure(server, redis, AT_ONCE, loader.session)
        await row("a session", count, loader.session)
        await row("the GET stream of a session", count, loader.get_stream)
        await row(f"a notice to {count:,} GET streams", 3, _one_at_a_time(loader.change))
        loader.close()
        await row(f"a call with {EVENTS} events, in a session", count // 10, loader.events, STORED_AT_ONCE)
        loader.close()
    # A server of its own for each: what another has freed would be used again, and not be counted.
    with scaled(store=redis.url) as server:
        loader = Loader(server)
        await measure(server, redis, AT_ONCE, loader.listen_stream)
        await row("a listen stream", count, loader.listen_stream)
        await row(f"a notice to {count:,} listen streams", 3, _one_at_a_time(loader.change))
        loader.close()
    with scaled(store=redis.url) as server:
        loader = Loader(server)
        await measure(server, redis, STORED_AT_ONCE, loader.task, at_once=STORED_AT_ONCE)
        await row("a task that runs", count // 4, loader.task, STORED_AT_ONCE)
        await row("a task that has ended", count // 4, loader.finished_task, STORED_AT_ONCE)
        loader.close()
    return found


def _one_at_a_time(work: Callable[[int], Awaitable[object]]) -> Callable[[int], Awaitable[object]]:
    gate = asyncio.Lock()

    async def one(number: int) -> None:
        async with gate:
            await work(number)

    return one


def arithmetic(found: dict[str, Cost], count: int) -> None:
    """Print what many sessions need, by the figures of the larger size."""
    session, stream = found["a session"], found["the GET stream of a session"]
    get = found[f"a notice to {count:,} GET streams"].worker_us / count
    listen = found[f"a notice to {count:,} listen streams"].worker_us / count
    stored = found[f"a notice to {count:,} GET streams"].redis_us / count
    sys.stdout.write(
        f"\na notice costs {get:.1f} us for a GET stream (Redis {stored:.1f} us), {listen:.2f} us for a listen stream\n"
    )
    for total in (10_000, 100_000, 1_000_000):
        open_streams = total // 10
        worker = total * session.worker_bytes + open_streams * stream.worker_bytes
        redis = total * session.redis_bytes + open_streams * stream.redis_bytes
        sys.stdout.write(
            f"{total:>10,} sessions in use, a tenth with an open stream: {worker / 1e9:.2f} GB in all workers if each "
            f"is used at one, {redis / 1e9:.2f} GB in Redis; a notice to the streams {open_streams * get / 1e6:.1f} s "
            f"of CPU, {open_streams * stored / 1e6:.1f} s of Redis\n"
        )


def main() -> int:
    """Measure and print."""
    raise_descriptor_limit(2 * max(SIZES) + 1000)
    sys.stdout.write(f"{'one more of':<44}{'beside':>8}{'worker':>15}{'Redis':>13}{'worker':>13}{'Redis':>12}\n")
    for count in SIZES:
        with redis_server() as redis:
            found = asyncio.run(rows(redis, count))
    arithmetic(found, max(SIZES))
    return 0


if __name__ == "__main__":
    sys.exit(main())

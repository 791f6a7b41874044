"""Hold thousands of event streams open from one process, and count what arrives on each.

Raw asyncio protocols: a stream is a connection that has sent its requests and from then on only looks for one mark in
what comes. Knows nothing of what is measured.
"""

from __future__ import annotations

import asyncio
import resource
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.driver import ServerFailed, resident_kb
from benchmarks.http_work import NOTICE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.http_driver import HttpServer
    from benchmarks.http_work import HttpRequests

__all__ = ["Held", "hold_streams", "raise_descriptor_limit"]

AT_ONCE = 64
OPEN_SECONDS = 30.0
NOTICE_SECONDS = 30.0
# Long enough for a second notice to show itself.
AFTER_SECONDS = 1.0
# What allocators do after the last stream has opened is over by then.
REST_SECONDS = 1.0
ACKNOWLEDGED = b"subscriptions/acknowledged"
END_OF_STREAM = b"\r\n0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Held:
    """What holding streams showed: how many ended, how many heard the notice not at all or twice, and the cost."""

    streams: int
    lost: int
    missed: int
    doubled: int
    grown_kb: int
    opened_ms: float
    heard_ms: float


class Stream(asyncio.Protocol):
    """One connection: asks until its stream is open, then counts notices."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.notices = 0
        self.lost = False
        self._mark = b""
        self._received = b""
        self._waiting: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = transport

    async def ask(self, request: bytes) -> bytes:
        """Send a request and give its whole answer."""
        return await self._until(request, b"")

    async def open(self, request: bytes, mark: bytes) -> bytes:
        """Send the request that opens the stream and give what came until the mark did."""
        received = await self._until(request, mark)
        self.notices = received.count(NOTICE)
        return received

    async def _until(self, request: bytes, mark: bytes) -> bytes:
        self._mark, self._received = mark, b""
        self._waiting = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        async with asyncio.timeout(OPEN_SECONDS):
            received = await self._waiting
        self._waiting, self._received = None, b""
        return received

    def data_received(self, data: bytes) -> None:
        """Take what has come."""
        if self._waiting is None:
            tail = self._received + data
            self.notices += tail.count(NOTICE)
            self.lost = self.lost or data.endswith(END_OF_STREAM)
            # A notice may be cut in two: what could be its beginning is kept.
            at = tail.rfind(NOTICE)
            self._received = tail[max(at + len(NOTICE) if at >= 0 else 0, len(tail) - len(NOTICE) + 1) :]
            return
        self._received += data
        if not self._waiting.done() and (self._mark in self._received if self._mark else _whole(self._received)):
            self._waiting.set_result(self._received)

    def connection_lost(self, error: Exception | None) -> None:
        """Note that the stream is gone."""
        self.lost = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error or ConnectionResetError("the server hung up"))


def raise_descriptor_limit(wanted: int) -> None:
    """Let this process and those it starts have as many descriptors.

    Raises:
        ServerFailed: The system allows fewer.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise ServerFailed(f"{wanted} descriptors are needed and the system allows {hard}")
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def hold_streams(
    server: HttpServer, requests: HttpRequests, change: bytes, *, count: int, seconds: float, bare: bool
) -> Held:
    """Open streams, hold them, make one change and see who hears of it."""
    await _open(server, requests, bare=bare)
    before = resident_kb(server.pid)
    begun = time.perf_counter()
    gate = asyncio.Semaphore(AT_ONCE)

    async def one() -> Stream:
        async with gate:
            return await _open(server, requests, bare=bare)

    try:
        streams = await asyncio.gather(*[one() for _ in range(count)])
    except (OSError, TimeoutError) as error:
        raise server.failure(f"opened fewer than {count} streams ({error!r})") from error
    opened = time.perf_counter() - begun
    await asyncio.sleep(REST_SECONDS)
    grown = resident_kb(server.pid) - before
    await asyncio.sleep(seconds)
    begun = time.perf_counter()
    answer = await asyncio.to_thread(server.ask, change)
    if answer.status != 200:
        raise server.failure(f"answered the change with {answer.status} {answer.body[:200]!r}")
    heard = await _heard(streams) - begun
    await asyncio.sleep(AFTER_SECONDS)
    held = Held(
        streams=count,
        lost=sum(stream.lost for stream in streams),
        missed=sum(stream.notices == 0 for stream in streams),
        doubled=sum(stream.notices > 1 for stream in streams),
        grown_kb=grown,
        opened_ms=opened * 1000,
        heard_ms=heard * 1000,
    )
    for stream in streams:
        stream.transport.abort()
    return held


async def _open(server: HttpServer, requests: HttpRequests, *, bare: bool) -> Stream:
    loop = asyncio.get_running_loop()
    _, stream = await loop.create_connection(Stream, "127.0.0.1", server.port)
    session = None
    if requests.handshake and not bare:
        session = _session(await stream.ask(requests.initialize()))
        await stream.ask(requests.initialized(session))
    mark = b"\r\n\r\n" if requests.handshake or bare else ACKNOWLEDGED
    head = await stream.open(requests.stream(session), mark)
    if b" 200 " not in head[:16]:
        raise server.failure(f"refused a stream with {head[:200]!r}")
    return stream


async def _heard(streams: Sequence[Stream]) -> float:
    """Wait until every stream has heard the notice, or long enough, and say when that was."""
    until = time.perf_counter() + NOTICE_SECONDS
    waiting = True
    # Looking now and then costs less than an event that each of thousands would have to think of.
    while waiting and time.perf_counter() < until:
        await asyncio.sleep(0.01)
        waiting = any(stream.notices == 0 and not stream.lost for stream in streams)
    return time.perf_counter()


def _whole(received: bytes) -> bool:
    """Say whether an answer with a length or in chunks is complete."""
    head, found, body = received.partition(b"\r\n\r\n")
    if not found:
        return False
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return len(body) >= int(line[15:])
    chunked = b"transfer-encoding: chunked" in head.lower()
    return (b"\r\n" + body).endswith(END_OF_STREAM) if chunked else True


def _session(answer: bytes) -> str:
    for line in answer.partition(b"\r\n\r\n")[0].split(b"\r\n"):
        if line.lower().startswith(b"mcp-session-id:"):
            return line[15:].strip().decode()
    raise ServerFailed(f"initialize was answered without a session id: {answer[:200]!r}")

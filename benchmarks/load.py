"""The load driver for machines without a C compiler: the same arguments, work and output as `load.c`.

It costs more than the C one, and the machine's other core pays: processor time of the server still means something,
the rate less.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from itertools import count
from pathlib import Path
from typing import Any

__all__ = ["main"]

STALL_SECONDS = 10
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class Load:
    """What all connections share: the request, the numbers and the counts."""

    def __init__(self, request: bytes, mark: str) -> None:
        self.parts = request.split(mark.encode())
        self.numbers = count(int(mark))
        self.answers = 0
        self.errors = 0
        self.first_error = b""
        self.last = b""

    def next_request(self) -> bytes:
        """Give the request with a number that was not used before."""
        return str(next(self.numbers)).encode().join(self.parts)

    def judge(self, answer: bytes) -> bool:
        """Say whether an answer is whole; if so, count it."""
        head, found, body = answer.partition(b"\r\n\r\n")
        if not found:
            return False
        length = LENGTH.search(head)
        if len(body) < int(length[1]) if length else not body.endswith(b"0\r\n\r\n"):
            return False
        self.answers += 1
        self.last = answer
        if head[9:12] != b"200" or b'"result"' not in body:
            self.errors += 1
            self.first_error = self.first_error or answer
        return True


class Caller(asyncio.Protocol):
    """One connection: sends a request, reads the answer, sends the next."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.answer = b""
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first request."""
        self.transport = transport
        self.transport.write(self.load.next_request())

    def data_received(self, data: bytes) -> None:
        """Take what has come; when the answer is whole, ask again."""
        self.answer += data
        if self.load.judge(self.answer):
            self.answer = b""
            self.transport.write(self.load.next_request())


async def _run(load: Load, seconds: float) -> None:
    before = load.answers
    await asyncio.sleep(seconds)
    if load.answers == before:
        # A slow server may need longer than a short stretch for its first answer.
        await asyncio.sleep(STALL_SECONDS)
    if load.answers == before:
        raise SystemExit('{"problem": "the server said nothing for 10 s"}')


async def _measure(load: Load, *, port: int, connections: int, warm: float, seconds: float, pid: int) -> str:
    loop = asyncio.get_running_loop()
    for _ in range(connections):
        await loop.create_connection(lambda: Caller(load), "127.0.0.1", port)
    await _run(load, warm)
    clock = (~pid << 3) | 2
    load.answers = 0
    begun = (time.clock_gettime_ns(clock), time.perf_counter_ns(), time.process_time_ns())
    await _run(load, seconds)
    ended = (time.clock_gettime_ns(clock), time.perf_counter_ns(), time.process_time_ns())
    spent = (after - before for before, after in zip(begun, ended, strict=True))
    figures = dict(zip(("cpu_ns", "wall_ns", "driver_ns"), spent, strict=True))
    return json.dumps({"answers": load.answers, "errors": load.errors} | figures)


def main() -> None:
    """Load a server as the arguments say and print the counts and one answer."""
    port, connections, warm, seconds, pid, mark, path = sys.argv[1:]
    load = Load(Path(path).read_bytes(), mark)
    work = _measure(
        load, port=int(port), connections=int(connections), warm=float(warm), seconds=float(seconds), pid=int(pid)
    )
    try:
        import uvloop
    except ImportError:
        counts = asyncio.run(work)
    else:
        counts = uvloop.run(work)
    sys.stdout.buffer.write(counts.encode() + b"\n" + (load.first_error or load.last))


if __name__ == "__main__":
    main()

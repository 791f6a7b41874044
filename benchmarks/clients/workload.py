"""What every client program does: call `add` one at a time, then many at once, and print what that cost as JSON.

Arguments: the revision, the seconds to spend on each mode, and the server's command or URL, or none for a server in the
same process. `BENCH_LOOP` names the event loop, `BENCH_IN_FLIGHT` says how many calls are many. Processor time is this
process's own, all threads: in memory that is client and server together.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

Call = Callable[[], Awaitable[object]]


def arguments() -> tuple[str, list[str]]:
    """Give the revision and the server's command, empty for a server in this process."""
    return sys.argv[1], sys.argv[3:]


def run(main: Coroutine[Any, Any, None], *, loop: str) -> None:
    """Run a client program on the event loop asked for, or on its usual one."""
    if os.environ.get("BENCH_LOOP", loop) == "uvloop":
        import uvloop

        uvloop.run(main)
    else:
        asyncio.run(main)


async def measure(call: Call) -> None:
    """Warm up, measure both modes and print one line of JSON."""
    seconds = float(sys.argv[2])
    # Since 2026-07-28 structured content may be any value; before, and with some peers still, it is an object.
    if (answer := await call()) not in (3, {"result": 3}):
        raise SystemExit(f"add(1, 2) gave {answer!r}")
    modes = {}
    for in_flight in (1, int(os.environ.get("BENCH_IN_FLIGHT", "64"))):
        await _spend(call, in_flight, seconds / 3)
        modes[str(in_flight)] = await _spend(call, in_flight, seconds)
    sys.stdout.write(json.dumps(modes) + "\n")
    sys.stdout.flush()


async def _spend(call: Call, in_flight: int, seconds: float) -> dict[str, int]:
    calls = 0
    cpu = time.process_time_ns()
    wall = time.perf_counter_ns()
    until = wall + int(seconds * 1e9)
    while time.perf_counter_ns() < until:
        if in_flight == 1:
            for _ in range(16):
                await call()
            calls += 16
        else:
            await asyncio.gather(*[call() for _ in range(in_flight)])
            calls += in_flight
    wall = time.perf_counter_ns() - wall
    return {"calls": calls, "cpu_ns": time.process_time_ns() - cpu, "wall_ns": wall}

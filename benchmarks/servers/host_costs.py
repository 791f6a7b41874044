"""What a host costs beside its gateway, as JSON: the start of 20 servers, and decisions of the policy."""

import asyncio
import json
import sys
import tempfile
import time
from typing import Any

from benchmarks.policy import decide_cost
from trunkline.host.host import Host

SERVERS = 20
SLOWEST = 1.0
PROGRAM = "import time; time.sleep({delay}); from benchmarks.servers.trunkline_server import server; server.run()"


def entry(delay: float) -> dict[str, Any]:
    """Give a server that takes its time to start."""
    return {"command": sys.executable, "args": ["-c", PROGRAM.format(delay=delay)], "env": {"PYTHONPATH": sys.path[0]}}


async def started(delays: list[float]) -> float:
    """Open a host over servers, and give the seconds until all of them are ready."""
    servers = {f"s{at}": entry(delay) for at, delay in enumerate(delays)}
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        async with Host.open(servers, folder=folder, audit=False, wait="all", wait_seconds=60) as host:
            spent = time.perf_counter() - begun
            assert all(status.state == "ready" for status in host.status()), host.status()
    return spent


async def main() -> None:
    """Measure and print."""
    delays = [SLOWEST * (at + 1) / SERVERS for at in range(SERVERS)]
    slowest = await started([SLOWEST])
    everyone = await started(delays)
    one = slowest - SLOWEST
    start = {
        "all_ms": everyone * 1000,
        "slowest_ms": slowest * 1000,
        "sum_ms": (sum(delays) + one * SERVERS) * 1000,
        "of_slowest": everyone / slowest,
        "of_sum": everyone / (sum(delays) + one * SERVERS),
    }
    print(json.dumps({"start": start, "policy": decide_cost()}))


if __name__ == "__main__":
    asyncio.run(main())

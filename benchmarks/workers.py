"""What several workers and a Redis store cost: ``python -m benchmarks.workers [--only PART]``.

Processor time of all processes of the server is counted, in rounds in which both sides take turns; the median of the
ratios is judged. Where Valgrind is installed, the store is judged by instructions a call instead, which a busy
machine does not change. Parts:

- ``calls``: 2 workers against 1, over 32 connections in each era; how the load is shared.
- ``store``: one worker with Redis against one without, calls in a session and plain stateless calls.
- ``streams``: 10,000 listen streams over 2 workers, one notice: processor time of a delivery against the bare write.
- ``tasks``: tasks over Redis, created, run and read, beside FastMCP with Redis where it can be installed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from statistics import median

from benchmarks.driver import ServerFailed
from benchmarks.http_streams import Stream, raise_descriptor_limit
from benchmarks.http_work import HttpRequests
from benchmarks.instructions import COUNTED, can_count, count_http_calls
from benchmarks.scaled_server import (
    Scaled,
    bare_writes,
    redis_server,
    scaled,
    scaled_command,
    worker_environment,
)
from benchmarks.work import ADD, HANDSHAKE

STATELESS = "2026-07-28"
ERAS = (HANDSHAKE, STATELESS)
CONNECTIONS = 32
STREAMS = 10_000
#: Streams that are opened at a time; more would only wait in the backlog.
OPENING = 64
NOTICE_SECONDS = 60.0
#: What is done after the last delivery, such as the announcement to the other workers, is over by then.
AFTER_SECONDS = 0.5
TASKS = 300


class Report:
    """The rows that were measured."""

    def __init__(self) -> None:
        """Start without rows."""
        self.missed = 0

    def row(self, what: str, value: str, ratio: float | None = None, at_most: float | None = None) -> None:
        """Print a row; with a bar, whether it is kept."""
        mark = ""
        if ratio is not None:
            mark = f"{ratio:7.3f} x"
        if ratio is not None and at_most is not None:
            kept = ratio <= at_most
            self.missed += not kept
            mark += f"   bar {at_most:.2f} x  {'ok' if kept else 'MISSED'}"
        sys.stdout.write(f"{what:<66}{value:>16}{mark}\n")
        sys.stdout.flush()

    def share(self, what: str, share: float) -> None:
        """Print the part of the load that a worker had: 40 to 60 %."""
        kept = 0.4 <= share <= 0.6
        self.missed += not kept
        sys.stdout.write(f"{what:<66}{share:>15.1%}      bar 40 to 60 %  {'ok' if kept else 'MISSED'}\n")


# --- 2 workers against 1 ----------------------------------------------------------------------------------------------


def calls(report: Report, rounds: int, seconds: float) -> None:
    """Compare the processor time of a call with two workers and with one."""
    with redis_server() as redis, ExitStack() as stack:
        one = stack.enter_context(scaled(store=redis.url))
        two = stack.enter_context(scaled(store=redis.url, workers=2))
        for era in ERAS:
            requests = [_request(each, era) for each in (one, two)]
            taken: dict[int, list[float]] = {0: [], 1: []}
            shares: list[float] = []
            for _ in range(rounds):
                for index, server in enumerate((one, two)):
                    spent, by_process = _load(server, requests[index], seconds)
                    taken[index].append(spent)
                    if server is two:
                        workers = [by_process[pid] for pid in server.workers()]
                        shares.append(workers[0] / sum(workers))
            ratios = [both / alone for alone, both in zip(taken[0], taken[1], strict=True)]
            report.row(f"{era}: CPU of a call, 1 worker", f"{median(taken[0]):.1f} us")
            report.row(f"{era}: CPU of a call, 2 workers", f"{median(taken[1]):.1f} us", median(ratios), 1.1)
            report.share(f"{era}: load of the first of the two workers", median(shares))


def _request(server: Scaled, era: str) -> bytes:
    requests = HttpRequests(era, port=server.port)
    return requests.call(ADD, server.open_session(requests) if requests.handshake else None)


def _load(server: Scaled, request: bytes, seconds: float) -> tuple[float, dict[int, int]]:
    """Load a server; return the processor time of a call in microseconds, and that of each process."""
    server.load(request, connections=CONNECTIONS, warm=0.0, seconds=0.3)
    before = server.cpu()
    loaded = server.load(request, connections=CONNECTIONS, warm=0.0, seconds=seconds)
    after = server.cpu()
    spent = {pid: after[pid] - before.get(pid, 0) for pid in after}
    return sum(spent.values()) / loaded.spent.calls / 1000, spent


# --- Redis against none -----------------------------------------------------------------------------------------------


def store(report: Report, rounds: int, seconds: float) -> None:
    """Compare a call at a server with Redis with one at a server without."""
    bars = {HANDSHAKE: 1.15, STATELESS: 1.02}  # Equal, up to what the regular check of the connection costs.
    with redis_server() as redis:
        counts = can_count()
        for era in ERAS if counts else ():
            try:
                memory, shared = (_instructions(era, each) for each in (None, redis.url))
            except ServerFailed as failure:
                # So slow that Redis seems to be gone.
                sys.stdout.write(f"{era}: instructions were not counted: {failure}\n")
                counts = False
                continue
            report.row(f"{era}: instructions of a call, sessions in memory", f"{memory / 1000:.1f} k")
            report.row(
                f"{era}: instructions of a call, with Redis", f"{shared / 1000:.1f} k", shared / memory, bars[era]
            )
        with scaled() as alone, scaled(store=redis.url) as sharing:
            for era in ERAS:
                before = redis.commands()
                ratios, figures = _alternate([alone, sharing], era, rounds, seconds)
                report.row(f"{era}: CPU of a call, sessions in memory", f"{figures[0]:.1f} us")
                bar = None if counts else bars[era]
                report.row(f"{era}: CPU of a call, with Redis", f"{figures[1]:.1f} us", ratios, bar)
                report.row(f"{era}: commands to Redis meanwhile", f"{redis.commands() - before:,}")


def _instructions(era: str, url: str | None) -> float:
    port = _free_port()
    options = {} if url is None else {"store": url}
    command = [*scaled_command(), str(port), json.dumps(options)]
    return count_http_calls(command, worker_environment(), port, era, without_idle=True) / COUNTED


def _alternate(servers: Sequence[Scaled], era: str, rounds: int, seconds: float) -> tuple[float, list[float]]:
    """Load servers in turn; return the median ratio of the second to the first, and the median of each."""
    requests = [_request(each, era) for each in servers]
    taken: list[list[float]] = [[] for _ in servers]
    for _ in range(rounds):
        for index, server in enumerate(servers):
            taken[index].append(_load(server, requests[index], seconds)[0])
    ratios = [other / one for one, other in zip(taken[0], taken[1], strict=True)]
    return median(ratios), [median(each) for each in taken]


# --- streams ----------------------------------------------------------------------------------------------------------


def streams(report: Report, rounds: int, seconds: float) -> None:
    """Compare the delivery of a notice to many streams with bare writes to as many connections."""
    raise_descriptor_limit(STREAMS + 1000)
    with redis_server() as redis, scaled(store=redis.url, workers=2) as server:
        requests = HttpRequests(STATELESS, port=server.port)
        change = requests.call_tool("change", {}, session=None)
        delivered = asyncio.run(_deliveries([server], requests.stream(None), lambda: server.ask(change), rounds))
    with bare_writes() as one, bare_writes() as other:

        def write() -> None:
            for each in (one, other):
                with socket.create_connection(("127.0.0.1", each.port)) as wire:
                    wire.sendall(b"!\n")
                    wire.recv(1)

        bare = asyncio.run(_deliveries([one, other], b"open", write, rounds))
    report.row(f"{STREAMS:,} connections in 2 processes: CPU of a bare write", f"{bare:.2f} us")
    report.row(f"{STREAMS:,} streams of 2 workers: CPU of a delivery", f"{delivered:.2f} us", delivered / bare, 2.0)


async def _deliveries(servers: Sequence[Scaled], opening: bytes, notify: Callable[[], object], rounds: int) -> float:
    """Open streams at servers in turn, notify them again and again; return the CPU of a delivery in microseconds."""
    gate = asyncio.Semaphore(OPENING)

    async def one(number: int) -> Stream:
        async with gate:
            port = servers[number % len(servers)].port
            _, stream = await asyncio.get_running_loop().create_connection(Stream, "127.0.0.1", port)
            await stream.open(opening, b"subscriptions/acknowledged")
            return stream

    held = await asyncio.gather(*[one(number) for number in range(STREAMS)])
    figures = []
    for turn in range(1, rounds + 2):
        before = sum(sum(each.cpu().values()) for each in servers)
        await asyncio.to_thread(notify)
        until = time.monotonic() + NOTICE_SECONDS
        while any(stream.notices < turn for stream in held):
            if time.monotonic() > until:
                raise ServerFailed(f"{sum(stream.notices < turn for stream in held)} streams did not hear of a notice")
            await asyncio.sleep(0.02)
        await asyncio.sleep(AFTER_SECONDS)
        spent = sum(sum(each.cpu().values()) for each in servers) - before
        if any(stream.notices != turn or stream.lost for stream in held):
            raise ServerFailed("streams ended, or heard of a notice twice")
        figures.append(spent / STREAMS / 1000)
    for stream in held:
        stream.transport.abort()
    # The first one warms up.
    return median(figures[1:])


# --- tasks ------------------------------------------------------------------------------------------------------------


def tasks(report: Report, rounds: int, seconds: float) -> None:
    """Measure tasks over Redis, ours and those of FastMCP."""
    from benchmarks.redis_tasks import measure_fastmcp, measure_ours

    with redis_server() as redis:
        ours = measure_ours(redis, TASKS)
        report.row("a task over Redis, created, run and read: CPU of the server", f"{ours.server_us:.0f} us")
        report.row("  CPU of Redis", f"{ours.redis_us:.0f} us")
        report.row("  commands to Redis", f"{ours.commands:.1f}")
    try:
        with redis_server() as redis:
            theirs = measure_fastmcp(redis, TASKS)
    except ServerFailed as failure:
        sys.stdout.write(f"FastMCP with Redis: not measured, {failure}\n")
        return
    report.row(
        "FastMCP: a task over Redis: CPU of the server", f"{theirs.server_us:.0f} us", theirs.server_us / ours.server_us
    )
    report.row("  CPU of Redis", f"{theirs.redis_us:.0f} us", theirs.redis_us / ours.redis_us)
    report.row("  commands to Redis", f"{theirs.commands:.1f}", theirs.commands / ours.commands)


PARTS = {"calls": calls, "store": store, "streams": streams, "tasks": tasks}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def main() -> int:
    """Measure and print; the exit status is 0 whatever the bars say."""
    parser = argparse.ArgumentParser(prog="benchmarks.workers", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=PARTS, action="append", help="one part; may be repeated")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2.0, help="of load, each time")
    options = parser.parse_args()
    report = Report()
    for name, part in PARTS.items():
        if name in (options.only or PARTS):
            sys.stdout.write(f"\n== {name}\n")
            part(report, options.rounds, options.seconds)
    sys.stdout.write(f"\n{report.missed} bars missed\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

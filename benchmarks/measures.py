"""What is measured: one function a section, each taking one subject through one round and giving samples.

Every function starts fresh processes, warms them up, and lets the driver or the client program hold the clock. The
order of subjects and the number of rounds are the caller's.
"""

from __future__ import annotations

import json
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks.driver import ServerFailed, ServerProcess, Spent, complaint, cpu_ns, resident_kb
from benchmarks.subjects import ROOT
from benchmarks.work import (
    ADD,
    ADD_SYNC,
    BLOB_1M,
    BLOB_32M,
    ECHO_1K,
    ECHO_1M,
    LIST_500,
    MB,
    Requests,
    Work,
    check_result,
    check_window,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.subjects import Installed

__all__ = [
    "Budget",
    "Row",
    "Sample",
    "call_sample",
    "measure_client",
    "measure_large",
    "measure_packages",
    "measure_start",
    "measure_stdio",
    "run_client",
]

IDLE_SECONDS = 0.3
CLIENT_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Budget:
    """How long to measure: seconds to settle a new server, to warm up and to measure each row; how many of the rest."""

    # A compiler that works while the program runs (Node's) needs some 6,000 calls until the cost of one stops falling.
    settle: float = 1.5
    warm: float = 0.15
    spend: float = 0.3
    echoes: int = 20
    results: int = 3
    load: float = 1.5
    streams: int = 5_000
    hold: float = 60.0
    notifications: int = 10_000
    stall: float = 3.0
    shop_warm: float = 2.0
    shop: float = 5.0


@dataclass(frozen=True, slots=True, order=True)
class Row:
    """One row of a table: section, work, revision (empty where it plays no part) and requests in flight."""

    section: str
    work: str
    revision: str = ""
    in_flight: int = 1


@dataclass(frozen=True, slots=True)
class Sample:
    """What one subject showed in one round: figures by name, the unit being the name's end."""

    row: Row
    figures: dict[str, float] = field(default_factory=dict)


def measure_stdio(subject: Installed, revision: str, budget: Budget) -> Iterator[Sample]:
    """Measure small calls over stdio, one at a time and 64 in flight, and the list of 500 tools."""
    works = [work for work in (ADD, ADD_SYNC, ECHO_1K) if subject.subject.sync_tool or not work.sync]
    with _connected(subject, revision) as (server, requests):
        _warm(server, requests, ADD, in_flight=64, seconds=budget.settle)
        for work in works:
            for in_flight in (1, 64):
                spent = _spend(server, requests, work, in_flight=in_flight, budget=budget)
                yield call_sample(Row("stdio", work.name, revision, in_flight), spent)
    with _connected(subject, revision, "many") as (server, requests):
        _warm(server, requests, LIST_500, in_flight=1, seconds=budget.settle)
        spent = _spend(server, requests, LIST_500, in_flight=1, budget=budget)
        yield call_sample(Row("stdio", LIST_500.name, revision), spent)


def measure_large(subject: Installed, revision: str, budget: Budget) -> Iterator[Sample]:
    """Measure large messages over stdio, one at a time: an echo of 1 MB, results of 1 and 32 MB."""
    plan = ((ECHO_1M, budget.echoes), (BLOB_1M, budget.echoes), (BLOB_32M, budget.results))
    for work, calls in plan:
        with _connected(subject, revision) as (server, requests):
            server.run(requests.windows(work, max(1, calls // 3), in_flight=1), 1)
            spent, last = server.run(requests.windows(work, calls, in_flight=1), 1)
            check_window(work, last)
        sample = call_sample(Row("large", work.name, revision), spent)
        yield Sample(sample.row, sample.figures | {"cpu_us_mb": sample.figures["cpu_us"] * MB / work.size})


def measure_start(subject: Installed, revision: str, budget: Budget) -> Iterator[Sample]:
    """Measure the time from spawn to the first answer, its processor time, and the memory of the server then idle."""
    requests = Requests(revision)
    with _spawned(subject) as server:
        first = server.exchange(requests.first(), 1)
        wall = time.perf_counter_ns() - server.started_ns
        cpu = cpu_ns(server.pid)
        check_result(first)
        server.exchange(requests.after_first(), 0)
        time.sleep(IDLE_SECONDS)
        memory = resident_kb(server.pid)
    figures = {"start_ms": wall / 1e6, "start_cpu_ms": cpu / 1e6, "rss_mb": memory / 1024}
    yield Sample(Row("start", "to first answer", revision), figures)


def measure_client(
    subject: Installed, revision: str, budget: Budget, *, targets: dict[str, list[str]]
) -> Iterator[Sample]:
    """Measure the subject's client: against a server in its own process, then against each target over stdio."""
    for name, command in {"memory": list[str](), **targets}.items():
        arguments = (revision, str(budget.spend), *command)
        for in_flight, spent in run_client(subject.client_command(*arguments), subject).items():
            yield call_sample(Row("client", name, revision, in_flight), spent)


def measure_packages(subject: Installed) -> Iterator[Sample]:
    """Count the packages a plain install brings."""
    if subject.packages is not None:
        yield Sample(Row("packages", "plain install"), {"packages": float(subject.packages)})


@contextmanager
def _connected(subject: Installed, revision: str, *extra: str) -> Iterator[tuple[ServerProcess, Requests]]:
    """Start a server and open the connection as the revision asks."""
    requests = Requests(revision)
    with _spawned(subject, *extra) as server:
        check_result(server.exchange(requests.first(), 1))
        server.exchange(requests.after_first(), 0)
        yield server, requests


def _spawned(subject: Installed, *extra: str) -> ServerProcess:
    return ServerProcess(subject.server_command(*extra), env=subject.environ(), cwd="/")


def _warm(server: ServerProcess, requests: Requests, work: Work, *, in_flight: int, seconds: float) -> Spent:
    """Call for the given time, look into the answers, and give the pace of the last stretch."""
    windows = 1
    until = time.perf_counter_ns() + int(seconds * 1e9)
    while True:
        pace, last = server.run(requests.windows(work, windows, in_flight=in_flight), in_flight)
        check_window(work, last)
        if time.perf_counter_ns() > until:
            return pace
        # Doubling ends where a stretch takes a quarter of the time, so that the last one does not overshoot far.
        windows *= 2 if pace.wall_ns < seconds * 0.25e9 else 1


def _spend(server: ServerProcess, requests: Requests, work: Work, *, in_flight: int, budget: Budget) -> Spent:
    """Warm up, find out how many calls fit the budget, then measure that many."""
    pace = _warm(server, requests, work, in_flight=in_flight, seconds=budget.warm)
    calls = int(budget.spend * 1e9 * pace.calls / pace.wall_ns)
    spent, last = server.run(requests.windows(work, max(1, calls // in_flight), in_flight=in_flight), in_flight)
    check_window(work, last)
    return spent


def call_sample(row: Row, spent: Spent) -> Sample:
    """Give what a call cost."""
    return Sample(row, {"cpu_us": spent.cpu_ns / spent.calls / 1000, "wall_us": spent.wall_ns / spent.calls / 1000})


def run_client(command: list[str], subject: Installed, **more: str) -> dict[int, Spent]:
    """Run a client program and give what its calls cost, by how many were in flight.

    Raises:
        ServerFailed: It failed, or did not end.
    """
    # A client program imports the workload and, for its in-memory server, the subject's own server program.
    env = subject.environ(PYTHONPATH=str(ROOT), **more)
    try:
        done = subprocess.run(
            command, env=env, cwd="/", capture_output=True, text=True, timeout=CLIENT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise ServerFailed(f"the client did not end within {CLIENT_SECONDS} s") from None
    if done.returncode != 0:
        raise ServerFailed(f"the client ended with status {done.returncode}: {complaint(done.stderr)}")
    modes = json.loads(done.stdout.strip().splitlines()[-1])
    return {int(in_flight): Spent(**figures) for in_flight, figures in modes.items()}

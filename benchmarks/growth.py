"""How the cost of a call grows with a server: with the number of its tools, and with the depth of its mounts.

All servers of a comparison run side by side and take turns, a short stretch each; the cheapest stretch counts, so that
a neighbour of the machine has to disturb all of them to be seen. The first `tools/list` of a large server is measured
in fresh processes: the processor time of the server alone, from just before the request to its answer.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from benchmarks.driver import ServerProcess, cpu_ns
from benchmarks.measures import Row, Sample
from benchmarks.work import Requests, Work, check_result, check_window

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.subjects import Installed

__all__ = ["FIRST_LIST", "ONE_TOOL", "SIZES", "THREE_MOUNTS", "measure_growth", "row_name"]

SIZES = (1, 100, 1_000, 10_000)
IN_FLIGHT = 64
#: Windows in a stretch, and stretches of each server. A stretch takes some 10 ms.
WINDOWS, STRETCHES = 16, 40
LISTED = 1_000
LISTS = 5


def row_name(tools: int) -> str:
    """Return the name of the row of a server with this many tools."""
    return f"add, among {tools:,} tools"


ONE_TOOL = row_name(1)
THREE_MOUNTS = "add, mounted three deep"
FIRST_LIST = f"first tools/list of {LISTED:,}"


def measure_growth(subject: Installed, revision: str) -> Iterator[Sample]:
    """Measure a call among few and many tools and below mounts, then the first list of many tools."""
    works = {
        row_name(size): (Work(row_name(size), "add" if size == 1 else f"own_{size - 1}"), (f"tools={size}",))
        for size in SIZES
    }
    works[THREE_MOUNTS] = Work(THREE_MOUNTS, "one_two_three_add"), ("mounted",)
    with ExitStack() as running:
        servers: list[tuple[Work, ServerProcess, Requests]] = []
        for work, arguments in works.values():
            requests = Requests(revision)
            servers.append((work, running.enter_context(_start(subject, requests, *arguments)), requests))
        least = dict.fromkeys(works, float("inf"))
        for _ in range(STRETCHES):
            for work, server, requests in servers:
                spent, last = server.run(requests.windows(work, WINDOWS, in_flight=IN_FLIGHT), IN_FLIGHT)
                check_window(work, last)
                least[work.name] = min(least[work.name], spent.cpu_ns / spent.calls / 1000)
    for name, cpu_us in least.items():
        yield Sample(Row("growth", name, revision, IN_FLIGHT), {"cpu_us": cpu_us})
    yield _first_list(subject, revision)


def _first_list(subject: Installed, revision: str) -> Sample:
    work = Work(FIRST_LIST, None, size=LISTED)
    taken: list[int] = []
    for _ in range(LISTS):
        requests = Requests(revision)
        with _start(subject, requests, f"tools={LISTED}") as server:
            before = cpu_ns(server.pid)
            answer = server.exchange(requests.windows(work, 1, in_flight=1)[0], 1)
            taken.append(cpu_ns(server.pid) - before)
            check_window(work, answer)
    return Sample(Row("growth", FIRST_LIST, revision), {"cpu_ms_tool": min(taken) / 1e6 / LISTED})


def _start(subject: Installed, requests: Requests, *arguments: str) -> ServerProcess:
    server = ServerProcess(subject.server_command(*arguments), env=subject.environ(), cwd="/")
    try:
        check_result(server.exchange(requests.first(), 1))
        server.exchange(requests.after_first(), 0)
    except BaseException:
        server.__exit__(None, None, None)
        raise
    return server

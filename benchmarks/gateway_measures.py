"""What is measured of gateways: what one adds to a call, how many calls it carries, and what else a host costs.

Every gateway stands before the same two servers, ours on stdio and ours over HTTP, so that what differs is the gateway.
One call at a time is timed call by call, directly and through the gateway in turn, and the medians are compared; 32
connections are loaded as the other sections load theirs.
"""

from __future__ import annotations

import json
import socket
import subprocess
import tempfile
import time
from contextlib import ExitStack
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.driver import ServerFailed, complaint, cpu_ns
from benchmarks.http_driver import HttpServer
from benchmarks.http_measures import CONNECTIONS, open_session
from benchmarks.http_work import HttpRequests
from benchmarks.measures import Row, Sample, call_sample
from benchmarks.subjects import ROOT
from benchmarks.work import ADD, Requests

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.measures import Budget
    from benchmarks.subjects import Installed

__all__ = ["ADDED", "CARRIED", "DECISION", "DIRECT", "START", "UPSTREAMS", "measure_gateway", "measure_host"]

UPSTREAMS = ("stdio", "http")
DIRECT = "called directly"
START = "start of 20 servers"
DECISION = "a decision"
TIMED = 400
WARM = 100
ANSWER_SECONDS = 20.0
HOST_SECONDS = 180.0


def ADDED(upstream: str) -> str:
    """Name the row of one call at a time before a server."""
    return f"one call, {upstream} behind"


def CARRIED(upstream: str) -> str:
    """Name the row of many connections before a server."""
    return f"32 connections, {upstream} behind"


def measure_gateway(
    subject: Installed, revision: str, budget: Budget, *, stdio: Installed, http: Installed
) -> Iterator[Sample]:
    """Measure a gateway before either server; what is no gateway is measured as it is."""
    if not subject.subject.gateway:
        with _serving(subject, "json") as server:
            requests, session = _opened(server, revision)
            yield _loaded(server, Row("gateway", DIRECT, revision, CONNECTIONS), requests.call(ADD, session), budget)
        return
    for upstream in UPSTREAMS:
        if upstream in subject.subject.fronts:
            yield from _before(subject, revision, budget, upstream=upstream, stdio=stdio, http=http)


def _before(
    subject: Installed, revision: str, budget: Budget, *, upstream: str, stdio: Installed, http: Installed
) -> Iterator[Sample]:
    with ExitStack() as open_ones:
        if upstream == "http":
            behind = open_ones.enter_context(_serving(http, "json"))
            where = behind.url
            direct = _http_caller(open_ones, behind, revision)
        else:
            command = stdio.server_command()
            where = json.dumps(command)
            direct = _stdio_caller(open_ones, stdio, revision)
        folder = open_ones.enter_context(tempfile.TemporaryDirectory())
        front = open_ones.enter_context(_serving(subject, upstream, where, folder))
        requests, session = _opened(front, revision)
        tool = _tool(front, requests, session)
        through = _http_caller(open_ones, front, revision, tool=tool, session=session)
        figures = _compared(direct, through) | {"cpu_us": _processor_time(front, through)}
        yield Sample(Row("gateway", ADDED(upstream), revision), figures)
        request = requests.call_tool(tool, {"a": 1, "b": 1}, session=session)
        yield _loaded(front, Row("gateway", CARRIED(upstream), revision, CONNECTIONS), request, budget)


def _compared(direct: Callable[[], None], through: Callable[[], None]) -> dict[str, float]:
    """Time calls in turns, so that what disturbs the machine falls on both."""
    spent: dict[str, list[float]] = {"direct": [], "through": []}
    for at in range(WARM + TIMED):
        for name, call in (("direct", direct), ("through", through)):
            started = time.perf_counter()
            call()
            if at >= WARM:
                spent[name].append(time.perf_counter() - started)
    figures = {f"{name}_ms": median(times) * 1000 for name, times in spent.items()}
    return figures | {"added_ms": figures["through_ms"] - figures["direct_ms"]}


def _processor_time(front: HttpServer, through: Callable[[], None]) -> float:
    """Return the processor time that one call costs the gateway's process, calls one after another, in microseconds."""
    before = cpu_ns(front.pid)
    for _ in range(TIMED):
        through()
    return (cpu_ns(front.pid) - before) / TIMED / 1000


def _loaded(server: HttpServer, row: Row, request: bytes, budget: Budget) -> Sample:
    loaded = server.load(request, connections=CONNECTIONS, warm=budget.settle, seconds=budget.load)
    answer = loaded.answer.message()
    if "result" not in answer or answer["result"].get("isError"):
        raise server.failure(f"answered a call with {json.dumps(answer)[:200]}")
    rate = loaded.spent.calls * 1e9 / loaded.spent.wall_ns
    return Sample(row, call_sample(row, loaded.spent).figures | {"rate": rate})


# --- callers ---------------------------------------------------------------------------------------------------------


def _http_caller(
    open_ones: ExitStack, server: HttpServer, revision: str, *, tool: str = "add", session: str | None = None
) -> Callable[[], None]:
    """Give a function that makes one call over a connection of its own and reads the whole answer."""
    if session is None:
        requests, session = _opened(server, revision)
    else:
        requests = HttpRequests(revision, port=server.port)
    request = requests.call_tool(tool, {"a": 1, "b": 1}, session=session)
    wire = open_ones.enter_context(socket.create_connection(("127.0.0.1", server.port), ANSWER_SECONDS))
    wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    file = open_ones.enter_context(wire.makefile("rb"))

    def call() -> None:
        wire.sendall(request)
        length, chunked = 0, False
        while (line := file.readline()) not in (b"\r\n", b""):
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
            chunked = chunked or (name.lower() == b"transfer-encoding" and b"chunked" in value)
        body = b"".join(_chunks(file)) if chunked else file.read(length)
        if b'"result"' not in body:
            raise server.failure(f"answered a call with {body[:200]!r}")

    return call


def _chunks(file: Any) -> Iterator[bytes]:
    while size := int(file.readline(), 16):
        yield file.read(size)
        file.readline()
    file.readline()


def _stdio_caller(open_ones: ExitStack, server: Installed, revision: str) -> Callable[[], None]:
    """Give a function that makes one call over the pipes of a process of its own."""
    process = subprocess.Popen(
        server.server_command(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=server.environ(PYTHONPATH=str(ROOT)),
    )
    open_ones.callback(process.wait)
    open_ones.callback(process.kill)
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None
    assert stdout is not None
    requests = Requests(revision)
    stdin.write(requests.first())
    stdin.flush()
    stdout.readline()
    stdin.write(requests.after_first())
    lines = iter(requests.windows(ADD, WARM + TIMED, in_flight=1))

    def call() -> None:
        stdin.write(next(lines))
        stdin.flush()
        if b'"result"' not in (line := stdout.readline()):
            raise ServerFailed(f"a call over stdio was answered with {line[:200]!r}")

    return call


def _serving(subject: Installed, *extra: str) -> HttpServer:
    return HttpServer(subject.server_command(), *extra, env=subject.environ(PYTHONPATH=str(ROOT)))


def _opened(server: HttpServer, revision: str) -> tuple[HttpRequests, str | None]:
    requests = HttpRequests(revision, port=server.port)
    return requests, open_session(server, requests)


def _tool(server: HttpServer, requests: HttpRequests, session: str | None) -> str:
    """Find out what a gateway calls the tool; some list late, so it is asked for a while."""
    until = time.monotonic() + ANSWER_SECONDS
    while time.monotonic() < until:
        answer = server.ask(requests.list_tools(session)).message()
        for tool in answer.get("result", {}).get("tools", ()):
            name = str(tool["name"])
            if name == "add" or name.endswith("_add"):
                return name
        time.sleep(0.1)
    raise server.failure("does not list the tool of the server behind it")


# --- the host --------------------------------------------------------------------------------------------------------


def measure_host(subject: Installed) -> Iterator[Sample]:
    """Measure what a host costs beside the gateway: the start of many servers, and a decision of the policy."""
    command = [subject.interpreter, str(ROOT / "benchmarks" / "servers" / "host_costs.py")]
    done = subprocess.run(
        command,
        env=subject.environ(PYTHONPATH=str(ROOT)),
        capture_output=True,
        text=True,
        timeout=HOST_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise ServerFailed(f"the host's costs were not measured: {complaint(done.stderr)}")
    found = json.loads(done.stdout)
    yield Sample(Row("host", START), found["start"])
    for shape, cost in found["policy"].items():
        yield Sample(Row("host", f"{DECISION}, {shape}"), {"decide_us": cost})

"""What is measured over HTTP: one function a section, each taking one subject through one round and giving samples.

Every function starts fresh servers, all on uvicorn with uvloop and httptools. The order of subjects and the number of
rounds are the caller's.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.driver import ServerFailed, complaint, cpu_ns, resident_kb
from benchmarks.http_driver import Answer, HttpServer, events
from benchmarks.http_streams import hold_streams, raise_descriptor_limit
from benchmarks.http_work import HttpRequests
from benchmarks.measures import Row, Sample, call_sample, run_client
from benchmarks.subjects import ROOT
from benchmarks.work import ADD, ADD_SYNC

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.measures import Budget
    from benchmarks.subjects import Installed
    from benchmarks.work import Work

__all__ = [
    "CLIENT_ROWS",
    "CONNECTIONS",
    "PROGRESS",
    "STREAMS",
    "measure_auth",
    "measure_events",
    "measure_http",
    "measure_http_client",
    "measure_streams",
    "open_session",
]

CONNECTIONS = 32
CLIENT_ROWS = {"asyncio": "to asgi, on asyncio", "uvloop": "to asgi, on uvloop"}
STREAMS = "idle streams"
PROGRESS = "progress in one call"
PROGRESS_METHOD = b"notifications/progress"
MESSAGE_BYTES = 1_000
STALLED_NOTIFICATIONS = 64_000
# Small, so that what a stalled reader leaves behind is soon the server's and not the kernel's.
RECEIVE_BUFFER = 4_096
READ_SIZE = 1 << 16
SPARE_DESCRIPTORS = 200
TOKEN_SECONDS = 30


def measure_http(subject: Installed, revision: str, budget: Budget) -> Iterator[Sample]:
    """Measure small calls over 32 connections, each waiting for its answer before the next call."""
    works = [work for work in (ADD, ADD_SYNC) if subject.subject.sync_tool or not work.sync]
    with _serving(subject, "json") as server:
        requests = HttpRequests(revision, port=server.port)
        session = open_session(server, requests)
        warm = budget.settle
        for work in works:
            row = Row("http", work.name, revision, CONNECTIONS)
            yield _loaded(server, row, work, request=requests.call(work, session), warm=warm, seconds=budget.load)
            warm = budget.warm * 2


def measure_auth(subject: Installed, revision: str, budget: Budget) -> Iterator[Sample]:
    """Measure the same calls, of the async tool alone, with a token if the subject wants one."""
    key, token = (None, None) if subject.subject.token is None else _issue(subject)
    with _serving(subject, "json", *(() if key is None else (key,))) as server:
        requests = HttpRequests(revision, port=server.port, token=token)
        if token is not None:
            _expect_refusal(server, revision)
        request = requests.call(ADD, open_session(server, requests))
        row = Row("http auth", ADD.name, revision, CONNECTIONS)
        yield _loaded(server, row, ADD, request=request, warm=budget.settle, seconds=budget.load)


def measure_http_client(subject: Installed, revision: str, budget: Budget, *, floor: Installed) -> Iterator[Sample]:
    """Measure the subject's client against the bare app, on either event loop."""
    with _serving(floor) as server:
        for loop, name in CLIENT_ROWS.items():
            command = subject.client_command(revision, str(budget.load / 2), server.url)
            spent = run_client(command, subject, BENCH_LOOP=loop, BENCH_IN_FLIGHT=str(CONNECTIONS))
            for in_flight, calls in spent.items():
                yield call_sample(Row("http client", name, revision, in_flight), calls)


def measure_streams(subject: Installed, revision: str, budget: Budget) -> Iterator[Sample]:
    """Measure idle streams: a GET stream in each of as many sessions, or as many `subscriptions/listen`."""
    raise_descriptor_limit(budget.streams + SPARE_DESCRIPTORS)
    bare = not subject.subject.ours
    with _serving(subject, "sse") as server:
        calls = HttpRequests(revision, port=server.port)
        session = None if bare else open_session(server, calls)
        change = calls.call_tool("change", {}, session=session)
        opening = HttpRequests(revision, port=server.port, path="/stream") if bare else calls
        seconds = 0.0 if bare else budget.hold
        work = hold_streams(server, opening, change, count=budget.streams, seconds=seconds, bare=bare)
        held = asyncio.run(work)
    figures = {
        "kb_stream": held.grown_kb / held.streams,
        "opened_ms": held.opened_ms,
        "heard_ms": held.heard_ms,
        "lost": float(held.lost),
        "missed": float(held.missed),
        "doubled": float(held.doubled),
    }
    yield Sample(Row("http streams", STREAMS, revision, held.streams), figures)


def measure_events(subject: Installed, revision: str, budget: Budget) -> Iterator[Sample]:
    """Measure notifications in one call: what each costs, whether they leave at once, and a reader that stalls."""
    with _serving(subject, "sse") as server:
        requests = HttpRequests(revision, port=server.port)
        session = open_session(server, requests)
        call = _ProgressCall(server, requests, session)
        call.run(budget.notifications // 10)
        cpu = cpu_ns(server.pid)
        missing = call.run(budget.notifications)
        cpu = cpu_ns(server.pid) - cpu
        figures = {"cpu_us": cpu / budget.notifications / 1000, "late": call.first_late()}
        grown, left_out = call.stalled(budget.stall)
    figures |= {"grown_mb": grown / 1024, "missing": float(missing + left_out)}
    yield Sample(Row("http events", PROGRESS, revision), figures)


class _ProgressCall:
    """Calls `progress` and reads its stream of notifications in three ways."""

    def __init__(self, server: HttpServer, requests: HttpRequests, session: str | None) -> None:
        self._server = server
        self._requests = requests
        self._session = session

    def run(self, count: int) -> int:
        """Read as fast as they come; give how many were missing."""
        with self._response(count) as response:
            return count - _count(response)

    def first_late(self) -> float:
        """Open the gate when the first notification has come: 1 if the tool has waited for that in vain."""
        body = b""
        with tempfile.TemporaryDirectory() as folder:
            gate = Path(folder) / "gate"
            with self._response(1_000, gate=str(gate)) as response:
                # A stream may begin with an event or a comment that carries nothing.
                while PROGRESS_METHOD not in body and (data := response.read1(READ_SIZE)):
                    body += data
                gate.touch()
                body += response.read()
        answer = Answer(response.status, {"content-type": "text/event-stream"}, body).message()
        return float(answer["result"]["structuredContent"] not in (True, {"result": True}))

    def stalled(self, seconds: float) -> tuple[int, int]:
        """Read nothing for a while, then the rest; give how many kB the server grew and how many were missing."""
        before = resident_kb(self._server.pid)
        most = before
        with self._response(STALLED_NOTIFICATIONS, message="x" * MESSAGE_BYTES) as response:
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                most = max(most, resident_kb(self._server.pid))
                time.sleep(0.05)
            left_out = STALLED_NOTIFICATIONS - _count(response)
        return most - before, left_out

    @contextmanager
    def _response(self, count: int, *, message: str = "", gate: str = "") -> Iterator[http.client.HTTPResponse]:
        arguments = {"count": count, "message": message, "gate": gate}
        request = self._requests.call_tool("progress", arguments, session=self._session, progress=True)
        with socket.socket() as wire:
            if message:
                wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
            wire.settimeout(60)
            try:
                wire.connect(("127.0.0.1", self._server.port))
                wire.sendall(request)
                response = http.client.HTTPResponse(wire)
                response.begin()
                yield response
            except (OSError, http.client.HTTPException) as error:
                raise self._server.failure(f"broke off a stream ({error!r})") from error


def _count(response: http.client.HTTPResponse) -> int:
    """Read a stream to its end and count the notifications in it."""
    if response.status != 200:
        raise ServerFailed(f"progress was answered with {response.status} {response.read(200)!r}")
    found, rest = 0, b""
    while data := response.read1(READ_SIZE):
        lines, _, rest = (rest + data).rpartition(b"\n")
        found += sum(PROGRESS_METHOD in event for event in events(lines))
    return found


def _loaded(server: HttpServer, row: Row, work: Work, *, request: bytes, warm: float, seconds: float) -> Sample:
    """Load a server with one request and give what a call cost and how many there were a second."""
    loaded = server.load(request, connections=row.in_flight, warm=warm, seconds=seconds)
    work.check(loaded.answer.message())
    rate = loaded.spent.calls * 1e9 / loaded.spent.wall_ns
    return Sample(row, call_sample(row, loaded.spent).figures | {"rate": rate})


def _issue(subject: Installed) -> tuple[str, str]:
    """Let the subject's own environment sign a token; give the public key as text, and the token."""
    done = subprocess.run(
        subject.token_command(),
        env=subject.environ(),
        capture_output=True,
        text=True,
        timeout=TOKEN_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise ServerFailed(f"no token was signed: {complaint(done.stderr)}")
    issued = json.loads(done.stdout)
    return json.dumps(issued["key"]), issued["token"]


def _expect_refusal(server: HttpServer, revision: str) -> None:
    """See that the server lets nobody in without a token: else nothing would be measured."""
    bare = HttpRequests(revision, port=server.port)
    answer = server.ask(bare.initialize() if bare.handshake else bare.call(ADD, None))
    if answer.status != 401:
        raise server.failure(f"answered a call without a token with {answer.status}")


@contextmanager
def _serving(subject: Installed, *extra: str) -> Iterator[HttpServer]:
    with HttpServer(subject.server_command(), *extra, env=subject.environ(PYTHONPATH=str(ROOT))) as server:
        yield server


def open_session(server: HttpServer, requests: HttpRequests) -> str | None:
    """Shake hands where the revision asks for it, and give the session's id."""
    if not requests.handshake:
        return None
    answer = server.ask(requests.initialize())
    message: Any = answer.message() if answer.status == 200 else {}
    if "result" not in message:
        raise server.failure(f"answered initialize with {answer.status} {answer.body[:200]!r}")
    session = answer.headers.get("mcp-session-id")
    ready = server.ask(requests.initialized(session))
    if ready.status != 202:
        raise server.failure(f"answered initialized with {ready.status} {ready.body[:200]!r}")
    return session

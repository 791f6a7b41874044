"""Instructions a call costs, counted by Valgrind's callgrind: steady where a busy machine's clock is not.

A server runs under callgrind, is warmed up, and writes its counts out before and after a number of calls. Everything
that the process executes in user space counts: interpreter, event loop, parser. The kernel's own work does not.
"""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from benchmarks.driver import ServerFailed
from benchmarks.http_work import MARK, HttpRequests
from benchmarks.measures import Row, Sample
from benchmarks.subjects import ROOT
from benchmarks.work import ADD, Requests, Work, check_window

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.subjects import Installed

__all__ = ["COUNTED", "HTTP_CALL", "STDIO_CALL", "can_count", "count_http_calls", "measure_instructions"]

STDIO_CALL = "add over stdio"
HTTP_CALL = "add over HTTP, one connection"
#: Calls before the count begins, and calls counted. The interpreter's caches are warm after some fifty.
WARM, COUNTED = 192, 512
IN_FLIGHT = 64
#: Valgrind executes fifty to a hundred times slower; a large program takes most of a minute to start.
START_SECONDS = 240.0
ANSWER_SECONDS = 120.0

_TOTALS = re.compile(r"^totals: (\d+)$", re.MULTILINE)


def can_count() -> bool:
    """Return whether Valgrind and its control program are installed."""
    return shutil.which("valgrind") is not None and shutil.which("callgrind_control") is not None


def measure_instructions(subject: Installed, revision: str) -> Iterator[Sample]:
    """Count the instructions of a call: over stdio with 64 in flight, or over HTTP on one connection."""
    if "http" in subject.subject.sections:
        row, count = Row("instructions", HTTP_CALL, revision), _count_http(subject, revision)
    else:
        row, count = Row("instructions", STDIO_CALL, revision, IN_FLIGHT), _count_stdio(subject, revision, ADD)
    yield Sample(row, {"kilo_instructions": count / COUNTED / 1000})


def _count_stdio(subject: Installed, revision: str, work: Work) -> int:
    requests = Requests(revision)
    environ = subject.environ(PYTHONHASHSEED="0", PYTHONPATH=str(ROOT))
    with _callgrind(environ, subject.server_command()) as (process, folder):
        assert process.stdin is not None
        assert process.stdout is not None
        source, sink = process.stdout, process.stdin

        def exchange(data: bytes, answers: int) -> list[bytes]:
            sink.write(data)
            sink.flush()
            return [_line(source) for _ in range(answers)]

        def calls(number: int) -> None:
            for window in requests.windows(work, number // IN_FLIGHT, in_flight=IN_FLIGHT):
                check_window(work, exchange(window, IN_FLIGHT))

        exchange(requests.first(), 1)
        exchange(requests.after_first(), 0)
        return _count(process, folder, calls)


def _count_http(subject: Installed, revision: str) -> int:
    port = _free_port()
    environ = subject.environ(PYTHONHASHSEED="0", PYTHONPATH=str(ROOT))
    return count_http_calls(subject.server_command(str(port), "json"), environ, port, revision)


def count_http_calls(
    command: list[str], environ: dict[str, str], port: int, revision: str, *, without_idle: bool = False
) -> int:
    """Return how many instructions the counted calls take over one connection to a server that is started here."""
    with _callgrind(environ, command) as (process, folder):
        requests = HttpRequests(revision, port=port)
        if requests.handshake:
            _wait_until_served(port, process, requests.initialize())
        with _connect(port, process) as wire, wire.makefile("rb") as reader:
            session = None
            if requests.handshake:
                session = _exchange(wire, reader, requests.initialize())[0].get("mcp-session-id")
                _exchange(wire, reader, requests.initialized(session))
            request, mark = requests.call(ADD, session), str(MARK).encode()

            def calls(number: int) -> None:
                for added in range(number):
                    _, body = _exchange(wire, reader, request.replace(mark, str(MARK + added).encode()))
                    if b"structuredContent" not in body:
                        raise ServerFailed(f"the server under callgrind answered {body[:200]!r}")

            return _count(process, folder, calls, without_idle=without_idle)


def _count(
    process: subprocess.Popen[bytes], folder: Path, calls: Callable[[int], None], *, without_idle: bool = False
) -> int:
    """Warm up, then return how many instructions the counted calls took.

    With ``without_idle``, what the program does in as much time without calls is subtracted: under Valgrind a call
    takes so long that the work of each second would count for much more than it is.
    """
    calls(WARM)
    _dump(process)
    begun = time.monotonic()
    calls(COUNTED)
    took = time.monotonic() - begun
    _dump(process)
    if not without_idle:
        return _total(folder / "counts.2")
    time.sleep(took)
    _dump(process)
    return _total(folder / "counts.2") - _total(folder / "counts.3")


def _total(file: Path) -> int:
    found = _TOTALS.search(file.read_text(encoding="utf-8", errors="replace"))
    if found is None:
        raise ServerFailed("callgrind wrote no total")
    return int(found.group(1))


def _dump(process: subprocess.Popen[bytes]) -> None:
    """Have callgrind write its counts to a file of their own and begin anew."""
    command = ["callgrind_control", "--dump", str(process.pid)]
    done = subprocess.run(command, capture_output=True, timeout=ANSWER_SECONDS, check=False)
    if done.returncode:
        raise ServerFailed(f"callgrind_control failed: {done.stderr[-200:]!r}")


@contextmanager
def _callgrind(environ: dict[str, str], command: list[str]) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Run a program under callgrind; its counts lie in the folder."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as stderr:
        valgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/counts"]
        process = subprocess.Popen(
            [*valgrind, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, env=environ, cwd="/"
        )
        try:
            yield process, Path(folder)
        finally:
            process.kill()
            process.communicate()


def _connect(port: int, process: subprocess.Popen[bytes]) -> socket.socket:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        try:
            wire = socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS)
        except OSError:
            time.sleep(0.1)
        else:
            wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return wire
    raise ServerFailed("the server under callgrind did not open its port")


def _wait_until_served(port: int, process: subprocess.Popen[bytes], request: bytes) -> None:
    """Wait until a request is answered: a server with a store answers 503 until it has joined the others."""
    until = time.monotonic() + START_SECONDS
    while True:
        with _connect(port, process) as wire, wire.makefile("rb") as reader:
            try:
                _exchange(wire, reader, request)
            except ServerFailed:
                if time.monotonic() > until:
                    raise
            else:
                return
        time.sleep(0.5)


def _exchange(wire: socket.socket, reader: IO[bytes], request: bytes) -> tuple[dict[str, str], bytes]:
    """Send one request and read its whole response; return its headers and its body."""
    wire.sendall(request)
    status = reader.readline()
    if not status.startswith((b"HTTP/1.1 200", b"HTTP/1.1 202")):
        raise ServerFailed(f"the server under callgrind answered {status!r}")
    headers = dict[str, str]()
    while line := reader.readline().decode("latin-1").strip():
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    return headers, reader.read(int(headers.get("content-length", "0")))


def _line(source: IO[bytes]) -> bytes:
    line = source.readline()
    if not line:
        raise ServerFailed("the server under callgrind closed its output")
    return line


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port

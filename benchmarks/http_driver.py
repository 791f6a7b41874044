"""Drive one HTTP server: spawn it on a free port, load it with the compiled driver, ask it single things.

Judges nothing but the form of answers. The load driver is compiled when the bench starts; without a compiler its
Python twin does the work.
"""

from __future__ import annotations

import http.client
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Self

from benchmarks.driver import ServerFailed, Spent, complaint, process_tree
from benchmarks.http_work import MARK
from benchmarks.subjects import HERE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import TracebackType

__all__ = ["Answer", "HttpServer", "Loaded", "events", "load_driver"]

START_SECONDS = 30.0
ASK_SECONDS = 60.0
LOAD_SECONDS = 60.0
END_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Answer:
    """One whole answer: status, headers by their lower-case names, body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def message(self) -> Any:
        """Give the JSON-RPC message in the body, be it plain or the last event of a stream."""
        if self.headers.get("content-type", "").startswith("text/event-stream"):
            return json.loads(next(reversed(list(events(self.body)))))
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a stretch under load showed: what the calls cost, and one answer to look into."""

    spent: Spent
    answer: Answer


def events(body: bytes) -> Iterator[bytes]:
    """Give the data of each event of a stream."""
    for line in body.splitlines():
        if line.startswith(b"data:") and len(line) > len(b"data: "):
            yield line.removeprefix(b"data:")


@cache
def load_driver() -> tuple[str, ...]:
    """Give the command of the load driver, compiled if a compiler is there."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is not None:
        program = HERE / ".venvs" / "load"
        program.parent.mkdir(exist_ok=True)
        built = subprocess.run([compiler, "-O2", "-o", str(program), str(HERE / "load.c")], check=False)
        if built.returncode == 0:
            return (str(program),)
    return (sys.executable, str(HERE / "load.py"))


class HttpServer:
    """One server under test on a port of its own; a context manager that ends it."""

    def __init__(self, command: Sequence[str], *extra: str, env: Mapping[str, str]) -> None:
        """Spawn the server and wait until its port is open."""
        self.port = _free_port()
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        self._process = subprocess.Popen(
            [*command, str(self.port), *extra],
            stdin=subprocess.DEVNULL,
            stdout=self._stderr,
            stderr=self._stderr,
            env=env,
            cwd="/",
        )
        try:
            self._wait_for_port()
        except BaseException:
            self._end()
            raise

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def url(self) -> str:
        """Where clients find it."""
        return f"http://127.0.0.1:{self.port}/mcp"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def ask(self, request: bytes) -> Answer:
        """Send one raw request on a connection of its own and read the whole answer.

        Raises:
            ServerFailed: There was no answer.
        """
        try:
            with socket.create_connection(("127.0.0.1", self.port), ASK_SECONDS) as wire:
                wire.sendall(request)
                response = http.client.HTTPResponse(wire)
                response.begin()
                headers = {name.lower(): value for name, value in response.getheaders()}
                return Answer(response.status, headers, response.read())
        except (OSError, http.client.HTTPException) as error:
            raise self.failure(f"did not answer ({error!r})") from error

    def load(self, request: bytes, *, connections: int, warm: float, seconds: float) -> Loaded:
        """Load the server with one request over and over, a new id each time.

        Raises:
            ServerFailed: An answer was an error, or none came.
        """
        with tempfile.NamedTemporaryFile() as file:
            file.write(request)
            file.flush()
            numbers = (self.port, connections, warm, seconds, self.pid, MARK)
            command = [*load_driver(), *map(str, numbers), file.name]
            try:
                done = subprocess.run(command, capture_output=True, timeout=warm + seconds + LOAD_SECONDS, check=False)
            except subprocess.TimeoutExpired:
                raise self.failure("was loaded and fell silent") from None
        line, _, raw = done.stdout.partition(b"\n")
        counts = json.loads(line or b'{"problem": "the load driver said nothing"}')
        if "problem" in counts:
            raise self.failure(f"could not be loaded ({counts['problem']})")
        if counts["errors"] or not counts["answers"]:
            raise self.failure(f"gave {counts['errors']} errors, the first one {raw[:300]!r}")
        return Loaded(Spent(counts["answers"], counts["cpu_ns"], counts["wall_ns"]), _parse(raw))

    def failure(self, what: str) -> ServerFailed:
        """Make the error that says what the server did and what it wrote last."""
        self._stderr.seek(0)
        said = complaint(self._stderr.read().decode(errors="replace"))
        return ServerFailed(f"the server {what} (exit status {self._process.poll()}): {said}")

    def _wait_for_port(self) -> None:
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until and self._process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.02)
        raise self.failure("did not open its port")

    def _end(self) -> None:
        # How servers stop is not measured, and one with thousands of streams would take its time. One that has workers
        # is asked first, so that it ends and reaps them.
        processes = process_tree(self.pid) if self._process.poll() is None else []
        if len(processes) > 1:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(END_SECONDS)
        for pid in processes:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        self._stderr.close()


class _Bytes:
    """Bytes that `HTTPResponse` can read like a socket."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    def makefile(self, *_: object) -> io.BytesIO:
        """Give the bytes as a file."""
        return io.BytesIO(self._raw)


def _parse(raw: bytes) -> Answer:
    response = http.client.HTTPResponse(_Bytes(raw))  # type: ignore[arg-type]
    response.begin()
    return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, response.read())


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port

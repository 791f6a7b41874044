"""Drive one stdio server over raw pipes: spawn it, push encoded lines, count the newlines that come back.

The driver must cost little and judge nothing: lines are encoded before the clock starts, answers are only counted,
and one window of answers is kept for `measures` to look into afterwards. Processor time is the scheduler's own
count for the whole process, all threads, those that ended included.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

__all__ = ["ServerFailed", "ServerProcess", "Spent", "complaint", "cpu_ns", "process_tree", "resident_kb"]

READ_SIZE = 1 << 20
STALL_SECONDS = 60.0
EXIT_SECONDS = 5.0


class ServerFailed(Exception):
    """The server under test died, fell silent or answered wrongly."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What a stretch of calls cost: processor time of the server and time on the wall."""

    calls: int
    cpu_ns: int
    wall_ns: int


def complaint(text: str) -> str:
    """Pick the line of an error output that names the cause: the last exception, else the first error, else the end."""
    lines = text.strip().splitlines() or ["no message"]
    exceptions = [line for line in lines if re.match(r"\s*(\w+\.)*\w*Error\b", line)]
    errors = [line for line in lines if line.startswith(("ERROR", "npm error"))]
    return (exceptions[-1:] or errors[:1] or lines[-1:])[0].strip()[:160]


def cpu_ns(pid: int) -> int:
    """Give the processor time of a process in nanoseconds, all its threads, by the scheduler's clock."""
    # Linux numbers the CPU clock of process p as (~p << 3) | 2. It reads the counter that /proc/<pid>/task/*/schedstat
    # shows, plus the threads that already ended.
    return time.clock_gettime_ns((~pid << 3) | 2)


def process_tree(pid: int) -> list[int]:
    """Return the ids of a process and of all that it and they have started."""
    children = [
        int(child)
        for thread in Path(f"/proc/{pid}/task").iterdir()
        for child in (thread / "children").read_text(encoding="ascii").split()
    ]
    return [pid, *(member for child in children for member in process_tree(child))]


def resident_kb(pid: int) -> int:
    """Give the resident memory of a process in kilobytes."""
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as status:
        for line in status:
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
    raise ServerFailed(f"process {pid} shows no resident memory")


class ServerProcess:
    """One server under test; a context manager that ends it."""

    def __init__(self, command: Sequence[str], *, env: Mapping[str, str], cwd: str) -> None:
        """Spawn the server with pipes on its standard input and output."""
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        self.started_ns = time.perf_counter_ns()
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr, bufsize=0, env=env, cwd=cwd
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in = self._process.stdin.fileno()
        self._out = self._process.stdout.fileno()
        os.set_blocking(self._in, False)
        os.set_blocking(self._out, False)
        self._both = select.poll()
        self._both.register(self._in, select.POLLOUT)
        self._both.register(self._out, select.POLLIN)
        self._reading = select.poll()
        self._reading.register(self._out, select.POLLIN)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
        self._stderr.close()

    def exchange(self, data: bytes, answers: int) -> list[bytes]:
        """Write `data` and read until `answers` lines came back; give the chunks read.

        Raises:
            ServerFailed: The server closed its output or said nothing for a minute.
        """
        pending = memoryview(data)
        chunks: list[bytes] = []
        while pending or answers > 0:
            if pending:
                try:
                    pending = pending[os.write(self._in, pending) :]
                except BlockingIOError:
                    pass
                except BrokenPipeError:
                    raise self._failure("closed its input") from None
            waiting = self._both if pending else self._reading
            if answers > 0 and not waiting.poll(STALL_SECONDS * 1000):
                raise self._failure(f"said nothing for {STALL_SECONDS:.0f} s")
            answers -= self._read(chunks)
        return chunks

    def run(self, windows: Sequence[bytes], in_flight: int) -> tuple[Spent, list[bytes]]:
        """Exchange window after window and give what that cost and the answers of the last window."""
        chunks: list[bytes] = []
        cpu = cpu_ns(self.pid)
        wall = time.perf_counter_ns()
        for window in windows:
            chunks = self.exchange(window, in_flight)
        wall = time.perf_counter_ns() - wall
        return Spent(len(windows) * in_flight, cpu_ns(self.pid) - cpu, wall), chunks

    def _read(self, chunks: list[bytes]) -> int:
        try:
            chunk = os.read(self._out, READ_SIZE)
        except BlockingIOError:
            return 0
        if not chunk:
            raise self._failure("closed its output")
        chunks.append(chunk)
        return chunk.count(b"\n")

    def _failure(self, what: str) -> ServerFailed:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        self._stderr.seek(0)
        said = complaint(self._stderr.read().decode(errors="replace"))
        return ServerFailed(f"the server {what} (exit status {self._process.returncode}): {said}")

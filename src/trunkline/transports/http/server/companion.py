"""A process beside the workers that they need, such as the broker of a gateway: started, restarted and stopped.

The supervisor forks it before the workers. It writes ``READY`` to its lifeline, a socket whose other end the supervisor
has, and ends when that end is closed: it never outlives the supervisor. One that ends by itself is started again, later
each time if it lived for a short time only, and given up in the end.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

__all__ = [
    "READY",
    "SHORT_LIFE",
    "START_SECONDS",
    "Companion",
    "CompanionProcess",
    "kill",
    "name_process",
    "restart_delay",
]

log = logging.getLogger("trunkline.http")

#: What a worker writes once it accepts connections, and a companion once it serves.
READY = b"R"
#: A process that lived for less was not worth its start: the next one is delayed, twice as long each time.
SHORT_LIFE, _FIRST_DELAY, _LONGEST_DELAY = 10.0, 0.5, 30.0
#: For a worker or companion to be ready: reading a configuration and binding a socket. What is slow, such as starting
#: servers and entering a lifespan, comes afterwards.
START_SECONDS = 60.0
#: Stopping all servers of a gateway is bounded by its host; see ``host/upstreams/supervision/supervisor.py``.
_STOP_SECONDS = 30.0
#: So many short lives in a row, over half a minute with their delays, are no accident.
_MOST_FAILURES = 7


class Companion(NamedTuple):
    """What a companion does."""

    #: For messages, with its article: ``the broker``.
    name: str
    #: Called in its process, with its end of the lifeline; returns its exit code.
    work: Callable[[socket.socket], int]
    #: Names its process and log lines: ``broker``.
    label: str
    #: Whether the workers are replaced when it has to be started again.
    replaces_workers: bool = False


def restart_delay(failures: int) -> float:
    """Return how long a process is not started again after so many short lives in a row."""
    return min(_LONGEST_DELAY, _FIRST_DELAY * 2 ** (failures - 2)) if failures > 1 else 0.0


def kill(pid: int, number: int) -> None:
    """Send a signal to a process, unless it is gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def name_process(label: str) -> None:
    """Name this new process, such as ``worker 2``: in ``ps``, ``top`` and ``pgrep``, and in its log lines.

    The attribute ``trunkline_process`` of log records has the label; handlers of this package show it. Where the
    program has no handlers at all, it stands in front of the message.
    """
    # Linux lets a program name itself by this file.
    with contextlib.suppress(OSError), open("/proc/self/comm", "w") as file:
        file.write(f"tl-{label.replace(' ', '-')}")
    make = logging.getLogRecordFactory()

    def make_labelled(*given: Any, **named: Any) -> logging.LogRecord:
        record = make(*given, **named)
        record.trunkline_process = label
        return record

    logging.setLogRecordFactory(make_labelled)
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(logging.Formatter(f"{label} (process %(process)d): %(message)s"))


class CompanionProcess:
    """A companion as the supervisor sees it."""

    def __init__(self, companion: Companion, fork: Callable[[Callable[[], int], socket.socket], int]) -> None:
        """Prepare to start it; ``fork`` runs a function in a new process, where it closes a socket first."""
        self._companion = companion
        self._fork = fork
        self.pid: int | None = None
        #: The supervisor's end of the lifeline; readable when the companion is ready, or gone.
        self.lifeline: socket.socket | None = None
        self.ready = False
        #: Whether it has been ready at any time.
        self.served = False
        self._failures = 0
        self._born = 0.0
        #: When it is started again; when it is killed, since it is not ready in time or does not stop.
        self._starts: float | None = None
        self._deadline: float | None = None
        self._stopping = False

    @property
    def name(self) -> str:
        """Its name, for messages."""
        return self._companion.name

    @property
    def label(self) -> str:
        """What names its process and log lines."""
        return self._companion.label

    @property
    def replaces_workers(self) -> bool:
        """Whether the workers are replaced when it has to be started again."""
        return self._companion.replaces_workers

    def times(self) -> Iterator[float]:
        """Yield when there is something to do."""
        for each in (self._starts, self._deadline):
            if each is not None:
                yield each

    def start(self) -> None:
        """Start it."""
        self._starts = None
        self.lifeline, theirs = socket.socketpair()
        self.pid = self._fork(lambda: self._companion.work(theirs), self.lifeline)
        theirs.close()
        self.lifeline.setblocking(False)
        self._born = time.monotonic()
        self._deadline = self._born + START_SECONDS

    def hear(self) -> None:
        """Read from the lifeline; called when it is readable."""
        assert self.lifeline is not None
        with contextlib.suppress(OSError):
            if self.lifeline.recv(16) and not self._stopping:
                self.ready = self.served = True
                self._deadline = None

    def is_due(self, now: float) -> bool:
        """Return whether it must be started now; a process that is late is killed."""
        if self._deadline is not None and self._deadline <= now and self.pid is not None:
            what = "stop" if self._stopping else "start"
            log.error("%s (process %d) did not %s in time and is killed", self.name, self.pid, what)
            kill(self.pid, signal.SIGKILL)
            self._deadline = None
        return self._starts is not None and self._starts <= now

    def reap(self) -> int | None:
        """Return its exit code, once, if it has ended."""
        if self.pid is None:
            return None
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if not pid:
            return None
        self.pid = self._deadline = None
        self.ready = False
        return os.waitstatus_to_exitcode(status)

    def start_later(self, now: float) -> float | None:
        """Start it again after a delay, which is returned; None if it has failed too often."""
        self._failures = self._failures + 1 if now - self._born < SHORT_LIFE else 0
        if self._failures >= _MOST_FAILURES:
            return None
        delay = restart_delay(self._failures)
        self._starts = now + delay
        return delay

    def stop(self) -> None:
        """Send SIGTERM, once; the process is not started again."""
        self._starts = None
        if not self._stopping and self.pid is not None:
            self._deadline = time.monotonic() + _STOP_SECONDS
            kill(self.pid, signal.SIGTERM)
        self._stopping = True

"""The metrics and the health of all workers at one address: a listener in the supervisor, which has no event loop.

``/metrics`` asks the workers for their reports and answers with the sums; ``/readyz`` is true while at least one worker
is ready; ``/healthz`` is that of the supervisor. A worker that does not answer in time counts with its last report.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from functools import partial

from trunkline.errors import ConfigError
from trunkline.telemetry.listener import (
    HEAD_BYTES,
    OPEN_CONNECTIONS,
    REQUEST_SECONDS,
    MetricsPages,
    is_loopback_host,
    parse_metrics_address,
)
from trunkline.telemetry.merged import MergedMetrics
from trunkline.transports.http.server.supervisor import Supervisor

__all__ = ["SupervisorMetrics"]

_REPORT_SECONDS = 2.0  # A worker reports within a turn of its event loop, unless it hangs.
_BACKLOG = 16  # A scraper and a few probes.


class _Request:
    """One connection: its head until it is complete, then its response until it is sent."""

    __slots__ = ("connection", "deadline", "head", "unsent")

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.head = b""
        self.unsent = b""
        self.deadline = time.monotonic() + REQUEST_SECONDS


class SupervisorMetrics:
    """Serves the metrics of the workers of a supervisor."""

    def __init__(self, address: str | int) -> None:
        """Listen on ``[HOST:]PORT``.

        Raises:
            ConfigError: the address cannot be used.
        """
        host, port = parse_metrics_address(address)
        self._merged = MergedMetrics()
        self._pages = MetricsPages(self._merged.text, self._merged.not_ready, loopback=is_loopback_host(host))
        self._supervisor: Supervisor | None = None
        self._open: dict[socket.socket, _Request] = {}
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        except OSError as error:
            raise ConfigError(f"cannot listen on {host}:{port} for metrics: {error.strerror or error}") from error
        self._listener.setblocking(False)
        name = f"[{host}]" if ":" in host else host
        #: The URL of the listener.
        self.url = f"http://{name}:{self._listener.getsockname()[1]}"

    # --- as the reader of reports ------------------------------------------------------------------------------------

    def start(self, supervisor: Supervisor) -> None:
        """Begin to serve."""
        self._supervisor = supervisor
        supervisor.watch(self._listener, selectors.EVENT_READ, self._accept)

    def reported(self, worker: int, report: bytes) -> None:
        """Store the report of a worker."""
        self._merged.reported(worker, report)

    def ended(self, worker: int) -> None:
        """Keep the counts of a worker that has ended."""
        self._merged.ended(worker)

    def close(self) -> None:
        """Close the sockets."""
        self._listener.close()
        for connection in self._open:
            connection.close()
        self._open.clear()

    # --- requests ----------------------------------------------------------------------------------------------------

    def _watch(self, connection: socket.socket, events: int, request: _Request | None = None) -> None:
        assert self._supervisor is not None
        if request is None:
            self._supervisor.watch(connection, 0)
        else:
            handle = self._read if events == selectors.EVENT_READ else self._write
            self._supervisor.watch(connection, events, partial(handle, request))

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        now = time.monotonic()
        for late in [each for each in self._open.values() if each.deadline <= now]:
            self._end(late)
        if len(self._open) >= OPEN_CONNECTIONS:
            connection.close()
            return
        connection.setblocking(False)
        request = self._open[connection] = _Request(connection)
        self._watch(connection, selectors.EVENT_READ, request)

    def _read(self, request: _Request) -> None:
        try:
            data = request.connection.recv(HEAD_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        request.head += data
        if not data or len(request.head) > HEAD_BYTES:
            self._end(request)
        elif b"\r\n\r\n" in request.head:
            # Nothing more is read: the answer may wait for the workers.
            self._watch(request.connection, 0)
            assert self._supervisor is not None
            self._supervisor.ask_workers(_REPORT_SECONDS, partial(self._respond, request))

    def _respond(self, request: _Request) -> None:
        if request.connection in self._open:
            request.unsent = self._pages.response(request.head)
            request.deadline = time.monotonic() + REQUEST_SECONDS
            self._write(request)

    def _write(self, request: _Request) -> None:
        try:
            sent = request.connection.send(request.unsent)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._end(request)
            return
        request.unsent = request.unsent[sent:]
        if request.unsent:
            self._watch(request.connection, selectors.EVENT_WRITE, request)
        else:
            self._end(request)

    def _end(self, request: _Request) -> None:
        if self._open.pop(request.connection, None) is not None:
            self._watch(request.connection, 0)
            with contextlib.suppress(OSError):
                request.connection.shutdown(socket.SHUT_WR)
            request.connection.close()

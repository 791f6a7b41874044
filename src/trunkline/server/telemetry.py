"""The telemetry of a server: its metrics with their listener, its traces, and the request of each log line.

Loaded when one of them is used. A server that another one replaces keeps its metrics.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from socket import socket
from typing import TYPE_CHECKING

from trunkline.server.dispatch import ServerConnection
from trunkline.server.store_metrics import StoreMetrics
from trunkline.server.subscriptions import SubscriptionStream
from trunkline.telemetry.listener import MetricsListener, parse_metrics_address
from trunkline.telemetry.merged import MetricsReporter
from trunkline.telemetry.metrics import MetricsRegistry
from trunkline.telemetry.requests import RequestMetrics, RequestTelemetry
from trunkline.telemetry.tracing import Tracer

if TYPE_CHECKING:
    from trunkline.server.run import Lifespan
    from trunkline.server.server import Server
    from trunkline.transports.http.server.endpoint import Endpoint

__all__ = ["ServerMetrics", "metrics_listener", "move_telemetry", "observe_requests", "telemetry_of"]

log = logging.getLogger("trunkline")


def telemetry_of(server: Server) -> RequestTelemetry:
    """Return the telemetry of a server, created on first use."""
    if server.telemetry is None:
        server.telemetry = RequestTelemetry(
            knows_tool=lambda name: name in server.registry.tools, knows_method=lambda name: name in server.handlers
        )
    return server.telemetry


def observe_requests(server: Server, *, traces: bool, logs: bool) -> None:
    """Record a span for each request, or name the request in log lines, from now on."""
    telemetry = telemetry_of(server)
    if traces and telemetry.tracer is None:
        telemetry.tracer = Tracer()
    telemetry.logs = telemetry.logs or logs


def move_telemetry(old: Server, new: Server) -> None:
    """Observe a server that took over the connections of another in the same way."""
    assert old.telemetry is not None
    telemetry = telemetry_of(new)
    telemetry.tracer, telemetry.logs = old.telemetry.tracer, old.telemetry.logs
    if old.metrics is not None:
        old.metrics.servers.remove(old)
        old.metrics.observe(new)


class ServerMetrics:
    """The metrics of the servers of one process: those of requests, and what is read when they are requested."""

    def __init__(self) -> None:
        """Register the metrics."""
        registry = self.registry = MetricsRegistry()
        self.requests = RequestMetrics(registry)
        #: The servers that are observed, and their HTTP endpoints.
        self.servers: list[Server] = []
        self.endpoints: list[Endpoint] = []
        #: Where they are served.
        self.url = ""
        self._sessions = registry.gauge("trunkline_sessions", "Open sessions of handshake clients.")
        self._streams = registry.gauge(
            "trunkline_open_streams", "Open streams: listen (subscriptions), sse (HTTP responses).", ("kind",)
        )
        self._received = registry.counter("trunkline_received_bytes_total", "Bytes received from clients.")
        self._sent = registry.counter("trunkline_sent_bytes_total", "Bytes sent to clients.")
        self._tasks = registry.gauge("trunkline_tasks", "Tasks that run in this process, by state.", ("state",))
        self._store = StoreMetrics(registry)
        started = registry.gauge(
            "process_start_time_seconds", "When the process began to serve, since the epoch.", merge="min"
        )
        started.set(time.time())
        from trunkline import __version__

        info = registry.gauge("trunkline_build_info", "The version of Trunkline.", ("version",), merge="max")
        info.set(1, (__version__,))
        registry.collect(self._collect)

    def observe(self, server: Server) -> None:
        """Count the requests of a server."""
        telemetry_of(server).metrics = self.requests
        server.metrics = self
        server.draining = False
        self.servers.append(server)

    def received(self, size: int) -> None:
        """Count bytes received from clients."""
        self._received.values[()] += size

    def sent(self, size: int) -> None:
        """Count bytes sent to clients."""
        self._sent.values[()] += size

    def _collect(self) -> None:
        listeners = [each for server in self.servers for each in server.hub.listeners()]
        self._sessions.set(sum(isinstance(each, ServerConnection) and each.session is not None for each in listeners))
        self._streams.set(sum(isinstance(each, SubscriptionStream) for each in listeners), ("listen",))
        self._streams.set(sum(len(each.open_responses.streams) for each in self.endpoints), ("sse",))
        self._store.collect([server.state.opened for server in self.servers if server.has_shared_store])
        states: dict[tuple[str, ...], float] = {}
        for server in self.servers:
            for state in () if server.tasks is None else server.tasks.states():
                states[state,] = states.get((state,), 0) + 1
        self._tasks.replace(states)

    def not_ready(self) -> str | None:
        """Return why the servers are not ready; None if they are."""
        for server in self.servers:
            if server.draining:
                return "the server is stopping"
            for lifespan in (each._lifespan for each in server._all()):
                if lifespan is not None and (reason := _lifespan_fault(lifespan)):
                    return reason
        return None


def _lifespan_fault(lifespan: Lifespan) -> str | None:
    if not lifespan.entered:
        return "the lifespan is not entered yet"
    failed = lifespan.ready is not None and lifespan.ready.exception() is not None
    return "the lifespan failed" if failed else None


@asynccontextmanager
async def metrics_listener(
    servers: Sequence[Server],
    address: str | int | socket,
    *,
    metrics: ServerMetrics | None = None,
) -> AsyncIterator[ServerMetrics]:
    """Serve the metrics and the health of servers while the context is active.

    Their lifespans are entered at once, as ready means that they are; otherwise the first request would enter them. In
    one of several workers ``address`` is the socket on which it reports to its supervisor, which listens.

    Raises:
        ConfigError: the address cannot be used.
    """
    metrics = ServerMetrics() if metrics is None else metrics
    served: MetricsListener | MetricsReporter
    if isinstance(address, socket):
        served = MetricsReporter(metrics.registry, metrics.not_ready, address)
        served.start()
    else:
        served = MetricsListener(metrics.registry, metrics.not_ready)
        await served.start(*parse_metrics_address(address))
        metrics.url = served.url
        log.info("metrics are served at %s/metrics", served.url)
    holder = object()
    try:
        for server in servers:
            metrics.observe(server)
            server.acquire_lifespans(holder)
        yield metrics
    finally:
        await served.aclose()
        for server in tuple(metrics.servers):
            await server.release(holder)

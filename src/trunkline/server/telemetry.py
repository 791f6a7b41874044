"""The telemetry of a server: its metrics with their listener, its traces, and the request of each log line.

Loaded when one of them is used. They belong to a runtime, and stay when its definition is replaced.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from socket import socket
from typing import TYPE_CHECKING

from trunkline.server.dispatch import ServerConnection
from trunkline.server.runtime import has_shared_store
from trunkline.server.store_metrics import StoreMetrics
from trunkline.server.subscriptions import SubscriptionStream
from trunkline.telemetry.listener import MetricsListener, parse_metrics_address
from trunkline.telemetry.merged import MetricsReporter
from trunkline.telemetry.metrics import MetricsRegistry
from trunkline.telemetry.requests import RequestMetrics, RequestTelemetry
from trunkline.telemetry.tracing import Tracer

if TYPE_CHECKING:
    from trunkline.server.lifespan import Lifespan
    from trunkline.server.runtime import ServerRuntime
    from trunkline.transports.http.server.endpoint import Endpoint

__all__ = ["ServerMetrics", "metrics_listener", "observe_requests", "telemetry_of"]

log = logging.getLogger("trunkline")


def telemetry_of(runtime: ServerRuntime) -> RequestTelemetry:
    """Return the telemetry of a runtime, created on first use."""
    if runtime.telemetry is None:
        runtime.telemetry = RequestTelemetry(
            knows_tool=lambda name: name in runtime.definition.registry.tools,
            knows_method=lambda name: name in runtime.table.handlers,
        )
    return runtime.telemetry


def observe_requests(runtime: ServerRuntime, *, traces: bool, logs: bool) -> None:
    """Record a span for each request, or name the request in log lines, from now on."""
    telemetry = telemetry_of(runtime)
    if traces and telemetry.tracer is None:
        telemetry.tracer = Tracer()
    telemetry.logs = telemetry.logs or logs


class ServerMetrics:
    """The metrics of the servers of one process: those of requests, and what is read when they are requested."""

    def __init__(self) -> None:
        """Register the metrics."""
        registry = self.registry = MetricsRegistry()
        self.requests = RequestMetrics(registry)
        #: The runtimes that are observed, and their HTTP endpoints.
        self.runtimes: list[ServerRuntime] = []
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

    def observe(self, runtime: ServerRuntime) -> None:
        """Count the requests of a server."""
        telemetry_of(runtime).metrics = self.requests
        runtime.metrics = self
        runtime.draining = False
        self.runtimes.append(runtime)

    def received(self, size: int) -> None:
        """Count bytes received from clients."""
        self._received.values[()] += size

    def sent(self, size: int) -> None:
        """Count bytes sent to clients."""
        self._sent.values[()] += size

    def _collect(self) -> None:
        listeners = [listener for runtime in self.runtimes for listener in runtime.hub.listeners()]
        self._sessions.set(sum(isinstance(each, ServerConnection) and each.session is not None for each in listeners))
        self._streams.set(sum(isinstance(each, SubscriptionStream) for each in listeners), ("listen",))
        self._streams.set(sum(len(each.open_responses.streams) for each in self.endpoints), ("sse",))
        self._store.collect([runtime.state.opened for runtime in self.runtimes if has_shared_store(runtime.definition)])
        states: dict[tuple[str, ...], float] = {}
        for runtime in self.runtimes:
            for state in () if runtime.tasks is None else runtime.tasks.states():
                states[state,] = states.get((state,), 0) + 1
        self._tasks.replace(states)

    def not_ready(self) -> str | None:
        """Return why the servers are not ready; None if they are."""
        for runtime in self.runtimes:
            if runtime.draining:
                return "the server is stopping"
            for lifespan in runtime.lifespans():
                if reason := _lifespan_fault(lifespan):
                    return reason
        return None


def _lifespan_fault(lifespan: Lifespan) -> str | None:
    if not lifespan.entered:
        return "the lifespan is not entered yet"
    failed = lifespan.ready is not None and lifespan.ready.exception() is not None
    return "the lifespan failed" if failed else None


@asynccontextmanager
async def metrics_listener(
    runtimes: Sequence[ServerRuntime],
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
        for runtime in runtimes:
            metrics.observe(runtime)
            runtime.hold(holder)
        yield metrics
    finally:
        await served.aclose()
        for runtime in tuple(metrics.runtimes):
            await runtime.held.release(holder)

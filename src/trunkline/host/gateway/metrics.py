"""The metrics of a gateway: those of any server, and those of each server behind it.

Calls are counted where they are tracked; state, restarts and queues are read when the metrics are requested. The label
is the name of the server in the configuration, never what the server says about itself.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from socket import socket
from typing import TYPE_CHECKING

from trunkline.host.core import HostCore
from trunkline.server.runtime import runtime_for
from trunkline.server.telemetry import ServerMetrics, metrics_listener

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from trunkline.host.gateway.gateway import Gateway
    from trunkline.telemetry.metrics import Counter, Histogram

__all__ = ["GatewayMetrics", "gateway_metrics"]

_now = time.perf_counter


class _MeasuredCall:
    """Context manager that counts one call of a server, around the one that tracks it."""

    __slots__ = ("_began", "_calls", "_inner", "_seconds", "_server")

    def __init__(self, server: str, inner: AbstractContextManager[None], calls: Counter, seconds: Histogram) -> None:
        self._server = server
        self._inner = inner
        self._calls = calls
        self._seconds = seconds

    def __enter__(self) -> None:
        self._began = _now()
        self._inner.__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        outcome = "ok" if error is None else "error" if isinstance(error, Exception) else "cancelled"
        self._calls.add((self._server, outcome))
        self._seconds.observe(_now() - self._began, (self._server,))
        self._inner.__exit__(kind, error, trace)  # type: ignore[arg-type]


class GatewayMetrics(ServerMetrics):
    """The metrics of the gateways of one host."""

    def __init__(self, core: HostCore) -> None:
        """Register the metrics, and count calls from now on."""
        super().__init__()
        self._core = core
        self._listed = False
        registry = self.registry
        self._state = registry.gauge(
            "trunkline_upstream_state", "1 for the state that a server is in.", ("server", "state"), merge="max"
        )
        self._restarts = registry.counter(
            "trunkline_upstream_restarts_total", "How often a server was started again.", ("server",), merge="max"
        )
        self._calls = registry.counter(
            "trunkline_upstream_calls_total", "Requests sent to a server, by outcome.", ("server", "outcome")
        )
        self._seconds = registry.histogram(
            "trunkline_upstream_call_duration_seconds", "Seconds of a request to a server.", ("server",)
        )
        self._active = registry.gauge(
            "trunkline_upstream_calls_in_flight", "Requests in progress at a server.", ("server",)
        )
        self._queue = registry.gauge("trunkline_upstream_queue", "Calls that wait for a slot of a server.", ("server",))
        self._tools = registry.gauge(
            "trunkline_upstream_tools", "Tools that a server offers.", ("server",), merge="max"
        )
        registry.collect(self._collect_upstreams)
        core.supervisor.measure_calls(self)

    def track(self, server: str, inner: AbstractContextManager[None]) -> AbstractContextManager[None]:
        """Return a context manager that measures a call, and tracks it as before."""
        return _MeasuredCall(server, inner, self._calls, self._seconds)

    def _collect_upstreams(self) -> None:
        upstreams, core = self._core.supervisor.upstreams, self._core
        # A server that was removed from the configuration is no longer shown; its calls stay counted.
        self._state.replace({(name, each.state): 1 for name, each in upstreams.items()})
        self._restarts.values = {(name,): each.restarts for name, each in upstreams.items()}
        self._active.replace({(name,): each.active_calls for name, each in upstreams.items()})
        self._queue.replace({(name,): core.router.queued(each) for name, each in upstreams.items()})
        self._tools.replace(
            {(name,): 0 if each.offering is None else len(each.offering.tools) for name, each in upstreams.items()}
        )

    def not_ready(self) -> str | None:
        """Return why the gateway is not ready: it is once its servers are listed, and until it stops.

        A server that restarts later does not count: the others are served meanwhile.
        """
        self._listed = self._listed or self._core.supervisor.is_settled
        return super().not_ready() if self._listed else "servers are still starting"


@asynccontextmanager
async def gateway_metrics(
    core: HostCore, gateways: Sequence[Gateway], address: str | int | socket
) -> AsyncIterator[GatewayMetrics]:
    """Serve the metrics and the health of gateways while the context is active.

    Raises:
        ConfigError: the address cannot be used.
    """
    metrics = GatewayMetrics(core)
    try:
        runtimes = [runtime_for(gateway) for gateway in gateways]
        async with metrics_listener(runtimes, address, metrics=metrics):
            yield metrics
    finally:
        core.supervisor.measure_calls(None)

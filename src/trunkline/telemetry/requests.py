"""The telemetry of the requests that a server serves: metrics, spans, and the request that log lines belong to.

A server without telemetry pays one attribute check for each request. Labels are methods that the server serves, tools
that it offers, outcomes and eras; principals, arguments and names that a caller made up are never among them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol

from trunkline.errors import MissingCapability, RequestFailed
from trunkline.protocol.methods import METHODS
from trunkline.protocol.trace_context import trace_members
from trunkline.telemetry.metrics import OTHER, LabelLimit, MetricsRegistry
from trunkline.telemetry.tracing import RequestSpan, Tracer

__all__ = ["CURRENT_REQUEST", "CurrentRequest", "RequestMetrics", "RequestTelemetry", "ServedRequest", "error_code"]


class CurrentRequest(NamedTuple):
    """The request that the current code serves, for log lines."""

    id: str
    method: str
    #: From the trace context that the request carried.
    trace_id: str | None


CURRENT_REQUEST: ContextVar[CurrentRequest | None] = ContextVar("trunkline.current_request", default=None)

_MOST_TOOLS = 100  # Each is 20 series; a page of a dashboard shows no more than a dozen.
_MOST_METHODS = 50  # Those of the protocol do not count: custom methods of a server.
_MOST_CODES = 30  # JSON-RPC and MCP define about a dozen; tools of a server add few.
_PROTOCOL_METHODS = frozenset(row.name for row in METHODS)
_now = time.perf_counter


class ServedRequest(Protocol):
    """A validated request that is being served."""

    id: Any
    method: str
    params: Any
    admitted: Any


class RequestMetrics:
    """The metrics of the requests of one process."""

    def __init__(self, registry: MetricsRegistry) -> None:
        """Register the metrics."""
        self.registry = registry
        self._requests = registry.counter(
            "trunkline_requests_total", "Requests served, by method, outcome and era.", ("method", "outcome", "era")
        )
        self._seconds = registry.histogram(
            "trunkline_request_duration_seconds", "Seconds from the start of a request to its result.", ("method",)
        )
        self._in_flight = registry.gauge("trunkline_requests_in_flight", "Requests being served, without streams.")
        self._tools = registry.counter(
            "trunkline_tool_calls_total", "Calls by tool and outcome; tools beyond 100 are other.", ("tool", "outcome")
        )
        self._tool_seconds = registry.histogram(
            "trunkline_tool_call_duration_seconds", "Seconds of a call, by tool.", ("tool",)
        )
        self._errors = registry.counter("trunkline_errors_total", "Error responses, by JSON-RPC code.", ("code",))
        self._asked = registry.counter(
            "trunkline_client_requests_total", "Requests to clients, such as elicitations.", ("method",)
        )
        self._pending = registry.gauge(
            "trunkline_client_requests_pending", "Requests to clients that wait for an answer.", ("method",)
        )
        self._tool_label = LabelLimit(_MOST_TOOLS)
        self._method_label = LabelLimit(_MOST_METHODS)
        self._code_label = LabelLimit(_MOST_CODES)

    def began(self) -> None:
        """Count a request in flight."""
        self._in_flight.values[()] += 1

    def ended(self) -> None:
        """Count a request less in flight."""
        self._in_flight.values[()] -= 1

    def finished(self, method: str, outcome: str, era: str, seconds: float | None) -> None:
        """Count a request; ``seconds`` is None for a stream, which lasts as long as its client wants."""
        if method not in _PROTOCOL_METHODS:
            method = self._method_label(method)
        self._requests.add((method, outcome, era))
        if seconds is not None:
            self._seconds.observe(seconds, (method,))

    def called(self, tool: str | None, outcome: str, seconds: float) -> None:
        """Count a call of a tool; None stands for a tool that does not exist."""
        label = OTHER if tool is None else self._tool_label(tool)
        self._tools.add((label, outcome))
        self._tool_seconds.observe(seconds, (label,))

    def failed(self, code: int) -> None:
        """Count an error response."""
        self._errors.add((self._code_label(str(code)),))

    def rejected(self, method: str | None, code: int) -> None:
        """Count a request that was not valid; None stands for a method that is not served."""
        self._requests.add((OTHER if method is None else self._method(method), "rejected", "unknown"))
        self.failed(code)

    def _method(self, method: str) -> str:
        return method if method in _PROTOCOL_METHODS else self._method_label(method)

    def asked(self, method: str) -> None:
        """Count a request to a client."""
        self._asked.add((method,))

    @contextmanager
    def asking(self, method: str) -> Iterator[None]:
        """Count a request to a client, and that it is pending until the block ends."""
        self._asked.add((method,))
        self._pending.add((method,))
        try:
            yield
        finally:
            self._pending.add((method,), -1)


class RequestTelemetry:
    """Observes the requests of one server: each part is None or False if it is not used."""

    def __init__(
        self,
        *,
        metrics: RequestMetrics | None = None,
        tracer: Tracer | None = None,
        logs: bool = False,
        knows_tool: Callable[[str], bool] = lambda name: True,
        knows_method: Callable[[str], bool] = lambda name: True,
    ) -> None:
        """Observe with these parts; the functions tell names of the server from those that a caller made up."""
        self.metrics = metrics
        self.tracer = tracer
        self.logs = logs
        self._knows_tool = knows_tool
        self._knows_method = knows_method

    def rejected(self, method: str, code: int) -> None:
        """Called when a request is answered with an error before it is served."""
        if self.metrics is not None:
            self.metrics.rejected(method if self._knows_method(method) else None, code)

    async def serve(self, request: ServedRequest, dispatch: Callable[[Any, Any], Awaitable[Any]], server: Any) -> Any:
        """Serve a request by ``dispatch(server, request)``, observed."""
        metrics = self.metrics
        token = CURRENT_REQUEST.set(_current(request)) if self.logs else None
        span = None if self.tracer is None else self.tracer.start_served(request)
        stream = request.admitted.row.stream
        began, outcome, code = _now(), "cancelled", None
        if metrics is not None and not stream:
            metrics.began()
        try:
            result = await dispatch(server, request)
            outcome = _outcome(result)
            return result
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            outcome, code = "error", error_code(error)
            if span is not None:
                span.failed(error, code)
            raise
        finally:
            if metrics is not None:
                self._count(metrics, request, outcome, code, None if stream else _now() - began)
            if span is not None:
                _end(span, outcome)
            if token is not None:
                CURRENT_REQUEST.reset(token)

    def _count(
        self, metrics: RequestMetrics, request: ServedRequest, outcome: str, code: int | None, seconds: float | None
    ) -> None:
        method = request.method
        metrics.finished(
            method, outcome, "handshake" if request.admitted.caller.revision.handshake else "stateless", seconds
        )
        if seconds is not None:
            metrics.ended()
            if method == "tools/call":
                name = request.admitted.params.name
                metrics.called(name if self._knows_tool(name) else None, outcome, seconds)
        if code is not None:
            metrics.failed(code)


def _current(request: ServedRequest) -> CurrentRequest:
    parts = trace_members(request.params).get("traceparent", "").split("-")
    return CurrentRequest(str(request.id), request.method, parts[1] if len(parts) > 1 and len(parts[1]) == 32 else None)


def _end(span: RequestSpan, outcome: str) -> None:
    if outcome == "tool_error":
        span.tool_failed()
    span.end()


def _outcome(result: Any) -> str:
    if getattr(result, "is_error", False):
        return "tool_error"
    if getattr(result, "result_type", None) == "input_required":
        return "input_required"
    if isinstance(result, dict):
        if result.get("isError") is True:
            return "tool_error"
        if result.get("resultType") == "input_required":
            return "input_required"
    return "ok"


def error_code(error: BaseException) -> int:
    """Return the code of the error response that an exception of a handler becomes."""
    if isinstance(error, RequestFailed):
        return error.code
    return -32021 if isinstance(error, MissingCapability) else -32603

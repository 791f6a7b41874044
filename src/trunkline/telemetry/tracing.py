"""OpenTelemetry spans for requests, and W3C trace context in ``_meta`` (SEP-414).

OpenTelemetry is used if the program has loaded it, and never imported otherwise. Without its SDK no span is recorded,
but trace context still passes from a request that is served to the requests that it causes. Names and attributes
follow the semantic conventions for MCP, which are in development.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from trunkline.protocol.trace_context import TRACE_KEYS, trace_members

if TYPE_CHECKING:
    from trunkline.telemetry.requests import ServedRequest

__all__ = ["RequestSpan", "Tracer"]

#: The methods whose params name what is used, with the attribute of the name.
_TARGETS: Mapping[str, str] = MappingProxyType({"tools/call": "gen_ai.tool.name", "prompts/get": "gen_ai.prompt.name"})
_TRANSPORTS: Mapping[str, str] = MappingProxyType({"stdio": "pipe", "http": "tcp"})


class RequestSpan:
    """The span of one request; it is the current one until ``end``."""

    __slots__ = ("_api", "_span", "_token")

    def __init__(self, api: Any, span: Any) -> None:
        """Make a span the current one."""
        self._api = api
        self._span = span
        self._token = api.context.attach(api.trace.set_span_in_context(span))

    def carrier(self) -> dict[str, str]:
        """Return the members of ``_meta`` that continue this trace."""
        carrier: dict[str, str] = {}
        self._api.propagate.inject(carrier)
        return {key: value for key, value in carrier.items() if key in TRACE_KEYS}

    def failed(self, error: BaseException, code: int | None = None) -> None:
        """Record that the request failed; the message may hold arguments, so only its kind is recorded."""
        kind = type(error).__name__ if code is None else str(code)
        self._span.set_attribute("error.type", kind)
        if code is not None:
            self._span.set_attribute("rpc.response.status_code", str(code))
        self._span.set_status(self._api.trace.Status(self._api.trace.StatusCode.ERROR))

    def tool_failed(self) -> None:
        """Record that a tool reported an error."""
        self._span.set_attribute("error.type", "tool_error")
        self._span.set_status(self._api.trace.Status(self._api.trace.StatusCode.ERROR))

    def end(self) -> None:
        """End the span."""
        self._api.context.detach(self._token)
        self._span.end()


class Tracer:
    """Starts the spans of requests."""

    def __init__(self) -> None:
        """Use the OpenTelemetry that the program has loaded."""
        from opentelemetry import context, propagate, trace

        from trunkline import __version__

        self.context = context
        self.propagate = propagate
        self.trace = trace
        self._tracer = trace.get_tracer("trunkline", __version__)

    def start_served(self, request: ServedRequest) -> RequestSpan:
        """Start the span of a request that is served.

        Its parent is the context in ``_meta``; the current span, such as that of the HTTP request, is linked then.
        """
        caller = request.admitted.caller
        current = self.trace.get_current_span().get_span_context()
        members = trace_members(request.params)
        parent = self.propagate.extract(members) if members else None
        links = [self.trace.Link(current)] if parent is not None and current.is_valid else []
        attributes = _attributes(request.method, request.admitted.params, caller.revision.name)
        attributes["jsonrpc.request.id"] = str(request.id)
        if (transport := _TRANSPORTS.get(caller.origin.transport)) is not None:
            attributes["network.transport"] = transport
        span = self._tracer.start_span(
            _name(request.method, attributes),
            context=parent,
            kind=self.trace.SpanKind.SERVER,
            attributes=attributes,
            links=links,
        )
        return RequestSpan(self, span)

    def start_sent(self, method: str, params: Any, revision: str) -> RequestSpan:
        """Start the span of a request that is sent."""
        attributes = _attributes(method, params, revision)
        span = self._tracer.start_span(
            _name(method, attributes), kind=self.trace.SpanKind.CLIENT, attributes=attributes
        )
        return RequestSpan(self, span)


def _name(method: str, attributes: Mapping[str, str]) -> str:
    """Return the name of a span: the method, and the tool or prompt."""
    key = _TARGETS.get(method)
    return f"{method} {attributes[key]}" if key is not None and key in attributes else method


def _attributes(method: str, params: Any, revision: str) -> dict[str, str]:
    attributes = {"mcp.method.name": method, "mcp.protocol.version": revision}
    if method == "tools/call":
        attributes["gen_ai.operation.name"] = "execute_tool"
    key = _TARGETS.get(method)
    name = getattr(params, "name", None) if key is not None else None
    if key is not None and isinstance(name, str):
        attributes[key] = name
    if method == "resources/read" and isinstance(uri := getattr(params, "uri", None), str):
        attributes["mcp.resource.uri"] = uri
    return attributes

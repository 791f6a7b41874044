"""OpenTelemetry spans of FastMCP servers: one for each request, and one for each hop to a mounted server.

A program that records spans has imported OpenTelemetry; where none has, nothing is imported and nothing happens.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

from trunkline.compat.exceptions import ToolError
from trunkline.compat.utilities import settings

__all__ = [
    "INSTRUMENTATION_NAME",
    "TRACE_PARENT_KEY",
    "TRACE_STATE_KEY",
    "delegate_span",
    "get_tracer",
    "inject_trace_context",
    "note_component",
    "server_span",
]

INSTRUMENTATION_NAME = "fastmcp"
TRACE_PARENT_KEY = "traceparent"
TRACE_STATE_KEY = "tracestate"

#: By the beginning of a component's key: what spans call it.
_TYPES: Mapping[str, str] = MappingProxyType({"template": "resource_template"})
_NAMES = MappingProxyType({"tools/call": "gen_ai.tool.name", "prompts/get": "gen_ai.prompt.name"})
_LISTED = MappingProxyType(
    {
        "tools/list": "tool",
        "resources/list": "resource",
        "resources/templates/list": "resource_template",
        "prompts/list": "prompt",
    }
)
#: The span of the request being served.
_SPAN: ContextVar[Any] = ContextVar("trunkline.compat.span", default=None)


def get_tracer(version: str | None = None) -> Any:
    """Return the tracer, or None if no exporter is set up or spans are switched off."""
    if "opentelemetry.trace" not in sys.modules or settings.telemetry_mode == "off":
        return None
    from opentelemetry import trace

    return trace.get_tracer(INSTRUMENTATION_NAME, version)


@contextmanager
def server_span(server: Any, method: str, name: str = "") -> Iterator[None]:
    """Record a span around a request that a server answers."""
    tracer = get_tracer()
    if tracer is None:
        yield
        return
    from opentelemetry.trace import SpanKind

    given: dict[str, Any] = {"mcp.method.name": method, "fastmcp.server.name": server.name, **_caller()}
    if method in _NAMES:
        given[_NAMES[method]] = name
    elif method == "resources/read":
        given["mcp.resource.uri"] = name
    if method in _LISTED:
        given["fastmcp.component.type"] = _LISTED[method]
    # A URI has too many values to be part of a name.
    title = f"{method} {name}" if method in _NAMES else method
    with _recorded(tracer, title, SpanKind.SERVER, given, _parent()):
        yield


@contextmanager
def delegate_span(name: str, method: str, provider: str = "FastMCPProvider") -> Iterator[None]:
    """Record a span around a request that a provider hands on."""
    tracer = get_tracer()
    if tracer is None:
        yield
        return
    from opentelemetry.trace import SpanKind

    given = {"mcp.method.name": method, "fastmcp.provider.type": provider, "fastmcp.component.key": name}
    with _recorded(tracer, f"delegate {name}", SpanKind.INTERNAL, given, None):
        yield


@contextmanager
def _recorded(tracer: Any, name: str, kind: Any, attributes: Mapping[str, Any], parent: Any) -> Iterator[None]:
    from opentelemetry.trace import Status, StatusCode

    with tracer.start_as_current_span(
        name, context=parent, kind=kind, attributes=attributes, record_exception=False, set_status_on_exception=False
    ) as span:
        token = _SPAN.set(span)
        try:
            yield
        except Exception as error:
            span.record_exception(error)
            span.set_attribute("error.type", "tool_error" if isinstance(error, ToolError) else type(error).__name__)
            span.set_status(Status(StatusCode.ERROR, str(error)))
            raise
        finally:
            _SPAN.reset(token)


def note_component(component: Any) -> None:
    """Record in the span of the request which component answers it."""
    span = _SPAN.get()
    if span is None:
        return
    key = str(component.key)
    kind = key.partition(":")[0]
    span.set_attribute("fastmcp.component.key", key)
    span.set_attribute("fastmcp.component.type", _TYPES.get(kind, kind))


def _caller() -> dict[str, Any]:
    """Return what spans say about the caller of the request being served."""
    from trunkline.compat import dependencies
    from trunkline.compat.context import current_context

    found: dict[str, Any] = {}
    context = current_context()
    exchange = None if context is None else context._exchange
    if exchange is not None:
        found["mcp.protocol.version"] = str(exchange.admitted.caller.revision.name)
    token = dependencies.get_access_token()
    if token is not None:
        found["enduser.id"] = token.client_id
        if token.scopes:
            found["enduser.scope"] = " ".join(token.scopes)
    return found


def _parent() -> Any:
    """Return the span of the client that the request names, unless there is one in this process."""
    from opentelemetry import propagate, trace

    from trunkline.compat.context import current_context

    if trace.get_current_span().get_span_context().is_valid:
        return None
    context = current_context()
    meta = None if context is None or context._exchange is None else context.meta
    if not meta:
        return None
    carrier = {key: meta[key] for key in (TRACE_PARENT_KEY, TRACE_STATE_KEY) if key in meta}
    return propagate.extract(carrier) if carrier else None


def inject_trace_context(meta: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
    """Return ``_meta`` of a request with the current span in it."""
    if get_tracer() is None:
        return None if meta is None else dict(meta)
    from opentelemetry import propagate

    carrier: dict[str, Any] = {}
    propagate.inject(carrier)
    return {**(meta or {}), **carrier} if meta or carrier else None

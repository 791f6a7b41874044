"""A session whose requests are spans of OpenTelemetry, and carry their trace context in ``_meta``.

Used where the program has loaded OpenTelemetry when the client connects.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from trunkline.client.options import CallOptions, ClientSettings
from trunkline.client.session import ClientSession, SessionOwner
from trunkline.errors import RequestFailed
from trunkline.telemetry.tracing import RequestSpan, Tracer
from trunkline.timers import Timers
from trunkline.transports.link import Link

__all__ = ["TracedSession"]


class TracedSession(ClientSession):
    """A session with a server, traced."""

    def __init__(self, link: Link, owner: SessionOwner, *, settings: ClientSettings, timers: Timers) -> None:
        """Create the connection, as for any session."""
        self._tracer = Tracer()
        super().__init__(link, owner, settings=settings, timers=timers)

    @contextmanager
    def _span(self, method: str, params: Any) -> Iterator[RequestSpan]:
        span = self._tracer.start_sent(method, params, self.revision.name)
        try:
            yield span
        except BaseException as error:
            span.failed(error, error.code if isinstance(error, RequestFailed) else None)
            raise
        finally:
            span.end()

    async def call(self, method: str, params: Any, options: CallOptions) -> tuple[Any, bool]:
        """Send a request as a span; all its rounds belong to it."""
        with self._span(method, params) as span:
            result, several = await super().call(method, params, _with_context(options, span))
            _mark(span, result)
            return result, several

    async def forward(self, method: str, params: Any, options: CallOptions) -> tuple[Any, Raw]:
        """Forward a request of another caller as a span of the trace that it belongs to."""
        with self._span(method, params) as span:
            meta = {**(options.meta or {}), **span.carrier()}
            result, raw = await super().forward(method, params, replace(options, meta=meta or None))
            _mark(span, result)
            return result, raw

    async def request(self, method: str, params: dict[str, Any], options: CallOptions) -> Raw:
        """Send a request with params of the caller's choice as a span."""
        with self._span(method, params) as span:
            return await super().request(method, params, _with_context(options, span))


def _with_context(options: CallOptions, span: RequestSpan) -> CallOptions:
    """Add the context of a span to ``_meta``, unless the caller has set one of its own."""
    meta = options.meta or {}
    return options if "traceparent" in meta else replace(options, meta={**meta, **span.carrier()} or None)


def _mark(span: RequestSpan, result: Any) -> None:
    if getattr(result, "is_error", False):
        span.tool_failed()

"""A session whose requests are spans of OpenTelemetry, and carry their trace context in ``_meta``.

Used where the program has loaded OpenTelemetry when the client connects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from msgspec import Raw

from trunkline.client.options import ClientSettings
from trunkline.client.session import ClientSession, SessionOwner
from trunkline.connection import Timeouts
from trunkline.errors import RequestFailed
from trunkline.telemetry.tracing import RequestSpan, Tracer
from trunkline.timers import Timers
from trunkline.transports.link import Link
from trunkline.types import ProgressNotificationParams

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

    async def call(
        self,
        method: str,
        params: Any,
        *,
        timeouts: Timeouts,
        on_progress: Callable[[ProgressNotificationParams], None] | None = None,
        meta: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[Any, bool]:
        """Send a request as a span; all its rounds belong to it."""
        with self._span(method, params) as span:
            meta = _with_context(meta or {}, span)
            result, several = await super().call(
                method, params, timeouts=timeouts, on_progress=on_progress, meta=meta or None, headers=headers
            )
            _mark(span, result)
            return result, several

    async def forward(
        self,
        method: str,
        params: Any,
        *,
        timeouts: Timeouts,
        on_progress: Callable[[ProgressNotificationParams], None] | None = None,
        meta: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[Any, Raw]:
        """Forward a request of another caller as a span of the trace that it belongs to."""
        with self._span(method, params) as span:
            meta = {**(meta or {}), **span.carrier()}
            result, raw = await super().forward(
                method, params, timeouts=timeouts, on_progress=on_progress, meta=meta or None, headers=headers
            )
            _mark(span, result)
            return result, raw

    async def request(
        self,
        method: str,
        params: dict[str, Any],
        *,
        timeouts: Timeouts,
        on_progress: Callable[[ProgressNotificationParams], None] | None = None,
    ) -> Raw:
        """Send a request with params of the caller's choice as a span."""
        with self._span(method, params) as span:
            if meta := _with_context(params.get("_meta") or {}, span):
                params = {**params, "_meta": meta}
            return await super().request(method, params, timeouts=timeouts, on_progress=on_progress)


def _with_context(meta: Mapping[str, Any], span: RequestSpan) -> dict[str, Any]:
    """Add the context of a span to ``_meta``, unless the caller has set one of its own."""
    return dict(meta) if "traceparent" in meta else {**meta, **span.carrier()}


def _mark(span: RequestSpan, result: Any) -> None:
    if getattr(result, "is_error", False):
        span.tool_failed()

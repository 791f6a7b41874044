"""FastMCP's middleware: classes with a hook for each kind of message, and the ones that come with it."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from trunkline.compat.context import current_context
from trunkline.compat.exceptions import McpError, NotFoundError
from trunkline.compat.types import to_plain

__all__ = [
    "CallNext",
    "DetailedTimingMiddleware",
    "ErrorHandlingMiddleware",
    "GenericCallNext",
    "LoggingMiddleware",
    "Middleware",
    "MiddlewareContext",
    "RateLimitError",
    "RateLimitingMiddleware",
    "RetryMiddleware",
    "SlidingWindowRateLimitingMiddleware",
    "StructuredLoggingMiddleware",
    "TimingMiddleware",
    "run_middleware",
]

T = TypeVar("T")
CallNext = Callable[..., Any]


class GenericCallNext:
    """The next step, for annotations with type parameters."""

    @classmethod
    def __class_getitem__(cls, _: object) -> Any:
        """Ignore type parameters."""
        return cls


@dataclass(kw_only=True, frozen=True)
class MiddlewareContext(Generic[T]):
    """A message on its way through the middleware."""

    message: T
    fastmcp_context: Any = None
    source: str = "client"
    type: str = "request"
    method: str | None = None
    timestamp: datetime = field(default_factory=lambda: datetime.now(UTC))

    @classmethod
    def of(cls, server: Any, message: Any, method: str) -> MiddlewareContext[Any]:
        """Make one for the request being served."""
        context = current_context() or server._context_class(server, None)
        return MiddlewareContext(message=message, fastmcp_context=context, method=method)

    def copy(self, **changes: Any) -> MiddlewareContext[T]:
        """Return a changed copy."""
        return replace(self, **changes)


class Middleware:
    """Something around messages: override a hook, and call ``call_next``."""

    async def __call__(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Run the hooks that apply, the most general outermost."""
        chain: Any = call_next
        for hook in reversed(self._hooks(context)):
            chain = partial(hook, call_next=chain)
        return await chain(context)

    def _hooks(self, context: MiddlewareContext[Any]) -> list[Any]:
        special = _HOOKS.get(context.method or "")
        general = self.on_request if context.type == "request" else self.on_notification
        hooks: list[Any] = [self.on_message, general]
        return [*hooks, getattr(self, special)] if special else hooks

    async def on_message(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Handle any message."""
        return await call_next(context)

    async def on_request(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Handle any request."""
        return await call_next(context)

    async def on_notification(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Handle any notification."""
        return await call_next(context)

    async def on_initialize(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Handle the handshake."""
        return await call_next(context)

    async def on_call_tool(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Handle a call of a tool."""
        return await call_next(context)

    async def on_read_resource(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Handle the reading of a resource."""
        return await call_next(context)

    async def on_get_prompt(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Handle the rendering of a prompt."""
        return await call_next(context)

    async def on_list_tools(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Handle the list of tools."""
        return await call_next(context)

    async def on_list_resources(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Handle the list of resources."""
        return await call_next(context)

    async def on_list_resource_templates(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Handle the list of templates."""
        return await call_next(context)

    async def on_list_prompts(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Handle the list of prompts."""
        return await call_next(context)

    async def on_discover(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Handle the question what the server can do."""
        return await call_next(context)


_HOOKS = MappingProxyType(
    {
        "initialize": "on_initialize",
        "server/discover": "on_discover",
        "tools/call": "on_call_tool",
        "tools/list": "on_list_tools",
        "resources/read": "on_read_resource",
        "resources/list": "on_list_resources",
        "resources/templates/list": "on_list_resource_templates",
        "prompts/get": "on_get_prompt",
        "prompts/list": "on_list_prompts",
    }
)


async def run_middleware(middleware: Sequence[Any], context: Any, last: CallNext) -> Any:
    """Run a chain of middleware around a last step, the first given outermost."""
    chain: Any = last
    for each in reversed(middleware):
        chain = partial(_call, each, inner=chain)
    return await chain(context)


async def _call(middleware: Any, context: Any, *, inner: CallNext) -> Any:
    return await middleware(context, inner)


# --- what comes with FastMCP -----------------------------------------------------------------------------------------


class _Logging(Middleware):
    def __init__(
        self,
        *,
        logger: logging.Logger | None = None,
        log_level: int = logging.INFO,
        include_payloads: bool = False,
        include_payload_length: bool = False,
        max_payload_length: int = 1000,
        methods: list[str] | None = None,
        **_: Any,
    ) -> None:
        self.logger = logger or logging.getLogger("fastmcp.middleware")
        self.log_level = log_level
        self.include_payloads = include_payloads
        self.include_payload_length = include_payload_length
        self.max_payload_length = max_payload_length
        self.methods = methods

    def _line(self, event: dict[str, Any]) -> str:
        return " ".join(f"{name}={value}" for name, value in event.items())

    async def on_message(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Log the message, and how it ended."""
        if self.methods is not None and context.method not in self.methods:
            return await call_next(context)
        about = {"method": context.method or "unknown", "source": context.source}
        more: dict[str, Any] = {}
        if self.include_payloads or self.include_payload_length:
            text = json.dumps(to_plain(context.message), default=str)
            more = {"payload_length": len(text)} if self.include_payload_length else {}
            if self.include_payloads:
                more["payload"] = text[: self.max_payload_length]
        self.logger.log(self.log_level, self._line({"event": f"{context.type}_start", **about, **more}))
        started = time.perf_counter()
        try:
            result = await call_next(context)
        except Exception as error:
            took = round((time.perf_counter() - started) * 1000, 2)
            event = {"event": f"{context.type}_error", **about, "duration_ms": took, "error": str(error)}
            self.logger.error(self._line(event))
            raise
        took = round((time.perf_counter() - started) * 1000, 2)
        self.logger.log(self.log_level, self._line({"event": f"{context.type}_success", **about, "duration_ms": took}))
        return result


class LoggingMiddleware(_Logging):
    """Logs each message as text."""


class StructuredLoggingMiddleware(_Logging):
    """Logs each message as JSON."""

    def _line(self, event: dict[str, Any]) -> str:
        return json.dumps(event, default=str)


class TimingMiddleware(Middleware):
    """Logs how long each request took."""

    def __init__(self, logger: logging.Logger | None = None, log_level: int = logging.INFO) -> None:
        """Initialize with the logger."""
        self.logger = logger or logging.getLogger("fastmcp.timing")
        self.log_level = log_level

    async def on_request(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Measure a request."""
        return await self._timed(f"Request {context.method or 'unknown'}", context, call_next)

    async def _timed(self, what: str, context: Any, call_next: CallNext) -> Any:
        started = time.perf_counter()
        try:
            result = await call_next(context)
        except Exception as error:
            took = (time.perf_counter() - started) * 1000
            self.logger.log(self.log_level, "%s failed after %.2fms: %s", what, took, error)
            raise
        self.logger.log(self.log_level, "%s completed in %.2fms", what, (time.perf_counter() - started) * 1000)
        return result


class DetailedTimingMiddleware(TimingMiddleware):
    """Logs how long each kind of request took."""

    async def on_request(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Measure a request by what it is about."""
        message = context.message
        about = getattr(message, "name", None) or getattr(message, "uri", None)
        return await self._timed(f"{context.method} '{about}'" if about else str(context.method), context, call_next)


class ErrorHandlingMiddleware(Middleware):
    """Logs failures, counts them, and turns them into errors of the protocol."""

    def __init__(
        self,
        logger: logging.Logger | None = None,
        include_traceback: bool = False,
        error_callback: Callable[..., Any] | None = None,
        transform_errors: bool = True,
    ) -> None:
        """Initialize with the logger and the callback."""
        self.logger = logger or logging.getLogger("fastmcp.errors")
        self.include_traceback = include_traceback
        self.error_callback = error_callback
        self.transform_errors = transform_errors
        self.error_counts: dict[str, int] = {}

    async def on_message(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Handle what goes wrong."""
        try:
            return await call_next(context)
        except Exception as error:
            key = f"{type(error).__name__}:{context.method or 'unknown'}"
            self.error_counts[key] = self.error_counts.get(key, 0) + 1
            self.logger.error(
                "Error in %s: %s: %s",
                context.method,
                type(error).__name__,
                error,
                exc_info=error if self.include_traceback else None,
            )
            if self.error_callback is not None:
                try:
                    self.error_callback(error, context)
                except Exception:
                    self.logger.exception("Error in error callback")
            raise

    def get_error_stats(self) -> dict[str, int]:
        """Return how often each failure happened."""
        return dict(self.error_counts)


class RetryMiddleware(Middleware):
    """Repeats requests that failed for a passing reason."""

    def __init__(
        self,
        max_retries: int = 3,
        base_delay: float = 1.0,
        max_delay: float = 60.0,
        backoff_multiplier: float = 2.0,
        retry_exceptions: tuple[type[Exception], ...] = (ConnectionError, TimeoutError),
        logger: logging.Logger | None = None,
    ) -> None:
        """Initialize with the number of retries and the delays."""
        self.max_retries = max_retries
        self.base_delay = base_delay
        self.max_delay = max_delay
        self.backoff_multiplier = backoff_multiplier
        self.retry_exceptions = retry_exceptions
        self.logger = logger or logging.getLogger("fastmcp.retry")

    async def on_request(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Run a request, again if need be."""
        for attempt in range(self.max_retries + 1):
            try:
                return await call_next(context)
            except Exception as error:
                meant = isinstance(error, self.retry_exceptions) or isinstance(error.__cause__, self.retry_exceptions)
                if attempt == self.max_retries or not meant:
                    raise
                wait = min(self.base_delay * self.backoff_multiplier**attempt, self.max_delay)
                self.logger.warning("Request %s failed (attempt %d); retrying", context.method, attempt + 1)
                await asyncio.sleep(wait)
        raise NotFoundError("unreachable")


class RateLimitError(McpError):
    """A client sends too many requests."""

    def __init__(self, message: str = "Rate limit exceeded") -> None:
        """Use the code that FastMCP has for it."""
        super().__init__(code=-32000, message=message)


class RateLimitingMiddleware(Middleware):
    """A token bucket for each client."""

    def __init__(
        self,
        max_requests_per_second: float = 10.0,
        burst_capacity: int | None = None,
        get_client_id: Callable[..., Any] | None = None,
        global_limit: bool = False,
    ) -> None:
        """Initialize with the rate and the size of the bucket."""
        self.max_requests_per_second = max_requests_per_second
        self.burst_capacity = burst_capacity or int(max_requests_per_second * 2)
        self.get_client_id = get_client_id
        self.global_limit = global_limit
        self._buckets: dict[str, tuple[float, float]] = {}

    async def on_request(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Consume a token; reject the call if there is none."""
        client = "global" if self.global_limit else await _client_id(self.get_client_id, context)
        tokens, before = self._buckets.get(client, (float(self.burst_capacity), time.monotonic()))
        now = time.monotonic()
        tokens = min(self.burst_capacity, tokens + (now - before) * self.max_requests_per_second)
        if tokens < 1:
            raise RateLimitError(f"Rate limit exceeded for client: {client}")
        self._buckets[client] = (tokens - 1, now)
        return await call_next(context)


class SlidingWindowRateLimitingMiddleware(Middleware):
    """At most so many requests in so many minutes for each client."""

    def __init__(
        self, max_requests: int, window_minutes: int = 1, get_client_id: Callable[..., Any] | None = None
    ) -> None:
        """Initialize with the number and the window."""
        self.max_requests = max_requests
        self.window_seconds = window_minutes * 60
        self.get_client_id = get_client_id
        self._seen: dict[str, deque[float]] = {}

    async def on_request(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Count the request, or refuse."""
        client = await _client_id(self.get_client_id, context)
        seen, now = self._seen.setdefault(client, deque()), time.monotonic()
        while seen and seen[0] < now - self.window_seconds:
            seen.popleft()
        if len(seen) >= self.max_requests:
            raise RateLimitError(
                f"Rate limit exceeded: {self.max_requests} requests per {self.window_seconds // 60} minutes "
                f"for client: {client}"
            )
        seen.append(now)
        return await call_next(context)


async def _client_id(function: Callable[..., Any] | None, context: Any) -> str:
    if function is None:
        return "global"
    found = function(context)
    return str(await found if asyncio.iscoroutine(found) else found)

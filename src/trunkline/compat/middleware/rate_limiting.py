"""FastMCP's middleware that limits how many requests a client may send."""

from __future__ import annotations

import inspect
import time
import warnings
from collections import deque
from collections.abc import Callable
from typing import Any

from trunkline.compat.exceptions import McpError
from trunkline.compat.middleware.base import CallNext, Middleware, MiddlewareContext
from trunkline.compat.wire import FastMCPDeprecationWarning

__all__ = [
    "RateLimitError",
    "RateLimitingMiddleware",
    "SlidingWindowRateLimiter",
    "SlidingWindowRateLimitingMiddleware",
    "TokenBucketRateLimiter",
]

#: Limiters of clients that were not seen for long are forgotten beyond this number.
_MAX_CLIENTS = 10_000


class RateLimitError(McpError):
    """A client sends too many requests."""

    def __init__(self, message: str = "Rate limit exceeded") -> None:
        """Use the code that FastMCP has for it."""
        super().__init__(code=-32000, message=message)


class TokenBucketRateLimiter:
    """So many requests at once, and so many more a second."""

    def __init__(self, capacity: float, refill_rate: float) -> None:
        """Start with a full bucket."""
        self.capacity = capacity
        self.refill_rate = refill_rate
        self.tokens: float = capacity
        self.last_refill = time.monotonic()

    async def consume(self, tokens: float = 1) -> bool:
        """Return whether there were so many tokens; then they are gone."""
        now = time.monotonic()
        self.tokens = min(self.capacity, self.tokens + (now - self.last_refill) * self.refill_rate)
        # Also after a refusal: otherwise the same time would be counted again at each retry.
        self.last_refill = now
        if self.tokens < tokens:
            return False
        self.tokens -= tokens
        return True


class SlidingWindowRateLimiter:
    """At most so many requests in so many seconds."""

    def __init__(self, max_requests: int, window_seconds: float) -> None:
        """Start without requests."""
        self.max_requests = max_requests
        self.window_seconds = window_seconds
        self.requests: deque[float] = deque()

    async def is_allowed(self) -> bool:
        """Return whether one more request is allowed; then it is counted."""
        now = time.monotonic()
        while self.requests and self.requests[0] < now - self.window_seconds:
            self.requests.popleft()
        if len(self.requests) >= self.max_requests:
            return False
        self.requests.append(now)
        return True


class _PerClient(Middleware):
    """Keeps a limiter for each client."""

    get_client_id: Callable[..., Any] | None

    def __init__(self) -> None:
        self.limiters: dict[str, Any] = {}

    async def _get_client_identifier(self, context: MiddlewareContext[Any]) -> str:
        if self.get_client_id is None:
            return "global"
        found = self.get_client_id(context)
        return str(await found if inspect.isawaitable(found) else found)

    def _limiter(self, client: str, make: Callable[[], Any]) -> Any:
        # The one used last goes to the end, so that the first is the one that was idle longest.
        limiter = self.limiters.pop(client, None) or make()
        self.limiters[client] = limiter
        while len(self.limiters) > _MAX_CLIENTS:
            del self.limiters[next(iter(self.limiters))]
        return limiter


class RateLimitingMiddleware(_PerClient):
    """A token bucket for each client, or one for all."""

    def __init__(
        self,
        max_requests_per_second: float = 10.0,
        burst_capacity: float | None = None,
        get_client_id: Callable[..., Any] | None = None,
        global_limit: bool = False,
    ) -> None:
        """Initialize with the rate and the size of the bucket: twice the rate, but room for one request."""
        super().__init__()
        default = 0 if max_requests_per_second == 0 else max(1, int(max_requests_per_second * 2))
        if burst_capacity is not None and burst_capacity < 1:
            advice = (
                "omit burst_capacity to reject every request"
                if max_requests_per_second == 0
                else "pass burst_capacity=1 or more"
            )
            warnings.warn(f"burst_capacity below 1 is deprecated: {advice}", FastMCPDeprecationWarning, stacklevel=2)
        self.max_requests_per_second = max_requests_per_second
        self.burst_capacity: float = burst_capacity or default
        self.get_client_id = get_client_id
        self.global_limit = global_limit
        self.global_limiter = self._bucket() if global_limit else None

    def _bucket(self) -> TokenBucketRateLimiter:
        return TokenBucketRateLimiter(self.burst_capacity, self.max_requests_per_second)

    async def on_request(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Consume a token; reject the request if there is none."""
        if self.global_limiter is not None:
            if not await self.global_limiter.consume():
                raise RateLimitError("Global rate limit exceeded")
            return await call_next(context)
        client = await self._get_client_identifier(context)
        if not await self._limiter(client, self._bucket).consume():
            raise RateLimitError(f"Rate limit exceeded for client: {client}")
        return await call_next(context)


class SlidingWindowRateLimitingMiddleware(_PerClient):
    """At most so many requests in so many minutes for each client."""

    def __init__(
        self, max_requests: int, window_minutes: int = 1, get_client_id: Callable[..., Any] | None = None
    ) -> None:
        """Initialize with the number and the window."""
        super().__init__()
        self.max_requests = max_requests
        self.window_seconds = window_minutes * 60
        self.get_client_id = get_client_id

    def _window(self) -> SlidingWindowRateLimiter:
        return SlidingWindowRateLimiter(self.max_requests, self.window_seconds)

    async def on_request(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Count the request, or reject it."""
        client = await self._get_client_identifier(context)
        if not await self._limiter(client, self._window).is_allowed():
            raise RateLimitError(
                f"Rate limit exceeded: {self.max_requests} requests per {self.window_seconds // 60} minutes "
                f"for client: {client}"
            )
        return await call_next(context)

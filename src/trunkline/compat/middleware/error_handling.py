"""FastMCP's middleware for failures: log and count them, turn them into errors of the protocol, try again."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable
from typing import Any

from trunkline.compat.exceptions import McpError, NotFoundError
from trunkline.compat.middleware.base import CallNext, Middleware, MiddlewareContext

__all__ = ["ErrorHandlingMiddleware", "RetryMiddleware"]

_NOT_FOUND = -32001  # FastMCP's own code.
_FAILED = -32000  # FastMCP's own code.
_RESOURCE_NOT_FOUND = -32002  # The protocol's code of a resource that is not there.
_INVALID_PARAMS = -32602  # JSON-RPC 2.0, section 5.1.
_INTERNAL_ERROR = -32603  # JSON-RPC 2.0, section 5.1.


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

    def _log_error(self, error: Exception, context: MiddlewareContext[Any]) -> None:
        method = context.method or "unknown"
        key = f"{type(error).__name__}:{method}"
        self.error_counts[key] = self.error_counts.get(key, 0) + 1
        text = f"Error in {method}: {type(error).__name__}: {error}"
        if self.include_traceback:
            text = f"{text}\n{''.join(traceback.format_exception(error))}"
        self.logger.error(text)
        if self.error_callback is None:
            return
        try:
            self.error_callback(error, context)
        except Exception as failure:
            self.logger.exception("Error in error callback: %s", failure)

    def _transform_error(self, error: Exception, context: MiddlewareContext[Any]) -> Exception:
        """Return the error of the protocol for a failure, by the kind of what caused it."""
        if isinstance(error, McpError) or not self.transform_errors:
            return error
        kind = type(error.__cause__ or error)
        if issubclass(kind, ValueError | TypeError):
            return McpError(code=_INVALID_PARAMS, message=f"Invalid params: {error}")
        if issubclass(kind, FileNotFoundError | KeyError | NotFoundError):
            if (context.method or "").startswith("resources/"):
                return McpError(code=_RESOURCE_NOT_FOUND, message=f"Resource not found: {error}")
            return McpError(code=_NOT_FOUND, message=f"Not found: {error}")
        if issubclass(kind, PermissionError):
            return McpError(code=_FAILED, message=f"Permission denied: {error}")
        if issubclass(kind, TimeoutError):
            return McpError(code=_FAILED, message=f"Request timeout: {error}")
        return McpError(code=_INTERNAL_ERROR, message=f"Internal error: {error}")

    async def on_message(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Handle what goes wrong."""
        try:
            return await call_next(context)
        except Exception as error:
            self._log_error(error, context)
            transformed = self._transform_error(error, context)
            if transformed is error:
                raise
            raise transformed from error

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

    def _should_retry(self, error: Exception) -> bool:
        """Return whether a failure, or what caused it, may pass."""
        return isinstance(error, self.retry_exceptions) or isinstance(error.__cause__, self.retry_exceptions)

    def _calculate_delay(self, attempt: int) -> float:
        return min(self.base_delay * self.backoff_multiplier**attempt, self.max_delay)

    async def on_request(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Run a request, again if need be."""
        attempt = 0
        while True:
            try:
                return await call_next(context)
            except Exception as error:
                if attempt >= self.max_retries or not self._should_retry(error):
                    raise
                delay = self._calculate_delay(attempt)
                attempt += 1
                self.logger.warning(
                    "Request %s failed (attempt %d/%d): %s: %s. Retrying in %.1fs...",
                    context.method,
                    attempt,
                    self.max_retries + 1,
                    type(error).__name__,
                    error,
                    delay,
                )
                await asyncio.sleep(delay)

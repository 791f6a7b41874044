"""FastMCP's timing middleware: how long requests take."""

from __future__ import annotations

import logging
import time
from typing import Any

from trunkline.compat.middleware.base import CallNext, Middleware, MiddlewareContext

__all__ = ["DetailedTimingMiddleware", "TimingMiddleware"]


class _Timing(Middleware):
    """Logs how long something took."""

    logger: logging.Logger
    log_level: int

    async def _timed(self, what: str, context: Any, call_next: CallNext) -> Any:
        started = time.perf_counter()
        try:
            result = await call_next(context)
        except Exception as error:
            took = (time.perf_counter() - started) * 1000
            self.logger.log(self.log_level, "%s failed after %.2fms: %s", what, took, error)
            raise
        took = (time.perf_counter() - started) * 1000
        self.logger.log(self.log_level, "%s completed in %.2fms", what, took)
        return result


class TimingMiddleware(_Timing):
    """Logs how long each request took."""

    def __init__(self, logger: logging.Logger | None = None, log_level: int = logging.INFO) -> None:
        """Initialize with the logger."""
        self.logger = logger or logging.getLogger("fastmcp.timing")
        self.log_level = log_level

    async def on_request(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Measure a request."""
        return await self._timed(f"Request {context.method or 'unknown'}", context, call_next)


class DetailedTimingMiddleware(_Timing):
    """Logs how long each request took, by what it is about."""

    def __init__(self, logger: logging.Logger | None = None, log_level: int = logging.INFO) -> None:
        """Initialize with the logger."""
        self.logger = logger or logging.getLogger("fastmcp.timing.detailed")
        self.log_level = log_level

    async def on_call_tool(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Measure a call of a tool."""
        return await self._timed(f"Tool '{context.message.name}'", context, call_next)

    async def on_read_resource(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Measure the reading of a resource."""
        return await self._timed(f"Resource '{context.message.uri}'", context, call_next)

    async def on_get_prompt(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Measure the rendering of a prompt."""
        return await self._timed(f"Prompt '{context.message.name}'", context, call_next)

    async def on_list_tools(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Measure the list of tools."""
        return await self._timed("List tools", context, call_next)

    async def on_list_resources(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Measure the list of resources."""
        return await self._timed("List resources", context, call_next)

    async def on_list_resource_templates(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Measure the list of templates."""
        return await self._timed("List resource templates", context, call_next)

    async def on_list_prompts(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Measure the list of prompts."""
        return await self._timed("List prompts", context, call_next)

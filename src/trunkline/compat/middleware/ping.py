"""FastMCP's middleware that pings clients, so that nothing between closes their connections."""

from __future__ import annotations

import asyncio
from typing import Any

from trunkline.compat.middleware.base import CallNext, Middleware, MiddlewareContext

__all__ = ["PingMiddleware"]


class PingMiddleware(Middleware):
    """Calls the session's ``send_ping`` at intervals for each connection, from its first message on.

    Between requests that sends nothing: our transports keep open streams alive themselves.
    """

    def __init__(self, interval_ms: int = 30000) -> None:
        """Initialize with the interval.

        Raises:
            ValueError: it is not positive.
        """
        if interval_ms <= 0:
            raise ValueError(f"interval_ms must be positive, got {interval_ms}")
        self.interval_ms = interval_ms
        self._active_sessions: set[int] = set()

    async def on_message(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Start to ping a connection that was not seen before."""
        found = context.fastmcp_context
        if found is None or found.request_context is None:
            return await call_next(context)
        session = found.session
        connection = session._connection
        key = id(connection)
        if key not in self._active_sessions:
            self._active_sessions.add(key)
            task = asyncio.ensure_future(self._ping_loop(session, key))

            async def stop() -> None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

            connection.exit_stack.push_async_callback(stop)
        return await call_next(context)

    async def _ping_loop(self, session: Any, session_id: int) -> None:
        """Ping until the connection ends."""
        try:
            while True:
                await asyncio.sleep(self.interval_ms / 1000)
                await session.send_ping()
        finally:
            self._active_sessions.discard(session_id)

"""FastMCP's session manager and the application around it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from trunkline.compat.context import CURRENT_REQUEST
from trunkline.compat.features.event_store import SessionScopedEventStore
from trunkline.compat.http_apps import SessionManager

__all__ = ["FastMCPStreamableHTTPSessionManager", "StreamableHTTPASGIApp", "set_http_request"]


class FastMCPStreamableHTTPSessionManager(SessionManager):
    """A session manager whose sessions each see only their own events."""

    def __init__(self, app: Any = None, event_store: Any = None, **options: Any) -> None:
        """Initialize with the server and the shared store."""
        super().__init__(app, **options)
        self._events = event_store

    @property
    def event_store(self) -> Any:
        """A view of the store for one more session, or None."""
        return None if self._events is None else SessionScopedEventStore(self._events, uuid4().hex)


class StreamableHTTPASGIApp:
    """An application that hands requests to a session manager."""

    def __init__(self, session_manager: Any) -> None:
        """Initialize with the manager."""
        self.session_manager = session_manager

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request.

        Raises:
            RuntimeError: there is no manager.
        """
        if self.session_manager is None:
            raise RuntimeError(
                "no session manager runs: pass lifespan=app.lifespan to the application that mounts this"
            )
        await self.session_manager.handle_request(scope, receive, send)


@contextmanager
def set_http_request(request: Any) -> Iterator[Any]:
    """Make an HTTP request the current one."""
    token = CURRENT_REQUEST.set(request)
    try:
        yield request
    finally:
        CURRENT_REQUEST.reset(token)

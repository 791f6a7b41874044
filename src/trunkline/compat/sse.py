"""The official SDK's own HTTP transports, as far as applications use them by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import anyio
import msgspec

from trunkline.compat.streams import SessionMessage, _message
from trunkline.compat.types import to_plain

__all__ = ["EventMessage", "EventStore", "SseServerTransport", "StreamableHTTPServerTransport"]


class EventMessage(NamedTuple):
    """A stored event."""

    message: Any
    event_id: str | None = None


class EventStore:
    """Keeps events for clients that come back; our endpoint keeps its own."""


class StreamableHTTPServerTransport:
    """One session of the newer HTTP transport; for annotations: an application uses the session manager."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """Refuse."""
        raise NotImplementedError("use StreamableHTTPSessionManager, or streamable_http_app() of the server")


class SseServerTransport:
    """The oldest HTTP transport, joined to an application by hand: a stream of events, and a path for messages."""

    def __init__(self, endpoint: str, *_: Any, **__: Any) -> None:
        """Initialize with the path that messages are posted to."""
        self._endpoint = endpoint
        self._sessions: dict[str, Any] = {}

    @asynccontextmanager
    async def connect_sse(self, scope: Any, receive: Any, send: Any) -> AsyncIterator[tuple[Any, Any]]:
        """Serve a stream of events, and return the streams to run a server on."""
        import secrets

        session = secrets.token_hex(16)
        to_server, from_client = anyio.create_memory_object_stream[Any](100)
        to_client, from_server = anyio.create_memory_object_stream[Any](100)
        self._sessions[session] = to_server
        root = scope.get("root_path", "").rstrip("/")

        async def events() -> None:
            headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            first = f"event: endpoint\ndata: {root}{self._endpoint}?session_id={session}\n\n"
            await send({"type": "http.response.body", "body": first.encode(), "more_body": True})
            async for item in from_server:
                message = getattr(item, "message", item)
                data = msgspec.json.encode(to_plain(getattr(message, "root", message)))
                body = b"event: message\ndata: " + data + b"\n\n"
                await send({"type": "http.response.body", "body": body, "more_body": True})

        async def disconnect() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            await to_server.aclose()
            group.cancel_scope.cancel()

        try:
            async with anyio.create_task_group() as group:
                group.start_soon(events)
                group.start_soon(disconnect)
                yield from_client, to_client
                group.cancel_scope.cancel()
        finally:
            self._sessions.pop(session, None)

    async def handle_post_message(self, scope: Any, receive: Any, send: Any) -> None:
        """Receive a message of a client."""
        from starlette.requests import Request
        from starlette.responses import Response

        request = Request(scope, receive)
        stream = self._sessions.get(request.query_params.get("session_id", "").replace("-", ""))
        if stream is None:
            await Response("Could not find session", status_code=404)(scope, receive, send)
            return
        message = SessionMessage(_message(msgspec.json.decode(await request.body())))
        await Response("Accepted", status_code=202)(scope, receive, send)
        await stream.send(message)

"""ASGI types, whole responses, and the exception that becomes one.

An HTTP status with a JSON-RPC error that says why.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from trunkline.protocol.jsonrpc import ErrorResponse, Incoming, InvalidMessage, encode
from trunkline.types import ErrorObject, RequestId

__all__ = [
    "JSON",
    "HTTPException",
    "Headers",
    "Receive",
    "Scope",
    "Send",
    "invalid_body",
    "method_not_allowed",
    "send_plain",
    "session_ended",
    "stopping",
    "too_many",
]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

#: The type of every body that is not a stream of events.
JSON = (b"content-type", b"application/json")


class HTTPException(Exception):
    """A request that is answered with an error right away."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: int = -32600,
        id: RequestId | None = None,
        headers: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        """Say with which status, and why."""
        super().__init__(message)
        self.status = status
        self.code = code
        self.id = id
        self.headers = headers

    @property
    def body(self) -> bytes:
        """The error as a JSON-RPC answer."""
        return encode(ErrorResponse(self.id, ErrorObject(code=self.code, message=str(self))))


def invalid_body(incoming: Incoming, otherwise: str) -> HTTPException:
    """Refuse what is no request, with the reader's own words if it could not be read."""
    if type(incoming) is InvalidMessage:
        return HTTPException(400, incoming.message, code=incoming.code, id=incoming.id)
    return HTTPException(400, otherwise)


def method_not_allowed(verb: str) -> HTTPException:
    """Refuse a verb that stateless revisions lack."""
    return HTTPException(405, f"{verb} is not used in this revision", headers=((b"allow", b"POST"),))


def session_ended() -> HTTPException:
    """Refuse what belongs to a session that is over: the client is to open another."""
    return HTTPException(404, "The session has ended; send initialize again")


def stopping() -> HTTPException:
    """Refuse for good: the server is about to stop."""
    return HTTPException(503, "The server is stopping", headers=((b"retry-after", b"1"), (b"connection", b"close")))


def too_many(what: str) -> HTTPException:
    """Refuse for now: a limit is reached."""
    return HTTPException(503, f"Too many {what}; try again later", headers=((b"retry-after", b"5"),))


async def send_plain(send: Send, status: int, headers: Headers, body: bytes = b"") -> None:
    """Send a whole response: its head and its body."""
    # RFC 9110, 8.6: a response without content has no length either.
    sized = headers if status == 204 else [*headers, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": sized})
    await send({"type": "http.response.body", "body": body})

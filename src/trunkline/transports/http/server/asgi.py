"""ASGI types, and the exception that becomes an HTTP error response with a JSON-RPC error as its body."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from trunkline.errors import StoreUnavailable
from trunkline.protocol.jsonrpc import ErrorResponse, Incoming, InvalidMessage, encode
from trunkline.types import ErrorObject, RequestId

__all__ = [
    "JSON",
    "RETRY_SOON",
    "TOO_MANY",
    "UNAVAILABLE",
    "HTTPException",
    "Headers",
    "Receive",
    "Scope",
    "Send",
    "invalid_body",
    "method_not_allowed",
    "session_ended",
    "stopping",
    "too_many",
    "unavailable",
]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

#: The status, and the code of the error, while what the workers share cannot be reached; and when to try again.
UNAVAILABLE = 503
RETRY_SOON = (b"retry-after", b"1")
#: The status (RFC 6585, 4), and the code of the error, for a caller that has reached a limit of its own.
TOO_MANY = 429
#: The ``Content-Type`` of every body that is not a stream of events.
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
        """Set the HTTP status, the reason, and the code and id of the JSON-RPC error."""
        super().__init__(message)
        self.status = status
        self.code = code
        self.id = id
        self.headers = headers

    @property
    def body(self) -> bytes:
        """The error as a JSON-RPC response."""
        return encode(ErrorResponse(self.id, ErrorObject(code=self.code, message=str(self))))


def invalid_body(incoming: Incoming, otherwise: str) -> HTTPException:
    """Return the error for a body that is not a request; its message is the decoder's if the body was undecodable."""
    if type(incoming) is InvalidMessage:
        return HTTPException(400, incoming.message, code=incoming.code, id=incoming.id)
    return HTTPException(400, otherwise)


def method_not_allowed(method: str) -> HTTPException:
    """Return the error for an HTTP method that stateless revisions do not have."""
    return HTTPException(405, f"{method} is not used in this revision", headers=((b"allow", b"POST"),))


def session_ended() -> HTTPException:
    """Return the error for a request of a session that has ended: the client must open another."""
    return HTTPException(404, "The session has ended; send initialize again")


def stopping() -> HTTPException:
    """Return the error for a request that arrives while the server stops."""
    return HTTPException(503, "The server is stopping", headers=((b"retry-after", b"1"), (b"connection", b"close")))


def unavailable(
    message: str = StoreUnavailable.PUBLIC,
) -> HTTPException:
    """Return the error for a request that needs what the workers share, while it cannot be reached."""
    return HTTPException(UNAVAILABLE, message, code=UNAVAILABLE, headers=(RETRY_SOON,))


def too_many(what: str) -> HTTPException:
    """Return the error for a request that would exceed a limit; the client may retry later."""
    return HTTPException(503, f"Too many {what}; try again later", headers=((b"retry-after", b"5"),))

"""The JSON-RPC peer: messages in, at most one event out; no sockets, tasks, clock or role.

A request is in the table of its side until one of the moves below ends it, and is forgotten then, so memory stays
bounded. The peer does not know whether it is part of a client or a server, so the two cannot be treated differently::

    a request of the other side:  serving --send_result, send_error------------------> answered
                                  serving --notifications/cancelled, receive_hangup--> cancelled

    a request of ours:            waiting --a result or an error--> answered
                                  waiting --send_cancel-----------> withdrawn
                                  waiting --receive_eof-----------> lost

Answering or cancelling a request that is not in its table raises ``LocalProtocolError``: answering twice, or after a
cancellation, cannot be written. When the other side does so, the appropriate error is queued or the message is dropped
and counted, and nothing is raised. The params and results inside of events are undecoded bytes (``msgspec.Raw``): only
the receiver of the event knows their type.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec
from msgspec import Raw, Struct

from trunkline.errors import InsufficientScope, LocalProtocolError
from trunkline.protocol.jsonrpc import ErrorResponse, InvalidMessage, Message, Notification, Outbound, Request, Response
from trunkline.types import CancelledNotificationParams, ErrorObject, ProgressNotificationParams, RequestId

__all__ = [
    "NotificationReceived",
    "Peer",
    "PeerEvent",
    "ProgressReceived",
    "RequestCancelled",
    "RequestLost",
    "RequestReceived",
    "ResponseReceived",
    "ResponseUnreadable",
]


class RequestReceived(Struct, frozen=True, gc=False):
    """The other side sent a request: it is being served until answered or cancelled."""

    id: RequestId
    method: str
    params: Raw | None


class NotificationReceived(Struct, frozen=True, gc=False):
    """The other side sent a notification: no answer is due."""

    method: str
    params: Raw | None


class ResponseReceived(Struct, frozen=True, gc=False):
    """The other side answered one of our requests: exactly one of result and error is present."""

    id: RequestId
    result: Raw | None
    error: ErrorObject | None


class ResponseUnreadable(Struct, frozen=True, gc=False):
    """The other side answered one of our requests with an invalid message, or one too long to be read.

    For one that is too long the request may be unknown: then there is no id, and all requests go on waiting.
    """

    id: RequestId | None
    reason: str
    too_long: bool = False


class ProgressReceived(Struct, frozen=True, gc=False):
    """One of our waiting requests made progress."""

    id: RequestId
    params: ProgressNotificationParams


class RequestCancelled(Struct, frozen=True, gc=False):
    """The other side no longer wants the answer to a request being served; none can be sent."""

    id: RequestId
    reason: str | None


class RequestLost(Struct, frozen=True, gc=False):
    """No answer to this request of ours can arrive any more."""

    id: RequestId


PeerEvent = (
    RequestReceived
    | NotificationReceived
    | ResponseReceived
    | ResponseUnreadable
    | ProgressReceived
    | RequestCancelled
    | RequestLost
)


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """Create a decoder on first use: many conversations have neither progress nor cancellations."""
    return msgspec.json.Decoder(kind)


class Peer:
    """One side of a JSON-RPC conversation."""

    __slots__ = ("_last", "_limit", "_prefix", "_serving", "_waiting", "dropped", "unsent")

    def __init__(self, *, max_in_flight: int = 1024, prefix: str = "") -> None:
        """Start with nothing in flight; our ids are integers, or strings that start with the prefix."""
        #: The methods of the requests that are being served.
        self._serving: dict[RequestId, str] = {}
        #: The last progress of each request of ours that waits for its answer.
        self._waiting: dict[RequestId, float | None] = {}
        #: Queued messages, in the order they were created.
        self.unsent: list[Outbound] = []
        self._last = 0
        self._limit = max_in_flight
        self._prefix = prefix
        #: Messages that matched nothing: late or unknown responses, progress of finished requests.
        self.dropped: int = 0

    # --- receiving ---------------------------------------------------------------------------------------------------

    def receive_message(self, message: Message | InvalidMessage) -> PeerEvent | None:
        """Process one message of the other side; return the event it causes, if any."""
        kind = type(message)
        if kind is Request:
            return self._request_received(message)  # type: ignore[arg-type]
        if kind is Response:
            return self._response_received(message.id, message.result, None)  # type: ignore[union-attr]
        if kind is Notification:
            return self._notification_received(message)  # type: ignore[arg-type]
        if isinstance(message, ErrorResponse):
            return self._response_received(message.id, None, message.error)
        if isinstance(message, InvalidMessage):
            return self._malformed_received(message)
        raise LocalProtocolError(f"not a message: {kind.__name__}")

    def receive_request(self, request: Request) -> bool:
        """Process one request of the other side; return whether it is to be served.

        The same as ``receive_message``, without an event: what a request says is all in the message.
        """
        id = request.id
        if id in self._serving or len(self._serving) >= self._limit:
            self._reject(id)
            return False
        self._serving[id] = request.method
        return True

    def receive_eof(self, about: RequestId | None = None) -> list[RequestLost]:
        """Called when no answer can arrive any more, to one request of ours or to all."""
        lost = list(self._waiting) if about is None else [about] if about in self._waiting else []
        for id in lost:
            del self._waiting[id]
        return [RequestLost(id) for id in lost]

    def receive_hangup(self, about: RequestId | None = None) -> list[RequestCancelled]:
        """Called when our answers can no longer be delivered, to one request of theirs or to all."""
        ids = list(self._serving) if about is None else [about] if about in self._serving else []
        for id in ids:
            del self._serving[id]
        return [RequestCancelled(id, "the other side is gone") for id in ids]

    def _request_received(self, message: Request) -> RequestReceived | None:
        return RequestReceived(message.id, message.method, message.params) if self.receive_request(message) else None

    def _reject(self, id: RequestId) -> None:
        """Reject a request whose id is in use, or one too many."""
        if id in self._serving:
            # It would be unclear which of the two an answer belongs to, and the first still needs one.
            self._queue_error(id, -32600, f"Invalid request: id {id!r} is already in flight")
        else:
            self._queue_error(id, -32603, f"Too many requests in flight; the limit is {self._limit}. Try again later.")

    def _response_received(
        self, id: RequestId | None, result: Raw | None, error: ErrorObject | None
    ) -> ResponseReceived | None:
        if id is None or id not in self._waiting:
            self.dropped += 1
            return None
        del self._waiting[id]
        return ResponseReceived(id, result, error)

    def _malformed_received(self, message: InvalidMessage) -> ResponseUnreadable | None:
        if message.response:
            if message.id is not None and message.id in self._waiting:
                del self._waiting[message.id]
                return ResponseUnreadable(message.id, message.message, message.too_long)
            if message.id is None and message.too_long:
                return ResponseUnreadable(None, message.message, too_long=True)
            self.dropped += 1
            return None
        self._queue_error(message.id, message.code, message.message)
        return None

    def _notification_received(self, message: Notification) -> PeerEvent | None:
        if message.method == "notifications/progress":
            return self._progress_received(message)
        if message.method == "notifications/cancelled":
            return self._cancelled_received(message)
        return NotificationReceived(message.method, message.params)

    def _progress_received(self, message: Notification) -> ProgressReceived | None:
        try:
            params = _decoder(ProgressNotificationParams).decode(message.params or b"null")
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self.dropped += 1
            return None
        id = params.progress_token
        last = self._waiting.get(id, params.progress)
        # The specification: progress MUST increase. Other values are no progress, and must not keep a call alive.
        if id not in self._waiting or (last is not None and params.progress <= last):
            self.dropped += 1
            return None
        self._waiting[id] = params.progress
        return ProgressReceived(id, params)

    def _cancelled_received(self, message: Notification) -> RequestCancelled | NotificationReceived | None:
        try:
            params = _decoder(CancelledNotificationParams).decode(message.params or b"null")
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self.dropped += 1
            return None
        id = params.request_id
        method = None if id is None else self._serving.get(id)
        if id is None or method is None:
            # Unknown, finished, or about a request of ours that the other side ends: its owner handles that.
            return NotificationReceived(message.method, message.params)
        if method == "initialize":
            return None
        del self._serving[id]
        return RequestCancelled(id, params.reason)

    # --- sending -----------------------------------------------------------------------------------------------------

    def new_id(self) -> RequestId:
        """Return the next id of ours; ids count up and are never reused."""
        self._last += 1
        return f"{self._prefix}{self._last}" if self._prefix else self._last

    def send_request(
        self,
        id: RequestId,
        method: str,
        *,
        params: Any = None,
        about: RequestId | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Queue a request of ours under an id from ``new_id``; ``headers`` are for links over HTTP."""
        if id in self._waiting:
            raise LocalProtocolError(f"request {id!r} is already waiting for its answer")
        self._waiting[id] = None
        self.unsent.append(Outbound(Request(id, method, params), about, headers))

    def send_notification(self, method: str, *, params: Any = None, about: RequestId | None = None) -> bool:
        """Queue a notification; if it is about a request that is no longer served, drop it and return False."""
        if about is not None and about not in self._serving:
            return False
        self.unsent.append(Outbound(Notification(method, params), about))
        return True

    def send_result(self, id: RequestId, result: Any) -> None:
        """Queue the answer to a request being served.

        Raises:
            LocalProtocolError: it is not being served: unknown, answered or cancelled.
        """
        if self._serving.pop(id, None) is None:
            raise _not_served(id)
        self.unsent.append(Outbound(Response(id, result), id))

    def send_error(
        self,
        id: RequestId,
        code: int,
        *,
        message: str,
        data: Any = msgspec.UNSET,
        scope: InsufficientScope | None = None,
    ) -> None:
        """Queue an error as the answer to a request being served; over HTTP missing scopes are in its head too.

        Raises:
            LocalProtocolError: it is not being served: unknown, answered or cancelled.
        """
        if self._serving.pop(id, None) is None:
            raise _not_served(id)
        self._queue_error(id, code, message, data, scope)

    def send_cancel(self, id: RequestId, *, reason: str | None = None, notify: bool = True) -> None:
        """Withdraw a request of ours, and notify the other side; a response that still arrives is dropped.

        Raises:
            LocalProtocolError: it is not waiting.
        """
        if id not in self._waiting:
            raise LocalProtocolError(f"request {id!r} is not waiting for an answer, so it cannot be cancelled")
        del self._waiting[id]
        if notify:
            params = CancelledNotificationParams(request_id=id, reason=reason)
            self.unsent.append(Outbound(Notification("notifications/cancelled", params), cancels=id))

    def messages_to_send(self) -> list[Outbound]:
        """Return the queued messages in order, and clear the queue."""
        unsent, self.unsent = self.unsent, []
        return unsent

    def serves(self, id: RequestId) -> bool:
        """Return True if a request of theirs is still waiting for our answer."""
        return id in self._serving

    def waits(self, id: RequestId) -> bool:
        """Return True if a request of ours is still waiting for their answer."""
        return id in self._waiting

    def _queue_error(
        self,
        id: RequestId | None,
        code: int,
        message: str,
        data: Any = msgspec.UNSET,
        scope: InsufficientScope | None = None,
    ) -> None:
        error = ErrorObject(code=code, message=message, data=data)
        self.unsent.append(Outbound(ErrorResponse(id, error), id, insufficient_scope=scope))


def _not_served(id: RequestId) -> LocalProtocolError:
    return LocalProtocolError(f"request {id!r} is not being served, so it cannot be answered")

"""The events of a Peer: what the messages fed to it mean, as frozen records.

The params and results inside are undecoded bytes (``msgspec.Raw``): only the receiver of the event knows their type.
"""

from __future__ import annotations

from msgspec import Raw, Struct

from trunkline.types import ErrorObject, ProgressNotificationParams, RequestId

__all__ = [
    "Event",
    "NotificationReceived",
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


Event = (
    RequestReceived
    | NotificationReceived
    | ResponseReceived
    | ResponseUnreadable
    | ProgressReceived
    | RequestCancelled
    | RequestLost
)

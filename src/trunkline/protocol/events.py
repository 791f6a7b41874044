"""What a Peer tells about the messages it was fed; plain frozen records, nothing else.

The params and results inside are undecoded bytes (``msgspec.Raw``): whoever wants them knows their type.
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
    """They ask: from now on the request is being served, until answered or cancelled."""

    id: RequestId
    method: str
    params: Raw | None


class NotificationReceived(Struct, frozen=True, gc=False):
    """They tell: nothing is owed."""

    method: str
    params: Raw | None


class ResponseReceived(Struct, frozen=True, gc=False):
    """They answered one of our requests: exactly one of result and error is there."""

    id: RequestId
    result: Raw | None
    error: ErrorObject | None


class ResponseUnreadable(Struct, frozen=True, gc=False):
    """They answered one of our requests with something that is no answer, or is too long to be read.

    Of one that is too long it may be unknown which request it answers: there is no id then, and all go on waiting.
    """

    id: RequestId | None
    reason: str
    too_long: bool = False


class ProgressReceived(Struct, frozen=True, gc=False):
    """One of our waiting requests moves on."""

    id: RequestId
    params: ProgressNotificationParams


class RequestCancelled(Struct, frozen=True, gc=False):
    """They no longer want the answer to a request being served; none can be sent."""

    id: RequestId
    reason: str | None


class RequestLost(Struct, frozen=True, gc=False):
    """No answer to this request of ours can come any more."""

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

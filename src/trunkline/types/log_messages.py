"""Log messages that a server sends to its client."""

from __future__ import annotations

from typing import Any

from trunkline.types.base import LoggingLevel, NotificationParams, RequestParams

__all__ = ["LoggingMessageNotificationParams", "SetLevelRequestParams"]


class SetLevelRequestParams(RequestParams, frozen=True, kw_only=True):
    """The least severe level the client wants to hear of."""

    level: LoggingLevel


class LoggingMessageNotificationParams(NotificationParams, frozen=True, kw_only=True):
    """One log message: any JSON value, and where it comes from."""

    level: LoggingLevel
    data: Any
    logger: str | None = None

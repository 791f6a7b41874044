"""Log messages that a server sends to its client."""

from __future__ import annotations

from typing import Any

from trunkline.types.base import LoggingLevel, NotificationParams, RequestParams

__all__ = ["LoggingMessageNotificationParams", "SetLevelRequestParams"]


class SetLevelRequestParams(RequestParams, frozen=True, kw_only=True):
    """The params of ``logging/setLevel``: the minimum level of log messages."""

    level: LoggingLevel


class LoggingMessageNotificationParams(NotificationParams, frozen=True, kw_only=True):
    """One log message: any JSON value, and the name of its logger."""

    level: LoggingLevel
    data: Any
    logger: str | None = None

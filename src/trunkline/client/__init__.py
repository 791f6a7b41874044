"""Calling servers: ``Client`` for one server over any transport and revision, its options, callbacks and results.

The exceptions its methods raise are in ``trunkline.errors``; the most common ones are here as well. Import from here:
the modules inside are not part of the public API, whatever their names. Names are loaded on first access.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trunkline._lazy import lazy_exports

if TYPE_CHECKING:
    from trunkline.auth.oauth import ApiKey, BearerToken, OAuth
    from trunkline.client.changes import Change, ChangeKind, ChangeStream
    from trunkline.client.client import Client
    from trunkline.client.options import (
        ClientAuth,
        ClientOptions,
        ClientState,
        EraMemory,
        ProgressCallback,
        StateCallback,
    )
    from trunkline.client.tasks.client import TaskHandle, TaskState
    from trunkline.client.tool_cache import CallResult
    from trunkline.errors import (
        AuthRequired,
        ConnectionLost,
        HttpError,
        LinkError,
        MissingCapability,
        RemoteProtocolError,
        RequestFailed,
        RequestTimeout,
        ServerExited,
        ToolError,
    )
    from trunkline.keywords import ServerNotification
    from trunkline.protocol.limits import Limits
    from trunkline.timers import Clock, TimerHandle

__all__ = [
    "ApiKey",
    "AuthRequired",
    "BearerToken",
    "CallResult",
    "Change",
    "ChangeKind",
    "ChangeStream",
    "Client",
    "ClientAuth",
    "ClientOptions",
    "ClientState",
    "Clock",
    "ConnectionLost",
    "EraMemory",
    "HttpError",
    "Limits",
    "LinkError",
    "MissingCapability",
    "OAuth",
    "ProgressCallback",
    "RemoteProtocolError",
    "RequestFailed",
    "RequestTimeout",
    "ServerExited",
    "ServerNotification",
    "StateCallback",
    "TaskHandle",
    "TaskState",
    "TimerHandle",
    "ToolError",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "trunkline.auth.oauth": ("ApiKey", "BearerToken", "OAuth"),
            "trunkline.client.changes": ("Change", "ChangeKind", "ChangeStream"),
            "trunkline.client.client": ("Client",),
            "trunkline.client.options": (
                "ClientAuth",
                "ClientOptions",
                "ClientState",
                "EraMemory",
                "ProgressCallback",
                "StateCallback",
            ),
            "trunkline.client.tool_cache": ("CallResult",),
            "trunkline.keywords": ("ServerNotification",),
            "trunkline.errors": (
                "AuthRequired",
                "ConnectionLost",
                "HttpError",
                "LinkError",
                "MissingCapability",
                "RemoteProtocolError",
                "RequestFailed",
                "RequestTimeout",
                "ServerExited",
                "ToolError",
            ),
            "trunkline.client.tasks.client": ("TaskHandle", "TaskState"),
            "trunkline.protocol.limits": ("Limits",),
            "trunkline.timers": ("Clock", "TimerHandle"),
        },
    )

"""Transports: I/O and nothing else. Each is a ``Link``, which carries whole messages.

``memory_pair`` connects two ends in one process, ``StdioLink`` uses a server's own standard streams, ``ProcessLink`` a
server started as a child process, ``StreamLink`` a pair of asyncio streams, ``PipeLink`` two file descriptors. To write
another transport, derive from ``Link`` (or from ``LinkWrapper``, around another link): it sends ``Outbound`` messages
with ``encode`` and delivers what ``decode`` returns to its ``Receiver``; ``trunkline.testing.check_link`` checks it.
Import from here: the modules inside are not part of the public API, whatever their names. Names are loaded on first
access, so that a stdio server loads no more than its own pipes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trunkline._lazy import lazy_exports

if TYPE_CHECKING:
    from trunkline.protocol.caller import Origin
    from trunkline.protocol.jsonrpc import (
        Batch,
        BatchReply,
        ErrorResponse,
        Incoming,
        InvalidMessage,
        Notification,
        Outbound,
        Request,
        Response,
        decode,
        encode,
    )
    from trunkline.protocol.limits import Limits
    from trunkline.protocol.revisions import Feature, Revision
    from trunkline.transports.link import Link, LinkWrapper, Receiver
    from trunkline.transports.memory import MemoryLink, memory_pair
    from trunkline.transports.pipes import PipeLink
    from trunkline.transports.process import LaunchedProcess, ProcessLink, launch_process, server_environment
    from trunkline.transports.stdio import StdioLink
    from trunkline.transports.stream import StreamLink

__all__ = [
    "Batch",
    "BatchReply",
    "ErrorResponse",
    "Feature",
    "Incoming",
    "InvalidMessage",
    "LaunchedProcess",
    "Limits",
    "Link",
    "LinkWrapper",
    "MemoryLink",
    "Notification",
    "Origin",
    "Outbound",
    "PipeLink",
    "ProcessLink",
    "Receiver",
    "Request",
    "Response",
    "Revision",
    "StdioLink",
    "StreamLink",
    "decode",
    "encode",
    "launch_process",
    "memory_pair",
    "server_environment",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "trunkline.protocol.caller": ("Origin",),
            "trunkline.protocol.jsonrpc": (
                "Batch",
                "BatchReply",
                "ErrorResponse",
                "Incoming",
                "InvalidMessage",
                "Notification",
                "Outbound",
                "Request",
                "Response",
                "decode",
                "encode",
            ),
            "trunkline.protocol.limits": ("Limits",),
            "trunkline.protocol.revisions": ("Feature", "Revision"),
            "trunkline.transports.link": ("Link", "LinkWrapper", "Receiver"),
            "trunkline.transports.memory": ("MemoryLink", "memory_pair"),
            "trunkline.transports.pipes": ("PipeLink",),
            "trunkline.transports.process": ("LaunchedProcess", "ProcessLink", "launch_process", "server_environment"),
            "trunkline.transports.stdio": ("StdioLink",),
            "trunkline.transports.stream": ("StreamLink",),
        },
    )

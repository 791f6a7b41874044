"""The time server: two tools, for the current time in a zone and for converting a time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from types import MappingProxyType
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from trunkline import Server, ToolResult, __version__
from trunkline.servers.time.zones import convert, local_zone, tell, utc_now

__all__ = ["make_server"]

_INSTRUCTIONS = "Tells the time in any time zone, and converts a time of today from one zone to another."
_HINTS = MappingProxyType(
    {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
)
_MOMENT = MappingProxyType(
    {
        "type": "object",
        "properties": {
            "timezone": {"type": "string"},
            "datetime": {"type": "string"},
            "day_of_week": {"type": "string"},
            "is_dst": {"type": "boolean"},
        },
        "required": ["timezone", "datetime", "day_of_week", "is_dst"],
    }
)
_CONVERSION = MappingProxyType(
    {
        "type": "object",
        "$defs": {"TimeResult": dict(_MOMENT)},
        "properties": {
            "source": {"$ref": "#/$defs/TimeResult"},
            "target": {"$ref": "#/$defs/TimeResult"},
            "time_difference": {"type": "string"},
        },
        "required": ["source", "target", "time_difference"],
    }
)


def make_server(*, local_timezone: str | None = None, now: Callable[[], datetime] = utc_now) -> Server:
    """Make the server; ``local_timezone`` is the local zone, by default that of this machine.

    Raises:
        ConfigError: there is no such zone.
    """
    local = local_zone(local_timezone)
    about = f"as an IANA name such as 'America/New_York' or 'Asia/Tokyo'. If the user names none, it is {local!r}."
    server = Server("mcp-time", _INSTRUCTIONS, title="Time", version=__version__)
    hints = dict(_HINTS)

    @server.tool(annotations=hints, output_schema=dict(_MOMENT), thread=False)
    def get_current_time(
        timezone: Annotated[str, Meta(description=f"The time zone, {about}")],
    ) -> ToolResult:
        """Tell the date and time in a time zone."""
        return _answer(tell(timezone, now()))

    @server.tool(annotations=hints, output_schema=dict(_CONVERSION), thread=False)
    def convert_time(
        source_timezone: Annotated[str, Meta(description=f"The time zone that the time is in, {about}")],
        time: Annotated[str, Meta(description="A time of today there, as HH:MM from 00:00 to 23:59.")],
        target_timezone: Annotated[str, Meta(description=f"The time zone to convert it to, {about}")],
    ) -> ToolResult:
        """Convert a time of today from one time zone to another."""
        return _answer(convert(source_timezone, time, target_timezone, now=now))

    return server


def _answer(told: dict[str, Any]) -> ToolResult:
    return ToolResult(msgspec.json.format(msgspec.json.encode(told), indent=2).decode(), told)

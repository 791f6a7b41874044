"""The time server: two tools, for the current time in a zone and for converting a time.

Zone names must match the IANA database exactly: a name that is looked up as a file elsewhere is never used as a path
here. The functions above ``make_server`` know no protocol.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from types import MappingProxyType
from typing import Annotated, Any
from zoneinfo import TZPATH, ZoneInfo, available_timezones

import msgspec
from msgspec import Meta

from trunkline import Server, ToolResult, __version__
from trunkline.errors import ConfigError, ToolError

__all__ = ["convert", "current_time", "find_zone", "local_zone", "make_server", "utc_now"]

#: Independent of the locale.
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_FALLBACK = "UTC"
_TIMEZONE_FILE = "/etc/timezone"
_LOCALTIME = "/etc/localtime"
_NAME = re.compile(r"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+)*")
#: Longer than any name; bounded, since lookups are cached.
_LONGEST = 100
#: Entries of the zone folders that are not zones.
_NO_ZONES = ("posix", "posixrules", "right")


# --- zones -----------------------------------------------------------------------------------------------------------


def utc_now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


def _exists(name: str) -> bool:
    return len(name) <= _LONGEST and _found(name)


@lru_cache(maxsize=1024)
def _found(name: str) -> bool:
    """Return True if a zone exists; checks its file first, since listing all zones is slow."""
    return any(_has_zone_file(root, name) for root in TZPATH) or name in _names()


def _has_zone_file(root: str, name: str) -> bool:
    """Return True if a zone folder has exactly this name; some file systems ignore case."""
    if not _NAME.fullmatch(name) or name.partition("/")[0] in _NO_ZONES:
        return False
    path = root
    try:
        for part in name.split("/"):
            if part not in os.listdir(path):
                return False
            path = os.path.join(path, part)
        with open(path, "rb") as file:
            return file.read(4) == b"TZif"
    except OSError:
        return False


@cache
def _names() -> frozenset[str]:
    return frozenset(available_timezones())


def find_zone(name: str) -> ZoneInfo:
    """Return the zone of an IANA name.

    Raises:
        ToolError: there is none.
    """
    if _exists(name):
        return ZoneInfo(name)
    if not _names():
        raise ToolError("This machine has no time zone database: install tzdata, from the system or from PyPI.")
    raise ToolError(f"Invalid timezone: there is no {name[:100]!r}. Give an IANA name such as 'Europe/London'.")


def local_zone(given: str | None = None) -> str:
    """Return the name of the local zone: the given one, else that of this machine, else UTC.

    Raises:
        ConfigError: the given one does not exist.
    """
    if given is not None:
        if not _exists(given):
            raise ConfigError(f"There is no time zone {given!r}: give an IANA name such as Europe/London.")
        return given
    found = (look() for look in (_from_variable, _from_file, _from_link))
    return next((name for name in found if name and _exists(name)), _FALLBACK)


def _from_variable() -> str:
    return os.environ.get("TZ", "").removeprefix(":")


def _from_file() -> str:
    try:
        with open(_TIMEZONE_FILE, encoding="utf-8") as file:
            return file.readline(200).strip()
    except (OSError, ValueError):
        return ""


def _from_link() -> str:
    return os.path.realpath(_LOCALTIME).rpartition("/zoneinfo/")[2]


# --- times -----------------------------------------------------------------------------------------------------------


def current_time(zone: str, now: datetime) -> dict[str, Any]:
    """Return a moment in a zone.

    Raises:
        ToolError: there is no such zone.
    """
    return _to_result(zone, now.astimezone(find_zone(zone)))


def convert(source: str, time: str, target: str, *, now: Callable[[], datetime]) -> dict[str, Any]:
    """Convert a time of today from one zone to another.

    A time that occurs twice, when clocks are set back, means the first occurrence.

    Raises:
        ToolError: there is no such zone, or no such time in it today.
    """
    here, there = find_zone(source), find_zone(target)
    try:
        clock = datetime.strptime(time, "%H:%M").time()
    except ValueError:
        raise ToolError("Invalid time: write it as HH:MM, from 00:00 to 23:59.") from None
    before = datetime.combine(now().astimezone(here).date(), clock, tzinfo=here)
    if before.astimezone(UTC).astimezone(here).time() != clock:
        raise ToolError(f"Invalid time: on {before.date()} the clocks of {source} are put forward over {time}.")
    after = before.astimezone(there)
    apart = ((after.utcoffset() or timedelta()) - (before.utcoffset() or timedelta())).total_seconds() / 3600
    return {"source": _to_result(source, before), "target": _to_result(target, after), "time_difference": _hours(apart)}


def _to_result(zone: str, moment: datetime) -> dict[str, Any]:
    return {
        "timezone": zone,
        "datetime": moment.isoformat(timespec="seconds"),
        "day_of_week": _DAYS[moment.weekday()],
        "is_dst": bool(moment.dst()),
    }


def _hours(apart: float) -> str:
    """Format a difference in hours as the official server does: ``+9.0h``, ``+5.5h``, ``+5.75h``."""
    if apart.is_integer():
        return f"{apart:+.1f}h"
    return f"{apart:+.2f}".rstrip("0").rstrip(".") + "h"


# --- the server ------------------------------------------------------------------------------------------------------

_INSTRUCTIONS = "Returns the current time in any time zone, and converts a time of today from one zone to another."
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
        """Return the current date and time in a time zone."""
        return _tool_result(current_time(timezone, now()))

    @server.tool(annotations=hints, output_schema=dict(_CONVERSION), thread=False)
    def convert_time(
        source_timezone: Annotated[str, Meta(description=f"The time zone that the time is in, {about}")],
        time: Annotated[str, Meta(description="A time of today there, as HH:MM from 00:00 to 23:59.")],
        target_timezone: Annotated[str, Meta(description=f"The time zone to convert it to, {about}")],
    ) -> ToolResult:
        """Convert a time of today from one time zone to another."""
        return _tool_result(convert(source_timezone, time, target_timezone, now=now))

    return server


def _tool_result(value: dict[str, Any]) -> ToolResult:
    """Return a value as indented JSON and as structured content."""
    return ToolResult(msgspec.json.format(msgspec.json.encode(value), indent=2).decode(), value)

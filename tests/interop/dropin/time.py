"""The time server and the official one; both are told what is local, and see the same day."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from tests.interop.dropin.harness import Call, Script, ours, pypi

__all__ = ["SCRIPT"]


def _without_clock(text: str) -> str:
    """Blank the time that it is, and leave other times."""
    return re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d", _unless_now, text)


def _unless_now(found: re.Match[str]) -> str:
    apart = datetime.now(UTC) - datetime.fromisoformat(found.group())
    return "(now)" if abs(apart) < timedelta(minutes=2) else found.group()


def _convert(source: object, time: object, target: object, name: str | None = None) -> Call:
    return Call("convert_time", {"source_timezone": source, "time": time, "target_timezone": target}, name)


_WORDS = "The words of an error are written anew; an error names no path of the machine."
_LISTS = "Lists may change in any server made with Trunkline, which announces it."
_NONE = "There are no prompts and no resources, so none are announced."
_FALSE = "A result that is no error does not say so: false is the default."

SCRIPT = Script(
    server="time",
    official=pypi("mcp-server-time", "--local-timezone", "Europe/Oslo"),
    ours=ours("time", "--local-timezone", "Europe/Oslo"),
    steps=(
        Call("get_current_time", {"timezone": "Europe/Oslo"}),
        Call("get_current_time", {"timezone": "UTC"}),
        Call("get_current_time", {"timezone": "Asia/Kathmandu"}),
        Call("get_current_time", {"timezone": "UTC", "unknown": 1}, "unknown argument"),
        _convert("Europe/Oslo", "12:30", "Asia/Tokyo"),
        _convert("Europe/Oslo", "23:59", "Asia/Kathmandu"),
        _convert("Asia/Kolkata", "00:00", "America/St_Johns"),
        _convert("UTC", "9:05", "UTC"),
        _convert("Pacific/Kiritimati", "13:00", "Pacific/Pago_Pago"),
        Call("get_current_time", {"timezone": "Mars/Olympus"}, "wrong: no such zone"),
        Call("get_current_time", {"timezone": "europe/oslo"}, "wrong: another spelling"),
        Call("get_current_time", {"timezone": ""}, "wrong: an empty zone"),
        Call("get_current_time", {"timezone": "../../etc/passwd"}, "wrong: a path"),
        Call("get_current_time", {"timezone": "/etc/localtime"}, "wrong: an absolute path"),
        Call("get_current_time", {"timezone": "Europe"}, "wrong: a part of the world"),
        Call("get_current_time", {"timezone": 5}, "wrong: a number"),
        Call("get_current_time", {}, "wrong: no arguments"),
        _convert("UTC", "24:00", "UTC", "wrong: no such time"),
        _convert("UTC", "noon", "UTC", "wrong: no time at all"),
        _convert("UTC", "12:00", "Nowhere", "wrong: no such target"),
        Call("convert_time", {"source_timezone": "UTC", "time": "12:00"}, "wrong: no target"),
        Call("tell_time", {}),
    ),
    normalise=_without_clock,
    differences={
        "server:capabilities/tools/listChanged": _LISTS,
        "server:capabilities/logging": "Log messages are sent to clients that ask for them.",
        "server:capabilities/prompts": _NONE,
        "server:capabilities/resources": _NONE,
        "prompts:": _NONE,
        "resource*:": _NONE,
        "call *:isError": _FALSE,
        "wrong: *:content/0/text": _WORDS,
        "unknown argument:*": "An argument that a tool does not have is an error that names those it has.",
    },
)

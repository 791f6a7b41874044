"""Sentry issues: which one a reference means, and its text.

An issue is named by its number or a link. Only the number is used of a link, and only if it is a link to Sentry;
requests go to the configured URL, whatever the link says. Responses are read leniently and within limits.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any
from urllib.parse import urlsplit

from trunkline import ToolError
from trunkline.servers.wording import cut

__all__ = ["issue_number", "issue_text", "stack_trace"]

_NUMBER = re.compile(r"[0-9]{1,20}")
_LONGEST_LINK = 2_000
_MOST_CHARACTERS = 200_000
_MOST_EXCEPTIONS = 50
_MOST_FRAMES = 250
_MOST_LINES = 30
_LONGEST_LINE = 1_000


def issue_number(given: str, hosts: Collection[str]) -> str:
    """Return the issue number of a number or link.

    Raises:
        ToolError: it is neither, or the link is not to sentry.io, a subdomain, or one of ``hosts``.
    """
    if not given.lower().startswith(("http://", "https://")):
        return _checked(given, given)
    host, segments = _split(given)
    if host != "sentry.io" and not host.endswith(".sentry.io") and host not in hosts:
        known = ", ".join(["sentry.io", *sorted(set(hosts) - {"sentry.io"})])
        raise ToolError(f"The link is to {host or 'no host'!r}: give one to {known}, or the number of the issue")
    if "issues" not in segments[:-1]:
        raise ToolError("The link is not one to an issue: its path has /issues/ and the number of the issue")
    return _checked(segments[segments.index("issues") + 1], given)


def _split(link: str) -> tuple[str, list[str]]:
    """Return the host of a link and the segments of its path."""
    try:
        parts = urlsplit(link[:_LONGEST_LINK])
        host = (parts.hostname or "").lower()
    except ValueError:
        return "", []
    # A browser reads a backslash as a slash, and so may see another host than we do.
    if "\\" in link:
        return "", []
    return host, [each for each in parts.path.split("/") if each]


def _checked(number: str, given: str) -> str:
    if not _NUMBER.fullmatch(number):
        raise ToolError(f"{given[:100]!r} is not an issue: give its number, such as 4815162342, or a link to it")
    return number


def issue_text(issue: Any, number: str, trace: str) -> str:
    """Return an issue as text: title, status, dates and stack trace."""
    rows = [
        ("Sentry Issue", "title"),
        ("Issue ID", None),
        ("Status", "status"),
        ("Level", "level"),
        ("First Seen", "firstSeen"),
        ("Last Seen", "lastSeen"),
        ("Event Count", "count"),
    ]
    lines = [f"{label}: {number if name is None else _line(issue.get(name, 'unknown'))}" for label, name in rows]
    return _bounded("\n".join(lines) + f"\n\n{trace}")


def stack_trace(event: Any) -> str:
    """Return the exceptions of an event as text, with frames and source lines."""
    traces = [
        _exception(exception)
        for entry in _dicts(_member(event, "entries"))
        if entry.get("type") == "exception"
        for exception in _dicts(_member(entry.get("data"), "values"))
    ]
    if not traces:
        return "No stacktrace found"
    left_out = len(traces) - _MOST_EXCEPTIONS
    more = [f"[{left_out} more exceptions]\n"] if left_out > 0 else []
    return "\n".join([*traces[:_MOST_EXCEPTIONS], *more])


def _exception(exception: dict[str, Any]) -> str:
    head = f"Exception: {_line(exception.get('type') or 'Unknown')}: {_line(exception.get('value') or '')}\n\n"
    trace = exception.get("stacktrace")
    if not isinstance(trace, dict):
        return head
    frames = _dicts(trace.get("frames"))
    # The innermost frames come last and matter most.
    left_out = len(frames) - _MOST_FRAMES
    more = f"[{left_out} earlier frames]\n\n" if left_out > 0 else ""
    return head + "Stacktrace:\n" + more + "".join(_frame(each) for each in frames[-_MOST_FRAMES:])


def _frame(frame: dict[str, Any]) -> str:
    line = frame.get("lineNo")
    name, function = frame.get("filename") or "Unknown", frame.get("function") or "Unknown"
    place = f"{_line(name)}:{'?' if line is None else _line(line)} in {_line(function)}\n"
    context = frame.get("context")
    numbered = [each for each in context if isinstance(each, list)] if isinstance(context, list) else []
    code = [_line(each[1]) for each in numbered[:_MOST_LINES] if len(each) > 1]
    return place + "".join(f"    {each}\n" for each in code) + "\n"


def _member(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _line(value: object) -> str:
    return cut(str(value), _LONGEST_LINE)


def _bounded(text: str) -> str:
    if len(text) <= _MOST_CHARACTERS:
        return text
    return f"{text[:_MOST_CHARACTERS]}\n[cut: {len(text) - _MOST_CHARACTERS} more characters]"

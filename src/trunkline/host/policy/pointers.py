"""JSON pointers (RFC 6901) into arguments, with ``*`` for every element; they lead to values, or to one of two marks.

``MISSING``: there is nothing. ``UNJUDGED``: the path leads through a value that is neither object nor array, or to more
elements than are examined; a server may still find a value there, such as JSON inside a string, so nothing may be
concluded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import Any

__all__ = ["MISSING", "UNJUDGED", "Mark", "PointerError", "follow", "parse_pointer"]


class Mark(Enum):
    """The result of a pointer that does not lead to a value."""

    MISSING = "nothing"
    UNJUDGED = "something that cannot be judged"


MISSING = Mark.MISSING
UNJUDGED = Mark.UNJUDGED

_MOST_PARTS = 32
_MOST_FOUND = 10_000
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}", re.ASCII)
_LONE_TILDE = re.compile(r"~(?![01])")


class PointerError(ValueError):
    """A text is not a JSON pointer; the message says why and what to write."""


def parse_pointer(text: str) -> tuple[str, ...]:
    """Split a pointer into its unescaped parts.

    Raises:
        InvalidPointer: it is not a valid pointer.
    """
    if text and not text.startswith("/"):
        raise PointerError(f"{text!r} is not a JSON pointer: write {'/' + text!r}")
    if _LONE_TILDE.search(text):
        raise PointerError(f"{text!r} has a '~' by itself: write '~0' for '~' and '~1' for '/'")
    parts = tuple(part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:])
    if len(parts) > _MOST_PARTS:
        raise PointerError(f"the pointer has {len(parts)} parts; the limit is {_MOST_PARTS}")
    return parts


def follow(arguments: Mapping[str, Any], parts: tuple[str, ...]) -> list[Any]:
    """Return the values that a pointer leads to: one, or several if it has a ``*``; the list is never empty."""
    found: list[Any] = [arguments]
    for part in parts:
        if part == "*":
            found = [inner for value in found for inner in _elements(value)]
        else:
            found = [_member(value, part) for value in found]
        if len(found) > _MOST_FOUND:
            return [UNJUDGED]
    return found


def _member(value: Any, part: str) -> Any:
    if isinstance(value, dict | Mapping):
        return value.get(part, MISSING)
    if isinstance(value, list) and _INDEX.fullmatch(part):
        at = int(part)
        return value[at] if at < len(value) else MISSING
    return MISSING if value is MISSING else UNJUDGED


def _elements(value: Any) -> list[Any]:
    if isinstance(value, dict | Mapping):
        value = list(value.values())
    if isinstance(value, list):
        return value or [MISSING]
    return [MISSING if value is MISSING else UNJUDGED]

"""JSON pointers (RFC 6901) into arguments, with ``*`` for every element; they lead to values, or to one of two marks.

``MISSING``: there is nothing. ``UNJUDGED``: the way leads through something that is neither object nor array, or to
more elements than are looked at; a server may still find a value there, such as JSON inside a text, so nobody may
conclude that there is none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import Any

__all__ = ["MISSING", "UNJUDGED", "Mark", "PointerError", "follow", "parse_pointer"]


class Mark(Enum):
    """What a pointer leads to in place of a value."""

    MISSING = "nothing"
    UNJUDGED = "something that cannot be judged"


MISSING = Mark.MISSING
UNJUDGED = Mark.UNJUDGED

_MOST_PARTS = 32
_MOST_FOUND = 10_000
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}", re.ASCII)
_LONE_TILDE = re.compile(r"~(?![01])")


class PointerError(ValueError):
    """A text is no JSON pointer; the message says why and what to write."""


def parse_pointer(text: str) -> tuple[str, ...]:
    """Cut a pointer into its parts, unescaped.

    Raises:
        PointerError: it is none.
    """
    if text and not text.startswith("/"):
        raise PointerError(f"{text!r} is no JSON pointer: write {'/' + text!r}")
    if _LONE_TILDE.search(text):
        raise PointerError(f"{text!r} has a '~' by itself: write '~0' for '~' and '~1' for '/'")
    parts = tuple(part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:])
    if len(parts) > _MOST_PARTS:
        raise PointerError(f"a pointer of {len(parts)} parts: {_MOST_PARTS} are the most")
    return parts


def follow(arguments: Mapping[str, Any], parts: tuple[str, ...]) -> list[Any]:
    """Follow a pointer to what it leads to: one thing, or more where it has a ``*``; never none."""
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

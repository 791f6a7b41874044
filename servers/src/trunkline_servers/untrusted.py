"""Text and JSON from third parties made safe to show: printable, truncated, on one line.

Members of another type than expected count as absent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Literal

__all__ = ["as_dict", "as_list", "as_text", "one_line", "printable", "truncate"]

#: What replaces an unprintable character: its escape in JSON or in Python, a space, or nothing.
Replacement = Literal["json", "python", "space", "nothing"]
_REPLACE: Mapping[Replacement, Callable[[str], str]] = MappingProxyType(
    {
        "json": lambda character: json.dumps(character)[1:-1],
        "python": lambda character: character.encode("unicode_escape").decode(),
        "space": lambda _: " ",
        "nothing": lambda _: "",
    }
)


def truncate(text: str, most: int) -> str:
    """Truncate a text; an ellipsis marks the cut."""
    return text if len(text) <= most else f"{text[:most]}…"


def printable(
    text: str, most: int | None = None, *, replacement: Replacement = "json", keep: str = "", invisible: str = ""
) -> str:
    """Return a text with every unprintable character replaced: control characters could forge lines or hide text.

    Args:
        text: The text.
        most: Characters of the text beyond this number are cut; an ellipsis marks the cut.
        replacement: What an unprintable character is replaced by.
        keep: Unprintable characters that stay, such as a newline.
        invisible: Characters outside ASCII that count as printable but cannot be seen; they are replaced too.
    """

    def replaced(found: re.Match[str]) -> str:
        character = found[0]
        return character if character.isprintable() and character not in invisible else replace(character)

    replace = _REPLACE[replacement]
    shown = _unusual(keep).sub(replaced, text if most is None else text[: most + 1])
    return shown if most is None or len(text) <= most else f"{shown[:most]}…"


@cache
def _unusual(keep: str) -> re.Pattern[str]:
    """Return a pattern for the characters that may be unprintable; most texts have none, so few are looked at."""
    return re.compile(rf"[^\x20-\x7e{re.escape(keep)}]")


def one_line(text: str, most: int = 400) -> str:
    """Return a text on one line, without unprintable characters, truncated."""
    return truncate(" ".join(printable(text, replacement="space").split()), most)


def as_dict(value: Any) -> dict[str, Any]:
    """Return the value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """Return the value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def as_text(value: Any, most: int = 500) -> str:
    """Return the first ``most`` characters of a string; empty for anything else."""
    return value[:most] if isinstance(value, str) else ""

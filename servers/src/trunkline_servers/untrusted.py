"""Text and JSON from third parties made safe to show: truncated, on one line, with invisible characters escaped.

Members of another type than expected count as absent.
"""

from __future__ import annotations

from typing import Any

__all__ = ["as_dict", "as_list", "as_text", "escape_invisible", "one_line", "truncate"]


def truncate(text: str, most: int) -> str:
    """Truncate a text; an ellipsis marks the cut."""
    return text if len(text) <= most else f"{text[:most]}…"


def one_line(text: str, most: int = 400) -> str:
    """Return a text on one line, without unprintable characters, truncated."""
    return truncate(" ".join("".join(each if each.isprintable() else " " for each in text).split()), most)


def escape_invisible(text: str, *, unseen: frozenset[str] = frozenset()) -> str:
    """Return a text on one line with unprintable characters, and those in ``unseen``, escaped."""
    if text.isprintable() and unseen.isdisjoint(text):
        return text
    return "".join(
        each if each.isprintable() and each not in unseen else each.encode("unicode_escape").decode() for each in text
    )


def as_dict(value: Any) -> dict[str, Any]:
    """Return the value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """Return the value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def as_text(value: Any, most: int = 500) -> str:
    """Return the first ``most`` characters of a string; empty for anything else."""
    return value[:most] if isinstance(value, str) else ""

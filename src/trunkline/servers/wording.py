"""Untrusted text made safe to show: on one line, printable, and truncated."""

from __future__ import annotations

__all__ = ["cut", "one_line", "visible"]


def cut(text: str, most: int) -> str:
    """Truncate a text; an ellipsis marks the cut."""
    return text if len(text) <= most else f"{text[:most]}…"


def one_line(text: str, most: int = 400) -> str:
    """Return a text on one line, without unprintable characters, truncated."""
    return cut(" ".join("".join(each if each.isprintable() else " " for each in text).split()), most)


def visible(text: str, *, unseen: frozenset[str] = frozenset()) -> str:
    """Return a text on one line with unprintable characters, and those in ``unseen``, escaped."""
    if text.isprintable() and unseen.isdisjoint(text):
        return text
    return "".join(
        each if each.isprintable() and each not in unseen else each.encode("unicode_escape").decode() for each in text
    )

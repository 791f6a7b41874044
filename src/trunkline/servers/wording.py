"""Words of others as they may stand in an answer: on one line, of characters that can be seen, and not too many."""

from __future__ import annotations

__all__ = ["cut", "one_line", "visible"]


def cut(text: str, most: int) -> str:
    """Give the beginning of a text; where something is missing, an ellipsis says so."""
    return text if len(text) <= most else f"{text[:most]}…"


def one_line(text: str, most: int = 400) -> str:
    """Give the beginning of a text on one line, of printable characters."""
    return cut(" ".join("".join(each if each.isprintable() else " " for each in text).split()), most)


def visible(text: str, *, unseen: frozenset[str] = frozenset()) -> str:
    """Give a text on one line with nothing left out: what cannot be seen, and what is in ``unseen``, is written out."""
    if text.isprintable() and unseen.isdisjoint(text):
        return text
    return "".join(
        each if each.isprintable() and each not in unseen else each.encode("unicode_escape").decode() for each in text
    )

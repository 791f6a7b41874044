"""Results of the tools: GitHub's JSON as text, within a limit; a second text says what was left out.

Long texts inside (patches, bodies) are shortened first, then items at the end of a list are left out.
"""

from __future__ import annotations

import json
from typing import Any

from trunkline import ToolError
from trunkline.servers.github.shapes import Shape, shaped
from trunkline.types import TextContent

__all__ = ["MOST_CHARACTERS", "answer", "page_note"]

#: Most characters of one result: more would fill the context of most models.
MOST_CHARACTERS = 400_000
_LONGEST_TEXT = 40_000
_SHORTER_TEXT = 4_000


def answer(value: Any, shape: Shape | None = None, *, note: str | None = None) -> list[TextContent]:
    """Return the content of a tool result.

    Raises:
        ToolError: it is too large even when shortened, or too deep.
    """
    try:
        text, cut = _fitting(shaped(value, shape))
    except RecursionError:
        raise ToolError("The answer of GitHub is too deeply nested to be shown") from None
    notes = [each for each in (cut, note) if each]
    return [TextContent(text=text), *(TextContent(text=each) for each in notes)]


def page_note(items: Any, page: int, size: int) -> str | None:
    """Return a note that there may be more, if a page is full."""
    if not isinstance(items, list) or len(items) < size:
        return None
    return f"Note: page {page} is full ({size} items); there may be more on page {page + 1}."


def _fitting(value: Any) -> tuple[str, str | None]:
    """Return a value as text, and a note about what was left out."""
    whole = _text(value)
    if len(whole) <= MOST_CHARACTERS:
        return whole, None
    for longest in (_LONGEST_TEXT, _SHORTER_TEXT):
        shorter = _text(_shortened(value, longest))
        if len(shorter) <= MOST_CHARACTERS:
            return shorter, f"Note: texts longer than {longest} characters were cut; each says so at its end."
    value = _shortened(value, _SHORTER_TEXT)
    items = value if isinstance(value, list) else value.get("items") if isinstance(value, dict) else None
    if not isinstance(items, list):
        raise ToolError(f"The answer of GitHub is larger than {MOST_CHARACTERS} characters, even when shortened")
    kept = _first_that_fit(items)
    text = _text(kept if isinstance(value, list) else {**value, "items": kept})
    return (
        text,
        f"Note: only {len(kept)} of {len(items)} items are shown, and long texts are cut; ask for smaller pages.",
    )


def _text(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _shortened(value: Any, longest: int) -> Any:
    if isinstance(value, str) and len(value) > longest:
        return f"{value[:longest]}\n[cut: {len(value) - longest} more characters]"
    if isinstance(value, list):
        return [_shortened(each, longest) for each in value]
    if isinstance(value, dict):
        return {name: _shortened(each, longest) for name, each in value.items()}
    return value


def _first_that_fit(items: list[Any]) -> list[Any]:
    kept: list[Any] = []
    # Reserve for brackets, indentation and the members around the list.
    room = MOST_CHARACTERS - 4_000
    for item in items:
        room -= len(_text(item)) + 8 * _text(item).count("\n")
        if room < 0:
            break
        kept.append(item)
    return kept

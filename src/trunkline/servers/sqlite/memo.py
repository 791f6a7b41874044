"""The memo of insights: short findings that tools append and clients read, kept in memory and bounded."""

from __future__ import annotations

from trunkline.errors import ToolError
from trunkline.servers.wording import one_line

__all__ = ["Memo"]

_MOST_INSIGHTS = 1000
_LONGEST_INSIGHT = 10_000
_LONGEST_MEMO = 1024 * 1024


class Memo:
    """Insights in the order they were added."""

    def __init__(self) -> None:
        """Start empty."""
        self._insights: list[str] = []
        self._size = 0

    def append(self, insight: str) -> None:
        """Add an insight.

        Raises:
            ToolError: it is too long, or the memo is full.
        """
        if len(insight) > _LONGEST_INSIGHT:
            raise ToolError(f"Error: an insight has at most {_LONGEST_INSIGHT} characters; say it in fewer")
        if len(self._insights) >= _MOST_INSIGHTS or self._size + len(insight) > _LONGEST_MEMO:
            raise ToolError("Error: the memo is full; restart the server to begin a new one")
        self._insights.append(insight)
        self._size += len(insight)

    def text(self) -> str:
        """Return the whole memo."""
        if not self._insights:
            return "The memo has no insights yet."
        # An insight with newlines must not look like several.
        points = "\n".join(f"- {one_line(insight, _LONGEST_INSIGHT)}" for insight in self._insights)
        count = f"{len(self._insights)} insights" if len(self._insights) > 1 else "1 insight"
        return f"Insights memo ({count})\n\n{points}"

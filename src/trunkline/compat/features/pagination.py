"""Pages of lists as FastMCP makes them: the cursor is the place of the next page's first item, encoded."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["CursorState", "paginate_sequence"]


@dataclass
class CursorState:
    """Where a page begins."""

    offset: int

    def encode(self) -> str:
        """Return the cursor as a text that says nothing to clients."""
        return base64.urlsafe_b64encode(json.dumps({"o": self.offset}).encode()).decode()

    @classmethod
    def decode(cls, cursor: str) -> CursorState:
        """Parse a cursor.

        Raises:
            ValueError: it is not one of ours.
        """
        try:
            offset = json.loads(base64.urlsafe_b64decode(cursor.encode()))["o"]
        except (ValueError, KeyError, TypeError, binascii.Error) as error:
            raise ValueError(f"Invalid cursor: {cursor}") from error
        if type(offset) is not int or offset < 0:
            raise ValueError(f"Invalid cursor: {cursor}")
        return cls(offset)


def paginate_sequence(items: Sequence[Any], cursor: str | None, page_size: int) -> tuple[list[Any], str | None]:
    """Return one page, and the cursor of the next one or None.

    Raises:
        ValueError: the cursor is not one of ours.
    """
    start = CursorState.decode(cursor).offset if cursor else 0
    end = start + page_size
    return list(items[start:end]), CursorState(end).encode() if end < len(items) else None

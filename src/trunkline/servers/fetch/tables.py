"""Data tables of a page and their cells; many tables only lay out a page.

A data table has at least two columns and nothing in its cells that needs more than a line. This module does not know
how a table is shown.
"""

from __future__ import annotations

from collections.abc import Sequence

from trunkline.servers.fetch.html_reading import Node
from trunkline.servers.fetch.main_content import LARGE

__all__ = ["rows_of"]

_MAX_COLUMNS = 60
_PARTS = frozenset({"tbody", "tfoot", "thead"})


def rows_of(table: Node, levels: Sequence[int]) -> list[list[Node | None]] | None:
    """Return the rows of a data table, None for an empty cell; None if it is a layout table or has one column.

    ``levels`` is the kind of blocks in each element, by index.
    """
    rows = [row for row in map(_cells, _rows(table)) if row]
    if not rows or max(map(len, rows)) < 2:
        return None
    return None if any(cell is not None and levels[cell.place] >= LARGE for row in rows for cell in row) else rows


def _rows(table: Node) -> list[Node]:
    found: list[Node] = []
    for child in table.children:
        if isinstance(child, Node):
            inside = child.children if child.tag in _PARTS else [child]
            found.extend(row for row in inside if isinstance(row, Node) and row.tag == "tr")
    return found


def _cells(row: Node) -> list[Node | None]:
    """Return the cells of a row; one that spans columns is followed by empty cells."""
    cells: list[Node | None] = []
    for child in row.children:
        if isinstance(child, Node) and child.tag in ("td", "th"):
            cells.append(child)
            span = child.given("colspan")
            if span in ("2", "3", "4", "5", "6", "7", "8", "9") and len(cells) < _MAX_COLUMNS:
                cells.extend([None] * (int(span) - 1))
    return cells[:_MAX_COLUMNS]

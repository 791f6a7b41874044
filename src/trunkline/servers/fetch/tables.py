"""Which tables of a page hold data, and the cells of those: many tables only lay out a page.

A table of data has at least two columns and nothing in its cells that would need more than a line. It knows nothing of
how a table is shown.
"""

from __future__ import annotations

from trunkline.servers.fetch.html_reading import BLOCKS, Node

__all__ = ["rows_of"]

_MAX_COLUMNS = 60
_PARTS = frozenset({"tbody", "tfoot", "thead"})
# Blocks that read well in one line.
_SMALL = frozenset({"caption", "center", "div", "p"})


def rows_of(table: Node) -> list[list[Node]] | None:
    """Give the rows of a table and their cells; None if it lays out a page, or has a single column."""
    rows = [row for row in map(_cells, _rows(table)) if row]
    if not rows or max(map(len, rows)) < 2:
        return None
    return None if any(_is_large(cell) for row in rows for cell in row) else rows


def _rows(table: Node) -> list[Node]:
    found: list[Node] = []
    for child in table.children:
        if isinstance(child, Node):
            inside = child.children if child.tag in _PARTS else [child]
            found.extend(row for row in inside if isinstance(row, Node) and row.tag == "tr")
    return found


def _cells(row: Node) -> list[Node]:
    """Give the cells of a row; one that spans columns is followed by empty ones."""
    cells: list[Node] = []
    for child in row.children:
        if isinstance(child, Node) and child.tag in ("td", "th"):
            cells.append(child)
            span = child.attributes.get("colspan", "1")
            if span in ("2", "3", "4", "5", "6", "7", "8", "9"):
                cells.extend(Node("td", {}) for _ in range(int(span) - 1))
    return cells[:_MAX_COLUMNS]


def _is_large(cell: Node) -> bool:
    return any(inside.tag in BLOCKS and inside.tag not in _SMALL for inside in cell.elements() if inside is not cell)

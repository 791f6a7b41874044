"""Pagination."""

from __future__ import annotations

from tests.interaction.rows import Row

__all__ = ["ROWS"]

ROWS: tuple[Row, ...] = (
    Row(
        id="pagination.cursor-dead",
        spec="2026-07-28 server/utilities/caching#interaction-with-pagination",
        sentence="A cursor of a removed item is invalid and the list can be restarted.",
    ),
    Row(
        id="pagination.cursor-foreign",
        spec="2025-11-25 server/utilities/pagination#error-handling",
        sentence="A cursor of another list is invalid.",
    ),
    Row(
        id="pagination.cursor-invalid",
        spec="2025-11-25 server/utilities/pagination#error-handling",
        sentence="A cursor that was never given is invalid.",
    ),
    Row(
        id="pagination.cursor-stable",
        spec="2025-11-25 server/utilities/pagination#implementation-guidelines",
        sentence="A cursor gives the same page again.",
    ),
    Row(
        id="pagination.one-page",
        spec="2025-11-25 server/utilities/pagination#response-format",
        sentence="A short list has no cursor.",
    ),
    Row(
        id="pagination.pages",
        spec="2025-11-25 server/utilities/pagination#pagination-flow",
        sentence="The pages of a list hold each item once and the last has no cursor.",
    ),
)

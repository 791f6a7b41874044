"""Tasks."""

from __future__ import annotations

from tests.interaction.rows import URL_COMPLETING, Row

__all__ = ["ROWS"]

ROWS: tuple[Row, ...] = (
    Row(
        id="tasks.ignored",
        spec="2025-11-25 basic/utilities/tasks#capabilities",
        sentence="A call that wishes to be a task is an ordinary call.",
        revisions=URL_COMPLETING,
    ),
    Row(
        id="tasks.undeclared",
        spec="2025-11-25 basic/utilities/tasks#capabilities",
        sentence="A server without tasks does not have their methods.",
        revisions=URL_COMPLETING,
    ),
)

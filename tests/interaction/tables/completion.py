"""Completion."""

from __future__ import annotations

from tests.interaction.rows import SINCE_2025_06, Row

__all__ = ["ROWS"]

ROWS: tuple[Row, ...] = (
    Row(
        id="completion.any",
        spec="2025-11-25 server/utilities/completion#requesting-completions",
        sentence="One function can complete everything.",
    ),
    Row(
        id="completion.context",
        spec="2025-06-18 server/utilities/completion#requesting-completions",
        sentence="Arguments filled in before are taken into account.",
        revisions=SINCE_2025_06,
    ),
    Row(
        id="completion.limit",
        spec="2025-11-25 server/utilities/completion#completion-results",
        sentence="At most a hundred values are given and the rest is counted.",
    ),
    Row(
        id="completion.nothing",
        spec="2025-11-25 server/utilities/completion#completion-results",
        sentence="An argument that nothing completes has no values.",
    ),
    Row(
        id="completion.template",
        spec="2025-11-25 server/utilities/completion#requesting-completions",
        sentence="A variable of a template is completed.",
    ),
    Row(
        id="completion.undeclared",
        spec="2025-11-25 server/utilities/completion#error-handling",
        sentence="A server without completion does not have the method.",
    ),
    Row(
        id="completion.unknown",
        spec="2025-11-25 server/utilities/completion#error-handling",
        sentence="A reference or argument that is unknown is invalid.",
    ),
)

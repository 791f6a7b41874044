"""Prompts."""

from __future__ import annotations

from tests.interaction.rows import EVERYWHERE, Row

__all__ = ["ROWS"]

ROWS: tuple[Row, ...] = (
    Row(
        id="prompts.arguments-wrong",
        spec="2025-11-25 server/prompts#implementation-considerations",
        sentence="Missing wrong and unknown arguments are invalid.",
    ),
    Row(
        id="prompts.content",
        spec="2025-11-25 server/prompts#promptmessage",
        sentence="A prompt has pictures sounds and resources.",
    ),
    Row(
        id="prompts.failure",
        spec="2025-11-25 server/prompts#error-handling",
        sentence="An unexpected failure of a prompt has no internal details.",
    ),
    Row(
        id="prompts.get",
        spec="2025-11-25 server/prompts#getting-a-prompt",
        sentence="A prompt is filled in.",
        transports=EVERYWHERE,
    ),
    Row(
        id="prompts.list",
        spec="2025-11-25 server/prompts#listing-prompts",
        sentence="A prompt is listed with its arguments.",
    ),
    Row(
        id="prompts.list-members",
        spec="2025-11-25 server/prompts#prompt",
        sentence="A prompt is listed with the members that the revision has.",
    ),
    Row(
        id="prompts.unknown",
        spec="2025-11-25 server/prompts#error-handling",
        sentence="An unknown prompt is invalid.",
    ),
)

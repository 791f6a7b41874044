"""Cancellation."""

from __future__ import annotations

from tests.interaction.rows import ELICITING, EVERYWHERE, HANDSHAKE, Row

__all__ = ["ROWS"]

ROWS: tuple[Row, ...] = (
    Row(
        id="cancellation.at-once",
        spec="2025-11-25 basic/utilities/cancellation#timing-considerations",
        sentence="A cancellation right behind its request leaves at most one answer.",
        transports=EVERYWHERE,
    ),
    Row(
        id="cancellation.id-free",
        spec="2026-07-28 basic/index#requests",
        sentence="The id of a cancelled request can be used again.",
    ),
    Row(
        id="cancellation.id-types",
        spec="2025-11-25 basic/utilities/cancellation#behavior-requirements",
        sentence="A text does not cancel a number that looks like it.",
    ),
    Row(
        id="cancellation.initialize",
        spec="2025-11-25 basic/utilities/cancellation#behavior-requirements",
        sentence="Initialize cannot be cancelled.",
        revisions=HANDSHAKE,
        transports=EVERYWHERE,
    ),
    Row(
        id="cancellation.invalid",
        spec="2025-11-25 basic/utilities/cancellation#error-handling",
        sentence="A cancellation that fits nothing is ignored.",
    ),
    Row(
        id="cancellation.late",
        spec="2025-11-25 basic/utilities/cancellation#timing-considerations",
        sentence="A cancellation after the answer is ignored.",
    ),
    Row(
        id="cancellation.others",
        spec="2025-11-25 basic/utilities/cancellation#behavior-requirements",
        sentence="Other calls go on.",
    ),
    Row(
        id="cancellation.question",
        spec="2025-11-25 basic/utilities/cancellation#cancellation-flow",
        sentence="A question of a cancelled call is withdrawn.",
        revisions=ELICITING,
        transports=EVERYWHERE,
    ),
    Row(
        id="cancellation.stops",
        spec="2025-11-25 basic/utilities/cancellation#behavior-requirements",
        sentence="A cancelled call is stopped and never answered.",
        transports=EVERYWHERE,
    ),
    Row(
        id="cancellation.swallowed",
        spec="2025-11-25 basic/utilities/cancellation#behavior-requirements",
        sentence="The result of a cancelled handler is not sent.",
    ),
    Row(
        id="cancellation.thread",
        spec="2025-11-25 basic/utilities/cancellation#behavior-requirements",
        sentence="A cancelled call in a thread is never answered.",
        transports=EVERYWHERE,
    ),
    Row(
        id="cancellation.twice",
        spec="2025-11-25 basic/utilities/cancellation#timing-considerations",
        sentence="A call can be cancelled twice.",
    ),
)

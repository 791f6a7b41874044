"""Progress."""

from __future__ import annotations

from tests.interaction.rows import ALL, EVERYWHERE, SINCE_2025_03, Row

__all__ = ["ROWS"]

ROWS: tuple[Row, ...] = (
    Row(
        id="progress.after-result",
        spec="2025-11-25 basic/utilities/progress#implementation-notes",
        sentence="No progress follows the result.",
        transports=EVERYWHERE,
    ),
    Row(
        id="progress.apart",
        spec="2025-11-25 basic/utilities/progress#behavior-requirements",
        sentence="Two calls report under their own tokens.",
    ),
    Row(
        id="progress.before-result",
        spec="2025-11-25 basic/utilities/progress#implementation-notes",
        sentence="All progress comes before the result.",
        transports=EVERYWHERE,
    ),
    Row(
        id="progress.increases",
        spec="2025-11-25 basic/utilities/progress#progress-flow",
        sentence="Progress that does not increase is not sent.",
    ),
    Row(
        id="progress.increases-thread",
        spec="2025-11-25 basic/utilities/progress#progress-flow",
        sentence="Progress from a thread that does not increase is not sent.",
    ),
    Row(
        id="progress.message",
        spec="2025-03-26 basic/utilities/progress#progress-flow",
        sentence="Progress has a message.",
        revisions=SINCE_2025_03,
    ),
    Row(
        id="progress.message-absent",
        spec="2025-03-26 changelog#other-schema-changes",
        sentence="Progress has no message where the revision has none.",
        revisions=ALL[:1],
    ),
    Row(
        id="progress.pieces",
        spec="2025-11-25 basic/utilities/progress#progress-flow",
        sentence="A tool that answers in pieces reports each of them.",
        revisions=SINCE_2025_03,
    ),
    Row(
        id="progress.reported",
        spec="2025-11-25 basic/utilities/progress#progress-flow",
        sentence="Progress is reported under the token of the request.",
    ),
    Row(
        id="progress.token-invalid",
        spec="2025-11-25 basic/utilities/progress#progress-flow",
        sentence="A token is a text or an integer.",
    ),
    Row(
        id="progress.unwanted",
        spec="2025-11-25 basic/utilities/progress#behavior-requirements",
        sentence="No progress is reported without a token.",
    ),
)

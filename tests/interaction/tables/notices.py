"""Changes told on the connection."""

from __future__ import annotations

from tests.interaction.rows import HANDSHAKE, Row

__all__ = ["ROWS"]

ROWS: tuple[Row, ...] = (
    Row(
        id="notices.list-changed",
        spec="2025-11-25 server/tools#list-changed-notification",
        sentence="A client is notified of a changed list.",
        revisions=HANDSHAKE,
    ),
    Row(
        id="notices.list-fresh",
        spec="2025-11-25 server/tools#capabilities",
        sentence="After a change the list and calls are of the new state.",
    ),
    Row(
        id="notices.once",
        spec="2025-11-25 server/tools#list-changed-notification",
        sentence="Many changes at once are one notice on the connection.",
        revisions=HANDSHAKE,
    ),
)

"""Roots."""

from __future__ import annotations

from tests.interaction.rows import EVERYWHERE, HANDSHAKE, Row

__all__ = ["ROWS"]

ROWS: tuple[Row, ...] = (
    Row(
        id="roots.changed",
        spec="2025-11-25 client/roots#root-list-changes",
        sentence="A server is notified of changed roots.",
        revisions=HANDSHAKE,
    ),
    Row(
        id="roots.listed",
        spec="2025-11-25 client/roots#listing-roots",
        sentence="A client is asked for its folders.",
        transports=EVERYWHERE,
    ),
    Row(
        id="roots.scheme",
        spec="2025-11-25 client/roots#root",
        sentence="A folder that is no file uri is rejected.",
    ),
    Row(
        id="roots.undeclared",
        spec="2025-11-25 client/roots#capabilities",
        sentence="A client that shares no folders is not asked.",
    ),
)

"""Logging."""

from __future__ import annotations

from tests.interaction.rows import EVERYWHERE, HANDSHAKE, STATELESS, Row

__all__ = ["ROWS"]

ROWS: tuple[Row, ...] = (
    Row(
        id="logging.after-result",
        spec="2026-07-28 server/utilities/logging#per-request-log-level",
        sentence="Nothing is logged for a request that is over.",
    ),
    Row(
        id="logging.before-result",
        spec="2026-07-28 server/utilities/logging#per-request-log-level",
        sentence="Messages come before the result they belong to.",
        transports=EVERYWHERE,
    ),
    Row(
        id="logging.everywhere",
        spec="2025-11-25 server/utilities/logging#log-message-notifications",
        sentence="A resource can log too.",
    ),
    Row(
        id="logging.level",
        spec="2025-11-25 server/utilities/logging#setting-log-level",
        sentence="Only messages of the wanted severity are sent.",
        revisions=HANDSHAKE,
        transports=EVERYWHERE,
    ),
    Row(
        id="logging.level-changes",
        spec="2025-11-25 server/utilities/logging#message-flow",
        sentence="The level can be changed at any time.",
        revisions=HANDSHAKE,
    ),
    Row(
        id="logging.level-invalid",
        spec="2025-11-25 server/utilities/logging#error-handling",
        sentence="An unknown level is invalid.",
        revisions=HANDSHAKE,
    ),
    Row(
        id="logging.level-own",
        spec="2025-11-25 server/utilities/logging#setting-log-level",
        sentence="The level belongs to the client that set it.",
        revisions=HANDSHAKE,
    ),
    Row(
        id="logging.message",
        spec="2025-11-25 server/utilities/logging#log-message-notifications",
        sentence="A message has a level a logger and any data.",
    ),
    Row(
        id="logging.request-level",
        spec="2026-07-28 server/utilities/logging#per-request-log-level",
        sentence="A request has a log level.",
        revisions=STATELESS,
        transports=EVERYWHERE,
    ),
    Row(
        id="logging.request-level-absent",
        spec="2026-07-28 server/utilities/logging#per-request-log-level",
        sentence="A request that does not want messages gets none.",
        revisions=STATELESS,
    ),
    Row(
        id="logging.request-level-invalid",
        spec="2026-07-28 server/utilities/logging#error-handling",
        sentence="An unknown level in a request is invalid.",
        revisions=STATELESS,
    ),
)

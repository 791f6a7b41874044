"""Requests that stand for themselves."""

from __future__ import annotations

from tests.interaction.rows import EVERYWHERE, HANDSHAKE, STATELESS, Row

__all__ = ["ROWS"]

ROWS: tuple[Row, ...] = (
    Row(
        id="versioning.client-info-optional",
        spec="2026-07-28 basic/index#meta",
        sentence="A caller need not say its name.",
        revisions=STATELESS,
    ),
    Row(
        id="versioning.discover",
        spec="2026-07-28 server/discover#response",
        sentence="Discover returns versions and capabilities.",
        revisions=STATELESS,
        transports=EVERYWHERE,
    ),
    Row(
        id="versioning.envelope-required",
        spec="2026-07-28 basic/index#meta",
        sentence="An incomplete envelope is rejected.",
        revisions=STATELESS,
    ),
    Row(
        id="versioning.envelope-types",
        spec="2026-07-28 basic/index#meta",
        sentence="An envelope of the wrong type is rejected.",
        revisions=STATELESS,
    ),
    Row(
        id="versioning.handshake-only",
        spec="2026-07-28 basic/versioning#protocol-version-negotiation",
        sentence="A server with a handshake alone names its versions to a newer client.",
        revisions=STATELESS,
    ),
    Row(
        id="versioning.interleaved",
        spec="2026-07-28 basic/index#statelessness",
        sentence="Callers with different capabilities share one connection.",
        revisions=STATELESS,
    ),
    Row(
        id="versioning.methods-gone",
        spec="2026-07-28 changelog#major-changes",
        sentence="Methods that went are not found.",
        revisions=STATELESS,
    ),
    Row(
        id="versioning.methods-not-yet",
        spec="2026-07-28 changelog#major-changes",
        sentence="Methods that had not come are not found.",
        revisions=HANDSHAKE,
    ),
    Row(
        id="versioning.modern-only",
        spec="2026-07-28 basic/versioning#backward-compatibility-with-initialization-based-versions",
        sentence="A server without a handshake names its versions to an older client.",
        revisions=STATELESS,
    ),
    Row(
        id="versioning.no-memory",
        spec="2026-07-28 basic/index#statelessness",
        sentence="Capabilities of one request do not apply to the next.",
        revisions=STATELESS,
        transports=EVERYWHERE,
    ),
    Row(
        id="versioning.result-type",
        spec="2026-07-28 basic/index#resulttype",
        sentence="Every result has its type.",
        revisions=STATELESS,
    ),
    Row(
        id="versioning.result-type-absent",
        spec="2026-07-28 basic/index#resulttype",
        sentence="Results of older revisions have no type.",
        revisions=HANDSHAKE,
    ),
    Row(
        id="versioning.server-info",
        spec="2026-07-28 basic/index#meta",
        sentence="Every result has the server info.",
        revisions=STATELESS,
    ),
    Row(
        id="versioning.unsupported",
        spec="2026-07-28 basic/versioning#protocol-version-negotiation",
        sentence="A version that is not served this way is rejected with those that are.",
        revisions=STATELESS,
    ),
    Row(
        id="versioning.unsupported-unknown-method",
        spec="2026-07-28 basic/versioning#protocol-version-negotiation",
        sentence="An unsupported version is reported before an unknown method.",
        revisions=STATELESS,
    ),
)

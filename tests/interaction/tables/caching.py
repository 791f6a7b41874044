"""Caching."""

from __future__ import annotations

from tests.interaction.rows import HANDSHAKE, STATELESS, Row

__all__ = ["ROWS"]

ROWS: tuple[Row, ...] = (
    Row(
        id="caching.client-cursor-dead",
        spec="2026-07-28 server/utilities/caching#interaction-with-pagination",
        sentence="An expired cursor restarts the list.",
        revisions=STATELESS,
    ),
    Row(
        id="caching.client-handshake",
        spec="2026-07-28 server/utilities/caching#time-to-live-ttl-field",
        sentence="Results without cache hints are not cached.",
        revisions=HANDSHAKE,
    ),
    Row(
        id="caching.client-kept",
        spec="2026-07-28 server/utilities/caching#freshness-calculation",
        sentence="A fresh result is not fetched again until its time is over.",
        revisions=STATELESS,
    ),
    Row(
        id="caching.client-key",
        spec="2026-07-28 server/utilities/caching#cache-key",
        sentence="A result is kept for its own parameters alone.",
        revisions=STATELESS,
    ),
    Row(
        id="caching.client-notice",
        spec="2026-07-28 server/utilities/caching#interaction-with-notifications",
        sentence="A notification invalidates the cache.",
        revisions=STATELESS,
    ),
    Row(
        id="caching.client-rounds",
        spec="2026-07-28 server/utilities/caching#cache-key",
        sentence="A result of several rounds is not kept.",
        revisions=STATELESS,
    ),
    Row(
        id="caching.client-stale",
        spec="2026-07-28 server/utilities/caching#time-to-live-ttl-field",
        sentence="A result without a time is fetched each time.",
        revisions=STATELESS,
    ),
    Row(
        id="caching.hints",
        spec="2026-07-28 server/utilities/caching#cacheable-results",
        sentence="Results that may be kept say for how long and for whom.",
        revisions=STATELESS,
    ),
    Row(
        id="caching.hints-absent",
        spec="2026-07-28 changelog#minor-changes",
        sentence="Results have no cache hints in older revisions.",
        revisions=HANDSHAKE,
    ),
    Row(
        id="caching.scope-pages",
        spec="2026-07-28 server/utilities/caching#interaction-with-pagination",
        sentence="All pages of a list are for the same readers.",
        revisions=STATELESS,
    ),
    Row(
        id="caching.scope-private",
        spec="2026-07-28 server/utilities/caching#choosing-a-cache-scope",
        sentence="A list that differs by caller is private.",
        revisions=STATELESS,
    ),
    Row(
        id="caching.ttl",
        spec="2026-07-28 server/utilities/caching#time-to-live-ttl-field",
        sentence="The time is the one that was set.",
        revisions=STATELESS,
    ),
)
